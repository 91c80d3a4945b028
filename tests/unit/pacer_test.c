#include "agent/pacer.h"
#include "tests/unit/support/support.h"

#define TICK 1000
#define LINGER 20
#define START 50000

#define LIVE PACER_BIT(PACER_LIVE)
#define BACKFILL PACER_BIT(PACER_BACKFILL)

static struct pacer pacer;

static void setup(void)
{
	pacer_init(&pacer, TICK, LINGER, START);
}

/* The time of the next frame if @claims wait from @now on, which is taken. */
static int64_t send_next(int64_t now, unsigned claims, enum pacer_claim want)
{
	const int64_t next = pacer_next(&pacer, now, claims, 0);
	const int64_t at = next > now ? next : now;

	if (next > now)
		ck_assert_int_eq(pacer_take(&pacer, next - 1, claims, 0), PACER_NONE);
	ck_assert_int_eq(pacer_take(&pacer, at, claims, 0), want);
	return at;
}

START_TEST(nothing_waits_so_no_timer)
{
	ck_assert_int_eq(pacer_next(&pacer, START + 5, 0, 0), -1);
	ck_assert_int_eq(pacer_take(&pacer, START + 9999, 0, 0), PACER_NONE);
}
END_TEST

START_TEST(first_frame_of_a_start_waits_one_tick)
{
	ck_assert_int_eq(send_next(START + 1, LIVE, PACER_LIVE), START + TICK);
}
END_TEST

START_TEST(after_a_pause_only_the_linger_time_is_waited)
{
	(void)send_next(START, LIVE, PACER_LIVE);
	ck_assert_int_eq(pacer_next(&pacer, START + TICK, 0, 0), -1);
	ck_assert_int_eq(send_next(START + 9000, LIVE, PACER_LIVE),
			 START + 9000 + LINGER);
}
END_TEST

START_TEST(linger_counts_from_the_first_of_a_burst)
{
	(void)send_next(START, LIVE, PACER_LIVE);
	ck_assert_int_eq(pacer_next(&pacer, START + 5000, LIVE, 0),
			 START + 5000 + LINGER);
	ck_assert_int_eq(pacer_next(&pacer, START + 5015, LIVE, 0),
			 START + 5000 + LINGER);
}
END_TEST

START_TEST(never_two_frames_within_a_tick)
{
	int64_t last = send_next(START, LIVE, PACER_LIVE);

	for (int i = 0; i < 50; i++) {
		const int64_t at = send_next(last + i, LIVE, PACER_LIVE);

		ck_assert_int_ge(at, last + TICK);
		last = at;
	}
}
END_TEST

START_TEST(missed_ticks_are_not_made_up)
{
	(void)send_next(START, LIVE, PACER_LIVE);
	ck_assert_int_eq(pacer_next(&pacer, START + TICK, LIVE, 0), START + 2 * TICK);
	ck_assert_int_eq(pacer_take(&pacer, START + 7 * TICK, LIVE, 0), PACER_LIVE);
	ck_assert_int_eq(pacer_take(&pacer, START + 7 * TICK, LIVE, 0), PACER_NONE);
	ck_assert_int_eq(pacer_next(&pacer, START + 7 * TICK, LIVE, 0), START + 8 * TICK);
}
END_TEST

START_TEST(claims_are_served_in_their_order)
{
	unsigned claims = 0x1f;
	int64_t at = START;

	at = send_next(at, claims, PACER_STATE);
	at = send_next(at, claims &= ~PACER_BIT(PACER_STATE), PACER_URGENT);
	at = send_next(at, claims &= ~PACER_BIT(PACER_URGENT), PACER_RESEND);
	/* Three in a row went to others: backfill's turn. */
	at = send_next(at, claims &= ~PACER_BIT(PACER_RESEND), PACER_BACKFILL);
	at = send_next(at, claims, PACER_LIVE);
	(void)send_next(at, BACKFILL, PACER_BACKFILL);
}
END_TEST

