#include "agent/turns.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/login.h"
#include "agent/lookup.h"
#include "agent/report.h"
#include "agent/setup.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"
#include "wire/nostr/json.h"

/* An agent may start MCP servers before it answers session/new. */
#define SESSION_TIMEOUT_MS 180000
#define SET_TIMEOUT_MS 30000
/* Open tool calls that are remembered of one turn; our choice. */
#define TOOLS_MAX 1024
/* A longer id of a tool call is not followed; our choice. */
#define TOOL_ID_BYTES_MAX 1024
/* Of a prompt's text, in turn_started: payloads.md. */
#define PROMPT_HEAD_BYTES 200
/* Of all offers in one feed_state, which must fit a frame. */
#define STATE_OFFERS_MAX (24u << 10)

struct turns {
	struct turns_options options;
	struct asks *asks;
	struct timer *timer;
	struct acp *acp; /* NULL: no agent */
	bool ready;      /* it has answered initialize, and is to get turns */
	struct buf auth_methods;
	const char *gone_reason;
	struct channel channels[CHANNELS_MAX];
	size_t channel_count;
	uint64_t serial;
};

/* What an answer of the agent belongs to. */
struct step {
	struct turns *turns;
	struct channel *channel;
	uint64_t serial;
};

static void pump(struct turns *turns, struct channel *channel);
static void go_on(struct turns *turns, struct channel *channel);

static struct step *step_create(struct turns *turns, struct channel *channel)
{
	struct step *step = mem_alloc(sizeof(*step));

	*step = (struct step){turns, channel, channel->turn ? channel->turn->serial : 0};
	return step;
}

/* The turn that a step was made for, if it still runs. */
static struct turn *step_turn(const struct step *step)
{
	struct turn *turn = step->channel->turn;

	return turn && turn->serial == step->serial ? turn : NULL;
}

/* --- The clock --- */

static void arm(struct turns *turns)
{
	int64_t next_ms = INT64_MAX, now_ms = loop_now_ms();

	for (size_t i = 0; i < turns->channel_count; i++) {
		const struct turn *turn = turns->channels[i].turn;

		if (turn && turn_clock_next(&turn->clock) < next_ms)
			next_ms = turn_clock_next(&turn->clock);
	}
	if (next_ms == INT64_MAX)
		timer_stop(turns->timer);
	else
		timer_start(turns->timer,
			    next_ms > now_ms ? (uint64_t)(next_ms - now_ms) : 0);
}

static void look_busy(struct turns *turns, struct channel *channel)
{
	struct turn *turn = channel->turn;

	if (!turn)
		return;
	turn->clock.busy =
		turn->tools.count > 0 || asks_pending(turns->asks, channel) > 0;
	arm(turns);
}

static void on_asks_change(void *ctx, struct channel *channel)
{
	look_busy(ctx, channel);
}

/* --- The end of a turn --- */

/* turn_error. @message: JSON value text. */
static void report_error(struct turns *turns, const struct channel *channel,
			 const char *class, int64_t code, struct slice message,
			 struct slice data)
{
	struct feed_context context = report_context(channel);
	struct buf payload;

	report_begin(&payload);
	if (channel->turn)
		(void)json_write_member_string(&payload, SLICE("promptId"),
					       slice_of(channel->turn->prompt->id));
	if (code != 0)
		(void)json_write_member_int(&payload, SLICE("code"), code);
	(void)json_write_member_raw(&payload, SLICE("message"), message);
	if (data.len)
		(void)json_write_member_raw(&payload, SLICE("data"), data);
	(void)json_write_member_string(&payload, SLICE("class"), slice_of(class));
	report_end(turns->options.sender, &context, "turn_error", &payload);
}

/* The same in words of ours. */
static void report_error_text(struct turns *turns, const struct channel *channel,
			      const char *class, const char *text)
{
	struct buf message;

	buf_init(&message, 4096);
	(void)json_write_string(&message, slice_of(text));
	report_error(turns, channel, class, 0, buf_slice(&message), SLICE_EMPTY);
	buf_finish(&message);
}

