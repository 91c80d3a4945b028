/* Channels and the agents that they are given to. The sender is this file's: what the
 * conversation wants of one, on a real feed. */
#include "agent/peer.h"

#include <string.h>

#include "agent/queue.h"
#include "agent/turns.h"
#include "tests/unit/support/support.h"

#define SLOTS 2

struct sender {
	struct feed *feed;
};

struct feed *sender_feed(struct sender *of)
{
	return of->feed;
}

struct feed_time sender_time(const struct sender *of)
{
	(void)of;
	return (struct feed_time){.unix_ms = 1796041859715, .monotonic_ms = 1000};
}

void sender_kick(struct sender *of)
{
	(void)of;
}

int64_t sender_observer_age_s(const struct sender *of)
{
	(void)of;
	return 1;
}

const char *sender_epoch(const struct sender *of)
{
	(void)of;
	return "656af000deadbeef";
}

static struct sender sender;
static struct loop *loop;
static struct queue *queue;
static struct turns *turns;
static struct acp *acps[SLOTS];
static struct buf written[SLOTS]; /* to each agent */
static size_t turns_ended;

static void on_read(void *ctx, const struct acp_line *line, const struct acp_line *raw,
		    size_t bytes, void *route)
{
	static const struct uuid own = {"00000000-0000-5000-8000-00000000000f"};
	struct feed_context elsewhere = {.slot = 0, .channel = &own};

	peer_read(ctx, line, raw, bytes, route, &elsewhere);
}

static void on_request(void *ctx, const struct acp_line *line)
{
	peer_request(ctx, line);
}

static void on_notification(void *ctx, const struct acp_line *line)
{
	peer_notification(ctx, line);
}

static void on_wrote(void *ctx, struct slice line, void *route,
		     struct slice authorization)
{
	(void)ctx;
	(void)line;
	(void)route;
	(void)authorization;
}

static const struct acp_events events = {on_read, on_request, on_notification, on_wrote};

static void write_line(void *ctx, struct slice line, child_on_written *on_written,
		       void *written_ctx)
{
	(void)buf_append(ctx, line);
	on_written(written_ctx, line, CHILD_WRITTEN);
}

static void on_turn_end(void *ctx, bool end_turn)
{
	(void)ctx;
	(void)end_turn;
	turns_ended++;
}

static const struct turns_events turns_events = {.on_turn_end = on_turn_end};

static void start(int slot)
{
	struct peer *peer = turns_peer(turns, slot);

	acps[slot] = acp_create(loop, &events, peer, write_line, &written[slot]);
	peer_connected(peer, acps[slot]);
}

static void ready(int slot)
{
	peer_ready(turns_peer(turns, slot), SLICE("{}"));
}

static void end(int slot)
{
	peer_gone(turns_peer(turns, slot), "it ended");
	acp_destroy(acps[slot]);
	acps[slot] = NULL;
}

static void setup(void)
{
	static const struct uuid uuids[] = {{"00000000-0000-5000-8000-000000000000"},
					    {"00000000-0000-5000-8000-000000000001"},
					    {"00000000-0000-5000-8000-000000000002"}};
	static char name[] = "agent";
	static char *const command[] = {name, NULL};
	struct turns_options options = {.loop = NULL,
					.sender = &sender,
					.slots = SLOTS,
					.cwd = "/work",
					.command = command,
					.session_ms = 180000,
					.idle_ms = 900000,
					.hard_ms = 7200000,
					.permission_ms = 300000,
					.events = &turns_events};
	struct err err;

	loop = options.loop = loop_create(&err);
	ck_assert_ptr_nonnull(loop);
	queue = queue_create(1u << 20);
	sender.feed = feed_create(queue);
	turns = turns_create(&options);
	for (size_t i = 0; i < sizeof(uuids) / sizeof(*uuids); i++)
		(void)turns_add_channel(turns, "channel", &uuids[i]);
	for (int i = 0; i < SLOTS; i++)
		buf_init(&written[i], 1u << 20);
	turns_ended = 0;
}

