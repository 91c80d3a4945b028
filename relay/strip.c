#include "relay/strip.h"

#include <assert.h>

#include "wire/nostr/json.h"

static const struct slice members[] = {
	SLICE_INIT("id"),   SLICE_INIT("pubkey"), SLICE_INIT("created_at"),
	SLICE_INIT("kind"), SLICE_INIT("tags"),   SLICE_INIT("content"),
	SLICE_INIT("sig"),
};

static bool is_member(struct slice key)
{
	size_t i;

	for (i = 0; i < sizeof(members) / sizeof(members[0]); i++)
		if (json_is(key, members[i]))
			return true;
	return false;
}

bool event_strip(struct slice json_text, struct buf *out)
{
	struct slice key, value;
	bool is_first = true;
	struct json json;
	bool entered;

	json_init(&json, json_text);
	entered = json_enter_object(&json);
	assert(entered); /* it was parsed before */
	(void)buf_append_byte(out, '{');
	while (json_member(&json, &key)) {
		if (!json_skip(&json, &value))
			break;
		if (!is_member(key))
			continue;
		if (!is_first)
			(void)buf_append_byte(out, ',');
		is_first = false;
		(void)buf_append_byte(out, '"');
		(void)buf_append(out, key);
		(void)buf_lit(out, "\":");
		(void)buf_append(out, value);
	}
	(void)buf_append_byte(out, '}');
	return buf_ok(out);
}

static void write_hex(struct buf *out, const char *key, const uint8_t *bytes, size_t len)
{
	(void)json_write_key(out, slice_of(key));
	(void)buf_append_byte(out, '"');
	(void)buf_append_hex(out, bytes, len);
	(void)buf_append_byte(out, '"');
}

static void write_tag(struct buf *out, const struct tag *tag)
{
	size_t i;

	for (i = 0; i < tag->count; i++) {
		(void)buf_append_byte(out, i == 0 ? '[' : ',');
		(void)json_write_string(out, tag->values[i]);
	}
	(void)buf_append_byte(out, ']');
}

bool event_write(const struct event *event, struct buf *out)
{
	size_t i;

	(void)buf_append_byte(out, '{');
	write_hex(out, "id", event->id, sizeof(event->id));
	write_hex(out, "pubkey", event->pubkey, sizeof(event->pubkey));
	(void)json_write_member_int(out, SLICE("created_at"), event->created_at);
	(void)json_write_member_int(out, SLICE("kind"), event->kind);
	(void)json_write_key(out, SLICE("tags"));
	(void)buf_append_byte(out, '[');
	for (i = 0; i < event->tag_count; i++) {
		if (i > 0)
			(void)buf_append_byte(out, ',');
		write_tag(out, &event->tags[i]);
	}
	(void)buf_append_byte(out, ']');
	(void)json_write_key(out, SLICE("content"));
	(void)buf_append_byte(out, '"');
	(void)json_write_raw(out, event->content);
	(void)buf_append_byte(out, '"');
	write_hex(out, "sig", event->sig, sizeof(event->sig));
	(void)buf_append_byte(out, '}');
	return buf_ok(out);
}
