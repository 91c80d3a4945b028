#ifndef OBSERVER_SEARCH_PART_H
#define OBSERVER_SEARCH_PART_H

#include <zstd.h>

#include "observer/search.h"
#include "observer/search_mark.h"
#include "observer/search_text.h"

/* What the parts of the index of words share: search.c (what is due, and following the
 * archive), search_work.c (a segment, piece by piece), search_doc.c (the texts and their
 * words), search_find.c (finding) and search_sql.c (statements). Nobody else includes
 * this. */

struct sqlite3_stmt;

#define SEARCH_DOC_MAX (SEARCH_TEXT_MAX + 16) /* bytes of one text */
#define SEARCH_ID_BITS 10 /* docs of one second; more go to later ones */
#define SEARCH_SECONDS_MAX (INT64_C(1) << 50)

/* An event may be one of many: its segment waits for those that come with it. */
#define SEARCH_QUIET_MS 2000

enum search_statement {
	SEGMENT_TOUCH,
	SEGMENT_FIND,
	SEGMENT_NEXT,
	SEGMENT_NEXT_NEW,
	SEGMENT_DONE,
	SEGMENT_DROP,
	SEGMENT_EARLIEST,
	DOCS_OF,
	DOCS_AT,
	DOC_GET,
	DOC_ADD,
	DOC_DROP,
	DOC_LAST,
	WORDS_ADD,
	WORDS_DROP,
	LOW_GET,
	LOW_SET,
	LOW_DROP,
	FIND,
	LIST,
	AGENT_OF,
	SEARCH_STATEMENTS,
};

struct search {
	struct sqlite3 *db;
	struct search_source source;
	struct sqlite3_stmt *statements[SEARCH_STATEMENTS];
	struct marker *marker;
	ZSTD_CCtx *compress;
	struct buf packed, text, spread, about;
	struct buf touched; /* the segment touched last in this transaction */
	/* Segments that take more than a step: one that something came for, and one of
	 * what was there before, which gives way to it. NULL: none. */
	struct search_work *news, *old;
	bool broken;      /* the index, not the archive */
	int64_t until_ms; /* loop_now_ms(); of a search */
};

/* ---- search_sql.c ---- */

bool search_prepare(struct search *search, struct err *err);
void search_finalize(struct search *search);
/* A statement, ready for binding. What is bound must outlive the steps that use it. */
struct sqlite3_stmt *search_begin(struct search *search, enum search_statement which);
/* One step of it, which is its last. */
bool search_run(struct search *search, struct sqlite3_stmt *statement, const char *doing,
		struct err *err);
/* SQLite's last error into @err; notes when it is the index that is broken. Always
 * false. */
bool search_fail(struct search *search, const char *doing, struct err *err);
/* When the first segment is due: 0 what was there before; INT64_MAX none. */
int64_t search_earliest(struct search *search);

/* ---- search_work.c ---- */

/* Makes what is found of a segment what its rows say now. It holds the segment's rows
 * while it lasts. */
struct search_work;

/* Of the segment in the current row of SEGMENT_NEXT; NULL if that cannot be read. */
struct search_work *search_work_create(struct sqlite3_stmt *at);
void search_work_destroy(struct search_work *work);
int64_t search_work_id(const struct search_work *work); /* of its segment */
/* An event of that segment came or changed: if it is behind what was read, the segment is
 * due again when this is done. What goes must end the work instead. */
void search_work_note(struct search_work *work, const struct search_segment *segment);
/* Goes on until @pace is over, in the caller's transaction, one piece at least. @done:
 * the segment is taken in, and marked so. When it fails, or the transaction is rolled
 * back, the work is of no use any more. */
bool search_work_go(struct search *search, struct search_work *work, int64_t now_ms,
		    struct search_pace *pace, bool *done, struct err *err);

/* ---- search_doc.c ---- */

/* Tells whether a row and its text are as a doc has them. */
int64_t search_hash_doc(const struct row *row, struct slice text);
/* @hash: search_hash_doc() of the same. */
bool search_add_doc(struct search *search, int64_t segment_id,
		    const struct search_segment *segment, const struct row *row,
		    struct slice text, int64_t hash, struct err *err);
/* One whose text cannot be read breaks the index: its words can only go with all others.
 */
bool search_drop_doc(struct search *search, int64_t agent, int64_t id, struct err *err);
/* Columns (size, text) from @at on, into search->text. */
bool search_unpack(struct search *search, struct sqlite3_stmt *statement, int at);

#endif
