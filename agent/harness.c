#include "agent/harness.h"

#include <signal.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/emit_server.h"
#include "agent/last_sessions.h"
#include "agent/lookup.h"
#include "agent/report.h"
#include "agent/slot.h"
#include "agent/started.h"
#include "agent/steer.h"
#include "agent/turns.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"
#include "wire/nostr/json.h"

/* How long the rest of the feed may take: design §5, Shutdown. A finished run has nobody
 * who waits for its end, so it may say all. */
#define STOP_GRACE_MS 3000
/* Then harness_stopping has a tick to leave in, and some time for its OK; our choice. */
#define LAST_GRACE_MS 1500
/* Both for somebody who could not wait: what does not leave by then is in the journal. */
#define HURRY_STOP_MS 300
#define HURRY_LAST_MS 1000
#define FINISH_GRACE_MS 20000

struct harness {
	struct loop *loop;
	struct harness_options options;
	struct sender *sender;
	struct turns *turns;
	struct steer *steer;
	struct children *children;
	struct slot *slots[TURNS_SLOTS_MAX];
	int slot_count; /* of them that exist */
	int stopped;    /* of them that have stopped for good */
	struct last_sessions *last_sessions;
	struct emit_server *emit;
	struct timer *finish_timer; /* leaves the callback in which a run turns out to be
				       done */
	const char *stop_reason;    /* NULL: running */
	bool hurry;                 /* it was asked for twice */
	bool draining;              /* all agents have ended */
	bool last_word;             /* harness_stopping is on its way */
	bool link_ready, agent_ready, told_ready;
	bool down[TURNS_SLOTS_MAX]; /* its circuit is open */
	bool failed; /* a turn did not end by itself, or the agent is no use */
};

static bool is_one_run(const struct harness *harness)
{
	return harness->options.prompt_count > 0 && !harness->options.stay;
}

static void stop(struct harness *harness, const char *reason)
{
	if (harness->stop_reason)
		return;
	harness->stop_reason = reason;
	if (is_one_run(harness) && !turns_idle(harness->turns))
		harness->failed = true;
	for (int i = 0; i < harness->slot_count; i++)
		slot_stop(harness->slots[i]); /* on_stopped goes on */
}

/* --- The sender's callbacks --- */

static void write_slot(const struct slot *slot, int index, struct buf *out)
{
	pid_t pid = slot_pid(slot);

	(void)buf_append(out, index ? SLICE(",{") : SLICE("{"));
	(void)json_write_member_int(out, SLICE("slot"), index);
	(void)json_write_member_string(out, SLICE("state"),
				       slice_of(slot_state_name(slot)));
	if (pid)
		(void)json_write_member_int(out, SLICE("pid"), pid);
	(void)buf_lit(out, "}");
}

static void write_state(void *ctx, struct buf *out)
{
	struct harness *harness = ctx;
	const struct harness_options *options = &harness->options;

	(void)json_write_member_string(out, SLICE("control"),
				       slice_of(control_level_name(options->control)));
	(void)json_write_member_string(
		out, SLICE("permissions"),
		slice_of(permission_policy_name(options->permissions)));
	if (options->rules_text[0])
		report_member(out, SLICE("permissionRules"),
			      slice_of(options->rules_text));
	(void)json_write_key(out, SLICE("slots"));
	(void)buf_lit(out, "[");
	for (int i = 0; i < harness->slot_count; i++)
		write_slot(harness->slots[i], i, out);
	(void)buf_lit(out, "]");
	turns_write_state(harness->turns, out);
}

static void on_control(void *ctx, const uint8_t event_id[32], int64_t created_at,
		       struct slice plaintext)
{
	struct harness *harness = ctx;

	steer_on_control(harness->steer, event_id, created_at, plaintext);
}

static void close_ready(struct harness *harness)
{
	if (harness->options.ready_fd >= 0)
		(void)close(harness->options.ready_fd);
	harness->options.ready_fd = -1;
}

