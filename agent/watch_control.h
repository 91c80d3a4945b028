#ifndef AGENT_WATCH_CONTROL_H
#define AGENT_WATCH_CONTROL_H

#include <stdint.h>

#include "agent/sender.h"
#include "wire/base/slice.h"

/* What an owner asks of a harness that only watches (proxy, run): feed_sync and
 * fetch_body are answered, all that would change something is `unsupported`. */
struct watch_control;

/* The whole event of @seq of this epoch, if it is kept; empty: it is not. */
typedef struct slice watch_body(void *ctx, uint64_t seq, struct feed_context *context);

/* @sender: borrowed. */
struct watch_control *watch_control_create(struct sender *sender, watch_body *body,
					   void *ctx);
void watch_control_destroy(struct watch_control *control); /* NULL is fine */
void watch_control_take(struct watch_control *control, const uint8_t event_id[32],
			int64_t created_at, struct slice plaintext);

#endif
