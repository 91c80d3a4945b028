#include "agent/sender.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sodium.h>

#include "agent/bodies.h"
#include "agent/epoch.h"
#include "agent/inbox.h"
#include "agent/outbox.h"
#include "agent/pacer.h"
#include "agent/queue.h"
#include "agent/serve.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"
#include "wire/nostr/event.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip44.h"

#define SUBJECT "sender"
/* "A harness silent for 15 s sends its newest frame once more" */
#define SILENCE_MS 15000
/* "backs off (1 s doubling to 30 s)" */
#define HOLD_FIRST_MS 1000
#define HOLD_MAX_MS 30000
/* After the relay has closed the subscription to controls: our choice. */
#define RESUBSCRIBE_MS 15000
/* Results of controls without channel that wait for a tick; at most 10 controls come a
 * second and the owner repeats what is not answered. */
#define RESULTS_MAX 64
/* A feed_state before it is fitted, and what one result may be. */
#define STATE_MAX (1u << 20)
/* Room that a header and separators need beside a payload, at most. */
#define HEADER_ROOM 1024
/* Of the subscription to what the owner sends. */
#define SUB_ID SLICE("control")

struct sender {
	struct loop *loop;
	struct sender_options options; /* slices and context: our copies */
	struct buf auth_tag;
	struct uuid default_channel;
	char owner_hex[2 * KEY_BYTES], agent_hex[2 * KEY_BYTES];
	uint8_t *conversation_key; /* guarded */
	struct buf tags;           /* of every telemetry frame */

	struct link *link;
	struct timer *timer;
	int64_t armed_ms; /* when the timer fires; -1: not armed */
	bool pumping;

	char epoch[EPOCH_LEN + 1];
	int64_t started_unix_ms, started_ms;

	struct queue *queue;
	struct feed *feed;
	struct outbox *outbox;
	struct pacer pacer;
	struct serve serve;
	struct bodies *bodies;
	struct inbox *inbox;

	struct buf results[RESULTS_MAX];
	size_t result_count;
	struct buf direct;  /* texts of the events of a frame that never queued */
	struct buf payload; /* scratch of one of them */
	struct buf repeat;  /* a sealed frame that is not in flight */

	int64_t last_write_ms;
	bool repeated; /* the newest frame was sent once more */
	int64_t hold_until_ms, hold_ms;
	int64_t heard_ms; /* from an observer; -1: never */
	struct log_limit refused;
	int64_t resubscribe_ms; /* -1: subscribed */

	int64_t stop_ms; /* deadline; -1: not stopping */
	void (*stop_done)(void *ctx);
	void *stop_ctx;

	int64_t seal_us;
	uint64_t frames_sent, frames_acked;
};

/* ---- sealing ---- */

static int64_t relay_unix_s(const struct sender *sender)
{
	return (loop_unix_ms() + link_info(sender->link)->clock_offset_ms) / 1000;
}

