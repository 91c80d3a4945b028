#include "observer/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "observer/acp.h"
#include "observer/model_part.h"
#include "wire/base/clock.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip19.h"

/* ---- making and ending ---- */

struct model *model_create(void)
{
	struct model *model = mem_alloc(sizeof(*model));

	map_init(&model->agents);
	map_init(&model->cards);
	model->changed = (struct changed){&model->changed, &model->changed};
	model->gone_cards.max = 1u << 20;
	model->gone_lanes.max = model->gone_agents.max = 64u << 20;
	values_init(&model->values);
	return model;
}

/* ---- what changed ---- */

static void segment_touch(struct model *model, struct segment *segment)
{
	struct changed *head = &model->changed, *at = &segment->changed;

	segment->dirty = true;
	if (at->behind)
		return;
	*at = (struct changed){.before = head->before, .behind = head};
	at->before->behind = head->before = at;
}

static void segment_leave(struct segment *segment)
{
	struct changed *at = &segment->changed;

	if (!at->behind)
		return;
	at->before->behind = at->behind;
	at->behind->before = at->before;
	*at = (struct changed){0};
}

void segments_changed(struct model *model,
		      void (*each)(void *ctx, struct segment *segment), void *ctx)
{
	struct changed *at = model->changed.behind;

	while (at != &model->changed) {
		struct segment *segment = (struct segment *)at;

		at = at->behind;
		each(ctx, segment);
		if (!segment->dirty && !segment->late)
			segment_leave(segment);
	}
}

/* ---- made and gone ---- */

static void segment_destroy(struct segment *segment)
{
	segment_leave(segment);
	fold_destroy(segment->fold);
	for (size_t i = 0; i < segment->count; i++)
		free(segment->events[i].text);
	free(segment->events);
	buf_finish(&segment->turn);
	buf_finish(&segment->tag);
	free(segment);
}

static void lane_destroy(struct lane *lane)
{
	buf_finish(&lane->channel);
	buf_finish(&lane->name);
	lane_facts_finish(&lane->facts);
	free(lane);
}

static void agent_destroy(struct agent *agent)
{
	struct map_entry *entry = NULL;

	while ((entry = map_next(&agent->segments, entry)) != NULL)
		segment_destroy(entry->value);
	entry = NULL;
	while ((entry = map_next(&agent->lanes, entry)) != NULL)
		lane_destroy(entry->value);
	map_finish(&agent->segments);
	map_finish(&agent->lanes);
	agent_facts_finish(&agent->facts);
	free(agent->gaps);
	free(agent);
}

void model_destroy(struct model *model)
{
	struct map_entry *entry = NULL;

	if (!model)
		return;
	model_drop_changes(model);
	while ((entry = map_next(&model->cards, entry)) != NULL)
		card_destroy(entry->value);
	entry = NULL;
	while ((entry = map_next(&model->agents, entry)) != NULL)
		agent_destroy(entry->value);
	for (size_t i = 0; i < model->control_count; i++)
		control_destroy(model->controls[i]);
	free(model->removed);
	buf_finish(&model->gone_cards);
	buf_finish(&model->gone_lanes);
	buf_finish(&model->gone_agents);
	values_finish(&model->values);
	map_finish(&model->cards);
	map_finish(&model->agents);
	free(model);
}

void text_copy(struct buf *out, struct slice text)
{
	buf_clear(out);
	out->max = text.len + 1;
	(void)buf_append(out, text);
}

static struct slice key_slice(const uint8_t *key)
{
	return (struct slice){(const char *)key, KEY_BYTES};
}

/* NULL when there are too many. */
struct agent *agent_ensure(struct model *model, const uint8_t *key)
{
	struct agent *agent = map_get(&model->agents, key_slice(key));

	if (agent || model->agents.count >= MODEL_AGENTS_MAX)
		return agent;
	agent = mem_alloc(sizeof(*agent));
	memcpy(agent->key, key, KEY_BYTES);
	hex_encode(key, KEY_BYTES, agent->hex);
	map_init(&agent->lanes);
	map_init(&agent->segments);
	agent->dirty = model->dirty = true;
	(void)map_put(&model->agents, key_slice(key), agent);
	return agent;
}

static void lane_name(struct lane *lane)
{
	struct slice rest = buf_slice(&lane->agent->facts.channels), item;

	while (acp_next(&rest, &item)) {
		const struct slice name = acp_get_string(item, "name");

		if (name.ptr &&
		    json_is(acp_get_string(item, "id"), buf_slice(&lane->channel)))
			acp_set_text(&lane->name, name, ROW_SHORT_MAX);
	}
}

struct lane *lane_ensure(struct model *model, struct agent *agent, struct slice channel)
{
	struct lane *lane = map_get(&agent->lanes, channel);

