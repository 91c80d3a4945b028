#include "observer/search_text.h"

#include <stdlib.h>
#include <string.h>

#include "observer/acp.h"
#include "wire/base/mem.h"

#define ESCAPE '\x1b'

const char *row_type_name(enum row_type type)
{
	static const char *const names[] = {
		[ROW_PROMPT] = "prompt",   [ROW_MESSAGE] = "message",
		[ROW_THOUGHT] = "thought", [ROW_PLAN] = "plan",
		[ROW_TOOL] = "tool",       [ROW_PERMISSION] = "permission",
		[ROW_TURN] = "turn",       [ROW_OUTPUT] = "output",
		[ROW_NOTE] = "note",       [ROW_LIFECYCLE] = "lifecycle",
		[ROW_ERROR] = "error",     [ROW_GAP] = "gap",
		[ROW_RAW] = "raw",
	};

	return names[type];
}

bool row_type_of(struct slice name, enum row_type *out)
{
	for (enum row_type type = ROW_PROMPT; type <= ROW_RAW; type++) {
		if (slice_eq(name, slice_of(row_type_name(type)))) {
			*out = type;
			return true;
		}
	}
	return false;
}

/* ---- the text of a row ---- */

/* ECMA-48: a terminal's control sequence at the front of @text (CSI, or OSC up to BEL or
 * ST); 0 where it does not end. */
static size_t escape_length(struct slice text)
{
	const char next = text.len > 1 ? text.ptr[1] : '\0';

	for (size_t i = 2; next == '[' && i < text.len; i++)
		if (text.ptr[i] >= '@' && text.ptr[i] <= '~')
			return i + 1;
	for (size_t i = 2; next == ']' && i < text.len; i++)
		if (text.ptr[i] == '\a' || text.ptr[i] == ESCAPE)
			return i + 1;
	return 0;
}

/* On a line of its own, as much as there is room for; colours would tear words. */
static void add(struct buf *out, struct slice text)
{
	size_t from = 0;

	text = slice_trim(text);
	if (!text.len || out->len >= out->max)
		return;
	if (out->len)
		(void)buf_lit(out, "\n");
	for (size_t i = 0; i < text.len;) {
		const size_t escape =
			text.ptr[i] == ESCAPE
				? escape_length(slice_sub(text, i, text.len))
				: 0;

		if (!escape) {
			i++;
			continue;
		}
		(void)buf_append(out,
				 slice_sub(text, from,
					   from + utf8_floor(slice_sub(text, from, i),
							     out->max - out->len)));
		from = i += escape;
	}
	text = slice_sub(text, from, text.len);
	(void)buf_append(out, slice_sub(text, 0, utf8_floor(text, out->max - out->len)));
}

static void add_json(struct buf *out, struct slice raw, struct buf *scratch)
{
	acp_set_text(scratch, raw, SEARCH_TEXT_MAX);
	if (scratch->len)
		add(out, buf_slice(scratch));
}

static void add_diff(struct buf *out, struct slice part, struct buf *scratch)
{
	struct slice hunks = acp_get(part, "hunks"), hunk, line;

	while (acp_next(&hunks, &hunk)) {
		struct slice lines = acp_get(hunk, "lines");

		while (acp_next(&lines, &line)) {
			acp_set_text(scratch, acp_string(line), SEARCH_TEXT_MAX);
			/* Without the sign. */
			add(out, slice_sub(buf_slice(scratch), 1, scratch->len));
		}
	}
}

/* What the parts say, of which some is kept. */
static void add_parts(struct buf *out, const struct buf *parts, struct buf *scratch)
{
	struct buf array = {.max = parts->len + 3}, said = {.max = 1u << 20};
	struct slice rest, part, text;

	(void)buf_lit(&array, "[");
	(void)buf_append(&array, buf_slice(parts));
	(void)buf_lit(&array, "]");
	rest = buf_slice(&array);
	while (acp_next(&rest, &part)) {
		add_json(out, acp_get_string(part, "path"), scratch);
		add_json(out, acp_get_string(part, "uri"), scratch);
		add_json(&said, acp_get_string(part, "text"), scratch);
		add_diff(&said, part, scratch);
	}
	text = buf_slice(&said);
	if (text.len > SEARCH_OUTPUT_MAX) {
		const size_t half = SEARCH_OUTPUT_MAX / 2;
		size_t tail = text.len - half;

		/* Both ends at a character. */
		while (tail < text.len && ((unsigned char)text.ptr[tail] & 0xc0) == 0x80)
			tail++;
		add(out, slice_sub(text, 0, utf8_floor(text, half)));
		add(out, slice_sub(text, tail, text.len));
	} else {
		add(out, text);
	}
	buf_finish(&array);
	buf_finish(&said);
}

static void add_tool(struct buf *out, const struct tool *tool, const char *verb)
{
	const struct buf *parts = tool->parts.len ? &tool->parts : &tool->raw_parts;
	struct buf scratch = {.max = SEARCH_TEXT_MAX}, object = {0};
	struct slice rest = buf_slice(&tool->locations), item;

	tool_object(tool, &object);
	(void)buf_printf(out, "%s ", verb);
	(void)buf_append(out, buf_slice(&object));
	if (!slice_eq(buf_slice(&object), buf_slice(&tool->title)))
		add(out, buf_slice(&tool->title));
	if (tool->command.len > object.len) /* the object is cut */
		add(out, buf_slice(&tool->command));
	while (acp_next(&rest, &item))
		add_json(out, acp_string(item), &scratch);
	for (size_t i = 0; i < tool->file_count; i++)
		add(out, buf_slice(&tool->files[i].path));
	add_parts(out, parts, &scratch);
	buf_finish(&object);
	buf_finish(&scratch);
}

