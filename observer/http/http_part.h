#ifndef OBSERVER_HTTP_HTTP_PART_H
#define OBSERVER_HTTP_HTTP_PART_H

#include "observer/http/http.h"

/* What http.c shares with whatever brings requests. */

#define HTTP_FIELDS_MAX 24  /* headers of an answer */
#define HTTP_QUERY_MAX 2048 /* bytes of one parameter, with its name */

/* How an answer goes out. @fields are all headers, of exchange_begin() all but those that
 * frame a body of unknown length; they end with a NULL name. A body that @lasts need not
 * be copied. */
struct exchange_ops {
	/* The status that goes out: another one where there is no room for it. */
	unsigned (*respond)(struct exchange *exchange, unsigned status,
			    const struct http_field *fields, struct slice body,
			    bool lasts);
	void (*begin)(struct exchange *exchange, const struct http_field *fields);
	void (*want_write)(struct exchange *exchange);
	bool (*ready)(const struct exchange *exchange);
	bool (*send)(struct exchange *exchange, struct slice piece);
	void (*trust)(struct exchange *exchange);
	/* Gives back what it holds now, and ends it soon: others need the room. */
	void (*drop)(struct exchange *exchange);
};

/* The front of what each way has for an exchange. */
struct exchange {
	const struct exchange_ops *ops;
	struct http_request request; /* its slices point into: */
	struct buf path, body, headers[HTTP_HEADERS];
	struct buf query; /* name=value, decoded, each ended by a NUL */
	struct http_budget *budget;
	const char *part; /* for the figures; static */
	bool trusted;     /* it had the token */
	size_t held;      /* of the budget */
	struct exchange *before,
		*behind; /* in the budget's list, while it has an answer */
	bool is_listed;
	int64_t moved_ms; /* when enough of the answer was last taken */
	size_t moved;     /* bytes of it since */
	bool streaming;
	struct http_stream stream;
	void (*on_gone)(void *ctx);
	void *gone_ctx;
};

/* @exchange is zeroed memory; @budget is borrowed. */
void exchange_init(struct exchange *exchange, const struct exchange_ops *ops,
		   enum http_way way, struct http_budget *budget);
/* Tells whoever streams into it or holds it that the peer is gone, and frees all but the
 * exchange itself. */
void exchange_finish(struct exchange *exchange);
/* Copies a header. */
void exchange_set_header(struct exchange *exchange, enum http_header which,
			 struct slice value);
/* Takes a piece of the body; false: it is not kept, what was is gone, and the request's
 * length says why. */
bool exchange_take_body(struct exchange *exchange, struct slice piece);
/* Takes @bytes of the budget for an answer, or a piece of one; false: there are none
 * left. What is not given back before goes back with exchange_finish(). */
bool exchange_spend(struct exchange *exchange, size_t bytes);
/* So much of it was taken. */
void exchange_moved(struct exchange *exchange, size_t bytes);
void exchange_give_back(struct exchange *exchange, size_t bytes);
/* Answers a request that did not come to its end in BROKER_REQUEST_S. */
void exchange_respond_late(struct exchange *exchange);

#endif
