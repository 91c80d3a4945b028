#include "agent/feed.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agent/fit.h"
#include "agent/queue.h"
#include "wire/base/clock.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/frame/observer_event.h"
#include "wire/nostr/json.h"

/* Bytes of a broken line that are shown. Source: design §4. */
#define BROKEN_LINE_BYTES 8192
/* Most bytes of a session or turn id in a header: an agent chooses its session ids,
 * and a header of any length would leave no room for a payload. Our choice. */
#define ID_BYTES_MAX 1024
/* A header, an authorization and marks: far below what a frame takes. */
#define HEADER_MAX 16384
/* A line of AGENT_MIRROR_MAX in which every second byte becomes U+FFFD. */
#define COPY_MAX (4u * AGENT_MIRROR_MAX)
/* Scratch memory that is kept between lines. */
#define SCRATCH_KEPT_BYTES (256 * 1024)
/* Shorter events than packing counts on would overflow its table. */
static_assert(
	sizeof("{\"seq\":1,\"monotonicMs\":0,\"timestamp\":\"2026-11-30T08:00:00.123Z\","
	       "\"kind\":\"\",\"agentIndex\":0,\"channelId\":null,\"sessionId\":null,"
	       "\"turnId\":null,\"payload\":{}}") > PACK_EVENT_MIN,
	"no event is shorter than PACK_EVENT_MIN");

/* The part of a header behind the stamp, which lines that follow each other share, and
 * what it was made of. */
struct tail {
	struct feed_context context; /* channel, session and turn point to our copies */
	struct uuid channel;
	struct buf kind, session, turn;
	struct buf text; /* empty: none yet */
};

/* The part of a stamp behind the seq, which lines of one read share. */
struct stamp {
	struct feed_time time;
	struct buf text; /* empty: none yet */
};

struct feed {
	struct queue *queue;
	uint64_t seq;
	struct stamp stamp;
	struct tail tail;
	size_t limit;
	void (*on_trimmed)(void *ctx, uint64_t seq, struct slice whole);
	void *ctx;
	/* Scratch, kept from event to event. */
	struct buf session, turn; /* escaped */
	struct buf header, extra;
	struct buf payload; /* of acp_parse_error */
	struct buf repaired, redacted, trimmed, whole;
};

struct feed *feed_create(struct queue *queue)
{
	struct feed *feed = mem_alloc(sizeof(*feed));

	feed->queue = queue;
	feed->limit = FRAME_PACK_MAX;
	buf_init(&feed->stamp.text, HEADER_MAX);
	buf_init(&feed->tail.kind, HEADER_MAX);
	buf_init(&feed->tail.session, COPY_MAX);
	buf_init(&feed->tail.turn, COPY_MAX);
	buf_init(&feed->tail.text, HEADER_MAX);
	buf_init(&feed->session, COPY_MAX);
	buf_init(&feed->turn, COPY_MAX);
	buf_init(&feed->header, HEADER_MAX);
	buf_init(&feed->extra, HEADER_MAX);
	buf_init(&feed->payload, HEADER_MAX + 6 * BROKEN_LINE_BYTES);
	buf_init(&feed->repaired, COPY_MAX);
	buf_init(&feed->redacted, COPY_MAX);
	buf_init(&feed->trimmed, FRAME_PACK_MAX);
	buf_init(&feed->whole, COPY_MAX);
	return feed;
}

void feed_on_trimmed(struct feed *feed,
		     void (*on_trimmed)(void *ctx, uint64_t seq, struct slice whole),
		     void *ctx)
{
	feed->on_trimmed = on_trimmed;
	feed->ctx = ctx;
}

void feed_set_limit(struct feed *feed, size_t limit)
{
	feed->limit = limit;
}

void feed_destroy(struct feed *feed)
{
	if (!feed)
		return;
	buf_finish(&feed->stamp.text);
	buf_wipe(&feed->tail.kind);
	buf_wipe(&feed->tail.session);
	buf_wipe(&feed->tail.turn);
	buf_wipe(&feed->tail.text);
	buf_wipe(&feed->session);
	buf_wipe(&feed->turn);
	buf_wipe(&feed->header);
	buf_wipe(&feed->extra);
	buf_wipe(&feed->payload);
	buf_wipe(&feed->repaired);
	buf_wipe(&feed->redacted);
	buf_wipe(&feed->trimmed);
	buf_wipe(&feed->whole);
	free(feed);
}

