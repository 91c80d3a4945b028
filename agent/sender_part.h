#ifndef AGENT_SENDER_PART_H
#define AGENT_SENDER_PART_H

#include "agent/bodies.h"
#include "agent/epoch.h"
#include "agent/inbox.h"
#include "agent/journal.h"
#include "agent/outbox.h"
#include "agent/pacer.h"
#include "agent/queue.h"
#include "agent/sender.h"
#include "agent/serve.h"
#include "wire/host/log.h"
#include "wire/nostr/crypto.h"

/* What the parts of the sender share; nobody else includes this.
 *   sender.c           life, the timer, and who claims a tick
 *   sender_seal.c      a frame becomes an event and is written
 *   sender_direct.c    frames that never queue: results, feed_state, parts of bodies
 *   sender_link.c      what the relay says
 *   sender_backfill.c  frames from the journal: deferred and wanted ones
 *   sender_split.c     frames that a relay finds too large */

#define SENDER_SUBJECT "sender"
/* Results of controls without channel that wait for a tick; at most 10 controls come a
 * second and the owner repeats what is not answered. */
#define RESULTS_MAX 64
/* A feed_state before it is fitted, and what one result may be. */
#define STATE_MAX (1u << 20)
/* Frames made ready for backfill: enough that the disk is ahead of the fastest relay. */
#define FETCHES_MAX 8
/* Backfill frames that wait for their OK; then it pauses. Our choice: under a second's
 * worth of what a relay may offer. */
#define REPLAYS_MAX 64
/* Frames deferred and not yet published, 160 bytes each: what the journal's default size
 * holds of full ones. */
#define DEFERRED_MAX 4096
/* Whole events asked of the journal at a time. */
#define BODY_ASKS_MAX BODIES_MAX

/* A frame that is in the journal (or about to be) and has not been sent. */
struct deferred {
	uint64_t number;
	struct queue_frame content;
	enum {
		DEFERRED_WRITING, /* the disk does not have it yet */
		DEFERRED_READY,
		DEFERRED_COMING,  /* fetched, or waits for its OK */
		DEFERRED_REFUSED, /* the journal would not take it */
	} state;
};

/* A frame on its way from the journal to the link. */
struct fetch {
	char epoch[EPOCH_LEN + 1];
	uint64_t number;
	bool ready;
	struct buf text; /* without suffix */
};

/* A backfill frame that waits for its OK. */
struct replay {
	uint8_t id[32];
	char epoch[EPOCH_LEN + 1];
	uint64_t number;
	int64_t sent_ms;
	size_t event_bytes, body_bytes;
};

struct body_ask {
	char epoch[EPOCH_LEN + 1];
	uint64_t seq;
	sender_on_body_fn *done;
	void *ctx;
};

struct sender {
	struct loop *loop;
	struct sender_options options; /* slices and context: our copies */
	struct buf auth_tag;
	struct uuid default_channel;
	char owner_hex[2 * KEY_BYTES], agent_hex[2 * KEY_BYTES];
	uint8_t *conversation_key; /* guarded */
	struct buf tags;           /* of every telemetry frame */

	struct link *link;
	struct timer *timer;
	int64_t armed_ms; /* when the timer fires; -1: not armed */

	char epoch[EPOCH_LEN + 1];
	int64_t started_unix_ms, started_ms;

	struct queue *queue;
	struct feed *feed;
	struct outbox *outbox;
	struct pacer pacer;
	struct serve serve;
	struct bodies *bodies;
	struct inbox *inbox;
	size_t frame_max; /* most bytes of a frame without suffix that the relay takes */
	size_t event_max; /* of an event, as its refusals taught; 0: nothing known */

	struct buf results[RESULTS_MAX];
	size_t result_count;
	struct buf direct;  /* texts of the events of a frame that never queued */
	struct buf payload; /* scratch of one of them */
	struct buf plain;   /* scratch of a frame that is not in the outbox */
	struct buf repeat;  /* a sealed frame that is not in flight */

	struct journal *journal;   /* NULL: none */
	struct deferred *deferred; /* ascending by number */
	size_t deferred_count, deferred_room;
	struct fetch fetches[FETCHES_MAX];
	size_t fetch_count;
	struct replay replays[REPLAYS_MAX];
	size_t replay_count;
	struct body_ask body_asks[BODY_ASKS_MAX];
	size_t body_ask_count;

	int64_t last_write_ms;
	int64_t hold_until_ms, hold_ms;
	int64_t learned_ms; /* when the relay was last asked for its clock; 0: never */
	int64_t heard_ms;   /* from an observer; -1: never */
	struct log_limit refused;
	int64_t resubscribe_ms; /* -1: subscribed */

