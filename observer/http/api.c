#include "observer/http/api.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "observer/acp.h"
#include "observer/diff.h"
#include "observer/tool.h"
#include "observer/http/page.h"
#include "observer/http/times.h"
#include "observer/search.h"
#include "wire/base/mem.h"
#include "wire/base/metrics.h"
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

static const struct slice api_path = SLICE_INIT("/api/");

struct api {
	struct api_options options;
	char token[API_TOKEN_LEN + 1];
	char hosts[2][80];     /* what Host may say */
	const struct tls *tls; /* NULL: none */
	uint16_t tls_port;
	int64_t posts_ms; /* start of the second that is counted */
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
	}
}

void api_set_tls(struct api *api, const struct tls *tls, uint16_t port)
{
	api->tls = tls;
	api->tls_port = port;
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

/* Names can be made to point here by anybody, addresses cannot: of names only those that
 * the certificate has are served. */
static bool is_name_of_ours(const struct api *api, const char *name)
{
	struct in6_addr address;

	return strcmp(name, "localhost") == 0 ||
	       inet_pton(AF_INET, name, &address) == 1 ||
	       inet_pton(AF_INET6, name, &address) == 1 || tls_is_for(api->tls, name);
}

/* NAME:PORT, [ADDRESS]:PORT; without the port where it is that of https. */
static bool is_tls_host(const struct api *api, struct slice host)
{
	char text[256], *name = text, *end;
	uint64_t port = 443;

	if (host.len >= sizeof(text) || slice_find(host, '\0') < host.len)
		return false;
	memcpy(text, host.ptr, host.len);
	text[host.len] = '\0';
	end = *text == '[' ? strchr(text, ']') : strchr(text, ':');
	if (*text == '[') {
		if (!end)
			return false;
		name++;
		*end++ = '\0';
	}
	if (end && *end) {
		*end++ = '\0';
		if (!slice_parse_u64(slice_of(end), UINT16_MAX, &port))
			return false;
	}
	return port == api->tls_port && is_name_of_ours(api, name);
}

static bool is_served(const struct api *api, const struct http_request *request)
{
	const char *const hosts[] = {api->hosts[0], api->hosts[1]};
	const struct slice host = request->headers[HTTP_HOST];

	return request->way == HTTP_BY_TLS ? is_tls_host(api, host)
					   : is_one_of(host, hosts, 2);
}

/* Is it the page that was loaded from where this request went? */
static bool is_own_origin(const struct http_request *request)
{
	struct slice origin = request->headers[HTTP_ORIGIN];
	const struct slice scheme =
		request->way == HTTP_BY_TLS ? SLICE("https://") : SLICE("http://");

	return slice_starts(origin, scheme) &&
	       slice_eq(slice_sub(origin, scheme.len, origin.len),
			request->headers[HTTP_HOST]);
}

struct refusal {
	unsigned status; /* 0: none */
	const char *sentence;
};

/* A page elsewhere, or a name that was made to point here, gets nothing. */
static struct refusal judge_origin(const struct api *api,
				   const struct http_request *request)
{
	static const char *const sites[] = {"same-origin", "none"};
	const struct slice site = request->headers[HTTP_SEC_FETCH_SITE];

	if (!is_served(api, request))
		return (struct refusal){403, "this Host is not served here"};
	/* A link elsewhere may lead to the page; it cannot ask for anything. */
	if (!slice_starts(request->path, api_path))
		return (struct refusal){0};
	if (request->headers[HTTP_ORIGIN].ptr && !is_own_origin(request))
		return (struct refusal){403, "requests of other pages are refused"};
	if (site.ptr && !is_one_of(site, sites, 2))
		return (struct refusal){403, "requests of other sites are refused"};
	return (struct refusal){0};
}

static bool has_token(const struct api *api, struct slice given)
{
	const struct slice scheme = SLICE("Bearer ");

	return given.len == scheme.len + API_TOKEN_LEN && slice_starts(given, scheme) &&
	       sodium_memcmp(given.ptr + scheme.len, api->token, API_TOKEN_LEN) == 0;
}

static struct refusal judge(const struct api *api, const struct http_request *request)
{
	struct refusal refusal;

	/* The file's mode guards the Unix socket. */
	if (request->way == HTTP_BY_UNIX)
		return (struct refusal){0};
	refusal = judge_origin(api, request);
	if (!refusal.status && slice_starts(request->path, api_path) &&
	    !has_token(api, request->headers[HTTP_AUTHORIZATION]))
		return (struct refusal){
			401, "the token is missing or wrong: run `perch open`"};
	return refusal;
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

	exchange_set_part(exchange, "page");
	exchange_respond_lasting(exchange, 200, asset->content_type, fields, body);
}

static const struct page_asset *find_asset(struct slice path)
{
	for (size_t i = 0; i < page_asset_count; i++)
		if (slice_eq(path, slice_of(page_assets[i].path)))
			return &page_assets[i];
	return NULL;
}

/* ---- questions ---- */

/* How the observer does, and what it knows of how harnesses do. */
static void on_self(struct api *api, struct exchange *exchange)
{
	const struct spans *spans = api->options.spans;
	struct buf out = {.max = ANSWER_MAX};

	(void)buf_printf(&out, "{\"now\":%" PRId64 ",\"broker\":{", loop_unix_ms());
	hub_write_figures(api->options.hub, &out);
	(void)buf_printf(&out, ",\"spanLanes\":%zu,\"spanNames\":%zu,\"spanBytes\":%zu},",
			 spans->lane_count, spans->name_count, spans->bytes);
	model_write_figures(api->options.model, &out);
	(void)buf_lit(&out, "}");
	respond_json(exchange, 200, buf_slice(&out));
	buf_finish(&out);
}

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

	if (!times_timeline(exchange, spans_now(api, now),
			    model_values(api->options.model), now, &out, &err))
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
	archive_drop(question->api->options.archive, question);
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
		model_settle(question->api->options.model, loop_unix_ms());
		(void)buf_lit(&out, "{\"rows\":[");
		write_rows(question, answer, &out);
		(void)buf_printf(&out, "],\"more\":%s", answer->more ? "true" : "false");
		(void)buf_append(&out, answer->text_len ? SLICE(",") : SLICE_EMPTY);
		(void)buf_append(&out, (struct slice){answer->text, answer->text_len});
		(void)buf_lit(&out, "}");
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
		/* What came late since the last message belongs to them, too. */
		model_settle(api->options.model, loop_unix_ms());
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

static void on_archive_answer(void *ctx, const struct archive_answer *answer)
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
	archive_event(api->options.archive, agent, &pos, on_archive_answer,
		      question_create(api, exchange));
}