static int64_t now_us(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Appends the plaintext as a signed event to @out. */
static bool seal(struct sender *sender, struct slice plaintext, struct buf *out,
		 uint8_t id[32], struct err *err)
{
	const struct event_draft draft = {
		.created_at = relay_unix_s(sender),
		.kind = FRAME_KIND,
		.tags = buf_slice(&sender->tags),
	};
	uint8_t nonce[NONCE_BYTES], aux[32];
	const int64_t start_us = now_us();
	bool ok;

	loop_random(nonce, sizeof(nonce));
	loop_random(aux, sizeof(aux));
	ok = event_seal(sender->loop->crypto, sender->options.keypair,
			sender->conversation_key, &draft, plaintext, nonce, aux, out, id,
			err);
	sender->seal_us = now_us() - start_us;
	return ok;
}

/* Tells the budget what this frame in flight holds by now. */
static void hold(struct sender *sender, struct outbox_frame *frame)
{
	const size_t bytes = sizeof(*frame) + frame->plaintext.cap + frame->text.cap;

	queue_release(sender->queue, frame->held_bytes);
	frame->held_bytes = bytes;
	queue_hold(sender->queue, bytes);
}

static void release(struct sender *sender, struct outbox_frame *frame)
{
	queue_release(sender->queue, frame->held_bytes);
	frame->held_bytes = 0;
}

/* The frame is gone for good: counted and reported as a gap. */
static void lose(struct sender *sender, struct outbox_frame *frame)
{
	release(sender, frame);
	queue_lost(sender->queue, &frame->content, &sender->default_channel);
	outbox_refuse(sender->outbox, frame);
}

/* The debug line is what probes/latency reads. */
static void note_write(struct sender *sender, const struct outbox_frame *frame,
		       const char *what)
{
	sender->last_write_ms = loop_now_ms();
	sender->frames_sent++;
	log_debug(SUBJECT,
		  "frame %" PRIu64 " %s events=%" PRIu64 " bytes=%zu sent_us=%" PRId64,
		  frame->number, what, frame->content.sources, frame->plaintext.len,
		  now_us());
}

/* Seals the frame if it has no fresh text, and writes it. */
static void send_frame(struct sender *sender, struct outbox_frame *frame)
{
	const int64_t now_ms = loop_now_ms();
	struct err err;

	if (frame->text.len && frame->sealed_ms + OUTBOX_SEAL_MS <= now_ms) {
		/* "a repeat sealed anew" is marked as replayed. */
		outbox_mark(sender->outbox, frame, true);
		buf_clear(&frame->text);
	}
	if (!frame->text.len) {
		if (!seal(sender, buf_slice(&frame->plaintext), &frame->text, frame->id,
			  &err)) {
			log_warn(SUBJECT, "frame %" PRIu64 " cannot be sealed: %s",
				 frame->number, err.text);
			lose(sender, frame);
			return;
		}
		frame->sealed_ms = now_ms;
	}
	hold(sender, frame);
	if (!link_publish(sender->link, buf_slice(&frame->text)))
		return; /* it stays UNSENT and claims the next tick */
	frame->state = OUTBOX_SENT;
	frame->sent_ms = now_ms;
	note_write(sender, frame, "live");
}

/* A frame once more, sealed anew, besides what is in flight: nobody waits for its OK. */
static void send_again(struct sender *sender, struct outbox_frame *frame)
{
	uint8_t id[32];
	struct err err;

	outbox_mark(sender->outbox, frame, true);
	buf_clear(&sender->repeat);
	if (!seal(sender, buf_slice(&frame->plaintext), &sender->repeat, id, &err))
		log_warn(SUBJECT, "frame %" PRIu64 " cannot be sealed again: %s",
			 frame->number, err.text);
	else if (link_publish(sender->link, buf_slice(&sender->repeat)))
		note_write(sender, frame, "again");
}

/* ---- frames of each claim ---- */

/* A new frame; one that the relay will never take must not keep all since in memory. */
static struct outbox_frame *add_frame(struct sender *sender)
{
	struct outbox_frame *straggler;

	while ((straggler = outbox_straggler(sender->outbox))) {
		log_warn(SUBJECT,
			 "frame %" PRIu64 " has no OK after %d later ones, %" PRIu64
			 " events lost",
			 straggler->number, OUTBOX_NUMBERS_MAX,
			 straggler->content.sources);
		lose(sender, straggler);
	}
	return outbox_add(sender->outbox);
}

static void send_queued(struct sender *sender)
{
	struct outbox_frame *frame = add_frame(sender);
	bool packed;

	packed = queue_pack(sender->queue, FRAME_PACK_MAX, &frame->plaintext,
			    &frame->content);
	assert(packed); /* or it would not have claimed the tick */
	(void)packed;
	outbox_mark(sender->outbox, frame, false);
	sender->repeated = false;
	send_frame(sender, frame);
}

/* Events that never queued, gathered for one frame. */
struct direct {
	struct pack_item items[RESULTS_MAX + OBSERVERS_MAX];
	size_t count;
	struct queue_frame content;
};

/* Writes one more; false, and nothing done, if it may not fit beside the others. */
static bool direct_add(struct sender *sender, struct direct *direct,
		       const struct feed_context *context, struct slice kind,
		       struct slice payload)
{
	const struct feed_time now = sender_time(sender);
	struct queue_frame *content = &direct->content;
	uint64_t seq;

	if (direct->count &&
	    sender->direct.len + payload.len + 2 * HEADER_ROOM > FRAME_PACK_MAX)
		return false;
	seq = feed_write(sender->feed, now, context, kind, payload, &sender->direct,
			 &direct->items[direct->count++]);
	if (!content->sources)
		content->loss.first_ms = now.unix_ms;
	content->sources++;
	content->loss.seq = seq;
	content->loss.unix_ms = now.unix_ms;
	content->loss.monotonic_ms = now.monotonic_ms;
	content->loss.slot = context->slot;
	content->loss.counts[GAP_PUBLISH_FAILURE] = content->sources;
	return true;
}

static void direct_begin(struct sender *sender, struct direct *direct)
{
	*direct = (struct direct){.count = 0};
	buf_clear(&sender->direct);
}

static void direct_send(struct sender *sender, struct direct *direct)
{
	struct outbox_frame *frame = add_frame(sender);
	const char *at = sender->direct.ptr;

	/* The buffer may have moved while it grew. */
	for (size_t i = 0; i < direct->count; i++) {
		direct->items[i].text.ptr = at;
		at += direct->items[i].text.len;
	}
	(void)pack_write(direct->items, direct->count, &frame->plaintext);
	frame->content = direct->content;
	outbox_mark(sender->outbox, frame, false);
	sender->repeated = false;
	send_frame(sender, frame);
}

static void write_epochs(struct sender *sender, struct buf *out)
{
	const struct outbox *outbox = sender->outbox;

	(void)json_write_key(out, SLICE("epochs"));
	(void)buf_printf(
		out, "[{\"epoch\":\"%s\",\"first\":%" PRIu64 ",\"last\":%" PRIu64 "}]",
		sender->epoch, outbox_first(outbox), outbox_last(outbox));
	(void)json_write_key(out, SLICE("gone"));
	(void)buf_printf(out, "[{\"epoch\":\"%s\",\"frames\":", sender->epoch);
	(void)outbox_write_gone(outbox, out);
	(void)buf_lit(out, "}]");
}

static void write_figures(struct sender *sender, struct buf *out)
{
	const struct queue_ledger *ledger = queue_ledger(sender->queue);

	(void)json_write_key(out, SLICE("figures"));
	(void)buf_lit(out, "{");
	(void)json_write_member_int(out, SLICE("queueBytes"),
				    (int64_t)queue_bytes(sender->queue));
	(void)json_write_member_int(out, SLICE("queueEvents"),
				    (int64_t)queue_events(sender->queue));
	(void)json_write_member_int(out, SLICE("inFlight"),
				    (int64_t)outbox_in_flight(sender->outbox));
	(void)json_write_member_int(out, SLICE("sealUs"), sender->seal_us);
	(void)json_write_member_int(out, SLICE("deferred"), (int64_t)ledger->deferred);
	(void)json_write_member_int(out, SLICE("dropped"), (int64_t)ledger->dropped);
	(void)buf_lit(out, "}");
}

/* A feed_state for one observer, into the scratch payload. */
static void write_state(struct sender *sender, const struct serve_observer *observer)
{
	struct buf *out = &sender->payload;

	buf_clear(out);
	(void)buf_lit(out, "{");
	if (observer->request_id[0]) {
		/* As it was sent: escapes are kept. */
		(void)json_write_key(out, SLICE("requestId"));
		(void)buf_printf(out, "\"%s\"", observer->request_id);
	}
	write_epochs(sender, out);
	sender->options.write_state(sender->options.ctx, out);
	write_figures(sender, out);
	(void)buf_lit(out, "}");
}

/* "feed_state and control results ... take the next tick together" */
static void send_state(struct sender *sender)
{
	const struct feed_context none = {.slot = -1};
	struct serve_observer *observer;
	struct direct direct;
	size_t sent = 0;

	outbox_expire(sender->outbox, loop_now_ms());
	direct_begin(sender, &direct);
	while (sent < sender->result_count &&
	       direct_add(sender, &direct, &none, SLICE("control_result"),
			  buf_slice(&sender->results[sent])))
		buf_finish(&sender->results[sent++]);
	sender->result_count -= sent;
	memmove(sender->results, sender->results + sent,
		sender->result_count * sizeof(sender->results[0]));
	while (!sender->result_count && (observer = serve_unanswered(&sender->serve))) {
		write_state(sender, observer);
		if (!buf_ok(&sender->payload)) {
			log_warn(SUBJECT, "feed_state of over %u bytes is not sent",
				 STATE_MAX);
			observer->unanswered = false;
			continue;
		}
		if (!direct_add(sender, &direct, &none, SLICE("feed_state"),
				buf_slice(&sender->payload)))
			break;
		observer->unanswered = false;
	}
	if (direct.count)
		direct_send(sender, &direct);
}

static void send_body_part(struct sender *sender)
{
	struct feed_context context;
	struct direct direct;

	direct_begin(sender, &direct);
	buf_clear(&sender->payload);
	if (!bodies_next(sender->bodies, &context, &sender->payload))
		return;
	(void)direct_add(sender, &direct, &context, SLICE("body_part"),
			 buf_slice(&sender->payload));
	direct.content.has_channel = true;
	direct.content.channel = *context.channel;
	direct_send(sender, &direct);
}

static bool can_send_body(const struct sender *sender)
{
	return !bodies_is_empty(sender->bodies) && !outbox_is_full(sender->outbox);
}

/* Bodies first: a pending permission request's is waited for. */
static void send_backfill(struct sender *sender)
{
	struct outbox_frame *frame;

	if (can_send_body(sender)) {
		send_body_part(sender);
		return;
	}
	frame = serve_next(&sender->serve, sender->outbox);
	if (frame)
		send_again(sender, frame);
}

/* When the newest frame is to be sent once more; -1: it is not. */
static int64_t silence_ms(const struct sender *sender)
{
	const struct outbox_frame *newest =
		outbox_get(sender->outbox, outbox_last(sender->outbox));

	if (sender->repeated || !newest || newest->state != OUTBOX_KEPT)
		return -1;
	return sender->last_write_ms + SILENCE_MS;
}

static void send_resend(struct sender *sender)
{
	struct outbox_frame *frame = outbox_unsent(sender->outbox);

	if (frame) {
		send_frame(sender, frame);
		return;
	}
	sender->repeated = true;
	frame = outbox_get(sender->outbox, outbox_last(sender->outbox));
	if (frame)
		send_again(sender, frame);
}

/* ---- what waits, and when it may leave ---- */

static bool state_waits(struct sender *sender)
{
	return sender->result_count || serve_unanswered(&sender->serve);
}

static unsigned claims_of(struct sender *sender, int64_t now_ms)
{
	const bool room = !outbox_is_full(sender->outbox);
	const int64_t silence = silence_ms(sender);
	unsigned claims = 0;

	if (link_state(sender->link) != LINK_READY || now_ms < sender->hold_until_ms)
		return 0;
	if (room && state_waits(sender))
		claims |= PACER_BIT(PACER_STATE);
	if (room && queue_is_urgent(sender->queue))
		claims |= PACER_BIT(PACER_URGENT);
	if (room && !queue_is_empty(sender->queue))
		claims |= PACER_BIT(PACER_LIVE);
	if (outbox_unsent(sender->outbox) || (silence >= 0 && silence <= now_ms))
		claims |= PACER_BIT(PACER_RESEND);
	if (can_send_body(sender) || serve_is_wanted(&sender->serve, sender->outbox))
		claims |= PACER_BIT(PACER_BACKFILL);
	return claims;
}

/* What the relay offers, but no more than any of ours takes from an agent. */
static uint32_t backfill_rate(const struct sender *sender)
{
	const uint32_t offered = link_info(sender->link)->backfill_per_second;

	return offered < RELAY_FRAMES_PER_S ? offered : RELAY_FRAMES_PER_S;
}

static int64_t sooner(int64_t a, int64_t b)
{
	if (a < 0 || b < 0)
		return a < 0 ? b : a;
	return a < b ? a : b;
}

static bool is_drained(struct sender *sender)
{
	return queue_is_empty(sender->queue) && !outbox_in_flight(sender->outbox) &&
	       !state_waits(sender);
}

static bool is_stopped(struct sender *sender, int64_t now_ms)
{
	return sender->stop_done && (is_drained(sender) || sender->stop_ms <= now_ms);
}

/* When there is something to do; -1: nothing waits, and no timer runs. What is due
 * already is a claim, and the pacer knows its time. */
static int64_t next_ms(struct sender *sender, int64_t now_ms)
{
	int64_t next = pacer_next(&sender->pacer, now_ms, claims_of(sender, now_ms),
				  backfill_rate(sender));

	if (is_stopped(sender, now_ms))
		return now_ms;
	next = sooner(next, sender->stop_ms);
	if (link_state(sender->link) != LINK_READY)
		return next;
	if (now_ms < sender->hold_until_ms)
		next = sooner(next, sender->hold_until_ms);
	else if (silence_ms(sender) > now_ms)
		next = sooner(next, silence_ms(sender));
	return sooner(sooner(next, sender->resubscribe_ms),
		      outbox_deadline(sender->outbox));
}

static void arm(struct sender *sender)
{
	const int64_t now_ms = loop_now_ms();
	const int64_t next = next_ms(sender, now_ms);

	if (sender->pumping || next == sender->armed_ms)
		return;
	sender->armed_ms = next;
	if (next < 0)
		timer_stop(sender->timer);
	else
		timer_start(sender->timer, next > now_ms ? (uint64_t)(next - now_ms) : 0);
}

static void send_claim(struct sender *sender, enum pacer_claim claim)
{
	switch (claim) {
	case PACER_STATE:
		send_state(sender);
		break;
	case PACER_URGENT:
	case PACER_LIVE:
		send_queued(sender);
		break;
	case PACER_RESEND:
		send_resend(sender);
		break;
	case PACER_BACKFILL:
		send_backfill(sender);
		break;
	case PACER_NONE:
		break;
	}
}

/* The sender may be destroyed by this. */
static void finish(struct sender *sender)
{
	void (*done)(void *ctx) = sender->stop_done;

	sender->stop_done = NULL;
	sender->stop_ms = -1;
	done(sender->stop_ctx);
}

static void subscribe(struct sender *sender)
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

static void pump(struct sender *sender)
{
	const int64_t now_ms = loop_now_ms();
	const int64_t deadline = outbox_deadline(sender->outbox);

	if (is_stopped(sender, now_ms)) {
		finish(sender);
		return;
	}
	sender->pumping = true;
	if (sender->resubscribe_ms >= 0 && sender->resubscribe_ms <= now_ms)
		subscribe(sender);
	if (deadline >= 0 && deadline <= now_ms)
		link_reset(sender->link, "no OK for 30 s");
	send_claim(sender, pacer_take(&sender->pacer, now_ms, claims_of(sender, now_ms),
				      backfill_rate(sender)));
	sender->pumping = false;
	arm(sender);
}

static void on_timer(void *ctx)
{
	struct sender *sender = ctx;

	sender->armed_ms = -1;
	pump(sender);
}

/* ---- what the link says ---- */

static void on_state(void *ctx, enum link_state state, const char *reason,
		     uint64_t retry_ms)
{
	struct sender *sender = ctx;

	(void)retry_ms;
	if (state == LINK_DOWN)
		outbox_disconnect(sender->outbox);
	if (state == LINK_READY) {
		sender->hold_until_ms = 0;
		sender->resubscribe_ms = -1; /* the link asks anew by itself */
		sender->last_write_ms = loop_now_ms();
	}
	arm(sender);
	sender->options.on_link(sender->options.ctx, state, reason);
}

static void on_event(void *ctx, struct slice sub_id, struct slice event)
{
	struct sender *sender = ctx;
	struct inbox_control control;
	uint64_t silent;
	struct err err;

	(void)sub_id;
	switch (inbox_open(sender->inbox, event, relay_unix_s(sender), &control, &err)) {
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
			log_warn(SUBJECT, "a control was not taken: %s silent=%" PRIu64,
				 err.text, silent);
		break;
	}
}

/* The relay wants it later, or from an authenticated connection. */
static bool is_passing(struct slice text)
{
	return slice_starts(text, SLICE("rate-limited:")) ||
	       slice_starts(text, SLICE("auth-required:"));
}

/* Nothing leaves for a while, longer each time until a frame is taken: a relay that takes
 * none is not asked every second for ever. */
static void back_off(struct sender *sender)
{
	sender->hold_ms = sender->hold_ms ? 2 * sender->hold_ms : HOLD_FIRST_MS;
	if (sender->hold_ms > HOLD_MAX_MS)
		sender->hold_ms = HOLD_MAX_MS;
	sender->hold_until_ms = loop_now_ms() + sender->hold_ms;
}

static void on_ok(void *ctx, const uint8_t id[32], bool accepted, struct slice text)
{
	struct sender *sender = ctx;
	struct outbox_frame *frame = outbox_find(sender->outbox, id);
	char quoted[LOG_QUOTE_BYTES];

	if (!frame)
		return;
	if (accepted || slice_starts(text, SLICE("duplicate:"))) {
		sender->hold_ms = 0;
		sender->frames_acked++;
		release(sender, frame);
		queue_published(sender->queue, &frame->content);
		outbox_accept(sender->outbox, frame, loop_now_ms());
	} else if (is_passing(text)) {
		frame->state = OUTBOX_UNSENT;
		back_off(sender);
		log_debug(SUBJECT, "frame %" PRIu64 " put off: %s", frame->number,
			  log_quote(text, quoted));
	} else {
		log_warn(SUBJECT,
			 "frame %" PRIu64 " refused by the relay, %" PRIu64
			 " events lost: %s",
			 frame->number, frame->content.sources, log_quote(text, quoted));
		lose(sender, frame);
		back_off(sender);
	}
	arm(sender);
}

static void on_closed(void *ctx, struct slice sub_id, struct slice text)
{
	struct sender *sender = ctx;
	char quoted[LOG_QUOTE_BYTES];

	(void)sub_id;
	if (sender->resubscribe_ms >= 0)
		return;
	log_warn(SUBJECT, "the relay shows no controls, asked again in %d s: %s",
		 RESUBSCRIBE_MS / 1000, log_quote(text, quoted));
	sender->resubscribe_ms = loop_now_ms() + RESUBSCRIBE_MS;
	arm(sender);
}

static void on_eose(void *ctx, struct slice sub_id)
{
	(void)ctx;
	(void)sub_id;
}

static void on_writable(void *ctx)
{
	arm(ctx);
}

/* ---- life ---- */

static void start_epoch(struct sender *sender)
{
	const char *path = sender->options.epoch_path;
	char last[EPOCH_LEN + 1] = "";
	uint32_t random;
	struct err err;

	sender->started_unix_ms = loop_unix_ms();
	sender->started_ms = loop_now_ms();
	loop_random(&random, sizeof(random));
	if (path)
		epoch_load(path, last);
	epoch_next(last, sender->started_unix_ms / 1000, random, sender->epoch);
	if (path && !epoch_save(path, sender->epoch, &err))
		log_warn(SUBJECT,
			 "epoch not remembered, a clock set back would confuse "
			 "observers: %s",
			 err.text);
}

static void write_tags(struct sender *sender)
{
	struct buf *tags = &sender->tags;

	(void)buf_lit(tags, "[[\"p\",\"");
	(void)buf_append(tags,
			 (struct slice){sender->owner_hex, sizeof(sender->owner_hex)});
	(void)buf_lit(tags, "\"],[\"agent\",\"");
	(void)buf_append(tags,
			 (struct slice){sender->agent_hex, sizeof(sender->agent_hex)});
	(void)buf_lit(tags, "\"],[\"frame\",\"telemetry\"]");
	if (sender->auth_tag.len) {
		(void)buf_lit(tags, ",");
		(void)buf_append(tags, buf_slice(&sender->auth_tag));
	}
	(void)buf_lit(tags, "]");
}

static bool start_link(struct sender *sender, struct err *err)
{
	static const struct link_events events = {
		.on_state = on_state,
		.on_event = on_event,
		.on_ok = on_ok,
		.on_eose = on_eose,
		.on_closed = on_closed,
		.on_writable = on_writable,
	};
	const struct link_options options = {
		.url = sender->options.relay_url,
		.keypair = sender->options.keypair,
		.auth_tag = buf_slice(&sender->auth_tag),
		.events = &events,
		.ctx = sender,
	};

	sender->link = link_create(sender->loop, &options, err);
	if (!sender->link)
		return false;
	subscribe(sender);
	return true;
}

static bool make_keys(struct sender *sender, struct err *err)
{
	sender->conversation_key = sodium_malloc(32);
	if (!sender->conversation_key)
		return err_set(err, ERR_SYSTEM, "no locked memory for a key");
	hex_encode(keypair_public(sender->options.keypair), KEY_BYTES, sender->agent_hex);
	hex_encode(sender->options.owner, KEY_BYTES, sender->owner_hex);
	return nip44_conversation_key(sender->loop->crypto, sender->options.keypair,
				      sender->options.owner, sender->conversation_key,
				      err);
}

struct sender *sender_create(struct loop *loop, const struct sender_options *options,
			     struct err *err)
{
	struct sender *sender = mem_alloc(sizeof(*sender));
	bool ok = false;

	assert(options->default_context.channel);
	sender->loop = loop;
	sender->options = *options;
	sender->default_channel = *options->default_context.channel;
	buf_init(&sender->auth_tag, EVENT_MAX_BYTES);
	(void)buf_append(&sender->auth_tag, options->auth_tag);
	buf_init(&sender->tags, EVENT_MAX_BYTES);
	buf_init(&sender->direct, 2 * FRAME_PACK_MAX);
	buf_init(&sender->payload, STATE_MAX);
	buf_init(&sender->repeat, EVENT_MAX_BYTES);
	sender->armed_ms = sender->stop_ms = sender->heard_ms = -1;
	sender->resubscribe_ms = -1;
	start_epoch(sender);
	sender->queue = queue_create(AGENT_QUEUE_MAX);
	sender->feed = feed_create(sender->queue);
	sender->outbox = outbox_create(sender->epoch);
	sender->bodies = bodies_create();
	pacer_init(&sender->pacer, options->tick_ms, AGENT_LINGER_MS, sender->started_ms);
	sender->timer = timer_create_on(loop, on_timer, sender);
	if (!make_keys(sender, err))
		goto out;
	write_tags(sender);
	sender->inbox = inbox_create(loop->crypto, options->keypair, options->owner,
				     sender->conversation_key);
	ok = start_link(sender, err);
out:
	if (!ok) {
		sender_destroy(sender);
		return NULL;
	}
	return sender;
}

void sender_destroy(struct sender *sender)
{
	if (!sender)
		return;
	link_destroy(sender->link);
	timer_destroy(sender->timer);
	inbox_destroy(sender->inbox);
	bodies_destroy(sender->bodies);
	outbox_destroy(sender->outbox);
	feed_destroy(sender->feed);
	queue_destroy(sender->queue);
	for (size_t i = 0; i < sender->result_count; i++)
		buf_finish(&sender->results[i]);
	buf_finish(&sender->auth_tag);
	buf_finish(&sender->tags);
	buf_wipe(&sender->direct);
	buf_wipe(&sender->payload);
	buf_finish(&sender->repeat);
	sodium_free(sender->conversation_key);
	free(sender);
}

/* ---- what the harness asks ---- */

struct feed *sender_feed(struct sender *sender)
{
	return sender->feed;
}

const char *sender_epoch(const struct sender *sender)
{
	return sender->epoch;
}

struct feed_time sender_time(const struct sender *sender)
{
	return (struct feed_time){
		.unix_ms = loop_unix_ms(),
		.monotonic_ms = loop_now_ms() - sender->started_ms,
	};
}

int64_t sender_clock_offset_s(const struct sender *sender)
{
	return link_info(sender->link)->clock_offset_ms / 1000;
}

int64_t sender_started_ms(const struct sender *sender)
{
	return sender->started_unix_ms;
}

void sender_kick(struct sender *sender)
{
	arm(sender);
}

bool sender_feed_sync(struct sender *sender, const struct control *control,
		      struct err *err)
{
	if (!serve_open(&sender->serve, control, sender->epoch, loop_now_ms(), err))
		return false;
	arm(sender);
	return true;
}

void sender_result(struct sender *sender, struct slice payload)
{
	struct buf *result;

	if (sender->result_count == RESULTS_MAX) {
		log_warn(SUBJECT, "%d results of controls wait: the oldest is not sent",
			 RESULTS_MAX);
		buf_finish(&sender->results[0]);
		memmove(sender->results, sender->results + 1,
			--sender->result_count * sizeof(sender->results[0]));
	}
	result = &sender->results[sender->result_count++];
	buf_init(result, STATE_MAX);
	(void)buf_append(result, payload);
	assert(buf_ok(result));
	arm(sender);
}

bool sender_body(struct sender *sender, const struct feed_context *context,
		 const char epoch[17], uint64_t seq, struct slice event)
{
	const bool ok = bodies_add(sender->bodies, context, epoch, seq, event);

	arm(sender);
	return ok;
}

int64_t sender_observer_age_s(const struct sender *sender)
{
	if (sender->heard_ms < 0)
		return INT64_MAX;
	return (loop_now_ms() - sender->heard_ms) / 1000;
}

void sender_figures(const struct sender *sender, struct sender_figures *out)
{
	const struct queue_ledger *ledger = queue_ledger(sender->queue);

	*out = (struct sender_figures){
		.ingested = ledger->ingested,
		.published = ledger->published,
		.deferred = ledger->deferred,
		.dropped = ledger->dropped,
		.pending = ledger->waiting + ledger->in_flight,
		.frames_sent = sender->frames_sent,
		.frames_acked = sender->frames_acked,
		.queue_bytes = queue_bytes(sender->queue),
		.queue_events = queue_events(sender->queue),
		.in_flight = outbox_in_flight(sender->outbox),
	};
}

void sender_stop(struct sender *sender, uint64_t grace_ms, void (*done)(void *ctx),
		 void *ctx)
{
	sender->stop_done = done;
	sender->stop_ctx = ctx;
	sender->stop_ms = loop_now_ms() + (int64_t)grace_ms;
	arm(sender);
}

uint64_t sender_discard(struct sender *sender)
{
	struct queue_frame frame;
	struct buf unsent;
	uint64_t events = 0;

	buf_init(&unsent, FRAME_PLAINTEXT_MAX);
	while (queue_pack(sender->queue, FRAME_PACK_MAX, &unsent, &frame)) {
		events += frame.sources;
		queue_dropped(sender->queue, &frame);
		buf_clear(&unsent);
	}
	buf_wipe(&unsent);
	return events;
}
