#ifndef WIRE_NOSTR_INVITE_H
#define WIRE_NOSTR_INVITE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/nostr/crypto.h"

/* An invitation: all that an agent on another machine needs to be in its owner's fleet,
 * as one line, perch1… (bech32: a damaged paste is noticed). It holds a secret key.
 *
 * Bytes: version 1, then type (1 byte), length (1 byte), value: 1 agent's secret key, 2
 * relay URL, 3 agent's name, 4 owner's public key, 5 signature and 6 conditions of the
 * attestation (NIP-OA). 1 to 5 stand exactly once, 6 at most once, in any order; types
 * from 128 on may be ignored, others may not. */

#define INVITE_CHARS_MAX 2048 /* of the text; what we write is at most 1,500 */
#define INVITE_RELAY_MAX 255
#define INVITE_NAME_MAX 64

struct invite {
	uint8_t secret[KEY_BYTES];
	struct slice relay;    /* ws:// or wss://, printable ASCII */
	struct slice name;     /* printable ASCII */
	struct slice auth_tag; /* JSON array text, verified */
	uint8_t owner[KEY_BYTES];
	int64_t expires; /* Unix seconds; INT64_MAX: never. Not compared with any clock */
};

/* Does it look like one? For better words where something else was pasted. */
bool invite_is(struct slice text);
/**
 * invite_encode - append the text
 * @invite: secret, relay, name and auth_tag are used
 * Fails (ERR_TOO_LARGE, ERR_MALFORMED) when a part is too long or not what it should be.
 */
bool invite_encode(struct crypto *crypto, const struct invite *invite, struct buf *out,
		   struct err *err);
/**
 * invite_parse - read one
 * @text: white space anywhere in it is ignored: terminals and mail break long lines
 * @scratch: cleared; holds what @out's slices point into. Wipe it, and out->secret.
 *
 * ERR_MALFORMED: damaged, or no invitation; ERR_REFUSED: a version or part that we do not
 * know; ERR_TOO_LARGE. The attestation has been checked, its time has not.
 */
bool invite_parse(struct crypto *crypto, struct slice text, struct buf *scratch,
		  struct invite *out, struct err *err);

#endif
