#include "agent/reader.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/support.h"

#define LINES_MAX 16

static struct {
	char text[LINES_MAX][64];
	size_t len[LINES_MAX], bytes[LINES_MAX];
	size_t count;
} got;

static void on_line(void *ctx, struct slice line, size_t bytes)
{
	size_t kept = line.len < sizeof(got.text[0]) ? line.len : sizeof(got.text[0]);

	(void)ctx;
	ck_assert_uint_lt(got.count, LINES_MAX);
	if (kept)
		memcpy(got.text[got.count], line.ptr, kept);
	got.len[got.count] = line.len;
	got.bytes[got.count++] = bytes;
}

static struct slice line_at(size_t i)
{
	ck_assert_uint_lt(i, got.count);
	return (struct slice){got.text[i], got.len[i]};
}

static struct reader reader;

static void setup(void)
{
	memset(&got, 0, sizeof(got));
	reader_init(&reader, READER_HEAD_BYTES);
}

static void teardown(void)
{
	reader_finish(&reader);
}

static void feed(struct slice bytes)
{
	reader_feed(&reader, bytes, on_line, NULL);
}

START_TEST(lines_end_at_lf_and_at_nothing_else)
{
	feed(SLICE("one\xe2\x80\xa8two\x0b\xc2\x85three\rfour\nfive\r\n"));
	ck_assert_uint_eq(got.count, 2);
	assert_slice_eq(line_at(0), "one\xe2\x80\xa8two\x0b\xc2\x85three\rfour");
	assert_slice_eq(line_at(1), "five\r");
}
END_TEST

START_TEST(a_line_that_comes_byte_by_byte_is_one_line)
{
	struct slice text = SLICE("split \xf0\x9f\x99\x82\n");

	for (size_t i = 0; i < text.len; i++)
		feed(slice_sub(text, i, i + 1));
	ck_assert_uint_eq(got.count, 1);
	assert_slice_eq(line_at(0), "split \xf0\x9f\x99\x82");
}
END_TEST

START_TEST(a_tail_without_lf_comes_at_the_end_of_the_stream)
{
	feed(SLICE("whole\ntai"));
	feed(SLICE("l"));
	ck_assert_uint_eq(got.count, 1);
	reader_end(&reader, on_line, NULL);
	ck_assert_uint_eq(got.count, 2);
	assert_slice_eq(line_at(1), "tail");
	reader_end(&reader, on_line, NULL);
	ck_assert_uint_eq(got.count, 2);
}
END_TEST

START_TEST(a_line_over_the_cap_is_told_by_its_length_and_takes_no_other_with_it)
{
	char *big = calloc(1, 3000);

	memset(big, 'x', 3000);
	for (int i = 0; i < 10; i++)
		feed((struct slice){big, 3000});
	ck_assert_uint_le(reader.line.cap, READER_HEAD_BYTES);
	feed(SLICE("\nnext\n"));
	ck_assert_uint_eq(got.count, 2);
	ck_assert_uint_eq(got.bytes[0], 30000);
	ck_assert_uint_eq(got.len[0], READER_HEAD_BYTES);
	assert_slice_eq(line_at(1), "next");
	ck_assert_uint_eq(got.bytes[1], 4);
	free(big);
}
END_TEST

START_TEST(an_empty_line_is_a_line)
{
	feed(SLICE("\n\n"));
	ck_assert_uint_eq(got.count, 2);
	ck_assert_uint_eq(got.bytes[1], 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reader");
	TCase *tcase = tcase_create("lines");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, lines_end_at_lf_and_at_nothing_else);
	tcase_add_test(tcase, a_line_that_comes_byte_by_byte_is_one_line);
	tcase_add_test(tcase, a_tail_without_lf_comes_at_the_end_of_the_stream);
	tcase_add_test(
		tcase,
		a_line_over_the_cap_is_told_by_its_length_and_takes_no_other_with_it);
	tcase_add_test(tcase, an_empty_line_is_a_line);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
