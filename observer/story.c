#include "observer/story.h"

#include <string.h>

#include "observer/acp.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

#define SENTENCE_MAX 8192 /* bytes; our choice */

/* ---- a sentence out of prose ---- */

/* What Markdown puts before a line: headings, quotes, list items, fences. */
static struct slice without_marks(struct slice line)
{
	size_t at = 0;

	while (at < line.len && line.ptr[at] && strchr("#>-*+`~ \t", line.ptr[at]))
		at++;
	return slice_trim(slice_sub(line, at, line.len));
}

/* The end of its first sentence: a stop, a space and no small letter ("e.g. this"). */
static size_t sentence_end(struct slice line)
{
	for (size_t i = 2; i + 2 < line.len; i++)
		if (line.ptr[i] && strchr(".!?", line.ptr[i]) && line.ptr[i + 1] == ' ' &&
		    !(line.ptr[i + 2] >= 'a' && line.ptr[i + 2] <= 'z'))
			return i + 1;
	return line.len;
}

/* Appends what @text begins with, without the marks of Markdown. */
static void first_sentence(struct slice text, struct buf *out)
{
	struct slice line = SLICE_EMPTY;
	size_t len;

	while (!line.len && slice_take_until(&text, '\n', &line))
		line = without_marks(line);
	line = slice_sub(line, 0, sentence_end(line));
	len = utf8_floor(line, STORY_TEXT_MAX);
	for (size_t i = 0; i < len; i++) {
		const bool is_mark =
			line.ptr[i] == '`' || (line.ptr[i] == '*' && i + 1 < line.len &&
					       line.ptr[i + 1] == '*');

		if (!is_mark)
			(void)buf_append_byte(out, line.ptr[i]);
		else if (line.ptr[i] == '*')
			i++;
	}
	if (len < line.len)
		(void)buf_lit(out, "\xe2\x80\xa6");
}

/* ---- what a row's own members do not say ---- */

static void string(struct buf *out, const char *key, struct slice text)
{
	if (text.len)
		json_write_member_string(out, slice_of(key), text);
}

static void word(struct buf *out, const char *key, const char *text)
{
	json_write_member_string(out, slice_of(key), slice_of(text));
}

static void prose(struct buf *out, const struct row *row)
{
	struct buf text = {.max = STORY_TEXT_MAX + 8};

	first_sentence(buf_slice(&row->text), &text);
	string(out, "text", buf_slice(&text));
	buf_finish(&text);
}

static void write_tool(const struct tool *tool, struct buf *out)
{
	static const char *const likes[][2] = {
		{"read", "files"},   {"edit", "files"},  {"delete", "files"},
		{"move", "files"},   {"fetch", "pages"}, {"search", "times"},
		{"think", "things"},
	};
	struct slice rest = buf_slice(&tool->locations), path;
	uint64_t added = 0, removed = 0;
	int64_t count = 0;

	for (size_t i = 0; i < sizeof(likes) / sizeof(*likes); i++)
		if (slice_eq(buf_slice(&tool->kind), slice_of(likes[i][0])))
			word(out, "like", likes[i][1]);
	while (rest.len && acp_next(&rest, &path))
		count++;
	if (count > 1 && !tool->command.len)
		json_write_member_int(out, SLICE("count"), count);
	if (tool->status != TOOL_COMPLETED || !tool->file_count)
		return;
	for (size_t i = 0; i < tool->file_count; i++) {
		added += tool->files[i].added;
		removed += tool->files[i].removed;
	}
	json_write_member_int(out, SLICE("added"), (int64_t)added);
	json_write_member_int(out, SLICE("removed"), (int64_t)removed);
}

/* "wants to run" → "Wants to run" */
static void wish(struct buf *out, const struct permission *permission)
{
	char verb[64];
	const size_t len = strlen(tool_wish(&permission->tool));

	if (len >= sizeof(verb))
		return;
	memcpy(verb, tool_wish(&permission->tool), len + 1);
	verb[0] = 'W';
	word(out, "verb", verb);
}

