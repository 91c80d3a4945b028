#include "wire/base/map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "wire/base/mem.h"

#define MAP_FIRST_BUCKETS 16 /* a power of two, as all later counts are */

static uint64_t hash_of(const struct map *map, struct slice key)
{
	uint8_t digest[crypto_shorthash_BYTES];
	uint64_t hash = 0;

	(void)crypto_shorthash(digest, (const uint8_t *)(key.ptr ? key.ptr : ""), key.len,
			       map->hash_key);
	for (size_t i = 0; i < sizeof(digest); i++)
		hash = hash << 8 | digest[i];
	return hash;
}

static struct map_entry **bucket_of(const struct map *map, uint64_t hash)
{
	return &map->buckets[hash & (map->bucket_count - 1)];
}

/* Where the pointer to the entry of @key is, or the NULL at the end of its chain. */
static struct map_entry **find(const struct map *map, struct slice key, uint64_t hash)
{
	struct map_entry **at = bucket_of(map, hash);

	while (*at && ((*at)->hash != hash || !slice_eq(map_key(*at), key)))
		at = &(*at)->next;
	return at;
}

static void rehash(struct map *map, size_t bucket_count)
{
	struct map_entry **old = map->buckets;
	const size_t old_count = map->bucket_count;

	map->buckets = mem_array(bucket_count, sizeof(struct map_entry *));
	map->bucket_count = bucket_count;
	for (size_t i = 0; i < old_count; i++) {
		while (old[i]) {
			struct map_entry *entry = old[i];
			struct map_entry **bucket = bucket_of(map, entry->hash);

			old[i] = entry->next;
			entry->next = *bucket;
			*bucket = entry;
		}
	}
	free(old);
}

void map_init(struct map *map)
{
	*map = (struct map){0};
	randombytes_buf(map->hash_key, sizeof(map->hash_key));
}

void map_finish(struct map *map)
{
	for (size_t i = 0; i < map->bucket_count; i++) {
		while (map->buckets[i]) {
			struct map_entry *entry = map->buckets[i];

			map->buckets[i] = entry->next;
			free(entry);
		}
	}
	free(map->taken);
	map->taken = NULL;
	free(map->buckets);
	map->buckets = NULL;
	map->bucket_count = 0;
	map->count = 0;
}

void *map_get(const struct map *map, struct slice key)
{
	struct map_entry *entry;

	if (!map->count)
		return NULL;
	entry = *find(map, key, hash_of(map, key));
	return entry ? entry->value : NULL;
}

void *map_put(struct map *map, struct slice key, void *value)
{
	const uint64_t hash = hash_of(map, key);
	struct map_entry **at, *entry;

	assert(value);
	if (map->count >= map->bucket_count)
		rehash(map,
		       map->bucket_count ? 2 * map->bucket_count : MAP_FIRST_BUCKETS);
	at = find(map, key, hash);
	entry = *at;
	if (entry) {
		void *before = entry->value;

		entry->value = value;
		return before;
	}
	entry = mem_alloc(sizeof(*entry) + key.len);
	entry->value = value;
	entry->hash = hash;
	entry->key_len = key.len;
	if (key.len)
		memcpy(entry->key, key.ptr, key.len);
	*at = entry;
	map->count++;
	return NULL;
}

void *map_take(struct map *map, struct slice key)
{
	struct map_entry **at, *entry;
	void *value;

	if (!map->count)
		return NULL;
	at = find(map, key, hash_of(map, key));
	entry = *at;
	if (!entry)
		return NULL;
	value = entry->value;
	*at = entry->next;
	free(map->taken);
	map->taken = entry;
	map->count--;
	return value;
}

struct map_entry *map_next(const struct map *map, const struct map_entry *after)
{
	size_t i = 0;

	if (after) {
		if (after->next)
			return after->next;
		i = (after->hash & (map->bucket_count - 1)) + 1;
	}
	for (; i < map->bucket_count; i++)
		if (map->buckets[i])
			return map->buckets[i];
	return NULL;
}
