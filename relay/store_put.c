#include "relay/store_put.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "wire/base/mem.h"
#include "wire/host/db.h"

enum statement {
	FIND_ID,
	FIND_ADDRESS,
	FIND_EXPIRED,
	READ_JSON,
	INSERT_EVENT,
	INSERT_TAG,
	DELETE_EVENT,
	DELETE_TAG,
	IS_DELETED,
	DELETED_UNTIL,
	REMEMBER_ID,
	REMEMBER_ADDRESS,
	STATEMENTS,
};

static const char *const texts[STATEMENTS] = {
	[FIND_ID] = "SELECT seq, pubkey, kind FROM event WHERE id = ?1",
	[FIND_ADDRESS] = "SELECT seq, rank, expires FROM event"
			 " WHERE pubkey = ?1 AND kind = ?2 AND d = ?3",
	[FIND_EXPIRED] = "SELECT seq FROM event WHERE expires <= ?1 LIMIT 1",
	[READ_JSON] = "SELECT json FROM event WHERE seq = ?1",
	[INSERT_EVENT] = "INSERT INTO event (id, rank, pubkey, kind, d, expires, json)"
			 " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
	/* An event may carry the same tag twice. */
	[INSERT_TAG] = "INSERT OR IGNORE INTO tag (name, value, rank, seq)"
		       " VALUES (?1, ?2, ?3, ?4)",
	[DELETE_EVENT] = "DELETE FROM event WHERE seq = ?1",
	[DELETE_TAG] = "DELETE FROM tag WHERE name = ?1 AND value = ?2 AND rank = ?3",
	[IS_DELETED] = "SELECT 1 FROM deleted_id WHERE id = ?1 AND pubkey = ?2",
	[DELETED_UNTIL] = "SELECT until FROM deleted_address"
			  " WHERE pubkey = ?1 AND kind = ?2 AND d = ?3",
	[REMEMBER_ID] = "INSERT OR IGNORE INTO deleted_id (id, pubkey) VALUES (?1, ?2)",
	[REMEMBER_ADDRESS] = "INSERT INTO deleted_address (pubkey, kind, d, until)"
			     " VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE"
			     " SET until = max(until, excluded.until)",
};

struct store_put {
	struct sqlite3 *db;
	sqlite3_stmt *statements[STATEMENTS];
	struct arena arena; /* of an event that is removed */
};

static bool kind_is_replaceable(uint32_t kind)
{
	return kind == 0 || kind == 3 || (kind >= 10000 && kind < 20000);
}

static bool kind_is_addressable(uint32_t kind)
{
	return kind >= 30000 && kind < 40000;
}

bool event_expires(const struct event *event, int64_t *out)
{
	const struct tag *tag = event_tag(event, SLICE("expiration"));
	uint64_t at;

	if (!tag || !slice_parse_u64(tag_value(tag), INT64_MAX, &at))
		return false;
	*out = (int64_t)at;
	return true;
}

void rank_write(int64_t created_at, const uint8_t id[32], uint8_t rank[RANK_BYTES])
{
	uint64_t age = (uint64_t)(INT64_MAX - created_at);
	int i;

	for (i = 0; i < 8; i++)
		rank[i] = (uint8_t)(age >> (56 - 8 * i));
	memcpy(rank + 8, id, 32);
}

struct store_put *store_put_create(struct sqlite3 *db, struct err *err)
{
	struct store_put *put = mem_alloc(sizeof(*put));
	size_t i;

	put->db = db;
	arena_init(&put->arena, 4096);
	for (i = 0; i < STATEMENTS; i++)
		if (!db_prepare(db, texts[i], &put->statements[i], err))
			goto out;
	return put;
out:
	store_put_destroy(put);
	return NULL;
}

bool store_put_last_seq(struct sqlite3 *db, int64_t *out, struct err *err)
{
	sqlite3_stmt *statement = NULL;
	int result;

	*out = 0;
	if (!db_prepare(db, "SELECT seq FROM sqlite_sequence WHERE name = 'event'",
			&statement, err))
		return false;
	result = sqlite3_step(statement);
	if (result == SQLITE_ROW)
		*out = sqlite3_column_int64(statement, 0);
	(void)sqlite3_finalize(statement);
	return result == SQLITE_ROW || result == SQLITE_DONE ||
	       db_fail(db, err, "read the database");
}

void store_put_destroy(struct store_put *put)
{
	size_t i;

	if (!put)
		return;
	for (i = 0; i < STATEMENTS; i++)
		(void)sqlite3_finalize(put->statements[i]);
	arena_finish(&put->arena);
	free(put);
}

/* Statements: what is bound must live until finish(). */

