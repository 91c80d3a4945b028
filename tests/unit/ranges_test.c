/* Sets of frame numbers, and what feed_state says of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/journal_index.h"
#include "agent/ranges.h"
#include "tests/unit/support/support.h"

static struct ranges set;

static void setup(void)
{
	set = (struct ranges){0};
}

static void teardown(void)
{
	ranges_finish(&set);
}

static void check_shape(void)
{
	for (size_t i = 0; i < set.count; i++) {
		ck_assert_uint_le(set.items[i].first, set.items[i].last);
		if (i)
			ck_assert_uint_gt(set.items[i].first, set.items[i - 1].last + 1);
	}
}

START_TEST(any_order_of_adding_and_removing_is_a_plain_set)
{
	bool plain[64] = {false};
	unsigned random = 7;

	for (int step = 0; step < 1500; step++) {
		uint64_t number, next;

		random = random * 1103515245u + 12345u;
		number = (random >> 8) % 60 + 1;
		plain[number] = random >> 20 & 1;
		if (plain[number])
			ranges_add(&set, number);
		else
			ranges_remove(&set, number);
		check_shape();
		for (uint64_t i = 1; i < 62; i++) {
			uint64_t want = i;

			ck_assert_int_eq(ranges_has(&set, i), plain[i]);
			while (want < 62 && !plain[want])
				want++;
			ck_assert_int_eq(ranges_next(&set, i, &next), want < 62);
			if (want < 62)
				ck_assert_uint_eq(next, want);
		}
	}
}
END_TEST

static void assert_told(const struct journal_index *index, const char *current,
			uint64_t last, const char *want)
{
	struct buf out;

	buf_init(&out, 1 << 20);
	(void)buf_lit(&out, "{\"a\":0");
	journal_index_write(index, current, &set, last, &out);
	assert_slice_eq(buf_slice(&out), want);
	buf_finish(&out);
}

#define OLD "692c0a0000000001"
#define NEW "692c0a0100000001"

START_TEST(what_is_gone_of_this_epoch_is_below_the_first_or_a_hole)
{
	const struct journal_index index = {0};

	assert_told(&index, NEW, 0,
		    "{\"a\":0,\"epochs\":[{\"epoch\":\"" NEW
		    "\",\"first\":1,\"last\":0}],\"gone\":[{\"epoch\":\"" NEW
		    "\",\"frames\":[]}]");
	ranges_add(&set, 3);
	ranges_add(&set, 5);
	ranges_add(&set, 6);
	assert_told(&index, NEW, 8,
		    "{\"a\":0,\"epochs\":[{\"epoch\":\"" NEW
		    "\",\"first\":3,\"last\":8}],\"gone\":[{\"epoch\":\"" NEW
		    "\",\"frames\":[[4,4],[7,8]]}]");
}
END_TEST

START_TEST(of_an_epoch_that_is_over_all_beyond_the_last_is_gone)
{
	struct journal_index index = {0};

	journal_index_add(&index, OLD, 2);
	journal_index_add(&index, OLD, 3);
	journal_index_add(&index, NEW, 1); /* what this start wrote is in @held */
	ranges_add(&set, 1);
	assert_told(&index, NEW, 1,
		    "{\"a\":0,\"epochs\":[{\"epoch\":\"" OLD
		    "\",\"first\":2,\"last\":3},{\"epoch\":\"" NEW
		    "\",\"first\":1,\"last\":1}],\"gone\":[{\"epoch\":\"" OLD
		    "\",\"frames\":[[4,9007199254740991]]},{\"epoch\":\"" NEW
		    "\",\"frames\":[]}]");
	journal_index_finish(&index);
}
END_TEST

START_TEST(an_epoch_that_holds_nothing_is_forgotten)
{
	struct journal_index index = {0};

	journal_index_add(&index, OLD, 1);
	journal_index_add(&index, NEW, 1);
	journal_index_remove(&index, OLD, 1, NEW);
	journal_index_remove(&index, OLD, 1, NEW);
	journal_index_remove(&index, NEW, 1, NEW);
	ck_assert_ptr_null(journal_index_find(&index, OLD));
	ck_assert_ptr_nonnull(journal_index_find(&index, NEW));
	journal_index_finish(&index);
}
END_TEST

/* Whatever the journal holds, what is told of it fits a frame. */
START_TEST(the_most_that_is_told_fits_a_frame)
{
	struct journal_index index = {0};
	char name[17];
	struct buf out;

	for (unsigned i = 0; i < FEED_EPOCHS_MAX + 20; i++) {
		(void)snprintf(name, sizeof(name), "%08x00000000", i);
		for (uint64_t k = 0; k < 20; k++)
			journal_index_add(&index, name, 1000000 + 2 * k);
	}
	for (uint64_t i = 0; i < 2000; i++)
		ranges_add(&set, 2000000 + 2 * i);
	buf_init(&out, FRAME_PACK_MAX / 2);
	(void)buf_lit(&out, "{\"a\":0");
	journal_index_write(&index, NEW, &set, 3000000, &out);
	ck_assert(buf_ok(&out));
	/* The oldest are not told, nor are holes below the newest 512. */
	ck_assert_uint_eq(
		slice_find_slice(buf_slice(&out), SLICE("\"0000000000000000\"")),
		out.len);
	ck_assert_uint_lt(slice_find_slice(buf_slice(&out),
					   SLICE("\"" NEW "\",\"first\":2002974,")),
			  out.len);
	buf_finish(&out);
	journal_index_finish(&index);
}
END_TEST

static Suite *ranges_suite(void)
{
	Suite *suite = suite_create("ranges");
	TCase *tcase = tcase_create("ranges");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, any_order_of_adding_and_removing_is_a_plain_set);
	tcase_add_test(tcase, what_is_gone_of_this_epoch_is_below_the_first_or_a_hole);
	tcase_add_test(tcase, of_an_epoch_that_is_over_all_beyond_the_last_is_gone);
	tcase_add_test(tcase, an_epoch_that_holds_nothing_is_forgotten);
	tcase_add_test(tcase, the_most_that_is_told_fits_a_frame);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return test_run(ranges_suite());
}
