#include <inttypes.h>
#include <string.h>

#include "agent/sender_part.h"
#include "wire/frame/limits.h"
#include "wire/nostr/json.h"

/* Room that a header and separators need beside a payload, at most. */
#define HEADER_ROOM 1024

/* Events that never queued, gathered for one frame. */
struct direct {
	struct pack_item items[RESULTS_MAX + OBSERVERS_MAX];
	size_t count;
	struct queue_frame content;
};

/* Writes one more; false, and nothing done, if it may not fit beside the others. */
static bool direct_add(struct sender *sender, struct direct *direct,
		       const struct feed_context *context, struct slice kind,
		       struct slice payload)
{
	const struct feed_time now = sender_time(sender);
	struct queue_frame *content = &direct->content;
	uint64_t seq;

	if (direct->count &&
	    sender->direct.len + payload.len + 2 * HEADER_ROOM > sender->frame_max)
		return false;
	seq = feed_write(sender->feed, now, context, kind, payload, &sender->direct,
			 &direct->items[direct->count++]);
	if (!content->sources)
		content->loss.first_ms = now.unix_ms;
	content->sources++;
	content->loss.seq = seq;
	content->loss.unix_ms = now.unix_ms;
	content->loss.monotonic_ms = now.monotonic_ms;
	content->loss.slot = context->slot;
	content->loss.counts[GAP_PUBLISH_FAILURE] = content->sources;
	return true;
}

static void direct_begin(struct sender *sender, struct direct *direct)
{
	*direct = (struct direct){.count = 0};
	buf_clear(&sender->direct);
}

static void direct_send(struct sender *sender, struct direct *direct)
{
	struct outbox_frame *frame = sender_add(sender);
	const char *at = sender->direct.ptr;

	/* The buffer may have moved while it grew. */
	for (size_t i = 0; i < direct->count; i++) {
		direct->items[i].text.ptr = at;
		at += direct->items[i].text.len;
	}
	(void)pack_write(direct->items, direct->count, &frame->plaintext);
	frame->content = direct->content;
	outbox_mark(sender->outbox, frame, false);
	sender_keep(sender, frame);
	sender->repeated = false;
	sender_send(sender, frame);
}

static void write_epochs(struct sender *sender, struct buf *out)
{
	static const struct journal_index empty = {0};
	const struct journal_index *index =
		sender->journal ? journal_index(sender->journal) : &empty;
	struct ranges held = {0};
	struct journal_telling telling = {
		.current = sender->epoch,
		.held = &held,
		.last = outbox_last(sender->outbox),
		.how = JOURNAL_TELLS_NONE,
	};

	if (sender->journal && !journal_was_opened(sender->journal))
		telling.how = JOURNAL_TELLS_PART;
	else if (sender->journal)
		telling.how = journal_was_lost(sender->journal) ? JOURNAL_TELLS_LOSS
								: JOURNAL_TELLS_ALL;
	sender_held(sender, &held);
	journal_index_write(index, &telling, out);
	ranges_finish(&held);
}

static void write_figures(struct sender *sender, struct buf *out)
{
	const struct queue_ledger *ledger = queue_ledger(sender->queue);

	(void)json_write_key(out, SLICE("figures"));
	(void)buf_lit(out, "{");
	(void)json_write_member_int(out, SLICE("queueBytes"),
				    (int64_t)queue_bytes(sender->queue));
	(void)json_write_member_int(out, SLICE("queueEvents"),
				    (int64_t)queue_events(sender->queue));
	(void)json_write_member_int(out, SLICE("inFlight"),
				    (int64_t)outbox_in_flight(sender->outbox));
	if (sender->journal) {
		(void)json_write_member_int(out, SLICE("journalBytes"),
					    journal_bytes(sender->journal));
		(void)json_write_member_int(out, SLICE("journalLost"),
					    (int64_t)journal_lost(sender->journal));
	}
	(void)json_write_member_int(out, SLICE("sealUs"), sender->seal_us);
	(void)json_write_member_int(out, SLICE("deferred"), (int64_t)ledger->deferred);
	(void)json_write_member_int(out, SLICE("dropped"), (int64_t)ledger->dropped);
	(void)buf_lit(out, "}");
}

/* A feed_state for one observer, into the scratch payload. */
static void write_state(struct sender *sender, const struct serve_observer *observer)
{
	struct buf *out = &sender->payload;

	buf_clear(out);
	(void)buf_lit(out, "{");
	if (observer->request_id[0]) {
		/* As it was sent: escapes are kept. */
		(void)json_write_key(out, SLICE("requestId"));
		(void)buf_printf(out, "\"%s\"", observer->request_id);
	}
	write_epochs(sender, out);
	sender->options.write_state(sender->options.ctx, out);
	write_figures(sender, out);
	(void)buf_lit(out, "}");
}

/* Before it is known what the journal has, nobody is told that anything is gone. */
static struct serve_observer *next_unanswered(struct sender *sender)
{
	return sender->journal_known ? serve_unanswered(&sender->serve) : NULL;
}

bool sender_state_waits(struct sender *sender)
{
	return sender->result_count || next_unanswered(sender);
}

void sender_send_state(struct sender *sender)
{
	const struct feed_context none = {.slot = -1};
	struct serve_observer *observer;
	struct direct direct;
	size_t sent = 0;

	outbox_expire(sender->outbox, loop_now_ms());
	direct_begin(sender, &direct);
	while (sent < sender->result_count &&
	       direct_add(sender, &direct, &none, SLICE("control_result"),
			  buf_slice(&sender->results[sent])))
		buf_finish(&sender->results[sent++]);
	sender->result_count -= sent;
	memmove(sender->results, sender->results + sent,
		sender->result_count * sizeof(sender->results[0]));
	while (!sender->result_count && (observer = next_unanswered(sender))) {
		write_state(sender, observer);
		if (!buf_ok(&sender->payload)) {
			log_warn(SENDER_SUBJECT,
				 "feed_state of over %u bytes is not sent", STATE_MAX);
			observer->unanswered = false;
			continue;
		}
		if (!direct_add(sender, &direct, &none, SLICE("feed_state"),
				buf_slice(&sender->payload)))
			break;
		observer->unanswered = false;
	}
	if (direct.count)
		direct_send(sender, &direct);
}

void sender_send_body_part(struct sender *sender)
{
	struct feed_context context;
	struct direct direct;

	direct_begin(sender, &direct);
	buf_clear(&sender->payload);
	if (!bodies_next(sender->bodies, &context, &sender->payload))
		return;
	(void)direct_add(sender, &direct, &context, SLICE("body_part"),
			 buf_slice(&sender->payload));
	direct.content.has_channel = true;
	direct.content.channel = *context.channel;
	direct_send(sender, &direct);
}
