#ifndef OBSERVER_EXPORT_SPANS_H
#define OBSERVER_EXPORT_SPANS_H

#include "observer/archive_db.h"
#include "observer/spans.h"

/* The spans of a lane as the archive has them, a slice at a time, the newest first. What
 * goes on does so as the page tells it (spans.h): the exports follow one rule with it. */
struct export_spans {
	struct archive_db *db;
	const uint8_t *agent;
	struct slice channel;
	struct archive_life life; /* the agent's */
	int64_t from_ms;          /* what ended before may be left out */
	struct pos before;
	struct buf newest; /* tag of the last segment: it may reach into the next slice */
	bool more, begun;
};

/* @agent and @channel live as long. */
void export_spans_begin(struct export_spans *walk, struct archive_db *db,
			const uint8_t *agent, struct slice channel, int64_t from_ms,
			int64_t now_ms);
/* Puts the next slice into @spans; walk->more says whether one follows. */
bool export_spans_next(struct export_spans *walk, struct spans *spans, struct err *err);
void export_spans_end(struct export_spans *walk);

#endif
