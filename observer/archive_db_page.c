#include "observer/archive_db_part.h"

#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "wire/base/map.h"
#include "wire/base/mem.h"
#include "wire/frame/observer_event.h"
#include "wire/host/db.h"
#include "wire/nostr/json.h"

#define GROUPS_MAX 4000 /* segments derived for one page of rows; our choice */

/* ---- rows ---- */

struct page {
	struct archive_db *db;
	int64_t agent;
	const uint8_t *key;
	struct slice channel;
	char newest_epoch[17];
	struct map seen; /* tags of the segments derived */
	struct archive_row *rows;
	size_t count, room;
};

static void page_add(struct page *page, const struct row *row, struct slice turn)
{
	char hex[2 * KEY_BYTES];
	struct buf json = {.max = 32u << 20};
	struct archive_row *out;

	if (!slice_eq(buf_slice(&row->channel), page->channel))
		return;
	if (page->count == page->room) {
		page->room = page->room ? page->room * 2 : 256;
		page->rows = mem_grow(page->rows, page->room, sizeof(*page->rows));
	}
	hex_encode(page->key, KEY_BYTES, hex);
	row_write(row, (struct slice){hex, sizeof(hex)}, turn, &json);
	out = &page->rows[page->count++];
	out->pos = row->pos;
	out->id = mem_dup(buf_slice(&row->id));
	out->id_len = row->id.len;
	out->json = mem_dup(buf_slice(&json));
	out->json_len = json.len;
	buf_finish(&json);
}

static void page_derive(struct page *page, struct slice channel,
			const struct archive_group *group)
{
	struct buf tag = {0};
	struct fold *fold;

	archive_group_tag(group, channel, &tag);
	if (map_get(&page->seen, buf_slice(&tag)) || page->seen.count > GROUPS_MAX) {
		buf_finish(&tag);
		return;
	}
	(void)map_put(&page->seen, buf_slice(&tag), page);
	fold = archive_derive(page->db, page->agent, channel, group, buf_slice(&tag),
			      page->newest_epoch, NULL);
	for (size_t i = 0; i < fold->row_count; i++)
		page_add(page, fold->rows[i],
			 group->has_turn ? buf_slice(&group->turn) : SLICE_EMPTY);
	fold_destroy(fold);
	buf_finish(&tag);
}

/* The segments that the ARCHIVE_SCAN_EVENTS events before @low are of, one for each
 * event; @low moves down to the last of them. */
static size_t scan_groups(struct archive_db *db, int64_t agent, struct slice channel,
			  struct pos *low,
			  struct archive_group groups[ARCHIVE_SCAN_EVENTS])
{
	struct sqlite3_stmt *statement = archive_sql_begin(db, SCAN_BACK);
	const struct pos from = *low;
	size_t count = 0;

	(void)sqlite3_bind_int64(statement, 1, agent);
	db_bind_text(statement, 2, channel);
	db_bind_text(statement, 3, slice_of(from.epoch));
	(void)sqlite3_bind_int64(statement, 4, (int64_t)from.seq);
	(void)sqlite3_bind_int64(statement, 5, ARCHIVE_SCAN_EVENTS);
	while (count < ARCHIVE_SCAN_EVENTS && sqlite3_step(statement) == SQLITE_ROW) {
		struct archive_group *group = &groups[count];

		if (!archive_group_read(statement, group))
			continue;
		*low = group->pos;
		count++;
	}
	(void)sqlite3_reset(statement);
	return count;
}

/* Derives the segments of the ARCHIVE_SCAN_EVENTS events before @low, which moves down to
 * the last of them. False when there are no more. */
static bool page_scan(struct page *page, struct pos *low)
{
	struct archive_group *groups = mem_array(ARCHIVE_SCAN_EVENTS, sizeof(*groups));
	const size_t count =
		scan_groups(page->db, page->agent, page->channel, low, groups);

	for (size_t i = 0; i < count; i++) {
		page_derive(page, page->channel, &groups[i]);
		buf_finish(&groups[i].turn);
	}
	free(groups);
	return count == ARCHIVE_SCAN_EVENTS;
}

/* What the harness itself did in that time is shown in its lanes too. */
static void page_own(struct page *page, const struct pos *low, const struct pos *high)
{
	struct sqlite3_stmt *statement = archive_sql_begin(page->db, OWN_EPOCHS);
	struct archive_group groups[64];
	size_t count = 0;

	(void)sqlite3_bind_int64(statement, 1, page->agent);
	db_bind_text(statement, 2, slice_of(low->epoch));
	db_bind_text(statement, 3, slice_of(high->epoch));
	while (count < 64 && sqlite3_step(statement) == SQLITE_ROW) {
		groups[count] = (struct archive_group){.has_turn = false};
		if (archive_sql_epoch(statement, 0, groups[count].epoch) &&
		    *groups[count].epoch)
			count++;
	}
	(void)sqlite3_reset(statement);
	for (size_t i = 0; i < count; i++) {
		memcpy(groups[i].pos.epoch, groups[i].epoch, sizeof(groups[i].epoch));
		page_derive(page, SLICE(""), &groups[i]);
	}
}

