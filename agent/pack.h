#ifndef AGENT_PACK_H
#define AGENT_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/slice.h"
#include "wire/frame/limits.h"

/* Building a frame's plaintext by copying. All sizes are arithmetic on what was
 * remembered when the event was written. Source: design §4. */

/* One event as on the wire, and where in it the parts of its header are. */
struct pack_item {
	struct slice text;   /* borrowed */
	uint32_t kind_at;    /* offset of the kind's opening quote */
	uint32_t kind_len;   /* with both quotes */
	uint32_t header_len; /* from { to the end of turnId or startedAt */
};

/* The shortest event there is has well over 128 bytes. */
#define PACK_EVENT_MIN 128
#define PACK_ITEMS_MAX (FRAME_PACK_MAX / PACK_EVENT_MIN + 1)

/* Bytes of the frame of @count events whose texts together have @inner_bytes and of which
 * @last is the last: itself if it is alone, else a batch. */
size_t pack_bytes(const struct pack_item *last, size_t count, size_t inner_bytes);
/* Appends that frame, without the suffix. False when @out is full. */
bool pack_write(const struct pack_item *items, size_t count, struct buf *out);

#endif
