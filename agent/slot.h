#ifndef AGENT_SLOT_H
#define AGENT_SLOT_H

#include <stdbool.h>

#include "agent/child.h"
#include "agent/peer.h"
#include "agent/sender.h"
#include "wire/frame/uuid.h"

/* One agent subprocess and what becomes of it: started, initialized, mirrored, stopped,
 * started again after a crash. Its conversation is turns.h's. */
struct slot;

struct slot_events {
	void (*on_ready)(void *ctx);
	/* It ended and was not asked to: it starts again by itself, unless @circuit_open
	 * (then after a long pause). */
	void (*on_crash)(void *ctx, int slot, bool circuit_open);
	/* slot_stop() is done. */
	void (*on_stopped)(void *ctx);
	/* This agent can never be used; it was stopped. @text: one sentence. */
	void (*on_unusable)(void *ctx, const char *text);
};

struct slot_options {
	struct loop *loop;
	struct children *children;
	struct sender *sender;
	struct peer *peer; /* what the conversation knows of it */
	char *const *command;
	const char *cwd;
	char *const *environment;
	int64_t start_ms;    /* so long it may take to answer initialize */
	struct uuid channel; /* of what belongs to no session */
	const struct slot_events *events;
	void *ctx;
};

struct slot *slot_create(const struct slot_options *options);
void slot_destroy(struct slot *slot);
/* The first start: fails with the reason when the command cannot be run; the slot is then
 * as before. */
bool slot_start(struct slot *slot, struct err *err);
/* Ends it for good; on_stopped follows, perhaps before this returns. */
void slot_stop(struct slot *slot);
/* The same at once, also while slot_stop() is waiting. */
void slot_kill(struct slot *slot);
/* Stops this process and starts another: it does not react any more. */
void slot_replace(struct slot *slot);
/* Starts it later as after a failure to start: its circuit is open. @error: why. */
void slot_start_later(struct slot *slot, const char *error);
/* "starting", "ready", "respawning", "circuit_open", "exited": feed_state's word. */
const char *slot_state_name(const struct slot *slot);
pid_t slot_pid(const struct slot *slot); /* 0: none */

#endif
