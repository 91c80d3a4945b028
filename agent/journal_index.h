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
	struct ranges refused; /* the file has them, but the relay does not take them */
	uint64_t last;         /* highest number that this epoch is known to have given */
	uint64_t let_go;       /* highest that was dropped as too old or too many */
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
/* Takes a number out, of which the file has nothing (any more); an epoch that holds none
 * is forgotten, except for @current. */
void journal_index_remove(struct journal_index *index, const char *epoch, uint64_t number,
			  const char *current);
/* The same, because it was too old or one too many. */
void journal_index_let_go(struct journal_index *index, const char *epoch, uint64_t number,
			  const char *current);

/* The relay does not take this frame: it is served no more, and told as gone, until the
 * next start, which may have another relay. */
void journal_index_refuse(struct journal_index *index, const char *epoch,
			  uint64_t number);

/* What feed_state says beside the index. */
struct journal_telling {
	const char *current;       /* this start's epoch: */
	const struct ranges *held; /* what is here of it, in memory too */
	uint64_t last;             /* the highest number it gave */
	enum {
		JOURNAL_TELLS_ALL,
		JOURNAL_TELLS_LOSS, /* all, but an older file was lost */
		JOURNAL_TELLS_PART, /* the file cannot be opened (yet) */
		JOURNAL_TELLS_NONE, /* there is no journal */
	} how;
};
/* Appends ,"epochs":[…],"gone":[…] and "others" or "partial": of each epoch
 * {"epoch":…,"first":N,"last":N,"why":…}, and what of it will never come, with why: the
 * holes, and in an epoch that is over all numbers beyond its last. Source: PROTOCOL.md.
 */
void journal_index_write(const struct journal_index *index,
			 const struct journal_telling *telling, struct buf *out);

#endif
