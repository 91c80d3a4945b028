#include "observer/fold.h"

#include <stdlib.h>

#include "observer/acp.h"
#include "observer/fold_part.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

/* What a row costs beside the text of its event: itself, its pointer, and the small
 * allocations of its id and channel. */
#define ROW_BYTES (sizeof(struct row) + sizeof(struct row *) + 256)
#define BODY_MAX \
	(1u << 20) /* members of a simple row; an event is smaller (our choice) */

struct fold *fold_create(struct slice channel, struct slice tag, bool is_turn)
{
	struct fold *fold = mem_alloc(sizeof(*fold));
	struct fold_state *state = mem_alloc(sizeof(*state));

	fold->state = state;
	fold->bytes = sizeof(*fold) + sizeof(*state);
	state->channel.max = channel.len + 1;
	(void)buf_append(&state->channel, channel);
	state->tag.max = tag.len + 1;
	(void)buf_append(&state->tag, tag);
	state->is_turn = is_turn;
	map_init(&state->tools);
	map_init(&state->permissions);
	map_init(&state->spans);
	return fold;
}

void fold_destroy(struct fold *fold)
{
	if (!fold)
		return;
	for (size_t i = 0; i < fold->row_count; i++)
		row_destroy(fold->rows[i]);
	free(fold->rows);
	buf_finish(&fold->turn.stop_reason);
	buf_finish(&fold->turn.cancelled_by);
	buf_finish(&fold->turn.request_id);
	map_finish(&fold->state->tools);
	map_finish(&fold->state->permissions);
	map_finish(&fold->state->spans);
	buf_finish(&fold->state->channel);
	buf_finish(&fold->state->tag);
	buf_finish(&fold->state->channels);
	free(fold->state->requests);
	free(fold->state);
	free(fold);
}

static void seal_text(struct fold *fold)
{
	struct row *row = fold->state->open_text;

	if (!row)
		return;
	row->open = false;
	row->dirty = true;
	fold->state->open_text = NULL;
}

struct row *fold_add_in(struct step *step, enum row_type type, const char *letter,
			struct slice name, struct slice channel)
{
	struct fold *fold = step->fold;
	struct row *row = row_create(type);
	char pos[POS_LEN + 1];

	seal_text(fold);
	if (fold->row_count == fold->row_room) {
		fold->row_room = fold->row_room ? fold->row_room * 2 : 16;
		fold->rows = mem_grow(fold->rows, fold->row_room, sizeof(struct row *));
	}
	fold->rows[fold->row_count++] = row;
	fold->bytes += ROW_BYTES;
	pos_format(step->pos, pos);
	row->id.max = ROW_SHORT_MAX * 3 + 128;
	if (name.len && name.len <= ROW_SHORT_MAX) {
		(void)buf_printf(&row->id, "%s:", letter);
		(void)buf_append(&row->id, buf_slice(&fold->state->tag));
		(void)buf_lit(&row->id, ":");
		(void)buf_append(&row->id, name);
	} else {
		(void)buf_printf(&row->id, "%s:%s", letter, pos);
	}
	row->channel.max = channel.len + 1;
	(void)buf_append(&row->channel, channel);
	row->body.max = BODY_MAX;
	row->pos = *step->pos;
	row->t = row->end = step->t;
	row->replay = fold->state->replay;
	row->dirty = true;
	return row;
}

struct row *fold_add(struct step *step, enum row_type type, const char *letter,
		     struct slice name)
{
	return fold_add_in(step, type, letter, name,
			   buf_slice(&step->fold->state->channel));
}

void fold_body_raw(struct row *row, const char *key, struct slice raw)
{
	if (!raw.ptr)
		return;
	(void)json_write_key(&row->body, slice_of(key));
	(void)buf_lit(&row->body, "\"");
	(void)json_write_raw(&row->body, raw);
	(void)buf_lit(&row->body, "\"");
}

void fold_body_text(struct row *row, const char *key, const char *text)
{
	json_write_member_string(&row->body, slice_of(key), slice_of(text));
}

void fold_raw(struct step *step)
{
	struct row *row = fold_add(step, ROW_RAW, "raw", SLICE_EMPTY);
	const struct slice payload = step->event->payload;

	fold_body_raw(row, "kind", step->event->kind);
	json_write_member_string(
		&row->body, SLICE("json"),
		slice_sub(payload, 0, utf8_floor(payload, ROW_INPUT_MAX)));
	json_write_member_int(&row->body, SLICE("bytes"), (int64_t)payload.len);
}

