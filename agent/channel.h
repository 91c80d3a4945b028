#ifndef AGENT_CHANNEL_H
#define AGENT_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/feed.h"
#include "wire/base/buf.h"
#include "wire/base/slice.h"
#include "wire/frame/uuid.h"

/* A channel of a harness: the session that lives in it, what that session's agent offers,
 * and the prompts that wait for it. Data and its rules; no I/O. */

/* Prompts that may wait in one channel; our choice, far above what a person queues. */
#define CHANNEL_PROMPTS_MAX 64
/* Longest session id, bytes; our choice. */
#define CHANNEL_SESSION_MAX 4096
/* Most bytes of modes, models or config options that are kept for feed_state. */
#define CHANNEL_OFFER_MAX (256u << 10)

struct prompt {
	struct prompt *next;
	char id[UUID_LEN + 1];
	struct buf
		request_id; /* of the control, JSON string content as sent; empty: none */
	struct buf content; /* array text of ACP content blocks */
	const char *source; /* "owner" or "argument" */
	int64_t queued_ms;  /* loop_now_ms() */
};

enum channel_session {
	SESSION_NONE,
	SESSION_OPENING,
	SESSION_OPEN,
};

struct turn;

struct channel {
	const char *name; /* borrowed */
	struct uuid uuid;
	enum channel_session state;
	struct buf session; /* its id, plain text; when OPEN */
	/* What the agent offers, as JSON values; empty: nothing. */
	struct buf modes;      /* availableModes array */
	struct buf mode;       /* currentModeId, JSON string content */
	struct buf models;     /* availableModels array */
	struct buf model;      /* currentModelId, JSON string content */
	struct buf config;     /* configOptions array */
	struct buf title;      /* JSON string content */
	struct buf next_model; /* switch_model asked for it before the next turn; plain */
	int slot;              /* of the agent that it is given to */
	bool wants_session;    /* waits until its agent has time to open one */
	/* An earlier session to go on with; plain, empty: none. */
	struct buf previous;
	bool previous_shown; /* this feed has shown what happened in it */
	bool look_for_one;   /* when there is none, the newest that the agent lists */
	bool loading;        /* `previous` is being loaded: its history comes again */
	uint64_t replayed;   /* so many updates of it */
	struct prompt *first, **last;
	size_t prompt_count;
	bool held;         /* stopped by the owner: prompts wait for a word */
	struct turn *turn; /* running; NULL: idle */
};

void channel_init(struct channel *channel, const char *name, const struct uuid *uuid);
void channel_finish(struct channel *channel); /* no turn may run */

struct prompt *prompt_create(struct slice content, struct slice request_id,
			     const char *source, int64_t now_ms);
void prompt_destroy(struct prompt *prompt);
/* True if @content is a non-empty array of objects, each with a string `type`. */
bool prompt_content_valid(struct slice content);
/* The first text of @content, decoded and cut to @max bytes at a UTF-8 boundary. */
void prompt_head(struct slice content, size_t max, struct buf *out);

/* Takes ownership. The caller sees to CHANNEL_PROMPTS_MAX. */
void channel_push(struct channel *channel, struct prompt *prompt);
void channel_push_front(struct channel *channel, struct prompt *prompt);
struct prompt *channel_pop(struct channel *channel); /* NULL when none waits */

/* Its agent is gone: an open session becomes the previous one, to be gone on with. */
void channel_lose_session(struct channel *channel);
/* The result of session/new. False when it has no usable sessionId. */
bool channel_open_session(struct channel *channel, struct slice result);
/* The result of a session/load or session/resume of the previous session. What it does
 * not say stays as it was. */
void channel_reopen_session(struct channel *channel, struct slice result);
/* params.update of a session/update: mode, options and title that it changes. */
void channel_take_update(struct channel *channel, struct slice update);
/* Appends the members modes, models, configOptions that there are, in ACP's shape, each
 * only if the whole of @out stays within @max bytes. */
void channel_write_offers(const struct channel *channel, struct buf *out, size_t max);

/* The request that sets a mode or a model (plain text) in the channel's session: appends
 * its params. NULL when the agent offers no such thing, else the method. */
const char *channel_mode_request(const struct channel *channel, struct slice mode,
				 struct buf *params);
const char *channel_model_request(const struct channel *channel, struct slice model,
				  struct buf *params);
/* The agent answered @result to such a request for @value. False if the config options
 * that it lists then say that nothing changed. */
bool channel_take_mode(struct channel *channel, struct slice value, struct slice result);
bool channel_take_model(struct channel *channel, struct slice value, struct slice result);

#endif
