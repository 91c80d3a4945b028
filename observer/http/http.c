#include "observer/http/http.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <libwebsockets.h>

#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/port.h"

/* Bytes handed to the socket in one call: a snapshot goes out in one. Facts on lws: above
 * tx_packet_size the slow path is taken. */
#define TX_PACKET_BYTES (1u << 20)
#define QUERY_MAX 2048
#define BODY_DROP_MAX (4 * BROKER_BODY_MAX) /* read, not kept, and then refused */

struct exchange {
	struct http_server *server;
	struct lws *wsi;
	struct http_request request;
	struct buf path, body, headers[HTTP_HEADERS];
	struct buf query;  /* name=value, decoded by lws, each ended by a NUL */
	struct buf answer; /* LWS_PRE, then the body that waits to be written */
	bool answering, streaming;
	bool closing; /* after the answer: its body stays unread */
	struct http_stream stream;
	void (*on_gone)(void *ctx);
	void *gone_ctx;
	struct watch *watch; /* while streaming */
	struct buf piece;
};

struct session { /* lws's per connection memory */
	struct exchange *exchange;
};

struct http_server {
	struct http_server_options options;
	struct loop *loop;
	struct lws_vhost *tcp, *local;
	char *unix_path;
	uint16_t port;
	bool stopped;
};

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

struct head {
	unsigned char memory[LWS_PRE + 4096];
	unsigned char *at, *end;
	bool ok;
};

static void add_field(struct lws *wsi, struct head *head, const char *name,
		      const char *value)
{
	head->ok = head->ok &&
		   lws_add_http_header_by_name(
			   wsi, (const unsigned char *)name, (const unsigned char *)value,
			   (int)strlen(value), &head->at, head->end) == 0;
}

static void begin_head(struct lws *wsi, struct head *head, unsigned status,
		       const char *type)
{
	char date[64];

	head->at = head->memory + LWS_PRE;
	head->end = head->memory + sizeof(head->memory) - 1;
	format_date(date, sizeof(date));
	head->ok = lws_add_http_header_status(wsi, status, &head->at, head->end) == 0;
	add_field(wsi, head, "content-type:", type);
	add_field(wsi, head, "date:", date);
	add_field(wsi, head, "x-content-type-options:", "nosniff");
	add_field(wsi, head, "referrer-policy:", "no-referrer");
	add_field(wsi, head, "cross-origin-resource-policy:", "same-origin");
}

static bool finish_head(struct lws *wsi, struct head *head)
{
	return head->ok && lws_finalize_write_http_header(wsi, head->memory + LWS_PRE,
							  &head->at, head->end) == 0;
}

/* Closes at the next turn: we may be deep in a callback of ours. */
static void give_up(struct exchange *exchange)
{
	lws_set_timeout(exchange->wsi, PENDING_TIMEOUT_KILLED_BY_PARENT,
			LWS_TO_KILL_ASYNC);
}

void exchange_respond(struct exchange *exchange, unsigned status, const char *type,
		      const struct http_field *headers, struct slice body)
{
	struct lws *wsi = exchange->wsi;
	struct head head;
	char length[32];

	exchange->on_gone = NULL;
	begin_head(wsi, &head, status, type);
	for (; headers && headers->name; headers++)
		add_field(wsi, &head, headers->name, headers->value);
	(void)snprintf(length, sizeof(length), "%zu", body.len);
	add_field(wsi, &head, "content-length:", length);
	if (!finish_head(wsi, &head)) {
		give_up(exchange);
		return;
	}
	if (exchange->request.method == HTTP_HEAD)
		body.len = 0;
	exchange->answering = true;
	exchange->answer.max = LWS_PRE + body.len + 1;
	(void)buf_extend(&exchange->answer, LWS_PRE);
	(void)buf_append(&exchange->answer, body);
	(void)lws_callback_on_writable(wsi);
}

/* While a stream goes out lws reads nothing, and is woken without end by what waits to be
 * read. A reader has nothing more to say, so whatever comes, its end above all, ends the
 * stream: a second descriptor of the socket tells. */
struct watch {
	uv_poll_t poll;
	int fd;
	struct exchange *exchange;
};

static void on_reader_event(uv_poll_t *poll, int status, int events)
{
	struct watch *watch = poll->data;

	(void)status;
	(void)events;
	(void)uv_poll_stop(poll);
	give_up(watch->exchange);
}

static void on_watch_closed(uv_handle_t *handle)
{
	struct watch *watch = handle->data;

	(void)close(watch->fd);
	free(watch);
}

