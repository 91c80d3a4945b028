#include <inttypes.h>

#include "agent/sender_part.h"
#include "wire/frame/limits.h"

/* "backs off (1 s doubling to 30 s)" */
#define HOLD_FIRST_MS 1000
#define HOLD_MAX_MS 30000
/* After the relay has closed the subscription to controls: our choice. */
#define RESUBSCRIBE_MS 15000
#define LEARN_AGAIN_MS 60000 /* between two connections made to learn its clock */
/* Of the subscription to what the owner sends. */
#define SUB_ID SLICE("control")

void sender_subscribe(struct sender *sender)
{
	struct buf filter;

	sender->resubscribe_ms = -1;
	buf_init(&filter, 512);
	(void)buf_printf(&filter,
			 "{\"kinds\":[%d],\"#p\":[\"%.*s\"],\"authors\":[\"%.*s\"],"
			 "\"since\":$now-300}",
			 FRAME_KIND, (int)sizeof(sender->agent_hex), sender->agent_hex,
			 (int)sizeof(sender->owner_hex), sender->owner_hex);
	link_subscribe(sender->link, SUB_ID, buf_slice(&filter));
	buf_finish(&filter);
}

/* RFC 6455: 1009 is "a message that is too big for it to process". Which of them is not
 * said: the largest that waits for its OK. */
static void on_down(struct sender *sender, struct slice reason)
{
	size_t largest = 0;
	uint64_t number = outbox_first(sender->outbox) - 1;

	if (slice_find_slice(reason, SLICE(" (1009 ")) == reason.len)
		return;
	while (outbox_next(sender->outbox, number + 1, &number)) {
		const struct outbox_frame *frame = outbox_get(sender->outbox, number);

		if (frame->state == OUTBOX_SENT && frame->text.len > largest)
			largest = frame->text.len;
	}
	for (size_t i = 0; i < sender->replay_count; i++)
		if (sender->replays[i].event_bytes > largest)
			largest = sender->replays[i].event_bytes;
	if (largest)
		sender_shrink(sender, largest);
}

static void on_state(void *ctx, enum link_state state, const char *reason,
		     uint64_t retry_ms)
{
	struct sender *sender = ctx;

	(void)retry_ms;
	if (state == LINK_DOWN) {
		on_down(sender, slice_of(reason));
		outbox_disconnect(sender->outbox);
		sender_backfill_disconnect(sender);
	}
	if (state == LINK_READY) {
		sender_learn_limits(sender);
		sender->hold_until_ms = 0;
		sender->resubscribe_ms = -1; /* the link asks anew by itself */
		sender->last_write_ms = loop_now_ms();
	}
	sender_arm(sender);
	sender->options.on_link(sender->options.ctx, state, reason);
}

static void on_event(void *ctx, struct slice sub_id, struct slice event)
{
	struct sender *sender = ctx;
	struct inbox_control control;
	uint64_t silent;
	struct err err;

	(void)sub_id;
	switch (inbox_open(sender->inbox, event, sender_relay_s(sender), &control,
			   &err)) {
	case INBOX_OPENED:
		sender->heard_ms = loop_now_ms();
		sender->options.on_control(sender->options.ctx, control.event_id,
					   control.created_at, control.plaintext);
		inbox_wipe(sender->inbox);
		break;
	case INBOX_IGNORED:
		break;
	case INBOX_REFUSED:
		if (log_limit_pass(&sender->refused, loop_now_ms(), &silent))
			log_warn(SENDER_SUBJECT,
				 "a control was not taken: %s silent=%" PRIu64, err.text,
				 silent);
		break;
	}
}

/* The relay wants it later, or from an authenticated connection. */
bool sender_is_passing(struct slice text)
{
	return slice_starts(text, SLICE("rate-limited:")) ||
	       slice_starts(text, SLICE("auth-required:"));
}

/* Nothing leaves for a while, longer each time until a frame is taken: a relay that takes
 * none is not asked every second for ever. */
