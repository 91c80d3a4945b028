#include "observer/spans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observer/report.h"
#include "observer/timeline.h"
#include "tests/unit/support/support.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

/* Small numbers of everything, looked at millisecond by millisecond. */
/* libcheck keeps a record of every assertion that held: too slow for those inside loops.
 */
#define check(condition, ...) \
	do { \
		if (!(condition)) \
			ck_abort_msg(__VA_ARGS__); \
	} while (0)

#define BYTES_MAX (1u << 20)
#define END_MS 600
#define RUNS_MAX 6
#define SPANS_MAX 8
#define LANES 3

struct naive_run {
	struct run_in in;
	struct span_in spans[SPANS_MAX];
	char tag[8];
};

struct naive_lane {
	struct naive_run runs[RUNS_MAX]; /* by start */
	size_t count;
};

static const uint8_t agents[2][KEY_BYTES] = {{1}, {2}};

static unsigned seed;

static int64_t pick(int64_t below)
{
	seed = seed * 1103515245u + 12345u;
	return (int64_t)(seed >> 8) % below;
}

static int64_t end_of(int64_t end, int64_t now)
{
	return end == SPANS_OPEN ? now : end;
}

/* What the lane did in the millisecond from @ms on: SPAN_SUMS for none of it. */
static unsigned naive_time(const struct naive_lane *lane, int64_t ms, int64_t now)
{
	const struct naive_run *run = NULL;
	unsigned time;

	for (size_t i = 0; i < lane->count && lane->runs[i].in.t <= ms; i++)
		run = &lane->runs[i];
	if (!run || ms >= end_of(run->in.end, now))
		return SPAN_SUMS;
	time = run->in.is_turn ? TIME_MODEL - 1 : SPAN_SUMS;
	for (size_t i = 0; i < run->in.count; i++) {
		const struct span_in *span = &run->spans[i];
		const unsigned of =
			span->kind == SPAN_WAIT ? TIME_YOU - 1 : TIME_TOOL - 1;

		if (span->t <= ms && ms < end_of(span->end, now) &&
		    (time == SPAN_SUMS || of > time))
			time = of;
	}
	return time;
}

static void make_run(struct spans *spans, struct naive_run *run, int64_t from,
		     int64_t below, bool open, unsigned number)
{
	int64_t t;

	memset(run, 0, sizeof(*run));
	(void)snprintf(run->tag, sizeof(run->tag), "r%u", number);
	run->in.tag = slice_of(run->tag);
	run->in.t = from + pick(below - from);
	run->in.end = open ? SPANS_OPEN : run->in.t + pick(below - run->in.t);
	run->in.is_turn = pick(4) != 0;
	run->in.count = (size_t)pick(SPANS_MAX);
	t = run->in.t;
	for (size_t i = 0; i < run->in.count; i++) {
		struct span_in *span = &run->spans[i];
		const int64_t last = open ? below : run->in.end;

		t += pick(last > t ? last - t + 1 : 1);
		t = t > last ? last : t;
		span->t = t;
		span->end = open && !pick(3) ? SPANS_OPEN
					     : t + pick(last > t ? last - t + 1 : 1);
		span->kind = pick(3) ? SPAN_TOOL : SPAN_WAIT;
		span->parent = i && pick(2) ? pick((int64_t)i) : -1;
		span->name = spans_name(spans, TIME_TOOL, false,
					pick(2) ? SLICE("make") : SLICE("Read"));
	}
	run->in.spans = run->spans;
}

static void check_lane(struct spans *spans, const struct span_lane *lane,
		       const struct naive_lane *naive, int64_t now)
{
	uint64_t want[SPAN_SUMS] = {0};

	spans_join(spans);
	for (int64_t ms = 0; ms <= END_MS; ms++) {
		uint64_t sums[SPAN_SUMS];
		unsigned time;

		span_lane_sums(lane, ms, now, sums);
		for (size_t i = 0; i < SPAN_SUMS; i++)
			check(sums[i] == want[i], "time %zu before %d: %d, not %d", i,
			      (int)ms, (int)sums[i], (int)want[i]);
		time = naive_time(naive, ms, now);
		if (time < SPAN_SUMS)
			want[time]++;
	}
}

