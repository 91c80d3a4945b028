#include "observer/timeline.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"
#include "wire/base/slice.h"

enum record_kind { RECORD_TURN, RECORD_CALL, RECORD_PART, RECORD_WAIT };
#define RECORD_COMMAND 4 /* beside enum span_flag */
#define STRING_MAX UINT16_MAX
#define WIDE_COLUMNS 4 /* from here on a span has its title and its row */
#define NO_STRING 0    /* the empty one */
#define STRETCH_BYTES 6
#define RECORD_BYTES 28

struct timeline {
	const struct spans *spans;
	const struct timeline_query *query;
	struct buf *out;
	struct buf strings;
	uint32_t string_count;
	uint32_t *by_name; /* string of a name, +1; 0: not yet */
};

/* ---- numbers and strings ---- */

/* Little endian; where it ends comes back. */
static char *write_number(char *at, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		*at++ = (char)(value >> (8 * i) & 0xFF);
	return at;
}

static void put(struct buf *out, uint64_t value, size_t bytes)
{
	char *at = buf_extend(out, bytes);

	if (at)
		(void)write_number(at, value, bytes);
}

static void put_at(struct buf *out, size_t at, uint32_t value)
{
	if (buf_ok(out))
		(void)write_number(out->ptr + at, value, 4);
}

static uint32_t add_string(struct timeline *timeline, const char *text)
{
	struct slice words = slice_of(text);

	words = slice_sub(words, 0, utf8_floor(words, STRING_MAX));
	put(&timeline->strings, words.len, 2);
	(void)buf_append(&timeline->strings, words);
	return timeline->string_count++;
}

/* Can the title of what takes so long be read, its row be clicked? */
static bool is_wide(const struct timeline *timeline, int64_t ms)
{
	const struct timeline_query *query = timeline->query;

	return ms * (int64_t)query->width >= WIDE_COLUMNS * (query->to - query->from);
}

static uint32_t add_name(struct timeline *timeline, uint32_t name)
{
	if (!timeline->by_name[name])
		timeline->by_name[name] =
			add_string(timeline, timeline->spans->names[name].text) + 1;
	return timeline->by_name[name] - 1;
}

/* ---- the strip, column by column ---- */

/* Where a walk along a lane stands: at the last piece that begins at or before t. */
struct cursor {
	const struct span_lane *lane;
	int64_t now;
	size_t piece; /* strip_count: before the first */
	size_t step;  /* by which it moved last: columns are alike */
};

static void cursor_move(struct cursor *cursor, int64_t t)
{
	const int64_t *starts = cursor->lane->strip_t;
	const size_t count = cursor->lane->strip_count;
	size_t low = cursor->piece, high, step = cursor->step + 1;

	if (low == count) {
		if (!count || starts[0] > t)
			return;
		low = 0;
	}
	cursor->piece = low;
	for (high = low + step; high < count && starts[high] <= t; high = low + step) {
		low = high;
		step *= 2;
	}
	high = high < count ? high : count;
	while (high - low > 1) {
		const size_t middle = low + (high - low) / 2;

		if (starts[middle] <= t)
			low = middle;
		else
			high = middle;
	}
	cursor->step = low - cursor->piece;
	cursor->piece = low;
}

/* What the lane spent before @t; until when @time goes on from there. */
static int64_t cursor_sums(struct cursor *cursor, int64_t t, uint64_t sums[SPAN_SUMS],
			   enum row_time *time)
{
	const struct span_lane *lane = cursor->lane;
	int64_t start, until = INT64_MAX;

	memset(sums, 0, SPAN_SUMS * sizeof(*sums));
	*time = TIME_IDLE;
	cursor_move(cursor, t);
	if (cursor->piece == lane->strip_count)
		return lane->strip_count ? lane->strip_t[0] : INT64_MAX;
	start = lane->strip_t[cursor->piece];
	*time = lane->strip_time[cursor->piece];
	span_lane_before(lane, cursor->piece, sums);
	if (cursor->piece + 1 < lane->strip_count)
		until = lane->strip_t[cursor->piece + 1];
	if (*time == TIME_IDLE)
		return until;
	if (until == INT64_MAX) /* it is open */
		until = cursor->now > start ? cursor->now : start;
	sums[*time - TIME_MODEL] += (uint64_t)((t < until ? t : until) - start);
	if (t < until)
		return until;
	*time = TIME_IDLE;
	return INT64_MAX;
}

