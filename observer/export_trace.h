#ifndef OBSERVER_EXPORT_TRACE_H
#define OBSERVER_EXPORT_TRACE_H

#include <stdint.h>
#include <stdio.h>

#include "observer/archive_read.h"

struct trace_options {
	const char *path;     /* the archive's */
	const uint8_t *agent; /* NULL: all */
	struct slice channel; /* empty: all */
	int64_t from_ms, to_ms, now_ms;
	bool progress; /* lanes, on stderr */
};

/* Where the time went, as Chrome's trace JSON, which Perfetto opens: a process an agent,
 * a thread a lane, with further ones for what went on side by side; turns, tool calls and
 * waits. Some segments in memory at a time. */
bool trace_write(const struct trace_options *options, struct archive_reader *reader,
		 FILE *out, struct err *err);

#endif
