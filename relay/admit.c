#include "relay/admit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "relay/route.h"
#include "wire/frame/limits.h"
#include "wire/host/loop.h"
#include "wire/nostr/nip19.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip42.h"
#include "wire/nostr/nip44.h"
#include "wire/nostr/nipoa.h"

#define KIND_REPOST 6
#define KIND_GENERIC_REPOST 16

/* A frame as its tags say: who sends what to whom. */
struct frame_route {
	uint8_t agent[KEY_BYTES];
	uint8_t p[KEY_BYTES];
	bool telemetry; /* else control */
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
	budgets_init(&admit->budgets);
	admit->count_loopback = false;
	memset(&admit->verify, 0, sizeof(admit->verify));
	seen_init(&admit->seen);
	/* Decoding never makes an event's text longer. */
	buf_init(&admit->scratch, 2 * EVENT_MAX_BYTES);
}

void admit_finish(struct admit *admit)
{
	owners_finish(&admit->owners);
	budgets_finish(&admit->budgets);
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

/* Budgets */

static bool take(struct admit *admit, enum budget_scope scope, enum budget_kind kind,
		 struct slice who, char part, int64_t cost, int64_t now_ms,
		 struct admission *out)
{
	char text[BUDGET_TEXT_MAX];

	if (budgets_take(&admit->budgets, scope, kind, who, part, cost, now_ms, text))
		return true;
	return refuse(out, REFUSAL_RATE, "%s", text);
}

static struct slice key_slice(const uint8_t key[KEY_BYTES])
{
	return (struct slice){(const char *)key, KEY_BYTES};
}

static bool take_address(struct admit *admit, enum budget_kind kind,
			 const struct address *from, int64_t cost, int64_t now_ms,
			 struct admission *out)
{
	if (!from || !from->known ||
	    (address_is_loopback(from) && !admit->count_loopback))
		return true;
	return take(admit, BUDGET_ADDRESS, kind, address_key(from), 0, cost, now_ms, out);
}

/* Who pays for what a connection does: @author, NULL for nobody, if it proved that key;
 * else the first of its keys that is served, so that none thrown away pays for it. */
static const uint8_t *payer(const struct admit *admit, const struct keyset *keys,
			    const uint8_t *author, int64_t now)
{
	size_t i;

	if (author && keyset_has(keys, author))
		return author;
	for (i = 0; i < keys->count; i++)
		if (owners_permit(&admit->owners, keys->keys[i], now))
			return keys->keys[i];
	return keys->count > 0 ? keys->keys[0] : NULL;
}

/* On the account of @key, unless it is NULL, of that key's owner, and of where it comes
 * from. */
static bool take_all(struct admit *admit, enum budget_kind kind, const uint8_t *key,
		     const struct address *from, int64_t cost, int64_t now,
		     int64_t now_ms, struct admission *out)
{
	if (!take_address(admit, kind, from, cost, now_ms, out))
		return false;
	return !key ||
	       (take(admit, BUDGET_KEY, kind, key_slice(key), 0, cost, now_ms, out) &&
		take(admit, BUDGET_OWNER, kind,
		     key_slice(owners_of(&admit->owners, key, now)), 0, cost, now_ms,
		     out));
}

/* Which of an agent's budgets of frames, each as large: what it sends, what its owner
 * sends it, and attestations, which cost a signature to look at. */
enum frame_part { PART_TELEMETRY, PART_CONTROL, PART_ATTESTATION };

static bool take_frame(struct admit *admit, const uint8_t agent[KEY_BYTES],
		       enum frame_part part, int64_t now_ms, struct admission *out)
{
	return take(admit, BUDGET_KEY, BUDGET_FRAMES, key_slice(agent), (char)part, 1,
		    now_ms, out);
}

/* Owners */

static bool refuse_key(enum refusal refusal, const char *why, const char *command,
		       const uint8_t key[KEY_BYTES], struct admission *out)
{
	struct buf npub;

	buf_init(&npub, 128);
	(void)nip19_encode(NIP19_NPUB, key, &npub);
	(void)refuse(out, refusal, "restricted: %s: its operator can run: %s %s", why,
		     command, buf_text(&npub));
	buf_finish(&npub);
	return false;
}

static bool refuse_revoked(const uint8_t agent[KEY_BYTES], struct admission *out)
{
	return refuse_key(REFUSAL_REVOKED, "this key is revoked on this relay",
			  "perch relay allow", agent, out);
}

static bool refuse_unlisted(const uint8_t owner[KEY_BYTES], struct admission *out)
{
	return refuse_key(REFUSAL_UNLISTED,
			  "this relay serves listed owners and the agents they attested",
			  "perch relay owners add", owner, out);
}

/* What the frame itself says about its owner; the signature of the event comes later. */
static bool read_attestation(struct admit *admit, const struct event *event,
			     const struct frame_route *route, int64_t now,
			     struct admission *out)
{
	uint8_t owner[KEY_BYTES];
	struct err err;

	if (!nipoa_check(admit->crypto, event, owner, &out->expires, &err)) {
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
	if (out->expires <= now)
		return refuse(out, REFUSAL_OWNER, "restricted: the auth tag has expired");
	out->attested = true;
	return true;
}

static bool check_owner(struct admit *admit, const struct event *event,
			const struct frame_route *route, int64_t now, int64_t now_ms,
			struct admission *out)
{
	const uint8_t *owner = route->telemetry ? route->p : event->pubkey;

	if (owners_revoked(&admit->owners, route->agent))
		return refuse_revoked(route->agent, out);
	if (!owners_listed(&admit->owners, owner))
		return refuse_unlisted(owner, out);
	if (owners_hold(&admit->owners, route->agent, owner, now))
		return true;
	if (route->telemetry)
		return take_frame(admit, route->agent, PART_ATTESTATION, now_ms, out) &&
		       read_attestation(admit, event, route, now, out);
	return refuse(
		out, REFUSAL_OWNER,
		"restricted: the agent has shown no attestation by this owner here");
}

static bool check_frame_rate(struct admit *admit, const struct event *event,
			     const struct frame_route *route, const struct address *from,
			     int64_t now_ms, struct admission *out)
{
	const uint8_t *owner = route->telemetry ? route->p : event->pubkey;

	return take_address(admit, BUDGET_FRAMES, from, 1, now_ms, out) &&
	       take_frame(admit, route->agent,
			  route->telemetry ? PART_TELEMETRY : PART_CONTROL, now_ms,
			  out) &&
	       take(admit, BUDGET_OWNER, BUDGET_FRAMES, key_slice(owner), 0, 1, now_ms,
		    out);
}

static bool check_id(struct admit *admit, const struct event *event,
		     struct admission *out)
{
	int64_t begin = loop_now_ns();
	struct err err;
	bool ok = event_check_id(admit->crypto, event, &admit->scratch, &err);

	out->took_ns = loop_now_ns() - begin;
	if (ok)
		return true;
	histogram_add(&admit->verify, out->took_ns);
	return refuse(out, REFUSAL_ID, "invalid: %s", err.text);
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

/* Design §7, "24200 in order", up to the signature. */
static bool ask_frame(struct admit *admit, const struct event *event,
		      const struct keyset *keys, const struct address *from, int64_t now,
		      int64_t now_ms, struct admission *out)
{
	struct frame_route route = {0};

	if (!check_shape(event, &route, out) || !check_author(event, keys, out) ||
	    !check_fresh(event, now, out) || !check_expiration(event, now, out) ||
	    !check_owner(admit, event, &route, now, now_ms, out) ||
	    !check_frame_rate(admit, event, &route, from, now_ms, out) ||
	    !check_id(admit, event, out))
		return false;
	out->telemetry = route.telemetry;
	memcpy(out->owner, route.telemetry ? route.p : event->pubkey, KEY_BYTES);
	return true;
}

/* NIP-70: a protected event comes from its author only. */
static bool check_protected(const struct event *event, const struct keyset *keys,
			    struct admission *out)
{
	if (event_tag_count(event, SLICE("-")) == 0)
		return true;
	return check_author(event, keys, out);
}

static bool any_permitted(const struct admit *admit, const struct keyset *keys,
			  int64_t now)
{
	size_t i;

	for (i = 0; i < keys->count; i++)
		if (owners_permit(&admit->owners, keys->keys[i], now))
			return true;
	return false;
}

/* @what: what a client wants to do, which needs a key that is served. */
static bool check_permitted(const struct admit *admit, const struct keyset *keys,
			    const char *what, int64_t now, struct admission *out)
{
	if (keys->count == 0)
		return refuse(out, REFUSAL_UNAUTHENTICATED,
			      "auth-required: authenticate (NIP-42) before %s", what);
	if (any_permitted(admit, keys, now))
		return true;
	return admit->owners.by_list ? refuse_unlisted(keys->keys[0], out)
				     : refuse_revoked(keys->keys[0], out);
}

/* created_at of what is kept may be as old as it likes, but not far ahead: it would stay
 * the newest for so long. */
static bool check_not_ahead(const struct event *event, int64_t now, struct admission *out)
{
	if (event->created_at > now + RELAY_AHEAD_S)
		return refuse(out, REFUSAL_STALE,
			      "invalid: created_at is more than %d s ahead of the "
			      "relay's clock, which says %" PRId64,
			      RELAY_AHEAD_S, now);
	return true;
}

/* NIP-70: a repost must not spread what its author protects. */
static bool check_repost(struct admit *admit, const struct event *event,
			 struct admission *out)
{
	struct arena arena;
	struct event inner;
	bool is_protected;

	if (event->kind != KIND_REPOST && event->kind != KIND_GENERIC_REPOST)
		return true;
	buf_clear(&admit->scratch);
	arena_init(&arena, 4096);
	is_protected = json_unescape(event->content, &admit->scratch) &&
		       event_parse(buf_slice(&admit->scratch), &arena, &inner, NULL) &&
		       event_tag_count(&inner, SLICE("-")) > 0;
	arena_finish(&arena);
	if (is_protected)
		return refuse(out, REFUSAL_AUTHOR,
			      "blocked: the event reposted here is protected (NIP-70)");
	return true;
}

/* Kinds that are kept. */
static bool ask_stored(struct admit *admit, const struct event *event,
		       const struct keyset *keys, const struct address *from, int64_t now,
		       int64_t now_ms, struct admission *out)
{
	if (!admit->stores)
		return refuse(out, REFUSAL_STORED_KIND,
			      "blocked: this relay keeps no events");
	out->verdict = ADMIT_STORE;
	return (admit->open || check_permitted(admit, keys, "publishing", now, out)) &&
	       check_protected(event, keys, out) && check_expiration(event, now, out) &&
	       check_not_ahead(event, now, out) &&
	       take_all(admit, BUDGET_EVENTS, payer(admit, keys, event->pubkey, now),
			from, 1, now, now_ms, out) &&
	       check_id(admit, event, out);
}

bool admit_ask(struct admit *admit, const struct event *event, const struct keyset *keys,
	       const struct address *from, int64_t now, int64_t now_ms,
	       struct admission *out)
{
	memset(out, 0, sizeof(*out));
	if (event->kind == FRAME_KIND)
		return ask_frame(admit, event, keys, from, now, now_ms, out);
	if (event->kind == NIP42_KIND)
		return refuse(out, REFUSAL_KIND,
			      "invalid: kind %d is for AUTH messages only", NIP42_KIND);
	if (!event_is_ephemeral(event->kind))
		return ask_stored(admit, event, keys, from, now, now_ms, out);
	return check_permitted(admit, keys, "publishing", now, out) &&
	       check_protected(event, keys, out) && check_expiration(event, now, out) &&
	       take_all(admit, BUDGET_EVENTS, payer(admit, keys, event->pubkey, now),
			from, 1, now, now_ms, out) &&
	       check_id(admit, event, out);
}

void admit_conclude(struct admit *admit, const struct event *event, bool is_signed,
		    int64_t took_ns, int64_t now, struct admission *out)
{
	histogram_add(&admit->verify, out->took_ns + took_ns);
	if (!is_signed) {
		(void)refuse(out, REFUSAL_SIGNATURE,
			     "invalid: signature does not verify");
	} else if (out->verdict == ADMIT_STORE) {
		(void)check_repost(admit, event, out);
	} else if (out->attested && !owners_bind(&admit->owners, event->pubkey,
						 out->owner, out->expires, now)) {
		(void)refuse(out, REFUSAL_OWNER, "error: too many agents are bound here");
	} else {
		check_repeat(admit, event, now, out);
	}
}

void admit_event(struct admit *admit, const struct event *event,
		 const struct keyset *keys, const struct address *from, int64_t now,
		 int64_t now_ms, struct admission *out)
{
	int64_t begin;
	bool is_signed;

	if (!admit_ask(admit, event, keys, from, now, now_ms, out))
		return;
	begin = loop_now_ns();
	is_signed = event_check_sig(admit->crypto, event, NULL);
	admit_conclude(admit, event, is_signed, loop_now_ns() - begin, now, out);
}

bool admit_message(struct admit *admit, enum client_verb verb, const struct keyset *keys,
		   const struct address *from, size_t bytes, int64_t now, int64_t now_ms,
		   struct admission *out)
{
	bool asks = verb == CLIENT_REQ || verb == CLIENT_COUNT;
	const uint8_t *key = payer(admit, keys, NULL, now);

	memset(out, 0, sizeof(*out));
	if (verb == CLIENT_CLOSE)
		return true;
	if (!take_all(admit, BUDGET_BYTES, key, from, (int64_t)bytes, now, now_ms, out))
		return false;
	if (!asks)
		return true;
	if (admit->owners.by_list &&
	    !check_permitted(admit, keys, "subscribing: this relay serves listed owners",
			     now, out))
		return false;
	return take_all(admit, BUDGET_REQS, key, from, 1, now, now_ms, out);
}

bool admit_connection(struct admit *admit, const struct address *from, int64_t now_ms,
		      struct admission *out)
{
	memset(out, 0, sizeof(*out));
	return take_address(admit, BUDGET_CONNECTIONS, from, 1, now_ms, out);
}

bool admit_stay(const struct admit *admit, const struct keyset *keys, bool subscribed,
		int64_t now, struct admission *out)
{
	size_t i;

	memset(out, 0, sizeof(*out));
	for (i = 0; i < keys->count; i++)
		if (owners_revoked(&admit->owners, keys->keys[i]))
			return refuse_revoked(keys->keys[i], out);
	if (!subscribed || !admit->owners.by_list)
		return true;
	return check_permitted(admit, keys, "subscribing", now, out);
}

/* The words of an OK that is true; "" when the attestation was taken or there is none. */
static void bind_author(struct admit *admit, const struct event *event, int64_t now,
			struct admission *out)
{
	uint8_t owner[KEY_BYTES];
	int64_t expires;
	struct err err;

	if (nipoa_check(admit->crypto, event, owner, &expires, &err)) {
		if (expires <= now)
			(void)err_set(&err, ERR_REFUSED, "it has expired");
		else if (!owners_bind(&admit->owners, event->pubkey, owner, expires, now))
			(void)err_set(&err, ERR_TOO_LARGE,
				      "too many agents are bound here");
		else
			return;
	}
	if (err.code != ERR_NOT_FOUND)
		(void)snprintf(out->text, sizeof(out->text), "auth tag ignored: %s",
			       err.text);
}

bool admit_auth(struct admit *admit, const struct event *event, struct keyset *keys,
		int64_t now, int64_t now_ms, struct admission *out)
{
	const uint8_t *key = event->pubkey;
	const uint8_t *owner = owners_of(&admit->owners, key, now);
	bool is_new;

	memset(out, 0, sizeof(*out));
	if (owners_revoked(&admit->owners, key))
		return refuse_revoked(key, out);
	is_new = !keyset_has(keys, key);
	if (is_new && (!take(admit, BUDGET_KEY, BUDGET_CONNECTIONS, key_slice(key), 0, 1,
			     now_ms, out) ||
		       !take(admit, BUDGET_OWNER, BUDGET_CONNECTIONS, key_slice(owner), 0,
			     1, now_ms, out)))
		return false;
	if (!keyset_add(keys, key))
		return refuse(out, REFUSAL_AUTH,
			      "restricted: at most %d keys a connection", ADMIT_KEYS_MAX);
	if (is_new)
		owners_enter(&admit->owners, key);
	bind_author(admit, event, now, out);
	return true;
}

void admit_leave(struct admit *admit, const struct keyset *keys)
{
	size_t i;

	for (i = 0; i < keys->count; i++)
		owners_leave(&admit->owners, keys->keys[i]);
}
