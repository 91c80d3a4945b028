/* Events, batches and frames. Shape: NIP-AO; suffix and marks: design §4. */
#include "tests/unit/support/support.h"

#include <stdio.h>
#include <string.h>

#include "wire/base/arena.h"
#include "wire/frame/observer_event.h"

#define CHANNEL "0b5a6f0e-6f0a-5c9b-9f8e-3d2c6a41e0d7"
/* An event as design §4 orders its members. */
#define EVENT(seq, kind) \
	"{\"seq\":" seq \
	",\"monotonicMs\":1200,\"timestamp\":\"2026-11-30T08:00:00.123Z\"," \
	"\"kind\":\"" kind "\",\"agentIndex\":0,\"channelId\":\"" CHANNEL \
	"\",\"sessionId\":\"s\\\"1\",\"turnId\":null,\"payload\":{\"a\":[1, 2]}}"
#define BATCH(events) \
	"{\"seq\":8,\"timestamp\":\"t\",\"kind\":\"batch\",\"agentIndex\":null," \
	"\"channelId\":\"" CHANNEL "\",\"sessionId\":null,\"turnId\":null," \
	"\"payload\":{\"events\":" events "}," \
	"\"epoch\":\"672f00aa01234567\",\"frame\":3}"

static struct arena arena;

static void setup(void)
{
	arena_init(&arena, 4096);
}

static void teardown(void)
{
	arena_finish(&arena);
}

START_TEST(an_event_is_read_as_slices_of_its_text)
{
	const struct slice text = SLICE(EVENT("42", "acp_read"));
	struct observer_event event;
	struct err err;

	ck_assert_msg(observer_event_parse(text, &event, &err), "%s", err.text);
	ck_assert_uint_eq(event.seq, 42);
	ck_assert_int_eq(event.monotonic_ms, 1200);
	assert_slice_eq(event.timestamp, "2026-11-30T08:00:00.123Z");
	assert_slice_eq(event.kind, "acp_read");
	ck_assert_int_eq(event.agent_index, 0);
	assert_slice_eq(event.channel_id, CHANNEL);
	assert_slice_eq(event.session_id, "s\\\"1");
	ck_assert_ptr_null(event.turn_id.ptr);
	ck_assert_ptr_null(event.started_at.ptr);
	ck_assert_ptr_null(event.authorization.ptr);
	assert_slice_eq(event.payload, "{\"a\":[1, 2]}");
	ck_assert_ptr_eq(event.text.ptr, text.ptr);
	ck_assert_uint_eq(event.text.len, text.len);
}
END_TEST

START_TEST(marks_and_authorization_are_read)
{
	struct observer_event event;
	struct err err;

	ck_assert_msg(
		observer_event_parse(
			SLICE("{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"acp_read\","
			      "\"startedAt\":\"u\",\"authorization\":{\"requestNonce\":"
			      "\"n\",\"actionable\":true},\"merged\":3,\"trimmed\":812,"
			      "\"redacted\":true,\"repaired\":true,\"payload\":null}"),
			&event, &err),
		"%s", err.text);
	assert_slice_eq(event.started_at, "u");
	assert_slice_eq(event.authorization,
			"{\"requestNonce\":\"n\",\"actionable\":true}");
	ck_assert_uint_eq(event.merged, 3);
	ck_assert_uint_eq(event.trimmed, 812);
	ck_assert(event.redacted && event.repaired);
	assert_slice_eq(event.payload, "null");
}
END_TEST

START_TEST(an_event_of_a_foreign_feed_has_no_monotonic_time)
{
	struct observer_event event;

	ck_assert(observer_event_parse(
		SLICE("{\"payload\":0,\"kind\":\"k\",\"timestamp\":\"t\","
		      "\"seq\":0,\"threadRoot\":[{}]}"),
		&event, NULL));
	ck_assert_int_eq(event.monotonic_ms, -1);
	ck_assert_int_eq(event.agent_index, -1);
	ck_assert(!event.redacted && !event.repaired);
	ck_assert_uint_eq(event.merged, 0);
}
END_TEST

