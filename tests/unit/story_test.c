#include "observer/story.h"

#include <string.h>

#include "observer/acp.h"
#include "observer/terminal.h"
#include "tests/unit/support/support.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

static void text(struct buf *out, const char *value)
{
	out->max = 1u << 20;
	buf_clear(out);
	(void)buf_append(out, slice_of(value));
}

/* The row's JSON, as the page gets it. */
static struct slice written(const struct row *row)
{
	static struct buf out;

	buf_clear(&out);
	out.max = 1u << 20;
	row_write(row, SLICE("aa"), SLICE("t1"), &out);
	ck_assert(buf_ok(&out) && json_check(buf_slice(&out), NULL, NULL));
	return buf_slice(&out);
}

static struct row *make(enum row_type type)
{
	struct row *row = row_create(type);

	text(&row->id, "row");
	text(&row->channel, "c");
	row->t = row->end = 1000;
	return row;
}

static struct row *make_tool(const char *kind, const char *path, enum tool_status status)
{
	struct row *row = make(ROW_TOOL);

	row->tool = mem_alloc(sizeof(*row->tool));
	text(&row->tool->kind, kind);
	text(&row->tool->first_path, path);
	row->tool->status = status;
	return row;
}

static void changed(struct row *row, uint32_t added, uint32_t removed)
{
	struct tool_file *file;

	row->tool->files = mem_array(TOOL_FILES_MAX, sizeof(*row->tool->files));
	file = &row->tool->files[row->tool->file_count++];
	file->added = added;
	file->removed = removed;
}

static struct row *ran(const char *command, int64_t code)
{
	struct row *row = make_tool("execute", "", code ? TOOL_FAILED : TOOL_COMPLETED);

	text(&row->tool->command, command);
	row->tool->has_exit = true;
	row->tool->exit_code = code;
	return row;
}

static struct row *says(enum row_type type, const char *words)
{
	struct row *row = make(type);

	text(&row->text, words);
	return row;
}

static struct row *with_body(enum row_type type, const char *body)
{
	struct row *row = make(type);

	text(&row->body, body);
	return row;
}

/* All @rows as the story tells them, a line each; frees the rows. */
static const char *told(struct row **rows, size_t count)
{
	static struct buf all;
	struct story story = {0};
	struct buf line = {0};

	buf_clear(&all);
	all.max = 1u << 20;
	for (size_t i = 0; i <= count; i++) {
		const struct slice row = i < count ? written(rows[i]) : SLICE_EMPTY;

		if (i < count && story_take(&story, row))
			continue;
		story_say(&story, &line);
		(void)buf_append(&all, buf_slice(&line));
		(void)buf_lit(&all, "\n");
		story_finish(&story);
		if (i < count)
			ck_assert(story_take(&story, row));
	}
	for (size_t i = 0; i < count; i++)
		row_destroy(rows[i]);
	buf_finish(&line);
	return buf_text(&all);
}

#define TOLD(...) \
	told((struct row *[]){__VA_ARGS__}, \
	     sizeof((struct row *[]){__VA_ARGS__}) / sizeof(struct row *))

START_TEST(calls_are_said_as_what_was_done)
{
	struct row *edit = make_tool("edit", "/home/me/src/router.c", TOOL_COMPLETED);

	changed(edit, 12, 3);
	ck_assert_str_eq(TOLD(edit, ran("make", 2), ran("make", 0)),
			 "Edited src/router.c +12 \xe2\x88\x92"
			 "3\n"
			 "Ran make: failed (2)\n"
			 "Ran make\n");
}
END_TEST

START_TEST(like_rows_that_follow_each_other_are_one)
{
	ck_assert_str_eq(TOLD(make_tool("read", "a/x.c", TOOL_COMPLETED),
			      make_tool("read", "a/y.c", TOOL_COMPLETED),
			      make_tool("read", "a/x.c", TOOL_COMPLETED),
			      make_tool("read", "a/z.c", TOOL_COMPLETED)),
			 "Read 3 files\n");
	ck_assert_str_eq(TOLD(make_tool("read", "a/x.c", TOOL_COMPLETED),
			      make_tool("read", "a/x.c", TOOL_COMPLETED)),
			 "Read a/x.c, 2 times\n");
}
END_TEST