void fold_error(struct step *step, struct slice text_raw, struct slice detail)
{
	struct row *row = fold_add(step, ROW_ERROR, "error", SLICE_EMPTY);

	fold_body_raw(row, "text", text_raw);
	fold_body_raw(row, "detail", detail);
}

/* ---- turns ---- */

void fold_aim(struct step *step, const struct buf *text)
{
	struct lane_facts *lane = step->facts ? step->facts->lane : NULL;
	const struct slice aim = buf_slice(text);

	if (!lane || !aim.len || !fact_wins(&lane->aim_at, step->pos))
		return;
	buf_clear(&lane->aim);
	lane->aim.max = ROW_SHORT_MAX;
	(void)buf_append(&lane->aim, slice_sub(aim, 0, utf8_floor(aim, ROW_SHORT_MAX)));
}

static void on_turn_started(struct step *step)
{
	const struct slice payload = step->event->payload;
	struct fold_state *state = step->fold->state;
	struct turn_facts *turn = &step->fold->turn;
	const struct slice text = acp_get_string(payload, "text");

	if (!turn->started) {
		turn->started = true;
		turn->first = *step->pos;
		turn->started_ms = step->t;
	}
	acp_set_text(&turn->request_id, acp_get_string(payload, "requestId"),
		     ROW_SHORT_MAX);
	if (!text.ptr && !acp_get_string(payload, "source").ptr)
		return;
	if (!state->prompt) {
		state->prompt = fold_add(step, ROW_PROMPT, "prompt", SLICE("prompt"));
		state->prompt->text_bytes =
			acp_append_text(&state->prompt->text, text, ROW_TEXT_MAX);
	}
	fold_aim(step, &state->prompt->text);
	buf_clear(&state->prompt->body);
	fold_body_raw(state->prompt, "source", acp_get_string(payload, "source"));
	fold_body_raw(state->prompt, "requestId", acp_get_string(payload, "requestId"));
	state->prompt->dirty = true;
}

/* Unfinished calls of a turn that is over will not be finished. */
static void tools_end(struct fold *fold, int64_t t)
{
	for (size_t i = 0; i < fold->row_count; i++) {
		struct row *row = fold->rows[i];

		if (!row->tool || row->tool->status >= TOOL_COMPLETED)
			continue;
		row->tool->status = TOOL_CANCELLED;
		row->end = t;
		row->dirty = true;
	}
}

void fold_permissions_end(struct fold *fold, int64_t t, const char *by)
{
	for (size_t i = 0; i < fold->row_count; i++) {
		struct row *row = fold->rows[i];

		if (!row->permission || row->permission->state != PERMISSION_PENDING)
			continue;
		fold_tool_waits(fold, row->permission, false);
		row->permission->state = PERMISSION_OVER;
		row->permission->by = by;
		row->end = t;
		row->dirty = true;
	}
}

static const char *turn_words(const struct turn_facts *turn)
{
	const struct slice by = buf_slice(&turn->cancelled_by);
	const struct slice stop = buf_slice(&turn->stop_reason);

	if (slice_eq(by, SLICE("owner")))
		return "Stopped by you";
	if (slice_eq(by, SLICE("timeout")))
		return "Stopped: the turn took too long";
	if (slice_eq(by, SLICE("exit")))
		return "Ended with the agent's process";
	if (turn->state == TURN_FAILED)
		return "Failed";
	if (turn->state == TURN_CANCELLED)
		return "Cancelled";
	if (slice_eq(stop, SLICE("max_tokens")))
		return "Stopped: out of tokens";
	if (slice_eq(stop, SLICE("max_turn_requests")))
		return "Stopped: too many requests in one turn";
	if (slice_eq(stop, SLICE("refusal")))
		return "The agent refused";
	return "Finished";
}

/* (Re)writes the row of the turn's end from what is known of it. */
static void turn_row_write(struct step *step, struct slice usage)
{
	static const char *const names[] = {"running", "completed", "cancelled",
					    "failed"};
	struct fold *fold = step->fold;
	struct turn_facts *turn = &fold->turn;
	struct row *row = fold->state->turn_row;

	if (!row)
		row = fold->state->turn_row =
			fold_add(step, ROW_TURN, "turn", SLICE("end"));
	row->end = step->t;
	row->dirty = true;
	buf_clear(&row->body);
	fold_body_text(row, "state", names[turn->state]);
	if (turn->stop_reason.len)
		json_write_member_string(&row->body, SLICE("stopReason"),
					 buf_slice(&turn->stop_reason));
	if (turn->cancelled_by.len)
		json_write_member_string(&row->body, SLICE("cancelledBy"),
					 buf_slice(&turn->cancelled_by));
	if (turn->started)
		json_write_member_int(&row->body, SLICE("durationMs"),
				      turn->ended_ms - turn->started_ms);
	if (acp_is_object(usage))
		json_write_member_raw(&row->body, SLICE("usage"), usage);
	fold_body_text(row, "text", turn_words(turn));
}

