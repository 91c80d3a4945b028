#include "agent/emit_event.h"

#include <stdlib.h>

#include "agent/acp_line.h"
#include "agent/lookup.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

/* The message is one level around the payload. */
#define MESSAGE_DEPTH_MAX (ACP_DEPTH_MAX + 1)

void emit_spans_init(struct emit_spans *spans)
{
	map_init(&spans->names);
}

static void name_free(struct buf *name)
{
	if (!name)
		return;
	buf_finish(name);
	free(name);
}

void emit_spans_finish(struct emit_spans *spans)
{
	struct map_entry *entry = NULL;

	while ((entry = map_next(&spans->names, entry)))
		name_free(entry->value);
	map_finish(&spans->names);
}

bool emit_kind_valid(struct slice kind)
{
	if (kind.len > EMIT_KIND_MAX)
		return false;
	if (slice_eq(kind, SLICE("note")) || slice_eq(kind, SLICE("output")) ||
	    slice_eq(kind, SLICE("span_start")) || slice_eq(kind, SLICE("span_end")))
		return true;
	if (!slice_starts(kind, SLICE("x-")) || kind.len == 2)
		return false;
	for (size_t i = 0; i < kind.len; i++) {
		const char c = kind.ptr[i];

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
		      c == '_'))
			return false;
	}
	return true;
}

/* All members but "source", which is ours to say. False when there are none. */
static bool copy_members(struct slice payload, struct buf *out)
{
	struct json json;
	struct slice key, value;
	bool any = false;

	json_init(&json, payload);
	(void)json_enter_object(&json);
	while (json_member(&json, &key)) {
		(void)json_skip(&json, &value);
		if (json_is(key, SLICE("source")))
			continue;
		(void)buf_append(out, any ? SLICE(",\"") : SLICE("\""));
		(void)buf_append(out, key);
		(void)buf_lit(out, "\":");
		(void)buf_append(out, value);
		any = true;
	}
	return any;
}

static bool has_text(struct slice payload, struct slice key)
{
	return lookup_string(payload, key).ptr != NULL;
}

/* Remembers, or adds, what a span is called. */
static bool read_span(struct emit_spans *spans, struct slice payload, bool starts,
		      struct buf *out, struct err *err)
{
	const struct slice id = lookup_string(payload, SLICE("id"));
	const struct slice name = lookup_string(payload, SLICE("name"));
	struct buf *known;

	if (!id.len || id.len > EMIT_SPAN_ID_MAX)
		return err_set(err, ERR_MALFORMED,
			       "a span wants an \"id\" of 1 to %d bytes",
			       EMIT_SPAN_ID_MAX);
	if (starts && !name.len)
		return err_set(err, ERR_MALFORMED, "span_start wants a \"name\"");
	if (starts && spans->names.count < EMIT_SPANS_MAX) {
		known = mem_alloc(sizeof(*known));
		buf_init(known, name.len);
		(void)buf_append(known, name);
		name_free(map_put(&spans->names, id, known));
	}
	if (starts)
		return true;
	known = map_take(&spans->names, id);
	if (!name.ptr) {
		(void)buf_lit(out, "\"name\":\"");
		(void)buf_append(out, known ? buf_slice(known) : id);
		(void)buf_lit(out, "\",");
	}
	name_free(known);
	return true;
}

static bool check_payload(struct emit_spans *spans, struct slice kind,
			  struct slice payload, struct buf *out, struct err *err)
{
	if ((slice_eq(kind, SLICE("note")) || slice_eq(kind, SLICE("output"))) &&
	    !has_text(payload, SLICE("text")))
		return err_set(err, ERR_MALFORMED, "%.*s wants a \"text\"",
			       SLICE_ARG(kind));
	if (slice_eq(kind, SLICE("output")) &&
	    !lookup_is(payload, SLICE("stream"), SLICE("stdout")) &&
	    !lookup_is(payload, SLICE("stream"), SLICE("stderr")))
		return err_set(err, ERR_MALFORMED,
			       "output wants a \"stream\", stdout or stderr");
	if (slice_eq(kind, SLICE("span_start")))
		return read_span(spans, payload, true, out, err);
	if (slice_eq(kind, SLICE("span_end")))
		return read_span(spans, payload, false, out, err);
	return true;
}

bool emit_event_read(struct emit_spans *spans, struct slice message,
		     struct emit_event *out, struct err *err)
{
	struct slice payload;
	struct json json;

	/* Room for a name and the source. */
	buf_init(&out->payload, (size_t)2 * EMIT_MESSAGE_MAX);
	if (message.len > EMIT_MESSAGE_MAX)
		return err_set(err, ERR_TOO_LARGE, "an event takes at most %d bytes",
			       EMIT_MESSAGE_MAX);
	json_init(&json, message);
	json_limit_depth(&json, MESSAGE_DEPTH_MAX);
	if (json_peek(&json) == JSON_OBJECT)
		(void)json_skip(&json, NULL);
	if (!json_end(&json, err))
		return false;
	message = slice_trim(message);
	out->kind = lookup_string(message, SLICE("kind"));
	payload = lookup(message, SLICE("payload"));
	if (!out->kind.ptr || !emit_kind_valid(out->kind))
		return err_set(err, ERR_MALFORMED,
			       "the kind is note, output, span_start, span_end or x- "
			       "and small letters, digits, - or _");
	if (!payload.len || payload.ptr[0] != '{')
		return err_set(err, ERR_MALFORMED, "the payload is no JSON object");
	(void)buf_lit(&out->payload, "{");
	if (!check_payload(spans, out->kind, payload, &out->payload, err))
		return false;
	if (copy_members(payload, &out->payload))
		(void)buf_lit(&out->payload, ",");
	(void)buf_lit(&out->payload, "\"source\":\"emit\"}");
	return true;
}

void emit_event_finish(struct emit_event *event)
{
	buf_finish(&event->payload);
}
