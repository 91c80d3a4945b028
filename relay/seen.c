#include "relay/seen.h"

#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"

static struct slice id_key(const uint8_t id[32])
{
	return (struct slice){(const char *)id, 32};
}

void seen_init(struct seen *seen)
{
	map_init(&seen->ids);
	seen->oldest = NULL;
	seen->newest = NULL;
}

static void drop_oldest(struct seen *seen)
{
	struct seen_entry *entry = seen->oldest;

	(void)map_take(&seen->ids, id_key(entry->id));
	seen->oldest = entry->newer;
	if (!seen->oldest)
		seen->newest = NULL;
	free(entry);
}

void seen_finish(struct seen *seen)
{
	while (seen->oldest)
		drop_oldest(seen);
	map_finish(&seen->ids);
}

struct seen_entry *seen_find(struct seen *seen, const uint8_t id[32])
{
	return map_get(&seen->ids, id_key(id));
}

void seen_add(struct seen *seen, const uint8_t id[32], int64_t now)
{
	struct seen_entry *entry = mem_alloc(sizeof(*entry));

	while (seen->oldest &&
	       (seen->oldest->at + SEEN_KEEP_S < now || seen->ids.count >= SEEN_MAX))
		drop_oldest(seen);
	entry->at = now;
	memcpy(entry->id, id, sizeof(entry->id));
	if (seen->newest)
		seen->newest->newer = entry;
	else
		seen->oldest = entry;
	seen->newest = entry;
	(void)map_put(&seen->ids, id_key(id), entry);
}

void seen_reach(struct seen *seen, const uint8_t id[32])
{
	struct seen_entry *entry = seen_find(seen, id);

	if (entry)
		entry->reached = true;
}
