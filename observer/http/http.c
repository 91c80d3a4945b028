#include "observer/http/http.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "observer/http/figures.h"
#include "observer/http/http_part.h"
#include "wire/frame/limits.h"
#include "wire/host/loop.h"

/* ---- the budget ---- */

/* Whoever takes less than that in BROKER_STALLED_S does not read: byte by byte an answer
 * is held for days. Our choice. */
#define MOVED_LEAST 4096

static void list(struct exchange *exchange)
{
	struct http_budget *budget = exchange->budget;

	exchange->is_listed = true;
	exchange->moved_ms = budget->now_ms;
	exchange->moved = 0;
	exchange->before = budget->last;
	exchange->behind = NULL;
	*(budget->last ? &budget->last->behind : &budget->first) = exchange;
	budget->last = exchange;
}

static void unlist(struct exchange *exchange)
{
	struct http_budget *budget = exchange->budget;

	if (!exchange->is_listed)
		return;
	exchange->is_listed = false;
	*(exchange->before ? &exchange->before->behind : &budget->first) =
		exchange->behind;
	*(exchange->behind ? &exchange->behind->before : &budget->last) =
		exchange->before;
}

void exchange_moved(struct exchange *exchange, size_t bytes)
{
	exchange->moved += bytes;
	if (!exchange->is_listed || exchange->moved < MOVED_LEAST)
		return;
	unlist(exchange);
	list(exchange);
}

/* Ends the answer that was still longest, but not this one. */
static bool end_stalled(struct http_budget *budget, const struct exchange *but)
{
	struct exchange *exchange = budget->first;

	if (exchange && exchange == but)
		exchange = exchange->behind;
	if (!exchange || budget->now_ms - exchange->moved_ms < BROKER_STALLED_S * 1000)
		return false;
	unlist(exchange);
	budget->figures->stalled++;
	exchange->ops->drop(exchange);
	return true;
}

static bool has_room(const struct http_budget *budget, size_t bytes)
{
	return !budget->held || budget->held + bytes <= BROKER_HELD_MAX;
}

static bool take(struct exchange *exchange, size_t bytes)
{
	struct http_budget *budget = exchange->budget;
	bool ok = exchange->trusted || !budget->strangers ||
		  budget->strangers + bytes <= BROKER_STRANGERS_HELD_MAX;

	while (ok && exchange->trusted && !has_room(budget, bytes) &&
	       end_stalled(budget, exchange))
		;
	if (!ok || !has_room(budget, bytes)) {
		budget->figures->no_room++;
		return false;
	}
	budget->held += bytes;
	budget->strangers += exchange->trusted ? 0 : bytes;
	exchange->held += bytes;
	return true;
}

bool exchange_spend(struct exchange *exchange, size_t bytes)
{
	if (!take(exchange, bytes))
		return false;
	if (bytes && !exchange->is_listed)
		list(exchange);
	return true;
}

void exchange_give_back(struct exchange *exchange, size_t bytes)
{
	assert(bytes <= exchange->held);
	exchange->held -= bytes;
	exchange->budget->held -= bytes;
	exchange->budget->strangers -= exchange->trusted ? 0 : bytes;
	if (!exchange->held)
		unlist(exchange);
}

/* ---- what is asked ---- */

void exchange_init(struct exchange *exchange, const struct exchange_ops *ops,
		   enum http_way way, struct http_budget *budget)
{
	exchange->ops = ops;
	exchange->budget = budget;
	exchange->part = "none";
	exchange->request.way = way;
	exchange->body.max = BROKER_BODY_MAX;
	exchange->path.max = exchange->query.max = BROKER_HEADER_MAX;
}

/* Who is answered may be slow to read that: what it asked is not kept so long. */
static void forget_request(struct exchange *exchange)
{
	buf_finish(&exchange->path);
	buf_finish(&exchange->query);
	for (size_t i = 0; i < HTTP_HEADERS; i++) {
		buf_wipe(&exchange->headers[i]); /* one holds the token */
		exchange->request.headers[i] = SLICE_EMPTY;
	}
	exchange->request.path = exchange->request.body = SLICE_EMPTY;
	exchange_give_back(exchange, exchange->body.len);
	buf_finish(&exchange->body);
}

void exchange_finish(struct exchange *exchange)
{
	if (exchange->streaming)
		exchange->stream.on_gone(exchange->stream.ctx, exchange);
	else if (exchange->on_gone)
		exchange->on_gone(exchange->gone_ctx);
	forget_request(exchange);
	exchange_give_back(exchange, exchange->held);
	unlist(exchange);
}

bool exchange_take_body(struct exchange *exchange, struct slice piece)
{
	enum http_length *length = &exchange->request.length;

	if (!take(exchange, piece.len))
		*length = HTTP_LENGTH_NO_ROOM;
	else if (!buf_append(&exchange->body, piece))
		*length = HTTP_LENGTH_TOO_LARGE;
	else
		return true;
	buf_finish(&exchange->body);
	exchange_give_back(exchange, exchange->held);
	return false;
}

void exchange_set_header(struct exchange *exchange, enum http_header which,
			 struct slice value)
{
	struct buf *out = &exchange->headers[which];

	buf_clear(out);
	out->max = value.len + 1;
	(void)buf_append(out, value);
	(void)buf_text(out); /* an empty one is there as well */
	exchange->request.headers[which] = buf_slice(out);
}

/* ---- requests ---- */