	int64_t stop_ms; /* deadline; -1: not stopping */
	void (*stop_done)(void *ctx);
	void *stop_ctx;

	int64_t seal_us;
	uint64_t frames_sent, frames_acked;

	bool pumping;
	bool journal_known; /* what it has is known, or that it cannot be */
	bool unclean_told;
	bool refusals; /* some are DEFERRED_REFUSED */
	bool leaving;  /* what is emitted now is this start's last */
	bool repeated; /* the newest frame was sent once more */
};

/* ---- sender.c ---- */

/* Has the timer fire when there is something to do. */
void sender_arm(struct sender *sender);
int64_t sender_relay_s(const struct sender *sender); /* the relay's Unix time */

/* ---- sender_seal.c ---- */

/* A new frame in the outbox. One that the relay will never take is given up then: it must
 * not keep all since in memory. */
struct outbox_frame *sender_add(struct sender *sender);
/* A frame that was packed and marked goes to the journal, which reads it where it is. */
void sender_keep(struct sender *sender, const struct outbox_frame *frame);
/* Seals the frame if it has no fresh text, and writes it. */
void sender_send(struct sender *sender, struct outbox_frame *frame);
/* A plaintext sealed anew, besides what is in flight. False: nothing was written. */
bool sender_send_again(struct sender *sender, uint64_t number, struct slice plaintext,
		       uint8_t id[32]);
/* Tells the budget what a frame in flight holds by now, or that it holds nothing. */
void sender_hold(struct sender *sender, struct outbox_frame *frame);
void sender_release(struct sender *sender, struct outbox_frame *frame);
/* The frame is gone for good: counted and reported as a gap. */
void sender_lose(struct sender *sender, struct outbox_frame *frame);

/* ---- sender_direct.c ---- */

bool sender_state_waits(struct sender *sender);
/* "feed_state and control results ... take the next tick together" */
void sender_send_state(struct sender *sender);
void sender_send_body_part(struct sender *sender);

/* ---- sender_link.c ---- */

extern const struct link_events sender_link_events;
void sender_subscribe(struct sender *sender);
/* Does the relay want it later, or from an authenticated connection? */
bool sender_is_passing(struct slice text);
/* Does a refusal say that created_at is too far from its clock? */
bool sender_is_about_time(struct slice text);
/* Then it is asked for the time anew. */
void sender_learn_time(struct sender *sender);
/* Nothing leaves for a while, longer each time until a frame is taken. */
void sender_back_off(struct sender *sender);

/* ---- sender_backfill.c ---- */

extern const struct journal_events sender_journal_events;
extern const struct queue_deferral sender_deferral;
/* Is a frame ready to be sent? Has the next ones fetched. */
bool sender_backfill_waits(struct sender *sender);
void sender_send_backfill(struct sender *sender);
/* An OK for a frame that is not in the outbox; false: nor is it one of ours. */
bool sender_backfill_ok(struct sender *sender, const uint8_t id[32], bool accepted,
			struct slice text);
void sender_backfill_disconnect(struct sender *sender);
/* When the oldest of them will have waited too long; -1: none waits. */
int64_t sender_backfill_deadline(const struct sender *sender);
/* What is held of this epoch, for feed_state; to be finished by the caller. */
void sender_held(const struct sender *sender, struct ranges *held);
void sender_backfill_finish(struct sender *sender);
/* A new frame that is sent later; there is a journal. */
void sender_defer(struct sender *sender, struct slice text,
		  const struct queue_frame *content);
/* Packs all that waits into the journal, where there is one. */
void sender_pack_rest(struct sender *sender);

/* ---- sender_split.c ---- */

/* Sets what a frame may hold from what the relay says of itself. */
void sender_learn_limits(struct sender *sender);
/* Does a refusal say that the event is too large? */
bool sender_is_too_large(struct slice text);
/* An event of that size was too large: frames become smaller, down to a limit. */
void sender_shrink(struct sender *sender, size_t event_bytes);
/* The frame's first part keeps its number, the rest becomes new frames. */
void sender_split(struct sender *sender, struct outbox_frame *frame);
/* The same of a frame of any epoch that is not in the outbox, @text without suffix: the
 * first part is left in @first, the rest goes to the journal, deferred if it is of this
 * epoch (an observer finds the others missing when it syncs). @content: of the frame,
 * becomes that of the first part. False: it is no frame. */
bool sender_split_old(struct sender *sender, const char *epoch, uint64_t number,
		      struct slice text, struct queue_frame *content, struct buf *first);

#endif
