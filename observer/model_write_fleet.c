#include "observer/model_write.h"

#include <stdlib.h>
#include <string.h>

#include "observer/acp.h"
#include "wire/nostr/nip19.h"

#define LANE_FILES_MAX 50

void write_lane_id(const struct agent *agent, struct slice channel, struct buf *out)
{
	(void)json_write_key(out, SLICE("lane"));
	(void)buf_printf(out, "\"%s/", agent->hex);
	(void)json_write_chars(out, channel);
	(void)buf_lit(out, "\"");
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

uint64_t write_agent(const struct agent *agent, struct buf *out)
{
	const struct agent_facts *facts = &agent->facts;
	const int64_t seen_ms = agent->seen_ms ? agent->seen_ms : agent->last_ms;
	struct buf npub = {.max = 80};
	uint64_t hash;
	size_t begun;

	(void)nip19_encode(NIP19_NPUB, agent->key, &npub);
	open_object(out);
	begun = out->len;
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
	member(out, "epoch", *agent->epoch ? slice_of(agent->epoch) : SLICE_EMPTY);
	member_ms(out, "startedMs", facts->started_ms);
	json_write_member_int(out, SLICE("missing"), (int64_t)agent->missing);
	json_write_member_int(out, SLICE("gone"), (int64_t)agent->gone);
	json_write_member_bool(out, SLICE("foreign"), is_foreign(agent));
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
	hash = slice_hash(slice_sub(buf_slice(out), begun, out->len),
			  (seen_ms > 0 ? 1u : 0u) + (agent->complete_ms > 0 ? 2u : 0u));
	member_ms(out, "seenMs", seen_ms);
	member_ms(out, "completeMs", agent->complete_ms);
	(void)buf_lit(out, "}");
	buf_finish(&npub);
	return hash;
}

/* ---- lanes ---- */

/* Returns where its pulse begins. */
static size_t write_turn(const struct lane *lane, int64_t now_ms, struct buf *out)
{
	static const char *const names[] = {"running", "completed", "cancelled",
					    "failed"};
	const struct segment *segment = lane->current;
	const struct turn_facts *turn;
	struct time_split split;
	size_t still;

	if (!segment || !segment->fold->turn.started) {
		(void)buf_lit(out, ",\"turn\":null");
		return out->len;
	}
	turn = &segment->fold->turn;
	split = fold_split(segment->fold, agent_now(lane->agent, now_ms));
	(void)buf_lit(out, ",\"turn\":{");
	member(out, "id", buf_slice(&segment->turn));
	member_ms(out, "startedMs", turn->started_ms);
	member(out, "state", slice_of(names[turn->state]));
	member(out, "stopReason", or_null(&turn->stop_reason));
	member(out, "cancelledBy", or_null(&turn->cancelled_by));
	still = out->len;
	(void)buf_printf(
		out,
		",\"timeMs\":{\"model\":%lld,\"tool\":%lld,\"you\":%lld,\"idle\":0}}",
		(long long)split.model, (long long)split.tool, (long long)split.you);
	return still;
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

uint64_t write_lane(const struct model *model, const struct lane *lane, int64_t now_ms,
		    struct buf *out)
{
	const struct lane_facts *facts = &lane->facts;
	const char *stalled = stall_words(lane);
	struct sentence sentence;
	size_t begun, still;
	uint64_t hash;

	lane_say(model, lane, &sentence);
	open_object(out);
	begun = out->len;
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
	member(out, "verb", slice_of(sentence.verb));
	member(out, "object", or_null(&sentence.object));
	member(out, "outcome", or_null(&sentence.outcome));
	member(out, "aim", or_null(&lane->facts.aim));
	member(out, "stalled", slice_of(stalled));
	write_queue(model, lane, out);
	write_choice(&facts->modes, "modes", out);
	write_choice(&facts->models, "models", out);
	write_usage(facts, out);
	write_files(lane, out);
	still = write_turn(lane, now_ms, out);
	hash = slice_hash(slice_sub(buf_slice(out), begun, still),
			  lane->last_ms > 0 ? 1 : 0);
	member_ms(out, "lastMs", lane->last_ms);
	member_ms(out, "activityMs", lane->activity_at * ACTIVITY_BUCKET_MS);
	(void)buf_lit(out, ",\"activity\":[");
	for (int64_t i = 1; i <= ACTIVITY_BUCKETS; i++)
		(void)buf_printf(
			out, "%s%u", i > 1 ? "," : "",
			lane->activity[(lane->activity_at + i) % ACTIVITY_BUCKETS]);
	(void)buf_lit(out, "]}");
	sentence_finish(&sentence);
	return hash;
}

/* ---- cards and controls ---- */

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

void write_card(const struct card *card, struct buf *out)
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

void write_control(const struct owner_control *control, struct buf *out)
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
