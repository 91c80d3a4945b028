/* The clocks of a turn and of a crashing agent, and what a channel keeps. */
#include "agent/channel.h"
#include "agent/respawn.h"
#include "agent/turn_clock.h"

#include "agent/lookup.h"
#include "tests/unit/support/support.h"
#include "wire/nostr/json.h"

#define IDLE 900000
#define HARD 7200000

static struct turn_clock a_clock(void)
{
	struct turn_clock clock;

	turn_clock_start(&clock, IDLE, HARD, 1000);
	return clock;
}

START_TEST(liveness_is_due_every_ten_seconds)
{
	struct turn_clock clock = a_clock();

	ck_assert_int_eq(turn_clock_due(&clock, 1000 + 9999), TURN_NOTHING_DUE);
	ck_assert_int_eq(turn_clock_due(&clock, 1000 + 10000), TURN_LIVENESS);
	ck_assert_int_eq(turn_clock_next(&clock), 11000);
}
END_TEST

START_TEST(silence_ends_a_turn_and_any_frame_postpones_that)
{
	struct turn_clock clock = a_clock();

	ck_assert_int_eq(turn_clock_due(&clock, 1000 + IDLE), TURN_IDLE_OVER);
	clock.heard_ms = 5000;
	clock.liveness_ms = 1000 + IDLE;
	clock.silent = true;
	ck_assert_int_eq(turn_clock_due(&clock, 1000 + IDLE), TURN_NOTHING_DUE);
	ck_assert_int_eq(turn_clock_due(&clock, 5000 + IDLE), TURN_IDLE_OVER);
}
END_TEST

START_TEST(an_open_tool_or_permission_makes_silence_count_four_times_less)
{
	struct turn_clock clock = a_clock();

	clock.busy = true;
	clock.silent = true;
	clock.liveness_ms = INT64_MAX / 2;
	ck_assert_int_eq(turn_clock_due(&clock, 1000 + 4 * IDLE - 1), TURN_NOTHING_DUE);
	ck_assert_int_eq(turn_clock_due(&clock, 1000 + 4 * IDLE), TURN_IDLE_OVER);
}
END_TEST

START_TEST(no_chatter_postpones_the_hard_cap)
{
	struct turn_clock clock = a_clock();

	clock.heard_ms = 1000 + HARD;
	ck_assert_int_eq(turn_clock_due(&clock, 1000 + HARD), TURN_HARD_OVER);
	ck_assert_int_eq(turn_clock_left(&clock, 1000), HARD);
	ck_assert_int_eq(turn_clock_left(&clock, 5000 + HARD), 0);
}
END_TEST

START_TEST(a_cancelled_turn_gets_five_seconds_and_nothing_else_ends_it)
{
	struct turn_clock clock = a_clock();

	clock.cancelled_ms = 2 * HARD;
	clock.liveness_ms = 2 * HARD;
	ck_assert_int_eq(turn_clock_due(&clock, 2 * HARD + 4999), TURN_NOTHING_DUE);
	ck_assert_int_eq(turn_clock_due(&clock, 2 * HARD + 5000), TURN_CANCEL_OVER);
	ck_assert_int_eq(turn_clock_next(&clock), 2 * HARD + 5000);
}
END_TEST

START_TEST(a_minute_without_a_frame_is_silence_which_is_said_once)
{
	struct turn_clock clock = a_clock();

	clock.liveness_ms = INT64_MAX / 2;
	ck_assert_int_eq(turn_clock_due(&clock, 1000 + 59999), TURN_NOTHING_DUE);
	ck_assert_int_eq(turn_clock_next(&clock), 1000 + 60000);
	ck_assert_int_eq(turn_clock_due(&clock, 1000 + 60000), TURN_SILENT);
	clock.silent = true;
	ck_assert_int_eq(turn_clock_due(&clock, 1000 + 70000), TURN_NOTHING_DUE);
	ck_assert_int_eq(turn_clock_next(&clock), 1000 + IDLE);
}
END_TEST

START_TEST(a_tool_may_be_silent_four_times_as_long)
{
	struct turn_clock clock = a_clock();

	clock.liveness_ms = INT64_MAX / 2;
	clock.busy = true;
	ck_assert_int_eq(turn_clock_due(&clock, 1000 + 239999), TURN_NOTHING_DUE);
	ck_assert_int_eq(turn_clock_due(&clock, 1000 + 240000), TURN_SILENT);
}
END_TEST

