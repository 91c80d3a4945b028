#include "observer/archive_db.h"

#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>
#include <zstd.h>

#include "observer/acp.h"
#include "observer/fold.h"
#include "observer/model.h"
#include "wire/base/map.h"
#include "wire/base/mem.h"
#include "wire/frame/observer_event.h"
#include "wire/host/db.h"

#define COMPRESSION 3             /* zstd's default: 64 KiB in under a millisecond */
#define BODY_BYTES_MAX (8u << 20) /* design §11: bodies 8 MiB each */
#define SCAN_EVENTS 512           /* events looked back over at a time */
#define GROUPS_MAX 4000           /* segments derived for one page of rows; our choice */
#define LOAD_LANES_MAX 256        /* lanes that a start knows again, newest first */
#define LOAD_EVENTS 300           /* newest events of each */

static const char *const migrations[] = {
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
	NULL,
};

enum statement {
	AGENT_ADD,
	AGENT_FIND,
	FRAME_ADD,
	FRAME_GET,
	EVENT_ADD,
	LANE_TOUCH,
	BODY_ADD,
	BODY_GET,
	GONE_ADD,
	SCAN_BACK,
	TURN_EVENTS,
	STRETCH_EVENTS,
	OWN_EPOCHS,
	NEWEST_EPOCH,
	EVENT_GET,
	OLDEST,
	OLDEST_OF_LARGEST,
	FRAME_BODIES_DROP,
	FRAME_DROP,
	FORGET_JOIN,
	FORGET_TAKE,
	FORGET_ADD,
	FORGET_FRAMES,
	PAGES,
	STATEMENTS,
};

static const char *const sql[STATEMENTS] = {
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
	[GONE_ADD] = "INSERT OR REPLACE INTO gone(agent, epoch, first, last)"
		     " VALUES(?1, ?2, ?3, ?4)",
	[SCAN_BACK] = "SELECT place, seq, epoch, turn FROM event WHERE agent = ?1 AND"
		      " channel = ?2 AND (place, seq) < (?3, ?4)"
		      " ORDER BY place DESC, seq DESC LIMIT ?5",
	[TURN_EVENTS] =
		"SELECT frame, offset, len, place, seq FROM event WHERE agent = ?1 AND"
		" channel = ?2 AND turn = ?4 AND epoch = ?3 ORDER BY place, seq",
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
	[OLDEST] = "SELECT id, agent, epoch, number FROM frame WHERE received < ?1"
		   " ORDER BY received LIMIT ?2",
	[OLDEST_OF_LARGEST] = "SELECT id, agent, epoch, number FROM frame WHERE agent ="
			      " (SELECT id FROM agent ORDER BY bytes DESC LIMIT 1)"
			      " ORDER BY epoch, number LIMIT ?2",
	[FRAME_BODIES_DROP] =
		"DELETE FROM body WHERE agent = ?2 AND epoch = ?3 AND seq IN"
		" (SELECT seq FROM event WHERE frame = ?1)",
	[FRAME_DROP] = "DELETE FROM frame WHERE id = ?1",
	[FORGET_JOIN] = "SELECT first FROM forgotten WHERE agent = ?1 AND epoch = ?2 AND"
			" first <= ?3 AND last >= ?3 - 1 ORDER BY first DESC LIMIT 1",
	[FORGET_TAKE] = "DELETE FROM forgotten WHERE agent = ?1 AND epoch = ?2 AND"
			" first = ?3 + 1 RETURNING last",
	[FORGET_ADD] = "INSERT INTO forgotten(agent, epoch, first, last)"
		       " VALUES(?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET"
		       " last = max(last, excluded.last)",
	[FORGET_FRAMES] =
		"SELECT f.id, f.agent, f.epoch, f.number FROM frame f WHERE f.agent = ?1"
		" AND (?3 IS NULL OR (EXISTS (SELECT 1 FROM event e WHERE e.frame = f.id"
		" AND e.channel = ?3) AND NOT EXISTS (SELECT 1 FROM event e WHERE"
		" e.frame = f.id AND e.channel <> ?3)))"
		" AND NOT EXISTS (SELECT 1 FROM event e WHERE e.frame = f.id AND"
		" e.t >= ?4) AND (?4 = 9223372036854775807 OR EXISTS (SELECT 1 FROM"
		" event e WHERE e.frame = f.id) OR f.received < ?4) LIMIT ?2",
	[PAGES] = "SELECT (SELECT page_count FROM pragma_page_count()) -"
		  " (SELECT freelist_count FROM pragma_freelist_count()),"
		  " (SELECT page_size FROM pragma_page_size())",
};

struct archive_db {
	struct sqlite3 *db;
	struct sqlite3_stmt *statements[STATEMENTS];
	ZSTD_CCtx *compress;
	struct arena arena;
	struct buf scratch; /* compressed */
	int64_t frame_id;   /* whose plaintext @frame holds; 0: none */
	struct buf frame;
	struct buf whole; /* a fetched body */
};