static void turn_end(struct step *step, enum turn_state state)
{
	struct turn_facts *turn = &step->fold->turn;

	seal_text(step->fold);
	turn->ended = true;
	turn->ended_ms = step->t;
	turn->state = state;
	fold_permissions_end(step->fold, step->t, "turn");
	tools_end(step->fold, step->t);
}

static void on_turn_completed(struct step *step)
{
	const struct slice payload = step->event->payload;
	const struct slice stop = acp_get_string(payload, "stopReason");
	const struct slice by = acp_get_string(payload, "cancelledBy");
	const struct slice usage = acp_get(payload, "usage");
	struct lane_facts *lane = step->facts ? step->facts->lane : NULL;
	struct turn_facts *turn = &step->fold->turn;
	enum turn_state state = TURN_COMPLETED;

	if (stop.ptr)
		acp_set_text(&turn->stop_reason, stop, ROW_SHORT_MAX);
	if (by.ptr)
		acp_set_text(&turn->cancelled_by, by, ROW_SHORT_MAX);
	if (json_is(by, SLICE("exit")) || (turn->ended && turn->state == TURN_FAILED))
		state = TURN_FAILED;
	else if (by.ptr || slice_eq(buf_slice(&turn->stop_reason), SLICE("cancelled")))
		state = TURN_CANCELLED;
	turn_end(step, state);
	fold_stalled(step, SLICE_EMPTY);
	turn_row_write(step, usage);
	if (lane && acp_is_object(usage) && fact_wins(&lane->tokens_at, step->pos)) {
		lane->input = acp_get_int(usage, "inputTokens", -1);
		lane->output = acp_get_int(usage, "outputTokens", -1);
	}
}

static void on_turn_error(struct step *step)
{
	const struct slice payload = step->event->payload;
	const struct slice message = acp_get_string(payload, "message");
	const struct slice other = acp_get_string(payload, "error"); /* Buzz */
	const struct slice data = acp_get(payload, "data");
	struct agent_facts *agent = step->facts ? step->facts->agent : NULL;
	/* The hint is the agent's message and what the owner can do about it. */
	const struct slice hint = acp_get_string(data, "hint");
	const struct slice text = hint.ptr ? hint : message.ptr ? message : other;

	turn_end(step, TURN_FAILED);
	fold_error(step, text.ptr ? text : SLICE("The turn failed"), acp_string(data));
	if (slice_eq(acp_get(payload, "code"), SLICE("-32000")) && agent &&
	    fact_wins(&agent->login_at, step->pos)) {
		agent->needs_login = true;
		acp_set_text(&agent->login_text, message, ROW_PATH_MAX);
	}
}

static void on_session_resolved(struct step *step)
{
	const struct slice payload = step->event->payload;
	const struct slice title = acp_get_string(payload, "title");
	const struct slice name = acp_get_string(payload, "channelName");
	struct facts facts = step->facts ? *step->facts : (struct facts){NULL, NULL};

	if (facts.agent && fact_wins(&facts.agent->login_at, step->pos))
		facts.agent->needs_login = false;
	if (!facts.lane)
		return;
	if (fact_wins(&facts.lane->session_at, step->pos))
		acp_set_text(&facts.lane->session, acp_get_string(payload, "sessionId"),
			     ROW_PATH_MAX);
	if (title.ptr && fact_wins(&facts.lane->title_at, step->pos))
		acp_set_text(&facts.lane->title, title, ROW_SHORT_MAX);
	if (name.ptr && fact_wins(&facts.lane->name_at, step->pos))
		acp_set_text(&facts.lane->name, name, ROW_SHORT_MAX);
	choices_update(facts.lane, step->pos, payload);
}

/* ---- the rest of the harness's kinds ---- */

static void on_parse_error(struct step *step)
{
	const bool wrote = json_is(acp_get_string(step->event->payload, "direction"),
				   SLICE("write"));

	fold_error(step,
		   wrote ? SLICE("A line to the agent was no ACP message")
			 : SLICE("The agent wrote a line that is no ACP message"),
		   acp_get_string(step->event->payload, "line"));
}