static void teardown(void)
{
	for (int i = 0; i < SLOTS; i++) {
		if (acps[i])
			end(i);
		buf_finish(&written[i]);
	}
	turns_destroy(turns);
	feed_destroy(sender.feed);
	queue_destroy(queue);
	loop_destroy(loop);
}

static enum turns_prompted prompt(size_t channel)
{
	size_t position;

	return turns_prompt(turns, turns_channel_at(turns, channel),
			    SLICE("[{\"type\":\"text\",\"text\":\"hi\"}]"), SLICE_EMPTY,
			    "owner", &position);
}

static size_t count(const struct buf *text, const char *word)
{
	size_t found = 0;

	for (const char *at = text->len ? text->ptr : ""; (at = strstr(at, word)); at++)
		found++;
	return found;
}

static size_t asked(int slot, const char *method)
{
	(void)buf_append_byte(&written[slot], '\0'); /* for strstr() */
	written[slot].len--;
	return count(&written[slot], method);
}

START_TEST(channels_go_to_the_slot_with_the_fewest)
{
	ck_assert_int_eq(turns_channel_at(turns, 0)->slot, 0);
	ck_assert_int_eq(turns_channel_at(turns, 1)->slot, 1);
	ck_assert_int_eq(turns_channel_at(turns, 2)->slot, 0);
}
END_TEST

START_TEST(sessions_of_one_agent_are_opened_one_after_the_other)
{
	start(0);
	ready(0);
	(void)prompt(0);
	(void)prompt(2);
	ck_assert_uint_eq(asked(0, "session/new"), 1);
	acp_receive(acps[0], SLICE("{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{"
				   "\"sessionId\":\"a\"}}\n"));
	ck_assert_uint_eq(asked(0, "session/new"), 2);
	ck_assert_uint_eq(asked(0, "session/prompt"), 1);
	acp_receive(acps[0], SLICE("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{"
				   "\"sessionId\":\"b\"}}\n"));
	ck_assert_uint_eq(asked(0, "session/prompt"), 2);
}
END_TEST

START_TEST(an_agent_that_goes_ends_its_turns_wherever_they_stand)
{
	start(0);
	start(1);
	ready(0);
	ready(1);
	(void)prompt(0); /* its session is being opened */
	(void)prompt(1); /* of the other agent */
	(void)prompt(2); /* stands in line for one */
	end(0);
	ck_assert_uint_eq(turns_ended, 2);
	ck_assert_ptr_nonnull(turns_channel_at(turns, 1)->turn);
}
END_TEST

START_TEST(a_channel_leaves_an_agent_that_is_down_and_its_prompts_with_it)
{
	start(1);
	ready(1);
	ck_assert_int_eq(prompt(2), PROMPT_QUEUED);
	peer_down(turns_peer(turns, 0));
	ck_assert_int_eq(turns_channel_at(turns, 0)->slot, 1);
	ck_assert_int_eq(turns_channel_at(turns, 2)->slot, 1);
	ck_assert_ptr_nonnull(turns_channel_at(turns, 2)->turn);
}
END_TEST

START_TEST(whoever_comes_back_first_when_all_were_down_takes_every_channel)
{
	ck_assert_int_eq(prompt(1), PROMPT_QUEUED);
	peer_down(turns_peer(turns, 0));
	peer_down(turns_peer(turns, 1));
	start(0);
	ready(0);
	for (size_t i = 0; i < 3; i++)
		ck_assert_int_eq(turns_channel_at(turns, i)->slot, 0);
	ck_assert_ptr_nonnull(turns_channel_at(turns, 1)->turn);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("peer");
	TCase *tcase = tcase_create("slots");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, channels_go_to_the_slot_with_the_fewest);
	tcase_add_test(tcase, sessions_of_one_agent_are_opened_one_after_the_other);
	tcase_add_test(tcase, an_agent_that_goes_ends_its_turns_wherever_they_stand);
	tcase_add_test(tcase,
		       a_channel_leaves_an_agent_that_is_down_and_its_prompts_with_it);
	tcase_add_test(tcase,
		       whoever_comes_back_first_when_all_were_down_takes_every_channel);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
