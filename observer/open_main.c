#include "observer/observer.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "observer/acp.h"
#include "observer/client.h"
#include "wire/host/options.h"

/* Hands the address to the desktop's browser, where there is one. */
static void start_browser(const char *url)
{
	char program[] = "xdg-open";
	char *copy = strdup(url);
	char *const argv[] = {program, copy, NULL};
	posix_spawn_file_actions_t actions;
	pid_t pid;

	if (copy && posix_spawn_file_actions_init(&actions) == 0) {
		(void)posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO,
						       "/dev/null", O_WRONLY, 0);
		(void)posix_spawn_file_actions_addopen(&actions, STDERR_FILENO,
						       "/dev/null", O_WRONLY, 0);
		if (posix_spawnp(&pid, program, &actions, NULL, argv, environ) == 0)
			(void)waitpid(pid, NULL, 0);
		(void)posix_spawn_file_actions_destroy(&actions);
	}
	free(copy);
}

/* The fingerprint goes to standard error: the address is what a script wants. */
static int print_tls(struct slice answer)
{
	struct buf url = {0}, fingerprint = {0};
	int status = EXIT_SUCCESS;

	acp_set_text(&url, acp_get_string(answer, "tlsUrl"), 1024);
	acp_set_text(&fingerprint, acp_get_string(answer, "fingerprint"), 256);
	if (url.len) {
		(void)printf("%s\n", buf_text(&url));
		(void)fflush(stdout);
		(void)fprintf(stderr, "certificate SHA-256 %s\n", buf_text(&fingerprint));
	} else {
		(void)fprintf(stderr,
			      "perch open: the observer serves no TLS: start it, or "
			      "`perch up`, with --tls 0.0.0.0:7778\n");
		status = EXIT_FAILURE;
	}
	buf_wipe(&url);
	buf_finish(&fingerprint);
	return status;
}

int open_main(int argc, char *argv[])
{
	bool rotate = false, tls = false;
	const struct option_spec specs[] = {
		{.name = "rotate",
		 .type = OPTION_FLAG,
		 .value = &rotate,
		 .help = "make another token first: pages that are open lose theirs",
		 .no_env = true},
		{.name = "tls",
		 .type = OPTION_FLAG,
		 .value = &tls,
		 .help = "the address for a phone or another machine, and the "
			 "fingerprint of its certificate; opens nothing",
		 .no_env = true},
		{.name = NULL},
	};
	const struct options_spec spec = {
		.command = "perch open",
		.usage = "[--rotate] [--tls]",
		.summary = "Prints the page's address with its token, and opens it where "
			   "there "
			   "is a display.",
		.example = "  perch open\n"
			   "  perch open --tls\n",
		.options = specs,
	};
	struct options *options = NULL;
	struct buf answer = {0}, url = {0};
	struct err err;
	char **args;
	int arg_count, status = EXIT_SUCCESS;
	const enum options_result result =
		options_parse(&spec, argc, argv, &options, &args, &arg_count);

	if (result != OPTIONS_OK) {
		status = result == OPTIONS_EXIT_OK ? EXIT_SUCCESS : 2;
	} else if (!client_ask("/api/open", rotate ? SLICE("{}") : SLICE_EMPTY, &answer,
			       &err)) {
		status = client_fail("open", &err);
	} else if (tls) {
		status = print_tls(buf_slice(&answer));
	} else {
		acp_set_text(&url, acp_get_string(buf_slice(&answer), "url"), 1024);
		(void)printf("%s\n", buf_text(&url));
		(void)fflush(stdout);
		if (getenv("DISPLAY") || getenv("WAYLAND_DISPLAY"))
			start_browser(buf_text(&url));
	}
	buf_wipe(&answer);
	buf_wipe(&url);
	options_destroy(options);
	return status;
}
