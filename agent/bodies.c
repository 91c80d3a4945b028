#include "agent/bodies.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/nostr/json.h"

struct body {
	struct uuid channel;
	int slot;
	int64_t turn_started_ms;
	char *session, *turn; /* owned; NULL: null */
	char epoch[17];
	uint64_t seq;
	char *event; /* owned */
	size_t len, at;
	uint64_t part, parts; /* part: the last one given */
};

struct bodies {
	struct body items[BODIES_MAX]; /* oldest first */
	size_t count;
	struct body done; /* its context was given out last */
};

struct bodies *bodies_create(void)
{
	return mem_alloc(sizeof(struct bodies));
}

static void body_finish(struct body *body)
{
	free(body->session);
	free(body->turn);
	free(body->event);
	*body = (struct body){0};
}

void bodies_destroy(struct bodies *bodies)
{
	if (!bodies)
		return;
	for (size_t i = 0; i < bodies->count; i++)
		body_finish(&bodies->items[i]);
	body_finish(&bodies->done);
	free(bodies);
}

/* Most bytes that this one takes inside a JSON string. */
static size_t escaped_bytes(char byte)
{
	if (byte == '"' || byte == '\\')
		return 2;
	return (unsigned char)byte < 0x20 ? 6 : 1;
}

/* Where the part that starts at @at ends: on a UTF-8 boundary. */
static size_t part_end(const struct body *body, size_t at)
{
	size_t bytes = 0, end = at;

	while (end < body->len &&
	       bytes + escaped_bytes(body->event[end]) <= BODY_PART_BYTES)
		bytes += escaped_bytes(body->event[end++]);
	while (end < body->len && ((unsigned char)body->event[end] & 0xc0) == 0x80)
		end--;
	return end;
}

static char *dup_or_null(struct slice text)
{
	return text.ptr ? mem_dup(text) : NULL;
}

bool bodies_add(struct bodies *bodies, const struct feed_context *context,
		const char epoch[17], uint64_t seq, struct slice event)
{
	struct body *body = &bodies->items[bodies->count];

	for (size_t i = 0; i < bodies->count; i++)
		if (bodies->items[i].seq == seq &&
		    strcmp(bodies->items[i].epoch, epoch) == 0)
			return true;
	if (bodies->count == BODIES_MAX)
		return false;
	assert(context->channel && event.len);
	*body = (struct body){
		.channel = *context->channel,
		.slot = context->slot,
		.turn_started_ms = context->turn_started_ms,
		.session = dup_or_null(context->session),
		.turn = dup_or_null(context->turn),
		.seq = seq,
		.event = mem_dup(event),
		.len = event.len,
	};
	memcpy(body->epoch, epoch, sizeof(body->epoch));
	for (size_t at = 0; at < body->len; at = part_end(body, at))
		body->parts++;
	bodies->count++;
	return true;
}

bool bodies_is_empty(const struct bodies *bodies)
{
	return !bodies->count;
}

static void write_part(const struct body *body, size_t end, struct buf *out)
{
	(void)buf_lit(out, "{");
	(void)json_write_member_string(out, SLICE("epoch"), slice_of(body->epoch));
	(void)json_write_member_int(out, SLICE("seq"), (int64_t)body->seq);
	(void)json_write_member_int(out, SLICE("part"), (int64_t)body->part);
	(void)json_write_member_int(out, SLICE("parts"), (int64_t)body->parts);
	(void)json_write_member_string(
		out, SLICE("text"),
		(struct slice){body->event + body->at, end - body->at});
	(void)buf_lit(out, "}");
}

bool bodies_next(struct bodies *bodies, struct feed_context *context, struct buf *out)
{
	struct body *body = &bodies->items[0];
	size_t end;

	if (!bodies->count)
		return false;
	end = part_end(body, body->at);
	body->part++;
	write_part(body, end, out);
	body->at = end;
	if (end == body->len) {
		body_finish(&bodies->done);
		bodies->done = *body;
		memmove(body, body + 1, --bodies->count * sizeof(*body));
		body = &bodies->done;
	}
	*context = (struct feed_context){
		.slot = body->slot,
		.channel = &body->channel,
		.session = slice_of(body->session),
		.turn = slice_of(body->turn),
		.turn_started_ms = body->turn_started_ms,
	};
	return true;
}
