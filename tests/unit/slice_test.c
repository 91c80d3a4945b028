#include <string.h>

#include "tests/unit/support/support.h"
#include "wire/base/slice.h"

#define COUNT(table) (int)(sizeof(table) / sizeof((table)[0]))

START_TEST(slices_are_compared_by_their_bytes)
{
	ck_assert(slice_eq(SLICE("a\0b"), SLICE("a\0b")));
	ck_assert(!slice_eq(SLICE("a\0b"), SLICE("a\0c")));
	ck_assert(!slice_eq(SLICE("a"), SLICE("ab")));
	ck_assert(slice_eq(SLICE_EMPTY, SLICE("")));
	ck_assert(slice_eq(slice_of(NULL), SLICE_EMPTY));
	ck_assert_int_lt(slice_compare(SLICE("a"), SLICE("b")), 0);
	ck_assert_int_gt(slice_compare(SLICE("\xff"), SLICE("a")), 0);
	ck_assert_int_lt(slice_compare(SLICE("a"), SLICE("aa")), 0);
	ck_assert_int_eq(slice_compare(SLICE("aa"), SLICE("aa")), 0);
	ck_assert_int_lt(slice_compare(SLICE_EMPTY, SLICE("a")), 0);
}
END_TEST

START_TEST(prefixes_suffixes_and_bytes_are_found)
{
	ck_assert(slice_starts(SLICE("abc"), SLICE("ab")));
	ck_assert(slice_starts(SLICE("abc"), SLICE_EMPTY));
	ck_assert(!slice_starts(SLICE("ab"), SLICE("abc")));
	ck_assert(slice_ends(SLICE("abc"), SLICE("bc")));
	ck_assert(!slice_ends(SLICE("abc"), SLICE("ab")));
	ck_assert_uint_eq(slice_find(SLICE("abca"), 'a'), 0);
	ck_assert_uint_eq(slice_find(SLICE("abca"), 'x'), 4);
	ck_assert_uint_eq(slice_find(SLICE_EMPTY, 'x'), 0);
	ck_assert_uint_eq(slice_find_slice(SLICE("aabab"), SLICE("ab")), 1);
	ck_assert_uint_eq(slice_find_slice(SLICE("aabab"), SLICE("bb")), 5);
}
END_TEST

START_TEST(parts_are_clamped_to_the_whole)
{
	assert_slice_eq(slice_sub(SLICE("abcd"), 1, 3), "bc");
	assert_slice_eq(slice_sub(SLICE("abcd"), 2, 99), "cd");
	assert_slice_eq(slice_sub(SLICE("abcd"), 9, 99), "");
	assert_slice_eq(slice_sub(SLICE("abcd"), 3, 1), "");
	assert_slice_eq(slice_sub(SLICE_EMPTY, 1, 2), "");
	assert_slice_eq(slice_trim(SLICE(" \t\r\n a b \n")), "a b");
	assert_slice_eq(slice_trim(SLICE(" \n")), "");
}
END_TEST

START_TEST(fields_are_taken_up_to_a_byte)
{
	struct slice text = SLICE("a,,b"), field;

	ck_assert(slice_take_until(&text, ',', &field));
	assert_slice_eq(field, "a");
	ck_assert(slice_take_until(&text, ',', &field));
	assert_slice_eq(field, "");
	ck_assert(slice_take_until(&text, ',', &field));
	assert_slice_eq(field, "b");
	/* Nothing is what is taken then, for whoever does not ask. */
	ck_assert(!slice_take_until(&text, ',', &field));
	assert_slice_eq(field, "");
}
END_TEST

static const struct {
	const char *text;
	uint64_t max;
	bool ok;
	uint64_t value;
} numbers[] = {
	{"0", 10, true, 0},
	{"10", 10, true, 10},
	{"11", 10, false, 0},
	{"18446744073709551615", UINT64_MAX, true, UINT64_MAX},
	{"18446744073709551616", UINT64_MAX, false, 0},
	{"99999999999999999999999", UINT64_MAX, false, 0},
	{"", 10, false, 0},
	{"00", 10, false, 0},
	{"01", 10, false, 0},
	{"+1", 10, false, 0},
	{"-1", 10, false, 0},
	{"1 ", 10, false, 0},
	{"0x1", 10, false, 0},
};

START_TEST(numbers_are_canonical_decimals)
{
	uint64_t got = 77;

	ck_assert_msg(slice_parse_u64(slice_of(numbers[_i].text), numbers[_i].max,
				      &got) == numbers[_i].ok,
		      "%s", numbers[_i].text);
	ck_assert_uint_eq(got, numbers[_i].ok ? numbers[_i].value : 77);
}
END_TEST