static void watch_reader(struct exchange *exchange)
{
	struct watch *watch = mem_alloc(sizeof(*watch));

	watch->exchange = exchange;
	watch->fd = fcntl(lws_get_socket_fd(exchange->wsi), F_DUPFD_CLOEXEC, 0);
	if (watch->fd < 0 ||
	    uv_poll_init(exchange->server->loop->uv, &watch->poll, watch->fd) != 0) {
		if (watch->fd >= 0)
			(void)close(watch->fd);
		free(watch);
		give_up(exchange); /* no descriptor left */
		return;
	}
	watch->poll.data = watch;
	(void)uv_poll_start(&watch->poll, UV_READABLE | UV_DISCONNECT, on_reader_event);
	exchange->watch = watch;
}

void exchange_begin(struct exchange *exchange, const char *type,
		    const struct http_stream *stream)
{
	struct head head;

	begin_head(exchange->wsi, &head, HTTP_STATUS_OK, type);
	add_field(exchange->wsi, &head, "cache-control:", "no-store");
	add_field(exchange->wsi, &head, "transfer-encoding:", "chunked");
	if (!finish_head(exchange->wsi, &head)) {
		give_up(exchange);
		return;
	}
	exchange->streaming = true;
	exchange->stream = *stream;
	watch_reader(exchange);
	/* It outlives what HTTP requests may take. */
	lws_set_timeout(exchange->wsi, NO_PENDING_TIMEOUT, 0);
	(void)lws_callback_on_writable(exchange->wsi);
}

void exchange_want_write(struct exchange *exchange)
{
	(void)lws_callback_on_writable(exchange->wsi);
}

bool exchange_ready(const struct exchange *exchange)
{
	return !lws_send_pipe_choked(exchange->wsi) &&
	       !lws_partial_buffered(exchange->wsi);
}

bool exchange_send(struct exchange *exchange, struct slice piece)
{
	struct buf *out = &exchange->piece;

	buf_clear(out);
	out->max = LWS_PRE + piece.len + 32;
	(void)buf_extend(out, LWS_PRE);
	(void)buf_printf(out, "%zx\r\n", piece.len);
	(void)buf_append(out, piece);
	(void)buf_lit(out, "\r\n");
	return lws_write(exchange->wsi, (unsigned char *)out->ptr + LWS_PRE,
			 out->len - LWS_PRE, LWS_WRITE_HTTP) >= 0;
}

void exchange_hold(struct exchange *exchange, void (*on_gone)(void *ctx), void *ctx)
{
	exchange->on_gone = on_gone;
	exchange->gone_ctx = ctx;
}

/* ---- requests ---- */

const struct http_request *exchange_request(const struct exchange *exchange)
{
	return &exchange->request;
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
		out->max = QUERY_MAX;
		return buf_append(out, pair);
	}
	return false;
}

static void exchange_finish(struct session *session)
{
	struct exchange *exchange = session->exchange;

	if (!exchange)
		return;
	session->exchange = NULL;
	if (exchange->watch) {
		(void)uv_poll_stop(&exchange->watch->poll);
		uv_close((uv_handle_t *)&exchange->watch->poll, on_watch_closed);
	}
	if (exchange->streaming)
		exchange->stream.on_gone(exchange->stream.ctx, exchange);
	else if (exchange->on_gone)
		exchange->on_gone(exchange->gone_ctx);
	buf_finish(&exchange->path);
	buf_finish(&exchange->query);
	buf_finish(&exchange->body);
	for (size_t i = 0; i < HTTP_HEADERS; i++)
		buf_wipe(&exchange->headers[i]); /* one holds the token */
	buf_finish(&exchange->answer);
	buf_finish(&exchange->piece);
	free(exchange);
}

static void copy_header(struct exchange *exchange, enum http_header which,
			enum lws_token_indexes token)
{
	const int len = lws_hdr_total_length(exchange->wsi, token);
	struct buf *out = &exchange->headers[which];

	if (len <= 0)
		return;
	out->max = (size_t)len + 1;
	if (buf_extend(out, (size_t)len + 1) &&
	    lws_hdr_copy(exchange->wsi, out->ptr, len + 1, token) == len)
		exchange->request.headers[which] = (struct slice){out->ptr, (size_t)len};
}

static void copy_custom(struct exchange *exchange, enum http_header which,
			const char *name)
{
	const int len = lws_hdr_custom_length(exchange->wsi, name, (int)strlen(name));
	struct buf *out = &exchange->headers[which];

	if (len <= 0)
		return;
	out->max = (size_t)len + 1;
	if (buf_extend(out, (size_t)len + 1) &&
	    lws_hdr_custom_copy(exchange->wsi, out->ptr, len + 1, name,
				(int)strlen(name)) > 0)
		exchange->request.headers[which] = (struct slice){out->ptr, (size_t)len};
}