/* What one event is made of. */
struct parts {
	struct slice kind;
	struct slice authorization;
	struct slice payload;
	struct slice chunk; /* in payload; ptr NULL: none */
	enum queue_urgency urgency;
	bool redacted, repaired;
};

/* An id as JSON string content; ptr NULL stays null. */
static struct slice escape_id(struct buf *scratch, struct slice id)
{
	if (!id.ptr)
		return SLICE_EMPTY;
	buf_clear(scratch);
	(void)json_write_chars(scratch, slice_sub(id, 0, utf8_floor(id, ID_BYTES_MAX)));
	/* The empty id is not null. */
	return scratch->len ? buf_slice(scratch) : SLICE("");
}

/* Null and the empty id are two. */
static bool same_id(struct slice a, struct slice b)
{
	return !a.ptr == !b.ptr && slice_eq(a, b);
}

static bool is_tail_of(const struct tail *tail, const struct feed_context *context,
		       struct slice kind)
{
	const struct feed_context *of = &tail->context;

	return tail->text.len && of->slot == context->slot &&
	       of->turn_started_ms == context->turn_started_ms &&
	       !of->channel == !context->channel &&
	       (!of->channel ||
		memcmp(of->channel->text, context->channel->text, UUID_LEN) == 0) &&
	       same_id(of->session, context->session) &&
	       same_id(of->turn, context->turn) && slice_eq(buf_slice(&tail->kind), kind);
}

static struct slice copy_id(struct buf *copy, struct slice id)
{
	if (!id.ptr)
		return SLICE_EMPTY;
	buf_clear(copy);
	(void)buf_append(copy, id);
	return id.len ? buf_slice(copy) : SLICE("");
}

/* Remembers what follows the stamp in the header that was just written. */
static void keep_tail(struct feed *feed, const struct feed_context *context,
		      struct slice kind, size_t stamp_bytes)
{
	struct tail *tail = &feed->tail;

	tail->context = *context;
	if (context->channel) {
		tail->channel = *context->channel;
		tail->context.channel = &tail->channel;
	}
	tail->context.session = copy_id(&tail->session, context->session);
	tail->context.turn = copy_id(&tail->turn, context->turn);
	(void)copy_id(&tail->kind, kind);
	buf_clear(&tail->text);
	(void)buf_append(&tail->text, slice_sub(buf_slice(&feed->header), stamp_bytes,
						feed->header.len));
}

static void write_tail(struct feed *feed, const struct feed_context *context,
		       struct slice kind)
{
	char started[CLOCK_RFC3339_LEN + 1];
	struct observer_event event = {
		.kind = kind,
		.agent_index = context->slot,
		.session_id = escape_id(&feed->session, context->session),
		.turn_id = escape_id(&feed->turn, context->turn),
	};

	if (context->channel)
		event.channel_id = uuid_slice(context->channel);
	if (context->turn_started_ms) {
		clock_format(context->turn_started_ms, started);
		event.started_at = (struct slice){started, CLOCK_RFC3339_LEN};
	}
	(void)observer_event_write_tail(&feed->header, &event);
}

static void write_stamp(struct feed *feed, uint64_t seq, struct feed_time now)
{
	char timestamp[CLOCK_RFC3339_LEN + 1];
	struct stamp *stamp = &feed->stamp;
	struct buf *header = &feed->header;

	if (stamp->text.len && stamp->time.unix_ms == now.unix_ms &&
	    stamp->time.monotonic_ms == now.monotonic_ms) {
		(void)buf_lit(header, "{\"seq\":");
		(void)buf_append_u64(header, seq);
		(void)buf_append(header, buf_slice(&stamp->text));
		return;
	}
	clock_format(now.unix_ms, timestamp);
	(void)observer_event_write_stamp(
		header, &(struct observer_event){
				.seq = seq,
				.monotonic_ms = now.monotonic_ms,
				.timestamp = {timestamp, CLOCK_RFC3339_LEN},
			});
	stamp->time = now;
	buf_clear(&stamp->text);
	(void)buf_append(&stamp->text,
			 slice_sub(buf_slice(header), slice_find(buf_slice(header), ','),
				   header->len));
}

