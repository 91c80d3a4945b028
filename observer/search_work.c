#include "observer/search_part.h"

#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "wire/base/map.h"
#include "wire/base/mem.h"
#include "wire/host/db.h"
#include "wire/host/loop.h"

/* So much longer than the last time took, so that turns that go on cost a two-thousandth
 * of a core each, however long they get; but never longer than this. Our choice. */
#define REST_FACTOR 2000
#define REST_MAX_MS 120000

enum phase {
	WORK_DOCS,   /* what the index has of the segment is read */
	WORK_EVENTS, /* its events are folded */
	WORK_ROWS,   /* their rows are compared with the docs, and taken in */
	WORK_REST,   /* docs that are no rows any more go */
	WORK_DONE,
};

/* A doc that is there. */
struct known {
	int64_t id, hash;
	bool stays;
};

struct search_work {
	struct search_segment segment; /* its texts are in: */
	struct buf channel, tag, turn;
	char epoch[17];
	int64_t id; /* of the segment */
	enum phase phase;
	bool again;       /* what was read is no more what is there */
	struct pos from;  /* events before it are folded */
	int64_t seq, doc; /* docs up to there are known */
	struct fold *fold;
	struct known *docs;
	size_t count, room;
	struct map by_row; /* row id → index in docs + 1 */
	size_t at;         /* rows or docs before it are done */
	int64_t spent_ms;
};

static bool copy_epoch(struct slice text, char out[17])
{
	if (text.len > 16)
		return false;
	if (text.len)
		memcpy(out, text.ptr, text.len);
	out[text.len] = '\0';
	return true;
}

static struct slice copy(struct buf *to, struct slice text)
{
	to->max = text.len + 1;
	(void)buf_reserve(to, 1); /* an empty text is none of NULL */
	(void)buf_append(to, text);
	return text.ptr ? buf_slice(to) : SLICE_EMPTY;
}

struct search_work *search_work_create(struct sqlite3_stmt *at)
{
	struct search_work *work = mem_alloc(sizeof(*work));

	map_init(&work->by_row);
	if (!copy_epoch(db_column_text(at, 4), work->epoch) ||
	    !copy_epoch(db_column_text(at, 5), work->segment.pos.epoch)) {
		search_work_destroy(work);
		return NULL;
	}
	work->id = sqlite3_column_int64(at, 0);
	work->segment.agent = sqlite3_column_int64(at, 1);
	work->segment.channel = copy(&work->channel, db_column_text(at, 2));
	work->segment.tag = copy(&work->tag, db_column_text(at, 3));
	work->segment.epoch = work->epoch;
	work->segment.pos.seq = (uint64_t)sqlite3_column_int64(at, 6);
	work->segment.turn = copy(&work->turn, db_column_text(at, 7));
	work->fold = fold_create(work->segment.channel, work->segment.tag,
				 work->segment.turn.ptr != NULL);
	return work;
}

void search_work_destroy(struct search_work *work)
{
	if (!work)
		return;
	fold_destroy(work->fold);
	map_finish(&work->by_row);
	free(work->docs);
	buf_finish(&work->channel);
	buf_finish(&work->tag);
	buf_finish(&work->turn);
	free(work);
}

int64_t search_work_id(const struct search_work *work)
{
	return work->id;
}

void search_work_note(struct search_work *work, const struct search_segment *segment)
{
	if (segment->agent != work->segment.agent ||
	    !slice_eq(segment->tag, work->segment.tag) ||
	    !slice_eq(segment->channel, work->segment.channel))
		return;
	/* One that is still to be read is no news. */
	if (work->phase > WORK_EVENTS || pos_compare(&segment->pos, &work->from) < 0)
		work->again = true;
}

/* ---- piece by piece ---- */

static void read_docs(struct search *search, struct search_work *work,
		      struct search_pace *pace)
{
	struct sqlite3_stmt *statement = search_begin(search, DOCS_OF);
	bool more;