static void tell_ready(struct harness *harness)
{
	if (harness->told_ready || !harness->link_ready || !harness->agent_ready)
		return;
	harness->told_ready = true;
	log_info("agent", "ready: %s", harness->options.name);
	if (harness->options.ready_fd >= 0)
		(void)!write(harness->options.ready_fd, "ready\n", 6);
	close_ready(harness);
}

static void on_link(void *ctx, enum link_state state, const char *reason)
{
	struct harness *harness = ctx;

	switch (state) {
	case LINK_READY:
		log_info("relay", "connected to %s", harness->options.relay_url);
		break;
	case LINK_DOWN:
		log_warn("relay", "not connected to %s: %s", harness->options.relay_url,
			 reason);
		break;
	case LINK_CONNECTING:
		break;
	}
	harness->link_ready = state == LINK_READY;
	tell_ready(harness);
}

/* --- The slot's and the turns' --- */

static void on_agent_ready(void *ctx)
{
	struct harness *harness = ctx;

	harness->agent_ready = true;
	tell_ready(harness);
}

static bool all_down(const struct harness *harness)
{
	for (int i = 0; i < harness->slot_count; i++) {
		if (!harness->down[i])
			return false;
	}
	return true;
}

static void on_crash(void *ctx, int slot, bool circuit_open)
{
	struct harness *harness = ctx;

	harness->down[slot] = circuit_open;
	/* Whoever waits for us to be ready need not wait for the next try. */
	if (!harness->agent_ready)
		close_ready(harness);
	/* Nobody is there to wait for five minutes. */
	if (is_one_run(harness) && all_down(harness)) {
		harness->failed = true;
		timer_start(harness->finish_timer, 0);
	}
}

static void on_last_sent(void *ctx)
{
	struct harness *harness = ctx;

	loop_quit(harness->loop);
}

/* All has left, or its time is up: the last word says how much did not. */
static void on_drained(void *ctx)
{
	struct harness *harness = ctx;
	struct sender_left left;

	sender_leave(harness->sender, &left);
	if (left.events)
		log_warn("agent",
			 "stopped with %" PRIu64 " event%s unsent; %" PRIu64
			 " kept for the next start",
			 left.events, left.events == 1 ? "" : "s", left.journalled);
	report_stopping(harness->sender, harness->stop_reason, &left);
	harness->last_word = true;
	sender_stop(harness->sender, harness->hurry ? HURRY_LAST_MS : LAST_GRACE_MS,
		    on_last_sent, harness);
}

static void drain(struct harness *harness)
{
	const bool finished = is_one_run(harness) && turns_idle(harness->turns);
	const uint64_t grace_ms = finished ? FINISH_GRACE_MS : STOP_GRACE_MS;

	harness->draining = true;
	sender_stop(harness->sender, harness->hurry ? HURRY_STOP_MS : grace_ms,
		    on_drained, harness);
}

static void on_stopped(void *ctx)
{
	struct harness *harness = ctx;

	if (++harness->stopped == harness->slot_count)
		drain(harness);
}

static void on_unusable(void *ctx, const char *text)
{
	struct harness *harness = ctx;

	log_error("agent", "%s", text);
	harness->failed = true;
	stop(harness, "agent_unusable");
}

static const struct slot_events slot_events = {
	.on_ready = on_agent_ready,
	.on_crash = on_crash,
	.on_stopped = on_stopped,
	.on_unusable = on_unusable,
};

static void on_turn_end(void *ctx, bool end_turn)
{
	struct harness *harness = ctx;

	if (!is_one_run(harness))
		return;
	harness->failed = harness->failed || !end_turn;
	timer_start(harness->finish_timer, 0);
}

static void on_finish(void *ctx)
{
	struct harness *harness = ctx;

	if (harness->failed || turns_idle(harness->turns))
		stop(harness, harness->failed ? "failed" : "finished");
}

static void on_stuck(void *ctx, int slot)
{
	struct harness *harness = ctx;

	slot_replace(harness->slots[slot]);
}

static void on_session(void *ctx, const struct channel *channel)
{
	struct harness *harness = ctx;
	struct err err;

	if (!last_sessions_put(harness->last_sessions, harness->options.cwd,
			       &channel->uuid, buf_slice(&channel->session), &err))
		log_warn("agent", "a later --resume will not find this session: %s",
			 err.text);
}