static int row_compare(const void *left, const void *right)
{
	const struct archive_row *a = left, *b = right;
	const int order = pos_compare(&a->pos, &b->pos);

	if (order)
		return order;
	return slice_compare((struct slice){a->id, a->id_len},
			     (struct slice){b->id, b->id_len});
}

static size_t page_count(const struct page *page, const struct pos *low,
			 const struct pos *before)
{
	size_t count = 0;

	for (size_t i = 0; i < page->count; i++)
		count += pos_compare(&page->rows[i].pos, low) >= 0 &&
			 pos_compare(&page->rows[i].pos, before) < 0;
	return count;
}

static void row_finish(struct archive_row *row)
{
	free(row->id);
	free(row->json);
}

/* Keeps the newest @limit rows of [low, before). */
static void page_cut(struct page *page, const struct pos *low, const struct pos *before,
		     size_t limit, struct archive_answer *out)
{
	size_t kept = 0, from;

	for (size_t i = 0; i < page->count; i++) {
		if (pos_compare(&page->rows[i].pos, low) >= 0 &&
		    pos_compare(&page->rows[i].pos, before) < 0)
			page->rows[kept++] = page->rows[i];
		else
			row_finish(&page->rows[i]);
	}
	if (kept)
		qsort(page->rows, kept, sizeof(*page->rows), row_compare);
	from = kept > limit ? kept - limit : 0;
	/* Rows of one event stay on one page: the next is asked for by position. */
	while (from && pos_compare(&page->rows[from - 1].pos, &page->rows[from].pos) == 0)
		from--;
	for (size_t i = 0; i < from; i++)
		row_finish(&page->rows[i]);
	if (from)
		memmove(page->rows, page->rows + from,
			(kept - from) * sizeof(*page->rows));
	out->rows = page->rows;
	out->row_count = kept - from;
	out->more = from > 0;
}

bool archive_db_rows(struct archive_db *db, const uint8_t *agent, struct slice channel,
		     const struct pos *before, size_t limit, struct archive_answer *out,
		     struct err *err)
{
	const struct pos top = {"~", 0}; /* behind every hex digit */
	const struct pos *high = before ? before : &top;
	struct page page = {.db = db, .key = agent, .channel = channel};
	struct buf names = {.max = 1u << 16};
	struct pos low = *high;
	bool more;

	page.agent = archive_find_agent(db, agent);
	if (!page.agent)
		return err_set(err, ERR_NOT_FOUND, "no such agent");
	archive_newest_epoch(db, page.agent, page.newest_epoch);
	map_init(&page.seen);
	do {
		more = page_scan(&page, &low);
	} while (more && page_count(&page, &low, high) < limit &&
		 page.seen.count < GROUPS_MAX);
	if (!more)
		low = (struct pos){"", 0};
	page_own(&page, &low, high);
	page_cut(&page, &low, high, limit, out);
	archive_write_names(db, page.agent, channel, &names);
	out->text = mem_dup(buf_slice(&names));
	out->text_len = names.len;
	buf_finish(&names);
	out->more = out->more || more;
	map_finish(&page.seen);
	return true;
}

bool archive_db_folds(struct archive_db *db, const uint8_t *agent, struct slice channel,
		      const struct pos *before, struct slice skip,
		      struct archive_answer *out, struct err *err)
{
	struct archive_group *groups = mem_array(ARCHIVE_SCAN_EVENTS, sizeof(*groups));
	const int64_t id = archive_find_agent(db, agent);
	char epoch[17];
	struct map seen;
	size_t count;