/* The members of simple rows that are words. */
static void add_body(struct buf *out, const struct buf *body)
{
	static const char *const members[] = {"text", "detail", "stderr", "json"};
	struct buf object = {.max = body->len + 3}, scratch = {.max = SEARCH_TEXT_MAX};
	struct slice entries, entry;

	(void)buf_lit(&object, "{");
	(void)buf_append(&object, buf_slice(body));
	(void)buf_lit(&object, "}");
	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
		add_json(out, acp_get_string(buf_slice(&object), members[i]), &scratch);
	entries = acp_get(buf_slice(&object), "entries");
	while (acp_next(&entries, &entry))
		add_json(out, acp_get_string(entry, "text"), &scratch);
	buf_finish(&object);
	buf_finish(&scratch);
}

void search_text(const struct row *row, struct buf *out)
{
	out->max = out->len + SEARCH_TEXT_MAX;
	if (row->type == ROW_GAP)
		return;
	if (row->tool) {
		add_tool(out, row->tool, tool_verb(row->tool));
	} else if (row->permission) {
		add_tool(out, &row->permission->tool, tool_wish(&row->permission->tool));
		if (row->permission->text.len > row->permission->tool.command.len)
			add(out, buf_slice(&row->permission->text));
		add(out, buf_slice(&row->permission->reason));
	} else if (row->text.len) {
		add(out, buf_slice(&row->text));
	} else if (row->body.len) {
		add_body(out, &row->body);
	}
}

/* ---- words where nobody writes blanks ---- */

static const struct range {
	uint32_t first, last;
} lone[] = {
	{0x0e00, 0x0eff},   /* Thai, Lao */
	{0x1000, 0x109f},   /* Myanmar */
	{0x1780, 0x17ff},   /* Khmer */
	{0x2190, 0x21ff},   /* arrows */
	{0x2300, 0x23ff},   /* technical */
	{0x25a0, 0x27bf},   /* shapes, symbols, dingbats */
	{0x2b00, 0x2bff},   /* arrows and stars */
	{0x2e80, 0x2fdf},   /* radicals */
	{0x3005, 0x3007},   /* iteration mark, zero */
	{0x3041, 0x318f},   /* kana, bopomofo, jamo */
	{0x31a0, 0x4dbf},   /* kana, ideographs */
	{0x4e00, 0x9fff},   /* ideographs */
	{0xac00, 0xd7a3},   /* Hangul */
	{0xf900, 0xfaff},   /* ideographs */
	{0xff66, 0xff9d},   /* half-width kana */
	{0x1f000, 0x1faff}, /* emoji */
	{0x20000, 0x3ffff}, /* ideographs */
};

static uint32_t decode(const char *at, int len)
{
	const unsigned char *byte = (const unsigned char *)at;

	if (len == 3)
		return (byte[0] & 0x0fu) << 12 | (byte[1] & 0x3fu) << 6 |
		       (byte[2] & 0x3fu);
	if (len == 4)
		return (byte[0] & 0x07u) << 18 | (byte[1] & 0x3fu) << 12 |
		       (byte[2] & 0x3fu) << 6 | (byte[3] & 0x3fu);
	return 0; /* shorter ones are letters of other scripts */
}

static bool is_lone(uint32_t code)
{
	size_t low = 0, high = sizeof(lone) / sizeof(*lone);

	while (low < high) {
		const size_t middle = (low + high) / 2;

		if (lone[middle].last < code)
			low = middle + 1;
		else
			high = middle;
	}
	return low < sizeof(lone) / sizeof(*lone) && code >= lone[low].first;
}

struct spread {
	struct buf *out;
	uint32_t **at;
	size_t *at_count, room;
};

static void put_blank(struct spread *spread)
{
	if (spread->at) {
		if (*spread->at_count == spread->room) {
			spread->room = spread->room ? spread->room * 2 : 64;
			*spread->at =
				mem_grow(*spread->at, spread->room, sizeof(**spread->at));
		}
		(*spread->at)[(*spread->at_count)++] = (uint32_t)spread->out->len;
	}
	(void)buf_lit(spread->out, " ");
}

void search_spread(struct slice text, struct buf *out, uint32_t **at, size_t *at_count)
{
	struct spread spread = {.out = out, .at = at, .at_count = at_count};
	size_t from = 0;

	/* At worst a blank for each character of three bytes, and one more. */
	out->max = out->len + text.len * 2 + 2;
	for (size_t i = 0; i < text.len;) {
		const struct slice rest = slice_sub(text, i, text.len);
		const int front = (unsigned char)*rest.ptr < 0x80 ? 1 : utf8_front(rest);
		const size_t len = (size_t)(front < 0 ? -front : front);
		const uint32_t code = front >= 3 ? decode(rest.ptr, front) : 0;

		if (*rest.ptr == '\0' || front < 0 ||
		    (code >= 0x2500 && code <= 0x259f)) {
			(void)buf_append(out, slice_sub(text, from, i));
			for (size_t k = 0; k < len; k++)
				(void)buf_lit(out, " ");
			from = i + len;
		} else if (code && is_lone(code)) {
			(void)buf_append(out, slice_sub(text, from, i));
			if (out->len && out->ptr[out->len - 1] != ' ')
				put_blank(&spread);
			(void)buf_append(out, slice_sub(text, i, i + len));
			put_blank(&spread);
			from = i + len;
		}
		i += len;
	}
	(void)buf_append(out, slice_sub(text, from, text.len));
}