static const struct turns_events turns_events = {
	.on_turn_end = on_turn_end,
	.on_stuck = on_stuck,
	.on_session = on_session,
};

static void on_signal(void *ctx, int number)
{
	struct harness *harness = ctx;

	log_info("agent", "stopping");
	stop(harness, number == SIGINT ? "interrupted" : "terminated");
}

/* Whoever asks twice does not wait for agents; the last word still leaves, or the next
 * start would call this one a crash. */
static void on_second_signal(void *ctx, int number)
{
	struct harness *harness = ctx;

	(void)number;
	harness->hurry = true;
	if (harness->last_word)
		sender_stop(harness->sender, HURRY_LAST_MS, on_last_sent, harness);
	else if (harness->draining)
		drain(harness);
	for (int i = 0; i < harness->slot_count; i++)
		slot_kill(harness->slots[i]);
}

/* --- `perch emit` --- */

/* It belongs to the turn that runs, should it come from the agent's hooks. */
static void on_emitted(void *ctx, struct slice kind, struct slice payload)
{
	struct harness *harness = ctx;
	struct channel *channel = NULL;
	struct feed_context context;

	for (size_t i = 0; (channel = turns_channel_at(harness->turns, i)); i++)
		if (channel->turn)
			break;
	if (!channel)
		channel = turns_channel_at(harness->turns, 0);
	context = report_context(channel);
	(void)feed_emit(sender_feed(harness->sender), sender_time(harness->sender),
			&context, kind, SLICE_EMPTY, payload);
	sender_kick(harness->sender);
}

/* Without it the rest goes on. */
static void create_emit(struct harness *harness)
{
	struct err err;

	if (!harness->options.emit_path)
		return;
	harness->emit = emit_server_create(harness->loop, harness->options.emit_path,
					   NULL, on_emitted, harness, &err);
	if (!harness->emit)
		log_warn("emit", "takes no events: %s", err.text);
}

/* --- Life --- */

static void say_started(struct harness *harness)
{
	const struct harness_options *options = &harness->options;
	const struct started started = {
		.name = options->name,
		.command = options->command,
		.mode = "agent",
		.cwd = options->cwd,
		.slots = options->slots,
		.control = control_level_name(options->control),
		.permissions = permission_policy_name(options->permissions),
		.rules = options->rules_text,
		.channels = options->channels,
		.channel_count = options->channel_count,
	};

	started_report(harness->sender, &started);
}

static void queue_prompts(struct harness *harness)
{
	const struct harness_options *options = &harness->options;
	struct channel *channel;
	struct buf content;
	size_t position;

	for (size_t i = 0; i < options->prompt_count; i++) {
		buf_init(&content, 6 * options->prompts[i].len + 64);
		(void)buf_lit(&content, "[{\"type\":\"text\",\"text\":");
		(void)json_write_string(&content, options->prompts[i]);
		(void)buf_lit(&content, "}]");
		for (size_t k = 0; (channel = turns_channel_at(harness->turns, k)); k++)
			(void)turns_prompt(harness->turns, channel, buf_slice(&content),
					   SLICE_EMPTY, "argument", &position);
		buf_finish(&content);
	}
}

static struct sender *create_sender(struct harness *harness, struct err *err)
{
	const struct harness_options *options = &harness->options;
	struct sender_options sender = {
		.relay_url = options->relay_url,
		.keypair = options->keypair,
		.auth_tag = options->auth_tag,
		.tick_ms = options->tick_ms,
		.epoch_path = options->epoch_path,
		.journal_path = options->journal_path,
		.journal_bytes = options->journal_bytes,
		.journal_s = options->journal_s,
		.default_context = {.slot = -1, .channel = &options->channels[0].uuid},
		.write_state = write_state,
		.on_control = on_control,
		.on_link = on_link,
		.ctx = harness,
	};

	memcpy(sender.owner, options->owner, sizeof(sender.owner));
	return sender_create(harness->loop, &sender, err);
}

