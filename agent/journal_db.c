#include "agent/journal_db.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>
#include <sqlite3.h>

#include "wire/base/mem.h"
#include "wire/host/db.h"

#define SEAL_NONCE_BYTES crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define SEAL_TAG_BYTES crypto_aead_xchacha20poly1305_ietf_ABYTES
/* What SQLite needs beside a row's bytes, roughly: header, page rest, index. */
#define ROW_BYTES 128
/* Pages given back to the disk after something was dropped: what is dropped at a time. */
#define VACUUM "PRAGMA incremental_vacuum(64)"

static const char *const migrations[] = {
	"CREATE TABLE epoch(name TEXT PRIMARY KEY, last INTEGER NOT NULL,"
	" stopped INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE frame(id INTEGER PRIMARY KEY, epoch TEXT NOT NULL,"
	" number INTEGER NOT NULL, at INTEGER NOT NULL, sealed BLOB NOT NULL,"
	" UNIQUE(epoch, number));"
	"CREATE TABLE body(id INTEGER PRIMARY KEY, epoch TEXT NOT NULL,"
	" number INTEGER NOT NULL, at INTEGER NOT NULL, sealed BLOB NOT NULL,"
	" UNIQUE(epoch, number));",
	"ALTER TABLE epoch ADD COLUMN let_go INTEGER NOT NULL DEFAULT 0;",
	"CREATE TABLE lost(at INTEGER NOT NULL);", /* an older file, as broken */
	NULL,
};

/* The two tables of sealed rows are alike. */
enum kind { FRAME, BODY };
#define KINDS 2

static const char *const put_sql[KINDS] = {
	"INSERT INTO frame(epoch, number, at, sealed) VALUES(?1, ?2, ?3, ?4)"
	" ON CONFLICT DO UPDATE SET sealed = excluded.sealed",
	"INSERT INTO body(epoch, number, at, sealed) VALUES(?1, ?2, ?3, ?4)"
	" ON CONFLICT DO UPDATE SET sealed = excluded.sealed",
};
static const char *const get_sql[KINDS] = {
	"SELECT sealed FROM frame WHERE epoch = ?1 AND number = ?2",
	"SELECT sealed FROM body WHERE epoch = ?1 AND number = ?2",
};
static const char *const oldest_sql[KINDS] = {
	"SELECT id, epoch, number, at, length(sealed) FROM frame ORDER BY id LIMIT 1",
	"SELECT id, epoch, number, at, length(sealed) FROM body ORDER BY id LIMIT 1",
};
static const char *const drop_sql[KINDS] = {
	"DELETE FROM frame WHERE id = ?1",
	"DELETE FROM body WHERE id = ?1",
};
static const char *const bytes_sql[KINDS] = {
	"SELECT count(*), coalesce(sum(length(sealed)), 0) FROM frame",
	"SELECT count(*), coalesce(sum(length(sealed)), 0) FROM body",
};

struct journal_db {
	struct sqlite3 *db;
	struct journal_db_options options;
	struct sqlite3_stmt *put[KINDS], *get[KINDS], *oldest[KINDS], *drop[KINDS];
	struct sqlite3_stmt *note_last, *note_stopped, *note_let_go;
	int64_t bytes[KINDS];
	int64_t lost; /* rows of that table: none or one */
	struct buf sealed;
};

/* ---- sealing ---- */

/* What a row stands for, as associated data. */
static size_t write_place(enum kind kind, const char *epoch, uint64_t number,
			  uint8_t out[32])
{
	size_t len = 0;

	out[len++] = (uint8_t)kind;
	for (size_t i = 0; epoch[i]; i++)
		out[len++] = (uint8_t)epoch[i];
	for (size_t i = 0; i < 8; i++)
		out[len++] = (uint8_t)(number >> (8 * i));
	return len;
}

