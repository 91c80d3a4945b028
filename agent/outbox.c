#include "agent/outbox.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/frame/observer_event.h"

/* A sealed frame: base64 of the padded plaintext, and id, keys, tags and signature. */
#define TEXT_MAX (2 * 65536)

struct outbox {
	char epoch[17];
	struct outbox_frame **frames; /* by number, from first on */
	size_t count, capacity;
	uint64_t first;   /* number of frames[0] */
	size_t in_flight; /* UNSENT or SENT */
	size_t kept_bytes;
};

struct outbox *outbox_create(const char epoch[17])
{
	struct outbox *outbox = mem_alloc(sizeof(*outbox));

	memcpy(outbox->epoch, epoch, sizeof(outbox->epoch));
	outbox->first = 1;
	return outbox;
}

static void frame_free(struct outbox_frame *frame)
{
	buf_wipe(&frame->plaintext);
	buf_finish(&frame->text);
	free(frame);
}

void outbox_destroy(struct outbox *outbox)
{
	if (!outbox)
		return;
	for (size_t i = 0; i < outbox->count; i++)
		frame_free(outbox->frames[i]);
	free(outbox->frames);
	free(outbox);
}

bool outbox_is_full(const struct outbox *outbox)
{
	return outbox->in_flight >= AGENT_IN_FLIGHT_MAX;
}

size_t outbox_in_flight(const struct outbox *outbox)
{
	return outbox->in_flight;
}

struct outbox_frame *outbox_add(struct outbox *outbox)
{
	struct outbox_frame *frame = mem_alloc(sizeof(*frame));

	assert(!outbox_is_full(outbox));
	if (outbox->count == outbox->capacity) {
		outbox->capacity = outbox->capacity ? 2 * outbox->capacity : 16;
		outbox->frames = mem_grow(outbox->frames, outbox->capacity,
					  sizeof(struct outbox_frame *));
	}
	frame->number = outbox->first + outbox->count;
	frame->state = OUTBOX_UNSENT;
	buf_init(&frame->plaintext, FRAME_PLAINTEXT_MAX);
	buf_init(&frame->text, TEXT_MAX);
	outbox->frames[outbox->count++] = frame;
	outbox->in_flight++;
	return frame;
}

void outbox_mark(const struct outbox *outbox, struct outbox_frame *frame, bool replayed)
{
	struct buf *plaintext = &frame->plaintext;

	if (frame->body_bytes) {
		buf_truncate(plaintext, frame->body_bytes);
		plaintext->ptr[plaintext->len - 1] = '}';
	}
	frame->body_bytes = plaintext->len;
	(void)frame_write_suffix(plaintext, outbox->epoch, frame->number, replayed);
	assert(buf_ok(plaintext));
}

static bool in_flight(const struct outbox_frame *frame)
{
	return frame->state == OUTBOX_UNSENT || frame->state == OUTBOX_SENT;
}

struct outbox_frame *outbox_find(const struct outbox *outbox, const uint8_t id[32])
{
	for (size_t i = outbox->count; i-- > 0;) {
		struct outbox_frame *frame = outbox->frames[i];

		if (frame->state == OUTBOX_SENT && memcmp(frame->id, id, 32) == 0)
			return frame;
	}
	return NULL;
}

static size_t kept_bytes(const struct outbox_frame *frame)
{
	return sizeof(*frame) + frame->plaintext.cap;
}

static void set_gone(struct outbox *outbox, struct outbox_frame *frame)
{
	if (frame->state == OUTBOX_KEPT)
		outbox->kept_bytes -= kept_bytes(frame);
	else
		outbox->in_flight--;
	frame->state = OUTBOX_GONE;
	buf_wipe(&frame->plaintext);
	buf_finish(&frame->text);
}

/* Of gone frames nothing need be known below the oldest one that is still here. */
static void drop_front(struct outbox *outbox)
{
	size_t gone = 0;

	while (gone < outbox->count && outbox->frames[gone]->state == OUTBOX_GONE)
		frame_free(outbox->frames[gone++]);
	if (!gone)
		return;
	outbox->count -= gone;
	outbox->first += gone;
	memmove(outbox->frames, outbox->frames + gone,
		outbox->count * sizeof(struct outbox_frame *));
}

void outbox_accept(struct outbox *outbox, struct outbox_frame *frame, int64_t now_ms)
{
	outbox->in_flight--;
	frame->state = OUTBOX_KEPT;
	frame->acked_ms = now_ms;
	buf_finish(&frame->text);
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
	for (size_t i = 0; i < outbox->count; i++)
		if (outbox->frames[i]->state == OUTBOX_SENT)
			outbox->frames[i]->state = OUTBOX_UNSENT;
}

struct outbox_frame *outbox_unsent(const struct outbox *outbox)
{
	for (size_t i = 0; outbox->in_flight && i < outbox->count; i++)
		if (outbox->frames[i]->state == OUTBOX_UNSENT)
			return outbox->frames[i];
	return NULL;
}

int64_t outbox_deadline(const struct outbox *outbox)
{
	int64_t oldest = -1;

	for (size_t i = 0; outbox->in_flight && i < outbox->count; i++) {
		const struct outbox_frame *frame = outbox->frames[i];

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
		const bool old = frame->acked_ms + AGENT_KEEP_S * 1000 <= now_ms;

		if (frame->state == OUTBOX_KEPT &&
		    (old || outbox->kept_bytes > AGENT_KEEP_MAX))
			set_gone(outbox, frame);
	}
	drop_front(outbox);
}

struct outbox_frame *outbox_get(const struct outbox *outbox, uint64_t number)
{
	struct outbox_frame *frame;

	if (number < outbox->first || number - outbox->first >= outbox->count)
		return NULL;
	frame = outbox->frames[number - outbox->first];
	return in_flight(frame) || frame->state == OUTBOX_KEPT ? frame : NULL;
}

uint64_t outbox_last(const struct outbox *outbox)
{
	return outbox->first + outbox->count - 1;
}

uint64_t outbox_first(const struct outbox *outbox)
{
	return outbox->first;
}

bool outbox_write_gone(const struct outbox *outbox, struct buf *out)
{
	uint64_t start = 0;
	bool any = false;

	(void)buf_lit(out, "[");
	for (size_t i = 0; i <= outbox->count; i++) {
		const bool gone =
			i < outbox->count && outbox->frames[i]->state == OUTBOX_GONE;
		const uint64_t number = outbox->first + i;

		if (gone && !start)
			start = number;
		if (gone || !start)
			continue;
		(void)buf_printf(out, "%s[%" PRIu64 ",%" PRIu64 "]", any ? "," : "",
				 start, number - 1);
		any = true;
		start = 0;
	}
	return buf_lit(out, "]");
}
