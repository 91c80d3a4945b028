#include "observer/tool.h"

#include <string.h>

#include "observer/acp.h"
#include "observer/diff.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

/* Room for parts of one tool call: each at most two output sides or DIFF_LINES_MAX lines,
 * escaped at worst sixfold. */
#define PARTS_MAX (8u << 20)

static void set_short(struct buf *out, struct slice object, const char *key, size_t max)
{
	const struct slice raw = acp_get_string(object, key);

	if (raw.ptr)
		acp_set_text(out, raw, max);
}

static void set_status(struct tool *tool, struct slice raw)
{
	static const struct {
		const char *name;
		enum tool_status status;
	} names[] = {{"pending", TOOL_PENDING},
		     {"in_progress", TOOL_IN_PROGRESS},
		     {"completed", TOOL_COMPLETED},
		     {"failed", TOOL_FAILED},
		     {"cancelled", TOOL_CANCELLED}};

	if (!raw.ptr)
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (!json_is(raw, slice_of(names[i].name)))
			continue;
		if (tool->status < TOOL_COMPLETED || names[i].status >= TOOL_COMPLETED)
			tool->status = names[i].status;
		return;
	}
}

static void set_locations(struct tool *tool, struct slice locations)
{
	struct slice rest = locations, item;
	unsigned count = 0;

	if (!acp_is_array(locations))
		return;
	buf_clear(&tool->locations);
	buf_clear(&tool->first_path);
	tool->locations.max = 64 * (ROW_PATH_MAX * 6 + 3) + 2;
	(void)buf_lit(&tool->locations, "[");
	while (acp_next(&rest, &item) && count < 64) {
		const struct slice path = acp_get_string(item, "path");
		struct buf text = {0};

		if (!path.ptr)
			continue;
		acp_set_text(&text, path, ROW_PATH_MAX);
		if (!count)
			acp_set_text(&tool->first_path, path, ROW_PATH_MAX);
		if (count++)
			(void)buf_lit(&tool->locations, ",");
		(void)json_write_string(&tool->locations, buf_slice(&text));
		buf_finish(&text);
	}
	(void)buf_lit(&tool->locations, "]");
}

/* rawInput.command: text, or an argv. */
static void set_command(struct tool *tool, struct slice input)
{
	struct slice command = acp_get(input, "command"), item;

	if (!command.ptr)
		command = acp_get(input, "cmd");
	if (!command.ptr)
		return;
	buf_clear(&tool->command);
	if (!acp_is_array(command)) {
		tool->command_bytes = acp_append_text(&tool->command, acp_string(command),
						      ROW_TEXT_MAX);
		return;
	}
	tool->command_bytes = 0;
	while (acp_next(&command, &item)) {
		if (tool->command_bytes)
			tool->command_bytes +=
				acp_append_text(&tool->command, SLICE(" "), ROW_TEXT_MAX);
		tool->command_bytes +=
			acp_append_text(&tool->command, acp_string(item), ROW_TEXT_MAX);
	}
}

static void part_begin(struct buf *out, const char *type)
{
	if (out->len)
		(void)buf_lit(out, ",");
	(void)buf_printf(out, "{\"type\":\"%s\"", type);
}

static void part_string(struct buf *out, const char *key, struct slice raw)
{
	(void)json_write_key(out, slice_of(key));
	(void)buf_lit(out, "\"");
	(void)json_write_raw(out, raw);
	(void)buf_lit(out, "\"");
}

/* Output keeps its head and its tail; between them a line says what was left out. */
static void part_output(struct buf *out, struct slice text)
{
	size_t head = text.len, tail = text.len;

	if (text.len > 2 * TOOL_OUTPUT_SIDE) {
		head = utf8_floor(text, TOOL_OUTPUT_SIDE);
		tail = text.len - TOOL_OUTPUT_SIDE;
		while (tail < text.len && ((uint8_t)text.ptr[tail] & 0xc0) == 0x80)
			tail++;
	}
	part_begin(out, "output");
	(void)json_write_key(out, SLICE("text"));
	(void)buf_lit(out, "\"");
	(void)json_write_chars(out, slice_sub(text, 0, head));
	if (tail > head)
		(void)buf_printf(out,
				 "\\n\xe2\x80\xa6 %zu bytes left out \xe2\x80\xa6\\n",
				 tail - head);
	(void)json_write_chars(out, slice_sub(text, tail, text.len));
	(void)buf_lit(out, "\"");
	json_write_member_int(out, SLICE("bytes"), (int64_t)text.len);
	json_write_member_bool(out, SLICE("more"), tail > head);
	(void)buf_lit(out, "}");
}

