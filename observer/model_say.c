#include "observer/model_write.h"

#include <string.h>

#include "observer/acp.h"

#define SAME_TOOL_STALLS 5 /* the same call again and again; our choice */

static void set_object(struct sentence *out, struct slice text)
{
	size_t line;

	text = slice_trim(text);
	line = slice_find(text, '\n');
	if (line < ROW_SHORT_MAX)
		text = slice_sub(text, 0, line);
	buf_clear(&out->object);
	out->object.max = ROW_SHORT_MAX + 1;
	(void)buf_append(&out->object,
			 slice_sub(text, 0, utf8_floor(text, ROW_SHORT_MAX)));
}

static const struct row *open_tool(const struct fold *fold)
{
	for (size_t i = fold->row_count; i-- > 0;) {
		const struct row *row = fold->rows[i];

		if (row->tool && row->tool->status < TOOL_COMPLETED)
			return row;
	}
	return NULL;
}

/* One string of a simple row's body, as plain text. */
static void set_object_of_body(struct sentence *out, const struct row *row,
			       const char *key)
{
	struct buf object = {.max = row->body.len + 3}, text = {0};

	(void)buf_lit(&object, "{");
	(void)buf_append(&object, buf_slice(&row->body));
	(void)buf_lit(&object, "}");
	acp_set_text(&text, acp_get_string(buf_slice(&object), key), ROW_TEXT_MAX);
	set_object(out, buf_slice(&text));
	buf_finish(&object);
	buf_finish(&text);
}

/* "2 of 5": entries that are completed. */
static void set_plan_outcome(struct sentence *out, const struct row *row)
{
	struct buf object = {.max = row->body.len + 3};
	struct slice rest, entry;
	unsigned count = 0, done = 0;

	(void)buf_lit(&object, "{");
	(void)buf_append(&object, buf_slice(&row->body));
	(void)buf_lit(&object, "}");
	rest = acp_get(buf_slice(&object), "entries");
	while (acp_next(&rest, &entry)) {
		count++;
		done += json_is(acp_get_string(entry, "status"), SLICE("completed"));
	}
	buf_clear(&out->outcome);
	out->outcome.max = 32;
	(void)buf_printf(&out->outcome, "%u of %u", done, count);
	buf_finish(&object);
}

static void say_row(const struct row *row, struct sentence *out)
{
	if (row->tool) {
		out->verb = tool_verb(row->tool);
		tool_object(row->tool, &out->object);
		tool_outcome(row->tool, &out->outcome);
	} else if (row->type == ROW_MESSAGE) {
		out->verb = "Wrote";
		set_object(out, buf_slice(&row->text));
	} else if (row->type == ROW_THOUGHT) {
		out->verb = "Thinking";
	} else if (row->type == ROW_PLAN) {
		out->verb = "Planned";
		set_plan_outcome(out, row);
	} else if (row->type == ROW_OUTPUT) {
		out->verb = "Printed";
		set_object_of_body(out, row, "text");
	}
}

static void say_running(const struct fold *fold, struct sentence *out)
{
	const struct row *row = open_tool(fold);

	out->state = "working";
	out->since_ms = fold->turn.started_ms;
	for (size_t i = fold->row_count; !row && i-- > 0;) {
		const enum row_type type = fold->rows[i]->type;

		if (type == ROW_TOOL || type == ROW_MESSAGE || type == ROW_THOUGHT ||
		    type == ROW_PLAN)
			row = fold->rows[i];
	}
	out->verb = "Working";
	if (row)
		say_row(row, out);
}

static void say_ended(const struct lane *lane, struct sentence *out)
{
	const struct fold *fold = lane->current->fold;
	const struct row *message = fold_newest(fold, ROW_MESSAGE);
	const struct row *error = fold_newest(fold, ROW_ERROR);

	out->since_ms = fold->turn.ended_ms;
	out->state = fold->turn.state == TURN_FAILED ? "failed" : "finished";
	out->verb = fold->turn.state == TURN_FAILED      ? "Failed"
		    : fold->turn.state == TURN_CANCELLED ? "Stopped"
							 : "Finished";
	if (fold->turn.state == TURN_FAILED && error) {
		set_object_of_body(out, error, "text");
	} else if (message) {
		set_object(out, buf_slice(&message->text));
	}
}

