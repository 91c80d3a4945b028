#ifndef OBSERVER_ATTESTED_H
#define OBSERVER_ATTESTED_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/nostr/crypto.h"

/* The owner's own record of whom they attested (data/attested/HEX): for agents that do
 * not carry their attestation in every frame. */
bool attested_save(const uint8_t *agent, struct slice tag_json, struct err *err);
/* When this owner's attestation of @agent ends (Unix seconds); 0 when there is none. */
int64_t attested_until(struct crypto *crypto, const struct keypair *owner,
		       const uint8_t *agent);
/* Calls @each with the public key of every agent that was attested, as long as it says
 * so.
 */
void attested_each(bool (*each)(void *ctx, const uint8_t *agent), void *ctx);

#endif
