#include "wire/frame/observer_event.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "wire/base/arena.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip44.h"

/* Members of an event and, from MEMBER_EPOCH on, those of a frame's top level only. */
enum member {
	MEMBER_SEQ,
	MEMBER_MONOTONIC_MS,
	MEMBER_TIMESTAMP,
	MEMBER_KIND,
	MEMBER_AGENT_INDEX,
	MEMBER_CHANNEL_ID,
	MEMBER_SESSION_ID,
	MEMBER_TURN_ID,
	MEMBER_STARTED_AT,
	MEMBER_AUTHORIZATION,
	MEMBER_MERGED,
	MEMBER_TRIMMED,
	MEMBER_REDACTED,
	MEMBER_REPAIRED,
	MEMBER_PAYLOAD,
	MEMBER_EPOCH,
	MEMBER_FRAME,
	MEMBER_REPLAYED,
	MEMBER_UNKNOWN,
};

static const struct slice member_names[] = {
	[MEMBER_SEQ] = SLICE_INIT("seq"),
	[MEMBER_MONOTONIC_MS] = SLICE_INIT("monotonicMs"),
	[MEMBER_TIMESTAMP] = SLICE_INIT("timestamp"),
	[MEMBER_KIND] = SLICE_INIT("kind"),
	[MEMBER_AGENT_INDEX] = SLICE_INIT("agentIndex"),
	[MEMBER_CHANNEL_ID] = SLICE_INIT("channelId"),
	[MEMBER_SESSION_ID] = SLICE_INIT("sessionId"),
	[MEMBER_TURN_ID] = SLICE_INIT("turnId"),
	[MEMBER_STARTED_AT] = SLICE_INIT("startedAt"),
	[MEMBER_AUTHORIZATION] = SLICE_INIT("authorization"),
	[MEMBER_MERGED] = SLICE_INIT("merged"),
	[MEMBER_TRIMMED] = SLICE_INIT("trimmed"),
	[MEMBER_REDACTED] = SLICE_INIT("redacted"),
	[MEMBER_REPAIRED] = SLICE_INIT("repaired"),
	[MEMBER_PAYLOAD] = SLICE_INIT("payload"),
	[MEMBER_EPOCH] = SLICE_INIT("epoch"),
	[MEMBER_FRAME] = SLICE_INIT("frame"),
	[MEMBER_REPLAYED] = SLICE_INIT("replayed"),
};

#define MEMBER_COUNT (sizeof(member_names) / sizeof(member_names[0]))
static_assert(sizeof(",\"epoch\":\"0123456789abcdef\",\"frame\":9007199254740991"
		     ",\"replayed\":true") -
			      1 ==
		      FRAME_SUFFIX_MAX,
	      "the room that packing reserves is the longest suffix");

#define BIT(member) (1u << (member))
#define EPOCH_LEN 16

/* One frame being read. */
struct reader {
	struct json json;
	struct arena *arena;
	struct frame *frame; /* NULL for a lone event */
	size_t capacity;     /* of frame->events */
	struct err *err;     /* set by whoever finds what the grammar cannot see */
	bool failed;
};

static bool fail(struct reader *reader, const char *what)
{
	reader->failed = true;
	return err_set(reader->err, ERR_MALFORMED, "%s", what);
}

static enum member member_of(struct slice key, bool top)
{
	size_t count = top ? MEMBER_COUNT : MEMBER_EPOCH;
	bool plain = json_is_plain(key);

	for (size_t i = 0; i < count; i++) {
		if (plain ? slice_eq(key, member_names[i])
			  : json_is(key, member_names[i]))
			return (enum member)i;
	}
	return MEMBER_UNKNOWN;
}

/* A string, or null for @out as it was. */
static bool read_text(struct json *json, struct slice *out)
{
	return json_take_null(json) || json_string(json, out);
}

static bool read_count(struct json *json, uint64_t *out)
{
	int64_t value;

	if (json_take_null(json))
		return true;
	if (!json_int(json, 0, FRAME_NUMBER_MAX, &value))
		return false;
	*out = (uint64_t)value;
	return true;
}

static bool read_int(struct json *json, int64_t *out)
{
	return json_take_null(json) || json_int(json, 0, FRAME_NUMBER_MAX, out);
}

static bool read_flag(struct json *json, bool *out)
{
	return json_take_null(json) || json_bool(json, out);
}

static bool read_object(struct reader *reader, struct slice *out)
{
	if (json_take_null(&reader->json))
		return true;
	if (json_peek(&reader->json) != JSON_OBJECT)
		return fail(reader, "authorization is no object");
	return json_skip(&reader->json, out);
}

static bool read_epoch(struct reader *reader)
{
	struct slice text;
	uint8_t bytes[EPOCH_LEN / 2];

	if (!json_string(&reader->json, &text))
		return false;
	if (!hex_decode(text, bytes, sizeof(bytes)))
		return fail(reader, "epoch is not 16 hex digits");
	memcpy(reader->frame->epoch, text.ptr, EPOCH_LEN);
	reader->frame->epoch[EPOCH_LEN] = '\0';
	return true;
}

