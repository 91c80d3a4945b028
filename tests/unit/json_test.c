#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/support.h"
#include "wire/base/arena.h"
#include "wire/nostr/json.h"

#define COUNT(table) (int)(sizeof(table) / sizeof((table)[0]))

/* RFC 8259 and the design's limits: what a strict reader takes and what it refuses. */
static const struct {
	const char *text;
	enum json_fault fault;
} texts[] = {
	{"{}", JSON_FAULT_NONE},
	{"[]", JSON_FAULT_NONE},
	{"\"\"", JSON_FAULT_NONE},
	{"0", JSON_FAULT_NONE},
	{"true", JSON_FAULT_NONE},
	{"false", JSON_FAULT_NONE},
	{"null", JSON_FAULT_NONE},
	{" \t\r\n[ 1 , 2 ] \n", JSON_FAULT_NONE},
	{"{\"a\":{\"b\":[null,{\"c\":\"d\"}]},\"a\":2}", JSON_FAULT_NONE},
	{"", JSON_FAULT_SYNTAX},
	{"   ", JSON_FAULT_SYNTAX},
	{"\xef\xbb\xbf{}", JSON_FAULT_SYNTAX},
	{"{} {}", JSON_FAULT_SYNTAX},
	{"{}x", JSON_FAULT_SYNTAX},
	{"{\"a\":1,}", JSON_FAULT_SYNTAX},
	{"[1,]", JSON_FAULT_SYNTAX},
	{"[,1]", JSON_FAULT_SYNTAX},
	{"[1 2]", JSON_FAULT_SYNTAX},
	{"[1", JSON_FAULT_SYNTAX},
	{"[1}", JSON_FAULT_SYNTAX},
	{"{\"a\"}", JSON_FAULT_SYNTAX},
	{"{\"a\" 1}", JSON_FAULT_SYNTAX},
	{"{\"a\":}", JSON_FAULT_SYNTAX},
	{"{a:1}", JSON_FAULT_SYNTAX},
	{"{1:1}", JSON_FAULT_SYNTAX},
	{"{\"a\":1 \"b\":2}", JSON_FAULT_SYNTAX},
	{"tru", JSON_FAULT_SYNTAX},
	{"nulll", JSON_FAULT_SYNTAX},
	{"True", JSON_FAULT_SYNTAX},
	{"NaN", JSON_FAULT_SYNTAX},
	{"Infinity", JSON_FAULT_SYNTAX},
	{"'a'", JSON_FAULT_SYNTAX},
	{"/**/1", JSON_FAULT_SYNTAX},
	{"]", JSON_FAULT_SYNTAX},
	{"-0", JSON_FAULT_NONE},
	{"-0.0e-0", JSON_FAULT_NONE},
	{"1.5e+10", JSON_FAULT_NONE},
	{"9007199254740993", JSON_FAULT_NONE},
	{"01", JSON_FAULT_SYNTAX},
	{"-", JSON_FAULT_SYNTAX},
	{"-a", JSON_FAULT_SYNTAX},
	{"+1", JSON_FAULT_SYNTAX},
	{".5", JSON_FAULT_SYNTAX},
	{"1.", JSON_FAULT_SYNTAX},
	{"1.e1", JSON_FAULT_SYNTAX},
	{"1e", JSON_FAULT_SYNTAX},
	{"1e+", JSON_FAULT_SYNTAX},
	{"0x10", JSON_FAULT_SYNTAX},
	{"1_000", JSON_FAULT_SYNTAX},
	{"1e308", JSON_FAULT_NONE},
	{"1.7976931348623157e308", JSON_FAULT_NONE},
	{"1.7976931348623158e308", JSON_FAULT_NONE},
	{"1.7976931348623158079372897140530341507993413271e308", JSON_FAULT_NONE},
	{"1.79769313486231581e308", JSON_FAULT_NUMBER},
	{"1e309", JSON_FAULT_NUMBER},
	{"-1e309", JSON_FAULT_NUMBER},
	{"0.001e312", JSON_FAULT_NUMBER},
	{"0.001e311", JSON_FAULT_NONE},
	{"0.00e999999999999999999999", JSON_FAULT_NONE},
	{"1e99999999999999999999999", JSON_FAULT_NUMBER},
	{"1e-99999999999999999999999", JSON_FAULT_NONE},
	{"1000e306", JSON_FAULT_NUMBER},
	{"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"", JSON_FAULT_NONE},
	{"\"\\ud83d\\ude00 \\uDBFF\\uDFFF\"", JSON_FAULT_NONE},
	{"\"\\u0000\"", JSON_FAULT_NONE},
	{"\"\x7f\xef\xb7\x90\"", JSON_FAULT_NONE}, /* DEL, a noncharacter */
	{"\"\xf4\x8f\xbf\xbf\"", JSON_FAULT_NONE},
	{"\"abc", JSON_FAULT_SYNTAX},
	{"\"a\\\"", JSON_FAULT_SYNTAX},
	{"\"\\x41\"", JSON_FAULT_SYNTAX},
	{"\"\\U0041\"", JSON_FAULT_SYNTAX},
	{"\"\\u12g4\"", JSON_FAULT_SYNTAX},
	{"\"\\u123", JSON_FAULT_SYNTAX},
	{"\"\t\"", JSON_FAULT_SYNTAX},
	{"\"0123456789abcdef\n\"", JSON_FAULT_SYNTAX},
	{"\"\\ud83d\"", JSON_FAULT_SURROGATE},
	{"\"\\ude00\"", JSON_FAULT_SURROGATE},
	{"\"\\ud83d\\n\"", JSON_FAULT_SURROGATE},
	{"\"\\ud83d\\u0041\"", JSON_FAULT_SURROGATE},
	{"\"\\ud83d\\ud83d\\ude00\"", JSON_FAULT_SURROGATE},
	{"{\"\\ude00\":1}", JSON_FAULT_SURROGATE},
	{"\"\xff\"", JSON_FAULT_UTF8},
	{"\"\xc0\xaf\"", JSON_FAULT_UTF8},         /* overlong */
	{"\"\xe0\x80\xaf\"", JSON_FAULT_UTF8},     /* overlong */
	{"\"\xed\xa0\x80\"", JSON_FAULT_UTF8},     /* a surrogate */
	{"\"\xf4\x90\x80\x80\"", JSON_FAULT_UTF8}, /* beyond U+10FFFF */
	{"\"\xe2\x82\"", JSON_FAULT_UTF8},         /* cut off */
	{"\"0123456789abcdef\x80\"", JSON_FAULT_UTF8},
	{"\xc3\xa9", JSON_FAULT_SYNTAX},
};

START_TEST(texts_are_taken_or_refused_for_the_right_reason)
{
	const struct slice text = slice_of(texts[_i].text);
	enum json_fault got;
	struct err err;
	const bool ok = json_check(text, &got, &err);

	ck_assert_msg(got == texts[_i].fault, "%s: fault %d, want %d", texts[_i].text,
		      got, texts[_i].fault);
	ck_assert_int_eq(ok, texts[_i].fault == JSON_FAULT_NONE);
}
END_TEST

/* No prefix of a text that ends in a bracket is a text, nor reads past its end. */
START_TEST(a_text_cut_short_is_refused)
{
	const char whole[] =
		"{\"k\\u00e9y\":[1.5e3,true,null,\"\xf0\x9f\x98\x80\\ud83d\\ude00\"]}";

	for (size_t len = 0; len < sizeof(whole) - 1; len++) {
		char *exact =
			malloc(len ? len : 1); /* so that a sanitizer sees an overrun */

		ck_assert_ptr_nonnull(exact);
		memcpy(exact, whole, len);
		ck_assert_msg(!json_check((struct slice){exact, len}, NULL, NULL), "%zu",
			      len);
		free(exact);
	}
	ck_assert(json_check(slice_of(whole), NULL, NULL));
}
END_TEST

static void nested(struct buf *out, int depth, bool objects)
{
	buf_clear(out);
	for (int i = 0; i < depth; i++)
		(void)(objects && i % 2 ? buf_lit(out, "{\"a\":") : buf_lit(out, "["));
	(void)buf_lit(out, "0");
	for (int i = depth - 1; i >= 0; i--)
		(void)(objects && i % 2 ? buf_lit(out, "}") : buf_lit(out, "]"));
}

START_TEST(depth_64_is_read_and_65_is_not)
{
	enum json_fault why;
	struct buf text;

	buf_init(&text, 4096);
	for (int objects = 0; objects < 2; objects++) {
		nested(&text, 64, objects);
		ck_assert(json_check(buf_slice(&text), NULL, NULL));
		nested(&text, 65, objects);
		ck_assert(!json_check(buf_slice(&text), &why, NULL));
		ck_assert_int_eq(why, JSON_FAULT_DEPTH);
	}
	buf_finish(&text);
}
END_TEST

/* The reader of numbers agrees with the C library about what a double can hold. */
START_TEST(a_number_is_refused_exactly_when_strtod_says_infinity)
{
	static const char *const heads[] = {"1",
					    "1.7976931348623157",
					    "17.976931348623158",
					    "0.00017976931348623159",
					    "179769313486231580793",
					    "9.99"};
	char text[64];

	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		for (int exponent = 280; exponent < 320; exponent++) {
			double value;

			(void)snprintf(text, sizeof(text), "%se%d", heads[i], exponent);
			value = strtod(text, NULL);
			ck_assert_msg(json_check(slice_of(text), NULL, NULL) ==
					      (value < __builtin_inf()),
				      "%s", text);
		}
	}
}
END_TEST

