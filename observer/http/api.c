#include "observer/http/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "observer/acp.h"
#include "observer/http/page.h"
#include "observer/http/times.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/loop.h"
#include "wire/nostr/json.h"

#define ROWS_DEFAULT 200
#define ROWS_MAX 1000
#define ANSWER_MAX (64u << 20)
#define POSTS_PER_S 50 /* of all pages and commands; our choice */

/* No script, style or anything from elsewhere, no HTML from strings (design §8). */
#define PAGE_CSP \
	"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' " \
	"data:; " \
	"font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; " \
	"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for " \
	"'script'; " \
	"trusted-types 'none'"

struct api {
	struct api_options options;
	char token[API_TOKEN_LEN + 1];
	char hosts[2][80];   /* what Host may say */
	char origins[2][96]; /* what Origin may say */
	int64_t posts_ms;    /* start of the second that is counted */
	unsigned posts;
};

struct api *api_create(const struct api_options *options)
{
	struct api *api = mem_alloc(sizeof(*api));

	api->options = *options;
	(void)snprintf(api->token, sizeof(api->token), "%s", options->token);
	return api;
}

void api_destroy(struct api *api)
{
	if (!api)
		return;
	sodium_memzero(api->token, sizeof(api->token));
	free(api);
}

void api_set_port(struct api *api, uint16_t port)
{
	const char *names[] = {api->options.host, "localhost"};

	for (size_t i = 0; i < 2; i++) {
		const bool bare_v6 = strchr(names[i], ':') != NULL;

		(void)snprintf(api->hosts[i], sizeof(api->hosts[i]), "%s%s%s:%u",
			       bare_v6 ? "[" : "", names[i], bare_v6 ? "]" : "", port);
		(void)snprintf(api->origins[i], sizeof(api->origins[i]), "http://%s",
			       api->hosts[i]);
	}
}

/* ---- answers ---- */

static const struct http_field no_store[] = {{"cache-control:", "no-store"},
					     {NULL, NULL}};

static void respond_json(struct exchange *exchange, unsigned status, struct slice json)
{
	exchange_respond(exchange, status, "application/json", no_store, json);
}

static void refuse(struct exchange *exchange, unsigned status, const char *sentence)
{
	struct buf out = {.max = 4096};

	(void)buf_lit(&out, "{");
	json_write_member_string(&out, SLICE("error"), slice_of(sentence));
	(void)buf_lit(&out, "}");
	respond_json(exchange, status, buf_slice(&out));
	buf_finish(&out);
}

static unsigned status_of(const struct err *err)
{
	switch (err->code) {
	case ERR_MALFORMED:
		return 400;
	case ERR_TOO_LARGE:
		return 413;
	case ERR_REFUSED:
		return 403;
	case ERR_NOT_FOUND:
		return 404;
	case ERR_NONE:
	case ERR_SYSTEM:
		break;
	}
	return 503;
}

/* ---- who may ask ---- */

static bool is_one_of(struct slice value, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (slice_eq(value, slice_of(names[i])))
			return true;
	return false;
}

/* A page elsewhere, or a name that was made to point here, gets nothing. */
static bool comes_from_here(const struct api *api, struct exchange *exchange)
{
	static const char *const sites[] = {"same-origin", "none"};
	const struct http_request *request = exchange_request(exchange);
	const char *const hosts[] = {api->hosts[0], api->hosts[1]};
	const char *const origins[] = {api->origins[0], api->origins[1]};
	const struct slice origin = request->headers[HTTP_ORIGIN];
	const struct slice site = request->headers[HTTP_SEC_FETCH_SITE];

	/* The file's mode guards the Unix socket. */
	if (request->is_unix)
		return true;
	if (!is_one_of(request->headers[HTTP_HOST], hosts, 2)) {
		refuse(exchange, 403, "this Host is not served here");
		return false;
	}
	/* A link elsewhere may lead to the page; it cannot ask for anything. */
	if (!slice_starts(request->path, SLICE("/api/")))
		return true;
	if (origin.ptr && !is_one_of(origin, origins, 2)) {
		refuse(exchange, 403, "requests of other pages are refused");
		return false;
	}
	if (site.ptr && !is_one_of(site, sites, 2)) {
		refuse(exchange, 403, "requests of other sites are refused");
		return false;
	}
	return true;
}

static bool has_token(const struct api *api, struct exchange *exchange)
{
	const struct http_request *request = exchange_request(exchange);
	const struct slice given = request->headers[HTTP_AUTHORIZATION];
	const struct slice scheme = SLICE("Bearer ");

	if (request->is_unix)
		return true;
	if (given.len == scheme.len + API_TOKEN_LEN && slice_starts(given, scheme) &&
	    sodium_memcmp(given.ptr + scheme.len, api->token, API_TOKEN_LEN) == 0)
		return true;
	refuse(exchange, 401, "the token is missing or wrong: run `perch open`");
	return false;
}