struct archive_db *archive_db_open(const char *path, struct err *err)
{
	struct archive_db *db = mem_alloc(sizeof(*db));

	arena_init(&db->arena, 1u << 16);
	db->scratch.max = ZSTD_compressBound(BODY_BYTES_MAX);
	db->frame.max = FRAME_PLAINTEXT_MAX * 2;
	db->whole.max = BODY_BYTES_MAX;
	db->compress = ZSTD_createCCtx();
	if (!db->compress) {
		(void)err_set(err, ERR_SYSTEM, "no memory for compression");
		archive_db_close(db);
		return NULL;
	}
	if (!db_open(path, migrations, &db->db, err)) {
		archive_db_close(db);
		return NULL;
	}
	for (size_t i = 0; i < STATEMENTS; i++) {
		if (!db_prepare(db->db, sql[i], &db->statements[i], err)) {
			archive_db_close(db);
			return NULL;
		}
	}
	return db;
}

void archive_db_close(struct archive_db *db)
{
	if (!db)
		return;
	for (size_t i = 0; i < STATEMENTS; i++)
		(void)sqlite3_finalize(db->statements[i]);
	if (db->db)
		db_close(db->db);
	(void)ZSTD_freeCCtx(db->compress);
	arena_finish(&db->arena);
	buf_finish(&db->scratch);
	buf_wipe(&db->frame);
	buf_wipe(&db->whole);
	free(db);
}

bool archive_db_begin(struct archive_db *db, struct err *err)
{
	return db_exec(db->db, "BEGIN IMMEDIATE", err);
}

bool archive_db_commit(struct archive_db *db, struct err *err)
{
	if (db_exec(db->db, "COMMIT", err))
		return true;
	(void)db_exec(db->db, "ROLLBACK", NULL);
	return false;
}

/* ---- binding and reading ---- */

static struct sqlite3_stmt *begin(struct archive_db *db, enum statement which)
{
	struct sqlite3_stmt *statement = db->statements[which];

	(void)sqlite3_reset(statement);
	(void)sqlite3_clear_bindings(statement);
	return statement;
}

/* SQLITE_STATIC: what is bound outlives the steps that use it. */
static void bind_text(struct sqlite3_stmt *statement, int at, struct slice text)
{
	if (text.ptr)
		(void)sqlite3_bind_text64(statement, at, text.ptr, text.len,
					  SQLITE_STATIC, SQLITE_UTF8);
	else
		(void)sqlite3_bind_null(statement, at);
}

static void bind_blob(struct sqlite3_stmt *statement, int at, struct slice bytes)
{
	(void)sqlite3_bind_blob64(statement, at, bytes.ptr, bytes.len, SQLITE_STATIC);
}

static bool run(struct archive_db *db, struct sqlite3_stmt *statement, const char *doing,
		struct err *err)
{
	const int status = sqlite3_step(statement);

	(void)sqlite3_reset(statement);
	return status == SQLITE_DONE || db_fail(db->db, err, doing);
}

static struct slice column_text(struct sqlite3_stmt *statement, int at)
{
	const unsigned char *text = sqlite3_column_text(statement, at);

	if (!text)
		return SLICE_EMPTY;
	return (struct slice){(const char *)text,
			      (size_t)sqlite3_column_bytes(statement, at)};
}

static bool column_epoch(struct sqlite3_stmt *statement, int at, char out[17])
{
	const struct slice text = column_text(statement, at);

	if (text.len > 16)
		return false;
	if (text.len)
		memcpy(out, text.ptr, text.len);
	out[text.len] = '\0';
	return true;
}

/* The agent's number; 0 when it is not known. */
static int64_t agent_find(struct archive_db *db, const uint8_t *agent)
{
	struct sqlite3_stmt *statement = begin(db, AGENT_FIND);
	int64_t id = 0;

	bind_blob(statement, 1, (struct slice){(const char *)agent, KEY_BYTES});
	if (sqlite3_step(statement) == SQLITE_ROW)
		id = sqlite3_column_int64(statement, 0);
	(void)sqlite3_reset(statement);
	return id;
}

static int64_t agent_ensure(struct archive_db *db, const uint8_t *agent, struct err *err)
{
	struct sqlite3_stmt *statement = begin(db, AGENT_ADD);
	int64_t id;

	bind_blob(statement, 1, (struct slice){(const char *)agent, KEY_BYTES});
	if (!run(db, statement, "keep an agent", err))
		return 0;
	id = agent_find(db, agent);
	if (!id)
		(void)db_fail(db->db, err, "find an agent");
	return id;
}

static bool compress(struct archive_db *db, struct slice text, struct err *err)
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

/* From columns (size, blob) of the current row. */
static bool decompress(struct sqlite3_stmt *statement, struct buf *out)
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

/* ---- storing ---- */

