#include "relay/admit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "relay/route.h"
#include "wire/frame/limits.h"
#include "wire/nostr/nip42.h"
#include "wire/nostr/nip44.h"
#include "wire/nostr/nipoa.h"

/* A frame as its tags say: who sends what to whom. */
struct frame_route {
	uint8_t agent[KEY_BYTES];
	uint8_t p[KEY_BYTES];
	bool telemetry; /* else control */
	/* An attestation that came with this very frame; remembered once the frame proved
	 * to be true. */
	bool attested;
	int64_t expires;
};

bool keyset_has(const struct keyset *keys, const uint8_t key[KEY_BYTES])
{
	size_t i;

	for (i = 0; i < keys->count; i++)
		if (memcmp(keys->keys[i], key, KEY_BYTES) == 0)
			return true;
	return false;
}

bool keyset_add(struct keyset *keys, const uint8_t key[KEY_BYTES])
{
	if (keyset_has(keys, key))
		return true;
	if (keys->count == ADMIT_KEYS_MAX)
		return false;
	memcpy(keys->keys[keys->count++], key, KEY_BYTES);
	return true;
}

void admit_init(struct admit *admit, struct crypto *crypto)
{
	admit->crypto = crypto;
	owners_init(&admit->owners);
	rate_init(&admit->rate, RELAY_FRAMES_PER_S);
	seen_init(&admit->seen);
	/* Decoding never makes an event's text longer. */
	buf_init(&admit->scratch, 2 * EVENT_MAX_BYTES);
}

void admit_finish(struct admit *admit)
{
	owners_finish(&admit->owners);
	rate_finish(&admit->rate);
	seen_finish(&admit->seen);
	buf_finish(&admit->scratch);
}

/* Always false, so that refusing is one line. */
__attribute__((format(printf, 3, 4))) static bool refuse(struct admission *out,
							 enum refusal refusal,
							 const char *fmt, ...)
{
	va_list args;

	out->verdict = ADMIT_REFUSE;
	out->refusal = refusal;
	va_start(args, fmt);
	(void)vsnprintf(out->text, sizeof(out->text), fmt, args);
	va_end(args);
	return false;
}

/* Exactly one tag of that name. */
static bool one_tag(const struct event *event, const char *name, struct slice *value,
		    struct admission *out)
{
	size_t count = event_tag_count(event, slice_of(name));

	if (count != 1)
		return refuse(out, REFUSAL_SHAPE,
			      "invalid: frame has %zu %s tags, want 1", count, name);
	*value = tag_value(event_tag(event, slice_of(name)));
	return true;
}

static bool one_key_tag(const struct event *event, const char *name,
			uint8_t key[KEY_BYTES], struct admission *out)
{
	struct slice value = SLICE_EMPTY;

	if (!one_tag(event, name, &value, out))
		return false;
	if (!hex_decode(value, key, KEY_BYTES))
		return refuse(out, REFUSAL_SHAPE,
			      "invalid: %s tag is no key of 64 lower-case hex digits",
			      name);
	return true;
}

static bool check_shape(const struct event *event, struct frame_route *route,
			struct admission *out)
{
	struct slice frame = SLICE_EMPTY;
	bool from_agent, to_agent;

	if (!one_key_tag(event, "p", route->p, out) ||
	    !one_key_tag(event, "agent", route->agent, out) ||
	    !one_tag(event, "frame", &frame, out))
		return false;
	route->telemetry = slice_eq(frame, SLICE("telemetry"));
	if (!route->telemetry && !slice_eq(frame, SLICE("control"))) {
		out->verdict = ADMIT_IGNORE;
		(void)snprintf(out->text, sizeof(out->text),
			       "ignored: unknown frame value");
		return false;
	}
	from_agent = memcmp(event->pubkey, route->agent, KEY_BYTES) == 0;
	to_agent = memcmp(route->p, route->agent, KEY_BYTES) == 0;
	if (route->telemetry && (!from_agent || to_agent))
		return refuse(out, REFUSAL_SHAPE,
			      "invalid: telemetry goes from the agent to its owner");
	if (!route->telemetry && (from_agent || !to_agent))
		return refuse(out, REFUSAL_SHAPE,
			      "invalid: control goes from the owner to the agent");
	if (!nip44_looks_valid(event->content))
		return refuse(out, REFUSAL_SHAPE,
			      "invalid: content is not NIP-44 version 2");
	return true;
}

