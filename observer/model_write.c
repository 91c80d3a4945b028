#include "observer/model_write.h"

#include <stdlib.h>

static void write_dirty_rows(void *ctx, struct segment *segment)
{
	struct buf *out = ctx;

	for (size_t i = 0; i < segment->fold->row_count; i++) {
		struct row *row = segment->fold->rows[i];
		const size_t before = out->len;
		uint64_t hash;

		if (!row->dirty)
			continue;
		row->dirty = false;
		if (!row->channel.len) /* in no lane, so on no page */
			continue;
		write_row(segment, row, out);
		/* The comma before it is not the row's. */
		hash = slice_hash(slice_sub(buf_slice(out),
					    before + (out->ptr[before] == ','), out->len),
				  0);
		if (hash == row->hash)
			buf_truncate(out, before);
		row->hash = hash;
	}
	segment->dirty = false;
}

static void open_list(struct buf *out, const char *key)
{
	(void)json_write_key(out, slice_of(key));
	(void)buf_lit(out, "[");
}

/* Closes a list, or takes it back when nothing was put in. */
static void close_list(struct buf *out, size_t before)
{
	if (out->ptr[out->len - 1] == '[')
		buf_truncate(out, before);
	else
		(void)buf_lit(out, "]");
}

bool model_changed(const struct model *model)
{
	return model->dirty;
}

/* ---- what is to be seen at once ---- */

static void find_dirty_row(void *ctx, struct segment *segment)
{
	bool *found = ctx;

	for (size_t i = 0; segment->dirty && !*found && i < segment->fold->row_count; i++)
		*found = segment->fold->rows[i]->dirty;
}

/* It is in the middle of something: pages show each stroke of it. */
static bool lane_does(const struct lane *lane, int64_t now_ms)
{
	return lane->activity_at == now_ms / ACTIVITY_BUCKET_MS &&
	       lane->activity[lane->activity_at % ACTIVITY_BUCKETS] > 1;
}

static bool lane_is_news(const struct model *model, const struct lane *lane,
			 int64_t now_ms, struct buf *scratch)
{
	if (!lane->dirty || (!lane_is_shown(lane) && !lane->is_told))
		return false;
	buf_clear(scratch);
	return !lane_is_shown(lane) || lane_does(lane, now_ms) ||
	       write_lane(model, lane, now_ms, scratch) != lane->said;
}

static bool agent_is_news(const struct model *model, const struct agent *agent,
			  int64_t now_ms, struct buf *scratch)
{
	const struct map_entry *entry = NULL;

	buf_clear(scratch);
	if (agent->gaps_dirty || agent_is_shown(agent) != agent->is_told ||
	    (agent->dirty && agent->is_told &&
	     write_agent(agent, scratch) != agent->said))
		return true;
	while ((entry = map_next(&agent->lanes, entry)) != NULL)
		if (lane_is_news(model, entry->value, now_ms, scratch))
			return true;
	return false;
}

static bool cards_are_news(const struct model *model)
{
	const struct map_entry *entry = NULL;

	while ((entry = map_next(&model->cards, entry)) != NULL)
		if (((const struct card *)entry->value)->dirty)
			return true;
	for (size_t i = 0; i < model->control_count; i++)
		if (model->controls[i]->dirty)
			return true;
	return false;
}

bool model_has_news(struct model *model, int64_t now_ms)
{
	const struct map_entry *at = NULL;
	struct buf scratch = {.max = MODEL_BYTES_MAX};
	bool found = model->dirty && (model->removed_count || model->gone_cards.len ||
				      model->gone_lanes.len || model->gone_agents.len ||
				      cards_are_news(model));

	if (model->dirty && !found)
		segments_changed(model, find_dirty_row, &found);
	while (model->dirty && !found && (at = map_next(&model->agents, at)) != NULL)
		found = agent_is_news(model, at->value, now_ms, &scratch);
	buf_finish(&scratch);
	return found;
}

static void name_gone(struct buf *out, struct slice id)
{
	if (out->len)
		(void)buf_lit(out, ",");
	(void)json_write_string(out, id);
}

/* What pages know and need not: named once. @is_told: they know it. */
static void note_agent(struct model *model, struct agent *agent)
{
	if (agent->is_told && !agent_is_shown(agent))
		name_gone(&model->gone_agents, slice_of(agent->hex));
	agent->is_told = agent_is_shown(agent);
}

static void note_lane(struct model *model, struct lane *lane)
{
	if (lane->is_told && !lane_is_shown(lane)) {
		struct buf id = {.max = 2 * KEY_BYTES + lane->channel.len + 2};

		(void)buf_printf(&id, "%s/", lane->agent->hex);
		(void)buf_append(&id, buf_slice(&lane->channel));
		name_gone(&model->gone_lanes, buf_slice(&id));
		buf_finish(&id);
	}
	lane->is_told = lane_is_shown(lane);
}

