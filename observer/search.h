#ifndef OBSERVER_SEARCH_H
#define OBSERVER_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observer/fold.h"
#include "observer/pos.h"
#include "observer/search_query.h"
#include "wire/base/buf.h"
#include "wire/base/err.h"

struct sqlite3;

/* The archive's index of words. What is searched are rows, as their owner sees them; the
 * index has one text a row (search_text.h), compressed, and FTS5's lists of its words.
 *
 * It follows the archive: a segment (model.h) that an event came for is written down as
 * due in the event's own transaction, and its rows are derived and compared later, in
 * bounded steps. So events never wait for it, an archive from before is taken in from its
 * newest event down, and an index that breaks is made again. A doc's id is the second of
 * its row and a number: by id is by time. */
struct search;

/* For the archive's migrations. unindexed: events with ids up to low are not yet known
 * here. A segment's due is Unix ms; 0 what the archive had before, NULL nothing to do. */
#define SEARCH_SCHEMA \
	"CREATE TABLE segment(id INTEGER PRIMARY KEY, agent INTEGER NOT NULL," \
	" channel TEXT NOT NULL, tag TEXT NOT NULL, epoch TEXT NOT NULL," \
	" place TEXT NOT NULL, seq INTEGER NOT NULL, turn TEXT, due INTEGER," \
	" rest INTEGER NOT NULL DEFAULT 0, UNIQUE(agent, channel, tag));" \
	"CREATE INDEX segment_due ON segment(due) WHERE due IS NOT NULL;" \
	"CREATE TABLE doc(id INTEGER PRIMARY KEY, segment INTEGER NOT NULL," \
	" row TEXT NOT NULL, lane TEXT, place TEXT NOT NULL, seq INTEGER NOT NULL," \
	" t INTEGER NOT NULL, kind INTEGER NOT NULL, hash INTEGER NOT NULL," \
	" size INTEGER NOT NULL, text BLOB NOT NULL);" \
	"CREATE INDEX doc_place ON doc(segment, seq);" \
	"CREATE TABLE unindexed(low INTEGER NOT NULL);" \
	"INSERT INTO unindexed SELECT max(id) FROM event HAVING max(id) IS NOT NULL;" \
	"CREATE VIRTUAL TABLE found USING fts5(text, about, content='', columnsize=0," \
	" tokenize=\"unicode61 remove_diacritics 2 categories 'L* N* Co " \
	"So'\")"

/* Names a segment and one of its events. */
struct search_segment {
	int64_t agent; /* its number in the archive */
	struct slice channel, tag;
	struct slice turn; /* ptr NULL: none */
	const char *epoch;
	struct pos pos;
};

/* How much is done at a time, so that nobody waits for the length of a turn: it ends with
 * the first of both that is over. One event, row or doc is one piece of work, and one
 * more for every SEARCH_WORK_BYTES of its text. */
#define SEARCH_WORK_BYTES 4096
struct search_pace {
	int64_t until_ms; /* loop_now_ms(); INT64_MAX: any time */
	size_t most;      /* pieces */
	size_t done;      /* of those */
};
/* @ms and @most from now on. */
struct search_pace search_pace_begin(int64_t ms, size_t most);
bool search_pace_is_over(const struct search_pace *pace);
/* A piece with that much text was done. False: it was the last. */
bool search_pace_take(struct search_pace *pace, size_t bytes);

/* Where the index gets rows from. */
struct search_source {
	/* Folds the next events of the segment, which begin at @from, until @pace is
	 * over, but one at least; @from moves behind them. True: those were all, and the
	 * fold is the segment's as its events now are. */
	bool (*fold)(void *ctx, const struct search_segment *segment, struct fold *fold,
		     struct pos *from, struct search_pace *pace);
	/* Calls back with what events up to @low, newest first, at most @count, are of;
	 * returns the id that the next call begins at, 0 when there are no more. */
	int64_t (*walk)(void *ctx, int64_t low, unsigned count,
			bool (*each)(void *arg, const struct search_segment *segment),
			void *arg);
	/* Appends members that say what an agent (by number) and its channel are called.
	 */
	void (*write_names)(void *ctx, int64_t agent, struct slice channel,
			    struct buf *out);
	void *ctx;
};

/* @db is borrowed, and has SEARCH_SCHEMA. */
struct search *search_create(struct sqlite3 *db, const struct search_source *source,
			     struct err *err);
void search_destroy(struct search *search);

/* In the caller's transaction: an event of this segment came or changed. */
bool search_touch(struct search *search, const struct search_segment *segment,
		  int64_t now_ms, struct err *err);
/* In the caller's transaction: the event at @segment->pos goes; so does what is found of
 * the row that began with it. */
bool search_drop(struct search *search, const struct search_segment *segment,
		 int64_t now_ms, struct err *err);
/* A transaction of the caller's began, ended or was rolled back. */
void search_forget_touched(struct search *search);

enum search_urge {
	SEARCH_DUE, /* what has waited long enough, then what was there before */
	SEARCH_NEW, /* somebody asks: all that came, due or not */
};
/**
 * search_step - takes in some of what is due
 * @pace: what the step may cost; it ends behind the piece that is too much, so with one
 * more at most, and does one at least. A segment may take many steps: where it is, only
 * this object knows, and a start begins that segment again. Whatever the steps, the end
 * is the same.
 *
 * Begins and commits by itself. @next_ms: when there is more to do, Unix ms; 0 at once,
 * INT64_MAX never. An index that is found broken is begun anew, which is logged.
 */
bool search_step(struct search *search, enum search_urge urge, int64_t now_ms,
		 struct search_pace *pace, int64_t *next_ms, struct err *err);
/* Rewrites the index without what was let go of, which its lists still name. May take
 * seconds. */
bool search_compact(struct search *search, struct err *err);
/* The same in steps of some milliseconds, @first once, then until @done. */
bool search_merge(struct search *search, bool first, bool *done, struct err *err);

#define SEARCH_LIMIT_DEFAULT 30
#define SEARCH_LIMIT_MAX 100
#define SEARCH_BEFORE_MAX INT64_MAX
/* What a question may take. Our choice. */
#define SEARCH_FIND_MS 500

struct search_question {
	const struct search_query *query;
	const uint8_t *agents; /* keys, one behind another; only theirs, if any */
	size_t agent_count;
	int64_t before; /* id of a hit; SEARCH_BEFORE_MAX: the newest */
	size_t limit;
	int64_t until_ms; /* loop_now_ms(): ends with what it has; INT64_MAX: any time */
};
/**
 * search_find - appends {"hits":[…],"more":…,…}, the newest first
 * PROTOCOL.md, "/api/search", has the members. ERR_MALFORMED: there is nothing to look
 * for, or too much.
 */
bool search_find(struct search *search, const struct search_question *question,
		 struct buf *out, struct err *err);

#endif
