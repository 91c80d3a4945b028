#ifndef OBSERVER_CONTROLS_H
#define OBSERVER_CONTROLS_H

#include <stdbool.h>
#include <stdint.h>

#include "observer/ingest.h"
#include "observer/model.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/nostr/crypto.h"

/* What the owner asks of harnesses: seals controls, sends them again every two seconds
 * until they are answered or expire, keeps feeds in step (feed_sync), puts bodies
 * together. Time comes in; what to publish goes out by callback. */
#define CONTROLS_OPEN_MAX 128
#define CONTROLS_RESEND_MS 2000
#define CONTROLS_FOREIGN_MS \
	10000 /* a feed without epochs is asked once and waited for \
	       */
#define CONTROLS_SYNC_MS 60000
#define CONTROLS_BODY_MAX (8u << 20)
#define CONTROLS_BODIES_MAX 8   /* put together at a time */
#define CONTROLS_PARTS_MAX 1024 /* of one body */

struct controls;

struct controls_options {
	struct crypto *crypto; /* borrowed, like all here */
	const struct keypair *owner;
	struct ingest *ingest;
	struct model *model;
	/* Sends one signed event; false when the link is not ready. */
	bool (*publish)(void *ctx, struct slice event);
	/* A fetched event, whole. */
	void (*on_body)(void *ctx, const uint8_t *agent, const char *epoch, uint64_t seq,
			struct slice text);
	void (*random)(void *out, size_t len);
	void *ctx;
};

#define CONTROLS_OUTCOMES 20 /* that harnesses say, and one for any other */

/* What was done since it was made. */
struct controls_figures {
	uint64_t posted;  /* sent for the owner */
	uint64_t refused; /* not sent: malformed, or not possible now */
	uint64_t expired; /* without an answer */
	uint64_t answered[CONTROLS_OUTCOMES];
	uint64_t asks;  /* feed_syncs that asked for frames */
	uint64_t asked; /* frames, each time that they were asked for */
};

struct controls *controls_create(const struct controls_options *options);
void controls_destroy(struct controls *controls);

/**
 * controls_post - what a page or a command asks, as the local API's JSON
 * @request_id_out: 33 bytes, NUL-terminated
 * ERR_MALFORMED, ERR_NOT_FOUND (agent or card) or ERR_REFUSED (a card that is over, not
 * actionable, or not whole yet), in one sentence.
 */
bool controls_post(struct controls *controls, struct slice json, int64_t now_ms,
		   char request_id_out[33], struct err *err);
/* The relay's OK for one of our events. True if that was something the owner asked. */
bool controls_on_ok(struct controls *controls, const uint8_t id[32], bool accepted,
		    struct slice text, int64_t now_ms);
/* An event of an agent's feed: answers, feed_state, body_part. @live: not an old answer.
 */
void controls_on_event(struct controls *controls, const uint8_t *agent,
		       const struct observer_event *event, int64_t now_ms);
/* The link is up: asks every agent for its state. */
void controls_on_ready(struct controls *controls, int64_t now_ms);
const struct controls_figures *controls_figures(const struct controls *controls);
/* What answered[@outcome] counts: "applied"; the last is "other". */
const char *controls_outcome_name(size_t outcome);
/* Call about once a second. */
void controls_tick(struct controls *controls, int64_t now_ms);

#endif
