#include "observer/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "observer/acp.h"
#include "observer/client.h"
#include "observer/story.h"
#include "observer/terminal.h"
#include "wire/base/map.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/nostr/json.h"

#define ROWS_MAX 4096  /* of one message that are put in order; more come as they are */
#define THERE_MAX 4096 /* bytes of the names of who is there; our choice */
#define LAST_ROWS 10   /* shown of what was before, as tail(1) does */
#define LAST_LANES 16  /* asked for them: those that changed last; our choice */
#define LAST_ROOM (LAST_LANES * 4 * LAST_ROWS)
#define SHOWN_MAX 65536 /* rows remembered as printed; then all are forgotten */

struct tail {
	bool json, story, colour, is_terminal;
	bool no_last;                      /* what was before is not shown, or was */
	int64_t left;                      /* rows to print; -1: no end */
	struct slice name, agent, channel; /* as asked, and its parts; ptr NULL: all */
	bool looked;                       /* whether somebody is called so */
	struct map lanes;                  /* lane id → its JSON */
	struct map agents;                 /* agent id → its JSON */
	struct map shown;                  /* row id → itself */
	struct story told;                 /* the line that may still grow */
	int64_t told_ms;                   /* when it began: loop_now_ms() */
	bool on_screen;                    /* it is written, and may be written over */
};

static void keep(struct map *map, struct slice list)
{
	struct slice item;

	while (acp_next(&list, &item))
		free(map_put(map, acp_get_string(item, "id"), mem_dup(item)));
}

static const char *words(struct slice object, const char *key, char out[LOG_QUOTE_BYTES])
{
	return client_words(acp_get_string(object, key), out);
}

/* A plan says how far it is. */
static const char *plan_words(struct slice row, char out[LOG_QUOTE_BYTES])
{
	struct slice rest = acp_get(row, "entries"), entry;
	unsigned count = 0, done = 0;

	while (acp_next(&rest, &entry)) {
		count++;
		done += json_is(acp_get_string(entry, "status"), SLICE("completed"));
	}
	(void)snprintf(out, LOG_QUOTE_BYTES, "%u of %u", done, count);
	return out;
}

/* A row that still grows is printed when it is done. */
static bool is_done(struct slice row)
{
	const struct slice type = acp_get_string(row, "type");
	const struct slice status = acp_get_string(row, "status");

	if (json_is(type, SLICE("message")) || json_is(type, SLICE("thought")))
		return !acp_is_true(acp_get(row, "open"));
	if (json_is(type, SLICE("tool")))
		return !json_is(status, SLICE("pending")) &&
		       !json_is(status, SLICE("in_progress"));
	return true;
}

/* A permission is printed when it is asked and when it is over: its state is part of it.
 */
static bool is_new(struct tail *tail, struct slice row)
{
	struct buf key = {.max = 8192};
	bool known;

	(void)buf_append(&key, acp_get_string(row, "lane"));
	(void)buf_append(&key, acp_get_string(row, "id"));
	if (json_is(acp_get_string(row, "type"), SLICE("permission")))
		(void)buf_append(&key, acp_get_string(row, "state"));
	if (tail->shown.count >= SHOWN_MAX) {
		map_finish(&tail->shown);
		map_init(&tail->shown);
	}
	known = map_put(&tail->shown, buf_slice(&key), tail) != NULL;
	buf_finish(&key);
	return !known;
}

static const char *colour_of(const struct tail *tail, struct slice row)
{
	const struct slice type = acp_get_string(row, "type");

	if (!tail->colour)
		return "";
	if (json_is(type, SLICE("permission")))
		return "\033[33m";
	if (json_is(type, SLICE("error")) || json_is(type, SLICE("gap")) ||
	    json_is(acp_get_string(row, "status"), SLICE("failed")))
		return "\033[31m";
	if (json_is(type, SLICE("message")) || json_is(type, SLICE("prompt")))
		return "";
	return "\033[2m";
}

