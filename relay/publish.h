#ifndef RELAY_PUBLISH_H
#define RELAY_PUBLISH_H

#include "relay/connection.h"

/* EVENT: from the client that sent it to everybody who asked for it. */

/* Handles the event of one EVENT message. */
void publish_event(struct connection *connection, struct slice json);
/* The reader has too much unsent: its queue is dropped, it is told and closed. */
void connection_fall_behind(struct connection *connection);

#endif
