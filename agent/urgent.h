#ifndef AGENT_URGENT_H
#define AGENT_URGENT_H

#include <stdint.h>

#include "agent/fifo.h"

/* The urgent among the records that wait, in the order of their arrival, whichever fifo
 * holds them. Plain records are passed by. */

struct urgent_list {
	struct record *first, *last;
};

/* Zeroed: none waits. */
struct urgent {
	struct urgent_list lists[2]; /* by urgency, without QUEUE_PLAIN */
};

/* The record is the newest. @channel: its own, borrowed; NULL: it is channel-less. */
void urgent_append(struct urgent *urgent, struct record *record,
		   struct queue_channel *channel);
/* Call while the record is still where it was. */
void urgent_remove(struct urgent *urgent, struct record *record);
/* The record was copied to this place, and the old one will go. */
void urgent_moved(struct urgent *urgent, struct record *record);
/* The oldest that arrived before @barrier, permission requests before other urgent kinds;
 * NULL: none did. */
struct record *urgent_first(const struct urgent *urgent, uint64_t barrier);

#endif
