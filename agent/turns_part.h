#ifndef AGENT_TURNS_PART_H
#define AGENT_TURNS_PART_H

#include "agent/asks.h"
#include "agent/channel.h"
#include "agent/peer.h"
#include "agent/setup.h"
#include "agent/turn.h"
#include "agent/turns.h"
#include "wire/host/loop.h"

/* What the parts of the conversation share: turns.c (channels, the owner's words), turn.c
 * (one turn), session.c (sessions), peer.c (one agent), setting.c (modes and models),
 * failure.c, turns_state.c. Nobody else includes this. */

#define TURNS_SET_TIMEOUT_MS 30000

struct turns {
	struct turns_options options;
	struct timer *timer;
	int64_t due_ms; /* when it was to fire */
	struct peer peers[TURNS_SLOTS_MAX];
	size_t peer_count;
	struct channel channels[CHANNELS_MAX];
	size_t channel_count;
	uint64_t serial;
};

/* What an answer of the agent belongs to. */
struct step {
	struct turns *turns;
	struct channel *channel;
	uint64_t serial;
};

struct step *step_create(struct turns *turns, struct channel *channel);
/* The turn that a step was made for, if it still runs. */
struct turn *step_turn(const struct step *step);

/* The agent that @channel is given to. */
struct peer *turns_peer_of(struct turns *turns, const struct channel *channel);
/* Gives @channel to the slot with the fewest channels, those that are down excepted
 * unless all are. */
void turns_place(struct turns *turns, struct channel *channel);
/* Sets the timer by what is due next. */
void turns_arm(struct turns *turns);
/* What is open in the turn of @channel may have changed. */
void turns_look_busy(struct turns *turns, struct channel *channel);

#endif
