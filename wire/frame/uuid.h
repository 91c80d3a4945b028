#ifndef WIRE_FRAME_UUID_H
#define WIRE_FRAME_UUID_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/slice.h"
#include "wire/nostr/crypto.h"

#define UUID_LEN 36 /* characters, lower case with hyphens */

/* A channel's name on the wire, NUL-terminated. */
struct uuid {
	char text[UUID_LEN + 1];
};

static inline struct slice uuid_slice(const struct uuid *uuid)
{
	return (struct slice){uuid->text, UUID_LEN};
}
/* Version 5 under Perch's namespace (payloads.md). */
void uuid_of_name(struct crypto *crypto, struct slice name, struct uuid *out);
/* The channel of a session that was given none: v5(agent key in hex + ":" + session). */
void uuid_of_session(struct crypto *crypto, const uint8_t agent[KEY_BYTES],
		     struct slice session, struct uuid *out);
/* The channel of a slot: v5(agent key in hex + "/" + slot). */
void uuid_of_slot(struct crypto *crypto, const uint8_t agent[KEY_BYTES], unsigned slot,
		  struct uuid *out);
/* Reads any UUID (either case) into lower case. */
bool uuid_parse(struct slice text, struct uuid *out);

#endif
