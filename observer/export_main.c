#include "observer/observer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "observer/archive_read.h"
#include "observer/client.h"
#include "observer/export_replay.h"
#include "observer/export_trace.h"
#include "observer/when.h"
#include "wire/base/clock.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/host/paths.h"
#include "wire/nostr/json.h"

struct export
{
	const char *agent_name, *channel_name, *from_text, *to_text, *format;
	int64_t from_ms, to_ms;
	bool has_agent;
	uint8_t agent[KEY_BYTES];
	struct buf channel; /* as JSON content; empty: all */
	struct buf line;
	bool is_terminal;
};

static bool put(struct export *export)
{
	return fwrite(export->line.ptr, 1, export->line.len, stdout) == export->line.len;
}

static void begin_line(struct export *export, const uint8_t *agent, const char *epoch)
{
	buf_clear(&export->line);
	(void)buf_lit(&export->line, "{\"agent\":\"");
	(void)buf_append_hex(&export->line, agent, KEY_BYTES);
	(void)buf_printf(&export->line, "\",\"epoch\":\"%s\"", epoch);
}

static bool is_wanted(const struct export *export, const struct observer_event *event)
{
	int64_t t;

	if (export->channel.len &&
	    !slice_eq(event->channel_id, buf_slice(&export->channel)))
		return false;
	if (export->from_ms == INT64_MIN && export->to_ms == INT64_MAX)
		return true;
	return clock_parse(event->timestamp, &t) && t >= export->from_ms &&
	       t < export->to_ms;
}

static bool on_event(void *ctx, const uint8_t *agent, const char *epoch, uint64_t number,
		     const struct observer_event *event, struct slice text)
{
	struct export *export = ctx;

	if (!is_wanted(export, event))
		return true;
	begin_line(export, agent, epoch);
	(void)buf_printf(&export->line,
			 ",\"frame\":%llu,\"event\":", (unsigned long long)number);
	(void)buf_append(&export->line, text);
	(void)buf_lit(&export->line, "}\n");
	return put(export);
}

/* What is not there is said as well. */
static bool on_gone(void *ctx, const uint8_t *agent, const char *epoch,
		    struct gone_range gone)
{
	struct export *export = ctx;

	begin_line(export, agent, epoch);
	(void)buf_printf(&export->line, ",\"gone\":[%llu,%llu]",
			 (unsigned long long)gone.range.first,
			 (unsigned long long)gone.range.last);
	if (gone.why)
		(void)buf_printf(&export->line, ",\"why\":\"%s\"",
				 gone_why_name(gone.why));
	(void)buf_lit(&export->line, "}\n");
	return put(export);
}

static void on_progress(void *ctx, uint64_t frames, uint64_t of)
{
	const struct export *export = ctx;

	if (export->is_terminal)
		(void)fprintf(stderr, "\rperch export: %llu of %llu frames",
			      (unsigned long long)frames, (unsigned long long)of);
}

static const struct archive_visitor visitor = {
	.on_event = on_event,
	.on_gone = on_gone,
	.on_progress = on_progress,
};

static bool write_all(struct export *export, const char *path,
		      struct archive_reader *reader, struct err *err)
{
	const struct trace_options trace = {
		.path = path,
		.agent = export->has_agent ? export->agent : NULL,
		.channel = export->channel.len ? buf_slice(&export->channel) : SLICE(""),
		.from_ms = export->from_ms,
		.to_ms = export->to_ms,
		.now_ms = loop_unix_ms(),
		.progress = export->is_terminal,
	};

	if (strcmp(export->format, "html") == 0)
		return replay_write(&(struct replay_options){.path = path,
							     .agent = trace.agent,
							     .channel = trace.channel,
							     .from_ms = trace.from_ms,
							     .to_ms = trace.to_ms,
							     .now_ms = trace.now_ms,
							     .progress = trace.progress},
				    reader, stdout, err);
	if (strcmp(export->format, "trace") == 0)
		return trace_write(&trace, reader, stdout, err);
	return archive_reader_visit(reader, trace.agent, &visitor, export, err);
}

