#include "agent/intake.h"

#include <stdlib.h>
#include <string.h>

#include "agent/report.h"
#include "wire/base/arena.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"
#include "wire/nostr/json.h"

/* An option or model id longer than that is not repeated in the answer; the others are
 * short by control_parse()'s rule. Our choice: what is remembered must stay small. */
#define ECHO_MAX 1024

struct intake {
	struct sender *sender;
	struct intake_calls calls;
	struct gate gate;
	struct arena arena;
};

/* Strings are JSON string content as sent. */
struct asker {
	struct intake *intake;
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

static struct asker *asker_create(struct intake *intake, const struct control *control,
				  const uint8_t event_id[32], bool remembered)
{
	struct asker *asker = mem_alloc(sizeof(*asker));

	asker->intake = intake;
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

void asker_drop(struct asker *asker)
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
static void say(struct intake *intake, struct slice channel_id, struct slice payload)
{
	struct feed_context context = {.slot = -1};
	struct uuid uuid;

	if (!uuid_parse(channel_id, &uuid)) {
		sender_result(intake->sender, payload);
		sender_kick(intake->sender);
		return;
	}
	context.channel = &uuid;
	if (intake->calls.find)
		intake->calls.find(intake->calls.ctx, channel_id, &context);
	report_event(intake->sender, &context, "control_result", payload);
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

void asker_answer(struct asker *asker, const char *status, size_t position,
		  const char *detail)
{
	struct intake *intake = asker->intake;
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
		gate_answered(&intake->gate, buf_slice(&asker->key), buf_slice(&payload));
	log_debug("control", "%.*s: %s", SLICE_ARG(buf_slice(&asker->type)), status);
	say(intake, buf_slice(&asker->channel_id), buf_slice(&payload));
	buf_finish(&payload);
	asker_drop(asker);
}

static void run(struct intake *intake, const struct control *control, struct asker *asker)
{
	struct err err;

	if (control->type != CONTROL_FEED_SYNC)
		intake->calls.run(intake->calls.ctx, control, asker);
	else if (sender_feed_sync(intake->sender, control, &err))
		asker_answer(asker, "ok", 0, NULL);
	else
		asker_answer(asker, "refused", 0, err.text);
}

void intake_take(struct intake *intake, const uint8_t event_id[32], int64_t created_at,
		 struct slice plaintext)
{
	struct control control = {.type = CONTROL_UNKNOWN};
	struct gate_control in = {.control = &control,
				  .event_id = event_id,
				  .created_at = created_at,
				  .clock_offset_s =
					  sender_clock_offset_s(intake->sender)};
	struct slice again = SLICE_EMPTY;
	const char *status = NULL;
	struct err err = {0};
	bool reads, remembered;

	in.now_s = loop_unix_ms() / 1000 + in.clock_offset_s;
	in.malformed = !control_parse(plaintext, &intake->arena, &control, &err);
	reads = control.type == CONTROL_FEED_SYNC || control.type == CONTROL_FETCH_BODY;
	switch (gate_check(&intake->gate, &in, &status, &again)) {
	case GATE_RUN:
		run(intake, &control, asker_create(intake, &control, event_id, !reads));
		break;
	case GATE_ANSWER:
		remembered =
			!in.malformed && !reads && strcmp(status, "rate_limited") != 0;
		asker_answer(asker_create(intake, &control, event_id, remembered), status,
			     0, in.malformed ? err.text : NULL);
		break;
	case GATE_REPEAT:
		say(intake, control.channel_id, again);
		break;
	case GATE_DROP:
		if (in.malformed)
			log_warn("control", "ignored: %s", err.text);
		break;
	}
	arena_reset(&intake->arena);
}

struct intake *intake_create(struct sender *sender, enum control_level level,
			     int64_t epoch_start_s, const struct intake_calls *calls)
{
	struct intake *intake = mem_alloc(sizeof(*intake));

	intake->sender = sender;
	intake->calls = *calls;
	gate_init(&intake->gate, level, sender_epoch(sender), epoch_start_s);
	arena_init(&intake->arena, 16u << 10);
	return intake;
}

void intake_destroy(struct intake *intake)
{
	if (!intake)
		return;
	gate_finish(&intake->gate);
	arena_finish(&intake->arena);
	free(intake);
}
