#include "agent/steer.h"

#include <stdlib.h>
#include <string.h>

#include "agent/report.h"
#include "wire/base/arena.h"
#include "wire/base/mem.h"
#include "wire/frame/control.h"
#include "wire/host/log.h"
#include "wire/nostr/json.h"

/* An option or model id longer than that is not repeated in the answer; the others are
 * short by control_parse()'s rule. Our choice: what is remembered must stay small. */
#define ECHO_MAX 1024

struct steer {
	struct turns *turns;
	struct sender *sender;
	struct gate gate;
	struct arena arena;
};

/* Whom an answer goes to: what of a control its control_result repeats. Strings are JSON
 * string content as sent; own memory, as some answers come later. */
struct asker {
	struct steer *steer;
	struct buf key; /* the gate's */
	struct buf type, request_id, nonce, option_id, model_id, channel_id;
	bool remembered; /* the gate keeps the answer */
};

static void keep(struct buf *buf, struct slice value)
{
	if (value.len > ECHO_MAX)
		value = SLICE_EMPTY;
	buf_init(buf, value.len);
	(void)buf_append(buf, value);
}

static struct asker *asker_create(struct steer *steer, const struct control *control,
				  const uint8_t event_id[32], bool remembered)
{
	struct asker *asker = mem_alloc(sizeof(*asker));

	asker->steer = steer;
	asker->remembered = remembered;
	keep(&asker->key, gate_key(control, event_id));
	keep(&asker->type, control->type_name.len ? control->type_name
						  : control_type_name(control->type));
	keep(&asker->request_id, control->request_id);
	keep(&asker->nonce, control->nonce);
	keep(&asker->option_id, control->option_id);
	keep(&asker->model_id, control->model_id);
	keep(&asker->channel_id, control->channel_id);
	return asker;
}

static void asker_destroy(struct asker *asker)
{
	buf_finish(&asker->key);
	buf_finish(&asker->type);
	buf_finish(&asker->request_id);
	buf_finish(&asker->nonce);
	buf_finish(&asker->option_id);
	buf_finish(&asker->model_id);
	buf_finish(&asker->channel_id);
	free(asker);
}

/* Says @payload in the control's channel; what names none leaves with the next tick. */
static void say(struct steer *steer, struct slice channel_id, struct slice payload)
{
	struct channel *channel = turns_channel(steer->turns, channel_id);
	struct feed_context context = {.slot = -1};
	struct uuid uuid;

	if (channel) {
		context = report_context(channel);
	} else if (uuid_parse(channel_id, &uuid)) {
		context.channel = &uuid;
	} else {
		sender_result(steer->sender, payload);
		sender_kick(steer->sender);
		return;
	}
	report_event(steer->sender, &context, "control_result", payload);
}

/* @raw: JSON string content; left out when empty. */
static void write_raw(struct buf *payload, struct slice key, const struct buf *raw)
{
	if (raw->len == 0)
		return;
	(void)json_write_key(payload, key);
	(void)buf_lit(payload, "\"");
	(void)buf_append(payload, buf_slice(raw));
	(void)buf_lit(payload, "\"");
}

/* The one answer to a control; frees @asker. @position 0 and @detail NULL are left out.
 */
static void answer(struct asker *asker, const char *status, size_t position,
		   const char *detail)
{
	struct steer *steer = asker->steer;
	struct buf payload;

	report_begin(&payload);
	write_raw(&payload, SLICE("type"), &asker->type);
	(void)json_write_member_string(&payload, SLICE("status"), slice_of(status));
	write_raw(&payload, SLICE("requestId"), &asker->request_id);
	write_raw(&payload, SLICE("requestNonce"), &asker->nonce);
	write_raw(&payload, SLICE("optionId"), &asker->option_id);
	write_raw(&payload, SLICE("modelId"), &asker->model_id);
	if (position)
		(void)json_write_member_int(&payload, SLICE("position"),
					    (int64_t)position);
	if (detail)
		(void)json_write_member_string(&payload, SLICE("detail"),
					       slice_of(detail));
	(void)buf_lit(&payload, "}");
	if (asker->remembered)
		gate_answered(&steer->gate, buf_slice(&asker->key), buf_slice(&payload));
	log_debug("control", "%.*s: %s", SLICE_ARG(buf_slice(&asker->type)), status);
	say(steer, buf_slice(&asker->channel_id), buf_slice(&payload));
	buf_finish(&payload);
	asker_destroy(asker);
}