	if (lane || !channel.len || agent->lanes.count >= MODEL_LANES_MAX)
		return lane;
	lane = mem_alloc(sizeof(*lane));
	lane->agent = agent;
	text_copy(&lane->channel, channel);
	lane_facts_init(&lane->facts);
	lane_name(lane);
	lane->values = values_of(model, lane);
	lane->told = (struct value_told){-1, -1};
	lane->dirty = model->dirty = true;
	(void)map_put(&agent->lanes, channel, lane);
	return lane;
}

/* ---- where an event belongs ---- */

bool model_place(const char *epoch, const struct observer_event *event, struct pos *pos,
		 int64_t *unix_ms)
{
	struct buf text = {0};
	bool timed;

	acp_set_text(&text, event->timestamp, CLOCK_RFC3339_LEN * 2);
	timed = clock_parse(buf_slice(&text), unix_ms) && *unix_ms >= 0;
	buf_finish(&text);
	if (!timed)
		*unix_ms = 0;
	pos->seq = event->seq;
	if (*epoch)
		memcpy(pos->epoch, epoch, sizeof(pos->epoch));
	else
		pos_foreign_epoch(*unix_ms, pos->epoch);
	return timed || *epoch;
}

void model_segment_tag(const char *epoch, const struct pos *pos, struct slice channel,
		       struct slice turn, struct buf *out)
{
	out->max = out->len + turn.len + 64;
	(void)buf_printf(out, "%s:", epoch);
	if (turn.ptr)
		(void)buf_append(out, turn);
	else if (*epoch && channel.len)
		(void)buf_printf(out, ":%" PRIu64, pos->seq / MODEL_STRETCH);
	else if (!*epoch)
		(void)buf_printf(out, ":%" PRIu64,
				 (uint64_t)strtoull(pos->epoch, NULL, 16) /
					 MODEL_STRETCH_MS);
	/* The agent's own events stay together: the later ones need to know the first. */
}

/* The name of a segment among those of its agent. Appends to @out. */
static void segment_name(struct slice channel, struct slice tag, struct buf *out)
{
	out->max = channel.len + tag.len + 2;
	(void)buf_append(out, channel);
	(void)buf_lit(out, "\n");
	(void)buf_append(out, tag);
}

static void count_bytes(struct model *model, struct segment *segment, size_t more)
{
	segment->bytes += more;
	model->bytes += more;
}

static void uncount_bytes(struct model *model, struct segment *segment, size_t less)
{
	segment->bytes -= less;
	model->bytes -= less;
}

/* After anything that changed its fold. */
static void count_fold(struct model *model, struct segment *segment)
{
	uncount_bytes(model, segment, segment->fold_bytes);
	segment->fold_bytes = segment->fold->bytes;
	count_bytes(model, segment, segment->fold_bytes);
}

static struct segment *segment_ensure(struct model *model, struct agent *agent,
				      struct lane *lane, const struct model_event *event,
				      const struct pos *pos, struct slice turn)
{
	const struct slice channel = lane ? buf_slice(&lane->channel) : SLICE("");
	const struct pos *floor = lane ? &lane->floor : &agent->floor;
	struct buf name = {0}, tag = {0};
	struct segment *segment;

	model_segment_tag(event->epoch, pos, channel, turn, &tag);
	segment_name(channel, buf_slice(&tag), &name);
	segment = map_get(&agent->segments, buf_slice(&name));
	if (!segment && pos_compare(pos, floor) > 0) {
		segment = mem_alloc(sizeof(*segment));
		segment->agent = agent;
		segment->lane = lane;
		segment->has_turn = turn.ptr != NULL;
		text_copy(&segment->turn, turn);
		text_copy(&segment->tag, buf_slice(&tag));
		memcpy(segment->epoch, event->epoch, strlen(event->epoch) + 1);
		segment->fold = fold_create(channel, buf_slice(&tag), turn.ptr != NULL);
		/* Its name is kept three times: here, in its fold and in the map. */
		count_bytes(model, segment, sizeof(*segment) + 3 * name.len);
		count_fold(model, segment);
		(void)map_put(&agent->segments, buf_slice(&name), segment);
	}
	buf_finish(&name);
	buf_finish(&tag);
	return segment;
}

/* Is this epoch over, because a newer one of the agent is known? */
static bool epoch_is_over(const struct segment *segment)
{
	return *segment->epoch && strcmp(segment->epoch, segment->agent->epoch) < 0;
}

