#ifndef WIRE_BASE_MAP_H
#define WIRE_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/slice.h"

/* A hash map from bytes (copied) to pointers (the caller's). Keys that a peer chooses are
 * safe: the hash is SipHash under a random key made at init. */
struct map {
	struct map_entry **buckets;
	size_t bucket_count;
	size_t count; /* entries; may be read */
	struct map_entry
		*taken; /* freed by the next take: a walk may still stand on it */
	uint8_t hash_key[16];
};

struct map_entry {
	struct map_entry *next;
	void *value;
	uint64_t hash;
	size_t key_len;
	char key[]; /* not NUL-terminated */
};

void map_init(struct map *map);
/* Frees the entries; values are the caller's. */
void map_finish(struct map *map);
void *map_get(const struct map *map, struct slice key);
/* Inserts or replaces; returns the value that was there before, or NULL. @value is not
 * NULL. */
void *map_put(struct map *map, struct slice key, void *value);
/* Removes; returns the value that was there, or NULL. */
void *map_take(struct map *map, struct slice key);
/* Walks all entries in no order: start with NULL; NULL at the end. The entry returned
 * last may be taken out during the walk, others may not, and nothing may be put in. */
struct map_entry *map_next(const struct map *map, const struct map_entry *after);
static inline struct slice map_key(const struct map_entry *entry)
{
	return (struct slice){entry->key, entry->key_len};
}

#endif