static void write_header(struct feed *feed, uint64_t seq, struct feed_time now,
			 const struct feed_context *context, struct slice kind)
{
	size_t stamp_bytes;

	buf_clear(&feed->header);
	write_stamp(feed, seq, now);
	stamp_bytes = feed->header.len;
	if (is_tail_of(&feed->tail, context, kind)) {
		(void)buf_append(&feed->header, buf_slice(&feed->tail.text));
	} else {
		write_tail(feed, context, kind);
		keep_tail(feed, context, kind, stamp_bytes);
	}
	assert(buf_ok(&feed->header));
}

/* Authorization and marks, in the order of design §4; merged belongs to the queue. */
static void write_extra(struct feed *feed, const struct parts *parts, uint64_t trimmed)
{
	struct buf *extra = &feed->extra;

	buf_clear(extra);
	if (parts->authorization.len) {
		(void)buf_lit(extra, ",\"authorization\":");
		(void)buf_append(extra, parts->authorization);
	}
	if (trimmed)
		(void)buf_printf(extra, ",\"trimmed\":%" PRIu64, trimmed);
	if (parts->redacted)
		(void)buf_lit(extra, ",\"redacted\":true");
	if (parts->repaired)
		(void)buf_lit(extra, ",\"repaired\":true");
	assert(buf_ok(extra));
}

static void write_whole(struct feed *feed, const struct parts *parts, struct buf *out)
{
	(void)buf_append(out, buf_slice(&feed->header));
	(void)buf_append(out, buf_slice(&feed->extra));
	(void)buf_lit(out, ",\"payload\":");
	(void)buf_append(out, parts->payload);
	(void)buf_lit(out, "}");
}

static void tell_trimmed(struct feed *feed, const struct parts *parts, uint64_t seq)
{
	buf_clear(&feed->whole);
	write_whole(feed, parts, &feed->whole);
	if (buf_ok(&feed->whole))
		feed->on_trimmed(feed->ctx, seq, buf_slice(&feed->whole));
	if (feed->whole.cap > SCRATCH_KEPT_BYTES)
		buf_wipe(&feed->whole);
}

/* Writes header and extra and trims the payload to what a frame takes. @whole_out: NULL,
 * or gets the event as it was if it is trimmed. */
static void write_fitted(struct feed *feed, struct feed_time now,
			 const struct feed_context *context, struct parts *parts,
			 uint64_t seq, struct buf *whole_out)
{
	uint64_t trimmed;

	write_header(feed, seq, now, context, parts->kind);
	write_extra(feed, parts, 0);
	buf_clear(&feed->trimmed);
	trimmed = fit_payload(parts->payload,
			      feed->header.len + feed->extra.len +
				      sizeof(",\"payload\":}") - 1,
			      feed->limit, parts->kind, &feed->trimmed);
	if (!trimmed)
		return;
	if (feed->on_trimmed)
		tell_trimmed(feed, parts, seq);
	if (whole_out)
		write_whole(feed, parts, whole_out);
	write_extra(feed, parts, trimmed);
	parts->payload = buf_slice(&feed->trimmed);
	parts->chunk = SLICE_EMPTY; /* a text with a hole in it takes no more */
}

static uint64_t put(struct feed *feed, struct feed_time now,
		    const struct feed_context *context, struct parts *parts,
		    struct buf *whole_out)
{
	const uint64_t seq = ++feed->seq;
	struct queue_event event;

	write_fitted(feed, now, context, parts, seq, whole_out);
	event = (struct queue_event){
		.seq = seq,
		.unix_ms = now.unix_ms,
		.monotonic_ms = now.monotonic_ms,
		.channel = context->channel,
		.slot = context->slot,
		.urgency = parts->urgency,
		.kind = parts->kind,
		.header = buf_slice(&feed->header),
		.extra = buf_slice(&feed->extra),
		.payload = parts->payload,
		.chunk = context->channel ? parts->chunk : SLICE_EMPTY,
	};
	queue_put(feed->queue, &event);
	return seq;
}

