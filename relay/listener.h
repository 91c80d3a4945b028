#ifndef RELAY_LISTENER_H
#define RELAY_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/err.h"
#include "wire/host/loop.h"

/* Connections taken from a listening socket in one turn of the loop, so that those who
 * are connected have theirs; our choice. */
#define LISTENER_BURST 64
/* Where not even the descriptor in reserve helps, the next try is so much later. */
#define LISTENER_PAUSE_MS 200

/* A socket that listens. libwebsockets could, but tells nobody when accept() fails for
 * want of descriptors, and asks again without a pause. This one keeps a descriptor in
 * reserve: whoever comes when there is no other is taken with it and closed at once,
 * instead of waiting unseen. */
struct listener;

/**
 * listener_create - listen on a numeric address
 * @port: 0: choose one
 * @option: which names both
 * @on_socket: takes a new connection, not blocking and without delay (TCP_NODELAY)
 * @on_starved: one was closed, or could not even be taken, because this process or the
 *   system has no descriptor left; called for each
 *
 * A taken port says who has it.
 */
struct listener *listener_create(struct loop *loop, const char *host, uint16_t port,
				 const char *option, void (*on_socket)(void *ctx, int fd),
				 void (*on_starved)(void *ctx), void *ctx,
				 struct err *err);
uint16_t listener_port(const struct listener *listener);
/* Listens no more. Call it while the loop still is. NULL is fine. */
void listener_destroy(struct listener *listener);

#endif
