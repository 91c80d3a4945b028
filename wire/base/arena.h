#ifndef WIRE_BASE_ARENA_H
#define WIRE_BASE_ARENA_H

#include <stddef.h>

#include "wire/base/slice.h"

/* Memory that dies together: the parts of one parsed message. Reset keeps the first
 * block. */
struct arena {
	struct arena_block *blocks; /* newest first */
	size_t block_bytes;         /* size of an ordinary block */
};

void arena_init(struct arena *arena, size_t block_bytes);
void arena_finish(struct arena *arena);
/* Frees everything that was handed out. */
void arena_reset(struct arena *arena);
/* Aligned for any type, zeroed, never NULL. */
void *arena_alloc(struct arena *arena, size_t size);
void *arena_array(struct arena *arena, size_t count, size_t size);
struct slice arena_dup(struct arena *arena, struct slice bytes);

#endif