/* The agent wants a login: its own words, the ways it offers, and what to run. */
static void report_login(struct turns *turns, const struct channel *channel,
			 const struct acp_answer *answer)
{
	struct buf data, text;
	char quoted[LOG_QUOTE_BYTES];

	buf_init(&data, 1u << 20);
	buf_init(&text, 64u << 10);
	(void)buf_lit(&text, "The agent wants a login");
	if (answer->message.len) {
		(void)buf_lit(&text, ": ");
		(void)json_unescape(answer->message, &text);
	}
	(void)buf_lit(&text, ". ");
	login_hint(turns->options.command, buf_slice(&turns->auth_methods), &text);
	(void)buf_lit(&data, "{");
	if (turns->auth_methods.len)
		(void)json_write_member_raw(&data, SLICE("authMethods"),
					    buf_slice(&turns->auth_methods));
	(void)json_write_member_string(&data, SLICE("hint"), buf_slice(&text));
	(void)buf_lit(&data, "}");
	report_error(turns, channel, "agent", answer->code,
		     answer->message.ptr ? lookup(answer->error, SLICE("message"))
					 : SLICE("\"authentication required\""),
		     buf_slice(&data));
	log_error("agent", "%s", log_quote(buf_slice(&text), quoted));
	buf_finish(&text);
	buf_finish(&data);
}

/* An error answer, or none at all. */
static void report_answer(struct turns *turns, const struct channel *channel,
			  const struct acp_answer *answer, const char *what)
{
	struct slice message = lookup(answer->error, SLICE("message"));
	struct buf text;

	if (answer->failure == ACP_GONE) {
		report_error_text(turns, channel, "exit", turns->gone_reason);
		return;
	}
	if (answer->failure == ACP_ANSWERED && !answer->ok &&
	    answer->code == ACP_AUTH_REQUIRED) {
		report_login(turns, channel, answer);
		return;
	}
	if (answer->failure == ACP_ANSWERED && !answer->ok && answer->message.ptr) {
		report_error(turns, channel, "agent", answer->code, message,
			     lookup(answer->error, SLICE("data")));
		return;
	}
	buf_init(&text, 512);
	(void)buf_printf(&text, "%s %s", what,
			 answer->failure == ACP_TIMED_OUT ? "was not answered in time"
			 : answer->ok ? "got an answer that makes no sense"
				      : "failed without a reason");
	report_error_text(turns, channel,
			  answer->failure == ACP_TIMED_OUT ? "timeout" : "protocol",
			  buf_text(&text));
	buf_finish(&text);
}

static void write_times(const struct turn *turn, int64_t now_ms, struct buf *payload)
{
	const struct turn_clock *clock = &turn->clock;

	(void)json_write_member_int(payload, SLICE("durationMs"),
				    now_ms - clock->started_ms);
	(void)json_write_member_int(payload, SLICE("queueWaitMs"),
				    clock->started_ms - turn->prompt->queued_ms);
	if (turn->session_ms)
		(void)json_write_member_int(payload, SLICE("sessionMs"),
					    turn->session_ms - clock->started_ms);
	if (turn->first_output_ms)
		(void)json_write_member_int(payload, SLICE("firstOutputMs"),
					    turn->first_output_ms - turn->dispatched_ms);
}

/* Every turn ends here. @result: of session/prompt, or empty; @cancelled_by: NULL if it
 * ended by itself. */
static void end_turn(struct turns *turns, struct channel *channel, struct slice result,
		     const char *cancelled_by)
{
	struct turn *turn = channel->turn;
	struct slice stop_reason = lookup(result, SLICE("stopReason"));
	struct slice usage = lookup(result, SLICE("usage"));
	bool by_itself = !cancelled_by &&
			 lookup_is(result, SLICE("stopReason"), SLICE("end_turn"));
	bool requeue = turn->requeue;
	struct feed_context context;
	struct buf payload;

	asks_cancel(turns->asks, channel);
	context = report_context(channel);
	report_begin(&payload);
	(void)json_write_member_string(&payload, SLICE("promptId"),
				       slice_of(turn->prompt->id));
	if (stop_reason.len)
		(void)json_write_member_raw(&payload, SLICE("stopReason"), stop_reason);
	if (cancelled_by)
		(void)json_write_member_string(&payload, SLICE("cancelledBy"),
					       slice_of(cancelled_by));
	write_times(turn, loop_now_ms(), &payload);
	if (usage.len && usage.ptr[0] == '{')
		(void)json_write_member_raw(&payload, SLICE("usage"), usage);
	report_end(turns->options.sender, &context, "turn_completed", &payload);
	channel->turn = NULL;
	if (requeue)
		channel_push_front(channel, turn->prompt);
	else
		prompt_destroy(turn->prompt);
	map_finish(&turn->tools);
	free(turn);
	arm(turns);
	if (!requeue)
		turns->options.events->on_turn_end(turns->options.ctx, by_itself);
	pump(turns, channel);
}

