#ifndef AGENT_OUTBOX_H
#define AGENT_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/queue.h"
#include "agent/shared.h"
#include "wire/base/buf.h"

/* The frames of this epoch: in flight until the relay's OK, then kept for `want`. Pure:
 * time in ms comes in, sealing and sending is the caller's. Source: design §5. */
struct outbox;

/* "30 s without an OK reconnects" */
#define OUTBOX_OK_MS 30000
/* "sealed anew once 50 s old": relays differ in what they call stale. */
#define OUTBOX_SEAL_MS 50000

/* Numbers from the oldest frame that is still here to the newest: more than an hour of
 * frames. Our choice. */
#define OUTBOX_NUMBERS_MAX 4096

enum outbox_state {
	OUTBOX_UNSENT, /* never written, or the connection it was written to is gone */
	OUTBOX_SENT,   /* waits for its OK */
	OUTBOX_KEPT,   /* has its OK */
};

struct outbox_frame {
	uint64_t number;
	enum outbox_state state;
	struct shared *memory; /* of plaintext; the journal may hold it, too */
	struct buf plaintext;  /* with suffix; the memory is not the buffer's own */
	size_t body_bytes;     /* of plaintext before the suffix took its last brace */
	struct buf text;       /* the sealed event, in flight only */
	uint8_t id[32];        /* of that event */
	int64_t sealed_ms, sent_ms, acked_ms;
	size_t held_bytes; /* what the queue's budget was told of it */
	struct queue_frame content;
};

struct outbox *outbox_create(const char epoch[17]);
void outbox_destroy(struct outbox *outbox);

/* True when the pacer has to pause: AGENT_IN_FLIGHT_MAX frames wait for their OK. */
bool outbox_is_full(const struct outbox *outbox);
size_t outbox_in_flight(const struct outbox *outbox);
/* A new frame, numbered, UNSENT; the caller packs into its plaintext. Frames and their
 * memory are used again: in a steady flow this allocates nothing. While the outbox
 * is full or has a straggler only for the parts of a frame that is split. */
struct outbox_frame *outbox_add(struct outbox *outbox);
/* The number of a frame that is kept elsewhere and sent later. Not while there is a
 * straggler, but for such parts. */
uint64_t outbox_pass(struct outbox *outbox);
/* The frame in flight that OUTBOX_NUMBERS_MAX others have overtaken, so that the relay
 * will never take it: the caller gives it up. NULL: there is none. */
struct outbox_frame *outbox_straggler(const struct outbox *outbox);
/* Writes the suffix behind the packed body, or replaces the one that is there. The first
 * time a small body moves to a small block. After that nothing before the body's last
 * byte changes, so that memory may be held and read by others. */
void outbox_mark(struct outbox *outbox, struct outbox_frame *frame, bool replayed);
/* Takes plaintext and sealed event from a frame, in flight, that is packed anew. */
void outbox_empty(struct outbox *outbox, struct outbox_frame *frame);

/* The frame in flight whose event has this id, or NULL. */
struct outbox_frame *outbox_find(const struct outbox *outbox, const uint8_t id[32]);
/* Its OK came: it is kept for AGENT_KEEP_S seconds or AGENT_KEEP_MAX bytes. */
void outbox_accept(struct outbox *outbox, struct outbox_frame *frame, int64_t now_ms);
/* It is gone for good, and @frame no longer valid; its content is the caller's to report
 * before. */
void outbox_refuse(struct outbox *outbox, struct outbox_frame *frame);

/* The connection is gone: all in flight have to be sent again. */
void outbox_disconnect(struct outbox *outbox);
/* What is in flight has to be sealed anew before it is sent again. */
void outbox_unseal(struct outbox *outbox);
/* The oldest UNSENT frame, or NULL. */
struct outbox_frame *outbox_unsent(const struct outbox *outbox);
/* When the oldest SENT frame will have waited too long; -1: none waits. */
int64_t outbox_deadline(const struct outbox *outbox);

/* Forgets what was kept long enough. */
void outbox_expire(struct outbox *outbox, int64_t now_ms);
/* The frame of that number if its plaintext is still here, else NULL. */
struct outbox_frame *outbox_get(const struct outbox *outbox, uint64_t number);
/* Highest number given, 0 before the first; and the oldest number not yet forgotten (all
 * below are gone), outbox_last() + 1 if none is left. */
uint64_t outbox_last(const struct outbox *outbox);
uint64_t outbox_first(const struct outbox *outbox);
/* The smallest number from @from on whose plaintext is here; false: there is none. */
bool outbox_next(const struct outbox *outbox, uint64_t from, uint64_t *number);

#endif