static void write_permission(const struct permission *permission, struct buf *out)
{
	static const char *const words[] = {
		[PERMISSION_ALLOWED] = "Allowed by a rule:",
		[PERMISSION_DENIED] = "Denied:",
		[PERMISSION_CANCELLED] = "Withdrawn:",
		[PERMISSION_TIMED_OUT] = "Denied, nobody answered in time:",
		[PERMISSION_REJECTED] = "Denied at once:",
		[PERMISSION_UNCERTAIN] = "Answered, whether it was applied is not known:",
		[PERMISSION_OVER] = "Over without an answer:",
	};
	const struct slice by = slice_of(permission->by);
	const bool allowed = permission->state == PERMISSION_ALLOWED;
	const bool answered = allowed || permission->state == PERMISSION_DENIED;
	const struct slice text = permission->text.len
					  ? buf_slice(&permission->text)
					  : buf_slice(&permission->tool.title);

	if (permission->state == PERMISSION_PENDING)
		wish(out, permission);
	else if (answered && slice_eq(by, SLICE("you")))
		word(out, "verb", allowed ? "You allowed" : "You denied");
	else if (answered && slice_eq(by, SLICE("editor")))
		word(out, "verb",
		     allowed ? "Allowed in the editor:" : "Denied in the editor:");
	else if (!allowed && answered && slice_eq(by, SLICE("policy")))
		word(out, "verb", "Denied by a rule:");
	else
		word(out, "verb", words[permission->state]);
	string(out, "object", slice_sub(text, 0, utf8_floor(text, STORY_TEXT_MAX)));
}

/* Steps, and the one that is under way. */
static void write_plan(struct slice body, struct buf *out)
{
	struct slice rest = acp_get(body, "entries"), entry;
	struct buf text = {0}, verb = {.max = 64};
	unsigned count = 0, done = 0;

	while (acp_next(&rest, &entry)) {
		const struct slice status = acp_get_string(entry, "status");

		count++;
		done += json_is(status, SLICE("completed"));
		if (!text.len && json_is(status, SLICE("in_progress")))
			acp_set_text(&text, acp_get_string(entry, "text"),
				     STORY_TEXT_MAX);
	}
	(void)buf_printf(&verb, "Plan %u of %u%s", done, count, text.len ? ":" : "");
	string(out, "verb", buf_slice(&verb));
	string(out, "text", buf_slice(&text));
	buf_finish(&text);
	buf_finish(&verb);
}

/* Lines that a program wrote. */
static void write_output(struct slice body, struct buf *out)
{
	struct buf text = {0}, line = {.max = STORY_TEXT_MAX + 8};
	struct slice rest, one;
	int64_t lines = 0;

	acp_set_text(&text, acp_get_string(body, "text"), ROW_TEXT_MAX);
	rest = buf_slice(&text);
	while (slice_take_until(&rest, '\n', &one)) {
		lines++;
		one = slice_trim(one);
		if (!line.len)
			(void)buf_append(
				&line,
				slice_sub(one, 0, utf8_floor(one, STORY_TEXT_MAX)));
	}
	word(out, "verb", "Printed");
	string(out, "object", buf_slice(&line));
	word(out, "like", "lines");
	json_write_member_int(out, SLICE("count"), lines);
	buf_finish(&text);
	buf_finish(&line);
}

static void write_members(const struct row *row, struct slice body, struct buf *out)
{
	const char *source;

	switch (row->type) {
	case ROW_PROMPT:
		source = json_is(acp_get_string(body, "source"), SLICE("editor"))
				 ? "The editor asked:"
				 : "You asked:";
		word(out, "verb", source);
		prose(out, row);
		break;
	case ROW_MESSAGE:
		if (row->role && strcmp(row->role, "user") == 0)
			word(out, "verb", "You asked:");
		prose(out, row);
		break;
	case ROW_THOUGHT:
		word(out, "verb", row->open ? "Thinking:" : "Thought:");
		prose(out, row);
		break;
	case ROW_PLAN:
		write_plan(body, out);
		break;
	case ROW_TOOL:
		if (row->tool)
			write_tool(row->tool, out);
		break;
	case ROW_PERMISSION:
		if (row->permission)
			write_permission(row->permission, out);
		break;
	case ROW_OUTPUT:
		write_output(body, out);
		break;
	case ROW_RAW:
		word(out, "verb", "An event:");
		(void)json_write_key(out, SLICE("object"));
		(void)buf_lit(out, "\"");
		(void)json_write_raw(out, acp_get_string(body, "kind"));
		(void)buf_lit(out, "\"");
		break;
	case ROW_TURN:
	case ROW_NOTE:
	case ROW_LIFECYCLE:
	case ROW_ERROR:
	case ROW_GAP:
		break; /* their text is one */
	}
}

void story_write(const struct row *row, struct buf *out)
{
	struct buf body = {.max = row->body.len + 2}, members = {.max = SENTENCE_MAX};

	(void)buf_lit(&body, "{");
	(void)buf_append(&body, buf_slice(&row->body));
	(void)buf_lit(&body, "}");
	write_members(row, buf_slice(&body), &members);
	if (members.len && buf_ok(&members)) {
		(void)buf_lit(out, ",\"story\":{");
		(void)buf_append(out, buf_slice(&members));
		(void)buf_lit(out, "}");
	}
	buf_finish(&body);
	buf_finish(&members);
}

/* ---- rows that are told as one ---- */