/* --- A turn's way --- */

static void on_prompt_answer(void *ctx, const struct acp_answer *answer)
{
	struct step *step = ctx;
	struct turns *turns = step->turns;
	struct channel *channel = step->channel;
	struct turn *turn = step_turn(step);

	free(step);
	if (!turn)
		return;
	/* Agents answer a cancel with end_turn, an error, or -32800: what we cancelled is
	 * cancelled, whatever they call it. */
	if (turn->cancelled_by) {
		end_turn(turns, channel, answer->result, turn->cancelled_by);
		return;
	}
	if (answer->ok && lookup_string(answer->result, SLICE("stopReason")).ptr) {
		end_turn(turns, channel, answer->result, NULL);
		return;
	}
	report_answer(turns, channel, answer, "session/prompt");
	end_turn(turns, channel, SLICE_EMPTY,
		 answer->failure == ACP_GONE ? "exit" : NULL);
}

static void dispatch(struct turns *turns, struct channel *channel)
{
	struct turn *turn = channel->turn;
	struct feed_context context = report_context(channel);
	struct buf params;

	turn->phase = TURN_RUNNING;
	turn->dispatched_ms = loop_now_ms();
	turn->clock.heard_ms = turn->dispatched_ms;
	report_begin(&params);
	(void)json_write_member_string(&params, SLICE("promptId"),
				       slice_of(turn->prompt->id));
	report_end(turns->options.sender, &context, "prompt_dispatched", &params);
	report_begin(&params);
	(void)json_write_member_string(&params, SLICE("sessionId"),
				       buf_slice(&channel->session));
	(void)json_write_member_raw(&params, SLICE("prompt"),
				    buf_slice(&turn->prompt->content));
	(void)buf_lit(&params, "}");
	acp_call(turns->acp, "session/prompt", buf_slice(&params), channel, 0,
		 on_prompt_answer, step_create(turns, channel));
	buf_finish(&params);
}

static void on_model_answer(void *ctx, const struct acp_answer *answer)
{
	struct step *step = ctx;
	struct turns *turns = step->turns;
	struct channel *channel = step->channel;
	struct turn *turn = step_turn(step);

	free(step);
	if (answer->ok)
		channel_take_config(channel, answer->result);
	if (!turn)
		return;
	if (answer->failure == ACP_GONE) {
		report_answer(turns, channel, answer, "the change of model");
		end_turn(turns, channel, SLICE_EMPTY, "exit");
		return;
	}
	if (!answer->ok) /* the prompt is still wanted */
		report_answer(turns, channel, answer, "the change of model");
	dispatch(turns, channel);
}

/* Moves a turn on whose session is open. */
static void go_on(struct turns *turns, struct channel *channel)
{
	struct turn *turn = channel->turn;
	const char *method = NULL;
	struct buf params;

	turn->session_ms = loop_now_ms();
	buf_init(&params, 64u << 10);
	if (channel->next_model.len > 0)
		method = channel_model_request(channel, buf_slice(&channel->next_model),
					       &params);
	buf_clear(&channel->next_model);
	if (method) {
		turn->phase = TURN_SETTING_MODEL;
		acp_call(turns->acp, method, buf_slice(&params), channel, SET_TIMEOUT_MS,
			 on_model_answer, step_create(turns, channel));
	} else {
		dispatch(turns, channel);
	}
	buf_finish(&params);
}

static void report_session(struct turns *turns, const struct channel *channel,
			   bool is_new)
{
	struct feed_context context = report_context(channel);
	struct buf payload;

	report_begin(&payload);
	(void)json_write_member_string(&payload, SLICE("sessionId"),
				       buf_slice(&channel->session));
	(void)json_write_member_bool(&payload, SLICE("isNew"), is_new);
	if (is_new)
		channel_write_offers(channel, &payload, 4 * CHANNEL_OFFER_MAX);
	if (channel->title.len)
		(void)buf_printf(&payload, ",\"title\":\"%.*s\"",
				 SLICE_ARG(buf_slice(&channel->title)));
	report_end(turns->options.sender, &context, "session_resolved", &payload);
}

