#include "observer/search_part.h"

#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "wire/base/map.h"
#include "wire/base/mem.h"
#include "wire/host/db.h"
#include "wire/host/log.h"
#include "wire/host/loop.h"

#define WALK_EVENTS 500
/* What is let go of goes in many slices; its segment's other rows wait for the last. */
#define DROPPED_MS 30000

struct search_pace search_pace_begin(int64_t ms, size_t most)
{
	return (struct search_pace){.until_ms = loop_now_ms() + ms, .most = most};
}

bool search_pace_is_over(const struct search_pace *pace)
{
	return pace->done >= pace->most || loop_now_ms() >= pace->until_ms;
}

bool search_pace_take(struct search_pace *pace, size_t bytes)
{
	pace->done += 1 + bytes / SEARCH_WORK_BYTES;
	return !search_pace_is_over(pace);
}

static void drop_work(struct search_work **work)
{
	search_work_destroy(*work);
	*work = NULL;
}

/* They begin again. */
static void drop_works(struct search *search)
{
	drop_work(&search->news);
	drop_work(&search->old);
}

/* ---- an index that is broken ---- */

/* Its own tables may be in a state in which FTS5 does not open it, not even to drop it;
 * then it is taken out of the schema by hand. */
static bool drop_words(struct search *search, struct err *err)
{
	static const char by_hand[] =
		"PRAGMA writable_schema = ON;"
		"DELETE FROM sqlite_schema WHERE type = 'table' AND name = 'found';"
		"PRAGMA writable_schema = RESET;"
		"DROP TABLE IF EXISTS found_data; DROP TABLE IF EXISTS found_idx;"
		"DROP TABLE IF EXISTS found_config; DROP TABLE IF EXISTS found_docsize;"
		"DROP TABLE IF EXISTS found_content";

	return db_exec(search->db, "DROP TABLE IF EXISTS found", NULL) ||
	       db_exec(search->db, by_hand, err);
}

/* Everything is unindexed again. */
static bool begin_anew(struct search *search, struct err *err)
{
	/* The schema, by its own script, as nothing of it is there any more. */
	static const char again[] =
		"DROP TABLE segment; DROP TABLE doc; DROP TABLE unindexed;" SEARCH_SCHEMA;
	bool ok;

	log_warn("search", "the index of words is broken: it is made again from the "
			   "archive, which is not");
	search_finalize(search);
	search_forget_touched(search);
	drop_works(search);
	ok = db_exec(search->db, "BEGIN IMMEDIATE", err) && drop_words(search, err) &&
	     db_exec(search->db, again, err) && db_exec(search->db, "COMMIT", err);
	if (!ok)
		(void)db_exec(search->db, "ROLLBACK", NULL);
	search->broken = !ok || !search_prepare(search, err);
	return !search->broken;
}

/* A table that FTS5 cannot open is an error without a name; a disk that is full or a
 * database that is held has one. */
static bool may_be_broken(struct sqlite3 *db)
{
	const int code = sqlite3_errcode(db) & 0xff;

	return code == SQLITE_ERROR || code == SQLITE_CORRUPT;
}

struct search *search_create(struct sqlite3 *db, const struct search_source *source,
			     struct err *err)
{
	struct search *search = mem_alloc(sizeof(*search));

	search->db = db;
	search->source = *source;
	search->packed.max = ZSTD_compressBound(SEARCH_DOC_MAX);
	search->compress = ZSTD_createCCtx();
	search->marker = marker_create(db, err);
	if (!search->compress && search->marker)
		(void)err_set(err, ERR_SYSTEM, "no memory for compression");
	if (search->compress && search->marker &&
	    (search_prepare(search, err) ||
	     (may_be_broken(db) && begin_anew(search, err))))
		return search;
	search_destroy(search);
	return NULL;
}

void search_destroy(struct search *search)
{
	if (!search)
		return;
	search_finalize(search);
	drop_works(search);
	marker_destroy(search->marker);
	(void)ZSTD_freeCCtx(search->compress);
	buf_finish(&search->packed);
	buf_wipe(&search->text);
	buf_wipe(&search->spread);
	buf_finish(&search->about);
	buf_finish(&search->touched);
	free(search);
}

/* ---- segments ---- */

void search_forget_touched(struct search *search)
{
	buf_clear(&search->touched);
}

