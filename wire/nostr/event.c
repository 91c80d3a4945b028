#include "wire/nostr/event.h"

#include <stdio.h>
#include <string.h>

#include "wire/nostr/json.h"
#include "wire/nostr/nip44.h"

/* Latest created_at: 2^53 - 1, the last integer that a peer with 64-bit floats reads as
 * it is; sums with a few seconds stay far from overflow. */
#define EVENT_TIME_MAX ((INT64_C(1) << 53) - 1)

enum event_member {
	MEMBER_ID = 1 << 0,
	MEMBER_PUBKEY = 1 << 1,
	MEMBER_SIG = 1 << 2,
	MEMBER_CREATED_AT = 1 << 3,
	MEMBER_KIND = 1 << 4,
	MEMBER_TAGS = 1 << 5,
	MEMBER_CONTENT = 1 << 6,
};

static const struct {
	enum event_member member;
	struct slice name;
} members[] = {
	{MEMBER_ID, SLICE_INIT("id")},
	{MEMBER_PUBKEY, SLICE_INIT("pubkey")},
	{MEMBER_SIG, SLICE_INIT("sig")},
	{MEMBER_CREATED_AT, SLICE_INIT("created_at")},
	{MEMBER_KIND, SLICE_INIT("kind")},
	{MEMBER_TAGS, SLICE_INIT("tags")},
	{MEMBER_CONTENT, SLICE_INIT("content")},
};
#define MEMBER_COUNT (sizeof(members) / sizeof(members[0]))

/* Index into members, or MEMBER_COUNT. */
static size_t find_member(struct slice key)
{
	size_t i = 0;

	while (i < MEMBER_COUNT && !json_is(key, members[i].name))
		i++;
	return i;
}

/* The value after a member name must have a certain form; a broken text is json_end()'s
 * to report, with its place. */
static bool wrong(struct json *json, struct slice name, const char *want, struct err *err)
{
	if (json->fault != JSON_FAULT_NONE && json->fault != JSON_FAULT_SYNTAX)
		return json_end(json, err);
	return err_set(err, ERR_MALFORMED, "%.*s is not %s", SLICE_ARG(name), want);
}

static bool parse_hex(struct json *json, struct arena *arena, uint8_t *out, size_t len)
{
	struct slice raw;

	return json_string(json, &raw) && hex_decode(json_decode(raw, arena), out, len);
}

/* Doubles the room of an array in an arena; the old one is given up until the reset. */
static void *grow(struct arena *arena, void *old, size_t count, size_t size, size_t *room)
{
	void *grown;

	if (count < *room)
		return old;
	*room = *room ? 2 * *room : 4;
	grown = arena_array(arena, *room, size);
	if (count)
		memcpy(grown, old, count * size);
	return grown;
}

static bool parse_tag(struct json *json, struct arena *arena, struct tag *tag,
		      struct err *err)
{
	size_t room = 0;

	*tag = (struct tag){0};
	if (!json_enter_array(json))
		return wrong(json, SLICE("tag"), "an array", err);
	while (json_element(json)) {
		struct slice raw;

		if (!json_string(json, &raw))
			return wrong(json, SLICE("tag value"), "a string", err);
		if (json_has_nul(raw))
			return err_set(err, ERR_MALFORMED, "tag value holds a NUL");
		tag->values = grow(arena, tag->values, tag->count, sizeof(raw), &room);
		tag->values[tag->count++] = json_decode(raw, arena);
	}
	if (json->fault != JSON_FAULT_NONE)
		return json_end(json, err);
	/* NIP-01: "Each tag is an array of one or more strings". */
	if (!tag->count)
		return err_set(err, ERR_MALFORMED,
			       "a tag is empty, want one or more strings");
	return true;
}

static bool parse_tags(struct json *json, struct arena *arena, struct event *event,
		       struct err *err)
{
	size_t room = 0;