static void on_session_answer(void *ctx, const struct acp_answer *answer)
{
	struct step *step = ctx;
	struct turns *turns = step->turns;
	struct channel *channel = step->channel;

	free(step);
	channel->state = SESSION_NONE;
	if (answer->ok && channel_open_session(channel, answer->result)) {
		report_session(turns, channel, true);
		if (channel->turn)
			go_on(turns, channel);
		else
			pump(turns, channel);
		return;
	}
	if (answer->failure != ACP_GONE || channel->turn)
		report_answer(turns, channel, answer, "session/new");
	if (channel->turn)
		end_turn(turns, channel, SLICE_EMPTY,
			 answer->failure == ACP_GONE ? "exit" : NULL);
}

static void open_session(struct turns *turns, struct channel *channel)
{
	struct buf params;

	channel->state = SESSION_OPENING;
	report_begin(&params);
	(void)json_write_member_string(&params, SLICE("cwd"),
				       slice_of(turns->options.cwd));
	(void)json_write_member_raw(&params, SLICE("mcpServers"), SLICE("[]"));
	(void)buf_lit(&params, "}");
	acp_call(turns->acp, "session/new", buf_slice(&params), channel,
		 SESSION_TIMEOUT_MS, on_session_answer, step_create(turns, channel));
	buf_finish(&params);
}

static void report_started(struct turns *turns, const struct channel *channel)
{
	const struct turn *turn = channel->turn;
	struct feed_context context = report_context(channel);
	struct buf payload, head;

	report_begin(&payload);
	(void)json_write_member_string(&payload, SLICE("promptId"),
				       slice_of(turn->prompt->id));
	if (turn->prompt->request_id.len)
		(void)buf_printf(&payload, ",\"requestId\":\"%.*s\"",
				 SLICE_ARG(buf_slice(&turn->prompt->request_id)));
	(void)json_write_member_string(&payload, SLICE("source"),
				       slice_of(turn->prompt->source));
	(void)json_write_member_int(&payload, SLICE("queuedMs"),
				    turn->clock.started_ms - turn->prompt->queued_ms);
	buf_init(&head, PROMPT_HEAD_BYTES);
	prompt_head(buf_slice(&turn->prompt->content), PROMPT_HEAD_BYTES, &head);
	if (head.len)
		(void)json_write_member_string(&payload, SLICE("text"), buf_slice(&head));
	buf_finish(&head);
	report_end(turns->options.sender, &context, "turn_started", &payload);
}

/* Starts the next prompt of @channel if it may. */
static void pump(struct turns *turns, struct channel *channel)
{
	struct turn *turn;

	if (channel->turn || channel->held || !channel->first || !turns->ready)
		return;
	turn = mem_alloc(sizeof(*turn));
	turn->prompt = channel_pop(channel);
	turn->serial = ++turns->serial;
	turn->started_unix_ms = loop_unix_ms();
	map_init(&turn->tools);
	report_uuid(turn->id);
	turn_clock_start(&turn->clock, turns->options.idle_ms, turns->options.hard_ms,
			 loop_now_ms());
	channel->turn = turn;
	arm(turns);
	report_started(turns, channel);
	if (channel->state == SESSION_OPEN) {
		report_session(turns, channel, false);
		go_on(turns, channel);
	} else if (channel->state == SESSION_NONE) {
		open_session(turns, channel);
	}
}

/* --- Cancelling --- */

static void cancel(struct turns *turns, struct channel *channel, const char *by)
{
	struct turn *turn = channel->turn;
	struct buf params;

	if (turn->cancelled_by)
		return;
	turn->cancelled_by = by;
	if (turn->phase != TURN_RUNNING) { /* the agent knows nothing of it yet */
		end_turn(turns, channel, SLICE_EMPTY, by);
		return;
	}
	turn->clock.cancelled_ms = loop_now_ms();
	/* First the cancel, then the answers: in this order real agents end the turn
	 * (facts/acp.md §8). */
	report_begin(&params);
	(void)json_write_member_string(&params, SLICE("sessionId"),
				       buf_slice(&channel->session));
	(void)buf_lit(&params, "}");
	acp_notify(turns->acp, "session/cancel", buf_slice(&params), channel);
	buf_finish(&params);
	asks_cancel(turns->asks, channel);
	arm(turns);
}

