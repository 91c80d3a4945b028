#include <stdbool.h>
#include <string.h>

#include "agent/feed.h"
#include "agent/queue.h"
#include "tests/unit/support/support.h"
#include "wire/base/arena.h"
#include "wire/frame/observer_event.h"

/* What ends exactly at, just before and just beyond the limit of a frame, by feed, queue,
 * pack and suffix together. Source: design §4, "Plaintext sent is at most 65,408 bytes …
 * events are fitted to and frames packed to 65,340". */

static struct queue *queue;
static struct feed *feed;
static struct buf frame, payload;
static struct arena arena;
static struct frame read;
static struct uuid channel;
static struct feed_context context;

/* Before each figure: seqs must be as long as those of what was measured. */
static void setup(void)
{
	queue = queue_create(4 << 20);
	feed = feed_create(queue);
	buf_init(&frame, FRAME_PLAINTEXT_MAX);
	buf_init(&payload, 1 << 20);
	arena_init(&arena, 4096);
	ck_assert(uuid_parse(SLICE("7b1f0c52-5a0e-4c9b-9f8e-3d2c6a41e0d7"), &channel));
	context = (struct feed_context){.channel = &channel, .session = SLICE_INIT("s")};
}

static void teardown(void)
{
	arena_finish(&arena);
	buf_finish(&frame);
	buf_finish(&payload);
	feed_destroy(feed);
	queue_destroy(queue);
}

/* What a text is made of: units that must not be cut, of one to twelve bytes. */
static const char *const units[] = {
	"x", "\\n", "\\u00e9", "\\ud83d\\ude00", "é", "€", "😀",
};
#define UNITS ((int)(sizeof(units) / sizeof(units[0])))

/* Which optional members an event has. */
enum option { STARTED_AT = 1, AUTHORIZATION = 2, NO_SLOT = 4, OPTIONS = 8 };

/* An event whose payload has @text_bytes of text, of @unit as far as it goes. */
static void emit(const char *unit, int options, size_t text_bytes)
{
	const struct feed_time now = {1796025600123, 1200};
	size_t left = text_bytes;

	context.turn_started_ms = options & STARTED_AT ? 1796025600000 : 0;
	context.slot = options & NO_SLOT ? -1 : 0;
	buf_clear(&payload);
	(void)buf_lit(&payload, "{\"t\":\"");
	for (; left >= strlen(unit); left -= strlen(unit))
		(void)buf_append(&payload, slice_of(unit));
	for (; left; left--)
		(void)buf_append_byte(&payload, 'x');
	(void)buf_lit(&payload, "\"}");
	(void)feed_emit(feed, now, &context, SLICE("note"),
			options & AUTHORIZATION ? SLICE("{\"by\":\"me\"}") : SLICE_EMPTY,
			buf_slice(&payload));
}

/* Packs and reads the next frame; its bytes before the suffix. */
static size_t next_frame(void)
{
	struct queue_frame info;

	buf_clear(&frame);
	arena_reset(&arena);
	ck_assert(queue_pack(queue, FRAME_PACK_MAX, &frame, &info));
	queue_published(queue, &info);
	ck_assert(frame_parse(buf_slice(&frame), &arena, &read, NULL));
	return frame.len;
}

static size_t with_longest_suffix(void)
{
	ck_assert(frame_write_suffix(&frame, "0123456789abcdef", FRAME_NUMBER_MAX, true));
	ck_assert(frame_parse(buf_slice(&frame), &arena, &read, NULL));
	return frame.len;
}

static bool is_trimmed(void)
{
	return slice_find_slice(buf_slice(&frame), SLICE(",\"trimmed\":")) < frame.len;
}

/* Text that makes an event of @bytes. */
static size_t text_for(int options, size_t bytes)
{
	emit("x", options, 0);
	return bytes - next_frame();
}

START_TEST(event_up_to_65340_bytes_is_sent_whole)
{
	for (int options = 0; options < OPTIONS; options++) {
		for (size_t bytes = 65339; bytes <= 65340; bytes++) {
			setup();
			emit(units[_i], options, text_for(options, bytes));
			ck_assert_uint_eq(next_frame(), bytes);
			ck_assert(!is_trimmed());
			ck_assert_uint_eq(with_longest_suffix(), bytes + 68);
			ck_assert_uint_le(frame.len, 65408);
			teardown();
		}
	}
}
END_TEST

START_TEST(event_of_65341_bytes_is_trimmed_until_it_fits)
{
	for (int options = 0; options < OPTIONS; options++) {
		setup();
		emit(units[_i], options, text_for(options, 65341));
		ck_assert_uint_le(next_frame(), 65340);
		ck_assert(is_trimmed());
		ck_assert_uint_le(with_longest_suffix(), 65408);
		teardown();
	}
}
END_TEST

/* Two events that share a batch of @bytes, or would. */
static void emit_two(const char *unit, int options, size_t bytes)
{
	size_t text;

	emit("x", options, 0);
	emit("x", options, 0);
	text = bytes - next_frame();
	emit(unit, options, text / 2);
	emit(unit, options, text - text / 2);
}

START_TEST(batch_up_to_65340_bytes_is_one_frame)
{
	for (int options = 0; options < OPTIONS; options++)
		for (size_t bytes = 65339; bytes <= 65340; bytes++) {
			setup();
			emit_two(units[_i], options, bytes);
			ck_assert_uint_eq(next_frame(), bytes);
			ck_assert_uint_eq(read.event_count, 2);
			ck_assert_uint_eq(with_longest_suffix(), bytes + 68);
			teardown();
		}
}
END_TEST

START_TEST(batch_of_65341_bytes_is_two_frames_with_nothing_trimmed)
{
	for (int options = 0; options < OPTIONS; options++) {
		setup();
		emit_two(units[_i], options, 65341);
		for (int i = 0; i < 2; i++) {
			(void)next_frame();
			ck_assert_uint_eq(read.event_count, 1);
			ck_assert(!is_trimmed());
		}
		ck_assert(queue_is_empty(queue));
		teardown();
	}
}
END_TEST

static Suite *frame_limit_suite(void)
{
	Suite *suite = suite_create("frame_limit");
	TCase *event = tcase_create("event"), *batch = tcase_create("batch");

	tcase_add_loop_test(event, event_up_to_65340_bytes_is_sent_whole, 0, UNITS);
	tcase_add_loop_test(event, event_of_65341_bytes_is_trimmed_until_it_fits, 0,
			    UNITS);
	tcase_add_loop_test(batch, batch_up_to_65340_bytes_is_one_frame, 0, UNITS);
	tcase_add_loop_test(
		batch, batch_of_65341_bytes_is_two_frames_with_nothing_trimmed, 0, UNITS);
	suite_add_tcase(suite, event);
	suite_add_tcase(suite, batch);
	return suite;
}

int main(void)
{
	return test_run(frame_limit_suite());
}
