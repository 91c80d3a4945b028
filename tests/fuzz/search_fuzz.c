/* What anybody types, over what an agent wrote: up to the first line end a query, behind
 * it a text. Whatever it is, FTS5 takes what is made of it; what it finds is marked, and
 * what is marked is the text. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <string.h>

#include <sqlite3.h>

#include "observer/acp.h"
#include "observer/search_mark.h"
#include "observer/search_text.h"
#include "wire/nostr/json.h"

#define TEXT_MAX 4096

static sqlite3 *db;
static struct marker *marker;

static void open_index(void)
{
	/* As SEARCH_SCHEMA has it. */
	static const char schema[] =
		"CREATE VIRTUAL TABLE found USING fts5(text, about, content='',"
		" columnsize=0, tokenize=\"unicode61 remove_diacritics 2 categories 'L* "
		"N* Co So'\")";

	assert(sqlite3_open(":memory:", &db) == SQLITE_OK);
	assert(sqlite3_exec(db, schema, NULL, NULL, NULL) == SQLITE_OK);
	marker = marker_create(db, NULL);
	assert(marker);
}

static void change(const char *sql, struct slice spread)
{
	sqlite3_stmt *statement = NULL;

	assert(sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK);
	(void)sqlite3_bind_text64(statement, 1, spread.ptr ? spread.ptr : "", spread.len,
				  SQLITE_STATIC, SQLITE_UTF8);
	assert(sqlite3_step(statement) == SQLITE_DONE);
	(void)sqlite3_finalize(statement);
}

static bool finds(struct slice match)
{
	sqlite3_stmt *statement = NULL;
	int status;

	assert(sqlite3_prepare_v2(db, "SELECT 1 FROM found WHERE found MATCH ?1", -1,
				  &statement, NULL) == SQLITE_OK);
	(void)sqlite3_bind_text64(statement, 1, match.ptr, match.len, SQLITE_STATIC,
				  SQLITE_UTF8);
	status = sqlite3_step(statement);
	assert(status == SQLITE_ROW || status == SQLITE_DONE);
	(void)sqlite3_finalize(statement);
	return status == SQLITE_ROW;
}

/* Its pieces in a row are in the text, but for line ends; an odd number of them. */
static size_t check_snippet(struct slice json, struct slice text)
{
	struct buf whole = {.max = TEXT_MAX * 2}, piece = {0},
		   flat = {.max = TEXT_MAX + 1};
	struct slice rest = json, one;
	size_t count = 0;

	assert(json_check(json, NULL, NULL));
	while (acp_next(&rest, &one)) {
		acp_set_text(&piece, acp_string(one), TEXT_MAX);
		(void)buf_append(&whole, buf_slice(&piece));
		count++;
	}
	(void)buf_append(&flat, text);
	for (size_t i = 0; i < flat.len; i++)
		if (strchr("\n\r\t", flat.ptr[i]) && flat.ptr[i])
			flat.ptr[i] = ' ';
	assert(count % 2 == 1);
	assert(!whole.len ||
	       slice_find_slice(buf_slice(&flat), buf_slice(&whole)) < flat.len);
	buf_finish(&whole);
	buf_finish(&piece);
	buf_finish(&flat);
	return count;
}

static void check_text(struct slice match, struct slice text)
{
	struct buf spread = {0}, snippet = {.max = 64u << 10};
	bool first;
	size_t pieces;

	search_spread(text, &spread, NULL, NULL);
	change("INSERT INTO found(rowid, text) VALUES(1, ?1)", buf_slice(&spread));
	marker_snippet(marker, text, &snippet, &first);
	pieces = check_snippet(buf_slice(&snippet), text);
	assert(!match.len || !finds(match) || pieces >= 3);
	change("INSERT INTO found(found, rowid, text) VALUES('delete', 1, ?1)",
	       buf_slice(&spread));
	buf_finish(&spread);
	buf_finish(&snippet);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice text = {(const char *)data, size}, words = SLICE_EMPTY;
	struct search_query query;
	struct buf match = {0};

	if (!db)
		open_index();
	(void)slice_take_until(&text, '\n', &words);
	text = slice_sub(text, 0, TEXT_MAX);
	if (!search_query_parse(words.ptr ? words : SLICE(""), 0, &query, NULL))
		return 0;
	/* Rows are UTF-8: what is not was repaired before. */
	if (marker_set(marker, &query, &match, NULL) && utf8_valid(text))
		check_text(buf_slice(&match), text);
	buf_finish(&match);
	search_query_finish(&query);
	return 0;
}
