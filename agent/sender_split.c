#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "agent/fit.h"
#include "agent/sender_part.h"
#include "wire/base/arena.h"
#include "wire/base/clock.h"
#include "wire/frame/limits.h"
#include "wire/frame/observer_event.h"
#include "wire/nostr/message.h"
#include "wire/nostr/nip44.h"

/* Bytes of an event beside its tags and its content: id, key, time, kind, signature and
 * the names of all members. */
#define EVENT_BYTES 384
/* ["EVENT",…] */
#define ENVELOPE_BYTES 16
/* What most relays with a limit take: strfry's default. Tried before smaller ones. */
#define COMMON_EVENT_MAX 65536
/* A frame is not made smaller than that: a relay that takes less is no use. Our choice;
 * a gap and a header of any length fit. */
#define FRAME_MIN 8192

/* ---- how large a frame may be ---- */

/* The most plaintext whose payload has at most @chars: "the largest NIP-44 padding step
 * whose event fits". */
static size_t plaintext_of(size_t chars)
{
	size_t len = FRAME_PLAINTEXT_MAX;

	while (len > 32 && nip44_payload_len(len) > chars)
		len = (len - 1) / 32 * 32;
	return len;
}

static void set_frame_max(struct sender *sender, size_t chars)
{
	size_t max = plaintext_of(chars) - FRAME_SUFFIX_MAX;

	if (max > FRAME_PACK_MAX)
		max = FRAME_PACK_MAX;
	if (max < FRAME_MIN)
		max = FRAME_MIN;
	if (max == sender->frame_max)
		return;
	log_info(SENDER_SUBJECT, "a frame holds at most %zu bytes for this relay", max);
	sender->frame_max = max;
	feed_set_limit(sender->feed, max);
	queue_set_limit(sender->queue, max);
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

void sender_learn_limits(struct sender *sender)
{
	const struct link_info *info = link_info(sender->link);
	const size_t around = EVENT_BYTES + sender->tags.len;
	size_t chars = nip44_payload_len(FRAME_PLAINTEXT_MAX);

	if (info->max_content_bytes)
		chars = smaller(chars, info->max_content_bytes);
	if (info->max_message_bytes)
		chars = smaller(chars, info->max_message_bytes > around + ENVELOPE_BYTES
					       ? info->max_message_bytes - around -
							 ENVELOPE_BYTES
					       : 0);
	if (sender->event_max)
		chars = smaller(chars, sender->event_max > around
					       ? sender->event_max - around
					       : 0);
	set_frame_max(sender, chars);
}

/* Relays have no common word for it. */
bool sender_is_too_large(struct slice text)
{
	static const char *const words[] = {"too large", "too big",  "too long",
					    "exceeds",   "max size", "size limit"};
	char copy[200];
	const size_t len = smaller(text.len, sizeof(copy) - 1);

	memcpy(copy, len ? text.ptr : "", len);
	copy[len] = '\0';
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcasestr(copy, words[i]))
			return true;
	return false;
}

void sender_shrink(struct sender *sender, size_t event_bytes)
{
	const size_t max =
		event_bytes > COMMON_EVENT_MAX ? COMMON_EVENT_MAX : event_bytes - 1;

	/* One that was made before the last time is no news. */
	if (sender->event_max && sender->event_max <= max)
		return;
	sender->event_max = max;
	sender_learn_limits(sender);
}

/* ---- splitting ---- */

/* What is to be split, and the part that is being filled. */
struct split {
	struct sender *sender;
	struct arena arena;
	struct frame frame;
	size_t at; /* of the next event */
	struct pack_item items[PACK_ITEMS_MAX];
	struct buf fitted; /* an event that had to be trimmed once more */
};

static struct pack_item item_of(const struct observer_event *event)
{
	static const struct slice no_turn = SLICE_INIT("\"turnId\":null");
	const char *start = event->text.ptr;
	struct pack_item item = {
		.text = event->text,
		.kind_at = (uint32_t)(event->kind.ptr - start) - 1,
		.kind_len = (uint32_t)event->kind.len + 2,
	};

	if (event->started_at.ptr)
		item.header_len = (uint32_t)(event->started_at.ptr - start +
					     (ptrdiff_t)event->started_at.len + 1);
	else if (event->turn_id.ptr)
		item.header_len = (uint32_t)(event->turn_id.ptr - start +
					     (ptrdiff_t)event->turn_id.len + 1);
	else /* inside a string its quotes would be escaped */
		item.header_len =
			(uint32_t)(slice_find_slice(event->text, no_turn) + no_turn.len);
	return item;
}

/* An event that fits no frame any more is trimmed as the feed would have done it. */
static struct observer_event *refit(struct split *split, struct observer_event *event)
{
	const size_t limit = split->sender->frame_max;
	struct observer_event smaller_one = *event;
	struct buf payload;

	if (split->sender->journal && !event->trimmed)
		(void)journal_put_body(split->sender->journal, event->seq, event->text);
	buf_init(&payload, FRAME_PACK_MAX);
	smaller_one.trimmed +=
		fit_payload(event->payload, event->text.len - event->payload.len, limit,
			    event->kind, &payload);
	smaller_one.payload = buf_slice(&payload);
	buf_clear(&split->fitted);
	(void)observer_event_write(&split->fitted, &smaller_one);
	buf_finish(&payload);
	if (!observer_event_parse(buf_slice(&split->fitted), event, NULL))
		assert(!"an event of ours is one");
	return event;
}

