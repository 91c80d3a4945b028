#ifndef OBSERVER_SEARCH_QUERY_H
#define OBSERVER_SEARCH_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observer/row.h"
#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"

/* What a person types to find something: words (all of them, in any order), "phrases",
 * begin* of words, and agent:NAME, kind:TYPE, since:WHEN. Pure; nothing typed is an
 * error of syntax: what is no filter is words. */

#define SEARCH_QUERY_MAX 1000 /* bytes */
#define SEARCH_TERMS_MAX 32

struct search_term {
	struct slice text; /* in search_query.text */
	bool is_begin;     /* its last word may go on */
};

struct search_query {
	struct buf text; /* the query's own copy */
	struct search_term terms[SEARCH_TERMS_MAX];
	size_t term_count;
	struct slice agent; /* empty: any */
	uint32_t kinds;     /* bits 1 << enum row_type; 0: any */
	int64_t since_ms;   /* INT64_MIN: ever */
};

/* ERR_MALFORMED: no UTF-8, too long, too many words, or a filter's value that is none. */
bool search_query_parse(struct slice text, int64_t now_ms, struct search_query *out,
			struct err *err);
void search_query_finish(struct search_query *query);

#endif
