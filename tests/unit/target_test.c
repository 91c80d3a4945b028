/* What a request is for: its path and its parameters. */
#include "observer/http/target.h"

#include <string.h>

#include "tests/unit/support/support.h"

static struct buf path, query;

static void setup(void)
{
	path = query = (struct buf){.max = 64};
}

static void teardown(void)
{
	buf_finish(&path);
	buf_finish(&query);
}

static bool parse(const char *target)
{
	return target_parse(slice_of(target), &path, &query);
}

START_TEST(a_path_and_its_parameters_are_decoded)
{
	ck_assert(parse("/a%2Fb%20c+d?x=1&&y=%26+%3d&z"));
	ck_assert(slice_eq(buf_slice(&path), SLICE("/a/b c+d")));
	ck_assert(slice_eq(buf_slice(&query), SLICE("x=1\0y=& =\0z\0")));
}
END_TEST

START_TEST(what_was_there_before_is_forgotten)
{
	ck_assert(parse("/first?a=1"));
	ck_assert(parse("/"));
	ck_assert(slice_eq(buf_slice(&path), SLICE("/")));
	ck_assert_uint_eq(query.len, 0);
	ck_assert(parse("/?"));
	ck_assert_uint_eq(query.len, 0);
}
END_TEST

START_TEST(the_first_question_mark_begins_the_query)
{
	ck_assert(parse("/a?b?c%3Fd"));
	ck_assert(slice_eq(buf_slice(&path), SLICE("/a")));
	ck_assert(slice_eq(buf_slice(&query), SLICE("b?c?d\0")));
}
END_TEST

static const char *const broken[] = {
	"",        "*",    "a",     "https://x/", "/%",      "/%4",
	"/%zz",    "/%0g", "/%00",  "/%0a",       "/\x01",   "/\x7f",
	"/?a=%0d", "/?%",  "/?a=%", "/?%00",      "/a\tb?c", "?a=1",
};

START_TEST(what_is_no_target_is_refused)
{
	ck_assert_msg(!parse(broken[_i]), "%s", broken[_i]);
}
END_TEST

START_TEST(what_the_buffers_do_not_hold_is_refused)
{
	char text[70] = "/";

	memset(text + 1, 'x', 63);
	ck_assert(parse(text));
	text[64] = 'x';
	ck_assert(!parse(text));
	memcpy(text, "/?", 2);
	ck_assert(parse("/"));
	text[65] = '\0';
	ck_assert(parse(text)); /* 63 characters and a NUL */
	text[65] = 'x';
	ck_assert(!parse(text));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("observer/target");
	TCase *tcase = tcase_create("target");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_path_and_its_parameters_are_decoded);
	tcase_add_test(tcase, what_was_there_before_is_forgotten);
	tcase_add_test(tcase, the_first_question_mark_begins_the_query);
	tcase_add_loop_test(tcase, what_is_no_target_is_refused, 0,
			    sizeof(broken) / sizeof(*broken));
	tcase_add_test(tcase, what_the_buffers_do_not_hold_is_refused);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
