#ifndef OBSERVER_MODEL_H
#define OBSERVER_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "observer/pos.h"
#include "wire/base/buf.h"
#include "wire/base/slice.h"
#include "wire/frame/control.h"
#include "wire/frame/gone.h"
#include "wire/frame/observer_event.h"
#include "wire/nostr/crypto.h"

/* The observer's picture of every agent: one pure reducer, no I/O, no clock. Events come
 * in, in any order and any number of times; out come rows (a function of the events
 * alone) and live state, as JSON of the local API.
 *
 * Rows are made by segments: all events of one turn of a lane, or, where there is no
 * turn, a stretch of MODEL_STRETCH numbers. A newer event takes the shortcut of being
 * folded in; a late one has its segment derived again at the next model_settle().
 *
 * Memory is bounded: over MODEL_BYTES_MAX the segments that were idle longest leave; what
 * is at or below their lane's floor is the archive's to tell. */
#define MODEL_BYTES_MAX (64u << 20)
#define MODEL_AGENTS_MAX 256
#define MODEL_LANES_MAX 256 /* of one agent */
#define MODEL_STRETCH 512
#define MODEL_STRETCH_MS 600000 /* the same for a feed without epochs */
#define MODEL_ONLINE_MS 75000   /* design §4: online is a frame within 75 s */
#define MODEL_CARD_STAY_MS 4000 /* a card that is over, before it goes */
#define MODEL_CONTROLS_MAX 256
#define MODEL_CARDS_MAX \
	64 /* of one agent; further requests are rows until one is over \
	    */

struct model;
struct spans;
struct values;

struct model *model_create(void);
void model_destroy(struct model *model);

/* One event of a frame that was verified, opened and not seen before. */
struct model_event {
	const uint8_t *agent; /* KEY_BYTES */
	const char *epoch;    /* 16 hex digits; "" for a foreign feed */
	const struct observer_event *event;
	int64_t received_ms; /* Unix ms */
	bool live;           /* neither replayed nor old nor behind the newest */
};

/* False if it was here before, or is of a segment that only the archive holds. */
bool model_apply(struct model *model, const struct model_event *event);
/* After a run of events, before anything is read: derives again what late ones touched.
 */
void model_settle(struct model *model, int64_t now_ms);
/* A live frame of @agent arrived (an agent that is not known yet becomes so). */
void model_heard(struct model *model, const uint8_t *agent, int64_t now_ms);
/* An agent that it knows was heard by then; that does not make it online. */
void model_last(struct model *model, const uint8_t *agent, int64_t last_ms);
/* One of its frames was sent again because we asked for it. */
void model_replayed(struct model *model, const uint8_t *agent);
/* Time passed: who is online, which cards go. Call once a second. */
void model_tick(struct model *model, int64_t now_ms);
/* The untrimmed text of an event, as fetched: takes the place of what came first. */
void model_set_body(struct model *model, const uint8_t *agent, const char *epoch,
		    uint64_t seq, struct slice text);
/* Until when all that an agent sent is here (Unix ms; 0: no claim), but for @gone frames
 * that are gone for good. */
void model_set_complete(struct model *model, const uint8_t *agent, int64_t complete_ms,
			uint64_t gone);
/* Frames missing of an agent: every lane of it shows them, where they belong in order. */
enum gap_state { GAP_MISSING, GAP_ASKED, GAP_COMING, GAP_GONE };
struct model_gap {
	const char *epoch;
	struct frame_range range;
	enum gap_state state;
	enum gone_why why; /* with GAP_GONE */
	uint64_t seq;      /* of the first event behind the hole, less one */
	int64_t t;
};
/* "the agent's journal let them go, …" */
const char *model_gone_words(enum gone_why why);
/* Replaces all gaps of one agent. */
void model_set_gaps(struct model *model, const uint8_t *agent,
		    const struct model_gap *gaps, size_t count, uint64_t missing);
/* Events at or below @pos in this lane are in the archive only. */
void model_set_floor(struct model *model, const uint8_t *agent, struct slice channel,
		     const struct pos *pos);

/* The archive forgot what an agent did in @channel (ptr NULL: in all) before @before_ms
 * (INT64_MAX: ever): so do rows and times. What of it is still there is the archive's to
 * tell; a request that waits stays until it is over. */
void model_forget(struct model *model, const uint8_t *agent, struct slice channel,
		  int64_t before_ms);

/* ---- what the owner asked ---- */

enum control_state { CONTROL_SENT, CONTROL_RELAYED, CONTROL_ANSWERED, CONTROL_EXPIRED };

