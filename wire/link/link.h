#ifndef WIRE_LINK_LINK_H
#define WIRE_LINK_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/host/loop.h"
#include "wire/nostr/crypto.h"
#include "wire/nostr/message.h"

/* One relay connection as a client: resolves the name off the loop, connects (ws, wss
 * with verification), reads NIP-11 (limits, Date), answers the NIP-42 challenge, keeps
 * its subscriptions, publishes, pings every 30 s (two missed: gone), and connects again
 * with jittered back-off (0.5 s doubling to 30 s) for ever. Nothing is queued here across
 * a reconnect but the subscriptions: what to send again is the caller's business. */

enum link_state {
	LINK_DOWN, /* waiting to connect again; see reason and retry_ms */
	LINK_CONNECTING,
	LINK_READY, /* authenticated (or the relay asked for none) and subscribed */
};

/* What NIP-11 said; all 0 when it said nothing. */
struct link_info {
	bool known;
	uint32_t max_message_bytes;
	uint32_t max_content_bytes;
	uint32_t backfill_per_second; /* perch.backfill_per_second */
	bool has_clock;               /* it told its time, so that the next is known */
	int64_t clock_offset_ms;      /* relay's Date − ours at receipt (±1 s) */
};

struct link_events {
	/* State changed. @reason: one lower-case line, "" when ready. */
	void (*on_state)(void *ctx, enum link_state state, const char *reason,
			 uint64_t retry_ms);
	/* An EVENT of a subscription; slices live until the callback returns. */
	void (*on_event)(void *ctx, struct slice sub_id, struct slice event);
	void (*on_ok)(void *ctx, const uint8_t id[32], bool accepted, struct slice text);
	void (*on_eose)(void *ctx, struct slice sub_id);
	/* The relay ended a subscription; the link asks again at the next connect only,
	 * or, without this call, when "auth-required:" was the reason and it has
	 * authenticated. */
	void (*on_closed)(void *ctx, struct slice sub_id, struct slice text);
	/* Bytes may be sent again after link_publish() refused. May be NULL. */
	void (*on_writable)(void *ctx);
};

#define LINK_DEADLINE_MS 10000 /* most time from resolving to ready; our choice */
#define LINK_QUEUE_MAX \
	(1u << 20) /* bytes waiting to be sent before publish is refused \
		    */

struct link;

struct link_options {
	const char *url;                  /* ws://host[:port][/path] or wss:// */
	const struct keypair *keypair;    /* borrowed; answers AUTH */
	struct slice auth_tag;            /* NIP-OA tag JSON, or empty; copied */
	const struct link_events *events; /* static */
	void *ctx;
	uint32_t deadline_ms; /* from resolving to ready; 0: LINK_DEADLINE_MS */
};

/* Checks the URL and starts connecting on the loop; no callback before it returns. Inside
 * any callback every function here may be called, link_destroy() too. */
struct link *link_create(struct loop *loop, const struct link_options *options,
			 struct err *err);
/* Closes without further callbacks. */
void link_destroy(struct link *link);
enum link_state link_state(const struct link *link);
const struct link_info *link_info(const struct link *link);
/* The relay's time as well as we know it, Unix ms: from its last Date on by a clock that
 * nobody sets, so that ours may jump; ours where it sent none. */
int64_t link_unix_ms(const struct link *link);
/* Round trip of the last ping, ms; -1 before the first. */
int64_t link_rtt_ms(const struct link *link);

/* Adds or replaces a subscription (kept over reconnects). @filter: one filter object; the
 * text "$now-300" in it is replaced at every connect by Unix seconds now − 300. */
void link_subscribe(struct link *link, struct slice sub_id, struct slice filter);
void link_unsubscribe(struct link *link, struct slice sub_id);
/* Sends ["EVENT",@event] now: copies once, into the masking buffer. False when not ready
 * or when more than 1 MiB wait to be sent (on_writable says when to try again). */
bool link_publish(struct link *link, struct slice event);
/* Drops the connection and connects again after the back-off (the caller saw no OK for
 * too long). Calls on_state() before it returns; does nothing while down. */
void link_reset(struct link *link, const char *reason);

#endif
