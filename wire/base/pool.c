#include "wire/base/pool.h"

#include <stdlib.h>

#include "wire/base/mem.h"

struct pool_block {
	struct pool_block *next;
};

static size_t bytes_of(size_t class)
{
	return (size_t)POOL_LEAST_BYTES << class;
}

/* The least class that holds so many; POOL_CLASSES: none does. */
static size_t class_of(size_t bytes)
{
	size_t class = 0;

	while (class < POOL_CLASSES && bytes_of(class) < bytes)
		class ++;
	return class;
}

void *pool_take(struct pool *pool, size_t *bytes)
{
	const size_t class = class_of(*bytes);
	struct pool_block *block;

	if (class == POOL_CLASSES)
		return mem_grow(NULL, *bytes, 1);
	*bytes = bytes_of(class);
	block = pool->spare[class];
	if (!block)
		return mem_grow(NULL, *bytes, 1);
	pool->spare[class] = block->next;
	pool->spare_bytes -= *bytes;
	return block;
}

void pool_give(struct pool *pool, void *block, size_t bytes)
{
	struct pool_block *spare = block;
	const size_t class = class_of(bytes);

	if (!block || class == POOL_CLASSES ||
	    bytes_of(class) > pool->max_bytes - pool->spare_bytes) {
		free(block);
		return;
	}
	spare->next = pool->spare[class];
	pool->spare[class] = spare;
	pool->spare_bytes += bytes_of(class);
}

bool pool_shrink(struct pool *pool)
{
	for (size_t class = POOL_CLASSES; class -- > 0;) {
		struct pool_block *block = pool->spare[class];

		if (!block)
			continue;
		pool->spare[class] = block->next;
		pool->spare_bytes -= bytes_of(class);
		free(block);
		return true;
	}
	return false;
}

void pool_finish(struct pool *pool)
{
	while (pool_shrink(pool))
		;
}
