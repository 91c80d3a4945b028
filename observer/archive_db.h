#ifndef OBSERVER_ARCHIVE_DB_H
#define OBSERVER_ARCHIVE_DB_H

#include "observer/archive.h"
#include "observer/search.h"
#include "wire/base/arena.h"
#include "wire/base/buf.h"

/* The archive's database, as its one thread uses it. Blocks. */
struct archive_db;

/* A larger file is not read whole when it is opened: db_check() is for another thread. */
#define ARCHIVE_OPEN_CHECK_BYTES (4 << 20)

struct archive_db *archive_db_open(const char *path, struct err *err);
void archive_db_close(struct archive_db *db);
/* Did it turn out, in writing, that the file is broken? */
bool archive_db_is_broken(const struct archive_db *db);
bool archive_db_begin(struct archive_db *db, struct err *err);
bool archive_db_commit(struct archive_db *db, struct err *err);
void archive_db_rollback(struct archive_db *db);
bool archive_db_frame(struct archive_db *db, const uint8_t *agent, const char *epoch,
		      uint64_t number, int64_t received_ms, struct slice plaintext,
		      struct err *err);
bool archive_db_body(struct archive_db *db, const uint8_t *agent, const char *epoch,
		     uint64_t seq, struct slice text, struct err *err);
bool archive_db_gone(struct archive_db *db, const uint8_t *agent, const char *epoch,
		     struct gone_range gone, struct err *err);
/* What of it is kept; 0: without an end. */
struct archive_keep {
	int64_t age_ms; /* since a frame came */
	int64_t bytes;
};
/**
 * archive_db_trim - lets a few frames go that are too old or too many
 * The oldest go first; for size, those of the agent that has most, so that one that says
 * much pushes out nobody else's. Their numbers are remembered: they are not asked for
 * again. Begins and commits by itself. @more_out: call again.
 */
bool archive_db_trim(struct archive_db *db, const struct archive_keep *keep,
		     int64_t now_ms, bool *more_out, struct err *err);
/**
 * archive_db_forget - a slice of what the owner wants to be gone
 * @channel: ptr NULL for all; with one, frames that hold no other channel's events
 * @before_ms: events' time; INT64_MAX for all. @count: adds frames that went.
 */
bool archive_db_forget(struct archive_db *db, const uint8_t *agent, struct slice channel,
		       int64_t before_ms, uint64_t *count, bool *more_out,
		       struct err *err);
bool archive_db_load(struct archive_db *db, const struct archive_loader *loader,
		     void *ctx, struct err *err);
/* How it is with an agent, by what is here. */
struct archive_life {
	char epoch[17]; /* its newest; "" of a foreign feed */
	/* When it was last heard: what goes on with it ended then; INT64_MAX: it is
	 * online. */
	int64_t open_ms;
};
void archive_db_life(struct archive_db *db, const uint8_t *agent, int64_t now_ms,
		     struct archive_life *out);
/* Fills rows, row_count, more, text; archive_db_answer_finish() frees them. */
bool archive_db_rows(struct archive_db *db, const uint8_t *agent, struct slice channel,
		     const struct pos *before, size_t limit, struct archive_answer *out,
		     struct err *err);
/* Fills folds, fold_count, low, more. */
bool archive_db_folds(struct archive_db *db, const uint8_t *agent, struct slice channel,
		      const struct pos *before, struct slice skip,
		      struct archive_answer *out, struct err *err);
bool archive_db_event(struct archive_db *db, const uint8_t *agent, const struct pos *pos,
		      struct archive_answer *out, struct err *err);
/* Fills text: the JSON of /api/raw. */
bool archive_db_raw(struct archive_db *db, const uint8_t *agent, struct slice channel,
		    const struct raw_query *query, struct archive_answer *out,
		    struct err *err);
/* ---- full text (search.h) ---- */

/* search_step(); @all_new: SEARCH_NEW. */
bool archive_db_index(struct archive_db *db, bool all_new, int64_t now_ms,
		      struct search_pace *pace, int64_t *next_ms, struct err *err);
/* search_merge() */
bool archive_db_merge(struct archive_db *db, bool first, bool *done, struct err *err);
/* search_compact() */
bool archive_db_compact(struct archive_db *db, struct err *err);
/* Fills text with what search_find() writes. */
bool archive_db_search(struct archive_db *db, const struct search_question *question,
		       struct archive_answer *out, struct err *err);
void archive_db_answer_finish(struct archive_answer *answer);

#endif
