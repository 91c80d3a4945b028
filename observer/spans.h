#ifndef OBSERVER_SPANS_H
#define OBSERVER_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observer/row.h"
#include "wire/base/map.h"
#include "wire/base/slice.h"
#include "wire/nostr/crypto.h"

/* Where the time of every lane went, in columns: timeline and report read them. Pure.
 *
 * A lane is a list of runs by their start. A run is a turn (or, of what belongs to no
 * turn, one stretch of events): its tool calls and waits. It is made anew whenever its
 * rows changed, so it is a function of them alone.
 *
 * The strip of a lane says for each moment what the time went into, the owner before
 * tools before the model, with running sums: how it spent any stretch of time is two
 * binary searches. One channel holds one turn at a time; where runs overlap all the same,
 * the later one has the time. */

/* All runs of an observer with what their strips may need; over it the oldest go, and
 * from_ms says so. */
#define SPANS_BYTES_MAX ((size_t)192 << 20)
#define SPANS_LANES_MAX 8192
/* Different names; further ones are called "other". */
#define SPANS_NAMES_MAX 65536
#define SPANS_OPEN INT64_MAX /* end of what still goes on */
/* Calls side by side that have a line of their own; our choice. */
#define SPANS_DEPTH_MAX 16
/* What a strip sums up: TIME_MODEL, TIME_TOOL, TIME_YOU less one. */
#define SPAN_SUMS 3

/* Names that are always there, at these indices. */
enum span_own_name { NAME_MODEL, NAME_YOU, NAME_IDLE, NAME_TURN };
enum span_kind { SPAN_TOOL, SPAN_WAIT };
/* SPAN_ALLOWED: of a wait that ended in a yes. 4 is the timeline's. */
enum span_flag { SPAN_FAILED = 1, SPAN_CANCELLED = 2, SPAN_ALLOWED = 8 };

struct span {
	int64_t t, end; /* Unix ms; end SPANS_OPEN while it goes on */
	int64_t until;  /* latest end of it and all before it in its run */
	uint32_t name;  /* index in spans->names */
	uint32_t row;   /* offset of its row's id in run->text, NUL-terminated */
	int32_t parent; /* index in its run of the call that it is part of; -1 */
	uint16_t depth; /* line among its like, 0 first */
	uint8_t kind, flags;
};

/* The ms that went into each time before a piece of a lane's strip: told for every so
 * many pieces, so that all of them are little memory. */
#define SPANS_SUMS_EVERY 16
struct lane_sums {
	uint64_t of[SPAN_SUMS];
};

/* One piece of memory: who reads it from its start finds what follows in the cache. */
struct run {
	int64_t t, end;
	int64_t longest; /* ms of its longest closed span; SPANS_OPEN if one is open */
	char *text;      /* behind the spans */
	size_t bytes;    /* all that it holds */
	uint32_t text_len;
	uint32_t title, row, tag; /* offsets in text */
	uint32_t lane_strip;      /* where its part of the lane's strip begins */
	uint32_t count;
	bool is_turn;
	uint8_t flags;
	struct span spans[]; /* by t */
};

/* Line among its like; of a wait that of its call, and SPAN_PART_LINE if that is a part.
 */
#define SPAN_PART_LINE 0x8000
static inline uint16_t run_line(const struct run *run, const struct span *span)
{
	const struct span *call;

	if (span->kind != SPAN_WAIT || span->parent < 0)
		return span->depth;
	call = &run->spans[span->parent];
	return call->parent < 0 ? call->depth : (uint16_t)(call->depth | SPAN_PART_LINE);
}

/* What is looked at of many runs, side by side. */
struct run_at {
	int64_t t, end;  /* the run's */
	int64_t until;   /* latest end of it and all before it in its lane; joined */
	int64_t longest; /* the run's */
	struct run *run;
	uint32_t count; /* of its spans */
	bool is_turn;
	uint8_t flags;
};

struct span_lane {
	uint8_t agent[KEY_BYTES];
	char *id;            /* AGENTHEX/CHANNEL */
	uint32_t first;      /* index of the first lane of its agent */
	struct run_at *runs; /* in @store, with places before and behind them */
	size_t count;
	struct run_at *store;
	size_t room;
	struct map tags; /* tag → run */
	/* Its strip: from strip_t on the time goes into strip_time (enum row_time). */
	int64_t *strip_t;
	uint8_t *strip_time;
	struct lane_sums *strip_sums;
	size_t strip_count, strip_room;
	size_t strip_runs; /* so many runs are in it as they are now */
	int64_t alive_ms;  /* it was there until then at least */
	int64_t open_ms;   /* what goes on in it ended then; SPANS_OPEN: it goes on */
	uint64_t
		generation; /* changes whenever its runs do, or when what goes on ended */
};

