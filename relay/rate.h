#ifndef RELAY_RATE_H
#define RELAY_RATE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/map.h"

/* Most accounts that are counted at one time; our choice, about 8 MiB. */
#define RATE_ACCOUNTS_MAX 65536
/* A full table is searched for idle accounts this often at most, and until then new ones
 * are refused: a flood of keys must not make every message walk the table. */
#define RATE_SWEEP_MS 1000

/* Token buckets by account; each is full at first. */
struct rate {
	struct map buckets;
	int64_t sweep_ms; /* when the next search may be */
};

void rate_init(struct rate *rate);
void rate_finish(struct rate *rate);
/**
 * rate_take - take @cost of @account's bucket
 * @per_second: what it gains; @most: what it holds. Both may differ from call to call.
 * @now_ms: any clock that does not go back
 *
 * Returns 0 when there was enough; what costs more than @most needs a full bucket and
 * leaves a debt. Else nothing is taken, and how long to wait, in ms. RATE_SWEEP_MS when
 * there are too many accounts.
 */
int64_t rate_take(struct rate *rate, int64_t per_second, int64_t most,
		  struct slice account, int64_t cost, int64_t now_ms);

#endif
