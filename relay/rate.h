#ifndef RELAY_RATE_H
#define RELAY_RATE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/map.h"

/* Most keys that are counted at one time; our choice, about 3 MiB. */
#define RATE_KEYS_MAX 16384

/* Token buckets by key: each holds a second's worth and is full at first. */
struct rate {
	struct map buckets;
	unsigned per_second;
};

void rate_init(struct rate *rate, unsigned per_second);
void rate_finish(struct rate *rate);
/* Takes one token of @key's bucket; false when it is empty, or when more keys than
 * RATE_KEYS_MAX are active. @now_ms: any clock that does not go back. */
bool rate_take(struct rate *rate, struct slice key, int64_t now_ms);

#endif
