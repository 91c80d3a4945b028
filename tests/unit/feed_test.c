#include <stdio.h>
#include <string.h>

#include "agent/feed.h"
#include "agent/queue.h"
#include "tests/unit/support/support.h"
#include "wire/base/arena.h"
#include "wire/frame/observer_event.h"

static struct queue *queue;
static struct feed *feed;
static struct buf frame, whole, text;
static struct arena arena;
static struct frame read;
static struct uuid channel;
static struct feed_context context;
static struct feed_time now;

static void setup(void)
{
	queue = queue_create(4 << 20);
	feed = feed_create(queue);
	buf_init(&frame, FRAME_PACK_MAX);
	buf_init(&whole, 16 << 20);
	buf_init(&text, 16 << 20);
	arena_init(&arena, 4096);
	ck_assert(uuid_parse(SLICE("7b1f0c52-5a0e-4c9b-9f8e-3d2c6a41e0d7"), &channel));
	context = (struct feed_context){
		.channel = &channel,
		.session = SLICE_INIT("s1"),
		.turn = SLICE_INIT("t1"),
		.turn_started_ms = 1764489600000,
	};
	now = (struct feed_time){.unix_ms = 1764489600123, .monotonic_ms = 1200};
}

static void teardown(void)
{
	arena_finish(&arena);
	buf_finish(&frame);
	buf_finish(&whole);
	buf_finish(&text);
	feed_destroy(feed);
	queue_destroy(queue);
}

static uint64_t feed_text(enum feed_direction direction, struct slice line_text)
{
	struct acp_line line;

	acp_line_scan(line_text, &line);
	return feed_line(feed, now, &context, direction, &line, line_text.len,
			 SLICE_EMPTY, &whole);
}

/* The next frame, read back; the test fails unless it is one event. */
static const struct observer_event *sent(void)
{
	struct queue_frame info;

	buf_clear(&frame);
	ck_assert(queue_pack(queue, FRAME_PACK_MAX, &frame, &info));
	ck_assert(frame_parse(buf_slice(&frame), &arena, &read, NULL));
	ck_assert_uint_eq(read.event_count, 1);
	return &read.events[0];
}

static void chunk(const char *words)
{
	buf_clear(&text);
	(void)buf_printf(
		&text,
		"{\"method\":\"session/update\",\"params\":{\"sessionId\":\"s1\","
		"\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{"
		"\"type\":\"text\",\"text\":\"%s\"}}}}",
		words);
	(void)feed_text(FEED_READ, buf_slice(&text));
}

START_TEST(event_has_the_key_order_of_the_wire)
{
	ck_assert_uint_eq(feed_emit(feed, now, &context, SLICE("permission_terminal"),
				    SLICE("{\"requestNonce\":\"n\"}"),
				    SLICE("{\"a\":1}")),
			  1);
	(void)sent();
	assert_slice_eq(
		buf_slice(&frame),
		"{\"seq\":1,\"monotonicMs\":1200,\"timestamp\":\"2025-11-30T08:00:00."
		"123Z\","
		"\"kind\":\"permission_terminal\",\"agentIndex\":0,"
		"\"channelId\":\"7b1f0c52-5a0e-4c9b-9f8e-3d2c6a41e0d7\","
		"\"sessionId\":\"s1\",\"turnId\":\"t1\","
		"\"startedAt\":\"2025-11-30T08:00:00.000Z\","
		"\"authorization\":{\"requestNonce\":\"n\"},\"payload\":{\"a\":1}}");
}
END_TEST

START_TEST(what_is_unknown_is_null_and_started_at_is_left_out)
{
	struct feed_context bare = {.slot = -1};

	(void)feed_emit(feed, now, &bare, SLICE("harness_started"), SLICE_EMPTY,
			SLICE("{}"));
	(void)sent();
	assert_slice_eq(
		buf_slice(&frame),
		"{\"seq\":1,\"monotonicMs\":1200,\"timestamp\":\"2025-11-30T08:00:00."
		"123Z\","
		"\"kind\":\"harness_started\",\"agentIndex\":null,\"channelId\":null,"
		"\"sessionId\":null,\"turnId\":null,\"payload\":{}}");
}
END_TEST

