#ifndef WIRE_NOSTR_NIP42_H
#define WIRE_NOSTR_NIP42_H

#include "wire/nostr/event.h"

#define NIP42_KIND 22242
#define NIP42_MAX_AGE_S 600

/* Appends the signed AUTH event: tags relay, challenge, and @auth_tag (a NIP-OA tag as
 * JSON array text) when it is not empty. @url and @challenge are plain UTF-8. */
bool nip42_sign(struct crypto *crypto, const struct keypair *keypair, struct slice url,
		struct slice challenge, struct slice auth_tag, int64_t now,
		const uint8_t aux[32], struct buf *out, struct err *err);
/**
 * nip42_check - is this AUTH event an answer to our challenge?
 * Kind, age (±600 s of @now, Unix seconds), challenge, relay; not the signature. The
 * relay tag must name one of @urls: scheme, host (case folded), port (defaults filled in)
 * and path (trailing slash ignored) are compared. ERR_MALFORMED with what differs.
 */
bool nip42_check(const struct event *event, struct slice challenge,
		 const struct slice *urls, size_t url_count, int64_t now,
		 struct err *err);

#endif
