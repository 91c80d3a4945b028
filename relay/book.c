#include "relay/book.h"

#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "wire/base/buf.h"
#include "wire/base/mem.h"
#include "wire/host/db.h"
#include "wire/host/log.h"

/* expires: Unix seconds, the first at which it no longer holds; at: when it was said. */
const char book_schema[] =
	"CREATE TABLE binding ("
	" agent BLOB NOT NULL, owner BLOB NOT NULL, expires INTEGER NOT NULL,"
	" PRIMARY KEY (agent, owner)) WITHOUT ROWID;"
	"CREATE TABLE listed (owner BLOB NOT NULL PRIMARY KEY) WITHOUT ROWID;"
	"CREATE TABLE revoked ("
	" agent BLOB NOT NULL PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID;";

/* Whoever was revoked since a relay read the book last, allowed again or not: what it
 * remembers of them must go. n: of the last time. */
const char book_cut_schema[] = "CREATE TABLE cut ("
			       " n INTEGER PRIMARY KEY AUTOINCREMENT,"
			       " agent BLOB NOT NULL UNIQUE);";

/* Statements */

static void bind_key(struct sqlite3_stmt *stmt, int at, const uint8_t key[KEY_BYTES])
{
	(void)sqlite3_bind_blob(stmt, at, key, KEY_BYTES, SQLITE_STATIC);
}

/* False for what is no key: somebody else wrote there. */
static bool read_key(struct sqlite3_stmt *stmt, int column, uint8_t out[KEY_BYTES])
{
	if (sqlite3_column_bytes(stmt, column) != KEY_BYTES)
		return false;
	memcpy(out, sqlite3_column_blob(stmt, column), KEY_BYTES);
	return true;
}

/* Runs "… ?1 … ?2 …" once; ?2 may be left out. */
static bool run(struct sqlite3 *db, const char *sql, const uint8_t key[KEY_BYTES],
		int64_t number, bool *changed_out, struct err *err)
{
	struct sqlite3_stmt *stmt = NULL;
	bool ok;

	if (!db_prepare(db, sql, &stmt, err))
		return false;
	bind_key(stmt, 1, key);
	if (sqlite3_bind_parameter_count(stmt) > 1)
		(void)sqlite3_bind_int64(stmt, 2, number);
	ok = sqlite3_step(stmt) == SQLITE_DONE ||
	     db_fail(db, err, "cannot write owners and agents");
	if (ok && changed_out)
		*changed_out = sqlite3_changes(db) > 0;
	(void)sqlite3_finalize(stmt);
	return ok;
}

bool book_add_owner(struct sqlite3 *db, const uint8_t owner[KEY_BYTES], bool *changed_out,
		    struct err *err)
{
	return run(db, "INSERT OR IGNORE INTO listed (owner) VALUES (?1)", owner, 0,
		   changed_out, err);
}

bool book_remove_owner(struct sqlite3 *db, const uint8_t owner[KEY_BYTES],
		       bool *changed_out, struct err *err)
{
	return run(db, "DELETE FROM listed WHERE owner = ?1", owner, 0, changed_out, err);
}

bool book_revoke(struct sqlite3 *db, const uint8_t agent[KEY_BYTES], int64_t now,
		 bool *changed_out, struct err *err)
{
	return run(db, "DELETE FROM binding WHERE agent = ?1", agent, 0, NULL, err) &&
	       run(db, "REPLACE INTO cut (agent) VALUES (?1)", agent, 0, NULL, err) &&
	       run(db, "INSERT OR IGNORE INTO revoked (agent, at) VALUES (?1, ?2)", agent,
		   now, changed_out, err);
}

bool book_allow(struct sqlite3 *db, const uint8_t agent[KEY_BYTES], bool *changed_out,
		struct err *err)
{
	return run(db, "DELETE FROM revoked WHERE agent = ?1", agent, 0, changed_out,
		   err);
}

static bool end_of_rows(struct sqlite3 *db, struct sqlite3_stmt *stmt, int status,
			struct err *err)
{
	(void)sqlite3_finalize(stmt);
	return status == SQLITE_DONE || db_fail(db, err, "cannot read owners and agents");
}

bool book_each_owner(struct sqlite3 *db,
		     void (*each)(void *ctx, const uint8_t owner[KEY_BYTES]), void *ctx,
		     struct err *err)
{
	struct sqlite3_stmt *stmt = NULL;
	uint8_t owner[KEY_BYTES];
	int status;

	if (!db_prepare(db, "SELECT owner FROM listed ORDER BY owner", &stmt, err))
		return false;
	while ((status = sqlite3_step(stmt)) == SQLITE_ROW)
		if (read_key(stmt, 0, owner))
			each(ctx, owner);
	return end_of_rows(db, stmt, status, err);
}