static bool check_author(const struct event *event, const struct keyset *keys,
			 struct admission *out)
{
	if (keyset_has(keys, event->pubkey))
		return true;
	if (keys->count == 0)
		return refuse(out, REFUSAL_UNAUTHENTICATED,
			      "auth-required: authenticate as the author (NIP-42) first");
	return refuse(out, REFUSAL_AUTHOR,
		      "restricted: the author is not authenticated on this connection");
}

static bool check_fresh(const struct event *event, int64_t now, struct admission *out)
{
	/* created_at is 0 or more, so that neither side overflows. */
	if (event->created_at < now - FRAME_FRESH_S ||
	    event->created_at > now + FRAME_FRESH_S)
		return refuse(
			out, REFUSAL_STALE,
			"invalid: created_at is more than %d s from the relay's clock, "
			"which says %" PRId64,
			FRAME_FRESH_S, now);
	return true;
}

/* NIP-40: the first expiration tag counts; one that is no number is none. */
static bool check_expiration(const struct event *event, int64_t now,
			     struct admission *out)
{
	const struct tag *tag = event_tag(event, SLICE("expiration"));
	uint64_t expires;

	if (tag && slice_parse_u64(tag_value(tag), INT64_MAX, &expires) &&
	    (int64_t)expires <= now)
		return refuse(out, REFUSAL_EXPIRED, "invalid: the event has expired");
	return true;
}

/* @what: which of the key's buckets. */
static bool take_rate(struct admit *admit, const uint8_t key[KEY_BYTES], char what,
		      int64_t now_ms, struct admission *out)
{
	char bucket[KEY_BYTES + 1];

	memcpy(bucket, key, KEY_BYTES);
	bucket[KEY_BYTES] = what;
	if (!rate_take(&admit->rate, (struct slice){bucket, sizeof(bucket)}, now_ms))
		return refuse(out, REFUSAL_RATE,
			      "rate-limited: more than %d frames a second",
			      RELAY_FRAMES_PER_S);
	return true;
}

/* What the frame itself says about its owner; the signature of the event comes later. */
static bool read_attestation(struct admit *admit, const struct event *event,
			     struct frame_route *route, int64_t now,
			     struct admission *out)
{
	uint8_t owner[KEY_BYTES];
	struct err err;

	if (!nipoa_check(admit->crypto, event, owner, &route->expires, &err)) {
		if (err.code == ERR_NOT_FOUND)
			return refuse(
				out, REFUSAL_OWNER,
				"restricted: nothing attests that p owns this agent: "
				"put a NIP-OA auth tag into AUTH or the frame");
		return refuse(out, REFUSAL_OWNER, "restricted: auth tag: %s", err.text);
	}
	if (memcmp(owner, route->p, KEY_BYTES) != 0)
		return refuse(out, REFUSAL_OWNER,
			      "restricted: the auth tag is by another owner than p");
	if (route->expires <= now)
		return refuse(out, REFUSAL_OWNER, "restricted: the auth tag has expired");
	route->attested = true;
	return true;
}

static bool check_owner(struct admit *admit, const struct event *event,
			struct frame_route *route, int64_t now, int64_t now_ms,
			struct admission *out)
{
	const uint8_t *owner = route->telemetry ? route->p : event->pubkey;

	if (owners_hold(&admit->owners, route->agent, owner, now))
		return true;
	/* An attestation costs a signature to look at, so that has a rate, too. */
	if (route->telemetry)
		return take_rate(admit, route->agent, 't', now_ms, out) &&
		       read_attestation(admit, event, route, now, out);
	return refuse(
		out, REFUSAL_OWNER,
		"restricted: the agent has shown no attestation by this owner here");
}

static bool check_rate(struct admit *admit, const struct event *event,
		       const uint8_t key[KEY_BYTES], int64_t now_ms,
		       struct admission *out)
{
	/* An owner's controls never use up what the agent may send, nor the reverse. */
	return take_rate(admit, key,
			 memcmp(key, event->pubkey, KEY_BYTES) == 0 ? 'a' : 'o', now_ms,
			 out);
}

