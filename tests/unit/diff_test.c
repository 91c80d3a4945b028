#include "observer/diff.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/support/support.h"

static struct slice diff_of(const char *old, const char *new, struct diff_size *size)
{
	static struct buf out;

	buf_clear(&out);
	out.max = 16u << 20;
	diff_write(slice_of(old), slice_of(new), &out, size);
	return buf_slice(&out);
}

static bool has(struct slice text, const char *needle)
{
	return slice_find_slice(text, slice_of(needle)) < text.len;
}

START_TEST(equal_texts_have_no_hunk)
{
	struct diff_size size;

	assert_slice_eq(diff_of("a\nb\n", "a\nb\n", &size),
			"\"added\":0,\"removed\":0,\"hunks\":[],\"more\":false");
}
END_TEST

START_TEST(a_changed_line_stands_between_its_context)
{
	struct diff_size size;

	assert_slice_eq(
		diff_of("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nX\n6\n7\n8\n9\n",
			&size),
		"\"added\":1,\"removed\":1,\"hunks\":[{\"old\":2,\"new\":2,\"lines\":["
		"\" 2\",\" 3\",\" 4\",\"-5\",\"+X\",\" 6\",\" 7\",\" 8\"]}],"
		"\"more\":false");
}
END_TEST

START_TEST(a_new_file_is_all_added)
{
	struct diff_size size;

	(void)diff_of("", "one\ntwo", &size);
	ck_assert_uint_eq(size.added, 2);
	ck_assert_uint_eq(size.removed, 0);
}
END_TEST

START_TEST(far_apart_changes_are_two_hunks)
{
	struct diff_size size;
	const struct slice got = diff_of("a\n1\n2\n3\n4\n5\n6\n7\n8\nz\n",
					 "A\n1\n2\n3\n4\n5\n6\n7\n8\nZ\n", &size);

	ck_assert(has(got, "{\"old\":1,\"new\":1,"));
	ck_assert(has(got, "{\"old\":7,\"new\":7,"));
}
END_TEST

START_TEST(quotes_and_controls_are_escaped)
{
	struct diff_size size;

	ck_assert(has(diff_of("", "say \"hi\"\x01", &size), "+say \\\"hi\\\"\\u0001"));
}
END_TEST

START_TEST(a_huge_rewrite_stays_within_the_budget)
{
	static char old[40000], new[40000];
	struct diff_size size;
	struct slice got;

	for (size_t i = 0; i < 4000; i++) {
		(void)snprintf(old + i * 6, 7, "o%04zu\n", i);
		(void)snprintf(new + i * 6, 7, "n%04zu\n", i);
	}
	got = diff_of(old, new, &size);
	ck_assert_uint_eq(size.removed, 4000);
	ck_assert_uint_eq(size.added, 4000);
	ck_assert(has(got, "\"more\":true"));
	ck_assert_uint_lt(got.len, 10000);
}
END_TEST

/* Applying what was written to the old text gives the new one. */
static void apply_lines(struct slice json, const char *old, char *out, size_t room)
{
	size_t at = 0;
	struct slice rest = slice_of(old), line;

	for (size_t i = 1; i + 1 < json.len; i++) {
		const bool opens = json.ptr[i] == '"' &&
				   (json.ptr[i - 1] == '[' || json.ptr[i - 1] == ',');

		if (!opens || !strchr(" +-", json.ptr[i + 1]))
			continue;
		if (json.ptr[i + 1] != '+') {
			ck_assert(slice_take_until(&rest, '\n', &line));
			ck_assert_int_eq(json.ptr[i + 2], *line.ptr);
		}
		if (json.ptr[i + 1] != '-')
			at += (size_t)snprintf(out + at, room - at, "%c\n",
					       json.ptr[i + 2]);
	}
	ck_assert_uint_eq(rest.len, 0);
}

