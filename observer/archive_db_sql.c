#include "observer/archive_db_part.h"

#include <string.h>

#include <sqlite3.h>

#include "wire/host/db.h"

const char *const archive_migrations[] = {
	"CREATE TABLE agent(id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE);"
	"CREATE TABLE frame(id INTEGER PRIMARY KEY, agent INTEGER NOT NULL REFERENCES "
	"agent,"
	" epoch TEXT NOT NULL, number INTEGER, received INTEGER NOT NULL,"
	" size INTEGER NOT NULL, body BLOB NOT NULL);"
	"CREATE UNIQUE INDEX frame_number ON frame(agent, epoch, number);"
	"CREATE TABLE event(id INTEGER PRIMARY KEY,"
	" frame INTEGER NOT NULL REFERENCES frame ON DELETE CASCADE,"
	" offset INTEGER NOT NULL, len INTEGER NOT NULL, agent INTEGER NOT NULL,"
	" channel TEXT NOT NULL, epoch TEXT NOT NULL, place TEXT NOT NULL,"
	" seq INTEGER NOT NULL, turn TEXT, kind TEXT NOT NULL, t INTEGER NOT NULL);"
	"CREATE UNIQUE INDEX event_place ON event(agent, channel, place, seq);"
	"CREATE INDEX event_turn ON event(agent, channel, turn, place, seq);"
	"CREATE INDEX event_frame ON event(frame);"
	"CREATE TABLE lane(agent INTEGER NOT NULL REFERENCES agent, channel TEXT NOT "
	"NULL,"
	" newest INTEGER NOT NULL, PRIMARY KEY(agent, channel)) WITHOUT ROWID;"
	"CREATE TABLE body(agent INTEGER NOT NULL REFERENCES agent, epoch TEXT NOT NULL,"
	" seq INTEGER NOT NULL, size INTEGER NOT NULL, text BLOB NOT NULL,"
	" PRIMARY KEY(agent, epoch, seq));"
	"CREATE TABLE gone(agent INTEGER NOT NULL REFERENCES agent, epoch TEXT NOT NULL,"
	" first INTEGER NOT NULL, last INTEGER NOT NULL, PRIMARY KEY(agent, epoch, "
	"first));",
	/* Retention: what each agent has, which frames are oldest, what was let go. */
	"ALTER TABLE agent ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;"
	"UPDATE agent SET bytes = (SELECT coalesce(sum(length(body)), 0) FROM frame"
	" WHERE agent = agent.id);"
	"CREATE TRIGGER frame_in AFTER INSERT ON frame BEGIN"
	" UPDATE agent SET bytes = bytes + length(NEW.body) WHERE id = NEW.agent; END;"
	"CREATE TRIGGER frame_out AFTER DELETE ON frame BEGIN"
	" UPDATE agent SET bytes = bytes - length(OLD.body) WHERE id = OLD.agent; END;"
	"CREATE INDEX frame_received ON frame(received);"
	"CREATE TABLE forgotten(agent INTEGER NOT NULL REFERENCES agent,"
	" epoch TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,"
	" PRIMARY KEY(agent, epoch, first)) WITHOUT ROWID;",
	"ALTER TABLE gone ADD COLUMN why TEXT NOT NULL DEFAULT '';",
	SEARCH_SCHEMA,
	/* Which frames are here, or were, in ranges: a start reads as many as there are
	 * holes, however old the archive is. */
	"CREATE TABLE known(agent INTEGER NOT NULL REFERENCES agent,"
	" epoch TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,"
	" PRIMARY KEY(agent, epoch, first)) WITHOUT ROWID;"
	"INSERT INTO known SELECT agent, epoch, min(number), max(number) FROM"
	" (SELECT agent, epoch, number, number - row_number() OVER"
	" (PARTITION BY agent, epoch ORDER BY number) AS island FROM frame"
	" WHERE number IS NOT NULL) GROUP BY agent, epoch, island;"
	"INSERT INTO known SELECT agent, epoch, first, last FROM forgotten WHERE true"
	" ON CONFLICT DO UPDATE SET last = max(last, excluded.last);"
	"DROP TABLE forgotten;",
	NULL,
};

