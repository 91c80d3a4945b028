#ifndef RELAY_ADMIT_H
#define RELAY_ADMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relay/counters.h"
#include "relay/owners.h"
#include "relay/rate.h"
#include "relay/seen.h"
#include "wire/base/buf.h"
#include "wire/nostr/event.h"

/* Most keys that one connection may authenticate; our choice. */
#define ADMIT_KEYS_MAX 16

/* The keys that one connection has proved to hold (NIP-42: every one of them counts). */
struct keyset {
	uint8_t keys[ADMIT_KEYS_MAX][KEY_BYTES];
	size_t count;
};

bool keyset_has(const struct keyset *keys, const uint8_t key[KEY_BYTES]);
/* True also when it is there already; false when there is no room. */
bool keyset_add(struct keyset *keys, const uint8_t key[KEY_BYTES]);

/* What decides whether an event may pass; borrowed by whoever asks. */
struct admit {
	struct crypto *crypto;
	struct owners owners;
	struct rate rate;
	struct seen seen;
	struct buf scratch;
};

void admit_init(struct admit *admit, struct crypto *crypto);
void admit_finish(struct admit *admit);

enum admit_verdict {
	ADMIT_PASS,      /* fan it out */
	ADMIT_DUPLICATE, /* an earlier copy reached a reader: OK true, not sent again */
	ADMIT_IGNORE,    /* a frame of a type we do not know: OK true, not sent */
	ADMIT_REFUSE,    /* OK false with @text */
};

struct admission {
	enum admit_verdict verdict;
	enum refusal refusal; /* ADMIT_REFUSE */
	char text[256];       /* for the OK; with its prefix when refused */
	bool first;           /* ADMIT_PASS: no copy passed before */
	bool telemetry;       /* ADMIT_PASS: a frame from an agent to @owner */
	uint8_t owner[KEY_BYTES];
};

/**
 * admit_event - may this event pass?
 * @keys: those its connection has authenticated
 * @now: Unix seconds; @now_ms: a clock that does not go back
 *
 * Frames (kind 24200) are checked in the order of design §7: shape, author authenticated,
 * freshness, owner, rate, id and signature, repeated id. A valid NIP-OA tag in a frame
 * binds its agent and owner. Other ephemeral kinds need an authenticated connection, a
 * rate, and to be true; stored kinds are refused.
 */
void admit_event(struct admit *admit, const struct event *event,
		 const struct keyset *keys, int64_t now, int64_t now_ms,
		 struct admission *out);

enum bind_result {
	BIND_NONE, /* no auth tag */
	BIND_DONE,
	BIND_IGNORED, /* it does not hold; @err says why */
};
/* Remembers the attestation that a verified AUTH event carries. */
enum bind_result admit_bind(struct admit *admit, const struct event *event, int64_t now,
			    struct err *err);

#endif