START_TEST(a_number_of_309_digits_is_judged_by_all_of_them)
{
	char text[310];

	memset(text, '9', sizeof(text));
	ck_assert(json_check((struct slice){text, 308}, NULL, NULL));
	ck_assert(!json_check((struct slice){text, 309}, NULL, NULL));
	text[0] = '1';
	text[1] = '8';
	ck_assert(!json_check((struct slice){text, 309}, NULL, NULL));
	text[1] = '7';
	text[2] = '0';
	ck_assert(json_check((struct slice){text, 309}, NULL, NULL));
}
END_TEST

START_TEST(members_and_elements_are_walked_in_order)
{
	struct json json;
	struct slice key, raw;
	int64_t number;
	bool yes;

	json_init(&json, SLICE(" {\"n\" : -7, \"list\":[true,null,\"x\\ny\"], "
			       "\"o\":{\"p\":{}} } "));
	ck_assert_int_eq(json_peek(&json), JSON_OBJECT);
	ck_assert(json_enter_object(&json));
	ck_assert(json_member(&json, &key));
	assert_slice_eq(key, "n");
	ck_assert(json_int(&json, -10, 10, &number));
	ck_assert_int_eq(number, -7);
	ck_assert(json_member(&json, &key));
	assert_slice_eq(key, "list");
	ck_assert(json_enter_array(&json));
	ck_assert(json_element(&json));
	ck_assert(json_bool(&json, &yes));
	ck_assert(yes);
	ck_assert(json_element(&json));
	ck_assert(json_take_null(&json));
	ck_assert(json_element(&json));
	ck_assert(!json_take_null(&json));
	ck_assert(json_string(&json, &raw));
	assert_slice_eq(raw, "x\\ny");
	ck_assert(!json_element(&json));
	ck_assert(json_member(&json, &key));
	ck_assert(json_skip(&json, &raw));
	assert_slice_eq(raw, "{\"p\":{}}");
	ck_assert(!json_member(&json, &key));
	ck_assert(json_end(&json, NULL));
}
END_TEST

