#include "observer/raw.h"

#include "observer/acp.h"
#include "wire/nostr/json.h"

#define NAME_MAX_BYTES 80

static void mark(struct buf *out, const char *key, uint64_t number)
{
	if (number)
		json_write_member_int(out, slice_of(key), (int64_t)number);
}

/* "session/update tool_call"; an answer goes by what it answers. */
static void write_name(struct slice payload, struct buf *out)
{
	const struct slice method = acp_get_string(payload, "method");
	const struct slice update =
		acp_get_string(acp_get2(payload, "params", "update"), "sessionUpdate");

	(void)json_write_key(out, SLICE("name"));
	(void)buf_lit(out, "\"");
	if (method.len && method.len <= NAME_MAX_BYTES)
		(void)json_write_raw(out, method);
	else if (method.len)
		(void)buf_lit(out, "a long name");
	else if (acp_get(payload, "error").ptr)
		(void)buf_lit(out, "error");
	else
		(void)buf_lit(out, "result");
	if (update.len && update.len <= NAME_MAX_BYTES) {
		(void)buf_lit(out, " ");
		(void)json_write_raw(out, update);
	}
	(void)buf_lit(out, "\"");
}

void raw_write(const struct observer_event *event, const struct pos *pos, int64_t unix_ms,
	       size_t cut, struct buf *out)
{
	const struct slice payload = event->payload;
	char place[POS_LEN + 1];

	pos_format(pos, place);
	(void)buf_lit(out, "{");
	json_write_member_string(out, SLICE("pos"), slice_of(place));
	json_write_member_int(out, SLICE("t"), unix_ms);
	(void)json_write_key(out, SLICE("kind"));
	(void)buf_lit(out, "\"");
	(void)json_write_raw(out, event->kind);
	(void)buf_lit(out, "\"");
	if (json_is(event->kind, SLICE("acp_read")))
		json_write_member_string(out, SLICE("direction"), SLICE("read"));
	else if (json_is(event->kind, SLICE("acp_write")))
		json_write_member_string(out, SLICE("direction"), SLICE("write"));
	if (slice_starts(event->kind, SLICE("acp_")) && acp_is_object(payload))
		write_name(payload, out);
	json_write_member_int(out, SLICE("bytes"), (int64_t)payload.len);
	json_write_member_string(out, SLICE("text"),
				 slice_sub(payload, 0, utf8_floor(payload, cut)));
	mark(out, "merged", event->merged);
	mark(out, "trimmed", event->trimmed);
	if (event->redacted)
		json_write_member_bool(out, SLICE("redacted"), true);
	if (event->repaired)
		json_write_member_bool(out, SLICE("repaired"), true);
	(void)buf_lit(out, "}");
}
