#ifndef RELAY_PUBLISH_H
#define RELAY_PUBLISH_H

#include "relay/connection.h"

/* EVENT: from the client that sent it to everybody who asked for it. */

/* Events of one connection that wait for the disk; our choice. */
#define PUBLISH_WAITING_MAX 1000

/* Handles the event of one EVENT message. With core->verifier it may be put off until
 * publish_settle(): @json must then be in core->arena. */
void publish_event(struct connection *connection, struct slice json);
/* Goes on with all events whose signatures were put off, in the order they came, whatever
 * their connections: called before anything else is handled or answered, and before the
 * loop waits. */
void publish_settle(struct core *core);
/* Has the writer take expired events (NIP-40) away, some at a time; nobody is served one
 * before either. */
void publish_sweep(struct core *core);
/* The reader has too much unsent: its queue is dropped, it is told and closed. */
void connection_fall_behind(struct connection *connection);
/* The same for those met in a fan-out, and as long as all queues together hold too much,
 * for the furthest behind. */
void publish_drop_behind(struct core *core);

#endif
