#ifndef RELAY_TALLY_H
#define RELAY_TALLY_H

#include <stdint.h>

#include "wire/base/map.h"

/* How many of something each key has now. As large as what is counted. */
struct tally {
	struct map counts;
};

void tally_init(struct tally *tally);
void tally_finish(struct tally *tally);
uint32_t tally_of(const struct tally *tally, struct slice key);
void tally_add(struct tally *tally, struct slice key);
/* One that was added. */
void tally_remove(struct tally *tally, struct slice key);

#endif
