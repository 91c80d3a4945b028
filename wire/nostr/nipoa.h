#ifndef WIRE_NOSTR_NIPOA_H
#define WIRE_NOSTR_NIPOA_H

#include "wire/nostr/event.h"

/* NIP-OA: the owner's word that an agent key is theirs, as an "auth" tag. */
#define NIPOA_CONDITIONS_MAX 1024 /* bytes; our choice */

/* Appends the tag as JSON array text: ["auth",owner,conditions,sig]. @owner signs for
 * @agent; @conditions may be empty ("created_at<1800000000"). */
bool nipoa_sign(struct crypto *crypto, const struct keypair *owner,
		const uint8_t agent[KEY_BYTES], struct slice conditions,
		const uint8_t aux[32], struct buf *out, struct err *err);
/* Reads a tag's JSON array text and checks it as nipoa_check does without an event: for
 * attestation files and invitations. @owner_out on success. */
bool nipoa_parse(struct crypto *crypto, struct slice tag_json,
		 const uint8_t agent[KEY_BYTES], uint8_t owner_out[KEY_BYTES],
		 int64_t *expires_out, struct err *err);
/**
 * nipoa_check - who owns the author of this event?
 * @owner_out: the attesting owner; @expires_out (may be NULL): the created_at< bound in
 * Unix seconds, INT64_MAX when there is none - the checker compares it with its own
 * clock.
 *
 * ERR_NOT_FOUND: no auth tag. ERR_MALFORMED: more than one, wrong shape,
 * self-attestation, bad conditions or signature. ERR_REFUSED: a condition does not hold
 * for this event.
 */
bool nipoa_check(struct crypto *crypto, const struct event *event,
		 uint8_t owner_out[KEY_BYTES], int64_t *expires_out, struct err *err);

#endif
