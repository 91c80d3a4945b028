#include "observer/archive_db_part.h"

#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "observer/facts.h"
#include "observer/model.h"
#include "observer/values.h"
#include "wire/frame/observer_event.h"
#include "wire/host/db.h"

bool archive_event_text(struct archive_db *db, int64_t agent, struct sqlite3_stmt *at,
			struct slice *out)
{
	const int64_t frame = sqlite3_column_int64(at, 0);
	const uint64_t offset = (uint64_t)sqlite3_column_int64(at, 1);
	const uint64_t len = (uint64_t)sqlite3_column_int64(at, 2);
	struct sqlite3_stmt *statement = archive_sql_begin(db, BODY_GET);
	bool whole = false;

	(void)sqlite3_bind_int64(statement, 1, agent);
	db_bind_text(statement, 2, db_column_text(at, 3));
	(void)sqlite3_bind_int64(statement, 3, sqlite3_column_int64(at, 4));
	if (sqlite3_step(statement) == SQLITE_ROW)
		whole = archive_decompress(statement, &db->whole);
	(void)sqlite3_reset(statement);
	if (whole) {
		*out = buf_slice(&db->whole);
		return true;
	}
	if (frame != db->frame_id) {
		statement = archive_sql_begin(db, FRAME_GET);
		(void)sqlite3_bind_int64(statement, 1, frame);
		db->frame_id = 0;
		if (sqlite3_step(statement) == SQLITE_ROW &&
		    archive_decompress(statement, &db->frame))
			db->frame_id = frame;
		(void)sqlite3_reset(statement);
	}
	if (db->frame_id != frame || offset + len > db->frame.len)
		return false;
	*out = slice_sub(buf_slice(&db->frame), offset, offset + len);
	return true;
}

bool archive_group_read(struct sqlite3_stmt *at, struct archive_group *group)
{
	const struct slice turn = db_column_text(at, 3);

	if (!archive_sql_epoch(at, 0, group->pos.epoch) ||
	    !archive_sql_epoch(at, 2, group->epoch))
		return false;
	group->pos.seq = (uint64_t)sqlite3_column_int64(at, 1);
	group->has_turn = turn.ptr != NULL;
	group->turn.max = turn.len + 1;
	(void)buf_append(&group->turn, turn);
	return true;
}

struct sqlite3_stmt *archive_group_events(struct archive_db *db, int64_t agent,
					  struct slice channel,
					  const struct archive_group *group,
					  const struct pos *from, struct pos range[2])
{
	struct sqlite3_stmt *statement;
	struct pos first;

	range[0] = from ? *from : (struct pos){"", 0};
	if (group->has_turn) {
		statement = archive_sql_begin(db, TURN_EVENTS);
		db_bind_text(statement, 6, buf_slice(&group->turn));
	} else {
		statement = archive_sql_begin(db, STRETCH_EVENTS);
		first = range[1] = group->pos;
		if (*group->epoch && channel.len) {
			first.seq = group->pos.seq / MODEL_STRETCH * MODEL_STRETCH;
			range[1].seq = first.seq + MODEL_STRETCH;
		} else if (*group->epoch) {
			first.seq = 0;
			range[1].seq = FRAME_NUMBER_MAX;
		} else {
			const int64_t stretch =
				strtoll(group->pos.epoch, NULL, 16) / MODEL_STRETCH_MS;

			pos_foreign_epoch(stretch * MODEL_STRETCH_MS, first.epoch);
			pos_foreign_epoch((stretch + 1) * MODEL_STRETCH_MS,
					  range[1].epoch);
			first.seq = range[1].seq = 0;
		}
		if (pos_compare(&range[0], &first) < 0)
			range[0] = first;
		db_bind_text(statement, 6, slice_of(range[1].epoch));
		(void)sqlite3_bind_int64(statement, 7, (int64_t)range[1].seq);
	}
	db_bind_text(statement, 4, slice_of(range[0].epoch));
	(void)sqlite3_bind_int64(statement, 5, (int64_t)range[0].seq);
	(void)sqlite3_bind_int64(statement, 1, agent);
	db_bind_text(statement, 2, channel);
	db_bind_text(statement, 3, slice_of(group->epoch));
	return statement;
}

void archive_group_tag(const struct archive_group *group, struct slice channel,
		       struct buf *out)
{
	model_segment_tag(group->epoch, &group->pos, channel,
			  group->has_turn ? buf_slice(&group->turn) : SLICE_EMPTY, out);
}

