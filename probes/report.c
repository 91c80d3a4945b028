/* What the report and the timeline cost, from spans alone. Arms:
 *
 *   put              a turn of 20 calls takes its place behind all others
 *   flat             flat report of everything
 *   flat_second      of one second
 *   top_down         of everything
 *   bottom_up_second of one second
 *   timeline         columns and spans of everything
 *   timeline_double  the same of twice as many
 *
 * PERCH_PROBE_SPANS (1000000), PERCH_PROBE_LANES (50), PERCH_PROBE_WIDTH (1920),
 * PERCH_PROBE_CALLS (20 in a turn of ten seconds), PERCH_PROBE_RUNS (9);
 * PERCH_PROBE_ANSWERS, a folder that the two answers of the timeline are written into for
 * the page's probe. Fails unless the totals are those of what was put in. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observer/report.h"
#include "observer/timeline.h"
#include "probes/probe.h"

#define CALLS_MAX 40 /* of a turn */
#define TURN_MS 10000
#define PAUSE_MS 2000 /* between turns */
#define NAMES 40

struct probe {
	struct spans *spans, *twice;
	struct buf out;
	size_t lanes, turns, width, runs;
	size_t calls;    /* of a turn */
	int64_t step_ms; /* from one call to the next: four parts call, or one part wait
			  */
	int64_t end;     /* of the last turn of @spans */
	uint32_t names[NAMES];
	int64_t times_ns[PROBE_RUNS_MAX];
};

static void put_turn(struct probe *probe, struct spans *spans, size_t lane, size_t turn)
{
	const int64_t t = (int64_t)turn * (TURN_MS + PAUSE_MS);
	struct span_in calls[CALLS_MAX];
	char channel[16], tag[24];
	struct run_in run = {.t = t,
			     .end = t + TURN_MS,
			     .is_turn = true,
			     .title = SLICE("Split the router out of server.c"),
			     .row = SLICE("prompt:1"),
			     .spans = calls,
			     .count = probe->calls};
	const uint8_t agent[KEY_BYTES] = {(uint8_t)(lane >> 8), (uint8_t)lane};

	(void)snprintf(channel, sizeof(channel), "c%zu", lane);
	(void)snprintf(tag, sizeof(tag), "t%zu", turn);
	run.tag = slice_of(tag);
	for (size_t i = 0; i < probe->calls; i++) {
		const bool is_wait = i % 10 == 9; /* before the call that follows it */
		const int64_t start = t + (int64_t)i * probe->step_ms;

		calls[i] = (struct span_in){
			.t = start,
			.end = start + probe->step_ms * (is_wait ? 1 : 4) / 5,
			.kind = is_wait ? SPAN_WAIT : SPAN_TOOL,
			.parent = -1,
			.name = is_wait ? (uint32_t)NAME_YOU
					: probe->names[(turn * 7 + i) % NAMES],
			.row = SLICE("tool:6a0000010000000a:turn:call"),
		};
	}
	spans_put(spans, spans_lane(spans, agent, slice_of(channel)), &run);
}

static struct spans *fill(struct probe *probe, size_t turns)
{
	struct spans *spans = spans_create((size_t)4 << 30);

	for (size_t i = 0; i < NAMES; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "make %zu", i);
		probe->names[i] = spans_name(spans, TIME_TOOL, true, slice_of(name));
	}
	for (size_t lane = 0; lane < probe->lanes; lane++)
		for (size_t turn = 0; turn < turns; turn++)
			put_turn(probe, spans, lane, turn);
	return spans;
}

static void report(struct probe *probe, enum report_view view, int64_t from, int64_t to)
{
	const struct report_query query = {
		.view = view, .from = from, .to = to, .now = probe->end};

	buf_clear(&probe->out);
	report_write(probe->spans, &query, &probe->out);
}

static void timeline(struct probe *probe, struct spans *spans, int64_t to)
{
	const struct timeline_query query = {1,    0,    to,  to, (uint32_t)probe->width,
					     NULL, NULL, NULL};

	buf_clear(&probe->out);
	timeline_write(spans, &query, &probe->out);
}

static void expect(struct probe *probe, const char *member, int64_t value)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "\"%s\":%" PRId64 ",", member, value);
	if (slice_find_slice(buf_slice(&probe->out), slice_of(text)) == probe->out.len)
		probe_fail("the report is not of what was put in");
}

static void check(struct probe *probe)
{
	const int64_t turns = (int64_t)(probe->turns * probe->lanes);
	const int64_t waits = (int64_t)probe->calls / 10;
	const int64_t calls = (int64_t)probe->calls - waits;
	const int64_t tool_ms = calls * (probe->step_ms * 4 / 5);
	const int64_t you_ms = waits * (probe->step_ms / 5);

	report(probe, REPORT_FLAT, 0, probe->end);
	expect(probe, "tool", turns * tool_ms);
	expect(probe, "you", turns * you_ms);
	expect(probe, "model", turns * (TURN_MS - tool_ms - you_ms));
}