bool book_each_agent(struct sqlite3 *db,
		     void (*each)(void *ctx, const struct book_row *row), void *ctx,
		     struct err *err)
{
	/* Revocations first: they decide over what follows. */
	static const char sql[] = "SELECT agent, NULL, at FROM revoked UNION ALL "
				  "SELECT agent, owner, expires FROM binding";
	struct sqlite3_stmt *stmt = NULL;
	int status;

	if (!db_prepare(db, sql, &stmt, err))
		return false;
	while ((status = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct book_row row = {.until = sqlite3_column_int64(stmt, 2)};

		row.revoked = sqlite3_column_type(stmt, 1) == SQLITE_NULL;
		if (read_key(stmt, 0, row.agent) &&
		    (row.revoked || read_key(stmt, 1, row.owner)))
			each(ctx, &row);
	}
	return end_of_rows(db, stmt, status, err);
}

/* At start */

struct loading {
	struct owners *owners;
	int64_t now;
};

static void load_owner(void *ctx, const uint8_t owner[KEY_BYTES])
{
	owners_list(((struct loading *)ctx)->owners, owner);
}

static void load_agent(void *ctx, const struct book_row *row)
{
	struct loading *loading = ctx;

	if (row->revoked)
		owners_revoke(loading->owners, row->agent);
	else
		(void)owners_bind(loading->owners, row->agent, row->owner, row->until,
				  loading->now);
}

bool book_load(struct sqlite3 *db, struct owners *owners, int64_t now, struct err *err)
{
	struct loading loading = {owners, now};
	struct sqlite3_stmt *stmt = NULL;
	bool ok;

	/* It remembers nobody yet. */
	if (!db_exec(db, "DELETE FROM cut", err))
		return false;
	if (!db_prepare(db, "DELETE FROM binding WHERE expires <= ?1", &stmt, err))
		return false;
	(void)sqlite3_bind_int64(stmt, 1, now);
	ok = end_of_rows(db, stmt, sqlite3_step(stmt), err);
	return ok && book_each_owner(db, load_owner, &loading, err) &&
	       book_each_agent(db, load_agent, &loading, err);
}

/* While the relay runs */

struct new_binding {
	uint8_t agent[KEY_BYTES];
	uint8_t owner[KEY_BYTES];
	int64_t expires;
};

static bool write_binding(void *ctx, struct sqlite3 *db, struct err *err)
{
	static const char sql[] =
		"INSERT INTO binding (agent, owner, expires) "
		/* Revoked meanwhile: it must not count again once it is allowed. */
		"SELECT ?1, ?2, ?3 "
		"WHERE NOT EXISTS (SELECT 1 FROM revoked WHERE agent = ?1) "
		"AND NOT EXISTS (SELECT 1 FROM cut WHERE agent = ?1) "
		"ON CONFLICT (agent, owner) "
		"DO UPDATE SET expires = max(expires, excluded.expires)";
	const struct new_binding *binding = ctx;
	struct sqlite3_stmt *stmt = NULL;
	bool ok;

	if (!db_prepare(db, sql, &stmt, err))
		return false;
	bind_key(stmt, 1, binding->agent);
	bind_key(stmt, 2, binding->owner);
	(void)sqlite3_bind_int64(stmt, 3, binding->expires);
	ok = sqlite3_step(stmt) == SQLITE_DONE ||
	     db_fail(db, err, "cannot write owners and agents");
	(void)sqlite3_finalize(stmt);
	return ok;
}

/* It still holds in memory, and comes again with the agent's next start. */
static void warn_lost(const char *why)
{
	log_warn("relay", "an attestation will not survive a restart: %s", why);
}

static void on_binding_written(void *ctx, const struct err *err)
{
	if (err)
		warn_lost(err->text);
	free(ctx);
}

static void on_bind(void *ctx, const uint8_t agent[KEY_BYTES],
		    const uint8_t owner[KEY_BYTES], int64_t expires)
{
	struct new_binding *binding = mem_alloc(sizeof(*binding));

	memcpy(binding->agent, agent, KEY_BYTES);
	memcpy(binding->owner, owner, KEY_BYTES);
	binding->expires = expires;
	if (store_write(ctx, write_binding, on_binding_written, binding,
			sizeof(*binding)))
		return;
	warn_lost("too much waits for the disk");
	free(binding);
}

static bool delete_bindings(void *ctx, struct sqlite3 *db, struct err *err)
{
	return run(db, "DELETE FROM binding WHERE agent = ?1", ctx, 0, NULL, err);
}

/* What stays on disk for want of room there goes with the next start that is full. */
static void on_bindings_deleted(void *ctx, const struct err *err)
{
	(void)err;
	free(ctx);
}

static void on_unbind(void *ctx, const uint8_t agent[KEY_BYTES])
{
	uint8_t *key = mem_alloc(KEY_BYTES);

	memcpy(key, agent, KEY_BYTES);
	if (!store_write(ctx, delete_bindings, on_bindings_deleted, key, KEY_BYTES))
		free(key);
}

void book_keep(struct store *store, struct owners *owners)
{
	owners->on_unbind = on_unbind;
	owners->on_bind = on_bind;
	owners->ctx = store;
}

/* What the writer's thread reads for the loop. */
struct reload {
	struct store *store;
	struct owners *owners;
	/* Keys, one behind the other. cut: of those who are not revoked. */
	struct buf listed, revoked, cut;
	int64_t cut_n; /* the last that was read */
	void (*done)(void *ctx, const struct err *err);
	void *ctx;
};

static void append_key(struct buf *keys, const void *key)
{
	(void)buf_append(keys, (struct slice){key, KEY_BYTES});
}

static void collect_owner(void *ctx, const uint8_t owner[KEY_BYTES])
{
	append_key(&((struct reload *)ctx)->listed, owner);
}

static void collect_revoked(void *ctx, const struct book_row *row)
{
	if (row->revoked)
		append_key(&((struct reload *)ctx)->revoked, row->agent);
}

static bool collect_cut(struct reload *reload, struct sqlite3 *db, struct err *err)
{
	static const char sql[] = "SELECT n, agent, agent IN (SELECT agent FROM revoked) "
				  "FROM cut ORDER BY n";
	struct sqlite3_stmt *stmt = NULL;
	uint8_t agent[KEY_BYTES];
	int status;

	if (!db_prepare(db, sql, &stmt, err))
		return false;
	while ((status = sqlite3_step(stmt)) == SQLITE_ROW) {
		reload->cut_n = sqlite3_column_int64(stmt, 0);
		if (read_key(stmt, 1, agent) && sqlite3_column_int(stmt, 2) == 0)
			append_key(&reload->cut, agent);
	}
	return end_of_rows(db, stmt, status, err);
}

static bool read_lists(void *ctx, struct sqlite3 *db, struct err *err)
{
	struct reload *reload = ctx;

	return book_each_owner(db, collect_owner, reload, err) &&
	       book_each_agent(db, collect_revoked, reload, err) &&
	       collect_cut(reload, db, err) &&
	       ((buf_ok(&reload->listed) && buf_ok(&reload->revoked) &&
		 buf_ok(&reload->cut)) ||
		err_set(err, ERR_TOO_LARGE, "more owners or revoked agents than fit"));
}

static bool forget_cut(void *ctx, struct sqlite3 *db, struct err *err)
{
	const int64_t *n = ctx;
	struct sqlite3_stmt *stmt = NULL;

	if (!db_prepare(db, "DELETE FROM cut WHERE n <= ?1", &stmt, err))
		return false;
	(void)sqlite3_bind_int64(stmt, 1, *n);
	return end_of_rows(db, stmt, sqlite3_step(stmt), err);
}

/* What stays is cut once more by the next reload, or forgotten by the next start. */
static void on_cut_forgotten(void *ctx, const struct err *err)
{
	(void)err;
	free(ctx);
}

static void start_forget_cut(struct reload *reload)
{
	int64_t *n;

	if (reload->cut_n == 0)
		return;
	n = mem_alloc(sizeof(*n));
	*n = reload->cut_n;
	if (!store_write(reload->store, forget_cut, on_cut_forgotten, n, sizeof(*n)))
		free(n);
}

static void each_key(const struct buf *keys, struct owners *owners,
		     void (*change)(struct owners *owners, const uint8_t key[KEY_BYTES]))
{
	size_t i;

	for (i = 0; i < keys->len; i += KEY_BYTES)
		change(owners, (const uint8_t *)keys->ptr + i);
}

static void on_lists_read(void *ctx, const struct err *err)
{
	struct reload *reload = ctx;

	if (!err) {
		owners_forget_lists(reload->owners);
		each_key(&reload->listed, reload->owners, owners_list);
		each_key(&reload->revoked, reload->owners, owners_revoke);
		each_key(&reload->cut, reload->owners, owners_revoke);
		start_forget_cut(reload);
	}
	reload->done(reload->ctx, err);
	if (!err)
		each_key(&reload->cut, reload->owners, owners_allow);
	buf_finish(&reload->listed);
	buf_finish(&reload->revoked);
	buf_finish(&reload->cut);
	free(reload);
}

bool book_reload(struct store *store, struct owners *owners,
		 void (*done)(void *ctx, const struct err *err), void *ctx)
{
	struct reload *reload = mem_alloc(sizeof(*reload));

	reload->store = store;
	reload->owners = owners;
	reload->done = done;
	reload->ctx = ctx;
	buf_init(&reload->listed, (size_t)KEY_BYTES * OWNERS_MAX);
	buf_init(&reload->revoked, (size_t)KEY_BYTES * OWNERS_MAX);
	buf_init(&reload->cut, (size_t)KEY_BYTES * OWNERS_MAX);
	if (store_write(store, read_lists, on_lists_read, reload, sizeof(*reload)))
		return true;
	free(reload);
	return false;
}
