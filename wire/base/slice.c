#include "wire/base/slice.h"

#include <string.h>

struct slice slice_of(const char *text)
{
	return (struct slice){text, text ? strlen(text) : 0};
}

bool slice_eq(struct slice a, struct slice b)
{
	return a.len == b.len && (!a.len || !memcmp(a.ptr, b.ptr, a.len));
}

int slice_compare(struct slice a, struct slice b)
{
	const size_t common = a.len < b.len ? a.len : b.len;
	const int order = common ? memcmp(a.ptr, b.ptr, common) : 0;

	if (order)
		return order;
	return (a.len > b.len) - (a.len < b.len);
}

bool slice_starts(struct slice text, struct slice prefix)
{
	return text.len >= prefix.len && slice_eq(slice_sub(text, 0, prefix.len), prefix);
}

bool slice_ends(struct slice text, struct slice suffix)
{
	return text.len >= suffix.len &&
	       slice_eq(slice_sub(text, text.len - suffix.len, text.len), suffix);
}

uint64_t slice_hash(struct slice text, uint64_t seed)
{
	uint64_t hash = 0xcbf29ce484222325 ^ seed;

	for (size_t i = 0; i < text.len; i++)
		hash = (hash ^ (uint8_t)text.ptr[i]) * 0x100000001b3;
	return hash;
}

size_t slice_find(struct slice text, char byte)
{
	const char *at = text.len ? memchr(text.ptr, byte, text.len) : NULL;

	return at ? (size_t)(at - text.ptr) : text.len;
}

size_t slice_find_slice(struct slice text, struct slice needle)
{
	const char *at = NULL;

	if (text.len && needle.len)
		at = memmem(text.ptr, text.len, needle.ptr, needle.len);
	return at ? (size_t)(at - text.ptr) : text.len;
}

struct slice slice_sub(struct slice text, size_t from, size_t to)
{
	if (to > text.len)
		to = text.len;
	if (from > to)
		from = to;
	/* Not NULL + 0 of an empty slice, which is undefined. */
	return (struct slice){from ? text.ptr + from : text.ptr, to - from};
}

static bool is_space(char byte)
{
	return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

struct slice slice_trim(struct slice text)
{
	size_t from = 0, to = text.len;

	while (from < to && is_space(text.ptr[from]))
		from++;
	while (to > from && is_space(text.ptr[to - 1]))
		to--;
	return slice_sub(text, from, to);
}

bool slice_take_until(struct slice *text, char byte, struct slice *out)
{
	const size_t at = slice_find(*text, byte);

	*out = SLICE_EMPTY;
	if (!text->len)
		return false;
	*out = slice_sub(*text, 0, at);
	*text = slice_sub(*text, at + 1, text->len);
	return true;
}

bool slice_parse_u64(struct slice text, uint64_t max, uint64_t *out)
{
	uint64_t value = 0;

	if (!text.len || (text.len > 1 && text.ptr[0] == '0'))
		return false;
	for (size_t i = 0; i < text.len; i++) {
		if (text.ptr[i] < '0' || text.ptr[i] > '9')
			return false;
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(text.ptr[i] - '0'), &value))
			return false;
	}
	if (value > max)
		return false;
	*out = value;
	return true;
}

void hex_encode(const uint8_t *bytes, size_t len, char *out)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		out[2 * i] = digits[bytes[i] >> 4];
		out[2 * i + 1] = digits[bytes[i] & 15];
	}
}

static int hex_value(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	return -1;
}

bool hex_decode(struct slice text, uint8_t *out, size_t len)
{
	if (text.len / 2 != len || text.len % 2)
		return false;
	for (size_t i = 0; i < text.len; i++)
		if (hex_value(text.ptr[i]) < 0)
			return false;
	for (size_t i = 0; i < len; i++)
		out[i] = (uint8_t)((unsigned)hex_value(text.ptr[2 * i]) << 4 |
				   (unsigned)hex_value(text.ptr[2 * i + 1]));
	return true;
}

int utf8_front(struct slice text)
{
	const uint8_t *at = (const uint8_t *)text.ptr;
	const uint8_t lead = at[0];
	uint8_t low = 0x80, high = 0xbf; /* what the second byte may be */
	int len;

	if (lead < 0x80)
		return 1;
	if (lead < 0xc2 || lead > 0xf4)
		return -1;
	if (lead < 0xe0) {
		len = 2;
	} else if (lead < 0xf0) {
		len = 3;
		low = lead == 0xe0 ? 0xa0 : 0x80;  /* else overlong */
		high = lead == 0xed ? 0x9f : 0xbf; /* else a surrogate */
	} else {
		len = 4;
		low = lead == 0xf0 ? 0x90 : 0x80;  /* else overlong */
		high = lead == 0xf4 ? 0x8f : 0xbf; /* else beyond U+10FFFF */
	}
	for (int i = 1; i < len; i++) {
		if ((size_t)i >= text.len || at[i] < low || at[i] > high)
			return -i;
		low = 0x80;
		high = 0xbf;
	}
	return len;
}

size_t utf8_encode(uint32_t code, char out[4])
{
	if (code < 0x80) {
		out[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		out[0] = (char)(0xc0 | code >> 6);
		out[1] = (char)(0x80 | (code & 0x3f));
		return 2;
	}
	if (code < 0x10000) {
		out[0] = (char)(0xe0 | code >> 12);
		out[1] = (char)(0x80 | (code >> 6 & 0x3f));
		out[2] = (char)(0x80 | (code & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | code >> 18);
	out[1] = (char)(0x80 | (code >> 12 & 0x3f));
	out[2] = (char)(0x80 | (code >> 6 & 0x3f));
	out[3] = (char)(0x80 | (code & 0x3f));
	return 4;
}

bool utf8_valid(struct slice text)
{
	const uint64_t high_bits = UINT64_C(0x8080808080808080);
	size_t at = 0;

	while (at < text.len) {
		uint64_t word;
		int len;

		while (text.len - at >= sizeof(word)) {
			memcpy(&word, text.ptr + at, sizeof(word));
			if (word & high_bits)
				break;
			at += sizeof(word);
		}
		if (at == text.len)
			break;
		len = utf8_front(slice_sub(text, at, text.len));
		if (len < 0)
			return false;
		at += (size_t)len;
	}
	return true;
}

static bool is_continuation(char byte)
{
	return ((uint8_t)byte & 0xc0) == 0x80;
}

size_t utf8_floor(struct slice text, size_t max)
{
	if (max >= text.len)
		return text.len;
	for (size_t back = 0; back < 4 && back <= max; back++)
		if (!is_continuation(text.ptr[max - back]))
			return max - back;
	return max; /* no UTF-8: nothing to split */
}

size_t utf8_count(struct slice text)
{
	size_t count = 0;

	for (size_t i = 0; i < text.len; i++)
		count += !is_continuation(text.ptr[i]);
	return count;
}