/* A control_result with a status. */
static bool has_status(struct slice payload)
{
	struct json json;
	struct slice key;
	bool found = false;

	json_init(&json, payload);
	if (!json_enter_object(&json))
		return false;
	while (json_member(&json, &key)) {
		found = found || json_is(key, SLICE("status"));
		(void)json_skip(&json, NULL);
	}
	return found;
}

static enum queue_urgency urgency_of(struct slice kind, struct slice payload)
{
	static const struct slice urgent[] = {
		SLICE_INIT("turn_started"), SLICE_INIT("turn_completed"),
		SLICE_INIT("turn_error"),   SLICE_INIT("turn_retrying"),
		SLICE_INIT("agent_panic"),  SLICE_INIT("permission_terminal"),
	};

	for (size_t i = 0; i < sizeof(urgent) / sizeof(urgent[0]); i++)
		if (slice_eq(kind, urgent[i]))
			return QUEUE_URGENT;
	if (slice_eq(kind, SLICE("control_result")) && has_status(payload))
		return QUEUE_URGENT;
	return QUEUE_PLAIN;
}

static bool may_lack_channel(struct slice kind)
{
	return slice_eq(kind, SLICE("harness_started")) ||
	       slice_eq(kind, SLICE("harness_stopping")) ||
	       slice_eq(kind, SLICE("agent_panic"));
}

uint64_t feed_emit(struct feed *feed, struct feed_time now,
		   const struct feed_context *context, struct slice kind,
		   struct slice authorization, struct slice payload)
{
	struct parts parts = {
		.kind = kind,
		.authorization = authorization,
		.payload = payload,
		.urgency = urgency_of(kind, payload),
	};

	/* Channel-less events are barriers and are never evicted, so they have to be few.
	 */
	assert(context->channel || may_lack_channel(kind));
	return put(feed, now, context, &parts, NULL);
}

uint64_t feed_write(struct feed *feed, struct feed_time now,
		    const struct feed_context *context, struct slice kind,
		    struct slice payload, struct buf *out, struct pack_item *item)
{
	struct parts parts = {.kind = kind, .payload = payload};
	const uint64_t seq = ++feed->seq;
	const size_t start = out->len;

	write_fitted(feed, now, context, &parts, seq, NULL);
	write_whole(feed, &parts, out);
	assert(buf_ok(out));
	*item = (struct pack_item){
		.text = slice_sub(buf_slice(out), start, out->len),
		.kind_len = (uint32_t)kind.len + 2,
		.header_len = (uint32_t)feed->header.len,
	};
	item->kind_at = (uint32_t)slice_find_slice(item->text, SLICE("\"kind\":")) +
			sizeof("\"kind\":") - 1;
	queue_pass(feed->queue, 1);
	return seq;
}

/* Appends what is to be shown of a line that is no payload: no more than
 * BROKEN_LINE_BYTES, U+FFFD for what is no UTF-8. */
static void write_broken_text(struct buf *out, struct slice text)
{
	while (text.len) {
		const int front = utf8_front(text);
		const size_t len = (size_t)(front > 0 ? front : -front);

		(void)json_write_chars(out, front > 0 ? slice_sub(text, 0, len)
						      : SLICE("\uFFFD"));
		text = slice_sub(text, len, text.len);
	}
}

/* A broken line cannot be searched for secrets, so nothing is shown from where one may
 * be. */
static struct slice without_secrets(struct slice text, bool *cut)
{
	const size_t servers = slice_find_slice(text, SLICE("\"mcpServers\""));
	const size_t env = slice_find_slice(text, SLICE("\"env\""));
	const size_t end = servers < env ? servers : env;

	*cut = end < text.len;
	return slice_sub(text, 0, end);
}

