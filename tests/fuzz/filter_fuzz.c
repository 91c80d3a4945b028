/* Filters from anywhere, matched against an event that has something of everything. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>

#include "wire/nostr/filter.h"
#include "wire/nostr/message.h"

static void check_filter(struct slice text, struct arena *arena)
{
	static struct slice e[] = {SLICE_INIT("e"),
				   SLICE_INIT("00000000000000000000000000000000"
					      "00000000000000000000000000000000")};
	static struct slice t[] = {SLICE_INIT("t"), SLICE_INIT("a")};
	static struct slice bare[] = {SLICE_INIT("t")};
	struct tag tags[] = {{e, 2}, {bare, 1}, {t, 2}};
	const struct event event = {.kind = 1,
				    .created_at = 5,
				    .tags = tags,
				    .tag_count = sizeof(tags) / sizeof(tags[0])};
	struct filter filter;

	if (!filter_parse(text, arena, &filter, NULL))
		return;
	if (filter_match(&filter, &event)) {
		assert(!filter.has_since || filter.since <= 5);
		assert(!filter.has_until || filter.until >= 5);
		assert(!filter.has_kinds || filter.kind_count);
		assert(!filter.ids.present || filter.ids.count);
		assert(!filter.authors.present || filter.authors.count);
	}
	for (size_t i = 0; i < filter.tag_count; i++) {
		const struct filter_tag *tag = &filter.tags[i];

		assert(filter_tag(&filter, tag->letter) == tag);
		for (size_t j = 1; j < tag->count; j++)
			assert(slice_compare(tag->values[j - 1], tag->values[j]) <= 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct slice text = {(const char *)data, size};
	struct client_message message;
	struct slice sub_id;
	struct arena arena;

	arena_init(&arena, 4096);
	check_filter(text, &arena);
	if (client_message_parse(text, &arena, &message, &sub_id, NULL)) {
		assert(message.filter_count <= MESSAGE_FILTERS_MAX);
		for (size_t i = 0; i < message.filter_count; i++)
			check_filter(message.filters[i], &arena);
	}
	arena_finish(&arena);
	return 0;
}
