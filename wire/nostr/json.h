#ifndef WIRE_NOSTR_JSON_H
#define WIRE_NOSTR_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"

struct arena;

/* Deepest nesting of objects and arrays that is read (design §2). */
#define JSON_DEPTH_MAX 64

enum json_kind {
	JSON_ERROR, /* the text is broken here, or has ended */
	JSON_OBJECT,
	JSON_ARRAY,
	JSON_STRING,
	JSON_NUMBER,
	JSON_TRUE,
	JSON_FALSE,
	JSON_NULL,
};

/* Why a text was refused: callers tell repairable text from broken text. */
enum json_fault {
	JSON_FAULT_NONE,
	JSON_FAULT_SYNTAX,
	JSON_FAULT_DEPTH,
	JSON_FAULT_UTF8,      /* invalid UTF-8 inside a string */
	JSON_FAULT_SURROGATE, /* a lone \ud800..\udfff escape inside a string */
	JSON_FAULT_NUMBER,    /* a number that overflows a 64-bit float */
};

/* A strict cursor over one JSON text (RFC 8259; no BOM, nothing after the value). It
 * makes no tree: what it reads are slices of the text. Every byte it passes is checked:
 * grammar, depth, UTF-8, surrogates. After the first fault every call fails, so a reader
 * may look once, with json_end(). Borrowed text; no memory of its own. Fields are the
 * cursor's. */
struct json {
	const char *start, *at, *end;
	const char *first; /* the top-level value */
	uint64_t is_array; /* bit n: level n is an array */
	uint64_t has_item; /* bit n: level n has had an item */
	unsigned depth, depth_max;
	enum json_fault fault;
	const char *fault_at;
};

void json_init(struct json *json, struct slice text);
/* For text that will be set into other JSON: @depth levels, of JSON_DEPTH_MAX, are all it
 * may have. Call it before reading. */
void json_limit_depth(struct json *json, unsigned depth);
/* Kind of the value at the cursor, nothing consumed (space is skipped). */
enum json_kind json_peek(struct json *json);
/* Where the next value starts (space skipped): to keep an entered value as a slice, take
 * this before and json->at after it was read. */
const char *json_mark(struct json *json);

/* Objects: enter, then json_member() until it returns false, reading or skipping exactly
 * one value after each true. The false call consumes the closing brace. @key: between the
 * quotes, escapes as sent (compare with json_is()). */
bool json_enter_object(struct json *json);
bool json_member(struct json *json, struct slice *key);
/* Arrays: the same with json_element(). */
bool json_enter_array(struct json *json);
bool json_element(struct json *json);

/* Reads past any one value; @raw (may be NULL) is its text, quotes and brackets included.
 */
bool json_skip(struct json *json, struct slice *raw);
/* One string; @raw is between the quotes, escapes as sent. */
bool json_string(struct json *json, struct slice *raw);
/* One integer in [min, max]: no fraction, no exponent, no "-0". Another number, or
 * another kind, is a syntax fault. */
bool json_int(struct json *json, int64_t min, int64_t max, int64_t *out);
bool json_bool(struct json *json, bool *out);
/* Consumes null if it is next; false (and no fault) otherwise. */
bool json_take_null(struct json *json);
/* True if one whole value was read without fault and only space follows. */
bool json_end(struct json *json, struct err *err);

/* Does the string @raw (as sent, valid) mean exactly @text? */
bool json_is(struct slice raw, struct slice text);
/* Appends the meaning of @raw (valid string content) as UTF-8; may hold NUL. False when
 * full. */
bool json_unescape(struct slice raw, struct buf *out);
/* The meaning of @raw (valid string content): @raw itself when it has no escape, else a
 * copy in @arena. */
struct slice json_decode(struct slice raw, struct arena *arena);
/* Is there a U+0000 in the meaning of @raw (valid string content)? */
bool json_has_nul(struct slice raw);
/* True if @raw has no escape: its meaning is its bytes. */
static inline bool json_is_plain(struct slice raw)
{
	return slice_find(raw, '\\') == raw.len;
}
/* Checks a whole text without reading it; @out_fault may be NULL. */
bool json_check(struct slice text, enum json_fault *out_fault, struct err *err);
/**
 * json_repair - make a text with broken strings readable
 * Appends @text to @out with each lone surrogate escape written as \ufffd and each
 * maximal invalid UTF-8 subpart as U+FFFD; everything else is kept byte for byte. False
 * when full.
 */
bool json_repair(struct slice text, struct buf *out);

/* Writing. Strings are escaped as NIP-01 wants: \n \" \\ \r \t \b \f, other controls as
 * lower-case \u00xx, all else as it is. @text is valid UTF-8. */
bool json_write_string(struct buf *out, struct slice text);
/* The same without the quotes. */
bool json_write_chars(struct buf *out, struct slice text);
/* Rewrites @raw (valid string content) into that form, whatever its sender escaped. */
bool json_write_raw(struct buf *out, struct slice raw);
/* True if @raw (valid string content) is in that form already. */
bool json_is_canonical(struct slice raw);
/* Appends "key": (with a comma before it unless the object was just opened). @key is
 * plain. */
bool json_write_key(struct buf *out, struct slice key);
/* key and value in one: the usual members of small documents. A member whose slice has
 * ptr NULL is written as null. */
bool json_write_member_string(struct buf *out, struct slice key, struct slice value);
bool json_write_member_int(struct buf *out, struct slice key, int64_t value);
bool json_write_member_bool(struct buf *out, struct slice key, bool value);
bool json_write_member_raw(struct buf *out, struct slice key, struct slice json);

#endif
