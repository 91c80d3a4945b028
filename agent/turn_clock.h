#ifndef AGENT_TURN_CLOCK_H
#define AGENT_TURN_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* When a turn is looked at again, and what is due then (design §6, Turns). Pure; times in
 * ms of any monotonic clock. */
#define TURN_LIVENESS_MS 10000
/* A cancelled turn that has not ended by then never will: the agent is replaced. Real
 * agents took 0.02 to 0.5 s (facts/acp.md §8). */
#define TURN_CANCEL_GRACE_MS 5000
/* While a tool runs or a permission waits, silence means less. */
#define TURN_BUSY_FACTOR 4
/* So long without a frame the agent is said to be silent, or half of what would end the
 * turn, if that is less: models think for long without a word. Our choice. */
#define TURN_SILENT_MS 60000

enum turn_due {
	TURN_NOTHING_DUE,
	TURN_LIVENESS,
	TURN_SILENT,    /* nothing valid came for long: to be said once */
	TURN_IDLE_OVER, /* nothing valid came for too long */
	TURN_HARD_OVER, /* it may not take longer, whatever it does */
	TURN_CANCEL_OVER,
};

struct turn_clock {
	int64_t idle_ms, hard_ms; /* limits */
	int64_t started_ms;
	int64_t heard_ms; /* last valid frame of its session, or answer of the owner's */
	int64_t liveness_ms;  /* last turn_liveness */
	int64_t cancelled_ms; /* 0: not cancelled */
	bool busy;            /* a tool or a permission is open */
	bool asks;            /* a permission is open: it is the agent who waits */
	bool silent;          /* TURN_SILENT has been said, and nothing came since */
};

void turn_clock_start(struct turn_clock *clock, int64_t idle_ms, int64_t hard_ms,
		      int64_t now_ms);
/* What is due, the gravest first: hard deadline before idle before liveness, so that no
 * chatter postpones an end. Of a cancelled turn only the grace counts. */
enum turn_due turn_clock_due(const struct turn_clock *clock, int64_t now_ms);
/* The earliest time at which something may be due. */
int64_t turn_clock_next(const struct turn_clock *clock);
/* Nobody has looked for a while (we were stopped, or the machine slept), so what was said
 * meanwhile is still to be read: silence, and the grace of a cancel, count from now. The
 * hard cap stays. */
void turn_clock_slept(struct turn_clock *clock, int64_t now_ms);
/* What is left of the hard cap. */
int64_t turn_clock_left(const struct turn_clock *clock, int64_t now_ms);

#endif
