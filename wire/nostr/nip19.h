#ifndef WIRE_NOSTR_NIP19_H
#define WIRE_NOSTR_NIP19_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"

#define NIP19_MAX_CHARS 5000

enum nip19_kind {
	NIP19_NPUB,
	NIP19_NSEC,
	NIP19_NOTE,
	NIP19_NPROFILE,
	NIP19_NEVENT,
	NIP19_NADDR
};

/* What a bech32 entity names. TLV parts point into @buf of the decode call. */
struct nip19 {
	enum nip19_kind kind;
	uint8_t key[32];    /* npub, nsec, note, nprofile, nevent */
	struct slice name;  /* naddr: the d value */
	struct slice relay; /* first relay, or empty */
	bool has_author;
	uint8_t author[32]; /* nevent, naddr */
	bool has_kind;
	uint32_t event_kind;
};

/* Bare keys: npub, nsec, note. Appends the text. */
bool nip19_encode(enum nip19_kind kind, const uint8_t key[32], struct buf *out);
/* @scratch: cleared; holds the decoded bytes that @out's slices point to. Wipe it after
 * an nsec. */
bool nip19_decode(struct slice text, struct buf *scratch, struct nip19 *out,
		  struct err *err);
/* A public key as npub or 64 hex: what command lines take. */
bool nip19_parse_pubkey(struct slice text, uint8_t out[32], struct err *err);

#endif
