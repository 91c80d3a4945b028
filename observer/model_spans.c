#include <stdlib.h>
#include <string.h>

#include "observer/fold_run.h"
#include "observer/model_part.h"
#include "observer/spans.h"
#include "wire/base/mem.h"

/* What the model tells the spans. */

void model_set_spans(struct model *model, struct spans *spans)
{
	model->spans = spans;
}

static bool still_runs(const struct segment *segment)
{
	return segment->lane && segment->lane->current == segment &&
	       !segment->fold->turn.ended && !segment->ended &&
	       (!segment->fold->turn.started || lane_runs(segment->lane));
}

void segment_time(struct model *model, struct segment *segment, bool is_cut)
{
	struct buf tag = {.max = segment->tag.len + 16};
	struct fold_run run = {.fold = segment->fold,
			       .is_turn = segment->has_turn,
			       .goes_on = still_runs(segment),
			       .from_ms = segment->cut_ms};

	if (!model->spans || !segment->lane || (!segment->untimed && !is_cut))
		return;
	segment->untimed = false;
	(void)buf_append(&tag, buf_slice(&segment->tag));
	if (segment->cuts)
		(void)buf_printf(&tag, "#%u", segment->cuts);
	if (is_cut) {
		segment->cut_ms = run.until_ms = fold_newest_ms(segment->fold);
		segment->cuts++;
	}
	run.channel = buf_slice(&segment->lane->channel);
	run.tag = buf_slice(&tag);
	fold_run_put(model->spans, segment->agent->key, &run);
	buf_finish(&tag);
}

static void forget_lane_times(struct spans *spans, struct span_lane *lane,
			      int64_t before_ms)
{
	char **tags = mem_array(lane->count + 1, sizeof(*tags));
	struct run_in *runs = mem_array(lane->count + 1, sizeof(*runs));
	size_t count = 0;

	for (size_t i = 0; i < lane->count; i++) {
		const struct run *run = lane->runs[i].run;

		if (run->t >= before_ms || run->end == SPANS_OPEN)
			continue;
		tags[count] = mem_dup(slice_of(run->text + run->tag));
		runs[count] = (struct run_in){.tag = slice_of(tags[count]),
					      .t = run->t,
					      .end = run->t,
					      .title = SLICE(""),
					      .row = SLICE("")};
		count++;
	}
	for (size_t i = 0; i < count; i++) {
		spans_put(spans, lane, &runs[i]);
		free(tags[i]);
	}
	free(tags);
	free(runs);
}

void forget_times(struct model *model, const uint8_t *agent, struct slice channel,
		  int64_t before_ms)
{
	struct spans *spans = model->spans;

	for (size_t i = 0; spans && i < spans->lane_count; i++) {
		struct span_lane *lane = spans->lanes[i];

		if (memcmp(lane->agent, agent, KEY_BYTES) == 0 &&
		    (!channel.ptr ||
		     slice_eq(channel, slice_of(lane->id + 2 * KEY_BYTES + 1))))
			forget_lane_times(spans, lane, before_ms);
	}
}

static void agent_time(struct model *model, struct agent *agent, int64_t now_ms)
{
	const struct map_entry *entry = NULL;

	while ((entry = map_next(&agent->segments, entry)) != NULL)
		segment_time(model, entry->value, false);
	while ((entry = map_next(&agent->lanes, entry)) != NULL) {
		const struct lane *at = entry->value;
		struct span_lane *lane = NULL;

		if (at->spoke)
			lane = spans_lane(model->spans, agent->key,
					  buf_slice(&at->channel));
		if (!lane)
			continue;
		lane->alive_ms = agent->online ? now_ms : at->last_ms;
		span_lane_open(model->spans, lane,
			       agent->online ? SPANS_OPEN : agent_now(agent, now_ms));
	}
}

void model_write_spans(struct model *model, int64_t now_ms)
{
	const struct map_entry *at = NULL;

	while (model->spans && (at = map_next(&model->agents, at)) != NULL)
		agent_time(model, at->value, now_ms);
}
