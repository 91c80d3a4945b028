#include "agent/output.h"

#include <string.h>

#include "agent/lookup.h"
#include "tests/unit/support/support.h"
#include "wire/nostr/json.h"

#define EVENTS_MAX 64

static struct output output;
static struct buf events[EVENTS_MAX];
static size_t event_count;

static void emit(void *ctx, struct slice payload)
{
	(void)ctx;
	ck_assert_uint_lt(event_count, EVENTS_MAX);
	ck_assert_msg(json_check(payload, NULL, NULL), "%.*s", SLICE_ARG(payload));
	buf_init(&events[event_count], 1u << 20);
	(void)buf_append(&events[event_count++], payload);
}

static void setup(void)
{
	event_count = 0;
	output_init(&output);
}

static void teardown(void)
{
	output_finish(&output);
	for (size_t i = 0; i < event_count; i++)
		buf_finish(&events[i]);
}

static void feed(struct slice bytes, int64_t now_ms)
{
	output_feed(&output, bytes, now_ms, emit, NULL);
}

static struct slice event(size_t i)
{
	ck_assert_uint_lt(i, event_count);
	return buf_slice(&events[i]);
}

static bool has(struct slice text, const char *part)
{
	return memmem(text.ptr, text.len, part, strlen(part)) != NULL;
}

START_TEST(lines_of_one_read_share_an_event)
{
	feed(SLICE("one\ntwo\nthr"), 0);
	ck_assert_uint_eq(event_count, 1);
	assert_slice_eq(event(0), "{\"stream\":\"stderr\",\"text\":\"one\\ntwo\\n\"}");
	feed(SLICE("ee\n"), 0);
	assert_slice_eq(event(1), "{\"stream\":\"stderr\",\"text\":\"three\\n\"}");
}
END_TEST

START_TEST(bytes_that_are_no_utf8_are_replaced_and_marked)
{
	feed(SLICE("a\xff\xfe z\n"), 0);
	assert_slice_eq(
		event(0),
		"{\"stream\":\"stderr\",\"text\":\"a\xef\xbf\xbd\xef\xbf\xbd z\\n\","
		"\"binary\":true}");
}
END_TEST

START_TEST(a_character_that_comes_in_two_reads_is_whole)
{
	feed(SLICE("caf\xc3"), 0);
	output_pause(&output, 200, emit, NULL);
	assert_slice_eq(event(0),
			"{\"stream\":\"stderr\",\"text\":\"caf\",\"partial\":true}");
	output_pause(&output, 400, emit, NULL);
	ck_assert_uint_eq(event_count, 1);
	feed(SLICE("\xa9\n"), 500);
	assert_slice_eq(event(1), "{\"stream\":\"stderr\",\"text\":\"\xc3\xa9\\n\"}");
}
END_TEST

START_TEST(a_character_that_never_ends_is_said_at_the_end)
{
	feed(SLICE("\xf0\x9f\x99"), 0);
	output_pause(&output, 200, emit, NULL);
	ck_assert_uint_eq(event_count, 0);
	output_flush(&output, 400, emit, NULL);
	ck_assert_uint_eq(event_count, 1);
	ck_assert(has(event(0), "\"binary\":true"));
}
END_TEST

START_TEST(a_line_that_is_cut_is_cut_between_characters)
{
	struct buf line;

	buf_init(&line, 2 * OUTPUT_LINE_BYTES);
	(void)buf_append_byte(&line, 'x');
	while (line.len < OUTPUT_LINE_BYTES + 1)
		(void)buf_lit(&line, "\xc3\xa9");
	(void)buf_append_byte(&line, '\n');
	feed(buf_slice(&line), 0);
	for (size_t i = 0; i < event_count; i++)
		ck_assert(!has(event(i), "binary"));
	ck_assert_uint_ge(event_count, 2);
	buf_finish(&line);
}
END_TEST

START_TEST(an_unfinished_line_is_said_at_the_end_and_marked)
{
	feed(SLICE("Password: "), 0);
	ck_assert_uint_eq(event_count, 0);
	output_flush(&output, 0, emit, NULL);
	assert_slice_eq(
		event(0),
		"{\"stream\":\"stderr\",\"text\":\"Password: \",\"partial\":true}");
}
END_TEST

/* Writes @count lines of 100 bytes. */
static void flood(size_t count, int64_t now_ms)
{
	char line[100];

	memset(line, '.', sizeof(line));
	line[sizeof(line) - 1] = '\n';
	for (size_t i = 0; i < count; i++)
		feed((struct slice){line, sizeof(line)}, now_ms);
}

static size_t total_bytes(void)
{
	size_t sum = 0;

	for (size_t i = 0; i < event_count; i++)
		sum += lookup_string(event(i), SLICE("text")).len;
	return sum;
}

START_TEST(a_flood_is_capped_and_what_was_dropped_is_counted)
{
	struct buf text;

	buf_init(&text, 1u << 20);
	for (int i = 0; i < 10000; i++)
		(void)buf_lit(&text, "a line of thirty-two bytes here\n");
	feed(buf_slice(&text), 0);
	ck_assert_uint_le(total_bytes(), OUTPUT_BURST + OUTPUT_BURST / 16);
	output_flush(&output, 0, emit, NULL);
	/* 32,768 bytes of burst hold 1,024 lines of 32. */
	assert_slice_eq(lookup(event(event_count - 1), SLICE("suppressed")), "8976");
	buf_finish(&text);
}
END_TEST

START_TEST(after_a_flood_it_speaks_again_and_says_how_much_is_missing)
{
	output.tokens = 0;
	flood(5, 0);
	ck_assert_uint_eq(event_count, 0);
	flood(1, 1000);
	ck_assert_uint_eq(event_count, 1);
	assert_slice_eq(lookup(event(0), SLICE("suppressed")), "5");
}
END_TEST

START_TEST(the_tail_is_the_last_4_kib_whatever_was_suppressed)
{
	struct buf tail;

	output.tokens = 0;
	flood(100, 0);
	feed(SLICE("the last words\n"), 0);
	buf_init(&tail, 3 * OUTPUT_TAIL_BYTES);
	output_tail(&output, &tail);
	ck_assert_uint_eq(tail.len, OUTPUT_TAIL_BYTES);
	ck_assert(slice_ends(buf_slice(&tail), SLICE("the last words\n")));
	buf_finish(&tail);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("output");
	TCase *tcase = tcase_create("stderr");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, lines_of_one_read_share_an_event);
	tcase_add_test(tcase, bytes_that_are_no_utf8_are_replaced_and_marked);
	tcase_add_test(tcase, a_character_that_comes_in_two_reads_is_whole);
	tcase_add_test(tcase, a_character_that_never_ends_is_said_at_the_end);
	tcase_add_test(tcase, a_line_that_is_cut_is_cut_between_characters);
	tcase_add_test(tcase, an_unfinished_line_is_said_at_the_end_and_marked);
	tcase_add_test(tcase, a_flood_is_capped_and_what_was_dropped_is_counted);
	tcase_add_test(tcase, after_a_flood_it_speaks_again_and_says_how_much_is_missing);
	tcase_add_test(tcase, the_tail_is_the_last_4_kib_whatever_was_suppressed);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