START_TEST(who_waits_for_the_owner_or_is_cancelled_is_not_silent)
{
	struct turn_clock clock = a_clock();

	clock.liveness_ms = INT64_MAX / 2;
	clock.busy = clock.asks = true;
	ck_assert_int_eq(turn_clock_due(&clock, 1000 + 1000000), TURN_NOTHING_DUE);
	clock.busy = clock.asks = false;
	clock.cancelled_ms = 1000 + 59000;
	ck_assert_int_eq(turn_clock_due(&clock, 1000 + 60000), TURN_NOTHING_DUE);
}
END_TEST

START_TEST(where_silence_ends_a_turn_soon_it_is_said_halfway)
{
	struct turn_clock clock;

	turn_clock_start(&clock, 10000, HARD, 1000);
	clock.liveness_ms = INT64_MAX / 2;
	ck_assert_int_eq(turn_clock_due(&clock, 6000), TURN_SILENT);
	ck_assert_int_eq(turn_clock_due(&clock, 11000), TURN_IDLE_OVER);
}
END_TEST

START_TEST(after_a_sleep_silence_counts_from_now_and_the_hard_cap_does_not)
{
	struct turn_clock clock = a_clock();
	const int64_t woken = 1000 + IDLE + 5000;

	turn_clock_slept(&clock, woken);
	clock.liveness_ms = woken;
	ck_assert_int_eq(turn_clock_due(&clock, woken), TURN_NOTHING_DUE);
	ck_assert_int_eq(turn_clock_due(&clock, 1000 + HARD), TURN_HARD_OVER);
	clock.cancelled_ms = 1000;
	turn_clock_slept(&clock, woken);
	ck_assert_int_eq(turn_clock_due(&clock, woken + 4999), TURN_NOTHING_DUE);
	ck_assert_int_eq(turn_clock_due(&clock, woken + 5000), TURN_CANCEL_OVER);
}
END_TEST

START_TEST(a_crashed_agent_starts_again_after_one_second_doubling_to_thirty)
{
	static const int64_t want[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000};
	struct respawn respawn = {0};
	bool opened;

	/* 31 s apart: three of them never lie within 60 s, but each in the window of the
	 * last. */
	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		ck_assert_int_eq(respawn_crashed(&respawn, (int64_t)i * 31000, &opened),
				 want[i]);
		ck_assert(!opened);
	}
}
END_TEST

START_TEST(after_a_quiet_minute_the_delay_is_one_second_again)
{
	struct respawn respawn = {0};
	bool opened;

	(void)respawn_crashed(&respawn, 0, &opened);
	(void)respawn_crashed(&respawn, 1000, &opened);
	ck_assert_int_eq(respawn_crashed(&respawn, 61001 + 1000, &opened), 1000);
}
END_TEST

START_TEST(three_crashes_in_a_minute_open_the_circuit_for_five)
{
	struct respawn respawn = {0};
	bool opened;

	(void)respawn_crashed(&respawn, 0, &opened);
	(void)respawn_crashed(&respawn, 30000, &opened);
	ck_assert(!opened);
	ck_assert_int_eq(respawn_crashed(&respawn, 60000, &opened), 300000);
	ck_assert(opened);
}
END_TEST

START_TEST(one_crash_after_the_pause_opens_it_again_unless_it_recovered)
{
	struct respawn respawn = {0};
	bool opened;

	(void)respawn_failed(&respawn, 0);
	(void)respawn_crashed(&respawn, 300000, &opened);
	ck_assert(opened);
	ck_assert(respawn_recovered(&respawn));
	ck_assert(!respawn_recovered(&respawn));
	(void)respawn_crashed(&respawn, 700000, &opened);
	ck_assert(!opened);
}
END_TEST

#define SESSION \
	"{\"sessionId\":\"a\\u0062\",\"modes\":{\"currentModeId\":\"ask\"," \
	"\"availableModes\":[{\"id\":\"ask\"},{\"id\":\"code\"}]}," \
	"\"models\":{\"currentModelId\":\"m1\",\"availableModels\":[{\"modelId\":" \
	"\"m1\"}," \
	"{\"modelId\":\"m2\"}]},\"configOptions\":[{\"id\":\"mm\",\"category\":" \
	"\"model\"," \
	"\"type\":\"select\",\"options\":[{\"group\":\"g\",\"options\":[{\"value\":" \
	"\"big\"}]}]}]}"

