#ifndef RELAY_ADMIT_H
#define RELAY_ADMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relay/address.h"
#include "relay/budget.h"
#include "relay/counters.h"
#include "relay/owners.h"
#include "relay/seen.h"
#include "wire/base/buf.h"
#include "wire/nostr/event.h"
#include "wire/nostr/message.h"

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
	struct budgets budgets;
	bool count_loopback; /* budgets of an address hold for loopback, too */
	struct seen seen;
	struct buf scratch;
	struct histogram verify; /* of ids and signatures, true or not */
	bool stores;             /* stored kinds are kept, else refused */
	bool open;               /* stored kinds need no AUTH */
};

void admit_init(struct admit *admit, struct crypto *crypto);
void admit_finish(struct admit *admit);

enum admit_verdict {
	ADMIT_PASS,      /* fan it out */
	ADMIT_STORE,     /* keep it, then fan it out */
	ADMIT_DUPLICATE, /* an earlier copy reached a reader: OK true, not sent again */
	ADMIT_IGNORE,    /* a frame of a type we do not know: OK true, not sent */
	ADMIT_REFUSE,    /* OK false with @text */
};

struct admission {
	enum admit_verdict verdict;
	enum refusal refusal; /* ADMIT_REFUSE */
	char text[320];       /* for the OK; with its prefix when refused */
	bool first;           /* ADMIT_PASS: no copy passed before */
	bool telemetry;       /* ADMIT_PASS: a frame from an agent to @owner */
	uint8_t owner[KEY_BYTES];
	/* An attestation that came with this very frame; remembered once the frame proved
	 * to be true. */
	bool attested;
	int64_t expires;
	int64_t took_ns; /* to check the id */
};

/**
 * admit_message - may this client be listened to?
 * @from: where it comes from; NULL for nowhere
 * @bytes: of the message
 * @now: Unix seconds; @now_ms: a clock that does not go back
 *
 * Budgets of bytes for all but CLOSE; for REQ and COUNT also theirs, and on a relay with
 * a list one of the keys must be served. False with refusal and text in @out.
 */
bool admit_message(struct admit *admit, enum client_verb verb, const struct keyset *keys,
		   const struct address *from, size_t bytes, int64_t now, int64_t now_ms,
		   struct admission *out);

/**
 * admit_event - may this event pass?
 * @keys: those its connection has authenticated
 * The others as for admit_message().
 *
 * Frames (kind 24200) are checked in the order of design §7: shape, author authenticated,
 * freshness, owner, rate, id and signature, repeated id. A valid NIP-OA tag in a frame
 * binds its agent and owner. All other kinds need an authenticated connection (stored
 * kinds not with open), a rate, and to be true; protected ones their author (NIP-70).
 */
void admit_event(struct admit *admit, const struct event *event,
		 const struct keyset *keys, const struct address *from, int64_t now,
		 int64_t now_ms, struct admission *out);
/* The same in two steps, so that signatures can be checked together. False when @out says
 * all; true when nothing but the signature is left to be checked. */
bool admit_ask(struct admit *admit, const struct event *event, const struct keyset *keys,
	       const struct address *from, int64_t now, int64_t now_ms,
	       struct admission *out);
/* @out: as admit_ask() left it. @took_ns: to check the signature. */
void admit_conclude(struct admit *admit, const struct event *event, bool is_signed,
		    int64_t took_ns, int64_t now, struct admission *out);

/**
 * admit_auth - may the author of this AUTH event, which is true, come in?
 * @keys: takes the key
 *
 * A revoked key may not, nor one that comes too often. Its attestation is remembered; one
 * that does not hold is ignored, since the key is proved all the same and frames may
 * carry another. @out has the words for OK, true or false.
 */
bool admit_auth(struct admit *admit, const struct event *event, struct keyset *keys,
		int64_t now, int64_t now_ms, struct admission *out);

/* Their session has ended. */
void admit_leave(struct admit *admit, const struct keyset *keys);

/* May an address open one more connection? */
bool admit_connection(struct admit *admit, const struct address *from, int64_t now_ms,
		      struct admission *out);

/* May a connection that has proved these keys stay? Not with a revoked one, and on a
 * relay with a list, when it has subscriptions (@subscribed), not without one that is
 * served. */
bool admit_stay(const struct admit *admit, const struct keyset *keys, bool subscribed,
		int64_t now, struct admission *out);

#endif
