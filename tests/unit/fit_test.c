#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/fit.h"
#include "tests/unit/support/support.h"
#include "wire/nostr/json.h"

#define KIND SLICE("acp_read")
#define LIMIT 20000

static struct buf payload, out;

static void setup(void)
{
	buf_init(&payload, 10 << 20);
	buf_init(&out, 10 << 20);
}

static void teardown(void)
{
	buf_finish(&payload);
	buf_finish(&out);
}

static void add(const char *text)
{
	ck_assert(buf_append(&payload, slice_of(text)));
}

static void add_times(const char *text, size_t times)
{
	const size_t len = strlen(text);
	char *room = buf_extend(&payload, len * times);

	ck_assert_ptr_nonnull(room);
	for (size_t i = 0; i < len * times; i++)
		room[i] = text[i % len];
}

static uint64_t fit(size_t overhead)
{
	const uint64_t trimmed =
		fit_payload(buf_slice(&payload), overhead, LIMIT, KIND, &out);

	if (trimmed)
		ck_assert(json_check(buf_slice(&out), NULL, NULL));
	return trimmed;
}

static bool out_has(const char *text)
{
	return slice_find_slice(buf_slice(&out), slice_of(text)) < out.len;
}

START_TEST(payload_that_fits_is_left_alone)
{
	add("{\"a\":\"");
	add_times("x", LIMIT - 100 - 8);
	add("\"}");
	ck_assert_uint_eq(payload.len, LIMIT - 100);
	ck_assert_uint_eq(fit(100), 0);
	ck_assert_uint_eq(out.len, 0);
}
END_TEST

START_TEST(one_byte_over_the_limit_is_trimmed)
{
	add("{\"a\":\"");
	add_times("x", LIMIT - 100 - 7);
	add("\"}");
	ck_assert_uint_eq(fit(100), LIMIT - 100 - 7 - 6000);
	ck_assert(out_has("…[elided 13893 bytes]…"));
	ck_assert_uint_eq(out.len, 8 + 6000 + strlen("…[elided 13893 bytes]…"));
}
END_TEST

START_TEST(longest_leaf_goes_first_and_only_until_it_fits)
{
	add("[\"");
	add_times("a", 8000);
	add("\",\"");
	add_times("b", 15000);
	add("\"]");
	ck_assert_uint_eq(fit(0), 9000);
	ck_assert(out_has("aaa\",\"bbb"));
	ck_assert(out_has("b…[elided 9000 bytes]…b"));
}
END_TEST

START_TEST(of_equal_leaves_the_first_goes_first)
{
	add("[\"");
	add_times("a", 10100);
	add("\",\"");
	add_times("b", 10100);
	add("\"]");
	ck_assert_uint_eq(fit(0), 4100);
	ck_assert(out_has("a…[elided 4100 bytes]…a"));
	ck_assert(!out_has("b…"));
}
END_TEST

START_TEST(length_is_that_of_the_escaped_text)
{
	add("[\"");
	add_times("\\u0001", 2000); /* 12,000 bytes that mean 2,000 */
	add("\",\"");
	add_times("b", 9000);
	add("\"]");
	ck_assert_uint_eq(fit(0), 6000);
	ck_assert(out_has("\\u0001…[elided 6000 bytes]…\\u0001"));
}
END_TEST

START_TEST(trimmed_is_the_sum_over_all_leaves)
{
	add("[\"");
	add_times("a", 20000);
	add("\",{\"k\":\"");
	add_times("b", 30000);
	add("\"}]");
	ck_assert_uint_eq(fit(0), 14000 + 24000);
}
END_TEST

START_TEST(mark_is_part_of_what_must_fit)
{
	/* After the first leaf was cut the event has room for all but the mark. */
	const size_t cut = 2 + 2 * 2 + 1 + 6000 + strlen("…[elided 4000 bytes]…") + 7000;

	add("[\"");
	add_times("a", 10000);
	add("\",\"");
	add_times("b", 7000);
	add("\"]");
	ck_assert_uint_eq(fit(LIMIT - cut - strlen(",\"trimmed\":4000")), 4000);
	buf_clear(&out);
	ck_assert_uint_eq(fit(LIMIT - cut - strlen(",\"trimmed\":4000") + 1), 5000);
}
END_TEST

/* A unit that must not be split lies over both places where a cut would be. */
static void assert_unit_whole(const char *unit)
{
	const size_t len = strlen(unit);

	for (size_t shift = 0; shift < len; shift++) {
		buf_clear(&payload);
		buf_clear(&out);
		add("[\"");
		add_times("a", 3000 - shift);
		add(unit);
		add_times("m", 15000);
		add(unit);
		add_times("z", 3000 - shift);
		add("\"]");
		ck_assert_uint_eq(fit(0), 15000 + 2 * len);
		ck_assert_msg(out_has("a…[elided") && out_has("]…z"), "%s at %zu", unit,
			      shift);
	}
}

START_TEST(escape_is_never_split)
{
	assert_unit_whole("\\n");
	assert_unit_whole("\\u00e9");
}
END_TEST

START_TEST(pair_of_surrogate_escapes_is_never_split)
{
	assert_unit_whole("\\ud83d\\ude00");
	assert_unit_whole("\\uDBFF\\uDFFF");
}
END_TEST

START_TEST(utf8_sequence_is_never_split)
{
	assert_unit_whole("é");
	assert_unit_whole("€");
	assert_unit_whole("😀");
}
END_TEST

