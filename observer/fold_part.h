#ifndef OBSERVER_FOLD_PART_H
#define OBSERVER_FOLD_PART_H

#include "observer/fold.h"
#include "wire/base/map.h"

/* What the parts of the reducer share: fold.c (rows, turns, most kinds of events),
 * fold_life.c (the comings and goings of harness and agent) and fold_acp.c (what ACP
 * lines mean). Nobody else includes this. */

enum request_kind {
	REQUEST_NONE,
	REQUEST_PROMPT,
	REQUEST_LOAD,
	REQUEST_NEW,
	REQUEST_LOGIN
};

#define FOLD_REQUESTS_MAX 64 /* requests to the agent whose answers we wait for */
#define FOLD_SPANS_MAX 256   /* open at a time in one segment */
#define FOLD_TOKEN_MAX 40    /* bytes of a JSON-RPC id that we follow */

struct request {
	char token[FOLD_TOKEN_MAX + 1]; /* "" is free */
	enum request_kind kind;
};

struct fold_state {
	struct buf channel, tag;
	bool is_turn;
	bool based; /* base_* are set: by the first event that has both */
	int64_t base_ms, base_monotonic;
	int64_t newest_ms; /* of the newest event, on the segment's clock */
	int64_t before_ms; /* of the one before it; its own where there is none */
	struct pos newest;
	struct map tools;       /* toolCallId → row */
	struct map permissions; /* nonce → row */
	struct map spans;       /* of span_start, by id → row; those that are open */
	struct row *open_text;  /* message or thought that the next chunk joins */
	struct row *plan, *prompt, *turn_row;
	struct request *requests; /* [FOLD_REQUESTS_MAX] once there is one */
	size_t next_request;
	bool replay;         /* between session/load and its answer */
	struct buf channels; /* harness_started's, JSON array */
};

/* One event on its way through the reducer. */
struct step {
	struct fold *fold;
	const struct observer_event *event;
	const struct pos *pos;
	int64_t t; /* Unix ms on the segment's own clock */
	const struct facts *facts;
};

/* What an event of this kind does. Lists end with a NULL name. */
struct kind {
	const char *name;
	void (*apply)(struct step *step);
	bool ignored; /* makes no row and no fact */
};

/* ---- fold.c ---- */

/* A new row at this event, in the segment's lane. @letter begins its id; @name (plain
 * text, may be empty) makes it one that stays when an earlier event comes late. */
struct row *fold_add(struct step *step, enum row_type type, const char *letter,
		     struct slice name);
/* The same in another channel's lane. */
struct row *fold_add_in(struct step *step, enum row_type type, const char *letter,
			struct slice name, struct slice channel);
/* A member of the row: string content as sent (ptr NULL: none), or plain text. */
void fold_body_raw(struct row *row, const char *key, struct slice raw);
void fold_body_text(struct row *row, const char *key, const char *text);
void fold_raw(struct step *step);
/* An error row; @detail: string content as sent, or ptr NULL. */
void fold_error(struct step *step, struct slice text_raw, struct slice detail);
/* A prompt said, in @text, what the lane is after. */
void fold_aim(struct step *step, const struct buf *text);
void fold_permissions_end(struct fold *fold, int64_t t, const char *by);

/* ---- fold_life.c ---- */

extern const struct kind fold_life_kinds[];
/* Nothing goes on in the lane, for @reason (string content); ptr NULL: it does again. */
void fold_stalled(struct step *step, struct slice reason);

/* ---- fold_acp.c ---- */

/* A call begins or ceases to wait for the answer to a request. */
void fold_tool_waits(struct fold *fold, const struct permission *permission, bool begins);
/* acp_read and acp_write. */
void fold_acp(struct step *step, bool read);
void fold_permission_terminal(struct step *step);

#endif