static void bind_blob(sqlite3_stmt *statement, int at, const void *bytes, size_t len)
{
	/* NULL would be NULL, not an empty blob. */
	(void)sqlite3_bind_blob64(statement, at, len > 0 ? bytes : "", len,
				  SQLITE_STATIC);
}

static void bind_slice(sqlite3_stmt *statement, int at, struct slice bytes)
{
	bind_blob(statement, at, bytes.ptr, bytes.len);
}

/* Steps once: a row, the end, or a failure that fills @err. */
static bool step(struct store_put *put, sqlite3_stmt *statement, bool *row,
		 struct err *err)
{
	int result = sqlite3_step(statement);

	*row = result == SQLITE_ROW;
	return result == SQLITE_ROW || result == SQLITE_DONE ||
	       db_fail(put->db, err, "keep an event");
}

/* Makes the statement ready for its next use; true, so that a chain may end with it. */
static bool finish(sqlite3_stmt *statement)
{
	(void)sqlite3_reset(statement);
	(void)sqlite3_clear_bindings(statement);
	return true;
}

/* For statements without rows. */
static bool run(struct store_put *put, sqlite3_stmt *statement, struct err *err)
{
	bool row;
	bool ok = step(put, statement, &row, err);

	return finish(statement) && ok;
}

/* Tags */

/* Element 1 of every tag whose name is one letter. */
static bool is_indexed(const struct tag *tag)
{
	char name = tag->values[0].len == 1 ? tag->values[0].ptr[0] : '\0';

	return tag->count > 1 &&
	       ((name >= 'a' && name <= 'z') || (name >= 'A' && name <= 'Z'));
}

static bool change_tags(struct store_put *put, enum statement which,
			const struct event *event, const uint8_t rank[RANK_BYTES],
			int64_t seq, struct err *err)
{
	sqlite3_stmt *statement = put->statements[which];
	size_t i;

	for (i = 0; i < event->tag_count; i++) {
		const struct tag *tag = &event->tags[i];

		if (!is_indexed(tag))
			continue;
		(void)sqlite3_bind_int(statement, 1, tag->values[0].ptr[0]);
		bind_slice(statement, 2, tag->values[1]);
		bind_blob(statement, 3, rank, RANK_BYTES);
		if (which == INSERT_TAG)
			(void)sqlite3_bind_int64(statement, 4, seq);
		if (!run(put, statement, err))
			return false;
	}
	return true;
}

/* Removing */

static bool read_json(struct store_put *put, int64_t seq, struct event *event,
		      struct err *err)
{
	sqlite3_stmt *statement = put->statements[READ_JSON];
	bool row = false;
	bool ok;

	arena_reset(&put->arena);
	(void)sqlite3_bind_int64(statement, 1, seq);
	ok = step(put, statement, &row, err);
	if (ok && !row)
		ok = err_set(err, ERR_SYSTEM, "event %lld is gone", (long long)seq);
	if (ok) {
		struct slice json = {sqlite3_column_blob(statement, 0),
				     (size_t)sqlite3_column_bytes(statement, 0)};

		ok = event_parse(arena_dup(&put->arena, json), &put->arena, event, err);
	}
	return finish(statement) && ok;
}

static bool remove_event(struct store_put *put, int64_t seq, struct err *err)
{
	sqlite3_stmt *statement = put->statements[DELETE_EVENT];
	uint8_t rank[RANK_BYTES];
	struct event event;

	if (!read_json(put, seq, &event, err))
		return false;
	rank_write(event.created_at, event.id, rank);
	if (!change_tags(put, DELETE_TAG, &event, rank, seq, err))
		return false;
	(void)sqlite3_bind_int64(statement, 1, seq);
	return run(put, statement, err);
}

/* What stands at an address. */
struct occupant {
	bool there;
	int64_t seq;
	uint8_t rank[RANK_BYTES];
	int64_t expires; /* INT64_MAX: never */
};

static bool find_address(struct store_put *put, const uint8_t author[KEY_BYTES],
			 uint32_t kind, struct slice d, struct occupant *out,
			 struct err *err)
{
	sqlite3_stmt *statement = put->statements[FIND_ADDRESS];
	bool ok;

	memset(out, 0, sizeof(*out));
	bind_blob(statement, 1, author, KEY_BYTES);
	(void)sqlite3_bind_int(statement, 2, (int)kind);
	bind_slice(statement, 3, d);
	ok = step(put, statement, &out->there, err);
	if (ok && out->there) {
		out->seq = sqlite3_column_int64(statement, 0);
		if (sqlite3_column_bytes(statement, 1) == RANK_BYTES)
			memcpy(out->rank, sqlite3_column_blob(statement, 1), RANK_BYTES);
		out->expires = sqlite3_column_type(statement, 2) == SQLITE_NULL
				       ? INT64_MAX
				       : sqlite3_column_int64(statement, 2);
	}
	return finish(statement) && ok;
}

