/* What an agent prints, line by line, through scan, redaction, feed, queue and pack:
 * every frame that comes out must be one that a strict peer reads, and every event
 * accounted for. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <stdlib.h>

#include "agent/acp_line.h"
#include "agent/feed.h"
#include "agent/queue.h"
#include "wire/base/arena.h"
#include "wire/frame/observer_event.h"

static bool is_inside(struct slice part, struct slice text)
{
	return !part.ptr ||
	       (part.ptr >= text.ptr && part.ptr + part.len <= text.ptr + text.len);
}

static void check_line(const struct acp_line *line)
{
	const struct slice text = line->text;

	assert(is_inside(line->id, text) && is_inside(line->method, text));
	assert(is_inside(line->params, text) && is_inside(line->result, text));
	assert(is_inside(line->session, text) && is_inside(line->update, text));
	assert(is_inside(line->chunk, text));
}

static bool same_place(struct slice a, struct slice b)
{
	return a.ptr == b.ptr && a.len == b.len;
}

/* However the lines before it look, a line is read as it is alone. */
static void check_alike(const struct acp_line *a, const struct acp_line *b)
{
	assert(a->shape == b->shape && same_place(a->text, b->text));
	assert(same_place(a->id, b->id) && same_place(a->method, b->method));
	assert(same_place(a->params, b->params) && same_place(a->result, b->result));
	assert(same_place(a->error, b->error) && same_place(a->session, b->session));
	assert(same_place(a->update, b->update) && same_place(a->chunk, b->chunk));
	assert(a->id_is_plain == b->id_is_plain && a->has_secrets == b->has_secrets &&
	       a->params_is_object == b->params_is_object &&
	       a->repairable == b->repairable && a->fault.code == b->fault.code);
}

static void feed_lines(struct feed *feed, struct slice input)
{
	struct acp_alike alike = {0};
	struct uuid channel = {"7b1f0c52-5a0e-4c9b-9f8e-3d2c6a41e0d7"};
	const struct feed_context context = {.channel = &channel};
	struct feed_time now = {1796000000000, 0};
	struct slice text;
	struct buf whole;

	buf_init(&whole, 16 << 20);
	for (int i = 0; slice_take_until(&input, '\n', &text); i++, now.monotonic_ms++) {
		struct acp_line line, again;

		acp_line_scan(text, &line);
		check_line(&line);
		acp_line_scan_alike(text, &alike, &again);
		check_alike(&line, &again);
		(void)feed_line(feed, now, &context, i % 3 ? FEED_READ : FEED_WRITE,
				&line, text.len, SLICE_EMPTY, &whole);
	}
	buf_finish(&whole);
}

static void drain(struct queue *queue)
{
	const struct queue_ledger *ledger = queue_ledger(queue);
	struct queue_frame info;
	struct arena arena;
	struct frame frame;
	struct buf out;
	uint64_t seq = 0;

	arena_init(&arena, 4096);
	buf_init(&out, FRAME_PACK_MAX);
	while (queue_pack(queue, FRAME_PACK_MAX, &out, &info)) {
		assert(buf_ok(&out) &&
		       frame_parse(buf_slice(&out), &arena, &frame, NULL));
		for (size_t i = 0; i < frame.event_count; i++) {
			assert(frame.events[i].seq > seq);
			seq = frame.events[i].seq;
		}
		queue_published(queue, &info);
		buf_clear(&out);
		arena_reset(&arena);
	}
	assert(ledger->ingested == ledger->published + ledger->dropped);
	arena_finish(&arena);
	buf_finish(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct queue *queue = queue_create(1 << 20);
	struct feed *feed = feed_create(queue);

	feed_lines(feed, (struct slice){(const char *)data, size});
	drain(queue);
	feed_destroy(feed);
	queue_destroy(queue);
	return 0;
}
