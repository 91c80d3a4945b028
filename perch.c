/* The front door: one executable, one table of subcommands. */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "observer/observer.h"
#include "relay/relay.h"
#include "up.h"

/* Walks over the table. */
static int config_main(int argc, char *argv[]);

static const struct command {
	const char *name;
	int (*main)(int argc, char *argv[]);
	const char *summary;
} commands[] = {
	{"up", up_main, "relay, observer and agent here, with one page to watch them"},
	{"agent", agent_main, "run an ACP agent and publish what it does"},
	{"proxy", proxy_main, "stand between an editor and its agent, and only watch"},
	{"run", run_main, "run any command and publish its output"},
	{"emit", emit_main, "add a note or a span to a harness's feed, from a hook"},
	{"relay", relay_main, "route sealed frames between harnesses and observers"},
	{"observer", observer_main, "open frames, keep them, serve the page"},
	{"open", open_main, "print the page's address and open it"},
	{"ls", ls_main, "the fleet as a table"},
	{"tail", tail_main, "follow what the agents do, in the terminal"},
	{"prompt", prompt_main, "send an agent a prompt"},
	{"approve", approve_main, "answer a permission request"},
	{"invite", invite_main, "one line that puts an agent elsewhere into your fleet"},
	{"key", key_main, "show, list, import, export, seal and remove keys"},
	{"attest", attest_main, "sign that an agent's key is yours"},
	{"search", search_main, "find what your agents said and did, in all the archive"},
	{"export", export_main, "the archive as JSON lines, as a trace, or as a replay"},
	{"forget", forget_main, "delete what the archive has of an agent or a time"},
	{"doctor", doctor_main, "check the whole way from your agents to you"},
	{"config", config_main, "what each option is set to, and where"},
	{"demo-agent", demo_main, "the scripted ACP agent that `perch up --demo` plays"},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (strcmp(name, commands[i].name) == 0)
			return &commands[i];
	return NULL;
}

static int no_command(const char *name)
{
	(void)fprintf(stderr, "perch: no command \"%.40s\"; perch --help lists them\n",
		      name);
	return 2;
}

/* Asks a command for its effective values instead of running it. */
static int show_config(const struct command *command, int argc, char *argv[])
{
	char **args = calloc((size_t)argc + 3, sizeof(*args));
	char flag[] = "--show-config";
	char name[16];
	int status = EXIT_FAILURE;

	if (!args)
		return status;
	(void)snprintf(name, sizeof(name), "%s", command->name);
	args[0] = name;
	args[1] = flag;
	for (int i = 0; i < argc; i++)
		args[i + 2] = argv[i];
	status = command->main(argc + 2, args);
	free(args);
	return status;
}

/* Not `config` itself, nor what takes no options. */
static bool has_config(const struct command *command)
{
	return command->main != config_main && command->main != demo_main;
}

static void print_config_help(void)
{
	(void)fputs("Usage: perch config [COMMAND [OPTIONS]]\n\n"
		    "Prints the values that a command's options have, or those of all\n"
		    "commands, and where each comes from: a flag, PERCH_NAME in the\n"
		    "environment, FILE:LINE of perch.conf, or the default.\n\n"
		    "perch.conf is in $PERCH_HOME, else $XDG_CONFIG_HOME/perch, else\n"
		    "~/.config/perch: lines \"name = value\", below [COMMAND] for that\n"
		    "command only.\n\n"
		    "Example:\n"
		    "  perch config relay --listen :7448\n",
		    stdout);
}

static int config_main(int argc, char *argv[])
{
	const char *name = argc > 1 ? argv[1] : "";
	const struct command *command;
	int status = EXIT_SUCCESS;

	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
		print_config_help();
		return EXIT_SUCCESS;
	}
	if (argc > 1) {
		command = find_command(name);
		return command && has_config(command)
			       ? show_config(command, argc - 2, argv + 2)
			       : no_command(name);
	}
	for (size_t i = 0; i < COMMAND_COUNT && status == EXIT_SUCCESS; i++)
		if (has_config(&commands[i]))
			status = show_config(&commands[i], 0, NULL);
	return status;
}

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
	if (argc > 1) {
		const struct command *command = find_command(name);

		return command ? command->main(argc - 1, argv + 1) : no_command(name);
	}
	print_help(stderr);
	return 2;
}