static const char *const sql[ARCHIVE_STATEMENTS] = {
	[AGENT_ADD] = "INSERT OR IGNORE INTO agent(key) VALUES(?1)",
	[AGENT_FIND] = "SELECT id FROM agent WHERE key = ?1",
	[FRAME_ADD] =
		"INSERT OR IGNORE INTO frame(agent, epoch, number, received, size, body)"
		" VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
	[FRAME_GET] = "SELECT size, body FROM frame WHERE id = ?1",
	[EVENT_ADD] =
		"INSERT OR IGNORE INTO event(frame, offset, len, agent, channel, epoch,"
		" place, seq, turn, kind, t)"
		" VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
	[LANE_TOUCH] = "INSERT INTO lane(agent, channel, newest) VALUES(?1, ?2, ?3)"
		       " ON CONFLICT DO UPDATE SET newest = max(newest, excluded.newest)",
	[BODY_ADD] = "INSERT OR REPLACE INTO body(agent, epoch, seq, size, text)"
		     " VALUES(?1, ?2, ?3, ?4, ?5)",
	[BODY_GET] = "SELECT size, text FROM body WHERE agent = ?1 AND epoch = ?2 AND "
		     "seq = ?3",
	[GONE_ADD] = "INSERT OR REPLACE INTO gone(agent, epoch, first, last, why)"
		     " VALUES(?1, ?2, ?3, ?4, ?5)",
	[GONE_TAKE] = "DELETE FROM gone WHERE agent = ?1 AND epoch = ?2 AND first ="
		      " (SELECT max(first) FROM gone WHERE agent = ?1 AND epoch = ?2"
		      " AND first <= ?3) AND last >= ?3 RETURNING first, last, why",
	[SCAN_BACK] = "SELECT place, seq, epoch, turn FROM event WHERE agent = ?1 AND"
		      " channel = ?2 AND (place, seq) < (?3, ?4)"
		      " ORDER BY place DESC, seq DESC LIMIT ?5",
	[TURN_EVENTS] =
		"SELECT frame, offset, len, place, seq FROM event WHERE agent = ?1 AND"
		" channel = ?2 AND turn = ?6 AND epoch = ?3 AND (place, seq) >= (?4, ?5)"
		" ORDER BY place, seq",
	[STRETCH_EVENTS] =
		"SELECT frame, offset, len, place, seq FROM event WHERE agent = ?1"
		" AND channel = ?2 AND epoch = ?3 AND turn IS NULL AND"
		" (place, seq) >= (?4, ?5) AND (place, seq) < (?6, ?7)"
		" ORDER BY place, seq",
	[OWN_EPOCHS] =
		"SELECT DISTINCT epoch FROM event WHERE agent = ?1 AND channel = '' AND"
		" place >= ?2 AND place <= ?3 ORDER BY epoch DESC LIMIT 64",
	[NEWEST_EPOCH] = "SELECT max(epoch) FROM frame WHERE agent = ?1",
	[EVENT_GET] =
		"SELECT e.frame, e.offset, e.len, e.place, e.seq FROM lane l JOIN event e"
		" ON e.agent = l.agent AND e.channel = l.channel AND e.place = ?2 AND"
		" e.seq = ?3 WHERE l.agent = ?1",
	[RAW_EVENTS] =
		"SELECT frame, offset, len, place, seq, t FROM event WHERE agent = ?1"
		" AND channel = ?2 AND (place, seq) >= (?3, ?4) AND (place, seq) < (?5, "
		"?6) ORDER BY place, seq LIMIT ?7",
	[OLDEST] = "SELECT id, agent, epoch FROM frame WHERE received < ?1"
		   " ORDER BY received LIMIT ?2",
	[OLDEST_OF_LARGEST] = "SELECT id, agent, epoch FROM frame WHERE agent ="
			      " (SELECT id FROM agent ORDER BY bytes DESC LIMIT 1)"
			      " ORDER BY epoch, number LIMIT ?2",
	[FRAME_BODIES_DROP] =
		"DELETE FROM body WHERE agent = ?2 AND epoch = ?3 AND seq IN"
		" (SELECT seq FROM event WHERE frame = ?1)",
	[FRAME_DROP] = "DELETE FROM frame WHERE id = ?1",
	[KNOWN_BELOW] = "SELECT first, last FROM known WHERE agent = ?1 AND epoch = ?2"
			" AND first <= ?3 ORDER BY first DESC LIMIT 1",
	[KNOWN_TAKE] = "DELETE FROM known WHERE agent = ?1 AND epoch = ?2 AND"
		       " first = ?3 RETURNING last",
	[KNOWN_ADD] = "INSERT INTO known(agent, epoch, first, last)"
		      " VALUES(?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET"
		      " last = max(last, excluded.last)",
	[FORGET_FRAMES] =
		"SELECT f.id, f.agent, f.epoch FROM frame f WHERE f.agent = ?1"
		" AND (?3 IS NULL OR (EXISTS (SELECT 1 FROM event e WHERE e.frame = f.id"
		" AND e.channel = ?3) AND NOT EXISTS (SELECT 1 FROM event e WHERE"
		" e.frame = f.id AND e.channel <> ?3)))"
		" AND NOT EXISTS (SELECT 1 FROM event e WHERE e.frame = f.id AND"
		" e.t >= ?4) AND (?4 = 9223372036854775807 OR EXISTS (SELECT 1 FROM"
		" event e WHERE e.frame = f.id) OR f.received < ?4) LIMIT ?2",
	[PAGES] = "SELECT (SELECT page_count FROM pragma_page_count()) -"
		  " (SELECT freelist_count FROM pragma_freelist_count()),"
		  " (SELECT page_size FROM pragma_page_size())",
	[FRAME_BYTES] = "SELECT coalesce(sum(bytes), 0) FROM agent",
	[WALK] = "SELECT id, agent, channel, epoch, place, seq, turn FROM event"
		 " WHERE id <= ?1 ORDER BY id DESC LIMIT ?2",
	[FRAME_EVENTS] = "SELECT id, agent, channel, epoch, place, seq, turn FROM event"
			 " WHERE frame = ?1",
	/* A channel that it serves no more was named by an older start. */
	[NAMES] = "SELECT frame, offset, len, place, seq FROM event WHERE agent = ?1 AND"
		  " channel = '' AND kind = 'harness_started'"
		  " ORDER BY place DESC, seq DESC LIMIT 16",
	[LAST_FRAME] = "SELECT size, body FROM frame WHERE agent = ?1"
		       " ORDER BY epoch DESC, number DESC, id DESC LIMIT 1",
	[LAST_EVENT] = "SELECT max(newest) FROM lane WHERE agent = ?1",
	/* What its harness said last of its own coming or going. */
	[LAST_WORD] = "SELECT kind FROM event WHERE agent = ?1 AND channel = '' AND kind"
		      " IN ('harness_started', 'harness_stopping', 'agent_panic')"
		      " ORDER BY place DESC, seq DESC LIMIT 1",
	[BODY_EVENT] =
		"SELECT e.id, e.agent, e.channel, e.epoch, e.place, e.seq, e.turn FROM"
		" lane l JOIN event e ON e.agent = l.agent AND e.channel = l.channel AND"
		" e.place = ?2 AND e.seq = ?3 WHERE l.agent = ?1",
};

