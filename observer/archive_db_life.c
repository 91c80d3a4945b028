#include "observer/archive_db_part.h"

#include <sqlite3.h>

#include "observer/model.h"
#include "wire/base/clock.h"
#include "wire/frame/observer_event.h"
#include "wire/host/db.h"

/* When the newest event of the frame in db->whole was: also one that makes no row is a
 * sign of life. */
static int64_t frame_last_ms(struct archive_db *db)
{
	struct frame frame;
	int64_t last = 0, t;

	arena_reset(&db->arena);
	if (!frame_parse(buf_slice(&db->whole), &db->arena, &frame, NULL))
		return 0;
	for (size_t i = 0; i < frame.event_count; i++)
		if (clock_parse(frame.events[i].timestamp, &t) && t > last)
			last = t;
	return last;
}

int64_t archive_last_ms(struct archive_db *db, int64_t agent)
{
	struct sqlite3_stmt *statement = archive_sql_begin(db, LAST_EVENT);
	int64_t last = 0, in_frame = 0;

	(void)sqlite3_bind_int64(statement, 1, agent);
	if (sqlite3_step(statement) == SQLITE_ROW)
		last = sqlite3_column_int64(statement, 0);
	(void)sqlite3_reset(statement);
	statement = archive_sql_begin(db, LAST_FRAME);
	(void)sqlite3_bind_int64(statement, 1, agent);
	if (sqlite3_step(statement) == SQLITE_ROW &&
	    archive_decompress(statement, &db->whole))
		in_frame = frame_last_ms(db);
	(void)sqlite3_reset(statement);
	return in_frame > last ? in_frame : last;
}

void archive_db_life(struct archive_db *db, const uint8_t *agent, int64_t now_ms,
		     struct archive_life *out)
{
	const int64_t id = archive_find_agent(db, agent);
	const int64_t last = archive_last_ms(db, id);
	struct sqlite3_stmt *statement = archive_sql_begin(db, LAST_WORD);
	bool left;

	(void)sqlite3_bind_int64(statement, 1, id);
	left = sqlite3_step(statement) == SQLITE_ROW &&
	       !slice_eq(db_column_text(statement, 0), SLICE("harness_started"));
	(void)sqlite3_reset(statement);
	archive_newest_epoch(db, id, out->epoch);
	/* As the model says who is online. */
	out->open_ms = INT64_MAX;
	if (left || now_ms - last >= MODEL_ONLINE_MS)
		out->open_ms = last < now_ms ? last : now_ms;
}
