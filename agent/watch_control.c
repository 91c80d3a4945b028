#include "agent/watch_control.h"

#include <stdlib.h>
#include <string.h>

#include "agent/gate.h"
#include "agent/report.h"
#include "wire/base/arena.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"
#include "wire/nostr/json.h"

struct watch_control {
	struct sender *sender;
	watch_body *body;
	void *ctx;
	struct gate gate;
	struct arena arena;
};

/* A control and the name of its event. */
struct asked {
	const struct control *control;
	const uint8_t *event_id;
};

/* In the control's channel; what names none leaves with the next tick. */
static void say(struct watch_control *control, struct slice channel_id,
		struct slice payload)
{
	struct feed_context context = {.slot = -1};
	struct uuid uuid;

	if (!uuid_parse(channel_id, &uuid)) {
		sender_result(control->sender, payload);
		sender_kick(control->sender);
		return;
	}
	context.channel = &uuid;
	report_event(control->sender, &context, "control_result", payload);
}

/* @raw: JSON string content; control_parse() bounds it. */
static void member_raw(struct buf *payload, struct slice key, struct slice raw)
{
	if (raw.len == 0)
		return;
	(void)json_write_key(payload, key);
	(void)buf_lit(payload, "\"");
	(void)buf_append(payload, raw);
	(void)buf_lit(payload, "\"");
}

static void answer(struct watch_control *control, const struct asked *asked,
		   bool remembered, const char *status, const char *detail)
{
	const struct control *what = asked->control;
	struct buf payload;

	report_begin(&payload);
	member_raw(&payload, SLICE("type"),
		   what->type_name.len ? what->type_name : control_type_name(what->type));
	(void)json_write_member_string(&payload, SLICE("status"), slice_of(status));
	member_raw(&payload, SLICE("requestId"), what->request_id);
	member_raw(&payload, SLICE("requestNonce"), what->nonce);
	if (detail)
		(void)json_write_member_string(&payload, SLICE("detail"),
					       slice_of(detail));
	(void)buf_lit(&payload, "}");
	if (remembered)
		gate_answered(&control->gate, gate_key(what, asked->event_id),
			      buf_slice(&payload));
	say(control, what->channel_id, buf_slice(&payload));
	buf_finish(&payload);
}

static void fetch_body(struct watch_control *control, const struct asked *asked)
{
	const struct control *what = asked->control;
	struct feed_context context;
	struct slice whole = SLICE_EMPTY;

	if (what->has_epoch && strcmp(what->epoch, sender_epoch(control->sender)) == 0)
		whole = control->body(control->ctx, what->seq, &context);
	if (whole.len == 0)
		answer(control, asked, false, "refused",
		       "the body of that event is not kept (any more)");
	else if (sender_body(control->sender, &context, what->epoch, what->seq, whole))
		answer(control, asked, false, "ok", NULL);
	else
		answer(control, asked, false, "refused",
		       "too many bodies are on their way");
}

static void run(struct watch_control *control, const struct asked *asked)
{
	struct err err;

	switch (asked->control->type) {
	case CONTROL_FEED_SYNC:
		if (sender_feed_sync(control->sender, asked->control, &err))
			answer(control, asked, false, "ok", NULL);
		else
			answer(control, asked, false, "refused", err.text);
		return;
	case CONTROL_FETCH_BODY:
		fetch_body(control, asked);
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
	answer(control, asked, true, "unsupported", "this harness only watches");
}

void watch_control_take(struct watch_control *control, const uint8_t event_id[32],
			int64_t created_at, struct slice plaintext)
{
	struct control what = {.type = CONTROL_UNKNOWN};
	const struct asked asked = {&what, event_id};
	struct gate_control in = {.control = &what,
				  .event_id = event_id,
				  .created_at = created_at,
				  .clock_offset_s =
					  sender_clock_offset_s(control->sender)};
	struct slice again = SLICE_EMPTY;
	const char *status = NULL;
	struct err err = {0};
	bool reads;

	in.now_s = loop_unix_ms() / 1000 + in.clock_offset_s;
	in.malformed = !control_parse(plaintext, &control->arena, &what, &err);
	reads = what.type == CONTROL_FEED_SYNC || what.type == CONTROL_FETCH_BODY;
	switch (gate_check(&control->gate, &in, &status, &again)) {
	case GATE_RUN:
		run(control, &asked);
		break;
	case GATE_ANSWER:
		answer(control, &asked,
		       !in.malformed && !reads && strcmp(status, "rate_limited") != 0,
		       status, in.malformed ? err.text : NULL);
		break;
	case GATE_REPEAT:
		say(control, what.channel_id, again);
		break;
	case GATE_DROP:
		if (in.malformed)
			log_warn("control", "ignored: %s", err.text);
		break;
	}
	arena_reset(&control->arena);
}

struct watch_control *watch_control_create(struct sender *sender, watch_body *body,
					   void *ctx)
{
	struct watch_control *control = mem_alloc(sizeof(*control));

	control->sender = sender;
	control->body = body;
	control->ctx = ctx;
	/* Nothing is refused for its level: the answer is that it cannot be done. */
	gate_init(&control->gate, CONTROL_LEVEL_FULL, sender_epoch(sender),
		  sender_started_ms(sender) / 1000);
	arena_init(&control->arena, 16u << 10);
	return control;
}

void watch_control_destroy(struct watch_control *control)
{
	if (!control)
		return;
	gate_finish(&control->gate);
	arena_finish(&control->arena);
	free(control);
}