START_TEST(timestamp_follows_the_clock_within_and_across_seconds)
{
	static const char *const stamps[] = {
		"2025-11-30T08:00:00.123Z", "2025-11-30T08:00:00.999Z",
		"2025-11-30T08:00:01.000Z", "2025-11-30T08:00:00.007Z"};
	static const int64_t times[] = {1764489600123, 1764489600999, 1764489601000,
					1764489600007};

	for (int i = 0; i < 4; i++) {
		now.unix_ms = times[i];
		(void)feed_emit(feed, now, &context, SLICE("note"), SLICE_EMPTY,
				SLICE("{}"));
		assert_slice_eq(sent()->timestamp, stamps[i]);
	}
}
END_TEST

/* What the frame says from "kind" on. */
static struct slice sent_tail(void)
{
	struct slice whole_text;

	(void)sent();
	whole_text = buf_slice(&frame);
	return slice_sub(whole_text, slice_find_slice(whole_text, SLICE(",\"kind\":")),
			 whole_text.len);
}

/* A header is made of parts that were written before where nothing in them has changed:
 * what came before never shows. */
START_TEST(header_says_what_holds_now_whatever_came_before)
{
	static const struct slice ids[] = {{NULL, 0},
					   SLICE_INIT(""),
					   SLICE_INIT("a"),
					   SLICE_INIT("b"),
					   SLICE_INIT("a\"")};
	static const struct slice kinds[] = {SLICE_INIT("note"), SLICE_INIT("x-a")};
	struct uuid uuids[2] = {channel, channel};
	struct buf fresh;

	uuids[1].text[35] ^= 1;
	buf_init(&fresh, 4096);
	for (unsigned i = 0; i < 2000; i++) {
		const unsigned roll = i * 2654435761u >> 8;
		struct feed *other = feed_create(queue);
		const struct slice kind = kinds[roll % 2];

		/* Two in a row differ in one thing, or in none. */
		switch (roll / 2 % 6) {
		case 0:
			context.channel = &uuids[roll / 16 % 2];
			break;
		case 1:
			context.session = ids[roll / 16 % 5];
			break;
		case 2:
			context.turn = ids[roll / 16 % 5];
			break;
		case 3:
			context.slot = (int)(roll / 16 % 3) - 1;
			break;
		case 4:
			context.turn_started_ms = roll / 16 % 2 ? 0 : 1764489600000;
			break;
		default:
			break;
		}
		(void)feed_emit(other, now, &context, kind, SLICE_EMPTY, SLICE("{}"));
		buf_clear(&fresh);
		(void)buf_append(&fresh, sent_tail());
		(void)feed_emit(feed, now, &context, kind, SLICE_EMPTY, SLICE("{}"));
		ck_assert(slice_eq(sent_tail(), buf_slice(&fresh)));
		feed_destroy(other);
	}
	buf_finish(&fresh);
}
END_TEST

START_TEST(ids_are_escaped)
{
	context.session = SLICE("a\"b\n");
	(void)feed_emit(feed, now, &context, SLICE("note"), SLICE_EMPTY, SLICE("{}"));
	assert_slice_eq(sent()->session_id, "a\\\"b\\n");
}
END_TEST

START_TEST(payload_is_the_line_byte_for_byte)
{
	(void)feed_text(
		FEED_WRITE,
		SLICE(" {\"id\" : 12345678901234567890,\t\"method\":\"\\u0061\"} \r"));
	assert_slice_eq(sent()->payload,
			"{\"id\" : 12345678901234567890,\t\"method\":\"\\u0061\"}");
	assert_slice_eq(read.events[0].kind, "acp_write");
	ck_assert(!read.events[0].redacted && !read.events[0].repaired);
}
END_TEST

START_TEST(blank_line_is_no_event)
{
	ck_assert_uint_eq(feed_text(FEED_READ, SLICE(" \r")), 0);
	ck_assert(queue_is_empty(queue));
	ck_assert_uint_eq(queue_ledger(queue)->ingested, 0);
}
END_TEST

