#ifndef RELAY_SEEN_H
#define RELAY_SEEN_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/map.h"

/* Longest time that an id can come again: created_at may be 300 s ahead at first sight
 * and 300 s behind at last. */
#define SEEN_KEEP_S 600
/* Most ids remembered, about 20 MiB; our choice. The oldest go first: a repeat of a
 * forgotten one is sent again, and readers know repeats by the id. */
#define SEEN_MAX 131072

/* Ids of the ephemeral events that passed, and whether a reader got them. */
struct seen {
	struct map ids;
	struct seen_entry *oldest, *newest;
};

struct seen_entry {
	struct seen_entry *newer;
	int64_t at;   /* Unix seconds of its first sight */
	bool reached; /* a copy was handed to a reader */
	uint8_t id[32];
};

void seen_init(struct seen *seen);
void seen_finish(struct seen *seen);
/* NULL when the id is new. */
struct seen_entry *seen_find(struct seen *seen, const uint8_t id[32]);
/* Remembers a new id and forgets those out of date. */
void seen_add(struct seen *seen, const uint8_t id[32], int64_t now);
/* A reader got it; an id that is not remembered is ignored. */
void seen_reach(struct seen *seen, const uint8_t id[32]);

#endif
