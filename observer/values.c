#include "observer/values.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"

#define ROOM_MIN 16

void values_init(struct values *values)
{
	*values = (struct values){0};
	map_init(&values->lanes);
}

void values_finish(struct values *values)
{
	struct map_entry *entry = NULL;

	while ((entry = map_next(&values->lanes, entry)) != NULL) {
		struct value_lane *lane = entry->value;

		for (size_t kind = 0; kind < VALUE_KINDS; kind++) {
			free(lane->series[kind].points);
			free(lane->older[kind].points);
		}
		free(lane);
	}
	map_finish(&values->lanes);
}

struct value_lane *values_lane(struct values *values, struct slice id)
{
	struct value_lane *lane = map_get(&values->lanes, id);

	if (lane || values->lane_count == VALUES_LANES_MAX)
		return lane;
	lane = mem_alloc(sizeof(*lane));
	for (size_t kind = 0; kind < VALUE_KINDS; kind++)
		lane->series[kind].grain_ms = lane->older[kind].grain_ms =
			VALUES_GRAIN_MS;
	(void)map_put(&values->lanes, id, lane);
	values->lane_count++;
	return lane;
}

const struct value_lane *values_find(const struct values *values, struct slice id)
{
	return map_get(&values->lanes, id);
}

static void drop(struct values *values, struct value_series *series)
{
	values->bytes -= series->room * sizeof(*series->points);
	free(series->points);
	*series = (struct value_series){.grain_ms = VALUES_GRAIN_MS};
}

void values_forget(struct values *values, struct value_lane *lane)
{
	for (size_t kind = 0; kind < VALUE_KINDS; kind++) {
		drop(values, &lane->series[kind]);
		drop(values, &lane->older[kind]);
	}
}

/* How many points are earlier than @t. */
static size_t earlier(const struct value_series *series, int64_t t)
{
	size_t low = 0, high = series->count;

	assert(series->points || !series->count);
	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (series->points[middle].t < t)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct value_point *value_before(const struct value_series *series, int64_t t)
{
	const size_t count = earlier(series, t);

	return count ? &series->points[count - 1] : NULL;
}

/* Sums and levels alike are right at the points that stay; the newest does. */
static void halve(struct value_series *series)
{
	size_t kept = 0;

	assert(series->points && series->count);
	for (size_t i = (series->count - 1) % 2; i < series->count; i += 2)
		series->points[kept++] = series->points[i];
	series->count = kept;
	series->grain_ms *= 2;
}

static void make_room(struct values *values, struct value_series *series)
{
	const size_t room = series->room ? series->room * 2 : ROOM_MIN;
	const size_t more = (room - series->room) * sizeof(*series->points);

	if (series->count < series->room)
		return;
	if (series->room &&
	    (room > VALUES_POINTS_MAX || values->bytes + more > VALUES_BYTES_MAX)) {
		halve(series);
		return;
	}
	series->points = mem_grow(series->points, room, sizeof(*series->points));
	series->room = room;
	values->bytes += more;
}

static void insert(struct values *values, struct value_series *series, int64_t t,
		   uint64_t value)
{
	size_t at;

	make_room(values, series);
	assert(series->points);
	at = earlier(series, t);
	memmove(series->points + at + 1, series->points + at,
		(series->count - at) * sizeof(*series->points));
	series->points[at] = (struct value_point){t, value};
	series->count++;
}

void values_count(struct values *values, struct value_lane *lane, enum value_kind kind,
		  int64_t t, uint64_t amount)
{
	struct value_series *series = &lane->series[kind];
	const struct value_point *last = value_before(series, t < INT64_MAX ? t + 1 : t);
	const uint64_t before = last ? last->value : 0;

	/* What comes within a grain is of the point that began it. */
	if (!last || t - last->t >= series->grain_ms)
		insert(values, series, t, before);
	else
		t = last->t;
	for (size_t i = earlier(series, t); i < series->count; i++)
		series->points[i].value += amount;
}

void values_set(struct values *values, struct value_lane *lane, enum value_kind kind,
		int64_t t, uint64_t level)
{
	struct value_series *series = &lane->series[kind];
	struct value_point *newest =
		series->count ? &series->points[series->count - 1] : NULL;

	if (newest && t < newest->t)
		return;
	if (newest && t - newest->t < series->grain_ms)
		newest->value = level;
	else
		insert(values, series, t, level);
}

/* Behind all that is there; within a grain it is of the point that began it. */
static void push(struct value_series *series, int64_t t, uint64_t value)
{
	struct value_point *last = series->points + series->count;

	if (series->count && t - last[-1].t < series->grain_ms)
		last[-1].value = value;
	else
		series->points[series->count++] = (struct value_point){t, value};
}

/* Both in one, by time: sums are added up, of levels the later holds. */
static void join(const struct value_series *a, const struct value_series *b,
		 enum value_kind kind, struct value_series *out)
{
	uint64_t of_a = 0, of_b = 0;

	for (size_t i = 0, k = 0; i < a->count || k < b->count;) {
		const bool is_a = k == b->count ||
				  (i < a->count && a->points[i].t <= b->points[k].t);
		const struct value_point *next = is_a ? &a->points[i++] : &b->points[k++];

		*(is_a ? &of_a : &of_b) = next->value;
		push(out, next->t, kind == VALUE_BYTES ? of_a + of_b : next->value);
	}
}

static void add_older(struct values *values, struct value_series *older,
		      enum value_kind kind, const struct value_series *more)
{
	struct value_series all = {.grain_ms = older->grain_ms > more->grain_ms
						       ? older->grain_ms
						       : more->grain_ms};

	if (!more->count)
		return;
	all.points = mem_array(older->count + more->count, sizeof(*all.points));
	join(older, more, kind, &all);
	drop(values, older);
	while (all.count > VALUES_POINTS_MAX ||
	       (all.count > ROOM_MIN &&
		values->bytes + all.count * sizeof(*all.points) > VALUES_BYTES_MAX))
		halve(&all);
	all.room = all.count;
	all.points = mem_grow(all.points, all.room, sizeof(*all.points));
	values->bytes += all.room * sizeof(*all.points);
	*older = all;
}

void values_add_older(struct values *values, struct value_lane *lane,
		      const struct value_lane *part)
{
	for (size_t kind = 0; kind < VALUE_KINDS; kind++) {
		struct value_series *older = &lane->older[kind];

		add_older(values, older, (enum value_kind)kind, &part->series[kind]);
		add_older(values, older, (enum value_kind)kind, &part->older[kind]);
	}
}

bool value_lane_before(const struct value_lane *lane, enum value_kind kind, int64_t t,
		       uint64_t *out)
{
	const struct value_point *new = value_before(&lane->series[kind], t);
	const struct value_point *old = value_before(&lane->older[kind], t);

	if (!new && !old)
		return false;
	if (kind == VALUE_BYTES)
		*out = (new ? new->value : 0) + (old ? old->value : 0);
	else
		*out = new && (!old || new->t >= old->t) ? new->value : old->value;
	return true;
}

int64_t value_lane_first(const struct value_lane *lane, enum value_kind kind)
{
	const struct value_series *new = &lane->series[kind], *old = &lane->older[kind];
	const int64_t first = new->count ? new->points[0].t : INT64_MAX;

	return old->count && old->points[0].t < first ? old->points[0].t : first;
}