static void write_name(const struct search_segment *segment, struct buf *out)
{
	out->max = segment->channel.len + segment->tag.len + 64;
	(void)buf_printf(out, "%lld\n", (long long)segment->agent);
	(void)buf_append(out, segment->channel);
	(void)buf_lit(out, "\n");
	(void)buf_append(out, segment->tag);
}

static bool touch(struct search *search, const struct search_segment *segment,
		  int64_t due_ms, struct err *err)
{
	struct sqlite3_stmt *statement = search_begin(search, SEGMENT_TOUCH);

	(void)sqlite3_bind_int64(statement, 1, segment->agent);
	db_bind_text(statement, 2, segment->channel.ptr ? segment->channel : SLICE(""));
	db_bind_text(statement, 3, segment->tag);
	db_bind_text(statement, 4, slice_of(segment->epoch));
	db_bind_text(statement, 5, slice_of(segment->pos.epoch));
	(void)sqlite3_bind_int64(statement, 6, (int64_t)segment->pos.seq);
	db_bind_text(statement, 7, segment->turn);
	(void)sqlite3_bind_int64(statement, 8, due_ms);
	return search_run(search, statement, "note a segment", err);
}

bool search_touch(struct search *search, const struct search_segment *segment,
		  int64_t now_ms, struct err *err)
{
	struct buf name = {0};
	bool ok = true;

	if (search->broken)
		return true; /* all is taken in again anyway */
	if (search->news)
		search_work_note(search->news, segment);
	if (search->old)
		search_work_note(search->old, segment);
	write_name(segment, &name);
	if (!slice_eq(buf_slice(&name), buf_slice(&search->touched))) {
		ok = touch(search, segment, now_ms + SEARCH_QUIET_MS, err);
		buf_finish(&search->touched);
		search->touched = name;
		name = (struct buf){0};
	}
	buf_finish(&name);
	return ok;
}

bool search_drop(struct search *search, const struct search_segment *segment,
		 int64_t now_ms, struct err *err)
{
	struct sqlite3_stmt *statement = search_begin(search, SEGMENT_FIND);
	int64_t id = 0, doc = 0;
	bool ok = true;

	if (search->broken)
		return true;
	(void)sqlite3_bind_int64(statement, 1, segment->agent);
	db_bind_text(statement, 2, segment->channel.ptr ? segment->channel : SLICE(""));
	db_bind_text(statement, 3, segment->tag);
	if (sqlite3_step(statement) == SQLITE_ROW)
		id = sqlite3_column_int64(statement, 0);
	(void)sqlite3_reset(statement);
	if (!id)
		return true; /* not taken in yet */
	if (search->news && search_work_id(search->news) == id)
		drop_work(&search->news);
	if (search->old && search_work_id(search->old) == id)
		drop_work(&search->old);
	do {
		statement = search_begin(search, DOCS_AT);
		(void)sqlite3_bind_int64(statement, 1, id);
		(void)sqlite3_bind_int64(statement, 2, (int64_t)segment->pos.seq);
		db_bind_text(statement, 3, slice_of(segment->pos.epoch));
		doc = sqlite3_step(statement) == SQLITE_ROW
			      ? sqlite3_column_int64(statement, 0)
			      : 0;
		(void)sqlite3_reset(statement);
		ok = !doc || search_drop_doc(search, segment->agent, doc, err);
	} while (doc && ok);
	/* An index that breaks here keeps nobody from forgetting: it is made again. */
	if (search->broken)
		return true;
	return ok && touch(search, segment, now_ms + DROPPED_MS, err);
}

/* ---- following the archive ---- */

/* What to go on with: the segment that something came for first, then the one from
 * before; NULL if nothing is due. */
static struct search_work **next_work(struct search *search, enum search_urge urge,
				      int64_t now_ms)
{
	struct sqlite3_stmt *statement;
	struct search_work **work = NULL;

	if (search->news)
		return &search->news;
	statement = search_begin(search,
				 urge == SEARCH_NEW ? SEGMENT_NEXT_NEW : SEGMENT_NEXT);
	(void)sqlite3_bind_int64(statement, 1, urge == SEARCH_NEW ? 0 : now_ms);
	if (sqlite3_step(statement) == SQLITE_ROW)
		work = sqlite3_column_int64(statement, 8) ? &search->news : &search->old;
	else if (urge == SEARCH_DUE && search->old)
		work = &search->old;
	if (work == &search->news && search->old &&
	    search_work_id(search->old) == sqlite3_column_int64(statement, 0)) {
		/* Something came for it meanwhile. */
		search->news = search->old;
		search->old = NULL;
	}
	if (work && !*work)
		*work = search_work_create(statement);
	(void)sqlite3_reset(statement);
	return work && *work ? work : NULL;
}

