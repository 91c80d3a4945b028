#include "observer/model.h"

#include <stdlib.h>
#include <string.h>

#include "observer/acp.h"
#include "observer/model_part.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip19.h"

#define SAME_TOOL_STALLS 5 /* the same call again and again; our choice */
#define LANE_FILES_MAX 50
#define ROWS_GATHERED 200000 /* rows of one lane that are looked at; our choice */

static struct slice or_null(const struct buf *text)
{
	return text->len ? buf_slice(text) : SLICE_EMPTY;
}

static void member(struct buf *out, const char *key, struct slice value)
{
	json_write_member_string(out, slice_of(key), value);
}

static void member_ms(struct buf *out, const char *key, int64_t value)
{
	if (value > 0)
		json_write_member_int(out, slice_of(key), value);
	else
		json_write_member_raw(out, slice_of(key), SLICE_EMPTY);
}

static void member_count(struct buf *out, const char *key, int64_t value)
{
	if (value >= 0)
		json_write_member_int(out, slice_of(key), value);
}

static void open_object(struct buf *out)
{
	if (out->len && out->ptr[out->len - 1] == '}')
		(void)buf_lit(out, ",");
	(void)buf_lit(out, "{");
}

/* ---- agents ---- */

static void write_slots(const struct agent *agent, struct buf *out)
{
	(void)buf_lit(out, ",\"slots\":[");
	for (int i = 0; i < FACTS_SLOTS_MAX; i++) {
		const struct slot_facts *slot = &agent->facts.slots[i];

		if (!*slot->state)
			continue;
		open_object(out);
		json_write_member_int(out, SLICE("slot"), i);
		member(out, "state", slice_of(slot->state));
		member_count(out, "pid", slot->pid);
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
}

static void write_agent(const struct agent *agent, struct buf *out)
{
	const struct agent_facts *facts = &agent->facts;
	struct buf npub = {.max = 80};

	(void)nip19_encode(NIP19_NPUB, agent->key, &npub);
	open_object(out);
	member(out, "id", slice_of(agent->hex));
	member(out, "npub", buf_slice(&npub));
	member(out, "name",
	       facts->name.len ? buf_slice(&facts->name)
			       : slice_sub(buf_slice(&npub), 0, 12));
	member(out, "host", or_null(&facts->host));
	json_write_member_raw(out, SLICE("command"), or_null(&facts->command));
	member(out, "version", or_null(&facts->version));
	member(out, "mode", or_null(&facts->mode));
	member(out, "control", or_null(&facts->control));
	member(out, "permissions", or_null(&facts->permissions));
	json_write_member_bool(out, SLICE("online"), agent->online);
	member_ms(out, "seenMs", agent->seen_ms);
	member(out, "epoch", *agent->epoch ? slice_of(agent->epoch) : SLICE_EMPTY);
	member_ms(out, "startedMs", facts->started_ms);
	member_ms(out, "completeMs", agent->complete_ms);
	json_write_member_int(out, SLICE("missing"), (int64_t)agent->missing);
	json_write_member_bool(out, SLICE("foreign"), agent->foreign && !*agent->epoch);
	write_slots(agent, out);
	if (facts->needs_login) {
		(void)buf_lit(out, ",\"needsLogin\":{");
		member(out, "text", buf_slice(&facts->login_text));
		json_write_member_raw(out, SLICE("methods"),
				      facts->login_methods.len
					      ? buf_slice(&facts->login_methods)
					      : SLICE("[]"));
		(void)buf_lit(out, "}");
	} else {
		(void)buf_lit(out, ",\"needsLogin\":null");
	}
	(void)buf_lit(out, "}");
	buf_finish(&npub);
}

/* ---- lanes ---- */

/* What a lane does, in three words, and since when. */
struct sentence {
	const char *state, *verb;
	struct buf object, outcome;
	int64_t since_ms;
};

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

static const char *stall_words(const struct lane *lane)
{
	const struct slice why = buf_slice(&lane->facts.stalled);

	if (slice_eq(why, SLICE("stopped")))
		return "process is stopped";
	if (why.len)
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
		return "Agent crashed and starts again";
	if (strcmp(state, "circuit_open") == 0)
		return "Agent crashes again and again: it pauses";
	return NULL;
}

static void say(const struct model *model, const struct lane *lane, struct sentence *out)
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
		out->since_ms =
			lane->agent->seen_ms ? lane->agent->seen_ms : lane->last_ms;
	}
}