/* Runs in any order, each put several times, end in the same sums. */
static void build(struct spans *spans, struct naive_lane *lanes, int64_t now)
{
	for (size_t l = 0; l < LANES; l++) {
		struct span_lane *lane = spans_lane(
			spans, agents[l % 2], l == 2 ? SLICE("docs") : SLICE("api"));
		size_t order[RUNS_MAX * 2], count;

		const size_t runs = (size_t)pick(RUNS_MAX) + 1;

		lanes[l].count = runs;
		for (size_t i = 0; i < lanes[l].count; i++) {
			const int64_t part = END_MS / (int64_t)lanes[l].count;

			make_run(spans, &lanes[l].runs[i], part * (int64_t)i,
				 part * (int64_t)(i + 1), pick(5) == 0, (unsigned)i);
		}
		count = lanes[l].count * 2;
		for (size_t i = 0; i < count; i++)
			order[i] = i % runs;
		for (size_t i = count; i-- > 1;) {
			const size_t k = (size_t)pick((int64_t)i + 1);
			const size_t kept = order[i];

			order[i] = order[k];
			order[k] = kept;
		}
		for (size_t i = 0; i < count; i++) {
			spans_put(spans, lane, &lanes[l].runs[order[i]].in);
			if (!pick(3)) /* joined in between, too */
				spans_join(spans);
		}
		ck_assert_uint_eq(lane->count, lanes[l].count);
		check_lane(spans, lane, &lanes[l], now);
	}
}

START_TEST(the_sums_are_those_of_every_millisecond)
{
	struct naive_lane lanes[LANES];

	for (seed = 1; seed < 400; seed += 7) {
		struct spans *spans = spans_create(BYTES_MAX);
		const unsigned kept = seed;

		build(spans, lanes, END_MS + 20);
		spans_destroy(spans);
		seed = kept;
	}
}
END_TEST

/* ---- report ---- */

static int64_t number(struct slice json, const char *key)
{
	char text[64];
	size_t at;

	(void)snprintf(text, sizeof(text), "\"%s\":", key);
	at = slice_find_slice(json, slice_of(text));
	ck_assert_msg(at < json.len, "no %s in %.*s", key, SLICE_ARG(json));
	return strtoll(json.ptr + at + strlen(text), NULL, 10);
}

/* The object of a flat report's row, or an empty slice. */
static struct slice row_of(struct slice json, const char *name)
{
	char text[64];
	size_t at;

	at = slice_find_slice(json, SLICE("\"rows\":"));
	json = slice_sub(json, at, json.len);
	(void)snprintf(text, sizeof(text), "{\"name\":\"%s\"", name);
	at = slice_find_slice(json, slice_of(text));
	json = slice_sub(json, at, json.len);
	return slice_sub(json, 0, slice_find(json, '}'));
}

static struct slice report_of(struct spans *spans, const struct report_query *query)
{
	static struct buf out;

	buf_clear(&out);
	out.max = 16u << 20;
	report_write(spans, query, &out);
	(void)buf_append_byte(&out, '\0');
	out.len--;
	ck_assert(json_check(buf_slice(&out), NULL, NULL));
	return buf_slice(&out);
}

static struct slice report(struct spans *spans, enum report_view view, int64_t from,
			   int64_t to, int64_t now)
{
	return report_of(
		spans,
		&(struct report_query){.view = view, .from = from, .to = to, .now = now});
}

static int64_t overlap(int64_t t, int64_t end, int64_t from, int64_t to)
{
	const int64_t begin = t > from ? t : from, stop = end < to ? end : to;

	return stop > begin ? stop - begin : 0;
}

/* One name's calls, as the report defines them. */
struct figures {
	int64_t count, self, most;
};

