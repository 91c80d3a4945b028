#include "agent/turn.h"

#include <stdlib.h>

#include "agent/failure.h"
#include "agent/lookup.h"
#include "agent/report.h"
#include "agent/session.h"
#include "agent/turns_part.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"
#include "wire/nostr/json.h"

/* Open tool calls that are remembered of one turn; our choice. */
#define TOOLS_MAX 1024
/* A longer id of a tool call is not followed; our choice. */
#define TOOL_ID_BYTES_MAX 1024
/* Of a prompt's text, in turn_started: payloads.md. */
#define PROMPT_HEAD_BYTES 200

/* --- The end of a turn --- */

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
void turn_end(struct turns *turns, struct channel *channel, struct slice result,
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

	asks_cancel(turns_peer_of(turns, channel)->asks, channel);
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
	turns_arm(turns);
	if (!requeue)
		turns->options.events->on_turn_end(turns->options.ctx, by_itself);
	turn_pump(turns, channel);
}

/* --- Its way --- */

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
		turn_end(turns, channel, answer->result, turn->cancelled_by);
		return;
	}
	if (answer->ok && lookup_string(answer->result, SLICE("stopReason")).ptr) {
		turn_end(turns, channel, answer->result, NULL);
		return;
	}
	failure_answer(turns, channel, answer, "session/prompt");
	turn_end(turns, channel, SLICE_EMPTY,
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
	acp_call(turns_peer_of(turns, channel)->acp, "session/prompt", buf_slice(&params),
		 channel, 0, on_prompt_answer, step_create(turns, channel));
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
		(void)channel_take_model(channel, buf_slice(&channel->next_model),
					 answer->result);
	buf_clear(&channel->next_model);
	if (!turn)
		return;
	if (answer->failure == ACP_GONE) {
		failure_answer(turns, channel, answer, "the change of model");
		turn_end(turns, channel, SLICE_EMPTY, "exit");
		return;
	}
	if (!answer->ok) /* the prompt is still wanted */
		failure_answer(turns, channel, answer, "the change of model");
	dispatch(turns, channel);
}

/* Moves a turn on whose session is open. */
void turn_go_on(struct turns *turns, struct channel *channel)
{
	struct turn *turn = channel->turn;
	const char *method = NULL;
	struct buf params;

	turn->session_ms = loop_now_ms();
	buf_init(&params, 64u << 10);
	if (channel->next_model.len > 0)
		method = channel_model_request(channel, buf_slice(&channel->next_model),
					       &params);
	if (method) {
		turn->phase = TURN_SETTING_MODEL;
		acp_call(turns_peer_of(turns, channel)->acp, method, buf_slice(&params),
			 channel, TURNS_SET_TIMEOUT_MS, on_model_answer,
			 step_create(turns, channel));
	} else {
		buf_clear(&channel->next_model);
		dispatch(turns, channel);
	}
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
void turn_pump(struct turns *turns, struct channel *channel)
{
	struct peer *peer = turns_peer_of(turns, channel);
	struct turn *turn;

	if (channel->turn || channel->held || !channel->first || !peer->ready)
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
	turns_arm(turns);
	report_started(turns, channel);
	if (channel->state == SESSION_OPEN) {
		session_report(turns, channel);
		turn_go_on(turns, channel);
	} else if (channel->state == SESSION_NONE) {
		session_want(turns, channel);
	}
}

/* --- Cancelling --- */

void turn_cancel(struct turns *turns, struct channel *channel, const char *by)
{
	struct turn *turn = channel->turn;
	struct buf params;

	if (turn->cancelled_by)
		return;
	turn->cancelled_by = by;
	if (turn->phase != TURN_RUNNING) { /* the agent knows nothing of it yet */
		turn_end(turns, channel, SLICE_EMPTY, by);
		return;
	}
	turn->clock.cancelled_ms = loop_now_ms();
	/* First the cancel, then the answers: in this order real agents end the turn
	 * (facts/acp.md §8). */
	report_begin(&params);
	(void)json_write_member_string(&params, SLICE("sessionId"),
				       buf_slice(&channel->session));
	(void)buf_lit(&params, "}");
	acp_notify(turns_peer_of(turns, channel)->acp, "session/cancel",
		   buf_slice(&params), channel);
	buf_finish(&params);
	asks_cancel(turns_peer_of(turns, channel)->asks, channel);
	turns_arm(turns);
}

static void give_up(struct turns *turns, struct channel *channel)
{
	struct turn *turn = channel->turn;

	log_warn("agent", "did not end a cancelled turn within %d s: it is replaced",
		 TURN_CANCEL_GRACE_MS / 1000);
	failure_text(turns, channel, "timeout",
		     "the agent did not end the cancelled turn; it is replaced");
	turns_peer_of(turns, channel)->ready = false;
	turn->requeue = false;
	turn_end(turns, channel, SLICE_EMPTY, turn->cancelled_by);
	turns->options.events->on_stuck(turns->options.ctx, channel->slot);
}

/* --- What is due, what is heard --- */

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
	(void)json_write_member_int(
		&payload, SLICE("openPermissions"),
		(int64_t)asks_pending(turns_peer_of(turns, channel)->asks, channel));
	(void)json_write_member_int(&payload, SLICE("intervalMs"), TURN_LIVENESS_MS);
	report_end(turns->options.sender, &context, "turn_liveness", &payload);
}