enum arm {
	PUT,
	FLAT,
	FLAT_SECOND,
	TOP_DOWN,
	BOTTOM_UP_SECOND,
	TIMELINE,
	TIMELINE_DOUBLE,
	ARMS
};
static const char *const arm_names[ARMS] = {
	"put",      "flat",           "flat_second", "top_down", "bottom_up_second",
	"timeline", "timeline_double"};

static int64_t run_arm(struct probe *probe, enum arm arm, size_t round)
{
	const int64_t middle = probe->end / 2;
	const int64_t start = probe_clock_ns();

	switch (arm) {
	case PUT:
		put_turn(probe, probe->spans, round % probe->lanes, probe->turns - 1);
		break;
	case FLAT:
		report(probe, REPORT_FLAT, 0, probe->end);
		break;
	case FLAT_SECOND:
		report(probe, REPORT_FLAT, middle, middle + 1000);
		break;
	case TOP_DOWN:
		report(probe, REPORT_TOP_DOWN, 0, probe->end);
		break;
	case BOTTOM_UP_SECOND:
		report(probe, REPORT_BOTTOM_UP, middle, middle + 1000);
		break;
	case TIMELINE:
		timeline(probe, probe->spans, probe->end);
		break;
	case TIMELINE_DOUBLE:
		timeline(probe, probe->twice, 2 * probe->end);
		break;
	case ARMS:
		break;
	}
	return probe_clock_ns() - start;
}

/* What the last timeline() answered, as @name in @folder. */
static void keep_answer(const struct probe *probe, const char *folder, const char *name)
{
	char path[4096];
	FILE *file;

	if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
		probe_fail("PERCH_PROBE_ANSWERS is too long");
	file = fopen(path, "we");
	if (!file || fwrite(probe->out.ptr, 1, probe->out.len, file) != probe->out.len ||
	    fclose(file) != 0)
		probe_fail("cannot write into PERCH_PROBE_ANSWERS");
}

static void keep_answers(struct probe *probe)
{
	const char *folder = getenv("PERCH_PROBE_ANSWERS");

	if (!folder)
		return;
	timeline(probe, probe->spans, probe->end);
	keep_answer(probe, folder, "timeline");
	timeline(probe, probe->twice, 2 * probe->end);
	keep_answer(probe, folder, "timeline_double");
}

int main(void)
{
	static struct probe probe;
	static int64_t times_ns[ARMS][PROBE_RUNS_MAX];
	const size_t spans = probe_setting("PERCH_PROBE_SPANS", 1000000, 1000, 4000000);

	probe.lanes = probe_setting("PERCH_PROBE_LANES", 50, 1, 4200);
	probe.width = probe_setting("PERCH_PROBE_WIDTH", 1920, 1, TIMELINE_WIDTH_MAX);
	probe.runs = probe_setting("PERCH_PROBE_RUNS", 9, 1, PROBE_RUNS_MAX);
	probe.calls = probe_setting("PERCH_PROBE_CALLS", 20, 10, CALLS_MAX);
	if (TURN_MS % (5 * probe.calls))
		probe_fail("PERCH_PROBE_CALLS takes a divisor of 2000");
	probe.step_ms = TURN_MS / (int64_t)probe.calls;
	probe.turns = spans / probe.calls / probe.lanes;
	if (!probe.turns)
		probe.turns = 1;
	probe.end = (int64_t)probe.turns * (TURN_MS + PAUSE_MS) - PAUSE_MS;
	probe.out.max = (size_t)1 << 30;
	probe.spans = fill(&probe, probe.turns);
	probe.twice = fill(&probe, probe.turns * 2);
	check(&probe);
	keep_answers(&probe);
	for (size_t round = 0; round < probe.runs; round++)
		for (size_t turn = 0; turn < ARMS; turn++) {
			const enum arm arm = (enum arm)probe_turn(round, turn, ARMS);

			times_ns[arm][round] = run_arm(&probe, arm, round);
		}
	for (enum arm arm = 0; arm < ARMS; arm++)
		probe_print(arm_names[arm], times_ns[arm], probe.runs, "ns",
			    ",\"spans\":%zu,\"lanes\":%zu",
			    probe.turns * probe.lanes * probe.calls, probe.lanes);
	probe_note("ratios",
		   ",\"timeline_double_to_timeline\":%.3f,\"bytes_per_span\":%.1f",
		   (double)probe_quantile(times_ns[TIMELINE_DOUBLE], probe.runs, 50) /
			   (double)probe_quantile(times_ns[TIMELINE], probe.runs, 50),
		   (double)probe.spans->bytes /
			   (double)(probe.turns * probe.lanes * probe.calls));
	spans_destroy(probe.spans);
	spans_destroy(probe.twice);
	buf_finish(&probe.out);
	return EXIT_SUCCESS;
}
