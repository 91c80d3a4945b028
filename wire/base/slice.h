#ifndef WIRE_BASE_SLICE_H
#define WIRE_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A borrowed run of bytes. Not NUL-terminated, may contain NUL, never freed. */
struct slice {
	const char *ptr; /* may be NULL only when len is 0 */
	size_t len;      /* bytes */
};

/* clang-format off */
#define SLICE_INIT(literal) {"" literal, sizeof(literal) - 1} /* for static tables */
#define SLICE(literal)      ((struct slice)SLICE_INIT(literal))
#define SLICE_EMPTY         ((struct slice){NULL, 0})
#define SLICE_ARG(slice)    (int)(slice).len, (slice).ptr /* for "%.*s", short text only */
/* clang-format on */

/* The bytes of a C string, without its NUL. NULL gives the empty slice. */
struct slice slice_of(const char *text);
bool slice_eq(struct slice a, struct slice b);
/* Bytewise order, shorter first on a common prefix: <0, 0, >0. */
int slice_compare(struct slice a, struct slice b);
bool slice_starts(struct slice text, struct slice prefix);
bool slice_ends(struct slice text, struct slice suffix);
/* FNV-1a, from @seed on: only to see that what is written again came out the same. */
uint64_t slice_hash(struct slice text, uint64_t seed);
/* Offset of the first @byte, or text.len when there is none. */
size_t slice_find(struct slice text, char byte);
/* Offset of the first @needle (not empty), or text.len. */
size_t slice_find_slice(struct slice text, struct slice needle);
/* @from and @to are clamped to the slice. */
struct slice slice_sub(struct slice text, size_t from, size_t to);
/* Without leading and trailing space, tab, CR and LF. */
struct slice slice_trim(struct slice text);
/* Takes everything up to the first @byte off the front of @text and that byte with it;
 * the whole rest when there is none. False when @text was empty already. */
bool slice_take_until(struct slice *text, char byte, struct slice *out);

/**
 * slice_parse_u64 - a canonical decimal
 * Digits only, no sign, no leading zero (but "0"), at most @max. @out on success only.
 */
bool slice_parse_u64(struct slice text, uint64_t max, uint64_t *out);

/* Lower-case hex. @out has room for 2 * len characters and is not NUL-terminated. */
void hex_encode(const uint8_t *bytes, size_t len, char *out);
/* Exactly 2 * len lower-case hex digits, else false. @out on success only. */
bool hex_decode(struct slice text, uint8_t *out, size_t len);

/* What the front of @text (not empty) is: 1..4, the length of a well-formed UTF-8
 * sequence; or -1..-3, minus the length of a maximal invalid subpart, for which one
 * U+FFFD stands. Source: The Unicode Standard 3.9, table 3-7, "U+FFFD Substitution". */
int utf8_front(struct slice text);
/* Writes @code (a scalar value) as UTF-8; returns its length, 1..4. */
size_t utf8_encode(uint32_t code, char out[4]);
/* True if @text is well-formed UTF-8: no surrogates, no overlong forms, up to U+10FFFF.
 */
bool utf8_valid(struct slice text);
/* Length in bytes of the longest prefix of at most @max bytes that splits no UTF-8
 * sequence. */
size_t utf8_floor(struct slice text, size_t max);
/* Number of code points; @text is valid UTF-8. */
size_t utf8_count(struct slice text);

#endif