/* --- The controls --- */

static void decide(struct steer *steer, struct channel *channel,
		   const struct control *control, struct asker *asker)
{
	struct buf nonce, option;
	const char *status;

	buf_init(&nonce, control->nonce.len);
	buf_init(&option, control->option_id.len);
	(void)json_unescape(control->nonce, &nonce);
	(void)json_unescape(control->option_id, &option);
	status = asks_decide(turns_asks(steer->turns, channel), channel,
			     buf_slice(&nonce), buf_slice(&option));
	buf_finish(&nonce);
	buf_finish(&option);
	answer(asker, status, 0,
	       strcmp(status, "malformed") == 0 ? "that option was not offered" : NULL);
}

static void prompt(struct steer *steer, struct channel *channel,
		   const struct control *control, struct asker *asker)
{
	size_t position = 0;

	if (!prompt_content_valid(control->content)) {
		answer(asker, "malformed", 0,
		       "content is no array of ACP content blocks");
		return;
	}
	switch (turns_prompt(steer->turns, channel, control->content, control->request_id,
			     "owner", &position)) {
	case PROMPT_STARTED:
		answer(asker, "started", 0, NULL);
		return;
	case PROMPT_QUEUED:
		answer(asker, "queued", position, NULL);
		return;
	case PROMPT_BUSY:
		answer(asker, "busy", 0, "too many prompts wait in this channel");
		return;
	}
}

static void on_mode_set(void *ctx, bool ok, const char *detail)
{
	answer(ctx, ok ? "applied" : "unsupported", 0, ok ? NULL : detail);
}

static void on_model_set(void *ctx, bool ok, const char *detail)
{
	answer(ctx, ok ? "switched" : "unsupported_model", 0, ok ? NULL : detail);
}

static void set_mode(struct steer *steer, struct channel *channel,
		     const struct control *control, struct asker *asker)
{
	struct buf mode;

	buf_init(&mode, control->mode_id.len);
	(void)json_unescape(control->mode_id, &mode);
	if (!turns_set_mode(steer->turns, channel, buf_slice(&mode), on_mode_set, asker))
		answer(asker, "unsupported", 0, "the agent offers no such mode");
	buf_finish(&mode);
}

static void switch_model(struct steer *steer, struct channel *channel,
			 const struct control *control, struct asker *asker)
{
	const char *status;
	struct buf model;

	buf_init(&model, control->model_id.len);
	(void)json_unescape(control->model_id, &model);
	status = turns_switch_model(steer->turns, channel, buf_slice(&model),
				    on_model_set, asker);
	buf_finish(&model);
	if (status)
		answer(asker, status, 0, NULL);
}

static void on_body(void *ctx, enum sender_body verdict)
{
	switch (verdict) {
	case SENDER_BODY_COMING:
		answer(ctx, "ok", 0, NULL);
		return;
	case SENDER_BODY_GONE:
		answer(ctx, "refused", 0,
		       "the body of that event is not kept (any more), or it was sent "
		       "whole");
		return;
	case SENDER_BODY_BUSY:
		answer(ctx, "refused", 0, "too many bodies are on their way");
		return;
	}
}

static void fetch_body(struct steer *steer, const struct control *control,
		       struct asker *asker)
{
	struct channel *channel = NULL;
	struct slice whole = SLICE_EMPTY;
	struct feed_context context;

	if (control->has_epoch &&
	    strcmp(control->epoch, sender_epoch(steer->sender)) == 0)
		whole = turns_body(steer->turns, control->seq, &channel);
	/* What waits for an answer is at hand; the journal has the others. */
	if (whole.len == 0 || !channel) {
		sender_fetch_body(steer->sender, control->epoch, control->seq, on_body,
				  asker);
		return;
	}
	context = report_context(channel);
	if (sender_body(steer->sender, &context, control->epoch, control->seq, whole))
		answer(asker, "ok", 0, NULL);
	else
		answer(asker, "refused", 0, "too many bodies are on their way");
}

