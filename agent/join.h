#ifndef AGENT_JOIN_H
#define AGENT_JOIN_H

#include <stdbool.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/nostr/crypto.h"
#include "wire/nostr/invite.h"

/* An invitation as a harness was given it: by --invite (kept: key, attestation and relay
 * are stored like those of any other agent) or in PERCH_INVITE (used for this run only:
 * CI). */
struct join {
	bool given;
	bool keep;
	struct invite invite; /* borrows from text */
	struct buf text;
};

void join_init(struct join *join);
void join_finish(struct join *join); /* wipes the key */

/**
 * join_read - take the invitation, if there is one
 * @source: "-" (one line of standard input), a file (0600), or NULL: PERCH_INVITE, which
 *   is overwritten and removed from the environment in any case
 *
 * Refuses what is damaged or expired, with what to ask for.
 */
bool join_read(struct join *join, const char *source, struct crypto *crypto,
	       struct err *err);
/* Stores key, attestation and relay under @name. The same invitation may come again. */
bool join_keep(const struct join *join, struct slice name, const struct keypair *keypair,
	       struct err *err);

#endif