bool archive_sql_prepare(struct archive_db *db, struct err *err)
{
	for (size_t i = 0; i < ARCHIVE_STATEMENTS; i++)
		if (!db_prepare(db->db, sql[i], &db->statements[i], err))
			return false;
	return true;
}

/* After SQLite said no. The index of words has a state of its own and is made again. */
static void note_failure(struct archive_db *db)
{
	const int code = sqlite3_extended_errcode(db->db);

	if (((code & 0xff) == SQLITE_CORRUPT && code != SQLITE_CORRUPT_VTAB) ||
	    (code & 0xff) == SQLITE_NOTADB)
		db->broken = true;
}

bool archive_sql_exec(struct archive_db *db, const char *text, struct err *err)
{
	if (db_exec(db->db, text, err))
		return true;
	note_failure(db);
	return false;
}

struct sqlite3_stmt *archive_sql_begin(struct archive_db *db,
				       enum archive_statement which)
{
	struct sqlite3_stmt *statement = db->statements[which];

	(void)sqlite3_reset(statement);
	(void)sqlite3_clear_bindings(statement);
	return statement;
}

bool archive_sql_run(struct archive_db *db, struct sqlite3_stmt *statement,
		     const char *doing, struct err *err)
{
	const bool ok = sqlite3_step(statement) == SQLITE_DONE;

	if (!ok) {
		note_failure(db);
		(void)db_fail(db->db, err, doing);
	}
	(void)sqlite3_reset(statement);
	return ok;
}

bool archive_sql_epoch(struct sqlite3_stmt *statement, int at, char out[17])
{
	const struct slice text = db_column_text(statement, at);

	if (text.len > 16)
		return false;
	if (text.len)
		memcpy(out, text.ptr, text.len);
	out[text.len] = '\0';
	return true;
}

int64_t archive_find_agent(struct archive_db *db, const uint8_t *agent)
{
	struct sqlite3_stmt *statement = archive_sql_begin(db, AGENT_FIND);
	int64_t id = 0;

	db_bind_blob(statement, 1, (struct slice){(const char *)agent, KEY_BYTES});
	if (sqlite3_step(statement) == SQLITE_ROW)
		id = sqlite3_column_int64(statement, 0);
	(void)sqlite3_reset(statement);
	return id;
}

bool archive_decompress(struct sqlite3_stmt *statement, struct buf *out)
{
	const int64_t size = sqlite3_column_int64(statement, 0);
	const void *blob = sqlite3_column_blob(statement, 1);
	const size_t blob_len = (size_t)sqlite3_column_bytes(statement, 1);
	size_t len;

	buf_clear(out);
	if (size <= 0 || (uint64_t)size > out->max || !buf_reserve(out, (size_t)size))
		return false;
	len = ZSTD_decompress(out->ptr, (size_t)size, blob, blob_len);
	if (ZSTD_isError(len) || len != (size_t)size)
		return false;
	out->len = len;
	return true;
}