void sender_back_off(struct sender *sender)
{
	sender->hold_ms = sender->hold_ms ? 2 * sender->hold_ms : HOLD_FIRST_MS;
	if (sender->hold_ms > HOLD_MAX_MS)
		sender->hold_ms = HOLD_MAX_MS;
	sender->hold_until_ms = loop_now_ms() + sender->hold_ms;
}

bool sender_is_about_time(struct slice text)
{
	return slice_find_slice(text, SLICE("created_at")) < text.len ||
	       slice_find_slice(text, SLICE("event expired")) < text.len;
}

/* Its clock was set, or ours was and it sends no Date: it is asked for the time at the
 * next connection, for which all in flight is sealed anew. */
void sender_learn_time(struct sender *sender)
{
	const int64_t now_ms = loop_now_ms();

	sender_back_off(sender);
	outbox_unseal(sender->outbox);
	/* One whose clock we cannot learn is asked less and less, on one connection. */
	if (sender->learned_ms && now_ms - sender->learned_ms < LEARN_AGAIN_MS)
		return;
	sender->learned_ms = now_ms;
	link_reset(sender->link,
		   "it refuses the time of our frames: asked for its clock");
}

static bool is_too_large(struct sender *sender, const struct outbox_frame *frame,
			 struct slice text)
{
	if (!sender_is_too_large(text))
		return false;
	sender_shrink(sender, frame->text.len);
	return frame->body_bytes > sender->frame_max;
}

static void on_ok(void *ctx, const uint8_t id[32], bool accepted, struct slice text)
{
	struct sender *sender = ctx;
	struct outbox_frame *frame = outbox_find(sender->outbox, id);
	char quoted[LOG_QUOTE_BYTES];

	accepted = accepted || slice_starts(text, SLICE("duplicate:"));
	if (accepted)
		sender->hold_ms = 0;
	if (!frame) {
		if (sender_backfill_ok(sender, id, accepted, text))
			sender_arm(sender);
		return;
	}
	if (accepted) {
		sender->frames_acked++;
		sender_release(sender, frame);
		queue_published(sender->queue, &frame->content);
		outbox_accept(sender->outbox, frame, loop_now_ms());
	} else if (sender_is_passing(text)) {
		frame->state = OUTBOX_UNSENT;
		sender_back_off(sender);
		log_debug(SENDER_SUBJECT, "frame %" PRIu64 " put off: %s", frame->number,
			  log_quote(text, quoted));
	} else if (is_too_large(sender, frame, text)) {
		frame->state = OUTBOX_UNSENT; /* and is split when its tick comes */
	} else if (sender_is_about_time(text)) {
		frame->state = OUTBOX_UNSENT;
		sender_learn_time(sender);
	} else {
		log_warn(SENDER_SUBJECT,
			 "frame %" PRIu64 " refused by the relay, %" PRIu64
			 " events lost: %s",
			 frame->number, frame->content.sources, log_quote(text, quoted));
		sender_lose(sender, frame);
		sender_back_off(sender);
	}
	sender_arm(sender);
}

static void on_closed(void *ctx, struct slice sub_id, struct slice text)
{
	struct sender *sender = ctx;
	char quoted[LOG_QUOTE_BYTES];

	(void)sub_id;
	if (sender->resubscribe_ms >= 0)
		return;
	log_warn(SENDER_SUBJECT, "the relay shows no controls, asked again in %d s: %s",
		 RESUBSCRIBE_MS / 1000, log_quote(text, quoted));
	sender->resubscribe_ms = loop_now_ms() + RESUBSCRIBE_MS;
	sender_arm(sender);
}

static void on_eose(void *ctx, struct slice sub_id)
{
	(void)ctx;
	(void)sub_id;
}

static void on_writable(void *ctx)
{
	sender_arm(ctx);
}

const struct link_events sender_link_events = {
	.on_state = on_state,
	.on_event = on_event,
	.on_ok = on_ok,
	.on_eose = on_eose,
	.on_closed = on_closed,
	.on_writable = on_writable,
};