static void on_output(struct step *step)
{
	const struct slice payload = step->event->payload;
	const struct slice text = acp_get_string(payload, "text");
	struct row *row = fold_add(step, ROW_OUTPUT, "output", SLICE_EMPTY);
	const int64_t suppressed = acp_get_int(payload, "suppressed", 0);

	fold_body_raw(row, "stream", acp_get_string(payload, "stream"));
	fold_body_raw(row, "text", text.ptr ? text : SLICE(""));
	json_write_member_bool(&row->body, SLICE("partial"),
			       acp_is_true(acp_get(payload, "partial")));
	json_write_member_int(&row->body, SLICE("suppressed"), suppressed);
}

static void on_note(struct step *step)
{
	const struct slice payload = step->event->payload;
	struct row *row = fold_add(step, ROW_NOTE, "note", SLICE_EMPTY);
	const struct slice text = acp_get_string(payload, "text");

	fold_body_raw(row, "text", text.ptr ? text : SLICE(""));
	fold_body_raw(row, "level", acp_get_string(payload, "level"));
	fold_body_raw(row, "source", acp_get_string(payload, "source"));
}

/* A span that somebody else begins and ends (`perch emit`): one row from start to end. */
static void on_span_start(struct step *step)
{
	const struct slice payload = step->event->payload;
	const struct slice name = acp_get_string(payload, "name");
	struct row *row = fold_add(step, ROW_NOTE, "span", SLICE_EMPTY);
	struct buf id = {0};

	fold_body_raw(row, "text", name.ptr ? name : SLICE(""));
	fold_body_text(row, "level", "info");
	fold_body_raw(row, "source", acp_get_string(payload, "source"));
	row->end = -1;
	acp_set_text(&id, acp_get_string(payload, "id"), ROW_SHORT_MAX);
	if (id.len && step->fold->state->spans.count < FOLD_SPANS_MAX)
		(void)map_put(&step->fold->state->spans, buf_slice(&id), row);
	buf_finish(&id);
}

static bool is_bad(struct slice status)
{
	static const char *const bad[] = {"failed", "fail", "error", "cancelled"};

	for (size_t i = 0; status.ptr && i < sizeof(bad) / sizeof(*bad); i++)
		if (json_is(status, slice_of(bad[i])))
			return true;
	return false;
}

static void on_span_end(struct step *step)
{
	const struct slice payload = step->event->payload;
	const struct slice name = acp_get_string(payload, "name");
	const struct slice status = acp_get_string(payload, "status");
	struct buf id = {0};
	struct row *row;

	acp_set_text(&id, acp_get_string(payload, "id"), ROW_SHORT_MAX);
	row = id.len ? map_take(&step->fold->state->spans, buf_slice(&id)) : NULL;
	buf_finish(&id);
	if (!row) /* its start is in another segment */
		row = fold_add(step, ROW_NOTE, "span", SLICE_EMPTY);
	buf_clear(&row->body);
	(void)json_write_key(&row->body, SLICE("text"));
	(void)buf_lit(&row->body, "\"");
	(void)json_write_raw(&row->body, name.ptr ? name : SLICE("span"));
	(void)buf_lit(&row->body, ": ");
	(void)json_write_raw(&row->body, status.len ? status : SLICE("ended"));
	if (row->t < step->t)
		(void)buf_printf(&row->body, " after %.1f s",
				 (double)(step->t - row->t) / 1000);
	(void)buf_lit(&row->body, "\"");
	fold_body_text(row, "level", is_bad(status) ? "error" : "info");
	fold_body_raw(row, "source", acp_get_string(payload, "source"));
	row->end = step->t;
	row->dirty = true;
}

/* Why events were lost: Buzz's reasons, then ours. */
static const struct {
	const char *name, *words;
} loss_reasons[] = {
	{"replayBufferOverflow", "the replay buffer was full"},
	{"publishQueueEviction", "too much waited to be sent"},
	{"broadcastLag", "the sender fell behind"},
	{"publishFailure", "the relay refused them"},
	{"relayQueueEviction", "the relay's queue was full"},
	{"unclean_stop", "the start before this one ended without a word"},
	{"journal_full", "the journal took no more"},
	{"mirror_full", "the watcher could not keep up"},
};

