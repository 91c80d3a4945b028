#ifndef OBSERVER_ARCHIVE_DB_PART_H
#define OBSERVER_ARCHIVE_DB_PART_H

#include <zstd.h>

#include "observer/archive_db.h"
#include "observer/fold.h"

/* What the parts of the archive's database share: archive_db.c (opening, transactions,
 * and the index of words), archive_db_sql.c (schema and statements), archive_db_store.c
 * (what comes), archive_db_trim.c (what goes), archive_db_fold.c (events of a segment and
 * its rows), archive_db_page.c (answers), archive_db_life.c (who
 * is there), archive_db_names.c (what they call whom) and
 * archive_db_load.c (a start). Nobody else includes this. */

struct sqlite3;
struct sqlite3_stmt;

#define ARCHIVE_BODY_MAX (8u << 20) /* design §11: bodies 8 MiB each */
#define ARCHIVE_SCAN_EVENTS 512     /* events looked back over at a time */

enum archive_statement {
	AGENT_ADD,
	AGENT_FIND,
	FRAME_ADD,
	FRAME_GET,
	EVENT_ADD,
	LANE_TOUCH,
	BODY_ADD,
	BODY_GET,
	GONE_ADD,
	GONE_TAKE,
	SCAN_BACK,
	TURN_EVENTS,
	STRETCH_EVENTS,
	OWN_EPOCHS,
	NEWEST_EPOCH,
	EVENT_GET,
	RAW_EVENTS,
	OLDEST,
	OLDEST_OF_LARGEST,
	FRAME_BODIES_DROP,
	FRAME_DROP,
	KNOWN_BELOW,
	KNOWN_TAKE,
	KNOWN_ADD,
	FORGET_FRAMES,
	PAGES,
	FRAME_BYTES,
	WALK,
	FRAME_EVENTS,
	BODY_EVENT,
	NAMES,
	LAST_FRAME,
	LAST_EVENT,
	LAST_WORD,
	ARCHIVE_STATEMENTS,
};

struct archive_db {
	struct sqlite3 *db;
	struct sqlite3_stmt *statements[ARCHIVE_STATEMENTS];
	ZSTD_CCtx *compress;
	struct arena arena;
	struct buf scratch; /* compressed */
	int64_t frame_id;   /* whose plaintext @frame holds; 0: none */
	struct buf frame;
	struct buf whole; /* a fetched body */
	struct search *search;
	struct buf tag; /* of the segment at hand */
	int64_t goal;   /* bytes of frames to fall to, for size; 0: nothing to do */
	bool merging;   /* it is reached: what else went is taken out of the index */
	bool broken;
};

/* ---- archive_db_sql.c ---- */

/* Scripts for db_open(), NULL at the end. */
extern const char *const archive_migrations[];

bool archive_sql_prepare(struct archive_db *db, struct err *err);
/* A statement, ready for binding. What is bound must outlive the steps that use it. */
struct sqlite3_stmt *archive_sql_begin(struct archive_db *db,
				       enum archive_statement which);
/* Its only step, of a statement without rows. */
bool archive_sql_run(struct archive_db *db, struct sqlite3_stmt *statement,
		     const char *doing, struct err *err);
bool archive_sql_exec(struct archive_db *db, const char *text, struct err *err);
/* False where the column has no epoch. */
bool archive_sql_epoch(struct sqlite3_stmt *statement, int at, char out[17]);
/* The agent's number; 0 when it is not known. */
int64_t archive_find_agent(struct archive_db *db, const uint8_t *agent);
/* From columns (size, blob) of the current row; false when that is broken. */
bool archive_decompress(struct sqlite3_stmt *statement, struct buf *out);

/* ---- archive_db_fold.c ---- */

/* A segment, named by one of its events. */
struct archive_group {
	struct buf turn;
	struct pos pos;
	char epoch[17];
	bool has_turn;
};

/* The segment of an event, of which the current row has place, seq, epoch and turn.
 * @group: zeroed before; its turn is the caller's to finish. False: there is no epoch. */
bool archive_group_read(struct sqlite3_stmt *at, struct archive_group *group);
/* The events of a segment from @from on (NULL: all), in order: columns frame, offset,
 * len, place, seq. @range: room for what is bound. */
struct sqlite3_stmt *archive_group_events(struct archive_db *db, int64_t agent,
					  struct slice channel,
					  const struct archive_group *group,
					  const struct pos *from, struct pos range[2]);
/* Appends model_segment_tag(). */
void archive_group_tag(const struct archive_group *group, struct slice channel,
		       struct buf *out);
/* The text of the event in columns (frame, offset, len, place, seq) of the current row:
 * as fetched whole where that was done. Lives until the next call. */
bool archive_event_text(struct archive_db *db, int64_t agent, struct sqlite3_stmt *at,
			struct slice *out);
void archive_newest_epoch(struct archive_db *db, int64_t agent, char out[17]);
/* What else is known of a segment that was derived. */
struct archive_tally {
	struct values *values; /* gets a lane of that tag */
	struct pos end;        /* before which its events are */
};
/* Rows of a segment of @agent, whose newest epoch that is. The caller destroys them.
 * @tally: NULL: it is not asked for. */
struct fold *archive_derive(struct archive_db *db, int64_t agent, struct slice channel,
			    const struct archive_group *group, struct slice tag,
			    const char *newest_epoch, struct archive_tally *tally);
/* Folds the next events of a segment, as search_source.fold() does (search.h). */
bool archive_fold_events(struct archive_db *db, const struct search_segment *segment,
			 struct fold *fold, struct pos *from, struct search_pace *pace);
/* What the search is told of an event. The tag lives until the next call. */
struct search_segment archive_segment_of(struct archive_db *db, int64_t agent,
					 const char *epoch, const struct pos *pos,
					 struct slice channel, struct slice turn);
/* The same from columns (id, agent, channel, epoch, place, seq, turn); @epoch: room for
 * it. */
bool archive_segment_at(struct archive_db *db, struct sqlite3_stmt *at, char epoch[17],
			struct search_segment *out);

/* ---- archive_db_life.c ---- */

/* When the agent was last heard, by its clock, Unix ms; 0: never. */
int64_t archive_last_ms(struct archive_db *db, int64_t agent);

/* ---- archive_db_names.c ---- */

/* Appends members, `"agentName":"…","channelName":"…"`: what the agent's harness calls
 * itself and that channel in its newest words that say so; nothing for what it never
 * said. */
void archive_write_names(struct archive_db *db, int64_t agent, struct slice channel,
			 struct buf *out);

#endif
