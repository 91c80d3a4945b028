#ifndef OBSERVER_HTTP_HUB_H
#define OBSERVER_HTTP_HUB_H

#include <stdbool.h>
#include <stdint.h>

#include "observer/http/http.h"
#include "observer/model.h"
#include "wire/host/loop.h"

/* The stream: what changed in the model, as one message every HUB_TICK_MS for all pages,
 * and a ring of the last ones for those that come back. Nothing is encoded when no page
 * listens or has listened lately. */
#define HUB_TICK_MS 100
/* The clocks of pages go in such steps (Unix ms) where nobody counts along. What only
 * says that agents live waits for the next one, and comes so much before it. */
#define HUB_STEP_MS 5000
#define HUB_LEAD_MS 250
#define HUB_RING_MAX (8u << 20)
#define HUB_IDLE_MS 15000   /* an empty line keeps a quiet stream alive */
#define HUB_LINGER_MS 30000 /* the ring goes on for a page that reloads */
#define HUB_PAGES_MAX 32

struct hub;

struct hub_options {
	struct loop *loop; /* borrowed, like all here */
	struct model *model;
	/* Appends `"health":{…}` and `"owner":{…}`. Of health a hash of what is no pulse.
	 */
	uint64_t (*write_health)(void *ctx, struct buf *out);
	void (*write_owner)(void *ctx, struct buf *out);
	void *ctx;
};

struct hub *hub_create(const struct hub_options *options);
/* Ends its timers: before the loop is destroyed. */
void hub_stop(struct hub *hub);
/* After the loop is gone, and every page with it. NULL is fine. */
void hub_destroy(struct hub *hub);
/* The model or the health may have changed: what is no more than a pulse waits for the
 * pages' next step. */
void hub_touch(struct hub *hub);
/* Turns an exchange into a page of the stream. @cursor may be empty. False when there are
 * too many; the caller answers. */
bool hub_add(struct hub *hub, struct exchange *exchange, struct slice cursor);
struct hub_figures {
	uint64_t pages[HTTP_WAYS]; /* now, by what they came */
	uint64_t messages, message_bytes, snapshots;
	uint64_t ring_bytes; /* now */
};
/* What it did since it was made. */
void hub_figures(const struct hub *hub, struct hub_figures *out);
/* Appends some of them: `"pages":…,"messages":…,"messageBytes":…,"ringBytes":…,
 * "snapshots":…`. */
void hub_write_figures(const struct hub *hub, struct buf *out);
/* Appends one snapshot message (without LF). */
void hub_write_snapshot(struct hub *hub, struct buf *out);

#endif
