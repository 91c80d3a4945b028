#ifndef RELAY_OWNERS_H
#define RELAY_OWNERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relay/tally.h"
#include "wire/base/map.h"
#include "wire/nostr/crypto.h"

/* Most bindings kept, about 20 MiB; our choice. When full, expired ones go first, then
 * those of the agent that has been away longest. */
#define OWNERS_MAX 65536
/* Of those, for one owner and for one agent: nobody fills them alone. Our choice. */
#define OWNERS_AGENTS_MAX 8192
#define AGENT_OWNERS_MAX 16

struct agent_entry;

/* Who is served, and which agent keys belong to which owners as attested by NIP-OA. An
 * agent may have several owners: each said so with a signature of their own. All in
 * memory; whoever keeps it on disk fills it at the start and hears of what is new. */
struct owners {
	struct map agents;      /* agent key -> its bindings, and whether it is revoked */
	struct map listed;      /* owner key -> anything */
	size_t count;           /* bindings */
	struct tally agents_of; /* owner key -> how many bindings */
	/* Agents without a session that have bindings, away longest first. */
	struct agent_entry *idle_first, *idle_last;
	int64_t swept; /* when expired ones were looked for last, Unix seconds */
	bool by_list;  /* only listed owners and their agents are served */
	/* A binding that was not there, or holds longer than before; NULL for nobody. */
	void (*on_bind)(void *ctx, const uint8_t agent[KEY_BYTES],
			const uint8_t owner[KEY_BYTES], int64_t expires);
	/* What bound an agent has made room for others; NULL for nobody. */
	void (*on_unbind)(void *ctx, const uint8_t agent[KEY_BYTES]);
	void *ctx;
};

void owners_init(struct owners *owners);
void owners_finish(struct owners *owners);
/**
 * owners_bind - remember a checked attestation
 * @expires: its created_at< bound, Unix seconds; INT64_MAX for none. The later bound of
 * two attestations for the same pair counts.
 *
 * False when there is no room or the agent is revoked. With a list, an owner who is not
 * on it is not remembered, and that is true.
 */
bool owners_bind(struct owners *owners, const uint8_t agent[KEY_BYTES],
		 const uint8_t owner[KEY_BYTES], int64_t expires, int64_t now);
/* A session has proved @key, or one that did has ended: what binds it stays meanwhile. */
void owners_enter(struct owners *owners, const uint8_t key[KEY_BYTES]);
void owners_leave(struct owners *owners, const uint8_t key[KEY_BYTES]);
/* Does @agent belong to @owner at @now (Unix seconds, the relay's clock)? */
bool owners_hold(const struct owners *owners, const uint8_t agent[KEY_BYTES],
		 const uint8_t owner[KEY_BYTES], int64_t now);
/* The owner who attested @key first, or @key itself when nobody did. */
const uint8_t *owners_of(const struct owners *owners, const uint8_t key[KEY_BYTES],
			 int64_t now);

/* Forgets what binds @agent, and refuses to be told again until owners_allow(). */
void owners_revoke(struct owners *owners, const uint8_t agent[KEY_BYTES]);
void owners_allow(struct owners *owners, const uint8_t agent[KEY_BYTES]);
bool owners_revoked(const struct owners *owners, const uint8_t key[KEY_BYTES]);

void owners_list(struct owners *owners, const uint8_t owner[KEY_BYTES]);
/* May this owner be served? True for everybody without a list. */
bool owners_listed(const struct owners *owners, const uint8_t owner[KEY_BYTES]);
/* May this key publish and subscribe: not revoked, and with a list a listed owner or an
 * agent of one? */
bool owners_permit(const struct owners *owners, const uint8_t key[KEY_BYTES],
		   int64_t now);
/* Forgets list and revocations, to be told them anew; bindings stay. */
void owners_forget_lists(struct owners *owners);

#endif
