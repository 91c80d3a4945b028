#ifndef AGENT_SENDER_H
#define AGENT_SENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/feed.h"
#include "wire/frame/control.h"
#include "wire/host/loop.h"
#include "wire/link/link.h"

/* The thin shell around the pure cores (queue, pack, pacer, outbox): one relay link, one
 * timer. Everything that leaves this harness leaves here, at most one frame a tick. */
struct sender;

/* Asked at the moment a feed_state leaves: appends the members of payloads.md's
 * feed_state that the harness knows (control, permissions, channels, slots, sessions,
 * turns, pending), each through json_write_*; epochs, gone and figures are the sender's.
 */
typedef void sender_write_state_fn(void *ctx, struct buf *out);
/* A control frame for us: author, tags, signature and freshness were checked, the
 * plaintext opened; slices live for the call. */
typedef void sender_on_control_fn(void *ctx, const uint8_t event_id[32],
				  int64_t created_at, struct slice plaintext);
/* The link's state changed (for logs and "ready"). */
typedef void sender_on_link_fn(void *ctx, enum link_state state, const char *reason);

struct sender_options {
	const char *relay_url;         /* borrowed, as are epoch_path and ctx */
	const struct keypair *keypair; /* the agent's; borrowed */
	struct slice auth_tag;         /* JSON array text; copied */
	uint8_t owner[32];
	int64_t tick_ms; /* AGENT_TICK_MS */
	const char
		*epoch_path; /* file that remembers the last epoch; NULL: none (tests) */
	/* The journal's database, NULL: none is kept; and its limits. */
	const char *journal_path;
	int64_t journal_bytes, journal_s;
	/* Where what is lost without a channel is reported; its channel (not NULL,
	 * copied) is all that is used. */
	struct feed_context default_context;
	sender_write_state_fn *write_state;
	sender_on_control_fn *on_control;
	sender_on_link_fn *on_link;
	void *ctx;
};

struct sender *sender_create(struct loop *loop, const struct sender_options *options,
			     struct err *err);
void sender_destroy(struct sender *sender);

struct feed *sender_feed(struct sender *sender);
const char *sender_epoch(const struct sender *sender); /* 16 hex digits */
/* Time as the feed wants it, and Unix ms of monotonic 0 (startedAtMs). */
struct feed_time sender_time(const struct sender *sender);
int64_t sender_started_ms(const struct sender *sender);
/* How far the relay's clock is ahead of ours, as far as it says. */
int64_t sender_clock_offset_s(const struct sender *sender);
/* After feed_emit or feed_line: something may wait now. Cheap; call it once per batch. */
void sender_kick(struct sender *sender);

/* A feed_sync: its wants are served as design §4 says, feed_state answers in the next
 * tick. False with ERR_REFUSED (text for control_result detail) when eight observers are
 * known. */
bool sender_feed_sync(struct sender *sender, const struct control *control,
		      struct err *err);
/* The result of a control without channel: leaves with the next tick, never queued. */
void sender_result(struct sender *sender, struct slice payload);
/* Serves fetch_body: @event is the whole event's JSON text (copied), sent as body_part
 * events in the channel of @context in backfill ticks. One that waits already is not sent
 * twice. False when 16 wait. */
bool sender_body(struct sender *sender, const struct feed_context *context,
		 const char epoch[17], uint64_t seq, struct slice event);
/* What became of a fetch_body that asks the journal. */
enum sender_body {
	SENDER_BODY_COMING,
	SENDER_BODY_GONE, /* not kept (any more) */
	SENDER_BODY_BUSY, /* too many are on their way */
};
typedef void sender_on_body_fn(void *ctx, enum sender_body verdict);
/* Serves fetch_body of an event that is not at hand: calls @done once, at once or when
 * the journal was read. */
void sender_fetch_body(struct sender *sender, const char *epoch, uint64_t seq,
		       sender_on_body_fn *done, void *ctx);
/* Answers all that wait for the journal now: who asked is about to end. */
void sender_forget_bodies(struct sender *sender);
/* Seconds since the last sign (a control, a feed_sync) of any observer; INT64_MAX: never.
 */
int64_t sender_observer_age_s(const struct sender *sender);

struct sender_figures {
	uint64_t ingested, published, deferred, dropped, pending; /* source events */
	uint64_t frames_sent, frames_acked;
	uint64_t queue_bytes, queue_events, in_flight;
};
void sender_figures(const struct sender *sender, struct sender_figures *out);

/* Drains one frame a tick, deferred ones too, for at most @grace_ms, then calls @done
 * once, from the loop (also when nothing waited). @done may destroy the sender or stop it
 * again. */
void sender_stop(struct sender *sender, uint64_t grace_ms, void (*done)(void *ctx),
		 void *ctx);
/* What has no OK of the relay's when a harness leaves. */
struct sender_left {
	uint64_t frames, events;
	uint64_t journalled; /* events of them that the next start can serve */
};
/* Packs all that waits into the journal (without one it is dropped), so that what is
 * emitted next, harness_stopping, which tells what was left, leaves next. That is the
 * last: when the sender has stopped after it, the journal says that this start ended as
 * it should. */
void sender_leave(struct sender *sender, struct sender_left *left);

#endif
