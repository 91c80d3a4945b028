#ifndef RELAY_OWNERS_H
#define RELAY_OWNERS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/map.h"
#include "wire/nostr/crypto.h"

/* Most bindings kept, about 20 MiB; our choice. When full, expired ones go first. */
#define OWNERS_MAX 65536

/* Which agent keys belong to which owners, as attested by NIP-OA: in memory, gone with
 * the process. An agent may have several owners: each said so with a signature of their
 * own. */
struct owners {
	struct map bindings; /* agent key, owner key -> expiry */
};

void owners_init(struct owners *owners);
void owners_finish(struct owners *owners);
/**
 * owners_bind - remember a checked attestation
 * @expires: its created_at< bound, Unix seconds; INT64_MAX for none. The later bound of
 * two attestations for the same pair counts. False when there is no room.
 */
bool owners_bind(struct owners *owners, const uint8_t agent[KEY_BYTES],
		 const uint8_t owner[KEY_BYTES], int64_t expires, int64_t now);
/* Does @agent belong to @owner at @now (Unix seconds, the relay's clock)? */
bool owners_hold(struct owners *owners, const uint8_t agent[KEY_BYTES],
		 const uint8_t owner[KEY_BYTES], int64_t now);

#endif
