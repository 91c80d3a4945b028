#include "observer/archive_lost.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"

void archive_lost_finish(struct archive_lost *lost)
{
	free(lost->ranges);
	*lost = (struct archive_lost){0};
}

static bool is_of(const struct lost_range *range, const uint8_t *agent, const char *epoch)
{
	return memcmp(range->agent, agent, KEY_BYTES) == 0 &&
	       strcmp(range->epoch, epoch) == 0;
}

static void widen(struct frame_range *range, uint64_t number)
{
	if (number < range->first)
		range->first = number;
	if (number > range->last)
		range->last = number;
}

/* Inside, or next to it. */
static bool touches(const struct frame_range *range, uint64_t number)
{
	return number + 1 >= range->first && number <= range->last + 1;
}

void archive_lost_add(struct archive_lost *lost, const uint8_t *agent, const char *epoch,
		      uint64_t number)
{
	struct lost_range *any = NULL, *added;

	/* Nearly always the newest one grows. */
	for (size_t i = lost->count; i-- > 0;) {
		if (!is_of(&lost->ranges[i], agent, epoch))
			continue;
		any = &lost->ranges[i];
		if (touches(&any->range, number)) {
			widen(&any->range, number);
			return;
		}
	}
	if (lost->count == ARCHIVE_LOST_MAX) {
		if (any)
			widen(&any->range, number);
		return;
	}
	if (lost->count == lost->room) {
		lost->room = lost->room ? 2 * lost->room : 16;
		lost->ranges = mem_grow(lost->ranges, lost->room, sizeof(*lost->ranges));
	}
	added = &lost->ranges[lost->count++];
	*added = (struct lost_range){.range = {number, number}};
	memcpy(added->agent, agent, KEY_BYTES);
	memcpy(added->epoch, epoch, strlen(epoch) + 1);
}
