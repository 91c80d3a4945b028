#ifndef WIRE_FRAME_OBSERVER_EVENT_H
#define WIRE_FRAME_OBSERVER_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/frame/limits.h"

/* One record of the feed, as NIP-AO calls it: ObserverEvent. For reading, all slices
 * point into the plaintext; strings are as sent (escapes kept) and ptr is NULL where the
 * member is null or absent. Key order on the wire is that of design §4. */
struct observer_event {
	uint64_t seq;
	int64_t monotonic_ms; /* -1: absent (a foreign feed) */
	struct slice timestamp;
	struct slice kind;
	int64_t agent_index; /* -1: null */
	struct slice channel_id;
	struct slice session_id;
	struct slice turn_id;
	struct slice started_at;
	struct slice authorization; /* object text */
	uint64_t merged, trimmed;   /* 0: not marked */
	bool redacted, repaired;
	struct slice payload; /* value text */
	struct slice text;    /* the whole object, as sent */
};

/**
 * observer_event_parse - read one event (not a frame's top level, see frame_parse)
 * Missing seq, timestamp, kind or payload is ERR_MALFORMED; unknown members are ignored.
 */
bool observer_event_parse(struct slice json, struct observer_event *out, struct err *err);

/* The header as it goes on the wire, `{"seq":…,…,"turnId":…[,"startedAt":…]`, without
 * authorization, marks, payload and closing brace. String members of @event are JSON
 * string content (already escaped). */
bool observer_event_write_header(struct buf *out, const struct observer_event *event);
/* Its two parts: seq to timestamp, and what follows. */
bool observer_event_write_stamp(struct buf *out, const struct observer_event *event);
bool observer_event_write_tail(struct buf *out, const struct observer_event *event);
/* A whole event: header, authorization, marks, payload, brace. */
bool observer_event_write(struct buf *out, const struct observer_event *event);

/* What a frame's plaintext says at its top level. */
struct frame {
	bool has_epoch;  /* else: a foreign feed */
	char epoch[17];  /* 16 hex digits, NUL-terminated; epochs compare as strings */
	uint64_t number; /* from 1 */
	bool replayed;
	bool batch; /* kind "batch" with a non-empty events array */
	size_t event_count;
	struct observer_event *events; /* in order; a single event stands alone */
};

struct arena;
/**
 * frame_parse - read a telemetry plaintext
 * A batch whose payload has no events array, or an empty one, comes out as one event of
 * kind "batch". One broken inner event fails the frame, as it does at other peers.
 */
bool frame_parse(struct slice plaintext, struct arena *arena, struct frame *out,
		 struct err *err);
/* Appends ,"epoch":"…","frame":N[,"replayed":true]} in place of the closing brace that
 * @out ends with. */
bool frame_write_suffix(struct buf *out, const char epoch[17], uint64_t number,
			bool replayed);

#endif
