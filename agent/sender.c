#include "agent/sender.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "agent/sender_part.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/nostr/event.h"
#include "wire/nostr/nip44.h"

/* "A harness silent for 15 s sends its newest frame once more" */
#define SILENCE_MS 15000
/* A whole event that is kept: a mirrored line with its header. */
#define BODY_MAX (AGENT_MIRROR_MAX + 16384)

int64_t sender_relay_s(const struct sender *sender)
{
	return link_unix_ms(sender->link) / 1000;
}

/* ---- frames of each claim ---- */

static void send_queued(struct sender *sender)
{
	struct outbox_frame *frame = sender_add(sender);
	bool packed;

	packed = queue_pack(sender->queue, sender->frame_max, &frame->plaintext,
			    &frame->content);
	assert(packed); /* or it would not have claimed the tick */
	(void)packed;
	outbox_mark(sender->outbox, frame, false);
	sender_keep(sender, frame);
	sender->repeated = false;
	if (frame->body_bytes > sender->frame_max)
		sender_split(sender, frame);
	sender_send(sender, frame);
}

static bool can_send_body(const struct sender *sender)
{
	return !bodies_is_empty(sender->bodies) && !outbox_is_full(sender->outbox);
}

/* Bodies first: a pending permission request's is waited for. */
static void send_backfill(struct sender *sender)
{
	if (can_send_body(sender))
		sender_send_body_part(sender);
	else
		sender_send_backfill(sender);
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

/* Unless it was found too large since. */
static void send_newest(struct sender *sender)
{
	struct outbox_frame *frame =
		outbox_get(sender->outbox, outbox_last(sender->outbox));
	uint8_t id[32];

	sender->repeated = true;
	if (!frame || frame->body_bytes > sender->frame_max)
		return;
	outbox_mark(sender->outbox, frame, true);
	(void)sender_send_again(sender, frame->number, buf_slice(&frame->plaintext), id);
}

static void send_resend(struct sender *sender)
{
	struct outbox_frame *frame = outbox_unsent(sender->outbox);

	if (!frame) {
		send_newest(sender);
		return;
	}
	if (frame->body_bytes > sender->frame_max)
		sender_split(sender, frame);
	sender_send(sender, frame);
}

/* ---- what waits, and when it may leave ---- */

static unsigned claims_of(struct sender *sender, int64_t now_ms)
{
	const bool room = !outbox_is_full(sender->outbox);
	const int64_t silence = silence_ms(sender);
	unsigned claims = 0;

	if (link_state(sender->link) != LINK_READY || now_ms < sender->hold_until_ms)
		return 0;
	if (room && sender_state_waits(sender))
		claims |= PACER_BIT(PACER_STATE);
	if (room && queue_is_urgent(sender->queue))
		claims |= PACER_BIT(PACER_URGENT);
	if (room && !queue_is_empty(sender->queue))
		claims |= PACER_BIT(PACER_LIVE);
	if (outbox_unsent(sender->outbox) || (silence >= 0 && silence <= now_ms))
		claims |= PACER_BIT(PACER_RESEND);
	if (can_send_body(sender) || sender_backfill_waits(sender))
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
	/* Who leaves leaves what is deferred to the next start. */
	return queue_is_empty(sender->queue) && !outbox_in_flight(sender->outbox) &&
	       !sender_state_waits(sender) &&
	       (!sender->deferred_count || sender->leaving);
}

static bool is_stopped(struct sender *sender, int64_t now_ms)
{
	return sender->stop_done && (is_drained(sender) || sender->stop_ms <= now_ms);
}

/* When a frame will have waited too long for its OK; -1: none waits. */
static int64_t deadline_ms(const struct sender *sender)
{
	return sooner(outbox_deadline(sender->outbox), sender_backfill_deadline(sender));
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
	return sooner(sooner(next, sender->resubscribe_ms), deadline_ms(sender));
}

void sender_arm(struct sender *sender)
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
		sender_send_state(sender);
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
	if (sender->leaving)
		sender_pack_rest(sender);
	if (sender->leaving && sender->journal)
		journal_put_stopped(sender->journal);
	done(sender->stop_ctx);
}

static void pump(struct sender *sender)
{
	const int64_t now_ms = loop_now_ms();
	const int64_t deadline = deadline_ms(sender);

	if (is_stopped(sender, now_ms)) {
		finish(sender);
		return;
	}
	sender->pumping = true;
	if (sender->resubscribe_ms >= 0 && sender->resubscribe_ms <= now_ms)
		sender_subscribe(sender);
	if (deadline >= 0 && deadline <= now_ms)
		link_reset(sender->link, "no OK for 30 s");
	send_claim(sender, pacer_take(&sender->pacer, now_ms, claims_of(sender, now_ms),
				      backfill_rate(sender)));
	sender->pumping = false;
	sender_arm(sender);
}

