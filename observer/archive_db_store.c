#include "observer/archive_db_part.h"

#include <string.h>

#include <sqlite3.h>

#include "observer/acp.h"
#include "observer/model.h"
#include "wire/frame/observer_event.h"
#include "wire/host/db.h"
#include "wire/host/loop.h"

#define COMPRESSION 3 /* zstd's default: 64 KiB in under a millisecond */

static int64_t agent_ensure(struct archive_db *db, const uint8_t *agent, struct err *err)
{
	struct sqlite3_stmt *statement = archive_sql_begin(db, AGENT_ADD);
	int64_t id;

	db_bind_blob(statement, 1, (struct slice){(const char *)agent, KEY_BYTES});
	if (!archive_sql_run(db, statement, "keep an agent", err))
		return 0;
	id = archive_find_agent(db, agent);
	if (!id)
		(void)db_fail(db->db, err, "find an agent");
	return id;
}

static bool compress_text(struct archive_db *db, struct slice text, struct err *err)
{
	const size_t bound = ZSTD_compressBound(text.len);
	size_t len;

	buf_clear(&db->scratch);
	if (!buf_reserve(&db->scratch, bound))
		return err_set(err, ERR_TOO_LARGE, "record of %zu bytes", text.len);
	len = ZSTD_compressCCtx(db->compress, db->scratch.ptr, bound, text.ptr, text.len,
				COMPRESSION);
	if (ZSTD_isError(len))
		return err_set(err, ERR_SYSTEM, "cannot compress: %s",
			       ZSTD_getErrorName(len));
	db->scratch.len = len;
	return true;
}

static bool add_event(struct archive_db *db, int64_t agent, int64_t frame,
		      const char *epoch, int64_t received_ms, struct slice plaintext,
		      const struct observer_event *event, struct err *err)
{
	struct sqlite3_stmt *statement;
	struct buf channel = {0}, turn = {0}, kind = {0};
	int64_t unix_ms;
	struct pos pos;
	bool ok;

	/* They make no row: their frame is kept, that is enough. */
	if (fold_ignores(event->kind) || !model_place(epoch, event, &pos, &unix_ms))
		return true;
	acp_set_text(&channel, event->channel_id, ROW_SHORT_MAX);
	acp_set_text(&turn, event->turn_id, ROW_SHORT_MAX);
	acp_set_text(&kind, event->kind, ROW_SHORT_MAX);
	statement = archive_sql_begin(db, EVENT_ADD);
	(void)sqlite3_bind_int64(statement, 1, frame);
	(void)sqlite3_bind_int64(statement, 2, event->text.ptr - plaintext.ptr);
	(void)sqlite3_bind_int64(statement, 3, (int64_t)event->text.len);
	(void)sqlite3_bind_int64(statement, 4, agent);
	db_bind_text(statement, 5, channel.len ? buf_slice(&channel) : SLICE(""));
	db_bind_text(statement, 6, slice_of(epoch));
	db_bind_text(statement, 7, slice_of(pos.epoch));
	(void)sqlite3_bind_int64(statement, 8, (int64_t)pos.seq);
	db_bind_text(statement, 9, turn.len ? buf_slice(&turn) : SLICE_EMPTY);
	db_bind_text(statement, 10, kind.len ? buf_slice(&kind) : SLICE(""));
	(void)sqlite3_bind_int64(statement, 11, unix_ms);
	ok = archive_sql_run(db, statement, "keep an event", err);
	if (ok) {
		statement = archive_sql_begin(db, LANE_TOUCH);
		(void)sqlite3_bind_int64(statement, 1, agent);
		db_bind_text(statement, 2, channel.len ? buf_slice(&channel) : SLICE(""));
		(void)sqlite3_bind_int64(statement, 3, unix_ms);
		ok = archive_sql_run(db, statement, "keep a lane", err);
	}
	if (ok) {
		const struct search_segment segment =
			archive_segment_of(db, agent, epoch, &pos,
					   channel.len ? buf_slice(&channel) : SLICE(""),
					   turn.len ? buf_slice(&turn) : SLICE_EMPTY);

		ok = search_touch(db->search, &segment, received_ms, err);
	}
	buf_finish(&channel);
	buf_finish(&turn);
	buf_finish(&kind);
	return ok;
}

static bool add_gone(struct archive_db *db, int64_t agent, const char *epoch,
		     const struct gone_range *gone, struct err *err)
{
	struct sqlite3_stmt *statement = archive_sql_begin(db, GONE_ADD);

	(void)sqlite3_bind_int64(statement, 1, agent);
	db_bind_text(statement, 2, slice_of(epoch));
	(void)sqlite3_bind_int64(statement, 3, (int64_t)gone->range.first);
	(void)sqlite3_bind_int64(statement, 4, (int64_t)gone->range.last);
	db_bind_text(statement, 5, slice_of(gone_why_name(gone->why)));
	return archive_sql_run(db, statement, "keep a gap", err);
}

/* A frame came after all: what is left of the range that it was in. */
static bool take_from_gone(struct archive_db *db, int64_t agent, const char *epoch,
			   uint64_t number, struct err *err)
{
	struct sqlite3_stmt *statement = archive_sql_begin(db, GONE_TAKE);
	struct gone_range before, behind;
	bool found;

	(void)sqlite3_bind_int64(statement, 1, agent);
	db_bind_text(statement, 2, slice_of(epoch));
	(void)sqlite3_bind_int64(statement, 3, (int64_t)number);
	found = sqlite3_step(statement) == SQLITE_ROW;
	if (found) {
		before.range.first = (uint64_t)sqlite3_column_int64(statement, 0);
		before.range.last = number - 1;
		before.why = gone_why_parse(db_column_text(statement, 2));
		behind = before;
		behind.range.first = number + 1;
		behind.range.last = (uint64_t)sqlite3_column_int64(statement, 1);
	}
	(void)sqlite3_reset(statement);
	if (!found)
		return true;
	return (before.range.first > before.range.last ||
		add_gone(db, agent, epoch, &before, err)) &&
	       (behind.range.first > behind.range.last ||
		add_gone(db, agent, epoch, &behind, err));
}