static void feed_sync(struct steer *steer, const struct control *control,
		      struct asker *asker)
{
	struct err err;

	if (sender_feed_sync(steer->sender, control, &err))
		answer(asker, "ok", 0, NULL);
	else
		answer(asker, "refused", 0, err.text);
}

static void run(struct steer *steer, const struct control *control, struct asker *asker)
{
	struct channel *channel = turns_channel(steer->turns, control->channel_id);

	switch (control->type) {
	case CONTROL_FEED_SYNC:
		feed_sync(steer, control, asker);
		return;
	case CONTROL_FETCH_BODY:
		fetch_body(steer, control, asker);
		return;
	case CONTROL_UNKNOWN:
	case CONTROL_CANCEL_TURN:
	case CONTROL_SWITCH_MODEL:
	case CONTROL_PERMISSION_DECISION:
	case CONTROL_PROMPT:
	case CONTROL_RELEASE_QUEUE:
	case CONTROL_SET_MODE:
		break;
	}
	if (!channel) {
		answer(asker, "no_channel", 0, "this harness has no such channel");
		return;
	}
	switch (control->type) {
	case CONTROL_CANCEL_TURN:
		answer(asker,
		       turns_cancel(steer->turns, channel) ? "sent" : "no_active_turn", 0,
		       NULL);
		return;
	case CONTROL_SWITCH_MODEL:
		switch_model(steer, channel, control, asker);
		return;
	case CONTROL_PERMISSION_DECISION:
		decide(steer, channel, control, asker);
		return;
	case CONTROL_PROMPT:
		prompt(steer, channel, control, asker);
		return;
	case CONTROL_RELEASE_QUEUE:
		turns_release(steer->turns, channel);
		answer(asker, "ok", 0, NULL);
		return;
	case CONTROL_SET_MODE:
		set_mode(steer, channel, control, asker);
		return;
	case CONTROL_FEED_SYNC:
	case CONTROL_FETCH_BODY:
	case CONTROL_UNKNOWN: /* the gate answers these */
		break;
	}
	asker_destroy(asker);
}

void steer_on_control(void *ctx, const uint8_t event_id[32], int64_t created_at,
		      struct slice plaintext)
{
	struct steer *steer = ctx;
	struct control control = {.type = CONTROL_UNKNOWN};
	struct gate_control in = {.control = &control,
				  .event_id = event_id,
				  .created_at = created_at,
				  .clock_offset_s = sender_clock_offset_s(steer->sender)};
	struct slice again = SLICE_EMPTY;
	const char *status = NULL;
	struct err err = {0};
	bool reads, remembered;

	in.now_s = loop_unix_ms() / 1000 + in.clock_offset_s;
	in.malformed = !control_parse(plaintext, &steer->arena, &control, &err);
	reads = control.type == CONTROL_FEED_SYNC || control.type == CONTROL_FETCH_BODY;
	switch (gate_check(&steer->gate, &in, &status, &again)) {
	case GATE_RUN:
		run(steer, &control, asker_create(steer, &control, event_id, !reads));
		break;
	case GATE_ANSWER:
		remembered =
			!in.malformed && !reads && strcmp(status, "rate_limited") != 0;
		answer(asker_create(steer, &control, event_id, remembered), status, 0,
		       in.malformed ? err.text : NULL);
		break;
	case GATE_REPEAT:
		say(steer, control.channel_id, again);
		break;
	case GATE_DROP:
		if (in.malformed)
			log_warn("control", "ignored: %s", err.text);
		break;
	}
	arena_reset(&steer->arena);
}

struct steer *steer_create(struct turns *turns, struct sender *sender,
			   enum control_level level, int64_t epoch_start_s)
{
	struct steer *steer = mem_alloc(sizeof(*steer));

	steer->turns = turns;
	steer->sender = sender;
	gate_init(&steer->gate, level, sender_epoch(sender), epoch_start_s);
	arena_init(&steer->arena, 16u << 10);
	return steer;
}

void steer_destroy(struct steer *steer)
{
	if (!steer)
		return;
	sender_forget_bodies(steer->sender);
	gate_finish(&steer->gate);
	arena_finish(&steer->arena);
	free(steer);
}