static void seal(struct journal_db *db, enum kind kind, const char *epoch,
		 uint64_t number, struct slice plain)
{
	uint8_t place[32], *out;
	const size_t place_len = write_place(kind, epoch, number, place);

	buf_clear(&db->sealed);
	out = (uint8_t *)buf_extend(&db->sealed,
				    SEAL_NONCE_BYTES + plain.len + SEAL_TAG_BYTES);
	randombytes_buf(out, SEAL_NONCE_BYTES);
	(void)crypto_aead_xchacha20poly1305_ietf_encrypt(
		out + SEAL_NONCE_BYTES, NULL, (const uint8_t *)plain.ptr, plain.len,
		place, place_len, NULL, out, db->options.key);
}

static bool unseal(struct journal_db *db, enum kind kind, const char *epoch,
		   uint64_t number, struct slice sealed, struct buf *out)
{
	const uint8_t *in = (const uint8_t *)sealed.ptr;
	uint8_t place[32];
	const size_t place_len = write_place(kind, epoch, number, place);
	const size_t start = out->len;
	char *plain;

	if (sealed.len <= SEAL_NONCE_BYTES + SEAL_TAG_BYTES)
		return false;
	plain = buf_extend(out, sealed.len - SEAL_NONCE_BYTES - SEAL_TAG_BYTES);
	if (!plain)
		return false;
	if (crypto_aead_xchacha20poly1305_ietf_decrypt(
		    (uint8_t *)plain, NULL, NULL, in + SEAL_NONCE_BYTES,
		    sealed.len - SEAL_NONCE_BYTES, place, place_len, in,
		    db->options.key) == 0)
		return true;
	buf_truncate(out, start);
	return false;
}

/* ---- opening ---- */

static bool prepare(struct journal_db *db, struct err *err)
{
	for (int kind = 0; kind < KINDS; kind++)
		if (!db_prepare(db->db, put_sql[kind], &db->put[kind], err) ||
		    !db_prepare(db->db, get_sql[kind], &db->get[kind], err) ||
		    !db_prepare(db->db, oldest_sql[kind], &db->oldest[kind], err) ||
		    !db_prepare(db->db, drop_sql[kind], &db->drop[kind], err))
			return false;
	return db_prepare(db->db,
			  "INSERT INTO epoch(name, last, stopped) VALUES(?1, ?2, 0)"
			  " ON CONFLICT DO UPDATE SET last = max(last, excluded.last)",
			  &db->note_last, err) &&
	       db_prepare(db->db,
			  "INSERT INTO epoch(name, last, stopped) VALUES(?1, 0, 1)"
			  " ON CONFLICT DO UPDATE SET stopped = 1",
			  &db->note_stopped, err) &&
	       db_prepare(db->db,
			  "UPDATE epoch SET let_go = max(let_go, ?2) WHERE name = ?1",
			  &db->note_let_go, err);
}

/* Steps a statement that gives rows; calls @row for each. */
static bool each_row(struct journal_db *db, const char *sql,
		     void (*row)(void *ctx, struct sqlite3_stmt *statement), void *ctx,
		     struct err *err)
{
	struct sqlite3_stmt *statement = NULL;
	int code = SQLITE_DONE;

	if (!db_prepare(db->db, sql, &statement, err))
		return false;
	while ((code = sqlite3_step(statement)) == SQLITE_ROW)
		row(ctx, statement);
	(void)sqlite3_finalize(statement);
	return code == SQLITE_DONE || db_fail(db->db, err, "read the journal");
}

static void on_count(void *ctx, struct sqlite3_stmt *statement)
{
	int64_t *count = ctx;

	*count = sqlite3_column_int64(statement, 0);
}

static void on_bytes(void *ctx, struct sqlite3_stmt *statement)
{
	int64_t *bytes = ctx;

	*bytes = sqlite3_column_int64(statement, 0) * ROW_BYTES +
		 sqlite3_column_int64(statement, 1);
}

