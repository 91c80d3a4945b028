#include "observer/export_replay.h"

#include <stdlib.h>
#include <string.h>

#include "observer/acp.h"
#include "observer/archive_db.h"
#include "observer/export_spans.h"
#include "observer/http/page.h"
#include "observer/model.h"
#include "observer/report.h"
#include "wire/base/clock.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

#define ROWS_AT_ONCE 500

struct replay {
	const struct replay_options *options;
	struct archive_reader *reader;
	struct archive_db *db;
	struct model *model;
	struct spans *spans;
	struct buf out;
	struct err *err;
	int64_t first_ms, last_ms; /* of the events that are in it */
	int64_t unix_ms;           /* now, also where the replay ends before */
	bool any_lane;
};

/* ---- the fleet, as it was at the end ---- */

static bool is_wanted(const struct replay *replay, const struct observer_event *event,
		      int64_t t)
{
	const struct slice channel = replay->options->channel;

	return (!channel.len || !event->channel_id.len ||
		slice_eq(event->channel_id, channel)) &&
	       t >= replay->options->from_ms && t < replay->options->to_ms;
}

/* Who an agent is may have been said long before. */
static bool says_who(const struct observer_event *event)
{
	return json_is(event->kind, SLICE("harness_started"));
}

static bool on_event(void *ctx, const uint8_t *agent, const char *epoch, uint64_t number,
		     const struct observer_event *event, struct slice text)
{
	struct replay *replay = ctx;
	struct observer_event whole;
	const struct model_event in = {.agent = agent, .epoch = epoch, .event = &whole};
	int64_t t;

	(void)number;
	if (!clock_parse(event->timestamp, &t) || t >= replay->options->to_ms ||
	    (!is_wanted(replay, event, t) && !says_who(event)) ||
	    !observer_event_parse(text, &whole, NULL))
		return true;
	(void)model_apply(replay->model, &in);
	model_heard(replay->model, agent, t);
	if (!is_wanted(replay, event, t))
		return true;
	if (t < replay->first_ms)
		replay->first_ms = t;
	if (t > replay->last_ms)
		replay->last_ms = t;
	return true;
}

static bool on_gone(void *ctx, const uint8_t *agent, const char *epoch,
		    struct gone_range gone)
{
	(void)ctx;
	(void)agent;
	(void)epoch;
	(void)gone;
	return true;
}

static void on_progress(void *ctx, uint64_t frames, uint64_t of)
{
	const struct replay *replay = ctx;

	if (replay->options->progress)
		(void)fprintf(stderr, "\rperch export: %llu of %llu frames",
			      (unsigned long long)frames, (unsigned long long)of);
}

static const struct archive_visitor visitor = {
	.on_event = on_event,
	.on_gone = on_gone,
	.on_progress = on_progress,
};

/* ---- rows and spans, lane by lane ---- */

static bool put_row(struct replay *replay, const struct archive_row *row, bool comma)
{
	const struct slice json = {row->json, row->json_len};

	return (!comma || buf_lit(&replay->out, ",\n")) && buf_append(&replay->out, json);
}

/* A row's time; the archive's rows are text. */
static int64_t row_ms(const struct archive_row *row)
{
	const struct slice json = {row->json, row->json_len};

	return acp_get_int(json, "t", 0);
}

/* The newest first, as they are asked for; the page puts them in order. */
static bool put_rows(struct replay *replay, const uint8_t *agent, struct slice channel)
{
	struct pos before = {"~", 0};
	bool more = true, any = false, ok = true;

	while (more && ok) {
		struct archive_answer answer = {0};
		int64_t newest = INT64_MIN;

		ok = archive_db_rows(replay->db, agent, channel, &before, ROWS_AT_ONCE,
				     &answer, replay->err);
		for (size_t i = answer.row_count; ok && i-- > 0;) {
			const int64_t t = row_ms(&answer.rows[i]);

			newest = t > newest ? t : newest;
			if (t < replay->options->from_ms || t >= replay->options->to_ms)
				continue;
			ok = put_row(replay, &answer.rows[i], any);
			any = true;
		}
		more = answer.more && answer.row_count &&
		       newest >= replay->options->from_ms;
		if (answer.row_count)
			before = answer.rows[0].pos;
		archive_db_answer_finish(&answer);
	}
	return ok;
}

static bool put_lane_rows(void *ctx, const uint8_t *agent, struct slice channel)
{
	struct replay *replay = ctx;
	const struct slice wanted = replay->options->channel;

	if (!channel.len || (wanted.len && !slice_eq(channel, wanted)))
		return true;
	(void)buf_printf(&replay->out, "%s\"", replay->any_lane ? ",\n" : "");
	(void)buf_append_hex(&replay->out, agent, KEY_BYTES);
	(void)buf_lit(&replay->out, "/");
	(void)json_write_chars(&replay->out, channel);
	(void)buf_lit(&replay->out, "\":[");
	replay->any_lane = true;
	return put_rows(replay, agent, channel) && buf_lit(&replay->out, "]");
}

