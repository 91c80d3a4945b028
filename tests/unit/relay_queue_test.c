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
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