/* A name in the file may be anything: only what looks like an epoch counts. */
static const char *epoch_name(struct sqlite3_stmt *statement, int column)
{
	const char *name = (const char *)sqlite3_column_text(statement, column);
	uint8_t bytes[8];

	return name && hex_decode(slice_of(name), bytes, sizeof(bytes)) ? name : NULL;
}

static void on_frame(void *ctx, struct sqlite3_stmt *statement)
{
	const char *name = epoch_name(statement, 0);
	const int64_t number = sqlite3_column_int64(statement, 1);

	if (name && number > 0 && number <= FRAME_NUMBER_MAX)
		journal_index_add(ctx, name, (uint64_t)number);
}

static void on_epoch(void *ctx, struct sqlite3_stmt *statement)
{
	const char *name = epoch_name(statement, 0);
	const int64_t last = sqlite3_column_int64(statement, 1);
	const int64_t let_go = sqlite3_column_int64(statement, 3);
	struct journal_epoch *epoch = name ? journal_index_find(ctx, name) : NULL;

	if (epoch && last > 0 && (uint64_t)last > epoch->last && last <= FRAME_NUMBER_MAX)
		epoch->last = (uint64_t)last;
	if (epoch && let_go > 0)
		epoch->let_go = (uint64_t)let_go;
}

struct before {
	const char *current;
	char name[17]; /* the newest before it */
	bool stopped;
};

static void on_before(void *ctx, struct sqlite3_stmt *statement)
{
	struct before *before = ctx;
	const char *name = epoch_name(statement, 0);

	if (!name || strcmp(name, before->current) >= 0)
		return;
	memcpy(before->name, name, sizeof(before->name));
	before->stopped = sqlite3_column_int64(statement, 2) != 0;
}

static bool drop_old(struct journal_db *db, int64_t now_s, struct err *err)
{
	char epoch[17];
	uint64_t number;

	*err = (struct err){0};
	if (!journal_db_begin(db, err))
		return false;
	while (journal_db_drop_frame(db, now_s, epoch, &number, err) ||
	       journal_db_drop_body(db, now_s, err))
		;
	if (err->code == ERR_NONE)
		return journal_db_commit(db, err);
	journal_db_rollback(db);
	return false;
}

static bool load(struct journal_db *db, int64_t now_s, struct journal_index *index,
		 bool *unclean, struct err *err)
{
	static const char epochs[] =
		"SELECT name, last, stopped, let_go FROM epoch ORDER BY name";
	struct before before = {.current = db->options.epoch};

	for (int kind = 0; kind < KINDS; kind++)
		if (!each_row(db, bytes_sql[kind], on_bytes, &db->bytes[kind], err))
			return false;
	if (!each_row(db, "SELECT count(*) FROM lost", on_count, &db->lost, err) ||
	    !drop_old(db, now_s, err) ||
	    !each_row(db, "SELECT epoch, number FROM frame ORDER BY epoch, number",
		      on_frame, index, err) ||
	    !each_row(db, epochs, on_epoch, index, err) ||
	    !each_row(db, epochs, on_before, &before, err))
		return false;
	*unclean = before.name[0] && !before.stopped;
	/* What an epoch said of itself goes with its last frame. */
	return db_exec(db->db,
		       "DELETE FROM epoch WHERE name NOT IN (SELECT epoch FROM frame)",
		       err);
}

bool journal_db_open(const struct journal_db_options *options, int64_t now_s,
		     struct journal_db **out, struct journal_index *index, bool *unclean,
		     struct err *err)
{
	struct journal_db *db = mem_alloc(sizeof(*db));

	db->options = *options;
	buf_init(&db->sealed, 64u << 20);
	if (db_open(options->path, migrations, &db->db, err) && prepare(db, err) &&
	    load(db, now_s, index, unclean, err)) {
		*out = db;
		return true;
	}
	journal_index_finish(index);
	journal_db_close(db);
	return false;
}

