/* perch proxy and perch run: start the watcher, be the pump. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/child.h"
#include "agent/emit_server.h"
#include "agent/proxy.h"
#include "agent/pump.h"
#include "agent/run.h"
#include "agent/watch.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"

extern char **environ;

/* What the two commands have in common. */
struct arguments {
	const char *name, *relay, *invite, *log_level;
	struct option_list channels;
	bool pty, json_lines;
	int64_t tick_ms, ready_fd;
	char **command;
	int command_count;
	struct err conf_err; /* in perch.conf or the environment; else ERR_NONE */
};

/* clang-format off */
#define SHARED_OPTIONS(out)                                                               \
	{"name", OPTION_TEXT, &(out)->name, 0, 0, "NAME",                                 \
	 "its name in the fleet, and its key's (default: command and folder)", false},    \
	{"relay", OPTION_TEXT, &(out)->relay, 0, 0, "URL",                                \
	 "where the feed goes (default: the invitation's, else " SETUP_RELAY_URL ")",     \
	 false},                                                                          \
	{"invite", OPTION_TEXT, &(out)->invite, 0, 0, "FILE",                             \
	 "join the fleet whose owner made this invitation; PERCH_INVITE may hold it "     \
	 "instead, for one run", true},                                                   \
	{"tick-ms", OPTION_INT, &(out)->tick_ms, 10, 60000, "MS",                         \
	 "shortest time between two frames (default 1000)", false},                       \
	{"ready-fd", OPTION_INT, &(out)->ready_fd, 0, INT_MAX, "FD",                      \
	 "write \"ready\" there once connected to the relay", true},                      \
	{"log-level", OPTION_TEXT, &(out)->log_level, 0, 0, "error|warn|info|debug",      \
	 "how much goes to run/NAME.log in the data folder (default info)", false},       \
	{NULL, OPTION_FLAG, NULL, 0, 0, NULL, NULL, false}
/* clang-format on */

static const struct arguments defaults = {
	.log_level = "info",
	.tick_ms = AGENT_TICK_MS,
	.ready_fd = -1,
};

static enum options_result parse_proxy(int argc, char *argv[], struct arguments *out,
				       struct options **options)
{
	const struct option_spec table[] = {SHARED_OPTIONS(out)};
	const struct options_spec spec = {
		.command = "perch proxy",
		.usage = "[OPTIONS] -- COMMAND [ARGUMENT…]",
		.summary =
			"Stands between an editor and its ACP agent: passes every byte, "
			"and feeds what it sees to the agent's owner.",
		.example = "  perch proxy -- claude-agent-acp",
		.options = table,
		.min_args = 1,
		.max_args = -1,
		.command_after_dashes = true,
		.conf_err = &out->conf_err,
	};

	*out = defaults;
	return options_parse(&spec, argc, argv, options, &out->command,
			     &out->command_count);
}

static enum options_result parse_run(int argc, char *argv[], struct arguments *out,
				     struct options **options)
{
	const struct option_spec table[] = {
		{"channel", OPTION_LIST, &out->channels, 0, 0, "NAME|UUID",
		 "where it is shown (default: the folder's name)", false},
		{"pty", OPTION_FLAG, &out->pty, 0, 0, NULL,
		 "give it a terminal: for colours, and programs that buffer on a pipe",
		 true},
		{"json-lines", OPTION_FLAG, &out->json_lines, 0, 0, NULL,
		 "its stdout is a log of JSON objects, one a line", true},
		SHARED_OPTIONS(out)};
	const struct options_spec spec = {
		.command = "perch run",
		.usage = "[OPTIONS] -- COMMAND [ARGUMENT…]",
		.summary = "Runs a command as it always ran, and feeds its output to its "
			   "owner. Exits as the command does.",
		.example = "  perch run -- make test\n"
			   "  perch run --name nightly --pty -- ./deploy.sh",
		.options = table,
		.min_args = 1,
		.max_args = -1,
		.command_after_dashes = true,
		.conf_err = &out->conf_err,
	};

	*out = defaults;
	return options_parse(&spec, argc, argv, options, &out->command,
			     &out->command_count);
}

/* Standard descriptors that are closed would be taken by our own files. */
static void fill_standard(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd < 3);
	if (fd >= 3)
		(void)close(fd);
}

/* The environment of the command: ours but PERCH_*, which may hold keys, and where it can
 * emit. */
static char **command_environment(void)
{
	struct buf path, entry;
	char **environment;
	struct err err;

	buf_init(&path, PATH_MAX);
	buf_init(&entry, PATH_MAX + 32);
	environment = child_environment_inherit(environ);
	if (emit_path_of_pid(getpid(), &path, &err)) {
		(void)buf_printf(&entry, EMIT_VARIABLE "=%s", buf_text(&path));
		environment = child_environment_add(environment, buf_text(&entry));
	}
	buf_finish(&path);
	buf_finish(&entry);
	return environment;
}

