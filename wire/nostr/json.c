#include "wire/nostr/json.h"

#include <assert.h>
#include <string.h>

#include "wire/base/arena.h"
#include "wire/nostr/json_scan.h"

static bool fault(struct json *json, enum json_fault why, const char *at)
{
	if (json->fault == JSON_FAULT_NONE) {
		json->fault = why;
		json->fault_at = at;
		json->at = json->end; /* nothing more to read */
	}
	return false;
}

static bool syntax(struct json *json)
{
	return fault(json, JSON_FAULT_SYNTAX, json->at);
}

static void skip_space(struct json *json)
{
	const char *at = json->at;

	while (at < json->end &&
	       (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
		at++;
	json->at = at;
}

void json_init(struct json *json, struct slice text)
{
	const char *start = text.len ? text.ptr : "";

	*json = (struct json){.start = start,
			      .at = start,
			      .end = start + text.len,
			      .depth_max = JSON_DEPTH_MAX};
	skip_space(json);
	json->first = json->at;
}

void json_limit_depth(struct json *json, unsigned depth)
{
	assert(depth <= JSON_DEPTH_MAX);
	json->depth_max = depth;
}

/* Space is skipped; the next byte, or NUL with a fault at the end. A NUL in the text is
 * no token, so the two need not be told apart. */
static inline char next_byte(struct json *json)
{
	/* Mostly there is no space; after a fault the cursor stands at the end. */
	if (json->at<json->end && * json->at> ' ')
		return *json->at;
	skip_space(json);
	if (json->at == json->end) {
		(void)syntax(json);
		return '\0';
	}
	return *json->at;
}

enum json_kind json_peek(struct json *json)
{
	switch (next_byte(json)) {
	case '{':
		return JSON_OBJECT;
	case '[':
		return JSON_ARRAY;
	case '"':
		return JSON_STRING;
	case 't':
		return JSON_TRUE;
	case 'f':
		return JSON_FALSE;
	case 'n':
		return JSON_NULL;
	case '-':
	case '0':
	case '1':
	case '2':
	case '3':
	case '4':
	case '5':
	case '6':
	case '7':
	case '8':
	case '9':
		return JSON_NUMBER;
	}
	(void)syntax(json);
	return JSON_ERROR;
}

const char *json_mark(struct json *json)
{
	skip_space(json);
	return json->at;
}

/* From behind the opening quote to behind the closing one. */
static bool scan_string(struct json *json, struct slice *raw)
{
	const char *const start = json->at;
	const char *at = start;

	for (;;) {
		at = json_skip_ascii(at, json->end);
		if (at == json->end)
			return fault(json, JSON_FAULT_SYNTAX, at);
		if (*at == '"')
			break;
		if (*at == '\\') {
			const int32_t code = json_escape(at, json->end, &at);

			if (code == JSON_ESCAPE_BROKEN)
				return fault(json, JSON_FAULT_SYNTAX, at);
			if (code == JSON_ESCAPE_LONE)
				return fault(json, JSON_FAULT_SURROGATE, at - 6);
			continue;
		}
		if ((uint8_t)*at < 0x20)
			return fault(json, JSON_FAULT_SYNTAX, at);
		while (at < json->end && (uint8_t)*at >= 0x80) {
			const int len = json_utf8(at, json->end);

			if (len < 0)
				return fault(json, JSON_FAULT_UTF8, at);
			at += len;
		}
	}
	*raw = (struct slice){start, (size_t)(at - start)};
	json->at = at + 1;
	return true;
}

static bool is_digit(const char *at, const char *end)
{
	return at < end && *at >= '0' && *at <= '9';
}

/* The smallest decimal that a 64-bit float rounds to infinity: 2^1024 - 2^970, half a
 * unit beyond the largest float. Source: IEEE 754, 4.3.1. */
static const char overflow_digits[] =
	"179769313486231580793728971405303415079934132710037826936173778980444968292764"
	"750946649017977587207096330286416692887910946555547851940402630657488671505820"
	"681908902000708383676273854845817711531764475730270069855571366959622842914819"
	"860834936475292719074168444365510704342711559699508093042880177904174497792";
#define OVERFLOW_EXPONENT 308 /* of its first digit */
static_assert(sizeof(overflow_digits) - 1 == OVERFLOW_EXPONENT + 1, "all its digits");

/* Is the number at [at, end), known to fit the grammar, too large for a 64-bit float? */
static bool overflows(const char *at, const char *end)
{
	const size_t limit = sizeof(overflow_digits) - 1;
	const char *digit, *point = NULL, *mantissa_end;
	int64_t exponent = 0;
	bool negative = false;
	size_t i = 0;

	if (*at == '-')
		at++;
	for (mantissa_end = at; mantissa_end < end; mantissa_end++) {
		if (*mantissa_end == '.')
			point = mantissa_end;
		else if ((*mantissa_end | 0x20) == 'e')
			break;
	}
	if (mantissa_end < end) {
		const char *power = mantissa_end + 1;

		negative = *power == '-';
		if (*power == '-' || *power == '+')
			power++;
		/* Beyond any exponent that the digits of a text in memory could balance.
		 */
		for (; power < end && exponent < INT64_C(1) << 56; power++)
			exponent = 10 * exponent + (*power - '0');
	}
	if (negative)
		exponent = -exponent;
	if (!point)
		point = mantissa_end;

	/* The exponent of the first digit that is not zero. */
	for (digit = at; digit < mantissa_end && (*digit == '0' || *digit == '.');
	     digit++)
		continue;
	if (digit == mantissa_end)
		return false; /* zero */
	exponent += digit < point ? point - digit - 1 : point - digit;
	if (exponent != OVERFLOW_EXPONENT)
		return exponent > OVERFLOW_EXPONENT;
	for (; digit < mantissa_end && i < limit; digit++) {
		if (*digit == '.')
			continue;
		if (*digit != overflow_digits[i])
			return *digit > overflow_digits[i];
		i++;
	}
	while (i < limit && overflow_digits[i] == '0')
		i++;
	return i == limit;
}

static bool scan_number(struct json *json)
{
	const char *const start = json->at, *const end = json->end;
	const char *at = start;
	bool has_exponent = false;

	if (*at == '-')
		at++;
	if (!is_digit(at, end))
		return fault(json, JSON_FAULT_SYNTAX, at);
	if (*at == '0') {
		at++;
	} else {
		while (is_digit(at, end))
			at++;
	}
	if (at < end && *at == '.') {
		at++;
		if (!is_digit(at, end))
			return fault(json, JSON_FAULT_SYNTAX, at);
		while (is_digit(at, end))
			at++;
	}
	if (at < end && (*at == 'e' || *at == 'E')) {
		has_exponent = true;
		at++;
		if (at < end && (*at == '+' || *at == '-'))
			at++;
		if (!is_digit(at, end))
			return fault(json, JSON_FAULT_SYNTAX, at);
		while (is_digit(at, end))
			at++;
	}
	if ((has_exponent || at - start > OVERFLOW_EXPONENT) && overflows(start, at))
		return fault(json, JSON_FAULT_NUMBER, start);
	json->at = at;
	return true;
}

static bool scan_word(struct json *json, struct slice word)
{
	if (!slice_starts((struct slice){json->at, (size_t)(json->end - json->at)}, word))
		return syntax(json);
	json->at += word.len;
	return true;
}

static bool enter(struct json *json, bool array)
{
	uint64_t bit;

	if (json->depth == json->depth_max)
		return fault(json, JSON_FAULT_DEPTH, json->at);
	bit = UINT64_C(1) << json->depth;
	json->is_array = array ? json->is_array | bit : json->is_array & ~bit;
	json->has_item &= ~bit;
	json->depth++;
	json->at++;
	return true;
}

bool json_enter_object(struct json *json)
{
	if (next_byte(json) != '{')
		return syntax(json);
	return enter(json, false);
}

bool json_enter_array(struct json *json)
{
	if (next_byte(json) != '[')
		return syntax(json);
	return enter(json, true);
}

/* To the start of the next item of the innermost level; false behind its closing bracket,
 * and on a fault. */
static bool next_item(struct json *json, char close)
{
	const uint64_t bit = UINT64_C(1) << (json->depth - 1);
	const char byte = next_byte(json);

	if (byte == close) {
		json->at++;
		json->depth--;
		return false;
	}
	if (json->has_item & bit) {
		if (byte != ',')
			return syntax(json);
		json->at++;
		if (next_byte(json) == close)
			return syntax(json);
	}
	json->has_item |= bit;
	return json->fault == JSON_FAULT_NONE;
}

static bool scan_key(struct json *json, struct slice *key)
{
	if (next_byte(json) != '"')
		return syntax(json);
	json->at++;
	if (!scan_string(json, key))
		return false;
	if (next_byte(json) != ':')
		return syntax(json);
	json->at++;
	return true;
}

bool json_member(struct json *json, struct slice *key)
{
	if (json->fault != JSON_FAULT_NONE)
		return false;
	assert(json->depth && !(json->is_array >> (json->depth - 1) & 1));
	return next_item(json, '}') && scan_key(json, key);
}

bool json_element(struct json *json)
{
	if (json->fault != JSON_FAULT_NONE)
		return false;
	assert(json->depth && json->is_array >> (json->depth - 1) & 1);
	return next_item(json, ']');
}

/* Reads past a value that is no container, or enters one. */
static bool scan_value(struct json *json)
{
	struct slice raw;

	switch (next_byte(json)) {
	case '"':
		json->at++;
		return scan_string(json, &raw);
	case '{':
		return enter(json, false);
	case '[':
		return enter(json, true);
	case 't':
		return scan_word(json, SLICE("true"));
	case 'f':
		return scan_word(json, SLICE("false"));
	case 'n':
		return scan_word(json, SLICE("null"));
	}
	if (is_digit(json->at, json->end) || (json->at < json->end && *json->at == '-'))
		return scan_number(json);
	return syntax(json);
}

bool json_skip(struct json *json, struct slice *raw)
{
	const unsigned depth = json->depth;
	const char *const start = json_mark(json);

	if (!scan_value(json))
		return false;
	while (json->depth > depth) {
		struct slice key;
		bool more;

		if (json->is_array >> (json->depth - 1) & 1)
			more = next_item(json, ']');
		else
			more = next_item(json, '}') && scan_key(json, &key);
		if (more)
			more = scan_value(json);
		if (!more && json->fault != JSON_FAULT_NONE)
			return false;
	}
	if (raw)
		*raw = (struct slice){start, (size_t)(json->at - start)};
	return true;
}

bool json_string(struct json *json, struct slice *raw)
{
	if (next_byte(json) != '"')
		return syntax(json);
	json->at++;
	return scan_string(json, raw);
}

bool json_int(struct json *json, int64_t min, int64_t max, int64_t *out)
{
	const char *const start = json_mark(json);
	const char *at = start;
	int64_t value = 0;
	bool negative;

	if (json_peek(json) != JSON_NUMBER)
		return syntax(json);
	if (!scan_number(json))
		return false;
	negative = *at == '-';
	if (negative)
		at++;
	for (; at < json->at; at++) {
		if (!is_digit(at, json->at) ||
		    __builtin_mul_overflow(value, 10, &value) ||
		    __builtin_sub_overflow(value, *at - '0', &value))
			return fault(json, JSON_FAULT_SYNTAX, start);
	}
	/* Summed up below zero, where INT64_MIN has room. */
	if (!negative && __builtin_sub_overflow(0, value, &value))
		return fault(json, JSON_FAULT_SYNTAX, start);
	if ((negative && value == 0) || value < min || value > max)
		return fault(json, JSON_FAULT_SYNTAX, start);
	*out = value;
	return true;
}

bool json_bool(struct json *json, bool *out)
{
	const enum json_kind kind = json_peek(json);

	if (kind != JSON_TRUE && kind != JSON_FALSE)
		return syntax(json);
	if (!scan_value(json))
		return false;
	*out = kind == JSON_TRUE;
	return true;
}

bool json_take_null(struct json *json)
{
	const char *const at = json_mark(json);

	if (json->fault != JSON_FAULT_NONE ||
	    !slice_starts((struct slice){at, (size_t)(json->end - at)}, SLICE("null")))
		return false;
	json->at += 4;
	return true;
}

static const char *fault_text(enum json_fault why)
{
	switch (why) {
	case JSON_FAULT_NONE:
		break;
	case JSON_FAULT_SYNTAX:
		return "broken or unexpected JSON";
	case JSON_FAULT_DEPTH:
		return "JSON nested too deeply";
	case JSON_FAULT_UTF8:
		return "invalid UTF-8 in a JSON string";
	case JSON_FAULT_SURROGATE:
		return "lone surrogate in a JSON string";
	case JSON_FAULT_NUMBER:
		return "JSON number beyond a 64-bit float";
	}
	return "no fault";
}

bool json_end(struct json *json, struct err *err)
{
	if (json->fault == JSON_FAULT_NONE) {
		skip_space(json);
		if (json->depth || json->at == json->first || json->at != json->end)
			(void)syntax(json);
	}
	if (json->fault == JSON_FAULT_NONE)
		return true;
	return err_set(err, ERR_MALFORMED, "%s at byte %td", fault_text(json->fault),
		       json->fault_at - json->start);
}

bool json_check(struct slice text, enum json_fault *out_fault, struct err *err)
{
	struct json json;
	bool ok;

	json_init(&json, text);
	(void)json_skip(&json, NULL);
	ok = json_end(&json, err);
	if (out_fault)
		*out_fault = json.fault;
	return ok;
}

/* Takes the plain bytes in front of the next escape off @raw, then that escape's meaning.
 * @bytes holds up to four; @meaning is empty at the end. */
static struct slice take_run(struct slice *raw, char bytes[4], struct slice *meaning)
{
	const size_t at = slice_find(*raw, '\\');
	const struct slice run = slice_sub(*raw, 0, at);
	const char *next;
	int32_t code;

	*meaning = SLICE_EMPTY;
	if (at == raw->len) {
		*raw = SLICE_EMPTY;
		return run;
	}
	code = json_escape(raw->ptr + at, raw->ptr + raw->len, &next);
	assert(code >= 0); /* the caller's promise: valid string content */
	*meaning = (struct slice){bytes, utf8_encode((uint32_t)code, bytes)};
	*raw = slice_sub(*raw, (size_t)(next - raw->ptr), raw->len);
	return run;
}

/* Takes @part off the front of @text if it is there. */
static bool take_prefix(struct slice *text, struct slice part)
{
	if (!slice_starts(*text, part))
		return false;
	*text = slice_sub(*text, part.len, text->len);
	return true;
}

bool json_is(struct slice raw, struct slice text)
{
	struct slice run, meaning;
	char bytes[4];

	if (slice_eq(raw, text))
		return json_is_plain(raw);
	if (raw.len <= text.len)
		return false; /* an escape is longer than its meaning */
	while (raw.len) {
		run = take_run(&raw, bytes, &meaning);
		if (!take_prefix(&text, run) || !take_prefix(&text, meaning))
			return false;
	}
	return !text.len;
}

bool json_unescape(struct slice raw, struct buf *out)
{
	struct slice run, meaning;
	char bytes[4];

	while (raw.len) {
		run = take_run(&raw, bytes, &meaning);
		(void)buf_append(out, run);
		(void)buf_append(out, meaning);
	}
	return buf_ok(out);
}

struct slice json_decode(struct slice raw, struct arena *arena)
{
	struct slice run, meaning;
	char bytes[4];
	char *text, *at;

	if (json_is_plain(raw))
		return raw;
	text = at = arena_alloc(arena, raw.len); /* the meaning is never longer */
	while (raw.len) {
		run = take_run(&raw, bytes, &meaning);
		if (run.len)
			memcpy(at, run.ptr, run.len);
		at += run.len;
		if (meaning.len)
			memcpy(at, meaning.ptr, meaning.len);
		at += meaning.len;
	}
	return (struct slice){text, (size_t)(at - text)};
}

bool json_has_nul(struct slice raw)
{
	struct slice meaning;
	char bytes[4];

	while (raw.len) {
		(void)take_run(&raw, bytes, &meaning);
		if (meaning.len == 1 && bytes[0] == '\0')
			return true;
	}
	return false;
}
