/* A harness's conversation with two agents that say anything at any time: whatever comes,
 * each of our lines is JSON, every prompt's turn comes to an end, and nothing leaks. The
 * first byte of the input is what the agents can do; each line after it begins with what
 * happens: a digit, and that agent says the rest of the line; or a word of the owner's.
 */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <stdlib.h>

#include <uv.h>

#include "agent/queue.h"
#include "agent/turns.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

#define SLOTS 2
#define CHANNELS 3

/* --- What asks.c and report.c want of a sender --- */

struct sender {
	struct feed *feed;
};

struct feed *sender_feed(struct sender *sender)
{
	return sender->feed;
}

struct feed_time sender_time(const struct sender *sender)
{
	(void)sender;
	return (struct feed_time){.unix_ms = 1796041859715, .monotonic_ms = 1000};
}

void sender_kick(struct sender *sender)
{
	(void)sender;
}

int64_t sender_observer_age_s(const struct sender *sender)
{
	(void)sender;
	return 1;
}

const char *sender_epoch(const struct sender *sender)
{
	(void)sender;
	return "656af000deadbeef";
}

/* --- The agents --- */

struct agent {
	struct peer *peer;
	struct acp *acp;
	struct uuid channel;
};

struct scene {
	struct turns *turns;
	struct agent agents[SLOTS];
	size_t prompts, ended;
};

static void on_read(void *ctx, const struct acp_line *line, const struct acp_line *raw,
		    size_t bytes, void *route)
{
	struct agent *agent = ctx;
	struct feed_context elsewhere = {.slot = agent->peer->slot,
					 .channel = &agent->channel};

	peer_read(agent->peer, line, raw, bytes, route, &elsewhere);
}

static void on_request(void *ctx, const struct acp_line *line)
{
	peer_request(((struct agent *)ctx)->peer, line);
}

static void on_notification(void *ctx, const struct acp_line *line)
{
	peer_notification(((struct agent *)ctx)->peer, line);
}

static void on_wrote(void *ctx, struct slice line, void *route,
		     struct slice authorization)
{
	(void)ctx;
	(void)route;
	assert(json_check(line, NULL, NULL));
	assert(authorization.len == 0 || json_check(authorization, NULL, NULL));
}

static const struct acp_events acp_events = {on_read, on_request, on_notification,
					     on_wrote};

static void write_line(void *ctx, struct slice line, child_on_written *on_written,
		       void *written_ctx)
{
	(void)ctx;
	on_written(written_ctx, line, CHILD_WRITTEN);
}

static void start(struct agent *agent, struct loop *loop, uint8_t can)
{
	static const char *const offers[] = {
		"{}",
		"{\"agentCapabilities\":{\"loadSession\":true,\"sessionCapabilities\":{"
		"\"list\":{}}}}",
		"{\"agentCapabilities\":{\"sessionCapabilities\":{\"resume\":{},"
		"\"close\":"
		"{},\"list\":{}}}}",
		"{\"agentCapabilities\":[],\"authMethods\":[{\"id\":\"x\"}]}",
	};

	agent->acp = acp_create(loop, &acp_events, agent, write_line, agent);
	peer_connected(agent->peer, agent->acp);
	peer_ready(agent->peer, slice_of(offers[can % 4]));
}

static void end(struct agent *agent)
{
	peer_gone(agent->peer, "it ended");
	acp_destroy(agent->acp);
	agent->acp = NULL;
}

/* --- The owner --- */

static void on_set(void *ctx, bool ok, const char *detail)
{
	(void)ctx;
	(void)ok;
	(void)detail;
}

static void on_turn_end(void *ctx, bool end_turn)
{
	(void)end_turn;
	((struct scene *)ctx)->ended++;
}

static void on_stuck(void *ctx, int slot)
{
	(void)ctx;
	(void)slot;
}

static const struct turns_events turns_events = {.on_turn_end = on_turn_end,
						 .on_stuck = on_stuck};