static void naive_add(struct figures *out, const struct naive_run *run, size_t at,
		      int64_t from, int64_t to, int64_t now)
{
	const struct span_in *span = &run->spans[at];
	const int64_t end = end_of(span->end, now);
	const int64_t ms = overlap(span->t, end, from, to);

	if (!ms && !(span->t == end && span->t >= from && span->t < to))
		return;
	out->count++;
	out->most = ms > out->most ? ms : out->most;
	for (int64_t t = span->t > from ? span->t : from; t < end && t < to; t++) {
		bool is_covered = false;

		for (size_t i = at + 1; i < run->in.count; i++)
			is_covered = is_covered || (run->spans[i].parent == (int64_t)at &&
						    run->spans[i].t <= t &&
						    t < end_of(run->spans[i].end, now));
		out->self += !is_covered;
	}
}

static void check_report(struct spans *spans, const struct naive_lane *lanes,
			 int64_t from, int64_t to, int64_t now)
{
	const char *const names[] = {"make", "Read", "Waiting for you"};
	const struct slice json = report(spans, REPORT_FLAT, from, to, now);
	const struct slice total =
		slice_sub(json, slice_find_slice(json, SLICE("\"total\"")), json.len);
	int64_t sums[SPAN_SUMS] = {0};

	for (size_t l = 0; l < LANES; l++)
		for (int64_t ms = from; ms < to; ms++) {
			const unsigned time = naive_time(&lanes[l], ms, now);

			if (time < SPAN_SUMS)
				sums[time]++;
		}
	ck_assert_int_eq(number(total, "model"), sums[0]);
	ck_assert_int_eq(number(total, "tool"), sums[1]);
	ck_assert_int_eq(number(total, "you"), sums[2]);
	for (size_t n = 0; n < 3; n++) {
		const uint32_t name =
			n < 2 ? spans_name(spans, TIME_TOOL, false, slice_of(names[n]))
			      : NAME_YOU;
		const struct slice row = row_of(json, names[n]);
		struct figures want = {0};

		for (size_t l = 0; l < LANES; l++)
			for (size_t r = 0; r < lanes[l].count; r++)
				for (size_t i = 0; i < lanes[l].runs[r].in.count; i++) {
					const struct span_in *span =
						&lanes[l].runs[r].spans[i];

					if (span->kind == SPAN_WAIT ? n == 2
								    : span->name == name)
						naive_add(&want, &lanes[l].runs[r], i,
							  from, to, now);
				}
		if (!want.count) {
			ck_assert_uint_eq(row.len, 0);
			continue;
		}
		ck_assert_msg(row.len, "no %s in %.*s", names[n], SLICE_ARG(json));
		ck_assert_int_eq(number(row, "count"), want.count);
		ck_assert_int_eq(number(row, "self"), want.self);
		if (want.most)
			ck_assert_int_eq(number(row, "max"), want.most);
	}
}

START_TEST(a_report_of_any_range_is_what_counting_gives)
{
	struct naive_lane lanes[LANES];

	for (unsigned round = 1; round < 120; round++) {
		struct spans *spans = spans_create(BYTES_MAX);
		int64_t from, to;

		seed = round * 977;
		build(spans, lanes, END_MS + 20);
		for (unsigned i = 0; i < 4; i++) {
			from = pick(END_MS);
			to = from + 1 + pick(END_MS + 40 - from);
			check_report(spans, lanes, from, to, END_MS + 20);
		}
		(void)report(spans, REPORT_TOP_DOWN, from, to, END_MS + 20);
		(void)report(spans, REPORT_BOTTOM_UP, from, to, END_MS + 20);
		(void)report(spans, REPORT_LIVE, from, to, END_MS + 20);
		spans_destroy(spans);
	}
}
END_TEST

/* What a report says that adds up: four totals, then count, inclusive and self of three
 * names. */
enum { ADDED = 13 };
static void added(struct slice json, int64_t out[ADDED])
{
	const char *const names[] = {"make", "Read", "Waiting for you"};
	const char *const times[] = {"model", "tool", "you", "idle"};
	const struct slice total =
		slice_sub(json, slice_find_slice(json, SLICE("\"total\"")), json.len);

	for (size_t i = 0; i < 4; i++)
		out[i] += number(total, times[i]);
	for (size_t n = 0; n < 3; n++) {
		const struct slice row = row_of(json, names[n]);

		if (!row.len)
			continue;
		out[4 + 3 * n] += number(row, "count");
		out[5 + 3 * n] += number(row, "inclusive");
		out[6 + 3 * n] += number(row, "self");
	}
}