static bool take_spans(void *ctx, const uint8_t *agent, struct slice channel)
{
	struct replay *replay = ctx;
	const struct slice wanted = replay->options->channel;
	struct export_spans walk;
	bool ok = true;

	if (!channel.len || (wanted.len && !slice_eq(channel, wanted)))
		return true;
	export_spans_begin(&walk, replay->db, agent, channel, replay->options->from_ms,
			   replay->unix_ms);
	while (walk.more && ok)
		ok = export_spans_next(&walk, replay->spans, replay->err);
	export_spans_end(&walk);
	return ok;
}

/* ---- the spans as the replay's page takes them ---- */

static void put_span(struct replay *replay, const struct span_lane *lane,
		     const struct run *run, const struct span *span)
{
	const int64_t end = span_lane_told(lane, span->t, span->end);
	const struct span_name *name = &replay->spans->names[span->name];
	const int kind = span->kind == SPAN_WAIT ? 3 : span->parent >= 0 ? 2 : 1;

	(void)buf_printf(&replay->out, ",[%lld,%lld,%d,%u,%u,", (long long)span->t,
			 end == SPANS_OPEN ? -1LL : (long long)end, kind,
			 span->flags | (name->is_command ? 4u : 0u), run_line(run, span));
	json_write_string(&replay->out, slice_of(name->text));
	(void)buf_lit(&replay->out, ",");
	json_write_string(&replay->out, slice_of(run->text + span->row));
	(void)buf_lit(&replay->out, "]");
}

/* Spans as the timeline's records: t, end (-1: open), kind, flags, line, name, row. */
static void put_spans(struct replay *replay, const struct span_lane *lane)
{
	(void)buf_lit(&replay->out, "\"spans\":[null");
	for (size_t i = 0; i < lane->count && buf_ok(&replay->out); i++) {
		const struct run *run = lane->runs[i].run;
		const int64_t end = span_lane_end(lane, i, replay->options->now_ms);

		const bool is_open = i + 1 == lane->count &&
				     span_lane_told(lane, run->t, run->end) == SPANS_OPEN;

		if (run->is_turn) {
			(void)buf_printf(&replay->out, ",[%lld,%lld,0,%u,0,",
					 (long long)run->t,
					 is_open ? -1LL : (long long)end, run->flags);
			json_write_string(&replay->out, slice_of(run->text + run->title));
			(void)buf_lit(&replay->out, ",");
			json_write_string(&replay->out, slice_of(run->text + run->row));
			(void)buf_lit(&replay->out, "]");
		}
		for (uint32_t k = 0; k < run->count; k++)
			put_span(replay, lane, run, &run->spans[k]);
	}
	(void)buf_lit(&replay->out, "]");
}

static int64_t lane_until(const struct replay *replay, const struct span_lane *lane)
{
	const int64_t now = replay->options->now_ms;
	const int64_t first = lane->strip_t[0];

	return first + span_lane_present(lane, first, now + 1, now);
}

/* What goes on does so without events: it is in the replay, too. */
static void take_until(struct replay *replay)
{
	spans_join(replay->spans);
	for (size_t i = 0; i < replay->spans->lane_count; i++) {
		const struct span_lane *lane = replay->spans->lanes[i];
		int64_t until = lane->strip_count ? lane_until(replay, lane) : INT64_MIN;

		until = until < replay->options->now_ms ? until : replay->options->now_ms;
		if (until > replay->last_ms)
			replay->last_ms = until;
	}
}

static void put_lane_times(struct replay *replay, const struct span_lane *lane)
{
	const int64_t until = lane_until(replay, lane);

	(void)buf_printf(&replay->out, "{\"id\":");
	json_write_string(&replay->out, slice_of(lane->id));
	(void)buf_printf(&replay->out, ",\"until\":%lld,\"strip\":[", (long long)until);
	for (size_t i = 0; i < lane->strip_count; i++)
		(void)buf_printf(&replay->out, "%s%lld,%u", i ? "," : "",
				 (long long)lane->strip_t[i], lane->strip_time[i]);
	(void)buf_lit(&replay->out, "],");
	put_spans(replay, lane);
	(void)buf_lit(&replay->out, "}");
}

static void put_times(struct replay *replay)
{
	bool any = false;

	(void)buf_lit(&replay->out, ",\n\"times\":[");
	for (size_t i = 0; i < replay->spans->lane_count; i++) {
		if (!replay->spans->lanes[i]->strip_count)
			continue;
		(void)buf_printf(&replay->out, "%s", any ? ",\n" : "");
		put_lane_times(replay, replay->spans->lanes[i]);
		any = true;
	}
	(void)buf_lit(&replay->out, "]");
}

/* ---- the whole ---- */