	if (!json_enter_array(json))
		return wrong(json, SLICE("tags"), "an array of arrays", err);
	while (json_element(json)) {
		if (event->tag_count == EVENT_TAGS_MAX)
			return err_set(err, ERR_TOO_LARGE, "more than %d tags",
				       EVENT_TAGS_MAX);
		event->tags = grow(arena, event->tags, event->tag_count,
				   sizeof(*event->tags), &room);
		if (!parse_tag(json, arena, &event->tags[event->tag_count], err))
			return false;
		event->tag_count++;
	}
	return json->fault == JSON_FAULT_NONE || json_end(json, err);
}

static bool parse_member(struct json *json, enum event_member member, struct arena *arena,
			 struct event *event, struct err *err)
{
	int64_t number;

	switch (member) {
	case MEMBER_ID:
		return parse_hex(json, arena, event->id, sizeof(event->id)) ||
		       wrong(json, SLICE("id"), "64 lower-case hex digits", err);
	case MEMBER_PUBKEY:
		return parse_hex(json, arena, event->pubkey, sizeof(event->pubkey)) ||
		       wrong(json, SLICE("pubkey"), "64 lower-case hex digits", err);
	case MEMBER_SIG:
		return parse_hex(json, arena, event->sig, sizeof(event->sig)) ||
		       wrong(json, SLICE("sig"), "128 lower-case hex digits", err);
	case MEMBER_CREATED_AT:
		return json_int(json, 0, EVENT_TIME_MAX, &event->created_at) ||
		       wrong(json, SLICE("created_at"), "an integer of Unix seconds",
			     err);
	case MEMBER_KIND:
		if (!json_int(json, 0, EVENT_KIND_MAX, &number))
			return wrong(json, SLICE("kind"), "an integer from 0 to 65535",
				     err);
		event->kind = (uint32_t)number;
		return true;
	case MEMBER_TAGS:
		return parse_tags(json, arena, event, err);
	case MEMBER_CONTENT:
		if (!json_string(json, &event->content))
			return wrong(json, SLICE("content"), "a string", err);
		if (json_has_nul(event->content))
			return err_set(err, ERR_MALFORMED, "content holds a NUL");
		return true;
	}
	return false;
}

bool event_parse(struct slice json_text, struct arena *arena, struct event *out,
		 struct err *err)
{
	struct event event = {.text = slice_trim(json_text)};
	unsigned seen = 0;
	struct slice key;
	struct json json;

	if (json_text.len > EVENT_MAX_BYTES)
		return err_set(err, ERR_TOO_LARGE, "event has %zu bytes, want at most %d",
			       json_text.len, EVENT_MAX_BYTES);
	json_init(&json, json_text);
	if (!json_enter_object(&json))
		return wrong(&json, SLICE("event"), "a JSON object", err);
	while (json_member(&json, &key)) {
		const size_t i = find_member(key);

		if (i == MEMBER_COUNT) {
			event.has_more = true;
			if (!json_skip(&json, NULL))
				break;
			continue;
		}
		if (seen & members[i].member)
			return err_set(err, ERR_MALFORMED, "%.*s is given twice",
				       SLICE_ARG(members[i].name));
		seen |= members[i].member;
		if (!parse_member(&json, members[i].member, arena, &event, err))
			return false;
	}
	if (!json_end(&json, err))
		return false;
	for (size_t i = 0; i < MEMBER_COUNT; i++)
		if (!(seen & members[i].member))
			return err_set(err, ERR_MALFORMED, "%.*s is missing",
				       SLICE_ARG(members[i].name));
	*out = event;
	return true;
}

bool event_find_id(struct slice json_text, struct slice *hex)
{
	struct slice key, value;
	struct json json;
	uint8_t id[32];

	json_init(&json, json_text);
	if (!json_enter_object(&json))
		return false;
	while (json_member(&json, &key)) {
		if (!json_is(key, SLICE("id"))) {
			if (!json_skip(&json, NULL))
				return false;
			continue;
		}
		if (!json_string(&json, &value) || !hex_decode(value, id, sizeof(id)))
			return false;
		*hex = value;
		return true;
	}
	return false;
}