START_TEST(several_ranges_are_what_each_of_them_is)
{
	const int64_t now = END_MS + 20;
	struct naive_lane lanes[LANES];

	for (unsigned round = 1; round < 60; round++) {
		struct spans *spans = spans_create(BYTES_MAX);
		struct report_range ranges[3];
		struct report_query query = {
			.now = now, .ranges = ranges, .range_count = 3};
		int64_t want[ADDED] = {0}, is[ADDED] = {0}, t = pick(END_MS / 2);
		struct slice json;
		char *whole;

		seed = round * 577;
		build(spans, lanes, now);
		for (size_t i = 0; i < 3; i++) {
			ranges[i].from = t + pick(20);
			t = ranges[i].to = ranges[i].from + 1 + pick(END_MS / 4);
			added(report(spans, REPORT_FLAT, ranges[i].from, ranges[i].to,
				     now),
			      want);
		}
		query.from = ranges[0].from;
		query.to = ranges[2].to;
		added(report_of(spans, &query), is);
		for (size_t i = 0; i < ADDED; i++)
			ck_assert_int_eq(is[i], want[i]);
		/* Whole calls are counted once, wherever they reach: parts of a range are
		 * the range. */
		ranges[1].from = ranges[0].to;
		ranges[2].from = ranges[1].to;
		query.view = REPORT_LIVE;
		json = report_of(spans, &query);
		whole = mem_dup(json);
		json = report(spans, REPORT_LIVE, query.from, query.to, now);
		ck_assert_str_eq(whole, json.ptr);
		free(whole);
		query.view = REPORT_TOP_DOWN;
		(void)report_of(spans, &query);
		query.view = REPORT_BOTTOM_UP;
		(void)report_of(spans, &query);
		spans_destroy(spans);
	}
}
END_TEST

static void put(struct spans *spans, struct span_lane *lane, const char *tag, int64_t t,
		int64_t end, const struct span_in *all, size_t count)
{
	const struct run_in run = {.tag = slice_of(tag),
				   .t = t,
				   .end = end,
				   .is_turn = true,
				   .title = SLICE("Round the lines"),
				   .row = SLICE("prompt:1"),
				   .spans = all,
				   .count = count};

	spans_put(spans, lane, &run);
}

#define CALL(from, to, of, what) \
	{ \
		.t = (from), .end = (to), .kind = SPAN_TOOL, .parent = (of), \
		.name = (what) \
	}
#define WAIT(from, to, of) \
	{ \
		.t = (from), .end = (to), .kind = SPAN_WAIT, .parent = (of), \
		.name = NAME_YOU \
	}

