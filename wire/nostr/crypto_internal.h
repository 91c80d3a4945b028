#ifndef WIRE_NOSTR_CRYPTO_INTERNAL_H
#define WIRE_NOSTR_CRYPTO_INTERNAL_H

#include "wire/nostr/crypto.h"

/* Where NIP-44 keeps the binary payload between base64 and ChaCha20, so that sealing and
 * opening allocate nothing. Only nip44.c uses it; it leaves no plaintext there. */
struct buf *crypto_scratch(struct crypto *crypto);

#endif