const struct http_request *exchange_request(const struct exchange *exchange)
{
	return &exchange->request;
}

bool exchange_query_fits(const struct exchange *exchange)
{
	struct slice rest = buf_slice(&exchange->query), pair;

	while (slice_take_until(&rest, '\0', &pair))
		if (pair.len > HTTP_QUERY_MAX)
			return false;
	return true;
}

bool exchange_query(struct exchange *exchange, const char *name, struct buf *out)
{
	struct slice rest = buf_slice(&exchange->query), pair;

	while (slice_take_until(&rest, '\0', &pair)) {
		struct slice key = SLICE_EMPTY;

		(void)slice_take_until(&pair, '=', &key);
		if (!slice_eq(key, slice_of(name)))
			continue;
		buf_clear(out);
		out->max = HTTP_QUERY_MAX;
		return buf_append(out, pair);
	}
	return false;
}

void exchange_set_part(struct exchange *exchange, const char *part)
{
	exchange->part = part;
}

void exchange_trust(struct exchange *exchange)
{
	if (!exchange->trusted)
		exchange->budget->strangers -= exchange->held;
	exchange->trusted = true;
	exchange->ops->trust(exchange);
}

void exchange_hold(struct exchange *exchange, void (*on_gone)(void *ctx), void *ctx)
{
	exchange->on_gone = on_gone;
	exchange->gone_ctx = ctx;
}

/* ---- answers ---- */

/* RFC 9110, 5.6.7, in English whatever the locale. */
static void format_date(char *out, size_t size)
{
	static const char *const days[] = {"Sun", "Mon", "Tue", "Wed",
					   "Thu", "Fri", "Sat"};
	static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
					     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
	const time_t now = (time_t)(loop_unix_ms() / 1000);
	struct tm tm;

	(void)gmtime_r(&now, &tm);
	(void)snprintf(out, size, "%s, %02d %s %d %02d:%02d:%02d GMT", days[tm.tm_wday],
		       tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour,
		       tm.tm_min, tm.tm_sec);
}

static void count(const struct exchange *exchange, unsigned status, size_t body_bytes)
{
	struct http_figures *figures = exchange->budget->figures;

	http_figures_answer(figures, exchange->part, status);
	figures->body_bytes += body_bytes;
}

struct fields {
	struct http_field list[HTTP_FIELDS_MAX + 1]; /* the last stays NULL */
	size_t count;
	char date[64], length[32];
};

static void add_field(struct fields *fields, const char *name, const char *value)
{
	assert(fields->count < HTTP_FIELDS_MAX);
	fields->list[fields->count++] = (struct http_field){name, value};
}

static void begin_fields(struct fields *fields, const char *type)
{
	format_date(fields->date, sizeof(fields->date));
	add_field(fields, "content-type:", type);
	add_field(fields, "date:", fields->date);
	add_field(fields, "x-content-type-options:", "nosniff");
	add_field(fields, "referrer-policy:", "no-referrer");
	add_field(fields, "cross-origin-resource-policy:", "same-origin");
}

static void respond(struct exchange *exchange, unsigned status, const char *type,
		    const struct http_field *headers, struct slice body, bool lasts)
{
	static const struct http_field later[] = {{"retry-after:", "1"}, {NULL, NULL}};
	const bool is_head = exchange->request.method == HTTP_HEAD;
	struct fields fields = {0};
	unsigned sent;

	exchange->on_gone = NULL;
	if (!lasts && !is_head && !exchange_spend(exchange, body.len)) {
		status = 503;
		headers = later;
		body.len = 0;
	}
	begin_fields(&fields, type);
	for (; headers && headers->name; headers++)
		add_field(&fields, headers->name, headers->value);
	(void)snprintf(fields.length, sizeof(fields.length), "%zu", body.len);
	add_field(&fields, "content-length:", fields.length);
	if (is_head)
		body.len = 0;
	sent = exchange->ops->respond(exchange, status, fields.list, body, lasts);
	count(exchange, sent, sent == status ? body.len : 0);
	forget_request(exchange);
}

void exchange_respond(struct exchange *exchange, unsigned status, const char *type,
		      const struct http_field *headers, struct slice body)
{
	respond(exchange, status, type, headers, body, false);
}

void exchange_respond_lasting(struct exchange *exchange, unsigned status,
			      const char *type, const struct http_field *headers,
			      struct slice body)
{
	respond(exchange, status, type, headers, body, true);
}

void exchange_respond_late(struct exchange *exchange)
{
	exchange_respond(exchange, 408, "application/json", NULL,
			 SLICE("{\"error\":\"the request took too long to come\"}"));
}

void exchange_begin(struct exchange *exchange, const char *type,
		    const struct http_stream *stream)
{
	struct fields fields = {0};

	begin_fields(&fields, type);
	add_field(&fields, "cache-control:", "no-store");
	exchange->on_gone = NULL;
	exchange->streaming = true;
	exchange->stream = *stream;
	count(exchange, 200, 0);
	exchange->ops->begin(exchange, fields.list);
	forget_request(exchange);
}

void exchange_want_write(struct exchange *exchange)
{
	exchange->ops->want_write(exchange);
}

bool exchange_ready(const struct exchange *exchange)
{
	return exchange->ops->ready(exchange);
}

bool exchange_send(struct exchange *exchange, struct slice piece)
{
	if (!exchange->ops->send(exchange, piece))
		return false;
	exchange->budget->figures->body_bytes += piece.len;
	return true;
}
