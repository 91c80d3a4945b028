#include "agent/agent.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/child.h"
#include "agent/harness.h"
#include "agent/turns.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/keyfile.h"
#include "wire/host/log.h"
#include "wire/host/options.h"
#include "wire/host/paths.h"
#include "wire/nostr/nip19.h"
#include "wire/nostr/nipoa.h"

#define RELAY_URL "ws://127.0.0.1:7447"
/* A prompt given on the command line or standard input; our choice. It has to fit an ACP
 * line many times. */
#define PROMPT_BYTES_MAX (1u << 20)

extern char **environ;

/* The command line, as given. */
struct arguments {
	const char *name, *cwd, *permissions, *control, *relay, *log_level;
	struct option_list channels, prompts, environment;
	bool stay;
	int64_t slots, permission_s, idle_s, turn_s, tick_ms, ready_fd;
	char **command;
	int command_count;
};

/* What it comes to; all own memory. */
struct setup {
	char *cwd, *name;
	char **command; /* NULL-terminated; the strings are argv's */
	char **environment;
	struct harness_channel *channels;
	size_t channel_count;
	struct slice *prompts;
	struct buf *prompt_texts;
	size_t prompt_count;
	enum permission_policy permissions;
	enum control_level control;
	struct keypair *keypair;
	struct buf auth_tag, epoch_path;
	uint8_t owner[KEY_BYTES];
	int lock_fd;
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
		{"permission-timeout", OPTION_INT, &out->permission_s, 1, 86400,
		 "SECONDS", "then a request is denied (default 300)", false},
		{"control", OPTION_TEXT, &out->control, 0, 0, "none|approve|full",
		 "what the owner may do from afar (default: approve)", false},
		{"idle-timeout", OPTION_INT, &out->idle_s, 1, 604800, "SECONDS",
		 "silence after which a turn is cancelled (default 900)", false},
		{"turn-timeout", OPTION_INT, &out->turn_s, 1, 604800, "SECONDS",
		 "longest turn (default 7200)", false},
		{"env", OPTION_LIST, &out->environment, 0, 0, "NAME[=VALUE]",
		 "one more environment variable for the agent; repeatable", true},
		{"relay", OPTION_TEXT, &out->relay, 0, 0, "URL",
		 "where the feed goes (default " RELAY_URL ")", false},
		{"slots", OPTION_INT, &out->slots, 1, 32, "N",
		 "agent processes (only 1 so far)", false},
		{"tick-ms", OPTION_INT, &out->tick_ms, 10, 60000, "MS",
		 "shortest time between two frames (default 1000)", false},
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
		.example = "  perch agent --channel api -- claude-agent-acp",
		.options = table,
		.min_args = 1,
		.max_args = -1,
		.command_after_dashes = true,
	};

	*out = (struct arguments){.cwd = ".",
				  .permissions = "ask",
				  .control = "approve",
				  .relay = RELAY_URL,
				  .log_level = "info",
				  .slots = 1,
				  .permission_s = AGENT_PERMISSION_S,
				  .idle_s = 900,
				  .turn_s = 7200,
				  .tick_ms = AGENT_TICK_MS,
				  .ready_fd = -1};
	return options_parse(&spec, argc, argv, options, &out->command,
			     &out->command_count);
}

/* --- Names --- */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* "claude" and "api server" → "claude-api-server": what is no letter, digit, '.', '_' or
 * '-' becomes '-'. */
static char *default_name(const char *command, const char *cwd)
{
	struct buf name;
	char *copy;

	buf_init(&name, KEY_NAME_MAX + 1);
	for (const char *at = base_name(command); *at && name.len < KEY_NAME_MAX / 2;
	     at++)
		(void)buf_append_byte(&name, *at);
	(void)buf_append_byte(&name, '-');
	for (const char *at = base_name(cwd); *at && name.len < KEY_NAME_MAX; at++)
		(void)buf_append_byte(&name, *at);
	for (size_t i = 0; i < name.len; i++) {
		char c = name.ptr[i];
		bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			    (c >= '0' && c <= '9') || c == '_' || c == '-' ||
			    (c == '.' && i > 0);

		if (!fine)
			name.ptr[i] = '-';
	}
	if (slice_ends(buf_slice(&name), SLICE(".auth")))
		name.ptr[name.len - 5] = '-';
	copy = mem_dup(buf_slice(&name));
	buf_finish(&name);
	return copy;
}

static bool resolve_names(const struct arguments *arguments, struct setup *setup,
			  struct err *err)
{
	setup->cwd = realpath(arguments->cwd, NULL);
	if (!setup->cwd)
		return err_errno(err, "--cwd %.100s", arguments->cwd);
	setup->name = arguments->name ? mem_dup(slice_of(arguments->name))
				      : default_name(arguments->command[0], setup->cwd);
	if (!keyfile_name_valid(slice_of(setup->name)))
		return err_set(
			err, ERR_MALFORMED,
			"--name %.80s: want 1 to %d letters, digits, '.', '_' or '-'",
			setup->name, KEY_NAME_MAX);
	return true;
}

