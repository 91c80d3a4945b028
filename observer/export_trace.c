#include "observer/export_trace.h"

#include <stdlib.h>
#include <string.h>

#include "observer/archive_db.h"
#include "observer/export_spans.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

/* Of one lane; what would need more is left out, and said to be. Our choice. */
#define TRACKS_MAX 32
#define TRACK_DEPTH_MAX 64

/* A thread of the trace. Of what is on one thread each has to be inside or behind the
 * other: Perfetto drops what is not (its slice_drop_overlapping_complete_event). */
struct track {
	unsigned tid;                  /* 0: it has nothing yet */
	int64_t ends[TRACK_DEPTH_MAX]; /* of what goes on at one time, the outermost first
					*/
	size_t depth;
	int64_t least; /* start of the first in this slice of the lane */
	int64_t limit; /* the same of newer slices, which were there before */
};

/* What is to be drawn. */
struct item {
	int64_t t, end;
	const char *name, *category;
};

struct trace {
	const struct trace_options *options;
	struct archive_db *db;
	struct archive_reader *reader;
	FILE *out;
	struct buf line;
	struct err *err;
	uint8_t agent[KEY_BYTES]; /* of the last lane */
	unsigned pid, tid, lanes;
	uint64_t left_out;
	bool any, failed;
	struct buf lane; /* the name of the one at hand */
	struct track tracks[TRACKS_MAX];
};

static void put(struct trace *trace)
{
	trace->failed = trace->failed || fwrite(trace->line.ptr, 1, trace->line.len,
						trace->out) != trace->line.len;
}

static void begin_event(struct trace *trace, const char *phase, unsigned tid,
			struct slice name)
{
	buf_clear(&trace->line);
	(void)buf_printf(&trace->line, "%s{\"ph\":\"%s\",\"pid\":%u,\"tid\":%u,\"name\":",
			 trace->any ? ",\n" : "", phase, trace->pid, tid);
	json_write_string(&trace->line, name);
	trace->any = true;
}

static void put_name(struct trace *trace, const char *what, unsigned tid,
		     struct slice name)
{
	begin_event(trace, "M", tid, slice_of(what));
	/* As Chrome itself writes it. */
	(void)buf_lit(&trace->line,
		      ",\"cat\":\"__metadata\",\"ts\":0,\"args\":{\"name\":");
	json_write_string(&trace->line, name);
	(void)buf_lit(&trace->line, "}}");
	put(trace);
}

/* A new thread of the lane. */
static void open_track(struct trace *trace, struct track *track)
{
	const size_t number = (size_t)(track - trace->tracks) + 1;
	struct buf name = {.max = trace->lane.len + 32};

	(void)buf_append(&name, buf_slice(&trace->lane));
	if (number > 1)
		(void)buf_printf(&name, " (%zu)", number);
	track->tid = ++trace->tid;
	put_name(trace, "thread_name", track->tid, buf_slice(&name));
	buf_finish(&name);
}

/* Items come by their start. */
static bool fits(struct track *track, const struct item *item)
{
	while (track->depth && track->ends[track->depth - 1] <= item->t)
		track->depth--;
	return item->end <= track->limit && track->depth < TRACK_DEPTH_MAX &&
	       (!track->depth || item->end <= track->ends[track->depth - 1]);
}

static void put_item(struct trace *trace, const struct item *item)
{
	struct track *track = trace->tracks, *end = track + TRACKS_MAX;

	while (track < end && !fits(track, item))
		track++;
	if (track == end) {
		trace->left_out++;
		return;
	}
	if (!track->tid)
		open_track(trace, track);
	track->ends[track->depth++] = item->end;
	track->least = item->t < track->least ? item->t : track->least;
	begin_event(trace, "X", track->tid, slice_of(item->name));
	(void)buf_printf(&trace->line, ",\"cat\":\"%s\",\"ts\":%lld,\"dur\":%lld}",
			 item->category, (long long)item->t * 1000,
			 (long long)(item->end - item->t) * 1000);
	put(trace);
}

static void add_item(const struct trace *trace, struct item *items, size_t *count,
		     const struct item *item)
{
	const int64_t end = item->end;

	if (end <= trace->options->from_ms || item->t >= trace->options->to_ms)
		return;
	items[*count] = *item;
	items[(*count)++].end = end > item->t ? end : item->t;
}