START_TEST(self_is_without_parts_and_waits_and_trees_add_up)
{
	struct spans *spans = spans_create(BYTES_MAX);
	struct span_lane *lane = spans_lane(spans, agents[0], SLICE("api"));
	const uint32_t task = spans_name(spans, TIME_TOOL, false, SLICE("Task"));
	const uint32_t make = spans_name(spans, TIME_TOOL, true, SLICE("make"));
	/* Task 100–500 holds make 150–250 (of which you 150–170), make 300–400 and a Task
	 * 420–440; make 600–700 stands alone. */
	const struct span_in all[] = {
		CALL(100, 500, -1, task), CALL(150, 250, 0, make),
		WAIT(150, 170, 1),        CALL(300, 400, 0, make),
		CALL(420, 440, 0, task),  CALL(600, 700, -1, make),
	};
	struct slice json, row;

	put(spans, lane, "t", 0, 1000, all, 6);
	json = report(spans, REPORT_FLAT, 0, 2000, 5000);
	row = row_of(json, "Task");
	ck_assert_int_eq(number(row, "count"), 2);
	/* The inner one is inside the outer one. */
	ck_assert_int_eq(number(row, "inclusive"), 400);
	ck_assert_int_eq(number(row, "self"), 400 - 100 - 100 - 20 + 20);
	row = row_of(json, "make");
	ck_assert_int_eq(number(row, "count"), 3);
	ck_assert_int_eq(number(row, "inclusive"), 300);
	ck_assert_int_eq(number(row, "self"), 280);
	ck_assert_int_eq(number(row, "p50"), 100);
	ck_assert(slice_find_slice(row, SLICE("\"command\":true")) < row.len);
	row = row_of(json, "Model");
	ck_assert_int_eq(number(row, "self"), 1000 - 500);
	ck_assert_int_eq(number(row, "count"), 3);
	row = row_of(json, "Waiting for you");
	ck_assert_int_eq(number(row, "self"), 20);
	ck_assert_uint_eq(row_of(json, "Turn").len, 0);

	/* Half of it: what crosses the edge counts as far as it is inside. */
	json = report(spans, REPORT_FLAT, 160, 320, 5000);
	row = row_of(json, "Task");
	ck_assert_int_eq(number(row, "inclusive"), 160);
	ck_assert_int_eq(number(row, "self"), 50);
	row = row_of(json, "make");
	ck_assert_int_eq(number(row, "inclusive"), 110);
	ck_assert_int_eq(number(row, "self"), 100);

	json = report(spans, REPORT_TOP_DOWN, 0, 1000, 5000);
	ck_assert(slice_find_slice(json, SLICE("\"name\":\"Turn\",\"count\":1,"
					       "\"inclusive\":1000,\"self\":0")) <
		  json.len);
	ck_assert(slice_find_slice(json, SLICE("\"name\":\"Task\",\"time\":\"tool\","
					       "\"count\":1,\"inclusive\":400")) <
		  json.len);
	json = report(spans, REPORT_BOTTOM_UP, 0, 1000, 5000);
	/* make: once in the turn, twice in Task. */
	ck_assert(slice_find_slice(json, SLICE("\"name\":\"make\",\"time\":\"tool\","
					       "\"command\":true,\"count\":3,"
					       "\"inclusive\":300,\"self\":280")) <
		  json.len);
	json = report(spans, REPORT_LIVE, 0, 1000, 5000);
	/* The page shows the totals above every view. */
	ck_assert(slice_find_slice(json, SLICE("\"total\":{\"model\":")) < json.len);
	row = row_of(json, "make");
	ck_assert_int_eq(number(row, "total"), 300);
	ck_assert(slice_find_slice(row, SLICE("\"avg\":100.0,\"deviation\":0.0,\"bins\":"
					      "[0,0,0,0,0,0,3]")) < row.len);
	spans_destroy(spans);
}
END_TEST

START_TEST(live_figures_are_of_whole_calls_that_ended)
{
	struct spans *spans = spans_create(BYTES_MAX);
	struct span_lane *lane = spans_lane(spans, agents[0], SLICE("api"));
	const uint32_t make = spans_name(spans, TIME_TOOL, true, SLICE("make"));
	const struct span_in all[] = {
		CALL(0, 1000, -1, make),         CALL(100, 103, -1, make),
		CALL(200, 208, -1, make),        CALL(300, 301, -1, make),
		CALL(400, SPANS_OPEN, -1, make),
	};
	const struct slice want = SLICE("\"count\":4,\"total\":1012,\"min\":1,\"max\":"
					"1000,\"avg\":253.0,\"deviation\":431.3,"
					"\"bins\":[1,1,0,1,0,0,0,0,0,1]");
	struct slice row;

	put(spans, lane, "t", 0, SPANS_OPEN, all, 5);
	/* The range cuts none of those in it. */
	row = row_of(report(spans, REPORT_LIVE, 50, 302, 5000), "make");
	ck_assert_msg(slice_find_slice(row, want) < row.len, "%.*s", SLICE_ARG(row));
	spans_destroy(spans);
}
END_TEST