void archive_newest_epoch(struct archive_db *db, int64_t agent, char out[17])
{
	struct sqlite3_stmt *statement = archive_sql_begin(db, NEWEST_EPOCH);

	out[0] = '\0';
	(void)sqlite3_bind_int64(statement, 1, agent);
	if (sqlite3_step(statement) == SQLITE_ROW)
		(void)archive_sql_epoch(statement, 0, out);
	(void)sqlite3_reset(statement);
}

struct counter {
	struct values *values;
	struct value_lane *lane;
	struct value_told told;
	struct lane_facts facts;
};

/* @pace NULL: all of them. @counter NULL: nothing is counted. */
static bool fold_events(struct archive_db *db, int64_t agent, struct slice channel,
			const struct archive_group *group, struct fold *fold,
			struct pos *from, struct search_pace *pace,
			struct counter *counter)
{
	const struct facts facts = {.lane = counter ? &counter->facts : NULL};
	struct pos range[2];
	struct sqlite3_stmt *statement =
		archive_group_events(db, agent, channel, group, from, range);
	bool more = true;

	while (more && sqlite3_step(statement) == SQLITE_ROW) {
		struct slice text = SLICE_EMPTY;
		struct observer_event event;
		int64_t unix_ms;
		struct pos pos;

		if (!archive_sql_epoch(statement, 3, from->epoch))
			continue;
		from->seq = (uint64_t)sqlite3_column_int64(statement, 4) + 1;
		if (archive_event_text(db, agent, statement, &text) &&
		    observer_event_parse(text, &event, NULL) &&
		    model_place(group->epoch, &event, &pos, &unix_ms)) {
			fold_event(fold, &event, &pos, unix_ms, counter ? &facts : NULL);
			if (counter)
				model_tell_values(counter->values, counter->lane,
						  &counter->told, &counter->facts, &event,
						  unix_ms);
		}
		more = !pace || search_pace_take(pace, text.len);
	}
	(void)sqlite3_reset(statement);
	return more;
}

struct fold *archive_derive(struct archive_db *db, int64_t agent, struct slice channel,
			    const struct archive_group *group, struct slice tag,
			    const char *newest_epoch, struct archive_tally *tally)
{
	struct fold *fold = fold_create(channel, tag, group->has_turn);
	struct counter counter = {.told = {-1, -1}};
	struct pos from = {"", 0};

	if (tally) {
		counter.values = tally->values;
		counter.lane = values_lane(tally->values, tag);
		lane_facts_init(&counter.facts);
	}
	(void)fold_events(db, agent, channel, group, fold, &from, NULL,
			  tally ? &counter : NULL);
	if (tally) {
		lane_facts_finish(&counter.facts);
		tally->end = from;
	}
	if (*group->epoch && strcmp(group->epoch, newest_epoch) < 0)
		fold_end_epoch(fold);
	return fold;
}

bool archive_fold_events(struct archive_db *db, const struct search_segment *segment,
			 struct fold *fold, struct pos *from, struct search_pace *pace)
{
	struct archive_group group = {.pos = segment->pos,
				      .has_turn = segment->turn.ptr != NULL};
	char newest[17];
	bool whole;

	memcpy(group.epoch, segment->epoch, strlen(segment->epoch) + 1);
	group.turn.max = segment->turn.len + 1;
	(void)buf_append(&group.turn, segment->turn);
	whole = fold_events(db, segment->agent, segment->channel, &group, fold, from,
			    pace, NULL);
	buf_finish(&group.turn);
	archive_newest_epoch(db, segment->agent, newest);
	if (whole && *segment->epoch && strcmp(segment->epoch, newest) < 0)
		fold_end_epoch(fold);
	return whole;
}

struct search_segment archive_segment_of(struct archive_db *db, int64_t agent,
					 const char *epoch, const struct pos *pos,
					 struct slice channel, struct slice turn)
{
	buf_clear(&db->tag);
	model_segment_tag(epoch, pos, channel, turn, &db->tag);
	return (struct search_segment){.agent = agent,
				       .channel = channel,
				       .tag = buf_slice(&db->tag),
				       .turn = turn,
				       .epoch = epoch,
				       .pos = *pos};
}

bool archive_segment_at(struct archive_db *db, struct sqlite3_stmt *at, char epoch[17],
			struct search_segment *out)
{
	struct pos pos = {.seq = (uint64_t)sqlite3_column_int64(at, 5)};

	if (!archive_sql_epoch(at, 3, epoch) || !archive_sql_epoch(at, 4, pos.epoch))
		return false;
	*out = archive_segment_of(db, sqlite3_column_int64(at, 1), epoch, &pos,
				  db_column_text(at, 2), db_column_text(at, 6));
	return true;
}