	map_init(&seen);
	values_init(&out->values);
	archive_newest_epoch(db, id, epoch);
	out->low = *before;
	count = scan_groups(db, id, channel, &out->low, groups);
	out->folds = mem_array(count + 1, sizeof(*out->folds));
	out->more = count == ARCHIVE_SCAN_EVENTS;
	for (size_t i = 0; i < count; i++) {
		struct archive_fold *fold = &out->folds[out->fold_count];
		struct archive_tally tally = {.values = &out->values};

		archive_group_tag(&groups[i], channel, &fold->tag);
		if (map_put(&seen, buf_slice(&fold->tag), db) ||
		    slice_eq(buf_slice(&fold->tag), skip)) {
			buf_clear(&fold->tag);
			continue;
		}
		fold->is_turn = groups[i].has_turn;
		fold->fold = archive_derive(db, id, channel, &groups[i],
					    buf_slice(&fold->tag), epoch, &tally);
		fold->end = tally.end;
		out->fold_count++;
	}
	for (size_t i = 0; i < count; i++)
		buf_finish(&groups[i].turn);
	buf_finish(&out->folds[out->fold_count].tag);
	free(groups);
	map_finish(&seen);
	return id != 0 || err_set(err, ERR_NOT_FOUND, "no such agent");
}

bool archive_db_event(struct archive_db *db, const uint8_t *agent, const struct pos *pos,
		      struct archive_answer *out, struct err *err)
{
	const int64_t id = archive_find_agent(db, agent);
	struct sqlite3_stmt *statement = archive_sql_begin(db, EVENT_GET);
	struct slice text = SLICE_EMPTY;

	(void)sqlite3_bind_int64(statement, 1, id);
	db_bind_text(statement, 2, slice_of(pos->epoch));
	(void)sqlite3_bind_int64(statement, 3, (int64_t)pos->seq);
	if (id && sqlite3_step(statement) == SQLITE_ROW &&
	    archive_event_text(db, id, statement, &text)) {
		out->text = mem_dup(text);
		out->text_len = text.len;
	}
	(void)sqlite3_reset(statement);
	return out->text || err_set(err, ERR_NOT_FOUND, "no such event");
}

/* The line of the event in the current row; false when its frame cannot be read. */
static bool raw_line(struct archive_db *db, int64_t agent, struct sqlite3_stmt *at,
		     const struct pos *pos, size_t cut, struct buf *out)
{
	struct observer_event event;
	struct slice text;

	if (!archive_event_text(db, agent, at, &text) ||
	    !observer_event_parse(text, &event, NULL))
		return false;
	if (out->ptr[out->len - 1] != '[')
		(void)buf_lit(out, ",");
	raw_write(&event, pos, sqlite3_column_int64(at, 5), cut, out);
	return true;
}

bool archive_db_raw(struct archive_db *db, const uint8_t *agent, struct slice channel,
		    const struct raw_query *query, struct archive_answer *out,
		    struct err *err)
{
	const int64_t id = archive_find_agent(db, agent);
	struct sqlite3_stmt *statement = archive_sql_begin(db, RAW_EVENTS);
	struct buf json = {.max = RAW_ANSWER_MAX + 8 * RAW_CUT_MAX};
	char next[POS_LEN + 1] = "";
	size_t count = 0;

	if (!id)
		return err_set(err, ERR_NOT_FOUND, "no such agent");
	(void)buf_lit(&json, "{\"lines\":[");
	(void)sqlite3_bind_int64(statement, 1, id);
	db_bind_text(statement, 2, channel);
	db_bind_text(statement, 3, slice_of(query->from.epoch));
	(void)sqlite3_bind_int64(statement, 4, (int64_t)query->from.seq);
	db_bind_text(statement, 5, slice_of(query->to.epoch));
	(void)sqlite3_bind_int64(statement, 6, (int64_t)query->to.seq);
	(void)sqlite3_bind_int64(statement, 7, (int64_t)query->limit + 1);
	while (sqlite3_step(statement) == SQLITE_ROW) {
		struct pos pos;

		if (!archive_sql_epoch(statement, 3, pos.epoch))
			continue;
		pos.seq = (uint64_t)sqlite3_column_int64(statement, 4);
		if (count == query->limit || json.len >= RAW_ANSWER_MAX) {
			pos_format(&pos, next);
			break;
		}
		count += raw_line(db, id, statement, &pos, query->cut, &json);
	}
	(void)sqlite3_reset(statement);
	(void)buf_lit(&json, "]");
	json_write_member_string(&json, SLICE("next"),
				 *next ? slice_of(next) : SLICE_EMPTY);
	(void)buf_lit(&json, "}");
	out->text = mem_dup(buf_slice(&json));
	out->text_len = json.len;
	buf_finish(&json);
	return true;
}

void archive_db_answer_finish(struct archive_answer *answer)
{
	for (size_t i = 0; i < answer->row_count; i++)
		row_finish(&answer->rows[i]);
	for (size_t i = 0; i < answer->fold_count; i++) {
		fold_destroy(answer->folds[i].fold);
		buf_finish(&answer->folds[i].tag);
	}
	values_finish(&answer->values);
	free(answer->folds);
	free(answer->rows);
	free(answer->text);
}
