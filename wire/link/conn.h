#ifndef WIRE_LINK_CONN_H
#define WIRE_LINK_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/host/loop.h"
#include "wire/link/link_url.h"

/* One connection of libwebsockets to a relay: its WebSocket, or the request for its
 * document. lws closes in its own time, so a connection outlives its owner's interest in
 * it: after conn_drop(), or after its last callback, it is nobody's and ends by itself.
 */
struct conn;

#define CONN_REASON_BYTES 120

enum conn_end {
	CONN_REFUSED, /* no connection, or no WebSocket; the reason is whole */
	CONN_CLOSED,  /* the reason is "" or " (code words)" */
	CONN_LOST,    /* without a word; the reason is "" */
	CONN_BROKEN,  /* the relay sent what it must not; the reason is whole */
};

/* Inside any of them the connection may be dropped. Slices live until they return. */
struct conn_events {
	/* Of a WebSocket. */
	void (*on_open)(void *ctx);
	void (*on_text)(void *ctx, struct slice message); /* whole */
	void (*on_pong)(void *ctx, int64_t rtt_ms);
	void (*on_writable)(void *ctx); /* what waited was written, or some of it */
	void (*on_end)(void *ctx, enum conn_end how, const char *reason); /* the last */
	/* Of a document. */
	void (*on_date)(void *ctx,
			struct slice date); /* its header, whatever the status */
	void (*on_document)(void *ctx, struct slice text); /* or "": none; the last */
};

/* Who connects where. All borrowed for as long as the connection is somebody's. */
struct conn_options {
	struct loop *loop;
	const struct link_url *url;
	const char *address; /* numeric; what the URL's host stands for */
	const struct conn_events *events;
	void *ctx;
};

/* What connections need of the loop; again for each link, only the first has work. */
bool conn_prepare(struct loop *loop, bool tls, struct err *err);
/* NULL when it failed at once, with @reason filled; no callback before they return. */
struct conn *conn_open(const struct conn_options *options,
		       char reason[CONN_REASON_BYTES]);
struct conn *conn_fetch(const struct conn_options *options,
			char reason[CONN_REASON_BYTES]);
/* No callbacks any more; what waits to be sent is gone. NULL is fine. */
void conn_drop(struct conn *conn);

/* A message to be filled and sent: it has lws's head room in front. */
void conn_message_init(struct buf *message, size_t max);
/* Takes @message, which is sent and masked in this memory. */
void conn_send(struct conn *conn, struct buf *message);
/* Bytes that wait to be sent. */
size_t conn_queued(const struct conn *conn);
/* on_pong() follows if the relay answers before the next ping. */
void conn_ping(struct conn *conn);

#endif
