#ifndef RELAY_STORE_SCAN_H
#define RELAY_STORE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relay/body.h"
#include "relay/route.h"
#include "relay/store_put.h"
#include "wire/base/err.h"
#include "wire/nostr/message.h"

struct sqlite3;

/* How events get out of the store: what matches a subscription's filters, newest first,
 * in slices, so that no question keeps the others waiting and none holds much memory.
 * Between slices there is only the place where the last one ended. An event is read by
 * the index of one condition and then compared by filter_match(), as live ones are. */

/* One slice ends at any of these; our choice. */
#define SCAN_SLICE_EVENTS 128
#define SCAN_SLICE_BYTES (256 * 1024) /* of their texts; one event may pass it */
#define SCAN_SLICE_LOOKS 2000         /* events compared */
#define SCAN_SLICE_MS 10              /* checked after each of them */
/* Most index ranges in one question (one author, one kind, one tag value is one): a
 * filter that would need more is answered by a broader index. */
#define SCAN_RANGES_MAX 8192

/* One REQ's or COUNT's way through the store. */
struct store_scan {
	const struct subscription *sub; /* borrowed: its filters and gates */
	bool is_count;                  /* count what matches, bring no texts */
	int64_t bound;                  /* no event of a larger seq */
	int64_t now;                    /* Unix seconds: what has expired is not there */
	/* What each filter may still give. */
	int64_t room[MESSAGE_FILTERS_MAX];
	/* The rest is the scan's; zeroed at first. */
	bool begun, ended;
	uint8_t place[RANK_BYTES]; /* of the last event that was compared */
	uint64_t count;            /* matches so far */
	/* What the last slice found, the caller's references. */
	struct body *bodies[SCAN_SLICE_EVENTS];
	size_t body_count;
};

/* Could this filter match anything in a store? */
bool filter_takes_stored(const struct filter *filter);

struct store_scanner;
/* @db: borrowed; the thread that has it calls store_scan_slice(). */
struct store_scanner *store_scanner_create(struct sqlite3 *db, struct err *err);
/* NULL is fine. */
void store_scanner_destroy(struct store_scanner *scanner);
/* Goes on with @scan, inside a transaction of the caller's: fills bodies, sets ended at
 * the end. False when the database failed. */
bool store_scan_slice(struct store_scanner *scanner, struct store_scan *scan,
		      struct err *err);

#endif