START_TEST(edits_add_up)
{
	struct row *a = make_tool("edit", "src/a.c", TOOL_COMPLETED);
	struct row *b = make_tool("edit", "src/b.c", TOOL_COMPLETED);
	struct row *c = make_tool("edit", "src/b.c", TOOL_COMPLETED);

	changed(a, 10, 1);
	changed(b, 20, 2);
	changed(c, 5, 0);
	ck_assert_str_eq(TOLD(a, b, c), "Edited 2 files +35 \xe2\x88\x92"
					"3\n");
}
END_TEST

START_TEST(what_failed_or_goes_on_stands_alone)
{
	struct row *failed = make_tool("read", "b", TOOL_FAILED);

	ck_assert_str_eq(TOLD(make_tool("read", "a", TOOL_COMPLETED), failed,
			      make_tool("read", "c", TOOL_COMPLETED),
			      make_tool("read", "d", TOOL_IN_PROGRESS)),
			 "Read a\nRead b: failed\nRead c\nReading d\n");
	/* But the very same failure again and again is one line. */
	ck_assert_str_eq(
		TOLD(ran("make", 2), ran("make", 2), ran("make", 2), ran("make", 1)),
		"Ran make, 3 times: failed (2)\nRan make: failed (1)\n");
	ck_assert_str_eq(TOLD(ran("make", 0), ran("ls", 0)), "Ran make\nRan ls\n");
}
END_TEST

START_TEST(a_call_for_several_places_counts_them)
{
	struct row *read = make_tool("read", "a", TOOL_COMPLETED);

	text(&read->tool->locations, "[\"a\",\"b\",\"c\"]");
	ck_assert_str_eq(TOLD(read, make_tool("read", "d", TOOL_COMPLETED)),
			 "Read 4 files\n");
}
END_TEST

START_TEST(prose_is_its_first_sentence)
{
	struct row *message =
		says(ROW_MESSAGE, "\n## I\xe2\x80\x99ll move `route()` "
				  "**first**, e.g. now. Then the rest.\nMore.");
	struct row *thought = says(ROW_THOUGHT, "```\nThe table is static");
	struct row *user = says(ROW_MESSAGE, "Do it");

	message->role = "agent";
	user->role = "user";
	ck_assert_str_eq(TOLD(says(ROW_PROMPT, "Split it! And test."), message, thought,
			      user, says(ROW_MESSAGE, "")),
			 "You asked: Split it!\n"
			 "I\xe2\x80\x99ll move route() first, e.g. now.\n"
			 "Thought: The table is static\n"
			 "You asked: Do it\n"
			 "\n");
}
END_TEST

START_TEST(long_prose_is_cut_at_a_character)
{
	struct buf words = {.max = 4096};
	const char *line;

	for (int i = 0; i < 300; i++)
		(void)buf_lit(&words, "\xe2\x82\xac");
	line = TOLD(says(ROW_MESSAGE, buf_text(&words)));
	ck_assert_uint_eq(strlen(line), STORY_TEXT_MAX + 3 + 1);
	ck_assert(utf8_valid(slice_of(line)));
	buf_finish(&words);
}
END_TEST

START_TEST(the_other_rows_say_what_happened)
{
	struct row *asked = make(ROW_PERMISSION), *allowed = make(ROW_PERMISSION);
	struct row *late = make(ROW_PERMISSION);

	for (int i = 0; i < 3; i++) {
		struct row *row = i == 0 ? asked : i == 1 ? allowed : late;

		row->permission = mem_alloc(sizeof(*row->permission));
		text(&row->permission->tool.kind, "execute");
		text(&row->permission->text, "rm -rf build");
	}
	allowed->permission->state = PERMISSION_ALLOWED;
	allowed->permission->by = "you";
	late->permission->state = PERMISSION_TIMED_OUT;
	ck_assert_str_eq(
		TOLD(asked, allowed, late,
		     with_body(ROW_PLAN, "\"entries\":[{\"text\":\"a\",\"status\":"
					 "\"completed\"},{\"text\":\"Build \\\"it\\\"\","
					 "\"status\":\"in_progress\"}]"),
		     with_body(ROW_TURN, "\"state\":\"completed\",\"text\":\"Finished\""),
		     with_body(ROW_OUTPUT, "\"text\":\"one\\ntwo\\n\""),
		     with_body(ROW_OUTPUT, "\"text\":\"three\""),
		     with_body(ROW_RAW, "\"kind\":\"novel\",\"json\":\"{}\""),
		     with_body(ROW_ERROR, "\"text\":\"It broke\"")),
		"Wants to run rm -rf build\n"
		"You allowed rm -rf build\n"
		"Denied, nobody answered in time: rm -rf build\n"
		"Plan 1 of 2: Build \"it\"\n"
		"Finished\n"
		"Printed 3 lines\n"
		"An event: novel\n"
		"It broke\n");
}
END_TEST