static void part_diff(struct tool *tool, struct slice item, struct buf *out)
{
	const struct slice path = acp_get_string(item, "path");
	struct buf old = {0}, new = {0};
	struct diff_size size;

	(void)acp_append_text(&old, acp_get_string(item, "oldText"), SIZE_MAX);
	(void)acp_append_text(&new, acp_get_string(item, "newText"), SIZE_MAX);
	part_begin(out, "diff");
	part_string(out, "path", path);
	(void)buf_lit(out, ",");
	diff_write(buf_slice(&old), buf_slice(&new), out, &size);
	(void)buf_lit(out, "}");
	if (!tool->files)
		tool->files = mem_array(TOOL_FILES_MAX, sizeof(*tool->files));
	if (tool->file_count < TOOL_FILES_MAX) {
		struct tool_file *file = &tool->files[tool->file_count++];

		file->path = (struct buf){0};
		acp_set_text(&file->path, path, ROW_PATH_MAX);
		file->added = size.added;
		file->removed = size.removed;
	}
	if (!tool->first_path.len)
		acp_set_text(&tool->first_path, path, ROW_PATH_MAX);
	buf_finish(&old);
	buf_finish(&new);
}

static void part_block(const struct tool *tool, struct slice block, struct buf *out)
{
	const struct slice type = acp_get_string(block, "type");
	const struct slice data = acp_get_string(block, "data");
	const struct slice resource = acp_get(block, "resource");
	const struct slice uri = acp_get_string(resource.ptr ? resource : block, "uri");
	struct buf text = {0};

	if (json_is(type, SLICE("image")) || json_is(type, SLICE("audio"))) {
		part_begin(out, "image");
		part_string(out, "mime", acp_get_string(block, "mimeType"));
		json_write_member_int(out, SLICE("bytes"), (int64_t)(data.len / 4 * 3));
		(void)buf_lit(out, "}");
	} else if (uri.ptr) {
		part_begin(out, "link");
		part_string(out, "uri", uri);
		part_string(out, "name", acp_get_string(block, "name"));
		(void)buf_lit(out, "}");
	} else {
		(void)acp_append_block(&text, block, SIZE_MAX);
		if (slice_eq(buf_slice(&tool->kind), SLICE("execute"))) {
			part_output(out, buf_slice(&text));
		} else {
			part_begin(out, "text");
			(void)json_write_key(out, SLICE("text"));
			(void)json_write_string(
				out,
				slice_sub(buf_slice(&text), 0,
					  utf8_floor(buf_slice(&text), ROW_TEXT_MAX)));
			(void)buf_lit(out, "}");
		}
	}
	buf_finish(&text);
}

static void set_content(struct tool *tool, struct slice content)
{
	struct slice rest = content, item;
	struct buf *out = &tool->parts;

	if (!acp_is_array(content))
		return;
	buf_clear(out);
	out->max = PARTS_MAX;
	for (size_t i = 0; i < tool->file_count; i++)
		buf_finish(&tool->files[i].path);
	tool->file_count = 0;
	for (unsigned count = 0; count < TOOL_PARTS_MAX && acp_next(&rest, &item);
	     count++) {
		const struct slice type = acp_get_string(item, "type");
		const size_t before = out->len;

		if (json_is(type, SLICE("diff"))) {
			part_diff(tool, item, out);
		} else if (json_is(type, SLICE("terminal"))) {
			part_begin(out, "terminal");
			part_string(out, "id", acp_get_string(item, "terminalId"));
			(void)buf_lit(out, "}");
		} else {
			const struct slice block = acp_get(item, "content");

			part_block(tool, block.ptr ? block : item, out);
		}
		if (!buf_ok(out)) { /* a part that has no room is left out whole */
			buf_truncate(out, before);
			out->full = false;
			break;
		}
	}
}

struct slice tool_output_text(struct slice update)
{
	static const char *const texts[] = {"output", "stdout", "formatted_output",
					    "text"};
	const struct slice output = acp_get(update, "rawOutput");
	struct slice raw = acp_string(output);

	for (size_t i = 0; !raw.ptr && i < sizeof(texts) / sizeof(*texts); i++)
		raw = acp_get_string(output, texts[i]);
	return raw.len ? raw : SLICE_EMPTY;
}

