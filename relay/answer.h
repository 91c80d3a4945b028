#ifndef RELAY_ANSWER_H
#define RELAY_ANSWER_H

#include <stdbool.h>

#include "relay/connection.h"

/* What one client is told. Every message of the relay's own goes through here; each wakes
 * the socket when the queue was empty, and drops a reader that is too slow. */

/* Queues one parcel; as queue_push(). */
void connection_push(struct connection *connection, enum parcel_kind kind,
		     struct body *head, struct body *body);
/* Clears core->answer for writing one message there. */
struct buf *answer_begin(struct connection *connection);
/* Sends what was just written to core->answer. */
void answer_send(struct connection *connection);
void answer_ok(struct connection *connection, struct slice id_hex, bool accepted,
	       const char *text);
/* A place in the order of OKs for one that will be known later. The maker's, also when
 * the connection goes. */
struct answer_slot;
struct answer_slot *answer_later(struct connection *connection);
/* Gives that OK and frees the slot. @refusal: counted and logged when not accepted.
 * Returns the connection, NULL when it is gone. */
struct connection *answer_now(struct answer_slot *slot, struct slice id_hex,
			      bool accepted, enum refusal refusal, const char *text);
/* The connection goes: nobody is told any more. */
void answer_forget(struct connection *connection);
void answer_notice(struct connection *connection, const char *text);
void answer_closed(struct connection *connection, struct slice sub_id, const char *text);

/* The same for refusals, counted and logged. */
void refuse_notice(struct connection *connection, enum refusal refusal, const char *text);
void refuse_event(struct connection *connection, struct slice id_hex,
		  enum refusal refusal, const char *text);
/* RFC 6455, 8.1: text that is no UTF-8 fails the connection. Asked only when something
 * did not parse: what does has been checked. True when it was closed. */
bool close_unless_utf8(struct connection *connection, struct slice text);
/* Parses the event of an EVENT or AUTH into core->arena; what is wrong has been answered
 * when it is false. */
bool answer_parse_event(struct connection *connection, struct slice json,
			struct event *event);

#endif
