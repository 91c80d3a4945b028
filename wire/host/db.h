#ifndef WIRE_HOST_DB_H
#define WIRE_HOST_DB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/base/err.h"
#include "wire/base/slice.h"

struct sqlite3;
struct sqlite3_stmt;

/* SQLite, opened one way everywhere: 0600, WAL, NORMAL, auto_vacuum INCREMENTAL and
 * secure_delete FAST set before the first table, foreign keys on, busy timeout 5 s,
 * trusted schema off. Used from one thread (the writer), never from the loop. */

/* A path: a database that nobody else sees and that ends with db_close(). */
#define DB_MEMORY ":memory:"

/**
 * db_open - open or create and migrate
 * @migrations: SQL scripts; database version n (user_version) has run the first n. A
 * newer database is ERR_REFUSED and says which versions. NULL-terminated. A file that is
 * no database or, up to 64 MiB, fails quick_check is ERR_MALFORMED; a larger one shows
 * its damage when it is read. A folder that cannot be written, a full disk and a database
 * held elsewhere are ERR_SYSTEM with what to do.
 */
bool db_open(const char *path, const char *const *migrations, struct sqlite3 **out,
	     struct err *err);
/* The same, with quick_check only up to another size than 64 MiB. */
bool db_open_bounded(const char *path, const char *const *migrations, int64_t check_bytes,
		     struct sqlite3 **out, struct err *err);
void db_close(struct sqlite3 *db);
/**
 * db_check - quick_check of a whole database that others may have open
 * @deadline_ms: it is left at that; then @whole_out is false and what was read was sound
 * @stop: if not NULL, another thread may set it: left at that at once
 * Only reads. ERR_MALFORMED as of db_open().
 */
bool db_check(const char *path, int64_t deadline_ms, const atomic_bool *stop,
	      bool *whole_out, struct err *err);
bool db_exec(struct sqlite3 *db, const char *sql, struct err *err);
/* COMMIT, of a file that is where it was: SQLite would go on writing into one that was
 * deleted or replaced, and all would be lost with the process. ERR_MALFORMED then; the
 * transaction is still open whenever it fails. */
bool db_commit(struct sqlite3 *db, struct err *err);
bool db_prepare(struct sqlite3 *db, const char *sql, struct sqlite3_stmt **out,
		struct err *err);
/* A text (ptr NULL: null) or bytes that outlive the steps that use them. */
void db_bind_text(struct sqlite3_stmt *statement, int at, struct slice text);
void db_bind_blob(struct sqlite3_stmt *statement, int at, struct slice bytes);
/* Of the current row; lives until the next step. ptr NULL: null. */
struct slice db_column_text(struct sqlite3_stmt *statement, int at);
/* Fills @err from the database's last error. Always false. */
bool db_fail(struct sqlite3 *db, struct err *err, const char *doing);

#endif
