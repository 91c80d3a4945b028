#ifndef AGENT_EMIT_EVENT_H
#define AGENT_EMIT_EVENT_H

#include <stdbool.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/map.h"
#include "wire/base/slice.h"

/* What `perch emit` sends to a harness: {"kind":…,"payload":{…}}, one message each. Pure.
 * The kinds that anyone may add: note, output, span_start, span_end and x-*. */

/* Most bytes of a message: with a header it fits a frame whole. Our choice. */
#define EMIT_MESSAGE_MAX 32768
#define EMIT_KIND_MAX 64 /* bytes */
/* Bytes of a span's id; our choice. */
#define EMIT_SPAN_ID_MAX 128

struct emit_event {
	struct slice kind;  /* plain text; in the message */
	struct buf payload; /* object text, with "source":"emit" */
};

/* Spans that have begun: whoever ends one need not say its name again. */
struct emit_spans {
	struct map names; /* id → its name, a struct buf */
};
/* Spans that are remembered at a time; our choice. */
#define EMIT_SPANS_MAX 1024

void emit_spans_init(struct emit_spans *spans);
void emit_spans_finish(struct emit_spans *spans);

/**
 * emit_event_read - check a message and make a payload of it
 * @message: at most EMIT_MESSAGE_MAX bytes
 * @out: to be freed by emit_event_finish() whatever comes back
 *
 * ERR_MALFORMED says what is missing: note and output want text; span_start id and name,
 * span_end id (its name is that of the span_start, else the id).
 */
bool emit_event_read(struct emit_spans *spans, struct slice message,
		     struct emit_event *out, struct err *err);
void emit_event_finish(struct emit_event *event);

/* Is it a kind that may be emitted? */
bool emit_kind_valid(struct slice kind);

#endif
