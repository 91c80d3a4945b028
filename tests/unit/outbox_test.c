#include <string.h>

#include "agent/outbox.h"
#include "agent/serve.h"
#include "tests/unit/support/support.h"
#include "wire/frame/limits.h"

#define EPOCH "692c0a0000000001"

static struct outbox *outbox;
static struct serve serve;
static struct buf text;
static struct err err;

static void setup(void)
{
	outbox = outbox_create(EPOCH);
	serve = (struct serve){0};
	buf_init(&text, 1 << 20);
}

static void teardown(void)
{
	outbox_destroy(outbox);
	buf_finish(&text);
}

/* A frame of about @bytes, written at @now_ms; its id begins with its number. */
static struct outbox_frame *send(size_t bytes, int64_t now_ms)
{
	struct outbox_frame *frame = outbox_add(outbox);

	(void)buf_lit(&frame->plaintext, "{");
	memset(buf_extend(&frame->plaintext, bytes), ' ', bytes);
	(void)buf_lit(&frame->plaintext, "}");
	outbox_mark(outbox, frame, false);
	(void)buf_lit(&frame->text, "sealed");
	frame->id[0] = (uint8_t)frame->number;
	frame->state = OUTBOX_SENT;
	frame->sent_ms = now_ms;
	return frame;
}

static void send_and_accept(size_t bytes, int64_t now_ms)
{
	outbox_accept(outbox, send(bytes, now_ms), now_ms);
}

/* The numbers whose plaintext is here, as text. */
static void assert_here(const char *want)
{
	uint64_t number = 0;

	buf_clear(&text);
	while (outbox_next(outbox, number + 1, &number))
		(void)buf_printf(&text, "%u ", (unsigned)number);
	assert_slice_eq(buf_slice(&text), want);
}

START_TEST(frames_are_numbered_from_1_without_holes)
{
	ck_assert_uint_eq(outbox_last(outbox), 0);
	ck_assert_uint_eq(outbox_first(outbox), 1);
	ck_assert_uint_eq(send(1, 0)->number, 1);
	ck_assert_uint_eq(send(1, 0)->number, 2);
	ck_assert_uint_eq(outbox_last(outbox), 2);
}
END_TEST

START_TEST(suffix_takes_the_place_of_the_last_brace)
{
	struct outbox_frame *frame = send(1, 0);

	assert_slice_eq(buf_slice(&frame->plaintext),
			"{ ,\"epoch\":\"" EPOCH "\",\"frame\":1}");
	outbox_mark(outbox, frame, true);
	assert_slice_eq(buf_slice(&frame->plaintext),
			"{ ,\"epoch\":\"" EPOCH "\",\"frame\":1,\"replayed\":true}");
	outbox_mark(outbox, frame, true);
	assert_slice_eq(buf_slice(&frame->plaintext),
			"{ ,\"epoch\":\"" EPOCH "\",\"frame\":1,\"replayed\":true}");
}
END_TEST

START_TEST(eight_frames_in_flight_are_full)
{
	struct outbox_frame *first = send(1, 0);

	for (int i = 1; i < AGENT_IN_FLIGHT_MAX; i++) {
		ck_assert(!outbox_is_full(outbox));
		(void)send(1, 0);
	}
	ck_assert(outbox_is_full(outbox));
	outbox_accept(outbox, first, 0);
	ck_assert(!outbox_is_full(outbox));
}
END_TEST

START_TEST(frame_in_flight_is_found_by_its_id)
{
	struct outbox_frame *frame = send(1, 0);
	const uint8_t other[32] = {99};

	ck_assert_ptr_eq(outbox_find(outbox, frame->id), frame);
	ck_assert_ptr_null(outbox_find(outbox, other));
	outbox_accept(outbox, frame, 0);
	ck_assert_ptr_null(outbox_find(outbox, frame->id));
}
END_TEST

START_TEST(oldest_frame_without_ok_sets_the_deadline)
{
	struct outbox_frame *first;

	ck_assert_int_eq(outbox_deadline(outbox), -1);
	first = send(1, 1000);
	(void)send(1, 2000);
	ck_assert_int_eq(outbox_deadline(outbox), 1000 + OUTBOX_OK_MS);
	outbox_accept(outbox, first, 0);
	ck_assert_int_eq(outbox_deadline(outbox), 2000 + OUTBOX_OK_MS);
}
END_TEST

