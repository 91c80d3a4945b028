#include "agent/agent.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/child.h"
#include "agent/emit_server.h"
#include "agent/harness.h"
#include "agent/setup.h"
#include "agent/turns.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/keyfile.h"
#include "wire/host/log.h"
#include "wire/host/options.h"

/* A prompt given on the command line or standard input; our choice. It has to fit an ACP
 * line many times. */
#define PROMPT_BYTES_MAX (1u << 20)

extern char **environ;

/* The command line, as given. */
struct arguments {
	const char *name, *cwd, *permissions, *rules, *control, *relay, *invite, *resume,
		*log_level;
	struct option_list channels, prompts, environment;
	bool stay;
	int64_t slots, permission_s, start_s, idle_s, turn_s, tick_ms, ready_fd;
	int64_t journal_mb, journal_days;
	char **command;
	int command_count;
};

/* What it comes to; all own memory. */
struct plan {
	struct setup setup;
	char **command; /* NULL-terminated; the strings are argv's */
	char **environment;
	struct buf emit_path; /* empty: none */
	struct slice *prompts;
	struct buf *prompt_texts;
	size_t prompt_count;
	enum permission_policy permissions;
	struct permission_rules rules;
	enum control_level control;
	bool is_usage; /* what fails now is how we were called */
};

static enum options_result parse(int argc, char *argv[], struct arguments *out,
				 struct options **options)
{
	const struct option_spec table[] = {
		{"name", OPTION_TEXT, &out->name, 0, 0, "NAME",
		 "name of the agent and its key (default: command and folder)", false},
		{"channel", OPTION_LIST, &out->channels, 0, 0, "NAME|UUID",
		 "where it works; repeatable (default: the folder's name)", false},
		{"cwd", OPTION_TEXT, &out->cwd, 0, 0, "DIR",
		 "folder that the agent works in (default: this one)", true},
		{"prompt", OPTION_LIST, &out->prompts, 0, 0, "TEXT",
		 "run this in every channel, then exit; repeatable; - reads standard "
		 "input",
		 true},
		{"stay", OPTION_FLAG, &out->stay, 0, 0, NULL,
		 "go on after the prompts, for the owner", true},
		{"permissions", OPTION_TEXT, &out->permissions, 0, 0, "ask|allow|reject",
		 "who answers permission requests (default: ask the owner)", false},
		{"permission-rules", OPTION_TEXT, &out->rules, 0, 0, "RULES",
		 "by kind of tool, as 'allow read,search; ask edit'; the rest as "
		 "--permissions says",
		 false},
		{"permission-timeout", OPTION_INT, &out->permission_s, 1, 86400,
		 "SECONDS", "then a request is denied (default 300)", false},
		{"control", OPTION_TEXT, &out->control, 0, 0, "none|approve|full",
		 "what the owner may do from afar (default: approve)", false},
		{"start-timeout", OPTION_INT, &out->start_s, 1, 86400, "SECONDS",
		 "longest that the agent may take to start, and to open a session "
		 "(default 180)",
		 false},
		{"idle-timeout", OPTION_INT, &out->idle_s, 1, 604800, "SECONDS",
		 "silence after which a turn is cancelled (default 900)", false},
		{"turn-timeout", OPTION_INT, &out->turn_s, 1, 604800, "SECONDS",
		 "longest turn (default 7200)", false},
		{"env", OPTION_LIST, &out->environment, 0, 0, "NAME[=VALUE]",
		 "one more environment variable for the agent; repeatable", true},
		{"relay", OPTION_TEXT, &out->relay, 0, 0, "URL",
		 "where the feed goes (default: the invitation's, else " SETUP_RELAY_URL
		 ")",
		 false},
		{"invite", OPTION_TEXT, &out->invite, 0, 0, "-|FILE",
		 "join the fleet whose owner made this invitation: - reads it from "
		 "standard input; PERCH_INVITE may hold it instead, for one run",
		 true},
		{"slots", OPTION_INT, &out->slots, 1, TURNS_SLOTS_MAX, "N",
		 "agent processes that share the channels (default 1)", false},
		{"resume", OPTION_TEXT, &out->resume, 0, 0, "last|SESSION",
		 "go on with the last session of every channel, or with SESSION in the "
		 "first",
		 true},
		{"tick-ms", OPTION_INT, &out->tick_ms, 10, 60000, "MS",
		 "shortest time between two frames (default 1000)", false},
		{"journal-mb", OPTION_INT, &out->journal_mb, 0, 1 << 20, "MIB",
		 "most that is kept on disk for an owner who is away; 0: nothing "
		 "(default 256)",
		 false},
		{"journal-days", OPTION_INT, &out->journal_days, 1, 3650, "DAYS",
		 "and for how long (default 30)", false},
		{"ready-fd", OPTION_INT, &out->ready_fd, 0, INT_MAX, "FD",
		 "write \"ready\" there once connected and initialized", true},
		{"log-level", OPTION_TEXT, &out->log_level, 0, 0, "error|warn|info|debug",
		 "how much to say on standard error (default info)", false},
		{NULL, OPTION_FLAG, NULL, 0, 0, NULL, NULL, false},
	};
	const struct options_spec spec = {
		.command = "perch agent",
		.usage = "[OPTIONS] -- COMMAND [ARGUMENT…]",
		.summary = "Runs an ACP agent, feeds what it does to its owner, and does "
			   "what the owner asks.",
		.example = "  perch agent --channel api -- claude-agent-acp\n"
			   "  perch agent --invite - -- claude-agent-acp",
		.options = table,
		.min_args = 1,
		.max_args = -1,
		.command_after_dashes = true,
	};

