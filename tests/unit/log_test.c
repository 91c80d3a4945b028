/* What programs say on stderr. Rules: style §9. */
#include "tests/unit/support/support.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "wire/host/log.h"

/* Everything that was logged since setup(), NUL-terminated. */
static char logged[8192];
static int saved_stderr;
static int read_end;

static void setup(void)
{
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	saved_stderr = dup(STDERR_FILENO);
	ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
	(void)close(ends[1]);
	read_end = ends[0];
	log_set_level(LOG_INFO);
}

static void teardown(void)
{
	if (saved_stderr >= 0) {
		(void)dup2(saved_stderr, STDERR_FILENO);
		(void)close(saved_stderr);
		(void)close(read_end);
	}
	log_set_level(LOG_INFO);
}

/* Puts stderr back first, so that a failing assertion can be read. */
static const char *take_log(void)
{
	ssize_t got = read(read_end, logged, sizeof(logged) - 1);

	logged[got > 0 ? got : 0] = '\0';
	teardown();
	saved_stderr = -1;
	return logged;
}

START_TEST(a_line_is_level_subject_and_text)
{
	log_warn("session 41", "closed: queue over %d MiB", 1);
	ck_assert_str_eq(take_log(), "warn session 41: closed: queue over 1 MiB\n");
}
END_TEST

START_TEST(what_is_below_the_level_is_not_written)
{
	log_debug("link", "not this");
	log_info("link", "but this");
	ck_assert_str_eq(take_log(), "info link: but this\n");
}
END_TEST

START_TEST(at_level_error_only_errors_are_written)
{
	log_set_level(LOG_ERROR);
	log_warn("a", "no");
	log_error("b", "yes");
	ck_assert(!log_enabled(LOG_WARN));
	ck_assert(log_enabled(LOG_ERROR));
	ck_assert_str_eq(take_log(), "error b: yes\n");
}
END_TEST

START_TEST(a_text_with_line_feeds_stays_one_line)
{
	log_info("x", "one\ntwo\r\nthree");
	ck_assert_str_eq(take_log(), "info x: one two  three\n");
}
END_TEST

START_TEST(an_overlong_line_is_cut_and_ended)
{
	char text[4001];
	const char *line;

	memset(text, 'y', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	log_info("x", "%s", text);
	line = take_log();
	ck_assert_uint_lt(strlen(line), 2100);
	ck_assert_int_eq(line[strlen(line) - 1], '\n');
	ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
}
END_TEST

START_TEST(levels_are_known_by_name)
{
	enum log_level level = LOG_INFO;

	ck_assert(log_parse_level("debug", &level, NULL));
	ck_assert_int_eq(level, LOG_DEBUG);
	ck_assert(log_parse_level("error", &level, NULL));
	ck_assert_int_eq(level, LOG_ERROR);
}
END_TEST

START_TEST(a_level_that_is_none_is_refused_with_those_that_are)
{
	enum log_level level = LOG_WARN;
	struct err err;

	ck_assert(!log_parse_level("loud\x1b", &level, &err));
	ck_assert_str_eq(err.text,
			 "log level is error, warn, info or debug, not \"loud\\x1b\"");
	ck_assert_int_eq(level, LOG_WARN);
}
END_TEST

static const struct {
	struct slice in;
	const char *out;
} quotes[] = {
	{SLICE_INIT(""), ""},
	{SLICE_INIT("plain words, \"quotes\" and größe 日本 🐦"),
	 "plain words, \"quotes\" and größe 日本 🐦"},
	{SLICE_INIT("a\nb\tc\0d"), "a\\x0ab\\x09c\\x00d"},
	{SLICE_INIT("\x1b[31mred"), "\\x1b[31mred"},
	{SLICE_INIT("\x7f\xc2\x85"), "\\x7f\\xc2\\x85"},
	{SLICE_INIT("\xff\xc3(\xed\xa0\x80"), "\\xff\\xc3(\\xed\\xa0\\x80"},
	{SLICE_INIT("\xe2\x80\xae"
		    "evil\xe2\x81\xa6"),
	 "\\xe2\\x80\\xaeevil\\xe2\\x81\\xa6"},
	{SLICE_INIT("cut \xf0\x9f"), "cut \\xf0\\x9f"},
};

START_TEST(peer_text_is_made_harmless)
{
	char out[LOG_QUOTE_BYTES];

	ck_assert_str_eq(log_quote(quotes[_i].in, out), quotes[_i].out);
}
END_TEST

START_TEST(peer_text_is_cut_at_120_characters)
{
	char bytes[500];
	char out[LOG_QUOTE_BYTES];

	memset(bytes, 'q', sizeof(bytes));
	log_quote((struct slice){bytes, 120}, out);
	ck_assert_uint_eq(strlen(out), 120);
	log_quote((struct slice){bytes, 121}, out);
	ck_assert_uint_eq(strlen(out), 120 + strlen("…"));
	memset(bytes, 0x01, sizeof(bytes));
	log_quote((struct slice){bytes, sizeof(bytes)}, out);
	ck_assert_uint_eq(strlen(out), 4 * 120 + strlen("…"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log");
	TCase *lines = tcase_create("lines");
	TCase *words = tcase_create("words");

	tcase_add_checked_fixture(lines, setup, teardown);
	tcase_add_test(lines, a_line_is_level_subject_and_text);
	tcase_add_test(lines, what_is_below_the_level_is_not_written);
	tcase_add_test(lines, at_level_error_only_errors_are_written);
	tcase_add_test(lines, a_text_with_line_feeds_stays_one_line);
	tcase_add_test(lines, an_overlong_line_is_cut_and_ended);
	suite_add_tcase(suite, lines);
	tcase_add_test(words, levels_are_known_by_name);
	tcase_add_test(words, a_level_that_is_none_is_refused_with_those_that_are);
	tcase_add_loop_test(words, peer_text_is_made_harmless, 0,
			    sizeof(quotes) / sizeof(quotes[0]));
	tcase_add_test(words, peer_text_is_cut_at_120_characters);
	suite_add_tcase(suite, words);
	return test_run(suite);
}
