#include "relay/owners.h"

#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"

struct binding {
	int64_t expires; /* Unix seconds: the first one at which it no longer holds */
};

struct pair {
	uint8_t bytes[2 * KEY_BYTES];
};

static struct slice pair_key(struct pair *pair, const uint8_t agent[KEY_BYTES],
			     const uint8_t owner[KEY_BYTES])
{
	memcpy(pair->bytes, agent, KEY_BYTES);
	memcpy(pair->bytes + KEY_BYTES, owner, KEY_BYTES);
	return (struct slice){(const char *)pair->bytes, sizeof(pair->bytes)};
}

void owners_init(struct owners *owners)
{
	map_init(&owners->bindings);
}

void owners_finish(struct owners *owners)
{
	struct map_entry *entry = NULL;

	while ((entry = map_next(&owners->bindings, entry)))
		free(entry->value);
	map_finish(&owners->bindings);
}

static void drop_expired(struct owners *owners, int64_t now)
{
	struct map_entry *entry = map_next(&owners->bindings, NULL);

	while (entry) {
		struct map_entry *next = map_next(&owners->bindings, entry);
		struct binding *binding = entry->value;

		if (binding->expires <= now)
			free(map_take(&owners->bindings, map_key(entry)));
		entry = next;
	}
}

bool owners_bind(struct owners *owners, const uint8_t agent[KEY_BYTES],
		 const uint8_t owner[KEY_BYTES], int64_t expires, int64_t now)
{
	struct pair pair;
	struct slice key = pair_key(&pair, agent, owner);
	struct binding *binding = map_get(&owners->bindings, key);

	if (binding) {
		if (expires > binding->expires)
			binding->expires = expires;
		return true;
	}
	if (owners->bindings.count >= OWNERS_MAX)
		drop_expired(owners, now);
	if (owners->bindings.count >= OWNERS_MAX)
		return false;
	binding = mem_alloc(sizeof(*binding));
	binding->expires = expires;
	(void)map_put(&owners->bindings, key, binding);
	return true;
}

bool owners_hold(struct owners *owners, const uint8_t agent[KEY_BYTES],
		 const uint8_t owner[KEY_BYTES], int64_t now)
{
	struct pair pair;
	struct binding *binding =
		map_get(&owners->bindings, pair_key(&pair, agent, owner));

	return binding && binding->expires > now;
}
