#include "agent/pacer.h"

/* "at least one tick in four when asked for" */
#define BACKFILL_EVERY 4

void pacer_init(struct pacer *pacer, int64_t tick_ms, int64_t linger_ms, int64_t now_ms)
{
	/* "the first frame of a start waits one tick, so that a crash loop cannot beat
	 * the pace" */
	*pacer = (struct pacer){
		.tick_ms = tick_ms,
		.linger_ms = linger_ms,
		.last_ms = now_ms,
		.waiting_ms = -1,
		.backfill_us = now_ms * 1000,
	};
}

static bool has(unsigned claims, enum pacer_claim claim)
{
	return claims & PACER_BIT(claim);
}

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* The next tick: one after the last used, and the linger time after a pause. */
static int64_t next_tick(const struct pacer *pacer)
{
	return later(pacer->last_ms + pacer->tick_ms,
		     pacer->waiting_ms + pacer->linger_ms);
}

/* The next frame beyond the ticks. */
static int64_t next_extra(const struct pacer *pacer, uint32_t per_second)
{
	return (pacer->backfill_us + 1000000 / per_second + 999) / 1000;
}

/* A timer is late by some of a millisecond each time: the next one is due as if it had
 * not been, unless it was late by a whole frame. */
static void note_backfill(struct pacer *pacer, int64_t now_ms, uint32_t per_second)
{
	const int64_t gap_us = per_second ? 1000000 / per_second : 0;
	const int64_t due_us = pacer->backfill_us + gap_us;

	pacer->backfill_us = now_ms * 1000;
	if (due_us < pacer->backfill_us && pacer->backfill_us - due_us <= gap_us)
		pacer->backfill_us = due_us;
}

int64_t pacer_next(struct pacer *pacer, int64_t now_ms, unsigned claims,
		   uint32_t backfill_per_second)
{
	int64_t tick, extra;

	if (!claims) {
		pacer->waiting_ms = -1;
		return -1;
	}
	if (pacer->waiting_ms < 0)
		pacer->waiting_ms = now_ms;
	tick = next_tick(pacer);
	if (!has(claims, PACER_BACKFILL) || !backfill_per_second)
		return tick;
	extra = next_extra(pacer, backfill_per_second);
	return extra < tick ? extra : tick;
}

static enum pacer_claim first_of(const struct pacer *pacer, unsigned claims)
{
	if (has(claims, PACER_BACKFILL) && pacer->others >= BACKFILL_EVERY - 1)
		return PACER_BACKFILL;
	for (int claim = PACER_STATE; claim < PACER_NONE; claim++)
		if (has(claims, (enum pacer_claim)claim))
			return (enum pacer_claim)claim;
	return PACER_NONE;
}

enum pacer_claim pacer_take(struct pacer *pacer, int64_t now_ms, unsigned claims,
			    uint32_t backfill_per_second)
{
	const int64_t next = pacer_next(pacer, now_ms, claims, backfill_per_second);
	enum pacer_claim claim;

	if (next < 0 || now_ms < next)
		return PACER_NONE;
	if (now_ms < next_tick(pacer)) {
		note_backfill(pacer, now_ms, backfill_per_second);
		return PACER_BACKFILL;
	}
	claim = first_of(pacer, claims);
	if (claim == PACER_BACKFILL) {
		note_backfill(pacer, now_ms, backfill_per_second);
		pacer->others = 0;
	} else {
		pacer->others = has(claims, PACER_BACKFILL) ? pacer->others + 1 : 0;
	}
	pacer->last_ms = now_ms;
	pacer->waiting_ms = -1;
	return claim;
}
