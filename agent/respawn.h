#ifndef AGENT_RESPAWN_H
#define AGENT_RESPAWN_H

#include <stdbool.h>
#include <stdint.h>

/* When a crashed agent starts again: after 1 s doubling to 30 s; three crashes in 60 s
 * open the circuit for 300 s, then one start is tried, and one more crash opens it again
 * (design §6). Pure; times in ms of any monotonic clock. */
#define RESPAWN_FIRST_MS 1000
#define RESPAWN_MAX_MS 30000
#define RESPAWN_WINDOW_MS 60000
#define RESPAWN_CRASHES 3
#define RESPAWN_COOLDOWN_MS 300000

struct respawn {
	int64_t crashes[RESPAWN_CRASHES]; /* times of the last ones, newest first */
	unsigned count;                   /* of them that are set */
	unsigned attempt;                 /* crashes in a row, each within the window */
	bool tripped; /* the circuit was opened and not yet recovered */
};

/* The agent is gone by itself. Returns how long to wait; *@opened_out: the circuit is
 * open. */
int64_t respawn_crashed(struct respawn *respawn, int64_t now_ms, bool *opened_out);
/* It could not even be started: opens the circuit at once. Returns the same. */
int64_t respawn_failed(struct respawn *respawn, int64_t now_ms);
/* The agent answered initialize. True if that closed an open circuit. */
bool respawn_recovered(struct respawn *respawn);

#endif