static bool add_event(struct archive_db *db, int64_t agent, int64_t frame,
		      const char *epoch, struct slice plaintext,
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
	statement = begin(db, EVENT_ADD);
	(void)sqlite3_bind_int64(statement, 1, frame);
	(void)sqlite3_bind_int64(statement, 2, event->text.ptr - plaintext.ptr);
	(void)sqlite3_bind_int64(statement, 3, (int64_t)event->text.len);
	(void)sqlite3_bind_int64(statement, 4, agent);
	bind_text(statement, 5, channel.len ? buf_slice(&channel) : SLICE(""));
	bind_text(statement, 6, slice_of(epoch));
	bind_text(statement, 7, slice_of(pos.epoch));
	(void)sqlite3_bind_int64(statement, 8, (int64_t)pos.seq);
	bind_text(statement, 9, turn.len ? buf_slice(&turn) : SLICE_EMPTY);
	bind_text(statement, 10, kind.len ? buf_slice(&kind) : SLICE(""));
	(void)sqlite3_bind_int64(statement, 11, unix_ms);
	ok = run(db, statement, "keep an event", err);
	if (ok) {
		statement = begin(db, LANE_TOUCH);
		(void)sqlite3_bind_int64(statement, 1, agent);
		bind_text(statement, 2, channel.len ? buf_slice(&channel) : SLICE(""));
		(void)sqlite3_bind_int64(statement, 3, unix_ms);
		ok = run(db, statement, "keep a lane", err);
	}
	buf_finish(&channel);
	buf_finish(&turn);
	buf_finish(&kind);
	return ok;
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

	if (!agent_id || !compress(db, plaintext, err))
		return false;
	statement = begin(db, FRAME_ADD);
	(void)sqlite3_bind_int64(statement, 1, agent_id);
	bind_text(statement, 2, slice_of(epoch));
	if (number)
		(void)sqlite3_bind_int64(statement, 3, (int64_t)number);
	(void)sqlite3_bind_int64(statement, 4, received_ms);
	(void)sqlite3_bind_int64(statement, 5, (int64_t)plaintext.len);
	bind_blob(statement, 6, buf_slice(&db->scratch));
	if (!run(db, statement, "keep a frame", err))
		return false;
	if (!sqlite3_changes(db->db))
		return true; /* it is here already */
	frame_id = sqlite3_last_insert_rowid(db->db);
	arena_reset(&db->arena);
	ok = frame_parse(plaintext, &db->arena, &frame, err);
	for (size_t i = 0; ok && i < frame.event_count; i++)
		ok = add_event(db, agent_id, frame_id, epoch, plaintext, &frame.events[i],
			       err);
	return ok;
}

bool archive_db_body(struct archive_db *db, const uint8_t *agent, const char *epoch,
		     uint64_t seq, struct slice text, struct err *err)
{
	const int64_t agent_id = agent_ensure(db, agent, err);
	struct sqlite3_stmt *statement;

	if (!agent_id || !compress(db, text, err))
		return false;
	statement = begin(db, BODY_ADD);
	(void)sqlite3_bind_int64(statement, 1, agent_id);
	bind_text(statement, 2, slice_of(epoch));
	(void)sqlite3_bind_int64(statement, 3, (int64_t)seq);
	(void)sqlite3_bind_int64(statement, 4, (int64_t)text.len);
	bind_blob(statement, 5, buf_slice(&db->scratch));
	return run(db, statement, "keep a body", err);
}

bool archive_db_gone(struct archive_db *db, const uint8_t *agent, const char *epoch,
		     struct frame_range range, struct err *err)
{
	const int64_t agent_id = agent_ensure(db, agent, err);
	struct sqlite3_stmt *statement = begin(db, GONE_ADD);

	if (!agent_id)
		return false;
	(void)sqlite3_bind_int64(statement, 1, agent_id);
	bind_text(statement, 2, slice_of(epoch));
	(void)sqlite3_bind_int64(statement, 3, (int64_t)range.first);
	(void)sqlite3_bind_int64(statement, 4, (int64_t)range.last);
	return run(db, statement, "keep a gap", err);
}

/* ---- letting go ---- */

#define TRIM_FRAMES 64 /* at a time: some milliseconds; our choice */
#define VACUUM_PAGES "64"

struct leaving {
	int64_t frame, agent;
	uint64_t number; /* 0: of a foreign feed */
	char epoch[17];
};

/* Its number is kept, joined with those beside it. */
static bool remember_number(struct archive_db *db, const struct leaving *leaving,
			    struct err *err)
{
	int64_t first = (int64_t)leaving->number, last = first;
	struct sqlite3_stmt *statement = begin(db, FORGET_TAKE);

	(void)sqlite3_bind_int64(statement, 1, leaving->agent);
	bind_text(statement, 2, slice_of(leaving->epoch));
	(void)sqlite3_bind_int64(statement, 3, last);
	if (sqlite3_step(statement) == SQLITE_ROW)
		last = sqlite3_column_int64(statement, 0);
	(void)sqlite3_reset(statement);
	statement = begin(db, FORGET_JOIN);
	(void)sqlite3_bind_int64(statement, 1, leaving->agent);
	bind_text(statement, 2, slice_of(leaving->epoch));
	(void)sqlite3_bind_int64(statement, 3, first);
	if (sqlite3_step(statement) == SQLITE_ROW)
		first = sqlite3_column_int64(statement, 0);
	(void)sqlite3_reset(statement);
	statement = begin(db, FORGET_ADD);
	(void)sqlite3_bind_int64(statement, 1, leaving->agent);
	bind_text(statement, 2, slice_of(leaving->epoch));
	(void)sqlite3_bind_int64(statement, 3, first);
	(void)sqlite3_bind_int64(statement, 4, last);
	return run(db, statement, "remember what was let go", err);
}

