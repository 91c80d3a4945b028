#include "relay/queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/support.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"

static struct retained retained;
static struct queue queue;
static struct buf out;
static struct body *head;

static void setup(void)
{
	retained.bytes = 0;
	queue_init(&queue, &retained);
	buf_init(&out, 65536);
	head = body_create(SLICE("\"sub\""));
}

static void teardown(void)
{
	queue_finish(&queue);
	ck_assert_uint_eq(retained.bytes, 0);
	ck_assert_uint_eq(head->refs, 1);
	body_unref(head);
	buf_finish(&out);
}

static bool push(enum parcel_kind kind, const char *text)
{
	struct body *body = body_create(slice_of(text));
	bool pushed = queue_push(&queue, kind, kind == PARCEL_TEXT ? NULL : head, body);

	body_unref(body);
	return pushed;
}

static void assert_next(const char *text)
{
	buf_clear(&out);
	ck_assert(queue_take(&queue, &out));
	assert_slice_eq(buf_slice(&out), text);
}

static struct body *body_of(size_t len)
{
	char *text = mem_alloc(len);
	struct body *body;

	memset(text, 'x', len);
	body = body_create((struct slice){text, len});
	free(text);
	return body;
}

START_TEST(messages_leave_in_the_order_they_came_and_whole)
{
	ck_assert(push(PARCEL_TEXT, "[\"NOTICE\",\"a\"]"));
	ck_assert(push(PARCEL_REPLAY, "{\"n\":1}"));
	ck_assert(queue_push(&queue, PARCEL_EOSE, head, NULL));
	ck_assert(push(PARCEL_EVENT, "{\"n\":2}"));
	assert_next("[\"NOTICE\",\"a\"]");
	assert_next("[\"EVENT\",\"sub\",{\"n\":1}]");
	assert_next("[\"EOSE\",\"sub\"]");
	assert_next("[\"EVENT\",\"sub\",{\"n\":2}]");
	ck_assert(!queue_take(&queue, &out));
}
END_TEST

START_TEST(order_survives_growing_while_partly_sent)
{
	char text[16];
	int i, next = 0;

	for (i = 0; i < 1000; i++) {
		(void)snprintf(text, sizeof(text), "%d", i);
		ck_assert(push(PARCEL_TEXT, text));
		if (i % 3 == 0) {
			(void)snprintf(text, sizeof(text), "%d", next++);
			assert_next(text);
		}
	}
	while (next < 1000) {
		(void)snprintf(text, sizeof(text), "%d", next++);
		assert_next(text);
	}
}
END_TEST

START_TEST(one_body_in_many_queues_is_retained_once)
{
	struct body *body = body_of(1000);
	struct queue other;

	queue_init(&other, &retained);
	ck_assert(queue_push(&queue, PARCEL_EVENT, head, body));
	ck_assert(queue_push(&other, PARCEL_EVENT, head, body));
	body_unref(body);
	ck_assert_uint_eq(retained.bytes, 1000);
	queue_clear(&queue);
	ck_assert_uint_eq(retained.bytes, 1000);
	queue_finish(&other);
	ck_assert_uint_eq(retained.bytes, 0);
}
END_TEST

START_TEST(a_push_past_4_mib_of_unsent_bytes_fails_and_adds_nothing)
{
	size_t bytes = RELAY_READER_QUEUE_MAX / 4 - QUEUE_PARCEL_OVERHEAD - head->len;
	struct body *body = body_of(bytes);
	size_t before;
	int i;

	for (i = 0; i < 4; i++)
		ck_assert(queue_push(&queue, PARCEL_EVENT, head, body));
	before = queue.bytes;
	ck_assert_uint_eq(before, RELAY_READER_QUEUE_MAX);
	ck_assert(!push(PARCEL_TEXT, "x"));
	ck_assert_uint_eq(queue.bytes, before);
	body_unref(body);
}
END_TEST

START_TEST(small_messages_are_not_free)
{
	size_t count = 0;

	while (push(PARCEL_TEXT, "x"))
		count++;
	ck_assert_uint_eq(count, RELAY_READER_QUEUE_MAX / (QUEUE_PARCEL_OVERHEAD + 1));
}
END_TEST

START_TEST(a_replay_does_not_use_up_the_room_of_live_messages)
{
	struct body *body = body_of(RELAY_READER_QUEUE_MAX);

	ck_assert(queue_push(&queue, PARCEL_REPLAY, head, body));
	ck_assert_uint_gt(queue.replay_bytes, RELAY_READER_QUEUE_MAX);
	ck_assert(push(PARCEL_EVENT, "{}"));
	body_unref(body);
}
END_TEST

START_TEST(closing_a_subscription_drops_its_messages_and_no_others)
{
	struct body *other = body_create(SLICE("\"other\""));
	struct body *body = body_create(SLICE("{}"));

	ck_assert(push(PARCEL_EVENT, "{\"n\":1}"));
	ck_assert(queue_push(&queue, PARCEL_EVENT, other, body));
	ck_assert(queue_push(&queue, PARCEL_EOSE, head, NULL));
	ck_assert(push(PARCEL_TEXT, "[\"NOTICE\",\"a\"]"));
	queue_forget(&queue, head, QUEUE_FORGET_ALL);
	assert_next("[\"EVENT\",\"other\",{}]");
	assert_next("[\"NOTICE\",\"a\"]");
	ck_assert(!queue_take(&queue, &out));
	body_unref(body);
	body_unref(other);
}
END_TEST

