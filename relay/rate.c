#include "relay/rate.h"

#include <stdlib.h>

#include "wire/base/mem.h"

#define TOKEN 1000 /* parts: a bucket gains per_second parts in a millisecond */

struct bucket {
	int64_t parts;
	int64_t filled_ms;
};

void rate_init(struct rate *rate, unsigned per_second)
{
	map_init(&rate->buckets);
	rate->per_second = per_second;
}

void rate_finish(struct rate *rate)
{
	struct map_entry *entry = NULL;

	while ((entry = map_next(&rate->buckets, entry)))
		free(entry->value);
	map_finish(&rate->buckets);
}

static void refill(const struct rate *rate, struct bucket *bucket, int64_t now_ms)
{
	int64_t full = (int64_t)rate->per_second * TOKEN;
	int64_t passed_ms = now_ms - bucket->filled_ms;

	bucket->filled_ms = now_ms;
	if (passed_ms >= TOKEN)
		bucket->parts = full;
	else
		bucket->parts += passed_ms * (int64_t)rate->per_second;
	if (bucket->parts > full)
		bucket->parts = full;
}

/* A bucket untouched for a second is full again: the same as none. */
static void drop_idle(struct rate *rate, int64_t now_ms)
{
	struct map_entry *entry = map_next(&rate->buckets, NULL);

	while (entry) {
		struct map_entry *next = map_next(&rate->buckets, entry);
		struct bucket *bucket = entry->value;

		if (now_ms - bucket->filled_ms >= TOKEN)
			free(map_take(&rate->buckets, map_key(entry)));
		entry = next;
	}
}

bool rate_take(struct rate *rate, struct slice key, int64_t now_ms)
{
	struct bucket *bucket = map_get(&rate->buckets, key);

	if (!bucket) {
		if (rate->buckets.count >= RATE_KEYS_MAX)
			drop_idle(rate, now_ms);
		if (rate->buckets.count >= RATE_KEYS_MAX)
			return false;
		bucket = mem_alloc(sizeof(*bucket));
		bucket->parts = (int64_t)rate->per_second * TOKEN;
		bucket->filled_ms = now_ms;
		(void)map_put(&rate->buckets, key, bucket);
	}
	refill(rate, bucket, now_ms);
	if (bucket->parts < TOKEN)
		return false;
	bucket->parts -= TOKEN;
	return true;
}