/* Walks everything once for each list; @all: not only what changed. */
static void write_agents(struct model *model, bool all, struct buf *out)
{
	const size_t before = out->len;
	struct map_entry *entry = NULL;

	open_list(out, "agents");
	while ((entry = map_next(&model->agents, entry)) != NULL) {
		struct agent *agent = entry->value;

		if ((all || agent->dirty) && agent_is_shown(agent)) {
			const uint64_t hash = write_agent(agent, out);

			/* Of what one page gets others know nothing. */
			agent->said = all ? agent->said : hash;
			agent->is_told = true;
		}
		if (all)
			continue;
		note_agent(model, agent);
		agent->dirty = false;
	}
	if (all)
		(void)buf_lit(out, "]");
	else
		close_list(out, before);
}

static void write_lanes(struct model *model, bool all, int64_t now_ms, struct buf *out)
{
	const size_t before = out->len;
	const struct map_entry *at = NULL;

	open_list(out, "lanes");
	while ((at = map_next(&model->agents, at)) != NULL) {
		struct agent *agent = at->value;
		struct map_entry *entry = NULL;

		while ((entry = map_next(&agent->lanes, entry)) != NULL) {
			struct lane *lane = entry->value;

			if ((all || lane->dirty) && lane_is_shown(lane)) {
				const uint64_t hash =
					write_lane(model, lane, now_ms, out);

				lane->said = all ? lane->said : hash;
				lane->is_told = true;
			}
			if (all)
				continue;
			if (lane->dirty)
				note_lane(model, lane);
			lane->dirty = false;
		}
	}
	if (all)
		(void)buf_lit(out, "]");
	else
		close_list(out, before);
}

static void write_cards(struct model *model, bool all, struct buf *out)
{
	const size_t before = out->len;
	struct map_entry *entry = NULL;

	open_list(out, "cards");
	while ((entry = map_next(&model->cards, entry)) != NULL) {
		struct card *card = entry->value;

		if (all || card->dirty)
			write_card(card, out);
		if (!all)
			card->dirty = false;
	}
	if (all)
		(void)buf_lit(out, "]");
	else
		close_list(out, before);
}

static void write_controls(struct model *model, bool all, struct buf *out)
{
	const size_t before = out->len;

	open_list(out, "controls");
	for (size_t i = 0; i < model->control_count; i++) {
		struct owner_control *control = model->controls[i];

		if (all || control->dirty)
			write_control(control, out);
		if (!all)
			control->dirty = false;
	}
	if (all)
		(void)buf_lit(out, "]");
	else
		close_list(out, before);
}

static void write_gap_rows(struct agent *agent, struct buf *out)
{
	const struct map_entry *entry = NULL;

	while ((entry = map_next(&agent->lanes, entry)) != NULL) {
		const struct lane *lane = entry->value;

		for (size_t i = 0; i < agent->gap_count; i++)
			write_gap(agent, buf_slice(&lane->channel), &agent->gaps[i], out);
	}
}

static void write_rows(struct model *model, struct buf *out)
{
	const size_t before = out->len;
	const struct map_entry *at = NULL;

	open_list(out, "rows");
	segments_changed(model, write_dirty_rows, out);
	while ((at = map_next(&model->agents, at)) != NULL) {
		struct agent *agent = at->value;

		if (agent->gaps_dirty)
			write_gap_rows(agent, out);
		agent->gaps_dirty = false;
	}
	close_list(out, before);
}

static void write_gone(const char *key, const struct buf *ids, struct buf *out)
{
	if (!ids->len)
		return;
	open_list(out, key);
	(void)buf_append(out, buf_slice(ids));
	(void)buf_lit(out, "]");
}

static void write_removed(struct model *model, struct buf *out)
{
	if (model->removed_count) {
		open_list(out, "removedRows");
		for (size_t i = 0; i < model->removed_count; i++) {
			open_object(out);
			member(out, "lane", slice_of(model->removed[i].lane));
			member(out, "id", slice_of(model->removed[i].id));
			(void)buf_lit(out, "}");
		}
		(void)buf_lit(out, "]");
	}
	write_gone("removedCards", &model->gone_cards, out);
	write_gone("removedLanes", &model->gone_lanes, out);
	write_gone("removedAgents", &model->gone_agents, out);
}

static void forget_removed(struct model *model)
{
	for (size_t i = 0; i < model->removed_count; i++) {
		free(model->removed[i].lane);
		free(model->removed[i].id);
	}
	model->removed_count = 0;
	buf_clear(&model->gone_cards);
	buf_clear(&model->gone_lanes);
	buf_clear(&model->gone_agents);
	model->dirty = false;
}

