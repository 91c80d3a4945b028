#ifndef WIRE_BASE_POOL_H
#define WIRE_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>

/* Memory that is used again: blocks of a power of two of bytes, kept when they are given
 * back, so that a steady flow allocates nothing. Zeroed with @max_bytes set it is a valid
 * empty pool. */
#define POOL_LEAST_BYTES 512
#define POOL_CLASSES 9
#define POOL_MOST_BYTES (POOL_LEAST_BYTES << (POOL_CLASSES - 1)) /* 128 KiB */

struct pool_block;

struct pool {
	struct pool_block *spare[POOL_CLASSES]; /* by size, the last one given first */
	size_t spare_bytes;                     /* what they hold; may be read */
	size_t max_bytes;                       /* more than this is not kept */
};

/* A block of at least *@bytes, which becomes what it has; its content is undefined. Of
 * more than POOL_MOST_BYTES it is exact, and never kept. Out of memory aborts. */
void *pool_take(struct pool *pool, size_t *bytes);
/* @bytes: as pool_take() was asked, or said. @block may be NULL. Its content is left
 * alone but for the first sizeof(void *) bytes until it is taken again or freed. */
void pool_give(struct pool *pool, void *block, size_t bytes);
/* Frees the largest spare block; false if there is none. */
bool pool_shrink(struct pool *pool);
void pool_finish(struct pool *pool);

#endif
