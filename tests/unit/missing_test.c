#include "observer/missing.h"

#include "tests/unit/support/support.h"

static void add_range(struct missing *missing, uint64_t first, uint64_t last)
{
	for (uint64_t n = first; n <= last; n++)
		(void)missing_add(missing, n);
}

START_TEST(frames_in_order_leave_nothing_missing)
{
	struct missing missing = {0};

	add_range(&missing, 1, 100);
	ck_assert_uint_eq(missing_count(&missing), 0);
	ck_assert_uint_eq(missing.count, 1);
	missing_finish(&missing);
}
END_TEST

START_TEST(a_frame_seen_twice_is_seen)
{
	struct missing missing = {0};

	ck_assert_int_eq(missing_add(&missing, 5), MISSING_NEW);
	ck_assert_int_eq(missing_add(&missing, 5), MISSING_SEEN);
	missing_finish(&missing);
}
END_TEST

START_TEST(a_number_of_zero_or_beyond_2_53_is_no_frame)
{
	struct missing missing = {0};

	ck_assert_int_eq(missing_add(&missing, 0), MISSING_REFUSED);
	ck_assert_int_eq(missing_add(&missing, FRAME_NUMBER_MAX + 1ull), MISSING_REFUSED);
	ck_assert_int_eq(missing_add(&missing, FRAME_NUMBER_MAX), MISSING_NEW);
	missing_finish(&missing);
}
END_TEST

START_TEST(holes_are_told_newest_first)
{
	struct missing missing = {0};
	struct frame_range holes[8];

	add_range(&missing, 3, 4);
	add_range(&missing, 8, 9);
	missing_extend(&missing, 12);
	ck_assert_uint_eq(missing_holes(&missing, holes, 8), 3);
	ck_assert_uint_eq(holes[0].first, 10);
	ck_assert_uint_eq(holes[0].last, 12);
	ck_assert_uint_eq(holes[1].first, 5);
	ck_assert_uint_eq(holes[1].last, 7);
	ck_assert_uint_eq(holes[2].first, 1);
	ck_assert_uint_eq(holes[2].last, 2);
	ck_assert_uint_eq(missing_count(&missing), 8);
	ck_assert_uint_eq(missing_holes(&missing, holes, 1), 1);
	missing_finish(&missing);
}
END_TEST

START_TEST(a_hole_that_is_filled_from_both_ends_closes)
{
	struct missing missing = {0};

	add_range(&missing, 1, 2);
	add_range(&missing, 5, 6);
	(void)missing_add(&missing, 4);
	(void)missing_add(&missing, 3);
	ck_assert_uint_eq(missing_count(&missing), 0);
	ck_assert_uint_eq(missing.count, 1);
	missing_finish(&missing);
}
END_TEST

START_TEST(what_is_given_up_is_gone_and_not_missing)
{
	struct missing missing = {0};

	(void)missing_add(&missing, 4);
	(void)missing_add(&missing, 8);
	missing_give_up(&missing, (struct gone_range){{1, 6}, GONE_DISK});
	ck_assert_uint_eq(missing_count(&missing), 1); /* 7 */
	ck_assert_uint_eq(missing.gone_count, 2);
	ck_assert_uint_eq(missing.gone[0].range.first, 1);
	ck_assert_uint_eq(missing.gone[0].range.last, 3);
	ck_assert_uint_eq(missing.gone[1].range.first, 5);
	ck_assert_uint_eq(missing.gone[1].range.last, 6);
	missing_finish(&missing);
}
END_TEST

START_TEST(nothing_is_given_up_beyond_the_newest_known_frame)
{
	struct missing missing = {0};

	(void)missing_add(&missing, 2);
	missing_give_up(&missing,
			(struct gone_range){{1, FRAME_NUMBER_MAX}, GONE_KILLED});
	ck_assert_int_eq(missing_add(&missing, 3), MISSING_NEW);
	missing_finish(&missing);
}
END_TEST

START_TEST(too_many_holes_give_the_oldest_up)
{
	struct missing missing = {0};

	for (uint64_t n = 1; n <= 4 * MISSING_RANGES_MAX; n++)
		(void)missing_add(&missing, 2 * n);
	ck_assert_uint_le(missing.count, MISSING_RANGES_MAX + 1);
	ck_assert_uint_gt(missing.gone_count, 0);
	ck_assert_int_eq(missing_add(&missing, 8 * MISSING_RANGES_MAX - 1), MISSING_NEW);
	missing_finish(&missing);
}
END_TEST