static bool drop_frame(struct archive_db *db, const struct leaving *leaving,
		       struct err *err)
{
	struct sqlite3_stmt *statement = begin(db, FRAME_BODIES_DROP);

	(void)sqlite3_bind_int64(statement, 1, leaving->frame);
	(void)sqlite3_bind_int64(statement, 2, leaving->agent);
	bind_text(statement, 3, slice_of(leaving->epoch));
	if (!run(db, statement, "let a body go", err))
		return false;
	statement = begin(db, FRAME_DROP);
	(void)sqlite3_bind_int64(statement, 1, leaving->frame);
	if (db->frame_id == leaving->frame)
		db->frame_id = 0;
	return run(db, statement, "let a frame go", err) &&
	       (!leaving->number || remember_number(db, leaving, err));
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
		leaving[count].number = (uint64_t)sqlite3_column_int64(statement, 3);
		count += column_epoch(statement, 2, leaving[count].epoch);
	}
	(void)sqlite3_reset(statement);
	if (!count)
		return 0;
	if (!archive_db_begin(db, err))
		return -1;
	for (int i = 0; i < count; i++) {
		if (!drop_frame(db, &leaving[i], err)) {
			(void)db_exec(db->db, "ROLLBACK", NULL);
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
	struct sqlite3_stmt *statement = begin(db, PAGES);
	int64_t bytes = 0;

	if (sqlite3_step(statement) == SQLITE_ROW)
		bytes = sqlite3_column_int64(statement, 0) *
			sqlite3_column_int64(statement, 1);
	(void)sqlite3_reset(statement);
	return bytes;
}

bool archive_db_trim(struct archive_db *db, const struct archive_keep *keep,
		     int64_t now_ms, bool *more_out, struct err *err)
{
	struct sqlite3_stmt *statement;
	int count = 0;

	if (keep->age_ms) {
		statement = begin(db, OLDEST);
		(void)sqlite3_bind_int64(statement, 1, now_ms - keep->age_ms);
		count = drop_found(db, statement, err);
	}
	if (!count && keep->bytes && used_bytes(db) > keep->bytes)
		count = drop_found(db, begin(db, OLDEST_OF_LARGEST), err);
	*more_out = count > 0;
	return count >= 0;
}

bool archive_db_forget(struct archive_db *db, const uint8_t *agent, struct slice channel,
		       int64_t before_ms, uint64_t *count, bool *more_out,
		       struct err *err)
{
	const int64_t id = agent_find(db, agent);
	struct sqlite3_stmt *statement = begin(db, FORGET_FRAMES);
	int dropped;

	(void)sqlite3_bind_int64(statement, 1, id);
	bind_text(statement, 3, channel);
	(void)sqlite3_bind_int64(statement, 4, before_ms);
	dropped = drop_found(db, statement, err);
	*more_out = dropped > 0;
	if (dropped > 0)
		*count += (uint64_t)dropped;
	return dropped >= 0;
}

/* ---- reading events ---- */

/* The text of the event in columns (frame, offset, len, place, seq) of the current row:
 * as fetched whole where that was done. Lives until the next call. */
static bool event_text(struct archive_db *db, int64_t agent, struct sqlite3_stmt *at,
		       struct slice *out)
{
	const int64_t frame = sqlite3_column_int64(at, 0);
	const uint64_t offset = (uint64_t)sqlite3_column_int64(at, 1);
	const uint64_t len = (uint64_t)sqlite3_column_int64(at, 2);
	struct sqlite3_stmt *statement = begin(db, BODY_GET);
	bool whole = false;

	(void)sqlite3_bind_int64(statement, 1, agent);
	bind_text(statement, 2, column_text(at, 3));
	(void)sqlite3_bind_int64(statement, 3, sqlite3_column_int64(at, 4));
	if (sqlite3_step(statement) == SQLITE_ROW)
		whole = decompress(statement, &db->whole);
	(void)sqlite3_reset(statement);
	if (whole) {
		*out = buf_slice(&db->whole);
		return true;
	}
	if (frame != db->frame_id) {
		statement = begin(db, FRAME_GET);
		(void)sqlite3_bind_int64(statement, 1, frame);
		db->frame_id = 0;
		if (sqlite3_step(statement) == SQLITE_ROW &&
		    decompress(statement, &db->frame))
			db->frame_id = frame;
		(void)sqlite3_reset(statement);
	}
	if (db->frame_id != frame || offset + len > db->frame.len)
		return false;
	*out = slice_sub(buf_slice(&db->frame), offset, offset + len);
	return true;
}

/* A segment, named by one of its events. */
struct group {
	struct buf turn;
	struct pos pos;
	char epoch[17];
	bool has_turn;
};

/* The events of a segment, in order. */
static struct sqlite3_stmt *group_events(struct archive_db *db, int64_t agent,
					 struct slice channel, const struct group *group,
					 struct pos range[2])
{
	struct sqlite3_stmt *statement;

	if (group->has_turn) {
		statement = begin(db, TURN_EVENTS);
		bind_text(statement, 4, buf_slice(&group->turn));
	} else {
		statement = begin(db, STRETCH_EVENTS);
		range[0] = range[1] = group->pos;
		if (*group->epoch && channel.len) {
			range[0].seq = group->pos.seq / MODEL_STRETCH * MODEL_STRETCH;
			range[1].seq = range[0].seq + MODEL_STRETCH;
		} else if (*group->epoch) {
			range[0].seq = 0;
			range[1].seq = FRAME_NUMBER_MAX;
		} else {
			const int64_t stretch =
				strtoll(group->pos.epoch, NULL, 16) / MODEL_STRETCH_MS;

			pos_foreign_epoch(stretch * MODEL_STRETCH_MS, range[0].epoch);
			pos_foreign_epoch((stretch + 1) * MODEL_STRETCH_MS,
					  range[1].epoch);
			range[0].seq = range[1].seq = 0;
		}
		bind_text(statement, 4, slice_of(range[0].epoch));
		(void)sqlite3_bind_int64(statement, 5, (int64_t)range[0].seq);
		bind_text(statement, 6, slice_of(range[1].epoch));
		(void)sqlite3_bind_int64(statement, 7, (int64_t)range[1].seq);
	}
	(void)sqlite3_bind_int64(statement, 1, agent);
	bind_text(statement, 2, channel);
	bind_text(statement, 3, slice_of(group->epoch));
	return statement;
}

static void group_tag(const struct group *group, struct slice channel, struct buf *out)
{
	model_segment_tag(group->epoch, &group->pos, channel,
			  group->has_turn ? buf_slice(&group->turn) : SLICE_EMPTY, out);
}

/* ---- rows ---- */

struct page {
	struct archive_db *db;
	int64_t agent;
	const uint8_t *key;
	struct slice channel;
	char newest_epoch[17];
	struct map seen; /* tags of the segments derived */
	struct archive_row *rows;
	size_t count, room;
};

static void page_add(struct page *page, const struct row *row, struct slice turn)
{
	char hex[2 * KEY_BYTES];
	struct buf json = {.max = 32u << 20};
	struct archive_row *out;

	if (!slice_eq(buf_slice(&row->channel), page->channel))
		return;
	if (page->count == page->room) {
		page->room = page->room ? page->room * 2 : 256;
		page->rows = mem_grow(page->rows, page->room, sizeof(*page->rows));
	}
	hex_encode(page->key, KEY_BYTES, hex);
	row_write(row, (struct slice){hex, sizeof(hex)}, turn, &json);
	out = &page->rows[page->count++];
	out->pos = row->pos;
	out->id = mem_dup(buf_slice(&row->id));
	out->id_len = row->id.len;
	out->json = mem_dup(buf_slice(&json));
	out->json_len = json.len;
	buf_finish(&json);
}

/* A segment of @agent, whose newest epoch that is. */
static struct fold *derive(struct archive_db *db, int64_t agent, struct slice channel,
			   const struct group *group, struct slice tag,
			   const char *newest_epoch)
{
	struct fold *fold = fold_create(channel, tag, group->has_turn);
	struct pos range[2];
	struct sqlite3_stmt *statement = group_events(db, agent, channel, group, range);
	struct slice text;

	while (sqlite3_step(statement) == SQLITE_ROW) {
		struct observer_event event;
		int64_t unix_ms;
		struct pos pos;

		if (event_text(db, agent, statement, &text) &&
		    observer_event_parse(text, &event, NULL) &&
		    model_place(group->epoch, &event, &pos, &unix_ms))
			fold_event(fold, &event, &pos, unix_ms, NULL);
	}
	(void)sqlite3_reset(statement);
	if (*group->epoch && strcmp(group->epoch, newest_epoch) < 0)
		fold_end_epoch(fold);
	return fold;
}

static void page_derive(struct page *page, struct slice channel,
			const struct group *group)
{
	struct buf tag = {0};
	struct fold *fold;

	group_tag(group, channel, &tag);
	if (map_get(&page->seen, buf_slice(&tag)) || page->seen.count > GROUPS_MAX) {
		buf_finish(&tag);
		return;
	}
	(void)map_put(&page->seen, buf_slice(&tag), page);
	fold = derive(page->db, page->agent, channel, group, buf_slice(&tag),
		      page->newest_epoch);
	for (size_t i = 0; i < fold->row_count; i++)
		page_add(page, fold->rows[i],
			 group->has_turn ? buf_slice(&group->turn) : SLICE_EMPTY);
	fold_destroy(fold);
	buf_finish(&tag);
}

/* The segments that the SCAN_EVENTS events before @low are of, one for each event; @low
 * moves down to the last of them. */
static size_t scan_groups(struct archive_db *db, int64_t agent, struct slice channel,
			  struct pos *low, struct group groups[SCAN_EVENTS])
{
	struct sqlite3_stmt *statement = begin(db, SCAN_BACK);
	const struct pos from = *low;
	size_t count = 0;

	(void)sqlite3_bind_int64(statement, 1, agent);
	bind_text(statement, 2, channel);
	bind_text(statement, 3, slice_of(from.epoch));
	(void)sqlite3_bind_int64(statement, 4, (int64_t)from.seq);
	(void)sqlite3_bind_int64(statement, 5, SCAN_EVENTS);
	while (count < SCAN_EVENTS && sqlite3_step(statement) == SQLITE_ROW) {
		struct group *group = &groups[count];
		const struct slice turn = column_text(statement, 3);

		if (!column_epoch(statement, 0, group->pos.epoch) ||
		    !column_epoch(statement, 2, group->epoch))
			continue;
		group->pos.seq = (uint64_t)sqlite3_column_int64(statement, 1);
		group->has_turn = turn.ptr != NULL;
		group->turn.max = turn.len + 1;
		(void)buf_append(&group->turn, turn);
		*low = group->pos;
		count++;
	}
	(void)sqlite3_reset(statement);
	return count;
}

/* Derives the segments of the SCAN_EVENTS events before @low, which moves down to the
 * last of them. False when there are no more. */
static bool page_scan(struct page *page, struct pos *low)
{
	struct group *groups = mem_array(SCAN_EVENTS, sizeof(*groups));
	const size_t count =
		scan_groups(page->db, page->agent, page->channel, low, groups);

	for (size_t i = 0; i < count; i++) {
		page_derive(page, page->channel, &groups[i]);
		buf_finish(&groups[i].turn);
	}
	free(groups);
	return count == SCAN_EVENTS;
}

/* What the harness itself did in that time is shown in its lanes too. */
static void page_own(struct page *page, const struct pos *low, const struct pos *high)
{
	struct sqlite3_stmt *statement = begin(page->db, OWN_EPOCHS);
	struct group groups[64];
	size_t count = 0;

	(void)sqlite3_bind_int64(statement, 1, page->agent);
	bind_text(statement, 2, slice_of(low->epoch));
	bind_text(statement, 3, slice_of(high->epoch));
	while (count < 64 && sqlite3_step(statement) == SQLITE_ROW) {
		groups[count] = (struct group){.has_turn = false};
		if (column_epoch(statement, 0, groups[count].epoch) &&
		    *groups[count].epoch)
			count++;
	}
	(void)sqlite3_reset(statement);
	for (size_t i = 0; i < count; i++) {
		memcpy(groups[i].pos.epoch, groups[i].epoch, sizeof(groups[i].epoch));
		page_derive(page, SLICE(""), &groups[i]);
	}
}

static int row_compare(const void *left, const void *right)
{
	const struct archive_row *a = left, *b = right;
	const int order = pos_compare(&a->pos, &b->pos);

	if (order)
		return order;
	return slice_compare((struct slice){a->id, a->id_len},
			     (struct slice){b->id, b->id_len});
}

static size_t page_count(const struct page *page, const struct pos *low,
			 const struct pos *before)
{
	size_t count = 0;

	for (size_t i = 0; i < page->count; i++)
		count += pos_compare(&page->rows[i].pos, low) >= 0 &&
			 pos_compare(&page->rows[i].pos, before) < 0;
	return count;
}

static void row_finish(struct archive_row *row)
{
	free(row->id);
	free(row->json);
}

/* Keeps the newest @limit rows of [low, before). */
static void page_cut(struct page *page, const struct pos *low, const struct pos *before,
		     size_t limit, struct archive_answer *out)
{
	size_t kept = 0, from;

	for (size_t i = 0; i < page->count; i++) {
		if (pos_compare(&page->rows[i].pos, low) >= 0 &&
		    pos_compare(&page->rows[i].pos, before) < 0)
			page->rows[kept++] = page->rows[i];
		else
			row_finish(&page->rows[i]);
	}
	if (kept)
		qsort(page->rows, kept, sizeof(*page->rows), row_compare);
	from = kept > limit ? kept - limit : 0;
	/* Rows of one event stay on one page: the next is asked for by position. */
	while (from && pos_compare(&page->rows[from - 1].pos, &page->rows[from].pos) == 0)
		from--;
	for (size_t i = 0; i < from; i++)
		row_finish(&page->rows[i]);
	if (from)
		memmove(page->rows, page->rows + from,
			(kept - from) * sizeof(*page->rows));
	out->rows = page->rows;
	out->row_count = kept - from;
	out->more = from > 0;
}

static void newest_epoch(struct archive_db *db, int64_t agent, char out[17])
{
	struct sqlite3_stmt *statement = begin(db, NEWEST_EPOCH);

	out[0] = '\0';
	(void)sqlite3_bind_int64(statement, 1, agent);
	if (sqlite3_step(statement) == SQLITE_ROW)
		(void)column_epoch(statement, 0, out);
	(void)sqlite3_reset(statement);
}

bool archive_db_rows(struct archive_db *db, const uint8_t *agent, struct slice channel,
		     const struct pos *before, size_t limit, struct archive_answer *out,
		     struct err *err)
{
	const struct pos top = {"~", 0}; /* behind every hex digit */
	const struct pos *high = before ? before : &top;
	struct page page = {.db = db, .key = agent, .channel = channel};
	struct pos low = *high;
	bool more;

	page.agent = agent_find(db, agent);
	if (!page.agent)
		return err_set(err, ERR_NOT_FOUND, "no such agent");
	newest_epoch(db, page.agent, page.newest_epoch);
	map_init(&page.seen);
	do {
		more = page_scan(&page, &low);
	} while (more && page_count(&page, &low, high) < limit &&
		 page.seen.count < GROUPS_MAX);
	if (!more)
		low = (struct pos){"", 0};
	page_own(&page, &low, high);
	page_cut(&page, &low, high, limit, out);
	out->more = out->more || more;
	map_finish(&page.seen);
	return true;
}

bool archive_db_folds(struct archive_db *db, const uint8_t *agent, struct slice channel,
		      const struct pos *before, struct slice skip,
		      struct archive_answer *out, struct err *err)
{
	struct group *groups = mem_array(SCAN_EVENTS, sizeof(*groups));
	const int64_t id = agent_find(db, agent);
	char epoch[17];
	struct map seen;
	size_t count;

	map_init(&seen);
	newest_epoch(db, id, epoch);
	out->low = *before;
	count = scan_groups(db, id, channel, &out->low, groups);
	out->folds = mem_array(count + 1, sizeof(*out->folds));
	out->more = count == SCAN_EVENTS;
	for (size_t i = 0; i < count; i++) {
		struct archive_fold *fold = &out->folds[out->fold_count];

		group_tag(&groups[i], channel, &fold->tag);
		if (map_put(&seen, buf_slice(&fold->tag), db) ||
		    slice_eq(buf_slice(&fold->tag), skip)) {
			buf_clear(&fold->tag);
			continue;
		}
		fold->is_turn = groups[i].has_turn;
		fold->fold =
			derive(db, id, channel, &groups[i], buf_slice(&fold->tag), epoch);
		out->fold_count++;
	}
	for (size_t i = 0; i < count; i++)
		buf_finish(&groups[i].turn);
	buf_finish(&out->folds[out->fold_count].tag);
	free(groups);
	map_finish(&seen);
	return id != 0 || err_set(err, ERR_NOT_FOUND, "no such agent");
}

bool archive_db_event(struct archive_db *db, const uint8_t *agent, const struct pos *pos,
		      struct archive_answer *out, struct err *err)
{
	const int64_t id = agent_find(db, agent);
	struct sqlite3_stmt *statement = begin(db, EVENT_GET);
	struct slice text = SLICE_EMPTY;

	(void)sqlite3_bind_int64(statement, 1, id);
	bind_text(statement, 2, slice_of(pos->epoch));
	(void)sqlite3_bind_int64(statement, 3, (int64_t)pos->seq);
	if (id && sqlite3_step(statement) == SQLITE_ROW &&
	    event_text(db, id, statement, &text)) {
		out->text = mem_dup(text);
		out->text_len = text.len;
	}
	(void)sqlite3_reset(statement);
	return out->text || err_set(err, ERR_NOT_FOUND, "no such event");
}

void archive_db_answer_finish(struct archive_answer *answer)
{
	for (size_t i = 0; i < answer->row_count; i++)
		row_finish(&answer->rows[i]);
	for (size_t i = 0; i < answer->fold_count; i++) {
		fold_destroy(answer->folds[i].fold);
		buf_finish(&answer->folds[i].tag);
	}
	free(answer->folds);
	free(answer->rows);
	free(answer->text);
}

/* ---- loading ---- */

struct load {
	struct archive_db *db;
	const struct archive_loader *loader;
	void *ctx;
	struct err *err;
};

static bool load_numbers(struct load *load)
{
	struct sqlite3_stmt *statement = NULL;

	if (!db_prepare(load->db->db,
			"SELECT a.key, f.epoch, f.number FROM frame f JOIN agent a ON"
			" a.id = f.agent WHERE f.number IS NOT NULL ORDER BY f.agent, "
			"f.epoch,"
			" f.number",
			&statement, load->err))
		return false;
	while (sqlite3_step(statement) == SQLITE_ROW) {
		char epoch[17];

		if (sqlite3_column_bytes(statement, 0) == KEY_BYTES &&
		    column_epoch(statement, 1, epoch))
			load->loader->on_number(
				load->ctx, sqlite3_column_blob(statement, 0), epoch,
				(uint64_t)sqlite3_column_int64(statement, 2));
	}
	(void)sqlite3_finalize(statement);
	return true;
}

typedef void on_range(void *ctx, const uint8_t *agent, const char *epoch,
		      struct frame_range range);

static bool load_ranges(struct load *load, const char *query, on_range *each)
{
	struct sqlite3_stmt *statement = NULL;

	if (!db_prepare(load->db->db, query, &statement, load->err))
		return false;
	while (sqlite3_step(statement) == SQLITE_ROW) {
		const struct frame_range range = {
			(uint64_t)sqlite3_column_int64(statement, 2),
			(uint64_t)sqlite3_column_int64(statement, 3)};
		char epoch[17];

		if (sqlite3_column_bytes(statement, 0) == KEY_BYTES &&
		    column_epoch(statement, 1, epoch))
			each(load->ctx, sqlite3_column_blob(statement, 0), epoch, range);
	}
	(void)sqlite3_finalize(statement);
	return true;
}

static void load_group(struct load *load, int64_t agent, const uint8_t *key,
		       struct slice channel, const struct group *group)
{
	struct pos range[2];
	struct sqlite3_stmt *statement =
		group_events(load->db, agent, channel, group, range);
	struct slice text;

	while (sqlite3_step(statement) == SQLITE_ROW)
		if (event_text(load->db, agent, statement, &text))
			load->loader->on_event(load->ctx, key, group->epoch, text, 0);
	(void)sqlite3_reset(statement);
}

static void load_lane(struct load *load, int64_t agent, const uint8_t *key,
		      struct slice channel)
{
	struct group *groups = mem_array(LOAD_EVENTS, sizeof(*groups));
	struct sqlite3_stmt *statement = begin(load->db, SCAN_BACK);
	struct pos floor = {"", 0};
	struct map seen;
	size_t count = 0, rows = 0;

	(void)sqlite3_bind_int64(statement, 1, agent);
	bind_text(statement, 2, channel);
	bind_text(statement, 3, SLICE("~"));
	(void)sqlite3_bind_int64(statement, 4, 0);
	(void)sqlite3_bind_int64(statement, 5, LOAD_EVENTS + 1);
	while (sqlite3_step(statement) == SQLITE_ROW) {
		const struct slice turn = column_text(statement, 3);
		struct group *group = &groups[count];

		if (++rows > LOAD_EVENTS) {
			/* The first that is not told. */
			if (column_epoch(statement, 0, floor.epoch))
				floor.seq = (uint64_t)sqlite3_column_int64(statement, 1);
			break;
		}
		if (!column_epoch(statement, 0, group->pos.epoch) ||
		    !column_epoch(statement, 2, group->epoch))
			continue;
		group->pos.seq = (uint64_t)sqlite3_column_int64(statement, 1);
		group->has_turn = turn.ptr != NULL;
		group->turn.max = turn.len + 1;
		(void)buf_append(&group->turn, turn);
		count++;
	}
	(void)sqlite3_reset(statement);
	map_init(&seen);
	for (size_t i = count; i-- > 0;) {
		struct buf tag = {0};

		group_tag(&groups[i], channel, &tag);
		if (!map_put(&seen, buf_slice(&tag), load))
			load_group(load, agent, key, channel, &groups[i]);
		buf_finish(&tag);
		buf_finish(&groups[i].turn);
	}
	map_finish(&seen);
	free(groups);
	load->loader->on_floor(load->ctx, key, channel, &floor);
}

static bool load_lanes(struct load *load)
{
	struct sqlite3_stmt *statement = NULL;

	/* An agent's own events first: they say what it is. */
	if (!db_prepare(load->db->db,
			"SELECT a.id, a.key, l.channel FROM lane l JOIN agent a ON"
			" a.id = l.agent ORDER BY l.channel = '' DESC, l.newest DESC "
			"LIMIT ?1",
			&statement, load->err))
		return false;
	(void)sqlite3_bind_int64(statement, 1, LOAD_LANES_MAX);
	while (sqlite3_step(statement) == SQLITE_ROW) {
		uint8_t key[KEY_BYTES];
		const struct slice channel = column_text(statement, 2);

		if (sqlite3_column_bytes(statement, 1) != KEY_BYTES || !channel.ptr)
			continue;
		memcpy(key, sqlite3_column_blob(statement, 1), KEY_BYTES);
		load_lane(load, sqlite3_column_int64(statement, 0), key, channel);
	}
	(void)sqlite3_finalize(statement);
	return true;
}

bool archive_db_load(struct archive_db *db, const struct archive_loader *loader,
		     void *ctx, struct err *err)
{
	struct load load = {db, loader, ctx, err};

	return load_numbers(&load) &&
	       load_ranges(&load,
			   "SELECT a.key, r.epoch, r.first, r.last FROM forgotten r JOIN"
			   " agent a ON a.id = r.agent",
			   loader->on_forgotten) &&
	       load_ranges(&load,
			   "SELECT a.key, r.epoch, r.first, r.last FROM gone r JOIN"
			   " agent a ON a.id = r.agent",
			   loader->on_gone) &&
	       load_lanes(&load);
}