/* A number in [@least, @most], @otherwise when it is not asked for; false: it is neither.
 */
static bool query_number(struct exchange *exchange, const char *name, uint64_t least,
			 uint64_t most, size_t *out)
{
	struct buf text = {0};
	uint64_t number = *out;
	const bool ok =
		!exchange_query(exchange, name, &text) ||
		(slice_parse_u64(buf_slice(&text), most, &number) && number >= least);

	buf_finish(&text);
	*out = (size_t)number;
	return ok;
}

static bool query_pos(struct exchange *exchange, const char *name, struct pos *out)
{
	struct buf text = {0};
	const bool ok = !exchange_query(exchange, name, &text) || !text.len ||
			pos_parse(buf_slice(&text), out);

	buf_finish(&text);
	return ok;
}

static void on_part(struct api *api, struct exchange *exchange)
{
	struct part_query query = {.side = PART_DIFF, .limit = PART_LINES_DEFAULT};
	struct buf agent_text = {0}, side = {0};
	uint8_t agent[KEY_BYTES];
	struct pos at = {"", 0};

	(void)exchange_query(exchange, "agent", &agent_text);
	(void)exchange_query(exchange, "side", &side);
	if (slice_eq(buf_slice(&side), SLICE("old")))
		query.side = PART_OLD;
	else if (slice_eq(buf_slice(&side), SLICE("new")))
		query.side = PART_NEW;
	else if (slice_eq(buf_slice(&side), SLICE("text")))
		query.side = PART_TEXT;
	if (!hex_decode(buf_slice(&agent_text), agent, KEY_BYTES))
		refuse(exchange, 400, "agent must be 64 hex digits");
	else if (!query_pos(exchange, "at", &at) || !*at.epoch)
		refuse(exchange, 400, "at must be a pos, EPOCH/SEQ");
	else if (side.len && query.side == PART_DIFF)
		refuse(exchange, 400, "side must be old, new or text");
	else if (!query_number(exchange, "part", 0, TOOL_PARTS_MAX, &query.part))
		refuse(exchange, 400, "part must be the index of a part");
	else if (!query_number(exchange, "from", 0, 2 * DIFF_SIDE_MAX, &query.from) ||
		 !query_number(exchange, "limit", 1, PART_LINES_MAX, &query.limit))
		refuse(exchange, 400, "from is a line of the diff, limit 1 to 2000");
	else
		archive_part(api->options.archive, agent, &at, &query, on_archive_answer,
			     question_create(api, exchange));
	buf_finish(&agent_text);
	buf_finish(&side);
}

