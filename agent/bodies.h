#ifndef AGENT_BODIES_H
#define AGENT_BODIES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/feed.h"
#include "wire/base/buf.h"
#include "wire/base/slice.h"

/* Whole events that were asked for by fetch_body, cut into body_part payloads. Pure.
 * Source: design §4, payloads.md. */
struct bodies;

/* Most bodies that wait, each at most AGENT_MIRROR_MAX and a header: as many as
 * permission requests may be pending. */
#define BODIES_MAX 16
/* Bytes of a part, as escaped in a payload: with any header it fits what a relay with a
 * limit of 64 KiB takes, and some below that. */
#define BODY_PART_BYTES 28000

struct bodies *bodies_create(void);
void bodies_destroy(struct bodies *bodies);
/* Takes a copy of @event and of @context. One that waits already is not added again.
 * False when BODIES_MAX wait. */
bool bodies_add(struct bodies *bodies, const struct feed_context *context,
		const char epoch[17], uint64_t seq, struct slice event);
bool bodies_is_empty(const struct bodies *bodies);
/* Appends the payload of the next part to @out; @context: of its body, valid until the
 * next call. False when none waits. */
bool bodies_next(struct bodies *bodies, struct feed_context *context, struct buf *out);

#endif