static void act(struct scene *scene, struct loop *loop, struct slice line, uint8_t can)
{
	size_t which = line.len > 1 ? (uint8_t)line.ptr[1] : 0;
	struct channel *channel = turns_channel_at(scene->turns, which % CHANNELS);
	struct agent *agent = &scene->agents[which % SLOTS];
	struct slice rest = slice_sub(line, 2, line.len);
	struct buf out;
	size_t position;

	switch (line.ptr[0]) {
	case 'P':
		scene->prompts +=
			turns_prompt(scene->turns, channel,
				     SLICE("[{\"type\":\"text\",\"text\":\"hi\"}]"),
				     SLICE_EMPTY, "owner", &position) != PROMPT_BUSY;
		return;
	case 'C':
		(void)turns_cancel(scene->turns, channel);
		return;
	case 'R':
		turns_release(scene->turns, channel);
		return;
	case 'M':
		(void)turns_set_mode(scene->turns, channel, rest, on_set, NULL);
		return;
	case 'W':
		(void)turns_switch_model(scene->turns, channel, rest, on_set, NULL);
		return;
	case 'D':
		end(agent);
		start(agent, loop, can);
		return;
	case 'X':
		peer_down(agent->peer);
		return;
	case 'S':
		buf_init(&out, 1u << 20);
		(void)buf_lit(&out, "{\"a\":0");
		turns_write_state(scene->turns, &out);
		(void)buf_lit(&out, "}");
		assert(json_check(buf_slice(&out), NULL, NULL));
		buf_finish(&out);
		return;
	default:
		agent = &scene->agents[(uint8_t)line.ptr[0] % SLOTS];
		acp_receive(agent->acp, slice_sub(line, 1, line.len));
		acp_receive(agent->acp, SLICE("\n"));
	}
}

static void set_up(struct scene *scene, struct sender *sender, struct loop *loop,
		   uint8_t can)
{
	static const struct uuid uuids[CHANNELS] = {
		{"00000000-0000-5000-8000-000000000000"},
		{"00000000-0000-5000-8000-000000000001"},
		{"00000000-0000-5000-8000-000000000002"},
	};
	static char name[] = "agent";
	static char *const command[] = {name, NULL};
	struct turns_options options = {.loop = loop,
					.sender = sender,
					.slots = SLOTS,
					.cwd = "/work",
					.command = command,
					.idle_ms = 900000,
					.hard_ms = 7200000,
					.permission_ms = 300000,
					.events = &turns_events,
					.ctx = scene};
	struct err err;

	(void)permission_parse_rules("allow read; reject edit", PERMISSION_ASK,
				     &options.rules, &err);
	scene->turns = turns_create(&options);
	for (size_t i = 0; i < CHANNELS; i++)
		(void)turns_add_channel(scene->turns, "channel", &uuids[i]);
	(void)buf_lit(&turns_channel_at(scene->turns, 1)->previous, "before");
	turns_channel_at(scene->turns, 0)->look_for_one = true;
	for (int i = 0; i < SLOTS; i++) {
		scene->agents[i].peer = turns_peer(scene->turns, i);
		scene->agents[i].channel = uuids[0];
		start(&scene->agents[i], loop, can);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct loop *loop; /* one for all inputs: it is dear, and keeps nothing */
	struct queue *queue;
	struct sender sender;
	struct scene scene = {0};
	struct slice rest, line;
	struct err err;

	if (size == 0)
		return 0;
	if (!loop)
		loop = loop_create(&err);
	assert(loop);
	queue = queue_create(1u << 20);
	sender.feed = feed_create(queue);
	set_up(&scene, &sender, loop, data[0]);
	rest = (struct slice){(const char *)data + 1, size - 1};
	while (slice_take_until(&rest, '\n', &line)) {
		if (line.len > 0)
			act(&scene, loop, line, data[0]);
	}
	for (size_t i = 0; i < SLOTS; i++) {
		peer_stopping(scene.agents[i].peer, true);
		end(&scene.agents[i]);
	}
	for (size_t i = 0; i < CHANNELS; i++)
		assert(!turns_channel_at(scene.turns, i)->turn);
	assert(scene.ended <= scene.prompts);
	turns_destroy(scene.turns);
	feed_destroy(sender.feed);
	queue_destroy(queue);
	uv_run(loop->uv, UV_RUN_NOWAIT); /* closes the timers */
	return 0;
}
