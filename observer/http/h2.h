#ifndef OBSERVER_HTTP_H2_H
#define OBSERVER_HTTP_H2_H

#include <stdint.h>

#include "observer/http/http.h"
#include "wire/base/err.h"
#include "wire/host/loop.h"
#include "wire/host/tls.h"

/* HTTP/2 over TLS (ALPN h2) on a port of its own: sockets and TLS for h2_session.h. Who
 * speaks TLS but not HTTP/2 is told so (505), who speaks plain HTTP as well (400).
 *
 * Of BROKER_CONNECTIONS_MAX connections a further one pushes out the oldest that never
 * had the token; when all have it, it is closed. A handshake has BROKER_HANDSHAKE_S; a
 * peer whose socket takes nothing for BROKER_H2_UNREAD_S is closed. */
struct h2_server;

struct h2_options {
	const char *host; /* numeric address */
	uint16_t port;    /* 0: any */
	struct tls *tls;  /* borrowed; made ready for this use */
	struct http_handler handler;
	struct http_budget *budget; /* borrowed */
};

struct h2_server *h2_server_create(struct loop *loop, const struct h2_options *options,
				   struct err *err);
/* Says goodbye to every connection and ends it. Its memory goes with the loop: call it
 * before loop_destroy(). NULL is fine. */
void h2_server_destroy(struct h2_server *server);
/* After tls_reload(): connections from now on are shown what it read. */
bool h2_server_renew(struct h2_server *server, struct err *err);
uint16_t h2_server_port(const struct h2_server *server);

#endif
