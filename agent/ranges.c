#include "agent/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"

void ranges_finish(struct ranges *ranges)
{
	free(ranges->items);
	*ranges = (struct ranges){0};
}

/* Index of the first range that ends at @number or later. */
static size_t find(const struct ranges *ranges, uint64_t number)
{
	size_t low = 0, high = ranges->count;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (ranges->items[middle].last < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void take_out(struct ranges *ranges, size_t at)
{
	ranges->count--;
	memmove(ranges->items + at, ranges->items + at + 1,
		(ranges->count - at) * sizeof(*ranges->items));
}

static void put_in(struct ranges *ranges, size_t at, struct frame_range range)
{
	if (ranges->count == ranges->room) {
		ranges->room = ranges->room ? 2 * ranges->room : 4;
		ranges->items =
			mem_grow(ranges->items, ranges->room, sizeof(*ranges->items));
	}
	memmove(ranges->items + at + 1, ranges->items + at,
		(ranges->count - at) * sizeof(*ranges->items));
	ranges->items[at] = range;
	ranges->count++;
}

void ranges_add_range(struct ranges *ranges, struct frame_range range)
{
	/* All that it overlaps or touches becomes one with it. */
	const size_t at = find(ranges, range.first > 1 ? range.first - 1 : range.first);
	size_t end = at;

	for (; end < ranges->count && ranges->items[end].first <= range.last + 1; end++) {
		if (ranges->items[end].first < range.first)
			range.first = ranges->items[end].first;
		if (ranges->items[end].last > range.last)
			range.last = ranges->items[end].last;
	}
	if (end == at) {
		put_in(ranges, at, range);
		return;
	}
	ranges->items[at] = range;
	memmove(ranges->items + at + 1, ranges->items + end,
		(ranges->count - end) * sizeof(*ranges->items));
	ranges->count -= end - at - 1;
}

void ranges_add(struct ranges *ranges, uint64_t number)
{
	ranges_add_range(ranges, (struct frame_range){number, number});
}

void ranges_remove(struct ranges *ranges, uint64_t number)
{
	const size_t at = find(ranges, number);
	struct frame_range *range = ranges->items + at;
	const struct frame_range tail = {number + 1,
					 at < ranges->count ? range->last : 0};

	if (at == ranges->count || range->first > number)
		return;
	if (range->first == range->last) {
		take_out(ranges, at);
	} else if (range->first == number) {
		range->first++;
	} else {
		range->last = number - 1;
		if (tail.first <= tail.last)
			put_in(ranges, at + 1, tail);
	}
}

bool ranges_next(const struct ranges *ranges, uint64_t from, uint64_t *number)
{
	const size_t at = find(ranges, from);

	if (at == ranges->count)
		return false;
	*number = ranges->items[at].first > from ? ranges->items[at].first : from;
	return true;
}

bool ranges_has(const struct ranges *ranges, uint64_t number)
{
	uint64_t next;

	return ranges_next(ranges, number, &next) && next == number;
}
