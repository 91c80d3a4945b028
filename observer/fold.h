#ifndef OBSERVER_FOLD_H
#define OBSERVER_FOLD_H

#include "observer/facts.h"
#include "observer/row.h"
#include "wire/frame/observer_event.h"

/* The reducer: from the events of one segment, in order, to its rows. Pure. A segment is
 * one turn of a lane; what belongs to no turn is in segments cut by seq (model.h). The
 * rows are a function of the events in order and of nothing else; facts are told on the
 * way. */

enum turn_state { TURN_RUNNING, TURN_COMPLETED, TURN_CANCELLED, TURN_FAILED };

/* What a segment says of its turn. */
struct turn_facts {
	bool started, ended;
	struct pos first;
	int64_t started_ms, ended_ms;
	enum turn_state state;
	struct buf stop_reason, cancelled_by, request_id;
};

struct fold {
	struct row **rows; /* in order of position */
	size_t row_count, row_room;
	size_t bytes; /* of it and its rows, whatever their texts: those are counted
			 elsewhere */
	struct turn_facts turn;
	struct fold_state *state;
};

struct facts { /* NULL members: not wanted */
	struct lane_facts *lane;
	struct agent_facts *agent;
};

/* @channel, @tag: plain text, copied. The tag tells this segment from others of its
 * channel: it is in the ids of rows that stay when an earlier event comes late. */
struct fold *fold_create(struct slice channel, struct slice tag, bool is_turn);
void fold_destroy(struct fold *fold);
/* Kinds that never make a row and need not be kept for it. */
bool fold_ignores(struct slice kind);
/* The next event in order. @unix_ms: its timestamp. */
void fold_event(struct fold *fold, const struct observer_event *event,
		const struct pos *pos, int64_t unix_ms, const struct facts *facts);
/* No event of this epoch can come any more but late ones: what is open is over. */
void fold_end_epoch(struct fold *fold);
/* Lets go of the older half of the rows that nothing will change any more, to bound
 * memory; they are the archive's then. The position of the last of them, or "" for none.
 */
struct pos fold_shed(struct fold *fold);
/* How the time of the turn up to @now_ms was spent: you before tools before the model. */
struct time_split {
	int64_t model, tool, you;
};
struct time_split fold_split(const struct fold *fold, int64_t now_ms);
/* The newest row that says what the lane does, or NULL. */
const struct row *fold_newest(const struct fold *fold, enum row_type type);
const struct row *fold_permission(const struct fold *fold, struct slice nonce);
/* A request that came trimmed came whole: for where its events cannot be folded again. */
void fold_permission_body(struct fold *fold, const struct observer_event *event);

#endif
