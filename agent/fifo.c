#include "agent/fifo.h"

#include <assert.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"

/* Blocks double from a size that a quiet channel can afford to one that holds a frame. */
#define BLOCK_FIRST_BYTES 1024
#define BLOCK_LAST_BYTES (64 * 1024)
/* What malloc keeps for itself beside each block. Source: glibc, "chunk" overhead. */
#define MALLOC_BYTES 16

/* How far ahead a walk has memory fetched: a few records. Measured: probes/drain. */
#define AHEAD_BYTES 1024
#define CACHE_LINE_BYTES 64

struct block {
	struct block *next;
	uint32_t size;     /* of data */
	uint32_t at, used; /* the records are data[at, used) */
	alignas(struct record) char data[];
};

static uint32_t stride(size_t len)
{
	const size_t align = alignof(struct record);
	const size_t bytes = (sizeof(struct record) + len + align - 1) / align * align;

	assert(bytes <= UINT32_MAX / 4);
	return (uint32_t)bytes;
}

static size_t cost(const struct block *block)
{
	return sizeof(*block) + block->size + MALLOC_BYTES;
}

void fifo_init(struct fifo *fifo, size_t *memory)
{
	*fifo = (struct fifo){.memory = memory, .next_bytes = BLOCK_FIRST_BYTES};
}

/* Takes the first block, or the one behind @before, out and frees it. */
static void drop_block(struct fifo *fifo, struct block *before)
{
	struct block **link = before ? &before->next : &fifo->first;
	struct block *block = *link;

	*link = block->next;
	if (fifo->last == block)
		fifo->last = before;
	*fifo->memory -= cost(block);
	free(block);
}

void fifo_finish(struct fifo *fifo)
{
	while (fifo->first)
		drop_block(fifo, NULL);
}

static struct block *add_block(struct fifo *fifo, uint32_t at_least)
{
	const uint32_t size = at_least > fifo->next_bytes ? at_least : fifo->next_bytes;
	struct block *block = mem_grow(NULL, 1, sizeof(*block) + size);

	*block = (struct block){.size = size};
	if (fifo->last)
		fifo->last->next = block;
	else
		fifo->first = block;
	fifo->last = block;
	*fifo->memory += cost(block);
	if (fifo->next_bytes < BLOCK_LAST_BYTES)
		fifo->next_bytes *= 2;
	return block;
}

static struct record *record_at(struct block *block, uint32_t at)
{
	return (struct record *)(void *)(block->data + at);
}

struct record *fifo_push(struct fifo *fifo, size_t len)
{
	const uint32_t need = stride(len);
	struct block *block = fifo->last;
	struct record *record;

	if (!block || block->size - block->used < need)
		block = add_block(fifo, need);
	record = record_at(block, block->used);
	block->used += need;
	memset(record, 0, sizeof(*record));
	record->len = (uint32_t)len;
	return record;
}

struct record *fifo_grow_last(struct fifo *fifo, struct record *last, size_t len)
{
	struct block *old = fifo->last, *before = NULL, *block;
	const uint32_t at = old->used - stride(last->len), need = stride(len);

	assert(record_at(old, at) == last);
	if (old->size - at >= need) {
		old->used = at + need;
		return last;
	}
	block = add_block(fifo, 2 * need);
	memcpy(block->data, last, sizeof(*last) + last->len);
	block->used = need;
	old->used = at;
	if (old->at == old->used) {
		for (struct block *b = fifo->first; b != old; b = b->next)
			before = b;
		drop_block(fifo, before);
	}
	return record_at(block, 0);
}

void fifo_pop(struct fifo *fifo)
{
	struct block *block = fifo->first;

	block->at += stride(record_at(block, block->at)->len);
	if (block->at == block->used)
		drop_block(fifo, NULL);
}

void fifo_cut(struct fifo *fifo, const struct fifo_cursor *end)
{
	while (fifo->first != end->block)
		drop_block(fifo, NULL);
	if (fifo->first)
		fifo->first->at = end->at;
}

struct fifo_cursor fifo_start(const struct fifo *fifo)
{
	return (struct fifo_cursor){fifo->first, fifo->first ? fifo->first->at : 0};
}

struct record *fifo_record(const struct fifo_cursor *cursor)
{
	return cursor->block ? record_at(cursor->block, cursor->at) : NULL;
}

void fifo_step(struct fifo_cursor *cursor)
{
	uint32_t bytes;

	assert(cursor->block);
	bytes = stride(fifo_record(cursor)->len);
	cursor->at += bytes;
	/* Where the next record begins is known only from this one, which no processor
	 * foresees: have what lies ahead fetched meanwhile. */
	for (uint32_t i = 0; i < bytes && i < AHEAD_BYTES; i += CACHE_LINE_BYTES)
		__builtin_prefetch(cursor->block->data + cursor->at + AHEAD_BYTES + i);
	if (cursor->at == cursor->block->used) {
		cursor->block = cursor->block->next;
		cursor->at = cursor->block ? cursor->block->at : 0;
	}
}