void model_write_changes(struct model *model, int64_t now_ms, struct buf *out)
{
	write_agents(model, false, out);
	write_lanes(model, false, now_ms, out);
	write_cards(model, false, out);
	write_controls(model, false, out);
	write_removed(model, out);
	write_rows(model, out);
	forget_removed(model);
}

static void drop_dirty_rows(void *ctx, struct segment *segment)
{
	(void)ctx;
	for (size_t i = 0; segment->dirty && i < segment->fold->row_count; i++)
		segment->fold->rows[i]->dirty = false;
	segment->dirty = false;
}

void model_drop_changes(struct model *model)
{
	struct map_entry *at = NULL;

	segments_changed(model, drop_dirty_rows, NULL);
	while ((at = map_next(&model->agents, at)) != NULL) {
		struct agent *agent = at->value;
		struct map_entry *entry = NULL;

		agent->dirty = agent->gaps_dirty = false;
		agent->is_told = agent_is_shown(agent);
		while ((entry = map_next(&agent->lanes, entry)) != NULL) {
			struct lane *lane = entry->value;

			lane->dirty = false;
			lane->is_told = lane_is_shown(lane);
		}
	}
	at = NULL;
	while ((at = map_next(&model->cards, at)) != NULL)
		((struct card *)at->value)->dirty = false;
	for (size_t i = 0; i < model->control_count; i++)
		model->controls[i]->dirty = false;
	forget_removed(model);
}

void model_write_snapshot(struct model *model, int64_t now_ms, struct buf *out)
{
	write_agents(model, true, out);
	write_lanes(model, true, now_ms, out);
	write_cards(model, true, out);
	write_controls(model, true, out);
}

static const char *worst_gap(const struct agent *agent)
{
	enum gap_state worst = GAP_GONE;

	for (size_t i = 0; i < agent->gap_count; i++)
		if (agent->gaps[i].state < worst)
			worst = agent->gaps[i].state;
	return gap_state_name(worst);
}

/* Of every agent that is there and numbers its frames; where none is, of the one that was
 * there last. 0: one of them claims nothing, so neither do we. */
static int64_t all_complete_ms(const struct model *model)
{
	const struct map_entry *at = NULL;
	int64_t online = INT64_MAX, away = 0;

	while ((at = map_next(&model->agents, at)) != NULL) {
		const struct agent *agent = at->value;

		if (is_foreign(agent))
			continue;
		if (agent->online && agent->complete_ms < online)
			online = agent->complete_ms;
		if (!agent->online && agent->complete_ms > away)
			away = agent->complete_ms;
	}
	return online < INT64_MAX ? online : away;
}

void model_write_figures(const struct model *model, struct buf *out)
{
	const struct map_entry *at = NULL;
	const char *comma = "";

	(void)buf_printf(out, "\"rowBytes\":%zu,\"harnesses\":[", model->bytes);
	while ((at = map_next(&model->agents, at)) != NULL) {
		const struct agent *agent = at->value;

		if (!agent->facts.figures.len)
			continue;
		(void)buf_printf(out, "%s{\"agent\":\"%s\"", comma, agent->hex);
		json_write_member_int(out, SLICE("atMs"), agent->facts.figures_ms);
		json_write_member_int(out, SLICE("replayed"), (int64_t)agent->replayed);
		json_write_member_raw(out, SLICE("figures"),
				      buf_slice(&agent->facts.figures));
		(void)buf_lit(out, "}");
		comma = ",";
	}
	(void)buf_lit(out, "]");
}

uint64_t model_write_health(const struct model *model, struct buf *out)
{
	const int64_t complete_ms = all_complete_ms(model);
	const struct map_entry *at = NULL;
	const size_t begun = out->len;
	int64_t newest = 0;
	uint64_t gone = 0, hash;

	while ((at = map_next(&model->agents, at)) != NULL) {
		const struct agent *agent = at->value;

		if (agent->seen_ms > newest)
			newest = agent->seen_ms;
		gone += agent->gone;
	}
	json_write_member_int(out, SLICE("gone"), (int64_t)gone);
	open_list(out, "missing");
	at = NULL;
	while ((at = map_next(&model->agents, at)) != NULL) {
		const struct agent *agent = at->value;

		if (!agent->missing)
			continue;
		open_object(out);
		member(out, "agent", slice_of(agent->hex));
		json_write_member_int(out, SLICE("frames"), (int64_t)agent->missing);
		member(out, "state", slice_of(worst_gap(agent)));
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
	hash = slice_hash(slice_sub(buf_slice(out), begun, out->len),
			  (newest > 0 ? 1u : 0u) + (complete_ms > 0 ? 2u : 0u));
	member_ms(out, "frameAtMs", newest);
	member_ms(out, "completeMs", complete_ms);
	return hash;
}
