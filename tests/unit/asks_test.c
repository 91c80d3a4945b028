/* Permission requests over time, with the clock and the observer's silence in our hand.
 * The sender is this file's: what asks.c wants of one, on a real feed. */
#include "agent/asks.h"

#include <string.h>

#include "agent/lookup.h"
#include "agent/queue.h"
#include "agent/turns.h"
#include "tests/unit/support/support.h"

struct sender {
	struct feed *feed;
	int64_t observer_age_s, uptime_ms;
};

static struct sender sender;

struct feed *sender_feed(struct sender *of)
{
	return of->feed;
}

struct feed_time sender_time(const struct sender *of)
{
	return (struct feed_time){.unix_ms = 1796041859715,
				  .monotonic_ms = of->uptime_ms};
}

void sender_kick(struct sender *of)
{
	(void)of;
}

int64_t sender_observer_age_s(const struct sender *of)
{
	return of->observer_age_s;
}

const char *sender_epoch(const struct sender *of)
{
	(void)of;
	return "656af000deadbeef";
}

#define REQUEST \
	"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"session/request_permission\"," \
	"\"params\":{\"sessionId\":\"s\",\"toolCall\":{},\"options\":[" \
	"{\"optionId\":\"yes\",\"kind\":\"allow_once\"}," \
	"{\"optionId\":\"no\",\"kind\":\"reject_once\"}]}}"

static struct loop *loop;
static struct queue *queue;
static struct asks *asks;
static struct acp *acp;
static struct channel channel;
static struct turn turn;
static struct buf written, reason;
static enum child_written outcome;
static bool running; /* inside loop_run(): ended by the next answer */

static void on_change(void *ctx, struct channel *of)
{
	(void)ctx;
	(void)of;
}

static void on_wrote(void *ctx, struct slice line, void *route,
		     struct slice authorization)
{
	(void)ctx;
	(void)line;
	(void)route;
	buf_clear(&reason);
	(void)buf_append(&reason, lookup_string(authorization, SLICE("reason")));
	if (running)
		loop_quit(loop);
}

static const struct acp_events events = {.on_wrote = on_wrote};

static void write_line(void *ctx, struct slice line, child_on_written *on_written,
		       void *written_ctx)
{
	(void)ctx;
	(void)buf_append(&written, line);
	on_written(written_ctx, line, outcome);
}

static void create(enum permission_policy policy, int64_t timeout_ms)
{
	struct asks_options options = {.loop = loop,
				       .sender = &sender,
				       .timeout_ms = timeout_ms,
				       .on_change = on_change};
	struct err err;

	ck_assert(permission_parse_rules("", policy, &options.rules, &err));
	asks = asks_create(&options);
	asks_set_acp(asks, acp);
}

static void setup(void)
{
	static const struct uuid uuid = {"00000000-0000-5000-8000-000000000000"};
	struct err err;

	loop = loop_create(&err);
	ck_assert_ptr_nonnull(loop);
	queue = queue_create(4u << 20);
	sender = (struct sender){.feed = feed_create(queue), .uptime_ms = 3600000};
	acp = acp_create(loop, &events, NULL, write_line, NULL);
	channel_init(&channel, "main", &uuid);
	turn = (struct turn){.phase = TURN_RUNNING};
	channel.turn = &turn;
	buf_init(&written, 1u << 20);
	buf_init(&reason, 64);
	outcome = CHILD_WRITTEN;
}

static void teardown(void)
{
	asks_destroy(asks);
	acp_destroy(acp);
	channel.turn = NULL;
	channel_finish(&channel);
	feed_destroy(sender.feed);
	queue_destroy(queue);
	loop_destroy(loop);
	buf_finish(&written);
	buf_finish(&reason);
}

static void ask_with(int64_t left_ms)
{
	struct feed_context context = {.slot = 0, .channel = &channel.uuid};
	struct acp_line line;

	acp_line_scan(SLICE(REQUEST), &line);
	asks_read(asks, &line, &line, line.text.len, &channel, &context);
	asks_request(asks, &line, ASKS_TURN, left_ms);
}

