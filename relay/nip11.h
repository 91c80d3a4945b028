#ifndef RELAY_NIP11_H
#define RELAY_NIP11_H

#include <stdbool.h>

#include "wire/base/buf.h"
#include "wire/frame/limits.h"

/* Frames a second that an agent may send to fill up what an observer misses, told in
 * NIP-11 as perch.backfill_per_second. The relay cannot tell these frames from others:
 * what bounds them is what it takes from an agent in all (RELAY_FRAMES_PER_S), and this
 * leaves a fifth of that for the rest. Eight hours at a frame a second take six minutes.
 */
#define NIP11_BACKFILL_PER_S (RELAY_FRAMES_PER_S * 4 / 5)

/* Who may do what, as the relay was told. */
struct nip11_access {
	bool by_list; /* nothing without AUTH, and only listed owners and their agents */
	bool open;    /* stored kinds from everybody */
};

/* Appends the relay information document (NIP-11), made from the limits that are
 * enforced. */
void nip11_write(const struct nip11_access *access, struct buf *out);

#endif
