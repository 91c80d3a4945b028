#ifndef AGENT_GAP_H
#define AGENT_GAP_H

#include "agent/fifo.h"
#include "agent/pack.h"
#include "agent/queue.h"

/* Adding up what is gone, and telling it. Source: design §5. */

/* A gap's event: a header of numbers and a UUID, and five counters. */
#define GAP_TEXT_MAX 2048

/* The gap of one record that is gone. */
struct gap gap_of_record(const struct record *record, enum gap_reason reason);
/* @gap, which may be none, stands for what @more stands for, too. */
void gap_add(struct gap *gap, const struct gap *more);
/* Writes the gap as an event of its channel into @out, which is cleared and has room for
 * GAP_TEXT_MAX; what is returned borrows it. */
struct pack_item gap_write(const struct gap *gap, const struct uuid *channel,
			   struct buf *out);

#endif