struct stretch {
	uint32_t columns;
	uint8_t shares[4];
};

struct stretches {
	struct buf *out;
	struct stretch last;
	uint32_t count;
};

static void stretch_flush(struct stretches *stretches)
{
	while (stretches->last.columns) {
		const uint32_t columns = stretches->last.columns < UINT16_MAX
						 ? stretches->last.columns
						 : UINT16_MAX;

		char *at = buf_extend(stretches->out, STRETCH_BYTES);

		if (at)
			memcpy(write_number(at, columns, 2), stretches->last.shares, 4);
		stretches->last.columns -= columns;
		stretches->count++;
	}
}

static void stretch_add(struct stretches *stretches, uint32_t columns,
			const uint8_t shares[4])
{
	if (memcmp(stretches->last.shares, shares, 4) != 0) {
		stretch_flush(stretches);
		memcpy(stretches->last.shares, shares, 4);
	}
	stretches->last.columns += columns;
}

static int64_t column_start(const struct timeline_query *query, uint32_t column)
{
	return query->from +
	       (query->to - query->from) * (int64_t)column / (int64_t)query->width;
}

/* The first column that begins at or behind @t. */
static uint32_t column_at(const struct timeline_query *query, int64_t t)
{
	const int64_t range = query->to - query->from;
	int64_t column;

	if (t >= query->to)
		return query->width;
	column = ((t - query->from) * (int64_t)query->width + range - 1) / range;
	while (column < (int64_t)query->width &&
	       column_start(query, (uint32_t)column) < t)
		column++;
	return (uint32_t)column;
}

static uint8_t share(uint64_t part, int64_t whole)
{
	uint64_t of_255;

	if (!part)
		return 0;
	of_255 = (part * 255 + (uint64_t)whole / 2) / (uint64_t)whole;
	/* Something is never nothing: a short wait is still seen. */
	if (!of_255)
		return 1;
	return of_255 > 255 ? 255 : (uint8_t)of_255;
}

/* One column that holds more than one thing. */
static void mixed_column(const struct timeline *timeline, const struct span_lane *lane,
			 int64_t from, int64_t to, const uint64_t before[SPAN_SUMS],
			 const uint64_t after[SPAN_SUMS], uint8_t shares[4])
{
	const int64_t whole = to > from ? to - from : 1;
	int64_t idle = span_lane_present(lane, from, to, timeline->query->now);

	for (size_t i = 0; i < SPAN_SUMS; i++) {
		shares[i] = share(after[i] - before[i], whole);
		idle -= (int64_t)(after[i] - before[i]);
	}
	shares[3] = share(idle > 0 ? (uint64_t)idle : 0, whole);
}

/* Columns of one thing; without one the lane may be there, not yet, or no more. */
static void same_columns(const struct timeline *timeline, const struct span_lane *lane,
			 uint32_t column, uint32_t end, enum row_time time,
			 struct stretches *stretches)
{
	const struct timeline_query *query = timeline->query;
	uint8_t shares[4] = {0};

	if (time != TIME_IDLE) {
		shares[time - TIME_MODEL] = 255;
		stretch_add(stretches, end - column, shares);
		return;
	}
	for (; column < end; column++) {
		const int64_t from = column_start(query, column);
		const int64_t to = column_start(query, column + 1);

		shares[3] = share((uint64_t)span_lane_present(lane, from, to, query->now),
				  to > from ? to - from : 1);
		stretch_add(stretches, 1, shares);
	}
}

static uint32_t write_strip(const struct timeline *timeline, const struct span_lane *lane)
{
	const struct timeline_query *query = timeline->query;
	struct cursor cursor = {lane, span_lane_now(lane, query->now), lane->strip_count,
				0};
	struct stretches stretches = {.out = timeline->out};
	uint64_t before[SPAN_SUMS], after[SPAN_SUMS];
	enum row_time time;
	int64_t t = query->from;
	int64_t until = cursor_sums(&cursor, t, before, &time);

	for (uint32_t column = 0; column < query->width;) {
		/* Columns that end before anything changes. */
		uint32_t end = column;

		if (until > t)
			end = until >= query->to ? query->width : column_at(query, until);
		if (end > column && column_start(query, end) > until)
			end--;
		if (end > column) {
			same_columns(timeline, lane, column, end, time, &stretches);
			t = column_start(query, end);
			until = cursor_sums(&cursor, t, before, &time);
		} else {
			const int64_t from = t;
			uint8_t shares[4];

			end = column + 1;
			t = column_start(query, end);
			until = cursor_sums(&cursor, t, after, &time);
			mixed_column(timeline, lane, from, t, before, after, shares);
			stretch_add(&stretches, 1, shares);
			memcpy(before, after, sizeof(before));
		}
		column = end;
	}
	stretch_flush(&stretches);
	return stretches.count;
}

