#ifndef AGENT_SERVE_H
#define AGENT_SERVE_H

#include <stdbool.h>
#include <stdint.h>

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
	struct control_want wants[WANT_RANGES_MAX];
	size_t want_count;
};

struct serve {
	struct serve_observer observers[OBSERVERS_MAX];
};

/* What can be served: the smallest number from @from on that is here of @epoch; false:
 * there is none. */
struct serve_source {
	bool (*next)(void *ctx, const char *epoch, uint64_t from, uint64_t *number);
	void *ctx;
};

/* Opens @control (a feed_sync) in place of what this observer asked before. ERR_REFUSED
 * when OBSERVERS_MAX others are known. */
bool serve_open(struct serve *serve, const struct control *control, int64_t now_ms,
		struct err *err);
/* An observer that waits for its feed_state, or NULL. */
struct serve_observer *serve_unanswered(struct serve *serve);
/* The next frame to send again: newest range first (by epoch, then by where it starts),
 * in order inside a range. It is taken off every range of every observer. False when
 * nothing that is here is wanted; ranges of which nothing is here are let go. */
bool serve_next(struct serve *serve, const struct serve_source *source, char epoch[17],
		uint64_t *number);
/* Wants it once more: the relay did not take it. For one observer that has room. */
void serve_again(struct serve *serve, const char *epoch, uint64_t number);

#endif
