#include "observer/http/target.h"

#include <stdint.h>

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Takes one character, escaped or not, off the front of @text; -1: there is none. */
static int take(struct slice *text)
{
	int high, low, byte;

	if (text->ptr[0] != '%') {
		byte = (uint8_t)text->ptr[0];
		*text = slice_sub(*text, 1, text->len);
	} else if (text->len < 3) {
		return -1;
	} else {
		high = hex_value(text->ptr[1]);
		low = hex_value(text->ptr[2]);
		if (high < 0 || low < 0)
			return -1;
		byte = high << 4 | low;
		*text = slice_sub(*text, 3, text->len);
	}
	return byte < ' ' || byte == 0x7f ? -1 : byte;
}

static bool decode(struct slice text, bool is_query, struct buf *out)
{
	while (text.len) {
		const bool blank = is_query && text.ptr[0] == '+';
		const int byte = take(&text);

		if (byte < 0 || !buf_append_byte(out, blank ? ' ' : (char)byte))
			return false;
	}
	return true;
}

bool target_parse(struct slice target, struct buf *path, struct buf *query)
{
	struct slice encoded = SLICE_EMPTY, pair;

	buf_clear(path);
	buf_clear(query);
	if (target.len == 0 || target.ptr[0] != '/')
		return false;
	(void)slice_take_until(&target, '?', &encoded);
	if (!decode(encoded, false, path))
		return false;
	while (slice_take_until(&target, '&', &pair))
		if (pair.len &&
		    (!decode(pair, true, query) || !buf_append_byte(query, '\0')))
			return false;
	return true;
}
