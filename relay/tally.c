#include "relay/tally.h"

#include <assert.h>
#include <stdlib.h>

#include "wire/base/mem.h"

void tally_init(struct tally *tally)
{
	map_init(&tally->counts);
}

void tally_finish(struct tally *tally)
{
	struct map_entry *entry = NULL;

	while ((entry = map_next(&tally->counts, entry)))
		free(entry->value);
	map_finish(&tally->counts);
}

uint32_t tally_of(const struct tally *tally, struct slice key)
{
	const uint32_t *count = map_get(&tally->counts, key);

	return count ? *count : 0;
}

void tally_add(struct tally *tally, struct slice key)
{
	uint32_t *count = map_get(&tally->counts, key);

	if (!count) {
		count = mem_alloc(sizeof(*count));
		(void)map_put(&tally->counts, key, count);
	}
	++*count;
}

void tally_remove(struct tally *tally, struct slice key)
{
	uint32_t *count = map_get(&tally->counts, key);

	assert(count && *count > 0);
	if (--*count == 0)
		free(map_take(&tally->counts, key));
}