static void say_card(const struct lane *lane, const struct card *card,
		     struct sentence *out)
{
	const struct row *row =
		fold_permission(card->segment->fold, buf_slice(&card->nonce));

	(void)lane;
	out->state = "needs-you";
	out->since_ms = card->asked_ms;
	out->verb = "wants to use";
	if (!row)
		return;
	out->verb = tool_wish(&row->permission->tool);
	tool_object(&row->permission->tool, &out->object);
}

/* The newest turn made the same call with the same input SAME_TOOL_STALLS times in a row.
 */
static bool repeats_itself(const struct fold *fold)
{
	const struct tool *last = NULL;
	unsigned same = 0;

	for (size_t i = fold->row_count; i-- > 0 && same < SAME_TOOL_STALLS;) {
		const struct tool *tool = fold->rows[i]->tool;

		if (!tool)
			continue;
		if (last &&
		    (!slice_eq(buf_slice(&last->title), buf_slice(&tool->title)) ||
		     !slice_eq(buf_slice(&last->input), buf_slice(&tool->input)) ||
		     !slice_eq(buf_slice(&last->first_path),
			       buf_slice(&tool->first_path))))
			return false;
		last = tool;
		same++;
	}
	return same == SAME_TOOL_STALLS;
}

const char *stall_words(const struct lane *lane)
{
	const int64_t slot = lane->facts.slot;

	if (slot >= 0 && slot < FACTS_SLOTS_MAX && lane->agent->facts.slots[slot].paused)
		return "process is stopped";
	if (lane->facts.stalled.len)
		return "silent";
	if (lane->current && lane_runs(lane) && repeats_itself(lane->current->fold))
		return "same tool 5 times";
	return NULL;
}

/* The lane's process is told of in its slot's own channel; what it means for this lane.
 */
static const char *slot_trouble(const struct lane *lane)
{
	const int64_t slot = lane->facts.slot;
	const char *state;

	if (slot < 0 || slot >= FACTS_SLOTS_MAX)
		return NULL;
	state = lane->agent->facts.slots[slot].state;
	if (strcmp(state, "respawning") == 0)
		return "it starts again";
	if (strcmp(state, "circuit_open") == 0)
		return "again and again, so it pauses";
	return NULL;
}

void lane_say(const struct model *model, const struct lane *lane, struct sentence *out)
{
	const struct lane_facts *facts = &lane->facts;
	const struct card *card;

	*out = (struct sentence){.state = "idle", .since_ms = lane->last_ms};
	if (lane_has_card(model, lane, &card)) {
		say_card(lane, card, out);
		return;
	}
	if (lane_runs(lane))
		say_running(lane->current->fold, out);
	else if (lane->current && lane->current->fold->turn.ended)
		say_ended(lane, out);
	else if (lane->newest && lane->newest->fold->row_count)
		say_row(lane->newest->fold->rows[lane->newest->fold->row_count - 1], out);
	if (facts->crash.len) {
		out->state = facts->crash_is_failure ? "failed" : "finished";
		out->verb = facts->crash_is_failure ? "Crashed" : "Ended";
		buf_clear(&out->outcome);
		set_object(out, buf_slice(&facts->crash));
	} else if (slot_trouble(lane)) {
		out->state = "failed";
		out->verb = "Crashed";
		buf_clear(&out->outcome);
		set_object(out, slice_of(slot_trouble(lane)));
	} else if (stall_words(lane) && strcmp(out->state, "working") == 0) {
		out->state = "stalled";
	} else if (strcmp(out->state, "idle") == 0 && out->verb && lane->agent->online &&
		   slice_eq(buf_slice(&lane->agent->facts.mode), SLICE("run"))) {
		out->state = "working";
	}
	if (!lane->agent->online) {
		out->state = "offline";
		out->since_ms = lane->agent->seen_ms ? lane->agent->seen_ms
						     : lane->agent->last_ms;
	}
}

void sentence_finish(struct sentence *sentence)
{
	buf_finish(&sentence->object);
	buf_finish(&sentence->outcome);
}
