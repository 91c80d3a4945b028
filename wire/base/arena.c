#include "wire/base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"

struct arena_block {
	struct arena_block *older;
	size_t used, size; /* bytes of @data */
	alignas(max_align_t) char data[];
};

static struct arena_block *block_create(size_t size, struct arena_block *older)
{
	struct arena_block *block;

	if (size > SIZE_MAX - sizeof(*block))
		abort();
	block = mem_grow(NULL, 1, sizeof(*block) + size);
	block->older = older;
	block->used = 0;
	block->size = size;
	return block;
}

void arena_init(struct arena *arena, size_t block_bytes)
{
	arena->blocks = NULL;
	arena->block_bytes = block_bytes;
}

void arena_finish(struct arena *arena)
{
	while (arena->blocks) {
		struct arena_block *block = arena->blocks;

		arena->blocks = block->older;
		free(block);
	}
}

void arena_reset(struct arena *arena)
{
	while (arena->blocks && arena->blocks->older) {
		struct arena_block *block = arena->blocks;

		arena->blocks = block->older;
		free(block);
	}
	if (!arena->blocks)
		return;
	/* A first block made for one large piece is not what every message should hold.
	 */
	if (arena->blocks->size > arena->block_bytes)
		arena_finish(arena);
	else
		arena->blocks->used = 0;
}

void *arena_alloc(struct arena *arena, size_t size)
{
	const size_t unit = alignof(max_align_t);
	struct arena_block *block = arena->blocks;
	void *memory;

	if (size > SIZE_MAX - unit)
		abort();
	size = (size + unit - 1) / unit * unit;
	if (!block || size > block->size - block->used) {
		block = block_create(size > arena->block_bytes ? size
							       : arena->block_bytes,
				     arena->blocks);
		arena->blocks = block;
	}
	memory = block->data + block->used;
	block->used += size;
	memset(memory, 0, size);
	return memory;
}

void *arena_array(struct arena *arena, size_t count, size_t size)
{
	size_t total;

	if (__builtin_mul_overflow(count, size, &total))
		abort();
	return arena_alloc(arena, total);
}

struct slice arena_dup(struct arena *arena, struct slice bytes)
{
	char *copy = arena_alloc(arena, bytes.len);

	if (bytes.len)
		memcpy(copy, bytes.ptr, bytes.len);
	return (struct slice){copy, bytes.len};
}