static const struct slice broken_events[] = {
	SLICE_INIT(""),
	SLICE_INIT("[]"),
	SLICE_INIT("{}"),
	SLICE_INIT("{\"timestamp\":\"t\",\"kind\":\"k\",\"payload\":0}"),
	SLICE_INIT("{\"seq\":1,\"kind\":\"k\",\"payload\":0}"),
	SLICE_INIT("{\"seq\":1,\"timestamp\":\"t\",\"payload\":0}"),
	SLICE_INIT("{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"k\"}"),
	SLICE_INIT("{\"seq\":-1,\"timestamp\":\"t\",\"kind\":\"k\",\"payload\":0}"),
	SLICE_INIT("{\"seq\":1.0,\"timestamp\":\"t\",\"kind\":\"k\",\"payload\":0}"),
	SLICE_INIT("{\"seq\":9007199254740992,\"timestamp\":\"t\",\"kind\":\"k\","
		   "\"payload\":0}"),
	SLICE_INIT("{\"seq\":\"1\",\"timestamp\":\"t\",\"kind\":\"k\",\"payload\":0}"),
	SLICE_INIT(
		"{\"seq\":1,\"seq\":2,\"timestamp\":\"t\",\"kind\":\"k\",\"payload\":0}"),
	SLICE_INIT("{\"seq\":1,\"\\u0073eq\":2,\"timestamp\":\"t\",\"kind\":\"k\","
		   "\"payload\":0}"),
	SLICE_INIT("{\"seq\":1,\"timestamp\":null,\"kind\":\"k\",\"payload\":0}"),
	SLICE_INIT("{\"seq\":1,\"timestamp\":\"t\",\"kind\":7,\"payload\":0}"),
	SLICE_INIT("{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"k\",\"payload\":0,"
		   "\"channelId\":1}"),
	SLICE_INIT("{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"k\",\"payload\":0,"
		   "\"authorization\":true}"),
	SLICE_INIT("{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"k\",\"payload\":0,"
		   "\"redacted\":1}"),
	SLICE_INIT("{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"k\",\"payload\":0}x"),
	SLICE_INIT(
		"{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"k\",\"payload\":{\"a\":01}}"),
	SLICE_INIT("{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"\xff\",\"payload\":0}"),
	SLICE_INIT("{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"\\ud800\",\"payload\":0}"),
};

START_TEST(an_event_without_its_parts_is_refused_and_leaves_the_output_alone)
{
	struct observer_event event = {.seq = 77};
	struct err err = {ERR_NONE, ""};

	ck_assert_msg(!observer_event_parse(broken_events[_i], &event, &err), "%.*s",
		      SLICE_ARG(broken_events[_i]));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert_uint_eq(event.seq, 77);
}
END_TEST

START_TEST(an_event_is_written_as_it_was_read)
{
	static const struct slice texts[] = {
		SLICE_INIT(EVENT("42", "acp_read")),
		SLICE_INIT(
			"{\"seq\":9007199254740991,\"monotonicMs\":0,\"timestamp\":\"t\","
			"\"kind\":\"k\",\"agentIndex\":null,\"channelId\":null,"
			"\"sessionId\":null,\"turnId\":\"u\",\"startedAt\":\"v\","
			"\"authorization\":{},\"merged\":2,\"trimmed\":9,\"redacted\":"
			"true,"
			"\"repaired\":true,\"payload\":[ ]}"),
		SLICE_INIT(
			"{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"k\",\"agentIndex\":31,"
			"\"channelId\":null,\"sessionId\":null,\"turnId\":null,"
			"\"payload\":0}"),
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct observer_event event;
		struct buf out;

		buf_init(&out, 4096);
		ck_assert(observer_event_parse(texts[i], &event, NULL));
		ck_assert(observer_event_write(&out, &event));
		assert_slice_eq(buf_slice(&out), texts[i].ptr);
		buf_finish(&out);
	}
}
END_TEST

START_TEST(writing_into_too_little_room_fails)
{
	struct observer_event event;
	struct buf out;

	buf_init(&out, 100);
	ck_assert(observer_event_parse(SLICE(EVENT("1", "k")), &event, NULL));
	ck_assert(!observer_event_write(&out, &event));
	buf_finish(&out);
}
END_TEST

START_TEST(a_single_event_stands_alone_in_its_frame)
{
	struct frame frame;
	struct err err;

	ck_assert_msg(frame_parse(SLICE("{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"k\","
					"\"payload\":0,\"epoch\":\"672f00aa01234567\","
					"\"frame\":9007199254740991,\"replayed\":true}"),
				  &arena, &frame, &err),
		      "%s", err.text);
	ck_assert(frame.has_epoch && frame.replayed && !frame.batch);
	ck_assert_str_eq(frame.epoch, "672f00aa01234567");
	ck_assert_uint_eq(frame.number, 9007199254740991);
	ck_assert_uint_eq(frame.event_count, 1);
	assert_slice_eq(frame.events[0].kind, "k");
}
END_TEST

START_TEST(a_frame_without_epoch_is_of_a_foreign_feed)
{
	struct frame frame;

	ck_assert(frame_parse(SLICE(EVENT("1", "k")), &arena, &frame, NULL));
	ck_assert(!frame.has_epoch && !frame.replayed);
	ck_assert_uint_eq(frame.event_count, 1);
}
END_TEST