START_TEST(rows_of_another_lane_are_another_sentence)
{
	struct row *there = make_tool("read", "b", TOOL_COMPLETED);

	text(&there->channel, "d");
	ck_assert_str_eq(TOLD(make_tool("read", "a", TOOL_COMPLETED), there),
			 "Read a\nRead b\n");
}
END_TEST

/* Rows and how they are told: the page reads the same file (browser/page_rows). */
START_TEST(rows_are_told_as_the_page_tells_them)
{
	struct buf file = {.max = 1u << 20}, line = {0};
	struct slice cases, one;

	test_data("story.json", &file);
	cases = slice_trim(buf_slice(&file));
	ck_assert(json_check(cases, NULL, NULL));
	while (acp_next(&cases, &one)) {
		struct slice rows = acp_get(one, "rows"), row;
		struct slice told = acp_get(one, "told"), wanted;
		struct story story = {0};
		bool more = acp_next(&rows, &row);

		while (more) {
			struct buf text = {0};

			ck_assert(story_take(&story, row));
			while ((more = acp_next(&rows, &row)) && story_take(&story, row))
				;
			story_say(&story, &line);
			ck_assert(acp_next(&told, &wanted));
			acp_set_text(&text, acp_string(wanted), 4096);
			ck_assert_msg(slice_eq(buf_slice(&line), buf_slice(&text)),
				      "told \"%.*s\", not \"%.*s\"",
				      SLICE_ARG(buf_slice(&line)),
				      SLICE_ARG(buf_slice(&text)));
			buf_finish(&text);
			story_finish(&story);
		}
		ck_assert(!acp_next(&told, &wanted));
	}
	buf_finish(&file);
	buf_finish(&line);
}
END_TEST

static const char *line(const char *words, size_t columns)
{
	static struct buf out;

	buf_clear(&out);
	out.max = 4096;
	terminal_line(slice_of(words), columns, &out);
	return buf_text(&out);
}

START_TEST(a_line_fits_its_terminal)
{
	ck_assert_str_eq(line("abcdef", 6), "abcdef");
	ck_assert_str_eq(line("abcdefg", 6), "abcde\xe2\x80\xa6");
	ck_assert_str_eq(line("abcdefg", 0), "abcdefg");
	/* Wide ones take two, what is drawn over the one before takes none. */
	ck_assert_uint_eq(terminal_width(SLICE("\xe6\xbc\xa2"
					       "e\xcc\x81")),
			  3);
	ck_assert_str_eq(line("\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2", 5),
			 "\xe6\xbc\xa2\xe6\xbc\xa2\xe2\x80\xa6");
	ck_assert_str_eq(line("\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2", 4),
			 "\xe6\xbc\xa2\xe2\x80\xa6");
}
END_TEST

START_TEST(a_line_moves_no_cursor_and_hides_nothing)
{
	ck_assert_str_eq(line("a\nb\tc\x1b[31m\x9b", 0), "a b c<U+001B>[31m\xef\xbf\xbd");
	ck_assert_str_eq(line("rm \xe2\x80\xae"
			      "x\xc2\x9b"
			      "\xe2\x80\x8b",
			      0),
			 "rm <U+202E>x<U+009B><U+200B>");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("story");
	TCase *tcase = tcase_create("story");

	tcase_add_test(tcase, calls_are_said_as_what_was_done);
	tcase_add_test(tcase, like_rows_that_follow_each_other_are_one);
	tcase_add_test(tcase, edits_add_up);
	tcase_add_test(tcase, what_failed_or_goes_on_stands_alone);
	tcase_add_test(tcase, a_call_for_several_places_counts_them);
	tcase_add_test(tcase, prose_is_its_first_sentence);
	tcase_add_test(tcase, long_prose_is_cut_at_a_character);
	tcase_add_test(tcase, the_other_rows_say_what_happened);
	tcase_add_test(tcase, rows_of_another_lane_are_another_sentence);
	tcase_add_test(tcase, rows_are_told_as_the_page_tells_them);
	tcase_add_test(tcase, a_line_fits_its_terminal);
	tcase_add_test(tcase, a_line_moves_no_cursor_and_hides_nothing);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
