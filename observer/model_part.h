#ifndef OBSERVER_MODEL_PART_H
#define OBSERVER_MODEL_PART_H

#include "observer/fold.h"
#include "observer/model.h"
#include "observer/values.h"
#include "wire/base/map.h"

/* What model.c (events to state) and model_write.h (state to JSON) share. */

struct segment_event {
	struct pos pos;
	int64_t unix_ms;
	char *text; /* the event as sent, or as fetched whole; owned */
	size_t len;
};

/* A ring of the segments that are dirty or late, the model's member its head; zeroed: in
 * none. So what changed costs what it is, however much is in memory. */
struct changed {
	struct changed *before, *behind;
};

struct segment {
	struct changed changed; /* first: a segment is found by it */
	struct agent *agent;
	struct lane *lane; /* NULL: of the agent as a whole */
	struct buf turn;   /* plain text */
	struct buf tag;    /* model_segment_tag() */
	bool has_turn;
	char epoch[17]; /* "" in a foreign feed */
	struct fold *fold;
	struct segment_event *events; /* ascending */
	size_t count, room;
	size_t bytes;      /* all that it holds, as counted in the model's */
	size_t fold_bytes; /* of those, its fold's */
	int64_t used_ms;   /* when it last changed */
	bool late;         /* to be derived again */
	bool sealed;       /* too large: texts are gone, late events are the archive's */
	bool ended;        /* fold_end_epoch() was applied */
	bool dirty;        /* has dirty rows */
	bool untimed;      /* the spans have not heard of its last change */
	/* Rows were let go after their run was told: the next run begins here. */
	int64_t cut_ms;
	uint32_t cuts;
};

struct gap {
	struct pos pos; /* its epoch, and where it is shown */
	struct frame_range range;
	enum gap_state state;
	enum gone_why why;
	int64_t t;
};

#define ACTIVITY_BUCKETS 60
#define ACTIVITY_BUCKET_MS 10000

struct lane {
	struct agent *agent;
	struct buf channel, name;
	struct lane_facts facts;
	struct value_lane *values; /* of the model's; NULL: there are too many */
	struct value_told told;    /* to them */
	struct pos floor;
	struct segment *current; /* newest turn, or NULL */
	struct segment *newest;  /* newest of all, or NULL */
	int64_t last_ms;         /* newest event, Unix ms */
	uint32_t activity[ACTIVITY_BUCKETS];
	int64_t activity_at; /* bucket number of the newest */
	struct pos idle_at;  /* feed_state said at this place: no turn here */
	bool spoke;          /* it has rows other than a process's comings and goings */
	bool misled; /* a segment's first event came late: the pointers may be wrong */
	bool is_forgotten; /* all of it was, and nothing came since */
	bool is_told;      /* pages know of it */
	uint64_t said;     /* write_lane(), as the last message said it */
	bool dirty;
};

struct card {
	struct agent *agent;
	struct segment *segment;
	struct buf nonce;
	struct buf id; /* the nonce; of agents that chose the same the later says whose */
	int64_t asked_ms, deadline_ms;
	bool body_ready, dirty;
	bool over;
	int64_t over_ms;
	const char *outcome; /* static; NULL: pending */
	enum { CARD_PENDING, CARD_SENT, CARD_RELAYED } asked;
	struct buf picked;
	struct buf detail; /* why the last decision did not count */
};

struct owner_control {
	struct buf request_id, channel, card, option, text, status, detail;
	struct agent *agent;
	enum control_type type;
	enum control_state state;
	int64_t position, at_ms, done_ms;
	bool started; /* a prompt whose turn began */
	bool dirty;
};

struct agent {
	uint8_t key[KEY_BYTES];
	char hex[2 * KEY_BYTES + 1];
	struct agent_facts facts;
	struct map lanes;    /* channel → lane */
	struct map segments; /* channel LF tag → segment */
	struct pos floor;    /* of events without channel */
	char epoch[17];      /* newest */
	bool foreign;
	int64_t seen_ms, complete_ms;
	int64_t last_ms; /* newest event, Unix ms; also of what was not told */
	bool online, dirty;
	bool is_forgotten, is_told; /* as a lane's */
	uint64_t said;              /* likewise */
	uint64_t missing, gone;
	uint64_t replayed; /* frames that came again since we started */
	size_t card_count; /* of the model's cards */
	struct gap *gaps;
	size_t gap_count;
	bool gaps_dirty;
};