START_TEST(after_a_disconnect_the_same_frames_are_sent_again_in_order)
{
	struct outbox_frame *first = send(1, 0), *second = send(1, 0);

	ck_assert_ptr_null(outbox_unsent(outbox));
	outbox_disconnect(outbox);
	ck_assert_int_eq(outbox_deadline(outbox), -1);
	ck_assert_ptr_eq(outbox_unsent(outbox), first);
	assert_slice_eq(buf_slice(&first->text), "sealed");
	first->state = OUTBOX_SENT;
	ck_assert_ptr_eq(outbox_unsent(outbox), second);
	ck_assert_uint_eq(outbox_in_flight(outbox), 2);
}
END_TEST

START_TEST(accepted_frame_is_kept_for_300_s)
{
	send_and_accept(1, 1000);
	outbox_expire(outbox, 1000 + 299999);
	ck_assert_ptr_nonnull(outbox_get(outbox, 1));
	outbox_expire(outbox, 1000 + 300000);
	ck_assert_ptr_null(outbox_get(outbox, 1));
	ck_assert_uint_eq(outbox_first(outbox), 2);
}
END_TEST

START_TEST(accepted_frames_are_kept_up_to_4_mib)
{
	size_t kept = 0;

	for (int i = 0; i < 100; i++)
		send_and_accept(65000, 1000);
	for (uint64_t i = outbox_first(outbox); i <= 100; i++)
		kept += outbox_get(outbox, i)->plaintext.cap;
	ck_assert_uint_le(kept, AGENT_KEEP_MAX);
	ck_assert_uint_gt(kept, AGENT_KEEP_MAX - 2 * 65536);
	ck_assert_ptr_null(outbox_get(outbox, outbox_first(outbox) - 1));
}
END_TEST

START_TEST(frame_in_flight_outlives_what_is_kept)
{
	(void)send(1, 0);
	send_and_accept(1, 0);
	outbox_expire(outbox, 400000);
	ck_assert_uint_eq(outbox_first(outbox), 1);
	ck_assert_ptr_nonnull(outbox_get(outbox, 1));
	assert_here("1 ");
}
END_TEST

START_TEST(a_number_given_to_a_frame_kept_elsewhere_leaves_no_hole)
{
	(void)send(1, 0);
	ck_assert_uint_eq(outbox_pass(outbox), 2);
	ck_assert_uint_eq(send(1, 0)->number, 3);
	ck_assert_uint_eq(outbox_in_flight(outbox), 2);
	assert_here("1 3 ");
}
END_TEST

START_TEST(refused_frames_are_gone)
{
	struct outbox_frame *frames[6];

	for (int i = 0; i < 6; i++)
		frames[i] = send(1, 0);
	assert_here("1 2 3 4 5 6 ");
	outbox_refuse(outbox, frames[1]);
	outbox_refuse(outbox, frames[2]);
	outbox_refuse(outbox, frames[4]);
	assert_here("1 4 6 ");
	ck_assert_ptr_null(outbox_get(outbox, 3));
	outbox_refuse(outbox, frames[0]);
	ck_assert_uint_eq(outbox_first(outbox), 4);
	assert_here("4 6 ");
}
END_TEST

START_TEST(frame_that_4096_others_have_overtaken_is_given_up)
{
	struct outbox_frame *first = send(1, 0);

	for (int i = 1; i < OUTBOX_NUMBERS_MAX; i++) {
		ck_assert_ptr_null(outbox_straggler(outbox));
		send_and_accept(1, i);
	}
	ck_assert_ptr_eq(outbox_straggler(outbox), first);
	outbox_refuse(outbox, first);
	ck_assert_ptr_null(outbox_straggler(outbox));
	send_and_accept(1, 0);
	ck_assert_uint_eq(outbox_last(outbox), OUTBOX_NUMBERS_MAX + 1);
}
END_TEST

/* However short the ticks are. */
START_TEST(no_more_than_4096_frames_are_kept)
{
	for (int i = 0; i < OUTBOX_NUMBERS_MAX + 10; i++)
		send_and_accept(1, 0);
	ck_assert_uint_eq(outbox_first(outbox), 11);
	ck_assert_ptr_null(outbox_get(outbox, 10));
	ck_assert_ptr_nonnull(outbox_get(outbox, 11));
	ck_assert_uint_eq(outbox_last(outbox), OUTBOX_NUMBERS_MAX + 10);
}
END_TEST