static void on_raw(struct api *api, struct exchange *exchange)
{
	/* "~" is behind every hex digit: no end. */
	struct raw_query query = {.from = {"", 0},
				  .to = {"~", 0},
				  .limit = RAW_LINES_DEFAULT,
				  .cut = RAW_CUT_DEFAULT};
	struct buf lane = {0};
	uint8_t agent[KEY_BYTES];
	struct slice channel;

	(void)exchange_query(exchange, "lane", &lane);
	if (!read_lane(buf_slice(&lane), agent, &channel))
		refuse(exchange, 400, "lane must be AGENT/CHANNEL");
	else if (!query_pos(exchange, "from", &query.from) ||
		 !query_pos(exchange, "to", &query.to))
		refuse(exchange, 400, "from and to must be a pos, EPOCH/SEQ");
	else if (!query_number(exchange, "limit", 1, RAW_LINES_MAX, &query.limit))
		refuse(exchange, 400, "limit must be 1 to 500");
	else if (!query_number(exchange, "cut", 1, RAW_CUT_MAX, &query.cut))
		refuse(exchange, 400, "cut must be 1 to 262144");
	else
		archive_raw(api->options.archive, agent, channel, &query,
			    on_archive_answer, question_create(api, exchange));
	buf_finish(&lane);
}

/* Whom agent: means. An agent that nobody knows said nothing: its key is looked for. */
static size_t find_agents(struct api *api, const struct search_query *query,
			  uint8_t out[MODEL_AGENTS_MAX][KEY_BYTES])
{
	size_t count;

	if (!query->agent.len)
		return 0;
	count = model_find_agents(api->options.model, query->agent, out);
	if (count)
		return count;
	memset(out[0], 0, KEY_BYTES);
	return 1;
}

static void on_search(struct api *api, struct exchange *exchange)
{
	struct buf words = {0}, before_text = {0}, limit_text = {0};
	uint8_t(*agents)[KEY_BYTES] = mem_array(MODEL_AGENTS_MAX, KEY_BYTES);
	uint64_t before = SEARCH_BEFORE_MAX, limit = SEARCH_LIMIT_DEFAULT;
	struct search_query query;
	struct err err;

	(void)exchange_query(exchange, "q", &words);
	if (exchange_query(exchange, "before", &before_text) &&
	    !slice_parse_u64(buf_slice(&before_text), SEARCH_BEFORE_MAX, &before)) {
		refuse(exchange, 400, "before must be the id of a hit");
	} else if (exchange_query(exchange, "limit", &limit_text) &&
		   (!slice_parse_u64(buf_slice(&limit_text), SEARCH_LIMIT_MAX, &limit) ||
		    !limit)) {
		refuse(exchange, 400, "limit must be 1 to 100");
	} else if (!search_query_parse(words.len ? buf_slice(&words) : SLICE(""),
				       loop_unix_ms(), &query, &err)) {
		refuse(exchange, status_of(&err), err.text);
	} else {
		const size_t count = find_agents(api, &query, agents);

		archive_search(api->options.archive, &query, *agents, count,
			       (int64_t)before, limit, on_archive_answer,
			       question_create(api, exchange));
	}
	free(agents);
	buf_finish(&words);
	buf_finish(&before_text);
	buf_finish(&limit_text);
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
	case HTTP_LENGTH_UNASKED:
		refuse(exchange, 403, "there is nothing to send here");
		return false;
	case HTTP_LENGTH_NO_ROOM:
		refuse(exchange, 503, "too much is being sent here, try again");
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
	} else if (!controls_post(api->options.controls, request->body,
				  api->options.control_ms(api->options.ctx), request_id,
				  &err)) {
		refuse(exchange, status_of(&err), err.text);
	} else {
		(void)buf_printf(&out, "{\"requestId\":\"%s\"}", request_id);
		respond_json(exchange, 202, buf_slice(&out));
		hub_touch(api->options.hub);
	}
	buf_finish(&out);
}