static bool resolve_channels(const struct arguments *arguments, struct crypto *crypto,
			     struct setup *setup, struct err *err)
{
	size_t count = arguments->channels.count;

	if (count > CHANNELS_MAX)
		return err_set(err, ERR_MALFORMED, "--channel: at most %d", CHANNELS_MAX);
	setup->channels = mem_array(count ? count : 1, sizeof(*setup->channels));
	for (size_t i = 0; i < (count ? count : 1); i++) {
		struct harness_channel *channel = &setup->channels[i];

		channel->name =
			count ? arguments->channels.values[i] : base_name(setup->cwd);
		if (!uuid_parse(slice_of(channel->name), &channel->uuid))
			uuid_of_name(crypto, slice_of(channel->name), &channel->uuid);
		for (size_t k = 0; k < i; k++) {
			if (strcmp(setup->channels[k].uuid.text, channel->uuid.text) == 0)
				return err_set(err, ERR_MALFORMED,
					       "--channel %.80s: given twice",
					       channel->name);
		}
		setup->channel_count++;
	}
	return true;
}

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

static bool resolve_prompts(const struct arguments *arguments, struct setup *setup,
			    struct err *err)
{
	size_t count = arguments->prompts.count;

	setup->prompts = mem_array(count + 1, sizeof(*setup->prompts));
	setup->prompt_texts = mem_array(count + 1, sizeof(*setup->prompt_texts));
	for (; setup->prompt_count < count; setup->prompt_count++) {
		const char *given = arguments->prompts.values[setup->prompt_count];
		struct buf *text = &setup->prompt_texts[setup->prompt_count];

		buf_init(text, PROMPT_BYTES_MAX);
		if (strcmp(given, "-") == 0 && !read_stdin(text, err))
			return false;
		if (strcmp(given, "-") != 0 && !buf_append(text, slice_of(given)))
			return err_set(err, ERR_TOO_LARGE, "--prompt: more than %u bytes",
				       PROMPT_BYTES_MAX);
		if (!utf8_valid(buf_slice(text)))
			return err_set(err, ERR_MALFORMED, "--prompt: not UTF-8");
		setup->prompts[setup->prompt_count] = buf_slice(text);
	}
	return true;
}

/* --- Keys --- */

/* Signs with the owner's key, should it be on this machine, and forgets it again. */
static bool attest_here(struct crypto *crypto, struct setup *setup, struct err *err)
{
	struct keypair *owner = NULL;
	struct buf npub;
	uint8_t aux[32];
	bool ok = false;

	if (!keyfile_load(crypto, SLICE("owner"), &owner, err)) {
		if (err->code != ERR_NOT_FOUND)
			return false;
		buf_init(&npub, 128);
		(void)nip19_encode(NIP19_NPUB, keypair_public(setup->keypair), &npub);
		err_set(err, ERR_NOT_FOUND,
			"agent key %.64s has no owner: run \"perch up\" here, or on the "
			"owner's machine \"perch attest %s\"",
			setup->name, buf_text(&npub));
		buf_finish(&npub);
		return false;
	}
	loop_random(aux, sizeof(aux));
	buf_clear(&setup->auth_tag);
	ok = nipoa_sign(crypto, owner, keypair_public(setup->keypair), SLICE_EMPTY, aux,
			&setup->auth_tag, err);
	keypair_destroy(owner);
	return ok &&
	       keyfile_save_auth(slice_of(setup->name), buf_slice(&setup->auth_tag), err);
}

static bool load_auth(struct crypto *crypto, struct setup *setup, struct err *err)
{
	int64_t expires;
	struct err why;
	bool made;

	if (!keyfile_ensure(crypto, slice_of(setup->name), &setup->keypair, &made, err))
		return false;
	if (!keyfile_load_auth(slice_of(setup->name), &setup->auth_tag, err)) {
		if (err->code != ERR_NOT_FOUND || !attest_here(crypto, setup, err))
			return false;
	}
	if (!nipoa_parse(crypto, buf_slice(&setup->auth_tag),
			 keypair_public(setup->keypair), setup->owner, &expires, &why))
		return err_set(err, why.code,
			       "the attestation of agent key %.64s is broken (%.48s): "
			       "run \"perch attest %.64s\" on the owner's machine",
			       setup->name, why.text, setup->name);
	if (expires <= loop_unix_ms() / 1000)
		return err_set(
			err, ERR_REFUSED,
			"the attestation of agent key %.64s has expired: run \"perch "
			"attest %.64s\" on the owner's machine",
			setup->name, setup->name);
	return true;
}