/* ---- the page ---- */

static bool takes_gzip(struct slice accept)
{
	return slice_find_slice(accept, SLICE("gzip")) < accept.len &&
	       slice_find_slice(accept, SLICE("gzip;q=0")) == accept.len;
}

static void on_asset(struct exchange *exchange, const struct page_asset *asset)
{
	const struct http_request *request = exchange_request(exchange);
	const bool gzip =
		asset->gzip_len && takes_gzip(request->headers[HTTP_ACCEPT_ENCODING]);
	const bool document = strcmp(asset->path, "/") == 0;
	const struct http_field fields[] = {
		{"content-security-policy:", PAGE_CSP},
		{"cross-origin-opener-policy:", "same-origin"},
		{"permissions-policy:", "camera=(), microphone=(), geolocation=()"},
		{"cache-control:",
		 document ? "no-cache" : "public, max-age=31536000, immutable"},
		{"vary:", "accept-encoding"},
		{gzip ? "content-encoding:" : NULL, "gzip"},
		{NULL, NULL},
	};
	const struct slice body = {(const char *)(gzip ? asset->gzip : asset->bytes),
				   gzip ? asset->gzip_len : asset->len};

	exchange_respond(exchange, 200, asset->content_type, fields, body);
}

static const struct page_asset *find_asset(struct slice path)
{
	for (size_t i = 0; i < page_asset_count; i++)
		if (slice_eq(path, slice_of(page_assets[i].path)))
			return &page_assets[i];
	return NULL;
}

/* ---- questions ---- */

static void on_fleet(struct api *api, struct exchange *exchange)
{
	struct buf out = {.max = ANSWER_MAX};

	hub_write_snapshot(api->options.hub, &out);
	respond_json(exchange, 200, buf_slice(&out));
	buf_finish(&out);
}

/* Brings the spans up to date; what is older is read meanwhile. */
static struct spans *spans_now(struct api *api, int64_t now)
{
	history_want(api->options.history);
	model_settle(api->options.model, now);
	model_write_spans(api->options.model, now);
	return api->options.spans;
}

static void on_timeline(struct api *api, struct exchange *exchange)
{
	const int64_t now = loop_unix_ms();
	struct buf out = {.max = ANSWER_MAX};
	struct err err;

	if (!times_timeline(exchange, spans_now(api, now), now, &out, &err))
		refuse(exchange, status_of(&err), err.text);
	else
		exchange_respond(exchange, 200, "application/octet-stream", no_store,
				 buf_slice(&out));
	buf_finish(&out);
}

static void on_report(struct api *api, struct exchange *exchange)
{
	const int64_t now = loop_unix_ms();
	struct buf out = {.max = ANSWER_MAX};
	struct err err;

	if (!times_report(exchange, spans_now(api, now), now, &out, &err))
		refuse(exchange, status_of(&err), err.text);
	else
		respond_json(exchange, 200, buf_slice(&out));
	buf_finish(&out);
}

static void on_stream(struct api *api, struct exchange *exchange)
{
	struct buf cursor = {0};

	(void)exchange_query(exchange, "cursor", &cursor);
	if (!hub_add(api->options.hub, exchange, buf_slice(&cursor)))
		refuse(exchange, 503, "too many pages are open");
	buf_finish(&cursor);
}

/* An answer that the archive's thread is looking for. */
struct question {
	struct api *api;
	struct exchange *exchange; /* NULL: whoever asked has left */
	uint8_t agent[KEY_BYTES];
	struct buf channel;
};

static void on_asker_gone(void *ctx)
{
	struct question *question = ctx;

	question->exchange = NULL;
}

static struct question *question_create(struct api *api, struct exchange *exchange)
{
	struct question *question = mem_alloc(sizeof(*question));

	question->api = api;
	question->exchange = exchange;
	exchange_hold(exchange, on_asker_gone, question);
	return question;
}

static void question_destroy(struct question *question)
{
	buf_finish(&question->channel);
	free(question);
}

static void write_rows(struct question *question, const struct archive_answer *answer,
		       struct buf *out)
{
	struct model_old_row *rows = mem_array(answer->row_count, sizeof(*rows));

	for (size_t i = 0; i < answer->row_count; i++) {
		const struct archive_row *row = &answer->rows[i];

		rows[i].id = (struct slice){row->id, row->id_len};
		rows[i].json = (struct slice){row->json, row->json_len};
	}
	model_write_old_rows(question->api->options.model, question->agent,
			     buf_slice(&question->channel), rows, answer->row_count, out);
	free(rows);
}

