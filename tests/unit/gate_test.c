#include "agent/gate.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/support/support.h"

/* Source: design §4, Controls: only in their epoch, unexpired, once, answered always. */

#define EPOCH "656af000deadbeef"
#define NOW 1700000100

static struct gate gate;
static uint8_t event_id[32];

static void setup(void)
{
	gate_init(&gate, CONTROL_LEVEL_FULL, EPOCH, NOW - 100);
	memset(event_id, 0, sizeof(event_id));
}

static void teardown(void)
{
	gate_finish(&gate);
}

static struct control a_control(enum control_type type, const char *request_id)
{
	struct control control = {.type = type, .has_epoch = true, .expires = NOW + 60};

	memcpy(control.epoch, EPOCH, sizeof(EPOCH));
	control.request_id = slice_of(request_id);
	return control;
}

/* Checks @control as if it came now, in an event of its own. */
static enum gate_verdict check_at(const struct control *control, int64_t now_s,
				  const char **status)
{
	struct gate_control in = {.control = control,
				  .event_id = event_id,
				  .created_at = now_s,
				  .now_s = now_s};
	struct slice again;

	*status = NULL;
	event_id[0]++;
	return gate_check(&gate, &in, status, &again);
}

static const char *refusal(const struct control *control)
{
	const char *status;

	ck_assert_int_eq(check_at(control, NOW, &status), GATE_ANSWER);
	return status;
}

START_TEST(a_control_of_this_epoch_runs)
{
	struct control control = a_control(CONTROL_PROMPT, "r1");
	const char *status;

	ck_assert_int_eq(check_at(&control, NOW, &status), GATE_RUN);
}
END_TEST

START_TEST(a_repeat_gets_the_first_answer_and_does_not_run)
{
	struct control control = a_control(CONTROL_PROMPT, "r1");
	struct gate_control in = {.control = &control,
				  .event_id = event_id,
				  .created_at = NOW,
				  .now_s = NOW};
	struct slice again = SLICE_EMPTY;
	const char *status;

	ck_assert_int_eq(gate_check(&gate, &in, &status, &again), GATE_RUN);
	gate_answered(&gate, gate_key(&control, event_id),
		      SLICE("{\"status\":\"started\"}"));
	event_id[5] = 9; /* signed anew */
	ck_assert_int_eq(gate_check(&gate, &in, &status, &again), GATE_REPEAT);
	assert_slice_eq(again, "{\"status\":\"started\"}");
}
END_TEST

START_TEST(a_repeat_before_there_is_an_answer_does_not_run_either)
{
	struct control control = a_control(CONTROL_SET_MODE, "r1");
	const char *status;

	ck_assert_int_eq(check_at(&control, NOW, &status), GATE_RUN);
	ck_assert_int_eq(check_at(&control, NOW, &status), GATE_DROP);
}
END_TEST

START_TEST(without_a_request_id_the_same_event_runs_once)
{
	struct control control = a_control(CONTROL_CANCEL_TURN, "");
	struct gate_control in = {.control = &control,
				  .event_id = event_id,
				  .created_at = NOW,
				  .now_s = NOW};
	struct slice again;
	const char *status;

	ck_assert_int_eq(gate_check(&gate, &in, &status, &again), GATE_RUN);
	gate_answered(&gate, gate_key(&control, event_id), SLICE("{}"));
	ck_assert_int_eq(gate_check(&gate, &in, &status, &again), GATE_REPEAT);
	event_id[0] = 1;
	ck_assert_int_eq(gate_check(&gate, &in, &status, &again), GATE_RUN);
}
END_TEST

START_TEST(a_control_for_another_epoch_is_refused)
{
	struct control control = a_control(CONTROL_PROMPT, "r1");

	control.epoch[0] = '7';
	ck_assert_str_eq(refusal(&control), "wrong_epoch");
}
END_TEST

START_TEST(an_expired_control_is_refused_after_thirty_seconds_of_tolerance)
{
	struct control control = a_control(CONTROL_PROMPT, "r1");
	const char *status;

	control.expires = NOW - CONTROL_TOLERANCE_S;
	ck_assert_int_eq(check_at(&control, NOW, &status), GATE_RUN);
	control.request_id = SLICE("r2");
	ck_assert_int_eq(check_at(&control, NOW + 1, &status), GATE_ANSWER);
	ck_assert_str_eq(status, "expired");
}
END_TEST

