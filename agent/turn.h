#ifndef AGENT_TURN_H
#define AGENT_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/turn_clock.h"
#include "wire/base/map.h"
#include "wire/base/slice.h"
#include "wire/frame/uuid.h"

/* One turn: from a prompt that left its queue to turn_completed, which every turn gets,
 * whatever happens between. */

struct channel;
struct prompt;
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
	struct map tools; /* open tool calls: id as sent → its kind, a tool_kind_mark() */
};

/* Starts the next prompt of @channel if it may. */
void turn_pump(struct turns *turns, struct channel *channel);
/* Moves the turn of @channel on: its session is open. */
void turn_go_on(struct turns *turns, struct channel *channel);
/* @by: "owner", "timeout" or "exit". Tells the agent, which has some seconds to end it; a
 * turn that the agent knows nothing of ends at once. A repeat is ignored. */
void turn_cancel(struct turns *turns, struct channel *channel, const char *by);
/* The end. @result: of session/prompt, or empty; @cancelled_by: NULL if it ended by
 * itself. */
void turn_end(struct turns *turns, struct channel *channel, struct slice result,
	      const char *cancelled_by);
/* Does what is due in the turn of @channel, if one runs. */
void turn_look(struct turns *turns, struct channel *channel, int64_t now_ms);
/* Something valid came from the agent, in the session of the turn that runs. */
void turn_note_frame(struct turns *turns, struct channel *channel);
/* A session/update of its session: @kind is params.update.sessionUpdate, @update the
 * object (empty for a text chunk). Follows the first output and the open tool calls. */
void turn_note_update(struct turns *turns, struct channel *channel, struct slice kind,
		      struct slice update);
/* Frees the turn of @channel without a word. */
void turn_drop(struct channel *channel);

#endif