static void write_turn(const struct lane *lane, int64_t now_ms, struct buf *out)
{
	static const char *const names[] = {"running", "completed", "cancelled",
					    "failed"};
	const struct segment *segment = lane->current;
	const struct turn_facts *turn;
	struct time_split split;

	if (!segment || !segment->fold->turn.started) {
		(void)buf_lit(out, ",\"turn\":null");
		return;
	}
	turn = &segment->fold->turn;
	split = fold_split(segment->fold, now_ms);
	(void)buf_lit(out, ",\"turn\":{");
	member(out, "id", buf_slice(&segment->turn));
	member_ms(out, "startedMs", turn->started_ms);
	member(out, "state", slice_of(names[turn->state]));
	member(out, "stopReason", or_null(&turn->stop_reason));
	member(out, "cancelledBy", or_null(&turn->cancelled_by));
	(void)buf_printf(
		out,
		",\"timeMs\":{\"model\":%lld,\"tool\":%lld,\"you\":%lld,\"idle\":0}}",
		(long long)split.model, (long long)split.tool, (long long)split.you);
}

static const char *queue_word(const struct owner_control *control)
{
	const struct slice status = buf_slice(&control->status);

	if (control->started || slice_eq(status, SLICE("started")))
		return "started";
	switch (control->state) {
	case CONTROL_SENT:
		return "sent";
	case CONTROL_RELAYED:
		return "relayed";
	case CONTROL_EXPIRED:
		return "expired";
	case CONTROL_ANSWERED:
		break;
	}
	return slice_eq(status, SLICE("queued")) ? "queued" : "refused";
}

static void write_queue(const struct model *model, const struct lane *lane,
			struct buf *out)
{
	unsigned waiting = 0;

