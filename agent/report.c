#include "agent/report.h"

#include <string.h>

#include "agent/lookup.h"
#include "agent/turns.h"
#include "wire/nostr/json.h"

/* Payloads of ours are small, but hold what an agent offers and its last words. */
#define REPORT_MAX (4u << 20)

struct feed_context report_context(const struct channel *channel)
{
	struct feed_context context = {.slot = channel->slot, .channel = &channel->uuid};

	if (channel->state == SESSION_OPEN)
		context.session = buf_slice(&channel->session);
	if (channel->turn) {
		context.turn = slice_of(channel->turn->id);
		context.turn_started_ms = channel->turn->started_unix_ms;
	}
	return context;
}

void report_event(struct sender *sender, const struct feed_context *context,
		  const char *kind, struct slice payload)
{
	(void)feed_emit(sender_feed(sender), sender_time(sender), context, slice_of(kind),
			SLICE_EMPTY, payload);
	sender_kick(sender);
}

void report_note(struct sender *sender, const struct feed_context *context,
		 const char *level, struct slice text)
{
	struct buf payload;

	report_begin(&payload);
	(void)json_write_member_string(&payload, SLICE("text"), text);
	(void)json_write_member_string(&payload, SLICE("source"), SLICE("harness"));
	(void)json_write_member_string(&payload, SLICE("level"), slice_of(level));
	report_end(sender, context, "note", &payload);
}

void report_begin(struct buf *payload)
{
	buf_init(payload, REPORT_MAX);
	(void)buf_lit(payload, "{");
}

void report_end(struct sender *sender, const struct feed_context *context,
		const char *kind, struct buf *payload)
{
	(void)buf_lit(payload, "}");
	report_event(sender, context, kind,
		     buf_ok(payload) ? buf_slice(payload) : SLICE("{}"));
	buf_finish(payload);
}

void report_stopping(struct sender *sender, const char *reason,
		     const struct sender_left *left)
{
	const struct feed_context context = {.slot = -1};
	struct buf payload;

	report_begin(&payload);
	(void)json_write_member_string(&payload, SLICE("reason"), slice_of(reason));
	(void)json_write_key(&payload, SLICE("left"));
	(void)buf_lit(&payload, "{");
	(void)json_write_member_int(&payload, SLICE("frames"), (int64_t)left->frames);
	(void)json_write_member_int(&payload, SLICE("events"), (int64_t)left->events);
	(void)buf_lit(&payload, "}");
	(void)json_write_member_int(&payload, SLICE("journalled"),
				    (int64_t)left->journalled);
	report_end(sender, &context, "harness_stopping", &payload);
}

void report_member(struct buf *out, struct slice key, struct slice bytes)
{
	struct buf clean;

	buf_init(&clean, 3 * bytes.len);
	(void)text_clean(bytes, &clean);
	(void)json_write_member_string(out, key,
				       clean.len ? buf_slice(&clean) : SLICE(""));
	buf_finish(&clean);
}

void report_uuid(char out[UUID_LEN + 1])
{
	uint8_t bytes[16];
	char hex[32];
	size_t at = 0;

	loop_random(bytes, sizeof(bytes));
	bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x40);
	bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
	hex_encode(bytes, sizeof(bytes), hex);
	for (size_t i = 0; i < sizeof(hex); i++) {
		if (i == 8 || i == 12 || i == 16 || i == 20)
			out[at++] = '-';
		out[at++] = hex[i];
	}
	out[at] = '\0';
}
