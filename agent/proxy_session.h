#ifndef AGENT_PROXY_SESSION_H
#define AGENT_PROXY_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/last_sessions.h"
#include "agent/watch.h"
#include "wire/base/buf.h"
#include "wire/base/map.h"
#include "wire/base/slice.h"
#include "wire/frame/uuid.h"

/* The sessions that a proxy has seen, each with its channel, what its agent offers, and
 * the turn that runs in it; and what the feed is told of them. */

/* At a time; the one used longest ago is forgotten. Our choice, far above what an editor
 * has open. */
#define PROXY_SESSIONS_MAX 256

/* A prompt and what comes of it. */
struct proxy_turn {
	char id[UUID_LEN + 1], prompt_id[UUID_LEN + 1];
	unsigned prompts; /* without an answer yet: an editor may send several */
	int64_t started_ms, started_unix_ms, first_output_ms;
};

struct session {
	struct session *next; /* the one used longest ago is first */
	struct buf id;        /* plain text */
	struct uuid channel;
	char *name;
	bool shown;        /* its feed has shown it from its beginning */
	bool loading;      /* its agent tells what happened in it again */
	uint64_t replayed; /* so many updates of that */
	struct proxy_turn *turn;
	struct buf title;                 /* JSON string content */
	struct buf modes, models, config; /* JSON values; empty: not offered */
};

struct sessions {
	struct watch *watch;
	struct sender *sender;
	struct map by_id;
	struct session *oldest;
	struct session *recent;           /* the one used last; NULL: none */
	struct last_sessions *remembered; /* sessions that were shown before this start */
	void (*on_forget)(void *ctx, const struct session *session);
	void *ctx;
	struct buf plain; /* scratch */
};

void sessions_init(struct sessions *sessions, struct watch *watch,
		   void (*on_forget)(void *ctx, const struct session *session),
		   void *ctx);
void sessions_finish(struct sessions *sessions);

/* The session of that id, made if it is new. @raw: as sent; NULL comes back for ptr NULL
 * or one that is too long. @name: of its channel; NULL: that of our own folder. */
struct session *sessions_get(struct sessions *sessions, struct slice raw,
			     const char *name);
void session_rename(struct session *session, const char *name);
/* What belongs to @session now; NULL: the agent's own channel. */
struct feed_context sessions_context(const struct sessions *sessions,
				     const struct session *session);
struct feed_context sessions_own_context(const struct sessions *sessions);

/* modes, models, configOptions and title in an answer or an update. */
void session_take_offers(struct session *session, struct slice object);
/* session/load was asked for, or was answered: between the two its updates are history.
 * sessions_is_replay() counts one, true if it was shown when it happened. */
void sessions_begin_load(struct sessions *sessions, struct session *session);
void sessions_end_load(struct session *session);
bool sessions_is_replay(struct session *session);
void sessions_report_resolved(struct sessions *sessions, struct session *session,
			      bool is_new, bool loaded);

/* @prompt: array of content blocks. No turn may run. */
void sessions_begin_turn(struct sessions *sessions, struct session *session,
			 struct slice prompt);
/* @result: of the prompt, or empty; @cancelled_by: NULL when it ended by itself. */
void sessions_end_turn(struct sessions *sessions, struct session *session,
		       struct slice result, const char *cancelled_by);
/* The agent is gone. */
void sessions_end_all(struct sessions *sessions);
/* The prompt of the turn that runs was answered by @error. */
void sessions_report_error(struct sessions *sessions, const struct session *session,
			   struct slice error);

/* Appends feed_state's members channels, sessions and turns. */
void sessions_write_state(const struct sessions *sessions, struct buf *out);

#endif