START_TEST(what_is_taken_out_is_missing_again)
{
	struct missing missing = {0};
	struct frame_range holes[4];

	add_range(&missing, 1, 20);
	missing_take_out(&missing, (struct frame_range){5, 6});
	missing_take_out(&missing, (struct frame_range){19, 99});
	ck_assert_uint_eq(missing_count(&missing), 4);
	ck_assert_uint_eq(missing_holes(&missing, holes, 4), 2);
	ck_assert_uint_eq(holes[0].first, 19);
	ck_assert_uint_eq(holes[0].last, 20);
	ck_assert_uint_eq(holes[1].first, 5);
	ck_assert_uint_eq(holes[1].last, 6);
	ck_assert_int_eq(missing_add(&missing, 6), MISSING_NEW);
	missing_finish(&missing);
}
END_TEST

START_TEST(what_is_gone_and_taken_out_is_asked_for_again_whole)
{
	struct missing missing = {0};

	add_range(&missing, 8, 9);
	missing_give_up(&missing, (struct gone_range){{1, 7}, GONE_DISK});
	missing_take_out(&missing, (struct frame_range){7, 8});
	ck_assert_uint_eq(missing.gone_count, 0);
	ck_assert_uint_eq(missing_count(&missing), 8);
	missing_take_out(&missing, (struct frame_range){1, FRAME_NUMBER_MAX});
	ck_assert_uint_eq(missing_count(&missing), 9);
	missing_finish(&missing);
}
END_TEST

START_TEST(ranges_that_are_gone_beyond_the_limit_are_still_counted)
{
	struct missing missing = {0};

	(void)missing_add(&missing, 3 * MISSING_RANGES_MAX);
	for (uint64_t n = 1; n <= MISSING_RANGES_MAX + 5; n++)
		missing_give_up(&missing, (struct gone_range){{2 * n, 2 * n}, GONE_DISK});
	ck_assert_uint_eq(missing.gone_count, MISSING_RANGES_MAX);
	ck_assert_uint_ge(missing.given_up, MISSING_RANGES_MAX + 5);
	ck_assert_uint_ge(missing.gone_unlisted, 5);
	missing_finish(&missing);
}
END_TEST

START_TEST(any_order_ends_in_the_same_set)
{
	struct missing missing = {0};
	bool here[64] = {false};
	uint32_t random = 9u + (unsigned)_i;
	uint64_t want = 0, last = 0;

	for (unsigned i = 0; i < 60; i++) {
		uint64_t n;

		random = random * 1664525u + 1013904223u;
		n = 1 + (random >> 8) % 63;
		ck_assert_int_eq(missing_add(&missing, n),
				 here[n] ? MISSING_SEEN : MISSING_NEW);
		here[n] = true;
		last = n > last ? n : last;
	}
	for (uint64_t n = 1; n <= last; n++)
		want += !here[n];
	ck_assert_uint_eq(missing_count(&missing), want);
	missing_finish(&missing);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("missing");
	TCase *tcase = tcase_create("frames");

	tcase_add_test(tcase, frames_in_order_leave_nothing_missing);
	tcase_add_test(tcase, a_frame_seen_twice_is_seen);
	tcase_add_test(tcase, a_number_of_zero_or_beyond_2_53_is_no_frame);
	tcase_add_test(tcase, holes_are_told_newest_first);
	tcase_add_test(tcase, a_hole_that_is_filled_from_both_ends_closes);
	tcase_add_test(tcase, what_is_given_up_is_gone_and_not_missing);
	tcase_add_test(tcase, nothing_is_given_up_beyond_the_newest_known_frame);
	tcase_add_test(tcase, too_many_holes_give_the_oldest_up);
	tcase_add_test(tcase, what_is_taken_out_is_missing_again);
	tcase_add_test(tcase, what_is_gone_and_taken_out_is_asked_for_again_whole);
	tcase_add_test(tcase, ranges_that_are_gone_beyond_the_limit_are_still_counted);
	tcase_add_loop_test(tcase, any_order_ends_in_the_same_set, 0, 50);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