	(void)sqlite3_bind_int64(statement, 1, work->id);
	(void)sqlite3_bind_int64(statement, 2, work->seq);
	(void)sqlite3_bind_int64(statement, 3, work->doc);
	do {
		more = sqlite3_step(statement) == SQLITE_ROW;
		if (!more)
			break;
		if (work->count == work->room) {
			work->room = work->room ? work->room * 2 : 64;
			work->docs =
				mem_grow(work->docs, work->room, sizeof(*work->docs));
		}
		work->doc = sqlite3_column_int64(statement, 0);
		work->seq = sqlite3_column_int64(statement, 3);
		work->docs[work->count++] = (struct known){
			work->doc, sqlite3_column_int64(statement, 2), false};
		(void)map_put(&work->by_row, db_column_text(statement, 1),
			      (void *)(uintptr_t)work->count);
	} while (search_pace_take(pace, 0));
	(void)sqlite3_reset(statement);
	if (!more)
		work->phase = WORK_EVENTS;
}

static void read_events(struct search *search, struct search_work *work,
			struct search_pace *pace)
{
	if (search->source.fold(search->source.ctx, &work->segment, work->fold,
				&work->from, pace))
		work->phase = WORK_ROWS;
}

static bool update_row(struct search *search, struct search_work *work,
		       const struct row *row, struct search_pace *pace, struct err *err)
{
	struct buf text = {0};
	const size_t at = (size_t)(uintptr_t)map_get(&work->by_row, buf_slice(&row->id));
	struct known *known = at ? &work->docs[at - 1] : NULL;
	bool ok = true;
	int64_t hash;

	search_text(row, &text);
	hash = search_hash_doc(row, buf_slice(&text));
	if (known && known->hash == hash) {
		known->stays = true;
	} else if (text.len) {
		if (known)
			ok = search_drop_doc(search, work->segment.agent, known->id, err);
		if (known)
			known->stays = true; /* it went already */
		ok = ok && search_add_doc(search, work->id, &work->segment, row,
					  buf_slice(&text), hash, err);
	}
	(void)search_pace_take(pace, text.len);
	buf_finish(&text);
	return ok;
}

static bool update_rows(struct search *search, struct search_work *work,
			struct search_pace *pace, struct err *err)
{
	const struct fold *fold = work->fold;
	bool ok = true;

	while (ok && work->at < fold->row_count) {
		ok = update_row(search, work, fold->rows[work->at++], pace, err);
		if (search_pace_is_over(pace))
			return ok;
	}
	work->at = 0;
	work->phase = WORK_REST;
	return ok;
}

static bool drop_rest(struct search *search, struct search_work *work,
		      struct search_pace *pace, struct err *err)
{
	bool ok = true;

	while (ok && work->at < work->count) {
		const struct known *known = &work->docs[work->at++];

		ok = known->stays ||
		     search_drop_doc(search, work->segment.agent, known->id, err);
		if (!search_pace_take(pace, 0))
			return ok;
	}
	work->phase = WORK_DONE;
	return ok;
}

/* What came behind its back makes the segment due again, after a rest. */
static bool finish(struct search *search, struct search_work *work, int64_t now_ms,
		   struct err *err)
{
	const bool stays = work->fold->row_count > 0 || work->again;
	struct sqlite3_stmt *statement =
		search_begin(search, stays ? SEGMENT_DONE : SEGMENT_DROP);
	int64_t rest_ms = work->spent_ms * REST_FACTOR;

	if (rest_ms > REST_MAX_MS)
		rest_ms = REST_MAX_MS;
	(void)sqlite3_bind_int64(statement, 1, work->id);
	if (stays)
		(void)sqlite3_bind_int64(statement, 2, now_ms + rest_ms);
	if (work->again)
		(void)sqlite3_bind_int64(
			statement, 3,
			now_ms + (rest_ms > SEARCH_QUIET_MS ? rest_ms : SEARCH_QUIET_MS));
	return search_run(search, statement, "note a segment", err);
}

bool search_work_go(struct search *search, struct search_work *work, int64_t now_ms,
		    struct search_pace *pace, bool *done, struct err *err)
{
	const int64_t began_ms = loop_now_ms();
	bool ok = true;

	do {
		switch (work->phase) {
		case WORK_DOCS:
			read_docs(search, work, pace);
			break;
		case WORK_EVENTS:
			read_events(search, work, pace);
			break;
		case WORK_ROWS:
			ok = update_rows(search, work, pace, err);
			break;
		case WORK_REST:
			ok = drop_rest(search, work, pace, err);
			break;
		case WORK_DONE:
			break;
		}
	} while (ok && work->phase != WORK_DONE && !search_pace_is_over(pace));
	work->spent_ms += loop_now_ms() - began_ms;
	*done = ok && work->phase == WORK_DONE;
	return ok && (!*done || finish(search, work, now_ms, err));
}
