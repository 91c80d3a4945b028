#ifndef AGENT_PACER_H
#define AGENT_PACER_H

#include <stdbool.h>
#include <stdint.h>

/* When a frame may leave, and whose turn it is. Pure: time in ms comes in. Source: design
 * §5, "Pacer and outbox". */

/* What may claim a tick, in this order. */
enum pacer_claim {
	PACER_STATE, /* feed_state and control results */
	PACER_URGENT,
	PACER_RESEND,
	PACER_LIVE,
	PACER_BACKFILL, /* at least one tick in four when asked for */
	PACER_NONE,
};
#define PACER_BIT(claim) (1u << (claim))

struct pacer {
	int64_t tick_ms, linger_ms;
	int64_t last_ms;    /* of the last tick that was used; at first: of the start */
	int64_t waiting_ms; /* since when something has been waiting; -1: nothing waits */
	int64_t backfill_us; /* when the last backfill frame was due */
	unsigned others;     /* ticks in a row that others had while backfill waited */
};

void pacer_init(struct pacer *pacer, int64_t tick_ms, int64_t linger_ms, int64_t now_ms);
/**
 * pacer_next - when the next frame may leave
 * @claims: bits of all that wait now; call it whenever that changes
 * @backfill_per_second: what the relay offers beyond the ticks, 0: nothing
 * Returns a time, which may be past, or -1 when nothing waits.
 */
int64_t pacer_next(struct pacer *pacer, int64_t now_ms, unsigned claims,
		   uint32_t backfill_per_second);
/* Who sends a frame now, which is noted as sent; PACER_NONE: it is too early. */
enum pacer_claim pacer_take(struct pacer *pacer, int64_t now_ms, unsigned claims,
			    uint32_t backfill_per_second);

#endif