/* ---- spans that are wide enough to be seen ---- */

struct record {
	int64_t t, end;
	uint32_t title, row; /* strings */
	enum record_kind kind;
	unsigned flags;
	uint16_t line;
};

static void write_record(struct timeline *timeline, const struct record *record)
{
	char *at = buf_extend(timeline->out, RECORD_BYTES);

	if (!at)
		return;
	at = write_number(at, (uint64_t)record->t, 8);
	at = write_number(
		at, record->end == SPANS_OPEN ? UINT64_MAX : (uint64_t)record->end, 8);
	at = write_number(at, record->title, 4);
	at = write_number(at, record->row, 4);
	at = write_number(at, record->kind, 1);
	at = write_number(at, record->flags, 1);
	(void)write_number(at, record->line, 2);
}

static uint32_t write_calls(struct timeline *timeline, const struct span_lane *lane,
			    const struct run *run, int64_t least)
{
	const struct timeline_query *query = timeline->query;
	uint32_t count = 0;

	for (size_t i = run_find(run, query->from);
	     i < run->count && run->spans[i].t < query->to; i++) {
		const struct span *span = &run->spans[i];
		const int64_t told = span_lane_told(lane, span->t, span->end);
		const int64_t end = span_end(told, query->now);
		const struct span_name *name = &timeline->spans->names[span->name];
		enum record_kind kind = RECORD_CALL;
		uint32_t row = NO_STRING;

		if (end - span->t < least || end <= query->from)
			continue;
		if (span->kind == SPAN_WAIT)
			kind = RECORD_WAIT;
		else if (span->parent >= 0)
			kind = RECORD_PART;
		if (is_wide(timeline, end - span->t))
			row = add_string(timeline, run->text + span->row);
		write_record(timeline,
			     &(struct record){
				     .t = span->t,
				     .end = told,
				     .title = add_name(timeline, span->name),
				     .row = row,
				     .kind = kind,
				     .flags = span->flags |
					      (name->is_command ? RECORD_COMMAND : 0u),
				     .line = run_line(run, span)});
		count++;
	}
	return count;
}

static void write_turn(struct timeline *timeline, const struct run_at *at, int64_t end,
		       bool is_open)
{
	struct record record = {.t = at->t,
				.end = is_open ? SPANS_OPEN : end,
				.kind = RECORD_TURN,
				.flags = at->flags};

	/* The run itself is far away: only where it is needed. */
	if (is_wide(timeline, end - at->t)) {
		record.title = add_string(timeline, at->run->text + at->run->title);
		record.row = add_string(timeline, at->run->text + at->run->row);
	}
	write_record(timeline, &record);
}

static uint32_t write_spans(struct timeline *timeline, const struct span_lane *lane)
{
	const struct timeline_query *query = timeline->query;
	const int64_t column = (query->to - query->from) / (int64_t)query->width;
	const int64_t least = column > 1 ? column : 1;
	uint32_t count = 0;

	for (size_t i = span_lane_find(lane, query->from);
	     i < lane->count && lane->runs[i].t < query->to; i++) {
		const struct run_at *at = &lane->runs[i];
		const int64_t end = span_lane_end(lane, i, query->now);

		if (end <= query->from)
			continue;
		if (at->is_turn && end - at->t >= least) {
			write_turn(timeline, at, end,
				   span_lane_told(lane, at->t, at->end) == SPANS_OPEN &&
					   i + 1 == lane->count);
			count++;
		}
		if (at->longest >= least)
			count += write_calls(timeline, lane, at->run, least);
	}
	return count;
}

/* ---- values, column by column ---- */

#define VALUE_UNKNOWN UINT32_MAX

