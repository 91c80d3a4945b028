#ifndef AGENT_PEER_H
#define AGENT_PEER_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/acp.h"
#include "agent/asks.h"
#include "agent/feed.h"
#include "wire/base/buf.h"

/* One agent process as the conversation sees it: the connection to it, what it offers and
 * what it asks. Its process is slot.h's, which tells here what happens to it. */

struct channel;
struct turns;

struct peer {
	struct turns *turns;
	int slot;
	struct acp *acp; /* NULL: no process */
	struct asks *asks;
	bool ready; /* it has answered initialize, and is to get turns */
	bool down;  /* its circuit is open: its channels go elsewhere */
	/* agentCapabilities: a session may be loaded (its history comes again), resumed
	 * (without), listed, closed. */
	bool can_load, can_resume, can_list, can_close;
	struct buf auth_methods; /* array text or empty */
	const char *gone_reason;
	struct channel *opening; /* whose session is being opened: one at a time, so that
				  * what is said before its answer is known to be its */
	size_t closing;          /* session/close without an answer */
};

void peer_init(struct peer *peer, struct turns *turns, int slot,
	       const struct asks_options *asks);
void peer_finish(struct peer *peer);

/* The connection to it, from its start on (requests may come before it is ready). */
void peer_connected(struct peer *peer, struct acp *acp);
/* It has answered initialize with @result. Opens sessions and starts what waits. */
void peer_ready(struct peer *peer, struct slice result);
/* It is being stopped: running turns are cancelled, none begins. @close: its sessions are
 * closed, where it can; peer->closing tells how many have not been yet. */
void peer_stopping(struct peer *peer, bool close);
/* It is gone: closes the connection, ends every turn with @reason, forgets the sessions
 * (their ids are kept, for peer_ready() to go on with). */
void peer_gone(struct peer *peer, const char *reason);
/* It will not start again for long: channels go to those that are better off. */
void peer_down(struct peer *peer);

/* A line of it, mirrored here: @line, @raw, @route as in acp.h. @elsewhere: where it
 * belongs when it is of no channel. */
void peer_read(struct peer *peer, const struct acp_line *line, const struct acp_line *raw,
	       size_t bytes, void *route, const struct feed_context *elsewhere);
void peer_request(struct peer *peer, const struct acp_line *line);
void peer_notification(struct peer *peer, const struct acp_line *line);

#endif
