/* Command line, environment and perch.conf of a subcommand. Rules: design §9. */
#include "tests/unit/support/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/host/options.h"
#include "wire/host/paths.h"

static bool demo;
static const char *relay;
static int64_t tick_ms;
static struct option_list channels;
static struct option_list prompts;

static const struct option_spec table[] = {
	{"demo", OPTION_FLAG, &demo, 0, 0, NULL, "play a scripted agent", true},
	{"relay", OPTION_TEXT, &relay, 0, 0, "URL", "which relay (default ws://d)",
	 false},
	{"tick-ms", OPTION_INT, &tick_ms, 50, 10000, "MS", "pace (default 1000)", false},
	{"channel", OPTION_LIST, &channels, 0, 0, "NAME|UUID",
	 "a channel to work in; may be given more than once (default: the name of the "
	 "folder "
	 "in which the command was started)",
	 false},
	{"prompt", OPTION_LIST, &prompts, 0, 0, "TEXT", "what to do", true},
	{NULL, OPTION_FLAG, NULL, 0, 0, NULL, NULL, false},
};

static struct options_spec spec;
static struct options *options;
static char **args;
static int arg_count;
static char folder[64];
static char said[8192]; /* stdout or stderr of the last parse */

static void setup(void)
{
	char path[128];
	struct err err;

	demo = false;
	relay = "ws://d";
	tick_ms = 1000;
	channels = (struct option_list){NULL, 0};
	prompts = (struct option_list){NULL, 0};
	spec = (struct options_spec){
		.command = "perch agent",
		.usage = "[OPTIONS] [FILE]",
		.summary = "Run an ACP agent and publish what it does.",
		.example = "  perch agent --relay ws://localhost:7447",
		.options = table,
		.min_args = 0,
		.max_args = 1,
	};
	options = NULL;
	(void)unsetenv("PERCH_HOME");
	(void)unsetenv("PERCH_RELAY");
	(void)unsetenv("PERCH_TICK_MS");
	(void)unsetenv("PERCH_CHANNEL");
	(void)unsetenv("PERCH_DEMO");
	(void)snprintf(folder, sizeof(folder), "/tmp/perch-options-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)setenv("XDG_CONFIG_HOME", folder, 1);
	(void)snprintf(path, sizeof(path), "%s/perch", folder);
	ck_assert(paths_make(path, &err));
}

static void teardown(void)
{
	options_destroy(options);
	test_remove_folder(folder);
}

static void write_conf(const char *text)
{
	char path[128];
	struct err err;

	(void)snprintf(path, sizeof(path), "%s/perch/perch.conf", folder);
	ck_assert_msg(paths_write(path, slice_of(text), &err), "%s", err.text);
}

/* Parses the words of @line, one space apart, with @fd (1 or 2) going to said[]. */
static enum options_result parse_into(int fd, const char *line)
{
	static char text[512];
	static char *words[32];
	struct slice rest = slice_of(line);
	struct slice word;
	size_t used = 0;
	int count = 0;
	int saved = dup(fd);
	int ends[2];
	ssize_t got;
	enum options_result result;

	words[count++] = text;
	used += (size_t)snprintf(text, sizeof(text), "agent") + 1;
	while (slice_take_until(&rest, ' ', &word)) {
		words[count++] = text + used;
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%.*s",
					 SLICE_ARG(word)) +
			1;
	}
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	(void)fflush(stdout);
	(void)dup2(ends[1], fd);
	(void)close(ends[1]);
	result = options_parse(&spec, count, words, &options, &args, &arg_count);
	(void)fflush(stdout);
	(void)dup2(saved, fd);
	(void)close(saved);
	got = read(ends[0], said, sizeof(said) - 1);
	said[got > 0 ? got : 0] = '\0';
	(void)close(ends[0]);
	return result;
}

