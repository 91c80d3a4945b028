#ifndef RELAY_REQUEST_H
#define RELAY_REQUEST_H

#include "relay/connection.h"
#include "wire/nostr/message.h"

/* REQ, CLOSE and COUNT: the subscriptions of one connection. */

#define TOO_MANY_ASKS "rate-limited: too many REQ and AUTH, try again in a second"

void request_subscribe(struct connection *connection,
		       const struct client_message *message);
void request_count(struct connection *connection, const struct client_message *message);
/* CLOSE; an unknown id is silent. */
void request_close(struct connection *connection, struct slice id);
/* CLOSED, counted and logged; ends the subscription of that id if there is one. */
void request_refuse(struct connection *connection, struct slice id, enum refusal refusal,
		    const char *text);
void request_remove_all(struct connection *connection);
/* May it send one more REQ or AUTH? Takes it from what the connection has. */
bool request_take_ask(struct connection *connection);

#endif
