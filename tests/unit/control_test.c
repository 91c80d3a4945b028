/* What an owner asks of a harness. Types and members: NIP-AO and design §4. */
#include "tests/unit/support/support.h"

#include <string.h>

#include "wire/base/arena.h"
#include "wire/frame/control.h"

static struct arena arena;

static void setup(void)
{
	arena_init(&arena, 4096);
}

static void teardown(void)
{
	arena_finish(&arena);
}

/* Every type, as control_write() orders the members. */
static const struct slice round_trips[] = {
	SLICE_INIT("{\"type\":\"cancel_turn\",\"requestId\":\"r1\","
		   "\"epoch\":\"672f00aa01234567\",\"expires\":1800000000,"
		   "\"channelId\":\"c\"}"),
	SLICE_INIT("{\"type\":\"cancel_turn\",\"channelId\":\"c\"}"),
	SLICE_INIT(
		"{\"type\":\"switch_model\",\"channelId\":\"c\",\"modelId\":\"m\\\"x\"}"),
	SLICE_INIT("{\"type\":\"permission_decision\",\"requestId\":\"r\","
		   "\"channelId\":\"c\",\"requestNonce\":\"n\",\"optionId\":\"o\"}"),
	SLICE_INIT("{\"type\":\"prompt\",\"channelId\":\"c\","
		   "\"content\":[{\"type\":\"text\", \"text\":\"h\\u00e9\"},{}]}"),
	SLICE_INIT("{\"type\":\"release_queue\",\"channelId\":\"c\"}"),
	SLICE_INIT("{\"type\":\"set_mode\",\"channelId\":\"c\",\"modeId\":\"plan\"}"),
	SLICE_INIT(
		"{\"type\":\"feed_sync\",\"requestId\":\"r\",\"observer\":\"01abcdef\","
		"\"want\":[]}"),
	SLICE_INIT("{\"type\":\"feed_sync\",\"want\":[{\"epoch\":\"672f00aa01234567\","
		   "\"frames\":[[1,2],[9,9007199254740991]]},"
		   "{\"epoch\":\"672f00aa01234568\",\"frames\":[[3,3]]}]}"),
	SLICE_INIT("{\"type\":\"fetch_body\",\"epoch\":\"672f00aa01234567\",\"seq\":42}"),
	SLICE_INIT("{\"type\":\"retry_turn\",\"requestId\":\"r\"}"),
};

START_TEST(a_control_is_written_as_it_was_read)
{
	struct control control;
	struct buf out;
	struct err err;

	buf_init(&out, 4096);
	ck_assert_msg(control_parse(round_trips[_i], &arena, &control, &err), "%s",
		      err.text);
	ck_assert(control_write(&out, &control));
	assert_slice_eq(buf_slice(&out), round_trips[_i].ptr);
	buf_finish(&out);
}
END_TEST

START_TEST(every_type_has_its_name)
{
	for (int i = 0; i < CONTROL_UNKNOWN; i++) {
		struct control control = {.type = (enum control_type)i};
		struct control read;
		struct buf out;

		buf_init(&out, 4096);
		ck_assert(control_write(&out, &control));
		(void)control_parse(buf_slice(&out), &arena, &read, NULL);
		ck_assert_int_eq(read.type, control.type);
		buf_finish(&out);
	}
	assert_slice_eq(control_type_name(CONTROL_UNKNOWN), "unknown");
}
END_TEST

START_TEST(members_may_come_in_any_order_with_others_between)
{
	struct control control;

	ck_assert(control_parse(SLICE("{\"channelId\":\"c\",\"x\":[{}],\"content\":[{}],"
				      "\"requestId\":null,\"type\":\"pr\\u006fmpt\"}"),
				&arena, &control, NULL));
	ck_assert_int_eq(control.type, CONTROL_PROMPT);
	ck_assert_ptr_null(control.request_id.ptr);
	ck_assert(!control.has_epoch);
	assert_slice_eq(control.content, "[{}]");
}
END_TEST

START_TEST(wanted_ranges_come_out_flat_with_their_epochs)
{
	struct control control;

	ck_assert(control_parse(round_trips[8], &arena, &control, NULL));
	ck_assert_uint_eq(control.want_count, 3);
	ck_assert_str_eq(control.wants[1].epoch, "672f00aa01234567");
	ck_assert_uint_eq(control.wants[1].range.last, 9007199254740991);
	ck_assert_str_eq(control.wants[2].epoch, "672f00aa01234568");
	ck_assert_uint_eq(control.wants[2].range.first, 3);
	ck_assert_str_eq(control.observer, "");
}
END_TEST

