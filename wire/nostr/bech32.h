#ifndef WIRE_NOSTR_BECH32_H
#define WIRE_NOSTR_BECH32_H

#include <stdbool.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"

/* Bech32 (BIP-173, not bech32m) over whole bytes and without its limit of 90 characters:
 * NIP-19, NIP-49 and invitations. Prefixes are lower case and hold no '1'. */

/* Does @text begin with @prefix and '1', in either case? */
bool bech32_is(struct slice text, struct slice prefix);
/* Appends prefix, '1', data and checksum. */
bool bech32_encode(struct slice prefix, struct slice bytes, struct buf *out);
/* @text is bech32_is() with that prefix. Appends the bytes to @out. ERR_MALFORMED: mixed
 * case, a wrong character, checksum or padding. */
bool bech32_decode(struct slice text, struct slice prefix, struct buf *out,
		   struct err *err);

#endif
