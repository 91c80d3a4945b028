#ifndef RELAY_HTTP_H
#define RELAY_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include <libwebsockets.h>

#include "wire/base/slice.h"

/* Short HTTP/1.1 answers by libwebsockets: dated, and readable by any web page (CORS).
 * The functions that return int are for returning from an lws callback: 0 goes on, -1
 * closes. */

/* The body of an answer that waits until the socket is writable. Zeroed means none. */
struct http_answer {
	unsigned char *memory; /* LWS_PRE bytes of headroom, then the body */
	size_t len;            /* of the body */
};

/* Frees a body that was not sent. */
void http_forget(struct http_answer *answer);

/* A request header as text; false when it is absent or does not fit. */
bool http_header(struct lws *wsi, enum lws_token_indexes token, char *out, int size);
/* Writes the date header at *@at and moves it. */
bool http_add_date(struct lws *wsi, unsigned char **at, unsigned char *end);
/* Answers a request; leaves the body out for HEAD. */
int http_respond(struct lws *wsi, struct http_answer *answer, unsigned status,
		 const char *type, struct slice body);
int http_respond_text(struct lws *wsi, struct http_answer *answer, unsigned status,
		      const char *text);
/* The socket is writable: sends the body. */
int http_send(struct lws *wsi, struct http_answer *answer);
/* Answers at once with @text (at most 256 bytes) and closes: for upgrades, and for
 * requests whose body is not read. */
int http_refuse(struct lws *wsi, unsigned status, struct slice text);

#endif