START_TEST(what_is_open_ends_now_and_a_newer_turn_ends_an_older_one)
{
	struct spans *spans = spans_create(BYTES_MAX);
	struct span_lane *lane = spans_lane(spans, agents[0], SLICE("api"));
	const uint32_t make = spans_name(spans, TIME_TOOL, true, SLICE("make"));
	const struct span_in all[] = {CALL(50, SPANS_OPEN, -1, make)};
	struct slice json;

	put(spans, lane, "a", 0, SPANS_OPEN, all, 1);
	json = report(spans, REPORT_FLAT, 0, 1000, 80);
	ck_assert_int_eq(number(row_of(json, "make"), "self"), 30);
	ck_assert_int_eq(number(json, "tool"), 30);
	put(spans, lane, "b", 60, 90, NULL, 0);
	json = report(spans, REPORT_FLAT, 0, 1000, 200);
	ck_assert_int_eq(number(json, "model"), 80);
	ck_assert_int_eq(number(json, "tool"), 10);
	/* From its end on the lane is not known to be there. */
	ck_assert_int_eq(number(json, "idle"), 110);
	spans_destroy(spans);
}
END_TEST

START_TEST(what_is_open_of_an_agent_that_is_gone_ended_when_that_was_last_heard)
{
	struct spans *spans = spans_create(BYTES_MAX);
	struct span_lane *lane = spans_lane(spans, agents[0], SLICE("api"));
	const uint32_t make = spans_name(spans, TIME_TOOL, true, SLICE("make"));
	const struct span_in all[] = {CALL(50, SPANS_OPEN, -1, make),
				      CALL(60, 65, -1, make)};
	uint64_t generation;
	struct slice json;

	put(spans, lane, "a", 0, SPANS_OPEN, all, 2);
	generation = lane->generation;
	span_lane_open(spans, lane, SPANS_OPEN);
	ck_assert_uint_eq(lane->generation, generation);
	span_lane_open(spans, lane, 80);
	/* A page that has it as open is told. */
	ck_assert_uint_ne(lane->generation, generation);
	json = report(spans, REPORT_FLAT, 0, 1000, 500);
	ck_assert_int_eq(number(row_of(json, "make"), "self"), 35);
	ck_assert_int_eq(number(json, "tool"), 30);
	ck_assert_int_eq(number(json, "model"), 50);
	ck_assert_int_eq(number(json, "idle"), 0);
	/* Before it was. */
	json = report(spans, REPORT_FLAT, 0, 1000, 70);
	ck_assert_int_eq(number(json, "tool"), 20);
	ck_assert_int_eq(span_lane_end(lane, 0, 500), 80);
	ck_assert_int_eq(span_lane_present(lane, 0, 1000, 500), 80);
	ck_assert_int_eq(span_lane_told(lane, 50, SPANS_OPEN), 80);
	ck_assert_int_eq(span_lane_told(lane, 60, 65), 65);
	ck_assert_int_eq(span_lane_told(lane, 90, SPANS_OPEN), 90);
	/* It comes back. */
	span_lane_open(spans, lane, SPANS_OPEN);
	ck_assert_int_eq(span_lane_told(lane, 50, SPANS_OPEN), SPANS_OPEN);
	json = report(spans, REPORT_FLAT, 0, 1000, 500);
	ck_assert_int_eq(number(json, "tool"), 450);
	spans_destroy(spans);
}
END_TEST

START_TEST(a_peers_times_are_set_right)
{
	struct spans *spans = spans_create(BYTES_MAX);
	struct span_lane *lane = spans_lane(spans, agents[0], SLICE("api"));
	const uint32_t make = spans_name(spans, TIME_TOOL, true, SLICE("make"));
	const struct span_in all[] = {
		CALL(-50, 20, -1, make),
		CALL(10, 5, 7, make),
		CALL(3, 900, 1, make),
		CALL(INT64_MIN, INT64_MIN, 2, make),
		CALL(INT64_MAX, INT64_MAX, -5, make),
	};
	const struct run *run;

	put(spans, lane, "a", 0, 100, all, 5);
	run = lane->runs[0].run;
	for (uint32_t i = 0; i < run->count; i++) {
		const struct span *span = &run->spans[i];

		ck_assert_int_ge(span->t, i ? run->spans[i - 1].t : 0);
		ck_assert_int_ge(span->end, span->t);
		ck_assert_int_le(span->end, 100);
		ck_assert_int_lt(span->parent, (int32_t)i);
	}
	(void)report(spans, REPORT_TOP_DOWN, 0, 1000, 80);
	put(spans, lane, "z", 50, 10, NULL, 0);
	ck_assert_int_eq(lane->runs[1].end, 50);
	(void)report(spans, REPORT_FLAT, INT64_MIN / 4, INT64_MAX / 4, 80);
	spans_destroy(spans);
}
END_TEST