/* Deletions */

static bool remember_id(struct store_put *put, const uint8_t id[32],
			const uint8_t author[KEY_BYTES], struct err *err)
{
	sqlite3_stmt *statement = put->statements[REMEMBER_ID];

	bind_blob(statement, 1, id, 32);
	bind_blob(statement, 2, author, KEY_BYTES);
	return run(put, statement, err);
}

/* NIP-09: only its author can delete an event, and deleting a deletion has no effect. */
static bool delete_id(struct store_put *put, struct slice id_hex,
		      const struct event *deletion, struct err *err)
{
	sqlite3_stmt *statement = put->statements[FIND_ID];
	int64_t seq = 0;
	bool is_own = false;
	bool row = false;
	uint8_t id[32];
	bool ok;

	if (!hex_decode(id_hex, id, sizeof(id)))
		return true;
	bind_blob(statement, 1, id, sizeof(id));
	ok = step(put, statement, &row, err);
	if (ok && row) {
		seq = sqlite3_column_int64(statement, 0);
		is_own = sqlite3_column_bytes(statement, 1) == KEY_BYTES &&
			 memcmp(sqlite3_column_blob(statement, 1), deletion->pubkey,
				KEY_BYTES) == 0 &&
			 sqlite3_column_int(statement, 2) != KIND_DELETION;
	}
	(void)finish(statement);
	if (!ok || (row && !is_own))
		return ok;
	return (!row || remove_event(put, seq, err)) &&
	       remember_id(put, id, deletion->pubkey, err);
}

/* kind:pubkey:d, where d may hold colons; false when it is no address of @author's. */
static bool read_address(struct slice value, const uint8_t author[KEY_BYTES],
			 uint32_t *kind, struct slice *d)
{
	struct slice kind_text, key_text;
	uint8_t key[KEY_BYTES];
	uint64_t number;

	if (slice_find(value, ':') == value.len ||
	    !slice_take_until(&value, ':', &kind_text) ||
	    slice_find(value, ':') == value.len ||
	    !slice_take_until(&value, ':', &key_text) ||
	    !slice_parse_u64(kind_text, EVENT_KIND_MAX, &number) ||
	    !hex_decode(key_text, key, sizeof(key)) ||
	    memcmp(key, author, KEY_BYTES) != 0)
		return false;
	*kind = (uint32_t)number;
	*d = value;
	return kind_is_addressable(*kind) || (kind_is_replaceable(*kind) && d->len == 0);
}

static bool delete_address(struct store_put *put, struct slice value,
			   const struct event *deletion, struct err *err)
{
	sqlite3_stmt *statement = put->statements[REMEMBER_ADDRESS];
	uint8_t first[RANK_BYTES];
	struct occupant occupant;
	uint32_t kind;
	struct slice d;

	if (!read_address(value, deletion->pubkey, &kind, &d))
		return true;
	bind_blob(statement, 1, deletion->pubkey, KEY_BYTES);
	(void)sqlite3_bind_int(statement, 2, (int)kind);
	bind_slice(statement, 3, d);
	(void)sqlite3_bind_int64(statement, 4, deletion->created_at);
	if (!run(put, statement, err) ||
	    !find_address(put, deletion->pubkey, kind, d, &occupant, err))
		return false;
	/* "all versions of the replaceable event up to the created_at timestamp" */
	rank_write(deletion->created_at, (const uint8_t[32]){0}, first);
	if (!occupant.there || memcmp(occupant.rank, first, 8) < 0)
		return true;
	return remove_event(put, occupant.seq, err);
}

static bool delete_all(struct store_put *put, const struct event *deletion,
		       struct err *err)
{
	size_t i;

	for (i = 0; i < deletion->tag_count; i++) {
		const struct tag *tag = &deletion->tags[i];

		if (slice_eq(tag->values[0], SLICE("e")) &&
		    !delete_id(put, tag_value(tag), deletion, err))
			return false;
		if (slice_eq(tag->values[0], SLICE("a")) &&
		    !delete_address(put, tag_value(tag), deletion, err))
			return false;
	}
	return true;
}

/* Putting */

static bool answer(struct put_result *out, enum put_verdict verdict, const char *text)
{
	out->verdict = verdict;
	out->is_deleted = false;
	(void)snprintf(out->text, sizeof(out->text), "%s", text);
	return true;
}

static bool refuse_deleted(struct put_result *out, const char *text)
{
	(void)answer(out, PUT_REFUSED, text);
	out->is_deleted = true;
	return true;
}

/* The value by which an event stands at an address; false when it has none. */
static bool address_of(const struct event *event, struct slice *d)
{
	const struct tag *tag = event_tag(event, SLICE("d"));

	*d = SLICE_EMPTY;
	if (kind_is_replaceable(event->kind))
		return true;
	if (tag)
		*d = tag_value(tag);
	return kind_is_addressable(event->kind);
}