static uint32_t value_of(const struct value_lane *lane, enum value_kind kind,
			 int64_t from, int64_t to)
{
	uint64_t value, before;

	if (!value_lane_before(lane, kind, to, &value))
		return VALUE_UNKNOWN;
	if (kind == VALUE_BYTES) {
		if (value_lane_before(lane, kind, from, &before))
			value -= before;
		/* As many as would fit are not many seconds' worth of bytes. */
		value = value < UINT64_MAX / 1000 ? value * 1000 / (uint64_t)(to - from)
						  : VALUE_UNKNOWN - 1;
	}
	return value < VALUE_UNKNOWN ? (uint32_t)value : VALUE_UNKNOWN - 1;
}

static uint32_t write_pieces(const struct timeline *timeline,
			     const struct value_lane *lane, enum value_kind kind)
{
	const struct timeline_query *query = timeline->query;
	uint32_t pieces = 0, columns = 0, value = 0;

	for (uint32_t column = 0; column < query->width;
	     column += TIMELINE_VALUE_COLUMNS) {
		const uint32_t end = column + TIMELINE_VALUE_COLUMNS < query->width
					     ? column + TIMELINE_VALUE_COLUMNS
					     : query->width;
		const int64_t from = column_start(query, column);
		const int64_t to = column_start(query, end);
		/* Nothing is known of what is to come. */
		const uint32_t next = from <= query->now && to > from
					      ? value_of(lane, kind, from, to)
					      : VALUE_UNKNOWN;

		if (columns && (next != value || columns == UINT16_MAX)) {
			put(timeline->out, columns, 2);
			put(timeline->out, value, 4);
			pieces++;
			columns = 0;
		}
		value = next;
		columns++;
	}
	put(timeline->out, columns, 2);
	put(timeline->out, value, 4);
	return pieces + 1;
}

static uint32_t write_values(const struct timeline *timeline,
			     const struct span_lane *lane)
{
	const struct values *values = timeline->query->values;
	const struct value_lane *found =
		values ? values_find(values, slice_of(lane->id)) : NULL;
	uint32_t count = 0;

	for (size_t kind = 0; found && kind < VALUE_KINDS; kind++) {
		size_t at;

		if (value_lane_first(found, (enum value_kind)kind) >= timeline->query->to)
			continue;
		put(timeline->out, kind, 4);
		at = timeline->out->len;
		put(timeline->out, 0, 4);
		put_at(timeline->out, at,
		       write_pieces(timeline, found, (enum value_kind)kind));
		count++;
	}
	return count;
}

/* ---- the answer ---- */

static bool has_something(const struct timeline_query *query,
			  const struct span_lane *lane)
{
	return lane->count &&
	       span_lane_present(lane, query->from, query->to, query->now) > 0 &&
	       (!query->wants || query->wants(query->ctx, lane));
}

static void write_lane(struct timeline *timeline, const struct span_lane *lane)
{
	struct buf *out = timeline->out;
	size_t counts;
	uint32_t count;

	put(out, add_string(timeline, lane->id), 4);
	put(out, lane->generation, 8);
	counts = out->len;
	put(out, 0, 8);
	put(out, 0, 4);
	count = write_strip(timeline, lane);
	put_at(out, counts, count);
	count = write_spans(timeline, lane);
	put_at(out, counts + 4, count);
	count = write_values(timeline, lane);
	put_at(out, counts + 8, count);
}

void timeline_write(struct spans *spans, const struct timeline_query *query,
		    struct buf *out)
{
	struct timeline timeline = {.spans = spans, .query = query, .out = out};
	uint32_t lanes = 0;
	size_t lanes_at;

	assert(query->to > query->from && query->width > 0);
	spans_join(spans);
	timeline.by_name = mem_array(spans->name_count + 1, sizeof(*timeline.by_name));
	timeline.strings.max = out->max;
	(void)add_string(&timeline, ""); /* NO_STRING */
	(void)buf_lit(out, "PTL2");
	put(out, query->request, 4);
	put(out, (uint64_t)query->from, 8);
	put(out, (uint64_t)query->to, 8);
	put(out, (uint64_t)query->now, 8);
	put(out, (uint64_t)spans->from_ms, 8);
	put(out, query->width, 4);
	lanes_at = out->len;
	put(out, 0, 4);
	for (size_t i = 0; i < spans->lane_count; i++) {
		if (!has_something(query, spans->lanes[i]))
			continue;
		write_lane(&timeline, spans->lanes[i]);
		lanes++;
	}
	put_at(out, lanes_at, lanes);
	put(out, timeline.string_count, 4);
	(void)buf_append(out, buf_slice(&timeline.strings));
	buf_finish(&timeline.strings);
	free(timeline.by_name);
}
