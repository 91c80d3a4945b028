#include "observer/export_trace.h"

#include <string.h>

#include "observer/archive_db.h"
#include "observer/fold_run.h"
#include "observer/spans.h"
#include "wire/nostr/json.h"

#define SLICE_BYTES ((size_t)64 << 20) /* spans of one slice of one lane */

struct trace {
	const struct trace_options *options;
	struct archive_db *db;
	FILE *out;
	struct buf line;
	struct err *err;
	uint8_t agent[KEY_BYTES]; /* of the last lane */
	unsigned pid, tid;
	bool any, failed;
};

static void put(struct trace *trace)
{
	trace->failed = trace->failed || fwrite(trace->line.ptr, 1, trace->line.len,
						trace->out) != trace->line.len;
}

static void begin_event(struct trace *trace, const char *phase, struct slice name)
{
	buf_clear(&trace->line);
	(void)buf_printf(&trace->line, "%s{\"ph\":\"%s\",\"pid\":%u,\"tid\":%u,\"name\":",
			 trace->any ? ",\n" : "", phase, trace->pid, trace->tid);
	json_write_string(&trace->line, name);
	trace->any = true;
}

/* One stretch of time; what goes on ends now. */
static void put_span(struct trace *trace, int64_t t, int64_t end, struct slice name,
		     const char *category)
{
	const int64_t until = span_end(end, trace->options->now_ms);

	if (until <= trace->options->from_ms || t >= trace->options->to_ms)
		return;
	begin_event(trace, "X", name);
	(void)buf_printf(&trace->line, ",\"cat\":\"%s\",\"ts\":%lld,\"dur\":%lld}",
			 category, (long long)t * 1000,
			 (long long)(until > t ? until - t : 0) * 1000);
	put(trace);
}

static void put_run(struct trace *trace, const struct spans *spans, const struct run *run)
{
	if (run->is_turn)
		put_span(
			trace, run->t, run->end,
			slice_of(run->text[run->title] ? run->text + run->title : "turn"),
			"turn");
	for (uint32_t i = 0; i < run->count; i++)
		put_span(trace, run->spans[i].t, run->spans[i].end,
			 slice_of(spans->names[run->spans[i].name].text),
			 run->spans[i].kind == SPAN_WAIT ? "wait" : "tool");
}

static void put_folds(struct trace *trace, const uint8_t *agent, struct slice channel,
		      const struct archive_answer *answer)
{
	struct spans *spans = spans_create(SLICE_BYTES);

	for (size_t i = 0; i < answer->fold_count; i++) {
		const struct fold_run run = {.fold = answer->folds[i].fold,
					     .channel = channel,
					     .tag = buf_slice(&answer->folds[i].tag),
					     .is_turn = answer->folds[i].is_turn};

		fold_run_put(spans, agent, &run);
	}
	for (size_t i = 0; i < spans->lane_count; i++)
		for (size_t k = 0; k < spans->lanes[i]->count; k++)
			put_run(trace, spans, spans->lanes[i]->runs[k].run);
	spans_destroy(spans);
}

static void put_names(struct trace *trace, const uint8_t *agent, struct slice channel)
{
	char hex[2 * KEY_BYTES + 1] = "";

	if (!trace->pid || memcmp(agent, trace->agent, KEY_BYTES) != 0) {
		memcpy(trace->agent, agent, KEY_BYTES);
		hex_encode(agent, KEY_BYTES, hex);
		trace->pid++;
		begin_event(trace, "M", SLICE("process_name"));
		(void)buf_printf(&trace->line, ",\"args\":{\"name\":\"%s\"}}", hex);
		put(trace);
	}
	trace->tid++;
	begin_event(trace, "M", SLICE("thread_name"));
	(void)buf_lit(&trace->line, ",\"args\":{\"name\":");
	json_write_string(&trace->line, channel);
	(void)buf_lit(&trace->line, "}}");
	put(trace);
}

static bool on_lane(void *ctx, const uint8_t *agent, struct slice channel)
{
	struct trace *trace = ctx;
	const struct trace_options *options = trace->options;
	struct pos before = {"~", 0};
	struct buf newest = {.max = 4096};
	bool more = true;

	if (!channel.len ||
	    (options->channel.len && !slice_eq(channel, options->channel)))
		return true;
	put_names(trace, agent, channel);
	while (more && !trace->failed) {
		struct archive_answer answer = {0};

		more = archive_db_folds(trace->db, agent, channel, &before,
					buf_slice(&newest), &answer, trace->err);
		trace->failed = trace->failed || !more;
		put_folds(trace, agent, channel, &answer);
		buf_clear(&newest); /* it may reach into the next slice */
		if (answer.fold_count)
			(void)buf_append(
				&newest,
				buf_slice(&answer.folds[answer.fold_count - 1].tag));
		before = answer.low;
		more = more && answer.more;
		archive_db_answer_finish(&answer);
	}
	buf_finish(&newest);
	if (options->progress)
		(void)fprintf(stderr, "\rperch export: %u lanes", trace->tid);
	return !trace->failed;
}

bool trace_write(const struct trace_options *options, struct archive_reader *reader,
		 FILE *out, struct err *err)
{
	struct trace trace = {
		.options = options, .out = out, .line = {.max = 1u << 20}, .err = err};
	bool ok;

	trace.db = archive_db_open(options->path, err);
	if (!trace.db)
		return false;
	*err = (struct err){.code = ERR_NONE};
	ok = fputs("{\"traceEvents\":[\n", out) >= 0 &&
	     archive_reader_lanes(reader, options->agent, on_lane, &trace) &&
	     fputs("\n],\"displayTimeUnit\":\"ms\"}\n", out) >= 0;
	archive_db_close(trace.db);
	buf_finish(&trace.line);
	return ok;
}