START_TEST(unit_that_ends_at_the_cut_is_kept)
{
	add("[\"");
	add_times("a", 2998);
	add("\\n");
	add_times("m", 15000);
	add("\\t");
	add_times("z", 2998);
	add("\"]");
	ck_assert_uint_eq(fit(0), 15000);
	ck_assert(out_has("\\n…[elided 15000 bytes]…\\t"));
}
END_TEST

START_TEST(leaf_that_would_not_get_shorter_is_left)
{
	add("[\"");
	add_times("a", 6000 + strlen("…[elided 25 bytes]…"));
	add("\",\"");
	add_times("b", 20000);
	add("\"]");
	ck_assert_uint_eq(fit(0), 14000);
	ck_assert(!out_has("a…"));
}
END_TEST

START_TEST(keys_are_never_trimmed)
{
	add("{\"");
	add_times("k", 30000);
	add("\":\"v\"}");
	ck_assert_uint_eq(fit(0), payload.len);
	assert_slice_eq(
		buf_slice(&out),
		"{\"elided\":\"acp_read payload too large\",\"originalBytes\":30008}");
}
END_TEST

START_TEST(many_medium_leaves_end_in_the_stub)
{
	add("[0");
	for (int i = 0; i < 10; i++) {
		add(",\"");
		add_times("a", 5000);
		add("\"");
	}
	add("]");
	ck_assert_uint_eq(fit(0), payload.len);
	ck_assert(out_has(
		"{\"elided\":\"acp_read payload too large\",\"originalBytes\":50033}"));
}
END_TEST

/* The naive way: cut the longest, look again. */
static uint64_t naive_fit(struct buf *text, size_t limit)
{
	static struct buf next;
	uint64_t sum = 0;

	buf_init(&next, 10 << 20);
	for (;;) {
		char marker[64];
		size_t best = 0, best_len = 0, start = 0;
		bool in_string = false;

		(void)snprintf(marker, sizeof(marker), ",\"trimmed\":%" PRIu64, sum);
		if (text->len + (sum ? strlen(marker) : 0) <= limit)
			break;
		for (size_t i = 0; i < text->len; i++) {
			const bool quote = text->ptr[i] == '"';

			if (quote && !in_string)
				start = i + 1;
			if (quote && in_string && i - start > best_len &&
			    i - start > 6100) {
				best = start;
				best_len = i - start;
			}
			in_string ^= quote;
		}
		if (!best_len) {
			sum = 0;
			break;
		}
		buf_clear(&next);
		(void)buf_append(&next, slice_sub(buf_slice(text), 0, best + 3000));
		(void)buf_printf(&next, "…[elided %zu bytes]…", best_len - 6000);
		(void)buf_append(&next, slice_sub(buf_slice(text), best + best_len - 3000,
						  text->len));
		sum += best_len - 6000;
		buf_clear(text);
		(void)buf_append(text, buf_slice(&next));
	}
	buf_finish(&next);
	return sum;
}

static unsigned random_state;

static size_t roll(size_t sides)
{
	random_state = random_state * 1103515245u + 12345u;
	return (random_state >> 8) % sides;
}

START_TEST(one_pass_gives_what_cutting_leaf_by_leaf_gives)
{
	uint64_t want, got;

	random_state = (unsigned)_i + 1;
	add("[0");
	for (int i = 0; i < 6; i++) {
		add(",\"");
		/* Never so near the floor that the naive way's "shorter" matters. */
		add_times("a", roll(3) ? roll(6000) : 6200 + roll(9000));
		add("\"");
	}
	add("]");
	got = fit(0);
	if (payload.len <= LIMIT) {
		ck_assert_uint_eq(got, 0);
		return;
	}
	want = naive_fit(&payload, LIMIT);
	if (want) {
		ck_assert_msg(got == want, "seed %d", _i + 1);
		ck_assert_msg(slice_eq(buf_slice(&out), buf_slice(&payload)), "seed %d",
			      _i + 1);
	} else {
		ck_assert(out_has("elided\":"));
	}
}
END_TEST

static Suite *fit_suite(void)
{
	Suite *suite = suite_create("fit");
	TCase *tcase = tcase_create("fit");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, payload_that_fits_is_left_alone);
	tcase_add_test(tcase, one_byte_over_the_limit_is_trimmed);
	tcase_add_test(tcase, longest_leaf_goes_first_and_only_until_it_fits);
	tcase_add_test(tcase, of_equal_leaves_the_first_goes_first);
	tcase_add_test(tcase, length_is_that_of_the_escaped_text);
	tcase_add_test(tcase, trimmed_is_the_sum_over_all_leaves);
	tcase_add_test(tcase, mark_is_part_of_what_must_fit);
	tcase_add_test(tcase, escape_is_never_split);
	tcase_add_test(tcase, pair_of_surrogate_escapes_is_never_split);
	tcase_add_test(tcase, utf8_sequence_is_never_split);
	tcase_add_test(tcase, unit_that_ends_at_the_cut_is_kept);
	tcase_add_test(tcase, leaf_that_would_not_get_shorter_is_left);
	tcase_add_test(tcase, keys_are_never_trimmed);
	tcase_add_test(tcase, many_medium_leaves_end_in_the_stub);
	tcase_add_loop_test(tcase, one_pass_gives_what_cutting_leaf_by_leaf_gives, 0,
			    100);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return test_run(fit_suite());
}
