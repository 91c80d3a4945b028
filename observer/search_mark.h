#ifndef OBSERVER_SEARCH_MARK_H
#define OBSERVER_SEARCH_MARK_H

#include "observer/search_query.h"
#include "wire/base/buf.h"
#include "wire/base/err.h"

struct sqlite3;

/* Where a query's words are in a text: by the index's own tokenizer, so that what is
 * marked is what was found. */
struct marker;

#define SEARCH_TOKENS_MAX 64 /* of a query, in all its terms */
#define SEARCH_SNIPPET 180   /* bytes of a snippet, about */

struct marker *marker_create(struct sqlite3 *db, struct err *err);
void marker_destroy(struct marker *marker);
/**
 * marker_set - the query that is looked for from now on
 * @match: gets what FTS5's MATCH wants for the words, quoted so that nothing in them is
 * syntax; empty when the query has no word.
 * ERR_MALFORMED: over SEARCH_TOKENS_MAX.
 */
bool marker_set(struct marker *marker, const struct search_query *query,
		struct buf *match, struct err *err);
/* Appends a JSON array of strings: text, match, text, match… of the part of @text that
 * has most of the query; line ends are blanks. @first: it begins with the text. */
void marker_snippet(struct marker *marker, struct slice text, struct buf *out,
		    bool *first);

#endif
