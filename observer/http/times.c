#include "observer/http/times.h"

#include <string.h>

#include "observer/report.h"
#include "observer/timeline.h"

#define TIME_MAX INT64_C(253402300799999) /* the end of the year 9999 */

struct question {
	struct buf lanes; /* empty: all */
	int64_t from, to;
	struct report_range ranges[REPORT_RANGES_MAX]; /* of a report */
	size_t range_count;
};

static bool wants(void *ctx, const struct span_lane *lane)
{
	const struct question *question = ctx;
	struct slice rest = buf_slice(&question->lanes), one;

	while (slice_take_until(&rest, ',', &one))
		if (one.len && slice_starts(slice_of(lane->id), one))
			return true;
	return false;
}

/* A number of the query; @value stays when it is not there. */
static bool read_number(struct exchange *exchange, const char *name, uint64_t max,
			uint64_t *value, struct err *err)
{
	struct buf text = {0};
	bool ok = !exchange_query(exchange, name, &text) ||
		  slice_parse_u64(buf_slice(&text), max, value);

	buf_finish(&text);
	return ok || err_set(err, ERR_MALFORMED, "%s must be a number up to %llu", name,
			     (unsigned long long)max);
}

static int64_t first_ms(const struct spans *spans, int64_t now_ms)
{
	int64_t first = now_ms;

	for (size_t i = 0; i < spans->lane_count; i++) {
		const struct span_lane *lane = spans->lanes[i];

		if (lane->count && lane->runs[0].t < first)
			first = lane->runs[0].t;
	}
	return first < 0 ? 0 : first;
}

static bool read_question(struct exchange *exchange, struct spans *spans, int64_t now_ms,
			  struct question *out, struct err *err)
{
	uint64_t from = (uint64_t)first_ms(spans, now_ms), to = (uint64_t)now_ms + 1;

	if (!read_number(exchange, "from", TIME_MAX, &from, err) ||
	    !read_number(exchange, "to", TIME_MAX, &to, err))
		return false;
	(void)exchange_query(exchange, "lanes", &out->lanes);
	out->from = (int64_t)from;
	out->to = (int64_t)to;
	if (out->to <= out->from)
		return err_set(err, ERR_MALFORMED, "to must be behind from");
	return true;
}

bool times_timeline(struct exchange *exchange, struct spans *spans,
		    const struct values *values, int64_t now_ms, struct buf *out,
		    struct err *err)
{
	struct question question = {0};
	uint64_t width = 1000, request = 0;
	bool ok = read_question(exchange, spans, now_ms, &question, err) &&
		  read_number(exchange, "width", TIMELINE_WIDTH_MAX, &width, err) &&
		  read_number(exchange, "request", UINT32_MAX, &request, err);

	if (ok && !width)
		ok = err_set(err, ERR_MALFORMED, "width must be 1 to %d",
			     TIMELINE_WIDTH_MAX);
	if (ok && question.to - question.from > TIMELINE_RANGE_MAX)
		question.from = question.to - TIMELINE_RANGE_MAX;
	if (ok) {
		const struct timeline_query query = {
			.request = (uint32_t)request,
			.from = question.from,
			.to = question.to,
			.now = now_ms,
			.width = (uint32_t)width,
			.wants = question.lanes.len ? wants : NULL,
			.ctx = &question,
			.values = values,
		};

		timeline_write(spans, &query, out);
	}
	buf_finish(&question.lanes);
	return ok;
}

static bool read_view(struct exchange *exchange, enum report_view *out, struct err *err)
{
	static const char *const names[] = {[REPORT_FLAT] = "flat",
					    [REPORT_TOP_DOWN] = "top-down",
					    [REPORT_BOTTOM_UP] = "bottom-up",
					    [REPORT_LIVE] = "live"};
	struct buf text = {0};
	bool ok = !exchange_query(exchange, "view", &text);

	*out = REPORT_FLAT;
	for (size_t i = 0; !ok && i < sizeof(names) / sizeof(*names); i++) {
		ok = slice_eq(buf_slice(&text), slice_of(names[i]));
		*out = (enum report_view)i;
	}
	buf_finish(&text);
	return ok || err_set(err, ERR_MALFORMED,
			     "view must be flat, top-down, bottom-up or live");
}

/* "A-B,C-D": by time, none reaching into the next. */
static bool parse_ranges(struct slice text, struct question *out)
{
	struct slice one;

	while (slice_take_until(&text, ',', &one)) {
		struct report_range *range = &out->ranges[out->range_count];
		uint64_t from, to;
		struct slice first;

		if (out->range_count == REPORT_RANGES_MAX ||
		    !slice_take_until(&one, '-', &first) ||
		    !slice_parse_u64(first, TIME_MAX, &from) ||
		    !slice_parse_u64(one, TIME_MAX, &to))
			return false;
		*range = (struct report_range){(int64_t)from, (int64_t)to};
		if (range->to <= range->from ||
		    (out->range_count && range->from < range[-1].to))
			return false;
		out->range_count++;
	}
	return out->range_count > 0;
}

static bool read_ranges(struct exchange *exchange, struct question *out, struct err *err)
{
	struct buf text = {0};
	bool ok = true;

	if (exchange_query(exchange, "ranges", &text)) {
		ok = parse_ranges(buf_slice(&text), out) ||
		     err_set(err, ERR_MALFORMED,
			     "ranges must be up to %d of FROM-TO, by time",
			     REPORT_RANGES_MAX);
		if (ok) {
			out->from = out->ranges[0].from;
			out->to = out->ranges[out->range_count - 1].to;
		}
	}
	buf_finish(&text);
	return ok;
}

bool times_report(struct exchange *exchange, struct spans *spans, int64_t now_ms,
		  struct buf *out, struct err *err)
{
	struct question question = {0};
	struct report_query query = {.now = now_ms};
	bool ok = read_question(exchange, spans, now_ms, &question, err) &&
		  read_ranges(exchange, &question, err) &&
		  read_view(exchange, &query.view, err);

	if (ok) {
		query.from = question.from;
		query.to = question.to;
		query.wants = question.lanes.len ? wants : NULL;
		query.ctx = &question;
		query.ranges = question.ranges;
		query.range_count = question.range_count;
		report_write(spans, &query, out);
	}
	buf_finish(&question.lanes);
	return ok;
}