/* Appends those that counted, as names and as words. */
static void write_causes(struct slice reasons, struct buf *names, struct buf *words)
{
	for (size_t i = 0; i < sizeof(loss_reasons) / sizeof(loss_reasons[0]); i++) {
		if (acp_get_int(reasons, loss_reasons[i].name, 0) <= 0)
			continue;
		(void)buf_printf(words, "%s%s", names->len ? ", " : ": ",
				 loss_reasons[i].words);
		(void)buf_printf(names, "%s%s", names->len ? ", " : "",
				 loss_reasons[i].name);
	}
}

static void on_telemetry_gap(struct step *step)
{
	const struct slice payload = step->event->payload;
	const int64_t events = acp_get_int(payload, "droppedEvents", 0);
	struct row *row = fold_add(step, ROW_GAP, "gap", SLICE_EMPTY);
	struct buf causes = {.max = 512}, text = {.max = 1024};

	(void)buf_lit(&row->body, "\"frames\":[],\"state\":\"gone\"");
	if (events)
		json_write_member_int(&row->body, SLICE("events"), events);
	if (events)
		(void)buf_printf(&text, "%lld event%s dropped before %s sent",
				 (long long)events, events == 1 ? " was" : "s were",
				 events == 1 ? "it was" : "they were");
	else
		(void)buf_lit(&text, "What was not written down is lost");
	write_causes(acp_get(payload, "reasonCounts"), &causes, &text);
	if (causes.len)
		json_write_member_string(&row->body, SLICE("cause"), buf_slice(&causes));
	json_write_member_string(&row->body, SLICE("text"), buf_slice(&text));
	buf_finish(&causes);
	buf_finish(&text);
}

static void on_read(struct step *step)
{
	fold_acp(step, true);
}

static void on_write(struct step *step)
{
	fold_acp(step, false);
}

static void on_nothing(struct step *step)
{
	(void)step;
}

static const struct kind kinds[] = {
	{"acp_read", on_read, false},
	{"acp_write", on_write, false},
	{"acp_parse_error", on_parse_error, false},
	{"permission_terminal", fold_permission_terminal, false},
	{"turn_started", on_turn_started, false},
	{"turn_completed", on_turn_completed, false},
	{"turn_error", on_turn_error, false},
	{"session_resolved", on_session_resolved, false},
	{"output", on_output, false},
	{"note", on_note, false},
	{"span_start", on_span_start, false},
	{"span_end", on_span_end, false},
	{"observer_telemetry_gap", on_telemetry_gap, false},
	{"prompt_dispatched", on_nothing, true},
	{"turn_first_output", on_nothing, true},
	{"turn_liveness", on_nothing, true},
	{"control_result", on_nothing, true},
	{"feed_state", on_nothing, true},
	{"body_part", on_nothing, true},
	/* Buzz's latency bookkeeping and captures */
	{"event_received", on_nothing, true},
	{"event_queued", on_nothing, true},
	{"reply_observed", on_nothing, true},
	{"mention_reply_latency", on_nothing, true},
	{"session_config_captured", on_nothing, true},
	{NULL, NULL, false},
};

static const struct kind *find_kind(const struct kind *list, struct slice name)
{
	while (list->name && !json_is(name, slice_of(list->name)))
		list++;
	return list->name ? list : NULL;
}

static const struct kind *kind_of(struct slice name)
{
	const struct kind *kind = find_kind(kinds, name);

	return kind ? kind : find_kind(fold_life_kinds, name);
}

bool fold_ignores(struct slice name)
{
	const struct kind *kind = kind_of(name);

	return kind && kind->ignored;
}

/* Time inside a segment goes by the harness's monotonic clock, counted from the segment's
 * first event; a foreign feed has only its wall clock. */
static int64_t time_of(struct fold_state *state, const struct observer_event *event,
		       int64_t unix_ms)
{
	if (event->monotonic_ms < 0)
		return unix_ms;
	if (!state->based) {
		state->based = true;
		state->base_ms = unix_ms;
		state->base_monotonic = event->monotonic_ms;
	}
	return state->base_ms + (event->monotonic_ms - state->base_monotonic);
}

void fold_event(struct fold *fold, const struct observer_event *event,
		const struct pos *pos, int64_t unix_ms, const struct facts *facts)
{
	const struct kind *kind = kind_of(event->kind);
	struct step step = {fold, event, pos, time_of(fold->state, event, unix_ms),
			    facts};

	fold->state->before_ms =
		*fold->state->newest.epoch ? fold->state->newest_ms : step.t;
	fold->state->newest_ms = step.t;
	fold->state->newest = *pos;
	if (facts && facts->lane && event->agent_index >= 0 &&
	    fact_wins(&facts->lane->slot_at, pos))
		facts->lane->slot = event->agent_index;
	if (kind)
		kind->apply(&step);
	else
		fold_raw(&step);
}

