#include "observer/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "observer/acp.h"
#include "observer/client.h"
#include "observer/search_query.h"
#include "observer/terminal.h"
#include "wire/host/log.h"
#include "wire/host/options.h"
#include "wire/nostr/crypto.h"
#include "wire/nostr/json.h"

#define PAGE 100 /* hits asked for at once: SEARCH_LIMIT_MAX */

struct find {
	bool json, colour;
	int64_t left; /* hits to print */
	struct buf words;
	char before[24]; /* id of the hit that was printed last; "" none */
	uint64_t printed;
	struct slice fleet;
};

/* Text, match, text, match… */
static void print_snippet(const struct find *find, struct slice pieces)
{
	struct buf text = {0};
	char quoted[LOG_QUOTE_BYTES];
	struct slice piece;

	for (unsigned i = 0; acp_next(&pieces, &piece); i++) {
		acp_set_text(&text, acp_string(piece), LOG_QUOTE_BYTES);
		if (text.len)
			(void)printf("%s%s%s", find->colour && i % 2 ? "\x1b[1m" : "",
				     log_quote(buf_slice(&text), quoted),
				     find->colour && i % 2 ? "\x1b[0m" : "");
	}
	buf_finish(&text);
}

/* The fleet has the newest only: the archive's word for others, or how their id begins.
 */
static const char *archived_words(struct slice hit, const char *key, struct slice id,
				  char out[LOG_QUOTE_BYTES])
{
	const struct slice name = acp_get_string(hit, key);

	return client_words(name.len ? name : slice_sub(id, 0, 8), out);
}

static void print_hit(const struct find *find, struct slice hit)
{
	const time_t second = (time_t)(acp_get_int(hit, "t", 0) / 1000);
	const struct slice lane = client_lane(find->fleet, acp_get_string(hit, "lane"));
	const struct slice who = client_agent(find->fleet, acp_get_string(hit, "agent"));
	char agent[CLIENT_AGENT_BYTES], channel[LOG_QUOTE_BYTES], type[LOG_QUOTE_BYTES];
	char title[LOG_QUOTE_BYTES], stamp[32] = "";
	struct tm at;

	if (localtime_r(&second, &at))
		(void)strftime(stamp, sizeof(stamp), "%F %T", &at);
	if (who.ptr)
		(void)client_agent_words(who, agent);
	else
		(void)archived_words(hit, "agentName", acp_get_string(hit, "agent"),
				     agent);
	if (acp_get_string(lane, "channelName").len)
		(void)client_words(acp_get_string(lane, "channelName"), channel);
	else
		(void)archived_words(hit, "channelName",
				     slice_sub(acp_get_string(hit, "lane"),
					       2 * KEY_BYTES + 1, SIZE_MAX),
				     channel);
	(void)printf("%s %-12s %-14s %-10s ", stamp, agent, channel,
		     client_words(acp_get_string(hit, "type"), type));
	if (acp_get_string(hit, "title").ptr)
		(void)printf("%s … ", client_words(acp_get_string(hit, "title"), title));
	print_snippet(find, acp_get(hit, "snippet"));
	(void)printf("\n");
}

/* @more: another page is wanted and there. */
static bool print_page(struct find *find, struct slice answer, bool *more)
{
	struct slice rest = acp_get(answer, "hits"), hit;
	const struct slice before = acp_get_string(answer, "before");

	while (find->left && acp_next(&rest, &hit)) {
		find->left--;
		find->printed++;
		if (find->json)
			(void)printf("%.*s\n", SLICE_ARG(hit));
		else
			print_hit(find, hit);
	}
	*more = find->left && acp_is_true(acp_get(answer, "more")) &&
		before.len < sizeof(find->before);
	if (*more)
		(void)snprintf(find->before, sizeof(find->before), "%.*s",
			       SLICE_ARG(before));
	if (acp_is_true(acp_get(answer, "incomplete")))
		(void)fprintf(stderr, "perch search: it took too long, so there may be "
				      "more: say more words, or since:7d\n");
	if (!*more && acp_is_true(acp_get(answer, "indexing")))
		(void)fprintf(stderr, "perch search: the oldest of the archive is still "
				      "being indexed: there may be more soon\n");
	return true;
}

static bool run(struct find *find, struct err *err)
{
	struct buf fleet = {0}, path = {.max = 8 * SEARCH_QUERY_MAX}, answer = {0};
	bool more = true;
	bool ok = client_ask("/api/fleet", SLICE_EMPTY, &fleet, err);

	find->fleet = buf_slice(&fleet);
	while (ok && more) {
		buf_clear(&path);
		(void)buf_printf(&path, "/api/search?limit=%d&q=", PAGE);
		(void)client_escape(buf_slice(&find->words), &path);
		if (*find->before)
			(void)buf_printf(&path, "&before=%s", find->before);
		ok = client_ask(buf_text(&path), SLICE_EMPTY, &answer, err) &&
		     print_page(find, buf_slice(&answer), &more);
	}
	buf_finish(&fleet);
	buf_finish(&path);
	buf_finish(&answer);
	return ok;
}

int search_main(int argc, char *argv[])
{
	struct find find = {.left = 30,
			    .words.max = SEARCH_QUERY_MAX,
			    .colour = terminal_has_colour(STDOUT_FILENO)};
	const struct option_spec specs[] = {
		{.name = "json",
		 .type = OPTION_FLAG,
		 .value = &find.json,
		 .help = "print hits as JSON, one a line",
		 .no_env = true},
		{.name = "count",
		 .type = OPTION_INT,
		 .value = &find.left,
		 .min = 1,
		 .max = 1000000,
		 .argument = "N",
		 .help = "print at most N, the newest first (30)",
		 .no_env = true},
		{.name = NULL},
	};
	const struct options_spec spec = {
		.command = "perch search",
		.usage = "[OPTIONS] WORDS",
		.summary =
			"Finds what your agents said, thought, ran and printed, in the "
			"whole archive. All words are looked for, \"words in a row\" "
			"between quotes, and begin* of words. agent:NAME, kind:TYPE "
			"(prompt, message, thought, plan, tool, permission, turn, "
			"output, note, lifecycle, error, raw) and since:7d narrow it. "
			"Exits with 1 when nothing is found.",
		.example = "  perch search segmentation fault since:7d\n"
			   "  perch search '\"rate limit\"' agent:claude kind:message\n",
		.options = specs,
		.min_args = 1,
		.max_args = -1,
	};
	struct options *options = NULL;
	struct err err;
	char **args;
	int arg_count, status = EXIT_SUCCESS;
	const enum options_result result =
		options_parse(&spec, argc, argv, &options, &args, &arg_count);

	for (int i = 0; result == OPTIONS_OK && i < arg_count; i++)
		(void)buf_printf(&find.words, "%s%s", i ? " " : "", args[i]);
	if (result != OPTIONS_OK) {
		status = result == OPTIONS_EXIT_OK ? EXIT_SUCCESS : 2;
	} else if (!buf_ok(&find.words)) {
		(void)err_set(&err, ERR_MALFORMED, "a search is at most %d bytes",
			      SEARCH_QUERY_MAX);
		(void)client_fail("search", &err);
		status = 2;
	} else if (!run(&find, &err)) {
		status = client_fail("search", &err);
	} else if (!find.printed) {
		(void)fprintf(stderr, "perch search: nothing found\n");
		status = EXIT_FAILURE;
	}
	buf_finish(&find.words);
	options_destroy(options);
	return status;
}
