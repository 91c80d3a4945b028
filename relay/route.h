#ifndef RELAY_ROUTE_H
#define RELAY_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relay/body.h"
#include "wire/base/arena.h"
#include "wire/base/map.h"
#include "wire/nostr/event.h"
#include "wire/nostr/filter.h"

/* Messages wrapped for one reader (NIP-59), stored and ephemeral. */
#define GIFT_KIND 1059
#define GIFT_EPHEMERAL_KIND 21059

/* One REQ of one connection. Made by subscription_create(); the links are the route's. */
struct subscription {
	void *reader;       /* whoever is told of a match; the maker's */
	struct scan *scan;  /* its way through the store, until EOSE; the maker's */
	struct arena arena; /* holds id, filters, frame_filters, keys, links */
	struct slice id;
	struct body *head; /* id as a JSON string, for the queue */
	struct filter *filters;
	size_t filter_count;
	size_t bytes; /* of memory that its filters take, about */
	/* Those that may match frames: every #p is one of the reader's own keys. */
	const struct filter **frame_filters;
	size_t frame_filter_count;
	uint8_t *keys; /* all #p of frame_filters, each once, one behind the other */
	size_t key_count;
	struct route_link *links; /* one per list that it is in */
	size_t link_count;
	uint64_t round; /* number of the last event it was looked at for */
};

/**
 * subscription_create - parse the filters of a REQ once
 * @keys: those the reader has authenticated, one behind the other
 *
 * ERR_REFUSED with @gated_out true: a filter asks for gated kinds alone and not only for
 * those sent to the reader's own keys. Other errors are filter_parse()'s.
 * Ends with subscription_destroy(); not in any route yet.
 */
struct subscription *subscription_create(struct slice id, const struct slice *filters,
					 size_t filter_count, const uint8_t *keys,
					 size_t key_count, bool *gated_out,
					 struct err *err);
/* The one gate, for live events, scans and counts: does filter @i match, and may its
 * reader have the event? Reads only what never changes, so any thread may ask. */
bool subscription_takes(const struct subscription *sub, size_t i,
			const struct event *event);
/* NULL is fine. Take it out of its route first. */
void subscription_destroy(struct subscription *sub);

/* All live subscriptions, so that an event costs what its candidates cost. Each filter is
 * under the values of one of its conditions: whichever of ids, authors and tags has the
 * fewest, else its kinds, else the list of those without any. What may match frames is
 * under its keys besides: a frame looks there and nowhere else. */
struct route {
	struct map lists; /* condition and value -> list of links */
	size_t count;     /* subscriptions */
	uint64_t round;   /* events routed so far */
	uint64_t looked;  /* subscriptions that they were compared with */
};

void route_init(struct route *route);
/* The subscriptions must have been removed. */
void route_finish(struct route *route);
void route_add(struct route *route, struct subscription *sub);
void route_remove(struct route *route, struct subscription *sub);
/* Calls @on_match once for each subscription that @event matches. It must not add or
 * remove any. Events of gated kinds are found by their p. */
void route_event(struct route *route, const struct event *event,
		 void (*on_match)(void *ctx, struct subscription *sub), void *ctx);

#endif
