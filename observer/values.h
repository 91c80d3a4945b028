#ifndef OBSERVER_VALUES_H
#define OBSERVER_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/map.h"
#include "wire/base/slice.h"

/* What a lane has of something at each time: bytes that came, tokens in its context, what
 * it cost. Columns by time, so that any moment is found by binary search. Pure. */

/* Of one series; when it is full every second point goes, and it is half as fine. */
#define VALUES_POINTS_MAX 4096
#define VALUES_LANES_MAX 8192
/* All series together; over it a series gets coarser instead of longer; our choice. */
#define VALUES_BYTES_MAX ((size_t)64 << 20)
#define VALUES_GRAIN_MS 1000 /* points are at least so far apart */

enum value_kind {
	VALUE_BYTES,  /* of events; all that came until then */
	VALUE_TOKENS, /* in its context */
	VALUE_COST,   /* in thousandths of its currency */
	VALUE_KINDS
};

struct value_point {
	int64_t t; /* Unix ms */
	uint64_t value;
};
struct value_series {               /* fields may be read */
	struct value_point *points; /* by t */
	size_t count, room;
	int64_t grain_ms;
};
/* What was before an observer began is in series of its own: so it makes what is now no
 * coarser, however long that was. Either holds all that it was told, wherever in time. */
struct value_lane {
	struct value_series series[VALUE_KINDS], older[VALUE_KINDS];
};
struct values {
	struct map lanes; /* id as in struct span_lane → value_lane */
	size_t lane_count, bytes;
};

void values_init(struct values *values);
void values_finish(struct values *values);
/* NULL when there are VALUES_LANES_MAX others. */
struct value_lane *values_lane(struct values *values, struct slice id);
/* NULL if nothing is known of it. */
const struct value_lane *values_find(const struct values *values, struct slice id);
/* All that it counted is gone; what comes is counted from nothing. */
void values_forget(struct values *values, struct value_lane *lane);
/* @amount more at @t, which may be before what came last. */
void values_count(struct values *values, struct value_lane *lane, enum value_kind kind,
		  int64_t t, uint64_t amount);
/* From @t on it is @level; what is older than the newest point is not told. */
void values_set(struct values *values, struct value_lane *lane, enum value_kind kind,
		int64_t t, uint64_t level);
/* All that @part was told, older or not, counts as older; each part once, in any order.
 * Costs the points of both. */
void values_add_older(struct values *values, struct value_lane *lane,
		      const struct value_lane *part);
/* The point that holds just before @t: the last one that is earlier. NULL: none. */
const struct value_point *value_before(const struct value_series *series, int64_t t);
/* What the lane has just before @t, of both. False: nothing was told of then. */
bool value_lane_before(const struct value_lane *lane, enum value_kind kind, int64_t t,
		       uint64_t *out);
/* When the first of it is; INT64_MAX: there is nothing. */
int64_t value_lane_first(const struct value_lane *lane, enum value_kind kind);

#endif
