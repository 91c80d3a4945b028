#ifndef OBSERVER_MODEL_WRITE_H
#define OBSERVER_MODEL_WRITE_H

#include "observer/model_part.h"
#include "wire/nostr/json.h"

/* The model's state as JSON of the local API (PROTOCOL.md), by part:
 *
 *   model_say.c          what a lane does, in one sentence
 *   model_write_fleet.c  agents, lanes, cards, controls
 *   model_write_rows.c   pages of rows, with the holes between them
 *   model_write.c        messages: what changed, or all of it */

/* ---- model_say.c ---- */

/* What a lane does, in three words, and since when. */
struct sentence {
	const char *state, *verb;
	struct buf object, outcome; /* sentence_finish() */
	int64_t since_ms;
};

void lane_say(const struct model *model, const struct lane *lane, struct sentence *out);
void sentence_finish(struct sentence *sentence);
/* Why nothing seems to go on, or NULL. */
const char *stall_words(const struct lane *lane);

/* ---- model_write_fleet.c ---- */

/* Each appends an object, after a comma where one ended before. What moves with every
 * sign of life, the pulse (PROTOCOL.md), is last; the hash is of the rest, and of whether
 * there is a pulse at all. */
uint64_t write_agent(const struct agent *agent, struct buf *out);
uint64_t write_lane(const struct model *model, const struct lane *lane, int64_t now_ms,
		    struct buf *out);
void write_card(const struct card *card, struct buf *out);
void write_control(const struct owner_control *control, struct buf *out);
/* The member "lane": AGENT/CHANNEL. */
void write_lane_id(const struct agent *agent, struct slice channel, struct buf *out);

/* ---- model_write_rows.c ---- */

void write_row(const struct segment *segment, const struct row *row, struct buf *out);
/* A hole in the numbering, as a row of that lane. */
void write_gap(const struct agent *agent, struct slice channel, const struct gap *gap,
	       struct buf *out);
const char *gap_state_name(enum gap_state state);

/* ---- for all of them ---- */

static inline struct slice or_null(const struct buf *text)
{
	return text->len ? buf_slice(text) : SLICE_EMPTY;
}

static inline void member(struct buf *out, const char *key, struct slice value)
{
	json_write_member_string(out, slice_of(key), value);
}

static inline void member_ms(struct buf *out, const char *key, int64_t value)
{
	if (value > 0)
		json_write_member_int(out, slice_of(key), value);
	else
		json_write_member_raw(out, slice_of(key), SLICE_EMPTY);
}

/* Its frames have no epochs: it claims nothing. */
static inline bool is_foreign(const struct agent *agent)
{
	return agent->foreign && !*agent->epoch;
}

static inline void member_count(struct buf *out, const char *key, int64_t value)
{
	if (value >= 0)
		json_write_member_int(out, slice_of(key), value);
}

static inline void open_object(struct buf *out)
{
	if (out->len && out->ptr[out->len - 1] == '}')
		(void)buf_lit(out, ",");
	(void)buf_lit(out, "{");
}

#endif