static bool check_truth(struct admit *admit, const struct event *event,
			struct admission *out)
{
	struct err err;

	if (!event_check_id(admit->crypto, event, &admit->scratch, &err))
		return refuse(out, REFUSAL_ID, "invalid: %s", err.text);
	if (!event_check_sig(admit->crypto, event, &err))
		return refuse(out, REFUSAL_SIGNATURE, "invalid: %s", err.text);
	return true;
}

static void check_repeat(struct admit *admit, const struct event *event, int64_t now,
			 struct admission *out)
{
	struct seen_entry *entry = seen_find(&admit->seen, event->id);

	out->verdict = ADMIT_PASS;
	out->first = !entry;
	if (!entry) {
		seen_add(&admit->seen, event->id, now);
	} else if (entry->reached) {
		out->verdict = ADMIT_DUPLICATE;
		(void)snprintf(out->text, sizeof(out->text),
			       "duplicate: an earlier copy reached a reader");
	}
}

/* Design §7, "24200 in order". */
static void admit_frame(struct admit *admit, const struct event *event,
			const struct keyset *keys, int64_t now, int64_t now_ms,
			struct admission *out)
{
	struct frame_route route = {0};

	if (!check_shape(event, &route, out) || !check_author(event, keys, out) ||
	    !check_fresh(event, now, out) || !check_expiration(event, now, out) ||
	    !check_owner(admit, event, &route, now, now_ms, out) ||
	    !check_rate(admit, event, route.agent, now_ms, out) ||
	    !check_truth(admit, event, out))
		return;
	if (route.attested &&
	    !owners_bind(&admit->owners, route.agent, route.p, route.expires, now)) {
		(void)refuse(out, REFUSAL_OWNER, "error: too many agents are bound here");
		return;
	}
	out->telemetry = route.telemetry;
	memcpy(out->owner, route.telemetry ? route.p : event->pubkey, KEY_BYTES);
	check_repeat(admit, event, now, out);
}

/* NIP-70: a protected event comes from its author only. */
static bool check_protected(const struct event *event, const struct keyset *keys,
			    struct admission *out)
{
	if (event_tag_count(event, SLICE("-")) == 0)
		return true;
	return check_author(event, keys, out);
}

static bool check_authenticated(const struct keyset *keys, struct admission *out)
{
	if (keys->count == 0)
		return refuse(out, REFUSAL_UNAUTHENTICATED,
			      "auth-required: authenticate (NIP-42) before publishing");
	return true;
}

void admit_event(struct admit *admit, const struct event *event,
		 const struct keyset *keys, int64_t now, int64_t now_ms,
		 struct admission *out)
{
	memset(out, 0, sizeof(*out));
	if (kind_is_gated(event->kind)) {
		admit_frame(admit, event, keys, now, now_ms, out);
		return;
	}
	if (event->kind == NIP42_KIND) {
		(void)refuse(out, REFUSAL_KIND,
			     "invalid: kind %d is for AUTH messages only", NIP42_KIND);
		return;
	}
	if (!event_is_ephemeral(event->kind)) {
		(void)refuse(out, REFUSAL_STORED_KIND,
			     "blocked: this relay does not store events yet; "
			     "it routes kind 24200 frames");
		return;
	}
	if (check_authenticated(keys, out) && check_protected(event, keys, out) &&
	    check_expiration(event, now, out) &&
	    check_rate(admit, event, event->pubkey, now_ms, out) &&
	    check_truth(admit, event, out))
		check_repeat(admit, event, now, out);
}

enum bind_result admit_bind(struct admit *admit, const struct event *event, int64_t now,
			    struct err *err)
{
	uint8_t owner[KEY_BYTES];
	int64_t expires;

	if (!nipoa_check(admit->crypto, event, owner, &expires, err))
		return err->code == ERR_NOT_FOUND ? BIND_NONE : BIND_IGNORED;
	if (expires <= now)
		(void)err_set(err, ERR_REFUSED, "it has expired");
	else if (!owners_bind(&admit->owners, event->pubkey, owner, expires, now))
		(void)err_set(err, ERR_TOO_LARGE, "too many agents are bound here");
	else
		return BIND_DONE;
	return BIND_IGNORED;
}
