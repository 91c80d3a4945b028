#include "observer/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "observer/acp.h"
#include "observer/client.h"
#include "wire/base/map.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"
#include "wire/host/options.h"
#include "wire/nostr/json.h"

#define ROWS_MAX 4096   /* of one message that are put in order; more come as they are */
#define SHOWN_MAX 65536 /* rows remembered as printed; then all are forgotten */

struct tail {
	bool json, colour;
	int64_t left;      /* rows to print; -1: no end */
	const char *agent; /* NULL: all */
	struct map lanes;  /* lane id → its JSON */
	struct map agents; /* agent id → its JSON */
	struct map shown;  /* row id → itself */
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
		(void)printf("/%s", words(slice_of(lane), "channelName", channel));
}

static void print_row(struct tail *tail, struct slice row)
{
	char type[LOG_QUOTE_BYTES], verb[LOG_QUOTE_BYTES], object[LOG_QUOTE_BYTES];
	char rest[LOG_QUOTE_BYTES];
	const time_t t = (time_t)(time_of(row) / 1000);
	const bool is_call = acp_get_string(row, "verb").ptr != NULL;
	struct tm tm;

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
		acp_get_string(row, "outcome").ptr || acp_get_string(row, "state").ptr
			? " "
			: "",
		words(row, acp_get_string(row, "outcome").ptr ? "outcome" : "state",
		      rest),
		tail->colour ? "\033[0m" : "");
}

static bool is_wanted(const struct tail *tail, struct slice row)
{
	const struct slice name = acp_get_string(agent_of(tail, row), "name");

	return !tail->agent || json_is(name, slice_of(tail->agent)) ||
	       slice_eq(agent_id(row), slice_of(tail->agent));
}

static void take_row(struct tail *tail, struct slice row)
{
	if (tail->left == 0 || !is_wanted(tail, row))
		return;
	if (tail->json)
		(void)printf("%.*s\n", SLICE_ARG(row));
	else if (is_done(row) && is_new(tail, row))
		print_row(tail, row);
	else
		return;
	if (tail->left > 0)
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

static bool on_message(void *ctx, struct slice message)
{
	struct tail *tail = ctx;

	keep(&tail->agents, acp_get(message, "agents"));
	keep(&tail->lanes, acp_get(message, "lanes"));
	take_rows(tail, acp_get(message, "rows"));
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
}

int tail_main(int argc, char *argv[])
{
	struct tail tail = {.left = -1, .colour = isatty(STDOUT_FILENO)};
	const struct option_spec specs[] = {
		{.name = "json",
		 .type = OPTION_FLAG,
		 .value = &tail.json,
		 .help = "print rows as JSON, each time they change",
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
		.usage = "[--json] [--count N] [AGENT]",
		.summary = "Follows what the agents do, one line a row.",
		.example = "  perch tail claude\n"
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
		tail.agent = arg_count ? args[0] : NULL;
		if (!client_follow(on_message, &tail, &err))
			status = client_fail("tail", &err);
	} else {
		status = result == OPTIONS_EXIT_OK ? EXIT_SUCCESS : 2;
	}
	tail_finish(&tail);
	options_destroy(options);
	return status;
}