static void on_timer(void *ctx)
{
	struct sender *sender = ctx;

	sender->armed_ms = -1;
	pump(sender);
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
		log_warn(SENDER_SUBJECT,
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
	const struct link_options options = {
		.url = sender->options.relay_url,
		.keypair = sender->options.keypair,
		.auth_tag = buf_slice(&sender->auth_tag),
		.events = &sender_link_events,
		.ctx = sender,
	};

	sender->link = link_create(sender->loop, &options, err);
	if (!sender->link)
		return false;
	sender_subscribe(sender);
	return true;
}

static bool start_journal(struct sender *sender, struct err *err)
{
	const struct journal_options options = {
		.path = sender->options.journal_path,
		.keypair = sender->options.keypair,
		.epoch = sender->epoch,
		.max_bytes = sender->options.journal_bytes,
		.max_age_s = sender->options.journal_s,
		.events = &sender_journal_events,
		.ctx = sender,
	};

	sender->journal_known = !options.path;
	if (!options.path)
		return true;
	sender->journal = journal_create(sender->loop, &options, err);
	return sender->journal != NULL;
}

/* A whole event that had to be trimmed. */
static void on_trimmed(void *ctx, uint64_t seq, struct slice whole)
{
	struct sender *sender = ctx;

	if (sender->journal && whole.len <= BODY_MAX)
		(void)journal_put_body(sender->journal, seq, whole);
}

static void create_cores(struct sender *sender)
{
	struct queue_deferral deferral = sender_deferral;

	deferral.ctx = sender;
	sender->frame_max = FRAME_PACK_MAX;
	sender->queue = queue_create(AGENT_QUEUE_MAX);
	queue_set_deferral(sender->queue, &deferral);
	sender->feed = feed_create(sender->queue);
	feed_on_trimmed(sender->feed, on_trimmed, sender);
	sender->outbox = outbox_create(sender->epoch);
	sender->bodies = bodies_create();
	pacer_init(&sender->pacer, sender->options.tick_ms, AGENT_LINGER_MS,
		   sender->started_ms);
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
	buf_init(&sender->plain, FRAME_PLAINTEXT_MAX);
	buf_init(&sender->repeat, EVENT_MAX_BYTES);
	sender->armed_ms = sender->stop_ms = sender->heard_ms = -1;
	sender->resubscribe_ms = -1;
	start_epoch(sender);
	create_cores(sender);
	sender->timer = timer_create_on(loop, on_timer, sender);
	if (!make_keys(sender, err))
		goto out;
	write_tags(sender);
	sender->inbox = inbox_create(loop->crypto, options->keypair, options->owner,
				     sender->conversation_key);
	ok = start_link(sender, err) && start_journal(sender, err);
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
	/* The last records find all in place. */
	journal_destroy(sender->journal);
	sender->journal = NULL;
	if (sender->queue)
		sender_backfill_finish(sender);
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
	buf_wipe(&sender->plain);
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
	return (link_unix_ms(sender->link) - loop_unix_ms()) / 1000;
}

int64_t sender_started_ms(const struct sender *sender)
{
	return sender->started_unix_ms;
}

void sender_kick(struct sender *sender)
{
	sender_arm(sender);
}

bool sender_feed_sync(struct sender *sender, const struct control *control,
		      struct err *err)
{
	if (!serve_open(&sender->serve, control, loop_now_ms(), err))
		return false;
	sender_arm(sender);
	return true;
}

void sender_result(struct sender *sender, struct slice payload)
{
	struct buf *result;

	if (sender->result_count == RESULTS_MAX) {
		log_warn(SENDER_SUBJECT,
			 "%d results of controls wait: the oldest is not sent",
			 RESULTS_MAX);
		buf_finish(&sender->results[0]);
		memmove(sender->results, sender->results + 1,
			--sender->result_count * sizeof(sender->results[0]));
	}
	result = &sender->results[sender->result_count++];
	buf_init(result, STATE_MAX);
	(void)buf_append(result, payload);
	assert(buf_ok(result));
	sender_arm(sender);
}

bool sender_body(struct sender *sender, const struct feed_context *context,
		 const char epoch[17], uint64_t seq, struct slice event)
{
	const bool ok = bodies_add(sender->bodies, context, epoch, seq, event);

	sender_arm(sender);
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
	sender_arm(sender);
}

void sender_leave(struct sender *sender, struct sender_left *left)
{
	const struct queue_ledger *ledger = queue_ledger(sender->queue);
	const uint64_t dropped = ledger->dropped;
	const bool kept = sender->journal && journal_can_take(sender->journal);

	sender->leaving = true;
	sender_pack_rest(sender);
	*left = (struct sender_left){
		.frames = sender->deferred_count + outbox_in_flight(sender->outbox),
		.events =
			ledger->deferred + ledger->in_flight + ledger->dropped - dropped,
	};
	if (kept)
		left->journalled = ledger->deferred + ledger->in_flight;
}