START_TEST(an_unknown_type_is_read_so_that_it_can_be_answered)
{
	struct control control;

	ck_assert(control_parse(SLICE("{\"type\":\"guided_handover\",\"requestId\":\"r\","
				      "\"channelId\":\"c\"}"),
				&arena, &control, NULL));
	ck_assert_int_eq(control.type, CONTROL_UNKNOWN);
	assert_slice_eq(control.type_name, "guided_handover");
	assert_slice_eq(control.request_id, "r");
}
END_TEST

#define WANT(inner) "{\"type\":\"feed_sync\",\"want\":" inner "}"
#define EPOCH "\"epoch\":\"672f00aa01234567\""

static const struct slice malformed[] = {
	SLICE_INIT(""),
	SLICE_INIT("[]"),
	SLICE_INIT("{}"),
	SLICE_INIT("{\"type\":7}"),
	SLICE_INIT("{\"type\":\"\"}"),
	SLICE_INIT("{\"type\":\"cancel_turn\"}"),
	SLICE_INIT("{\"type\":\"cancel_turn\",\"channelId\":\"c\"} x"),
	SLICE_INIT("{\"type\":\"cancel_turn\",\"channelId\":\"c\",\"channelId\":\"d\"}"),
	SLICE_INIT("{\"type\":\"cancel_turn\",\"channelId\":{}}"),
	SLICE_INIT("{\"type\":\"cancel_turn\",\"channelId\":\"\\ud800\"}"),
	SLICE_INIT("{\"type\":\"switch_model\",\"channelId\":\"c\"}"),
	SLICE_INIT("{\"type\":\"permission_decision\",\"channelId\":\"c\",\"optionId\":"
		   "\"o\"}"),
	SLICE_INIT("{\"type\":\"permission_decision\",\"channelId\":\"c\","
		   "\"requestNonce\":\"n\"}"),
	SLICE_INIT("{\"type\":\"prompt\",\"channelId\":\"c\",\"content\":[]}"),
	SLICE_INIT("{\"type\":\"prompt\",\"channelId\":\"c\",\"content\":[\"x\"]}"),
	SLICE_INIT("{\"type\":\"prompt\",\"channelId\":\"c\",\"content\":\"x\"}"),
	SLICE_INIT("{\"type\":\"release_queue\"}"),
	SLICE_INIT("{\"type\":\"set_mode\",\"channelId\":\"c\",\"modeId\":\"\"}"),
	SLICE_INIT("{\"type\":\"fetch_body\"," EPOCH "}"),
	SLICE_INIT("{\"type\":\"fetch_body\"," EPOCH ",\"seq\":0}"),
	SLICE_INIT("{\"type\":\"fetch_body\"," EPOCH ",\"seq\":1e3}"),
	SLICE_INIT("{\"type\":\"fetch_body\",\"epoch\":\"672f00aa0123456g\",\"seq\":1}"),
	SLICE_INIT("{\"type\":\"feed_sync\",\"observer\":\"xyz\"}"),
	SLICE_INIT("{\"type\":\"feed_sync\",\"expires\":\"soon\"}"),
	SLICE_INIT("{\"type\":\"feed_sync\",\"expires\":0}"),
	SLICE_INIT("{\"type\":\"feed_sync\",\"epoch\":\"\"}"),
	SLICE_INIT(WANT("{}")),
	SLICE_INIT(WANT("[7]")),
	SLICE_INIT(WANT("[{" EPOCH "}]")),
	SLICE_INIT(WANT("[{\"frames\":[[1,2]]}]")),
	SLICE_INIT(WANT("[{" EPOCH ",\"frames\":[1]}]")),
	SLICE_INIT(WANT("[{" EPOCH ",\"frames\":{}}]")),
	SLICE_INIT(WANT("[{" EPOCH ",\"frames\":[[1]]}]")),
	SLICE_INIT(WANT("[{" EPOCH ",\"frames\":[[1,2,3]]}]")),
	SLICE_INIT(WANT("[{" EPOCH ",\"frames\":[[2,1]]}]")),
	SLICE_INIT(WANT("[{" EPOCH ",\"frames\":[[0,1]]}]")),
	SLICE_INIT(WANT("[{" EPOCH ",\"frames\":[[1,9007199254740992]]}]")),
	SLICE_INIT(WANT("[{" EPOCH ",\"frames\":[[1,\"2\"]]}]")),
};

