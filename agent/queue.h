#ifndef AGENT_QUEUE_H
#define AGENT_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/pack.h"
#include "wire/base/buf.h"
#include "wire/base/slice.h"
#include "wire/frame/uuid.h"

/* What waits to leave: per-channel FIFOs of ready bytes, merging at their tails,
 * selection of the next frame, one budget of memory, and the ledger of it all. Source:
 * design §5. */
struct queue;

enum queue_urgency {
	QUEUE_PLAIN,
	QUEUE_URGENT,
	QUEUE_PERMISSION, /* before all other urgent ones */
};

/* An event, written once, in the parts that merging needs to see. On the wire it is
 *   header [,"merged":N] extra ,"payload": payload }
 * All slices are borrowed for the call. */
struct queue_event {
	uint64_t seq;               /* greater than every one before */
	int64_t unix_ms;            /* what "timestamp" says */
	int64_t monotonic_ms;       /* 0 or more */
	const struct uuid *channel; /* NULL: channel-less, a barrier */
	int slot;                   /* agentIndex; -1: null */
	enum queue_urgency urgency;
	struct slice kind;   /* as in header, without the quotes */
	struct slice header; /* by observer_event_write_header(); at most 64 KiB */
	struct slice extra;  /* authorization, and the marks but merged */
	struct slice payload;
	/* Text inside payload that the next chunk may join; ptr NULL: this is no chunk. A
	 * chunk is QUEUE_PLAIN, has a channel and no authorization. */
	struct slice chunk;
};

/* Why events are gone: Buzz's reasons that can happen here. */
enum gap_reason {
	GAP_QUEUE_EVICTION,  /* publishQueueEviction: over the budget */
	GAP_PUBLISH_FAILURE, /* publishFailure: the relay refused the frame */
	GAP_JOURNAL_FULL,    /* journal_full: deferred, and the disk did not take it */
};
#define GAP_REASONS 3

/* Events of a channel that are gone; at most one per channel waits to be told. */
struct gap {
	uint64_t counts[GAP_REASONS]; /* source events */
	uint64_t seq;    /* of the last event that it stands for; 0: no gap */
	int64_t unix_ms; /* of that event */
	int64_t monotonic_ms;
	int slot;
	int64_t first_ms; /* Unix ms of the first event it stands for */
	bool folded;      /* stands for other channels too (scope "publisher_global") */
};

/* What one frame holds. */
struct queue_frame {
	bool has_channel;
	struct uuid channel;
	uint64_t sources; /* source events in it */
	struct gap gap;   /* told by this frame; seq 0: none */
	struct gap loss;  /* to report should the frame be lost */
};

/* ingested = published + deferred + dropped + waiting + in_flight, always; in source
 * events. */
struct queue_ledger {
	uint64_t ingested, published, deferred, dropped;
	uint64_t waiting, in_flight; /* together: pending */
};

/* Who keeps frames that leave later: what is over the budget, and what stands far before
 * an urgent event. Neither function may call the queue. */
struct queue_deferral {
	/* Would the next frame be kept? */
	bool (*may)(void *ctx);
	/* Keeps @text, for the call only, as a frame with @content. Asked after may(). */
	void (*take)(void *ctx, struct slice text, const struct queue_frame *content);
	void *ctx;
};

/* @budget_bytes: for all memory of waiting events and what queue_hold() adds. */
struct queue *queue_create(size_t budget_bytes);
void queue_destroy(struct queue *queue);
/* From now on frames are deferred to @deferral (copied). */
void queue_set_deferral(struct queue *queue, const struct queue_deferral *deferral);

/* From now on frames are deferred, and events joined, up to @limit bytes (FRAME_PACK_MAX
 * at first). A larger event that waits already leaves alone in a frame of its size. */
void queue_set_limit(struct queue *queue, size_t limit);

/* Takes an event (copied), or joins it to the last one of its channel. Over the budget
 * the oldest frame's worth of non-urgent events is deferred or, where it cannot be,
 * dropped, and becomes a gap of its channel; if there are none, of urgent ones. */
void queue_put(struct queue *queue, const struct queue_event *event);
/* Counts @sources events that never wait here as ingested and in flight (feed_state,
 * results, body parts: they are written when they leave). */
void queue_pass(struct queue *queue, uint64_t sources);

/**
 * queue_pack - select the next frame, append it to @out and take it off the queue
 * @limit: most bytes of the frame; an event that is larger leaves alone
 * False if nothing waits. Its events are in flight until one of the functions below. What
 * stands more than @limit before an urgent event in its channel is deferred, so that it
 * leaves in that channel's second frame at the latest.
 */
bool queue_pack(struct queue *queue, size_t limit, struct buf *out,
		struct queue_frame *frame);
/* The relay said OK to @frame, or it is lost for good: then its events count as dropped,
 * and a gap reports them and what the frame itself would have told. A frame without
 * channel is reported in @fallback. */
void queue_published(struct queue *queue, const struct queue_frame *frame);
void queue_lost(struct queue *queue, const struct queue_frame *frame,
		const struct uuid *fallback);

/* The same of a frame that was deferred; @reason: why it is lost. */
void queue_deferred_published(struct queue *queue, const struct queue_frame *frame);
void queue_deferred_lost(struct queue *queue, const struct queue_frame *frame,
			 const struct uuid *fallback, enum gap_reason reason);
/* @frame, in flight, is deferred after all: it will be sent later, or by another start.
 */
void queue_defer(struct queue *queue, const struct queue_frame *frame);

/* @frame will not be sent and nobody asks for a gap any more: this harness ends. */
void queue_dropped(struct queue *queue, const struct queue_frame *frame);

/* Memory of frames in flight, which the budget counts too. */
void queue_hold(struct queue *queue, size_t bytes);
void queue_release(struct queue *queue, size_t bytes);

bool queue_is_empty(const struct queue *queue); /* no gap waits either */
/* Would an urgent event pick the next frame? */
bool queue_is_urgent(const struct queue *queue);
size_t queue_bytes(const struct queue *queue); /* of what waits and is in flight */
/* The same and what is kept for events to come, which gives way before any event: what
 * the budget counts. */
size_t queue_memory(const struct queue *queue);
size_t queue_events(const struct queue *queue); /* waiting, merged ones as one */
const struct queue_ledger *queue_ledger(const struct queue *queue);

#endif