static void copy_query(struct exchange *exchange)
{
	char piece[QUERY_MAX];
	int len;

	exchange->query.max = BROKER_HEADER_MAX;
	for (int i = 0; (len = lws_hdr_copy_fragment(exchange->wsi, piece, sizeof(piece),
						     WSI_TOKEN_HTTP_URI_ARGS, i)) >= 0;
	     i++) {
		(void)buf_append(&exchange->query, (struct slice){piece, (size_t)len});
		(void)buf_append_byte(&exchange->query, '\0');
	}
}

static enum http_method method_of(struct lws *wsi)
{
	if (lws_hdr_total_length(wsi, WSI_TOKEN_GET_URI) > 0)
		return HTTP_GET;
	if (lws_hdr_total_length(wsi, WSI_TOKEN_HEAD_URI) > 0)
		return HTTP_HEAD;
	if (lws_hdr_total_length(wsi, WSI_TOKEN_POST_URI) > 0)
		return HTTP_POST;
	return HTTP_OTHER;
}

/* A body is read by the length that comes before it. lws waits for one that has none, or
 * a wrong one, until its time is up: those are answered at once, and not read. */
static void check_length(struct exchange *exchange)
{
	struct lws *wsi = exchange->wsi;
	char text[24];
	uint64_t length = 0;

	if (lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING) > 0 ||
	    lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) <= 0)
		exchange->request.length = HTTP_LENGTH_MISSING;
	else if (lws_hdr_copy(wsi, text, sizeof(text), WSI_TOKEN_HTTP_CONTENT_LENGTH) <=
			 0 ||
		 !slice_parse_u64(slice_of(text), UINT64_MAX, &length))
		exchange->request.length = HTTP_LENGTH_MALFORMED;
	else if (length > BROKER_BODY_MAX)
		exchange->request.length = HTTP_LENGTH_TOO_LARGE;
	/* Who sends a little too much sends it all before it reads what we say. */
	exchange->closing = exchange->request.length != HTTP_LENGTH_OK &&
			    (exchange->request.length != HTTP_LENGTH_TOO_LARGE ||
			     length > BODY_DROP_MAX);
}

static void dispatch(struct exchange *exchange)
{
	exchange->request.body = buf_slice(&exchange->body);
	exchange->server->options.on_request(exchange->server->options.ctx, exchange);
}

static int on_http(struct http_server *server, struct lws *wsi, struct session *session,
		   struct slice path)
{
	struct exchange *exchange;

	exchange_finish(session);
	if (!server || server->stopped)
		return -1;
	exchange = session->exchange = mem_alloc(sizeof(*exchange));
	exchange->server = server;
	exchange->wsi = wsi;
	exchange->request.method = method_of(wsi);
	exchange->request.is_unix = lws_get_vhost(wsi) == server->local;
	exchange->path.max = path.len + 1;
	(void)buf_append(&exchange->path, path);
	exchange->request.path = buf_slice(&exchange->path);
	exchange->body.max = BROKER_BODY_MAX;
	copy_header(exchange, HTTP_AUTHORIZATION, WSI_TOKEN_HTTP_AUTHORIZATION);
	copy_header(exchange, HTTP_HOST, WSI_TOKEN_HOST);
	copy_header(exchange, HTTP_ORIGIN, WSI_TOKEN_ORIGIN);
	copy_header(exchange, HTTP_CONTENT_TYPE, WSI_TOKEN_HTTP_CONTENT_TYPE);
	copy_header(exchange, HTTP_ACCEPT_ENCODING, WSI_TOKEN_HTTP_ACCEPT_ENCODING);
	copy_custom(exchange, HTTP_SEC_FETCH_SITE, "sec-fetch-site:");
	copy_query(exchange);
	if (exchange->request.method == HTTP_POST)
		check_length(exchange);
	if (exchange->request.method != HTTP_POST || exchange->closing)
		dispatch(exchange);
	return 0;
}

static int on_body(struct session *session, struct slice piece)
{
	struct exchange *exchange = session->exchange;

	if (exchange && exchange->request.length == HTTP_LENGTH_OK)
		(void)buf_append(&exchange->body, piece);
	return 0;
}

static int on_writable(struct session *session)
{
	struct exchange *exchange = session->exchange;
	struct lws *wsi;
	bool closing;
	int written;

	if (!exchange)
		return 0;
	wsi = exchange->wsi;
	if (exchange->streaming) {
		exchange->stream.on_writable(exchange->stream.ctx, exchange);
		return 0;
	}
	if (!exchange->answering)
		return 0;
	closing = exchange->closing;
	written = lws_write(wsi, (unsigned char *)exchange->answer.ptr + LWS_PRE,
			    exchange->answer.len - LWS_PRE, LWS_WRITE_HTTP_FINAL);
	exchange_finish(session);
	return written < 0 || closing || lws_http_transaction_completed(wsi) ? -1 : 0;
}

