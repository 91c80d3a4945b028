#ifndef OBSERVER_HTTP_H1_H
#define OBSERVER_HTTP_H1_H

#include <stdint.h>

#include "observer/http/http.h"
#include "wire/base/err.h"
#include "wire/host/loop.h"

/* HTTP/1.1 on a TCP address and on a Unix socket, by libwebsockets: reads whole requests
 * and writes answers. Of each at most BROKER_CONNECTIONS_MAX connections; a further one
 * pushes out the oldest that never had the token, and is closed at once when all have
 * it. */
struct h1_server;

struct h1_options {
	const char *host;      /* numeric address */
	uint16_t port;         /* 0: any */
	const char *unix_path; /* made 0600; what was there is removed */
	/* Figures and health on an address of their own, with a budget of its own: they
	 * are wanted most where all else is used up. NULL: not there. */
	const char *metrics_host;
	uint16_t metrics_port; /* 0: any */
	struct http_handler handler;
	struct http_budget *budget; /* borrowed */
};

struct h1_server *h1_server_create(struct loop *loop, const struct h1_options *options,
				   struct err *err);
/* Ends every connection; further ones are refused. Its memory goes with the loop: call it
 * before loop_destroy(). */
void h1_server_stop(struct h1_server *server);
/* After the loop was destroyed. NULL is fine. */
void h1_server_destroy(struct h1_server *server);
uint16_t h1_server_port(const struct h1_server *server);
uint16_t h1_server_metrics_port(const struct h1_server *server);

#endif