START_TEST(backfill_gets_one_tick_in_four)
{
	int64_t at = START;
	int backfills = 0;

	for (int i = 0; i < 40; i++) {
		const int64_t next = pacer_next(&pacer, at, LIVE | BACKFILL, 0);

		backfills +=
			pacer_take(&pacer, next, LIVE | BACKFILL, 0) == PACER_BACKFILL;
		at = next;
	}
	ck_assert_int_eq(backfills, 10);
}
END_TEST

START_TEST(backfill_takes_every_tick_that_is_free)
{
	const int64_t at = send_next(START, BACKFILL, PACER_BACKFILL);

	ck_assert_int_eq(send_next(at, BACKFILL, PACER_BACKFILL), at + TICK);
}
END_TEST

START_TEST(backfill_beyond_ticks_is_as_fast_as_the_relay_offers)
{
	int64_t now = START, last_live = START;
	int live = 0, backfill = 0;

	for (int i = 0; i < 200; i++) {
		now = pacer_next(&pacer, now, LIVE | BACKFILL, 50);
		if (pacer_take(&pacer, now, LIVE | BACKFILL, 50) == PACER_LIVE) {
			ck_assert_int_ge(now, last_live + TICK);
			last_live = now;
			live++;
		} else {
			backfill++;
		}
	}
	ck_assert_int_eq(live + backfill, 200);
	/* 50 a second, and now and then a tick. */
	ck_assert_int_le(now, START + 200 * 20);
	ck_assert_int_ge(now, START + 190 * 20);
	ck_assert_int_ge(live, 2);
}
END_TEST

START_TEST(backfill_by_a_late_timer_keeps_the_pace_and_makes_up_one_frame_at_most)
{
	int64_t now = START, last = START;

	for (int i = 0; i < 200; i++) { /* each is a millisecond late */
		now = pacer_next(&pacer, now, BACKFILL, 80) + 1;
		ck_assert_int_eq(pacer_take(&pacer, now, BACKFILL, 80), PACER_BACKFILL);
	}
	ck_assert_int_le(now, START + 200 * 1000 / 80 + 2);
	ck_assert_int_ge(now, START + 200 * 1000 / 80);
	now += 500; /* it stood still */
	last = now;
	ck_assert_int_eq(pacer_take(&pacer, now, BACKFILL, 80), PACER_BACKFILL);
	now = pacer_next(&pacer, now, BACKFILL, 80);
	ck_assert_int_ge(now, last + 12);
}
END_TEST

START_TEST(live_frames_keep_their_ticks_however_much_backfill_waits)
{
	int64_t now = START, last_live = START;
	int live = 0;

	while (now < START + 20 * TICK) {
		now = pacer_next(&pacer, now, LIVE | BACKFILL, 80);
		if (pacer_take(&pacer, now, LIVE | BACKFILL, 80) != PACER_LIVE)
			continue;
		/* Of four ticks one may be backfill's. */
		ck_assert_int_le(now, last_live + 2 * TICK + 13);
		last_live = now;
		live++;
	}
	ck_assert_int_ge(live, 13);
}
END_TEST

static Suite *pacer_suite(void)
{
	Suite *suite = suite_create("pacer");
	TCase *tcase = tcase_create("pacer");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, nothing_waits_so_no_timer);
	tcase_add_test(tcase, first_frame_of_a_start_waits_one_tick);
	tcase_add_test(tcase, after_a_pause_only_the_linger_time_is_waited);
	tcase_add_test(tcase, linger_counts_from_the_first_of_a_burst);
	tcase_add_test(tcase, never_two_frames_within_a_tick);
	tcase_add_test(tcase, missed_ticks_are_not_made_up);
	tcase_add_test(tcase, claims_are_served_in_their_order);
	tcase_add_test(tcase, backfill_gets_one_tick_in_four);
	tcase_add_test(tcase, backfill_takes_every_tick_that_is_free);
	tcase_add_test(tcase, backfill_beyond_ticks_is_as_fast_as_the_relay_offers);
	tcase_add_test(
		tcase,
		backfill_by_a_late_timer_keeps_the_pace_and_makes_up_one_frame_at_most);
	tcase_add_test(tcase, live_frames_keep_their_ticks_however_much_backfill_waits);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return test_run(pacer_suite());
}
