#ifndef OBSERVER_RAW_H
#define OBSERVER_RAW_H

#include <stddef.h>
#include <stdint.h>

#include "observer/pos.h"
#include "wire/base/buf.h"
#include "wire/base/slice.h"
#include "wire/frame/observer_event.h"

/* The raw zoom: events as they were sent, one line each. Pure. */

#define RAW_LINES_DEFAULT 100
#define RAW_LINES_MAX 500
#define RAW_CUT_DEFAULT 2048      /* bytes of a line that are written; our choice */
#define RAW_CUT_MAX (256u << 10)  /* the same, when asked for */
#define RAW_ANSWER_MAX (1u << 20) /* bytes of lines in one answer, then `next` */

/* What is asked of a lane: its events from @from on (in), before @to (out). */
struct raw_query {
	struct pos from, to;
	size_t limit, cut;
};

/* Appends the event as one object: {"pos","t","kind","direction","name","bytes","text",
 * …}: text is its payload as it was, its first @cut bytes; name says what message it is.
 */
void raw_write(const struct observer_event *event, const struct pos *pos, int64_t unix_ms,
	       size_t cut, struct buf *out);

#endif