/* Is there one row? */
static bool exists(struct store_put *put, sqlite3_stmt *statement, bool *out,
		   struct err *err)
{
	bool ok = step(put, statement, out, err);

	return finish(statement) && ok;
}

static bool is_known(struct store_put *put, const struct event *event, bool *out,
		     struct err *err)
{
	sqlite3_stmt *statement = put->statements[FIND_ID];

	bind_blob(statement, 1, event->id, sizeof(event->id));
	return exists(put, statement, out, err);
}

static bool is_deleted(struct store_put *put, const struct event *event, bool *out,
		       struct err *err)
{
	sqlite3_stmt *statement = put->statements[IS_DELETED];

	*out = false;
	if (event->kind == KIND_DELETION)
		return true;
	bind_blob(statement, 1, event->id, sizeof(event->id));
	bind_blob(statement, 2, event->pubkey, KEY_BYTES);
	return exists(put, statement, out, err);
}

static bool is_address_deleted(struct store_put *put, const struct event *event,
			       struct slice d, bool *out, struct err *err)
{
	sqlite3_stmt *statement = put->statements[DELETED_UNTIL];
	bool row = false;
	bool ok;

	bind_blob(statement, 1, event->pubkey, KEY_BYTES);
	(void)sqlite3_bind_int(statement, 2, (int)event->kind);
	bind_slice(statement, 3, d);
	ok = step(put, statement, &row, err);
	*out = ok && row && event->created_at <= sqlite3_column_int64(statement, 0);
	return finish(statement) && ok;
}

static bool insert(struct store_put *put, const struct event *event,
		   const struct slice *d, const uint8_t rank[RANK_BYTES],
		   struct slice json, int64_t *seq, struct err *err)
{
	sqlite3_stmt *statement = put->statements[INSERT_EVENT];
	int64_t expires;

	bind_blob(statement, 1, event->id, sizeof(event->id));
	bind_blob(statement, 2, rank, RANK_BYTES);
	bind_blob(statement, 3, event->pubkey, KEY_BYTES);
	(void)sqlite3_bind_int(statement, 4, (int)event->kind);
	if (d)
		bind_slice(statement, 5, *d);
	if (event_expires(event, &expires))
		(void)sqlite3_bind_int64(statement, 6, expires);
	bind_slice(statement, 7, json);
	if (!run(put, statement, err))
		return false;
	*seq = sqlite3_last_insert_rowid(put->db);
	return change_tags(put, INSERT_TAG, event, rank, *seq, err);
}

bool store_put_event(struct store_put *put, const struct event *event, struct slice json,
		     int64_t now, struct put_result *out, struct err *err)
{
	uint8_t rank[RANK_BYTES];
	struct occupant occupant;
	bool has_address;
	struct slice d;
	bool yes;

	if (!is_known(put, event, &yes, err))
		return false;
	if (yes)
		return answer(out, PUT_DUPLICATE, "duplicate: have this event already");
	if (!is_deleted(put, event, &yes, err))
		return false;
	if (yes)
		return refuse_deleted(out, "blocked: its author has deleted it");
	rank_write(event->created_at, event->id, rank);
	has_address = address_of(event, &d);
	if (has_address) {
		if (!is_address_deleted(put, event, d, &yes, err))
			return false;
		if (yes)
			return refuse_deleted(
				out, "blocked: its author has deleted this version");
		if (!find_address(put, event->pubkey, event->kind, d, &occupant, err))
			return false;
		if (occupant.there && occupant.expires > now &&
		    memcmp(occupant.rank, rank, RANK_BYTES) < 0)
			return answer(out, PUT_REFUSED,
				      "duplicate: already have a newer version");
		if (occupant.there && !remove_event(put, occupant.seq, err))
			return false;
	}
	if (!insert(put, event, has_address ? &d : NULL, rank, json, &out->seq, err))
		return false;
	if (event->kind == KIND_DELETION && !delete_all(put, event, err))
		return false;
	return answer(out, PUT_STORED, "");
}

bool store_put_sweep(struct store_put *put, int64_t now, int64_t most, int64_t *count_out,
		     struct err *err)
{
	sqlite3_stmt *statement = put->statements[FIND_EXPIRED];
	bool row = true;
	bool ok = true;
	int64_t seq;

	for (*count_out = 0; ok && *count_out < most; (*count_out)++) {
		(void)sqlite3_bind_int64(statement, 1, now);
		ok = step(put, statement, &row, err);
		seq = ok && row ? sqlite3_column_int64(statement, 0) : 0;
		(void)finish(statement);
		if (!ok || !row)
			break;
		ok = remove_event(put, seq, err);
	}
	return ok;
}
