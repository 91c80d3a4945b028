#include "agent/outbox.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"
#include "wire/base/pool.h"
#include "wire/frame/limits.h"
#include "wire/frame/observer_event.h"

/* A sealed frame: base64 of the padded plaintext, and id, keys, tags and signature. */
#define TEXT_MAX POOL_MOST_BYTES

/* Kept for frames to come: enough of each size that a feed with a frame or two in flight
 * allocates nothing. Our choice. */
#define POOL_MAX (1u << 20)

/* In flight at most: as many as may wait for their OK, and the parts of each that had to
 * be split, which are an eighth of it at least. */
#define FLIGHT_MAX (AGENT_IN_FLIGHT_MAX * 9)

struct outbox {
	char epoch[17];
	struct outbox_frame **frames; /* by number, from first on; NULL: gone */
	size_t count, capacity;
	uint64_t first; /* number of frames[0] */
	/* Those of them that are UNSENT or SENT, in order. */
	struct outbox_frame *flight[FLIGHT_MAX];
	size_t in_flight;
	size_t kept_bytes;
	struct pool pool;
};

struct outbox *outbox_create(const char epoch[17])
{
	struct outbox *outbox = mem_alloc(sizeof(*outbox));

	memcpy(outbox->epoch, epoch, sizeof(outbox->epoch));
	outbox->first = 1;
	outbox->pool.max_bytes = POOL_MAX;
	return outbox;
}

/* An empty buffer with room for @bytes. */
static void take_room(struct pool *pool, struct buf *buf, size_t bytes)
{
	buf->ptr = pool_take(pool, &bytes);
	buf->cap = bytes;
}

static void give_room(struct pool *pool, struct buf *buf)
{
	pool_give(pool, buf->ptr, buf->cap);
	buf_init(buf, buf->max);
}

/* An empty plaintext with room for @bytes. */
static void take_memory(struct pool *pool, struct outbox_frame *frame, size_t bytes)
{
	frame->memory = shared_take(pool, bytes);
	buf_init(&frame->plaintext, shared_room(frame->memory));
	frame->plaintext.ptr = frame->memory->data;
	frame->plaintext.cap = frame->plaintext.max; /* so it is never moved */
}

/* Small frames are in small blocks, with room for any suffix. */
static void settle_in_less(struct pool *pool, struct outbox_frame *frame)
{
	struct shared *memory = frame->memory;
	const struct slice body = buf_slice(&frame->plaintext);

	if (body.len + FRAME_SUFFIX_MAX > shared_room(memory) / 2)
		return;
	take_memory(pool, frame, body.len + FRAME_SUFFIX_MAX);
	(void)buf_append(&frame->plaintext, body);
	memory->used = body.len;
	shared_let_go(memory);
}

static struct outbox_frame *frame_create(struct pool *pool)
{
	size_t bytes = sizeof(struct outbox_frame);
	struct outbox_frame *frame = pool_take(pool, &bytes);

	*frame = (struct outbox_frame){.state = OUTBOX_UNSENT};
	take_memory(pool, frame, FRAME_PLAINTEXT_MAX);
	buf_init(&frame->text, TEXT_MAX);
	take_room(pool, &frame->text, TEXT_MAX);
	return frame;
}

static void frame_destroy(struct pool *pool, struct outbox_frame *frame)
{
	if (!frame)
		return;
	shared_let_go(frame->memory);
	give_room(pool, &frame->text);
	pool_give(pool, frame, sizeof(*frame));
}

void outbox_destroy(struct outbox *outbox)
{
	if (!outbox)
		return;
	for (size_t i = 0; i < outbox->count; i++)
		frame_destroy(&outbox->pool, outbox->frames[i]);
	pool_finish(&outbox->pool);
	free(outbox->frames);
	free(outbox);
}

static size_t kept_bytes(const struct outbox_frame *frame)
{
	return sizeof(*frame) + frame->memory->bytes;
}

/* Of gone frames nothing need be known below the oldest one that is still here. */
static void drop_front(struct outbox *outbox)
{
	size_t gone = 0;

	while (gone < outbox->count && !outbox->frames[gone])
		gone++;
	if (!gone)
		return;
	outbox->count -= gone;
	outbox->first += gone;
	memmove(outbox->frames, outbox->frames + gone,
		outbox->count * sizeof(struct outbox_frame *));
}

static void land(struct outbox *outbox, const struct outbox_frame *frame)
{
	size_t at = 0;

	while (outbox->flight[at] != frame)
		at++;
	outbox->in_flight--;
	memmove(outbox->flight + at, outbox->flight + at + 1,
		(outbox->in_flight - at) * sizeof(struct outbox_frame *));
}

/* The caller calls drop_front(). */
static void set_gone(struct outbox *outbox, struct outbox_frame *frame)
{
	if (frame->state == OUTBOX_KEPT)
		outbox->kept_bytes -= kept_bytes(frame);
	else
		land(outbox, frame);
	outbox->frames[frame->number - outbox->first] = NULL;
	frame_destroy(&outbox->pool, frame);
}

bool outbox_is_full(const struct outbox *outbox)
{
	return outbox->in_flight >= AGENT_IN_FLIGHT_MAX;
}

size_t outbox_in_flight(const struct outbox *outbox)
{
	return outbox->in_flight;
}

struct outbox_frame *outbox_straggler(const struct outbox *outbox)
{
	if (outbox->count < OUTBOX_NUMBERS_MAX || outbox->frames[0]->state == OUTBOX_KEPT)
		return NULL;
	return outbox->frames[0];
}

