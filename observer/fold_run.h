#ifndef OBSERVER_FOLD_RUN_H
#define OBSERVER_FOLD_RUN_H

#include "observer/fold.h"
#include "observer/spans.h"

/* From the rows of one segment to its run: which call took from when to when, and what it
 * was part of. Pure. */

struct fold_run {
	const struct fold *fold;
	struct slice channel;
	struct slice tag; /* of the segment, or of this part of it */
	bool is_turn;
	bool goes_on;     /* the turn still runs, as far as is known */
	int64_t from_ms;  /* not 0: what ended before is in another run */
	int64_t until_ms; /* not 0: it ends there, whatever goes on */
};

/* Nothing happens when there is nothing to tell, or no room for its lane. */
void fold_run_put(struct spans *spans, const uint8_t agent[KEY_BYTES],
		  const struct fold_run *run);
/* Is there a run of that tag in its lane? */
bool fold_run_known(struct spans *spans, const uint8_t agent[KEY_BYTES],
		    const struct fold_run *run);
/* The latest moment that the rows know of, Unix ms; 0: none. */
int64_t fold_newest_ms(const struct fold *fold);

#endif