static void give_up(struct turns *turns, struct channel *channel)
{
	struct turn *turn = channel->turn;

	log_warn("agent", "did not end a cancelled turn within %d s: it is replaced",
		 TURN_CANCEL_GRACE_MS / 1000);
	report_error_text(turns, channel, "timeout",
			  "the agent did not end the cancelled turn; it is replaced");
	turns->ready = false;
	turn->requeue = false;
	end_turn(turns, channel, SLICE_EMPTY, turn->cancelled_by);
	turns->options.events->on_stuck(turns->options.ctx);
}

static void report_liveness(struct turns *turns, struct channel *channel, int64_t now_ms)
{
	struct turn *turn = channel->turn;
	struct feed_context context = report_context(channel);
	struct buf payload;

	turn->clock.liveness_ms = now_ms;
	report_begin(&payload);
	(void)json_write_member_int(&payload, SLICE("elapsedMs"),
				    now_ms - turn->clock.started_ms);
	(void)json_write_member_int(&payload, SLICE("openTools"),
				    (int64_t)turn->tools.count);
	(void)json_write_member_int(&payload, SLICE("openPermissions"),
				    (int64_t)asks_pending(turns->asks, channel));
	(void)json_write_member_int(&payload, SLICE("intervalMs"), TURN_LIVENESS_MS);
	report_end(turns->options.sender, &context, "turn_liveness", &payload);
}

static void on_timer(void *ctx)
{
	struct turns *turns = ctx;
	int64_t now_ms = loop_now_ms();

	for (size_t i = 0; i < turns->channel_count; i++) {
		struct channel *channel = &turns->channels[i];

		if (!channel->turn)
			continue;
		switch (turn_clock_due(&channel->turn->clock, now_ms)) {
		case TURN_NOTHING_DUE:
			break;
		case TURN_LIVENESS:
			report_liveness(turns, channel, now_ms);
			break;
		case TURN_IDLE_OVER:
			report_error_text(
				turns, channel, "timeout",
				"nothing came from the agent within --idle-timeout");
			cancel(turns, channel, "timeout");
			break;
		case TURN_HARD_OVER:
			report_error_text(turns, channel, "timeout",
					  "the turn took longer than --turn-timeout");
			cancel(turns, channel, "timeout");
			break;
		case TURN_CANCEL_OVER:
			give_up(turns, channel);
			break;
		}
	}
	arm(turns);
}

/* --- Life --- */

struct turns *turns_create(const struct turns_options *options)
{
	struct turns *turns = mem_alloc(sizeof(*turns));
	struct asks_options asks = {
		.loop = options->loop,
		.sender = options->sender,
		.policy = options->policy,
		.timeout_ms = options->permission_ms,
		.on_change = on_asks_change,
		.ctx = turns,
	};

	turns->options = *options;
	turns->timer = timer_create_on(options->loop, on_timer, turns);
	turns->asks = asks_create(&asks);
	buf_init(&turns->auth_methods, 64u << 10);
	return turns;
}

void turns_destroy(struct turns *turns)
{
	if (!turns)
		return;
	for (size_t i = 0; i < turns->channel_count; i++) {
		struct turn *turn = turns->channels[i].turn;

		if (turn) {
			prompt_destroy(turn->prompt);
			map_finish(&turn->tools);
			free(turn);
			turns->channels[i].turn = NULL;
		}
		channel_finish(&turns->channels[i]);
	}
	asks_destroy(turns->asks);
	timer_destroy(turns->timer);
	buf_finish(&turns->auth_methods);
	free(turns);
}

void turns_add_channel(struct turns *turns, const char *name, const struct uuid *uuid)
{
	assert(turns->channel_count < CHANNELS_MAX);
	channel_init(&turns->channels[turns->channel_count++], name, uuid);
}

struct channel *turns_channel(struct turns *turns, struct slice text)
{
	struct uuid uuid;

	if (!uuid_parse(text, &uuid))
		return NULL;
	for (size_t i = 0; i < turns->channel_count; i++) {
		if (slice_eq(uuid_slice(&turns->channels[i].uuid), uuid_slice(&uuid)))
			return &turns->channels[i];
	}
	return NULL;
}

struct channel *turns_channel_at(struct turns *turns, size_t index)
{
	return index < turns->channel_count ? &turns->channels[index] : NULL;
}

struct asks *turns_asks(struct turns *turns)
{
	return turns->asks;
}

void turns_set_agent(struct turns *turns, struct acp *acp)
{
	turns->acp = acp;
	asks_set_acp(turns->asks, acp);
}

