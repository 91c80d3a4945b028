#ifndef OBSERVER_INGEST_H
#define OBSERVER_INGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observer/missing.h"
#include "observer/model.h"
#include "wire/base/slice.h"
#include "wire/frame/control.h"
#include "wire/frame/limits.h"
#include "wire/frame/observer_event.h"
#include "wire/nostr/crypto.h"

/* From an event as the relay sent it to frames that are ours: shape, author, signature,
 * NIP-44, parse, dedupe, missing. Pure: time comes in, what was found goes out by
 * callback.
 *
 * An author is known by this owner's attestation (NIP-OA): in the frame, or told by
 * on_stranger. Others cost no ECDH and make no row; their attestations are looked
 * at INGEST_CHECKS_BURST times, then once a second. */
#define INGEST_AGENTS_MAX 256
#define INGEST_EPOCHS_MAX FEED_EPOCHS_MAX /* of one agent, newest kept */
#define INGEST_CHECKS_BURST 16
#define INGEST_SETTLE_MS 1500 /* a hole younger than this may just be on its way */
/* A range is served from its first frame on, so a long hole is asked for in pieces, the
 * newest first. 64 of them outlast the minute until the next ask at the fastest pace that
 * a relay of ours offers. */
#define INGEST_PIECE_FRAMES 128

struct ingest;

struct ingest_frame {
	const uint8_t *agent; /* KEY_BYTES */
	const struct frame *frame;
	struct slice plaintext;
	bool live;          /* fresh, not replayed, not behind the newest */
	int64_t created_ms; /* by its author's clock */
};

struct ingest_counts {
	uint64_t frames, duplicates, strangers, forged, malformed, stale;
	uint64_t filled;   /* of frames: those that had been missing */
	uint64_t replayed; /* of frames: those that were sent again for us */
	uint64_t live;
	uint64_t events; /* in frames */
};

struct ingest_options {
	struct crypto *crypto;       /* borrowed */
	const struct keypair *owner; /* borrowed */
	void (*on_frame)(void *ctx, const struct ingest_frame *frame);
	/* An author without our attestation, at most once a second: until when (Unix
	 * seconds) it is attested elsewhere, or 0, which is worth a log line. */
	int64_t (*on_stranger)(void *ctx, const uint8_t *author);
	/* Frames that will never come. */
	void (*on_gone)(void *ctx, const uint8_t *agent, const char *epoch,
			struct gone_range gone);
	void *ctx;
};

struct ingest *ingest_create(const struct ingest_options *options);
void ingest_destroy(struct ingest *ingest);
/* One EVENT of our subscription. @now_ms: Unix ms. */
void ingest_event(struct ingest *ingest, struct slice text, int64_t now_ms);
const struct ingest_counts *ingest_counts(const struct ingest *ingest);

/* A frame that the archive holds; false: it was here already. */
bool ingest_known(struct ingest *ingest, const uint8_t *agent, const char *epoch,
		  uint64_t number);
void ingest_known_gone(struct ingest *ingest, const uint8_t *agent, const char *epoch,
		       struct gone_range gone);
/* Frames that the archive has, or had and let go. */
void ingest_known_range(struct ingest *ingest, const uint8_t *agent, const char *epoch,
			struct frame_range range);
/* Frames that the archive has not after all: they are missing again. */
void ingest_unknown(struct ingest *ingest, const uint8_t *agent, const char *epoch,
		    struct frame_range range, int64_t now_ms);
/* The same of all frames of all agents. */
void ingest_unknown_all(struct ingest *ingest, int64_t now_ms);

/* Encrypts to and from this agent; false for a key that is no point. */
bool ingest_conversation_key(struct ingest *ingest, const uint8_t *agent,
			     uint8_t out[32]);

/* A harness told what it keeps (feed_state's payload). */
void ingest_feed_state(struct ingest *ingest, const uint8_t *agent, struct slice payload,
		       int64_t now_ms);
/* What to ask of @agent, newest first, in pieces of INGEST_PIECE_FRAMES but for the last,
 * which is all that is left of its hole; nothing of what is younger than
 * INGEST_SETTLE_MS. */
size_t ingest_wants(const struct ingest *ingest, const uint8_t *agent, int64_t now_ms,
		    struct control_want *out, size_t max);
/* Frames missing of an agent in all epochs. */
uint64_t ingest_missing(const struct ingest *ingest, const uint8_t *agent);
/* Ranges of frames of an agent that are gone for good, and how many frames that are. */
size_t ingest_gone(const struct ingest *ingest, const uint8_t *agent);
uint64_t ingest_gone_frames(const struct ingest *ingest, const uint8_t *agent);
/**
 * ingest_complete_ms - until when all that was sent is here, or is known to be gone
 * Unix ms by the agent's clock, but never in our future; 0: nothing can be claimed, as of
 * a foreign feed. A live frame says that all numbers below its own were given before; one
 * that was replayed says nothing of what came since. While anything is missing the claim
 * stays where it was, and from the first frame of a new start on until a feed_state has
 * said how the one before it ended.
 */
int64_t ingest_complete_ms(const struct ingest *ingest, const uint8_t *agent);
/* Tells the model the holes of this agent; @state is that of those that may still come.
 */
void ingest_tell_gaps(struct ingest *ingest, const uint8_t *agent, enum gap_state state,
		      int64_t now_ms, struct model *model);
/* Calls @each for every agent that is known or that the archive knows. */
void ingest_each_agent(const struct ingest *ingest,
		       void (*each)(void *ctx, const uint8_t *agent, bool foreign),
		       void *ctx);

#endif