static void put_reports(struct replay *replay)
{
	static const char *const names[] = {[REPORT_FLAT] = "flat",
					    [REPORT_TOP_DOWN] = "top-down",
					    [REPORT_BOTTOM_UP] = "bottom-up",
					    [REPORT_LIVE] = "live"};
	struct report_query query = {.from = replay->first_ms,
				     .to = replay->last_ms + 1,
				     .now = replay->options->now_ms};

	(void)buf_lit(&replay->out, ",\n\"reports\":{");
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		(void)buf_printf(&replay->out, "%s\"%s\":", i ? "," : "", names[i]);
		query.view = (enum report_view)i;
		report_write(replay->spans, &query, &replay->out);
	}
	(void)buf_lit(&replay->out, "}");
}

static bool put_data(struct replay *replay)
{
	const struct replay_options *options = replay->options;
	bool ok;

	ok = archive_reader_lanes(replay->reader, options->agent, take_spans, replay);
	take_until(replay);
	model_settle(replay->model, options->now_ms);
	model_tick(replay->model, options->now_ms);
	(void)buf_printf(&replay->out,
			 "{\"from\":%lld,\"to\":%lld,\"now\":%lld,\"snapshot\":{"
			 "\"snapshot\":true,\"now\":%lld,\"health\":{},\"owner\":{}",
			 (long long)replay->first_ms, 1 + (long long)replay->last_ms,
			 (long long)options->now_ms, (long long)options->now_ms);
	model_write_snapshot(replay->model, options->now_ms, &replay->out);
	(void)buf_lit(&replay->out, "},\n\"rows\":{");
	ok = ok &&
	     archive_reader_lanes(replay->reader, options->agent, put_lane_rows, replay);
	(void)buf_lit(&replay->out, "}");
	if (!buf_ok(&replay->out))
		return err_set(replay->err, ERR_TOO_LARGE,
			       "the replay would be over %u MiB: choose less by --from, "
			       "--to, --agent or --channel",
			       REPLAY_MAX >> 20);
	if (!ok)
		return false;
	put_times(replay);
	put_reports(replay);
	(void)buf_lit(&replay->out, "}");
	return buf_ok(&replay->out) ||
	       err_set(replay->err, ERR_TOO_LARGE,
		       "the replay would be over %u MiB: choose less by --from, --to, "
		       "--agent or --channel",
		       REPLAY_MAX >> 20);
}

/* Inside a script element: HTML, 4.12.1.3, "Restrictions for contents of script
 * elements". In JSON a < is in a string, where it may be written by its number; so may
 * the line ends that only JavaScript knows. */
static bool put_safe(struct slice json, FILE *out)
{
	size_t from = 0;

	for (size_t i = 0; i < json.len; i++) {
		const unsigned char *at = (const unsigned char *)json.ptr + i;
		const char *as = NULL;
		size_t len = 1;

		if (*at == '<') {
			as = "\\u003c";
		} else if (*at == 0xe2 && i + 2 < json.len && at[1] == 0x80 &&
			   (at[2] == 0xa8 || at[2] == 0xa9)) {
			as = at[2] == 0xa8 ? "\\u2028" : "\\u2029";
			len = 3;
		}
		if (!as)
			continue;
		if (fwrite(json.ptr + from, 1, i - from, out) != i - from ||
		    fputs(as, out) < 0)
			return false;
		i += len - 1;
		from = i + 1;
	}
	return fwrite(json.ptr + from, 1, json.len - from, out) == json.len - from;
}

bool replay_write(const struct replay_options *options, struct archive_reader *reader,
		  FILE *out, struct err *err)
{
	struct replay_options at = *options;
	struct replay replay = {
		.options = &at,
		.reader = reader,
		.out = {.max = options->max_bytes ? options->max_bytes : REPLAY_MAX},
		.err = err,
		.first_ms = INT64_MAX,
		.last_ms = INT64_MIN,
		.unix_ms = options->now_ms};
	bool ok;

	replay.db = archive_db_open(options->path, err);
	if (!replay.db)
		return false;
	if (at.to_ms < at.now_ms)
		at.now_ms = at.to_ms;
	replay.model = model_create();
	replay.spans = spans_create(SPANS_BYTES_MAX);
	ok = archive_reader_visit(reader, options->agent, &visitor, &replay, err);
	if (ok && replay.last_ms == INT64_MIN)
		ok = err_set(err, ERR_NOT_FOUND, "the archive has nothing of that time");
	ok = ok && put_data(&replay);
	if (ok) {
		*err = (struct err){.code = ERR_NONE};
		ok = fwrite(page_replay[0].bytes, 1, page_replay[0].len, out) ==
			     page_replay[0].len &&
		     put_safe(buf_slice(&replay.out), out) &&
		     fwrite(page_replay[1].bytes, 1, page_replay[1].len, out) ==
			     page_replay[1].len;
	}
	spans_destroy(replay.spans);
	model_destroy(replay.model);
	archive_db_close(replay.db);
	buf_wipe(&replay.out);
	return ok;
}
