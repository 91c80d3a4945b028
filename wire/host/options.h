#ifndef WIRE_HOST_OPTIONS_H
#define WIRE_HOST_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/err.h"

/* Command lines and configuration in one table per subcommand (design §9): GNU long
 * options, then PERCH_NAME in the environment, then perch.conf (wire/host/conf.h), then
 * the default; each beats what comes behind it. --help is written from the table, and so
 * is what --show-config prints instead of running: each effective value with its origin
 * (`perch config` asks for it; values behind '=' of NAME[=VALUE] options are not shown).
 * A perch.conf that everybody can write, or that is another user's, is refused. */

enum option_type {
	OPTION_FLAG, /* bool *: --name; value true/false elsewhere */
	OPTION_TEXT, /* const char **; lives as long as the options */
	OPTION_INT,  /* int64_t *, within [min, max] */
	OPTION_LIST, /* struct option_list *: repeatable; one value in the environment */
};

struct option_list {
	const char **values;
	size_t count;
};

/* In the order in which tables read well. */
struct option_spec {      /* NOLINT(clang-analyzer-optin.performance.Padding) */
	const char *name; /* "tick-ms" */
	enum option_type type;
	void *value;          /* holds the default before options_parse() */
	int64_t min, max;     /* OPTION_INT */
	const char *argument; /* "MS", for --help; NULL for flags. What ends with
				 "[=VALUE]" may hold a secret there */
	const char *help;     /* one line, says the default */
	/* Not from environment and file (a one-off like --prompt). All others stand in
	 * the list of wire/host/conf.c. */
	bool no_env;
};

struct options_spec {
	const char *command;               /* "perch relay" */
	const char *usage;                 /* "[OPTIONS] -- COMMAND [ARGUMENT…]" */
	const char *summary;               /* one or two sentences */
	const char *example;               /* one or more whole lines */
	const struct option_spec *options; /* ends with name NULL */
	int min_args, max_args;            /* positional; -1: any number */
	bool command_after_dashes;         /* positionals only after "--" */
	/* Not NULL: what is wrong in perch.conf or the environment is told here (else
	 * ERR_NONE), and nothing behind it is read; for commands that go on without.
	 * --show-config never does. */
	struct err *conf_err;
};

enum options_result {
	OPTIONS_OK,
	OPTIONS_EXIT_OK,    /* --help or --show-config was printed */
	OPTIONS_EXIT_USAGE, /* the error was printed */
};

struct options; /* owns texts and lists */

/**
 * options_parse - fill the table's values
 * @argv: argv[0] is the subcommand's own name
 * @args_out, @arg_count_out: the positional arguments, with a NULL behind the last;
 *   borrowed from @argv, whose order changes
 * A usage error is one line on stderr that names the option and what it takes.
 */
enum options_result options_parse(const struct options_spec *spec, int argc, char *argv[],
				  struct options **out, char ***args_out,
				  int *arg_count_out);
void options_destroy(struct options *options);
/* HOST:PORT, [V6]:PORT or :PORT (127.0.0.1). Port 0 means: choose one. */
bool options_host_port(const char *text, char host[64], uint16_t *port, struct err *err);

#endif
