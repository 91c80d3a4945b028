#include "wire/nostr/nipoa.h"

#include <string.h>

#include "wire/nostr/json.h"

#define TAG_ELEMENTS 4 /* NIP-OA: "auth", owner, conditions, signature */
#define TIME_MAX UINT32_MAX

struct attestation {
	uint8_t owner[KEY_BYTES];
	struct slice conditions;
	uint8_t sig[SIG_BYTES];
};

static bool take_prefix(struct slice *text, struct slice prefix)
{
	if (!slice_starts(*text, prefix))
		return false;
	*text = slice_sub(*text, prefix.len, text->len);
	return true;
}

/* One clause. @event may be NULL: then only the form counts. */
static bool check_clause(struct slice clause, const struct event *event, int64_t *expires,
			 struct err *err)
{
	uint64_t number;

	if (take_prefix(&clause, SLICE("kind="))) {
		if (!slice_parse_u64(clause, EVENT_KIND_MAX, &number))
			return err_set(err, ERR_MALFORMED,
				       "attestation has a wrong kind");
		if (event && event->kind != number)
			return err_set(err, ERR_REFUSED,
				       "attestation is for another kind");
		return true;
	}
	if (take_prefix(&clause, SLICE("created_at<"))) {
		if (!slice_parse_u64(clause, TIME_MAX, &number))
			return err_set(err, ERR_MALFORMED,
				       "attestation has a wrong time");
		if ((int64_t)number < *expires)
			*expires = (int64_t)number;
		if (event && event->created_at >= (int64_t)number)
			return err_set(err, ERR_REFUSED, "attestation has expired");
		return true;
	}
	if (take_prefix(&clause, SLICE("created_at>"))) {
		if (!slice_parse_u64(clause, TIME_MAX, &number))
			return err_set(err, ERR_MALFORMED,
				       "attestation has a wrong time");
		if (event && event->created_at <= (int64_t)number)
			return err_set(err, ERR_REFUSED, "attestation is not valid yet");
		return true;
	}
	return err_set(err, ERR_MALFORMED, "attestation has an unknown condition");
}

static bool check_conditions(struct slice conditions, const struct event *event,
			     int64_t *expires, struct err *err)
{
	struct slice clause;

	*expires = INT64_MAX;
	if (conditions.len > NIPOA_CONDITIONS_MAX)
		return err_set(err, ERR_MALFORMED,
			       "attestation has over %d bytes of conditions",
			       NIPOA_CONDITIONS_MAX);
	if (slice_ends(conditions, SLICE("&")))
		return err_set(err, ERR_MALFORMED, "attestation has an empty condition");
	/* The form of all comes before the truth of any: a broken one is never "refused".
	 */
	if (event && !check_conditions(conditions, NULL, expires, err))
		return false;
	while (slice_take_until(&conditions, '&', &clause))
		if (!check_clause(clause, event, expires, err))
			return false;
	return true;
}

/* NIP-OA: the signed text is "nostr:agent-auth:" || agent pubkey hex || ":" ||
 * conditions. */
static void message_of(struct crypto *crypto, const uint8_t agent[KEY_BYTES],
		       struct slice conditions, uint8_t out[SHA256_BYTES])
{
	char hex[2 * KEY_BYTES];
	const struct slice pieces[] = {SLICE_INIT("nostr:agent-auth:"),
				       {hex, sizeof(hex)},
				       SLICE_INIT(":"),
				       conditions};

	hex_encode(agent, KEY_BYTES, hex);
	sha256(crypto, pieces, sizeof(pieces) / sizeof(pieces[0]), out);
}

static bool check_attestation(struct crypto *crypto,
			      const struct attestation *attestation,
			      const uint8_t agent[KEY_BYTES], const struct event *event,
			      int64_t *expires, struct err *err)
{
	uint8_t message[SHA256_BYTES];

	if (!memcmp(attestation->owner, agent, KEY_BYTES))
		return err_set(err, ERR_MALFORMED, "attestation is by the agent itself");
	if (!check_conditions(attestation->conditions, event, expires, err))
		return false;
	message_of(crypto, agent, attestation->conditions, message);
	if (!schnorr_verify(crypto, attestation->owner,
			    (struct slice){(const char *)message, sizeof(message)},
			    attestation->sig))
		return err_set(err, ERR_MALFORMED,
			       "attestation is not signed by its owner");
	return true;
}

