#include "wire/host/db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

#define BUSY_MS 5000
#define CHECK_STEPS 10000 /* of SQLite's machine between two looks at the clock */

/* Up to this size every opening runs quick_check; beyond, opening must not grow with age,
 * and what is broken shows when it is read (db_fail says ERR_MALFORMED then). Our choice:
 * about a tenth of a second. */
#define CHECK_BYTES_MAX (64 << 20)

/* SQLite makes files by the umask; ours are nobody else's business. A file that is there
 * is not opened here: closing it would end the locks that another connection of this
 * process holds on it (fcntl(2)). */
static bool make_private(const char *path, struct err *err)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct stat info;

	if (fd >= 0) {
		(void)close(fd);
		return true;
	}
	if (errno != EEXIST)
		return err_errno(err, "cannot open the database %s", path);
	if (stat(path, &info) < 0 || !S_ISREG(info.st_mode))
		return err_set(err, ERR_SYSTEM, "the database %s is no regular file",
			       path);
	/* A copy may have lost its mode; another user's file is beyond us. */
	if ((info.st_mode & 077) != 0)
		(void)chmod(path, 0600);
	return true;
}

bool db_fail(struct sqlite3 *db, struct err *err, const char *doing)
{
	/* sqlite3_system_errno() is 0 when a COMMIT fails; where SQLite would take it
	 * from it still is. */
	const int number = errno;
	int code = sqlite3_errcode(db) & 0xff;
	const char *path = sqlite3_db_filename(db, "main");
	const char *words = sqlite3_errmsg(db);

	if (path == NULL)
		path = "";
	switch (code) {
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return err_set(
			err, ERR_MALFORMED,
			"cannot %s: %s is broken (%s): move it away and start again",
			doing, path, words);
	case SQLITE_FULL:
		return err_set(err, ERR_SYSTEM,
			       "cannot %s: the disk of %s is full: make room on it",
			       doing, path);
	case SQLITE_READONLY:
		return err_set(err, ERR_SYSTEM,
			       "cannot %s: %s or its folder cannot be written", doing,
			       path);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return err_set(err, ERR_SYSTEM, "cannot %s: another process holds %s",
			       doing, path);
	case SQLITE_IOERR:
		/* A full path may leave no room for what comes behind it. */
		return err_set(err, ERR_SYSTEM, "cannot %s: %s (%s): %s", doing, words,
			       strerror(number), path);
	default:
		return err_set(err, ERR_SYSTEM, "cannot %s: %s: %s", doing, path, words);
	}
}

bool db_exec(struct sqlite3 *db, const char *sql, struct err *err)
{
	return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ||
	       db_fail(db, err, "change the database");
}

bool db_commit(struct sqlite3 *db, struct err *err)
{
	int has_moved = 0;

	(void)sqlite3_file_control(db, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved);
	if (has_moved)
		return err_set(err, ERR_MALFORMED,
			       "%s was moved or deleted while in use: put it back, or "
			       "start again",
			       sqlite3_db_filename(db, "main"));
	return db_exec(db, "COMMIT", err);
}

bool db_prepare(struct sqlite3 *db, const char *sql, struct sqlite3_stmt **out,
		struct err *err)
{
	return sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL) ==
		       SQLITE_OK ||
	       db_fail(db, err, "prepare a statement");
}

void db_bind_text(struct sqlite3_stmt *statement, int at, struct slice text)
{
	if (text.ptr)
		(void)sqlite3_bind_text64(statement, at, text.ptr, text.len,
					  SQLITE_STATIC, SQLITE_UTF8);
	else
		(void)sqlite3_bind_null(statement, at);
}

void db_bind_blob(struct sqlite3_stmt *statement, int at, struct slice bytes)
{
	(void)sqlite3_bind_blob64(statement, at, bytes.ptr, bytes.len, SQLITE_STATIC);
}

struct slice db_column_text(struct sqlite3_stmt *statement, int at)
{
	const unsigned char *text = sqlite3_column_text(statement, at);

	if (!text)
		return SLICE_EMPTY;
	return (struct slice){(const char *)text,
			      (size_t)sqlite3_column_bytes(statement, at)};
}

/* The first column of the first row. */
static bool read_int(struct sqlite3 *db, const char *sql, sqlite3_int64 *out,
		     struct err *err)
{
	sqlite3_stmt *statement = NULL;
	bool ok = sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK &&
		  sqlite3_step(statement) == SQLITE_ROW;

	if (ok)
		*out = sqlite3_column_int64(statement, 0);
	else
		(void)db_fail(db, err, "open the database");
	(void)sqlite3_finalize(statement);
	return ok;
}

