#include "relay/rate.h"

#include <assert.h>
#include <stdlib.h>

#include "wire/base/mem.h"

#define TOKEN 1000 /* parts: a bucket gains per_second parts in a millisecond */

struct bucket {
	int64_t parts; /* below 0: a debt */
	int64_t filled_ms;
	int64_t full_ms; /* when it will be full again: the same as none */
};

void rate_init(struct rate *rate)
{
	map_init(&rate->buckets);
	rate->sweep_ms = 0;
}

void rate_finish(struct rate *rate)
{
	struct map_entry *entry = NULL;

	while ((entry = map_next(&rate->buckets, entry)))
		free(entry->value);
	map_finish(&rate->buckets);
}

static void refill(struct bucket *bucket, int64_t per_second, int64_t most,
		   int64_t now_ms)
{
	int64_t full = most * TOKEN;
	int64_t passed_ms = now_ms - bucket->filled_ms;

	bucket->filled_ms = now_ms;
	/* Compared, not multiplied: a long pause would overflow. */
	if (bucket->parts >= full || passed_ms > (full - bucket->parts) / per_second)
		bucket->parts = full;
	else
		bucket->parts += passed_ms * per_second;
}

static void drop_idle(struct rate *rate, int64_t now_ms)
{
	struct map_entry *entry = map_next(&rate->buckets, NULL);

	rate->sweep_ms = now_ms + RATE_SWEEP_MS;
	while (entry) {
		struct map_entry *next = map_next(&rate->buckets, entry);
		struct bucket *bucket = entry->value;

		if (bucket->full_ms <= now_ms)
			free(map_take(&rate->buckets, map_key(entry)));
		entry = next;
	}
}

static struct bucket *find_bucket(struct rate *rate, struct slice account, int64_t most,
				  int64_t now_ms)
{
	struct bucket *bucket = map_get(&rate->buckets, account);

	if (bucket)
		return bucket;
	if (rate->buckets.count >= RATE_ACCOUNTS_MAX && now_ms >= rate->sweep_ms)
		drop_idle(rate, now_ms);
	if (rate->buckets.count >= RATE_ACCOUNTS_MAX)
		return NULL;
	bucket = mem_alloc(sizeof(*bucket));
	bucket->parts = most * TOKEN;
	bucket->filled_ms = now_ms;
	(void)map_put(&rate->buckets, account, bucket);
	return bucket;
}

/* Milliseconds until that many parts have come. */
static int64_t wait_for(int64_t parts, int64_t per_second)
{
	return (parts + per_second - 1) / per_second;
}

int64_t rate_take(struct rate *rate, int64_t per_second, int64_t most,
		  struct slice account, int64_t cost, int64_t now_ms)
{
	struct bucket *bucket;
	int64_t need = (cost < most ? cost : most) * TOKEN;

	assert(per_second > 0 && most > 0 && cost > 0);
	bucket = find_bucket(rate, account, most, now_ms);
	if (!bucket)
		return RATE_SWEEP_MS;
	refill(bucket, per_second, most, now_ms);
	if (bucket->parts < need)
		return wait_for(need - bucket->parts, per_second);
	bucket->parts -= cost * TOKEN;
	bucket->full_ms = now_ms + wait_for(most * TOKEN - bucket->parts, per_second);
	return 0;
}