struct model_control {
	struct slice request_id; /* plain text, like all here */
	const uint8_t *agent;
	struct slice channel;
	enum control_type type;
	struct slice card; /* permission_decision, fetch_body */
	struct slice option;
	struct slice text; /* prompt */
};

void model_control_add(struct model *model, const struct model_control *control,
		       int64_t now_ms);
/* @status and @detail may be empty. @position: of a queued prompt, or -1. */
void model_control_set(struct model *model, struct slice request_id,
		       enum control_state state, struct slice status, struct slice detail,
		       int64_t position, int64_t now_ms);

/* ---- questions ---- */

struct model_agent { /* strings live until the model changes */
	bool known, online, foreign;
	const char *epoch; /* newest; "" unknown */
};
struct model_agent model_agent(const struct model *model, const uint8_t *agent);

/* Those that are called @name or, if none is, whose names begin so; case does not matter.
 * Also by npub or hex. Returns how many. */
size_t model_find_agents(const struct model *model, struct slice name,
			 uint8_t out[MODEL_AGENTS_MAX][KEY_BYTES]);

struct model_card {
	uint8_t agent[KEY_BYTES];
	struct slice channel;
	struct slice nonce; /* as its harness knows it; the card's id may say more */
	struct pos pos;
	bool pending, body_ready, actionable;
	struct slice options; /* JSON array [{id,name,kind}] */
};
/* By the id of the card; false when there is none. */
bool model_find_card(const struct model *model, struct slice id, struct model_card *out);

/* ---- values ---- */

/* What lanes count, as far as this model has seen their events; what only the archive
 * knows is for history.h to add. Lives as long as the model. */
struct values *model_values(struct model *model);
/* What a lane's values were told last; -1: not yet. */
struct value_told {
	int64_t tokens, cost;
};
struct value_lane;
struct lane_facts;
/* Tells them of an event, and what the lane's facts say after it. */
void model_tell_values(struct values *values, struct value_lane *lane,
		       struct value_told *told, const struct lane_facts *facts,
		       const struct observer_event *event, int64_t unix_ms);

/* ---- spans ---- */

/* From now on @spans (borrowed) hears of the times of all rows, in model_write_spans();
 * what leaves memory is told before it goes. */
void model_set_spans(struct model *model, struct spans *spans);
/* Tells @spans of the segments whose rows changed since the last call. */
void model_write_spans(struct model *model, int64_t now_ms);

/* ---- JSON of the local API ---- */

bool model_changed(const struct model *model);
/* Whether any of it is more than a pulse (PROTOCOL.md), or the pulse of a lane that does
 * something. */
bool model_has_news(struct model *model, int64_t now_ms);
/* Appends `,"agents":[…],"lanes":[…]…` of what changed since the last call, and forgets
 * it. */
void model_write_changes(struct model *model, int64_t now_ms, struct buf *out);
/* Forgets what changed: nobody listens. */
void model_drop_changes(struct model *model);
/* Appends the same for all there is, without rows. */
void model_write_snapshot(struct model *model, int64_t now_ms, struct buf *out);
/* Appends `,"gone":…,"missing":[…],"frameAtMs":…,"completeMs":…`; a hash of what of it is
 * no pulse. */
uint64_t model_write_health(const struct model *model, struct buf *out);
/* Appends `"rowBytes":…,"harnesses":[{"agent":…,"atMs":…,"figures":{…}}]`: what is
 * held in memory, and what each harness counts, as far as it has said. */
void model_write_figures(const struct model *model, struct buf *out);
/**
 * model_write_rows - appends `"rows":[…],"more":…`
 * @before: NULL for the newest
 * False, with nothing written, when the archive has to answer: rows below the floor
 * count.
 */
bool model_write_rows(struct model *model, const uint8_t *agent, struct slice channel,
		      const struct pos *before, size_t limit, struct buf *out);
/* Appends rows that the archive derived, or, where this model has the same row, its own:
 * that is never older. */
struct model_old_row {
	struct slice id, json;
};
void model_write_old_rows(struct model *model, const uint8_t *agent, struct slice channel,
			  const struct model_old_row *rows, size_t row_count,
			  struct buf *out);

/* ---- shared with the archive, which derives old rows the same way ---- */

/* Where an event stands, and its time; false if it has no readable timestamp and no
 * epoch. */
bool model_place(const char *epoch, const struct observer_event *event, struct pos *pos,
		 int64_t *unix_ms);
/* Names the segment of an event inside its channel: what shares channel and tag folds
 * together. Appends to @out. */
void model_segment_tag(const char *epoch, const struct pos *pos, struct slice channel,
		       struct slice turn, struct buf *out);

#endif
