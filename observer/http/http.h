#ifndef OBSERVER_HTTP_HTTP_H
#define OBSERVER_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/host/loop.h"

/* HTTP/1.1 on a TCP address and on a Unix socket, by libwebsockets: reads whole requests
 * and writes answers. What they mean is the handler's business. */
struct http_server;
struct exchange;

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_OTHER };

enum http_header {
	HTTP_AUTHORIZATION,
	HTTP_HOST,
	HTTP_ORIGIN,
	HTTP_CONTENT_TYPE,
	HTTP_ACCEPT_ENCODING,
	HTTP_SEC_FETCH_SITE,
	HTTP_HEADERS,
};

enum http_length {
	HTTP_LENGTH_OK,
	HTTP_LENGTH_MISSING, /* none, or chunks */
	HTTP_LENGTH_MALFORMED,
	HTTP_LENGTH_TOO_LARGE, /* over BROKER_BODY_MAX */
};

/* A request, whole. */
struct http_request {
	enum http_method method;
	struct slice path;                  /* percent-decoded, without the query */
	struct slice headers[HTTP_HEADERS]; /* ptr NULL: absent */
	struct slice body;
	/* Of a POST. Where it is not OK the body was not read. */
	enum http_length length;
	bool is_unix; /* came by the Unix socket */
};

struct http_server_options {
	const char *host;      /* numeric address */
	uint16_t port;         /* 0: any */
	const char *unix_path; /* made 0600; what was there is removed */
	/* A request is there; answered now or later by exchange_respond() or
	 * exchange_begin(). */
	void (*on_request)(void *ctx, struct exchange *exchange);
	void *ctx;
};

struct http_server *http_server_create(struct loop *loop,
				       const struct http_server_options *options,
				       struct err *err);
/* Ends every connection; further ones are refused. Its memory goes with the loop: call it
 * before loop_destroy(). */
void http_server_stop(struct http_server *server);
/* After the loop was destroyed. NULL is fine. */
void http_server_destroy(struct http_server *server);
uint16_t http_server_port(const struct http_server *server);

/* Lives until the exchange is answered or gone. */
const struct http_request *exchange_request(const struct exchange *exchange);
/* One query parameter, decoded, into @out (cleared); false when it is not there. */
bool exchange_query(struct exchange *exchange, const char *name, struct buf *out);

/* @headers: extra ones, name with colon and value, ends with a NULL name. Copies the
 * body. */
struct http_field {
	const char *name, *value;
};
void exchange_respond(struct exchange *exchange, unsigned status, const char *type,
		      const struct http_field *headers, struct slice body);

/* An answer without end. @on_writable is called when a piece may be sent by
 * exchange_send(), after exchange_want_write(); @on_gone when the peer has left, or
 * has sent anything more: who reads a stream has nothing to say. */
struct http_stream {
	void (*on_writable)(void *ctx, struct exchange *exchange);
	void (*on_gone)(void *ctx, struct exchange *exchange);
	void *ctx;
};
void exchange_begin(struct exchange *exchange, const char *type,
		    const struct http_stream *stream);
void exchange_want_write(struct exchange *exchange);
/* May another piece go out now without waiting for the peer? */
bool exchange_ready(const struct exchange *exchange);
/* Sends one piece as a chunk; inside on_writable only. False: the connection is gone. */
bool exchange_send(struct exchange *exchange, struct slice piece);
/* An exchange that is answered later: @on_gone is called if its peer leaves before. */
void exchange_hold(struct exchange *exchange, void (*on_gone)(void *ctx), void *ctx);

#endif
