#ifndef AGENT_TURNS_H
#define AGENT_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/asks.h"
#include "agent/channel.h"
#include "agent/peer.h"
#include "agent/sender.h"
#include "agent/turn.h"
#include "wire/host/loop.h"

/* The conversation: channels, the slots that they are given to, their sessions, and one
 * turn at a time in each. */
struct turns;

#define TURNS_SLOTS_MAX 32 /* design §3 */

struct turns_events {
	/* A turn is over; @end_turn: the agent said so by itself. */
	void (*on_turn_end)(void *ctx, bool end_turn);
	/* The agent in @slot did not end a cancelled turn: it must be replaced. */
	void (*on_stuck)(void *ctx, int slot);
	/* A session was opened in @channel that later starts may go on with. NULL: nobody
	 * wants to know. */
	void (*on_session)(void *ctx, const struct channel *channel);
};

struct turns_options {
	struct loop *loop;
	struct sender *sender;
	int slots;                /* 1 to TURNS_SLOTS_MAX */
	const char *cwd;          /* absolute */
	char *const *command;     /* argv, for what to tell a person */
	int64_t session_ms;       /* so long an agent may take to open a session */
	int64_t idle_ms, hard_ms; /* of a turn */
	struct permission_rules rules;
	int64_t permission_ms;
	const struct turns_events *events;
	void *ctx;
};

struct turns *turns_create(const struct turns_options *options);
void turns_destroy(struct turns *turns);
/* Before any agent is ready; the first is the default one. */
struct channel *turns_add_channel(struct turns *turns, const char *name,
				  const struct uuid *uuid);
struct channel *turns_channel(struct turns *turns,
			      struct slice uuid);                    /* NULL: not ours */
struct channel *turns_channel_at(struct turns *turns, size_t index); /* NULL: no more */
struct peer *turns_peer(struct turns *turns, int slot);
/* The open permission requests of the agent that @channel is given to. */
struct asks *turns_asks(struct turns *turns, const struct channel *channel);
/* asks_body() over all agents. */
struct slice turns_body(struct turns *turns, uint64_t seq, struct channel **channel_out);

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
