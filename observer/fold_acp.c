#include <stdio.h>
#include <string.h>

#include "observer/acp.h"
#include "observer/fold_part.h"
#include "observer/tool.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

/* ---- messages, thoughts ---- */

static void on_chunk(struct step *step, struct slice update, enum row_type type,
		     const char *role)
{
	struct fold_state *state = step->fold->state;
	const struct slice block = acp_get(update, "content");
	const struct slice id = acp_get_string(update, "messageId");
	struct row *row = state->open_text;
	struct buf message = {0};

	acp_set_text(&message, id, ROW_SHORT_MAX);
	if (!row || row->type != type || strcmp(row->role, role) != 0 ||
	    !slice_eq(buf_slice(&row->message_id), buf_slice(&message))) {
		row = fold_add(step, type, "text", SLICE_EMPTY);
		row->role = role;
		row->open = true;
		row->time = TIME_MODEL;
		/* Joined chunks carry the time of the last one: the first came after
		 * whatever was before. */
		if (step->event->merged > 1)
			row->t = state->before_ms;
		row->message_id = message;
		state->open_text = row;
	} else {
		buf_finish(&message);
	}
	row->text_bytes += acp_append_block(&row->text, block, ROW_TEXT_MAX);
	row->end = step->t;
	row->dirty = true;
}

static void on_agent_message(struct step *step, struct slice update)
{
	on_chunk(step, update, ROW_MESSAGE, "agent");
}

static void on_user_message(struct step *step, struct slice update)
{
	on_chunk(step, update, ROW_MESSAGE, "user");
}

static void on_thought(struct step *step, struct slice update)
{
	on_chunk(step, update, ROW_THOUGHT, "agent");
}

/* ---- tools ---- */

static void tool_apply(struct step *step, struct slice update)
{
	struct fold_state *state = step->fold->state;
	struct buf call = {0};
	struct row *row;

	acp_set_text(&call, acp_get_string(update, "toolCallId"), ROW_SHORT_MAX);
	row = map_get(&state->tools, buf_slice(&call));
	if (!row) {
		row = fold_add(step, ROW_TOOL, "tool", buf_slice(&call));
		row->tool = mem_alloc(sizeof(*row->tool));
		step->fold->bytes += sizeof(*row->tool);
		row->time = TIME_TOOL;
		row->end = -1;
		(void)map_put(&state->tools, buf_slice(&call), row);
	}
	tool_update(row->tool, update);
	if (acp_is_array(acp_get(update, "content")))
		row->tool->parts_pos = *step->pos;
	if (tool_output_text(update).len)
		row->tool->raw_pos = *step->pos;
	if (row->tool->status < TOOL_COMPLETED)
		row->end = -1;
	else if (row->end < 0)
		row->end = step->t;
	row->dirty = true;
	buf_finish(&call);
}

/* ---- the other updates ---- */

static void on_plan(struct step *step, struct slice update)
{
	struct fold_state *state = step->fold->state;
	struct slice rest = acp_get(update, "entries"), entry;
	struct row *row = state->plan;
	unsigned count = 0;

	if (!row)
		row = state->plan = fold_add(step, ROW_PLAN, "plan", SLICE("plan"));
	buf_clear(&row->body);
	(void)buf_lit(&row->body, "\"entries\":[");
	while (acp_next(&rest, &entry) && count < 200) {
		static const char *const keys[][2] = {{"text", "content"},
						      {"status", "status"},
						      {"priority", "priority"}};

		(void)buf_printf(&row->body, "%s{", count++ ? "," : "");
		for (size_t i = 0; i < 3; i++) {
			const struct slice raw = acp_get_string(entry, keys[i][1]);

			(void)json_write_key(&row->body, slice_of(keys[i][0]));
			(void)buf_lit(&row->body, "\"");
			(void)json_write_raw(&row->body, raw);
			(void)buf_lit(&row->body, "\"");
		}
		(void)buf_lit(&row->body, "}");
	}
	(void)buf_lit(&row->body, "]");
	row->end = step->t;
	row->dirty = true;
}

