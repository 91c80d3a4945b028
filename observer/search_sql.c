#include "observer/search_part.h"

#include <sqlite3.h>

#include "wire/host/db.h"

#define HIT_COLUMNS \
	" d.id, a.key, coalesce(d.lane, s.channel), d.row, d.place, d.seq, d.t," \
	" d.kind, d.size, d.text, a.id"

static const char *const sql[SEARCH_STATEMENTS] = {
	[SEGMENT_TOUCH] =
		"INSERT INTO segment(agent, channel, tag, epoch, place, seq, turn, due)"
		" VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE SET"
		" due = coalesce(nullif(due, 0), max(excluded.due, rest))",
	[SEGMENT_FIND] = "SELECT id FROM segment WHERE agent = ?1 AND channel = ?2 AND"
			 " tag = ?3",
	/* The clock may have been set back since. */
	[SEGMENT_NEXT] = "SELECT id, agent, channel, tag, epoch, place, seq, turn, due "
			 "FROM segment"
			 " WHERE due IS NOT NULL AND (due <= ?1 OR due > ?1 + 3600000)"
			 " ORDER BY due DESC LIMIT 1",
	[SEGMENT_NEXT_NEW] = "SELECT id, agent, channel, tag, epoch, place, seq, turn, "
			     "due FROM segment"
			     " WHERE due > ?1 ORDER BY due LIMIT 1",
	[SEGMENT_DONE] = "UPDATE segment SET due = ?3, rest = ?2 WHERE id = ?1",
	[SEGMENT_DROP] = "DELETE FROM segment WHERE id = ?1",
	[SEGMENT_EARLIEST] = "SELECT min(due) FROM segment WHERE due IS NOT NULL",
	[DOCS_OF] = "SELECT id, row, hash, seq FROM doc WHERE segment = ?1 AND (seq, id) "
		    "> (?2, ?3)"
		    " ORDER BY seq, id",
	[DOCS_AT] = "SELECT id FROM doc WHERE segment = ?1 AND seq = ?2 AND place = ?3",
	[DOC_GET] = "SELECT size, text, kind, segment FROM doc WHERE id = ?1",
	[DOC_ADD] = "INSERT INTO doc(id, segment, row, lane, place, seq, t, kind, hash,"
		    " size, text) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
	[DOC_DROP] = "DELETE FROM doc WHERE id = ?1",
	[DOC_LAST] = "SELECT max(id) FROM doc WHERE id BETWEEN ?1 AND ?2",
	[WORDS_ADD] = "INSERT INTO found(rowid, text, about) VALUES(?1, ?2, ?3)",
	/* FTS5, "The 'delete' Command": with the very text that was put in. */
	[WORDS_DROP] = "INSERT INTO found(found, rowid, text, about)"
		       " VALUES('delete', ?1, ?2, ?3)",
	[LOW_GET] = "SELECT low FROM unindexed",
	[LOW_SET] = "UPDATE unindexed SET low = ?1",
	[LOW_DROP] = "DELETE FROM unindexed",
	[FIND] = "SELECT" HIT_COLUMNS " FROM found JOIN doc d ON d.id = found.rowid"
		 " JOIN segment s ON s.id = d.segment JOIN agent a ON a.id = s.agent"
		 " WHERE found MATCH ?1 AND found.rowid < ?2 AND found.rowid >= ?3"
		 " ORDER BY found.rowid DESC LIMIT ?4",
	[LIST] = "SELECT" HIT_COLUMNS " FROM doc d JOIN segment s ON s.id = d.segment"
		 " JOIN agent a ON a.id = s.agent WHERE d.id < ?2 AND d.id >= ?3"
		 " ORDER BY d.id DESC LIMIT ?4",
	[AGENT_OF] = "SELECT id FROM agent WHERE key = ?1",
};

void search_finalize(struct search *search)
{
	for (size_t i = 0; i < SEARCH_STATEMENTS; i++) {
		(void)sqlite3_finalize(search->statements[i]);
		search->statements[i] = NULL;
	}
}

struct sqlite3_stmt *search_begin(struct search *search, enum search_statement which)
{
	struct sqlite3_stmt *statement = search->statements[which];

	(void)sqlite3_reset(statement);
	(void)sqlite3_clear_bindings(statement);
	return statement;
}

/* What is bound outlives the steps that use it. */
/* FTS5 says so of its own tables only: the archive's are sound. */
bool search_fail(struct search *search, const char *doing, struct err *err)
{
	if (sqlite3_extended_errcode(search->db) == SQLITE_CORRUPT_VTAB)
		search->broken = true;
	return db_fail(search->db, err, doing);
}

bool search_run(struct search *search, struct sqlite3_stmt *statement, const char *doing,
		struct err *err)
{
	const int status = sqlite3_step(statement);
	bool ok = status == SQLITE_DONE || status == SQLITE_ROW;

	if (!ok)
		(void)search_fail(search, doing, err);
	(void)sqlite3_reset(statement);
	return ok;
}

bool search_prepare(struct search *search, struct err *err)
{
	for (size_t i = 0; i < SEARCH_STATEMENTS; i++)
		if (!db_prepare(search->db, sql[i], &search->statements[i], err))
			return false;
	return true;
}

int64_t search_earliest(struct search *search)
{
	struct sqlite3_stmt *statement = search_begin(search, SEGMENT_EARLIEST);
	int64_t due = INT64_MAX;

	if (sqlite3_step(statement) == SQLITE_ROW &&
	    sqlite3_column_type(statement, 0) == SQLITE_INTEGER)
		due = sqlite3_column_int64(statement, 0);
	(void)sqlite3_reset(statement);
	return due;
}
