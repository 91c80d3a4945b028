#include "observer/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "observer/acp.h"
#include "observer/archive_db.h"
#include "observer/archive_read.h"
#include "observer/client.h"
#include "observer/when.h"
#include "wire/base/mem.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/host/paths.h"
#include "wire/nostr/json.h"

#define AGENTS_MAX 256
#define INDEX_MS 500 /* between two signs of life */
#define FLEET_MAX ((size_t)64 << 20)

struct forget {
	const char *agent_name, *channel_name, *before_text;
	bool yes;
	int64_t before_ms;
	struct buf channel;
	uint8_t agents[AGENTS_MAX][KEY_BYTES];
	size_t agent_count;
	uint64_t count;
};

/* The archive knows names by what agents said when they started. Where that was forgotten
 * an observer that runs may still know them. */
static bool ask_agent_name(struct forget *forget)
{
	const struct slice name = slice_of(forget->agent_name);
	struct buf fleet = {.max = FLEET_MAX};
	struct slice rest, agent;
	size_t found = 0;
	struct err err;

	if (client_ask("/api/fleet", SLICE_EMPTY, &fleet, &err)) {
		rest = acp_get(buf_slice(&fleet), "agents");
		while (acp_next(&rest, &agent))
			if (client_is_agent(agent, name) &&
			    hex_decode(acp_get_string(agent, "id"), forget->agents[0],
				       KEY_BYTES))
				found++;
	}
	buf_finish(&fleet);
	return found == 1;
}

static bool ask_channel_name(struct forget *forget)
{
	const struct slice name = slice_of(forget->channel_name);
	struct buf fleet = {.max = FLEET_MAX};
	char agent[2 * KEY_BYTES];
	struct slice rest, lane;
	struct err err;

	hex_encode(forget->agents[0], KEY_BYTES, agent);
	if (client_ask("/api/fleet", SLICE_EMPTY, &fleet, &err)) {
		rest = acp_get(buf_slice(&fleet), "lanes");
		while (!forget->channel.len && acp_next(&rest, &lane))
			if ((!forget->agent_name ||
			     slice_eq(acp_get_string(lane, "agent"),
				      (struct slice){agent, sizeof(agent)})) &&
			    json_is(acp_get_string(lane, "channelName"), name))
				(void)buf_append(&forget->channel,
						 acp_get_string(lane, "channel"));
	}
	buf_finish(&fleet);
	return forget->channel.len > 0;
}

/* Whose frames are to go. */
static bool find(struct forget *forget, const char *path, struct err *err)
{
	struct archive_reader *reader = archive_reader_open(path, err);
	bool ok = reader != NULL;

	if (ok && forget->agent_name) {
		ok = archive_reader_agent(reader, slice_of(forget->agent_name),
					  forget->agents[0], err) ||
		     (err->code == ERR_NOT_FOUND && ask_agent_name(forget));
		forget->agent_count = 1;
	} else if (ok) {
		forget->agent_count =
			archive_reader_agents(reader, forget->agents, AGENTS_MAX);
	}
	if (ok && forget->channel_name)
		ok = archive_reader_channel(
			     reader, forget->agent_name ? forget->agents[0] : NULL,
			     slice_of(forget->channel_name), &forget->channel, err) ||
		     (err->code == ERR_NOT_FOUND && ask_channel_name(forget));
	archive_reader_close(reader);
	return ok;
}

static void tell(const struct forget *forget)
{
	if (isatty(STDERR_FILENO) == 1)
		(void)fprintf(stderr, "\rperch forget: %llu frames",
			      (unsigned long long)forget->count);
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
		tell(forget);
	}
	return true;
}

/* What else those rows said is found again by the rows that stay; of the others the index
 * keeps no word. */
static bool drop_words(struct archive_db *db, struct err *err)
{
	const bool tells = isatty(STDERR_FILENO) == 1;
	int64_t next_ms = 0;

	while (next_ms == 0) {
		struct search_pace pace = search_pace_begin(INDEX_MS, SIZE_MAX);

		if (!archive_db_index(db, true, loop_unix_ms(), &pace, &next_ms, err))
			return false;
		if (tells)
			(void)fputs("\rperch forget: the index of words is rewritten",
				    stderr);
	}
	return archive_db_compact(db, err);
}

/* ---- by the observer that has the archive ---- */

static bool ask(struct forget *forget, const struct buf *body, bool *more,
		struct err *err)
{
	struct buf answer = {.max = 4096};
	const bool ok = client_ask("/api/forget", buf_slice(body), &answer, err);

	if (ok) {
		const int64_t frames = acp_get_int(buf_slice(&answer), "frames", 0);

		forget->count += frames > 0 ? (uint64_t)frames : 0;
		*more = acp_is_true(acp_get(buf_slice(&answer), "more"));
	}
	buf_finish(&answer);
	return ok;
}

static bool ask_agent(struct forget *forget, const uint8_t *agent, struct err *err)
{
	struct buf body = {.max = 8192};
	bool more = true, ok = true;

	(void)buf_lit(&body, "{\"agent\":\"");
	(void)buf_append_hex(&body, agent, KEY_BYTES);
	(void)buf_lit(&body, "\"");
	if (forget->channel.len)
		json_write_member_string(&body, SLICE("channel"),
					 buf_slice(&forget->channel));
	if (forget->before_ms != INT64_MAX)
		json_write_member_int(&body, SLICE("before"), forget->before_ms);
	(void)buf_lit(&body, "}");
	while (ok && more) {
		ok = ask(forget, &body, &more, err);
		tell(forget);
	}
	buf_finish(&body);
	return ok;
}

static bool run_by_observer(struct forget *forget, long pid, struct err *err)
{
	struct buf words = {.max = 64};
	bool ok = true, more = true;
	struct err refused;

	(void)buf_lit(&words, "{\"words\":true}");
	for (size_t i = 0; ok && i < forget->agent_count; i++)
		ok = ask_agent(forget, forget->agents[i], &refused);
	while (ok && forget->count && more)
		ok = ask(forget, &words, &more, &refused);
	buf_finish(&words);
	return ok || err_set(err, ERR_REFUSED,
			     "the observer (pid %ld) has the archive and did not do it "
			     "(%.80s): stop it and forget again",
			     pid, refused.text);
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
	}
	if (!ok && err->code == ERR_REFUSED && pid) {
		ok = run_by_observer(forget, pid, err);
		goto out;
	}
	if (ok)
		db = archive_db_open(buf_text(&path), err);
	ok = db != NULL;
	for (size_t i = 0; ok && i < forget->agent_count; i++)
		ok = drop(forget, db, forget->agents[i], err);
	if (ok && forget->count)
		ok = drop_words(db, err);
	archive_db_close(db);
	if (fd >= 0)
		(void)close(fd);
out:
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
			   "their own journals. An observer that runs does it, and its "
			   "pages forget it too.",
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
