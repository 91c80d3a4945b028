#ifndef OBSERVER_TIMELINE_H
#define OBSERVER_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "observer/spans.h"
#include "observer/values.h"
#include "wire/base/buf.h"

/* What the page draws of a stretch of time, by pixel columns: cost follows lanes and
 * columns, not spans. Pure. */

#define TIMELINE_WIDTH_MAX 16384
#define TIMELINE_VALUE_COLUMNS 4
/* Longest stretch, ms: some 300 years. */
#define TIMELINE_RANGE_MAX INT64_C(10000000000000)

struct timeline_query {
	uint32_t request; /* comes back, so that a page knows a late answer */
	int64_t from, to; /* Unix ms; to > from, at most TIMELINE_RANGE_MAX */
	int64_t now;
	uint32_t width; /* columns, 1 to TIMELINE_WIDTH_MAX */
	bool (*wants)(void *ctx, const struct span_lane *lane); /* NULL: all lanes */
	void *ctx;
	const struct values *values; /* NULL: none */
};

/**
 * timeline_write - appends the answer: little-endian, no padding
 *
 *   "PTL2" u32:request i64:from i64:to i64:now i64:completeFrom u32:width u32:lanes
 *   per lane:  u32:id u64:generation u32:stretches u32:spans u32:series
 *     stretch: u16:columns u8:model u8:tool u8:you u8:idle   (255: the whole column)
 *     span:    i64:t i64:end u32:name u32:row u8:kind u8:flags u16:line
 *     series:  u32:kind u32:pieces, each u16:columns u32:value
 *   u32:strings, each u16:bytes and UTF-8
 *
 * id, name and row are indices of strings. Stretches cover all columns in order. Spans
 * are those of a column's length or more; from four columns on they have a title (of a
 * turn its name) and a row, below string 0, which is empty. kind: 0 turn, 1 call, 2 part
 * of a call, 3 wait; end -1 while it goes on; flags 1 failed, 2 cancelled, 4 its name is
 * a command; line: where it goes among what runs side by side. completeFrom: what ended
 * before is not known here any more; the least i64 if nothing was let go. A lane without
 * anything in the range is left out. Values have a column for every
 * TIMELINE_VALUE_COLUMNS of the others, the last may be narrower: kind 0 bytes a second,
 * 1 tokens in its context and 2 thousandths of its currency at the column's end;
 * UINT32_MAX: not known.
 */
void timeline_write(struct spans *spans, const struct timeline_query *query,
		    struct buf *out);

#endif