/* Also for a reader that would have asked for null first, which consumes nothing else. */
START_TEST(nothing_follows_a_comma_before_a_closing_bracket)
{
	struct json json;
	struct slice key;

	json_init(&json, SLICE("[null,]"));
	ck_assert(json_enter_array(&json));
	ck_assert(json_element(&json));
	ck_assert(json_take_null(&json));
	ck_assert(!json_element(&json));
	ck_assert(!json_end(&json, NULL));
	json_init(&json, SLICE("{\"a\":null,}"));
	ck_assert(json_enter_object(&json));
	ck_assert(json_member(&json, &key));
	ck_assert(json_take_null(&json));
	ck_assert(!json_member(&json, &key));
	ck_assert(!json_end(&json, NULL));
}
END_TEST

START_TEST(an_entered_value_can_be_kept_as_a_slice)
{
	struct json json;
	const char *start;

	json_init(&json, SLICE("[ [1, 2] ,3]"));
	ck_assert(json_enter_array(&json));
	ck_assert(json_element(&json));
	start = json_mark(&json);
	ck_assert(json_enter_array(&json));
	while (json_element(&json))
		ck_assert(json_skip(&json, NULL));
	assert_slice_eq(((struct slice){start, (size_t)(json.at - start)}), "[1, 2]");
}
END_TEST