#define ASSERT_OK(line) \
	do { \
		enum options_result result_ = parse_into(STDERR_FILENO, line); \
		ck_assert_msg(result_ == OPTIONS_OK, "%s", said); \
		ck_assert_str_eq(said, ""); \
	} while (0)

#define ASSERT_USAGE(text, line) \
	do { \
		ck_assert_int_eq(parse_into(STDERR_FILENO, line), OPTIONS_EXIT_USAGE); \
		ck_assert_str_eq(said, "perch agent: " text "\n"); \
		ck_assert_ptr_null(options); \
	} while (0)

/* The words behind "perch agent: PATH:". */
#define ASSERT_CONF_USAGE(text) \
	do { \
		char want_[256]; \
		(void)snprintf(want_, sizeof(want_), \
			       "perch agent: %s/perch/perch.conf:" \
			       "%s\n", \
			       folder, text); \
		ck_assert_int_eq(parse_into(STDERR_FILENO, ""), OPTIONS_EXIT_USAGE); \
		ck_assert_str_eq(said, want_); \
	} while (0)

/* ---- Flags ---- */

START_TEST(without_anything_the_defaults_hold)
{
	ASSERT_OK("");
	ck_assert(!demo);
	ck_assert_str_eq(relay, "ws://d");
	ck_assert_int_eq(tick_ms, 1000);
	ck_assert_uint_eq(channels.count, 0);
	ck_assert_int_eq(arg_count, 0);
}
END_TEST

START_TEST(values_follow_as_the_next_word_or_behind_an_equals_sign)
{
	ASSERT_OK("--relay ws://x --tick-ms=50 --demo");
	ck_assert_str_eq(relay, "ws://x");
	ck_assert_int_eq(tick_ms, 50);
	ck_assert(demo);
}
END_TEST

START_TEST(a_repeated_option_makes_a_list_in_order)
{
	ASSERT_OK("--channel a --channel=b=c --channel=");
	ck_assert_uint_eq(channels.count, 3);
	ck_assert_str_eq(channels.values[0], "a");
	ck_assert_str_eq(channels.values[1], "b=c");
	ck_assert_str_eq(channels.values[2], "");
}
END_TEST

START_TEST(positional_arguments_may_stand_between_options)
{
	spec.max_args = -1;
	ASSERT_OK("one --demo - -- --relay -x");
	ck_assert_int_eq(arg_count, 4);
	ck_assert_str_eq(args[0], "one");
	ck_assert_str_eq(args[1], "-");
	ck_assert_str_eq(args[2], "--relay");
	ck_assert_str_eq(args[3], "-x");
	ck_assert_ptr_null(args[4]);
	ck_assert(demo);
}
END_TEST

START_TEST(a_command_stands_behind_the_dashes_only)
{
	spec.command_after_dashes = true;
	spec.usage = "-- COMMAND";
	spec.max_args = -1;
	ASSERT_OK("--demo -- sh --demo=false --");
	ck_assert_int_eq(arg_count, 3);
	ck_assert_str_eq(args[0], "sh");
	ck_assert_str_eq(args[2], "--");
	ck_assert(demo);
	options_destroy(options);
	ASSERT_USAGE("\"sh\" stands before \"--\": the usage is perch agent -- COMMAND",
		     "sh");
	ASSERT_USAGE("no command stands behind \"--\": the usage is perch agent -- "
		     "COMMAND",
		     "--demo --");
}
END_TEST