static int on_lws(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		  size_t len)
{
	struct lws_vhost *vhost = lws_get_vhost(wsi);
	struct http_server *server = vhost ? lws_get_vhost_user(vhost) : NULL;
	struct session *session = user;

	switch (reason) {
	case LWS_CALLBACK_HTTP:
		return on_http(server, wsi, session, (struct slice){in, len});
	case LWS_CALLBACK_HTTP_BODY:
		return on_body(session, (struct slice){in, len});
	case LWS_CALLBACK_HTTP_BODY_COMPLETION:
		if (session->exchange && !session->exchange->answering &&
		    !session->exchange->closing)
			dispatch(session->exchange);
		return 0;
	case LWS_CALLBACK_HTTP_WRITEABLE:
		return on_writable(session);
	case LWS_CALLBACK_CLOSED_HTTP:
	case LWS_CALLBACK_HTTP_DROP_PROTOCOL:
		if (session)
			exchange_finish(session);
		return 0;
	case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
	case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
		return -1; /* neither WebSocket nor h2c is spoken here; `in` stays unread
			    */
	default:
		return 0;
	}
}

static const struct lws_protocols protocols[] = {
	{.name = "http",
	 .callback = on_lws,
	 .per_session_data_size = sizeof(struct session),
	 .rx_buffer_size = 65536,
	 .tx_packet_size = TX_PACKET_BYTES},
	{.name = NULL},
};

/* ---- listening ---- */

static struct lws_vhost *listen_tcp(struct http_server *server, struct err *err)
{
	const char *host = server->options.host;
	/* lws with IPv6 on does not find an IPv4 address and would listen on all. */
	const uint64_t family = strchr(host, ':') ? 0 : LWS_SERVER_OPTION_DISABLE_IPV6;
	const struct lws_context_creation_info info = {
		.port = server->options.port,
		.iface = host,
		.vhost_name = "broker",
		.protocols = protocols,
		.user = server,
		.keepalive_timeout = 60,
		.options = LWS_SERVER_OPTION_FAIL_UPON_UNABLE_TO_BIND | family,
	};
	struct lws_vhost *vhost = lws_create_vhost(server->loop->lws, &info);

	if (!vhost)
		port_explain(host, server->options.port, err);
	return vhost;
}

static struct lws_vhost *listen_unix(struct http_server *server, struct err *err)
{
	const struct lws_context_creation_info info = {
		.port = 0,
		.iface = server->unix_path,
		.vhost_name = "broker-local",
		.protocols = protocols,
		.user = server,
		.keepalive_timeout = 60,
		.options = LWS_SERVER_OPTION_UNIX_SOCK |
			   LWS_SERVER_OPTION_FAIL_UPON_UNABLE_TO_BIND,
	};
	struct lws_vhost *vhost;
	mode_t mask;

	if (strlen(server->unix_path) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
		(void)err_set(err, ERR_TOO_LARGE,
			      "the path of the socket is too long: set XDG_RUNTIME_DIR "
			      "or PERCH_HOME to a shorter one than %s",
			      server->unix_path);
		return NULL;
	}
	(void)unlink(server->unix_path);
	/* The file's mode is the guard, from its first moment. */
	mask = umask(0177);
	vhost = lws_create_vhost(server->loop->lws, &info);
	(void)umask(mask);
	if (!vhost || chmod(server->unix_path, 0600) != 0) {
		(void)err_errno(err, "cannot listen on %s", server->unix_path);
		return NULL;
	}
	return vhost;
}

struct http_server *http_server_create(struct loop *loop,
				       const struct http_server_options *options,
				       struct err *err)
{
	struct http_server *server = mem_alloc(sizeof(*server));

	server->loop = loop;
	server->options = *options;
	server->unix_path = mem_dup(slice_of(options->unix_path));
	server->tcp = listen_tcp(server, err);
	if (!server->tcp)
		goto out;
	server->port = (uint16_t)lws_get_vhost_listen_port(server->tcp);
	server->local = listen_unix(server, err);
	if (!server->local)
		goto out;
	return server;
out:
	/* A vhost that was made goes with the loop. */
	http_server_destroy(server);
	return NULL;
}

void http_server_stop(struct http_server *server)
{
	if (!server || server->stopped)
		return;
	server->stopped = true;
	(void)unlink(server->unix_path);
	lws_vhost_destroy(server->tcp);
	lws_vhost_destroy(server->local);
}

void http_server_destroy(struct http_server *server)
{
	if (!server)
		return;
	free(server->unix_path);
	free(server);
}

uint16_t http_server_port(const struct http_server *server)
{
	return server->port;
}
