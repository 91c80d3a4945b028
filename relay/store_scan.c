#include "relay/store_scan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "wire/base/mem.h"
#include "wire/host/db.h"
#include "wire/host/loop.h"

/* Rows fetched at once from all ranges together. */
#define PREFETCH 512
#define PREFETCH_RANGE_MAX 128

/* Which index a range is of. */
enum source {
	BY_ID,
	BY_TAG,
	BY_AUTHOR_KIND,
	BY_AUTHOR,
	BY_KIND,
	BY_TIME,
	READ,
	STATEMENTS,
};

/* ?1, ?2: the range's values; ?3, ?4: between these ranks, exclusive; ?5: so many. The
 * index is named, so that no statistics change what was measured. */
#define BETWEEN " rank > ?3 AND rank < ?4 ORDER BY rank LIMIT ?5"
static const char *const texts[STATEMENTS] = {
	[BY_ID] = "SELECT rank, seq FROM event WHERE id = ?1 AND" BETWEEN,
	[BY_TAG] = "SELECT rank, seq FROM tag WHERE name = ?2 AND value = ?1 AND" BETWEEN,
	[BY_AUTHOR_KIND] = "SELECT rank, seq FROM event INDEXED BY event_author_kind"
			   " WHERE pubkey = ?1 AND kind = ?2 AND" BETWEEN,
	[BY_AUTHOR] = "SELECT rank, seq FROM event INDEXED BY event_author"
		      " WHERE pubkey = ?1 AND" BETWEEN,
	[BY_KIND] = "SELECT rank, seq FROM event INDEXED BY event_kind"
		    " WHERE kind = ?2 AND" BETWEEN,
	[BY_TIME] = "SELECT rank, seq FROM event INDEXED BY event_time WHERE" BETWEEN,
	[READ] = "SELECT json, expires FROM event WHERE seq = ?1",
};

struct row {
	uint8_t rank[RANK_BYTES];
	int64_t seq;
};

/* One run of one index, read a few rows at a time. */
struct range {
	enum source source;
	size_t filter;      /* whose it is */
	struct slice value; /* author, id or tag value */
	int number;         /* kind, or the tag's letter */
	struct row *rows;
	size_t at, count;
	bool ended; /* nothing behind rows */
};

struct store_scanner {
	struct sqlite3 *db;
	sqlite3_stmt *statements[STATEMENTS];
	struct arena arena;   /* of one slice */
	struct arena parsing; /* of one event */
	/* Of the slice: */
	struct store_scan *scan;
	struct range *ranges;
	struct range **heap; /* those with a row, the newest first */
	size_t range_count, heap_count, batch;
	int64_t until_ms;
	size_t looks, bytes;
};

/* Ranges */

static bool is_empty(const struct filter *filter)
{
	size_t i;

	for (i = 0; i < filter->tag_count; i++)
		if (filter->tags[i].count == 0)
			return true;
	return (filter->ids.present && filter->ids.count == 0) ||
	       (filter->authors.present && filter->authors.count == 0) ||
	       (filter->has_kinds && filter->kind_count == 0);
}

bool filter_takes_stored(const struct filter *filter)
{
	size_t i;

	if (is_empty(filter))
		return false;
	for (i = 0; i < filter->kind_count; i++)
		if (!event_is_ephemeral(filter->kinds[i]))
			return true;
	return !filter->has_kinds;
}

/* Tags that point at one thing; others may be on half of all events. */
static bool is_narrow(const struct filter_tag *tag)
{
	return tag->letter == 'e' || tag->letter == 'a' || tag->letter == 'E' ||
	       tag->letter == 'A';
}

static const struct filter_tag *best_tag(const struct filter *filter, bool narrow)
{
	const struct filter_tag *best = NULL;
	size_t i;

	for (i = 0; i < filter->tag_count; i++)
		if ((!narrow || is_narrow(&filter->tags[i])) &&
		    (!best || filter->tags[i].count < best->count))
			best = &filter->tags[i];
	return best;
}

static void add_range(struct store_scanner *scanner, enum source source, size_t filter,
		      struct slice value, int number)
{
	assert(scanner->range_count < SCAN_RANGES_MAX);
	scanner->ranges[scanner->range_count++] = (struct range){
		.source = source, .filter = filter, .value = value, .number = number};
}

static struct slice key_at(const struct filter_list *list, size_t i)
{
	return (struct slice){(const char *)list->keys[i], KEY_BYTES};
}

/* Lists are sorted, so that repeated values stand side by side. */
static bool is_repeat(const struct filter_list *list, size_t i)
{
	return i > 0 && memcmp(list->keys[i - 1], list->keys[i], KEY_BYTES) == 0;
}