START_TEST(a_control_without_epoch_must_be_younger_than_this_start)
{
	struct control control = a_control(CONTROL_CANCEL_TURN, "");
	const char *status;

	control.has_epoch = false;
	control.expires = 0;
	ck_assert_int_eq(check_at(&control, NOW - 100, &status), GATE_RUN);
	ck_assert_int_eq(check_at(&control, NOW - 101, &status), GATE_ANSWER);
	ck_assert_str_eq(status, "expired");
}
END_TEST

START_TEST(a_clock_of_ours_that_is_off_refuses_no_foreign_control)
{
	struct control control = {.type = CONTROL_CANCEL_TURN};
	struct gate_control in = {.control = &control,
				  .event_id = event_id,
				  .created_at = NOW - 700,
				  .now_s = NOW - 700,
				  .clock_offset_s = -700};
	const char *status = NULL;
	struct slice again;

	ck_assert_int_eq(gate_check(&gate, &in, &status, &again), GATE_RUN);
	in.created_at = NOW - 801; /* the start was at NOW - 100, by our clock */
	event_id[0]++;
	ck_assert_int_eq(gate_check(&gate, &in, &status, &again), GATE_ANSWER);
	ck_assert_str_eq(status, "expired");
}
END_TEST

START_TEST(reads_need_no_epoch_and_run_again)
{
	struct control control = a_control(CONTROL_FEED_SYNC, "r1");
	const char *status;

	control.has_epoch = false;
	control.expires = 0;
	ck_assert_int_eq(check_at(&control, NOW, &status), GATE_RUN);
	ck_assert_int_eq(check_at(&control, NOW, &status), GATE_RUN);
}
END_TEST

static const struct {
	enum control_level level;
	enum control_type type;
	bool runs;
} levels[] = {
	{CONTROL_LEVEL_NONE, CONTROL_FEED_SYNC, true},
	{CONTROL_LEVEL_NONE, CONTROL_FETCH_BODY, true},
	{CONTROL_LEVEL_NONE, CONTROL_CANCEL_TURN, false},
	{CONTROL_LEVEL_NONE, CONTROL_PERMISSION_DECISION, false},
	{CONTROL_LEVEL_NONE, CONTROL_PROMPT, false},
	{CONTROL_LEVEL_APPROVE, CONTROL_CANCEL_TURN, true},
	{CONTROL_LEVEL_APPROVE, CONTROL_PERMISSION_DECISION, true},
	{CONTROL_LEVEL_APPROVE, CONTROL_PROMPT, false},
	{CONTROL_LEVEL_APPROVE, CONTROL_RELEASE_QUEUE, false},
	{CONTROL_LEVEL_APPROVE, CONTROL_SET_MODE, false},
	{CONTROL_LEVEL_APPROVE, CONTROL_SWITCH_MODEL, false},
	{CONTROL_LEVEL_FULL, CONTROL_SWITCH_MODEL, true},
	{CONTROL_LEVEL_FULL, CONTROL_PROMPT, true},
};

START_TEST(what_is_above_the_level_is_refused)
{
	struct control control = a_control(levels[_i].type, "r1");
	const char *status;

	gate.level = levels[_i].level;
	if (levels[_i].runs)
		ck_assert_int_eq(check_at(&control, NOW, &status), GATE_RUN);
	else
		ck_assert_str_eq(refusal(&control), "refused");
}
END_TEST

START_TEST(more_than_ten_a_second_are_rate_limited_and_not_remembered)
{
	struct control control;
	char request_id[16];
	const char *status;

	for (int i = 0; i < CONTROL_PER_S; i++) {
		(void)snprintf(request_id, sizeof(request_id), "r%d", i);
		control = a_control(CONTROL_PROMPT, request_id);
		ck_assert_int_eq(check_at(&control, NOW, &status), GATE_RUN);
	}
	control = a_control(CONTROL_PROMPT, "one more");
	ck_assert_int_eq(check_at(&control, NOW, &status), GATE_ANSWER);
	ck_assert_str_eq(status, "rate_limited");
	ck_assert_int_eq(check_at(&control, NOW + 1, &status), GATE_RUN);
}
END_TEST

START_TEST(a_flood_is_met_with_silence)
{
	struct control control = a_control(CONTROL_PROMPT, "r");
	const char *status;
	int answers = 0;

	for (int i = 0; i < 1000; i++)
		answers += check_at(&control, NOW, &status) == GATE_ANSWER;
	ck_assert_int_eq(answers, CONTROL_PER_S);
}
END_TEST