START_TEST(after_a_fault_every_call_fails)
{
	struct json json;
	struct slice key, raw;
	int64_t number;
	struct err err;

	json_init(&json, SLICE("{\"a\":x,\"b\":1}"));
	ck_assert(json_enter_object(&json));
	ck_assert(json_member(&json, &key));
	ck_assert(!json_skip(&json, &raw));
	ck_assert(!json_member(&json, &key));
	ck_assert(!json_element(&json));
	ck_assert(!json_int(&json, 0, 9, &number));
	ck_assert(!json_string(&json, &raw));
	ck_assert(!json_take_null(&json));
	ck_assert(!json_enter_object(&json));
	ck_assert_int_eq(json_peek(&json), JSON_ERROR);
	ck_assert(!json_end(&json, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert_str_eq(err.text, "broken or unexpected JSON at byte 5");
}
END_TEST

START_TEST(a_text_of_which_nothing_was_read_has_no_end)
{
	struct json json;

	json_init(&json, SLICE("  "));
	ck_assert(!json_end(&json, NULL));
	json_init(&json, SLICE("{}"));
	ck_assert(!json_end(&json, NULL));
	json_init(&json, SLICE("{}"));
	ck_assert(json_enter_object(&json));
	ck_assert(!json_end(&json, NULL));
}
END_TEST

static const struct {
	const char *text;
	bool ok;
	int64_t value;
} integers[] = {
	{"0", true, 0},
	{"-1", true, -1},
	{"9223372036854775807", true, INT64_MAX},
	{"-9223372036854775808", true, INT64_MIN},
	{"9223372036854775808", false, 0},
	{"-9223372036854775809", false, 0},
	{"-0", false, 0},
	{"1.0", false, 0},
	{"1e3", false, 0},
	{"\"1\"", false, 0},
	{"01", false, 0},
	{"true", false, 0},
};

START_TEST(integers_have_no_fraction_exponent_or_overflow)
{
	int64_t got = 42;
	struct json json;

	json_init(&json, slice_of(integers[_i].text));
	if (!json_int(&json, INT64_MIN, INT64_MAX, &got))
		ck_assert_int_eq(got, 42); /* written on success only */
	ck_assert_msg(json_end(&json, NULL) == integers[_i].ok, "%s", integers[_i].text);
	if (integers[_i].ok)
		ck_assert_int_eq(got, integers[_i].value);
}
END_TEST

START_TEST(an_integer_outside_its_range_is_refused)
{
	int64_t got;
	struct json json;

	json_init(&json, SLICE("65536"));
	ck_assert(!json_int(&json, 0, 65535, &got));
	json_init(&json, SLICE("-1"));
	ck_assert(!json_int(&json, 0, 65535, &got));
}
END_TEST

START_TEST(strings_are_compared_by_their_meaning)
{
	ck_assert(json_is(SLICE("kind"), SLICE("kind")));
	ck_assert(json_is(SLICE("\\u006bind"), SLICE("kind")));
	ck_assert(json_is(SLICE("\\ud83d\\ude00!"), SLICE("\xf0\x9f\x98\x80!")));
	ck_assert(json_is(SLICE("a\\u0000"), SLICE("a\0")));
	ck_assert(!json_is(SLICE("\\n"), SLICE("\\n")));
	ck_assert(!json_is(SLICE("kin"), SLICE("kind")));
	ck_assert(!json_is(SLICE("kind\\u0020"), SLICE("kind")));
	ck_assert(!json_is(SLICE("\\u006bin"), SLICE("kind")));
	ck_assert(json_is(SLICE_EMPTY, SLICE("")));
}
END_TEST

/* All code points that have an escape of their own come out of both decoders alike. */
START_TEST(unescaping_gives_the_utf8_meaning)
{
	const struct slice raw = SLICE(
		"\\\"\\\\\\/"
		"\\b\\f\\n\\r\\t|\\u0000|\\u007F|\\u00e9|\\u20ac|\\uD83D\\uDE00|plain");
	const struct slice want = SLICE(
		"\"\\/\b\f\n\r\t|\0|\x7f|\xc3\xa9|\xe2\x82\xac|\xf0\x9f\x98\x80|plain");
	struct arena arena;
	struct buf out;

	arena_init(&arena, 1024);
	buf_init(&out, want.len);
	ck_assert(json_unescape(raw, &out));
	ck_assert(slice_eq(buf_slice(&out), want));
	ck_assert(slice_eq(json_decode(raw, &arena), want));
	ck_assert(json_has_nul(raw));
	ck_assert(!json_has_nul(SLICE("\\\\u0000 \\u0001")));
	buf_finish(&out);
	arena_finish(&arena);
}
END_TEST

START_TEST(a_plain_string_is_decoded_without_a_copy)
{
	const struct slice raw = SLICE("no escape");
	struct arena arena;

	arena_init(&arena, 1024);
	ck_assert_ptr_eq(json_decode(raw, &arena).ptr, raw.ptr);
	arena_finish(&arena);
}
END_TEST

/* NIP-01 and deployed practice: seven named escapes, lower-case \u00xx, the rest
 * verbatim. */
START_TEST(strings_are_written_as_nip01_hashes_them)
{
	struct buf out;

	buf_init(&out, 4096);
	ck_assert(json_write_string(&out,
				    SLICE("\n\"\\\r\t\b\f\x01\x1f\0/<&\x7f\xe2\x80\xa8"
					  " a long run without anything special in it")));
	ck_assert(slice_eq(
		buf_slice(&out),
		SLICE("\"\\n\\\"\\\\\\r\\t\\b\\f\\u0001\\u001f\\u0000/<&\x7f\xe2\x80\xa8"
		      " a long run without anything special in it\"")));
	buf_finish(&out);
}
END_TEST

static const struct {
	const char *raw, *canonical;
} rewrites[] = {
	{"plain", "plain"},
	{"\\n\\\"\\\\", "\\n\\\"\\\\"},
	{"\\/", "/"},
	{"\\u000A\\u000d", "\\n\\r"},
	{"\\u001F", "\\u001f"},
	{"\\u0041\\u007f\\u00e9", "A\x7f\xc3\xa9"},
	{"\\u0022\\u005c", "\\\"\\\\"},
	{"x\\ud83d\\ude00y", "x\xf0\x9f\x98\x80y"},
	{"\\u0000", "\\u0000"},
};

START_TEST(a_string_escaped_in_any_way_is_rewritten_canonically)
{
	const struct slice raw = slice_of(rewrites[_i].raw);
	struct buf out;

	buf_init(&out, 4096);
	ck_assert(json_write_raw(&out, raw));
	assert_slice_eq(buf_slice(&out), rewrites[_i].canonical);
	ck_assert_int_eq(json_is_canonical(raw), slice_eq(raw, buf_slice(&out)));
	ck_assert(json_is_canonical(buf_slice(&out)));
	buf_finish(&out);
}
END_TEST

START_TEST(documents_are_written_member_by_member)
{
	struct buf out;

	buf_init(&out, 4096);
	(void)buf_lit(&out, "{");
	(void)json_write_member_string(&out, SLICE("a"), SLICE("x\ny"));
	(void)json_write_member_string(&out, SLICE("none"), SLICE_EMPTY);
	(void)json_write_member_int(&out, SLICE("n"), INT64_MIN);
	(void)json_write_member_bool(&out, SLICE("yes"), true);
	(void)json_write_member_raw(&out, SLICE("raw"), SLICE("[1]"));
	(void)json_write_key(&out, SLICE("o"));
	(void)buf_lit(&out, "{");
	(void)json_write_member_bool(&out, SLICE("no"), false);
	(void)buf_lit(&out, "}}");
	assert_slice_eq(buf_slice(&out),
			"{\"a\":\"x\\ny\",\"none\":null,\"n\":-9223372036854775808,"
			"\"yes\":true,\"raw\":[1],\"o\":{\"no\":false}}");
	ck_assert(json_check(buf_slice(&out), NULL, NULL));
	buf_finish(&out);
}
END_TEST

static const struct {
	const char *broken, *repaired;
} repairs[] = {
	{"{\"a\":\"fine \xc3\xa9 \\ud83d\\ude00\"}",
	 "{\"a\":\"fine \xc3\xa9 \\ud83d\\ude00\"}"},
	{"\"\\ud83d\"", "\"\\ufffd\""},
	{"\"\\uDE00\"", "\"\\ufffd\""},
	{"\"\\ud83dx\"", "\"\\ufffdx\""},
	{"\"\\ud83d\\ud83d\\ude00\"", "\"\\ufffd\\ud83d\\ude00\""},
	{"\"\\ude00\\ud83d\"", "\"\\ufffd\\ufffd\""},
	{"\"\\\\ud83d\"", "\"\\\\ud83d\""}, /* an escaped backslash, then letters */
	{"\"a\xff\"", "\"a\xef\xbf\xbd\""},
	{"\"\xe2\x82\"", "\"\xef\xbf\xbd\""}, /* one maximal subpart */
	{"\"\xe2\x82\xe2\x82\xac\"", "\"\xef\xbf\xbd\xe2\x82\xac\""},
	{"\"\xf0\x9f\x98\"", "\"\xef\xbf\xbd\""},
	{"\"\xc0\xaf\"", "\"\xef\xbf\xbd\xef\xbf\xbd\""}, /* two: neither can begin one */
	{"\"\xed\xa0\x80\"", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
	{"\"\\q\"", "\"\\q\""}, /* no repair of other faults */
	{"\"\\", "\"\\"},
};

START_TEST(repair_replaces_lone_surrogates_and_invalid_utf8_only)
{
	struct buf out;

	buf_init(&out, 4096);
	ck_assert(json_repair(slice_of(repairs[_i].broken), &out));
	assert_slice_eq(buf_slice(&out), repairs[_i].repaired);
	buf_finish(&out);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("json");
	TCase *reading = tcase_create("reading");
	TCase *writing = tcase_create("writing");

	tcase_add_loop_test(reading, texts_are_taken_or_refused_for_the_right_reason, 0,
			    COUNT(texts));
	tcase_add_test(reading, a_text_cut_short_is_refused);
	tcase_add_test(reading, depth_64_is_read_and_65_is_not);
	tcase_add_test(reading, a_number_is_refused_exactly_when_strtod_says_infinity);
	tcase_add_test(reading, a_number_of_309_digits_is_judged_by_all_of_them);
	tcase_add_test(reading, members_and_elements_are_walked_in_order);
	tcase_add_test(reading, nothing_follows_a_comma_before_a_closing_bracket);
	tcase_add_test(reading, an_entered_value_can_be_kept_as_a_slice);
	tcase_add_test(reading, after_a_fault_every_call_fails);
	tcase_add_test(reading, a_text_of_which_nothing_was_read_has_no_end);
	tcase_add_loop_test(reading, integers_have_no_fraction_exponent_or_overflow, 0,
			    COUNT(integers));
	tcase_add_test(reading, an_integer_outside_its_range_is_refused);
	tcase_add_test(reading, strings_are_compared_by_their_meaning);
	tcase_add_test(reading, unescaping_gives_the_utf8_meaning);
	tcase_add_test(reading, a_plain_string_is_decoded_without_a_copy);
	tcase_add_test(writing, strings_are_written_as_nip01_hashes_them);
	tcase_add_loop_test(writing, a_string_escaped_in_any_way_is_rewritten_canonically,
			    0, COUNT(rewrites));
	tcase_add_test(writing, documents_are_written_member_by_member);
	tcase_add_loop_test(writing,
			    repair_replaces_lone_surrogates_and_invalid_utf8_only, 0,
			    COUNT(repairs));
	suite_add_tcase(suite, reading);
	suite_add_tcase(suite, writing);
	return test_run(suite);
}