START_TEST(a_control_that_lacks_what_it_needs_is_malformed)
{
	struct control control;
	struct err err = {ERR_NONE, ""};

	ck_assert_msg(!control_parse(malformed[_i], &arena, &control, &err), "%.*s",
		      SLICE_ARG(malformed[_i]));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert(err.text[0] != '\0');
}
END_TEST

START_TEST(a_malformed_control_still_says_whom_to_answer)
{
	struct control control;

	ck_assert(!control_parse(SLICE("{\"seq\":-1,\"type\":\"prompt\",\"content\":7,"
				       "\"requestId\":\"r\",\"channelId\":\"c\"}"),
				 &arena, &control, NULL));
	ck_assert_int_eq(control.type, CONTROL_PROMPT);
	assert_slice_eq(control.type_name, "prompt");
	assert_slice_eq(control.request_id, "r");
	assert_slice_eq(control.channel_id, "c");
}
END_TEST

START_TEST(text_that_breaks_off_says_what_could_be_read_before)
{
	struct control control;

	ck_assert(!control_parse(SLICE("{\"type\":\"prompt\",\"requestId\":\"r\",\"cont"),
				 &arena, &control, NULL));
	assert_slice_eq(control.request_id, "r");
}
END_TEST

/* They are remembered for an epoch, 65,536 of them: their size must have an end. */
START_TEST(an_overlong_request_id_or_nonce_is_malformed)
{
	static const char *const names[] = {"requestId", "requestNonce", "channelId",
					    "type"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct control control;
		struct buf text;
		struct err err;

		buf_init(&text, 1024);
		buf_printf(&text,
			   "{\"type\":\"cancel_turn\",\"channelId\":\"c\",\"%s\":\"",
			   names[i]);
		for (int j = 0; j < CONTROL_ID_MAX + 1; j++)
			buf_append_byte(&text, 'x');
		ck_assert(buf_lit(&text, "\"}"));
		ck_assert(!control_parse(buf_slice(&text), &arena, &control, &err));
		ck_assert_ptr_null(control.request_id.ptr);
		buf_finish(&text);
	}
}
END_TEST

/* Writes a feed_sync that wants @count ranges. */
static void write_sync(struct buf *out, size_t count)
{
	struct control control = {.type = CONTROL_FEED_SYNC, .want_count = count};

	control.wants = arena_array(&arena, count, sizeof(*control.wants));
	for (size_t i = 0; i < count; i++) {
		memcpy(control.wants[i].epoch, "672f00aa01234567", 17);
		control.wants[i].range = (struct frame_range){2 * i + 1, 2 * i + 1};
	}
	ck_assert(control_write(out, &control));
}

START_TEST(sixty_four_ranges_may_be_wanted_and_no_more)
{
	struct control control;
	struct err err;
	struct buf text;

	buf_init(&text, 65536);
	write_sync(&text, WANT_RANGES_MAX);
	ck_assert_msg(control_parse(buf_slice(&text), &arena, &control, &err), "%s",
		      err.text);
	ck_assert_uint_eq(control.want_count, WANT_RANGES_MAX);
	ck_assert_uint_eq(control.wants[63].range.first, 127);
	buf_clear(&text);
	write_sync(&text, WANT_RANGES_MAX + 1);
	ck_assert(!control_parse(buf_slice(&text), &arena, &control, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	buf_finish(&text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("control");
	TCase *tcase = tcase_create("control");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, a_control_is_written_as_it_was_read, 0,
			    sizeof(round_trips) / sizeof(round_trips[0]));
	tcase_add_test(tcase, every_type_has_its_name);
	tcase_add_test(tcase, members_may_come_in_any_order_with_others_between);
	tcase_add_test(tcase, wanted_ranges_come_out_flat_with_their_epochs);
	tcase_add_test(tcase, an_unknown_type_is_read_so_that_it_can_be_answered);
	tcase_add_loop_test(tcase, a_control_that_lacks_what_it_needs_is_malformed, 0,
			    sizeof(malformed) / sizeof(malformed[0]));
	tcase_add_test(tcase, a_malformed_control_still_says_whom_to_answer);
	tcase_add_test(tcase, text_that_breaks_off_says_what_could_be_read_before);
	tcase_add_test(tcase, an_overlong_request_id_or_nonce_is_malformed);
	tcase_add_test(tcase, sixty_four_ranges_may_be_wanted_and_no_more);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
