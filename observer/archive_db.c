#include "observer/archive_db_part.h"

#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "wire/base/mem.h"
#include "wire/host/db.h"

/* ---- what the index of words asks for ---- */

static int64_t walk_for_search(void *ctx, int64_t low, unsigned count,
			       bool (*each)(void *arg,
					    const struct search_segment *segment),
			       void *arg)
{
	struct archive_db *db = ctx;
	struct sqlite3_stmt *statement = archive_sql_begin(db, WALK);
	struct search_segment segment;
	char epoch[17];
	int64_t next = 0;
	unsigned seen = 0;
	bool more = true;

	(void)sqlite3_bind_int64(statement, 1, low);
	(void)sqlite3_bind_int64(statement, 2, count);
	while (more && sqlite3_step(statement) == SQLITE_ROW) {
		seen++;
		next = sqlite3_column_int64(statement, 0) - 1;
		if (archive_segment_at(db, statement, epoch, &segment))
			more = each(arg, &segment);
	}
	(void)sqlite3_reset(statement);
	return seen == count ? next : 0;
}

static bool fold_for_search(void *ctx, const struct search_segment *segment,
			    struct fold *fold, struct pos *from, struct search_pace *pace)
{
	return archive_fold_events(ctx, segment, fold, from, pace);
}

static void names_for_search(void *ctx, int64_t agent, struct slice channel,
			     struct buf *out)
{
	archive_write_names(ctx, agent, channel, out);
}

/* ---- opening ---- */

struct archive_db *archive_db_open(const char *path, struct err *err)
{
	struct archive_db *db = mem_alloc(sizeof(*db));

	arena_init(&db->arena, 1u << 16);
	db->scratch.max = ZSTD_compressBound(ARCHIVE_BODY_MAX);
	db->frame.max = FRAME_PLAINTEXT_MAX * 2;
	db->whole.max = ARCHIVE_BODY_MAX;
	db->compress = ZSTD_createCCtx();
	if (!db->compress) {
		(void)err_set(err, ERR_SYSTEM, "no memory for compression");
		archive_db_close(db);
		return NULL;
	}
	if (!db_open_bounded(path, archive_migrations, ARCHIVE_OPEN_CHECK_BYTES, &db->db,
			     err)) {
		archive_db_close(db);
		return NULL;
	}
	if (!archive_sql_prepare(db, err)) {
		archive_db_close(db);
		return NULL;
	}
	db->search =
		search_create(db->db,
			      &(struct search_source){fold_for_search, walk_for_search,
						      names_for_search, db},
			      err);
	if (!db->search) {
		archive_db_close(db);
		return NULL;
	}
	return db;
}

void archive_db_close(struct archive_db *db)
{
	if (!db)
		return;
	search_destroy(db->search);
	for (size_t i = 0; i < ARCHIVE_STATEMENTS; i++)
		(void)sqlite3_finalize(db->statements[i]);
	if (db->db)
		db_close(db->db);
	(void)ZSTD_freeCCtx(db->compress);
	arena_finish(&db->arena);
	buf_finish(&db->scratch);
	buf_wipe(&db->frame);
	buf_wipe(&db->whole);
	buf_finish(&db->tag);
	free(db);
}

bool archive_db_is_broken(const struct archive_db *db)
{
	return db->broken;
}

bool archive_db_begin(struct archive_db *db, struct err *err)
{
	search_forget_touched(db->search);
	return archive_sql_exec(db, "BEGIN IMMEDIATE", err);
}

void archive_db_rollback(struct archive_db *db)
{
	/* SQLite may have done it by itself. */
	(void)db_exec(db->db, "ROLLBACK", NULL);
	search_forget_touched(db->search);
}

bool archive_db_commit(struct archive_db *db, struct err *err)
{
	if (db_commit(db->db, err))
		return true;
	db->broken = db->broken || err->code == ERR_MALFORMED;
	archive_db_rollback(db);
	return false;
}

/* ---- full text ---- */

bool archive_db_index(struct archive_db *db, bool all_new, int64_t now_ms,
		      struct search_pace *pace, int64_t *next_ms, struct err *err)
{
	return search_step(db->search, all_new ? SEARCH_NEW : SEARCH_DUE, now_ms, pace,
			   next_ms, err);
}

bool archive_db_merge(struct archive_db *db, bool first, bool *done, struct err *err)
{
	return search_merge(db->search, first, done, err);
}

bool archive_db_compact(struct archive_db *db, struct err *err)
{
	return search_compact(db->search, err);
}

bool archive_db_search(struct archive_db *db, const struct search_question *question,
		       struct archive_answer *out, struct err *err)
{
	struct buf text = {.max = 4u << 20};
	const bool ok = search_find(db->search, question, &text, err);

	if (ok) {
		out->text = mem_dup(buf_slice(&text));
		out->text_len = text.len;
	}
	buf_finish(&text);
	return ok;
}
