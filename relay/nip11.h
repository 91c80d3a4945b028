#ifndef RELAY_NIP11_H
#define RELAY_NIP11_H

#include "wire/base/buf.h"
#include "wire/frame/limits.h"

/* Frames a second that an agent may send to fill up what an observer misses, told in
 * NIP-11 as perch.backfill_per_second. The relay cannot tell these frames from others:
 * what bounds them is what it takes from an agent in all (RELAY_FRAMES_PER_S), and this
 * leaves a fifth of that for the rest. Eight hours at a frame a second take six minutes.
 */
#define NIP11_BACKFILL_PER_S (RELAY_FRAMES_PER_S * 4 / 5)

/* Appends the relay information document (NIP-11), made from the limits that are
 * enforced. */
void nip11_write(struct buf *out);

#endif
