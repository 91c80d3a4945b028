#ifndef WIRE_FRAME_CONTROL_H
#define WIRE_FRAME_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/arena.h"
#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/frame/limits.h"

/* What an owner asks of a harness: the plaintext of a frame of direction "control". */
enum control_type {
	CONTROL_CANCEL_TURN,
	CONTROL_SWITCH_MODEL,
	CONTROL_PERMISSION_DECISION,
	CONTROL_PROMPT,
	CONTROL_RELEASE_QUEUE,
	CONTROL_SET_MODE,
	CONTROL_FEED_SYNC,
	CONTROL_FETCH_BODY,
	CONTROL_UNKNOWN, /* answered "unsupported" when it carries a requestId, else
			    ignored */
};

struct frame_range {
	uint64_t first, last; /* inclusive */
};

struct control_want {
	char epoch[17];
	struct frame_range range;
};

/* Slices are JSON string content as sent (escapes kept); ptr NULL: absent. */
struct control {
	enum control_type type;
	struct slice type_name;
	struct slice request_id;
	bool has_epoch;
	char epoch[17];  /* also fetch_body's */
	int64_t expires; /* Unix seconds; 0: absent */
	struct slice channel_id;
	struct slice nonce;         /* permission_decision: requestNonce */
	struct slice option_id;     /* permission_decision */
	struct slice model_id;      /* switch_model */
	struct slice mode_id;       /* set_mode */
	struct slice content;       /* prompt: array text of ACP content blocks */
	char observer[9];           /* feed_sync: 8 hex digits, else "" */
	struct control_want *wants; /* feed_sync; in @arena */
	size_t want_count;          /* at most WANT_RANGES_MAX */
	uint64_t seq;               /* fetch_body */
};

/* Reads a control. On ERR_MALFORMED @out still has type, type_name, request_id and
 * channel_id where they could be read, so that the refusal can be answered. */
bool control_parse(struct slice plaintext, struct arena *arena, struct control *out,
		   struct err *err);
/* Writes what control_parse reads. */
bool control_write(struct buf *out, const struct control *control);
/* "cancel_turn" … ; for CONTROL_UNKNOWN "unknown". */
struct slice control_type_name(enum control_type type);

#endif