static bool split_open(struct split *split, struct sender *sender, struct slice text)
{
	*split = (struct split){.sender = sender};
	arena_init(&split->arena, 16384);
	buf_init(&split->fitted, FRAME_PACK_MAX);
	return frame_parse(text, &split->arena, &split->frame, NULL);
}

static void split_close(struct split *split)
{
	arena_finish(&split->arena);
	buf_wipe(&split->fitted);
}

static bool split_is_done(const struct split *split)
{
	return split->at == split->frame.event_count;
}

/* Appends the next part to @out, and counts its events in @content (whose channel is
 * set). @whole: of the frame that is split. */
static void split_next(struct split *split, struct buf *out, struct queue_frame *content,
		       const struct queue_frame *whole)
{
	size_t count = 0, bytes = 0;

	for (; !split_is_done(split); split->at++) {
		struct observer_event *event = &split->frame.events[split->at];
		struct pack_item item;
		int64_t unix_ms = 0;

		if (!count && event->text.len > split->sender->frame_max)
			event = refit(split, event);
		item = item_of(event);
		if (count == PACK_ITEMS_MAX ||
		    (count && pack_bytes(&item, count + 1, bytes + item.text.len) >
				      split->sender->frame_max))
			break;
		split->items[count++] = item;
		bytes += item.text.len;
		(void)clock_parse(event->timestamp, &unix_ms);
		if (whole->gap.seq == event->seq &&
		    slice_eq(event->kind, SLICE("observer_telemetry_gap"))) {
			content->gap = whole->gap;
			continue;
		}
		if (!content->sources)
			content->loss.first_ms = unix_ms;
		content->sources += event->merged ? event->merged : 1;
		content->loss.seq = event->seq;
		content->loss.unix_ms = unix_ms;
		content->loss.monotonic_ms = event->monotonic_ms;
		content->loss.slot = (int)event->agent_index;
	}
	content->loss.counts[GAP_PUBLISH_FAILURE] = content->sources;
	(void)pack_write(split->items, count, out);
}

/* The frame's plaintext as it was packed. */
static struct slice body_of(struct sender *sender, const struct outbox_frame *frame)
{
	buf_clear(&sender->plain);
	(void)buf_append(&sender->plain,
			 (struct slice){frame->plaintext.ptr, frame->body_bytes - 1});
	(void)buf_lit(&sender->plain, "}");
	return buf_slice(&sender->plain);
}

/* Fills @frame, which is new or emptied, with the next part. */
static void write_part(struct split *split, struct outbox_frame *frame,
		       const struct queue_frame *whole, bool rest, uint64_t *sources)
{
	struct sender *sender = split->sender;

	frame->content = (struct queue_frame){.has_channel = whole->has_channel,
					      .channel = whole->channel};
	split_next(split, &frame->plaintext, &frame->content, whole);
	/* All of them together are what the frame was. */
	if (split_is_done(split) || frame->content.sources > *sources)
		frame->content.sources = *sources;
	*sources -= frame->content.sources;
	outbox_mark(sender->outbox, frame, rest);
	sender_keep(sender, frame);
	sender_hold(sender, frame);
}

void sender_split(struct sender *sender, struct outbox_frame *frame)
{
	const struct queue_frame whole = frame->content;
	uint64_t sources = whole.sources, parts = 1;
	const uint64_t number = frame->number;
	struct buf text;
	struct split split;

	buf_init(&text, FRAME_PLAINTEXT_MAX);
	(void)buf_append(&text, body_of(sender, frame));
	if (!split_open(&split, sender, buf_slice(&text)))
		assert(!"a frame of ours is one");
	outbox_empty(sender->outbox, frame);
	write_part(&split, frame, &whole, false, &sources);
	for (; !split_is_done(&split); parts++)
		write_part(&split, outbox_add(sender->outbox), &whole, true, &sources);
	split_close(&split);
	buf_wipe(&text);
	log_info(SENDER_SUBJECT,
		 "frame %" PRIu64 " is too large for the relay: sent as %" PRIu64, number,
		 parts);
}

bool sender_split_old(struct sender *sender, const char *epoch, uint64_t number,
		      struct slice text, struct queue_frame *content, struct buf *first)
{
	const bool ours = strcmp(epoch, sender->epoch) == 0;
	const struct queue_frame whole = *content;
	uint64_t sources = whole.sources;
	struct queue_frame part;
	struct buf rest;
	struct split split;

	if (!split_open(&split, sender, text)) {
		split_close(&split);
		return false;
	}
	buf_init(&rest, FRAME_PLAINTEXT_MAX);
	for (bool is_first = true; !split_is_done(&split); is_first = false) {
		struct buf *out = is_first ? first : &rest;

		part = (struct queue_frame){.has_channel = whole.has_channel,
					    .channel = whole.channel};
		buf_clear(out);
		split_next(&split, out, &part, &whole);
		if (split_is_done(&split) || part.sources > sources)
			part.sources = sources;
		sources -= part.sources;
		if (is_first) {
			*content = part;
			(void)journal_put_of(sender->journal, epoch, number,
					     buf_slice(out));
		} else if (ours) {
			sender_defer(sender, buf_slice(out), &part);
		} else {
			(void)journal_put_of(sender->journal, epoch,
					     journal_number(sender->journal, epoch),
					     buf_slice(out));
		}
	}
	buf_wipe(&rest);
	split_close(&split);
	return true;
}
