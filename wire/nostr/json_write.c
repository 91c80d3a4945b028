#include <assert.h>

#include "wire/nostr/json.h"
#include "wire/nostr/json_scan.h"

/* The escape of one special byte as NIP-01 wants it in the text that is hashed: two
 * characters, or six in @six. */
static struct slice escape_of(char byte, char six[6])
{
	switch (byte) {
	case '\n':
		return SLICE("\\n");
	case '"':
		return SLICE("\\\"");
	case '\\':
		return SLICE("\\\\");
	case '\r':
		return SLICE("\\r");
	case '\t':
		return SLICE("\\t");
	case '\b':
		return SLICE("\\b");
	case '\f':
		return SLICE("\\f");
	}
	/* NIP-01 says "verbatim" of the other controls; every deployed writer escapes. */
	six[0] = '\\';
	six[1] = 'u';
	six[2] = six[3] = '0';
	hex_encode((const uint8_t *)&byte, 1, six + 4);
	return (struct slice){six, 6};
}

bool json_write_chars(struct buf *out, struct slice text)
{
	const char *at = text.ptr;
	const char *const end = at ? at + text.len : NULL;
	char six[6];

	while (at < end) {
		const char *special = json_skip_plain(at, end);

		(void)buf_append(out, (struct slice){at, (size_t)(special - at)});
		if (special == end)
			break;
		(void)buf_append(out, escape_of(*special, six));
		at = special + 1;
	}
	return buf_ok(out);
}

bool json_write_string(struct buf *out, struct slice text)
{
	(void)buf_append_byte(out, '"');
	(void)json_write_chars(out, text);
	return buf_append_byte(out, '"');
}

/* The escape at the front of @at as the canonical form writes it; @bytes holds it. */
static struct slice canonical(const char *at, const char *end, char bytes[6],
			      const char **next)
{
	const int32_t code = json_escape(at, end, next);

	assert(code >= 0); /* the caller's promise: valid string content */
	if (code < 0x80 && json_is_special((char)code))
		return escape_of((char)code, bytes);
	return (struct slice){bytes, utf8_encode((uint32_t)code, bytes)};
}

bool json_write_raw(struct buf *out, struct slice raw)
{
	char bytes[6];

	while (raw.len) {
		const size_t at = slice_find(raw, '\\');
		const char *const end = raw.ptr + raw.len;
		const char *next = end;

		(void)buf_append(out, slice_sub(raw, 0, at));
		if (at < raw.len)
			(void)buf_append(out, canonical(raw.ptr + at, end, bytes, &next));
		raw = (struct slice){next, (size_t)(end - next)};
	}
	return buf_ok(out);
}

bool json_is_canonical(struct slice raw)
{
	char bytes[6];

	for (;;) {
		const size_t at = slice_find(raw, '\\');
		const char *end, *next;

		if (at == raw.len)
			return true;
		end = raw.ptr + raw.len;
		if (!slice_starts(slice_sub(raw, at, raw.len),
				  canonical(raw.ptr + at, end, bytes, &next)))
			return false;
		raw = (struct slice){next, (size_t)(end - next)};
	}
}

bool json_write_key(struct buf *out, struct slice key)
{
	if (out->len && out->ptr[out->len - 1] != '{')
		(void)buf_append_byte(out, ',');
	(void)json_write_string(out, key);
	return buf_append_byte(out, ':');
}

bool json_write_member_string(struct buf *out, struct slice key, struct slice value)
{
	(void)json_write_key(out, key);
	if (!value.ptr)
		return buf_lit(out, "null");
	return json_write_string(out, value);
}

bool json_write_member_int(struct buf *out, struct slice key, int64_t value)
{
	(void)json_write_key(out, key);
	return buf_printf(out, "%lld", (long long)value);
}

bool json_write_member_bool(struct buf *out, struct slice key, bool value)
{
	(void)json_write_key(out, key);
	return value ? buf_lit(out, "true") : buf_lit(out, "false");
}

bool json_write_member_raw(struct buf *out, struct slice key, struct slice json)
{
	(void)json_write_key(out, key);
	return json.ptr ? buf_append(out, json) : buf_lit(out, "null");
}

bool json_repair(struct slice text, struct buf *out)
{
	while (text.len) {
		const char *const end = text.ptr + text.len;
		const char *at = json_skip_ascii(text.ptr, end);
		const char *next = at + 1;
		struct slice part;

		(void)buf_append(out, (struct slice){text.ptr, (size_t)(at - text.ptr)});
		if (at == end)
			break;
		part = (struct slice){at, 1};
		if (*at == '\\') {
			const int32_t code = json_escape(at, end, &next);

			if (code == JSON_ESCAPE_BROKEN)
				next = at + 1;
			part.len = (size_t)(next - at);
			if (code == JSON_ESCAPE_LONE)
				part = SLICE("\\ufffd");
		} else if ((uint8_t)*at >= 0x80) {
			const int len =
				utf8_front((struct slice){at, (size_t)(end - at)});

			next = at + (len < 0 ? -len : len);
			part.len = (size_t)(next - at);
			if (len < 0)
				part = SLICE("\xef\xbf\xbd");
		}
		(void)buf_append(out, part);
		text = (struct slice){next, (size_t)(end - next)};
	}
	return buf_ok(out);
}
