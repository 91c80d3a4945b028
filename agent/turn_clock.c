#include "agent/turn_clock.h"

void turn_clock_start(struct turn_clock *clock, int64_t idle_ms, int64_t hard_ms,
		      int64_t now_ms)
{
	*clock = (struct turn_clock){.idle_ms = idle_ms,
				     .hard_ms = hard_ms,
				     .started_ms = now_ms,
				     .heard_ms = now_ms,
				     .liveness_ms = now_ms};
}

static int64_t idle_end(const struct turn_clock *clock)
{
	return clock->heard_ms +
	       (clock->busy ? TURN_BUSY_FACTOR * clock->idle_ms : clock->idle_ms);
}

/* INT64_MAX: as things are, its silence is no news. */
static int64_t silent_at(const struct turn_clock *clock)
{
	const int64_t half = clock->idle_ms / 2;
	const int64_t quiet = half < TURN_SILENT_MS ? half : TURN_SILENT_MS;

	if (clock->silent || clock->asks || clock->cancelled_ms != 0)
		return INT64_MAX;
	return clock->heard_ms + (clock->busy ? TURN_BUSY_FACTOR * quiet : quiet);
}

enum turn_due turn_clock_due(const struct turn_clock *clock, int64_t now_ms)
{
	if (clock->cancelled_ms != 0 &&
	    now_ms >= clock->cancelled_ms + TURN_CANCEL_GRACE_MS)
		return TURN_CANCEL_OVER;
	if (clock->cancelled_ms == 0) {
		if (now_ms >= clock->started_ms + clock->hard_ms)
			return TURN_HARD_OVER;
		if (now_ms >= idle_end(clock))
			return TURN_IDLE_OVER;
	}
	if (now_ms >= silent_at(clock))
		return TURN_SILENT;
	if (now_ms >= clock->liveness_ms + TURN_LIVENESS_MS)
		return TURN_LIVENESS;
	return TURN_NOTHING_DUE;
}

int64_t turn_clock_next(const struct turn_clock *clock)
{
	int64_t next = clock->liveness_ms + TURN_LIVENESS_MS;
	int64_t end = clock->started_ms + clock->hard_ms;

	if (clock->cancelled_ms != 0)
		end = clock->cancelled_ms + TURN_CANCEL_GRACE_MS;
	else if (idle_end(clock) < end)
		end = idle_end(clock);
	if (silent_at(clock) < end)
		end = silent_at(clock);
	return end < next ? end : next;
}

void turn_clock_slept(struct turn_clock *clock, int64_t now_ms)
{
	clock->heard_ms = now_ms;
	if (clock->cancelled_ms != 0)
		clock->cancelled_ms = now_ms;
}

int64_t turn_clock_left(const struct turn_clock *clock, int64_t now_ms)
{
	int64_t left = clock->started_ms + clock->hard_ms - now_ms;

	return left > 0 ? left : 0;
}