static bool read_number(struct reader *reader)
{
	int64_t value;

	if (!json_int(&reader->json, 1, FRAME_NUMBER_MAX, &value))
		return false;
	reader->frame->number = (uint64_t)value;
	return true;
}

static struct observer_event *add_event(struct reader *reader)
{
	struct frame *frame = reader->frame;

	if (frame->event_count == reader->capacity) {
		size_t capacity = reader->capacity == 0 ? 16 : 2 * reader->capacity;
		struct observer_event *events =
			arena_array(reader->arena, capacity, sizeof(*events));

		if (frame->event_count > 0)
			memcpy(events, frame->events,
			       frame->event_count * sizeof(*events));
		frame->events = events;
		reader->capacity = capacity;
	}
	return &frame->events[frame->event_count++];
}

static bool read_event(struct reader *reader, bool top, struct observer_event *out);

static bool read_inner_events(struct reader *reader)
{
	if (!json_enter_array(&reader->json))
		return false;
	while (json_element(&reader->json)) {
		struct observer_event event;

		if (!read_event(reader, false, &event))
			return false;
		*add_event(reader) = event;
	}
	return true;
}

/* The payload of a batch: its inner events are read where they stand, so that the whole
 * frame is one pass. */
static bool read_batch(struct reader *reader, struct slice *out)
{
	const char *start = json_mark(&reader->json);
	struct slice key;
	bool seen = false;

	if (json_peek(&reader->json) != JSON_OBJECT)
		return json_skip(&reader->json, out);
	if (!json_enter_object(&reader->json))
		return false;
	while (json_member(&reader->json, &key)) {
		if (!json_is(key, SLICE("events"))) {
			if (!json_skip(&reader->json, NULL))
				return false;
			continue;
		}
		if (seen)
			return fail(reader, "a batch has events twice");
		seen = true;
		if (json_peek(&reader->json) == JSON_ARRAY
			    ? !read_inner_events(reader)
			    : !json_skip(&reader->json, NULL))
			return false;
	}
	*out = (struct slice){start, (size_t)(reader->json.at - start)};
	return true;
}

static bool read_member(struct reader *reader, enum member member, bool top,
			struct observer_event *out)
{
	struct json *json = &reader->json;

	switch (member) {
	case MEMBER_SEQ:
		return read_count(json, &out->seq);
	case MEMBER_MONOTONIC_MS:
		return read_int(json, &out->monotonic_ms);
	case MEMBER_TIMESTAMP:
		return json_string(json, &out->timestamp);
	case MEMBER_KIND:
		return json_string(json, &out->kind);
	case MEMBER_AGENT_INDEX:
		return read_int(json, &out->agent_index);
	case MEMBER_CHANNEL_ID:
		return read_text(json, &out->channel_id);
	case MEMBER_SESSION_ID:
		return read_text(json, &out->session_id);
	case MEMBER_TURN_ID:
		return read_text(json, &out->turn_id);
	case MEMBER_STARTED_AT:
		return read_text(json, &out->started_at);
	case MEMBER_AUTHORIZATION:
		return read_object(reader, &out->authorization);
	case MEMBER_MERGED:
		return read_count(json, &out->merged);
	case MEMBER_TRIMMED:
		return read_count(json, &out->trimmed);
	case MEMBER_REDACTED:
		return read_flag(json, &out->redacted);
	case MEMBER_REPAIRED:
		return read_flag(json, &out->repaired);
	case MEMBER_PAYLOAD:
		if (top && json_is(out->kind, SLICE("batch")))
			return read_batch(reader, &out->payload);
		return json_skip(json, &out->payload);
	case MEMBER_EPOCH:
		return read_epoch(reader);
	case MEMBER_FRAME:
		return read_number(reader);
	case MEMBER_REPLAYED:
		return json_bool(json, &reader->frame->replayed);
	case MEMBER_UNKNOWN:
		break;
	}
	return json_skip(json, NULL);
}

/* Reads one object. @top: it is a frame's, with the members that only those have. */
static bool read_event(struct reader *reader, bool top, struct observer_event *out)
{
	const unsigned needed = BIT(MEMBER_SEQ) | BIT(MEMBER_TIMESTAMP) |
				BIT(MEMBER_KIND) | BIT(MEMBER_PAYLOAD);
	const unsigned place = BIT(MEMBER_EPOCH) | BIT(MEMBER_FRAME);
	const char *start = json_mark(&reader->json);
	struct slice key;
	unsigned seen = 0;

	*out = (struct observer_event){.monotonic_ms = -1, .agent_index = -1};
	if (!json_enter_object(&reader->json))
		return false;
	while (json_member(&reader->json, &key)) {
		enum member member = member_of(key, top);

		if (member != MEMBER_UNKNOWN && (seen & BIT(member)) != 0)
			return fail(reader, "an event has a member twice");
		if (!read_member(reader, member, top, out))
			return false;
		seen |= BIT(member);
	}
	if (reader->json.fault != JSON_FAULT_NONE)
		return false;
	if ((seen & needed) != needed)
		return fail(reader, "an event lacks seq, timestamp, kind or payload");
	if ((seen & place) != 0 && (seen & place) != place)
		return fail(reader,
			    "a frame has one of epoch and frame without the other");
	if (top)
		reader->frame->has_epoch = (seen & BIT(MEMBER_EPOCH)) != 0;
	out->text = (struct slice){start, (size_t)(reader->json.at - start)};
	return true;
}

