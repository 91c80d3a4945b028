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