static bool check(struct sqlite3 *db, int64_t bytes_max, struct err *err)
{
	sqlite3_stmt *statement = NULL;
	sqlite3_int64 pages = 0;
	sqlite3_int64 page_bytes = 0;
	const char *verdict = NULL;
	bool ok;

	if (!read_int(db, "PRAGMA page_count", &pages, err) ||
	    !read_int(db, "PRAGMA page_size", &page_bytes, err))
		return false;
	if (pages > bytes_max / page_bytes)
		return true;
	if (sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &statement, NULL) ==
		    SQLITE_OK &&
	    sqlite3_step(statement) == SQLITE_ROW)
		verdict = (const char *)sqlite3_column_text(statement, 0);
	ok = verdict != NULL && strcmp(verdict, "ok") == 0;
	if (verdict == NULL)
		(void)db_fail(db, err, "check the database");
	else if (!ok)
		(void)err_set(err, ERR_MALFORMED,
			      "%s is broken (%.60s): move it away and start again",
			      sqlite3_db_filename(db, "main"), verdict);
	(void)sqlite3_finalize(statement);
	return ok;
}

/* Runs one script and counts it, both or neither. */
static bool migrate_one(struct sqlite3 *db, const char *script, int version,
			struct err *err)
{
	char count[48];

	(void)snprintf(count, sizeof(count), "PRAGMA user_version = %d", version);
	return db_exec(db, script, err) && db_exec(db, count, err);
}

static bool migrate(struct sqlite3 *db, const char *const *migrations, struct err *err)
{
	sqlite3_int64 version = 0;
	int known = 0;
	bool ok;

	while (migrations[known] != NULL)
		known++;
	/* Another process may be about to do the same. */
	if (!db_exec(db, "BEGIN IMMEDIATE", err))
		return false;
	ok = read_int(db, "PRAGMA user_version", &version, err);
	if (ok && (version < 0 || version > known))
		ok = err_set(
			err, ERR_REFUSED,
			"%s has version %lld, this perch knows up to %d: use a newer one",
			sqlite3_db_filename(db, "main"), (long long)version, known);
	for (int i = (int)version; ok && i < known; i++)
		ok = migrate_one(db, migrations[i], i + 1, err);
	if (ok)
		return db_exec(db, "COMMIT", err);
	(void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return false;
}

bool db_open(const char *path, const char *const *migrations, struct sqlite3 **out,
	     struct err *err)
{
	return db_open_bounded(path, migrations, CHECK_BYTES_MAX, out, err);
}

bool db_open_bounded(const char *path, const char *const *migrations, int64_t check_bytes,
		     struct sqlite3 **out, struct err *err)
{
	/* auto_vacuum must come before what makes the file's header. */
	static const char setup[] = "PRAGMA auto_vacuum = INCREMENTAL;"
				    "PRAGMA trusted_schema = OFF;"
				    "PRAGMA journal_mode = WAL;"
				    "PRAGMA synchronous = NORMAL;"
				    "PRAGMA secure_delete = FAST;"
				    "PRAGMA foreign_keys = ON";
	struct sqlite3 *db = NULL;

	if (strcmp(path, DB_MEMORY) != 0 && !make_private(path, err))
		return false;
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
			    NULL) != SQLITE_OK) {
		(void)db_fail(db, err, "open the database");
		goto out;
	}
	(void)sqlite3_extended_result_codes(db, 1);
	(void)sqlite3_busy_timeout(db, BUSY_MS);
	if (sqlite3_exec(db, setup, NULL, NULL, NULL) != SQLITE_OK) {
		(void)db_fail(db, err, "open the database");
		goto out;
	}
	if (!check(db, check_bytes, err) || !migrate(db, migrations, err))
		goto out;
	*out = db;
	return true;
out:
	db_close(db);
	return false;
}

static int64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct deadline {
	int64_t until_ns;
	const atomic_bool *stop;
};

static int is_late(void *ctx)
{
	const struct deadline *deadline = ctx;

	return now_ns() >= deadline->until_ns ||
	       (deadline->stop && atomic_load(deadline->stop));
}

bool db_check(const char *path, int64_t deadline_ms, const atomic_bool *stop,
	      bool *whole_out, struct err *err)
{
	struct deadline deadline = {now_ns() + deadline_ms * 1000000, stop};
	sqlite3_stmt *statement = NULL;
	sqlite3 *db = NULL;
	const char *verdict = "";
	int status;
	bool ok = false;

	*whole_out = true;
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX,
			    NULL) != SQLITE_OK) {
		(void)db_fail(db, err, "open the database");
		goto out;
	}
	(void)sqlite3_busy_timeout(db, BUSY_MS);
	sqlite3_progress_handler(db, CHECK_STEPS, is_late, &deadline);
	status = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &statement, NULL);
	if (status == SQLITE_OK)
		status = sqlite3_step(statement);
	if (status == SQLITE_INTERRUPT) {
		*whole_out = false;
		ok = true;
	} else if (status != SQLITE_ROW) {
		(void)db_fail(db, err, "check the database");
	} else {
		verdict = (const char *)sqlite3_column_text(statement, 0);
		ok = verdict && strcmp(verdict, "ok") == 0;
		if (!ok)
			(void)err_set(err, ERR_MALFORMED, "%s is broken (%.60s)", path,
				      verdict ? verdict : "");
	}
out:
	(void)sqlite3_finalize(statement);
	(void)sqlite3_close_v2(db);
	return ok;
}

void db_close(struct sqlite3 *db)
{
	(void)sqlite3_close_v2(db);
}
