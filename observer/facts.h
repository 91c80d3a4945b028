#ifndef OBSERVER_FACTS_H
#define OBSERVER_FACTS_H

#include "observer/pos.h"
#include "observer/row.h"
#include "wire/base/buf.h"

/* What is true of an agent and of a lane now, as far as its events say: for each fact the
 * newest event by position wins, whatever the order of arrival, so telling a fact twice
 * or late does no harm. */

#define FACTS_SLOTS_MAX 32 /* slots of one harness (design §3) */

struct slot_facts {
	struct pos at;
	char state[16]; /* "ready" …; "" unknown */
	int64_t pid;    /* -1 unknown */
	struct pos paused_at;
	bool paused; /* by SIGSTOP */
};

struct agent_facts {
	struct pos info_at; /* harness_started */
	struct buf name, host, version, mode;
	struct buf command;  /* JSON array */
	struct buf channels; /* JSON array [{id,name}] */
	int64_t started_ms;
	struct pos policy_at; /* harness_started, feed_state */
	struct buf control, permissions;
	struct pos stopped_at; /* harness_stopping, agent_panic */
	struct pos login_at;   /* what a login needs, or that it is no longer needed */
	bool needs_login;
	struct buf login_text;
	struct pos methods_at;
	struct buf login_methods; /* JSON array */
	struct pos figures_at;    /* feed_state */
	struct buf figures;       /* JSON object, as its harness says; empty: unknown */
	int64_t figures_ms;       /* when it was heard */
	struct slot_facts slots[FACTS_SLOTS_MAX];
};

struct choice_facts {
	struct pos current_at, available_at;
	struct buf current;   /* plain text; empty: unknown */
	struct buf available; /* JSON array [{id,name}] */
};

struct lane_facts {
	int64_t slot; /* -1 unknown */
	struct pos slot_at;
	struct pos session_at;
	struct buf session;
	struct pos aim_at;
	struct buf aim; /* the last prompt */
	struct pos name_at;
	struct buf name; /* of its channel, as its session said; empty: none */
	struct pos title_at;
	struct buf title;
	struct choice_facts modes, models;
	struct pos usage_at;
	int64_t used, size; /* -1 unknown */
	struct buf cost;    /* JSON object, or empty */
	struct pos tokens_at;
	int64_t input, output; /* -1 unknown */
	struct pos held_at;
	bool held;
	struct pos stalled_at;
	struct buf stalled; /* why; empty: it is not */
	struct pos crash_at;
	struct buf crash; /* a sentence about its process; empty: it lives */
	bool crash_is_failure;
};

/* True, and moves @at on, if an event at @pos is not older than the one that set the
 * fact. */
bool fact_wins(struct pos *at, const struct pos *pos);
void lane_facts_init(struct lane_facts *facts);
void lane_facts_finish(struct lane_facts *facts);
/* What was said and counted goes; where it runs, and what it may be asked, stays. */
void lane_facts_forget(struct lane_facts *facts);
void agent_facts_finish(struct agent_facts *facts);
void slot_set(struct agent_facts *facts, int64_t slot, const struct pos *pos,
	      struct slice state, int64_t pid);
void slot_pause(struct agent_facts *facts, int64_t slot, const struct pos *pos,
		bool paused);
/* modes, models or configOptions of a session's answer or update: an object that may hold
 * any of them. */
void choices_update(struct lane_facts *facts, const struct pos *pos, struct slice object);

#endif