/* Everything of NIP-01's serialization up to the tags:
 * "[0,<pubkey, as a lowercase hex string>,<created_at>,<kind>," */
static bool write_preimage_head(struct buf *out, const uint8_t pubkey[KEY_BYTES],
				int64_t created_at, uint32_t kind)
{
	(void)buf_lit(out, "[0,\"");
	(void)buf_append_hex(out, pubkey, KEY_BYTES);
	return buf_printf(out, "\",%lld,%u,", (long long)created_at, kind);
}

static bool write_tags(struct buf *out, const struct event *event)
{
	(void)buf_append_byte(out, '[');
	for (size_t i = 0; i < event->tag_count; i++) {
		const struct tag *tag = &event->tags[i];

		(void)buf_append(out, i ? SLICE(",[") : SLICE("["));
		for (size_t j = 0; j < tag->count; j++) {
			if (j)
				(void)buf_append_byte(out, ',');
			(void)json_write_string(out, tag->values[j]);
		}
		(void)buf_append_byte(out, ']');
	}
	return buf_append_byte(out, ']');
}

bool event_check_id(struct crypto *crypto, const struct event *event, struct buf *scratch,
		    struct err *err)
{
	const bool as_sent = json_is_canonical(event->content);
	struct slice pieces[3];
	uint8_t id[32];
	char hex[64];

	buf_clear(scratch);
	(void)write_preimage_head(scratch, event->pubkey, event->created_at, event->kind);
	(void)write_tags(scratch, event);
	(void)buf_lit(scratch, ",\"");
	/* Most writers escape as NIP-01 does: the content is hashed where it lies. */
	if (!as_sent)
		(void)json_write_raw(scratch, event->content);
	if (!buf_ok(scratch))
		return err_set(err, ERR_TOO_LARGE, "event is too large to check");
	pieces[0] = buf_slice(scratch);
	pieces[1] = as_sent ? event->content : SLICE_EMPTY;
	pieces[2] = SLICE("\"]");
	sha256(crypto, pieces, 3, id);
	if (memcmp(id, event->id, sizeof(id)) == 0)
		return true;
	/* Whoever wrote the client can compare: most often it escapes otherwise. */
	hex_encode(id, sizeof(id), hex);
	return err_set(err, ERR_MALFORMED,
		       "id is not the hash of the event, which is %.64s", hex);
}

bool event_check_sig(struct crypto *crypto, const struct event *event, struct err *err)
{
	const struct slice id = {(const char *)event->id, sizeof(event->id)};

	if (!schnorr_verify(crypto, event->pubkey, id, event->sig))
		return err_set(err, ERR_MALFORMED, "signature does not verify");
	return true;
}

bool event_verify(struct crypto *crypto, const struct event *event, struct buf *scratch,
		  struct err *err)
{
	return event_check_id(crypto, event, scratch, err) &&
	       event_check_sig(crypto, event, err);
}

const struct tag *event_tag(const struct event *event, struct slice name)
{
	for (size_t i = 0; i < event->tag_count; i++)
		if (slice_eq(event->tags[i].values[0], name))
			return &event->tags[i];
	return NULL;
}

size_t event_tag_count(const struct event *event, struct slice name)
{
	size_t count = 0;

	for (size_t i = 0; i < event->tag_count; i++)
		count += slice_eq(event->tags[i].values[0], name);
	return count;
}

struct slice tag_value(const struct tag *tag)
{
	return tag && tag->count > 1 ? tag->values[1] : SLICE_EMPTY;
}

bool event_is_ephemeral(uint32_t kind)
{
	return kind >= 20000 && kind < 30000;
}

/* What becomes the content: the draft's words, or a plaintext under a key. */
struct sealing {
	const uint8_t *conversation_key; /* NULL: the draft's content as it is */
	struct slice plaintext;
	const uint8_t *nonce;
};

static bool write_content(struct crypto *crypto, const struct sealing *sealing,
			  const struct event_draft *draft, struct buf *out,
			  struct err *err)
{
	if (sealing->conversation_key)
		return nip44_encrypt(crypto, sealing->conversation_key, sealing->nonce,
				     sealing->plaintext, out, err);
	(void)json_write_chars(out, draft->content);
	return true; /* the caller sees a full buffer */
}

