#include "agent/fifo.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

/* Blocks double from a size that a quiet channel can afford to one that holds a frame. */
#define BLOCK_FIRST_BYTES 1024
#define BLOCK_LAST_BYTES (64 * 1024)

/* How far ahead a walk has memory fetched: a few records. Measured: probes/drain. */
#define AHEAD_BYTES 1024
#define CACHE_LINE_BYTES 64

struct block {
	struct block *next;
	uint32_t bytes;    /* with this head */
	uint32_t at, used; /* the records are data[at, used) */
	alignas(struct record) char data[];
};

static_assert(alignof(struct record_link) <= alignof(struct record),
	      "a link is aligned where a next record would be");

/* Bytes of a record up to its link. */
static uint32_t plain_stride(size_t len)
{
	const size_t align = alignof(struct record);
	const size_t bytes = (sizeof(struct record) + len + align - 1) / align * align;

	assert(bytes <= UINT32_MAX / 4);
	return (uint32_t)bytes;
}

static uint32_t stride(size_t len, unsigned urgency)
{
	return plain_stride(len) +
	       (urgency == QUEUE_PLAIN ? 0 : (uint32_t)sizeof(struct record_link));
}

static uint32_t stride_of(const struct record *record)
{
	return stride(record->len, record->urgency);
}

struct record_link *record_link(struct record *record)
{
	if (record->urgency == QUEUE_PLAIN)
		return NULL;
	return (struct record_link *)(void *)((char *)record + plain_stride(record->len));
}

void fifo_init(struct fifo *fifo, struct fifo_blocks *blocks)
{
	*fifo = (struct fifo){.blocks = blocks, .next_bytes = BLOCK_FIRST_BYTES};
}

/* Takes the first block, or the one behind @before, out. */
static void drop_block(struct fifo *fifo, struct block *before)
{
	struct block **link = before ? &before->next : &fifo->first;
	struct block *block = *link;

	*link = block->next;
	if (fifo->last == block)
		fifo->last = before;
	fifo->blocks->used_bytes -= block->bytes;
	pool_give(&fifo->blocks->pool, block, block->bytes);
}

void fifo_finish(struct fifo *fifo)
{
	while (fifo->first)
		drop_block(fifo, NULL);
}

/* Bytes of records that can follow those in the block. */
static size_t room(const struct block *block)
{
	return block->bytes - sizeof(*block) - block->used;
}

static struct block *add_block(struct fifo *fifo, uint32_t record_bytes)
{
	size_t bytes = sizeof(struct block) + record_bytes;
	struct block *block;

	if (bytes < fifo->next_bytes)
		bytes = fifo->next_bytes;
	block = pool_take(&fifo->blocks->pool, &bytes);
	*block = (struct block){.bytes = (uint32_t)bytes};
	fifo->blocks->used_bytes += bytes;
	if (fifo->last)
		fifo->last->next = block;
	else
		fifo->first = block;
	fifo->last = block;
	if (fifo->next_bytes < BLOCK_LAST_BYTES)
		fifo->next_bytes *= 2;
	return block;
}

static struct record *record_at(struct block *block, uint32_t at)
{
	return (struct record *)(void *)(block->data + at);
}

struct record *fifo_push(struct fifo *fifo, size_t len, enum queue_urgency urgency)
{
	const uint32_t need = stride(len, urgency);
	struct block *block = fifo->last;
	struct record *record;

	if (!block || room(block) < need)
		block = add_block(fifo, need);
	record = record_at(block, block->used);
	block->used += need;
	memset(record, 0, sizeof(*record));
	record->len = (uint32_t)len;
	record->urgency = (uint8_t)urgency;
	return record;
}

struct record *fifo_push_copy(struct fifo *fifo, const struct record *from)
{
	struct record *record = fifo_push(fifo, from->len, from->urgency);

	memcpy(record, from, stride_of(from));
	return record;
}

struct record *fifo_grow_last(struct fifo *fifo, struct record *last, size_t len)
{
	struct block *old = fifo->last, *before = NULL, *block;
	const uint32_t at = old->used - stride_of(last), need = stride(len, QUEUE_PLAIN);

	assert(record_at(old, at) == last && last->urgency == QUEUE_PLAIN);
	if (room(old) + old->used - at >= need) {
		old->used = at + need;
		return last;
	}
	block = add_block(fifo, need);
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

	block->at += stride_of(record_at(block, block->at));
	if (block->at == block->used)
		drop_block(fifo, NULL);
}

void fifo_prepend(struct fifo *fifo, struct fifo *front)
{
	if (!front->first)
		return;
	front->last->next = fifo->first;
	if (!fifo->last)
		fifo->last = front->last;
	fifo->first = front->first;
	front->first = front->last = NULL;
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
	struct block *block = cursor->block;
	const char *ahead = block->data + cursor->at + AHEAD_BYTES;
	const uint32_t bytes = stride_of(fifo_record(cursor));
	const char *end = ahead + (bytes < AHEAD_BYTES ? bytes : AHEAD_BYTES);

	/* Where the next record begins is known only from this one, which no processor
	 * foresees: have what lies ahead fetched meanwhile. */
	for (; ahead < end; ahead += CACHE_LINE_BYTES)
		__builtin_prefetch(ahead);
	cursor->at += bytes;
	if (cursor->at == block->used) {
		cursor->block = block->next;
		cursor->at = cursor->block ? cursor->block->at : 0;
	}
}
