#include "observer/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observer/acp.h"
#include "observer/client.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/nostr/json.h"

static const char *words(struct slice object, const char *key, char out[LOG_QUOTE_BYTES])
{
	struct buf text = {0};

	acp_set_text(&text, acp_get_string(object, key), 400);
	(void)log_quote(buf_slice(&text), out);
	buf_finish(&text);
	return out;
}

static bool is_waiting(struct slice card)
{
	return !json_is(acp_get_string(card, "state"), SLICE("over"));
}

/* Oldest first, so that the list stays as it is while nothing is answered. */
static int compare_cards(const void *a, const void *b)
{
	const struct slice *left = a, *right = b;
	const int64_t t = acp_get_int(*left, "askedMs", 0);
	const int64_t u = acp_get_int(*right, "askedMs", 0);

	if (t != u)
		return t < u ? -1 : 1;
	return slice_compare(acp_get_string(*left, "id"), acp_get_string(*right, "id"));
}

/* The cards that wait, to be freed. */
static struct slice *waiting_cards(struct slice fleet, size_t *count)
{
	struct slice rest = acp_get(fleet, "cards"), card;
	struct slice *cards = NULL;

	*count = 0;
	while (acp_next(&rest, &card)) {
		if (!is_waiting(card))
			continue;
		cards = mem_grow(cards, *count + 1, sizeof(*cards));
		cards[(*count)++] = card;
	}
	if (*count > 1)
		qsort(cards, *count, sizeof(*cards), compare_cards);
	return cards;
}

/* The options by the number and the id that answer them. */
static void print_options(struct slice card)
{
	struct slice options = acp_get(card, "options"), option;

	for (unsigned number = 1; acp_next(&options, &option); number++) {
		char id[LOG_QUOTE_BYTES], name[LOG_QUOTE_BYTES];

		(void)printf("          %u  %s: %s\n", number, words(option, "id", id),
			     words(option, "name", name));
	}
}

static void print_card(struct slice fleet, struct slice card)
{
	const struct slice lane = client_lane(fleet, acp_get_string(card, "lane"));
	char agent[CLIENT_AGENT_BYTES], channel[LOG_QUOTE_BYTES], verb[LOG_QUOTE_BYTES];
	char text[LOG_QUOTE_BYTES], nonce[LOG_QUOTE_BYTES], age[16];

	client_age(loop_unix_ms() - acp_get_int(card, "askedMs", 0), age);
	(void)printf("%.8s  %s/%s %s %s  (waiting %s)\n", words(card, "id", nonce),
		     client_agent_words(
			     client_agent(fleet, acp_get_string(card, "agent")), agent),
		     words(lane, "channelName", channel), words(card, "verb", verb),
		     words(card, "text", text), age);
	if (!acp_is_true(acp_get(card, "actionable")))
		(void)printf("          not answered from here\n");
	else
		print_options(card);
}

static void print_cards(struct slice fleet, bool json)
{
	size_t count;
	struct slice *cards = waiting_cards(fleet, &count);

	if (json)
		(void)printf("[");
	for (size_t i = 0; i < count; i++) {
		if (json)
			(void)printf("%s%.*s", i ? "," : "", SLICE_ARG(cards[i]));
		else
			print_card(fleet, cards[i]);
	}
	if (json)
		(void)printf("]\n");
	else if (!count)
		(void)printf("nothing waits for you\n");
	free(cards);
}

/* The one waiting card that @name means: the start of its nonce, or its agent's name. */
static bool find_card(struct slice fleet, struct slice name, struct slice *out,
		      struct err *err)
{
	struct slice rest = acp_get(fleet, "cards"), card;
	unsigned found = 0;

	if (!name.len)
		return err_set(err, ERR_MALFORMED,
			       "say which request: see `perch approve`");
	while (acp_next(&rest, &card)) {
		const struct slice agent =
			client_agent(fleet, acp_get_string(card, "agent"));

		if (!is_waiting(card) ||
		    (!slice_starts(acp_get_string(card, "id"), name) &&
		     !json_is(acp_get_string(agent, "name"), name)))
			continue;
		*out = card;
		found++;
	}
	if (found == 1)
		return true;
	return found ? err_set(err, ERR_REFUSED,
			       "%u requests match: name one by the start of its nonce",
			       found)
		     : err_set(err, ERR_NOT_FOUND,
			       "no such request waits: see `perch approve`");
}

/* The option with that number in the list, from 1. */
static bool find_number(struct slice card, uint64_t number, struct slice *out)
{
	struct slice rest = acp_get(card, "options"), option;

	for (uint64_t i = 1; acp_next(&rest, &option); i++)
		if (i == number) {
			*out = acp_get_string(option, "id");
			return true;
		}
	return false;
}

/* The options of that kind (@kind), else with that id: how many, and the last of them. */
static unsigned find_by(struct slice card, const char *member, struct slice text,
			struct slice *out)
{
	struct slice rest = acp_get(card, "options"), option;
	unsigned found = 0;

	while (acp_next(&rest, &option))
		if (json_is(acp_get_string(option, member), text)) {
			*out = acp_get_string(option, "id");
			found++;
		}
	return found;
}

/* allow and deny choose by kind, never by place; of two that fit none is chosen. An id
 * goes before a number, should an agent use digits as ids. */
