#include "agent/lookup.h"

#include "wire/base/mem.h"
#include "wire/nostr/json.h"

struct slice lookup(struct slice object, struct slice key)
{
	struct slice found = SLICE_EMPTY, name, value;
	struct json json;

	json_init(&json, object);
	if (json_peek(&json) != JSON_OBJECT || !json_enter_object(&json))
		return SLICE_EMPTY;
	while (json_member(&json, &name)) {
		if (!json_skip(&json, &value))
			return SLICE_EMPTY;
		if (json_is(name, key))
			found = value;
	}
	return json.fault == JSON_FAULT_NONE ? found : SLICE_EMPTY;
}

struct slice lookup_string(struct slice object, struct slice key)
{
	struct slice value = lookup(object, key);

	if (value.len < 2 || value.ptr[0] != '"')
		return SLICE_EMPTY;
	return slice_sub(value, 1, value.len - 1);
}

char *lookup_text(struct slice object, struct slice key, size_t max)
{
	struct slice raw = lookup_string(object, key);
	struct buf text;
	char *copy = NULL;

	if (!raw.ptr)
		return NULL;
	buf_init(&text, max);
	if (json_unescape(raw, &text))
		copy = mem_dup(buf_slice(&text));
	buf_finish(&text);
	return copy;
}

bool lookup_is(struct slice object, struct slice key, struct slice text)
{
	struct slice raw = lookup_string(object, key);

	return raw.ptr && json_is(raw, text);
}

bool text_clean(struct slice bytes, struct buf *out)
{
	bool repaired = false;
	size_t from = 0, at = 0;
	int front;

	while (at < bytes.len) {
		front = utf8_front(slice_sub(bytes, at, bytes.len));
		if (front > 0) {
			at += (size_t)front;
			continue;
		}
		(void)buf_append(out, slice_sub(bytes, from, at));
		(void)buf_lit(out, "\xef\xbf\xbd");
		at += (size_t)-front;
		from = at;
		repaired = true;
	}
	(void)buf_append(out, slice_sub(bytes, from, at));
	return repaired;
}