static struct lane_facts *lane_of(struct step *step)
{
	return step->facts ? step->facts->lane : NULL;
}

static void on_mode(struct step *step, struct slice update)
{
	struct slice mode = acp_get_string(update, "currentModeId");
	struct lane_facts *lane = lane_of(step);

	if (!mode.ptr) /* the prose page of the protocol says modeId */
		mode = acp_get_string(update, "modeId");
	if (lane && mode.ptr && fact_wins(&lane->modes.current_at, step->pos))
		acp_set_text(&lane->modes.current, mode, ROW_SHORT_MAX);
}

static void on_config(struct step *step, struct slice update)
{
	if (lane_of(step))
		choices_update(lane_of(step), step->pos, update);
}

static void on_session_info(struct step *step, struct slice update)
{
	const struct slice title = acp_get_string(update, "title");
	struct lane_facts *lane = lane_of(step);

	if (lane && title.ptr && fact_wins(&lane->title_at, step->pos))
		acp_set_text(&lane->title, title, ROW_SHORT_MAX);
}

static void on_usage(struct step *step, struct slice update)
{
	const struct slice cost = acp_get(update, "cost");
	struct lane_facts *lane = lane_of(step);

	if (!lane || !fact_wins(&lane->usage_at, step->pos))
		return;
	lane->used = acp_get_int(update, "used", -1);
	lane->size = acp_get_int(update, "size", -1);
	if (!acp_is_object(cost) || cost.len > ROW_SHORT_MAX)
		return;
	buf_clear(&lane->cost);
	lane->cost.max = ROW_SHORT_MAX;
	(void)buf_append(&lane->cost, cost);
}

static void on_notice(struct step *step, struct slice update)
{
	struct row *row = fold_add(step, ROW_NOTE, "note", SLICE_EMPTY);
	const struct slice severity = acp_get_string(update, "severity");

	(void)buf_lit(&row->body, "\"source\":\"agent\",\"level\":\"");
	(void)json_write_raw(&row->body, severity);
	(void)buf_lit(&row->body, "\",\"text\":\"");
	(void)json_write_raw(&row->body, acp_get_string(update, "title"));
	if (acp_get_string(update, "description").len) {
		(void)buf_lit(&row->body, ": ");
		(void)json_write_raw(&row->body, acp_get_string(update, "description"));
	}
	(void)buf_lit(&row->body, "\"");
}

static void on_compaction(struct step *step, struct slice update)
{
	const struct slice status = acp_get_string(update, "status");
	struct row *row;

	if (!json_is(status, SLICE("completed")) && !json_is(status, SLICE("failed")))
		return;
	row = fold_add(step, ROW_NOTE, "note", SLICE_EMPTY);
	(void)buf_lit(&row->body, "\"source\":\"agent\",\"level\":\"info\",\"text\":");
	if (json_is(status, SLICE("completed")))
		(void)buf_lit(&row->body, "\"Compacted the conversation\"");
	else
		(void)buf_lit(&row->body, "\"Could not compact the conversation\"");
}

static void on_quiet(struct step *step, struct slice update)
{
	(void)step;
	(void)update;
}

static void on_update(struct step *step, struct slice update)
{
	static const struct {
		const char *name;
		void (*apply)(struct step *step, struct slice update);
	} updates[] = {
		{"agent_message_chunk", on_agent_message},
		{"agent_thought_chunk", on_thought},
		{"user_message_chunk", on_user_message},
		{"tool_call", tool_apply},
		{"tool_call_update", tool_apply},
		{"plan", on_plan},
		{"current_mode_update", on_mode},
		{"config_option_update", on_config},
		{"session_info_update", on_session_info},
		{"usage_update", on_usage},
		{"notice", on_notice},
		{"compaction_update", on_compaction},
		{"available_commands_update", on_quiet},
		{"compaction_summary_chunk", on_quiet},
	};
	const struct slice name = acp_get_string(update, "sessionUpdate");

	for (size_t i = 0; i < sizeof(updates) / sizeof(*updates); i++) {
		if (!name.ptr || !json_is(name, slice_of(updates[i].name)))
			continue;
		updates[i].apply(step, update);
		return;
	}
	fold_raw(step);
}

