#ifndef RELAY_NIP11_H
#define RELAY_NIP11_H

#include "wire/base/buf.h"

/* Frames a second that an agent may send to fill up what an observer misses, told in
 * NIP-11 as perch.backfill_per_second: a fifth of what the relay takes from an agent. */
#define NIP11_BACKFILL_PER_S 20

/* Appends the relay information document (NIP-11), made from the limits that are
 * enforced. */
void nip11_write(struct buf *out);

#endif