static void on_archived_rows(void *ctx, const struct archive_answer *answer)
{
	struct question *question = ctx;
	struct buf out = {.max = ANSWER_MAX};

	if (question->exchange && answer->ok) {
		(void)buf_lit(&out, "{\"rows\":[");
		write_rows(question, answer, &out);
		(void)buf_printf(&out, "],\"more\":%s}", answer->more ? "true" : "false");
		respond_json(question->exchange, 200, buf_slice(&out));
	} else if (question->exchange) {
		refuse(question->exchange, status_of(&answer->err), answer->err.text);
	}
	buf_finish(&out);
	question_destroy(question);
}

/* AGENTHEX/CHANNEL */
static bool read_lane(struct slice lane, uint8_t agent[KEY_BYTES], struct slice *channel)
{
	if (lane.len <= 2 * KEY_BYTES + 1 || lane.ptr[2 * KEY_BYTES] != '/' ||
	    !hex_decode(slice_sub(lane, 0, 2 * KEY_BYTES), agent, KEY_BYTES))
		return false;
	*channel = slice_sub(lane, 2 * KEY_BYTES + 1, lane.len);
	return true;
}

static void on_rows(struct api *api, struct exchange *exchange)
{
	struct buf lane = {0}, before_text = {0}, limit_text = {0};
	struct buf out = {.max = ANSWER_MAX};
	uint8_t agent[KEY_BYTES];
	struct slice channel;
	uint64_t limit = ROWS_DEFAULT;
	struct pos before;
	bool has_before;

	(void)exchange_query(exchange, "lane", &lane);
	has_before = exchange_query(exchange, "before", &before_text);
	if (!read_lane(buf_slice(&lane), agent, &channel)) {
		refuse(exchange, 400, "lane must be AGENT/CHANNEL");
	} else if (has_before && !pos_parse(buf_slice(&before_text), &before)) {
		refuse(exchange, 400, "before must be a pos, EPOCH/SEQ");
	} else if (exchange_query(exchange, "limit", &limit_text) &&
		   (!slice_parse_u64(buf_slice(&limit_text), ROWS_MAX, &limit) ||
		    !limit)) {
		refuse(exchange, 400, "limit must be 1 to 1000");
	} else {
		(void)buf_lit(&out, "{");
		if (model_write_rows(api->options.model, agent, channel,
				     has_before ? &before : NULL, limit, &out)) {
			(void)buf_lit(&out, "}");
			respond_json(exchange, 200, buf_slice(&out));
		} else {
			struct question *question = question_create(api, exchange);

			memcpy(question->agent, agent, KEY_BYTES);
			question->channel.max = channel.len + 1;
			(void)buf_append(&question->channel, channel);
			archive_rows(api->options.archive, agent, channel,
				     has_before ? &before : NULL, limit, on_archived_rows,
				     question);
		}
	}
	buf_finish(&out);
	buf_finish(&lane);
	buf_finish(&before_text);
	buf_finish(&limit_text);
}

static void on_archived_event(void *ctx, const struct archive_answer *answer)
{
	struct question *question = ctx;

	if (question->exchange && answer->ok)
		respond_json(question->exchange, 200,
			     (struct slice){answer->text, answer->text_len});
	else if (question->exchange)
		refuse(question->exchange, status_of(&answer->err), answer->err.text);
	question_destroy(question);
}

/* AGENT/EPOCH/SEQ; seq with or without its padding. */
static void on_event(struct api *api, struct exchange *exchange, struct slice rest)
{
	uint8_t agent[KEY_BYTES];
	struct slice hex, epoch, seq = rest;
	char place[POS_LEN + 1];
	uint64_t number;
	struct pos pos;

	(void)slice_take_until(&seq, '/', &hex);
	(void)slice_take_until(&seq, '/', &epoch);
	while (seq.len > 1 && *seq.ptr == '0')
		seq = slice_sub(seq, 1, seq.len);
	if (!hex_decode(hex, agent, KEY_BYTES) || epoch.len != 16 ||
	    !slice_parse_u64(seq, FRAME_NUMBER_MAX, &number)) {
		refuse(exchange, 400, "an event is named AGENT/EPOCH/SEQ");
		return;
	}
	(void)snprintf(place, sizeof(place), "%.*s/%016llu", SLICE_ARG(epoch),
		       (unsigned long long)number);
	if (!pos_parse(slice_of(place), &pos)) {
		refuse(exchange, 400, "an event is named AGENT/EPOCH/SEQ");
		return;
	}
	archive_event(api->options.archive, agent, &pos, on_archived_event,
		      question_create(api, exchange));
}

/* A form of another page cannot say this without asking first. RFC 9110, 8.3.1:
 * parameters may follow. */
static bool is_json(struct slice type)
{
	struct slice name = SLICE_EMPTY;

	(void)slice_take_until(&type, ';', &name);
	return slice_eq(slice_trim(name), SLICE("application/json"));
}

