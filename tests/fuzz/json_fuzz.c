/* The JSON reader and writer against each other: two ways of reading agree, what is
 * written reads back, what is repaired has no broken string left. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>

#include "wire/nostr/json.h"

/* Reads one value by entering everything. @depth is bounded by the reader itself. */
static void walk(struct json *json)
{
	struct slice raw;
	int64_t number;
	bool yes;

	switch (json_peek(json)) {
	case JSON_OBJECT:
		if (!json_enter_object(json))
			return;
		while (json_member(json, &raw))
			walk(json);
		return;
	case JSON_ARRAY:
		if (!json_enter_array(json))
			return;
		while (json_element(json))
			walk(json);
		return;
	case JSON_STRING:
		(void)json_string(json, &raw);
		return;
	case JSON_TRUE:
	case JSON_FALSE:
		(void)json_bool(json, &yes);
		return;
	case JSON_NULL:
		(void)json_skip(json, NULL);
		return;
	case JSON_NUMBER: {
		/* An integer reads as itself; any other number is only passed. */
		struct json copy = *json;

		if (json_skip(&copy, &raw) &&
		    json_int(json, INT64_MIN, INT64_MAX, &number))
			assert(json->at == copy.at);
		*json = copy;
		return;
	}
	case JSON_ERROR:
		return;
	}
}

static void check_strings(struct slice text, struct buf *one, struct buf *two)
{
	struct json json;
	struct slice raw;

	/* Any UTF-8 comes back from its string. */
	if (utf8_valid(text)) {
		assert(json_write_string(one, text));
		json_init(&json, buf_slice(one));
		assert(json_string(&json, &raw) && json_end(&json, NULL));
		assert(json_is_canonical(raw) && json_is(raw, text));
		assert(json_unescape(raw, two) && slice_eq(buf_slice(two), text));
	}
	/* A string that was sent means the same when it is rewritten. */
	json_init(&json, text);
	if (json_peek(&json) != JSON_STRING || !json_string(&json, &raw))
		return;
	buf_clear(one);
	buf_clear(two);
	assert(json_unescape(raw, one) && utf8_valid(buf_slice(one)));
	assert(json_is(raw, buf_slice(one)));
	assert(json_write_raw(two, raw) && json_is(buf_slice(two), buf_slice(one)));
	assert(json_is_canonical(raw) == slice_eq(raw, buf_slice(two)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct slice text = {(const char *)data, size};
	enum json_fault fault;
	struct buf one, two;
	struct json json;

	buf_init(&one, 6 * size + 16);
	buf_init(&two, 6 * size + 16);
	json_init(&json, text);
	walk(&json);
	assert(json_end(&json, NULL) == json_check(text, &fault, NULL));
	assert(json.fault == fault);

	check_strings(text, &one, &two);

	buf_clear(&one);
	assert(json_repair(text, &one));
	(void)json_check(buf_slice(&one), &fault, NULL);
	assert(fault != JSON_FAULT_UTF8 && fault != JSON_FAULT_SURROGATE);
	if (json_check(text, NULL, NULL))
		assert(slice_eq(buf_slice(&one), text));
	buf_finish(&one);
	buf_finish(&two);
	return 0;
}