/* Its lane is AGENTHEX/CHANNELUUID. */
static struct slice agent_id(struct slice row)
{
	struct slice lane = acp_get_string(row, "lane"), id = SLICE_EMPTY;

	(void)slice_take_until(&lane, '/', &id);
	return id;
}

static struct slice agent_of(const struct tail *tail, struct slice row)
{
	const char *json = map_get(&tail->agents, agent_id(row));

	return json ? slice_of(json) : SLICE_EMPTY;
}

/* When what the line says was so: the end of what has one. */
static int64_t time_of(struct slice row)
{
	return acp_get_int(row, "end", acp_get_int(row, "t", 0));
}

/* "claude/api-server", or "claude" for what belongs to no channel of its own. */
static void print_place(const struct tail *tail, struct slice row)
{
	const char *lane = map_get(&tail->lanes, acp_get_string(row, "lane"));
	char agent[CLIENT_AGENT_BYTES], channel[LOG_QUOTE_BYTES];

	(void)printf("%s", client_agent_words(agent_of(tail, row), agent));
	if (lane)
		(void)printf("/%s", client_lane_words(slice_of(lane), channel));
}

static void print_row(struct tail *tail, struct slice row)
{
	char type[LOG_QUOTE_BYTES], verb[LOG_QUOTE_BYTES], object[LOG_QUOTE_BYTES];
	char rest[LOG_QUOTE_BYTES];
	const time_t t = (time_t)(time_of(row) / 1000);
	const bool is_call = acp_get_string(row, "verb").ptr != NULL;
	const char *how = "";
	struct tm tm;

	if (acp_get_string(row, "outcome").ptr)
		how = words(row, "outcome", rest);
	else if (!json_is(acp_get_string(row, "type"), SLICE("gap")) &&
		 !json_is(acp_get_string(row, "type"), SLICE("turn"))) /* its text says */
		how = words(row, "state", rest);
	(void)localtime_r(&t, &tm);
	(void)printf("%s%02d:%02d:%02d ", colour_of(tail, row), tm.tm_hour, tm.tm_min,
		     tm.tm_sec);
	print_place(tail, row);
	(void)printf(
		" %s: %s%s%s%s%s%s\n", words(row, "type", type),
		is_call ? words(row, "verb", verb) : "", is_call ? " " : "",
		json_is(acp_get_string(row, "type"), SLICE("plan"))
			? plan_words(row, object)
			: words(row,
				acp_get_string(row, "object").ptr ? "object" : "text",
				object),
		*how ? " " : "", how, tail->colour ? "\033[0m" : "");
}

/* ---- one sentence a row ---- */

/* "12:04:11 claude/api-server " */
static void write_place(const struct tail *tail, struct slice row, struct buf *out)
{
	const char *lane = map_get(&tail->lanes, acp_get_string(row, "lane"));
	const time_t t = (time_t)(time_of(row) / 1000);
	char agent[CLIENT_AGENT_BYTES], channel[LOG_QUOTE_BYTES];
	struct tm tm;

	(void)localtime_r(&t, &tm);
	(void)buf_printf(out, "%02d:%02d:%02d %s", tm.tm_hour, tm.tm_min, tm.tm_sec,
			 client_agent_words(agent_of(tail, row), agent));
	if (lane)
		(void)buf_printf(out, "/%s", client_lane_words(slice_of(lane), channel));
	(void)buf_lit(out, "  ");
}