START_TEST(secrets_are_hidden_and_marked)
{
	(void)feed_text(FEED_WRITE,
			SLICE("{\"id\":1,\"method\":\"session/new\",\"params\":{"
			      "\"mcpServers\":[{\"env\":[{\"name\":\"T\","
			      "\"value\":\"s3cr3t\"}]}]}}"));
	ck_assert(sent()->redacted);
	ck_assert_uint_eq(slice_find_slice(buf_slice(&frame), SLICE("s3cr3t")),
			  frame.len);
}
END_TEST

START_TEST(lone_surrogate_and_bad_utf8_are_repaired_and_marked)
{
	(void)feed_text(FEED_READ, SLICE("{\"a\":\"x\\ud83d\",\"b\":\"\xff\"}"));
	ck_assert(sent()->repaired);
	assert_slice_eq(read.events[0].payload, "{\"a\":\"x\\ufffd\",\"b\":\"\uFFFD\"}");
}
END_TEST

START_TEST(text_that_is_no_json_object_is_a_parse_error)
{
	(void)feed_text(FEED_READ, SLICE("npm \"WARN\""));
	assert_slice_eq(sent()->kind, "acp_parse_error");
	ck_assert(slice_starts(
		read.events[0].payload,
		SLICE("{\"direction\":\"read\",\"line\":\"npm \\\"WARN\\\"\","
		      "\"bytes\":10,\"error\":\"")));
	(void)feed_text(FEED_WRITE, SLICE("[1]"));
	ck_assert(slice_starts(
		sent()->payload,
		SLICE("{\"direction\":\"write\",\"line\":\"[1]\",\"bytes\":3,")));
}
END_TEST

START_TEST(number_that_overflows_a_double_is_a_parse_error)
{
	(void)feed_text(FEED_READ, SLICE("{\"a\":1e400}"));
	assert_slice_eq(sent()->kind, "acp_parse_error");
}
END_TEST

START_TEST(parse_error_shows_the_first_8_kib_as_valid_text)
{
	for (int i = 0; i < 8190; i++)
		(void)buf_lit(&text, "x");
	(void)buf_lit(&text, "\xff€ and more");
	(void)feed_text(FEED_READ, buf_slice(&text));
	ck_assert(slice_find_slice(sent()->payload,
				   SLICE("xx\uFFFD\uFFFD\",\"bytes\":8203")) <
		  read.events[0].payload.len);
}
END_TEST

START_TEST(parse_error_shows_nothing_from_where_secrets_may_be)
{
	(void)feed_text(FEED_WRITE,
			SLICE("{\"a\":1e999,\"mcpServers\":[{\"env\":[{\"value\":"
			      "\"s3cr3t\"}]}]}"));
	ck_assert(sent()->redacted);
	ck_assert_uint_eq(slice_find_slice(buf_slice(&frame), SLICE("s3cr3t")),
			  frame.len);
}
END_TEST

START_TEST(line_over_the_mirrors_cap_is_a_parse_error)
{
	struct acp_line line;

	acp_line_scan(SLICE("{\"a\":1}"), &line);
	(void)feed_line(feed, now, &context, FEED_READ, &line, (8 << 20) + 1, SLICE_EMPTY,
			NULL);
	assert_slice_eq(sent()->kind, "acp_parse_error");
	ck_assert(slice_ends(read.events[0].payload,
			     SLICE("\"bytes\":8388609,\"error\":\"line too long\"}")));
}
END_TEST

/* @payload_bytes of {"a":"xx…"}. */
static void feed_sized(size_t payload_bytes)
{
	buf_clear(&text);
	(void)buf_lit(&text, "{\"a\":\"");
	while (text.len < payload_bytes - 2)
		(void)buf_lit(&text, "x");
	(void)buf_lit(&text, "\"}");
	(void)feed_text(FEED_READ, buf_slice(&text));
}

START_TEST(event_of_exactly_a_frame_is_sent_whole)
{
	size_t overhead;

	feed_sized(100);
	(void)sent();
	overhead = frame.len - 100;
	feed_sized(FRAME_PACK_MAX - overhead);
	ck_assert_uint_eq(sent()->trimmed, 0);
	ck_assert_uint_eq(frame.len, FRAME_PACK_MAX);
	ck_assert_uint_eq(whole.len, 0);
	feed_sized(FRAME_PACK_MAX - overhead + 1);
	ck_assert_uint_gt(sent()->trimmed, 0);
	ck_assert_uint_eq(whole.len, FRAME_PACK_MAX + 1);
}
END_TEST

