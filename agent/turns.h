#ifndef AGENT_TURNS_H
#define AGENT_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/acp.h"
#include "agent/asks.h"
#include "agent/channel.h"
#include "agent/sender.h"
#include "agent/turn_clock.h"
#include "wire/base/map.h"
#include "wire/host/loop.h"

/* The conversation: channels, their sessions, and one turn at a time in each. A turn
 * begins with turn_started and ends with turn_completed, whatever happens between. */
struct turns;

enum turn_phase {
	TURN_OPENING,       /* waits for its session */
	TURN_SETTING_MODEL, /* switch_model comes before the prompt */
	TURN_RUNNING,       /* the prompt is with the agent */
};

struct turn {
	char id[UUID_LEN + 1];
	uint64_t serial; /* tells an answer that comes after its turn's end */
	enum turn_phase phase;
	struct prompt *prompt;
	struct turn_clock clock;
	const char *cancelled_by; /* "owner" or "timeout" once we cancelled it */
	bool requeue;             /* cancelled to run again, with another model */
	int64_t started_unix_ms, session_ms, dispatched_ms,
		first_output_ms; /* 0: not yet */
	struct map tools;        /* open tool calls, by id */
};

struct turns_events {
	/* A turn is over; @end_turn: the agent said so by itself. */
	void (*on_turn_end)(void *ctx, bool end_turn);
	/* The agent did not end a cancelled turn: it must be replaced. */
	void (*on_stuck)(void *ctx);
};

struct turns_options {
	struct loop *loop;
	struct sender *sender;
	const char *cwd;      /* absolute */
	char *const *command; /* argv, for what to tell a person */
	int64_t idle_ms, hard_ms;
	enum permission_policy policy;
	int64_t permission_ms;
	const struct turns_events *events;
	void *ctx;
};

struct turns *turns_create(const struct turns_options *options);
void turns_destroy(struct turns *turns);
/* Before the agent is ready; the first is the default one. */
void turns_add_channel(struct turns *turns, const char *name, const struct uuid *uuid);
struct channel *turns_channel(struct turns *turns,
			      struct slice uuid);                    /* NULL: not ours */
struct channel *turns_channel_at(struct turns *turns, size_t index); /* NULL: no more */
struct asks *turns_asks(struct turns *turns);

/* The connection to the agent, from its start on (requests may come before it is ready).
 */
void turns_set_agent(struct turns *turns, struct acp *acp);
/* It has answered initialize. @auth_methods: array text or empty; copied. Opens the
 * default channel's session and starts what waits. */
void turns_agent_ready(struct turns *turns, struct slice auth_methods);
/* It is being stopped: running turns are cancelled, none begins. */
void turns_agent_stopping(struct turns *turns);
/* It is gone: closes the connection, ends every turn with @reason, forgets the
 * sessions. */
void turns_agent_gone(struct turns *turns, const char *reason);

/* From the connection. turns_read() mirrors the line: @line, @raw, @route as in acp.h.
 * @elsewhere: where it belongs when it is of no channel. */
void turns_read(struct turns *turns, const struct acp_line *line,
		const struct acp_line *raw, size_t bytes, void *route,
		const struct feed_context *elsewhere);
void turns_request(struct turns *turns, const struct acp_line *line);
void turns_notification(struct turns *turns, const struct acp_line *line);

enum turns_prompted { PROMPT_STARTED, PROMPT_QUEUED, PROMPT_BUSY };
/* @position_out: from 1, when queued. BUSY: CHANNEL_PROMPTS_MAX wait. */
enum turns_prompted turns_prompt(struct turns *turns, struct channel *channel,
				 struct slice content, struct slice request_id,
				 const char *source, size_t *position_out);
/* The owner's stop; also holds the prompts that wait. False when no turn runs. */
bool turns_cancel(struct turns *turns, struct channel *channel);
/* Lets held prompts go. */
void turns_release(struct turns *turns, struct channel *channel);
bool turns_idle(
	const struct turns *turns); /* nothing runs or waits, held ones excepted */

/* @ok: the agent did it. Called once, later; @ok false with a reason. */
typedef void turns_on_set(void *ctx, bool ok, const char *detail);
/* False (and no callback) when the agent offers no such mode, or there is no session. */
bool turns_set_mode(struct turns *turns, struct channel *channel, struct slice mode,
		    turns_on_set *on_set, void *ctx);
/* The status of a switch_model; NULL: it is with the agent, @on_set will tell. */
const char *turns_switch_model(struct turns *turns, struct channel *channel,
			       struct slice model, turns_on_set *on_set, void *ctx);

/* Appends feed_state's members channels, sessions, turns, pending. */
void turns_write_state(const struct turns *turns, struct buf *out);

#endif
