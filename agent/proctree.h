#ifndef AGENT_PROCTREE_H
#define AGENT_PROCTREE_H

#include <stddef.h>
#include <sys/types.h>

/* Processes below a process, found by parent in /proc: a group kill misses those that
 * made a session of their own. We are their subreaper: what loses its parent becomes our
 * child, so nobody escapes the walk by a double fork either. */

/**
 * proctree_kill - SIGKILL to everything below an agent
 * @root: the agent (its own process is killed too); 0: none
 * @mark: an environment entry ("NAME=VALUE") that only @root was given, and so only its
 * descendants have
 * @spare, @spare_count: our other children; neither they nor what is below them is
 * touched
 * An orphan that became ours is @root's by its session or by @mark; while there are no
 * others, all are. Walks again until nothing new is found: a process may fork while it is
 * being walked.
 */
void proctree_kill(pid_t root, const char *mark, const pid_t *spare, size_t spare_count);
/* Reaps dead children of ours but @spare: orphans that became ours. */
void proctree_reap(const pid_t *spare, size_t spare_count);

#endif