void journal_db_close(struct journal_db *db)
{
	if (!db)
		return;
	for (int kind = 0; kind < KINDS; kind++) {
		(void)sqlite3_finalize(db->put[kind]);
		(void)sqlite3_finalize(db->get[kind]);
		(void)sqlite3_finalize(db->oldest[kind]);
		(void)sqlite3_finalize(db->drop[kind]);
	}
	(void)sqlite3_finalize(db->note_last);
	(void)sqlite3_finalize(db->note_stopped);
	(void)sqlite3_finalize(db->note_let_go);
	db_close(db->db);
	buf_finish(&db->sealed);
	free(db);
}

/* ---- writing ---- */

bool journal_db_begin(struct journal_db *db, struct err *err)
{
	return db_exec(db->db, "BEGIN IMMEDIATE", err);
}

bool journal_db_commit(struct journal_db *db, struct err *err)
{
	return db_commit(db->db, err);
}

void journal_db_rollback(struct journal_db *db)
{
	/* What failed may have rolled back by itself. */
	(void)sqlite3_exec(db->db, "ROLLBACK", NULL, NULL, NULL);
}

/* Runs a statement that gives no rows and makes it ready for the next time. */
static bool run(struct journal_db *db, struct sqlite3_stmt *statement, struct err *err)
{
	const int code = sqlite3_step(statement);
	const bool ok = code == SQLITE_DONE || db_fail(db->db, err, "write the journal");

	(void)sqlite3_reset(statement);
	(void)sqlite3_clear_bindings(statement);
	return ok;
}

