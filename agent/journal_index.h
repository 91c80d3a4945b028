#ifndef AGENT_JOURNAL_INDEX_H
#define AGENT_JOURNAL_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/ranges.h"
#include "wire/base/buf.h"
#include "wire/frame/limits.h"

/* What the journal holds, known without asking the disk: for each epoch which of its
 * frames. Pure. A zeroed struct is valid and empty. */
struct journal_epoch {
	char name[17];
	struct ranges frames;
	uint64_t last; /* highest number that this epoch is known to have given */
};

struct journal_index {
	struct journal_epoch *epochs; /* ascending by name */
	size_t count, room;
};

void journal_index_finish(struct journal_index *index);
/* NULL: nothing is known of that epoch. */
struct journal_epoch *journal_index_find(const struct journal_index *index,
					 const char *epoch);
void journal_index_add(struct journal_index *index, const char *epoch, uint64_t number);
/* Takes a number out; an epoch that holds none is forgotten, except for @current. */
void journal_index_remove(struct journal_index *index, const char *epoch, uint64_t number,
			  const char *current);
/* What epochs there are says feed_state's "epochs"; for each of them, after @head:
 * {"epoch":…,"first":N,"last":N}, and "gone" what of them will never come: the holes, and
 * in an epoch that is over all numbers beyond its last. Of @current only what @held says.
 * Appends ,"epochs":[…],"gone":[…]. Source: payloads.md. */
void journal_index_write(const struct journal_index *index, const char *current,
			 const struct ranges *held, uint64_t last, struct buf *out);

#endif
