#include "observer/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "observer/acp.h"
#include "observer/client.h"
#include "observer/terminal.h"
#include "wire/host/log.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/nostr/json.h"

static const struct {
	const char *state, *glyph;
} glyphs[] = {
	{"needs-you", "\xe2\x96\xb2"}, {"working", "\xe2\x97\x8f"},
	{"stalled", "\xe2\x97\x8f"},   {"failed", "\xe2\x9c\x95"},
	{"finished", "\xe2\x97\x8b"},  {"offline", "\xe2\x97\x8c"},
	{"idle", "\xe2\x97\x8b"},
};

#define STATES (sizeof(glyphs) / sizeof(*glyphs))

/* One string member as text for a terminal. */
static const char *show(struct slice object, const char *key, char out[LOG_QUOTE_BYTES])
{
	return client_words(acp_get_string(object, key), out);
}

static void print_lane(struct slice fleet, struct slice lane, const char *glyph)
{
	char agent[CLIENT_AGENT_BYTES], channel[LOG_QUOTE_BYTES], verb[LOG_QUOTE_BYTES];
	char object[LOG_QUOTE_BYTES], outcome[LOG_QUOTE_BYTES], state[LOG_QUOTE_BYTES];
	const int64_t since = acp_get_int(lane, "sinceMs", 0);
	struct buf line = {.max = 1u << 16}, shown = {.max = 1u << 17};
	char age[16] = "";

	(void)show(lane, "state", state);
	(void)show(lane, "verb", verb);
	/* "finished … Finished": once is enough. */
	if (strcasecmp(state, verb) == 0)
		verb[0] = '\0';
	if (since)
		client_age(loop_unix_ms() - since, age);
	(void)buf_printf(
		&line, "%s %-12s %-14s %-9s %7s  %s%s%s %s", glyph,
		client_agent_words(client_agent(fleet, acp_get_string(lane, "agent")),
				   agent),
		client_lane_words(lane, channel), state, age, verb, *verb ? " " : "",
		show(lane, "object", object), show(lane, "outcome", outcome));
	terminal_line(slice_trim(buf_slice(&line)), terminal_columns(STDOUT_FILENO),
		      &shown);
	(void)printf("%s\n", buf_text(&shown));
	buf_finish(&line);
	buf_finish(&shown);
}

/* Blocked first, then working, failed, finished, offline. */
static void print_fleet(struct slice fleet)
{
	struct slice rest = acp_get(fleet, "lanes"), lane;

	if (!acp_next(&rest, &lane))
		(void)printf("no agent yet: start one with `perch up -- COMMAND`\n");
	for (size_t i = 0; i < STATES; i++) {
		rest = acp_get(fleet, "lanes");
		while (acp_next(&rest, &lane))
			if (json_is(acp_get_string(lane, "state"),
				    slice_of(glyphs[i].state)))
				print_lane(fleet, lane, glyphs[i].glyph);
	}
}

int ls_main(int argc, char *argv[])
{
	bool json = false;
	const struct option_spec specs[] = {
		{.name = "json",
		 .type = OPTION_FLAG,
		 .value = &json,
		 .help = "print the snapshot as JSON",
		 .no_env = true},
		{.name = NULL},
	};
	const struct options_spec spec = {
		.command = "perch ls",
		.usage = "[--json]",
		.summary = "Shows what each agent does, one line a channel: what waits "
			   "for you first. An agent elsewhere is NAME@HOST.",
		.example = "  perch ls\n"
			   "  perch ls --json | jq -r '.agents[].name'\n",
		.options = specs,
	};
	struct options *options = NULL;
	struct buf fleet = {0};
	struct err err;
	char **args;
	int arg_count, status = EXIT_SUCCESS;
	const enum options_result result =
		options_parse(&spec, argc, argv, &options, &args, &arg_count);

	if (result == OPTIONS_OK && !client_ask("/api/fleet", SLICE_EMPTY, &fleet, &err))
		status = client_fail("ls", &err);
	else if (result == OPTIONS_OK && json)
		(void)printf("%s\n", buf_text(&fleet));
	else if (result == OPTIONS_OK)
		print_fleet(buf_slice(&fleet));
	else
		status = result == OPTIONS_EXIT_OK ? EXIT_SUCCESS : 2;
	buf_finish(&fleet);
	options_destroy(options);
	return status;
}
