#include "agent/json_lines.h"

#include "agent/acp_line.h"
#include "agent/lookup.h"
#include "wire/nostr/json.h"

static const char *level_of_word(struct slice raw)
{
	static const struct {
		struct slice word;
		const char *level;
	} words[] = {
		{SLICE_INIT("warn"), "warn"},    {SLICE_INIT("warning"), "warn"},
		{SLICE_INIT("error"), "error"},  {SLICE_INIT("err"), "error"},
		{SLICE_INIT("fatal"), "error"},  {SLICE_INIT("critical"), "error"},
		{SLICE_INIT("panic"), "error"},  {SLICE_INIT("WARN"), "warn"},
		{SLICE_INIT("WARNING"), "warn"}, {SLICE_INIT("ERROR"), "error"},
		{SLICE_INIT("FATAL"), "error"},  {SLICE_INIT("CRITICAL"), "error"},
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (json_is(raw, words[i].word))
			return words[i].level;
	return "info";
}

/* NULL: the object has none. */
static const char *level_of(struct slice object)
{
	static const struct slice keys[] = {SLICE_INIT("level"), SLICE_INIT("severity")};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		const struct slice value = lookup(object, keys[i]);
		uint64_t number;

		if (value.len && value.ptr[0] == '"')
			return level_of_word(slice_sub(value, 1, value.len - 1));
		if (slice_parse_u64(value, 1000, &number))
			return number < 40 ? "info" : number < 50 ? "warn" : "error";
	}
	return NULL;
}

static struct slice text_of(struct slice object)
{
	static const struct slice keys[] = {SLICE_INIT("msg"), SLICE_INIT("message"),
					    SLICE_INIT("text")};
	struct slice text = SLICE_EMPTY;

	for (size_t i = 0; !text.ptr && i < sizeof(keys) / sizeof(*keys); i++)
		text = lookup_string(object, keys[i]);
	return text;
}

static void write_note(struct slice text, const char *level, struct emit_event *out)
{
	out->kind = SLICE("note");
	(void)buf_lit(&out->payload, "{\"text\":\"");
	(void)buf_append(&out->payload, text);
	(void)buf_lit(&out->payload, "\"");
	(void)json_write_member_string(&out->payload, SLICE("level"), slice_of(level));
	(void)buf_lit(&out->payload, ",\"source\":\"emit\"}");
}

static bool is_object(struct slice line)
{
	struct json json;

	json_init(&json, line);
	json_limit_depth(&json, ACP_DEPTH_MAX);
	return line.len > 0 && line.len <= EMIT_MESSAGE_MAX && line.ptr[0] == '{' &&
	       json_skip(&json, NULL) && json_end(&json, NULL);
}

bool json_line_read(struct emit_spans *spans, struct slice line, struct emit_event *out)
{
	const char *level;
	struct slice text;
	struct err err;

	line = slice_trim(line);
	buf_init(&out->payload, (size_t)2 * EMIT_MESSAGE_MAX);
	if (!is_object(line))
		return false;
	if (lookup_string(line, SLICE("kind")).ptr &&
	    emit_event_read(spans, line, out, &err))
		return true;
	buf_clear(&out->payload);
	level = level_of(line);
	text = text_of(line);
	if (level && text.ptr) {
		write_note(text, level, out);
		return true;
	}
	out->kind = SLICE("x-json");
	(void)buf_append(&out->payload, line);
	return true;
}
