#ifndef AGENT_CGROUP_H
#define AGENT_CGROUP_H

/* A control group of its own for one agent and all that it starts, so that one write ends
 * them all at once: whoever makes a session of its own, loses its parent and empties its
 * environment is in it still. Only where we may make one: version 2, below our own group,
 * which was given to us (its folder is ours; for root, the root of what it sees, or
 * marked as delegated). Elsewhere there is none, and proctree.h has to do. */
struct cgroup;

struct cgroup *cgroup_create(void); /* NULL: not here */
/* Where a process writes "0" to join; -1 for NULL. Between fork and exec. */
int cgroup_join_fd(const struct cgroup *group);
/* SIGKILL to everything in it. NULL is fine. */
void cgroup_kill(const struct cgroup *group);
/* Kills, and removes the group; waits some milliseconds for what is dying. What does not
 * die in time leaves an empty folder, which a later cgroup_create() removes. */
void cgroup_destroy(struct cgroup *group);

#endif
