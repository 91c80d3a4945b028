#ifndef AGENT_SERVE_H
#define AGENT_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/outbox.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/frame/control.h"
#include "wire/frame/limits.h"

/* Who asks this harness for its frames: one open feed_sync for each observer. Pure.
 * Source: design §4, "feed_sync". */

/* An observer syncs every 60 s: one that missed two may be replaced by another. */
#define SERVE_OBSERVER_MS 150000
/* Longest requestId that is answered; ours have 32 characters. */
#define SERVE_REQUEST_ID_MAX 128

struct serve_observer {
	char id[9]; /* "": free */
	int64_t heard_ms;
	bool unanswered; /* waits for its feed_state */
	char request_id[SERVE_REQUEST_ID_MAX +
			1]; /* JSON string content as sent; "": none */
	struct frame_range wants[WANT_RANGES_MAX]; /* of this epoch */
	size_t want_count;
};

struct serve {
	struct serve_observer observers[OBSERVERS_MAX];
};

/* Opens @control (a feed_sync) in place of what this observer asked before. Ranges of
 * other epochs than @epoch are not here and are passed over. ERR_REFUSED when
 * OBSERVERS_MAX others are known. */
bool serve_open(struct serve *serve, const struct control *control, const char epoch[17],
		int64_t now_ms, struct err *err);
/* An observer that waits for its feed_state, or NULL. */
struct serve_observer *serve_unanswered(struct serve *serve);
/* Does anyone still want a frame that the outbox has? */
bool serve_is_wanted(struct serve *serve, const struct outbox *outbox);
/* The next frame to send again, newest range first, in order inside a range, and takes it
 * off all ranges that begin with it; NULL when nothing is wanted. */
struct outbox_frame *serve_next(struct serve *serve, const struct outbox *outbox);

#endif