static struct sqlite3_stmt *begin_known(struct archive_db *db,
					enum archive_statement which, int64_t agent,
					const char *epoch, int64_t number)
{
	struct sqlite3_stmt *statement = archive_sql_begin(db, which);

	(void)sqlite3_bind_int64(statement, 1, agent);
	db_bind_text(statement, 2, slice_of(epoch));
	(void)sqlite3_bind_int64(statement, 3, number);
	return statement;
}

/* A frame is here: its number joins those beside it, and stays when it is let go. */
static bool add_known(struct archive_db *db, int64_t agent, const char *epoch,
		      uint64_t number, struct err *err)
{
	int64_t first = (int64_t)number, last = first;
	struct sqlite3_stmt *statement =
		begin_known(db, KNOWN_BELOW, agent, epoch, first);

	if (sqlite3_step(statement) == SQLITE_ROW &&
	    sqlite3_column_int64(statement, 1) >= first - 1)
		first = sqlite3_column_int64(statement, 0);
	(void)sqlite3_reset(statement);
	statement = begin_known(db, KNOWN_TAKE, agent, epoch, last + 1);
	if (sqlite3_step(statement) == SQLITE_ROW)
		last = sqlite3_column_int64(statement, 0);
	(void)sqlite3_reset(statement);
	statement = begin_known(db, KNOWN_ADD, agent, epoch, first);
	(void)sqlite3_bind_int64(statement, 4, last);
	return archive_sql_run(db, statement, "note a frame", err);
}

bool archive_db_frame(struct archive_db *db, const uint8_t *agent, const char *epoch,
		      uint64_t number, int64_t received_ms, struct slice plaintext,
		      struct err *err)
{
	const int64_t agent_id = agent_ensure(db, agent, err);
	struct sqlite3_stmt *statement;
	struct frame frame;
	int64_t frame_id;
	bool ok = true;

	if (!agent_id || !compress_text(db, plaintext, err))
		return false;
	statement = archive_sql_begin(db, FRAME_ADD);
	(void)sqlite3_bind_int64(statement, 1, agent_id);
	db_bind_text(statement, 2, slice_of(epoch));
	if (number)
		(void)sqlite3_bind_int64(statement, 3, (int64_t)number);
	(void)sqlite3_bind_int64(statement, 4, received_ms);
	(void)sqlite3_bind_int64(statement, 5, (int64_t)plaintext.len);
	db_bind_blob(statement, 6, buf_slice(&db->scratch));
	if (!archive_sql_run(db, statement, "keep a frame", err))
		return false;
	if (!sqlite3_changes(db->db))
		return true; /* it is here already */
	frame_id = sqlite3_last_insert_rowid(db->db);
	if (number && (!take_from_gone(db, agent_id, epoch, number, err) ||
		       !add_known(db, agent_id, epoch, number, err)))
		return false;
	arena_reset(&db->arena);
	ok = frame_parse(plaintext, &db->arena, &frame, err);
	for (size_t i = 0; ok && i < frame.event_count; i++)
		ok = add_event(db, agent_id, frame_id, epoch, received_ms, plaintext,
			       &frame.events[i], err);
	return ok;
}

/* What its event says is longer now. */
static bool touch_body(struct archive_db *db, int64_t agent, const char *epoch,
		       uint64_t seq, struct err *err)
{
	struct sqlite3_stmt *statement = archive_sql_begin(db, BODY_EVENT);
	struct search_segment segment;
	char of[17];
	bool ok = true;

	(void)sqlite3_bind_int64(statement, 1, agent);
	db_bind_text(statement, 2, slice_of(epoch));
	(void)sqlite3_bind_int64(statement, 3, (int64_t)seq);
	if (sqlite3_step(statement) == SQLITE_ROW &&
	    archive_segment_at(db, statement, of, &segment))
		ok = search_touch(db->search, &segment, loop_unix_ms(), err);
	(void)sqlite3_reset(statement);
	return ok;
}

bool archive_db_body(struct archive_db *db, const uint8_t *agent, const char *epoch,
		     uint64_t seq, struct slice text, struct err *err)
{
	const int64_t agent_id = agent_ensure(db, agent, err);
	struct sqlite3_stmt *statement;

	if (!agent_id || !compress_text(db, text, err))
		return false;
	statement = archive_sql_begin(db, BODY_ADD);
	(void)sqlite3_bind_int64(statement, 1, agent_id);
	db_bind_text(statement, 2, slice_of(epoch));
	(void)sqlite3_bind_int64(statement, 3, (int64_t)seq);
	(void)sqlite3_bind_int64(statement, 4, (int64_t)text.len);
	db_bind_blob(statement, 5, buf_slice(&db->scratch));
	return archive_sql_run(db, statement, "keep a body", err) &&
	       touch_body(db, agent_id, epoch, seq, err);
}

bool archive_db_gone(struct archive_db *db, const uint8_t *agent, const char *epoch,
		     struct gone_range gone, struct err *err)
{
	const int64_t agent_id = agent_ensure(db, agent, err);

	return agent_id && add_gone(db, agent_id, epoch, &gone, err);
}