static bool find_option(struct slice card, struct slice name, struct slice *out,
			struct err *err)
{
	const bool allow = slice_eq(name, SLICE("allow"));
	const bool deny = slice_eq(name, SLICE("deny"));
	unsigned found = 0;
	uint64_t number;

	if (allow)
		found = find_by(card, "kind", SLICE("allow_once"), out);
	if (deny)
		found = find_by(card, "kind", SLICE("reject_once"), out);
	if (deny && !found)
		found = find_by(card, "kind", SLICE("reject_always"), out);
	if (!found)
		found = find_by(card, "id", name, out);
	if (found > 1)
		return err_set(err, ERR_REFUSED, "%u options fit: name one by its id",
			       found);
	if (found == 1 ||
	    (slice_parse_u64(name, 1000, &number) && find_number(card, number, out)))
		return true;
	return err_set(err, ERR_NOT_FOUND, "no option fits: see `perch approve`");
}

struct watch {
	struct slice nonce;
	bool applied;
};

/* The decision came when there was nothing left to decide: no card says so. */
static bool came_late(const struct watch *watch, struct slice message)
{
	struct slice rest = acp_get(message, "controls"), control;

	while (acp_next(&rest, &control))
		if (slice_eq(acp_get_string(control, "card"), watch->nonce) &&
		    json_is(acp_get_string(control, "status"), SLICE("already_decided")))
			return true;
	return false;
}

static bool look_for_outcome(void *ctx, struct slice message)
{
	struct watch *watch = ctx;
	struct slice rest = acp_get(message, "cards"), card;

	while (acp_next(&rest, &card)) {
		const struct slice outcome = acp_get_string(card, "outcome");
		char text[LOG_QUOTE_BYTES];

		if (!slice_eq(acp_get_string(card, "id"), watch->nonce))
			continue;
		if (acp_get_string(card, "detail").len) {
			(void)printf("%s\n", words(card, "detail", text));
			return false;
		}
		if (!json_is(acp_get_string(card, "state"), SLICE("over")))
			continue;
		watch->applied = outcome.ptr && json_is(outcome, SLICE("applied"));
		(void)printf("%s\n",
			     outcome.ptr ? log_quote(outcome, text) : "decided already");
		return false;
	}
	if (!came_late(watch, message))
		return true;
	(void)printf("decided already\n");
	return false;
}

static bool decide(struct slice fleet, char **args, bool *applied, struct err *err)
{
	struct buf body = {.max = 8192}, answer = {0};
	struct slice card = SLICE_EMPTY, option = SLICE_EMPTY;
	struct watch watch = {0};
	bool ok;

	if (!find_card(fleet, slice_of(args[0]), &card, err) ||
	    !find_option(card, slice_of(args[1]), &option, err))
		return false;
	watch.nonce = acp_get_string(card, "id");
	(void)buf_lit(&body, "{\"type\":\"permission_decision\",\"card\":\"");
	(void)buf_append(&body, watch.nonce);
	(void)buf_lit(&body, "\",\"option\":\"");
	(void)buf_append(&body, option);
	(void)buf_lit(&body, "\"}");
	ok = client_ask("/api/control", buf_slice(&body), &answer, err) &&
	     client_follow(look_for_outcome, &watch, err);
	*applied = watch.applied;
	buf_finish(&body);
	buf_finish(&answer);
	return ok;
}

/* Lists, or answers one; the exit status. */
static int run(char **args, int arg_count, bool json, struct buf *fleet)
{
	bool applied = true;
	struct err err;

	if (!client_ask("/api/fleet", SLICE_EMPTY, fleet, &err))
		return client_fail("approve", &err);
	if (!arg_count)
		print_cards(buf_slice(fleet), json);
	else if (!decide(buf_slice(fleet), args, &applied, &err))
		return client_fail("approve", &err);
	return applied ? EXIT_SUCCESS : EXIT_FAILURE;
}

int approve_main(int argc, char *argv[])
{
	bool json = false;
	const struct option_spec specs[] = {
		{.name = "json",
		 .type = OPTION_FLAG,
		 .value = &json,
		 .help = "list as a JSON array of cards (PROTOCOL.md)",
		 .no_env = true},
		{.name = NULL},
	};
	const struct options_spec spec = {
		.command = "perch approve",
		.usage = "[--json] [NONCE|AGENT allow|deny|OPTION]",
		.summary =
			"Lists the requests that wait for you, or answers one and "
			"waits until the harness has applied it. A request is named by "
			"its agent or the start of its nonce, an option by its id or "
			"its number. Exits 0 when the answer counted, 1 when it did not.",
		.example = "  perch approve\n"
			   "  perch approve claude allow\n",
		.options = specs,
		.max_args = 2,
	};
	struct options *options = NULL;
	struct buf fleet = {0};
	char **args;
	int arg_count, status = 2;
	const enum options_result result =
		options_parse(&spec, argc, argv, &options, &args, &arg_count);

	if (result == OPTIONS_EXIT_OK)
		status = EXIT_SUCCESS;
	else if (result == OPTIONS_OK && arg_count == 1)
		(void)fprintf(stderr,
			      "perch approve: say what: allow, deny or an option's id\n");
	else if (result == OPTIONS_OK)
		status = run(args, arg_count, json, &fleet);
	buf_finish(&fleet);
	options_destroy(options);
	return status;
}
