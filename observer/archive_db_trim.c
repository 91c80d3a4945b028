#include "observer/archive_db_part.h"

#include <sqlite3.h>

#include "wire/host/db.h"
#include "wire/host/loop.h"

#define TRIM_FRAMES 64 /* at a time: some milliseconds; our choice */
#define VACUUM_PAGES "64"
/* Of what may be kept for its size, once it was more: each time the index is rewritten,
 * so not for every frame that comes. Our choice. */
#define TRIM_SHARE 0.9375

struct leaving {
	int64_t frame, agent;
	char epoch[17];
};

/* Nothing is found of what is gone. */
static bool drop_found_words(struct archive_db *db, const struct leaving *leaving,
			     struct err *err)
{
	struct sqlite3_stmt *statement = archive_sql_begin(db, FRAME_EVENTS);
	struct search_segment segment;
	char epoch[17];
	bool ok = true;

	(void)sqlite3_bind_int64(statement, 1, leaving->frame);
	while (ok && sqlite3_step(statement) == SQLITE_ROW)
		if (archive_segment_at(db, statement, epoch, &segment))
			ok = search_drop(db->search, &segment, loop_unix_ms(), err);
	(void)sqlite3_reset(statement);
	return ok;
}

static bool drop_frame(struct archive_db *db, const struct leaving *leaving,
		       struct err *err)
{
	struct sqlite3_stmt *statement;

	if (!drop_found_words(db, leaving, err))
		return false;
	statement = archive_sql_begin(db, FRAME_BODIES_DROP);

	(void)sqlite3_bind_int64(statement, 1, leaving->frame);
	(void)sqlite3_bind_int64(statement, 2, leaving->agent);
	db_bind_text(statement, 3, slice_of(leaving->epoch));
	if (!archive_sql_run(db, statement, "let a body go", err))
		return false;
	statement = archive_sql_begin(db, FRAME_DROP);
	(void)sqlite3_bind_int64(statement, 1, leaving->frame);
	if (db->frame_id == leaving->frame)
		db->frame_id = 0;
	return archive_sql_run(db, statement, "let a frame go", err);
}

/* Drops the frames that @statement finds, at most TRIM_FRAMES; -1: failed. */
static int drop_found(struct archive_db *db, struct sqlite3_stmt *statement,
		      struct err *err)
{
	struct leaving leaving[TRIM_FRAMES];
	int count = 0;

	(void)sqlite3_bind_int64(statement, 2, TRIM_FRAMES);
	while (count < TRIM_FRAMES && sqlite3_step(statement) == SQLITE_ROW) {
		leaving[count].frame = sqlite3_column_int64(statement, 0);
		leaving[count].agent = sqlite3_column_int64(statement, 1);
		count += archive_sql_epoch(statement, 2, leaving[count].epoch);
	}
	(void)sqlite3_reset(statement);
	if (!count)
		return 0;
	if (!archive_db_begin(db, err))
		return -1;
	for (int i = 0; i < count; i++) {
		if (!drop_frame(db, &leaving[i], err)) {
			archive_db_rollback(db);
			return -1;
		}
	}
	if (!archive_db_commit(db, err) ||
	    !db_exec(db->db, "PRAGMA incremental_vacuum(" VACUUM_PAGES ")", err))
		return -1;
	return count;
}

static int64_t used_bytes(struct archive_db *db)
{
	struct sqlite3_stmt *statement = archive_sql_begin(db, PAGES);
	int64_t bytes = 0;

	if (sqlite3_step(statement) == SQLITE_ROW)
		bytes = sqlite3_column_int64(statement, 0) *
			sqlite3_column_int64(statement, 1);
	(void)sqlite3_reset(statement);
	return bytes;
}

static int64_t frame_bytes(struct archive_db *db)
{
	struct sqlite3_stmt *statement = archive_sql_begin(db, FRAME_BYTES);
	int64_t bytes = 0;

	if (sqlite3_step(statement) == SQLITE_ROW)
		bytes = sqlite3_column_int64(statement, 0);
	(void)sqlite3_reset(statement);
	return bytes;
}

/* A slice of what is to go for size; 0: nothing is, -1: failed.
 *
 * Words that go make the index larger at first: it notes that they went, and both leave
 * it when it is merged. So the frames that go are counted by their share of the whole,
 * not until the file is small enough, which would be after far too many. */
static int trim_size(struct archive_db *db, int64_t keep, struct err *err)
{
	const int64_t used = used_bytes(db), frames = frame_bytes(db);
	bool done;

	if (!db->goal && (used <= keep || !frames))
		return 0;
	if (!db->goal) /* never all of it: 1 */
		db->goal = 1 + (int64_t)((double)frames * (double)keep / (double)used *
					 TRIM_SHARE);
	if (!db->merging && frames > db->goal) {
		const int count =
			drop_found(db, archive_sql_begin(db, OLDEST_OF_LARGEST), err);

		if (count > 0)
			return count;
		db->goal = 0;
		return count;
	}
	if (!search_merge(db->search, !db->merging, &done, err) ||
	    !db_exec(db->db, "PRAGMA incremental_vacuum(" VACUUM_PAGES ")", err)) {
		db->goal = 0;
		db->merging = false;
		return -1;
	}
	db->merging = !done;
	if (done)
		db->goal = 0;
	return 1;
}

bool archive_db_trim(struct archive_db *db, const struct archive_keep *keep,
		     int64_t now_ms, bool *more_out, struct err *err)
{
	struct sqlite3_stmt *statement;
	int count = 0;

	if (keep->age_ms) {
		statement = archive_sql_begin(db, OLDEST);
		(void)sqlite3_bind_int64(statement, 1, now_ms - keep->age_ms);
		count = drop_found(db, statement, err);
	}
	if (!count && keep->bytes)
		count = trim_size(db, keep->bytes, err);
	*more_out = count > 0;
	return count >= 0;
}

bool archive_db_forget(struct archive_db *db, const uint8_t *agent, struct slice channel,
		       int64_t before_ms, uint64_t *count, bool *more_out,
		       struct err *err)
{
	const int64_t id = archive_find_agent(db, agent);
	struct sqlite3_stmt *statement = archive_sql_begin(db, FORGET_FRAMES);
	int dropped;

	(void)sqlite3_bind_int64(statement, 1, id);
	db_bind_text(statement, 3, channel);
	(void)sqlite3_bind_int64(statement, 4, before_ms);
	dropped = drop_found(db, statement, err);
	*more_out = dropped > 0;
	if (dropped > 0)
		*count += (uint64_t)dropped;
	return dropped >= 0;
}
