/* The front door: one executable, one table of subcommands. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "relay/relay.h"

static const struct command {
	const char *name;
	int (*main)(int argc, char *argv[]);
	const char *summary;
} commands[] = {
	{"agent", agent_main, "run an ACP agent and publish what it does"},
	{"relay", relay_main, "route sealed frames between harnesses and observers"},
	{"demo-agent", demo_main, "the scripted ACP agent that `perch up --demo` plays"},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *out)
{
	(void)fputs("Usage: perch COMMAND [OPTIONS]\n"
		    "Watch, steer and look back over your coding agents, through a relay "
		    "that "
		    "can read none of it.\n\n",
		    out);
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		(void)fprintf(out, "  %-11s %s\n", commands[i].name, commands[i].summary);
	(void)fputs("\nExample:\n"
		    "  perch relay --listen 127.0.0.1:7447\n\n"
		    "perch COMMAND --help says more about one. perch --version.\n",
		    out);
}

int main(int argc, char *argv[])
{
	const char *name = argc > 1 ? argv[1] : "";

	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
	    strcmp(name, "help") == 0) {
		print_help(stdout);
		return EXIT_SUCCESS;
	}
	if (strcmp(name, "--version") == 0) {
		(void)printf("perch %s\n", PERCH_VERSION);
		return EXIT_SUCCESS;
	}
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (strcmp(name, commands[i].name) == 0)
			return commands[i].main(argc - 1, argv + 1);
	if (argc > 1)
		(void)fprintf(stderr,
			      "perch: no command \"%.40s\"; perch --help lists them\n",
			      name);
	else
		print_help(stderr);
	return 2;
}