struct walk {
	struct search *search;
	struct err *err;
	bool ok;
	struct search_pace *pace;
};

static bool on_walked(void *arg, const struct search_segment *segment)
{
	struct walk *walk = arg;
	struct buf name = {0};

	write_name(segment, &name);
	if (!slice_eq(buf_slice(&name), buf_slice(&walk->search->touched))) {
		walk->ok = touch(walk->search, segment, 0, walk->err);
		buf_finish(&walk->search->touched);
		walk->search->touched = name;
		name = (struct buf){0};
	}
	buf_finish(&name);
	(void)search_pace_take(walk->pace, 0);
	return walk->ok;
}

/* Some more of what was there before. @done: that was all. */
static bool walk_back(struct search *search, struct search_pace *pace, bool *done,
		      struct err *err)
{
	struct sqlite3_stmt *statement = search_begin(search, LOW_GET);
	struct walk walk = {search, err, true, pace};
	unsigned count = WALK_EVENTS;
	int64_t low = 0;

	if (sqlite3_step(statement) == SQLITE_ROW)
		low = sqlite3_column_int64(statement, 0);
	(void)sqlite3_reset(statement);
	*done = !low;
	if (!low)
		return true;
	search_forget_touched(search);
	if (pace->most - pace->done < count)
		count = (unsigned)(pace->most - pace->done);
	low = search->source.walk(search->source.ctx, low, count, on_walked, &walk);
	search_forget_touched(search);
	if (!walk.ok)
		return false;
	statement = search_begin(search, low ? LOW_SET : LOW_DROP);
	if (low)
		(void)sqlite3_bind_int64(statement, 1, low);
	return search_run(search, statement, "note how far the index is", err);
}

static bool take_in(struct search *search, enum search_urge urge, int64_t now_ms,
		    struct search_pace *pace, int64_t *next_ms, struct err *err)
{
	bool ok = true, done = false;

	*next_ms = 0;
	do {
		struct search_work **work = next_work(search, urge, now_ms);
		bool whole = false;

		if (work) {
			ok = search_work_go(search, *work, now_ms, pace, &whole, err);
			if (whole)
				drop_work(work);
		} else if (urge == SEARCH_NEW) {
			done = true;
		} else {
			ok = walk_back(search, pace, &done, err);
		}
	} while (ok && !done && !search_pace_is_over(pace));
	if (done)
		*next_ms = urge == SEARCH_NEW ? INT64_MAX : search_earliest(search);
	return ok;
}

bool search_step(struct search *search, enum search_urge urge, int64_t now_ms,
		 struct search_pace *pace, int64_t *next_ms, struct err *err)
{
	bool ok;

	*next_ms = INT64_MAX;
	pace->done = 0;
	if (search->broken && !begin_anew(search, err))
		return false;
	search_forget_touched(search);
	if (!db_exec(search->db, "BEGIN IMMEDIATE", err))
		return false;
	ok = take_in(search, urge, now_ms, pace, next_ms, err);
	ok = ok &&
	     (db_exec(search->db, "COMMIT", err) || search_fail(search, "index", err));
	if (!ok) {
		(void)db_exec(search->db, "ROLLBACK", NULL);
		drop_works(search);
	}
	if (!ok && search->broken) { /* the next step makes it again */
		*next_ms = 0;
		return true;
	}
	return ok;
}

bool search_compact(struct search *search, struct err *err)
{
	return db_exec(search->db, "INSERT INTO found(found) VALUES('optimize')", err);
}

bool search_merge(struct search *search, bool first, bool *done, struct err *err)
{
	const int before = sqlite3_total_changes(search->db);

	/* FTS5, "The 'merge' Command": the first, negative, takes in all there is; two
	 * changes and more say that there was work. */
	*done = true;
	if (search->broken)
		return true; /* it is made again anyway */
	if (!db_exec(search->db,
		     first ? "INSERT INTO found(found, rank) VALUES('merge', -64)"
			   : "INSERT INTO found(found, rank) VALUES('merge', 64)",
		     err))
		return search_fail(search, "merge the index of words", err);
	*done = sqlite3_total_changes(search->db) - before < 2;
	return true;
}