START_TEST(wrong_words_are_named_with_what_is_wanted)
{
	ASSERT_USAGE("there is no option --rely: did you mean --relay?", "--rely=x");
	ASSERT_USAGE("there is no option --colour: see --help", "--colour");
	ASSERT_USAGE("there is no option -x: see --help", "-x");
	ASSERT_USAGE("--relay takes URL", "--relay");
	ASSERT_USAGE("--tick-ms takes 50..10000, got \"x\"", "--tick-ms x");
	ASSERT_USAGE("--tick-ms takes 50..10000, got \"49\"", "--tick-ms=49");
	ASSERT_USAGE("--tick-ms takes 50..10000, got \"10001\"", "--tick-ms=10001");
	ASSERT_USAGE("--tick-ms takes 50..10000, got \"050\"", "--tick-ms=050");
	ASSERT_USAGE("--tick-ms takes 50..10000, got \"-50\"", "--tick-ms=-50");
	ASSERT_USAGE("--tick-ms takes 50..10000, got \"\\x1b[2J\"", "--tick-ms=\x1b[2J");
	ASSERT_USAGE("--demo takes true or false, got \"yes\"", "--demo=yes");
	ASSERT_USAGE("too many arguments: the usage is perch agent [OPTIONS] [FILE]",
		     "a b");
	spec.min_args = 1;
	ASSERT_USAGE("something is missing: the usage is perch agent [OPTIONS] [FILE]",
		     "--demo");
}
END_TEST

/* ---- Environment and file ---- */

START_TEST(flags_beat_environment_beats_file)
{
	write_conf("# a comment\n\n relay = ws://file \ntick-ms=60\nchannel = "
		   "f1\nchannel = f2\n"
		   "metrics = another command's\n");
	ASSERT_OK("");
	ck_assert_str_eq(relay, "ws://file");
	ck_assert_int_eq(tick_ms, 60);
	ck_assert_uint_eq(channels.count, 2);
	options_destroy(options);
	(void)setenv("PERCH_TICK_MS", "70", 1);
	(void)setenv("PERCH_CHANNEL", "e", 1);
	ASSERT_OK("");
	ck_assert_str_eq(relay, "ws://file");
	ck_assert_int_eq(tick_ms, 70);
	ck_assert_uint_eq(channels.count, 1);
	ck_assert_str_eq(channels.values[0], "e");
	options_destroy(options);
	ASSERT_OK("--tick-ms 80 --channel=x --channel=y");
	ck_assert_int_eq(tick_ms, 80);
	ck_assert_uint_eq(channels.count, 2);
	ck_assert_str_eq(channels.values[1], "y");
}
END_TEST

START_TEST(a_one_off_option_is_taken_from_flags_only)
{
	(void)setenv("PERCH_DEMO", "true", 1);
	ASSERT_OK("");
	ck_assert(!demo);
	ck_assert_uint_eq(prompts.count, 0);
	options_destroy(options);
	write_conf("prompt = x\n");
	ASSERT_CONF_USAGE("1: there is no option \"prompt\"");
}
END_TEST

START_TEST(wrong_values_elsewhere_are_named_with_their_place)
{
	(void)setenv("PERCH_TICK_MS", "soon", 1);
	ASSERT_USAGE("PERCH_TICK_MS takes 50..10000, got \"soon\"", "");
	(void)unsetenv("PERCH_TICK_MS");
	write_conf("relay = x\ntick-ms = 5\n");
	ASSERT_CONF_USAGE("2: tick-ms takes 50..10000, got \"5\"");
	write_conf("relay = x\n\nrelay\n");
	ASSERT_CONF_USAGE("3: want \"name = value\" or [COMMAND]");
}
END_TEST

START_TEST(a_section_holds_for_its_command_and_beats_what_holds_for_all)
{
	write_conf("relay = ws://all\nchannel = a\ntick-ms = 60\n[agent]\n"
		   "relay = ws://agent\nchannel = b\nchannel = c\n[relay]\n"
		   "tick-ms = 5\nlisten = :1\n[ agent ]\nchannel = d\n");
	ASSERT_OK("");
	ck_assert_str_eq(relay, "ws://agent");
	ck_assert_int_eq(tick_ms, 60);
	ck_assert_uint_eq(channels.count, 3);
	ck_assert_str_eq(channels.values[0], "b");
	ck_assert_str_eq(channels.values[2], "d");
	options_destroy(options);
	write_conf("[agent]\nlisten = :1\n");
	ASSERT_CONF_USAGE("2: perch agent has no option listen");
}
END_TEST