START_TEST(names_and_lanes_and_bytes_have_an_end)
{
	struct spans *spans = spans_create(BYTES_MAX);
	struct span_lane *lane = spans_lane(spans, agents[0], SLICE("api"));
	struct span_in *all = mem_array(1000, sizeof(*all));
	uint32_t other = 0;

	for (unsigned i = 0; i < SPANS_NAMES_MAX + 10; i++) {
		char text[16];

		(void)snprintf(text, sizeof(text), "name %u", i);
		other = spans_name(spans, TIME_TOOL, false, slice_of(text));
	}
	ck_assert_str_eq(spans->names[other].text, "other");
	ck_assert_uint_le(spans->name_count, SPANS_NAMES_MAX + 1);
	for (unsigned i = 1; i < SPANS_LANES_MAX; i++) {
		char text[16];

		(void)snprintf(text, sizeof(text), "lane %u", i);
		check(spans_lane(spans, agents[0], slice_of(text)), "no lane %u", i);
	}
	ck_assert_ptr_null(spans_lane(spans, agents[1], SLICE("one more")));
	for (unsigned i = 0; i < 1000; i++)
		all[i] = (struct span_in)CALL(0, 1, -1, other);
	for (unsigned i = 0; i < 200; i++) {
		char tag[16];

		(void)snprintf(tag, sizeof(tag), "%u", i);
		put(spans, lane, tag, i * 10, i * 10 + 5, all, 1000);
		ck_assert_uint_le(spans->bytes, BYTES_MAX);
	}
	ck_assert_int_gt(spans->from_ms, 0);
	ck_assert_int_le(spans->from_ms, lane->runs[0].t);
	/* The sums go on as if they began with what is left. */
	{
		uint64_t sums[SPAN_SUMS];

		spans_join(spans);
		span_lane_sums(lane, lane->runs[0].t, 100000, sums);
		ck_assert_uint_eq(sums[0] + sums[1] + sums[2], 0);
	}
	free(all);
	spans_destroy(spans);
}
END_TEST

/* ---- timeline ---- */

static uint64_t take(struct slice *from, size_t bytes)
{
	uint64_t value = 0;

	check(from->len >= bytes, "the answer is too short");
	for (size_t i = 0; i < bytes; i++)
		value |= (uint64_t)(uint8_t)from->ptr[i] << (8 * i);
	*from = slice_sub(*from, bytes, from->len);
	return value;
}

static void skip(struct slice *from, size_t bytes)
{
	check(from->len >= bytes, "the answer is too short");
	*from = slice_sub(*from, bytes, from->len);
}

static void check_column(const struct naive_lane *lane, int64_t from, int64_t to,
			 int64_t now, const uint8_t shares[4])
{
	uint64_t want[SPAN_SUMS + 1] = {0};
	const uint64_t whole = to > from ? (uint64_t)(to - from) : 1;

	for (int64_t ms = from; ms < to; ms++)
		want[naive_time(lane, ms, now)]++;
	if (from == to) /* shorter than the clock tells: what is there has it whole */
		want[naive_time(lane, from, now)]++;
	for (size_t i = 0; i < SPAN_SUMS; i++) {
		uint64_t of_255 = (want[i] * 255 + whole / 2) / whole;

		if (want[i] && !of_255)
			of_255 = 1;
		check(shares[i] == of_255, "%d–%d time %zu: %u, not %u", (int)from,
		      (int)to, i, shares[i], (unsigned)of_255);
	}
}

