#include "observer/missing.h"

#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"

void missing_finish(struct missing *missing)
{
	free(missing->here);
	free(missing->gone);
	*missing = (struct missing){0};
}

/* Index of the first range that ends at @number or later. */
static size_t find(const struct missing *missing, uint64_t number)
{
	size_t low = 0, high = missing->count;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (missing->here[middle].last < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void note_gone(struct missing *missing, struct gone_range gone)
{
	missing->given_up++;
	if (missing->gone_count == MISSING_RANGES_MAX) {
		missing->gone_unlisted +=
			missing->gone[0].range.last - missing->gone[0].range.first + 1;
		memmove(missing->gone, missing->gone + 1,
			(MISSING_RANGES_MAX - 1) * sizeof(*missing->gone));
		missing->gone_count--;
	}
	if (missing->gone_count == missing->gone_room) {
		missing->gone_room = missing->gone_room ? missing->gone_room * 2 : 4;
		missing->gone = mem_grow(missing->gone, missing->gone_room,
					 sizeof(*missing->gone));
	}
	missing->gone[missing->gone_count++] = gone;
}

/* Takes a number that came after all out of what was given up; false: it was not. */
static bool take_back(struct missing *missing, uint64_t number)
{
	for (size_t i = 0; i < missing->gone_count; i++) {
		struct gone_range *gone = &missing->gone[i];
		const struct gone_range tail = {{number + 1, gone->range.last},
						gone->why};

		if (number < gone->range.first || number > gone->range.last)
			continue;
		gone->range.last = number - 1;
		if (gone->range.last < gone->range.first)
			memmove(gone, gone + 1,
				(--missing->gone_count - i) * sizeof(*gone));
		if (tail.range.first <= tail.range.last)
			note_gone(missing, tail);
		return true;
	}
	return false;
}

/* Puts a range in that overlaps none, joining it with neighbours that it touches. */
static void insert(struct missing *missing, struct frame_range range)
{
	const size_t at = find(missing, range.first);
	struct frame_range *here = missing->here;
	const bool joins_left = at && here[at - 1].last + 1 == range.first;
	const bool joins_right = at < missing->count && range.last + 1 == here[at].first;

	if (joins_left && joins_right) {
		here[at - 1].last = here[at].last;
		memmove(here + at, here + at + 1,
			(missing->count - at - 1) * sizeof(*here));
		missing->count--;
	} else if (joins_left) {
		here[at - 1].last = range.last;
	} else if (joins_right) {
		here[at].first = range.first;
	} else {
		if (missing->count == missing->room) {
			missing->room = missing->room ? missing->room * 2 : 4;
			missing->here = here =
				mem_grow(here, missing->room, sizeof(*here));
		}
		memmove(here + at + 1, here + at, (missing->count - at) * sizeof(*here));
		here[at] = range;
		missing->count++;
	}
}

/* Gives the oldest hole up where there are too many. */
static void shed(struct missing *missing)
{
	if (missing->count > MISSING_RANGES_MAX)
		missing_give_up(
			missing,
			(struct gone_range){{1, missing->here[1].first - 1}, GONE_SHED});
}

enum missing_add missing_add(struct missing *missing, uint64_t number)
{
	size_t at;

	if (!number || number > FRAME_NUMBER_MAX)
		return MISSING_REFUSED;
	at = find(missing, number);
	if (at < missing->count && missing->here[at].first <= number)
		return take_back(missing, number) ? MISSING_NEW : MISSING_SEEN;
	insert(missing, (struct frame_range){number, number});
	missing_extend(missing, number);
	shed(missing);
	return MISSING_NEW;
}

void missing_extend(struct missing *missing, uint64_t last)
{
	if (last > missing->last && last <= FRAME_NUMBER_MAX)
		missing->last = last;
}

/* Those of @range that are not here are from now on; @why: NULL, if nobody misses them.
 */
static void fill(struct missing *missing, struct frame_range range,
		 const enum gone_why *why)
{
	uint64_t from = range.first ? range.first : 1;

	if (range.last > missing->last)
		range.last = missing->last;
	while (from <= range.last) {
		const size_t at = find(missing, from);
		struct frame_range hole = {from, range.last};

		if (at < missing->count && missing->here[at].first <= from) {
			from = missing->here[at].last + 1;
			continue;
		}
		if (at < missing->count && missing->here[at].first <= range.last)
			hole.last = missing->here[at].first - 1;
		insert(missing, hole);
		if (why)
			note_gone(missing, (struct gone_range){hole, *why});
		from = hole.last + 1;
	}
}

void missing_give_up(struct missing *missing, struct gone_range gone)
{
	fill(missing, gone.range, &gone.why);
}

void missing_forget(struct missing *missing, struct frame_range range)
{
	missing_extend(missing, range.last);
	fill(missing, range, NULL);
	shed(missing);
}

/* Takes what is in @range out of the ranges that are here. */
static void remove_here(struct missing *missing, struct frame_range range)
{
	struct frame_range *here = missing->here;
	size_t kept = 0;

	for (size_t i = 0; i < missing->count; i++) {
		const struct frame_range at = here[i];

		if (at.last < range.first || at.first > range.last) {
			here[kept++] = at;
			continue;
		}
		if (at.first < range.first && at.last > range.last) {
			/* The only one that becomes two: its end goes in again. */
			here[i].last = range.first - 1;
			insert(missing, (struct frame_range){range.last + 1, at.last});
			return;
		}
		if (at.first < range.first)
			here[kept++] = (struct frame_range){at.first, range.first - 1};
		if (at.last > range.last)
			here[kept++] = (struct frame_range){range.last + 1, at.last};
	}
	missing->count = kept;
}

void missing_take_out(struct missing *missing, struct frame_range range)
{
	size_t kept = 0;

	/* What is gone and touches it is asked for as well: it is told gone again. */
	for (size_t i = 0; i < missing->gone_count; i++) {
		const struct gone_range gone = missing->gone[i];

		if (gone.range.last < range.first || gone.range.first > range.last)
			missing->gone[kept++] = gone;
		else
			remove_here(missing, gone.range);
	}
	missing->gone_count = kept;
	remove_here(missing, range);
	shed(missing);
}

size_t missing_holes(const struct missing *missing, struct frame_range *out, size_t max)
{
	uint64_t after = missing->last + 1; /* everything from here on is no hole */
	size_t count = 0;

	for (size_t i = missing->count; i-- > 0 && count < max;) {
		if (missing->here[i].last + 1 < after)
			out[count++] = (struct frame_range){missing->here[i].last + 1,
							    after - 1};
		after = missing->here[i].first;
	}
	if (count < max && after > 1)
		out[count++] = (struct frame_range){1, after - 1};
	return count;
}

uint64_t missing_count(const struct missing *missing)
{
	uint64_t here = 0;

	for (size_t i = 0; i < missing->count; i++)
		here += missing->here[i].last - missing->here[i].first + 1;
	return missing->last - here;
}