void fold_end_epoch(struct fold *fold)
{
	struct observer_event none = {.monotonic_ms = -1};
	struct turn_facts *turn = &fold->turn;
	struct step step = {fold, &none, &fold->state->newest, fold->state->newest_ms,
			    NULL};

	seal_text(fold);
	if (turn->started && !turn->ended) {
		turn->ended = true;
		turn->ended_ms = step.t;
		turn->state = TURN_FAILED;
		turn_row_write(&step, SLICE_EMPTY);
	}
	fold_permissions_end(fold, step.t, "restart");
	tools_end(fold, step.t);
}

static bool may_go(const struct fold_state *state, const struct row *row)
{
	if (row == state->plan || row == state->prompt || row == state->turn_row ||
	    row == state->open_text)
		return false;
	if (row->permission)
		return row->permission->state != PERMISSION_PENDING;
	return !row->tool || row->tool->status >= TOOL_COMPLETED;
}

struct pos fold_shed(struct fold *fold)
{
	struct fold_state *state = fold->state;
	const size_t end = fold->row_count / 2;
	struct pos last = {"", 0};
	size_t kept = 0;

	/* Their rows may go: what ends later is a row of its own. */
	map_finish(&state->spans);
	map_init(&state->spans);
	for (size_t i = 0; i < fold->row_count; i++) {
		struct row *row = fold->rows[i];

		if (i >= end || !may_go(state, row)) {
			fold->rows[kept++] = row;
			continue;
		}
		last = row->pos;
		fold->bytes -= ROW_BYTES + (row->tool ? sizeof(*row->tool) : 0) +
			       (row->permission ? sizeof(*row->permission) : 0);
		if (row->tool &&
		    map_get(&state->tools, buf_slice(&row->tool->call)) == row)
			(void)map_take(&state->tools, buf_slice(&row->tool->call));
		if (row->permission && row->permission->nonce.len)
			(void)map_take(&state->permissions,
				       buf_slice(&row->permission->nonce));
		row_destroy(row);
	}
	fold->row_count = kept;
	return last;
}

/* ---- time ---- */

struct interval {
	int64_t from, to;
};

static int interval_compare(const void *left, const void *right)
{
	const struct interval *a = left, *b = right;

	return a->from < b->from ? -1 : a->from > b->from;
}

/* Length of the union; sorts @intervals. */
static int64_t union_length(struct interval *intervals, size_t count)
{
	int64_t total = 0, until = INT64_MIN;

	if (count)
		qsort(intervals, count, sizeof(*intervals), interval_compare);
	for (size_t i = 0; i < count; i++) {
		const int64_t from =
			intervals[i].from > until ? intervals[i].from : until;

		if (intervals[i].to <= from)
			continue;
		total += intervals[i].to - from;
		until = intervals[i].to;
	}
	return total;
}

struct time_split fold_split(const struct fold *fold, int64_t now_ms)
{
	const struct turn_facts *turn = &fold->turn;
	const int64_t end = turn->ended ? turn->ended_ms : now_ms;
	struct interval *spans = mem_array(fold->row_count + 1, sizeof(*spans));
	struct time_split split = {0, 0, 0};
	size_t count = 0;
	int64_t both;

	for (size_t i = 0; i < fold->row_count; i++) {
		const struct row *row = fold->rows[i];

		if (row->time == TIME_YOU)
			spans[count++] =
				(struct interval){row->t, row->end < 0 ? end : row->end};
	}
	split.you = union_length(spans, count);
	for (size_t i = 0; i < fold->row_count; i++) {
		const struct row *row = fold->rows[i];

		if (row->time == TIME_TOOL)
			spans[count++] =
				(struct interval){row->t, row->end < 0 ? end : row->end};
	}
	both = union_length(spans, count);
	free(spans);
	split.tool = both - split.you;
	if (turn->started && end - turn->started_ms > both)
		split.model = end - turn->started_ms - both;
	return split;
}

const struct row *fold_newest(const struct fold *fold, enum row_type type)
{
	for (size_t i = fold->row_count; i-- > 0;)
		if (fold->rows[i]->type == type)
			return fold->rows[i];
	return NULL;
}

const struct row *fold_permission(const struct fold *fold, struct slice nonce)
{
	return map_get(&fold->state->permissions, nonce);
}
