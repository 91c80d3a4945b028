#ifndef RELAY_SCAN_H
#define RELAY_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relay/connection.h"

/* Stored events for a REQ, or their number for a COUNT: brought by the reader in slices,
 * the next when the client has read most of the last.
 *
 * An event reaches a subscription once. Events get their seq at the commit and are handed
 * to subscribers in that order; a scan brings those up to the last that was handed out
 * when it began, and what is handed out from then on is live. It is held until EOSE. */

/* The next slice waits while more than this is unsent. Our choice: it keeps a socket
 * busy. */
#define SCAN_QUEUE_LOW (512 * 1024)
/* COUNTs of one connection that were not answered; our choice. */
#define SCAN_COUNTS_MAX 16

/**
 * scan_start - begin to bring what is stored for @sub
 * @room: what each filter may give
 * EOSE ends it, or CLOSED when the database failed. False when nothing stored can match:
 * nothing was begun.
 */
bool scan_start(struct connection *connection, struct subscription *sub,
		const int64_t *room);
/* Begins to count for @sub, which it takes. False, and @sub is still the caller's, when
 * too many counts wait. */
bool scan_count(struct connection *connection, struct subscription *sub);
enum scan_live {
	SCAN_NONE,   /* there is no scan: it goes out now */
	SCAN_HELD,   /* until EOSE, or the scan will find it */
	SCAN_BEHIND, /* the reader has too much unsent */
};
/* A live event of a stored kind matches @sub. */
enum scan_live scan_hold(struct subscription *sub, struct body *body);
/* The subscription ends: its scan does, too. True when the scan took @sub to destroy it,
 * because the reader is looking at it. */
bool scan_drop(struct subscription *sub);
/* The connection goes, or closes: its subscriptions are gone already, its counts go. */
void scan_forget(struct connection *connection);
/* Asks the reader for the next slice if there is one to bring and room for it. */
void scan_go_on(struct connection *connection);

#endif