/* Index of the first event at or behind @pos. */
static size_t segment_find(const struct segment *segment, const struct pos *pos)
{
	size_t low = 0, high = segment->count;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (pos_compare(&segment->events[middle].pos, pos) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void segment_insert(struct model *model, struct segment *segment, size_t at,
			   const struct pos *pos, int64_t unix_ms, struct slice text)
{
	if (segment->count == segment->room) {
		segment->room = segment->room ? segment->room * 2 : 8;
		segment->events = mem_grow(segment->events, segment->room,
					   sizeof(*segment->events));
	}
	memmove(segment->events + at + 1, segment->events + at,
		(segment->count - at) * sizeof(*segment->events));
	segment->events[at] =
		(struct segment_event){*pos, unix_ms, mem_dup(text), text.len};
	segment->count++;
	/* The rows made of it hold about as much again. */
	count_bytes(model, segment, 2 * text.len + sizeof(struct segment_event));
}

static struct facts facts_of(const struct segment *segment)
{
	return (struct facts){segment->lane ? &segment->lane->facts : NULL,
			      &segment->agent->facts};
}

/* ---- deriving again ---- */

static void remember_removed(struct model *model, const struct agent *agent,
			     struct slice channel, struct slice id)
{
	struct removed *removed;
	struct buf lane = {.max = channel.len + 2 * KEY_BYTES + 2};

	if (model->removed_count == model->removed_room) {
		model->removed_room = model->removed_room ? model->removed_room * 2 : 16;
		model->removed = mem_grow(model->removed, model->removed_room,
					  sizeof(*model->removed));
	}
	(void)buf_printf(&lane, "%s/", agent->hex);
	(void)buf_append(&lane, channel);
	removed = &model->removed[model->removed_count++];
	removed->lane = mem_dup(buf_slice(&lane));
	removed->id = mem_dup(id);
	buf_finish(&lane);
}

/* Rows that stayed the same are not handed out again; those that are gone are named. */
static void compare_rows(struct model *model, struct segment *segment, struct fold *old)
{
	struct map before;
	struct map_entry *entry = NULL;

	map_init(&before);
	for (size_t i = 0; i < old->row_count; i++)
		(void)map_put(&before, buf_slice(&old->rows[i]->id), old->rows[i]);
	for (size_t i = 0; i < segment->fold->row_count; i++) {
		struct row *row = segment->fold->rows[i];
		const struct row *was = map_take(&before, buf_slice(&row->id));

		if (was)
			row->hash = was->hash;
	}
	while ((entry = map_next(&before, entry)) != NULL) {
		const struct row *gone = entry->value;

		remember_removed(model, segment->agent, buf_slice(&gone->channel),
				 map_key(entry));
	}
	map_finish(&before);
}

static void segment_derive(struct model *model, struct segment *segment)
{
	const struct slice channel =
		segment->lane ? buf_slice(&segment->lane->channel) : SLICE("");
	const struct facts facts = facts_of(segment);
	struct fold *old = segment->fold;

	segment->fold = fold_create(channel, buf_slice(&segment->tag), segment->has_turn);
	for (size_t i = 0; i < segment->count; i++) {
		const struct segment_event *at = &segment->events[i];
		struct observer_event event;

		/* It was read before; a body is checked when it is taken over. */
		if (observer_event_parse((struct slice){at->text, at->len}, &event, NULL))
			fold_event(segment->fold, &event, &at->pos, at->unix_ms, &facts);
	}
	segment->ended = epoch_is_over(segment);
	if (segment->ended)
		fold_end_epoch(segment->fold);
	segment->late = false;
	segment->untimed = true;
	segment_touch(model, segment);
	compare_rows(model, segment, old);
	fold_destroy(old);
	count_fold(model, segment);
}

/* ---- live state ---- */

bool agent_is_shown(const struct agent *agent)
{
	return agent->online || !agent->is_forgotten;
}

bool lane_is_shown(const struct lane *lane)
{
	if (lane->is_forgotten && !lane->agent->online)
		return false;
	return lane->spoke || lane->name.len || lane->facts.session.len ||
	       (lane->facts.crash.len && lane->facts.crash_is_failure);
}

/* A lane that was shown once stays, unless it is forgotten. */
static bool spoke(const struct lane *lane, const struct segment *segment)
{
	const struct fold *fold = segment->fold;

	return lane_is_shown(lane) ||
	       (fold->row_count &&
		fold->rows[fold->row_count - 1]->type != ROW_LIFECYCLE);
}

/* A slot's process concerns every lane that it serves. */
static bool is_of_process(struct slice kind)
{
	return slice_starts(kind, SLICE("agent_")) ||
	       slice_starts(kind, SLICE("circuit_"));
}

static void touch_lanes(struct agent *agent)
{
	struct map_entry *entry = NULL;

	while ((entry = map_next(&agent->lanes, entry)) != NULL)
		((struct lane *)entry->value)->dirty = true;
}

/* The channels that a harness serves are lanes from its first word. */
static void ensure_named_lanes(struct model *model, struct agent *agent)
{
	struct slice rest = buf_slice(&agent->facts.channels), item;
	struct buf channel = {0};

	while (acp_next(&rest, &item)) {
		struct lane *lane;

		acp_set_text(&channel, acp_get_string(item, "id"), ROW_SHORT_MAX);
		lane = lane_ensure(model, agent, buf_slice(&channel));
		if (lane)
			lane_name(lane);
	}
	buf_finish(&channel);
}

static void count_activity(struct lane *lane, int64_t now_ms)
{
	const int64_t bucket = now_ms / ACTIVITY_BUCKET_MS;

	while (lane->activity_at < bucket) {
		if (bucket - lane->activity_at > ACTIVITY_BUCKETS) {
			memset(lane->activity, 0, sizeof(lane->activity));
			lane->activity_at = bucket;
			break;
		}
		lane->activity_at++;
		lane->activity[lane->activity_at % ACTIVITY_BUCKETS] = 0;
	}
	if (lane->activity_at == bucket)
		lane->activity[bucket % ACTIVITY_BUCKETS]++;
}

bool lane_runs(const struct lane *lane)
{
	const struct segment *current = lane->current;

	if (!current || !current->fold->turn.started || current->fold->turn.ended)
		return false;
	return !current->count ||
	       pos_compare(&current->events[current->count - 1].pos, &lane->idle_at) > 0;
}

static void lane_point(struct lane *lane, struct segment *segment)
{
	struct segment **slots[] = {&lane->newest, &lane->current};

	for (size_t i = 0; i < 2; i++) {
		struct segment *at = *slots[i];

		if (i == 1 && !segment->has_turn)
			continue;
		if (at && pos_compare(&segment->events[0].pos, &at->events[0].pos) < 0)
			continue;
		if (at && at != segment)
			at->untimed = true; /* it runs no more */
		*slots[i] = segment;
	}
}

/* Which segment is newest goes by their first events. */
static void point_again(struct agent *agent)
{
	struct map_entry *entry = NULL;
	bool misled = false;

	while ((entry = map_next(&agent->lanes, entry)) != NULL) {
		struct lane *lane = entry->value;

		if (!lane->misled)
			continue;
		lane->current = lane->newest = NULL;
		misled = true;
	}
	while (misled && (entry = map_next(&agent->segments, entry)) != NULL) {
		struct segment *segment = entry->value;

		if (segment->lane && segment->lane->misled && segment->count)
			lane_point(segment->lane, segment);
	}
	while (misled && (entry = map_next(&agent->lanes, entry)) != NULL)
		((struct lane *)entry->value)->misled = false;
}

static void epoch_seen(struct model *model, struct agent *agent, const char *epoch)
{
	struct map_entry *entry = NULL;

	if (!*epoch || strcmp(epoch, agent->epoch) <= 0)
		return;
	memcpy(agent->epoch, epoch, sizeof(agent->epoch));
	agent->dirty = model->dirty = true;
	while ((entry = map_next(&agent->segments, entry)) != NULL) {
		struct segment *segment = entry->value;

		if (!segment->ended && epoch_is_over(segment)) {
			segment->ended = segment->untimed = true;
			segment_touch(model, segment);
			fold_end_epoch(segment->fold);
			count_fold(model, segment);
		}
	}
}

/* ---- events ---- */

static void note_live(struct model *model, struct agent *agent, struct lane *lane,
		      struct segment *segment, const struct model_event *event)
{
	if (lane)
		count_activity(lane, event->received_ms);
	if (segment && !segment->late && json_is(event->event->kind, SLICE("acp_read")))
		card_of_event(model, segment, event->event, event->received_ms);
	if (json_is(event->event->kind, SLICE("turn_started")))
		prompt_started(model, acp_get_string(event->event->payload, "requestId"));
	agent->dirty = true;
}

static void apply_state(struct model *model, struct agent *agent, struct lane *lane,
			const struct model_event *event, const struct pos *pos)
{
	/* An old picture would undo what was seen since. */
	if (json_is(event->event->kind, SLICE("feed_state")) && event->live)
		on_feed_state(model, agent, event->event->payload, pos,
			      event->received_ms);
	if (json_is(event->event->kind, SLICE("control_result")))
		on_control_result(lane, event->event->payload, pos);
}

/* False if the event is here already. */
static bool segment_take(struct model *model, struct segment *segment,
			 const struct model_event *event, const struct pos *pos,
			 int64_t unix_ms)
{
	const size_t at = segment_find(segment, pos);
	const struct facts facts = facts_of(segment);

	if (at < segment->count && pos_compare(&segment->events[at].pos, pos) == 0)
		return false;
	if (segment->sealed && at < segment->count)
		return false;
	if (segment->lane && !at && segment->count)
		segment->lane->misled = true;
	segment_insert(model, segment, at, pos, unix_ms, event->event->text);
	segment->used_ms = event->received_ms;
	segment->untimed = true;
	segment_touch(model, segment);
	if (segment->sealed) {
		struct segment_event *newest = &segment->events[segment->count - 1];

		fold_event(segment->fold, event->event, pos, unix_ms, &facts);
		free(newest->text);
		newest->text = NULL;
		uncount_bytes(model, segment, newest->len);
	} else if (segment->late || segment->ended || epoch_is_over(segment) ||
		   at + 1 < segment->count)
		segment->late = true;
	else
		fold_event(segment->fold, event->event, pos, unix_ms, &facts);
	count_fold(model, segment);
	return true;
}

bool model_apply(struct model *model, const struct model_event *event)
{
	struct agent *agent = agent_ensure(model, event->agent);
	struct buf channel = {0}, turn = {0};
	struct segment *segment = NULL;
	struct lane *lane = NULL;
	int64_t unix_ms;
	struct pos pos;
	bool taken = false;

	if (!agent || !model_place(event->epoch, event->event, &pos, &unix_ms))
		return false;
	if (!*event->epoch)
		agent->foreign = true;
	epoch_seen(model, agent, event->epoch);
	acp_set_text(&channel, event->event->channel_id, ROW_SHORT_MAX);
	acp_set_text(&turn, event->event->turn_id, ROW_SHORT_MAX);
	if (channel.len)
		lane = lane_ensure(model, agent, buf_slice(&channel));
	if (fold_ignores(event->event->kind)) {
		apply_state(model, agent, lane, event, &pos);
		taken = true;
	} else if (lane || !channel.len) {
		segment = segment_ensure(model, agent, lane, event, &pos,
					 turn.len ? buf_slice(&turn) : SLICE_EMPTY);
		taken = segment && segment_take(model, segment, event, &pos, unix_ms);
	}
	if (taken && lane)
		lane_values(model, lane, event->event, unix_ms);
	if (taken && lane && unix_ms > lane->last_ms)
		lane->last_ms = unix_ms;
	if (taken && unix_ms > agent->last_ms)
		agent->last_ms = unix_ms;
	if (taken && segment) {
		agent->is_forgotten = false;
		if (lane)
			lane->is_forgotten = false;
	}
	if (taken && lane && segment) {
		lane_point(lane, segment);
		lane->spoke = spoke(lane, segment);
	}
	if (taken && json_is(event->event->kind, SLICE("harness_started")))
		ensure_named_lanes(model, agent);
	if (taken && is_of_process(event->event->kind))
		touch_lanes(agent);
	if (taken && event->live)
		note_live(model, agent, lane, segment, event);
	if (lane)
		lane->dirty = true;
	model->dirty = true;
	buf_finish(&channel);
	buf_finish(&turn);
	return taken;
}

/* ---- memory ---- */

static bool segment_is_needed(const struct model *model, const struct segment *segment)
{
	const struct map_entry *entry = NULL;

	if (!segment->lane && !epoch_is_over(segment))
		return true;
	if (segment->lane &&
	    (segment->lane->current == segment || segment->lane->newest == segment))
		return true;
	while ((entry = map_next(&model->cards, entry)) != NULL)
		if (((const struct card *)entry->value)->segment == segment)
			return true;
	return false;
}

static void raise_floor(struct pos *floor, const struct pos *pos)
{
	if (pos_compare(pos, floor) > 0)
		*floor = *pos;
}

/* One turn fills the memory: first the texts of its events go, with which it could be
 * derived again, then its older rows, half of them at a time. False if nothing more can
 * go. */
static bool shrink(struct model *model, struct segment *segment)
{
	struct pos *floor =
		segment->lane ? &segment->lane->floor : &segment->agent->floor;
	const size_t before = segment->bytes;
	size_t texts;
	struct pos last;

	if (!segment->sealed) {
		segment->sealed = true;
		for (size_t i = 0; i < segment->count; i++) {
			uncount_bytes(model, segment, segment->events[i].len);
			free(segment->events[i].text);
			segment->events[i].text = NULL;
		}
		return true;
	}
	segment_time(model, segment, true);
	last = fold_shed(segment->fold);
	if (!*last.epoch)
		return false;
	raise_floor(floor, &last);
	count_fold(model, segment);
	texts = segment->bytes - sizeof(*segment) - segment->fold_bytes;
	uncount_bytes(model, segment, texts / 2);
	return segment->bytes < before;
}

static struct segment *largest(const struct model *model)
{
	const struct map_entry *at = NULL;
	struct segment *found = NULL;

	while ((at = map_next(&model->agents, at)) != NULL) {
		const struct agent *agent = at->value;
		const struct map_entry *entry = NULL;

		while ((entry = map_next(&agent->segments, entry)) != NULL) {
			struct segment *segment = entry->value;

			if (!found || segment->bytes > found->bytes)
				found = segment;
		}
	}
	return found;
}

static int compare_idle(const void *left, const void *right)
{
	const struct segment *const *a = left, *const *b = right;

	return ((*a)->used_ms > (*b)->used_ms) - ((*a)->used_ms < (*b)->used_ms);
}

static void segment_evict(struct model *model, struct segment *segment)
{
	struct pos *floor =
		segment->lane ? &segment->lane->floor : &segment->agent->floor;
	struct buf name = {0};

	segment_time(model, segment, false);
	if (segment->count)
		raise_floor(floor, &segment->events[segment->count - 1].pos);
	segment_name(segment->lane ? buf_slice(&segment->lane->channel) : SLICE(""),
		     buf_slice(&segment->tag), &name);
	(void)map_take(&segment->agent->segments, buf_slice(&name));
	buf_finish(&name);
	model->bytes -= segment->bytes;
	segment_destroy(segment);
}

static bool has_card(const struct model *model, const struct segment *segment)
{
	const struct map_entry *entry = NULL;

	while ((entry = map_next(&model->cards, entry)) != NULL)
		if (((const struct card *)entry->value)->segment == segment)
			return true;
	return false;
}

static void segment_forget(struct model *model, struct segment *segment)
{
	struct lane *lane = segment->lane;

	for (size_t i = 0; i < segment->fold->row_count; i++)
		remember_removed(model, segment->agent,
				 buf_slice(&segment->fold->rows[i]->channel),
				 buf_slice(&segment->fold->rows[i]->id));
	if (lane) {
		lane->current = lane->newest = NULL;
		lane->misled = lane->dirty = true;
	}
	segment->untimed = false; /* the spans hear nothing of it */
	segment_evict(model, segment);
}

static bool has_segment(const struct lane *lane)
{
	const struct map_entry *entry = NULL;

	while ((entry = map_next(&lane->agent->segments, entry)) != NULL)
		if (((const struct segment *)entry->value)->lane == lane)
			return true;
	return false;
}

/* The floor stays: should the same come once more it is not taken. */
static void lane_forget(struct model *model, struct lane *lane)
{
	lane_facts_forget(&lane->facts);
	if (lane->values)
		values_forget(&model->values, lane->values);
	lane->told = (struct value_told){-1, -1};
	memset(lane->activity, 0, sizeof(lane->activity));
	lane->last_ms = 0;
	lane->spoke = false;
	lane->is_forgotten = lane->dirty = true;
}

/* Lanes of which nothing is left, and the agent of which no lane is. */
static void forget_empty(struct model *model, struct agent *agent, struct slice channel,
			 int64_t before_ms)
{
	const struct map_entry *entry = NULL;
	bool is_empty = !channel.ptr && !agent->segments.count;

	while ((entry = map_next(&agent->lanes, entry)) != NULL) {
		struct lane *lane = entry->value;

		if ((!channel.ptr || slice_eq(buf_slice(&lane->channel), channel)) &&
		    lane->last_ms < before_ms && !has_segment(lane))
			lane_forget(model, lane);
		is_empty = is_empty && lane->is_forgotten;
	}
	agent->is_forgotten = agent->is_forgotten || is_empty;
}

void model_forget(struct model *model, const uint8_t *key, struct slice channel,
		  int64_t before_ms)
{
	struct agent *agent = map_get(&model->agents, key_slice(key));
	struct segment **found;
	struct map_entry *entry = NULL;
	size_t count = 0;

	if (!agent)
		return;
	found = mem_array(agent->segments.count + 1, sizeof(struct segment *));
	while ((entry = map_next(&agent->segments, entry)) != NULL) {
		struct segment *segment = entry->value;
		const bool is_of =
			!channel.ptr ||
			(segment->lane &&
			 slice_eq(buf_slice(&segment->lane->channel), channel));

		if (is_of && segment->count && segment->events[0].unix_ms < before_ms &&
		    !has_card(model, segment))
			found[count++] = segment;
	}
	for (size_t i = 0; i < count; i++)
		segment_forget(model, found[i]);
	free(found);
	forget_times(model, key, channel, before_ms);
	point_again(agent);
	forget_empty(model, agent, channel, before_ms);
	agent->dirty = model->dirty = true;
}

/* Those that were idle longest go, until an eighth is free: sorting them for each one
 * that comes would cost all of them every time. */
static void evict_idle(struct model *model)
{
	const struct map_entry *at = NULL;
	struct segment **idle = NULL;
	size_t count = 0, room = 0;

	while ((at = map_next(&model->agents, at)) != NULL) {
		const struct map_entry *entry = NULL;

		while ((entry = map_next(&((struct agent *)at->value)->segments,
					 entry)) != NULL) {
			if (segment_is_needed(model, entry->value))
				continue;
			if (count == room) {
				room = room ? room * 2 : 256;
				idle = mem_grow(idle, room, sizeof(struct segment *));
			}
			idle[count++] = entry->value;
		}
	}
	if (count)
		qsort(idle, count, sizeof(struct segment *), compare_idle);
	for (size_t i = 0; i < count && model->bytes > MODEL_BYTES_MAX / 8 * 7; i++)
		segment_evict(model, idle[i]);
	free(idle);
}

static void evict(struct model *model)
{
	if (model->bytes <= MODEL_BYTES_MAX)
		return;
	evict_idle(model);
	for (struct segment *segment;
	     model->bytes > MODEL_BYTES_MAX && (segment = largest(model)) != NULL;)
		if (!shrink(model, segment))
			break; /* only what is needed is left */
}

void model_set_floor(struct model *model, const uint8_t *key, struct slice channel,
		     const struct pos *pos)
{
	struct agent *agent = agent_ensure(model, key);
	struct lane *lane;

	if (!agent)
		return;
	lane = lane_ensure(model, agent, channel);
	raise_floor(lane ? &lane->floor : &agent->floor, pos);
}

static bool agent_is_online(const struct agent *agent, int64_t now_ms)
{
	const struct agent_facts *facts = &agent->facts;

	return agent->seen_ms && now_ms - agent->seen_ms < MODEL_ONLINE_MS &&
	       (!*facts->stopped_at.epoch ||
		pos_compare(&facts->stopped_at, &facts->info_at) < 0);
}

int64_t agent_now(const struct agent *agent, int64_t now_ms)
{
	const int64_t last =
		agent->seen_ms > agent->last_ms ? agent->seen_ms : agent->last_ms;

	return agent->online || last > now_ms ? now_ms : last;
}

/* Where that changed all its lanes look different. */
static void agent_set_online(struct agent *agent, int64_t now_ms)
{
	const bool online = agent_is_online(agent, now_ms);

	if (online == agent->online)
		return;
	agent->online = online;
	agent->dirty = true;
	touch_lanes(agent);
}

static void settle_segment(void *ctx, struct segment *segment)
{
	if (segment->late)
		segment_derive(ctx, segment);
}

void model_settle(struct model *model, int64_t now_ms)
{
	const struct map_entry *at = NULL;

	segments_changed(model, settle_segment, model);
	while ((at = map_next(&model->agents, at)) != NULL) {
		struct agent *agent = at->value;
		struct map_entry *entry = NULL;

		agent_set_online(agent, now_ms);
		point_again(agent);
		while ((entry = map_next(&agent->lanes, entry)) != NULL)
			if (((struct lane *)entry->value)->dirty)
				lane_name(entry->value);
	}
	cards_follow(model, now_ms);
	evict(model);
}

void model_heard(struct model *model, const uint8_t *key, int64_t now_ms)
{
	struct agent *agent = agent_ensure(model, key);

	if (!agent)
		return;
	if (now_ms > agent->seen_ms)
		agent->seen_ms = now_ms;
	agent->dirty = model->dirty = true;
}

void model_last(struct model *model, const uint8_t *key, int64_t last_ms)
{
	struct agent *agent = map_get(&model->agents, key_slice(key));

	if (agent && last_ms > agent->last_ms)
		agent->last_ms = last_ms;
}

void model_replayed(struct model *model, const uint8_t *key)
{
	struct agent *agent = agent_ensure(model, key);

	if (agent)
		agent->replayed++;
}

void model_set_complete(struct model *model, const uint8_t *key, int64_t complete_ms,
			uint64_t gone)
{
	struct agent *agent = agent_ensure(model, key);

	if (!agent || (agent->complete_ms == complete_ms && agent->gone == gone))
		return;
	agent->complete_ms = complete_ms;
	agent->gone = gone;
	agent->dirty = model->dirty = true;
}

void model_tick(struct model *model, int64_t now_ms)
{
	const struct map_entry *at = NULL;

	while ((at = map_next(&model->agents, at)) != NULL) {
		struct agent *agent = at->value;

		agent_set_online(agent, now_ms);
		model->dirty = model->dirty || agent->dirty;
	}
	tick_cards(model, now_ms);
	tick_controls(model, now_ms);
}

void model_set_body(struct model *model, const uint8_t *key, const char *epoch,
		    uint64_t seq, struct slice text)
{
	struct agent *agent = map_get(&model->agents, key_slice(key));
	struct observer_event event;
	struct map_entry *entry = NULL;
	struct pos pos = {.seq = seq};

	if (!agent || !observer_event_parse(text, &event, NULL) || event.seq != seq)
		return;
	memcpy(pos.epoch, epoch, strlen(epoch) + 1);
	while ((entry = map_next(&agent->segments, entry)) != NULL) {
		struct segment *segment = entry->value;
		const size_t at = segment_find(segment, &pos);
		const struct map_entry *card = NULL;

		if (at == segment->count ||
		    pos_compare(&segment->events[at].pos, &pos) != 0)
			continue;
		count_bytes(model, segment, 2 * text.len);
		if (segment->sealed) { /* the texts of its other events are gone */
			fold_permission_body(segment->fold, &event);
			segment_touch(model, segment);
		} else {
			free(segment->events[at].text);
			segment->events[at].text = mem_dup(text);
			segment->events[at].len = text.len;
			segment_derive(model, segment);
		}
		while ((card = map_next(&model->cards, card)) != NULL) {
			struct card *waiting = card->value;
			const struct row *row = fold_permission(
				segment->fold, buf_slice(&waiting->nonce));

			if (waiting->segment == segment && row &&
			    pos_compare(&row->pos, &pos) == 0)
				waiting->body_ready = waiting->dirty = true;
		}
		model->dirty = true;
	}
}

static bool gap_stays(const struct gap *gap, const struct model_gap *gaps, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (gaps[i].range.first == gap->range.first &&
		    strcmp(gaps[i].epoch, gap->pos.epoch) == 0)
			return true;
	return false;
}

static void remove_gap(struct model *model, struct agent *agent, const struct gap *gap)
{
	const struct map_entry *entry = NULL;
	struct buf id = {.max = 64};

	gap_id(gap, &id);
	while ((entry = map_next(&agent->lanes, entry)) != NULL)
		remember_removed(model, agent, map_key(entry), buf_slice(&id));
	buf_finish(&id);
}

void model_set_gaps(struct model *model, const uint8_t *key, const struct model_gap *gaps,
		    size_t count, uint64_t missing)
{
	struct agent *agent = agent_ensure(model, key);

	if (!agent)
		return;
	for (size_t i = 0; i < agent->gap_count; i++)
		if (!gap_stays(&agent->gaps[i], gaps, count))
			remove_gap(model, agent, &agent->gaps[i]);
	free(agent->gaps);
	agent->gaps = mem_array(count + 1, sizeof(*agent->gaps));
	agent->gap_count = count;
	for (size_t i = 0; i < count; i++) {
		agent->gaps[i].range = gaps[i].range;
		agent->gaps[i].state = gaps[i].state;
		agent->gaps[i].why = gaps[i].why;
		agent->gaps[i].t = gaps[i].t;
		agent->gaps[i].pos.seq = gaps[i].seq;
		memcpy(agent->gaps[i].pos.epoch, gaps[i].epoch,
		       strlen(gaps[i].epoch) + 1);
	}
	agent->missing = missing;
	agent->dirty = agent->gaps_dirty = model->dirty = true;
}

/* ---- questions ---- */

struct model_agent model_agent(const struct model *model, const uint8_t *key)
{
	const struct agent *agent = map_get(&model->agents, key_slice(key));

	if (!agent)
		return (struct model_agent){false, false, false, ""};
	return (struct model_agent){true, agent->online, agent->foreign && !*agent->epoch,
				    agent->epoch};
}

/* ASCII letters without their case. */
static bool begins_alike(struct slice text, struct slice prefix)
{
	return text.len >= prefix.len &&
	       strncasecmp(text.ptr, prefix.ptr, prefix.len) == 0;
}

size_t model_find_agents(const struct model *model, struct slice name,
			 uint8_t out[MODEL_AGENTS_MAX][KEY_BYTES])
{
	size_t count = 0;

	if (nip19_parse_pubkey(name, out[0], NULL))
		return 1;
	for (int exact = 1; exact >= 0 && !count; exact--) {
		for (struct map_entry *at = map_next(&model->agents, NULL);
		     at && count < MODEL_AGENTS_MAX; at = map_next(&model->agents, at)) {
			const struct agent *agent = at->value;
			const struct slice called = buf_slice(&agent->facts.name);

			if (begins_alike(called, name) &&
			    (!exact || called.len == name.len))
				memcpy(out[count++], agent->key, KEY_BYTES);
		}
	}
	return count;
}