void turns_agent_ready(struct turns *turns, struct slice auth_methods)
{
	turns->ready = true;
	buf_clear(&turns->auth_methods);
	(void)buf_append(&turns->auth_methods, auth_methods);
	open_session(turns, &turns->channels[0]); /* so that modes and models are known */
	for (size_t i = 0; i < turns->channel_count; i++)
		pump(turns, &turns->channels[i]);
}

void turns_agent_stopping(struct turns *turns)
{
	turns->ready = false;
	for (size_t i = 0; i < turns->channel_count; i++) {
		if (turns->channels[i].turn)
			cancel(turns, &turns->channels[i], "exit");
	}
}

void turns_agent_gone(struct turns *turns, const char *reason)
{
	struct acp *acp = turns->acp;

	turns->ready = false;
	turns->gone_reason = reason;
	asks_set_acp(turns->asks, NULL);
	acp_close(acp); /* ends every turn: each waits for some answer */
	turns->acp = NULL;
	for (size_t i = 0; i < turns->channel_count; i++)
		channel_close_session(&turns->channels[i]);
}

/* --- Lines --- */

/* The channel whose session a line names. While exactly one session is being opened, a
 * stranger's line is that one's: agents speak before they answer session/new. */
static struct channel *find_session(struct turns *turns, struct slice session)
{
	struct channel *opening = NULL;

	if (!session.ptr)
		return NULL;
	for (size_t i = 0; i < turns->channel_count; i++) {
		struct channel *channel = &turns->channels[i];

		if (channel->state == SESSION_OPEN &&
		    json_is(session, buf_slice(&channel->session)))
			return channel;
		if (channel->state != SESSION_OPENING)
			continue;
		if (opening)
			return NULL;
		opening = channel;
	}
	return opening;
}

static bool is_permission(const struct acp_line *line)
{
	return line->shape == ACP_REQUEST &&
	       json_is(line->method, SLICE("session/request_permission"));
}

static bool is_output(struct slice update)
{
	static const struct slice kinds[] = {
		SLICE_INIT("agent_message_chunk"),
		SLICE_INIT("agent_thought_chunk"),
		SLICE_INIT("tool_call"),
		SLICE_INIT("tool_call_update"),
		SLICE_INIT("plan"),
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (json_is(update, kinds[i]))
			return true;
	}
	return false;
}

static void note_first_output(struct turns *turns, struct channel *channel)
{
	struct turn *turn = channel->turn;
	struct feed_context context = report_context(channel);
	struct buf payload;

	turn->first_output_ms = loop_now_ms();
	report_begin(&payload);
	(void)json_write_member_int(&payload, SLICE("afterMs"),
				    turn->first_output_ms - turn->dispatched_ms);
	report_end(turns->options.sender, &context, "turn_first_output", &payload);
}

void turns_read(struct turns *turns, const struct acp_line *line,
		const struct acp_line *raw, size_t bytes, void *route,
		const struct feed_context *elsewhere)
{
	struct channel *channel = route ? route : find_session(turns, line->session);
	struct feed_context context = channel ? report_context(channel) : *elsewhere;

	if (channel && channel->turn && line->shape != ACP_BROKEN)
		channel->turn->clock.heard_ms = loop_now_ms();
	if (is_permission(line))
		asks_read(turns->asks, line, raw, bytes, channel, &context);
	else
		(void)feed_line(sender_feed(turns->options.sender),
				sender_time(turns->options.sender), &context, FEED_READ,
				raw, bytes, SLICE_EMPTY, NULL);
	sender_kick(turns->options.sender);
}

void turns_request(struct turns *turns, const struct acp_line *line)
{
	struct channel *channel = find_session(turns, line->session);
	struct turn *turn = channel ? channel->turn : NULL;
	enum asks_ground ground = ASKS_NO_TURN;
	int64_t left_ms = 0;

	if (is_permission(line)) {
		if (turn && turn->phase == TURN_RUNNING) {
			ground = turn->cancelled_by ? ASKS_CANCELLED : ASKS_TURN;
			left_ms = turn_clock_left(&turn->clock, loop_now_ms());
		}
		asks_request(turns->asks, line, ground, left_ms);
		return;
	}
	if (asks_is_pending(turns->asks, line->id))
		return; /* any answer would settle the permission instead */
	/* Silence would hang the agent: what is not known is refused. */
	acp_refuse(turns->acp, line->id, ACP_METHOD_NOT_FOUND, "method not found",
		   channel);
}