/* One harness per key: two would number their frames against each other. */
static bool lock(struct setup *setup, struct err *err)
{
	struct buf folder, path;
	long pid = 0;
	bool ok = false;

	buf_init(&folder, PATH_MAX);
	buf_init(&path, PATH_MAX);
	if (!paths_data(SLICE("run"), &folder, err) ||
	    !paths_make(buf_text(&folder), err))
		goto out;
	(void)buf_printf(&path, "%s/%s.lock", buf_text(&folder), setup->name);
	(void)buf_printf(&setup->epoch_path, "%s/%s.epoch", buf_text(&folder),
			 setup->name);
	setup->lock_fd = paths_lock(buf_text(&path), &pid, err);
	ok = setup->lock_fd >= 0;
	if (!ok && err->code == ERR_REFUSED)
		err_set(err, ERR_REFUSED,
			"agent %.64s is running already (pid %ld): stop that one, or "
			"give "
			"this one another --name",
			setup->name, pid);
out:
	buf_finish(&folder);
	buf_finish(&path);
	return ok;
}

/* --- main --- */

static bool resolve(const struct arguments *arguments, struct crypto *crypto,
		    struct setup *setup, struct err *err)
{
	setup->is_usage = true;
	if (arguments->slots != 1)
		return err_set(err, ERR_REFUSED,
			       "--slots %lld: this version runs one agent process; start "
			       "perch agent again with another --name for a second",
			       (long long)arguments->slots);
	setup->command =
		mem_array((size_t)arguments->command_count + 1, sizeof(*setup->command));
	for (int i = 0; i < arguments->command_count; i++)
		setup->command[i] = arguments->command[i];
	if (!permission_parse_policy(arguments->permissions, &setup->permissions, err) ||
	    !control_level_parse(arguments->control, &setup->control, err) ||
	    !resolve_names(arguments, setup, err) ||
	    !resolve_channels(arguments, crypto, setup, err) ||
	    !resolve_prompts(arguments, setup, err))
		return false;
	setup->environment = child_environment(environ, arguments->environment.values,
					       arguments->environment.count, err);
	if (!setup->environment)
		return false;
	setup->is_usage = false;
	return lock(setup, err) && load_auth(crypto, setup, err);
}

static void setup_finish(struct setup *setup)
{
	if (setup->lock_fd >= 0)
		(void)close(setup->lock_fd);
	keypair_destroy(setup->keypair);
	buf_finish(&setup->auth_tag);
	buf_finish(&setup->epoch_path);
	for (size_t i = 0; setup->prompt_texts && i < setup->prompt_count; i++)
		buf_finish(&setup->prompt_texts[i]);
	free(setup->prompt_texts);
	free(setup->prompts);
	free(setup->channels);
	child_environment_free(setup->environment);
	free(setup->command);
	free(setup->name);
	free(setup->cwd);
}

static struct harness *create(struct loop *loop, const struct arguments *arguments,
			      struct setup *setup, struct err *err)
{
	struct harness_options options = {
		.name = setup->name,
		.command = setup->command,
		.environment = setup->environment,
		.cwd = setup->cwd,
		.channels = setup->channels,
		.channel_count = setup->channel_count,
		.prompts = setup->prompts,
		.prompt_count = setup->prompt_count,
		.stay = arguments->stay,
		.permissions = setup->permissions,
		.control = setup->control,
		.permission_ms = arguments->permission_s * 1000,
		.idle_ms = arguments->idle_s * 1000,
		.turn_ms = arguments->turn_s * 1000,
		.tick_ms = arguments->tick_ms,
		.relay_url = arguments->relay,
		.keypair = setup->keypair,
		.auth_tag = buf_slice(&setup->auth_tag),
		.epoch_path = buf_text(&setup->epoch_path),
		.ready_fd = (int)arguments->ready_fd,
	};

	memcpy(options.owner, setup->owner, sizeof(options.owner));
	return harness_create(loop, &options, err);
}

int agent_main(int argc, char *argv[])
{
	struct setup setup = {.lock_fd = -1};
	struct harness *harness = NULL;
	struct options *options = NULL;
	struct arguments arguments;
	struct loop *loop = NULL;
	enum log_level level;
	struct err err;
	int status = EXIT_FAILURE;

	buf_init(&setup.auth_tag, 4096);
	buf_init(&setup.epoch_path, PATH_MAX);
	switch (parse(argc, argv, &arguments, &options)) {
	case OPTIONS_EXIT_OK:
		return EXIT_SUCCESS;
	case OPTIONS_EXIT_USAGE:
		return 2;
	case OPTIONS_OK:
		break;
	}
	keyfile_guard_process();
	setup.is_usage = true;
	if (!log_parse_level(arguments.log_level, &level, &err))
		goto out;
	setup.is_usage = false;
	log_set_level(level);
	loop = loop_create(&err);
	if (!loop || !resolve(&arguments, loop->crypto, &setup, &err))
		goto out;
	harness = create(loop, &arguments, &setup, &err);
	if (!harness)
		goto out;
	loop_run(loop);
	status = harness_exit_status(harness);
out:
	if (!harness) {
		(void)fprintf(stderr, "perch agent: %s\n", err.text);
		status = setup.is_usage ? 2 : EXIT_FAILURE;
	}
	harness_destroy(harness);
	if (loop)
		loop_destroy(loop);
	setup_finish(&setup);
	options_destroy(options);
	return status;
}
