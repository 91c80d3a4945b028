#include "relay/window.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/nostr/message.h"

struct window_owner {
	uint8_t key[KEY_BYTES];
	struct window_entry *first, *last;
	size_t bytes;
	size_t count;
};

static struct slice key_slice(const uint8_t key[KEY_BYTES])
{
	return (struct slice){(const char *)key, KEY_BYTES};
}

static size_t entry_bytes(const struct window_entry *entry)
{
	return sizeof(*entry) + sizeof(*entry->body) + entry->body->len;
}

void window_init(struct window *window)
{
	memset(window, 0, sizeof(*window));
	map_init(&window->owners);
}

/* Removes one entry, and its owner with the last one. */
static void drop(struct window *window, struct window_entry *entry)
{
	struct window_owner *owner = entry->owner;

	if (entry->before)
		entry->before->after = entry->after;
	else
		owner->first = entry->after;
	if (entry->after)
		entry->after->before = entry->before;
	else
		owner->last = entry->before;
	if (entry->older)
		entry->older->newer = entry->newer;
	else
		window->oldest = entry->newer;
	if (entry->newer)
		entry->newer->older = entry->older;
	else
		window->newest = entry->older;
	owner->bytes -= entry_bytes(entry);
	owner->count--;
	window->bytes -= entry_bytes(entry);
	entry->body->kept = false;
	body_unref(entry->body);
	free(entry);
	if (!owner->first) {
		(void)map_take(&window->owners, key_slice(owner->key));
		free(owner);
	}
}

void window_finish(struct window *window)
{
	while (window->oldest)
		drop(window, window->oldest);
	map_finish(&window->owners);
}

static bool is_over(const struct window_entry *entry, int64_t now)
{
	return entry->created_at + RELAY_WINDOW_S < now;
}

void window_expire(struct window *window, int64_t now)
{
	struct map_entry *at = map_next(&window->owners, NULL);

	while (at) {
		struct window_owner *owner = at->value;
		struct window_entry *entry = owner->first;

		/* The owner goes with its last entry: both walks are a step ahead. */
		at = map_next(&window->owners, at);
		while (entry && is_over(entry, now)) {
			struct window_entry *after = entry->after;

			drop(window, entry);
			entry = after;
		}
	}
}

static struct window_owner *owner_find(const struct window *window,
				       const uint8_t key[KEY_BYTES])
{
	return map_get(&window->owners, key_slice(key));
}

static struct window_owner *owner_get(struct window *window, const uint8_t key[KEY_BYTES])
{
	struct window_owner *owner = owner_find(window, key);

	if (owner)
		return owner;
	owner = mem_alloc(sizeof(*owner));
	memcpy(owner->key, key, KEY_BYTES);
	(void)map_put(&window->owners, key_slice(key), owner);
	return owner;
}

/* Almost every frame is the newest of its owner: the walk begins at that end. */
static void link_by_time(struct window_owner *owner, struct window_entry *entry)
{
	struct window_entry *before = owner->last;

	while (before && before->created_at > entry->created_at)
		before = before->before;
	entry->before = before;
	entry->after = before ? before->after : owner->first;
	*(entry->before ? &entry->before->after : &owner->first) = entry;
	*(entry->after ? &entry->after->before : &owner->last) = entry;
}

void window_add(struct window *window, const uint8_t owner_key[KEY_BYTES],
		const struct event *event, struct body *body, int64_t now)
{
	struct window_owner *owner = owner_get(window, owner_key);
	struct window_entry *entry = mem_alloc(sizeof(*entry));

	entry->owner = owner;
	entry->created_at = event->created_at;
	memcpy(entry->id, event->id, sizeof(entry->id));
	entry->body = body_ref(body);
	body->kept = true;
	link_by_time(owner, entry);
	entry->older = window->newest;
	*(entry->older ? &entry->older->newer : &window->oldest) = entry;
	window->newest = entry;
	owner->bytes += entry_bytes(entry);
	owner->count++;
	window->bytes += entry_bytes(entry);
	/* One entry is far below either limit, so neither loop empties its list. */
	while (is_over(owner->first, now) && owner->count > 1)
		drop(window, owner->first);
	while (owner->bytes > RELAY_WINDOW_OWNER_MAX)
		drop(window, owner->first);
	while (window->bytes > RELAY_WINDOW_MAX)
		drop(window, window->oldest);
}

