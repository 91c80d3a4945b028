#include "observer/search_mark.h"

#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "observer/search_text.h"
#include "wire/base/mem.h"
#include "wire/host/db.h"
#include "wire/nostr/json.h"

#define BEFORE 48 /* bytes of a snippet before its first match, about */

/* A word of the query. */
struct wanted {
	struct buf text;
	bool is_begin, is_last; /* of its term */
};

/* A word of the text. */
struct word {
	uint32_t from, to; /* in the text as it was spread */
	uint64_t wanted;   /* bits: which words of the query it is */
};

struct marker {
	fts5_tokenizer api;
	Fts5Tokenizer *tokenizer;
	struct wanted wanted[SEARCH_TOKENS_MAX];
	size_t wanted_count;
	bool too_many;
	struct word *words;
	size_t word_count, word_room;
	struct buf spread;
	uint32_t *blanks; /* offsets in @spread of what the text has not */
	size_t blank_count;
	uint64_t *matched; /* by word: bits of the terms' first words that match there */
};

/* FTS5, "Extending FTS5": its functions come by a pointer. */
static fts5_api *find_api(sqlite3 *db)
{
	sqlite3_stmt *statement = NULL;
	fts5_api *api = NULL;

	if (sqlite3_prepare_v2(db, "SELECT fts5(?1)", -1, &statement, NULL) ==
	    SQLITE_OK) {
		(void)sqlite3_bind_pointer(statement, 1, &api, "fts5_api_ptr", NULL);
		(void)sqlite3_step(statement);
	}
	(void)sqlite3_finalize(statement);
	return api;
}

/* Letters, digits and symbols (emoji), without case and accents: as SEARCH_SCHEMA says it
 * to the index. */
struct marker *marker_create(struct sqlite3 *db, struct err *err)
{
	static const char *args[] = {"remove_diacritics", "2", "categories",
				     "L* N* Co So"};
	struct marker *marker = mem_alloc(sizeof(*marker));
	fts5_api *api = find_api(db);
	void *ctx = NULL;

	if (!api ||
	    api->xFindTokenizer(api, "unicode61", &ctx, &marker->api) != SQLITE_OK ||
	    marker->api.xCreate(ctx, args, 4, &marker->tokenizer) != SQLITE_OK) {
		(void)err_set(err, ERR_SYSTEM, "this SQLite has no full-text search");
		marker_destroy(marker);
		return NULL;
	}
	return marker;
}

static void forget_query(struct marker *marker)
{
	for (size_t i = 0; i < marker->wanted_count; i++)
		buf_finish(&marker->wanted[i].text);
	marker->wanted_count = 0;
	marker->too_many = false;
}

void marker_destroy(struct marker *marker)
{
	if (!marker)
		return;
	forget_query(marker);
	if (marker->tokenizer)
		marker->api.xDelete(marker->tokenizer);
	buf_finish(&marker->spread);
	free(marker->blanks);
	free(marker->words);
	free(marker->matched);
	free(marker);
}

static void tokenize(struct marker *marker, struct slice text,
		     int (*on_token)(void *ctx, int flags, const char *token, int len,
				     int from, int to))
{
	buf_clear(&marker->spread);
	marker->blank_count = 0;
	free(marker->blanks);
	marker->blanks = NULL;
	search_spread(text, &marker->spread, &marker->blanks, &marker->blank_count);
	if (marker->spread.len)
		(void)marker->api.xTokenize(marker->tokenizer, marker,
					    FTS5_TOKENIZE_DOCUMENT, marker->spread.ptr,
					    (int)marker->spread.len, on_token);
}

/* ---- the query ---- */

static int on_query_token(void *ctx, int flags, const char *token, int len, int from,
			  int to)
{
	struct marker *marker = ctx;
	struct wanted *wanted = &marker->wanted[marker->wanted_count];

	(void)flags;
	(void)from;
	(void)to;
	if (marker->wanted_count == SEARCH_TOKENS_MAX) {
		marker->too_many = true;
		return SQLITE_OK;
	}
	*wanted = (struct wanted){.text.max = (size_t)len + 1};
	(void)buf_append(&wanted->text, (struct slice){token, (size_t)len});
	marker->wanted_count++;
	return SQLITE_OK;
}

/* As a string of FTS5: the words of a term are found side by side, in this order. */
static void write_term(const struct marker *marker, size_t from, struct buf *match)
{
	if (match->len)
		(void)buf_lit(match, " AND ");
	(void)buf_lit(match, "(text : \"");
	for (size_t i = from; i < marker->wanted_count; i++) {
		if (i > from)
			(void)buf_lit(match, " ");
		/* A token has no quotes: they are no letters. */
		(void)buf_append(match, buf_slice(&marker->wanted[i].text));
	}
	(void)buf_lit(match, "\"");
	if (marker->wanted[marker->wanted_count - 1].is_begin)
		(void)buf_lit(match, " *");
	(void)buf_lit(match, ")");
}

bool marker_set(struct marker *marker, const struct search_query *query,
		struct buf *match, struct err *err)
{
	forget_query(marker);
	buf_clear(match);
	match->max = SEARCH_QUERY_MAX * 8 + SEARCH_TERMS_MAX * 32;
	for (size_t i = 0; i < query->term_count; i++) {
		const size_t from = marker->wanted_count;

		tokenize(marker, query->terms[i].text, on_query_token);
		if (marker->too_many)
			return err_set(err, ERR_MALFORMED, "a search is at most %d words",
				       SEARCH_TOKENS_MAX);
		if (marker->wanted_count == from)
			continue; /* only punctuation */
		marker->wanted[marker->wanted_count - 1].is_last = true;
		marker->wanted[marker->wanted_count - 1].is_begin =
			query->terms[i].is_begin;
		write_term(marker, from, match);
	}
	return true;
}