static bool run(struct export *export, struct err *err)
{
	struct buf path = {.max = 4096};
	struct archive_reader *reader = NULL;
	bool ok = paths_data(SLICE("archive.db"), &path, err);

	if (ok)
		reader = archive_reader_open(buf_text(&path), err);
	ok = reader != NULL;
	if (ok && export->agent_name) {
		export->has_agent = true;
		ok = archive_reader_agent(reader, slice_of(export->agent_name),
					  export->agent, err);
	}
	if (ok && export->channel_name)
		ok = archive_reader_channel(
			reader, export->has_agent ? export->agent : NULL,
			slice_of(export->channel_name), &export->channel, err);
	if (ok && !write_all(export, buf_text(&path), reader, err)) {
		ok = false;
		if (err->code == ERR_NONE)
			(void)err_errno(err, "cannot write the output");
	}
	if (ok && fflush(stdout) != 0)
		ok = err_errno(err, "cannot write the output");
	archive_reader_close(reader);
	buf_finish(&path);
	return ok;
}

int export_main(int argc, char *argv[])
{
	struct export export = {.format = "jsonl",
				.from_ms = INT64_MIN,
				.to_ms = INT64_MAX,
				.channel = {.max = 4096},
				.line = {.max = 32u << 20},
				.is_terminal = isatty(STDERR_FILENO) == 1};
	const struct option_spec specs[] = {
		{.name = "agent",
		 .type = OPTION_TEXT,
		 .value = &export.agent_name,
		 .argument = "AGENT",
		 .help = "only this one: its name, npub or hex (all)",
		 .no_env = true},
		{.name = "channel",
		 .type = OPTION_TEXT,
		 .value = &export.channel_name,
		 .argument = "CHANNEL",
		 .help = "only this one: its name or id (all)",
		 .no_env = true},
		{.name = "from",
		 .type = OPTION_TEXT,
		 .value = &export.from_text,
		 .argument = "T",
		 .help = "only what happened then or later: 2026-11-30T08:00:00Z, or "
			 "30m, 12h, 7d ago",
		 .no_env = true},
		{.name = "to",
		 .type = OPTION_TEXT,
		 .value = &export.to_text,
		 .argument = "T",
		 .help = "only what happened before",
		 .no_env = true},
		{.name = "format",
		 .type = OPTION_TEXT,
		 .value = &export.format,
		 .argument = "FORMAT",
		 .help = "jsonl; trace: where the time went, for Perfetto; html: a file "
			 "that opens as the page does, without a network (jsonl)",
		 .no_env = true},
		{.name = NULL},
	};
	const struct options_spec spec = {
		.command = "perch export",
		.usage = "[OPTIONS]",
		.summary =
			"Prints the archive as JSON lines, one an event as it was sent: "
			"{\"agent\",\"epoch\",\"frame\",\"event\"}, in the order of "
			"agents, epochs and frames, then the gaps as "
			"{…,\"gone\":[A,B],\"why\":WORD}. "
			"An observer may run meanwhile.",
		.example = "  perch export --agent claude --from 24h > day.jsonl\n"
			   "  perch export --format html --from 2h > replay.html\n"
			   "  perch export | jq -r 'select(.event.kind == "
			   "\"turn_completed\") | .event.timestamp'\n",
		.options = specs,
	};
	struct options *options = NULL;
	struct err err;
	char **args;
	int arg_count, status = EXIT_SUCCESS;
	const enum options_result result =
		options_parse(&spec, argc, argv, &options, &args, &arg_count);
	const int64_t now = loop_unix_ms();

	if (result != OPTIONS_OK) {
		status = result == OPTIONS_EXIT_OK ? EXIT_SUCCESS : 2;
	} else if ((export.from_text && !when_parse("--from", export.from_text, now,
						    &export.from_ms, &err)) ||
		   (export.to_text &&
		    !when_parse("--to", export.to_text, now, &export.to_ms, &err))) {
		(void)client_fail("export", &err);
		status = 2;
	} else if (strcmp(export.format, "jsonl") != 0 &&
		   strcmp(export.format, "trace") != 0 &&
		   strcmp(export.format, "html") != 0) {
		(void)err_set(&err, ERR_MALFORMED,
			      "--format is jsonl, trace or html, got \"%.40s\"",
			      export.format);
		(void)client_fail("export", &err);
		status = 2;
	} else if (!run(&export, &err)) {
		status = client_fail("export", &err);
	}
	buf_finish(&export.channel);
	buf_wipe(&export.line);
	options_destroy(options);
	return status;
}
