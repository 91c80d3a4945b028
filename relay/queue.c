#include "relay/queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"
#include "wire/frame/limits.h"

#define RING_FIRST 16     /* parcels; doubled when full */
#define RING_IDLE_MAX 256 /* parcels; a larger ring is freed when it becomes empty */

static size_t parcel_bytes(const struct parcel *parcel)
{
	return QUEUE_PARCEL_OVERHEAD + (parcel->head ? parcel->head->len : 0) +
	       (parcel->body ? parcel->body->len : 0);
}

static void release(struct queue *queue, struct parcel *parcel)
{
	size_t bytes = parcel_bytes(parcel);

	queue->bytes -= bytes;
	if (parcel->kind == PARCEL_REPLAY)
		queue->replay_bytes -= bytes;
	if (parcel->body && --parcel->body->waiting == 0)
		queue->retained->bytes -= parcel->body->len;
	body_unref(parcel->body);
	body_unref(parcel->head);
}

static struct parcel *parcel_at(const struct queue *queue, size_t i)
{
	return &queue->ring[(queue->first + i) & (queue->cap - 1)];
}

/* The ring's size stays a power of two, so that positions wrap by a mask. */
static void ring_grow(struct queue *queue)
{
	size_t cap = queue->cap ? 2 * queue->cap : RING_FIRST;
	struct parcel *ring = mem_array(cap, sizeof(*ring));
	size_t i;

	for (i = 0; i < queue->count; i++)
		ring[i] = *parcel_at(queue, i);
	free(queue->ring);
	queue->ring = ring;
	queue->cap = cap;
	queue->first = 0;
}

void queue_init(struct queue *queue, struct retained *retained)
{
	memset(queue, 0, sizeof(*queue));
	queue->retained = retained;
}

void queue_clear(struct queue *queue)
{
	size_t i;

	for (i = 0; i < queue->count; i++)
		release(queue, parcel_at(queue, i));
	free(queue->ring);
	queue->ring = NULL;
	queue->cap = 0;
	queue->first = 0;
	queue->count = 0;
	assert(queue->bytes == 0 && queue->replay_bytes == 0);
}

void queue_finish(struct queue *queue)
{
	queue_clear(queue);
}

bool queue_push(struct queue *queue, enum parcel_kind kind, struct body *head,
		struct body *body)
{
	struct parcel parcel = {kind, head, body};
	size_t bytes = parcel_bytes(&parcel);

	if (kind != PARCEL_REPLAY &&
	    queue->bytes - queue->replay_bytes + bytes > RELAY_READER_QUEUE_MAX)
		return false;
	if (queue->count == queue->cap)
		ring_grow(queue);
	if (head)
		body_ref(head);
	if (body) {
		body_ref(body);
		if (body->waiting++ == 0)
			queue->retained->bytes += body->len;
	}
	queue->bytes += bytes;
	if (kind == PARCEL_REPLAY)
		queue->replay_bytes += bytes;
	*parcel_at(queue, queue->count) = parcel;
	queue->count++;
	return true;
}

static void write_parcel(const struct parcel *parcel, struct buf *out)
{
	switch (parcel->kind) {
	case PARCEL_TEXT:
		(void)buf_append(out, body_slice(parcel->body));
		return;
	case PARCEL_EVENT:
	case PARCEL_REPLAY:
		(void)buf_lit(out, "[\"EVENT\",");
		(void)buf_append(out, body_slice(parcel->head));
		(void)buf_append_byte(out, ',');
		(void)buf_append(out, body_slice(parcel->body));
		(void)buf_append_byte(out, ']');
		return;
	case PARCEL_EOSE:
		(void)buf_lit(out, "[\"EOSE\",");
		(void)buf_append(out, body_slice(parcel->head));
		(void)buf_append_byte(out, ']');
		return;
	}
}

/* Bytes that write_parcel() writes. */
static size_t text_bytes(const struct parcel *parcel)
{
	switch (parcel->kind) {
	case PARCEL_TEXT:
		return parcel->body->len;
	case PARCEL_EVENT:
	case PARCEL_REPLAY:
		return sizeof("[\"EVENT\",,]") - 1 + parcel->head->len +
		       parcel->body->len;
	case PARCEL_EOSE:
		return sizeof("[\"EOSE\",]") - 1 + parcel->head->len;
	}
	return 0;
}

static void drop_oldest(struct queue *queue)
{
	release(queue, parcel_at(queue, 0));
	queue->first = (queue->first + 1) & (queue->cap - 1);
	queue->count--;
	if (queue->count == 0 && queue->cap > RING_IDLE_MAX)
		queue_clear(queue); /* a burst must not hold its ring for ever */
}

bool queue_take(struct queue *queue, struct buf *out)
{
	if (queue->count == 0)
		return false;
	write_parcel(parcel_at(queue, 0), out);
	drop_oldest(queue);
	return true;
}

/* RFC 6455, 5.2: "The length of the payload data, in bytes: if 0-125, that is the payload
 * length. If 126, the following 2 bytes [...] If 127, the following 8 bytes". */
static void write_header(size_t len, struct buf *out)
{
	int shift = len < 65536 ? 8 : 56;

	(void)buf_append_byte(out, (char)0x81); /* FIN, text */
	if (len < 126) {
		(void)buf_append_byte(out, (char)len);
		return;
	}
	(void)buf_append_byte(out, len < 65536 ? 126 : 127);
	for (; shift >= 0; shift -= 8)
		(void)buf_append_byte(out, (char)(len >> shift & 0xff));
}

size_t queue_take_frames(struct queue *queue, size_t bytes, struct buf *out)
{
	size_t count = 0;

	while (queue->count > 0) {
		const struct parcel *parcel = parcel_at(queue, 0);
		size_t len = text_bytes(parcel);

		if (count > 0 && len + QUEUE_FRAME_HEADER_MAX > bytes)
			break;
		write_header(len, out);
		write_parcel(parcel, out);
		drop_oldest(queue);
		bytes -= len + QUEUE_FRAME_HEADER_MAX < bytes
				 ? len + QUEUE_FRAME_HEADER_MAX
				 : bytes;
		count++;
	}
	assert(buf_ok(out));
	return count;
}

bool queue_move(struct queue *from, struct queue *to)
{
	struct parcel *parcel;

	while (from->count > 0) {
		parcel = parcel_at(from, 0);
		if (!queue_push(to, parcel->kind, parcel->head, parcel->body))
			return false;
		drop_oldest(from);
	}
	return true;
}

static bool is_forgotten(const struct parcel *parcel, const struct body *head,
			 enum queue_forget what)
{
	if (parcel->head != head)
		return false;
	switch (what) {
	case QUEUE_FORGET_ALL:
		return true;
	case QUEUE_FORGET_AGAIN:
		return parcel->kind == PARCEL_EOSE || parcel->body->kept;
	}
	return false;
}

void queue_forget(struct queue *queue, const struct body *head, enum queue_forget what)
{
	size_t kept = 0;
	size_t i;

	for (i = 0; i < queue->count; i++) {
		struct parcel *parcel = parcel_at(queue, i);

		if (is_forgotten(parcel, head, what)) {
			release(queue, parcel);
			continue;
		}
		*parcel_at(queue, kept) = *parcel;
		kept++;
	}
	queue->count = kept;
}