static void print_told(struct tail *tail)
{
	const struct slice row = buf_slice(&tail->told.row);
	const size_t columns = terminal_columns(STDOUT_FILENO);
	size_t used;
	struct buf line = {.max = 1u << 16}, place = {.max = 4096}, sentence = {0};

	write_place(tail, row, &place);
	(void)buf_append(&line, buf_slice(&place));
	used = terminal_width(buf_slice(&place)) + 1;
	story_say(&tail->told, &sentence);
	/* The last column stays free: some terminals would begin another line. */
	terminal_line(buf_slice(&sentence),
		      columns > used + 10 ? columns - used : columns, &line);
	(void)printf("%s%s%.*s%s%s\n", tail->on_screen ? "\033[A\r" : "",
		     colour_of(tail, row), SLICE_ARG(buf_slice(&line)),
		     tail->colour ? "\033[0m" : "", tail->on_screen ? "\033[K" : "");
	buf_finish(&sentence);
	buf_finish(&place);
	buf_finish(&line);
}

/* What is told will not grow any more. */
static void end_told(struct tail *tail)
{
	if (tail->told.rows && !tail->on_screen)
		print_told(tail);
	if (tail->told.rows && tail->left > 0)
		tail->left--;
	tail->on_screen = false;
	story_finish(&tail->told);
}

/* A terminal has the line at once and sees it grow; elsewhere it waits for its like. */
static void tell_row(struct tail *tail, struct slice row)
{
	if (!story_take(&tail->told, row)) {
		end_told(tail);
		if (tail->left == 0)
			return;
		(void)story_take(&tail->told, row);
	}
	if (tail->told.rows == 1)
		tail->told_ms = loop_now_ms();
	if (!tail->is_terminal)
		return;
	print_told(tail);
	tail->on_screen = true;
}

static bool is_channel(struct slice lane, struct slice name)
{
	return json_is(acp_get_string(lane, "channelName"), name) ||
	       json_is(acp_get_string(lane, "channel"), name);
}

static bool is_wanted(const struct tail *tail, struct slice row)
{
	const char *lane = map_get(&tail->lanes, acp_get_string(row, "lane"));

	return !tail->agent.ptr ||
	       (client_is_agent(agent_of(tail, row), tail->agent) &&
		(!tail->channel.ptr ||
		 (lane && is_channel(slice_of(lane), tail->channel))));
}

static void list(struct buf *out, const char *agent, const char *channel)
{
	(void)buf_printf(out, "%s%s%s%s", out->len ? ", " : "", agent,
			 *channel ? "/" : "", channel);
}

/* Is it there? Else those that are. */
static bool find_agent(const struct tail *tail, struct slice message, struct buf *there)
{
	struct slice rest = acp_get(message, "agents"), agent;
	char name[CLIENT_AGENT_BYTES];

	while (acp_next(&rest, &agent)) {
		if (client_is_agent(agent, tail->agent))
			return true;
		list(there, client_agent_words(agent, name), "");
	}
	return false;
}

static bool find_channel(const struct tail *tail, struct slice message, struct buf *there)
{
	struct slice rest = acp_get(message, "lanes"), lane;
	char name[CLIENT_AGENT_BYTES], channel[LOG_QUOTE_BYTES];

	while (acp_next(&rest, &lane)) {
		const struct slice agent =
			client_agent(message, acp_get_string(lane, "agent"));

		if (!client_is_agent(agent, tail->agent))
			continue;
		if (is_channel(lane, tail->channel))
			return true;
		list(there, client_agent_words(agent, name),
		     client_lane_words(lane, channel));
	}
	return false;
}

/* Who is not there yet is waited for, but not without a word. */
static void look_for_agent(const struct tail *tail, struct slice message)
{
	struct buf there = {.max = THERE_MAX};
	char quoted[LOG_QUOTE_BYTES];

	if (!find_agent(tail, message, &there) ||
	    (tail->channel.ptr && !find_channel(tail, message, &there)))
		(void)fprintf(stderr,
			      "perch tail: nobody here is called %s yet%s%s; waiting "
			      "for it\n",
			      log_quote(tail->name, quoted), there.len ? ", only " : "",
			      there.len ? buf_text(&there) : "");
	buf_finish(&there);
}

