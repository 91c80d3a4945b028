#ifndef OBSERVER_HTTP_HTTP_H
#define OBSERVER_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/slice.h"

/* Requests and answers, whatever brings them: HTTP/1.1 (h1.h) or HTTP/2 (h2.h). What
 * they mean is the handler's business. */
struct exchange;

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_OTHER };

enum http_header {
	HTTP_AUTHORIZATION,
	HTTP_HOST, /* of HTTP/2: the authority */
	HTTP_ORIGIN,
	HTTP_CONTENT_TYPE,
	HTTP_ACCEPT_ENCODING,
	HTTP_SEC_FETCH_SITE,
	HTTP_HEADERS,
};

enum http_length {
	HTTP_LENGTH_OK,
	HTTP_LENGTH_MISSING, /* none, or chunks; HTTP/1.1 only */
	HTTP_LENGTH_MALFORMED,
	HTTP_LENGTH_TOO_LARGE, /* over BROKER_BODY_MAX */
	HTTP_LENGTH_UNASKED,   /* may_send() said no */
	HTTP_LENGTH_NO_ROOM,   /* the budget is spent */
};

/* What it came by. HTTP_BY_METRICS: the port that has figures and health only. */
enum http_way { HTTP_BY_UNIX, HTTP_BY_TCP, HTTP_BY_TLS, HTTP_BY_METRICS, HTTP_WAYS };
/* "unix", "tcp", "tls", "metrics" */
const char *http_way_name(enum http_way way);

/* A request, whole. */
struct http_request {
	enum http_method method;
	struct slice path;                  /* percent-decoded, without the query */
	struct slice headers[HTTP_HEADERS]; /* ptr NULL: absent */
	struct slice body;
	/* Of a POST. Where it is not OK the body was not read. */
	enum http_length length;
	enum http_way way;
};

/* What all connections of all servers hold together: bodies that came, answers that wait
 * to be read. Above BROKER_HELD_MAX there is no more: an answer is 503 then, a body is
 * not kept, and a page of the stream is ended, to come back later. Whoever is alone is
 * served, however much it is. Whoever has not shown the token has
 * BROKER_STRANGERS_HELD_MAX of it; for whoever has, answers of which nothing was taken
 * for BROKER_STALLED_S are ended first, as many as it needs. */
struct http_figures;
struct http_budget {
	size_t held, strangers;        /* bytes; of them without the token */
	int64_t now_ms;                /* as its servers were told last */
	struct exchange *first, *last; /* with answers; the longest still first */
	struct http_figures *figures;  /* borrowed */
};

/* Who answers. */
struct http_handler {
	/* Asked when all but the body of a POST is there: is it worth being read? */
	bool (*may_send)(void *ctx, const struct http_request *request);
	/* A request is there; answered now or later by exchange_respond() or
	 * exchange_begin(). */
	void (*on_request)(void *ctx, struct exchange *exchange);
	void *ctx;
};

/* Lives until the exchange is answered or gone. */
const struct http_request *exchange_request(const struct exchange *exchange);
/* False: some query parameter is longer than one may be; it would not be there. */
bool exchange_query_fits(const struct exchange *exchange);
/* One query parameter, decoded, into @out (cleared); false when it is not there. */
bool exchange_query(struct exchange *exchange, const char *name, struct buf *out);
/* What was asked for, for the figures: a static word. */
void exchange_set_part(struct exchange *exchange, const char *part);
/* Whoever asks has shown that they may: their connection makes room for no other. */
void exchange_trust(struct exchange *exchange);

/* @headers: extra ones, name in small letters with colon, and value; ends with a NULL
 * name. Copies the body. */
struct http_field {
	const char *name, *value;
};
void exchange_respond(struct exchange *exchange, unsigned status, const char *type,
		      const struct http_field *headers, struct slice body);
/* The same for a body that outlives every exchange, like the files of the page. */
void exchange_respond_lasting(struct exchange *exchange, unsigned status,
			      const char *type, const struct http_field *headers,
			      struct slice body);

/* An answer without end. @on_writable is called when a piece may be sent by
 * exchange_send(), after exchange_want_write(); @on_gone when the peer has left, or, of
 * HTTP/1.1, has sent anything more: who reads a stream has nothing to say. */
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
/* Sends one piece, copied; inside on_writable only. False: the exchange ends, on_gone
 * follows. */
bool exchange_send(struct exchange *exchange, struct slice piece);
/* An exchange that is answered later: @on_gone is called if its peer leaves before. */
void exchange_hold(struct exchange *exchange, void (*on_gone)(void *ctx), void *ctx);

#endif
