#ifndef OBSERVER_EXPORT_REPLAY_H
#define OBSERVER_EXPORT_REPLAY_H

#include <stdint.h>
#include <stdio.h>

#include "observer/archive_read.h"

/* Most bytes of what a replay holds: browsers read that much in seconds. Our choice. */
#define REPLAY_MAX (64u << 20)

struct replay_options {
	const char *path;     /* the archive's */
	const uint8_t *agent; /* NULL: all */
	struct slice channel; /* empty: all */
	int64_t from_ms, to_ms, now_ms;
	bool progress;    /* on stderr */
	size_t max_bytes; /* of what it holds; 0: REPLAY_MAX. Tests take less */
};

/* A file that opens as the page does, in any browser and without a network: rows,
 * timeline and report of that time, as they were at its end; nothing can be controlled.
 * ERR_TOO_LARGE: more than that; nothing was written then. */
bool replay_write(const struct replay_options *options, struct archive_reader *reader,
		  FILE *out, struct err *err);

#endif