static size_t add_run(const struct trace *trace, const struct spans *spans,
		      const struct span_lane *lane, size_t at, struct item *items)
{
	const struct run *run = lane->runs[at].run;
	const int64_t now = span_lane_now(lane, trace->options->now_ms);
	const char *title = run->text + run->title;
	size_t count = 0;

	if (run->is_turn)
		add_item(trace, items, &count,
			 &(struct item){run->t,
					span_lane_end(lane, at, trace->options->now_ms),
					*title ? title : "turn", "turn"});
	for (uint32_t i = 0; i < run->count; i++) {
		const struct span *span = &run->spans[i];

		add_item(trace, items, &count,
			 &(struct item){span->t, span_end(span->end, now),
					spans->names[span->name].text,
					span->kind == SPAN_WAIT ? "wait" : "tool"});
	}
	return count;
}

/* By start; of those that start together the longer first, which the others are inside
 * of. */
static int compare_items(const void *left, const void *right)
{
	const struct item *a = left, *b = right;

	if (a->t != b->t)
		return a->t < b->t ? -1 : 1;
	return (a->end < b->end) - (a->end > b->end);
}

static void put_lane(struct trace *trace, const struct spans *spans,
		     const struct span_lane *lane)
{
	struct item *items;
	size_t room = lane->count, count = 0;

	for (size_t i = 0; i < lane->count; i++)
		room += lane->runs[i].run->count;
	items = mem_array(room + 1, sizeof(*items));
	for (size_t i = 0; i < lane->count; i++)
		count += add_run(trace, spans, lane, i, items + count);
	qsort(items, count, sizeof(*items), compare_items);
	for (size_t i = 0; i < count; i++)
		put_item(trace, &items[i]);
	free(items);
	for (struct track *track = trace->tracks; track < trace->tracks + TRACKS_MAX;
	     track++) {
		track->depth = 0;
		track->limit = track->least;
	}
}

static bool put_slice(struct trace *trace, struct export_spans *walk)
{
	struct spans *spans = spans_create(SPANS_BYTES_MAX);
	const bool ok = export_spans_next(walk, spans, trace->err);

	for (size_t i = 0; i < spans->lane_count; i++)
		put_lane(trace, spans, spans->lanes[i]);
	spans_destroy(spans);
	return ok;
}

/* What has no name is called by its key, or its id. */
static void begin_lane(struct trace *trace, const uint8_t *agent, struct slice channel)
{
	char hex[2 * KEY_BYTES + 1] = "";
	struct buf name = {0};

	buf_finish(&trace->lane);
	archive_reader_names(trace->reader, agent, channel, &name, &trace->lane);
	if (!trace->lane.len) {
		trace->lane.max = channel.len + 1;
		(void)buf_append(&trace->lane, channel);
	}
	if (!trace->pid || memcmp(agent, trace->agent, KEY_BYTES) != 0) {
		memcpy(trace->agent, agent, KEY_BYTES);
		hex_encode(agent, KEY_BYTES, hex);
		trace->pid++;
		put_name(trace, "process_name", 0,
			 name.len ? buf_slice(&name) : slice_of(hex));
	}
	buf_finish(&name);
	trace->lanes++;
	for (size_t i = 0; i < TRACKS_MAX; i++)
		trace->tracks[i] = (struct track){.least = INT64_MAX, .limit = INT64_MAX};
}

static bool on_lane(void *ctx, const uint8_t *agent, struct slice channel)
{
	struct trace *trace = ctx;
	const struct trace_options *options = trace->options;
	struct export_spans walk;

	if (!channel.len ||
	    (options->channel.len && !slice_eq(channel, options->channel)))
		return true;
	begin_lane(trace, agent, channel);
	export_spans_begin(&walk, trace->db, agent, channel, INT64_MIN, options->now_ms);
	while (walk.more && !trace->failed)
		trace->failed = !put_slice(trace, &walk) || trace->failed;
	export_spans_end(&walk);
	if (options->progress)
		(void)fprintf(stderr, "\rperch export: %u lanes", trace->lanes);
	return !trace->failed;
}

bool trace_write(const struct trace_options *options, struct archive_reader *reader,
		 FILE *out, struct err *err)
{
	struct trace trace = {.options = options,
			      .reader = reader,
			      .out = out,
			      .line = {.max = 1u << 20},
			      .err = err};
	bool ok;

	trace.db = archive_db_open(options->path, err);
	if (!trace.db)
		return false;
	*err = (struct err){.code = ERR_NONE};
	ok = fputs("{\"traceEvents\":[\n", out) >= 0 &&
	     archive_reader_lanes(reader, options->agent, on_lane, &trace) &&
	     fputs("\n],\"displayTimeUnit\":\"ms\"}\n", out) >= 0;
	if (trace.left_out)
		(void)fprintf(
			stderr,
			"perch export: left out %llu calls: more than %d went on at "
			"one time in their channel\n",
			(unsigned long long)trace.left_out, TRACKS_MAX);
	archive_db_close(trace.db);
	buf_finish(&trace.line);
	buf_finish(&trace.lane);
	return ok;
}