/* The next number, for @frame or for none that is kept here. */
static uint64_t give_number(struct outbox *outbox, struct outbox_frame *frame)
{
	/* Behind a straggler it grows, by the parts of a frame that is split. */
	if (outbox->count >= OUTBOX_NUMBERS_MAX && !outbox_straggler(outbox)) {
		set_gone(outbox, outbox->frames[0]);
		drop_front(outbox);
	}
	if (outbox->count == outbox->capacity) {
		outbox->capacity = outbox->capacity ? 2 * outbox->capacity : 16;
		outbox->frames = mem_grow(outbox->frames, outbox->capacity,
					  sizeof(struct outbox_frame *));
	}
	outbox->frames[outbox->count++] = frame;
	return outbox->first + outbox->count - 1;
}

struct outbox_frame *outbox_add(struct outbox *outbox)
{
	struct outbox_frame *frame = frame_create(&outbox->pool);

	assert(outbox->in_flight < FLIGHT_MAX);
	frame->number = give_number(outbox, frame);
	outbox->flight[outbox->in_flight++] = frame;
	return frame;
}

uint64_t outbox_pass(struct outbox *outbox)
{
	const uint64_t number = give_number(outbox, NULL);

	drop_front(outbox);
	return number;
}

void outbox_mark(struct outbox *outbox, struct outbox_frame *frame, bool replayed)
{
	struct buf *plaintext = &frame->plaintext;

	if (frame->body_bytes) {
		buf_truncate(plaintext, frame->body_bytes);
		plaintext->ptr[plaintext->len - 1] = '}';
	} else {
		settle_in_less(&outbox->pool, frame);
	}
	frame->body_bytes = plaintext->len;
	(void)frame_write_suffix(plaintext, outbox->epoch, frame->number, replayed);
	assert(buf_ok(plaintext) && plaintext->len <= FRAME_PLAINTEXT_MAX);
}

void outbox_empty(struct outbox *outbox, struct outbox_frame *frame)
{
	shared_let_go(frame->memory);
	take_memory(&outbox->pool, frame, FRAME_PLAINTEXT_MAX);
	buf_clear(&frame->text);
	frame->body_bytes = 0;
}

struct outbox_frame *outbox_find(const struct outbox *outbox, const uint8_t id[32])
{
	for (size_t i = 0; i < outbox->in_flight; i++) {
		struct outbox_frame *frame = outbox->flight[i];

		if (frame->state == OUTBOX_SENT && memcmp(frame->id, id, 32) == 0)
			return frame;
	}
	return NULL;
}

void outbox_accept(struct outbox *outbox, struct outbox_frame *frame, int64_t now_ms)
{
	land(outbox, frame);
	frame->state = OUTBOX_KEPT;
	frame->acked_ms = now_ms;
	give_room(&outbox->pool, &frame->text);
	outbox->kept_bytes += kept_bytes(frame);
	outbox_expire(outbox, now_ms);
}

void outbox_refuse(struct outbox *outbox, struct outbox_frame *frame)
{
	set_gone(outbox, frame);
	drop_front(outbox);
}

void outbox_disconnect(struct outbox *outbox)
{
	for (size_t i = 0; i < outbox->in_flight; i++)
		outbox->flight[i]->state = OUTBOX_UNSENT;
}

void outbox_unseal(struct outbox *outbox)
{
	for (size_t i = 0; i < outbox->in_flight; i++)
		outbox->flight[i]->sealed_ms = -OUTBOX_SEAL_MS;
}

struct outbox_frame *outbox_unsent(const struct outbox *outbox)
{
	for (size_t i = 0; i < outbox->in_flight; i++)
		if (outbox->flight[i]->state == OUTBOX_UNSENT)
			return outbox->flight[i];
	return NULL;
}

int64_t outbox_deadline(const struct outbox *outbox)
{
	int64_t oldest = -1;

	for (size_t i = 0; i < outbox->in_flight; i++) {
		const struct outbox_frame *frame = outbox->flight[i];

		if (frame->state == OUTBOX_SENT &&
		    (oldest < 0 || frame->sent_ms < oldest))
			oldest = frame->sent_ms;
	}
	return oldest < 0 ? -1 : oldest + OUTBOX_OK_MS;
}

void outbox_expire(struct outbox *outbox, int64_t now_ms)
{
	for (size_t i = 0; i < outbox->count; i++) {
		struct outbox_frame *frame = outbox->frames[i];

		if (!frame || frame->state != OUTBOX_KEPT)
			continue;
		if (outbox->kept_bytes > AGENT_KEEP_MAX ||
		    frame->acked_ms + AGENT_KEEP_S * 1000 <= now_ms)
			set_gone(outbox, frame);
	}
	drop_front(outbox);
}

struct outbox_frame *outbox_get(const struct outbox *outbox, uint64_t number)
{
	if (number < outbox->first || number - outbox->first >= outbox->count)
		return NULL;
	return outbox->frames[number - outbox->first];
}

uint64_t outbox_last(const struct outbox *outbox)
{
	return outbox->first + outbox->count - 1;
}

uint64_t outbox_first(const struct outbox *outbox)
{
	return outbox->first;
}

bool outbox_next(const struct outbox *outbox, uint64_t from, uint64_t *number)
{
	uint64_t next = from > outbox->first ? from : outbox->first;

	for (; next <= outbox_last(outbox); next++) {
		if (!outbox_get(outbox, next))
			continue;
		*number = next;
		return true;
	}
	return false;
}