/* False, and answered, when the body could not be read. */
static bool has_body(struct exchange *exchange)
{
	switch (exchange_request(exchange)->length) {
	case HTTP_LENGTH_OK:
		return true;
	case HTTP_LENGTH_MISSING:
		refuse(exchange, 411, "send a Content-Length: chunks are not read");
		return false;
	case HTTP_LENGTH_MALFORMED:
		refuse(exchange, 400, "Content-Length must be a number");
		return false;
	case HTTP_LENGTH_TOO_LARGE:
		refuse(exchange, 413, "a request is at most 1 MiB");
		return false;
	}
	return false;
}

static bool may_post(struct api *api)
{
	const int64_t now = loop_now_ms();

	if (now - api->posts_ms >= 1000) {
		api->posts_ms = now;
		api->posts = 0;
	}
	return ++api->posts <= POSTS_PER_S;
}

static void on_control(struct api *api, struct exchange *exchange)
{
	const struct http_request *request = exchange_request(exchange);
	const struct slice type = request->headers[HTTP_CONTENT_TYPE];
	struct buf out = {.max = 256};
	char request_id[33];
	struct err err;

	if (!is_json(type)) {
		refuse(exchange, 415, "send application/json");
	} else if (!may_post(api)) {
		refuse(exchange, 429, "too many requests, slow down");
	} else if (!controls_post(api->options.controls, request->body, loop_unix_ms(),
				  request_id, &err)) {
		refuse(exchange, status_of(&err), err.text);
	} else {
		(void)buf_printf(&out, "{\"requestId\":\"%s\"}", request_id);
		respond_json(exchange, 202, buf_slice(&out));
		hub_touch(api->options.hub);
	}
	buf_finish(&out);
}

/* For `perch open`: on the Unix socket only, a page has its token already. */
static void on_open(struct api *api, struct exchange *exchange)
{
	struct buf out = {.max = 1024};
	const struct http_request *request = exchange_request(exchange);

	if (!request->is_unix) {
		refuse(exchange, 403, "only on the Unix socket");
		return;
	}
	if (request->method == HTTP_POST)
		(void)snprintf(api->token, sizeof(api->token), "%s",
			       api->options.rotate(api->options.ctx));
	api->options.write_url(api->options.ctx, &out);
	respond_json(exchange, 200, buf_slice(&out));
	buf_wipe(&out);
}

/* ---- the router ---- */

struct route {
	const char *path;
	enum http_method method;
	void (*handle)(struct api *api, struct exchange *exchange);
};

static const struct route routes[] = {
	{"/api/fleet", HTTP_GET, on_fleet},       {"/api/stream", HTTP_GET, on_stream},
	{"/api/timeline", HTTP_GET, on_timeline}, {"/api/report", HTTP_GET, on_report},
	{"/api/rows", HTTP_GET, on_rows},         {"/api/control", HTTP_POST, on_control},
	{"/api/open", HTTP_GET, on_open},         {"/api/open", HTTP_POST, on_open},
};

static void route_api(struct api *api, struct exchange *exchange)
{
	const struct http_request *request = exchange_request(exchange);
	const struct slice event = SLICE("/api/event/");
	bool path_known = false;

	for (size_t i = 0; i < sizeof(routes) / sizeof(*routes); i++) {
		if (!slice_eq(request->path, slice_of(routes[i].path)))
			continue;
		path_known = true;
		if (routes[i].method == request->method) {
			routes[i].handle(api, exchange);
			return;
		}
	}
	if (slice_starts(request->path, event)) {
		path_known = true;
		if (request->method == HTTP_GET) {
			on_event(api, exchange,
				 slice_sub(request->path, event.len, request->path.len));
			return;
		}
	}
	if (path_known)
		refuse(exchange, 405, "not with this method");
	else
		refuse(exchange, 404, "there is nothing here");
}

void api_on_request(void *ctx, struct exchange *exchange)
{
	struct api *api = ctx;
	const struct http_request *request = exchange_request(exchange);
	const struct page_asset *asset;

	if (!comes_from_here(api, exchange))
		return;
	if (slice_starts(request->path, SLICE("/api/"))) {
		if (has_token(api, exchange) && has_body(exchange))
			route_api(api, exchange);
		return;
	}
	if (request->method != HTTP_GET && request->method != HTTP_HEAD) {
		refuse(exchange, 405, "not with this method");
		return;
	}
	if (slice_eq(request->path, SLICE("/healthz"))) {
		exchange_respond(exchange, 200, "text/plain; charset=utf-8", no_store,
				 SLICE("ok"));
		return;
	}
	asset = find_asset(request->path);
	if (asset)
		on_asset(exchange, asset);
	else
		refuse(exchange, 404, "there is nothing here");
}