static struct channel channel;

static void setup(void)
{
	static const struct uuid uuid = {"00000000-0000-5000-8000-000000000000"};

	channel_init(&channel, "main", &uuid);
}

static void teardown(void)
{
	channel_finish(&channel);
}

START_TEST(a_session_is_kept_with_what_its_agent_offers)
{
	struct buf out;

	ck_assert(channel_open_session(&channel, SLICE(SESSION)));
	assert_slice_eq(buf_slice(&channel.session), "ab");
	buf_init(&out, 4096);
	(void)buf_lit(&out, "{");
	channel_write_offers(&channel, &out, 4096);
	(void)buf_lit(&out, "}");
	ck_assert(json_check(buf_slice(&out), NULL, NULL));
	assert_slice_eq(lookup_string(lookup(buf_slice(&out), SLICE("modes")),
				      SLICE("currentModeId")),
			"ask");
	ck_assert(lookup(buf_slice(&out), SLICE("configOptions")).len > 0);
	buf_finish(&out);
}
END_TEST

START_TEST(offers_that_do_not_fit_are_left_out_whole)
{
	struct buf out;

	(void)channel_open_session(&channel, SLICE(SESSION));
	buf_init(&out, 4096);
	(void)buf_lit(&out, "{");
	channel_write_offers(&channel, &out, 100);
	(void)buf_lit(&out, "}");
	ck_assert(json_check(buf_slice(&out), NULL, NULL));
	ck_assert_uint_le(out.len, 101);
	buf_finish(&out);
}
END_TEST

static const char *const no_sessions[] = {"{}", "{\"sessionId\":7}",
					  "{\"sessionId\":\"\"}", "null"};

START_TEST(a_result_without_session_id_opens_none)
{
	ck_assert(!channel_open_session(&channel, slice_of(no_sessions[_i])));
	ck_assert_int_ne(channel.state, SESSION_OPEN);
}
END_TEST

START_TEST(a_model_is_asked_for_by_config_option_before_the_older_way)
{
	struct buf params;

	(void)channel_open_session(&channel, SLICE(SESSION));
	buf_init(&params, 4096);
	ck_assert_str_eq(channel_model_request(&channel, SLICE("big"), &params),
			 "session/set_config_option");
	assert_slice_eq(buf_slice(&params),
			"{\"sessionId\":\"ab\",\"configId\":\"mm\",\"value\":\"big\"}");
	buf_clear(&params);
	ck_assert_str_eq(channel_model_request(&channel, SLICE("m2"), &params),
			 "session/set_model");
	assert_slice_eq(buf_slice(&params), "{\"sessionId\":\"ab\",\"modelId\":\"m2\"}");
	buf_finish(&params);
}
END_TEST

START_TEST(what_is_not_offered_is_not_asked_for)
{
	struct buf params;

	(void)channel_open_session(&channel, SLICE(SESSION));
	buf_init(&params, 4096);
	ck_assert_ptr_null(channel_model_request(&channel, SLICE("huge"), &params));
	ck_assert_ptr_null(channel_mode_request(&channel, SLICE("yolo"), &params));
	ck_assert_uint_eq(params.len, 0);
	buf_finish(&params);
}
END_TEST

START_TEST(updates_change_mode_and_title)
{
	(void)channel_open_session(&channel, SLICE(SESSION));
	channel_take_update(&channel, SLICE("{\"sessionUpdate\":\"current_mode_update\","
					    "\"currentModeId\":\"code\"}"));
	assert_slice_eq(buf_slice(&channel.mode), "code");
	channel_take_update(&channel, SLICE("{\"sessionUpdate\":\"session_info_update\","
					    "\"title\":\"Router\"}"));
	assert_slice_eq(buf_slice(&channel.title), "Router");
	channel_take_update(&channel,
			    SLICE("{\"sessionUpdate\":\"session_info_update\"}"));
	assert_slice_eq(buf_slice(&channel.title), "Router");
	channel_take_update(&channel, SLICE("{\"sessionUpdate\":\"session_info_update\","
					    "\"title\":null}"));
	assert_slice_eq(buf_slice(&channel.title), "");
}
END_TEST

