#ifndef RELAY_STRIP_H
#define RELAY_STRIP_H

#include <stdbool.h>

#include "wire/base/buf.h"
#include "wire/base/slice.h"
#include "wire/nostr/event.h"

/* Appends an event's text without the members that are not NIP-01's: what a publisher
 * adds to an event is not signed, so it is not handed on. @json: an event that was parsed
 * before; values stay as they were sent. False when @out is full. */
bool event_strip(struct slice json, struct buf *out);
/* Appends the event anew, as one line: its seven members, strings escaped as NIP-01 does.
 * Never longer than what was parsed. False when @out is full. */
bool event_write(const struct event *event, struct buf *out);

#endif
