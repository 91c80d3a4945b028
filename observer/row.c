#include "observer/row.h"

#include <stdlib.h>
#include <strings.h>

#include "observer/story.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

struct row *row_create(enum row_type type)
{
	struct row *row = mem_alloc(sizeof(*row));

	row->type = type;
	row->end = -1;
	return row;
}

void tool_finish(struct tool *tool)
{
	buf_finish(&tool->call);
	buf_finish(&tool->title);
	buf_finish(&tool->kind);
	buf_finish(&tool->parent);
	buf_finish(&tool->locations);
	buf_finish(&tool->first_path);
	buf_finish(&tool->command);
	buf_finish(&tool->input);
	buf_finish(&tool->parts);
	buf_finish(&tool->raw_parts);
	for (size_t i = 0; i < tool->file_count; i++)
		buf_finish(&tool->files[i].path);
	free(tool->files);
}

static void permission_destroy(struct permission *permission)
{
	if (!permission)
		return;
	tool_finish(&permission->tool);
	buf_finish(&permission->nonce);
	buf_finish(&permission->request_id);
	buf_finish(&permission->session);
	buf_finish(&permission->text);
	buf_finish(&permission->options);
	buf_finish(&permission->picked);
	buf_finish(&permission->reason);
	free(permission);
}

void row_destroy(struct row *row)
{
	if (!row)
		return;
	buf_finish(&row->id);
	buf_finish(&row->channel);
	buf_finish(&row->text);
	buf_finish(&row->message_id);
	buf_finish(&row->body);
	if (row->tool)
		tool_finish(row->tool);
	free(row->tool);
	permission_destroy(row->permission);
	free(row);
}

static const char *const type_names[] = {
	[ROW_PROMPT] = "prompt",   [ROW_MESSAGE] = "message",
	[ROW_THOUGHT] = "thought", [ROW_PLAN] = "plan",
	[ROW_TOOL] = "tool",       [ROW_PERMISSION] = "permission",
	[ROW_TURN] = "turn",       [ROW_OUTPUT] = "output",
	[ROW_NOTE] = "note",       [ROW_LIFECYCLE] = "lifecycle",
	[ROW_ERROR] = "error",     [ROW_GAP] = "gap",
	[ROW_RAW] = "raw",
};

static const char *const time_names[] = {NULL, "model", "tool", "you", "idle"};

static const char *const status_names[] = {"pending", "in_progress", "completed",
					   "failed", "cancelled"};

static const char *permission_state_name(enum permission_state state)
{
	static const char *const names[] = {"pending",   "allowed",   "denied",
					    "cancelled", "timed_out", "rejected",
					    "uncertain", "over"};

	return names[state];
}

struct verb {
	const char *kind, *done, *doing, *waiting, *wish;
};

static const struct verb verbs[] = {
	{"read", "Read", "Reading", "Waiting to read", "wants to read"},
	{"edit", "Edited", "Editing", "Waiting to edit", "wants to edit"},
	{"delete", "Deleted", "Deleting", "Waiting to delete", "wants to delete"},
	{"move", "Moved", "Moving", "Waiting to move", "wants to move"},
	{"search", "Searched", "Searching", "Waiting to search", "wants to search"},
	{"execute", "Ran", "Running", "Waiting to run", "wants to run"},
	{"think", "Thought about", "Thinking about", "Waiting to think about",
	 "wants to think about"},
	{"fetch", "Fetched", "Fetching", "Waiting to fetch", "wants to fetch"},
	{"switch_mode", "Switched mode:", "Switching mode:", "Waiting to switch mode:",
	 "wants to switch mode:"},
	/* other, and what we do not know */
	{"", "Used", "Using", "Waiting to use", "wants to use"},
};

static const struct verb *verb_of(const struct tool *tool)
{
	const struct verb *verb = verbs;

	while (*verb->kind && !slice_eq(buf_slice(&tool->kind), slice_of(verb->kind)))
		verb++;
	return verb;
}

static bool tool_is_open(const struct tool *tool)
{
	return tool->status == TOOL_PENDING || tool->status == TOOL_IN_PROGRESS;
}

static bool tool_waits(const struct tool *tool)
{
	return tool_is_open(tool) && tool->waits;
}

const char *tool_verb(const struct tool *tool)
{
	if (tool_waits(tool))
		return verb_of(tool)->waiting;
	return tool_is_open(tool) ? verb_of(tool)->doing : verb_of(tool)->done;
}

const char *tool_wish(const struct tool *tool)
{
	return verb_of(tool)->wish;
}

/* The last two components of a path: what a line has room for. */
static struct slice path_short(struct slice path)
{
	unsigned slashes = 0;

	for (size_t i = path.len; i-- > 0;)
		if (path.ptr[i] == '/' && i + 1 < path.len && ++slashes == 2)
			return slice_sub(path, i + 1, path.len);
	return path;
}

/* "Search for x" of a search: the verb says that already. */
static struct slice without_kind(struct slice title, struct slice kind)
{
	if (!kind.len || title.len <= kind.len + 1 || title.ptr[kind.len] != ' ' ||
	    strncasecmp(title.ptr, kind.ptr, kind.len) != 0)
		return title;
	return slice_sub(title, kind.len + 1, title.len);
}

