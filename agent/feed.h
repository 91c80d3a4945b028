#ifndef AGENT_FEED_H
#define AGENT_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/acp_line.h"
#include "agent/pack.h"
#include "wire/base/buf.h"
#include "wire/base/slice.h"
#include "wire/frame/uuid.h"

/* The feed stamps what happens in this harness and hands it, serialized once, to the
 * queue: stamp → redact → repair → fit → queue (design §5). Pure: time comes in. */
struct feed;
struct queue;

/* What an event belongs to. Slices are plain text (not escaped) and need to live for the
 * call only; ptr NULL is null on the wire. Of ids over 1,024 bytes the rest is cut off.
 */
struct feed_context {
	int slot;                   /* agentIndex; -1: null */
	const struct uuid *channel; /* NULL: channel-less (harness_started,
				     * harness_stopping and agent_panic only) */
	struct slice session;
	struct slice turn;
	int64_t turn_started_ms; /* Unix ms, becomes startedAt; 0: left out */
};

struct feed_time {
	int64_t unix_ms;
	int64_t monotonic_ms; /* since the epoch's start */
};

struct feed *feed_create(struct queue *queue); /* borrowed */
void feed_destroy(struct feed *feed);
/* Called with every event that has to be trimmed, whole (but redacted), before it is
 * queued; the slice lives for the call. */
void feed_on_trimmed(struct feed *feed,
		     void (*on_trimmed)(void *ctx, uint64_t seq, struct slice whole),
		     void *ctx);
/* From now on events are trimmed to @limit bytes (FRAME_PACK_MAX at first). */
void feed_set_limit(struct feed *feed, size_t limit);

/**
 * feed_emit - one event of ours
 * @kind: letters, digits, _ and -; at most 128 bytes
 * @payload: JSON object text, strict
 * @authorization: object text, or empty
 * Returns its seq.
 */
uint64_t feed_emit(struct feed *feed, struct feed_time now,
		   const struct feed_context *context, struct slice kind,
		   struct slice authorization, struct slice payload);

/**
 * feed_write - stamp an event that never queues: it is written when it leaves
 * Appends it to @out, fitted, and describes it in @item (whose text points into @out
 * until that grows); the ledger counts it as in flight. Returns its seq.
 */
uint64_t feed_write(struct feed *feed, struct feed_time now,
		    const struct feed_context *context, struct slice kind,
		    struct slice payload, struct buf *out, struct pack_item *item);

enum feed_direction { FEED_READ, FEED_WRITE };

/**
 * feed_line - mirror one ACP line: acp_read, acp_write, or acp_parse_error
 * @line_bytes: length of the line on the pipe (acp_parse_error's bytes); the text of
 * @line may have been cut to AGENT_MIRROR_MAX, which makes it a parse error "line too
 * long"
 * @authorization: object text, or empty
 * @whole_out: NULL, or cleared and filled with the untrimmed (but redacted) event if it
 * had to be trimmed (left empty if not): what fetch_body serves while a permission waits
 * Blank lines give no event and return 0, else the event's seq. A repairable line is
 * repaired here; a line with a broken payload shows nothing from where secrets may be.
 */
uint64_t feed_line(struct feed *feed, struct feed_time now,
		   const struct feed_context *context, enum feed_direction direction,
		   const struct acp_line *line, size_t line_bytes,
		   struct slice authorization, struct buf *whole_out);

#endif
