#ifndef AGENT_JOURNAL_H
#define AGENT_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/journal_index.h"
#include "agent/shared.h"
#include "wire/base/slice.h"
#include "wire/host/loop.h"

/* The frames of this harness on disk, so that an owner who was away is served: every
 * packed frame by (epoch, number), of this start and of those before, and whole events
 * that were trimmed by (epoch, seq). A thread of its own writes, many records in one
 * transaction; nothing here blocks the loop. What cannot be written waits in a bounded
 * queue, is tried again, and is told as lost when the queue is full. Source: design §6.
 */
struct journal;

/* Memory of what waits for the disk, or is being written: what a harness at full pace
 * makes in two minutes. */
#define JOURNAL_QUEUE_MAX (8u << 20)
/* Memory kept for what comes next, beside that. */
#define JOURNAL_SPARE_MAX (1u << 20)
/* After the disk refused: tried again; our choice. */
#define JOURNAL_RETRY_MS 5000

enum journal_state {
	JOURNAL_OPENING, /* what there is is not known yet */
	JOURNAL_KEEPING,
	JOURNAL_FAILING, /* the disk takes nothing, or the file cannot be opened */
};

/* Called on the loop, from no call of ours but journal_destroy(). */
struct journal_events {
	/* The file was opened, or it turned out that it cannot be now: state and index
	 * are known. @unclean: the epoch before this one did not say that it stopped. */
	void (*on_open)(void *ctx, bool unclean);
	/* Frames of this epoch that were given to it: now on disk, or lost. */
	void (*on_kept)(void *ctx, uint64_t number);
	void (*on_lost)(void *ctx, uint64_t number);
	/* What journal_read() and journal_read_body() asked for; @text.ptr NULL: it is
	 * not there (any more). Lives for the call. */
	void (*on_frame)(void *ctx, const char *epoch, uint64_t number,
			 struct slice text);
	void (*on_body)(void *ctx, const char *epoch, uint64_t seq, struct slice text);
	/* It began to fail (@reason: one line) or keeps again (NULL); @lost: records that
	 * the disk never got, so far. */
	void (*on_trouble)(void *ctx, const char *reason, uint64_t lost);
};

struct journal_options {
	const char *path;              /* of the database; copied */
	const struct keypair *keypair; /* its key seals the rows; read now only */
	const char *epoch;             /* of this start; copied */
	int64_t max_bytes, max_age_s;
	const struct journal_events *events; /* static */
	void *ctx;
};

/* Opens on the thread; fails only when there is no thread to be had. */
struct journal *journal_create(struct loop *loop, const struct journal_options *options,
			       struct err *err);
/* Waits until the disk has what it takes, then closes; on_kept and on_lost may be
 * called: what they put is refused, what they ask for not answered. */
void journal_destroy(struct journal *journal);

enum journal_state journal_state(const struct journal *journal);
/* What feed_state may say of older epochs. */
bool journal_was_opened(const struct journal *journal);
/* Its file was broken and moved aside, in this start or in one since which nothing was
 * let go. */
bool journal_was_lost(const struct journal *journal);
/* What the disk has, of this epoch too. */
const struct journal_index *journal_index(const struct journal *journal);
/* What was taken and is not on disk yet. */
const struct ranges *journal_waiting(const struct journal *journal);
/* Bytes on disk, and records lost so far. */
int64_t journal_bytes(const struct journal *journal);
uint64_t journal_lost(const struct journal *journal);

/* journal_index_refuse() of what the disk has. */
void journal_refuse(struct journal *journal, const char *epoch, uint64_t number);
/* Would it take a frame now, and be likely to keep it? */
bool journal_can_take(const struct journal *journal);
/* Takes a frame of this epoch, in place of one that it has, without copying it: holds
 * @memory, which @frame is in, until on_kept() or on_lost(). Of @frame it reads all but
 * the last byte, which was }: from there on the memory may be written. False (and counted
 * as lost) when too much waits; then it holds nothing. */
bool journal_hold(struct journal *journal, uint64_t number, struct shared *memory,
		  struct slice frame);
/* The same of a copy. */
bool journal_put(struct journal *journal, uint64_t number, struct slice frame);
/* The same of any epoch: the parts of an older frame that a relay found too large. */
bool journal_put_of(struct journal *journal, const char *epoch, uint64_t number,
		    struct slice frame);
/* A new number in an epoch that is over, for journal_put_of(). */
uint64_t journal_number(struct journal *journal, const char *epoch);
bool journal_put_body(struct journal *journal, uint64_t seq, struct slice event);
/* Once all that was put before is on disk: this epoch ended as it should. */
void journal_put_stopped(struct journal *journal);

void journal_read(struct journal *journal, const char *epoch, uint64_t number);
void journal_read_body(struct journal *journal, const char *epoch, uint64_t seq);

#endif