/* @kind: agent_stalled or agent_resumed. */
static void report_silence(struct turns *turns, const struct channel *channel,
			   const char *kind, int64_t now_ms)
{
	struct feed_context context = report_context(channel);
	struct buf payload;

	report_begin(&payload);
	(void)json_write_member_int(&payload, SLICE("slot"), channel->slot);
	(void)json_write_member_string(&payload, SLICE("reason"), SLICE("silent"));
	(void)json_write_member_int(&payload, SLICE("sinceMs"),
				    now_ms - channel->turn->clock.heard_ms);
	report_end(turns->options.sender, &context, kind, &payload);
}

void turn_note_frame(struct turns *turns, struct channel *channel)
{
	struct turn_clock *clock = &channel->turn->clock;
	const int64_t now_ms = loop_now_ms();

	if (clock->silent)
		report_silence(turns, channel, "agent_resumed", now_ms);
	clock->silent = false;
	clock->heard_ms = now_ms;
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

/* Follows which tool calls are open: a call may first be heard of by its update, and an
 * update says only what is new. */
static void note_tool(struct turns *turns, struct channel *channel, struct slice update)
{
	struct turn *turn = channel->turn;
	struct slice id = lookup_string(update, SLICE("toolCallId"));
	struct slice status = lookup_string(update, SLICE("status"));
	struct slice kind = lookup_string(update, SLICE("kind"));

	if (id.len == 0 || id.len > TOOL_ID_BYTES_MAX)
		return;
	if (json_is(status, SLICE("completed")) || json_is(status, SLICE("failed")))
		(void)map_take(&turn->tools, id);
	else if (map_get(&turn->tools, id) ? kind.ptr != NULL
					   : turn->tools.count < TOOLS_MAX)
		(void)map_put(&turn->tools, id, tool_kind_mark(tool_kind_parse(kind)));
	turns_look_busy(turns, channel);
}

void turn_note_update(struct turns *turns, struct channel *channel, struct slice kind,
		      struct slice update)
{
	struct turn *turn = channel->turn;

	if (!turn || turn->phase != TURN_RUNNING)
		return;
	if (!turn->first_output_ms && is_output(kind))
		note_first_output(turns, channel);
	if (json_is(kind, SLICE("tool_call")) || json_is(kind, SLICE("tool_call_update")))
		note_tool(turns, channel, update);
}

void turn_look(struct turns *turns, struct channel *channel, int64_t now_ms)
{
	if (!channel->turn)
		return;
	switch (turn_clock_due(&channel->turn->clock, now_ms)) {
	case TURN_NOTHING_DUE:
		return;
	case TURN_LIVENESS:
		report_liveness(turns, channel, now_ms);
		return;
	case TURN_SILENT:
		channel->turn->clock.silent = true;
		report_silence(turns, channel, "agent_stalled", now_ms);
		return;
	case TURN_IDLE_OVER:
		failure_text(turns, channel, "timeout",
			     "nothing came from the agent within --idle-timeout");
		turn_cancel(turns, channel, "timeout");
		return;
	case TURN_HARD_OVER:
		failure_text(turns, channel, "timeout",
			     "the turn took longer than --turn-timeout");
		turn_cancel(turns, channel, "timeout");
		return;
	case TURN_CANCEL_OVER:
		give_up(turns, channel);
		return;
	}
}

void turn_drop(struct channel *channel)
{
	struct turn *turn = channel->turn;

	if (!turn)
		return;
	channel->turn = NULL;
	prompt_destroy(turn->prompt);
	map_finish(&turn->tools);
	free(turn);
}