START_TEST(trimmed_event_leaves_its_whole_text_behind)
{
	struct observer_event event;

	feed_sized(100000);
	ck_assert_uint_eq(sent()->trimmed, 100000 - 8 - 6000);
	ck_assert(observer_event_parse(buf_slice(&whole), &event, NULL));
	ck_assert_uint_eq(event.payload.len, 100000);
	ck_assert_uint_eq(event.seq, 1);
	ck_assert_uint_eq(event.trimmed, 0);
}
END_TEST

START_TEST(payload_that_cannot_be_trimmed_becomes_a_stub)
{
	buf_clear(&text);
	(void)buf_lit(&text, "{\"a\":[0");
	while (text.len < 100000)
		(void)buf_lit(&text, ",1");
	(void)buf_lit(&text, "]}");
	(void)feed_text(FEED_READ, buf_slice(&text));
	ck_assert_uint_eq(sent()->trimmed, text.len);
	ck_assert(slice_starts(read.events[0].payload,
			       SLICE("{\"elided\":\"acp_read payload too large\"")));
}
END_TEST

/* A request whose text nests @depth levels deep in all. */
static void feed_nested(unsigned depth)
{
	buf_clear(&text);
	(void)buf_lit(&text, "{\"method\":\"_x\",\"params\":");
	for (unsigned i = 1; i < depth; i++)
		(void)buf_lit(&text, "[");
	for (unsigned i = 1; i < depth; i++)
		(void)buf_lit(&text, "]");
	(void)buf_lit(&text, "}");
	(void)feed_text(FEED_READ, buf_slice(&text));
}

START_TEST(line_of_any_depth_leaves_its_batch_readable)
{
	struct queue_frame info;

	for (unsigned depth = 1; depth <= JSON_DEPTH_MAX + 2; depth++)
		feed_nested(depth);
	ck_assert(queue_pack(queue, FRAME_PACK_MAX, &frame, &info));
	ck_assert(frame_parse(buf_slice(&frame), &arena, &read, NULL));
	ck_assert_uint_eq(read.event_count, JSON_DEPTH_MAX + 2);
	assert_slice_eq(read.events[ACP_DEPTH_MAX - 1].kind, "acp_read");
	assert_slice_eq(read.events[ACP_DEPTH_MAX].kind, "acp_parse_error");
}
END_TEST

START_TEST(chunks_are_joined)
{
	chunk("a\\n");
	now.monotonic_ms = 1300;
	chunk("b");
	chunk("😀");
	ck_assert_uint_eq(sent()->merged, 3);
	ck_assert_uint_eq(read.events[0].seq, 3);
	ck_assert_int_eq(read.events[0].monotonic_ms, 1300);
	ck_assert(slice_ends(read.events[0].payload, SLICE("\"text\":\"a\\nb😀\"}}}}")));
}
END_TEST

START_TEST(repaired_chunk_does_not_join_one_that_was_whole)
{
	struct queue_frame info;

	chunk("a");
	chunk("b\\ud83d");
	ck_assert(queue_pack(queue, FRAME_PACK_MAX, &frame, &info));
	ck_assert(frame_parse(buf_slice(&frame), &arena, &read, NULL));
	ck_assert_uint_eq(read.event_count, 2);
	ck_assert(!read.events[0].repaired);
	ck_assert(read.events[1].repaired);
}
END_TEST

START_TEST(kinds_that_end_a_turn_or_ask_are_urgent)
{
	static const char *const urgent[] = {"turn_started", "turn_completed",
					     "turn_error",   "turn_retrying",
					     "agent_panic",  "permission_terminal"};

	for (size_t i = 0; i < sizeof(urgent) / sizeof(urgent[0]); i++) {
		(void)feed_emit(feed, now, &context, slice_of(urgent[i]), SLICE_EMPTY,
				SLICE("{}"));
		ck_assert_msg(queue_is_urgent(queue), "%s", urgent[i]);
		(void)sent();
	}
	(void)feed_emit(feed, now, &context, SLICE("control_result"), SLICE_EMPTY,
			SLICE("{\"type\":\"prompt\",\"status\":\"queued\"}"));
	ck_assert(queue_is_urgent(queue));
}
END_TEST