/* Follows which tool calls are open: a call may first be heard of by its update. */
static void note_tool(struct turns *turns, struct channel *channel, struct slice update)
{
	static char open; /* what the map points to: presence is all */
	struct turn *turn = channel->turn;
	struct slice id = lookup_string(update, SLICE("toolCallId"));
	struct slice status = lookup_string(update, SLICE("status"));

	if (id.len == 0 || id.len > TOOL_ID_BYTES_MAX)
		return;
	if (json_is(status, SLICE("completed")) || json_is(status, SLICE("failed")))
		(void)map_take(&turn->tools, id);
	else if (turn->tools.count < TOOLS_MAX)
		(void)map_put(&turn->tools, id, &open);
	look_busy(turns, channel);
}

void turns_notification(struct turns *turns, const struct acp_line *line)
{
	struct channel *channel;
	struct slice update;

	if (!json_is(line->method, SLICE("session/update")) || line->update.len == 0)
		return;
	channel = find_session(turns, line->session);
	if (!channel)
		return;
	if (channel->turn && channel->turn->phase == TURN_RUNNING &&
	    !channel->turn->first_output_ms && is_output(line->update))
		note_first_output(turns, channel);
	if (line->chunk.ptr)
		return; /* text: nothing to keep, and most lines are */
	update = lookup(line->params, SLICE("update"));
	if (channel->turn && (json_is(line->update, SLICE("tool_call")) ||
			      json_is(line->update, SLICE("tool_call_update"))))
		note_tool(turns, channel, update);
	else
		channel_take_update(channel, update);
}

/* --- What the owner asks --- */

enum turns_prompted turns_prompt(struct turns *turns, struct channel *channel,
				 struct slice content, struct slice request_id,
				 const char *source, size_t *position_out)
{
	struct prompt *prompt;

	if (channel->prompt_count >= CHANNEL_PROMPTS_MAX)
		return PROMPT_BUSY;
	prompt = prompt_create(content, request_id, source, loop_now_ms());
	report_uuid(prompt->id);
	channel->held = false;
	channel_push(channel, prompt);
	pump(turns, channel);
	if (channel->turn && channel->turn->prompt == prompt)
		return PROMPT_STARTED;
	*position_out = channel->prompt_count;
	return PROMPT_QUEUED;
}

bool turns_cancel(struct turns *turns, struct channel *channel)
{
	if (channel->turn || channel->first)
		channel->held = true;
	if (!channel->turn)
		return false;
	channel->turn->requeue = false;
	cancel(turns, channel, "owner");
	return true;
}

void turns_release(struct turns *turns, struct channel *channel)
{
	channel->held = false;
	pump(turns, channel);
}

bool turns_idle(const struct turns *turns)
{
	for (size_t i = 0; i < turns->channel_count; i++) {
		const struct channel *channel = &turns->channels[i];

		if (channel->turn || (channel->first && !channel->held))
			return false;
	}
	return true;
}

/* A set_mode or switch_model on its way. */
struct setting {
	struct channel *channel;
	struct buf mode; /* plain; empty: it is a model */
	turns_on_set *on_set;
	void *ctx;
};

static void on_setting_answer(void *ctx, const struct acp_answer *answer)
{
	struct setting *setting = ctx;
	struct channel *channel = setting->channel;
	struct buf detail;

	buf_init(&detail, 1024);
	if (answer->ok) {
		channel_take_config(channel, answer->result);
		if (setting->mode.len) {
			buf_clear(&channel->mode);
			(void)json_write_chars(&channel->mode, buf_slice(&setting->mode));
		}
	} else if (answer->message.ptr) {
		(void)json_unescape(slice_sub(answer->message, 0, 512), &detail);
	} else {
		(void)buf_append(&detail, answer->failure == ACP_TIMED_OUT
						  ? SLICE("the agent did not answer")
						  : SLICE("the agent is gone"));
	}
	setting->on_set(setting->ctx, answer->ok, buf_text(&detail));
	buf_finish(&detail);
	buf_finish(&setting->mode);
	free(setting);
}

static void set(struct turns *turns, struct channel *channel, const char *method,
		const struct buf *params, struct slice mode, turns_on_set *on_set,
		void *ctx)
{
	struct setting *setting = mem_alloc(sizeof(*setting));

	setting->channel = channel;
	setting->on_set = on_set;
	setting->ctx = ctx;
	buf_init(&setting->mode, mode.len);
	(void)buf_append(&setting->mode, mode);
	acp_call(turns->acp, method, buf_slice(params), channel, SET_TIMEOUT_MS,
		 on_setting_answer, setting);
}

