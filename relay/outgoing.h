#ifndef RELAY_OUTGOING_H
#define RELAY_OUTGOING_H

#include <stdbool.h>
#include <stddef.h>

#include "relay/connection.h"
#include "wire/base/buf.h"

struct lws;

/* The way from the connections' queues to their sockets. Whatever one turn of the loop
 * queues for a reader leaves in one write, straight from the turn: waiting for the socket
 * to be called writable costs five system calls a message where this costs one for
 * several. Only a reader whose socket is full is waited for.
 *
 * lws passes the bytes of LWS_WRITE_HTTP on as they are, also on a WebSocket
 * (rops_write_role_protocol_ws), so that one write holds as many whole frames as fit.
 * What the socket does not take lws copies: at most OUTGOING_WRITE_BYTES or one message a
 * reader, because nothing is written to one that has such a rest. */

/* Most bytes of one write, unless one message is longer; our choice. */
#define OUTGOING_WRITE_BYTES (64 * 1024)

/* The place of one connection in the line of those with something unsent. */
struct outgoing_link {
	struct lws *wsi;
	struct connection *connection;
	struct outgoing_link *next, *prev;
	bool is_in_line;
};

struct outgoing {
	struct buf scratch; /* LWS_PRE, then the frames being sent */
	struct outgoing_link *first, *last;
	size_t turn_messages; /* received since the line was sent last */
};

void outgoing_init(struct outgoing *outgoing);
void outgoing_finish(struct outgoing *outgoing);
/* @link has something to send, or wants to be closed. In line already is fine. */
void outgoing_add(struct outgoing *outgoing, struct outgoing_link *link);
/* The connection ends. Not in line is fine. */
void outgoing_remove(struct outgoing *outgoing, struct outgoing_link *link);
/* Sends what the socket takes now. False if the connection is broken. With messages left,
 * or with the connection closing, lws will call it writable. */
bool outgoing_send(struct outgoing *outgoing, struct outgoing_link *link);
/* Sends to all in line. A connection that turns out to be broken is left for lws to find.
 * Call when the loop is about to wait. */
void outgoing_flush(struct outgoing *outgoing);
/* One more message was handled. True when so many were that it is time to flush. */
bool outgoing_count_message(struct outgoing *outgoing);

#endif