/* ---- the text ---- */

static int on_text_token(void *ctx, int flags, const char *token, int len, int from,
			 int to)
{
	struct marker *marker = ctx;
	const struct slice text = {token, (size_t)len};
	struct word *word;

	(void)flags;
	if (marker->word_count == marker->word_room) {
		marker->word_room = marker->word_room ? marker->word_room * 2 : 256;
		marker->words = mem_grow(marker->words, marker->word_room,
					 sizeof(*marker->words));
	}
	word = &marker->words[marker->word_count++];
	*word = (struct word){(uint32_t)from, (uint32_t)to, 0};
	for (size_t i = 0; i < marker->wanted_count; i++) {
		const struct wanted *wanted = &marker->wanted[i];
		const struct slice looked_for = buf_slice(&wanted->text);

		if (wanted->is_begin ? slice_starts(text, looked_for)
				     : slice_eq(text, looked_for))
			word->wanted |= UINT64_C(1) << i;
	}
	return SQLITE_OK;
}

/* How many words from @at on are the term that begins with word @first; 0: they are not.
 */
static size_t match_length(const struct marker *marker, size_t at, size_t first)
{
	for (size_t i = 0;; i++) {
		if (at + i >= marker->word_count ||
		    !(marker->words[at + i].wanted & UINT64_C(1) << (first + i)))
			return 0;
		if (marker->wanted[first + i].is_last)
			return i + 1;
	}
}

/* The longest match at word @at; @term its first word's number. */
static size_t match_at(const struct marker *marker, size_t at, size_t *term)
{
	size_t longest = 0;

	if (!marker->words[at].wanted)
		return 0;
	for (size_t first = 0; first < marker->wanted_count; first++) {
		const bool begins = !first || marker->wanted[first - 1].is_last;
		const size_t length = begins ? match_length(marker, at, first) : 0;

		if (length > longest) {
			longest = length;
			*term = first;
		}
	}
	return longest;
}

static unsigned count_bits(uint64_t bits)
{
	unsigned count = 0;

	for (; bits; bits &= bits - 1)
		count++;
	return count;
}

/* The word at which the window with most of the query begins. */
static size_t best_word(struct marker *marker)
{
	size_t best = 0;
	unsigned most = 0;

	marker->matched = mem_grow(marker->matched, marker->word_count + 1,
				   sizeof(*marker->matched));
	for (size_t i = 0; i < marker->word_count; i++) {
		size_t term = 0;

		marker->matched[i] = match_at(marker, i, &term) ? UINT64_C(1) << term : 0;
	}
	for (size_t i = 0; i < marker->word_count; i++) {
		const uint32_t end = marker->words[i].from + SEARCH_SNIPPET - BEFORE;
		uint64_t seen = 0;

		if (!marker->matched[i])
			continue;
		for (size_t k = i; k < marker->word_count && marker->words[k].from < end;
		     k++)
			seen |= marker->matched[k];
		if (count_bits(seen) > most) {
			most = count_bits(seen);
			best = i;
		}
		if (most == marker->wanted_count)
			break;
	}
	return best;
}

/* From an offset in the text as it was spread to one in the text. */
static size_t original(const struct marker *marker, uint32_t at)
{
	size_t low = 0, high = marker->blank_count;

	while (low < high) {
		const size_t middle = (low + high) / 2;

		if (marker->blanks[middle] < at)
			low = middle + 1;
		else
			high = middle;
	}
	return at - low;
}

static void write_piece(struct slice text, struct buf *out, struct buf *scratch)
{
	buf_clear(scratch);
	scratch->max = text.len + 1;
	(void)buf_append(scratch, text);
	for (size_t i = 0; i < scratch->len; i++)
		if (scratch->ptr[i] == '\n' || scratch->ptr[i] == '\r' ||
		    scratch->ptr[i] == '\t')
			scratch->ptr[i] = ' ';
	json_write_string(out, buf_slice(scratch));
}

/* Where a snippet around the byte @match begins: at a word, or where the text does. */
static size_t snippet_start(const struct marker *marker, size_t match)
{
	size_t start = match;

	if (match <= BEFORE)
		return 0;
	for (size_t i = marker->word_count; i-- > 0;) {
		const size_t from = original(marker, marker->words[i].from);

		if (from <= match && from + BEFORE >= match)
			start = from;
		if (from + BEFORE < match)
			break;
	}
	return start;
}

void marker_snippet(struct marker *marker, struct slice text, struct buf *out,
		    bool *first)
{
	struct buf scratch = {0};
	size_t at, end, i = 0, term;

	marker->word_count = 0;
	tokenize(marker, text, on_text_token);
	at = 0;
	if (marker->word_count && marker->wanted_count)
		at = snippet_start(
			marker, original(marker, marker->words[best_word(marker)].from));
	end = at + utf8_floor(slice_sub(text, at, text.len), SEARCH_SNIPPET);
	*first = at == 0;
	(void)buf_lit(out, "[");
	while (i < marker->word_count && marker->wanted_count) {
		const size_t from = original(marker, marker->words[i].from);
		const size_t length = from < at ? 0 : match_at(marker, i, &term);
		size_t to;

		if (from >= end)
			break;
		if (!length) {
			i++;
			continue;
		}
		to = original(marker, marker->words[i + length - 1].to);
		write_piece(slice_sub(text, at, from), out, &scratch);
		(void)buf_lit(out, ",");
		write_piece(slice_sub(text, from, to), out, &scratch);
		(void)buf_lit(out, ",");
		at = to;
		i += length;
	}
	write_piece(slice_sub(text, at, end > at ? end : at), out, &scratch);
	(void)buf_lit(out, "]");
	buf_finish(&scratch);
}
