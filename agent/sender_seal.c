#include <assert.h>
#include <inttypes.h>
#include <time.h>

#include "agent/sender_part.h"
#include "wire/frame/limits.h"
#include "wire/nostr/event.h"

static int64_t now_us(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Appends the plaintext as a signed event to @out. */
static bool seal(struct sender *sender, struct slice plaintext, struct buf *out,
		 uint8_t id[32], struct err *err)
{
	const struct event_draft draft = {
		.created_at = sender_relay_s(sender),
		.kind = FRAME_KIND,
		.tags = buf_slice(&sender->tags),
	};
	uint8_t nonce[NONCE_BYTES], aux[32];
	const int64_t start_us = now_us();
	bool ok;

	loop_random(nonce, sizeof(nonce));
	loop_random(aux, sizeof(aux));
	ok = event_seal(sender->loop->crypto, sender->options.keypair,
			sender->conversation_key, &draft, plaintext, nonce, aux, out, id,
			err);
	sender->seal_us = now_us() - start_us;
	return ok;
}

void sender_hold(struct sender *sender, struct outbox_frame *frame)
{
	const size_t bytes = sizeof(*frame) + frame->memory->bytes + frame->text.cap;

	queue_release(sender->queue, frame->held_bytes);
	frame->held_bytes = bytes;
	queue_hold(sender->queue, bytes);
}

void sender_release(struct sender *sender, struct outbox_frame *frame)
{
	queue_release(sender->queue, frame->held_bytes);
	frame->held_bytes = 0;
}

void sender_lose(struct sender *sender, struct outbox_frame *frame)
{
	const struct queue_frame content = frame->content;

	sender_release(sender, frame);
	outbox_refuse(sender->outbox, frame);
	queue_lost(sender->queue, &content, &sender->default_channel);
}

struct outbox_frame *sender_add(struct sender *sender)
{
	struct outbox_frame *straggler;

	while ((straggler = outbox_straggler(sender->outbox))) {
		log_warn(SENDER_SUBJECT,
			 "frame %" PRIu64 " has no OK after %d later ones, %" PRIu64
			 " events lost",
			 straggler->number, OUTBOX_NUMBERS_MAX,
			 straggler->content.sources);
		sender_lose(sender, straggler);
	}
	return outbox_add(sender->outbox);
}

void sender_keep(struct sender *sender, const struct outbox_frame *frame)
{
	const struct slice body = {frame->plaintext.ptr, frame->body_bytes};

	assert(body.len);
	if (sender->journal)
		(void)journal_hold(sender->journal, frame->number, frame->memory, body);
}

/* The debug line is what probes/latency reads. */
static void note_write(struct sender *sender, uint64_t number, uint64_t sources,
		       size_t bytes, const char *what)
{
	sender->last_write_ms = loop_now_ms();
	sender->frames_sent++;
	log_debug(SENDER_SUBJECT,
		  "frame %" PRIu64 " %s events=%" PRIu64 " bytes=%zu sent_us=%" PRId64,
		  number, what, sources, bytes, now_us());
}

void sender_send(struct sender *sender, struct outbox_frame *frame)
{
	const int64_t now_ms = loop_now_ms();
	struct err err;

	if (frame->text.len && frame->sealed_ms + OUTBOX_SEAL_MS <= now_ms) {
		/* "a repeat sealed anew" is marked as replayed. */
		outbox_mark(sender->outbox, frame, true);
		buf_clear(&frame->text);
	}
	if (!frame->text.len) {
		if (!seal(sender, buf_slice(&frame->plaintext), &frame->text, frame->id,
			  &err)) {
			log_warn(SENDER_SUBJECT, "frame %" PRIu64 " cannot be sealed: %s",
				 frame->number, err.text);
			sender_lose(sender, frame);
			return;
		}
		frame->sealed_ms = now_ms;
	}
	sender_hold(sender, frame);
	if (!link_publish(sender->link, buf_slice(&frame->text)))
		return; /* it stays UNSENT and claims the next tick */
	frame->state = OUTBOX_SENT;
	frame->sent_ms = now_ms;
	note_write(sender, frame->number, frame->content.sources, frame->plaintext.len,
		   "live");
}

bool sender_send_again(struct sender *sender, uint64_t number, struct slice plaintext,
		       uint8_t id[32])
{
	struct err err;

	buf_clear(&sender->repeat);
	if (!seal(sender, plaintext, &sender->repeat, id, &err)) {
		log_warn(SENDER_SUBJECT, "frame %" PRIu64 " cannot be sealed again: %s",
			 number, err.text);
		return false;
	}
	if (!link_publish(sender->link, buf_slice(&sender->repeat)))
		return false;
	note_write(sender, number, 0, plaintext.len, "again");
	return true;
}
