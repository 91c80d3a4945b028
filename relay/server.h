#ifndef RELAY_SERVER_H
#define RELAY_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "relay/address.h"
#include "relay/connection.h"
#include "wire/base/err.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/host/tls.h"

/* The sockets of the relay: WebSocket on path /, NIP-11 and a short page there for HTTP,
 * /healthz; /metrics and /healthz on a port of their own. HTTP/1.1 only. */
struct server;

/* What it borrows must live as long as it, or until server_set_options(). */
struct server_options {
	const char *host;         /* a numeric address */
	uint16_t port;            /* 0: choose one */
	const char *metrics_host; /* NULL: no metrics port */
	uint16_t metrics_port;
	struct tls *tls; /* NULL: plain */
	/* Origins of web pages that may connect from this machine besides our own
	 * address; "*" for all. */
	const struct option_list *allow_origins;
	const struct proxies *proxies;
	uint64_t connections_max; /* fewer where the system allows fewer files */
	uint64_t address_max;     /* connections of one address */
};

/* How connections of @core reach their sockets. */
extern const struct connection_io server_io;

/* Starts to listen. A taken port says who has it. */
struct server *server_create(struct loop *loop, struct core *core,
			     const struct server_options *options, struct err *err);
/* Takes over all but where it listens and whether it speaks TLS. */
void server_set_options(struct server *server, const struct server_options *options);
uint16_t server_port(const struct server *server);
/* 0 when there is none. */
uint16_t server_metrics_port(const struct server *server);
/* Refuses new clients, closes all others with 1001 and calls @on_stopped when the last
 * has gone, at once when there is none. A client that does not read takes 5 s. */
void server_stop(struct server *server, void (*on_stopped)(void *ctx), void *ctx);
/* Listens no more; call it before loop_destroy(). NULL is fine. */
void server_close(struct server *server);
/* Call after loop_destroy(): until then libwebsockets may call back. NULL is fine. */
void server_destroy(struct server *server);

#endif