START_TEST(the_script_turns_the_old_text_into_the_new_one)
{
	char old[64], new[64], got[256] = "";
	uint32_t random = 3u + (unsigned)_i;
	struct diff_size size;
	unsigned old_lines, new_lines;

	random = random * 1664525u + 1013904223u;
	old_lines = 1 + (random >> 8) % 4;
	random = random * 1664525u + 1013904223u;
	new_lines = 1 + (random >> 8) % 4;
	memset(old, 0, sizeof(old));
	memset(new, 0, sizeof(new));
	for (unsigned i = 0; i < old_lines; i++) {
		random = random * 1664525u + 1013904223u;
		(void)snprintf(old + 2 * i, 3, "%c\n", 'a' + (char)((random >> 8) % 3));
	}
	for (unsigned i = 0; i < new_lines; i++) {
		random = random * 1664525u + 1013904223u;
		(void)snprintf(new + 2 * i, 3, "%c\n", 'a' + (char)((random >> 8) % 3));
	}
	if (strcmp(old, new) == 0)
		return;
	/* Within DIFF_CONTEXT of a change everything is written. */
	apply_lines(diff_of(old, new, &size), old, got, sizeof(got));
	ck_assert_str_eq(got, new);
}
END_TEST

/* Two texts whose every line differs. */
static void all_differ(struct buf *old, struct buf *new, int lines)
{
	for (int i = 0; i < lines; i++) {
		(void)buf_printf(old, "old %d\n", i);
		(void)buf_printf(new, "new %d\n", i);
	}
}

START_TEST(a_diff_of_20_000_lines_is_read_page_by_page)
{
	struct buf old = {.max = 1u << 20}, new = {.max = 1u << 20}, out = {0};
	struct diff_size size;

	all_differ(&old, &new, 20000);
	for (size_t from = 0; from < 40000; from += 10000) {
		char first[64], last[64];

		buf_clear(&out);
		out.max = 16u << 20;
		diff_write_lines(buf_slice(&old), buf_slice(&new), from, 10000, &out,
				 &size);
		ck_assert_uint_eq(size.added, 20000);
		ck_assert_uint_eq(size.removed, 20000);
		(void)snprintf(first, sizeof(first), "\"lines\":[\"%s %zu\",",
			       from < 20000 ? "-old" : "+new", from % 20000);
		(void)snprintf(last, sizeof(last),
			       "%s %zu\"]}],\"more\":%s,\"lines\":40000",
			       from < 20000 ? "-old" : "+new", (from + 9999) % 20000,
			       from < 30000 ? "true" : "false");
		ck_assert_msg(has(buf_slice(&out), first), "no %s", first);
		ck_assert_msg(has(buf_slice(&out), last), "no %s", last);
	}
	buf_finish(&old);
	buf_finish(&new);
	buf_finish(&out);
}
END_TEST

START_TEST(a_page_in_the_middle_of_a_hunk_knows_its_numbers)
{
	struct buf out = {.max = 4096};
	struct diff_size size;

	diff_write_lines(SLICE("a\nb\nc\nd\n"), SLICE("a\nB\nc\nd\n"), 2, 2, &out, &size);
	assert_slice_eq(buf_slice(&out),
			"\"added\":1,\"removed\":1,\"hunks\":[{\"old\":3,\"new\":2,"
			"\"lines\":[\"+B\",\" c\"]}],\"more\":true,\"lines\":5");
	buf_clear(&out);
	diff_write_lines(SLICE("a\n"), SLICE("b\n"), 7, 2, &out, &size);
	assert_slice_eq(buf_slice(&out),
			"\"added\":1,\"removed\":1,\"hunks\":[],\"more\":"
			"false,\"lines\":2");
	buf_finish(&out);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("diff");
	TCase *tcase = tcase_create("lines");

	tcase_add_test(tcase, equal_texts_have_no_hunk);
	tcase_add_test(tcase, a_changed_line_stands_between_its_context);
	tcase_add_test(tcase, a_new_file_is_all_added);
	tcase_add_test(tcase, far_apart_changes_are_two_hunks);
	tcase_add_test(tcase, quotes_and_controls_are_escaped);
	tcase_add_test(tcase, a_huge_rewrite_stays_within_the_budget);
	tcase_add_test(tcase, a_diff_of_20_000_lines_is_read_page_by_page);
	tcase_add_test(tcase, a_page_in_the_middle_of_a_hunk_knows_its_numbers);
	tcase_add_loop_test(tcase, the_script_turns_the_old_text_into_the_new_one, 0,
			    300);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