struct sentence {
	struct slice verb, object, text, outcome, like; /* as sent */
	int64_t count, added, removed;                  /* added -1: not an edit */
	bool open;
};

static struct slice either(struct slice story, struct slice row, const char *key)
{
	const struct slice own = acp_get_string(story, key);

	return own.ptr ? own : acp_get_string(row, key);
}

static struct sentence read_row(struct slice row)
{
	const struct slice story = acp_get(row, "story");
	struct sentence out = {
		.verb = either(story, row, "verb"),
		.object = either(story, row, "object"),
		.text = acp_get_string(story, "text"),
		.outcome = either(story, row, "outcome"),
		.like = acp_get_string(story, "like"),
		.count = acp_get_int(story, "count", 1),
		.added = acp_get_int(story, "added", -1),
		.removed = acp_get_int(story, "removed", 0),
		.open = acp_is_true(acp_get(row, "open")),
	};

	if (!out.verb.len && !out.object.len && !out.text.len)
		out.text = acp_get_string(row, "text");
	return out;
}

/* Of one verb, and either of one sort, all well; or the very same again. */
static bool joins(const struct sentence *a, const struct sentence *b)
{
	const bool well =
		(!a->outcome.len || a->added >= 0) && (!b->outcome.len || b->added >= 0);

	if (!a->verb.len || !slice_eq(a->verb, b->verb) || a->text.len || b->text.len)
		return false;
	if (a->like.len && slice_eq(a->like, b->like) && well)
		return true;
	return a->object.len && slice_eq(a->object, b->object) &&
	       slice_eq(a->outcome, b->outcome);
}

static bool is_type(struct slice row, struct slice type)
{
	return json_is(acp_get_string(row, "type"), type);
}

static bool waits(struct slice row)
{
	return is_type(row, SLICE("tool")) &&
	       json_is(acp_get_string(row, "time"), SLICE("you"));
}

/* Whether @row is the open question that the call @before waits for. */
static bool asks_for(struct slice row, struct slice before)
{
	const struct slice call = acp_get_string(row, "call");

	return waits(before) && is_type(row, SLICE("permission")) &&
	       json_is(acp_get_string(row, "state"), SLICE("pending")) && call.len &&
	       slice_eq(call, acp_get_string(before, "call")) &&
	       slice_eq(acp_get_string(before, "lane"), acp_get_string(row, "lane"));
}

bool story_take(struct story *story, struct slice row)
{
	const struct sentence next = read_row(row);

	/* "Waiting to run make", "Wants to run make": the question says both. */
	if (story->rows && asks_for(row, buf_slice(&story->row)))
		story_finish(story);
	if (story->rows) {
		const struct slice first_row = buf_slice(&story->row);
		const struct sentence first = read_row(first_row);

		if (!slice_eq(acp_get_string(first_row, "lane"),
			      acp_get_string(row, "lane")) ||
		    !slice_eq(acp_get_string(first_row, "type"),
			      acp_get_string(row, "type")) ||
		    waits(row) || waits(first_row) || !joins(&first, &next))
			return false;
	} else {
		story->row.max = row.len + 1;
		(void)buf_append(&story->row, row);
		map_init(&story->objects);
	}
	story->rows++;
	/* What has no object counts by itself. */
	if (!next.object.len || !map_put(&story->objects, next.object, story))
		story->count += (uint64_t)next.count;
	if (next.added > 0)
		story->added += (uint64_t)next.added;
	story->removed += (uint64_t)next.removed;
	return true;
}

static void piece(struct buf *out, const char *before, struct slice raw)
{
	struct buf text = {0};

	if (!raw.len)
		return;
	acp_set_text(&text, raw, SENTENCE_MAX / 4);
	(void)buf_append(out, slice_of(out->len ? before : ""));
	(void)buf_append(out, buf_slice(&text));
	buf_finish(&text);
}

void story_say(const struct story *story, struct buf *out)
{
	const struct sentence first = read_row(buf_slice(&story->row));

	buf_clear(out);
	out->max = SENTENCE_MAX;
	piece(out, "", first.verb);
	if (first.like.len && story->count > 1) {
		(void)buf_printf(out, " %llu ", (unsigned long long)story->count);
		piece(out, "", first.like);
	} else {
		piece(out, " ", first.object);
		piece(out, " ", first.text);
		if (story->rows > 1)
			(void)buf_printf(out, ", %llu times",
					 (unsigned long long)story->rows);
	}
	if (first.added >= 0)
		(void)buf_printf(out, " +%llu \xe2\x88\x92%llu",
				 (unsigned long long)story->added,
				 (unsigned long long)story->removed);
	else
		piece(out, ": ", first.outcome);
}

void story_finish(struct story *story)
{
	buf_finish(&story->row);
	map_finish(&story->objects);
	*story = (struct story){0};
}
