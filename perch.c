/* The front door: one executable, one table of subcommands. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "observer/observer.h"
#include "relay/relay.h"
#include "up.h"

static const struct command {
	const char *name;
	int (*main)(int argc, char *argv[]);
	const char *summary;
} commands[] = {
	{"up", up_main, "relay, observer and agent here, with one page to watch them"},
	{"agent", agent_main, "run an ACP agent and publish what it does"},
	{"relay", relay_main, "route sealed frames between harnesses and observers"},
	{"observer", observer_main, "open frames, keep them, serve the page"},
	{"open", open_main, "print the page's address and open it"},
	{"ls", ls_main, "the fleet as a table"},
	{"tail", tail_main, "follow what the agents do, in the terminal"},
	{"prompt", prompt_main, "send an agent a prompt"},
	{"approve", approve_main, "answer a permission request"},
	{"invite", invite_main, "one line that puts an agent elsewhere into your fleet"},
	{"key", key_main, "show, list and import keys"},
	{"attest", attest_main, "sign that an agent's key is yours"},
	{"demo-agent", demo_main, "the scripted ACP agent that `perch up --demo` plays"},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *out)
{
	(void)fputs("Usage: perch COMMAND [OPTIONS]\n"
		    "Watch, steer and look back over your coding agents, through a\n"
		    "relay that can read none of it.\n\n",
		    out);
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		(void)fprintf(out, "  %-11s %s\n", commands[i].name, commands[i].summary);
	(void)fputs("\nExample:\n"
		    "  perch up --demo          everything here, with a scripted agent\n"
		    "  perch up --name claude -- claude-agent-acp\n\n"
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