static uint64_t put_broken(struct feed *feed, struct feed_time now,
			   const struct feed_context *context,
			   enum feed_direction direction, struct slice text,
			   size_t line_bytes, const char *error)
{
	struct buf *payload = &feed->payload;
	struct parts parts = {.kind = SLICE("acp_parse_error")};

	text = without_secrets(slice_sub(text, 0, BROKEN_LINE_BYTES), &parts.redacted);
	buf_clear(payload);
	(void)buf_lit(payload, "{");
	(void)json_write_member_string(payload, SLICE("direction"),
				       direction == FEED_READ ? SLICE("read")
							      : SLICE("write"));
	(void)json_write_key(payload, SLICE("line"));
	(void)buf_lit(payload, "\"");
	write_broken_text(payload, text);
	(void)buf_lit(payload, "\"");
	(void)json_write_member_int(payload, SLICE("bytes"), (int64_t)line_bytes);
	(void)json_write_member_string(payload, SLICE("error"), slice_of(error));
	(void)buf_lit(payload, "}");
	assert(buf_ok(payload));
	parts.payload = buf_slice(payload);
	return put(feed, now, context, &parts, NULL);
}

/* Makes a broken line whole if it can be; then @line is @again, a line of the repaired
 * text. */
static bool repair(struct feed *feed, const struct acp_line **line,
		   struct acp_line *again)
{
	if (!(*line)->repairable)
		return false;
	buf_clear(&feed->repaired);
	if (!json_repair((*line)->text, &feed->repaired))
		return false;
	acp_line_scan(buf_slice(&feed->repaired), again);
	if (again->shape == ACP_BROKEN)
		return false;
	*line = again;
	return true;
}

static bool redact(struct feed *feed, const struct acp_line *line, struct parts *parts)
{
	if (!line->has_secrets)
		return false;
	buf_clear(&feed->redacted);
	if (!acp_line_redact(line, &feed->redacted)) {
		/* Rather nothing than a secret. */
		buf_clear(&feed->redacted);
		(void)buf_lit(&feed->redacted, "{}");
	}
	parts->payload = buf_slice(&feed->redacted);
	parts->chunk = SLICE_EMPTY;
	return true;
}

static enum queue_urgency line_urgency(enum feed_direction direction,
				       const struct acp_line *line)
{
	if (direction != FEED_READ || !acp_line_is_urgent(line))
		return QUEUE_PLAIN;
	return json_is(line->method, SLICE("session/request_permission"))
		       ? QUEUE_PERMISSION
		       : QUEUE_URGENT;
}

static uint64_t mirror(struct feed *feed, struct feed_time now,
		       const struct feed_context *context, enum feed_direction direction,
		       const struct acp_line *line, size_t line_bytes,
		       struct slice authorization, struct buf *whole_out)
{
	struct acp_line again;
	struct parts parts = {.authorization = authorization};

	if (line_bytes > AGENT_MIRROR_MAX)
		return put_broken(feed, now, context, direction, line->text, line_bytes,
				  "line too long");
	parts.repaired = repair(feed, &line, &again);
	if (line->shape == ACP_BROKEN)
		return put_broken(feed, now, context, direction, line->text, line_bytes,
				  line->fault.text);
	if (line->shape == ACP_ARRAY)
		return put_broken(feed, now, context, direction, line->text, line_bytes,
				  "a JSON array, not an object");
	parts.kind = direction == FEED_READ ? SLICE("acp_read") : SLICE("acp_write");
	parts.payload = line->text;
	if (!authorization.len)
		parts.chunk = line->chunk;
	parts.urgency = line_urgency(direction, line);
	parts.redacted = redact(feed, line, &parts);
	return put(feed, now, context, &parts, whole_out);
}

/* One huge line must not leave its memory behind for good. */
static void shrink(struct buf *scratch)
{
	if (scratch->cap > SCRATCH_KEPT_BYTES)
		buf_finish(scratch);
}

uint64_t feed_line(struct feed *feed, struct feed_time now,
		   const struct feed_context *context, enum feed_direction direction,
		   const struct acp_line *line, size_t line_bytes,
		   struct slice authorization, struct buf *whole_out)
{
	uint64_t seq;

	assert(context->channel);
	if (whole_out)
		buf_clear(whole_out);
	if (line->shape == ACP_BLANK)
		return 0;
	seq = mirror(feed, now, context, direction, line, line_bytes, authorization,
		     whole_out);
	shrink(&feed->repaired);
	shrink(&feed->redacted);
	return seq;
}
