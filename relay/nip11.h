#ifndef RELAY_NIP11_H
#define RELAY_NIP11_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/buf.h"

/* Who may do what and how often, as the relay was told. */
struct nip11_access {
	bool by_list; /* nothing without AUTH, and only listed owners and their agents */
	bool open;    /* stored kinds from everybody */
	int64_t frames_per_s; /* of one agent; 0 for no limit */
};

/* Appends the relay information document (NIP-11), made from the limits that are
 * enforced. perch.backfill_per_second: frames a second that an agent may send to fill up
 * what an observer misses. The relay cannot tell these frames from others: what bounds
 * them is what it takes from an agent in all, and this leaves a fifth of that for the
 * rest. Eight hours at a frame a second take six minutes by the default. */
void nip11_write(const struct nip11_access *access, struct buf *out);

#endif