static void add_keys(struct store_scanner *scanner, enum source source, size_t filter,
		     const struct filter_list *list)
{
	size_t i;

	for (i = 0; i < list->count; i++)
		if (!is_repeat(list, i))
			add_range(scanner, source, filter, key_at(list, i), 0);
}

static void add_tag(struct store_scanner *scanner, size_t filter,
		    const struct filter_tag *tag)
{
	size_t i;

	for (i = 0; i < tag->count; i++)
		if (i == 0 || !slice_eq(tag->values[i - 1], tag->values[i]))
			add_range(scanner, BY_TAG, filter, tag->values[i], tag->letter);
}

/* Those of one author, or with an empty slice of all. */
static void add_kinds(struct store_scanner *scanner, size_t at,
		      const struct filter *filter, struct slice author)
{
	enum source source = author.len > 0 ? BY_AUTHOR_KIND : BY_KIND;
	size_t i;

	for (i = 0; i < filter->kind_count; i++)
		if ((i == 0 || filter->kinds[i - 1] != filter->kinds[i]) &&
		    !event_is_ephemeral(filter->kinds[i]))
			add_range(scanner, source, at, author, (int)filter->kinds[i]);
}

/* Chooses the index that should have the fewest rows for this filter. */
static void add_filter(struct store_scanner *scanner, size_t at)
{
	const struct filter *filter = &scanner->scan->sub->filters[at];
	const struct filter_tag *narrow = best_tag(filter, true);
	const struct filter_tag *any = best_tag(filter, false);
	size_t left = SCAN_RANGES_MAX - MESSAGE_FILTERS_MAX - scanner->range_count;
	size_t i;

	if (filter->ids.present && filter->ids.count <= left) {
		add_keys(scanner, BY_ID, at, &filter->ids);
	} else if (narrow && narrow->count <= left) {
		add_tag(scanner, at, narrow);
	} else if (filter->authors.present && filter->kind_count > 0 &&
		   filter->authors.count <= left / filter->kind_count) {
		for (i = 0; i < filter->authors.count; i++)
			if (!is_repeat(&filter->authors, i))
				add_kinds(scanner, at, filter,
					  key_at(&filter->authors, i));
	} else if (filter->authors.present && filter->authors.count <= left) {
		add_keys(scanner, BY_AUTHOR, at, &filter->authors);
	} else if (any && any->count <= left) {
		add_tag(scanner, at, any);
	} else if (filter->has_kinds && filter->kind_count <= left) {
		add_kinds(scanner, at, filter, SLICE_EMPTY);
	} else {
		add_range(scanner, BY_TIME, at, SLICE_EMPTY, 0);
	}
}

/* Ranks between which a filter's events are; a prefix is less than what it begins. */
struct bounds {
	uint8_t low[8], high[8];
	size_t low_len;
};

static void write_u64(uint64_t number, uint8_t out[8])
{
	int i;

	for (i = 0; i < 8; i++)
		out[i] = (uint8_t)(number >> (56 - 8 * i));
}

static void find_bounds(const struct filter *filter, struct bounds *out)
{
	memset(out, 0, sizeof(*out));
	if (filter->has_until) {
		write_u64((uint64_t)(INT64_MAX - filter->until), out->low);
		out->low_len = sizeof(out->low);
	}
	write_u64(filter->has_since ? (uint64_t)(INT64_MAX - filter->since) + 1
				    : UINT64_MAX,
		  out->high);
}

static void bind_blob(sqlite3_stmt *statement, int at, const void *bytes, size_t len)
{
	(void)sqlite3_bind_blob64(statement, at, len > 0 ? bytes : "", len,
				  SQLITE_STATIC);
}

/* The rank behind which the range goes on: what it gave last, or where the last slice
 * ended, or where the filter begins. Returns its length. */
static size_t find_low(const struct store_scanner *scanner, const struct range *range,
		       const struct bounds *bounds, uint8_t out[RANK_BYTES])
{
	const struct store_scan *scan = scanner->scan;

	if (range->count > 0) {
		memcpy(out, range->rows[range->count - 1].rank, RANK_BYTES);
		return RANK_BYTES;
	}
	if (scan->begun && memcmp(scan->place, bounds->low, bounds->low_len) >= 0) {
		memcpy(out, scan->place, RANK_BYTES);
		return RANK_BYTES;
	}
	memcpy(out, bounds->low, bounds->low_len);
	return bounds->low_len;
}