static void take_row(struct tail *tail, struct slice row)
{
	if (tail->left == 0 || !is_wanted(tail, row))
		return;
	if (tail->json)
		(void)printf("%.*s\n", SLICE_ARG(row));
	else if (!is_done(row) || !is_new(tail, row))
		return;
	else if (tail->story)
		tell_row(tail, row);
	else
		print_row(tail, row);
	/* A sentence is counted when it is over. */
	if (tail->left > 0 && !tail->story)
		tail->left--;
}

struct timed {
	struct slice row;
	int64_t t;
	size_t at; /* keeps those of one moment in the order in which they came */
};

static int compare_times(const void *a, const void *b)
{
	const struct timed *left = a, *right = b;

	if (left->t != right->t)
		return left->t < right->t ? -1 : 1;
	return left->at < right->at ? -1 : 1;
}

/* A message has its rows lane by lane; a terminal wants them by time. */
static void take_rows(struct tail *tail, struct slice rest)
{
	struct timed *rows = mem_array(ROWS_MAX, sizeof(*rows));
	struct slice row;
	size_t count;

	do {
		for (count = 0; count < ROWS_MAX && acp_next(&rest, &row); count++)
			rows[count] = (struct timed){row, time_of(row), count};
		if (count > 1)
			qsort(rows, count, sizeof(*rows), compare_times);
		for (size_t i = 0; i < count; i++)
			take_row(tail, rows[i].row);
	} while (count == ROWS_MAX);
	free(rows);
}

/* Moves the newest @most of @timed to its front, in order; how many there are. */
static size_t keep_newest(struct timed *timed, size_t count, size_t most)
{
	const size_t from = count > most ? count - most : 0;

	if (count > 1)
		qsort(timed, count, sizeof(*timed), compare_times);
	memmove(timed, timed + from, (count - from) * sizeof(*timed));
	return count - from;
}

/* The newest rows of a lane, into @answer; appends those to be shown to @rows. */
static void ask_rows(const struct tail *tail, struct slice lane, struct buf *answer,
		     struct timed rows[LAST_ROOM], size_t *count)
{
	struct buf path = {.max = 4096};
	struct slice rest = SLICE_EMPTY, row;

	(void)buf_printf(&path, "/api/rows?limit=%d&lane=", 3 * LAST_ROWS);
	if (client_escape(lane, &path) &&
	    client_ask(buf_text(&path), SLICE_EMPTY, answer, NULL))
		rest = acp_get(buf_slice(answer), "rows");
	while (*count < LAST_ROOM && acp_next(&rest, &row)) {
		if (!is_done(row) || !is_wanted(tail, row))
			continue;
		rows[*count] = (struct timed){row, time_of(row), *count};
		(*count)++;
	}
	buf_finish(&path);
}

/* A quiet agent has something to show, too: what was last. */
static void show_last(struct tail *tail, struct slice snapshot)
{
	struct slice rest = acp_get(snapshot, "lanes"), lane;
	struct timed *lanes = mem_array(ROWS_MAX, sizeof(*lanes));
	struct timed *rows = mem_array(LAST_ROOM, sizeof(*rows));
	struct buf answers[LAST_LANES] = {0};
	size_t lane_count = 0, count = 0;

	for (; lane_count < ROWS_MAX && acp_next(&rest, &lane); lane_count++)
		lanes[lane_count] =
			(struct timed){lane, acp_get_int(lane, "sinceMs", 0), lane_count};
	lane_count = keep_newest(lanes, lane_count, LAST_LANES);
	for (size_t i = 0; i < lane_count; i++)
		ask_rows(tail, acp_get_string(lanes[i].row, "id"), &answers[i], rows,
			 &count);
	count = keep_newest(rows, count, LAST_ROWS);
	for (size_t i = 0; i < count; i++)
		take_row(tail, rows[i].row);
	for (size_t i = 0; i < LAST_LANES; i++)
		buf_finish(&answers[i]);
	free(rows);
	free(lanes);
}