/* A feed_sync of @observer for one or two ranges. */
static bool ask(const char *observer, uint64_t a1, uint64_t b1, uint64_t a2, uint64_t b2,
		int64_t now_ms)
{
	struct control_want wants[2] = {{.range = {a1, b1}}, {.range = {a2, b2}}};
	struct control control = {
		.type = CONTROL_FEED_SYNC,
		.request_id = SLICE_INIT("r"),
		.wants = wants,
		.want_count = a2   ? 2
			      : a1 ? 1
				   : 0,
	};

	memcpy(wants[0].epoch, EPOCH, sizeof(EPOCH));
	memcpy(wants[1].epoch, EPOCH, sizeof(EPOCH));
	memcpy(control.observer, observer, sizeof(control.observer));
	return serve_open(&serve, &control, now_ms, &err);
}

#define OLD "0000000000000001"

/* The frames of the outbox, and of an older epoch 1 to 4 without 2. */
static bool is_here(void *ctx, const char *epoch, uint64_t from, uint64_t *number)
{
	(void)ctx;
	if (strcmp(epoch, EPOCH) == 0)
		return outbox_next(outbox, from, number);
	if (strcmp(epoch, OLD) != 0 || from > 4)
		return false;
	*number = from == 2 ? 3 : from;
	return true;
}

/* Negative: of the older epoch; 0: none. */
static int next_number(void)
{
	const struct serve_source source = {is_here, NULL};
	char epoch[17];
	uint64_t number;

	if (!serve_next(&serve, &source, epoch, &number))
		return 0;
	return strcmp(epoch, OLD) == 0 ? -(int)number : (int)number;
}

START_TEST(newest_range_is_served_first_and_in_order_inside)
{
	for (int i = 0; i < 9; i++)
		send_and_accept(1, 0);
	ck_assert(ask("aaaaaaaa", 1, 2, 6, 8, 0));
	ck_assert_int_eq(next_number(), 6);
	ck_assert_int_eq(next_number(), 7);
	ck_assert_int_eq(next_number(), 8);
	ck_assert_int_eq(next_number(), 1);
	ck_assert_int_eq(next_number(), 2);
	ck_assert_int_eq(next_number(), 0);
}
END_TEST

START_TEST(what_is_gone_or_was_never_is_passed_over)
{
	for (int i = 0; i < 3; i++)
		send_and_accept(1, 0);
	outbox_refuse(outbox, send(1, 0));
	send_and_accept(1, 0);
	ck_assert(ask("aaaaaaaa", 3, 9007199254740991, 0, 0, 0));
	ck_assert_int_eq(next_number(), 3);
	ck_assert_int_eq(next_number(), 5);
	ck_assert_int_eq(next_number(), 0);
}
END_TEST

START_TEST(two_observers_get_a_frame_once)
{
	send_and_accept(1, 0);
	send_and_accept(1, 0);
	ck_assert(ask("aaaaaaaa", 1, 2, 0, 0, 0));
	ck_assert(ask("bbbbbbbb", 1, 1, 0, 0, 0));
	ck_assert_int_eq(next_number(), 1);
	ck_assert_int_eq(next_number(), 2);
	ck_assert_int_eq(next_number(), 0);
}
END_TEST

START_TEST(new_request_of_an_observer_replaces_its_old_one)
{
	send_and_accept(1, 0);
	send_and_accept(1, 0);
	ck_assert(ask("aaaaaaaa", 1, 1, 0, 0, 0));
	ck_assert(ask("aaaaaaaa", 2, 2, 0, 0, 0));
	ck_assert_int_eq(next_number(), 2);
	ck_assert_int_eq(next_number(), 0);
}
END_TEST

static bool ask_old(const char *observer, uint64_t first, uint64_t last)
{
	struct control_want wants[2] = {{.epoch = OLD, .range = {first, last}},
					{.epoch = EPOCH, .range = {1, 1}}};
	struct control control = {.wants = wants, .want_count = 2};

	memcpy(control.observer, observer, sizeof(control.observer));
	return serve_open(&serve, &control, 0, &err);
}

START_TEST(newer_epoch_is_served_before_an_older_one)
{
	send_and_accept(1, 0);
	ck_assert(ask_old("aaaaaaaa", 1, 100));
	ck_assert_int_eq(next_number(), 1);
	ck_assert_int_eq(next_number(), -1);
	ck_assert_int_eq(next_number(), -3);
	ck_assert_int_eq(next_number(), -4);
	ck_assert_int_eq(next_number(), 0);
}
END_TEST