START_TEST(a_request_waits_for_an_observer_that_was_heard_of)
{
	create(PERMISSION_ASK, 300000);
	sender.observer_age_s = ASKS_SILENCE_S;
	ask_with(300000);
	ck_assert_uint_eq(asks_pending(asks, &channel), 1);
	ck_assert_uint_eq(written.len, 0);
}
END_TEST

START_TEST(after_two_minutes_of_silence_a_request_is_rejected_at_once)
{
	create(PERMISSION_ASK, 300000);
	sender.observer_age_s = ASKS_SILENCE_S + 1;
	ask_with(300000);
	ck_assert_uint_eq(asks_pending(asks, &channel), 0);
	assert_slice_eq(buf_slice(&reason), "rejected");
	assert_slice_eq(buf_slice(&written),
			"{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"outcome\":"
			"{\"outcome\":\"selected\",\"optionId\":\"no\"}}}\n");
}
END_TEST

START_TEST(a_request_that_cannot_be_shown_is_rejected_at_once)
{
	struct feed_context context = {.slot = 0, .channel = &channel.uuid};
	struct acp_line line;
	struct buf text;

	create(PERMISSION_ASK, 300000);
	buf_init(&text, AGENT_LINE_MAX);
	(void)buf_append(&text, SLICE(REQUEST));
	while (text.len <= AGENT_MIRROR_MAX)
		(void)buf_lit(&text, "                                ");
	acp_line_scan(buf_slice(&text), &line);
	asks_read(asks, &line, &line, text.len, &channel, &context);
	asks_request(asks, &line, ASKS_TURN, 300000);
	ck_assert_uint_eq(asks_pending(asks, &channel), 0);
	assert_slice_eq(buf_slice(&reason), "rejected");
	buf_finish(&text);
}
END_TEST

START_TEST(a_harness_that_has_just_started_gives_its_observer_time)
{
	create(PERMISSION_ASK, 300000);
	sender.observer_age_s = INT64_MAX; /* never */
	sender.uptime_ms = 119999;
	ask_with(300000);
	ck_assert_uint_eq(asks_pending(asks, &channel), 1);
}
END_TEST

START_TEST(the_rest_of_the_turn_bounds_the_wait)
{
	create(PERMISSION_ASK, 300000);
	ask_with(1);
	running = true;
	loop_run(loop);
	running = false;
	assert_slice_eq(buf_slice(&reason), "timed_out");
	ck_assert_uint_eq(asks_pending(asks, &channel), 0);
}
END_TEST

START_TEST(a_request_whose_agent_is_gone_is_over)
{
	create(PERMISSION_ASK, 300000);
	ask_with(300000);
	asks_set_acp(asks, NULL);
	ck_assert_uint_eq(asks_pending(asks, &channel), 0);
	ck_assert_uint_eq(written.len, 0);
}
END_TEST

START_TEST(an_answer_that_was_cut_off_is_shown_as_uncertain_not_as_given)
{
	struct queue_ledger before;

	create(PERMISSION_ALLOW, 300000);
	outcome = CHILD_CUT_OFF;
	before = *queue_ledger(queue);
	ask_with(300000);
	assert_slice_eq(buf_slice(&reason), ""); /* on_wrote was not called */
	/* the request itself, and permission_terminal */
	ck_assert_uint_eq(queue_ledger(queue)->ingested, before.ingested + 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("asks");
	TCase *tcase = tcase_create("requests");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_request_waits_for_an_observer_that_was_heard_of);
	tcase_add_test(tcase, after_two_minutes_of_silence_a_request_is_rejected_at_once);
	tcase_add_test(tcase, a_request_that_cannot_be_shown_is_rejected_at_once);
	tcase_add_test(tcase, a_harness_that_has_just_started_gives_its_observer_time);
	tcase_add_test(tcase, the_rest_of_the_turn_bounds_the_wait);
	tcase_add_test(tcase, a_request_whose_agent_is_gone_is_over);
	tcase_add_test(tcase,
		       an_answer_that_was_cut_off_is_shown_as_uncertain_not_as_given);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
