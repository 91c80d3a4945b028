#ifndef AGENT_INBOX_H
#define AGENT_INBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/nostr/crypto.h"

/* Opens what the owner sends: kind 24200 with frame "control". Pure: time comes in.
 * Source: design §4, facts of NIP-AO. */
struct inbox;

/* @conversation_key: 32 bytes, borrowed. @crypto and @agent are borrowed, too. */
struct inbox *inbox_create(struct crypto *crypto, const struct keypair *agent,
			   const uint8_t owner[KEY_BYTES],
			   const uint8_t *conversation_key);
void inbox_destroy(struct inbox *inbox);

struct inbox_control {
	uint8_t event_id[32];
	int64_t created_at;
	struct slice plaintext; /* until the next inbox_open() or inbox_wipe() */
};

enum inbox_verdict {
	INBOX_OPENED,
	INBOX_IGNORED, /* seen before, or a frame value that is not ours to read */
	INBOX_REFUSED, /* @err says why */
};

/* Checks author, tags, freshness (±FRAME_FRESH_S of @now_s), id and signature, opens the
 * content and remembers the id: CONTROL_REMEMBERED of them. */
enum inbox_verdict inbox_open(struct inbox *inbox, struct slice event, int64_t now_s,
			      struct inbox_control *out, struct err *err);
/* Overwrites the plaintext of the last control. */
void inbox_wipe(struct inbox *inbox);

#endif