	(void)buf_lit(out, ",\"queue\":[");
	for (size_t i = 0; i < model->control_count; i++) {
		const struct owner_control *control = model->controls[i];

		if (control->type != CONTROL_PROMPT || control->agent != lane->agent ||
		    !slice_eq(buf_slice(&control->channel), buf_slice(&lane->channel)))
			continue;
		open_object(out);
		member(out, "requestId", buf_slice(&control->request_id));
		member(out, "text", buf_slice(&control->text));
		member(out, "state", slice_of(queue_word(control)));
		waiting += strcmp(queue_word(control), "queued") == 0;
		member_count(out, "position", control->position);
		member(out, "detail",
		       control->detail.len ? buf_slice(&control->detail)
					   : or_null(&control->status));
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
	json_write_member_bool(out, SLICE("held"), lane->facts.held && waiting > 0);
}

static void write_choice(const struct choice_facts *choice, const char *key,
			 struct buf *out)
{
	(void)json_write_key(out, slice_of(key));
	if (!choice->current.len && !choice->available.len) {
		(void)buf_lit(out, "null");
		return;
	}
	(void)buf_lit(out, "{");
	member(out, "current", or_null(&choice->current));
	json_write_member_raw(out, SLICE("available"),
			      choice->available.len ? buf_slice(&choice->available)
						    : SLICE("[]"));
	(void)buf_lit(out, "}");
}

static void write_usage(const struct lane_facts *facts, struct buf *out)
{
	(void)buf_lit(out, ",\"usage\":{");
	member_count(out, "used", facts->used);
	member_count(out, "size", facts->size);
	if (facts->cost.len)
		json_write_member_raw(out, SLICE("cost"), buf_slice(&facts->cost));
	member_count(out, "input", facts->input);
	member_count(out, "output", facts->output);
	(void)buf_lit(out, "}");
}

struct lane_file {
	struct slice path;
	uint32_t added, removed;
};

static void write_files(const struct lane *lane, struct buf *out)
{
	const struct fold *fold = lane->current ? lane->current->fold : NULL;
	struct lane_file files[LANE_FILES_MAX];
	size_t count = 0;

	for (size_t i = 0; fold && i < fold->row_count; i++) {
		const struct tool *tool = fold->rows[i]->tool;

		for (size_t k = 0; tool && k < tool->file_count; k++) {
			const struct slice path = buf_slice(&tool->files[k].path);
			size_t at = 0;

			while (at < count && !slice_eq(files[at].path, path))
				at++;
			if (at == LANE_FILES_MAX)
				continue;
			if (at == count)
				files[count++] = (struct lane_file){path, 0, 0};
			files[at].added += tool->files[k].added;
			files[at].removed += tool->files[k].removed;
		}
	}
	(void)buf_lit(out, ",\"files\":[");
	for (size_t i = 0; i < count; i++) {
		open_object(out);
		member(out, "path", files[i].path);
		json_write_member_int(out, SLICE("added"), files[i].added);
		json_write_member_int(out, SLICE("removed"), files[i].removed);
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
}

/* A channel without a name is a slot's own, or of a feed that names none. */
static void write_channel_name(const struct lane *lane, struct buf *out)
{
	const struct slice id = buf_slice(&lane->channel);

	(void)json_write_key(out, SLICE("channelName"));
	if (lane->facts.name.len)
		(void)json_write_string(out, buf_slice(&lane->facts.name));
	else if (lane->name.len)
		(void)json_write_string(out, buf_slice(&lane->name));
	else if (!lane->facts.session.len && !lane->current && lane->facts.slot >= 0)
		(void)buf_printf(out, "\"slot %lld\"", (long long)lane->facts.slot);
	else
		(void)json_write_string(out, slice_sub(id, 0, utf8_floor(id, 8)));
}

static void write_lane(const struct model *model, const struct lane *lane, int64_t now_ms,
		       struct buf *out)
{
	const struct lane_facts *facts = &lane->facts;
	const char *stalled = stall_words(lane);
	struct sentence sentence;

	say(model, lane, &sentence);
	open_object(out);
	(void)buf_printf(out, "\"id\":\"%s/", lane->agent->hex);
	(void)json_write_chars(out, buf_slice(&lane->channel));
	(void)buf_lit(out, "\"");
	member(out, "agent", slice_of(lane->agent->hex));
	member(out, "channel", buf_slice(&lane->channel));
	write_channel_name(lane, out);
	if (facts->slot >= 0)
		json_write_member_int(out, SLICE("slot"), facts->slot);
	member(out, "session", or_null(&facts->session));
	member(out, "title", or_null(&facts->title));
	member(out, "state", slice_of(sentence.state));
	member_ms(out, "sinceMs", sentence.since_ms);
	member_ms(out, "lastMs", lane->last_ms);
	member(out, "verb", slice_of(sentence.verb));
	member(out, "object", or_null(&sentence.object));
	member(out, "outcome", or_null(&sentence.outcome));
	member(out, "aim", or_null(&lane->facts.aim));
	write_turn(lane, now_ms, out);
	member(out, "stalled", slice_of(stalled));
	write_queue(model, lane, out);
	write_choice(&facts->modes, "modes", out);
	write_choice(&facts->models, "models", out);
	write_usage(facts, out);
	(void)buf_lit(out, ",\"activity\":[");
	for (int64_t i = 1; i <= ACTIVITY_BUCKETS; i++)
		(void)buf_printf(
			out, "%s%u", i > 1 ? "," : "",
			lane->activity[(lane->activity_at + i) % ACTIVITY_BUCKETS]);
	(void)buf_lit(out, "]");
	write_files(lane, out);
	(void)buf_lit(out, "}");
	buf_finish(&sentence.object);
	buf_finish(&sentence.outcome);
}

/* ---- cards and controls ---- */

static void write_lane_id(const struct agent *agent, struct slice channel,
			  struct buf *out)
{
	(void)json_write_key(out, SLICE("lane"));
	(void)buf_printf(out, "\"%s/", agent->hex);
	(void)json_write_chars(out, channel);
	(void)buf_lit(out, "\"");
}

/* Of a call's parts only its diffs are decided on. */
static void write_diffs(const struct tool *tool, struct buf *out)
{
	struct buf array = {.max = tool->parts.len + 3};
	struct slice rest, part;

	(void)buf_lit(&array, "[");
	(void)buf_append(&array, buf_slice(&tool->parts));
	(void)buf_lit(&array, "]");
	rest = buf_slice(&array);
	(void)buf_lit(out, ",\"diffs\":[");
	while (acp_next(&rest, &part)) {
		if (!json_is(acp_get_string(part, "type"), SLICE("diff")))
			continue;
		if (out->ptr[out->len - 1] == '}')
			(void)buf_lit(out, ",");
		(void)buf_append(out, part);
	}
	(void)buf_lit(out, "]");
	buf_finish(&array);
}

static void write_card(const struct card *card, struct buf *out)
{
	static const char *const names[] = {"pending", "sent", "relayed"};
	const struct row *row =
		fold_permission(card->segment->fold, buf_slice(&card->nonce));
	const struct permission *permission = row ? row->permission : NULL;

	if (!permission)
		return;
	open_object(out);
	member(out, "id", buf_slice(&card->id));
	member(out, "agent", slice_of(card->agent->hex));
	write_lane_id(card->agent, buf_slice(&card->segment->lane->channel), out);
	member(out, "row", buf_slice(&row->id));
	member(out, "verb", slice_of(tool_wish(&permission->tool)));
	member(out, "kind", or_null(&permission->tool.kind));
	member(out, "title", or_null(&permission->tool.title));
	member(out, "text",
	       permission->text.len ? buf_slice(&permission->text) : SLICE(""));
	write_diffs(&permission->tool, out);
	json_write_member_raw(out, SLICE("locations"),
			      permission->tool.locations.len
				      ? buf_slice(&permission->tool.locations)
				      : SLICE("[]"));
	member_ms(out, "askedMs", card->asked_ms);
	member_ms(out, "deadlineMs", card->deadline_ms);
	json_write_member_raw(out, SLICE("options"),
			      permission->options.len ? buf_slice(&permission->options)
						      : SLICE("[]"));
	json_write_member_bool(out, SLICE("actionable"), permission->actionable);
	json_write_member_bool(out, SLICE("trimmed"),
			       permission->trimmed && !card->body_ready);
	json_write_member_bool(out, SLICE("redacted"),
			       permission->redacted && !card->body_ready);
	json_write_member_bool(out, SLICE("bodyReady"),
			       card->body_ready ||
				       (!permission->trimmed && !permission->redacted));
	json_write_member_int(out, SLICE("bytes"), (int64_t)permission->text_bytes);
	member(out, "state", slice_of(card->over ? "over" : names[card->asked]));
	member(out, "picked", or_null(&card->picked));
	member(out, "outcome", slice_of(card->outcome));
	member(out, "detail", or_null(&card->detail));
	(void)buf_lit(out, "}");
}

static void write_control(const struct owner_control *control, struct buf *out)
{
	static const char *const names[] = {"sent", "relayed", "answered", "expired"};

	open_object(out);
	member(out, "requestId", buf_slice(&control->request_id));
	member(out, "agent", slice_of(control->agent->hex));
	write_lane_id(control->agent, buf_slice(&control->channel), out);
	member(out, "type", control_type_name(control->type));
	member(out, "state", slice_of(names[control->state]));
	member(out, "status", or_null(&control->status));
	member(out, "detail", or_null(&control->detail));
	if (control->card.len)
		member(out, "card", buf_slice(&control->card));
	json_write_member_int(out, SLICE("atMs"), control->at_ms);
	(void)buf_lit(out, "}");
}

/* ---- rows ---- */

struct found_row {
	const struct segment *segment;
	struct row *row;
};

static int found_compare(const void *left, const void *right)
{
	const struct found_row *a = left, *b = right;
	const int order = pos_compare(&a->row->pos, &b->row->pos);

	if (order)
		return order;
	return slice_compare(buf_slice(&a->row->id), buf_slice(&b->row->id));
}

static void write_found(const struct found_row *found, struct buf *out)
{
	open_object(out);
	buf_truncate(out, out->len - 1);
	row_write(found->row, slice_of(found->segment->agent->hex),
		  found->segment->has_turn ? buf_slice(&found->segment->turn)
					   : SLICE_EMPTY,
		  out);
}

/* All rows of a lane in memory, unordered; freed by the caller. */
static struct found_row *gather(const struct agent *agent, struct slice channel,
				const struct pos *before, size_t *count_out)
{
	const struct map_entry *entry = NULL;
	struct found_row *found = NULL;
	size_t count = 0, room = 0;

	while ((entry = map_next(&agent->segments, entry)) != NULL) {
		const struct segment *segment = entry->value;

		if (segment->lane &&
		    !slice_eq(buf_slice(&segment->lane->channel), channel))
			continue;
		for (size_t i = 0; i < segment->fold->row_count; i++) {
			struct row *row = segment->fold->rows[i];

			if (!slice_eq(buf_slice(&row->channel), channel) ||
			    (before && pos_compare(&row->pos, before) >= 0) ||
			    count == ROWS_GATHERED)
				continue;
			if (count == room) {
				room = room ? room * 2 : 256;
				found = mem_grow(found, room, sizeof(*found));
			}
			found[count++] = (struct found_row){segment, row};
		}
	}
	*count_out = count;
	return found;
}

static const char *const gap_states[] = {"missing", "asked", "coming", "gone"};

/* Holes in the numbering belong to no lane more than to another: each shows them, before
 * the first of its rows that came later. */
void gap_id(const struct gap *gap, struct buf *out)
{
	(void)buf_printf(out, "hole:%s:%llu", gap->pos.epoch,
			 (unsigned long long)gap->range.first);
}

static void write_gap(const struct agent *agent, struct slice channel,
		      const struct gap *gap, struct buf *out)
{
	const uint64_t frames = gap->range.last - gap->range.first + 1;

	char pos[POS_LEN + 1];

	pos_format(&gap->pos, pos);
	open_object(out);
	(void)buf_lit(out, "\"id\":\"");
	gap_id(gap, out);
	(void)buf_lit(out, "\"");
	write_lane_id(agent, channel, out);
	(void)buf_printf(out, ",\"turn\":null,\"pos\":\"%s\"", pos);
	json_write_member_int(out, SLICE("t"), gap->t);
	(void)buf_printf(out,
			 ",\"end\":null,\"time\":null,\"type\":\"gap\",\"replay\":false,"
			 "\"frames\":[[%llu,%llu]],\"state\":\"%s\"",
			 (unsigned long long)gap->range.first,
			 (unsigned long long)gap->range.last, gap_states[gap->state]);
	(void)buf_printf(out, ",\"text\":\"%llu frame%s missing%s\"}",
			 (unsigned long long)frames, frames == 1 ? "" : "s",
			 gap->state == GAP_GONE ? " for good" : "");
}

/* The holes of a lane between two places; @from is in, @to is not (NULL: no end). */
static void write_gaps_between(const struct agent *agent, struct slice channel,
			       const struct pos *from, const struct pos *to,
			       struct buf *out)
{
	for (size_t i = 0; i < agent->gap_count; i++) {
		const struct gap *gap = &agent->gaps[i];

		if (pos_compare(&gap->pos, from) >= 0 &&
		    (!to || pos_compare(&gap->pos, to) < 0))
			write_gap(agent, channel, gap, out);
	}
}

bool model_write_rows(struct model *model, const uint8_t *key, struct slice channel,
		      const struct pos *before, size_t limit, struct buf *out)
{
	const struct agent *agent =
		map_get(&model->agents, (struct slice){(const char *)key, KEY_BYTES});
	const struct lane *lane = agent ? map_get(&agent->lanes, channel) : NULL;
	const struct pos nothing = {"", 0};
	const struct pos *floor = &nothing;
	struct found_row *found;
	size_t count, from = 0, first = 0;

	if (!agent || !lane)
		return false;
	if (pos_compare(&lane->floor, floor) > 0)
		floor = &lane->floor;
	if (pos_compare(&agent->floor, floor) > 0)
		floor = &agent->floor;
	found = gather(agent, channel, before, &count);
	if (count)
		qsort(found, count, sizeof(*found), found_compare);
	while (first < count && pos_compare(&found[first].row->pos, floor) <= 0)
		first++;
	if (*floor->epoch && count - first < limit) {
		free(found);
		return false;
	}
	if (count - first > limit)
		from = count - limit;
	else
		from = first;
	/* Rows of one event stay on one page: the next is asked for by position. */
	while (from > first &&
	       pos_compare(&found[from - 1].row->pos, &found[from].row->pos) == 0)
		from--;
	(void)buf_lit(out, "\"rows\":[");
	if (from == 0 && count)
		write_gaps_between(agent, channel, floor, &found[0].row->pos, out);
	for (size_t i = from; i < count; i++) {
		write_found(&found[i], out);
		write_gaps_between(agent, channel, &found[i].row->pos,
				   i + 1 < count ? &found[i + 1].row->pos : before, out);
	}
	(void)buf_printf(out, "],\"more\":%s",
			 from > 0 || *floor->epoch ? "true" : "false");
	free(found);
	return true;
}

void model_write_old_rows(struct model *model, const uint8_t *key, struct slice channel,
			  const struct model_old_row *rows, size_t row_count,
			  struct buf *out)
{
	const struct agent *agent =
		map_get(&model->agents, (struct slice){(const char *)key, KEY_BYTES});
	struct found_row *found = NULL;
	struct map here;
	size_t count = 0;

	map_init(&here);
	if (agent)
		found = gather(agent, channel, NULL, &count);
	for (size_t i = 0; i < count; i++)
		(void)map_put(&here, buf_slice(&found[i].row->id), &found[i]);
	for (size_t i = 0; i < row_count; i++) {
		const struct found_row *newer = map_get(&here, rows[i].id);

		if (newer) {
			write_found(newer, out);
			continue;
		}
		if (out->ptr[out->len - 1] == '}')
			(void)buf_lit(out, ",");
		(void)buf_append(out, rows[i].json);
	}
	map_finish(&here);
	free(found);
}

/* ---- messages ---- */

/* FNV-1a: only to see that a row derived again came out the same. */
static uint64_t hash_of(struct slice text)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (size_t i = 0; i < text.len; i++)
		hash = (hash ^ (uint8_t)text.ptr[i]) * 0x100000001b3;
	return hash;
}

static void write_dirty_rows(struct segment *segment, struct buf *out)
{
	for (size_t i = 0; i < segment->fold->row_count; i++) {
		struct row *row = segment->fold->rows[i];
		const struct found_row found = {segment, row};
		const size_t before = out->len;
		uint64_t hash;

		if (!row->dirty)
			continue;
		row->dirty = false;
		if (!row->channel.len) /* in no lane, so on no page */
			continue;
		write_found(&found, out);
		/* The comma before it is not the row's. */
		hash = hash_of(slice_sub(buf_slice(out),
					 before + (out->ptr[before] == ','), out->len));
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

/* Walks everything once for each list; @all: not only what changed. */
static void write_agents(struct model *model, bool all, struct buf *out)
{
	const size_t before = out->len;
	struct map_entry *entry = NULL;

	open_list(out, "agents");
	while ((entry = map_next(&model->agents, entry)) != NULL) {
		struct agent *agent = entry->value;

		if (all || agent->dirty)
			write_agent(agent, out);
		if (!all)
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

			if ((all || lane->dirty) && lane_is_shown(lane))
				write_lane(model, lane, now_ms, out);
			if (!all)
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
	while ((at = map_next(&model->agents, at)) != NULL) {
		struct agent *agent = at->value;
		struct map_entry *entry = NULL;

		while ((entry = map_next(&agent->segments, entry)) != NULL)
			if (((struct segment *)entry->value)->dirty)
				write_dirty_rows(entry->value, out);
		if (agent->gaps_dirty)
			write_gap_rows(agent, out);
		agent->gaps_dirty = false;
	}
	close_list(out, before);
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
	if (model->gone_cards.len) {
		open_list(out, "removedCards");
		(void)buf_append(out, buf_slice(&model->gone_cards));
		(void)buf_lit(out, "]");
	}
}

static void forget_removed(struct model *model)
{
	for (size_t i = 0; i < model->removed_count; i++) {
		free(model->removed[i].lane);
		free(model->removed[i].id);
	}
	model->removed_count = 0;
	buf_clear(&model->gone_cards);
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

void model_drop_changes(struct model *model)
{
	struct map_entry *at = NULL;

	while ((at = map_next(&model->agents, at)) != NULL) {
		struct agent *agent = at->value;
		struct map_entry *entry = NULL;

		agent->dirty = agent->gaps_dirty = false;
		while ((entry = map_next(&agent->lanes, entry)) != NULL)
			((struct lane *)entry->value)->dirty = false;
		entry = NULL;
		while ((entry = map_next(&agent->segments, entry)) != NULL) {
			struct segment *segment = entry->value;

			for (size_t i = 0; segment->dirty && i < segment->fold->row_count;
			     i++)
				segment->fold->rows[i]->dirty = false;
			segment->dirty = false;
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
	return gap_states[worst];
}

void model_write_health(const struct model *model, struct buf *out)
{
	const struct map_entry *at = NULL;
	int64_t newest = 0, complete = 0;

	while ((at = map_next(&model->agents, at)) != NULL) {
		const struct agent *agent = at->value;

		if (agent->seen_ms > newest)
			newest = agent->seen_ms;
		/* Complete is what is complete of every agent that is there. */
		if (agent->online && agent->complete_ms &&
		    (!complete || agent->complete_ms < complete))
			complete = agent->complete_ms;
	}
	member_ms(out, "frameAtMs", newest);
	member_ms(out, "completeMs", complete ? complete : newest);
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
}