START_TEST(a_batch_comes_out_as_its_inner_events_in_order)
{
	struct frame frame;
	struct err err;

	ck_assert_msg(
		frame_parse(SLICE(BATCH("[" EVENT("7", "one") "," EVENT("8", "two") "]")),
			    &arena, &frame, &err),
		"%s", err.text);
	ck_assert(frame.batch && frame.has_epoch);
	ck_assert_uint_eq(frame.number, 3);
	ck_assert_uint_eq(frame.event_count, 2);
	assert_slice_eq(frame.events[0].kind, "one");
	assert_slice_eq(frame.events[1].kind, "two");
	ck_assert_uint_eq(frame.events[1].seq, 8);
	assert_slice_eq(frame.events[1].text, EVENT("8", "two"));
}
END_TEST

START_TEST(a_batch_whose_kind_comes_last_is_a_batch_too)
{
	struct frame frame;

	ck_assert(frame_parse(
		SLICE("{\"payload\":{\"x\":1,\"events\":[" EVENT(
			"7",
			"one") "]},"
			       "\"seq\":7,\"timestamp\":\"t\",\"kind\":\"ba\\u0074ch\"}"),
		&arena, &frame, NULL));
	ck_assert(frame.batch);
	ck_assert_uint_eq(frame.event_count, 1);
	assert_slice_eq(frame.events[0].kind, "one");
}
END_TEST

START_TEST(a_batch_of_more_events_than_the_first_guess_keeps_them_all)
{
	struct buf text;
	struct frame frame;

	buf_init(&text, 65535);
	buf_lit(&text, "{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"batch\",\"payload\":"
		       "{\"events\":[");
	for (int i = 0; i < 1000; i++)
		buf_printf(
			&text,
			"%s{\"seq\":%d,\"timestamp\":\"\",\"kind\":\"\",\"payload\":0}",
			i > 0 ? "," : "", i);
	ck_assert(buf_lit(&text, "]}}"));
	ck_assert(frame_parse(buf_slice(&text), &arena, &frame, NULL));
	ck_assert_uint_eq(frame.event_count, 1000);
	for (size_t i = 0; i < 1000; i++)
		ck_assert_uint_eq(frame.events[i].seq, i);
	buf_finish(&text);
}
END_TEST

static const struct slice empty_batches[] = {
	SLICE_INIT(BATCH("[]")),
	SLICE_INIT(BATCH("null")),
	SLICE_INIT(BATCH("{\"0\":1}")),
	SLICE_INIT("{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"batch\",\"payload\":{}}"),
	SLICE_INIT("{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"batch\",\"payload\":[1]}"),
	SLICE_INIT("{\"payload\":{\"events\":[]},\"seq\":1,\"timestamp\":\"t\","
		   "\"kind\":\"batch\"}"),
};

/* "A batch without an events array (or an empty one) must be shown as itself." */
START_TEST(a_batch_without_events_is_one_event_of_kind_batch)
{
	struct frame frame;

	ck_assert_msg(frame_parse(empty_batches[_i], &arena, &frame, NULL), "%.*s",
		      SLICE_ARG(empty_batches[_i]));
	ck_assert(!frame.batch);
	ck_assert_uint_eq(frame.event_count, 1);
	assert_slice_eq(frame.events[0].kind, "batch");
	ck_assert_ptr_nonnull(frame.events[0].payload.ptr);
}
END_TEST

START_TEST(a_batch_inside_a_batch_is_an_event_like_any_other)
{
	struct frame frame;

	ck_assert(frame_parse(
		SLICE(BATCH("[{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"batch\","
			    "\"payload\":{\"events\":[7]}}]")),
		&arena, &frame, NULL));
	ck_assert_uint_eq(frame.event_count, 1);
	assert_slice_eq(frame.events[0].payload, "{\"events\":[7]}");
}
END_TEST

START_TEST(epoch_and_frame_of_an_inner_event_mean_nothing)
{
	struct frame frame;

	ck_assert(
		frame_parse(SLICE(BATCH("[{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"k\","
					"\"payload\":0,\"epoch\":1,\"frame\":\"x\"}]")),
			    &arena, &frame, NULL));
	ck_assert_str_eq(frame.epoch, "672f00aa01234567");
	ck_assert_uint_eq(frame.number, 3);
}
END_TEST

#define SINGLE(suffix) \
	"{\"seq\":1,\"timestamp\":\"t\",\"kind\":\"k\",\"payload\":0" suffix "}"