START_TEST(what_one_observer_wants_inside_another_s_range_comes_once)
{
	for (int i = 0; i < 6; i++)
		send_and_accept(1, 0);
	ck_assert(ask("aaaaaaaa", 1, 6, 0, 0, 0));
	ck_assert(ask("bbbbbbbb", 3, 4, 0, 0, 0));
	ck_assert_int_eq(next_number(), 3);
	ck_assert_int_eq(next_number(), 4);
	ck_assert_int_eq(next_number(), 5);
	ck_assert_int_eq(next_number(), 6);
	ck_assert_int_eq(next_number(), 1);
	ck_assert_int_eq(next_number(), 2);
	ck_assert_int_eq(next_number(), 0);
}
END_TEST

START_TEST(what_the_relay_did_not_take_is_wanted_again)
{
	send_and_accept(1, 0);
	ck_assert(ask("aaaaaaaa", 1, 1, 0, 0, 0));
	ck_assert_int_eq(next_number(), 1);
	serve_again(&serve, EPOCH, 1);
	ck_assert_int_eq(next_number(), 1);
	ck_assert_int_eq(next_number(), 0);
}
END_TEST

START_TEST(request_is_answered_even_if_it_wants_nothing)
{
	ck_assert_ptr_null(serve_unanswered(&serve));
	ck_assert(ask("aaaaaaaa", 0, 0, 0, 0, 0));
	ck_assert_ptr_nonnull(serve_unanswered(&serve));
	assert_slice_eq(slice_of(serve_unanswered(&serve)->request_id), "r");
}
END_TEST

START_TEST(request_without_observer_is_refused)
{
	ck_assert(!ask("\0\0\0\0\0\0\0\0", 0, 0, 0, 0, 0));
	ck_assert_int_eq(err.code, ERR_REFUSED);
}
END_TEST

START_TEST(ninth_observer_is_refused_until_one_is_silent)
{
	char id[9] = "aaaaaaa0";

	for (int i = 0; i < OBSERVERS_MAX; i++, id[7]++)
		ck_assert(ask(id, 0, 0, 0, 0, i));
	ck_assert(!ask(id, 0, 0, 0, 0, SERVE_OBSERVER_MS - 1));
	ck_assert_int_eq(err.code, ERR_REFUSED);
	ck_assert(ask(id, 0, 0, 0, 0, SERVE_OBSERVER_MS));
}
END_TEST

static Suite *outbox_suite(void)
{
	Suite *suite = suite_create("outbox");
	TCase *frames = tcase_create("frames"), *wants = tcase_create("wants");

	tcase_add_checked_fixture(frames, setup, teardown);
	tcase_add_test(frames, frames_are_numbered_from_1_without_holes);
	tcase_add_test(frames, suffix_takes_the_place_of_the_last_brace);
	tcase_add_test(frames, eight_frames_in_flight_are_full);
	tcase_add_test(frames, frame_in_flight_is_found_by_its_id);
	tcase_add_test(frames, oldest_frame_without_ok_sets_the_deadline);
	tcase_add_test(frames,
		       after_a_disconnect_the_same_frames_are_sent_again_in_order);
	tcase_add_test(frames, accepted_frame_is_kept_for_300_s);
	tcase_add_test(frames, accepted_frames_are_kept_up_to_4_mib);
	tcase_add_test(frames, frame_in_flight_outlives_what_is_kept);
	tcase_add_test(frames, a_number_given_to_a_frame_kept_elsewhere_leaves_no_hole);
	tcase_add_test(frames, refused_frames_are_gone);
	tcase_add_test(frames, frame_that_4096_others_have_overtaken_is_given_up);
	tcase_add_test(frames, no_more_than_4096_frames_are_kept);
	tcase_add_checked_fixture(wants, setup, teardown);
	tcase_add_test(wants, newest_range_is_served_first_and_in_order_inside);
	tcase_add_test(wants, what_is_gone_or_was_never_is_passed_over);
	tcase_add_test(wants, two_observers_get_a_frame_once);
	tcase_add_test(wants, new_request_of_an_observer_replaces_its_old_one);
	tcase_add_test(wants, newer_epoch_is_served_before_an_older_one);
	tcase_add_test(wants, what_one_observer_wants_inside_another_s_range_comes_once);
	tcase_add_test(wants, what_the_relay_did_not_take_is_wanted_again);
	tcase_add_test(wants, request_is_answered_even_if_it_wants_nothing);
	tcase_add_test(wants, request_without_observer_is_refused);
	tcase_add_test(wants, ninth_observer_is_refused_until_one_is_silent);
	suite_add_tcase(suite, frames);
	suite_add_tcase(suite, wants);
	return suite;
}

int main(void)
{
	return test_run(outbox_suite());
}