/* Agents that say nothing in content often say it in rawOutput. */
static void set_raw_output(struct tool *tool, struct slice update)
{
	static const char *const codes[] = {"exitCode", "exit_code", "exit"};
	const struct slice output = acp_get(update, "rawOutput");
	const struct slice raw = tool_output_text(update);
	struct buf text = {0};

	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
		const int64_t code = acp_get_int(output, codes[i], -1);

		if (code >= 0) {
			tool->has_exit = true;
			tool->exit_code = code;
		}
	}
	if (!raw.len)
		return;
	(void)acp_append_text(&text, raw, SIZE_MAX);
	buf_clear(&tool->raw_parts);
	tool->raw_parts.max = PARTS_MAX;
	part_output(&tool->raw_parts, buf_slice(&text));
	buf_finish(&text);
}

void tool_update(struct tool *tool, struct slice update)
{
	const struct slice input = acp_get(update, "rawInput");
	struct slice raw;

	set_short(&tool->call, update, "toolCallId", ROW_SHORT_MAX);
	/* Placeholders of a first call come with an empty title; a later one is not
	 * undone. */
	raw = acp_get_string(update, "title");
	if (raw.len)
		acp_set_text(&tool->title, raw, ROW_PATH_MAX);
	set_short(&tool->kind, update, "kind", 64);
	raw = acp_get_string(acp_get2(update, "_meta", "claudeCode"), "parentToolUseId");
	if (raw.len)
		acp_set_text(&tool->parent, raw, ROW_SHORT_MAX);
	set_status(tool, acp_get_string(update, "status"));
	set_locations(tool, acp_get(update, "locations"));
	if (input.ptr && !slice_eq(input, SLICE("{}"))) {
		set_command(tool, input);
		buf_clear(&tool->input);
		tool->input.max = ROW_INPUT_MAX;
		(void)buf_append(&tool->input,
				 slice_sub(input, 0, utf8_floor(input, ROW_INPUT_MAX)));
	}
	set_content(tool, acp_get(update, "content"));
	set_raw_output(tool, update);
}

uint64_t tool_request_text(const struct tool *tool, struct slice update, struct buf *out)
{
	const struct slice input = acp_get(update, "rawInput");
	struct slice text = buf_slice(&tool->title);
	uint64_t bytes;

	if (tool->command.len)
		text = buf_slice(&tool->command);
	else if (input.ptr && !slice_eq(input, SLICE("{}")))
		text = input;
	bytes = tool->command.len ? tool->command_bytes : text.len;
	buf_clear(out);
	out->max = ROW_TEXT_MAX;
	(void)buf_append(out, slice_sub(text, 0, utf8_floor(text, ROW_TEXT_MAX)));
	return bytes;
}

/* ---- the name ---- */

#define NAME_WORDS 3
#define NAME_MAX_BYTES 40

/* Options, paths, quotes and what a shell does with commands are not part of its name. */
static bool is_name_word(struct slice word)
{
	for (size_t i = 0; i < word.len; i++)
		if (strchr("./~$\"'`&|;<>(){}=\\*#", word.ptr[i]))
			return false;
	return word.len > 0 && *word.ptr != '-';
}

/* `make test`, `npm run lint`; a program by its path goes by its own name. */
static bool command_name(struct slice command, struct buf *out)
{
	struct slice word;

	for (unsigned words = 0; words < NAME_WORDS && command.len; words++) {
		command = slice_trim(command);
		(void)slice_take_until(&command, ' ', &word);
		if (!words)
			for (size_t at; (at = slice_find(word, '/')) < word.len;)
				word = slice_sub(word, at + 1, word.len);
		if (!is_name_word(word) || out->len + word.len + 1 > NAME_MAX_BYTES)
			break;
		if (words)
			(void)buf_lit(out, " ");
		(void)buf_append(out, word);
	}
	return out->len > 0;
}

void tool_name(const struct tool *tool, struct buf *out, bool *is_command)
{
	static const char *const names[][2] = {
		{"read", "Read"},   {"edit", "Edit"},     {"delete", "Delete"},
		{"move", "Move"},   {"search", "Search"}, {"execute", "Shell"},
		{"think", "Think"}, {"fetch", "Fetch"},   {"switch_mode", "Mode"},
	};
	const struct slice kind = buf_slice(&tool->kind);
	const struct slice title = buf_slice(&tool->title);

	buf_clear(out);
	out->max = ROW_SHORT_MAX;
	*is_command = tool->command.len && command_name(buf_slice(&tool->command), out);
	if (*is_command)
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (slice_eq(kind, slice_of(names[i][0])))
			(void)buf_append(out, slice_of(names[i][1]));
	if (!out->len)
		(void)buf_append(out,
				 slice_sub(title, 0, utf8_floor(title, NAME_MAX_BYTES)));
	if (!out->len)
		(void)buf_lit(out, "Tool");
}