static const struct slice broken_frames[] = {
	SLICE_INIT(""),
	SLICE_INIT("null"),
	SLICE_INIT(SINGLE(",\"epoch\":\"672f00aa01234567\"")),
	SLICE_INIT(SINGLE(",\"frame\":1")),
	SLICE_INIT(SINGLE(",\"epoch\":\"672f00aa0123456\",\"frame\":1")),
	SLICE_INIT(SINGLE(",\"epoch\":\"672F00AA01234567\",\"frame\":1")),
	SLICE_INIT(SINGLE(",\"epoch\":7,\"frame\":1")),
	SLICE_INIT(SINGLE(",\"epoch\":\"672f00aa01234567\",\"frame\":0")),
	SLICE_INIT(SINGLE(",\"epoch\":\"672f00aa01234567\",\"frame\":9007199254740992")),
	SLICE_INIT(SINGLE(",\"epoch\":\"672f00aa01234567\",\"frame\":1,\"replayed\":1")),
	SLICE_INIT(
		SINGLE(",\"epoch\":\"672f00aa01234567\",\"epoch\":\"672f00aa01234567\","
		       "\"frame\":1")),
	SLICE_INIT(BATCH("[7]")),
	SLICE_INIT(BATCH("[" EVENT("1", "k") ",{}]")),
	SLICE_INIT(BATCH("[" EVENT("1", "k") ",]")),
	SLICE_INIT(BATCH("[],\"events\":[]")),
};

/* "One broken inner event fails the frame, as it does at other peers." */
START_TEST(a_broken_frame_is_refused_and_leaves_the_output_alone)
{
	struct frame frame = {.number = 77};
	struct err err = {ERR_NONE, ""};

	ck_assert_msg(!frame_parse(broken_frames[_i], &arena, &frame, &err), "%.*s",
		      SLICE_ARG(broken_frames[_i]));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert_uint_eq(frame.number, 77);
}
END_TEST

START_TEST(a_frame_longer_than_nip44_allows_is_refused_unread)
{
	struct buf text;
	struct frame frame;
	struct err err;

	buf_init(&text, 70000);
	while (text.len < 65536)
		buf_append_byte(&text, ' ');
	ck_assert(!frame_parse(buf_slice(&text), &arena, &frame, &err));
	ck_assert_int_eq(err.code, ERR_TOO_LARGE);
	buf_finish(&text);
}
END_TEST

START_TEST(the_suffix_takes_the_place_of_the_closing_brace)
{
	struct buf text;

	buf_init(&text, 200);
	buf_lit(&text, "{\"seq\":1}");
	ck_assert(frame_write_suffix(&text, "672f00aa01234567", 12, false));
	assert_slice_eq(buf_slice(&text),
			"{\"seq\":1,\"epoch\":\"672f00aa01234567\",\"frame\":12}");
	buf_finish(&text);
}
END_TEST

START_TEST(the_longest_suffix_is_what_packing_reserves)
{
	struct buf text;

	buf_init(&text, 200);
	buf_lit(&text, "{}");
	ck_assert(frame_write_suffix(&text, "ffffffffffffffff", FRAME_NUMBER_MAX, true));
	ck_assert_uint_eq(text.len, 2 + FRAME_SUFFIX_MAX);
	buf_finish(&text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("observer_event");
	TCase *tcase = tcase_create("observer_event");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_event_is_read_as_slices_of_its_text);
	tcase_add_test(tcase, marks_and_authorization_are_read);
	tcase_add_test(tcase, an_event_of_a_foreign_feed_has_no_monotonic_time);
	tcase_add_loop_test(
		tcase, an_event_without_its_parts_is_refused_and_leaves_the_output_alone,
		0, sizeof(broken_events) / sizeof(broken_events[0]));
	tcase_add_test(tcase, an_event_is_written_as_it_was_read);
	tcase_add_test(tcase, writing_into_too_little_room_fails);
	tcase_add_test(tcase, a_single_event_stands_alone_in_its_frame);
	tcase_add_test(tcase, a_frame_without_epoch_is_of_a_foreign_feed);
	tcase_add_test(tcase, a_batch_comes_out_as_its_inner_events_in_order);
	tcase_add_test(tcase, a_batch_whose_kind_comes_last_is_a_batch_too);
	tcase_add_test(tcase, a_batch_of_more_events_than_the_first_guess_keeps_them_all);
	tcase_add_loop_test(tcase, a_batch_without_events_is_one_event_of_kind_batch, 0,
			    sizeof(empty_batches) / sizeof(empty_batches[0]));
	tcase_add_test(tcase, a_batch_inside_a_batch_is_an_event_like_any_other);
	tcase_add_test(tcase, epoch_and_frame_of_an_inner_event_mean_nothing);
	tcase_add_loop_test(tcase, a_broken_frame_is_refused_and_leaves_the_output_alone,
			    0, sizeof(broken_frames) / sizeof(broken_frames[0]));
	tcase_add_test(tcase, a_frame_longer_than_nip44_allows_is_refused_unread);
	tcase_add_test(tcase, the_suffix_takes_the_place_of_the_closing_brace);
	tcase_add_test(tcase, the_longest_suffix_is_what_packing_reserves);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
