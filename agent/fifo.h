#ifndef AGENT_FIFO_H
#define AGENT_FIFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/queue.h"
#include "wire/base/pool.h"

/* Storage of the queue: events one behind the other in blocks, so that neither taking one
 * in nor letting one go allocates, and the memory they hold is known. Blocks that are let
 * go are kept in a pool for those to come: draining frees nothing. */

struct queue_channel;

/* One waiting event and what is remembered of it. Kept small: what waits in great numbers
 * is drained as fast as memory is read. */
struct record {
	uint64_t arrival; /* seq of its first chunk: its place in the order */
	int64_t unix_ms, monotonic_ms; /* of its last chunk */
	uint32_t newer;                /* by how much the seq of its last chunk is */
	uint32_t sources;              /* events that were joined in it, at least 1 */
	uint32_t len;                  /* of text */
	uint16_t stamp_len; /* {"seq":…,"monotonicMs":…,"timestamp":"…" */
	uint16_t header_len;
	uint16_t kind_len; /* with quotes */
	int16_t slot;
	uint8_t urgency; /* enum queue_urgency; set by fifo_push() for good */
	char text[];
};

/* Behind the text of a record that is not QUEUE_PLAIN. */
struct record_link {
	struct record *prev, *next;    /* in the list of urgent ones */
	struct queue_channel *channel; /* NULL: channel-less */
};

/* Where the blocks of some fifos come from. */
struct fifo_blocks {
	struct pool pool;
	size_t used_bytes; /* what the blocks of all those fifos hold */
};

struct fifo {
	struct block *first, *last;
	struct fifo_blocks *blocks;
	size_t next_bytes; /* of the block that is taken next */
};

void fifo_init(struct fifo *fifo, struct fifo_blocks *blocks); /* borrowed */
void fifo_finish(struct fifo *fifo);
/* A new last record with room for @len bytes of text; only len and urgency are set. */
struct record *fifo_push(struct fifo *fifo, size_t len, enum queue_urgency urgency);
/* A copy of a record of another fifo as a new last one. */
struct record *fifo_push_copy(struct fifo *fifo, const struct record *from);
/* The last record, which is QUEUE_PLAIN, with room for @len (more) bytes; it may have
 * moved. len is not set. */
struct record *fifo_grow_last(struct fifo *fifo, struct record *last, size_t len);
/* Lets the first record go. */
void fifo_pop(struct fifo *fifo);
/* Puts all of @front, which counts in the same memory, before what is there. */
void fifo_prepend(struct fifo *fifo, struct fifo *front);

/* A place in a fifo; valid until the next push or pop. */
struct fifo_cursor {
	struct block *block;
	uint32_t at;
};
struct fifo_cursor fifo_start(const struct fifo *fifo);
/* NULL at the end. */
struct record *fifo_record(const struct fifo_cursor *cursor);
void fifo_step(struct fifo_cursor *cursor);
/* Lets all records before the cursor go; one at the end lets all go. */
void fifo_cut(struct fifo *fifo, const struct fifo_cursor *end);
static inline struct record *fifo_first(const struct fifo *fifo)
{
	const struct fifo_cursor start = fifo_start(fifo);

	return fifo_record(&start);
}

/* Of its last chunk. */
static inline uint64_t record_seq(const struct record *record)
{
	return record->arrival + record->newer;
}

/* NULL: it is QUEUE_PLAIN. */
struct record_link *record_link(struct record *record);

static inline struct pack_item record_item(const struct record *record)
{
	return (struct pack_item){
		.text = {record->text, record->len},
		.kind_at = record->stamp_len + (uint32_t)sizeof(",\"kind\":") - 1,
		.kind_len = record->kind_len,
		.header_len = record->header_len,
	};
}

#endif
