#include "observer/search_part.h"

#include <string.h>

#include <sqlite3.h>

#include "wire/host/db.h"

#define COMPRESSION 3
#define COMPRESS_MIN 96 /* bytes; below that it only grows */
#define PROBES_MAX 48   /* seconds looked at for a free id, ever further on */

static bool pack(struct search *search, struct slice text, struct slice *out,
		 struct err *err)
{
	const size_t bound = ZSTD_compressBound(text.len);
	size_t len;

	*out = text;
	if (text.len < COMPRESS_MIN)
		return true;
	buf_clear(&search->packed);
	if (!buf_reserve(&search->packed, bound))
		return err_set(err, ERR_TOO_LARGE, "text of %zu bytes", text.len);
	len = ZSTD_compressCCtx(search->compress, search->packed.ptr, bound, text.ptr,
				text.len, COMPRESSION);
	if (ZSTD_isError(len))
		return err_set(err, ERR_SYSTEM, "cannot compress: %s",
			       ZSTD_getErrorName(len));
	search->packed.len = len;
	if (len < text.len)
		*out = buf_slice(&search->packed);
	return true;
}

/* Columns (size, text) from @at on, into search->text. */
bool search_unpack(struct search *search, struct sqlite3_stmt *statement, int at)
{
	const int64_t size = sqlite3_column_int64(statement, at);
	const char *blob = sqlite3_column_blob(statement, at + 1);
	const size_t len = (size_t)sqlite3_column_bytes(statement, at + 1);
	struct buf *out = &search->text;

	buf_clear(out);
	out->max = SEARCH_DOC_MAX;
	if (size <= 0 || (size_t)size > out->max || !buf_reserve(out, (size_t)size))
		return false;
	if ((size_t)size == len)
		return buf_append(out, (struct slice){blob, len});
	out->len = ZSTD_decompress(out->ptr, (size_t)size, blob, len);
	if (out->len == (size_t)size)
		return true;
	out->len = 0;
	return false;
}

/* What FTS5 is given of a doc: its words, and those that filters ask for. */
static void spread(struct search *search, struct slice text, int64_t agent, int kind)
{
	buf_clear(&search->spread);
	search_spread(text, &search->spread, NULL, NULL);
	buf_clear(&search->about);
	search->about.max = 64;
	(void)buf_printf(&search->about, "a%lld k%d", (long long)agent, kind);
}

static bool write_words(struct search *search, enum search_statement which, int64_t id,
			struct err *err)
{
	struct sqlite3_stmt *statement = search_begin(search, which);

	(void)sqlite3_bind_int64(statement, 1, id);
	db_bind_text(statement, 2, buf_slice(&search->spread));
	db_bind_text(statement, 3, buf_slice(&search->about));
	return search_run(search, statement, "change the index of words", err);
}

bool search_drop_doc(struct search *search, int64_t agent, int64_t id, struct err *err)
{
	struct sqlite3_stmt *statement = search_begin(search, DOC_GET);
	bool ok;

	(void)sqlite3_bind_int64(statement, 1, id);
	ok = sqlite3_step(statement) == SQLITE_ROW && search_unpack(search, statement, 0);
	if (ok)
		spread(search, buf_slice(&search->text), agent,
		       sqlite3_column_int(statement, 2));
	(void)sqlite3_reset(statement);
	if (!ok) { /* its words can only go with all others */
		search->broken = true;
		return err_set(err, ERR_MALFORMED, "a text of the index is broken");
	}
	statement = search_begin(search, DOC_DROP);
	(void)sqlite3_bind_int64(statement, 1, id);
	return write_words(search, WORDS_DROP, id, err) &&
	       search_run(search, statement, "drop a text", err);
}

/* The id behind the last one of [first, last], @first if there is none. */
static int64_t next_id(struct search *search, int64_t first, int64_t last)
{
	struct sqlite3_stmt *statement = search_begin(search, DOC_LAST);
	int64_t id = first;

	(void)sqlite3_bind_int64(statement, 1, first);
	(void)sqlite3_bind_int64(statement, 2, last);
	if (sqlite3_step(statement) == SQLITE_ROW &&
	    sqlite3_column_type(statement, 0) == SQLITE_INTEGER)
		id = sqlite3_column_int64(statement, 0) + 1;
	(void)sqlite3_reset(statement);
	return id;
}

/* The next id of that second; of a later one where it is full. Whoever has no clock, or a
 * forged one, says everything in one second: then any id that is free. */
static int64_t free_id(struct search *search, int64_t t_ms)
{
	int64_t second = t_ms < 0 ? 0 : t_ms / 1000, step = 1;

	if (second > SEARCH_SECONDS_MAX)
		second = SEARCH_SECONDS_MAX;
	for (unsigned i = 0; i < PROBES_MAX;
	     i++, second += step, step += (step + 1) / 2) {
		const int64_t first = second << SEARCH_ID_BITS;
		const int64_t last = first + (1 << SEARCH_ID_BITS) - 1;
		const int64_t id = next_id(search, first, last);

		if (id <= last)
			return id;
	}
	return next_id(search, second << SEARCH_ID_BITS, INT64_MAX);
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t len)
{
	const unsigned char *at = bytes;

	for (size_t i = 0; i < len; i++) /* FNV-1a: told apart, not defended */
		hash = (hash ^ at[i]) * UINT64_C(1099511628211);
	return hash;
}

int64_t search_hash_doc(const struct row *row, struct slice text)
{
	uint64_t hash = UINT64_C(14695981039346656037);

	hash = hash_bytes(hash, &row->type, sizeof(row->type));
	hash = hash_bytes(hash, &row->t, sizeof(row->t));
	hash = hash_bytes(hash, row->pos.epoch, strlen(row->pos.epoch));
	hash = hash_bytes(hash, &row->pos.seq, sizeof(row->pos.seq));
	return (int64_t)hash_bytes(hash, text.ptr, text.len);
}

bool search_add_doc(struct search *search, int64_t segment_id,
		    const struct search_segment *segment, const struct row *row,
		    struct slice text, int64_t hash, struct err *err)
{
	const int64_t id = free_id(search, row->t);
	struct sqlite3_stmt *statement;
	struct slice packed;

	if (!pack(search, text, &packed, err))
		return false;
	statement = search_begin(search, DOC_ADD);
	(void)sqlite3_bind_int64(statement, 1, id);
	(void)sqlite3_bind_int64(statement, 2, segment_id);
	db_bind_text(statement, 3, buf_slice(&row->id));
	if (!slice_eq(buf_slice(&row->channel), segment->channel))
		db_bind_text(statement, 4, buf_slice(&row->channel));
	db_bind_text(statement, 5, slice_of(row->pos.epoch));
	(void)sqlite3_bind_int64(statement, 6, (int64_t)row->pos.seq);
	(void)sqlite3_bind_int64(statement, 7, row->t);
	(void)sqlite3_bind_int(statement, 8, (int)row->type);
	(void)sqlite3_bind_int64(statement, 9, hash);
	(void)sqlite3_bind_int64(statement, 10, (int64_t)text.len);
	(void)sqlite3_bind_blob64(statement, 11, packed.ptr, packed.len, SQLITE_STATIC);
	if (!search_run(search, statement, "keep a text", err))
		return false;
	spread(search, text, segment->agent, (int)row->type);
	return write_words(search, WORDS_ADD, id, err);
}