static const struct {
	const char *content;
	bool valid;
} contents[] = {
	{"[{\"type\":\"text\",\"text\":\"hi\"}]", true},
	{"[{\"type\":\"resource_link\",\"uri\":\"file:///a\",\"name\":\"a\"}]", true},
	{"[]", false},
	{"{}", false},
	{"[\"hi\"]", false},
	{"[{\"text\":\"hi\"}]", false},
	{"", false},
};

START_TEST(a_prompt_is_a_list_of_content_blocks)
{
	ck_assert_msg(prompt_content_valid(slice_of(contents[_i].content)) ==
			      contents[_i].valid,
		      "%s", contents[_i].content);
}
END_TEST

START_TEST(the_head_of_a_prompt_ends_between_characters)
{
	struct buf head;

	buf_init(&head, 64);
	prompt_head(SLICE("[{\"type\":\"image\"},{\"type\":\"text\",\"text\":"
			  "\"ab\xc3\xa9\"}]"),
		    3, &head);
	assert_slice_eq(buf_slice(&head), "ab");
	buf_finish(&head);
}
END_TEST

START_TEST(prompts_leave_in_the_order_they_came)
{
	struct prompt *a = prompt_create(SLICE("[1]"), SLICE_EMPTY, "owner", 0);
	struct prompt *b = prompt_create(SLICE("[2]"), SLICE_EMPTY, "owner", 0);
	struct prompt *again = prompt_create(SLICE("[0]"), SLICE_EMPTY, "owner", 0);

	channel_push(&channel, a);
	channel_push(&channel, b);
	channel_push_front(&channel, again);
	ck_assert_ptr_eq(channel_pop(&channel), again);
	ck_assert_ptr_eq(channel_pop(&channel), a);
	ck_assert_uint_eq(channel.prompt_count, 1);
	prompt_destroy(a);
	prompt_destroy(again);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("turns");
	TCase *tcase = tcase_create("clock");

	tcase_add_test(tcase, liveness_is_due_every_ten_seconds);
	tcase_add_test(tcase, silence_ends_a_turn_and_any_frame_postpones_that);
	tcase_add_test(tcase,
		       an_open_tool_or_permission_makes_silence_count_four_times_less);
	tcase_add_test(tcase, no_chatter_postpones_the_hard_cap);
	tcase_add_test(tcase, a_minute_without_a_frame_is_silence_which_is_said_once);
	tcase_add_test(tcase, a_tool_may_be_silent_four_times_as_long);
	tcase_add_test(tcase, who_waits_for_the_owner_or_is_cancelled_is_not_silent);
	tcase_add_test(tcase, where_silence_ends_a_turn_soon_it_is_said_halfway);
	tcase_add_test(tcase,
		       a_cancelled_turn_gets_five_seconds_and_nothing_else_ends_it);
	tcase_add_test(tcase,
		       after_a_sleep_silence_counts_from_now_and_the_hard_cap_does_not);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("respawn");
	tcase_add_test(tcase,
		       a_crashed_agent_starts_again_after_one_second_doubling_to_thirty);
	tcase_add_test(tcase, after_a_quiet_minute_the_delay_is_one_second_again);
	tcase_add_test(tcase, three_crashes_in_a_minute_open_the_circuit_for_five);
	tcase_add_test(tcase,
		       one_crash_after_the_pause_opens_it_again_unless_it_recovered);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("channel");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_session_is_kept_with_what_its_agent_offers);
	tcase_add_test(tcase, offers_that_do_not_fit_are_left_out_whole);
	tcase_add_loop_test(tcase, a_result_without_session_id_opens_none, 0,
			    sizeof(no_sessions) / sizeof(*no_sessions));
	tcase_add_test(tcase, a_model_is_asked_for_by_config_option_before_the_older_way);
	tcase_add_test(tcase, what_is_not_offered_is_not_asked_for);
	tcase_add_test(tcase, updates_change_mode_and_title);
	tcase_add_loop_test(tcase, a_prompt_is_a_list_of_content_blocks, 0,
			    sizeof(contents) / sizeof(*contents));
	tcase_add_test(tcase, the_head_of_a_prompt_ends_between_characters);
	tcase_add_test(tcase, prompts_leave_in_the_order_they_came);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