struct removed {
	char *lane, *id;
};

struct model {
	struct map agents; /* key → agent */
	struct map cards;  /* card id → card */
	struct changed changed;
	struct owner_control *controls[MODEL_CONTROLS_MAX];
	size_t control_count;
	size_t bytes;
	struct removed *removed;
	size_t removed_count, removed_room;
	/* JSON strings, comma separated */
	struct buf gone_cards, gone_lanes, gone_agents;
	struct spans *spans; /* borrowed; NULL: nobody wants any */
	struct values values;
	bool dirty;
};

/* ---- model_values.c ---- */

struct value_lane *values_of(struct model *model, const struct lane *lane);
/* @event was taken: counts it, and tells what the lane's facts say that was not told yet.
 */
void lane_values(struct model *model, struct lane *lane,
		 const struct observer_event *event, int64_t unix_ms);

/* ---- model.c ---- */

void text_copy(struct buf *out, struct slice text);
/* NULL when there are too many. */
struct agent *agent_ensure(struct model *model, const uint8_t *key);
struct lane *lane_ensure(struct model *model, struct agent *agent, struct slice channel);
/* Is there something to show of it? A slot's own channel, in which its process starts, is
 * no lane of the fleet until something happens there. What was forgotten is shown while
 * its agent is there. */
bool lane_is_shown(const struct lane *lane);
bool agent_is_shown(const struct agent *agent);
/* Calls @each with every segment that is dirty or late; what is neither then leaves. */
void segments_changed(struct model *model,
		      void (*each)(void *ctx, struct segment *segment), void *ctx);
/* True if the lane's newest turn runs, as far as is known. */
bool lane_runs(const struct lane *lane);
/* Until when what goes on with it goes on: until it was last heard, if it is gone. */
int64_t agent_now(const struct agent *agent, int64_t now_ms);

/* ---- model_cards.c ---- */

void card_destroy(struct card *card);
void control_destroy(struct owner_control *control);
/* NULL when its agent has too many. */
struct card *card_ensure(struct model *model, struct segment *segment, struct slice nonce,
			 int64_t asked_ms);
/* @outcome: static word, or NULL: decided, nobody here knows how. */
void card_end(struct model *model, struct card *card, const char *outcome,
	      int64_t now_ms);
/* A live request becomes a card. */
void card_of_event(struct model *model, struct segment *segment,
		   const struct observer_event *event, int64_t now_ms);
/* Cards follow their rows. */
void cards_follow(struct model *model, int64_t now_ms);
void tick_cards(struct model *model, int64_t now_ms);
void tick_controls(struct model *model, int64_t now_ms);
/* The oldest card of a lane that still waits. */
bool lane_has_card(const struct model *model, const struct lane *lane,
		   const struct card **out);
/* The turn of a prompt began; @request_raw: its request id as sent. */
void prompt_started(struct model *model, struct slice request_raw);

/* ---- model_feed.c ---- */

void on_feed_state(struct model *model, struct agent *agent, struct slice state,
		   const struct pos *pos, int64_t now_ms);
void on_control_result(struct lane *lane, struct slice payload, const struct pos *pos);

/* ---- model_spans.c ---- */

/* Tells the spans of one segment; @is_cut: what comes after is another run. */
void segment_time(struct model *model, struct segment *segment, bool is_cut);
/* Of model_forget(): runs keep their place, but say nothing. */
void forget_times(struct model *model, const uint8_t *agent, struct slice channel,
		  int64_t before_ms);

/* ---- model_write_rows.c ---- */

/* Appends the id of a hole's row. */
void gap_id(const struct gap *gap, struct buf *out);

#endif
