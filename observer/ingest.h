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
			struct frame_range range);
	void *ctx;
};

struct ingest *ingest_create(const struct ingest_options *options);
void ingest_destroy(struct ingest *ingest);
/* One EVENT of our subscription. @now_ms: Unix ms. */
void ingest_event(struct ingest *ingest, struct slice text, int64_t now_ms);
const struct ingest_counts *ingest_counts(const struct ingest *ingest);

/* Frames that the archive holds, or gave up. */
void ingest_known(struct ingest *ingest, const uint8_t *agent, const char *epoch,
		  uint64_t number);
void ingest_known_gone(struct ingest *ingest, const uint8_t *agent, const char *epoch,
		       struct frame_range range);

/* Frames that the archive had and let go. */
void ingest_known_forgotten(struct ingest *ingest, const uint8_t *agent,
			    const char *epoch, struct frame_range range);

/* Encrypts to and from this agent; false for a key that is no point. */
bool ingest_conversation_key(struct ingest *ingest, const uint8_t *agent,
			     uint8_t out[32]);

/* A harness told what it keeps (feed_state's payload). */
void ingest_feed_state(struct ingest *ingest, const uint8_t *agent, struct slice payload,
		       int64_t now_ms);
/* What to ask of @agent, newest first; nothing of what is younger than INGEST_SETTLE_MS.
 */
size_t ingest_wants(const struct ingest *ingest, const uint8_t *agent, int64_t now_ms,
		    struct control_want *out, size_t max);
/* Frames missing of an agent in all epochs. */
uint64_t ingest_missing(const struct ingest *ingest, const uint8_t *agent);
/* Ranges of frames of an agent that are gone for good. */
size_t ingest_gone(const struct ingest *ingest, const uint8_t *agent);
/* Tells the model the holes of this agent; @state is that of those that may still come.
 */
void ingest_tell_gaps(struct ingest *ingest, const uint8_t *agent, enum gap_state state,
		      int64_t now_ms, struct model *model);
/* Calls @each for every agent that is known or that the archive knows. */
void ingest_each_agent(const struct ingest *ingest,
		       void (*each)(void *ctx, const uint8_t *agent, bool foreign),
		       void *ctx);

#endif