static bool on_message(void *ctx, struct slice message)
{
	struct tail *tail = ctx;

	keep(&tail->agents, acp_get(message, "agents"));
	keep(&tail->lanes, acp_get(message, "lanes"));
	if (tail->agent.ptr && !tail->looked && message.len) {
		tail->looked = true;
		look_for_agent(tail, message);
	}
	if (message.len && !tail->no_last) {
		tail->no_last = true;
		show_last(tail, message);
	}
	take_rows(tail, acp_get(message, "rows"));
	if (!tail->is_terminal && tail->told.rows &&
	    loop_now_ms() - tail->told_ms >= CLIENT_QUIET_MS)
		end_told(tail);
	(void)fflush(stdout);
	return tail->left != 0 && !ferror(stdout);
}

static void tail_finish(struct tail *tail)
{
	struct map_entry *entry = NULL;

	while ((entry = map_next(&tail->lanes, entry)) != NULL)
		free(entry->value);
	entry = NULL;
	while ((entry = map_next(&tail->agents, entry)) != NULL)
		free(entry->value);
	map_finish(&tail->lanes);
	map_finish(&tail->agents);
	map_finish(&tail->shown);
	story_finish(&tail->told);
}

/* AGENT, or AGENT/CHANNEL */
static void read_name(struct tail *tail, const char *name)
{
	struct slice rest = slice_of(name);

	tail->name = rest;
	if (slice_find(rest, '/') < rest.len) {
		(void)slice_take_until(&rest, '/', &tail->agent);
		tail->channel = rest;
	} else {
		tail->agent = rest;
	}
}

int tail_main(int argc, char *argv[])
{
	struct tail tail = {.left = -1,
			    .colour = terminal_has_colour(STDOUT_FILENO),
			    .is_terminal = isatty(STDOUT_FILENO)};
	const struct option_spec specs[] = {
		{.name = "json",
		 .type = OPTION_FLAG,
		 .value = &tail.json,
		 .help = "print rows as JSON, each time they change",
		 .no_env = true},
		{.name = "story",
		 .type = OPTION_FLAG,
		 .value = &tail.story,
		 .help = "one sentence a row, like rows that follow each other in one",
		 .no_env = true},
		{.name = "count",
		 .type = OPTION_INT,
		 .value = &tail.left,
		 .min = 1,
		 .max = 1000000000,
		 .argument = "N",
		 .help = "end after N lines",
		 .no_env = true},
		{.name = NULL},
	};
	const struct options_spec spec = {
		.command = "perch tail",
		.usage = "[--json | --story] [--count N] [AGENT[/CHANNEL]]",
		.summary =
			"Shows what the agents did last, and follows what they do, one "
			"line a row. With --json or --count only what comes.",
		.example = "  perch tail claude/api-server\n"
			   "  perch tail --story\n"
			   "  perch tail --json | jq -r .type\n",
		.options = specs,
		.max_args = 1,
	};
	struct options *options = NULL;
	struct err err;
	char **args;
	int arg_count, status = EXIT_SUCCESS;
	const enum options_result result =
		options_parse(&spec, argc, argv, &options, &args, &arg_count);

	map_init(&tail.lanes);
	map_init(&tail.agents);
	map_init(&tail.shown);
	if (result == OPTIONS_OK) {
		if (arg_count)
			read_name(&tail, args[0]);
		/* Who counts lines, or reads rows by a program, wants what comes. */
		tail.no_last = tail.json || tail.left >= 0;
		if (tail.json && tail.story) {
			(void)fprintf(stderr,
				      "perch tail: --json and --story are two ways to "
				      "print: use one\n");
			status = 2;
		} else if (!client_follow(on_message, &tail, &err)) {
			status = client_fail("tail", &err);
		}
	} else {
		status = result == OPTIONS_EXIT_OK ? EXIT_SUCCESS : 2;
	}
	tail_finish(&tail);
	options_destroy(options);
	return status;
}