static struct turns *create_turns(struct harness *harness)
{
	const struct harness_options *options = &harness->options;
	struct turns_options turns = {
		.loop = harness->loop,
		.sender = harness->sender,
		.cwd = options->cwd,
		.command = options->command,
		.session_ms = options->start_ms,
		.idle_ms = options->idle_ms,
		.hard_ms = options->turn_ms,
		.slots = options->slots,
		.rules = options->rules,
		.permission_ms = options->permission_ms,
		.events = &turns_events,
		.ctx = harness,
	};

	return turns_create(&turns);
}

static struct slot *create_slot(struct harness *harness, int index)
{
	const struct harness_options *options = &harness->options;
	struct slot_options slot = {
		.loop = harness->loop,
		.children = harness->children,
		.sender = harness->sender,
		.peer = turns_peer(harness->turns, index),
		.command = options->command,
		.cwd = options->cwd,
		.environment = options->environment,
		.start_ms = options->start_ms,
		.events = &slot_events,
		.ctx = harness,
	};

	uuid_of_slot(harness->loop->crypto, keypair_public(options->keypair),
		     (unsigned)index, &slot.channel);
	return slot_create(&slot);
}

/* The first decides whether the command can be run at all; of the others one that cannot
 * be started (too many processes) is tried again later, as any that crashed. */
static bool start_slots(struct harness *harness, struct err *err)
{
	struct err later;

	for (int i = 0; i < harness->options.slots; i++)
		harness->slots[harness->slot_count++] = create_slot(harness, i);
	if (!slot_start(harness->slots[0], err))
		return false;
	for (int i = 1; i < harness->slot_count; i++) {
		if (!slot_start(harness->slots[i], &later))
			slot_start_later(harness->slots[i], later.text);
	}
	return true;
}

static void add_channels(struct harness *harness)
{
	const struct harness_options *options = &harness->options;
	const char *resume = options->resume;

	for (size_t i = 0; i < options->channel_count; i++) {
		struct channel *channel =
			turns_add_channel(harness->turns, options->channels[i].name,
					  &options->channels[i].uuid);

		if (!resume)
			continue;
		if (strcmp(resume, "last") != 0) {
			if (i == 0)
				(void)buf_append(&channel->previous, slice_of(resume));
			continue;
		}
		channel->previous_shown =
			last_sessions_get(harness->last_sessions, options->cwd,
					  &channel->uuid, &channel->previous);
		channel->look_for_one = i == 0 && !channel->previous_shown;
	}
}

struct harness *harness_create(struct loop *loop, const struct harness_options *options,
			       struct err *err)
{
	struct harness *harness = mem_alloc(sizeof(*harness));
	bool ok = false;

	harness->loop = loop;
	harness->options = *options;
	harness->finish_timer = timer_create_on(loop, on_finish, harness);
	harness->children = children_create(loop, err);
	if (!harness->children)
		goto out;
	harness->sender = create_sender(harness, err);
	if (!harness->sender)
		goto out;
	harness->turns = create_turns(harness);
	harness->last_sessions = last_sessions_open(options->sessions_path);
	add_channels(harness);
	harness->steer = steer_create(harness->turns, harness->sender, options->control,
				      sender_started_ms(harness->sender) / 1000);
	say_started(harness);
	create_emit(harness);
	if (!start_slots(harness, err))
		goto out;
	queue_prompts(harness);
	loop_on_signal(loop, on_signal, harness);
	loop_on_second_signal(loop, on_second_signal);
	ok = loop_on_hangup(loop, NULL, NULL, err);
out:
	if (!ok) {
		harness_destroy(harness);
		harness = NULL;
	}
	return harness;
}

void harness_destroy(struct harness *harness)
{
	if (!harness)
		return;
	emit_server_destroy(harness->emit);
	timer_destroy(harness->finish_timer);
	for (int i = 0; i < harness->slot_count; i++)
		slot_destroy(harness->slots[i]);
	children_destroy(harness->children);
	steer_destroy(harness->steer);
	last_sessions_close(harness->last_sessions);
	turns_destroy(harness->turns);
	sender_destroy(harness->sender);
	free(harness);
}

int harness_exit_status(const struct harness *harness)
{
	return harness->failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
