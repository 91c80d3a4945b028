#ifndef OBSERVER_REPORT_H
#define OBSERVER_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observer/spans.h"
#include "wire/base/buf.h"

/* Where the time of any stretch went, from the spans. Pure; written straight into the
 * answer.
 *
 * Times are those inside the range. Inclusive is a call's time from start to end, self
 * what none of its parts (calls inside it, waits for the owner) covers. Rows add up what
 * ran side by side; the totals of lanes count each moment once. A name inside a call of
 * the same name adds nothing to its inclusive time. What is open ends at now. */

enum report_view {
	REPORT_FLAT,
	REPORT_TOP_DOWN,  /* agent › channel › turn › call › parts */
	REPORT_BOTTOM_UP, /* name › what it was part of */
	REPORT_LIVE,      /* whole lengths of what ended: mean, deviation, histogram */
};

struct report_range {
	int64_t from, to; /* Unix ms; to is not included */
};
#define REPORT_RANGES_MAX 16

struct report_query {
	enum report_view view;
	int64_t from, to;
	int64_t now;
	/* Which lanes; NULL for all. */
	bool (*wants)(void *ctx, const struct span_lane *lane);
	void *ctx;
	/* Several ranges instead of all of it, by time, none reaching into the next: the
	 * first begins at from, the last ends at to. A call that reaches into two counts
	 * in each, for the part that is there; in the live view once. */
	const struct report_range *ranges;
	size_t range_count; /* 0: from to to */
};

/* Most rows of an answer, those with the most own time first; the others are added up in
 * a last one called "N more". */
#define REPORT_ROWS_MAX 1000
/* Paths told apart; what is beyond counts for the call it is part of. Our choice. */
#define REPORT_NODES_MAX 65536
#define REPORT_BINS 32 /* of the live histogram: bin n is from 2^n ms to 2^(n+1) */

/* Appends one JSON object; PROTOCOL.md, "/api/report", has its members. */
void report_write(struct spans *spans, const struct report_query *query, struct buf *out);

#endif
