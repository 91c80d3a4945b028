#include "agent/steer.h"

#include <stdlib.h>
#include <string.h>

#include "agent/intake.h"
#include "agent/report.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

struct steer {
	struct turns *turns;
	struct sender *sender;
	struct intake *intake;
};

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
	asker_answer(asker, status, 0,
		     strcmp(status, "malformed") == 0 ? "that option was not offered"
						      : NULL);
}

static void prompt(struct steer *steer, struct channel *channel,
		   const struct control *control, struct asker *asker)
{
	size_t position = 0;

	if (!prompt_content_valid(control->content)) {
		asker_answer(asker, "malformed", 0,
			     "content is no array of ACP content blocks");
		return;
	}
	switch (turns_prompt(steer->turns, channel, control->content, control->request_id,
			     "owner", &position)) {
	case PROMPT_STARTED:
		asker_answer(asker, "started", 0, NULL);
		return;
	case PROMPT_QUEUED:
		asker_answer(asker, "queued", position, NULL);
		return;
	case PROMPT_BUSY:
		asker_answer(asker, "busy", 0, "too many prompts wait in this channel");
		return;
	}
}

static void on_mode_set(void *ctx, bool ok, const char *detail)
{
	asker_answer(ctx, ok ? "applied" : "unsupported", 0, ok ? NULL : detail);
}

static void on_model_set(void *ctx, bool ok, const char *detail)
{
	asker_answer(ctx, ok ? "switched" : "unsupported_model", 0, ok ? NULL : detail);
}

static void set_mode(struct steer *steer, struct channel *channel,
		     const struct control *control, struct asker *asker)
{
	struct buf mode;

	buf_init(&mode, control->mode_id.len);
	(void)json_unescape(control->mode_id, &mode);
	if (!turns_set_mode(steer->turns, channel, buf_slice(&mode), on_mode_set, asker))
		asker_answer(asker, "unsupported", 0, "the agent offers no such mode");
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
		asker_answer(asker, status, 0, NULL);
}

static void on_body(void *ctx, enum sender_body verdict)
{
	switch (verdict) {
	case SENDER_BODY_COMING:
		asker_answer(ctx, "ok", 0, NULL);
		return;
	case SENDER_BODY_GONE:
		asker_answer(
			ctx, "refused", 0,
			"the body of that event is not kept (any more), or it was sent "
			"whole");
		return;
	case SENDER_BODY_BUSY:
		asker_answer(ctx, "refused", 0, "too many bodies are on their way");
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
		asker_answer(asker, "ok", 0, NULL);
	else
		asker_answer(asker, "refused", 0, "too many bodies are on their way");
}

static void run(void *ctx, const struct control *control, struct asker *asker)
{
	struct steer *steer = ctx;
	struct channel *channel = turns_channel(steer->turns, control->channel_id);

	if (control->type == CONTROL_FETCH_BODY) {
		fetch_body(steer, control, asker);
		return;
	}
	if (!channel) {
		asker_answer(asker, "no_channel", 0, "this harness has no such channel");
		return;
	}
	switch (control->type) {
	case CONTROL_CANCEL_TURN:
		asker_answer(asker,
			     turns_cancel(steer->turns, channel) ? "sent"
								 : "no_active_turn",
			     0, NULL);
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
		asker_answer(asker, "ok", 0, NULL);
		return;
	case CONTROL_SET_MODE:
		set_mode(steer, channel, control, asker);
		return;
	case CONTROL_FETCH_BODY:
	case CONTROL_FEED_SYNC: /* the intake answers it */
	case CONTROL_UNKNOWN:   /* and the gate these */
		break;
	}
	asker_drop(asker);
}

static void find(void *ctx, struct slice channel_id, struct feed_context *context)
{
	const struct steer *steer = ctx;
	const struct channel *channel = turns_channel(steer->turns, channel_id);

	if (channel)
		*context = report_context(channel);
}

void steer_on_control(void *ctx, const uint8_t event_id[32], int64_t created_at,
		      struct slice plaintext)
{
	const struct steer *steer = ctx;

	intake_take(steer->intake, event_id, created_at, plaintext);
}

struct steer *steer_create(struct turns *turns, struct sender *sender,
			   enum control_level level, int64_t epoch_start_s)
{
	struct steer *steer = mem_alloc(sizeof(*steer));
	const struct intake_calls calls = {.run = run, .find = find, .ctx = steer};

	steer->turns = turns;
	steer->sender = sender;
	steer->intake = intake_create(sender, level, epoch_start_s, &calls);
	return steer;
}

void steer_destroy(struct steer *steer)
{
	if (!steer)
		return;
	sender_forget_bodies(steer->sender);
	intake_destroy(steer->intake);
	free(steer);
}
