#include "observer/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "observer/acp.h"
#include "observer/client.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"
#include "wire/host/options.h"
#include "wire/nostr/json.h"

static bool read_text(const char *argument, struct buf *out, struct err *err)
{
	char piece[4096];
	size_t got;

	out->max = FRAME_PLAINTEXT_MAX;
	if (strcmp(argument, "-") != 0) {
		(void)buf_append(out, slice_of(argument));
	} else {
		while ((got = fread(piece, 1, sizeof(piece), stdin)) > 0)
			(void)buf_append(out, (struct slice){piece, got});
	}
	if (!buf_ok(out))
		return err_set(err, ERR_TOO_LARGE, "a prompt is at most %d bytes",
			       FRAME_PLAINTEXT_MAX);
	if (!utf8_valid(buf_slice(out)))
		return err_set(err, ERR_MALFORMED, "the prompt is no UTF-8 text");
	return out->len || err_set(err, ERR_MALFORMED, "the prompt is empty");
}

static bool post(const struct client_lane *lane, struct slice text, struct buf *out,
		 struct err *err)
{
	struct buf body = {.max = BROKER_BODY_MAX};
	bool ok;

	(void)buf_printf(&body, "{\"type\":\"prompt\",\"agent\":\"%.*s\",\"channel\":\"",
			 SLICE_ARG(lane->agent));
	(void)buf_append(&body, lane->channel);
	(void)buf_lit(&body, "\",\"text\":");
	(void)json_write_string(&body, text);
	(void)buf_lit(&body, "}");
	ok = client_ask("/api/control", buf_slice(&body), out, err);
	buf_finish(&body);
	return ok;
}

/* Why a harness refuses all prompts; "" when it does not. */
static const char *refusal(struct slice agent)
{
	if (json_is(acp_get_string(agent, "mode"), SLICE("proxy")))
		return "its editor drives it: prompt it there";
	if (json_is(acp_get_string(agent, "mode"), SLICE("run")))
		return "it is a command, which takes none";
	if (acp_get_string(agent, "control").len &&
	    !json_is(acp_get_string(agent, "control"), SLICE("full")))
		return "it takes none from here: start it with --control full";
	return "";
}

/* Prints what became of it; true if the harness took it. */
static bool report(struct slice control, struct slice agent)
{
	const struct slice status = acp_get_string(control, "status");
	const struct slice detail = acp_get_string(control, "detail");
	char words[LOG_QUOTE_BYTES], why[LOG_QUOTE_BYTES];

	if (!status.ptr) {
		(void)fprintf(stderr, "perch prompt: expired: %s\n",
			      log_quote(detail, why));
		return false;
	}
	if (detail.len)
		(void)log_quote(detail, why);
	else
		(void)snprintf(why, sizeof(why), "%s",
			       json_is(status, SLICE("refused")) ||
					       json_is(status, SLICE("unsupported"))
				       ? refusal(agent)
				       : "");
	(void)printf("%s%s%s\n", log_quote(status, words), *why ? ": " : "", why);
	return json_is(status, SLICE("started")) || json_is(status, SLICE("queued"));
}

static bool run(char **args, bool *taken, struct err *err)
{
	struct buf fleet = {0}, text = {0}, answer = {0}, control = {0},
		   id = {.max = 128};
	struct client_lane lane;
	bool ok = read_text(args[1], &text, err) &&
		  client_ask("/api/fleet", SLICE_EMPTY, &fleet, err) &&
		  client_find_lane(buf_slice(&fleet), slice_of(args[0]), &lane, err) &&
		  post(&lane, buf_slice(&text), &answer, err);

	if (ok) {
		(void)buf_append(&id, acp_get_string(buf_slice(&answer), "requestId"));
		ok = client_wait(buf_slice(&id), &control, err);
	}
	if (ok)
		*taken = report(buf_slice(&control),
				client_agent(buf_slice(&fleet), lane.agent));
	buf_finish(&fleet);
	buf_finish(&text);
	buf_finish(&answer);
	buf_finish(&control);
	buf_finish(&id);
	return ok;
}

int prompt_main(int argc, char *argv[])
{
	const struct option_spec specs[] = {{.name = NULL}};
	const struct options_spec spec = {
		.command = "perch prompt",
		.usage = "AGENT[/CHANNEL] TEXT",
		.summary = "Sends an agent a prompt and says what its harness answered. "
			   "TEXT - "
			   "reads standard input.",
		.example = "  perch prompt claude/api-server \"Run the tests\"\n",
		.options = specs,
		.min_args = 2,
		.max_args = 2,
	};
	struct options *options = NULL;
	struct err err;
	char **args;
	bool taken = false;
	int arg_count, status;

	switch (options_parse(&spec, argc, argv, &options, &args, &arg_count)) {
	case OPTIONS_OK:
		status = !run(args, &taken, &err) ? client_fail("prompt", &err)
			 : taken                  ? EXIT_SUCCESS
						  : EXIT_FAILURE;
		break;
	case OPTIONS_EXIT_OK:
		status = EXIT_SUCCESS;
		break;
	case OPTIONS_EXIT_USAGE:
	default:
		status = 2;
	}
	options_destroy(options);
	return status;
}