/* Reads the range's next rows. */
static bool refill(struct store_scanner *scanner, struct range *range, struct err *err)
{
	sqlite3_stmt *statement = scanner->statements[range->source];
	uint8_t low[RANK_BYTES];
	struct bounds bounds;
	size_t count = 0;
	size_t low_len;
	int result;

	find_bounds(&scanner->scan->sub->filters[range->filter], &bounds);
	low_len = find_low(scanner, range, &bounds, low);
	/* Every statement has all five, whether or not it uses them. */
	bind_blob(statement, 1, range->value.ptr, range->value.len);
	(void)sqlite3_bind_int(statement, 2, range->number);
	bind_blob(statement, 3, low, low_len);
	bind_blob(statement, 4, bounds.high, sizeof(bounds.high));
	(void)sqlite3_bind_int64(statement, 5, (int64_t)scanner->batch);
	if (!range->rows)
		range->rows = arena_array(&scanner->arena, scanner->batch,
					  sizeof(*range->rows));
	while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
		struct row *row = &range->rows[count];

		if (sqlite3_column_bytes(statement, 0) != RANK_BYTES)
			continue;
		memcpy(row->rank, sqlite3_column_blob(statement, 0), RANK_BYTES);
		row->seq = sqlite3_column_int64(statement, 1);
		count++;
	}
	(void)sqlite3_reset(statement);
	(void)sqlite3_clear_bindings(statement);
	if (result != SQLITE_DONE)
		return db_fail(scanner->db, err, "read events");
	range->at = 0;
	range->count = count;
	range->ended = count < scanner->batch;
	return true;
}

/* A heap of ranges by their next row */

static int order(const struct range *a, const struct range *b)
{
	return memcmp(a->rows[a->at].rank, b->rows[b->at].rank, RANK_BYTES);
}

static void swap(struct range **a, struct range **b)
{
	struct range *kept = *a;

	*a = *b;
	*b = kept;
}

static void sift_down(struct store_scanner *scanner, size_t at)
{
	struct range **heap = scanner->heap;

	for (;;) {
		size_t least = at;
		size_t child = 2 * at + 1;

		if (child < scanner->heap_count && order(heap[child], heap[least]) < 0)
			least = child;
		if (child + 1 < scanner->heap_count &&
		    order(heap[child + 1], heap[least]) < 0)
			least = child + 1;
		if (least == at)
			return;
		swap(&heap[at], &heap[least]);
		at = least;
	}
}

/* The first range goes on to its next row, or goes out when it has none or its filter
 * wants no more. */
static bool advance(struct store_scanner *scanner, struct err *err)
{
	struct range *range = scanner->heap[0];
	bool wanted = scanner->scan->room[range->filter] > 0;

	if (wanted && ++range->at == range->count && !range->ended &&
	    !refill(scanner, range, err))
		return false;
	if (!wanted || range->at == range->count)
		scanner->heap[0] = scanner->heap[--scanner->heap_count];
	sift_down(scanner, 0);
	return true;
}

/* Rows to fetch at once from each range: not many from many, nor more than are wanted. */
static size_t batch_for(const struct store_scan *scan, size_t range_count)
{
	size_t batch = PREFETCH / (range_count + 1);
	int64_t room = 1;
	size_t i;

	for (i = 0; i < scan->sub->filter_count; i++)
		if (scan->room[i] > room)
			room = scan->room[i];
	if (batch > PREFETCH_RANGE_MAX)
		batch = PREFETCH_RANGE_MAX;
	if ((int64_t)batch > room)
		batch = (size_t)room;
	return batch > 0 ? batch : 1;
}

static bool begin(struct store_scanner *scanner, struct store_scan *scan, struct err *err)
{
	size_t i;

	arena_reset(&scanner->arena);
	scanner->scan = scan;
	scanner->range_count = 0;
	scanner->heap_count = 0;
	scanner->looks = 0;
	scanner->bytes = 0;
	for (i = 0; i < scan->sub->filter_count; i++)
		if (scan->room[i] > 0 && filter_takes_stored(&scan->sub->filters[i]))
			add_filter(scanner, i);
	scanner->batch = batch_for(scan, scanner->range_count);
	for (i = 0; i < scanner->range_count; i++) {
		struct range *range = &scanner->ranges[i];

		if (!refill(scanner, range, err))
			return false;
		if (range->count > 0)
			scanner->heap[scanner->heap_count++] = range;
	}
	for (i = scanner->heap_count / 2; i > 0; i--)
		sift_down(scanner, i - 1);
	scanner->until_ms = loop_now_ms() + SCAN_SLICE_MS;
	return true;
}

/* Reads one event and compares it with the filters in @asked, one bit each. False when
 * the database failed. */
