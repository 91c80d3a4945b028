/* The text of perch.conf. Rules: wire/host/conf.h. */
#include "tests/unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "observer/observer.h"
#include "relay/relay.h"
#include "wire/host/conf.h"

static struct conf conf;
static struct conf_setting setting;
static struct err err;

static bool next(void)
{
	return conf_next(&conf, &setting, &err);
}

static void read_text(const char *text)
{
	conf_init(&conf, "c", slice_of(text));
}

#define ASSERT_SETTING(section_, name_, value_, line_) \
	do { \
		ck_assert_msg(next(), "%s", err.text); \
		ck_assert(slice_eq(setting.section, SLICE(section_))); \
		ck_assert(slice_eq(setting.name, SLICE(name_))); \
		ck_assert(slice_eq(setting.value, SLICE(value_))); \
		ck_assert_uint_eq(setting.line, line_); \
	} while (0)

#define ASSERT_END() \
	do { \
		ck_assert(!next()); \
		ck_assert_int_eq(err.code, ERR_NONE); \
	} while (0)

START_TEST(settings_come_in_order_with_section_and_line)
{
	read_text("# a comment\r\n\n; another\nrelay=ws://x # no comment\n[agent]\n"
		  "\tname = \n[ relay ]\nlisten = a = b\nlisten = \" c \"\nlisten = \"");
	ASSERT_SETTING("", "relay", "ws://x # no comment", 4);
	ASSERT_SETTING("agent", "name", "", 6);
	ASSERT_SETTING("relay", "listen", "a = b", 8);
	ASSERT_SETTING("relay", "listen", " c ", 9);
	ASSERT_SETTING("relay", "listen", "\"", 10);
	ASSERT_END();
}
END_TEST

START_TEST(an_empty_text_has_no_settings)
{
	read_text("");
	ASSERT_END();
	read_text("\n\n[agent]\n");
	ASSERT_END();
}
END_TEST

static const struct {
	const char *text, *words;
} wrong[] = {
	{"\n\nrelya = x", "c:3: there is no option \"relya\": did you mean relay?"},
	{"lsiten = x", "c:1: there is no option \"lsiten\": did you mean listen?"},
	{"colour = x", "c:1: there is no option \"colour\""},
	{"= x", "c:1: there is no option \"\""},
	{"Relay = x", "c:1: there is no option \"Relay\": did you mean relay?"},
	{"[agnet]", "c:1: there is no command \"agnet\": did you mean agent?"},
	{"[]", "c:1: there is no command \"\""},
	{"[", "c:1: \"[\" without \"]\": want [COMMAND]"},
	{"[agent", "c:1: \"[\" without \"]\": want [COMMAND]"},
	{"relay", "c:1: want \"name = value\" or [COMMAND]"},
	{"relay = \x01", "c:1: this line is no UTF-8 text without control characters"},
	{"relay = \xff", "c:1: this line is no UTF-8 text without control characters"},
};

START_TEST(what_is_wrong_is_named_with_its_line)
{
	read_text(wrong[_i].text);
	ck_assert(!next());
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert_str_eq(err.text, wrong[_i].words);
}
END_TEST

START_TEST(a_long_name_is_no_work)
{
	char text[2000];

	memset(text, 'r', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	memcpy(text + sizeof(text) - 4, "= x", 3);
	read_text(text);
	ck_assert(!next());
}
END_TEST

/* ---- the list of conf.c against the commands themselves ---- */

static const struct {
	const char *name;
	int (*main)(int argc, char *argv[]);
} commands[] = {
	{"relay", relay_main},   {"agent", agent_main},     {"observer", observer_main},
	{"open", open_main},     {"ls", ls_main},           {"tail", tail_main},
	{"key", key_main},       {"approve", approve_main}, {"prompt", prompt_main},
	{"attest", attest_main}, {"invite", invite_main},
};

START_TEST(every_option_of_every_command_may_stand_in_the_file)
{
	char name[16], flag[] = "--show-config";
	char *argv[] = {name, flag, NULL};

	(void)snprintf(name, sizeof(name), "%s", commands[_i].name);
	(void)setenv("PERCH_HOME", "/nonexistent", 1);
	ck_assert_msg(commands[_i].main(2, argv) == EXIT_SUCCESS, "%s", name);
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

int main(void)
{
	Suite *suite = suite_create("conf");
	TCase *tcase = tcase_create("conf");

	tcase_add_test(tcase, settings_come_in_order_with_section_and_line);
	tcase_add_test(tcase, an_empty_text_has_no_settings);
	tcase_add_loop_test(tcase, what_is_wrong_is_named_with_its_line, 0, COUNT(wrong));
	tcase_add_test(tcase, a_long_name_is_no_work);
	tcase_add_loop_test(tcase, every_option_of_every_command_may_stand_in_the_file, 0,
			    COUNT(commands));
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