START_TEST(hex_is_lower_case_and_of_exact_length)
{
	uint8_t bytes[3] = {0};
	char text[6];

	ck_assert(!hex_decode(SLICE("00aBff"), bytes, 3));
	ck_assert(!hex_decode(SLICE("00abf"), bytes, 3));
	ck_assert(!hex_decode(SLICE("00abff0"), bytes, 3));
	ck_assert(!hex_decode(SLICE("00abfg"), bytes, 3));
	ck_assert_uint_eq(bytes[1], 0); /* nothing was written */
	ck_assert(hex_decode(SLICE("00abff"), bytes, 3));
	hex_encode(bytes, 3, text);
	ck_assert_mem_eq(text, "00abff", 6);
}
END_TEST

/* The Unicode Standard, 3.9: well-formed sequences (table 3-7) and maximal subparts. */
static const struct {
	const char *text;
	int front;
} fronts[] = {
	{"a", 1},
	{"\x7f", 1},
	{"\xc2\x80", 2},
	{"\xdf\xbf", 2},
	{"\xe0\xa0\x80", 3},
	{"\xed\x9f\xbf", 3},
	{"\xee\x80\x80", 3},
	{"\xf0\x90\x80\x80", 4},
	{"\xf4\x8f\xbf\xbf", 4},
	{"\x80", -1},
	{"\xc0\x80", -1},
	{"\xc1\xbf", -1},
	{"\xc2", -1},
	{"\xc2\x41", -1},
	{"\xe0\x9f\xbf", -1},
	{"\xed\xa0\x80", -1},
	{"\xe2\x82", -2},
	{"\xe2\x82\x41", -2},
	{"\xf0\x8f\xbf\xbf", -1},
	{"\xf4\x90\x80\x80", -1},
	{"\xf0\x9f\x98", -3},
	{"\xf0\x9f\x41", -2},
	{"\xf5\x80\x80\x80", -1},
	{"\xff", -1},
};

START_TEST(utf8_sequences_are_well_formed_or_measured)
{
	const struct slice text = slice_of(fronts[_i].text);

	ck_assert_int_eq(utf8_front(text), fronts[_i].front);
	ck_assert_int_eq(utf8_valid(text), fronts[_i].front == (int)text.len);
}
END_TEST

START_TEST(every_code_point_is_encoded_and_recognised)
{
	for (uint32_t code = 0; code <= 0x10ffff; code++) {
		char text[4];
		size_t len;

		if (code >= 0xd800 && code <= 0xdfff)
			continue;
		len = utf8_encode(code, text);
		/* No ck_assert: a million of them take seconds. */
		if (utf8_front((struct slice){text, len}) != (int)len)
			ck_abort_msg("U+%04X", code);
	}
}
END_TEST

START_TEST(invalid_utf8_is_found_wherever_it_is)
{
	char text[40];

	for (size_t at = 0; at < sizeof(text); at++) {
		memset(text, 'a', sizeof(text));
		ck_assert(utf8_valid((struct slice){text, sizeof(text)}));
		text[at] = '\x80';
		ck_assert_msg(!utf8_valid((struct slice){text, sizeof(text)}), "%zu", at);
	}
	ck_assert(utf8_valid(SLICE_EMPTY));
}
END_TEST

START_TEST(a_cut_splits_no_sequence)
{
	const struct slice text = SLICE("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
	static const size_t floors[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};

	for (size_t max = 0; max < sizeof(floors) / sizeof(floors[0]); max++)
		ck_assert_uint_eq(utf8_floor(text, max), floors[max]);
	ck_assert_uint_eq(utf8_count(text), 4);
	ck_assert_uint_eq(utf8_floor(SLICE("\x80\x80\x80\x80\x80\x80"), 5), 5);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("slice");
	TCase *tcase = tcase_create("slice");

	tcase_add_test(tcase, slices_are_compared_by_their_bytes);
	tcase_add_test(tcase, prefixes_suffixes_and_bytes_are_found);
	tcase_add_test(tcase, parts_are_clamped_to_the_whole);
	tcase_add_test(tcase, fields_are_taken_up_to_a_byte);
	tcase_add_loop_test(tcase, numbers_are_canonical_decimals, 0, COUNT(numbers));
	tcase_add_test(tcase, hex_is_lower_case_and_of_exact_length);
	tcase_add_loop_test(tcase, utf8_sequences_are_well_formed_or_measured, 0,
			    COUNT(fronts));
	tcase_add_test(tcase, every_code_point_is_encoded_and_recognised);
	tcase_add_test(tcase, invalid_utf8_is_found_wherever_it_is);
	tcase_add_test(tcase, a_cut_splits_no_sequence);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
