#ifndef WIRE_NOSTR_JSON_SCAN_H
#define WIRE_NOSTR_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "wire/base/slice.h"

/* What the reader and the writer of JSON share: looking at string content sixteen bytes
 * at a time, and reading one escape. Nobody else includes this. */

static inline bool json_is_special(char byte)
{
	return byte == '"' || byte == '\\' || (uint8_t)byte < 0x20;
}

/* First byte from @at on that is a quote, a backslash, a control or not ASCII; or @end.
 */
static inline const char *json_skip_ascii(const char *at, const char *end)
{
#ifdef __SSE2__
	while (end - at >= 16) {
		const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
		/* Signed: bytes of 0x80 and more are negative, and so below 0x20 too. */
		const __m128i odd = _mm_or_si128(
			_mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20)),
			_mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
				     _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'))));
		const unsigned mask = (unsigned)_mm_movemask_epi8(odd);

		if (mask)
			return at + __builtin_ctz(mask);
		at += 16;
	}
#endif
	while (at < end && !json_is_special(*at) && (uint8_t)*at < 0x80)
		at++;
	return at;
}

/* First byte from @at on that is a quote, a backslash or a control; or @end. */
static inline const char *json_skip_plain(const char *at, const char *end)
{
#ifdef __SSE2__
	while (end - at >= 16) {
		const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
		const __m128i control =
			_mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
		const __m128i odd = _mm_or_si128(
			control,
			_mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
				     _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'))));
		const unsigned mask = (unsigned)_mm_movemask_epi8(odd);

		if (mask)
			return at + __builtin_ctz(mask);
		at += 16;
	}
#endif
	while (at < end && !json_is_special(*at))
		at++;
	return at;
}

/* utf8_front() with a short way for most of the world's scripts. */
static inline int json_utf8(const char *at, const char *end)
{
	const uint8_t *bytes = (const uint8_t *)at;

	/* U+1000 to U+CFFF: no second byte needs a second look. */
	if (end - at >= 3 && bytes[0] > 0xe0 && bytes[0] < 0xed &&
	    (bytes[1] & 0xc0) == 0x80 && (bytes[2] & 0xc0) == 0x80)
		return 3;
	return utf8_front((struct slice){at, (size_t)(end - at)});
}

/* Four hex digits of either case at @at, or -1. */
static inline int32_t json_hex4(const char *at, const char *end)
{
	int32_t value = 0;

	if (end - at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		const char digit = at[i];

		if (digit >= '0' && digit <= '9')
			value = value << 4 | (digit - '0');
		else if (digit >= 'a' && digit <= 'f')
			value = value << 4 | (digit - 'a' + 10);
		else if (digit >= 'A' && digit <= 'F')
			value = value << 4 | (digit - 'A' + 10);
		else
			return -1;
	}
	return value;
}

#define JSON_ESCAPE_BROKEN (-1)
#define JSON_ESCAPE_LONE (-2) /* half of a surrogate pair */

/* The code point of the escape at @at, which is its backslash. @next: behind it (behind
 * both of a surrogate pair); behind the six characters for JSON_ESCAPE_LONE. */
static inline int32_t json_escape(const char *at, const char *end, const char **next)
{
	int32_t code, low;

	if (end - at < 2)
		return JSON_ESCAPE_BROKEN;
	*next = at + 2;
	switch (at[1]) {
	case '"':
	case '\\':
	case '/':
		return at[1];
	case 'b':
		return '\b';
	case 'f':
		return '\f';
	case 'n':
		return '\n';
	case 'r':
		return '\r';
	case 't':
		return '\t';
	case 'u':
		break;
	default:
		return JSON_ESCAPE_BROKEN;
	}
	code = json_hex4(at + 2, end);
	if (code < 0)
		return JSON_ESCAPE_BROKEN;
	*next = at + 6;
	if (code < 0xd800 || code > 0xdfff)
		return code;
	if (code > 0xdbff || end - at < 12 || at[6] != '\\' || at[7] != 'u')
		return JSON_ESCAPE_LONE;
	low = json_hex4(at + 8, end);
	if (low < 0xdc00 || low > 0xdfff)
		return JSON_ESCAPE_LONE;
	*next = at + 12;
	return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
}

#endif
