#ifndef RELAY_QUEUE_H
#define RELAY_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "relay/body.h"
#include "wire/base/buf.h"

/* What one message costs a queue besides its text: our choice, above what it really
 * takes. */
#define QUEUE_PARCEL_OVERHEAD 64 /* bytes */

enum parcel_kind {
	PARCEL_TEXT,   /* body is a whole message: OK, NOTICE, CLOSED, AUTH */
	PARCEL_EVENT,  /* ["EVENT",head,body] */
	PARCEL_REPLAY, /* the same, served from the recent window */
	PARCEL_EOSE,   /* ["EOSE",head] */
};

/* One message to be sent. An event's text is shared by all its readers; what differs, the
 * subscription id, is the head, shared by all messages of the subscription. */
struct parcel {
	enum parcel_kind kind;
	struct body *head; /* subscription id as a JSON string; NULL for PARCEL_TEXT */
	struct body *body; /* NULL for PARCEL_EOSE */
};

/* Bytes of all bodies that wait in any queue, each counted once however many readers
 * share it. One per relay. */
struct retained {
	size_t bytes;
};

/* The unsent messages of one reader, oldest first. Fields are the queue's; reading is
 * fine. */
struct queue {
	struct retained *retained;
	struct parcel *ring;
	size_t cap, first, count;
	size_t bytes;        /* texts, heads and overhead of all parcels */
	size_t replay_bytes; /* of these, PARCEL_REPLAY */
};

void queue_init(struct queue *queue, struct retained *retained);
void queue_finish(struct queue *queue);
/* Drops everything unsent. */
void queue_clear(struct queue *queue);
/**
 * queue_push - add a message at the end
 * @head, @body: the queue takes references of its own
 * False, and nothing added, when what waits beside replays would pass
 * RELAY_READER_QUEUE_MAX: the reader is too slow. Replays do not count: the window bounds
 * them, and whoever asks for one looks at replay_bytes first.
 */
bool queue_push(struct queue *queue, enum parcel_kind kind, struct body *head,
		struct body *body);
/* Appends the text of the oldest message to @out and removes it; false when empty. */
bool queue_take(struct queue *queue, struct buf *out);
/* Longest header of one frame. */
#define QUEUE_FRAME_HEADER_MAX 10
/* The same for as many messages as @bytes hold, but one at least, each as a whole
 * unmasked WebSocket text frame (RFC 6455, 5.2): what one write sends. Returns how many.
 */
size_t queue_take_frames(struct queue *queue, size_t bytes, struct buf *out);

enum queue_forget {
	QUEUE_FORGET_ALL,   /* the subscription was closed */
	QUEUE_FORGET_AGAIN, /* it was replaced: only its EOSE, and what the window serves
			       again */
};
/* Moves everything unsent of @from behind what is in @to; false, and the rest stays, when
 * that would pass the limit. */
bool queue_move(struct queue *from, struct queue *to);
/* Drops the unsent messages of one subscription. */
void queue_forget(struct queue *queue, const struct body *head, enum queue_forget what);

#endif
