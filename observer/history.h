#ifndef OBSERVER_HISTORY_H
#define OBSERVER_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "observer/archive.h"
#include "observer/spans.h"
#include "observer/values.h"

/* Tells spans and values what only the archive knows: lane by lane back in time, the
 * newest first, a slice at a time, from the first question on. */
struct history;

/* All are borrowed. */
struct history *history_create(struct archive *archive, struct spans *spans,
			       struct values *values);
/* Asks nothing more. NULL is fine. */
void history_stop(struct history *history);
/* No answer of the archive may come any more. NULL is fine. */
void history_destroy(struct history *history);
/* What this lane did at or before @pos is in the archive only. */
void history_add(struct history *history, const uint8_t agent[KEY_BYTES],
		 struct slice channel, const struct pos *pos);
/* Someone asks: reads on until all is there, or the spans are full. */
void history_want(struct history *history);

#endif
