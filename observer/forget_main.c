#include "observer/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "observer/archive_db.h"
#include "observer/archive_read.h"
#include "observer/client.h"
#include "observer/when.h"
#include "wire/base/mem.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/host/paths.h"

#define AGENTS_MAX 256

struct forget {
	const char *agent_name, *channel_name, *before_text;
	bool yes;
	int64_t before_ms;
	struct buf channel;
	uint8_t agents[AGENTS_MAX][KEY_BYTES];
	size_t agent_count;
	uint64_t count;
};

/* Whose frames are to go. */
static bool find(struct forget *forget, const char *path, struct err *err)
{
	struct archive_reader *reader = archive_reader_open(path, err);
	bool ok = reader != NULL;

	if (ok && forget->agent_name) {
		ok = archive_reader_agent(reader, slice_of(forget->agent_name),
					  forget->agents[0], err);
		forget->agent_count = 1;
	} else if (ok) {
		forget->agent_count =
			archive_reader_agents(reader, forget->agents, AGENTS_MAX);
	}
	if (ok && forget->channel_name)
		ok = archive_reader_channel(
			reader, forget->agent_name ? forget->agents[0] : NULL,
			slice_of(forget->channel_name), &forget->channel, err);
	archive_reader_close(reader);
	return ok;
}

static bool drop(struct forget *forget, struct archive_db *db, const uint8_t *agent,
		 struct err *err)
{
	const struct slice channel =
		forget->channel.len ? buf_slice(&forget->channel) : SLICE_EMPTY;
	bool more = true;

	while (more) {
		if (!archive_db_forget(db, agent, channel, forget->before_ms,
				       &forget->count, &more, err))
			return false;
		if (isatty(STDERR_FILENO) == 1)
			(void)fprintf(stderr, "\rperch forget: %llu frames",
				      (unsigned long long)forget->count);
	}
	return true;
}

static bool run(struct forget *forget, struct err *err)
{
	struct buf path = {.max = 4096}, lock = {.max = 4096};
	struct archive_db *db = NULL;
	long pid = 0;
	int fd = -1;
	bool ok = paths_data(SLICE("archive.db"), &path, err) &&
		  paths_data(SLICE("archive.lock"), &lock, err) &&
		  find(forget, buf_text(&path), err);

	if (ok) {
		fd = paths_lock(buf_text(&lock), &pid, err);
		ok = fd >= 0;
		if (!ok && err->code == ERR_REFUSED)
			(void)err_set(err, ERR_REFUSED,
				      "an observer (pid %ld) has the archive and shows "
				      "what it holds: stop it, forget, start it again",
				      pid);
	}
	if (ok)
		db = archive_db_open(buf_text(&path), err);
	ok = db != NULL;
	for (size_t i = 0; ok && i < forget->agent_count; i++)
		ok = drop(forget, db, forget->agents[i], err);
	archive_db_close(db);
	if (fd >= 0)
		(void)close(fd);
	buf_finish(&path);
	buf_finish(&lock);
	return ok;
}

int forget_main(int argc, char *argv[])
{
	struct forget *forget = mem_alloc(sizeof(*forget));
	const struct option_spec specs[] = {
		{.name = "channel",
		 .type = OPTION_TEXT,
		 .value = &forget->channel_name,
		 .argument = "CHANNEL",
		 .help = "only this one: its name or id",
		 .no_env = true},
		{.name = "before",
		 .type = OPTION_TEXT,
		 .value = &forget->before_text,
		 .argument = "T",
		 .help = "only what happened before: 2026-11-30T08:00:00Z, or 12h, 7d "
			 "ago",
		 .no_env = true},
		{.name = "yes",
		 .type = OPTION_FLAG,
		 .value = &forget->yes,
		 .help = "do it: it cannot be undone",
		 .no_env = true},
		{.name = NULL},
	};
	const struct options_spec spec = {
		.command = "perch forget",
		.usage = "[OPTIONS] [AGENT]",
		.summary = "Deletes from the archive what an agent sent, or a channel, "
			   "or what is older. It is not asked for again. Agents keep "
			   "their own journals. No observer may run meanwhile.",
		.example = "  perch forget --yes claude\n"
			   "  perch forget --yes --channel web --before 30d\n",
		.options = specs,
		.min_args = 0,
		.max_args = 1,
	};
	struct options *options = NULL;
	struct err err;
	char **args;
	int arg_count, status = EXIT_SUCCESS;
	const enum options_result result =
		options_parse(&spec, argc, argv, &options, &args, &arg_count);

	forget->before_ms = INT64_MAX;
	forget->channel.max = 4096;
	if (result == OPTIONS_OK && arg_count)
		forget->agent_name = args[0];
	if (result != OPTIONS_OK) {
		status = result == OPTIONS_EXIT_OK ? EXIT_SUCCESS : 2;
	} else if (!forget->agent_name && !forget->channel_name && !forget->before_text) {
		(void)err_set(&err, ERR_MALFORMED,
			      "say what: AGENT, --channel CHANNEL or --before T");
		(void)client_fail("forget", &err);
		status = 2;
	} else if (forget->before_text &&
		   !when_parse("--before", forget->before_text, loop_unix_ms(),
			       &forget->before_ms, &err)) {
		(void)client_fail("forget", &err);
		status = 2;
	} else if (!forget->yes) {
		(void)err_set(&err, ERR_REFUSED,
			      "this cannot be undone: say --yes if it is meant");
		(void)client_fail("forget", &err);
		status = 2;
	} else if (!run(forget, &err)) {
		status = client_fail("forget", &err);
	} else {
		(void)printf("forgot %llu frames\n", (unsigned long long)forget->count);
	}
	buf_finish(&forget->channel);
	free(forget);
	options_destroy(options);
	return status;
}