void tool_object(const struct tool *tool, struct buf *out)
{
	struct slice text = without_kind(buf_slice(&tool->title), buf_slice(&tool->kind));

	buf_clear(out);
	out->max = ROW_PATH_MAX;
	if (tool->command.len)
		text = buf_slice(&tool->command);
	else if (tool->first_path.len)
		text = path_short(buf_slice(&tool->first_path));
	(void)buf_append(out, slice_sub(text, 0, utf8_floor(text, ROW_SHORT_MAX)));
}

void tool_outcome(const struct tool *tool, struct buf *out)
{
	uint32_t added = 0, removed = 0;

	buf_clear(out);
	out->max = ROW_SHORT_MAX;
	if (tool->has_exit && tool->exit_code) {
		(void)buf_printf(out, "failed (%lld)", (long long)tool->exit_code);
		return;
	}
	if (tool->status == TOOL_FAILED)
		(void)buf_lit(out, "failed");
	if (tool->status == TOOL_CANCELLED)
		(void)buf_lit(out, "cancelled");
	if (tool->status != TOOL_COMPLETED || !tool->file_count)
		return;
	for (size_t i = 0; i < tool->file_count; i++) {
		added += tool->files[i].added;
		removed += tool->files[i].removed;
	}
	(void)buf_printf(out, "+%u \xe2\x88\x92%u", added, removed);
}

static void member(struct buf *out, const char *key, const struct buf *text)
{
	json_write_member_string(out, slice_of(key),
				 text->len ? buf_slice(text) : SLICE_EMPTY);
}

static void member_array(struct buf *out, const char *key, const struct buf *json)
{
	json_write_member_raw(out, slice_of(key),
			      json->len ? buf_slice(json) : SLICE("[]"));
}

static void member_word(struct buf *out, const char *key, const char *word)
{
	json_write_member_string(out, slice_of(key), slice_of(word));
}

static void write_tool(const struct tool *tool, struct buf *out)
{
	const struct buf *parts = tool->parts.len ? &tool->parts : &tool->raw_parts;
	const struct pos *pos = tool->parts.len ? &tool->parts_pos : &tool->raw_pos;
	struct buf words = {0};

	member(out, "call", &tool->call);
	member(out, "title", &tool->title);
	member(out, "kind", &tool->kind);
	member_word(out, "status", status_names[tool->status]);
	member_word(out, "verb", tool_verb(tool));
	tool_object(tool, &words);
	member(out, "object", &words);
	tool_outcome(tool, &words);
	member(out, "outcome", &words);
	member_array(out, "locations", &tool->locations);
	member(out, "input", &tool->input);
	if (parts->len && *pos->epoch) {
		char at[POS_LEN + 1];

		pos_format(pos, at);
		member_word(out, "partsAt", at);
	}
	(void)buf_lit(out, ",\"parts\":[");
	(void)buf_append(out, buf_slice(parts));
	(void)buf_lit(out, "]");
	buf_finish(&words);
}

static void write_permission(const struct row *row, struct buf *out)
{
	const struct permission *permission = row->permission;

	member(out, "nonce", &permission->nonce);
	member(out, "call", &permission->tool.call);
	member_word(out, "verb", tool_wish(&permission->tool));
	member(out, "title", &permission->tool.title);
	member(out, "text", &permission->text);
	member_array(out, "options", &permission->options);
	member_word(out, "state", permission_state_name(permission->state));
	member(out, "picked", &permission->picked);
	member_word(out, "by", permission->by);
	member(out, "reason", &permission->reason);
	if (row->end >= 0)
		json_write_member_int(out, SLICE("waitedMs"), row->end - row->t);
}

static void write_text(const struct row *row, struct buf *out)
{
	json_write_member_string(out, SLICE("text"),
				 row->text.len ? buf_slice(&row->text) : SLICE(""));
	if (row->text_bytes > row->text.len)
		json_write_member_int(out, SLICE("bytes"), (int64_t)row->text_bytes);
	if (row->type == ROW_PROMPT)
		return;
	json_write_member_bool(out, SLICE("open"), row->open);
	member_word(out, "role", row->role);
}

void row_write(const struct row *row, struct slice agent, struct slice turn,
	       struct buf *out)
{
	char pos[POS_LEN + 1];

	pos_format(&row->pos, pos);
	(void)buf_lit(out, "{");
	member(out, "id", &row->id);
	(void)buf_printf(out, ",\"lane\":\"%.*s/", SLICE_ARG(agent));
	(void)json_write_chars(out, buf_slice(&row->channel));
	(void)buf_lit(out, "\"");
	json_write_member_string(out, SLICE("turn"), turn);
	member_word(out, "pos", pos);
	json_write_member_int(out, SLICE("t"), row->t);
	if (row->end >= 0)
		json_write_member_int(out, SLICE("end"), row->end);
	else
		json_write_member_raw(out, SLICE("end"), SLICE_EMPTY);
	/* The permission's own row counts that time; this one only shows whose it is. */
	member_word(
		out, "time",
		time_names[row->tool && tool_waits(row->tool) ? TIME_YOU : row->time]);
	member_word(out, "type", type_names[row->type]);
	json_write_member_bool(out, SLICE("replay"), row->replay);
	if (row->tool)
		write_tool(row->tool, out);
	else if (row->permission)
		write_permission(row, out);
	else if (row->type == ROW_MESSAGE || row->type == ROW_THOUGHT ||
		 row->type == ROW_PROMPT)
		write_text(row, out);
	if (row->body.len) {
		(void)buf_lit(out, ",");
		(void)buf_append(out, buf_slice(&row->body));
	}
	story_write(row, out);
	(void)buf_lit(out, "}");
}
