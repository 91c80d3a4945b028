#include "observer/fold_run.h"

#include <stdlib.h>

#include "observer/tool.h"
#include "wire/base/mem.h"

#define TITLE_BYTES 120

struct timing {
	struct spans *spans;
	struct span_in *all;
	size_t count;
	struct map calls; /* tool call id → index + 1 */
	struct buf name;
};

static bool is_timed(const struct row *row)
{
	return row->tool || (row->permission && row->time == TIME_YOU);
}

static int64_t parent_of(const struct timing *timing, const struct buf *call)
{
	if (!call->len)
		return -1;
	return (int64_t)(intptr_t)map_get(&timing->calls, buf_slice(call)) - 1;
}

static unsigned flags_of(const struct tool *tool)
{
	if (tool->status == TOOL_FAILED || (tool->has_exit && tool->exit_code))
		return SPAN_FAILED;
	return tool->status == TOOL_CANCELLED ? SPAN_CANCELLED : 0;
}

static void add_row(struct timing *timing, const struct row *row)
{
	const struct tool *tool = row->tool ? row->tool : &row->permission->tool;
	struct span_in *span = &timing->all[timing->count++];
	bool is_command;

	*span = (struct span_in){.t = row->t,
				 .end = row->end < 0 ? SPANS_OPEN : row->end,
				 .kind = row->tool ? SPAN_TOOL : SPAN_WAIT,
				 .name = NAME_YOU,
				 .row = buf_slice(&row->id)};
	if (!row->tool) {
		span->parent = parent_of(timing, &tool->call);
		if (row->permission->state == PERMISSION_ALLOWED)
			span->flags = SPAN_ALLOWED;
		return;
	}
	tool_name(tool, &timing->name, &is_command);
	span->name = spans_name(timing->spans, TIME_TOOL, is_command,
				buf_slice(&timing->name));
	span->parent = parent_of(timing, &tool->parent);
	span->flags = flags_of(tool);
	(void)map_put(&timing->calls, buf_slice(&tool->call),
		      (void *)(intptr_t)timing->count);
}

int64_t fold_newest_ms(const struct fold *fold)
{
	int64_t newest = 0;

	for (size_t i = 0; i < fold->row_count; i++) {
		const struct row *row = fold->rows[i];
		const int64_t at = row->end > row->t ? row->end : row->t;

		newest = at > newest ? at : newest;
	}
	return newest;
}

static void set_turn(const struct fold_run *from, struct run_in *run)
{
	const struct fold *fold = from->fold;
	const struct turn_facts *turn = &fold->turn;

	run->is_turn = true;
	run->t = turn->started ? turn->started_ms : fold->rows[0]->t;
	run->end = turn->ended ? turn->ended_ms : fold_newest_ms(fold);
	if (from->goes_on)
		run->end = SPANS_OPEN;
	if (turn->state == TURN_FAILED)
		run->flags = SPAN_FAILED;
	else if (turn->state == TURN_CANCELLED)
		run->flags = SPAN_CANCELLED;
	run->row = buf_slice(&fold->rows[0]->id);
	for (size_t i = 0; i < fold->row_count && !run->title.len; i++) {
		const struct slice text = buf_slice(&fold->rows[i]->text);

		if (fold->rows[i]->type == ROW_PROMPT)
			run->title = slice_sub(text, 0, utf8_floor(text, TITLE_BYTES));
	}
}

/* Of what belongs to no turn only the calls themselves took time. */
static void set_stretch(const struct timing *timing, struct run_in *run)
{
	run->t = run->end = timing->all[0].t;
	for (size_t i = 0; i < timing->count; i++) {
		const struct span_in *span = &timing->all[i];

		run->t = span->t < run->t ? span->t : run->t;
		run->end = span->end > run->end ? span->end : run->end;
	}
}

void fold_run_put(struct spans *spans, const uint8_t agent[KEY_BYTES],
		  const struct fold_run *from)
{
	const struct fold *fold = from->fold;
	struct timing timing = {.spans = spans};
	struct run_in run = {.tag = from->tag};
	struct span_lane *lane;

	timing.all = mem_array(fold->row_count + 1, sizeof(*timing.all));
	map_init(&timing.calls);
	for (size_t i = 0; i < fold->row_count; i++) {
		const struct row *row = fold->rows[i];

		if (is_timed(row) &&
		    (!from->from_ms || row->end < 0 || row->end > from->from_ms))
			add_row(&timing, row);
	}
	if ((from->is_turn && fold->row_count) || timing.count) {
		if (from->is_turn)
			set_turn(from, &run);
		else
			set_stretch(&timing, &run);
		run.t = from->from_ms ? from->from_ms : run.t;
		run.end = from->until_ms ? from->until_ms : run.end;
		run.spans = timing.all;
		run.count = timing.count;
		lane = spans_lane(spans, agent, from->channel);
		if (lane)
			spans_put(spans, lane, &run);
	}
	map_finish(&timing.calls);
	buf_finish(&timing.name);
	free(timing.all);
}

bool fold_run_known(struct spans *spans, const uint8_t agent[KEY_BYTES],
		    const struct fold_run *run)
{
	const struct span_lane *lane = spans_lane(spans, agent, run->channel);

	return lane && map_get(&lane->tags, run->tag);
}
