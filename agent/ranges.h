#ifndef AGENT_RANGES_H
#define AGENT_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/frame/control.h"

/* A set of frame numbers as ascending inclusive ranges that never touch. Pure. A zeroed
 * struct is valid and empty. */
struct ranges {
	struct frame_range *items;
	size_t count, room;
};

void ranges_finish(struct ranges *ranges);
void ranges_add(struct ranges *ranges, uint64_t number);
void ranges_add_range(struct ranges *ranges, struct frame_range range);
void ranges_remove(struct ranges *ranges, uint64_t number);
/* The smallest number in it that is @from or more; false: there is none. */
bool ranges_next(const struct ranges *ranges, uint64_t from, uint64_t *number);
bool ranges_has(const struct ranges *ranges, uint64_t number);

#endif