START_TEST(an_unknown_type_is_answered_only_when_it_asks)
{
	struct control control = a_control(CONTROL_UNKNOWN, "r1");
	const char *status;

	ck_assert_str_eq(refusal(&control), "unsupported");
	control.request_id = SLICE_EMPTY;
	ck_assert_int_eq(check_at(&control, NOW, &status), GATE_DROP);
}
END_TEST

START_TEST(the_oldest_answers_are_forgotten_first)
{
	const char *status;

	for (uint32_t i = 0; i <= CONTROL_REMEMBERED; i++) {
		char key[16];

		(void)snprintf(key, sizeof(key), "k%u", i);
		gate_answered(&gate, slice_of(key), SLICE("{}"));
	}
	ck_assert_uint_eq(gate.answers.count, CONTROL_REMEMBERED);
	struct control first = a_control(CONTROL_PROMPT, "k0");
	struct control second = a_control(CONTROL_PROMPT, "k1");

	ck_assert_int_eq(check_at(&second, NOW, &status), GATE_REPEAT);
	ck_assert_int_eq(check_at(&first, NOW, &status), GATE_RUN);
}
END_TEST

/* What an owner may still repeat is at most a minute and a half old. */
START_TEST(answers_stay_in_their_bound_and_an_older_repeat_is_expired)
{
	static char answer[1000];
	const struct slice payload = {answer, sizeof(answer)};
	const uint32_t kept = CONTROL_ANSWERS_MAX / sizeof(answer), count = 2 * kept;
	const char *status;
	char key[16];

	memset(answer, 'a', sizeof(answer));
	for (uint32_t i = 0; i < count; i++) {
		struct control control = a_control(CONTROL_PROMPT, key);

		(void)snprintf(key, sizeof(key), "k%u", i);
		control.request_id = slice_of(key);
		control.expires = NOW + 2 * count;
		ck_assert_int_eq(check_at(&control, NOW + i, &status), GATE_RUN);
		gate_answered(&gate, slice_of(key), payload);
		ck_assert_uint_le(gate.answer_bytes, CONTROL_ANSWERS_MAX);
	}
	for (uint32_t i = 0; i < count; i++) {
		struct control control = a_control(CONTROL_PROMPT, key);
		const bool forgotten = i < count - kept;

		(void)snprintf(key, sizeof(key), "k%u", i);
		control.request_id = slice_of(key);
		ck_assert_int_eq(check_at(&control, NOW + count + i, &status),
				 forgotten ? GATE_ANSWER : GATE_REPEAT);
		if (!forgotten)
			continue;
		ck_assert_str_eq(status, "expired");
		gate_answered(&gate, slice_of(key), payload);
		ck_assert_uint_le(gate.answer_bytes, CONTROL_ANSWERS_MAX);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gate");
	TCase *tcase = tcase_create("controls");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_control_of_this_epoch_runs);
	tcase_add_test(tcase, a_repeat_gets_the_first_answer_and_does_not_run);
	tcase_add_test(tcase, a_repeat_before_there_is_an_answer_does_not_run_either);
	tcase_add_test(tcase, without_a_request_id_the_same_event_runs_once);
	tcase_add_test(tcase, a_control_for_another_epoch_is_refused);
	tcase_add_test(tcase,
		       an_expired_control_is_refused_after_thirty_seconds_of_tolerance);
	tcase_add_test(tcase, a_control_without_epoch_must_be_younger_than_this_start);
	tcase_add_test(tcase, a_clock_of_ours_that_is_off_refuses_no_foreign_control);
	tcase_add_test(tcase, reads_need_no_epoch_and_run_again);
	tcase_add_loop_test(tcase, what_is_above_the_level_is_refused, 0,
			    sizeof(levels) / sizeof(*levels));
	tcase_add_test(tcase, more_than_ten_a_second_are_rate_limited_and_not_remembered);
	tcase_add_test(tcase, a_flood_is_met_with_silence);
	tcase_add_test(tcase, an_unknown_type_is_answered_only_when_it_asks);
	tcase_add_test(tcase, the_oldest_answers_are_forgotten_first);
	tcase_add_test(tcase, answers_stay_in_their_bound_and_an_older_repeat_is_expired);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