static bool look(struct store_scanner *scanner, int64_t seq, uint32_t asked,
		 struct err *err)
{
	sqlite3_stmt *statement = scanner->statements[READ];
	struct store_scan *scan = scanner->scan;
	struct slice json = SLICE_EMPTY;
	struct event event;
	bool matches = false;
	int result;
	size_t i;

	(void)sqlite3_bind_int64(statement, 1, seq);
	result = sqlite3_step(statement);
	if (result == SQLITE_ROW && (sqlite3_column_type(statement, 1) == SQLITE_NULL ||
				     sqlite3_column_int64(statement, 1) > scan->now))
		json = (struct slice){sqlite3_column_blob(statement, 0),
				      (size_t)sqlite3_column_bytes(statement, 0)};
	arena_reset(&scanner->parsing);
	if (json.len > 0 && event_parse(json, &scanner->parsing, &event, NULL)) {
		for (i = 0; i < scan->sub->filter_count; i++) {
			if (!(asked >> i & 1) ||
			    !subscription_takes(scan->sub, i, &event))
				continue;
			scan->room[i]--;
			matches = true;
		}
	}
	if (matches) {
		scan->count++;
		if (!scan->is_count)
			scan->bodies[scan->body_count++] = body_create(json);
		scanner->bytes += scan->is_count ? 0 : json.len;
	}
	(void)sqlite3_reset(statement);
	return result == SQLITE_ROW || result == SQLITE_DONE ||
	       db_fail(scanner->db, err, "read events");
}

static bool is_full(const struct store_scanner *scanner)
{
	return scanner->scan->body_count == SCAN_SLICE_EVENTS ||
	       scanner->bytes >= SCAN_SLICE_BYTES || scanner->looks >= SCAN_SLICE_LOOKS ||
	       loop_now_ms() >= scanner->until_ms;
}

static const uint8_t *next_rank(const struct store_scanner *scanner)
{
	return scanner->heap[0]->rows[scanner->heap[0]->at].rank;
}

/* Takes the newest row off every range that has it; @asked: the filters they are of. */
static bool take_row(struct store_scanner *scanner, struct row *row, uint32_t *asked,
		     struct err *err)
{
	*row = scanner->heap[0]->rows[scanner->heap[0]->at];
	*asked = 0;
	while (scanner->heap_count > 0 &&
	       memcmp(next_rank(scanner), row->rank, RANK_BYTES) == 0) {
		size_t filter = scanner->heap[0]->filter;

		if (scanner->scan->room[filter] > 0)
			*asked |= UINT32_C(1) << filter;
		if (!advance(scanner, err))
			return false;
	}
	return true;
}
static_assert(MESSAGE_FILTERS_MAX <= 32, "one bit per filter");

bool store_scan_slice(struct store_scanner *scanner, struct store_scan *scan,
		      struct err *err)
{
	uint32_t asked;
	struct row row;

	scan->body_count = 0;
	if (!begin(scanner, scan, err))
		return false;
	while (scanner->heap_count > 0 && (scanner->looks == 0 || !is_full(scanner))) {
		if (!take_row(scanner, &row, &asked, err))
			return false;
		memcpy(scan->place, row.rank, RANK_BYTES);
		scan->begun = true;
		scanner->looks++;
		if (asked && row.seq <= scan->bound &&
		    !look(scanner, row.seq, asked, err))
			return false;
	}
	scan->ended = scanner->heap_count == 0;
	return true;
}

struct store_scanner *store_scanner_create(struct sqlite3 *db, struct err *err)
{
	struct store_scanner *scanner = mem_alloc(sizeof(*scanner));
	size_t i;

	scanner->db = db;
	arena_init(&scanner->arena, 64 * 1024);
	arena_init(&scanner->parsing, 4096);
	scanner->ranges = mem_array(SCAN_RANGES_MAX, sizeof(*scanner->ranges));
	scanner->heap = mem_array(SCAN_RANGES_MAX, sizeof(struct range *));
	for (i = 0; i < STATEMENTS; i++)
		if (!db_prepare(db, texts[i], &scanner->statements[i], err))
			goto out;
	return scanner;
out:
	store_scanner_destroy(scanner);
	return NULL;
}

void store_scanner_destroy(struct store_scanner *scanner)
{
	size_t i;

	if (!scanner)
		return;
	for (i = 0; i < STATEMENTS; i++)
		(void)sqlite3_finalize(scanner->statements[i]);
	arena_finish(&scanner->arena);
	arena_finish(&scanner->parsing);
	free(scanner->ranges);
	free(scanner->heap);
	free(scanner);
}