/* The page of someone who has no agent yet. */
static void on_demo(struct api *api, struct exchange *exchange)
{
	struct err err;

	if (!is_json(exchange_request(exchange)->headers[HTTP_CONTENT_TYPE]))
		refuse(exchange, 415, "send application/json");
	else if (!may_post(api))
		refuse(exchange, 429, "too many requests, slow down");
	else if (!api->options.play_demo(api->options.ctx, &err))
		refuse(exchange, status_of(&err), err.text);
	else
		respond_json(exchange, 202, SLICE("{}"));
}

/* For `perch open`: on the Unix socket only, a page has its token already. */
static void on_open(struct api *api, struct exchange *exchange)
{
	struct buf out = {.max = 1024};
	const struct http_request *request = exchange_request(exchange);

	if (request->way != HTTP_BY_UNIX) {
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

/* ---- forgetting ---- */

struct forgetting {
	struct api *api;
	struct exchange *exchange; /* NULL: whoever asked has left */
	uint8_t agent[KEY_BYTES];
	bool words, all_channels;
	struct buf channel;
	int64_t before_ms;
};

static void on_forgetter_gone(void *ctx)
{
	((struct forgetting *)ctx)->exchange = NULL; /* what was begun is done */
}

static void on_forgotten(void *ctx, const struct archive_answer *answer)
{
	struct forgetting *forgetting = ctx;
	struct api *api = forgetting->api;

	if (answer->ok && !forgetting->words) {
		model_forget(api->options.model, forgetting->agent,
			     forgetting->all_channels ? SLICE_EMPTY
						      : buf_slice(&forgetting->channel),
			     forgetting->before_ms);
		hub_touch(api->options.hub);
	}
	if (forgetting->exchange && answer->ok)
		respond_json(forgetting->exchange, 200,
			     (struct slice){answer->text, answer->text_len});
	else if (forgetting->exchange)
		refuse(forgetting->exchange, status_of(&answer->err), answer->err.text);
	buf_finish(&forgetting->channel);
	free(forgetting);
}

/* For `perch forget`: on the Unix socket only. No page deletes anything. */
static void on_forget(struct api *api, struct exchange *exchange)
{
	const struct http_request *request = exchange_request(exchange);
	const struct slice json = slice_trim(request->body);
	struct forgetting *forgetting;
	struct slice channel;
	uint8_t agent[KEY_BYTES] = {0};
	bool words;
	struct err err;

	if (request->way != HTTP_BY_UNIX) {
		refuse(exchange, 403, "only on the Unix socket");
		return;
	}
	if (!json_check(json, NULL, &err)) {
		refuse(exchange, 400, err.text);
		return;
	}
	words = acp_is_true(acp_get(json, "words"));
	channel = acp_get_string(json, "channel");
	/* Left out they mean all: what cannot be read must not. */
	if ((acp_get(json, "channel").ptr && !channel.ptr) ||
	    (acp_get(json, "before").ptr && acp_get_int(json, "before", -1) < 0)) {
		refuse(exchange, 400, "channel must be a UUID, before a time in ms");
		return;
	}
	if (!words && !hex_decode(acp_get_string(json, "agent"), agent, KEY_BYTES)) {
		refuse(exchange, 400, "agent must be 64 hex digits");
		return;
	}
	if (channel.ptr && !channel.len) { /* it would mean all of them */
		refuse(exchange, 400, "channel must be a UUID");
		return;
	}
	forgetting = mem_alloc(sizeof(*forgetting));
	forgetting->api = api;
	forgetting->exchange = exchange;
	forgetting->words = words;
	forgetting->all_channels = !channel.ptr;
	forgetting->before_ms = acp_get_int(json, "before", INT64_MAX);
	memcpy(forgetting->agent, agent, KEY_BYTES);
	acp_set_text(&forgetting->channel, channel, ROW_SHORT_MAX);
	exchange_hold(exchange, on_forgetter_gone, forgetting);
	if (words)
		archive_forget_words(api->options.archive, on_forgotten, forgetting);
	else
		archive_forget(api->options.archive, agent,
			       channel.ptr ? buf_slice(&forgetting->channel)
					   : SLICE_EMPTY,
			       forgetting->before_ms, on_forgotten, forgetting);
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
	{"/api/part", HTTP_GET, on_part},         {"/api/raw", HTTP_GET, on_raw},
	{"/api/search", HTTP_GET, on_search},     {"/api/self", HTTP_GET, on_self},
	{"/api/demo", HTTP_POST, on_demo},        {"/api/forget", HTTP_POST, on_forget},
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
		exchange_set_part(exchange, routes[i].path + api_path.len);
		if (routes[i].method == request->method) {
			routes[i].handle(api, exchange);
			return;
		}
	}
	if (slice_starts(request->path, event)) {
		path_known = true;
		exchange_set_part(exchange, "event");
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

static void on_health(struct exchange *exchange)
{
	exchange_set_part(exchange, "health");
	exchange_respond(exchange, 200, "text/plain; charset=utf-8", no_store,
			 SLICE("ok"));
}

static void on_metrics(struct api *api, struct exchange *exchange)
{
	struct buf out = {.max = 1u << 20};

	exchange_set_part(exchange, "metrics");
	api->options.write_metrics(api->options.ctx, &out);
	exchange_respond(exchange, 200, METRICS_TYPE, no_store, buf_slice(&out));
	buf_finish(&out);
}

/* What is not below /api/. Figures go to whoever may reach their own port or the socket,
 * not to whoever reaches the page's. */
static void route_open(struct api *api, struct exchange *exchange)
{
	const struct http_request *request = exchange_request(exchange);
	const bool is_page = request->way == HTTP_BY_TCP || request->way == HTTP_BY_TLS;
	const struct page_asset *asset =
		request->way == HTTP_BY_METRICS ? NULL : find_asset(request->path);

	if (request->method != HTTP_GET && request->method != HTTP_HEAD)
		refuse(exchange, 405, "not with this method");
	else if (slice_eq(request->path, SLICE("/healthz")))
		on_health(exchange);
	else if (!is_page && slice_eq(request->path, SLICE("/metrics")))
		on_metrics(api, exchange);
	else if (asset)
		on_asset(exchange, asset);
	else
		refuse(exchange, 404, "there is nothing here");
}

static void on_request(void *ctx, struct exchange *exchange)
{
	struct api *api = ctx;
	const struct http_request *request = exchange_request(exchange);
	struct refusal refusal;

	if (request->way == HTTP_BY_METRICS) {
		route_open(api, exchange);
		return;
	}
	refusal = judge(api, request);
	if (refusal.status) {
		exchange_set_part(exchange, "refused");
		refuse(exchange, refusal.status, refusal.sentence);
		return;
	}
	if (!slice_starts(request->path, api_path)) {
		route_open(api, exchange);
		return;
	}
	exchange_trust(exchange);
	if (!exchange_query_fits(exchange))
		refuse(exchange, 400, "a parameter is at most 2048 bytes");
	else if (has_body(exchange))
		route_api(api, exchange);
}

static bool may_send(void *ctx, const struct http_request *request)
{
	return request->way != HTTP_BY_METRICS && slice_starts(request->path, api_path) &&
	       !judge(ctx, request).status;
}

struct http_handler api_handler(struct api *api)
{
	return (struct http_handler){
		.may_send = may_send, .on_request = on_request, .ctx = api};
}