/* The answer when the reader stopped early: its own words, or the grammar's. */
static bool finish(struct reader *reader, bool ok)
{
	if (reader->failed)
		return false;
	if (json_end(&reader->json, reader->err))
		return ok;
	return false;
}

bool observer_event_parse(struct slice json, struct observer_event *out, struct err *err)
{
	struct reader reader = {.err = err};
	struct observer_event event;

	json_init(&reader.json, json);
	if (!finish(&reader, read_event(&reader, false, &event)))
		return false;
	*out = event;
	return true;
}

/* A batch whose kind came behind its payload: other peers may write members in any order.
 */
static bool read_late_batch(struct reader *reader, const struct observer_event *top)
{
	struct slice payload;

	json_init(&reader->json, top->payload);
	return finish(reader, read_batch(reader, &payload));
}

bool frame_parse(struct slice plaintext, struct arena *arena, struct frame *out,
		 struct err *err)
{
	struct frame frame = {0};
	struct reader reader = {.arena = arena, .frame = &frame, .err = err};
	struct observer_event top;

	if (plaintext.len > NIP44_PLAINTEXT_MAX)
		return err_set(err, ERR_TOO_LARGE,
			       "a frame of %zu bytes, at most %d are read", plaintext.len,
			       NIP44_PLAINTEXT_MAX);
	json_init(&reader.json, plaintext);
	if (!finish(&reader, read_event(&reader, true, &top)))
		return false;
	if (frame.event_count == 0 && json_is(top.kind, SLICE("batch")) &&
	    top.payload.ptr < top.kind.ptr && !read_late_batch(&reader, &top))
		return false;
	frame.batch = frame.event_count > 0;
	if (!frame.batch)
		*add_event(&reader) = top;
	*out = frame;
	return true;
}

/* Appends @key, which is ,"key": and then "text", or null where @text has no ptr. @text
 * is string content as sent. */
static void write_text(struct buf *out, struct slice key, struct slice text)
{
	buf_append(out, key);
	if (text.ptr == NULL) {
		buf_lit(out, "null");
		return;
	}
	buf_append_byte(out, '"');
	buf_append(out, text);
	buf_append_byte(out, '"');
}

bool observer_event_write_stamp(struct buf *out, const struct observer_event *event)
{
	buf_lit(out, "{\"seq\":");
	buf_append_u64(out, event->seq);
	if (event->monotonic_ms >= 0) {
		buf_lit(out, ",\"monotonicMs\":");
		buf_append_u64(out, (uint64_t)event->monotonic_ms);
	}
	write_text(out, SLICE(",\"timestamp\":"), event->timestamp);
	return buf_ok(out);
}

bool observer_event_write_tail(struct buf *out, const struct observer_event *event)
{
	write_text(out, SLICE(",\"kind\":"), event->kind);
	buf_lit(out, ",\"agentIndex\":");
	if (event->agent_index >= 0)
		buf_append_u64(out, (uint64_t)event->agent_index);
	else
		buf_lit(out, "null");
	write_text(out, SLICE(",\"channelId\":"), event->channel_id);
	write_text(out, SLICE(",\"sessionId\":"), event->session_id);
	write_text(out, SLICE(",\"turnId\":"), event->turn_id);
	if (event->started_at.ptr != NULL)
		write_text(out, SLICE(",\"startedAt\":"), event->started_at);
	return buf_ok(out);
}

bool observer_event_write_header(struct buf *out, const struct observer_event *event)
{
	observer_event_write_stamp(out, event);
	return observer_event_write_tail(out, event);
}

bool observer_event_write(struct buf *out, const struct observer_event *event)
{
	observer_event_write_header(out, event);
	if (event->authorization.ptr != NULL) {
		buf_lit(out, ",\"authorization\":");
		buf_append(out, event->authorization);
	}
	if (event->merged > 0)
		buf_printf(out, ",\"merged\":%" PRIu64, event->merged);
	if (event->trimmed > 0)
		buf_printf(out, ",\"trimmed\":%" PRIu64, event->trimmed);
	if (event->redacted)
		buf_lit(out, ",\"redacted\":true");
	if (event->repaired)
		buf_lit(out, ",\"repaired\":true");
	buf_lit(out, ",\"payload\":");
	buf_append(out, event->payload);
	return buf_append_byte(out, '}');
}

bool frame_write_suffix(struct buf *out, const char epoch[17], uint64_t number,
			bool replayed)
{
	assert(out->len > 0 && out->ptr[out->len - 1] == '}');
	buf_truncate(out, out->len - 1);
	return buf_printf(out, ",\"epoch\":\"%s\",\"frame\":%" PRIu64 "%s}", epoch,
			  number, replayed ? ",\"replayed\":true" : "");
}