START_TEST(replacing_a_subscription_keeps_what_the_window_would_not_serve_again)
{
	struct body *kept = body_create(SLICE("{\"kept\":1}"));

	kept->kept = true;
	ck_assert(queue_push(&queue, PARCEL_REPLAY, head, kept));
	ck_assert(push(PARCEL_EVENT, "{\"control\":1}"));
	ck_assert(queue_push(&queue, PARCEL_EOSE, head, NULL));
	queue_forget(&queue, head, QUEUE_FORGET_AGAIN);
	assert_next("[\"EVENT\",\"sub\",{\"control\":1}]");
	ck_assert(!queue_take(&queue, &out));
	body_unref(kept);
}
END_TEST

/* The next frame of @rest: its payload's length as RFC 6455, 5.2 writes it. */
static size_t take_frame(struct slice *rest)
{
	const uint8_t *at = (const uint8_t *)rest->ptr;
	size_t head_len = 2, len, i;

	ck_assert_uint_ge(rest->len, 2);
	ck_assert_uint_eq(at[0], 0x81);
	len = at[1];
	ck_assert_uint_lt(len, 128); /* no mask */
	if (len >= 126) {
		head_len = len == 126 ? 4 : 10;
		for (len = 0, i = 2; i < head_len; i++)
			len = len << 8 | at[i];
	}
	ck_assert_uint_ge(rest->len, head_len + len);
	*rest = slice_sub(*rest, head_len + len, rest->len);
	return len;
}

START_TEST(a_frame_says_its_length_in_the_shortest_form)
{
	static const size_t lens[] = {0, 1, 125, 126, 127, 65535, 65536, 70000};
	static const size_t heads[] = {2, 2, 2, 4, 4, 4, 10, 10};
	struct body *body = body_of(lens[_i]);
	struct slice rest;

	buf_finish(&out);
	buf_init(&out, 80000);
	ck_assert(queue_push(&queue, PARCEL_TEXT, NULL, body));
	ck_assert_uint_eq(queue_take_frames(&queue, 1, &out), 1);
	rest = buf_slice(&out);
	ck_assert_uint_eq(rest.len, heads[_i] + lens[_i]);
	ck_assert_uint_eq(take_frame(&rest), lens[_i]);
	body_unref(body);
}
END_TEST

START_TEST(frames_of_every_kind_are_as_long_as_they_say)
{
	struct slice rest;

	ck_assert(push(PARCEL_TEXT, "[\"NOTICE\",\"x\"]"));
	ck_assert(push(PARCEL_EVENT, "{}"));
	ck_assert(push(PARCEL_REPLAY, "{\"a\":1}"));
	ck_assert(queue_push(&queue, PARCEL_EOSE, head, NULL));
	ck_assert_uint_eq(queue_take_frames(&queue, 1000, &out), 4);
	ck_assert_uint_eq(queue.count, 0);
	rest = buf_slice(&out);
	ck_assert_uint_eq(take_frame(&rest), strlen("[\"NOTICE\",\"x\"]"));
	ck_assert_uint_eq(take_frame(&rest), strlen("[\"EVENT\",\"sub\",{}]"));
	ck_assert_uint_eq(take_frame(&rest), strlen("[\"EVENT\",\"sub\",{\"a\":1}]"));
	ck_assert_uint_eq(take_frame(&rest), strlen("[\"EOSE\",\"sub\"]"));
	ck_assert_uint_eq(rest.len, 0);
}
END_TEST

START_TEST(one_write_takes_what_fits_and_at_least_one)
{
	struct body *body = body_of(100);
	int i;

	for (i = 0; i < 5; i++)
		ck_assert(queue_push(&queue, PARCEL_TEXT, NULL, body));
	ck_assert_uint_eq(queue_take_frames(&queue, 10, &out), 1);
	ck_assert_uint_eq(
		queue_take_frames(&queue, 2 * (100 + QUEUE_FRAME_HEADER_MAX), &out), 2);
	ck_assert_uint_eq(
		queue_take_frames(&queue, 2 * (100 + QUEUE_FRAME_HEADER_MAX) - 1, &out),
		1);
	ck_assert_uint_eq(queue.count, 1);
	ck_assert_uint_eq(queue_take_frames(&queue, SIZE_MAX, &out), 1);
	ck_assert_uint_eq(queue_take_frames(&queue, SIZE_MAX, &out), 0);
	ck_assert_uint_eq(retained.bytes, 0);
	body_unref(body);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("relay/queue");
	TCase *tcase = tcase_create("queue");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, messages_leave_in_the_order_they_came_and_whole);
	tcase_add_test(tcase, order_survives_growing_while_partly_sent);
	tcase_add_test(tcase, one_body_in_many_queues_is_retained_once);
	tcase_add_test(tcase, a_push_past_4_mib_of_unsent_bytes_fails_and_adds_nothing);
	tcase_add_test(tcase, small_messages_are_not_free);
	tcase_add_test(tcase, a_replay_does_not_use_up_the_room_of_live_messages);
	tcase_add_test(tcase, closing_a_subscription_drops_its_messages_and_no_others);
	tcase_add_test(
		tcase,
		replacing_a_subscription_keeps_what_the_window_would_not_serve_again);
	tcase_add_loop_test(tcase, a_frame_says_its_length_in_the_shortest_form, 0, 8);
	tcase_add_test(tcase, frames_of_every_kind_are_as_long_as_they_say);
	tcase_add_test(tcase, one_write_takes_what_fits_and_at_least_one);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