START_TEST(a_file_that_others_can_change_is_refused)
{
	char path[128];

	write_conf("relay = ws://x\n");
	(void)snprintf(path, sizeof(path), "%s/perch/perch.conf", folder);
	ck_assert_int_eq(chmod(path, 0666), 0);
	ck_assert_int_eq(parse_into(STDERR_FILENO, ""), OPTIONS_EXIT_USAGE);
	ck_assert_ptr_nonnull(strstr(said, "can be written by everybody"));
	ck_assert_int_eq(chmod(path, 0644), 0);
	if (geteuid() == 0 && chown(path, 12345, 0) == 0) {
		ck_assert_int_eq(parse_into(STDERR_FILENO, ""), OPTIONS_EXIT_USAGE);
		ck_assert_ptr_nonnull(strstr(said, "is not yours (user 12345)"));
	}
}
END_TEST

/* ---- --show-config ---- */

START_TEST(every_value_is_shown_with_its_origin)
{
	char want[1024];

	write_conf("tick-ms = 60\n[agent]\nchannel = a\nchannel = b\n");
	(void)setenv("PERCH_RELAY", "ws://e", 1);
	ck_assert_int_eq(parse_into(STDOUT_FILENO, "--show-config --tick-ms 70"),
			 OPTIONS_EXIT_OK);
	(void)snprintf(
		want, sizeof(want),
		"[agent]\n"
		"relay                ws://e                           PERCH_RELAY\n"
		"tick-ms              70                               --tick-ms\n"
		"channel              a, b                             "
		"%s/perch/perch.conf:4\n",
		folder);
	ck_assert_str_eq(said, want);
	ck_assert_int_eq(parse_into(STDERR_FILENO, "-- --show-config"), OPTIONS_OK);
}
END_TEST

START_TEST(what_may_be_a_secret_is_not_shown)
{
	static struct option_list environment;
	const struct option_spec with_env[] = {
		{"env", OPTION_LIST, &environment, 0, 0, "NAME[=VALUE]", "x", false},
		{NULL, OPTION_FLAG, NULL, 0, 0, NULL, NULL, false},
	};

	environment = (struct option_list){NULL, 0};
	spec.options = with_env;
	ck_assert_int_eq(
		parse_into(STDOUT_FILENO, "--show-config --env=KEY=hush --env PLAIN"),
		OPTIONS_EXIT_OK);
	ck_assert_ptr_null(strstr(said, "hush"));
	ck_assert_ptr_nonnull(strstr(said, "KEY=\xe2\x80\xa6, PLAIN"));
}
END_TEST

START_TEST(an_option_that_the_list_of_the_file_lacks_is_our_mistake)
{
	const struct option_spec missing[] = {
		{"no-such-option", OPTION_TEXT, &relay, 0, 0, "X", "x", false},
		{NULL, OPTION_FLAG, NULL, 0, 0, NULL, NULL, false},
	};

	spec.options = missing;
	ck_assert_int_eq(parse_into(STDERR_FILENO, "--show-config"), OPTIONS_EXIT_USAGE);
	ck_assert_ptr_nonnull(strstr(said, "missing from the list"));
}
END_TEST

/* ---- Help ---- */

START_TEST(help_shows_everything_and_exits_well)
{
	/* Even where perch.conf is broken. */
	write_conf("nonsense\n");
	ck_assert_int_eq(parse_into(STDOUT_FILENO, "--relay --help"), OPTIONS_EXIT_OK);
	ck_assert_ptr_null(options);
	ck_assert_str_eq(
		said,
		"Usage: perch agent [OPTIONS] [FILE]\n"
		"\n"
		"Run an ACP agent and publish what it does.\n"
		"\n"
		"Options:\n"
		"  --demo                    play a scripted agent\n"
		"  --relay URL               which relay (default ws://d)\n"
		"  --tick-ms MS              pace (default 1000)\n"
		"  --channel NAME|UUID       a channel to work in; may be given more "
		"than once\n"
		"                            (default: the name of the folder in which "
		"the\n"
		"                            command was started)\n"
		"  --prompt TEXT             what to do\n"
		"  --help                    print this and exit\n"
		"\n"
		"Each may also be set in the environment (--relay as PERCH_RELAY) or in\n"
		"~/.config/perch/perch.conf (\"relay = ...\", for this command alone "
		"below\n"
		"[agent]), but for --demo, --prompt. Flags beat environment beats "
		"file.\n"
		"\n"
		"Example:\n"
		"  perch agent --relay ws://localhost:7447\n");
}
END_TEST