static void bind_place(struct sqlite3_stmt *statement, const char *epoch, uint64_t number)
{
	(void)sqlite3_bind_text(statement, 1, epoch, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(statement, 2, (sqlite3_int64)number);
}

static bool put(struct journal_db *db, enum kind kind, const char *epoch, uint64_t number,
		int64_t now_s, struct slice plain, struct err *err)
{
	seal(db, kind, epoch, number, plain);
	bind_place(db->put[kind], epoch, number);
	(void)sqlite3_bind_int64(db->put[kind], 3, now_s);
	(void)sqlite3_bind_blob64(db->put[kind], 4, db->sealed.ptr, db->sealed.len,
				  SQLITE_STATIC);
	if (!run(db, db->put[kind], err))
		return false;
	/* One that was replaced is counted twice until the next start. */
	db->bytes[kind] += (int64_t)db->sealed.len + ROW_BYTES;
	return true;
}

bool journal_db_put_frame(struct journal_db *db, const char *epoch, uint64_t number,
			  int64_t now_s, struct slice frame, struct err *err)
{
	bind_place(db->note_last, epoch, number);
	return put(db, FRAME, epoch, number, now_s, frame, err) &&
	       run(db, db->note_last, err);
}

bool journal_db_put_body(struct journal_db *db, const char *epoch, uint64_t seq,
			 int64_t now_s, struct slice body, struct err *err)
{
	return put(db, BODY, epoch, seq, now_s, body, err);
}

bool journal_db_put_stopped(struct journal_db *db, struct err *err)
{
	(void)sqlite3_bind_text(db->note_stopped, 1, db->options.epoch, -1,
				SQLITE_STATIC);
	return run(db, db->note_stopped, err);
}

bool journal_db_put_lost(struct journal_db *db, int64_t now_s, struct err *err)
{
	char sql[80];

	if (db->lost)
		return true;
	(void)snprintf(sql, sizeof(sql), "INSERT INTO lost(at) VALUES(%" PRId64 ")",
		       now_s);
	if (!db_exec(db->db, sql, err))
		return false;
	db->lost = 1;
	return true;
}

bool journal_db_was_lost(const struct journal_db *db)
{
	return db->lost != 0;
}

/* ---- letting go ---- */

static bool is_too_much(const struct journal_db *db, enum kind kind)
{
	const int64_t max = db->options.max_bytes;

	if (kind == BODY && db->bytes[BODY] > max / 2)
		return true;
	return kind == FRAME && journal_db_bytes(db) > max;
}

/* Once frames are let go, an epoch that is not here is more likely one of those. */
static bool forget_loss(struct journal_db *db, enum kind kind, struct err *err)
{
	if (kind != FRAME || !db->lost)
		return true;
	db->lost = 0;
	return db_exec(db->db, "DELETE FROM lost", err);
}

static bool drop_oldest(struct journal_db *db, enum kind kind, int64_t now_s,
			char epoch[17], uint64_t *number, struct err *err)
{
	struct sqlite3_stmt *oldest = db->oldest[kind];
	int64_t id = 0, bytes = 0, at = 0;
	const int code = sqlite3_step(oldest);
	const bool found = code == SQLITE_ROW;

	if (found) {
		const char *name = epoch_name(oldest, 1);

		id = sqlite3_column_int64(oldest, 0);
		memcpy(epoch, name ? name : "", name ? 17 : 1);
		*number = (uint64_t)sqlite3_column_int64(oldest, 2);
		at = sqlite3_column_int64(oldest, 3);
		bytes = sqlite3_column_int64(oldest, 4) + ROW_BYTES;
	} else if (code != SQLITE_DONE) {
		(void)db_fail(db->db, err, "read the journal");
	}
	(void)sqlite3_reset(oldest);
	if (!found || (!is_too_much(db, kind) && at > now_s - db->options.max_age_s))
		return false;
	(void)sqlite3_bind_int64(db->drop[kind], 1, id);
	if (!run(db, db->drop[kind], err))
		return false;
	db->bytes[kind] -= bytes;
	return forget_loss(db, kind, err) && db_exec(db->db, VACUUM, err);
}

bool journal_db_drop_frame(struct journal_db *db, int64_t now_s, char epoch[17],
			   uint64_t *number, struct err *err)
{
	if (!drop_oldest(db, FRAME, now_s, epoch, number, err))
		return false;
	bind_place(db->note_let_go, epoch, *number);
	return run(db, db->note_let_go, err);
}

bool journal_db_drop_body(struct journal_db *db, int64_t now_s, struct err *err)
{
	char epoch[17];
	uint64_t seq;

	return drop_oldest(db, BODY, now_s, epoch, &seq, err);
}

/* ---- reading ---- */

static bool get(struct journal_db *db, enum kind kind, const char *epoch, uint64_t number,
		struct buf *out, struct err *err)
{
	struct sqlite3_stmt *statement = db->get[kind];
	bool ok = false;
	int code;

	bind_place(statement, epoch, number);
	code = sqlite3_step(statement);
	if (code == SQLITE_ROW) {
		const void *blob = sqlite3_column_blob(statement, 0);
		const int len = sqlite3_column_bytes(statement, 0);

		ok = (blob && unseal(db, kind, epoch, number,
				     (struct slice){blob, (size_t)len}, out)) ||
		     err_set(err, ERR_NOT_FOUND, "not what this harness wrote");
	} else if (code == SQLITE_DONE) {
		(void)err_set(err, ERR_NOT_FOUND, "not in the journal (any more)");
	} else {
		(void)db_fail(db->db, err, "read the journal");
	}
	(void)sqlite3_reset(statement);
	(void)sqlite3_clear_bindings(statement);
	return ok;
}

bool journal_db_frame(struct journal_db *db, const char *epoch, uint64_t number,
		      struct buf *out, struct err *err)
{
	return get(db, FRAME, epoch, number, out, err);
}

bool journal_db_body(struct journal_db *db, const char *epoch, uint64_t seq,
		     struct buf *out, struct err *err)
{
	return get(db, BODY, epoch, seq, out, err);
}

int64_t journal_db_bytes(const struct journal_db *db)
{
	return db->bytes[FRAME] + db->bytes[BODY];
}
