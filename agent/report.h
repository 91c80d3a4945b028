#ifndef AGENT_REPORT_H
#define AGENT_REPORT_H

#include <stdint.h>

#include "agent/channel.h"
#include "agent/sender.h"
#include "wire/base/buf.h"

/* Short ways to say what happens here into the feed. */

/* What belongs to @channel now: its session, and its turn if one runs. */
struct feed_context report_context(const struct channel *channel);
/* Emits one event of ours and wakes the sender. @payload: object text. */
void report_event(struct sender *sender, const struct feed_context *context,
		  const char *kind, struct slice payload);
/* A `note` of ours. @level: "info", "warn" or "error"; @text: plain UTF-8. */
void report_note(struct sender *sender, const struct feed_context *context,
		 const char *level, struct slice text);
/* The last word of a harness: harness_stopping, with what sender_leave() said. */
void report_stopping(struct sender *sender, const char *reason,
		     const struct sender_left *left);
/* Opens a payload: an empty buffer of enough room with "{" in it. */
void report_begin(struct buf *payload);
/* Closes it with "}", emits it, frees it. */
void report_end(struct sender *sender, const struct feed_context *context,
		const char *kind, struct buf *payload);
/* Appends a string member whose bytes may be no UTF-8 (argv, file names). */
void report_member(struct buf *out, struct slice key, struct slice bytes);
/* A random UUID (version 4). */
void report_uuid(char out[UUID_LEN + 1]);

#endif