START_TEST(help_behind_the_dashes_is_the_commands)
{
	spec.max_args = -1;
	ASSERT_OK("-- sh --help");
	ck_assert_int_eq(arg_count, 2);
}
END_TEST

/* ---- HOST:PORT ---- */

static const struct {
	const char *text, *host;
	uint16_t port;
} addresses[] = {
	{"127.0.0.1:7447", "127.0.0.1", 7447},
	{":0", "127.0.0.1", 0},
	{"relay.example:65535", "relay.example", 65535},
	{"[::1]:80", "::1", 80},
	{"0.0.0.0:1", "0.0.0.0", 1},
};

START_TEST(an_address_is_read)
{
	char host[64];
	uint16_t port = 9;
	struct err err;

	ck_assert_msg(options_host_port(addresses[_i].text, host, &port, &err), "%s",
		      err.text);
	ck_assert_str_eq(host, addresses[_i].host);
	ck_assert_uint_eq(port, addresses[_i].port);
}
END_TEST

static const char *const no_addresses[] = {
	"",        "7447",
	"h",       "h:",
	"h:65536", "h:-1",
	"h:x",     "::1:80",
	"[::1]",   "[]:80",
	"h:080",   "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg:1",
};

START_TEST(what_is_no_address_is_refused)
{
	char host[64] = "untouched";
	uint16_t port = 9;
	struct err err;

	ck_assert_msg(!options_host_port(no_addresses[_i], host, &port, &err), "%s",
		      no_addresses[_i]);
	ck_assert_ptr_nonnull(strstr(err.text, "is no HOST:PORT, [V6]:PORT or :PORT"));
	ck_assert_str_eq(host, "untouched");
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

int main(void)
{
	Suite *suite = suite_create("options");
	TCase *tcase = tcase_create("options");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, without_anything_the_defaults_hold);
	tcase_add_test(tcase, values_follow_as_the_next_word_or_behind_an_equals_sign);
	tcase_add_test(tcase, a_repeated_option_makes_a_list_in_order);
	tcase_add_test(tcase, positional_arguments_may_stand_between_options);
	tcase_add_test(tcase, a_command_stands_behind_the_dashes_only);
	tcase_add_test(tcase, wrong_words_are_named_with_what_is_wanted);
	tcase_add_test(tcase, flags_beat_environment_beats_file);
	tcase_add_test(tcase, a_one_off_option_is_taken_from_flags_only);
	tcase_add_test(tcase, wrong_values_elsewhere_are_named_with_their_place);
	tcase_add_test(tcase,
		       a_section_holds_for_its_command_and_beats_what_holds_for_all);
	tcase_add_test(tcase, a_file_that_others_can_change_is_refused);
	tcase_add_test(tcase, every_value_is_shown_with_its_origin);
	tcase_add_test(tcase, what_may_be_a_secret_is_not_shown);
	tcase_add_test(tcase, an_option_that_the_list_of_the_file_lacks_is_our_mistake);
	tcase_add_test(tcase, help_shows_everything_and_exits_well);
	tcase_add_test(tcase, help_behind_the_dashes_is_the_commands);
	tcase_add_loop_test(tcase, an_address_is_read, 0, COUNT(addresses));
	tcase_add_loop_test(tcase, what_is_no_address_is_refused, 0, COUNT(no_addresses));
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
