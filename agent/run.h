#ifndef AGENT_RUN_H
#define AGENT_RUN_H

#include "agent/watch.h"

/* What the watcher of `perch run` makes of a command's output: `output` events, line by
 * line, an unfinished line after OUTPUT_PARTIAL_MS; with --json-lines what its lines mean
 * (json_lines.h); and agent_exited at its end. */
extern const struct watch_mode run_mode;

/* Bytes a second of one stream that reach the feed, and at once. Our choice: both streams
 * at their limit leave half of what the feed carries to others, and what may wait at the
 * end leaves within RUN_DRAIN_UP_MS. */
#define RUN_PER_S 16384
#define RUN_BURST 131072
/* How long the exit waits for the rest of the feed, ms: while the relay takes what we
 * send, and when it does not. */
#define RUN_DRAIN_UP_MS 10000
#define RUN_DRAIN_DOWN_MS 2000

#endif
