#ifndef AGENT_MERGE_H
#define AGENT_MERGE_H

#include <stdbool.h>

#include "agent/fifo.h"
#include "agent/queue.h"

/* Writing an event into a fifo, and joining the chunks that follow it there. Source:
 * design §5, "Merging". */

/* The last record of a fifo while it may be joined; record NULL: none. */
struct open_event {
	struct record *record;
	uint32_t payload_at; /* offsets in its text */
	uint32_t text_at, text_end;
};

/* Writes @event as a new last record. @open: what the next chunk may join, if it is one.
 */
struct record *merge_push(struct fifo *fifo, const struct queue_event *event,
			  struct open_event *open);
/* Joins a chunk to the open event; false, and nothing done, if it does not belong there
 * or the event would have more than @max bytes. */
bool merge_join(struct fifo *fifo, struct open_event *open,
		const struct queue_event *event, size_t max);

#endif
