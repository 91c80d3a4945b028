#include "observer/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observer/acp.h"
#include "observer/client.h"
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

static void print_cards(struct slice fleet)
{
	struct slice rest = acp_get(fleet, "cards"), card;
	unsigned count = 0;

	while (acp_next(&rest, &card)) {
		char agent[LOG_QUOTE_BYTES], verb[LOG_QUOTE_BYTES], text[LOG_QUOTE_BYTES];
		char nonce[LOG_QUOTE_BYTES], age[16];
		struct slice options = acp_get(card, "options"), option;

		if (json_is(acp_get_string(card, "state"), SLICE("over")))
			continue;
		count++;
		client_age(loop_unix_ms() - acp_get_int(card, "askedMs", 0), age);
		(void)printf("%.8s  %s %s %s  (waiting %s)\n", words(card, "id", nonce),
			     words(client_agent(fleet, acp_get_string(card, "agent")),
				   "name", agent),
			     words(card, "verb", verb), words(card, "text", text), age);
		while (acp_next(&options, &option)) {
			char id[LOG_QUOTE_BYTES], name[LOG_QUOTE_BYTES];

			(void)printf("          %s: %s\n", words(option, "id", id),
				     words(option, "name", name));
		}
	}
	if (!count)
		(void)printf("nothing waits for you\n");
}

/* The one waiting card that @name means: the start of its nonce, or its agent's name. */
static bool find_card(struct slice fleet, struct slice name, struct slice *out,
		      struct err *err)
{
	struct slice rest = acp_get(fleet, "cards"), card;
	unsigned found = 0;

	while (acp_next(&rest, &card)) {
		const struct slice agent =
			client_agent(fleet, acp_get_string(card, "agent"));

		if (json_is(acp_get_string(card, "state"), SLICE("over")) ||
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

/* allow and deny choose by kind, never by place; of two that fit none is chosen. */
static bool find_option(struct slice card, struct slice name, struct slice *out,
			struct err *err)
{
	const bool allow = slice_eq(name, SLICE("allow")),
		   deny = slice_eq(name, SLICE("deny"));
	static const char *const kinds[] = {"allow_once", "reject_once", "reject_always"};

	for (size_t i = 0; i < 4; i++) {
		struct slice rest = acp_get(card, "options"), option;
		unsigned found = 0;

		if (i < 3 && (i == 0 ? !allow : !deny))
			continue;
		while (acp_next(&rest, &option)) {
			const struct slice id = acp_get_string(option, "id");
			const struct slice kind = acp_get_string(option, "kind");

			if (i < 3 ? json_is(kind, slice_of(kinds[i]))
				  : json_is(id, name)) {
				*out = id;
				found++;
			}
		}
		if (found == 1)
			return true;
		if (found)
			return err_set(err, ERR_REFUSED,
				       "%u options fit: name one by its id", found);
	}
	return err_set(err, ERR_NOT_FOUND, "no option fits: see `perch approve`");
}

struct watch {
	struct slice nonce;
	bool applied;
};

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
	return true;
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
static int run(char **args, int arg_count, struct buf *fleet)
{
	bool applied = true;
	struct err err;

	if (!client_ask("/api/fleet", SLICE_EMPTY, fleet, &err))
		return client_fail("approve", &err);
	if (!arg_count)
		print_cards(buf_slice(fleet));
	else if (!decide(buf_slice(fleet), args, &applied, &err))
		return client_fail("approve", &err);
	return applied ? EXIT_SUCCESS : EXIT_FAILURE;
}

int approve_main(int argc, char *argv[])
{
	const struct option_spec specs[] = {{.name = NULL}};
	const struct options_spec spec = {
		.command = "perch approve",
		.usage = "[NONCE|AGENT allow|deny|OPTION]",
		.summary = "Lists the requests that wait for you, or answers one and "
			   "waits until "
			   "the harness has applied it.",
		.example = "  perch approve claude allow\n",
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
		status = run(args, arg_count, &fleet);
	buf_finish(&fleet);
	options_destroy(options);
	return status;
}