/* In the child: becomes the watcher and does not come back. */
static _Noreturn void be_watcher(const struct arguments *arguments,
				 const struct watch_mode *mode, const char *command_name,
				 int fd, long pump_pid)
{
	struct watch_options options = {
		.mode = mode,
		.command_name = command_name,
		.name = arguments->name,
		.relay = arguments->relay,
		.invite = arguments->invite,
		.channels = &arguments->channels,
		.command = arguments->command,
		.tick_ms = arguments->tick_ms,
		.json_lines = arguments->json_lines,
		.pump_fd = fd,
		.pump_pid = pump_pid,
		.ready_fd = (int)arguments->ready_fd,
	};

	(void)log_parse_level(arguments->log_level, &options.log_level, NULL);
	watch_run(&options);
	exit(EXIT_SUCCESS);
}

/* Returns our end of its socket, or -1: then nobody watches, and all else goes on. */
static int start_watcher(const struct arguments *arguments, const struct watch_mode *mode,
			 const char *command_name, int *pid_out)
{
	const int room = 4 << 20; /* as much as we may have: net.core.wmem_max */
	const long self = getpid();
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -1;
	(void)setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	*pid_out = fork();
	if (*pid_out == 0) {
		(void)close(ends[0]);
		be_watcher(arguments, mode, command_name, ends[1], self);
	}
	(void)close(ends[1]);
	if (*pid_out > 0)
		return ends[0];
	(void)close(ends[0]);
	return -1;
}

/* The watcher has it; the command could read it off our environment. */
static void hide_invitation(void)
{
	char *text = getenv("PERCH_INVITE");

	if (text)
		memset(text, 'x', strlen(text));
}

static _Noreturn void run(const struct arguments *arguments,
			  const struct watch_mode *mode, struct pump_options *pump)
{
	int status;

	fill_standard();
	pump->argv = arguments->command;
	pump->watcher_fd = -1;
	if (arguments->conf_err.code == ERR_NONE)
		pump->watcher_fd =
			start_watcher(arguments, mode, pump->command, &pump->watcher_pid);
	else
		(void)fprintf(stderr, "%s: nobody watches this: %s\n", pump->command,
			      arguments->conf_err.text);
	hide_invitation();
	if (arguments->ready_fd >= 0)
		(void)close((int)arguments->ready_fd);
	pump->environment = command_environment();
	status = pump_run(pump);
	/* Its threads may be in the middle of a read: nothing is torn down. */
	_exit(status);
}

/* What is wrong with a flag is told before anything runs. Elsewhere it was written for
 * all commands, and stops none: an editor shows an agent that does not start, and hides
 * the reason. */
static bool check(struct arguments *arguments, const char *command_name)
{
	enum log_level level;

	if (arguments->conf_err.code == ERR_NONE)
		(void)log_parse_level(arguments->log_level, &level, &arguments->conf_err);
	if (!arguments->invite || strcmp(arguments->invite, "-") != 0)
		return true;
	(void)fprintf(stderr,
		      "%s: --invite takes a file: standard input is the command's\n",
		      command_name);
	return false;
}

int proxy_main(int argc, char *argv[])
{
	struct pump_options pump = {.command = "perch proxy", .carry_stdin = true};
	struct options *options = NULL;
	struct arguments arguments;

	switch (parse_proxy(argc, argv, &arguments, &options)) {
	case OPTIONS_EXIT_OK:
		return EXIT_SUCCESS;
	case OPTIONS_EXIT_USAGE:
		return 2;
	case OPTIONS_OK:
		break;
	}
	if (!check(&arguments, pump.command))
		return 2;
	run(&arguments, &proxy_mode, &pump);
}

int run_main(int argc, char *argv[])
{
	struct pump_options pump = {.command = "perch run",
				    .drain_up_ms = RUN_DRAIN_UP_MS,
				    .drain_down_ms = RUN_DRAIN_DOWN_MS};
	struct options *options = NULL;
	struct arguments arguments;

	switch (parse_run(argc, argv, &arguments, &options)) {
	case OPTIONS_EXIT_OK:
		return EXIT_SUCCESS;
	case OPTIONS_EXIT_USAGE:
		return 2;
	case OPTIONS_OK:
		break;
	}
	if (!check(&arguments, pump.command))
		return 2;
	pump.pty = arguments.pty;
	run(&arguments, &run_mode, &pump);
}
