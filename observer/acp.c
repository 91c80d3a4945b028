#include "observer/acp.h"

#include "wire/frame/limits.h"
#include "wire/nostr/json.h"

static const struct slice absent = {NULL, 0};

struct slice acp_get(struct slice object, const char *key)
{
	const struct slice want = slice_of(key);
	struct slice name, value, found = absent;
	struct json json;

	if (!acp_is_object(object))
		return absent;
	json_init(&json, object);
	(void)json_enter_object(&json);
	while (json_member(&json, &name)) {
		if (!json_skip(&json, &value))
			return absent;
		if (json_is(name, want))
			found = value; /* the last of a repeated member, as JSON.parse()
					*/
	}
	return slice_eq(found, SLICE("null")) ? absent : found;
}

struct slice acp_get2(struct slice object, const char *key, const char *inner)
{
	return acp_get(acp_get(object, key), inner);
}

struct slice acp_string(struct slice value)
{
	if (value.len < 2 || *value.ptr != '"')
		return absent;
	return slice_sub(value, 1, value.len - 1);
}

struct slice acp_get_string(struct slice object, const char *key)
{
	return acp_string(acp_get(object, key));
}

bool acp_is_object(struct slice value)
{
	return value.len && *value.ptr == '{';
}

bool acp_is_array(struct slice value)
{
	return value.len && *value.ptr == '[';
}

bool acp_is_true(struct slice value)
{
	return slice_eq(value, SLICE("true"));
}

int64_t acp_get_int(struct slice object, const char *key, int64_t otherwise)
{
	uint64_t value;

	if (!slice_parse_u64(acp_get(object, key), FRAME_NUMBER_MAX, &value))
		return otherwise;
	return (int64_t)value;
}

bool acp_next(struct slice *rest, struct slice *item)
{
	struct slice at = *rest;
	struct json json;

	if (!at.len || (*at.ptr != '[' && *at.ptr != ','))
		return false;
	at = slice_trim(slice_sub(at, 1, at.len));
	if (!at.len || *at.ptr == ']')
		return false;
	json_init(&json, at);
	if (!json_skip(&json, item))
		return false;
	at = slice_sub(at, (size_t)(json.at - at.ptr), at.len);
	*rest = slice_trim(at);
	return true;
}

size_t acp_append_text(struct buf *out, struct slice raw, size_t max)
{
	const size_t before = out->len;
	size_t added;

	/* The meaning is never longer than what was sent. */
	out->max = before + raw.len + 1;
	(void)json_unescape(raw, out);
	added = out->len - before;
	if (out->len > max) {
		const struct slice whole = buf_slice(out);

		buf_truncate(out, before > max ? before : utf8_floor(whole, max));
	}
	return added;
}

void acp_set_text(struct buf *out, struct slice raw, size_t max)
{
	buf_clear(out);
	(void)acp_append_text(out, raw, max);
}

static void append(struct buf *out, struct slice text, size_t max)
{
	if (out->len + text.len > max)
		return;
	out->max = out->len + text.len + 1;
	(void)buf_append(out, text);
}

/* A block that is no text: [name](uri), or what it is and how long. */
static void append_other(struct buf *out, struct slice block, struct slice type,
			 size_t max)
{
	const struct slice resource = acp_get(block, "resource");
	const struct slice uri = acp_get_string(resource.ptr ? resource : block, "uri");
	const struct slice name = acp_get_string(block, "name");
	const struct slice data = acp_get_string(block, "data");

	append(out, SLICE("["), max);
	(void)acp_append_text(out, name.ptr ? name : type, max);
	if (data.ptr && out->len + 64 < max) {
		out->max = out->len + 64;
		(void)buf_printf(out, ", %zu bytes", data.len / 4 * 3);
	}
	append(out, SLICE("]"), max);
	if (!uri.ptr)
		return;
	append(out, SLICE("("), max);
	(void)acp_append_text(out, uri, max);
	append(out, SLICE(")"), max);
}

size_t acp_append_block(struct buf *out, struct slice block, size_t max)
{
	const struct slice type = acp_get_string(block, "type");
	const size_t before = out->len;

	if (json_is(type, SLICE("text")) || !type.ptr)
		return acp_append_text(out, acp_get_string(block, "text"), max);
	append_other(out, block, type, max);
	return out->len - before;
}

size_t acp_append_blocks(struct buf *out, struct slice blocks, size_t max)
{
	struct slice rest = blocks, block;
	size_t total = 0;

	while (acp_next(&rest, &block)) {
		if (out->len)
			append(out, SLICE("\n\n"), max);
		total += acp_append_block(out, block, max);
	}
	return total;
}
