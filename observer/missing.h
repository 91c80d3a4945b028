#ifndef OBSERVER_MISSING_H
#define OBSERVER_MISSING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/frame/gone.h"
#include "wire/frame/limits.h"

/* Which frames of one epoch are here, and so which are missing. Pure. Ranges are
 * inclusive, ascending and never touch. */
#define MISSING_RANGES_MAX 1024 /* holes of one epoch that we keep apart; our choice */

struct missing {
	struct frame_range *here; /* received, or given up */
	size_t count, room;
	struct gone_range *gone; /* given up: for good, not to be asked for */
	size_t gone_count, gone_room;
	uint64_t given_up;      /* ranges, ever */
	uint64_t gone_unlisted; /* frames of ranges that @gone has no room for any more */
	uint64_t last;          /* newest number known to exist; 0: none */
};

/* A zeroed struct is valid and empty. */
void missing_finish(struct missing *missing);

enum missing_add { MISSING_NEW, MISSING_SEEN, MISSING_REFUSED /* no frame number */ };
/* A frame arrived; one that was given up is taken after all. Where MISSING_RANGES_MAX
 * would be passed the oldest hole is given up (GONE_SHED). */
enum missing_add missing_add(struct missing *missing, uint64_t number);
/* The harness says that frames up to @last exist. */
void missing_extend(struct missing *missing, uint64_t last);
/* The frames of @range that are not here will never come. */
void missing_give_up(struct missing *missing, struct gone_range gone);
/* They are here, or were and were let go: neither missing nor gone. */
void missing_forget(struct missing *missing, struct frame_range range);
/* They are not here after all, nor what of it was given up: all up to the newest known
 * is missing. */
void missing_take_out(struct missing *missing, struct frame_range range);
/* The holes, newest first, at most @max; returns how many it wrote. */
size_t missing_holes(const struct missing *missing, struct frame_range *out, size_t max);
/* Frames missing in all holes. */
uint64_t missing_count(const struct missing *missing);

#endif