/* Of all entries that match, with what the choice below needs. */
struct match {
	const struct window_entry *entry;
	size_t order;     /* by arrival within one owner */
	uint32_t filters; /* bit n: filter n matches */
};
static_assert(MESSAGE_FILTERS_MAX <= 32, "one bit per filter");

static int oldest_first(const void *left, const void *right)
{
	const struct match *a = left;
	const struct match *b = right;

	if (a->entry->created_at != b->entry->created_at)
		return a->entry->created_at < b->entry->created_at ? -1 : 1;
	return a->order < b->order ? -1 : a->order > b->order;
}

static int newest_first(const void *left, const void *right)
{
	const struct match *a = left;
	const struct match *b = right;

	if (a->entry->created_at != b->entry->created_at)
		return a->entry->created_at > b->entry->created_at ? -1 : 1;
	return memcmp(a->entry->id, b->entry->id, sizeof(a->entry->id));
}

static uint32_t matching(const struct window_entry *entry,
			 const struct filter *const *filters, size_t filter_count,
			 struct arena *arena)
{
	struct event event;
	uint32_t bits = 0;
	struct err err;
	size_t i;

	arena_reset(arena);
	if (!event_parse(body_slice(entry->body), arena, &event, &err))
		return 0;
	for (i = 0; i < filter_count; i++)
		if (filter_match(filters[i], &event))
			bits |= UINT32_C(1) << i;
	return bits;
}

static bool any_limit(const struct filter *const *filters, size_t filter_count)
{
	size_t i;

	for (i = 0; i < filter_count; i++)
		if (filters[i]->has_limit)
			return true;
	return false;
}

/* Keeps a match if one of its filters has room left; takes the room of each that has. */
static bool take_room(int64_t *room, size_t filter_count, uint32_t filters)
{
	bool taken = false;
	size_t i;

	for (i = 0; i < filter_count; i++) {
		if (!(filters >> i & 1) || room[i] == 0)
			continue;
		room[i]--;
		taken = true;
	}
	return taken;
}

size_t window_select(struct window *window, const struct filter *const *filters,
		     size_t filter_count, const uint8_t *owners, size_t owner_count,
		     int64_t now, struct arena *arena, const struct window_entry ***out)
{
	bool limited = any_limit(filters, filter_count);
	int64_t room[MESSAGE_FILTERS_MAX];
	struct arena parsing;
	struct match *matches;
	size_t most = 0;
	size_t found = 0;
	size_t count = 0;
	size_t i;

	window_expire(window, now);
	for (i = 0; i < owner_count; i++) {
		struct window_owner *owner = owner_find(window, owners + i * KEY_BYTES);

		most += owner ? owner->count : 0;
	}
	if (most == 0)
		return 0;
	matches = arena_array(arena, most, sizeof(*matches));
	arena_init(&parsing, 4096);
	for (i = 0; i < owner_count; i++) {
		struct window_owner *owner = owner_find(window, owners + i * KEY_BYTES);
		const struct window_entry *entry;

		for (entry = owner ? owner->first : NULL; entry; entry = entry->after) {
			uint32_t bits = matching(entry, filters, filter_count, &parsing);

			if (!bits)
				continue;
			matches[found] = (struct match){entry, found, bits};
			found++;
		}
	}
	arena_finish(&parsing);
	qsort(matches, found, sizeof(*matches), limited ? newest_first : oldest_first);
	for (i = 0; i < filter_count; i++)
		room[i] = filters[i]->has_limit ? filters[i]->limit : INT64_MAX;
	*out = arena_array(arena, found, sizeof(const struct window_entry *));
	for (i = 0; i < found; i++)
		if (take_room(room, filter_count, matches[i].filters))
			(*out)[count++] = matches[i].entry;
	return count;
}
