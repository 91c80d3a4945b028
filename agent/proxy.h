#ifndef AGENT_PROXY_H
#define AGENT_PROXY_H

#include "agent/watch.h"

/* What the watcher of `perch proxy` makes of the lines between an editor and its agent:
 * each is mirrored in the channel of its session, a prompt and its answer are a turn, and
 * a permission request is shown until the editor answers it. It knows what belongs
 * together by the ids of requests, each direction's for itself (facts/acp.md §13). */
extern const struct watch_mode proxy_mode;

/* Requests whose answer is awaited, at a time; the oldest are forgotten. Our choice, far
 * above what an editor has open. */
#define PROXY_REQUESTS_MAX 1024

#endif
