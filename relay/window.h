#ifndef RELAY_WINDOW_H
#define RELAY_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#include "relay/body.h"
#include "wire/base/arena.h"
#include "wire/base/map.h"
#include "wire/nostr/event.h"
#include "wire/nostr/filter.h"

/* The telemetry frames of the last RELAY_WINDOW_S seconds by created_at, so that an
 * observer that comes back misses nothing: in memory only, RELAY_WINDOW_OWNER_MAX bytes
 * per owner and RELAY_WINDOW_MAX in all, oldest dropped first. Controls are never in it.
 */
struct window {
	struct map owners;
	struct window_entry *oldest, *newest; /* of all owners, by arrival */
	size_t bytes;
};

/* One frame. Links are the window's. */
struct window_entry {
	struct window_owner *owner;
	/* Of one owner, by created_at, then arrival. */
	struct window_entry *before, *after;
	struct window_entry *older, *newer; /* of all, by arrival */
	int64_t created_at;
	uint8_t id[32];
	struct body *body; /* the event's text */
};

void window_init(struct window *window);
void window_finish(struct window *window);
/* Keeps a verified frame for @owner; takes a reference to @body, its text. */
void window_add(struct window *window, const uint8_t owner[KEY_BYTES],
		const struct event *event, struct body *body, int64_t now);
/* Frees what is older than RELAY_WINDOW_S at @now (Unix seconds). */
void window_expire(struct window *window, int64_t now);
/**
 * window_select - what a new subscription gets before EOSE
 * @filters: those that may match frames
 * @owners: the keys they ask for, each once, one behind the other
 * @out: borrowed entries, allocated in @arena
 *
 * Oldest first, in the order of arrival within a second, as an observer wants them. If
 * any filter has a limit, newest first with ties broken by the lowest id, each filter
 * giving at most its newest `limit` (NIP-01). Returns how many.
 */
size_t window_select(struct window *window, const struct filter *const *filters,
		     size_t filter_count, const uint8_t *owners, size_t owner_count,
		     int64_t now, struct arena *arena, const struct window_entry ***out);

#endif