/* ---- permissions ---- */

/* [{id,name,kind}] from ACP's options. */
static void set_options(struct permission *permission, struct slice options)
{
	struct buf *out = &permission->options;
	struct slice rest = options, option;
	unsigned count = 0;

	if (!acp_is_array(options))
		return;
	buf_clear(out);
	out->max = options.len * 2 + 64;
	(void)buf_lit(out, "[");
	while (acp_next(&rest, &option) && count < 32) {
		static const char *const keys[][2] = {
			{"id", "optionId"}, {"name", "name"}, {"kind", "kind"}};

		(void)buf_printf(out, "%s{", count++ ? "," : "");
		for (size_t i = 0; i < 3; i++) {
			(void)json_write_key(out, slice_of(keys[i][0]));
			(void)buf_lit(out, "\"");
			(void)json_write_raw(out, acp_get_string(option, keys[i][1]));
			(void)buf_lit(out, "\"");
		}
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
	if (!buf_ok(out))
		buf_clear(out);
}

/* Does choosing @option (string content) allow the call? */
static bool option_allows(const struct permission *permission, struct slice option_raw)
{
	struct slice rest = buf_slice(&permission->options), option;
	struct buf want = {0};
	bool allows = false;

	acp_set_text(&want, option_raw, ROW_SHORT_MAX);
	while (acp_next(&rest, &option)) {
		const struct slice kind = acp_get_string(option, "kind");

		if (json_is(acp_get_string(option, "id"), buf_slice(&want)))
			allows = slice_starts(kind, SLICE("allow"));
	}
	buf_finish(&want);
	return allows;
}

static void inherit(struct buf *out, const struct buf *from)
{
	buf_clear(out);
	out->max = from->len + 1;
	(void)buf_append(out, buf_slice(from));
}

/* A request may repeat only the id of a call that was described before. */
static void permission_inherit(struct permission *permission, struct fold_state *state,
			       struct slice call_raw)
{
	const struct row *row;
	struct buf call = {0};

	acp_set_text(&call, call_raw, ROW_SHORT_MAX);
	row = map_get(&state->tools, buf_slice(&call));
	buf_finish(&call);
	if (!row)
		return;
	inherit(&permission->tool.title, &row->tool->title);
	inherit(&permission->tool.kind, &row->tool->kind);
	inherit(&permission->tool.command, &row->tool->command);
	permission->tool.command_bytes = row->tool->command_bytes;
	inherit(&permission->tool.first_path, &row->tool->first_path);
	inherit(&permission->tool.locations, &row->tool->locations);
	inherit(&permission->tool.parts, &row->tool->parts);
}

void fold_tool_waits(struct fold *fold, const struct permission *permission, bool begins)
{
	struct row *row = map_get(&fold->state->tools, buf_slice(&permission->tool.call));

	if (!row || (!begins && !row->tool->waits))
		return;
	row->tool->waits += begins ? 1u : -1u;
	row->dirty = true;
}

static void permission_describe(struct permission *permission, struct slice params)
{
	const struct slice call = acp_get(params, "toolCall");

	tool_update(&permission->tool, call);
	permission->text_bytes =
		tool_request_text(&permission->tool, call, &permission->text);
	set_options(permission, acp_get(params, "options"));
}

void fold_permission_body(struct fold *fold, const struct observer_event *event)
{
	struct buf nonce = {0};
	struct row *row;

	acp_set_text(&nonce, acp_get_string(event->authorization, "requestNonce"),
		     ROW_SHORT_MAX);
	row = map_get(&fold->state->permissions, buf_slice(&nonce));
	buf_finish(&nonce);
	if (!row)
		return;
	permission_describe(row->permission, acp_get(event->payload, "params"));
	row->dirty = true;
}

static void on_permission_request(struct step *step, struct slice params, struct slice id)
{
	struct fold_state *state = step->fold->state;
	const struct slice authorization = step->event->authorization;
	const struct slice call = acp_get(params, "toolCall");
	struct buf nonce = {0};
	struct permission *permission;
	struct row *row;

	acp_set_text(&nonce, acp_get_string(authorization, "requestNonce"),
		     ROW_SHORT_MAX);
	if (acp_get_string(call, "toolCallId").ptr)
		tool_apply(step, call);
	if (nonce.len && map_get(&state->permissions, buf_slice(&nonce))) {
		buf_finish(&nonce);
		return; /* a nonce is never used again: a repeat changes nothing */
	}
	row = fold_add(step, ROW_PERMISSION, "ask", buf_slice(&nonce));
	permission = row->permission = mem_alloc(sizeof(*permission));
	step->fold->bytes += sizeof(*permission);
	if (nonce.len)
		(void)map_put(&state->permissions, buf_slice(&nonce), row);
	row->time = TIME_YOU;
	row->end = -1;
	permission->nonce = nonce;
	permission->request_id.max = FOLD_TOKEN_MAX;
	(void)buf_append(&permission->request_id, slice_sub(id, 0, FOLD_TOKEN_MAX));
	acp_set_text(&permission->session, acp_get_string(params, "sessionId"),
		     ROW_SHORT_MAX);
	permission->actionable = acp_is_true(acp_get(authorization, "actionable"));
	permission->trimmed = step->event->trimmed > 0 || !params.ptr;
	permission->redacted = step->event->redacted;
	permission_inherit(permission, state, acp_get_string(call, "toolCallId"));
	permission_describe(permission, params);
	fold_tool_waits(step->fold, permission, true);
}

struct outcome {
	const char *reason;
	enum permission_state state; /* PERMISSION_PENDING: as the picked option says */
	const char *by;
};

static const struct outcome outcomes[] = {
	{"applied", PERMISSION_PENDING, "you"},
	{"timed_out", PERMISSION_TIMED_OUT, "time"},
	{"cancelled", PERMISSION_CANCELLED, "turn"},
	{"rejected", PERMISSION_REJECTED, "policy"},
	{"allowed", PERMISSION_ALLOWED, "policy"},
	{"allow_failed_closed", PERMISSION_DENIED, "policy"},
	{"uncertain", PERMISSION_UNCERTAIN, NULL},
	{"editor", PERMISSION_PENDING, "editor"},
};

static void permission_end(struct step *step, struct row *row, struct slice reason,
			   struct slice outcome)
{
	struct permission *permission = row->permission;
	const struct slice picked = acp_get_string(outcome, "optionId");
	const bool allows = picked.ptr && option_allows(permission, picked);

	if (permission->state != PERMISSION_PENDING &&
	    permission->state != PERMISSION_OVER)
		return; /* at most one outcome counts: the first */
	if (permission->state == PERMISSION_PENDING)
		fold_tool_waits(step->fold, permission, false);
	permission->state = allows ? PERMISSION_ALLOWED : PERMISSION_DENIED;
	permission->by = NULL;
	if (!picked.ptr &&
	    json_is(acp_get_string(outcome, "outcome"), SLICE("cancelled")))
		permission->state = PERMISSION_CANCELLED;
	for (size_t i = 0; reason.ptr && i < sizeof(outcomes) / sizeof(*outcomes); i++) {
		if (!json_is(reason, slice_of(outcomes[i].reason)))
			continue;
		if (outcomes[i].state != PERMISSION_PENDING)
			permission->state = outcomes[i].state;
		permission->by = outcomes[i].by;
	}
	acp_set_text(&permission->reason, reason, ROW_SHORT_MAX);
	acp_set_text(&permission->picked, picked, ROW_SHORT_MAX);
	if (row->end < 0)
		row->end = step->t;
	row->dirty = true;
}

/* The row that an answer belongs to: by its nonce, else (a feed without nonces) by the id
 * of the request. */
static struct row *permission_answered(struct step *step, struct slice id)
{
	struct fold *fold = step->fold;
	struct buf nonce = {0};
	struct row *row = NULL;

	acp_set_text(&nonce, acp_get_string(step->event->authorization, "requestNonce"),
		     ROW_SHORT_MAX);
	if (nonce.len)
		row = map_get(&fold->state->permissions, buf_slice(&nonce));
	buf_finish(&nonce);
	for (size_t i = fold->row_count; !row && id.len && i-- > 0;) {
		struct row *at = fold->rows[i];

		if (at->permission && at->permission->state == PERMISSION_PENDING &&
		    slice_eq(buf_slice(&at->permission->request_id), id))
			row = at;
	}
	return row;
}

void fold_permission_terminal(struct step *step)
{
	const struct slice authorization = step->event->authorization;
	struct slice reason = acp_get_string(authorization, "reason");
	struct row *row = permission_answered(step, SLICE_EMPTY);

	if (row)
		permission_end(step, row, reason.ptr ? reason : SLICE("uncertain"),
			       SLICE_EMPTY);
}

/* ---- requests and answers ---- */

static void request_note(struct fold_state *state, struct slice id,
			 enum request_kind kind)
{
	struct request *request;

	if (!id.len || id.len > FOLD_TOKEN_MAX)
		return;
	if (!state->requests)
		state->requests = mem_array(FOLD_REQUESTS_MAX, sizeof(*request));
	request = &state->requests[state->next_request];
	state->next_request = (state->next_request + 1) % FOLD_REQUESTS_MAX;
	memcpy(request->token, id.ptr, id.len);
	request->token[id.len] = '\0';
	request->kind = kind;
}

static enum request_kind request_take(struct fold_state *state, struct slice id)
{
	for (size_t i = 0; state->requests && id.len && i < FOLD_REQUESTS_MAX; i++) {
		struct request *request = &state->requests[i];

		if (!slice_eq(slice_of(request->token), id))
			continue;
		request->token[0] = '\0';
		return request->kind;
	}
	return REQUEST_NONE;
}

static void on_prompt(struct step *step, struct slice params)
{
	struct fold_state *state = step->fold->state;
	struct row *row = state->is_turn ? state->prompt : NULL;

	if (!row) {
		row = fold_add(step, ROW_PROMPT, "prompt",
			       state->is_turn ? SLICE("prompt") : SLICE_EMPTY);
		if (state->is_turn)
			state->prompt = row;
	}
	buf_clear(&row->text);
	row->text_bytes =
		acp_append_blocks(&row->text, acp_get(params, "prompt"), ROW_TEXT_MAX);
	fold_aim(step, &row->text);
	row->dirty = true;
}

static void on_written_request(struct step *step, struct slice method, struct slice id)
{
	struct fold_state *state = step->fold->state;
	const struct slice params = acp_get(step->event->payload, "params");
	struct lane_facts *lane = lane_of(step);

	if (json_is(method, SLICE("session/prompt"))) {
		request_note(state, id, REQUEST_PROMPT);
		on_prompt(step, params);
	} else if (json_is(method, SLICE("session/load"))) {
		request_note(state, id, REQUEST_LOAD);
		state->replay = true;
	} else if (json_is(method, SLICE("session/new"))) {
		request_note(state, id, REQUEST_NEW);
	} else if (json_is(method, SLICE("authenticate"))) {
		request_note(state, id, REQUEST_LOGIN);
	} else if (json_is(method, SLICE("session/set_mode"))) {
		const struct slice mode = acp_get_string(params, "modeId");

		if (lane && mode.ptr && fact_wins(&lane->modes.current_at, step->pos))
			acp_set_text(&lane->modes.current, mode, ROW_SHORT_MAX);
	} else if (json_is(method, SLICE("session/set_model"))) {
		const struct slice model = acp_get_string(params, "modelId");

		if (lane && model.ptr && fact_wins(&lane->models.current_at, step->pos))
			acp_set_text(&lane->models.current, model, ROW_SHORT_MAX);
	} else if (!json_is(method, SLICE("session/cancel")) &&
		   !json_is(method, SLICE("initialize")) &&
		   !json_is(method, SLICE("session/set_config_option")) &&
		   !json_is(method, SLICE("session/resume")) &&
		   !json_is(method, SLICE("session/close")) &&
		   !json_is(method, SLICE("session/list"))) {
		fold_raw(step);
	}
}

/* Does this error say that the agent wants a login? */
static bool note_login(struct step *step, struct slice error)
{
	struct agent_facts *agent = step->facts ? step->facts->agent : NULL;

	if (!slice_eq(acp_get(error, "code"), SLICE("-32000")))
		return false;
	if (agent && fact_wins(&agent->login_at, step->pos)) {
		agent->needs_login = true;
		acp_set_text(&agent->login_text, acp_get_string(error, "message"),
			     ROW_PATH_MAX);
	}
	return true;
}

static void on_read_answer(struct step *step, struct slice id)
{
	const struct slice payload = step->event->payload;
	const struct slice result = acp_get(payload, "result");
	const struct slice error = acp_get(payload, "error");
	const struct slice stop = acp_get_string(result, "stopReason");
	const enum request_kind kind = request_take(step->fold->state, id);
	struct agent_facts *agent = step->facts ? step->facts->agent : NULL;

	if (kind == REQUEST_LOAD)
		step->fold->state->replay = false;
	if (stop.ptr)
		acp_set_text(&step->fold->turn.stop_reason, stop, ROW_SHORT_MAX);
	if (acp_is_object(result) && lane_of(step))
		choices_update(lane_of(step), step->pos, result);
	if (acp_get(result, "sessionId").ptr && agent &&
	    fact_wins(&agent->login_at, step->pos))
		agent->needs_login = false;
	if (acp_is_array(acp_get(result, "authMethods")) && agent &&
	    fact_wins(&agent->methods_at, step->pos)) {
		const struct slice methods = acp_get(result, "authMethods");

		buf_clear(&agent->login_methods);
		agent->login_methods.max = methods.len + 1;
		(void)buf_append(&agent->login_methods, methods);
	}
	if (!acp_is_object(error))
		return;
	/* What became of a prompt, and a wish for a login, are told by turn_error. */
	if (!note_login(step, error) && kind != REQUEST_PROMPT) {
		const struct slice message = acp_get_string(error, "message");

		fold_error(step,
			   message.ptr ? message : SLICE("The agent answered an error"),
			   acp_get_string(error, "data"));
	}
}

void fold_acp(struct step *step, bool read)
{
	const struct slice payload = step->event->payload;
	const struct slice method = acp_get_string(payload, "method");
	const struct slice params = acp_get(payload, "params");
	const struct slice id = acp_get(payload, "id");
	const bool asks = acp_get(step->event->authorization, "requestNonce").ptr != NULL;

	if (read &&
	    ((asks && !acp_get(step->event->authorization, "reason").ptr) ||
	     (method.ptr && json_is(method, SLICE("session/request_permission"))))) {
		on_permission_request(step, params, id);
	} else if (read && method.ptr && json_is(method, SLICE("session/update"))) {
		on_update(step, acp_get(params, "update"));
	} else if (read && method.ptr) {
		if (!slice_starts(method, SLICE("$/")))
			fold_raw(step);
	} else if (read) {
		on_read_answer(step, id);
	} else if (method.ptr) {
		on_written_request(step, method, id);
	} else {
		struct row *row = permission_answered(step, id);

		if (row)
			permission_end(
				step, row,
				acp_get_string(step->event->authorization, "reason"),
				acp_get2(payload, "result", "outcome"));
	}
}