bool turns_set_mode(struct turns *turns, struct channel *channel, struct slice mode,
		    turns_on_set *on_set, void *ctx)
{
	const char *method = NULL;
	struct buf params;

	buf_init(&params, 64u << 10);
	if (turns->acp && channel->state == SESSION_OPEN)
		method = channel_mode_request(channel, mode, &params);
	if (method)
		set(turns, channel, method, &params, mode, on_set, ctx);
	buf_finish(&params);
	return method != NULL;
}

const char *turns_switch_model(struct turns *turns, struct channel *channel,
			       struct slice model, turns_on_set *on_set, void *ctx)
{
	const char *method, *status = NULL;
	struct turn *turn = channel->turn;
	struct buf params;

	if (!turns->acp || channel->state != SESSION_OPEN)
		return "no_active_turn";
	if (turn && turn->cancelled_by)
		return "turn_ending";
	buf_init(&params, 64u << 10);
	method = channel_model_request(channel, model, &params);
	if (!method) {
		status = "unsupported_model";
	} else if (turn) {
		/* NIP-AO: a busy turn is cancelled and runs again with the new model. */
		buf_clear(&channel->next_model);
		(void)buf_append(&channel->next_model, model);
		turn->requeue = true;
		cancel(turns, channel, "owner");
		status = "sent";
	} else {
		set(turns, channel, method, &params, SLICE_EMPTY, on_set, ctx);
	}
	buf_finish(&params);
	return status;
}

/* --- feed_state --- */

static void write_channel(const struct channel *channel, struct buf *out)
{
	(void)json_write_member_string(out, SLICE("id"), uuid_slice(&channel->uuid));
	report_member(out, SLICE("name"), slice_of(channel->name));
	(void)json_write_member_int(out, SLICE("queued"), (int64_t)channel->prompt_count);
	(void)json_write_member_bool(out, SLICE("held"), channel->held);
}

static void write_session(const struct channel *channel, size_t end, struct buf *out)
{
	(void)json_write_member_string(out, SLICE("sessionId"),
				       buf_slice(&channel->session));
	(void)json_write_member_string(out, SLICE("channelId"),
				       uuid_slice(&channel->uuid));
	(void)json_write_member_int(out, SLICE("slot"), 0);
	if (channel->title.len)
		(void)buf_printf(out, ",\"title\":\"%.*s\"",
				 SLICE_ARG(buf_slice(&channel->title)));
	channel_write_offers(channel, out, end);
}

void turns_write_state(const struct turns *turns, struct buf *out)
{
	size_t end = out->len + STATE_OFFERS_MAX;
	const struct channel *channels = turns->channels;
	bool first = true;

	(void)json_write_key(out, SLICE("channels"));
	(void)buf_lit(out, "[");
	for (size_t i = 0; i < turns->channel_count; i++) {
		(void)buf_append(out, i ? SLICE(",{") : SLICE("{"));
		write_channel(&channels[i], out);
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
	(void)json_write_key(out, SLICE("sessions"));
	(void)buf_lit(out, "[");
	for (size_t i = 0; i < turns->channel_count; i++) {
		if (channels[i].state != SESSION_OPEN)
			continue;
		(void)buf_append(out, first ? SLICE("{") : SLICE(",{"));
		write_session(&channels[i], end, out);
		(void)buf_lit(out, "}");
		first = false;
	}
	(void)buf_lit(out, "]");
	(void)json_write_key(out, SLICE("turns"));
	(void)buf_lit(out, "[");
	first = true;
	for (size_t i = 0; i < turns->channel_count; i++) {
		const struct turn *turn = channels[i].turn;

		if (!turn)
			continue;
		(void)buf_append(out, first ? SLICE("{") : SLICE(",{"));
		(void)json_write_member_string(out, SLICE("turnId"), slice_of(turn->id));
		(void)json_write_member_string(out, SLICE("channelId"),
					       uuid_slice(&channels[i].uuid));
		(void)json_write_member_int(out, SLICE("sinceMs"), turn->started_unix_ms);
		(void)buf_lit(out, "}");
		first = false;
	}
	(void)buf_lit(out, "]");
	(void)json_write_key(out, SLICE("pending"));
	(void)buf_lit(out, "[");
	asks_write_state(turns->asks, out, loop_unix_ms());
	(void)buf_lit(out, "]");
}