/* Appends the whole event. The id stands in front of what it is the hash of: its place is
 * left open and filled at the end. */
static bool write_event(struct crypto *crypto, const struct keypair *keypair,
			const struct sealing *sealing, const struct event_draft *draft,
			const uint8_t aux[32], struct buf *out, uint8_t id[32],
			struct err *err)
{
	const struct slice tags = draft->tags.len ? draft->tags : SLICE("[]");
	const uint8_t *const pubkey = keypair_public(keypair);
	char head_memory[160]; /* of two fixed and two short parts */
	struct buf head = {head_memory, 0, sizeof(head_memory), sizeof(head_memory),
			   false};
	struct slice pieces[] = {SLICE_EMPTY, tags, SLICE(",\""), SLICE_EMPTY,
				 SLICE("\"]")};
	size_t id_at, content_at;
	uint8_t sig[SIG_BYTES];

	(void)buf_lit(out, "{\"id\":\"");
	id_at = out->len;
	(void)buf_extend(out, 2 * (size_t)SHA256_BYTES);
	(void)buf_lit(out, "\",\"pubkey\":\"");
	(void)buf_append_hex(out, pubkey, KEY_BYTES);
	(void)buf_printf(out, "\",\"created_at\":%lld,\"kind\":%u,\"tags\":",
			 (long long)draft->created_at, draft->kind);
	(void)buf_append(out, tags);
	(void)buf_lit(out, ",\"content\":\"");
	content_at = out->len;
	if (!write_content(crypto, sealing, draft, out, err))
		return false;
	if (!buf_ok(out))
		return err_set(err, ERR_TOO_LARGE, "event is larger than its buffer");

	(void)write_preimage_head(&head, pubkey, draft->created_at, draft->kind);
	pieces[0] = buf_slice(&head);
	pieces[3] = (struct slice){out->ptr + content_at, out->len - content_at};
	sha256(crypto, pieces, sizeof(pieces) / sizeof(pieces[0]), id);
	schnorr_sign(crypto, keypair, (struct slice){(const char *)id, SHA256_BYTES}, aux,
		     sig);
	(void)buf_lit(out, "\",\"sig\":\"");
	(void)buf_append_hex(out, sig, sizeof(sig));
	(void)buf_lit(out, "\"}");
	if (!buf_ok(out))
		return err_set(err, ERR_TOO_LARGE, "event is larger than its buffer");
	hex_encode(id, SHA256_BYTES, out->ptr + id_at);
	return true;
}

static bool append_event(struct crypto *crypto, const struct keypair *keypair,
			 const struct sealing *sealing, const struct event_draft *draft,
			 const uint8_t aux[32], struct buf *out, uint8_t id[32],
			 struct err *err)
{
	const size_t len = out->len;
	const bool full = out->full;
	uint8_t own_id[SHA256_BYTES] = {0};

	if (write_event(crypto, keypair, sealing, draft, aux, out, id ? id : own_id, err))
		return true;
	/* As it was before: a later, smaller event may still fit. */
	out->len = len;
	out->full = full;
	return false;
}

bool event_sign(struct crypto *crypto, const struct keypair *keypair,
		const struct event_draft *draft, const uint8_t aux[32], struct buf *out,
		uint8_t id[32], struct err *err)
{
	return append_event(crypto, keypair, &(struct sealing){0}, draft, aux, out, id,
			    err);
}

bool event_seal(struct crypto *crypto, const struct keypair *keypair,
		const uint8_t conversation_key[32], const struct event_draft *draft,
		struct slice plaintext, const uint8_t nonce[NONCE_BYTES],
		const uint8_t aux[32], struct buf *out, uint8_t id[32], struct err *err)
{
	const struct sealing sealing = {conversation_key, plaintext, nonce};

	return append_event(crypto, keypair, &sealing, draft, aux, out, id, err);
}
