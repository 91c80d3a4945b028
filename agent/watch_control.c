#include "agent/watch_control.h"

#include <stdlib.h>
#include <string.h>

#include "agent/intake.h"
#include "wire/base/mem.h"

struct watch_control {
	struct sender *sender;
	struct intake *intake;
	watch_body *body;
	void *ctx;
};

static void fetch_body(struct watch_control *watch, const struct control *control,
		       struct asker *asker)
{
	struct feed_context context;
	struct slice whole = SLICE_EMPTY;

	if (control->has_epoch &&
	    strcmp(control->epoch, sender_epoch(watch->sender)) == 0)
		whole = watch->body(watch->ctx, control->seq, &context);
	if (whole.len == 0)
		asker_answer(asker, "refused", 0,
			     "the body of that event is not kept (any more)");
	else if (sender_body(watch->sender, &context, control->epoch, control->seq,
			     whole))
		asker_answer(asker, "ok", 0, NULL);
	else
		asker_answer(asker, "refused", 0, "too many bodies are on their way");
}

static void run(void *ctx, const struct control *control, struct asker *asker)
{
	if (control->type == CONTROL_FETCH_BODY)
		fetch_body(ctx, control, asker);
	else
		asker_answer(asker, "unsupported", 0, "this harness only watches");
}

void watch_control_take(struct watch_control *control, const uint8_t event_id[32],
			int64_t created_at, struct slice plaintext)
{
	intake_take(control->intake, event_id, created_at, plaintext);
}

struct watch_control *watch_control_create(struct sender *sender, watch_body *body,
					   void *ctx)
{
	struct watch_control *control = mem_alloc(sizeof(*control));
	const struct intake_calls calls = {.run = run, .ctx = control};

	control->sender = sender;
	control->body = body;
	control->ctx = ctx;
	/* Nothing is refused for its level: the answer is that it cannot be done. */
	control->intake = intake_create(sender, CONTROL_LEVEL_FULL,
					sender_started_ms(sender) / 1000, &calls);
	return control;
}

void watch_control_destroy(struct watch_control *control)
{
	if (!control)
		return;
	intake_destroy(control->intake);
	free(control);
}