	*out = (struct arguments){.cwd = ".",
				  .permissions = "ask",
				  .rules = "",
				  .control = "approve",
				  .log_level = "info",
				  .slots = 1,
				  .permission_s = AGENT_PERMISSION_S,
				  .start_s = 180,
				  .idle_s = 900,
				  .turn_s = 7200,
				  .tick_ms = AGENT_TICK_MS,
				  .journal_mb = AGENT_JOURNAL_MAX >> 20,
				  .journal_days = AGENT_JOURNAL_DAYS,
				  .ready_fd = -1};
	return options_parse(&spec, argc, argv, options, &out->command,
			     &out->command_count);
}

/* --- Prompts --- */

static bool read_stdin(struct buf *out, struct err *err)
{
	char bytes[4096];
	ssize_t got;

	for (;;) {
		got = read(STDIN_FILENO, bytes, sizeof(bytes));
		if (got == 0)
			return true;
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_errno(err, "--prompt -: cannot read standard input");
		if (!buf_append(out, (struct slice){bytes, (size_t)got}))
			return err_set(err, ERR_TOO_LARGE,
				       "--prompt -: more than %u bytes",
				       PROMPT_BYTES_MAX);
	}
}

static bool resolve_prompts(const struct arguments *arguments, struct plan *plan,
			    struct err *err)
{
	size_t count = arguments->prompts.count;

	plan->prompts = mem_array(count + 1, sizeof(*plan->prompts));
	plan->prompt_texts = mem_array(count + 1, sizeof(*plan->prompt_texts));
	for (size_t i = 0; i < count; i++) {
		const char *given = arguments->prompts.values[i];
		struct buf *text = &plan->prompt_texts[i];

		buf_init(text, PROMPT_BYTES_MAX);
		plan->prompt_count =
			i + 1; /* freed with the others, also on the way out */
		if (strcmp(given, "-") == 0 && !read_stdin(text, err))
			return false;
		if (strcmp(given, "-") != 0 && !buf_append(text, slice_of(given)))
			return err_set(err, ERR_TOO_LARGE, "--prompt: more than %u bytes",
				       PROMPT_BYTES_MAX);
		if (slice_trim(buf_slice(text)).len == 0)
			return err_set(err, ERR_MALFORMED, "--prompt: there is no text");
		if (!utf8_valid(buf_slice(text)))
			return err_set(err, ERR_MALFORMED, "--prompt: not UTF-8");
		plan->prompts[i] = buf_slice(text);
	}
	return true;
}

/* --- main --- */

/* Where the agent's hooks reach us. Without it the rest goes on. */
static void add_emit(struct plan *plan)
{
	struct buf entry;
	struct err err;

	buf_init(&plan->emit_path, PATH_MAX);
	buf_init(&entry, PATH_MAX + 32);
	if (emit_path_of_name(slice_of(plan->setup.name), &plan->emit_path, &err)) {
		(void)buf_printf(&entry, EMIT_VARIABLE "=%s", buf_text(&plan->emit_path));
		plan->environment =
			child_environment_add(plan->environment, buf_text(&entry));
	} else {
		log_warn("emit", "takes no events: %s", err.text);
		buf_clear(&plan->emit_path);
	}
	buf_finish(&entry);
}

static bool resolve(const struct arguments *arguments, struct crypto *crypto,
		    struct plan *plan, struct err *err)
{
	const struct setup_options options = {
		.name = arguments->name,
		.cwd = arguments->cwd,
		.command = arguments->command[0],
		.channels = &arguments->channels,
		.relay = arguments->relay,
		.invite = arguments->invite,
	};