struct span_name {
	char *text;
	uint8_t time;    /* enum row_time */
	bool is_command; /* to be shown as code */
};

struct spans { /* fields may be read */
	struct span_lane **lanes;
	size_t lane_count, lane_room;
	struct map by_lane; /* agent key and channel → lane */
	struct span_name *names;
	size_t name_count, name_room;
	struct map by_name; /* time and text → index + 1 */
	size_t bytes, bytes_max;
	uint64_t generation;
	uint64_t steps;  /* runs moved or looked at to keep them in order: for tests */
	int64_t from_ms; /* what ended before was let go; INT64_MIN: nothing */
};

struct spans *spans_create(size_t bytes_max);
void spans_destroy(struct spans *spans); /* NULL is fine */

/* The agent of @lane was last heard at @open_ms; SPANS_OPEN: it is there. */
void span_lane_open(struct spans *spans, struct span_lane *lane, int64_t open_ms);

struct span_in {
	int64_t t, end;
	enum span_kind kind;
	unsigned flags;
	int64_t parent; /* index of an earlier one, else -1 */
	uint32_t name;  /* spans_name() */
	struct slice row;
};
struct run_in {
	struct slice tag; /* names it among those of its lane */
	int64_t t, end;
	bool is_turn;
	unsigned flags;
	struct slice title, row; /* what the turn is after; the row it begins with */
	const struct span_in *spans;
	size_t count;
};

/* The index of a name; equal names of one time have one. */
uint32_t spans_name(struct spans *spans, enum row_time time, bool is_command,
		    struct slice text);
/* NULL when there are SPANS_LANES_MAX others. */
struct span_lane *spans_lane(struct spans *spans, const uint8_t agent[KEY_BYTES],
			     struct slice channel);
/**
 * spans_put - takes the place of the run of that tag
 * Times that go back are set to what came before them, ends before their starts and
 * behind their run's too: they are a peer's. Costs the runs between it and the nearer end
 * of its lane: history comes newest first, what happens now last.
 */
void spans_put(struct spans *spans, struct span_lane *lane, const struct run_in *in);

/* ---- questions; @now ends what is open, but in a lane whose agent is gone it ended when
 * that was last heard. After spans_join() ---- */

static inline int64_t span_end(int64_t end, int64_t now)
{
	return end == SPANS_OPEN ? now : end;
}
/* Until when its lane is known to go on. */
static inline int64_t span_lane_now(const struct span_lane *lane, int64_t now)
{
	return lane->open_ms < now ? lane->open_ms : now;
}
/* Of what began at @t, as it is told: SPANS_OPEN only of what goes on. */
static inline int64_t span_lane_told(const struct span_lane *lane, int64_t t, int64_t end)
{
	end = span_end(end, lane->open_ms);
	return end > t ? end : t;
}
/* First run that may reach @t or beyond. */
size_t span_lane_find(const struct span_lane *lane, int64_t t);
/* When run @at ends, or the next one begins. */
int64_t span_lane_end(const struct span_lane *lane, size_t at, int64_t now);
/* Runs lie far apart in memory. Who walks along a lane and is at run @at asks for the one
 * that comes so many later: measured, it halves a report of everything. */
#define SPANS_AHEAD 4
#define SPANS_AHEAD_BYTES 1024 /* the 20 calls of a usual turn */
static inline void span_lane_ahead(const struct span_lane *lane, size_t at)
{
	const struct run_at *next = &lane->runs[at];
	size_t bytes;

	if (at + SPANS_AHEAD >= lane->count)
		return;
	next += SPANS_AHEAD;
	bytes = sizeof(struct run) + next->count * sizeof(struct span);
	bytes = bytes < SPANS_AHEAD_BYTES ? bytes : SPANS_AHEAD_BYTES;
	for (size_t i = 0; i < bytes; i += 64)
		__builtin_prefetch((const char *)next->run + i);
}
/* First span of @run that may reach @t or beyond. */
size_t run_find(const struct run *run, int64_t t);
/* Before the strips of lanes are read: brings them up to date. Costs what changed. */
void spans_join(struct spans *spans);
/* The ms that the lane spent before piece @at of its strip, by time. */
void span_lane_before(const struct span_lane *lane, size_t at, uint64_t out[SPAN_SUMS]);
/* The same before @t. */
void span_lane_sums(const struct span_lane *lane, int64_t t, int64_t now,
		    uint64_t out[SPAN_SUMS]);
/* How long it was there in [from, to). */
int64_t span_lane_present(const struct span_lane *lane, int64_t from, int64_t to,
			  int64_t now);

#endif