static void check_timeline(struct spans *spans, const struct naive_lane *lanes,
			   int64_t from, int64_t to, uint32_t width, int64_t now)
{
	const struct timeline_query query = {77, from, to, now, width, NULL, NULL, NULL};
	struct buf out = {.max = 1u << 20};
	uint32_t lane_count, strings;
	struct slice rest;

	timeline_write(spans, &query, &out);
	ck_assert(buf_ok(&out));
	rest = buf_slice(&out);
	ck_assert(slice_starts(rest, SLICE("PTL2")));
	rest = slice_sub(rest, 4, rest.len);
	ck_assert_uint_eq(take(&rest, 4), 77);
	ck_assert_int_eq((int64_t)take(&rest, 8), from);
	ck_assert_int_eq((int64_t)take(&rest, 8), to);
	skip(&rest, 16);
	ck_assert_uint_eq(take(&rest, 4), width);
	lane_count = (uint32_t)take(&rest, 4);
	for (uint32_t l = 0, at = 0; l < lane_count; l++, at++) {
		uint32_t stretches, records, column = 0;

		while (!spans->lanes[at]->count ||
		       span_lane_present(spans->lanes[at], from, to, now) <= 0)
			at++;
		skip(&rest, 12);
		stretches = (uint32_t)take(&rest, 4);
		records = (uint32_t)take(&rest, 4);
		ck_assert_uint_eq(take(&rest, 4), 0); /* nobody gave it values */
		while (stretches-- > 0) {
			uint32_t columns = (uint32_t)take(&rest, 2);
			uint8_t shares[4];

			check(columns, "an empty stretch");
			for (size_t i = 0; i < 4; i++)
				shares[i] = (uint8_t)take(&rest, 1);
			for (; columns > 0; columns--, column++)
				check_column(&lanes[at],
					     from + (to - from) * column / width,
					     from + (to - from) * (column + 1) / width,
					     now, shares);
		}
		ck_assert_uint_eq(column, width);
		for (; records > 0; records--) {
			const int64_t t = (int64_t)take(&rest, 8);
			const int64_t end = (int64_t)take(&rest, 8);

			ck_assert_int_lt(t, to);
			ck_assert_int_gt(end < 0 ? now : end, from);
			skip(&rest, 12);
		}
	}
	strings = (uint32_t)take(&rest, 4);
	for (; strings > 0; strings--) {
		const size_t len = (size_t)take(&rest, 2);

		rest = slice_sub(rest, len, rest.len);
	}
	ck_assert_uint_eq(rest.len, 0);
	buf_finish(&out);
}

START_TEST(every_column_is_what_counting_gives)
{
	struct naive_lane lanes[LANES];

	for (unsigned round = 1; round < 80; round++) {
		struct spans *spans = spans_create(BYTES_MAX);

		seed = round * 613;
		build(spans, lanes, END_MS + 20);
		for (unsigned i = 0; i < 6; i++) {
			const int64_t from = pick(END_MS) - 50;
			const int64_t to = from + 1 + pick(END_MS + 100);

			check_timeline(spans, lanes, from, to,
				       (uint32_t)pick(i % 2 ? 40 : 1000) + 1,
				       END_MS + 20);
		}
		spans_destroy(spans);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("spans");
	TCase *tests = tcase_create("spans");

	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, the_sums_are_those_of_every_millisecond);
	tcase_add_test(tests, a_report_of_any_range_is_what_counting_gives);
	tcase_add_test(tests, several_ranges_are_what_each_of_them_is);
	tcase_add_test(tests, self_is_without_parts_and_waits_and_trees_add_up);
	tcase_add_test(tests, live_figures_are_of_whole_calls_that_ended);
	tcase_add_test(tests, what_is_open_ends_now_and_a_newer_turn_ends_an_older_one);
	tcase_add_test(
		tests,
		what_is_open_of_an_agent_that_is_gone_ended_when_that_was_last_heard);
	tcase_add_test(tests, a_peers_times_are_set_right);
	tcase_add_test(tests, names_and_lanes_and_bytes_have_an_end);
	tcase_add_test(tests, every_column_is_what_counting_gives);
	suite_add_tcase(suite, tests);
	return test_run(suite);
}