	plan->is_usage = true;
	plan->command =
		mem_array((size_t)arguments->command_count + 1, sizeof(*plan->command));
	for (int i = 0; i < arguments->command_count; i++)
		plan->command[i] = arguments->command[i];
	if (!permission_parse_policy(arguments->permissions, &plan->permissions, err) ||
	    !permission_parse_rules(arguments->rules, plan->permissions, &plan->rules,
				    err) ||
	    !control_level_parse(arguments->control, &plan->control, err) ||
	    !setup_names(&plan->setup, &options, crypto, err) ||
	    !resolve_prompts(arguments, plan, err))
		return false;
	plan->environment = child_environment(environ, arguments->environment.values,
					      arguments->environment.count, err);
	if (!plan->environment)
		return false;
	add_emit(plan);
	plan->is_usage = false;
	return setup_identity(&plan->setup, SETUP_REFUSE, crypto, err);
}

static void plan_finish(struct plan *plan)
{
	setup_finish(&plan->setup);
	for (size_t i = 0; plan->prompt_texts && i < plan->prompt_count; i++)
		buf_finish(&plan->prompt_texts[i]);
	free(plan->prompt_texts);
	free(plan->prompts);
	child_environment_free(plan->environment);
	buf_finish(&plan->emit_path);
	free(plan->command);
}

static struct harness *create(struct loop *loop, const struct arguments *arguments,
			      struct plan *plan, struct err *err)
{
	struct setup *setup = &plan->setup;
	struct harness_options options = {
		.name = setup->name,
		.command = plan->command,
		.environment = plan->environment,
		.emit_path = plan->emit_path.len ? buf_text(&plan->emit_path) : NULL,
		.cwd = setup->cwd,
		.channels = setup->channels,
		.channel_count = setup->channel_count,
		.prompts = plan->prompts,
		.prompt_count = plan->prompt_count,
		.stay = arguments->stay,
		.slots = (int)arguments->slots,
		.permissions = plan->permissions,
		.rules = plan->rules,
		.rules_text = arguments->rules,
		.resume = arguments->resume,
		.sessions_path = buf_text(&setup->sessions_path),
		.control = plan->control,
		.permission_ms = arguments->permission_s * 1000,
		.start_ms = arguments->start_s * 1000,
		.idle_ms = arguments->idle_s * 1000,
		.turn_ms = arguments->turn_s * 1000,
		.tick_ms = arguments->tick_ms,
		.relay_url = plan->setup.relay,
		.keypair = setup->keypair,
		.auth_tag = buf_slice(&setup->auth_tag),
		.epoch_path = buf_text(&setup->epoch_path),
		.journal_bytes = arguments->journal_mb << 20,
		.journal_s = arguments->journal_days * 86400,
		.ready_fd = (int)arguments->ready_fd,
	};

	if (arguments->journal_mb)
		options.journal_path = buf_text(&setup->journal_path);
	memcpy(options.owner, setup->owner, sizeof(options.owner));
	return harness_create(loop, &options, err);
}

int agent_main(int argc, char *argv[])
{
	struct plan plan = {.is_usage = true};
	struct harness *harness = NULL;
	struct options *options = NULL;
	struct arguments arguments;
	struct loop *loop = NULL;
	enum log_level level;
	struct err err;
	int status = EXIT_FAILURE;

	switch (parse(argc, argv, &arguments, &options)) {
	case OPTIONS_EXIT_OK:
		return EXIT_SUCCESS;
	case OPTIONS_EXIT_USAGE:
		return 2;
	case OPTIONS_OK:
		break;
	}
	setup_init(&plan.setup);
	keyfile_guard_process();
	if (!log_parse_level(arguments.log_level, &level, &err))
		goto out;
	plan.is_usage = false;
	log_set_level(level);
	loop = loop_create(&err);
	if (!loop || !resolve(&arguments, loop->crypto, &plan, &err))
		goto out;
	harness = create(loop, &arguments, &plan, &err);
	if (!harness)
		goto out;
	loop_run(loop);
	status = harness_exit_status(harness);
out:
	if (!harness) {
		(void)fprintf(stderr, "perch agent: %s\n", err.text);
		status = plan.is_usage ? 2 : EXIT_FAILURE;
	}
	harness_destroy(harness);
	if (loop)
		loop_destroy(loop);
	plan_finish(&plan);
	options_destroy(options);
	return status;
}
