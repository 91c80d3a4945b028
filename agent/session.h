#ifndef AGENT_SESSION_H
#define AGENT_SESSION_H

#include "agent/acp_line.h"

/* Sessions: opened when a channel needs one, one at a time per agent process; after a
 * crash, or with --resume, an earlier one is resumed or loaded where the agent can, else
 * a new one begins (and the feed says so). Source: facts/acp.md §6. */

struct channel;
struct peer;
struct turns;

/* @channel wants a session; its turn goes on once it is open. */
void session_want(struct turns *turns, struct channel *channel);
/* Opens the next session that is wanted of @peer, if it may. */
void session_next(struct peer *peer);
/* Closes all that are open there. */
void session_close_all(struct peer *peer);
/* Says session_resolved of one that is open already. */
void session_report(struct turns *turns, const struct channel *channel);
/* True if @line of @channel repeats history that this feed has shown when it was new: it
 * is counted, and not shown again. */
bool session_is_replay(struct channel *channel, const struct acp_line *line);

#endif
