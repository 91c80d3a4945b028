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

#define OLD "692c0a0000000001"
#define NEW "692c0a0100000001"

/* As a member of payload, with @how it is kept. */
static void assert_told_how(const struct journal_index *index, uint64_t last, int how,
			    const char *want)
{
	const struct journal_telling telling = {
		.current = NEW, .held = &set, .last = last, .how = how};
	struct buf out;

	buf_init(&out, 1 << 20);
	(void)buf_lit(&out, "{\"a\":0");
	journal_index_write(index, &telling, &out);
	assert_slice_eq(buf_slice(&out), want);
	buf_finish(&out);
}

static void assert_told(const struct journal_index *index, uint64_t last,
			const char *want)
{
	assert_told_how(index, last, JOURNAL_TELLS_ALL, want);
}

START_TEST(what_is_gone_of_this_epoch_is_below_the_first_or_a_hole)
{
	const struct journal_index index = {0};

	assert_told(&index, 0,
		    "{\"a\":0,\"epochs\":[{\"epoch\":\"" NEW
		    "\",\"first\":1,\"last\":0}],\"gone\":[],\"others\":\"retention\"");
	ranges_add(&set, 3);
	ranges_add(&set, 5);
	ranges_add(&set, 6);
	assert_told(
		&index, 8,
		"{\"a\":0,\"epochs\":[{\"epoch\":\"" NEW
		"\",\"first\":3,\"last\":8,\"why\":\"disk\"}],\"gone\":[{\"epoch\":\"" NEW
		"\",\"frames\":[[4,4],[7,8]],\"why\":\"disk\"}],\"others\":"
		"\"retention\"");
}
END_TEST

START_TEST(what_was_let_go_says_so_and_what_never_was_on_disk_too)
{
	struct journal_index index = {0};

	for (uint64_t number = 1; number <= 9; number++)
		if (number != 7)
			journal_index_add(&index, OLD, number);
	for (uint64_t number = 1; number <= 3; number++)
		journal_index_let_go(&index, OLD, number, NEW);
	journal_index_add(&index, NEW, 2);
	journal_index_add(&index, NEW, 6);
	journal_index_let_go(&index, NEW, 2, NEW);
	ranges_add(&set, 1); /* in memory still, as is */
	ranges_add(&set, 4);
	ranges_add(&set, 6);
	assert_told(&index, 6,
		    "{\"a\":0,\"epochs\":[{\"epoch\":\"" OLD
		    "\",\"first\":4,\"last\":9,\"why\":\"retention\"},{\"epoch\":\"" NEW
		    "\",\"first\":1,\"last\":6}],\"gone\":["
		    "{\"epoch\":\"" OLD "\",\"frames\":[[7,7]],\"why\":\"disk\"},"
		    "{\"epoch\":\"" OLD
		    "\",\"frames\":[[10,9007199254740991]],\"why\":\"killed\"},"
		    "{\"epoch\":\"" NEW "\",\"frames\":[[2,3],[5,5]],\"why\":\"disk\"}],"
		    "\"others\":\"retention\"");
	journal_index_finish(&index);
}
END_TEST

START_TEST(what_the_relay_refused_is_gone_with_that_cause)
{
	struct journal_index index = {0};

	for (uint64_t number = 1; number <= 9; number++)
		if (number != 6)
			journal_index_add(&index, OLD, number);
	journal_index_refuse(&index, OLD, 5);
	journal_index_refuse(&index, OLD, 7);
	journal_index_refuse(&index, OLD, 8);
	journal_index_add(&index, OLD, 8); /* it was on its way to the disk */
	journal_index_add(&index, NEW, 1);
	journal_index_refuse(&index, NEW, 2);
	ranges_add(&set, 1);
	assert_told(&index, 2,
		    "{\"a\":0,\"epochs\":[{\"epoch\":\"" OLD
		    "\",\"first\":1,\"last\":9},{\"epoch\":\"" NEW
		    "\",\"first\":1,\"last\":2}],\"gone\":["
		    "{\"epoch\":\"" OLD "\",\"frames\":[[5,5]],\"why\":\"refused\"},"
		    "{\"epoch\":\"" OLD "\",\"frames\":[[6,6]],\"why\":\"disk\"},"
		    "{\"epoch\":\"" OLD "\",\"frames\":[[7,8]],\"why\":\"refused\"},"
		    "{\"epoch\":\"" OLD
		    "\",\"frames\":[[10,9007199254740991]],\"why\":\"killed\"},"
		    "{\"epoch\":\"" NEW "\",\"frames\":[[2,2]],\"why\":\"refused\"}],"
		    "\"others\":\"retention\"");
	journal_index_finish(&index);
}
END_TEST

START_TEST(what_is_not_named_is_gone_unless_the_file_is_not_open)
{
	const struct journal_index index = {0};
	const char *const words[] = {
		[JOURNAL_TELLS_ALL] = "\"others\":\"retention\"",
		[JOURNAL_TELLS_LOSS] = "\"others\":\"disk\"",
		[JOURNAL_TELLS_PART] = "\"partial\":true",
		[JOURNAL_TELLS_NONE] = "\"others\":\"no_journal\"",
	};
	char want[256];

	ranges_add(&set, 2);
	(void)snprintf(want, sizeof(want),
		       "{\"a\":0,\"epochs\":[{\"epoch\":\"%s\",\"first\":2,\"last\":2,"
		       "\"why\":\"%s\"}],\"gone\":[],%s",
		       NEW, _i == JOURNAL_TELLS_NONE ? "no_journal" : "disk", words[_i]);
	assert_told_how(&index, 2, _i, want);
}
END_TEST

START_TEST(of_an_epoch_that_is_over_all_beyond_the_last_is_gone)
{
	struct journal_index index = {0};

	journal_index_add(&index, OLD, 2);
	journal_index_add(&index, OLD, 3);
	journal_index_add(&index, NEW, 1); /* what this start wrote is in @held */
	ranges_add(&set, 1);
	assert_told(&index, 1,
		    "{\"a\":0,\"epochs\":[{\"epoch\":\"" OLD
		    "\",\"first\":2,\"last\":3,\"why\":\"disk\"},{\"epoch\":\"" NEW
		    "\",\"first\":1,\"last\":1}],\"gone\":[{\"epoch\":\"" OLD
		    "\",\"frames\":[[4,9007199254740991]],\"why\":\"killed\"}],"
		    "\"others\":\"retention\"");
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
	journal_index_write(
		&index, &(struct journal_telling){NEW, &set, 3000000, JOURNAL_TELLS_ALL},
		&out);
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
	tcase_add_test(tcase, what_was_let_go_says_so_and_what_never_was_on_disk_too);
	tcase_add_test(tcase, what_the_relay_refused_is_gone_with_that_cause);
	tcase_add_loop_test(tcase, what_is_not_named_is_gone_unless_the_file_is_not_open,
			    0, 4);
	tcase_add_test(tcase, an_epoch_that_holds_nothing_is_forgotten);
	tcase_add_test(tcase, the_most_that_is_told_fits_a_frame);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return test_run(ranges_suite());
}