START_TEST(other_kinds_are_not_urgent)
{
	(void)feed_emit(feed, now, &context, SLICE("turn_liveness"), SLICE_EMPTY,
			SLICE("{}"));
	(void)feed_emit(feed, now, &context, SLICE("control_result"), SLICE_EMPTY,
			SLICE("{\"type\":\"prompt\"}"));
	(void)feed_text(FEED_WRITE,
			SLICE("{\"id\":1,\"method\":\"session/request_permission\","
			      "\"params\":{}}"));
	ck_assert(!queue_is_urgent(queue));
	(void)feed_text(FEED_READ,
			SLICE("{\"id\":1,\"method\":\"session/request_permission\","
			      "\"params\":{}}"));
	ck_assert(queue_is_urgent(queue));
}
END_TEST

START_TEST(event_written_when_it_leaves_counts_as_in_flight)
{
	struct feed_context bare = {.slot = -1};
	struct pack_item item;

	ck_assert_uint_eq(feed_write(feed, now, &bare, SLICE("feed_state"), SLICE("{}"),
				     &frame, &item),
			  1);
	ck_assert(slice_eq(item.text, buf_slice(&frame)));
	ck_assert_uint_eq(item.kind_len, strlen("\"feed_state\""));
	assert_slice_eq(slice_sub(item.text, item.kind_at, item.kind_at + item.kind_len),
			"\"feed_state\"");
	ck_assert(slice_ends(slice_sub(item.text, 0, item.header_len),
			     SLICE("\"turnId\":null")));
	ck_assert_uint_eq(queue_ledger(queue)->ingested, 1);
	ck_assert_uint_eq(queue_ledger(queue)->in_flight, 1);
}
END_TEST

static Suite *feed_suite(void)
{
	Suite *suite = suite_create("feed");
	TCase *tcase = tcase_create("feed");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, event_has_the_key_order_of_the_wire);
	tcase_add_test(tcase, what_is_unknown_is_null_and_started_at_is_left_out);
	tcase_add_test(tcase, timestamp_follows_the_clock_within_and_across_seconds);
	tcase_add_test(tcase, ids_are_escaped);
	tcase_add_test(tcase, header_says_what_holds_now_whatever_came_before);
	tcase_add_test(tcase, payload_is_the_line_byte_for_byte);
	tcase_add_test(tcase, blank_line_is_no_event);
	tcase_add_test(tcase, secrets_are_hidden_and_marked);
	tcase_add_test(tcase, lone_surrogate_and_bad_utf8_are_repaired_and_marked);
	tcase_add_test(tcase, text_that_is_no_json_object_is_a_parse_error);
	tcase_add_test(tcase, number_that_overflows_a_double_is_a_parse_error);
	tcase_add_test(tcase, parse_error_shows_the_first_8_kib_as_valid_text);
	tcase_add_test(tcase, parse_error_shows_nothing_from_where_secrets_may_be);
	tcase_add_test(tcase, line_over_the_mirrors_cap_is_a_parse_error);
	tcase_add_test(tcase, event_of_exactly_a_frame_is_sent_whole);
	tcase_add_test(tcase, trimmed_event_leaves_its_whole_text_behind);
	tcase_add_test(tcase, payload_that_cannot_be_trimmed_becomes_a_stub);
	tcase_add_test(tcase, line_of_any_depth_leaves_its_batch_readable);
	tcase_add_test(tcase, chunks_are_joined);
	tcase_add_test(tcase, repaired_chunk_does_not_join_one_that_was_whole);
	tcase_add_test(tcase, kinds_that_end_a_turn_or_ask_are_urgent);
	tcase_add_test(tcase, other_kinds_are_not_urgent);
	tcase_add_test(tcase, event_written_when_it_leaves_counts_as_in_flight);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return test_run(feed_suite());
}