/* @values: the tag's elements behind "auth". */
static bool read_values(const struct slice values[TAG_ELEMENTS - 1],
			struct attestation *out, struct err *err)
{
	if (!hex_decode(values[0], out->owner, KEY_BYTES) ||
	    !hex_decode(values[2], out->sig, SIG_BYTES))
		return err_set(err, ERR_MALFORMED,
			       "attestation has a wrong key or signature");
	out->conditions = values[1];
	return true;
}

bool nipoa_sign(struct crypto *crypto, const struct keypair *owner,
		const uint8_t agent[KEY_BYTES], struct slice conditions,
		const uint8_t aux[32], struct buf *out, struct err *err)
{
	uint8_t message[SHA256_BYTES], sig[SIG_BYTES];
	int64_t expires;

	if (!memcmp(keypair_public(owner), agent, KEY_BYTES))
		return err_set(err, ERR_MALFORMED, "an owner cannot attest its own key");
	if (!check_conditions(conditions, NULL, &expires, err))
		return false;
	message_of(crypto, agent, conditions, message);
	schnorr_sign(crypto, owner,
		     (struct slice){(const char *)message, sizeof(message)}, aux, sig);
	(void)buf_lit(out, "[\"auth\",\"");
	(void)buf_append_hex(out, keypair_public(owner), KEY_BYTES);
	(void)buf_lit(out, "\",\"");
	(void)buf_append(out, conditions); /* of a grammar that needs no escapes */
	(void)buf_lit(out, "\",\"");
	(void)buf_append_hex(out, sig, sizeof(sig));
	if (!buf_lit(out, "\"]"))
		return err_set(err, ERR_TOO_LARGE,
			       "attestation is larger than its buffer");
	return true;
}

bool nipoa_parse(struct crypto *crypto, struct slice tag_json,
		 const uint8_t agent[KEY_BYTES], uint8_t owner_out[KEY_BYTES],
		 int64_t *expires_out, struct err *err)
{
	struct slice values[TAG_ELEMENTS];
	struct attestation attestation;
	size_t count = 0;
	struct json json;
	int64_t expires;

	json_init(&json, tag_json);
	if (!json_enter_array(&json))
		return err_set(err, ERR_MALFORMED, "attestation is not a JSON array");
	while (json_element(&json)) {
		struct slice raw;

		if (!json_string(&json, &raw))
			return err_set(err, ERR_MALFORMED,
				       "attestation holds no strings");
		if (count < TAG_ELEMENTS)
			values[count] = raw;
		count++;
	}
	if (!json_end(&json, err))
		return false;
	if (count != TAG_ELEMENTS || !json_is(values[0], SLICE("auth")))
		return err_set(err, ERR_MALFORMED, "attestation is not an auth tag of 4");
	/* Keys, signatures and conditions as we write them hold no escapes. */
	if (!read_values(values + 1, &attestation, err) ||
	    !check_attestation(crypto, &attestation, agent, NULL, &expires, err))
		return false;
	memcpy(owner_out, attestation.owner, KEY_BYTES);
	if (expires_out)
		*expires_out = expires;
	return true;
}

bool nipoa_check(struct crypto *crypto, const struct event *event,
		 uint8_t owner_out[KEY_BYTES], int64_t *expires_out, struct err *err)
{
	const struct tag *tag = event_tag(event, SLICE("auth"));
	struct attestation attestation;
	int64_t expires = 0;

	if (!tag)
		return err_set(err, ERR_NOT_FOUND, "event has no auth tag");
	if (event_tag_count(event, SLICE("auth")) != 1)
		return err_set(err, ERR_MALFORMED, "event has more than one auth tag");
	if (tag->count != TAG_ELEMENTS)
		return err_set(err, ERR_MALFORMED, "auth tag has %zu elements, want 4",
			       tag->count);
	if (!read_values(tag->values + 1, &attestation, err) ||
	    !check_attestation(crypto, &attestation, event->pubkey, event, &expires, err))
		return false;
	memcpy(owner_out, attestation.owner, KEY_BYTES);
	if (expires_out)
		*expires_out = expires;
	return true;
}
