#include "observer/http/h1.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <libwebsockets.h>
#include <uv.h>

#include "observer/http/figures.h"
#include "observer/http/http_part.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/port.h"

/* Bytes handed to the socket in one call. What it does not take lws keeps, beside what we
 * hold: so it is not the whole. Facts on lws: above tx_packet_size the slow path is
 * taken. */
#define PIECE_BYTES (256u << 10)
/* lws gives a request five seconds, which is less than the disk may need: so long an
 * answer may be looked for, and then that long read. The first is our choice. */
#define ANSWER_S 600
#define ANSWER_READ_S BROKER_IDLE_S
#define BODY_DROP_MAX (4 * BROKER_BODY_MAX) /* read, not kept, and then refused */

struct h1_exchange {
	struct exchange base; /* first */
	struct lws *wsi;
	struct h1_server *server;
	struct slice pending; /* of an answer or a piece: not yet written */
	struct buf answer;    /* what it points into, if it is ours */
	bool dispatched;      /* the handler has it */
	bool body_ended;
	bool answering;
	bool closing;        /* after the answer: its body stays unread */
	bool dropped;        /* others needed the room: it ends */
	struct watch *watch; /* while streaming, or until the answer is there */
};

struct session { /* lws's per connection memory */
	struct h1_exchange *exchange;
};

/* A connection. */
struct visitor {
	struct visitor *next, **link; /* the oldest is last */
	struct door *door;
	struct lws *wsi;
	bool trusted; /* some request of it had the token */
	bool leaving; /* pushed out: it counts no more */
};

/* Where connections come in. */
struct door {
	struct h1_server *server;
	enum http_way way;
	struct lws_vhost *vhost; /* NULL: none */
	struct visitor *visitors;
	unsigned count; /* those that do not leave */
	uint16_t port;
};

struct h1_server {
	struct h1_options options;
	struct loop *loop;
	struct door tcp, local, metrics;
	struct http_budget metrics_budget;
	char *unix_path;
	bool stopped;
	unsigned char piece[LWS_PRE + PIECE_BYTES]; /* lws wants room before it */
};

/* ---- answers ---- */

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
		       const struct http_field *fields)
{
	head->at = head->memory + LWS_PRE;
	head->end = head->memory + sizeof(head->memory) - 1;
	head->ok = lws_add_http_header_status(wsi, status, &head->at, head->end) == 0;
	for (; fields->name; fields++)
		add_field(wsi, head, fields->name, fields->value);
}

static bool finish_head(struct lws *wsi, struct head *head)
{
	return head->ok && lws_finalize_write_http_header(wsi, head->memory + LWS_PRE,
							  &head->at, head->end) == 0;
}

static struct h1_exchange *h1_of(struct exchange *exchange)
{
	return (struct h1_exchange *)exchange;
}

/* Closes at the next turn: we may be deep in a callback of ours. */
static void give_up(struct h1_exchange *exchange)
{
	lws_set_timeout(exchange->wsi, PENDING_TIMEOUT_KILLED_BY_PARENT,
			LWS_TO_KILL_ASYNC);
}

/* While a stream goes out, or an answer is looked for, lws reads nothing, and is woken
 * without end by what waits to be read. A reader has nothing more to say, so whatever
 * comes, its end above all, ends the exchange: a second descriptor of the socket tells.
 */
struct watch {
	uv_poll_t poll;
	int fd;
	struct h1_exchange *exchange;
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

static void watch_reader(struct h1_exchange *exchange)
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

static void unwatch_reader(struct h1_exchange *exchange)
{
	if (!exchange->watch)
		return;
	(void)uv_poll_stop(&exchange->watch->poll);
	uv_close((uv_handle_t *)&exchange->watch->poll, on_watch_closed);
	exchange->watch = NULL;
}

static unsigned h1_respond(struct exchange *base, unsigned status,
			   const struct http_field *fields, struct slice body, bool lasts)
{
	struct h1_exchange *exchange = h1_of(base);
	struct head head;

	unwatch_reader(exchange);
	begin_head(exchange->wsi, &head, status, fields);
	if (!finish_head(exchange->wsi, &head)) {
		give_up(exchange);
		return status;
	}
	exchange->answering = true;
	lws_set_timeout(exchange->wsi, PENDING_TIMEOUT_HTTP_CONTENT, ANSWER_READ_S);
	exchange->pending = body;
	if (!lasts && body.len) {
		exchange->answer.max = body.len;
		(void)buf_append(&exchange->answer, body);
		exchange->pending = buf_slice(&exchange->answer);
	}
	(void)lws_callback_on_writable(exchange->wsi);
	return status;
}

static void h1_begin(struct exchange *base, const struct http_field *fields)
{
	struct h1_exchange *exchange = h1_of(base);
	struct head head;

	begin_head(exchange->wsi, &head, HTTP_STATUS_OK, fields);
	add_field(exchange->wsi, &head, "transfer-encoding:", "chunked");
	if (!finish_head(exchange->wsi, &head)) {
		give_up(exchange);
		return;
	}
	watch_reader(exchange);
	/* It outlives what HTTP requests may take. */
	lws_set_timeout(exchange->wsi, NO_PENDING_TIMEOUT, 0);
	(void)lws_callback_on_writable(exchange->wsi);
}

static void h1_want_write(struct exchange *base)
{
	(void)lws_callback_on_writable(h1_of(base)->wsi);
}

static bool h1_ready(const struct exchange *base)
{
	const struct h1_exchange *exchange = (const struct h1_exchange *)base;

	return !exchange->dropped && !exchange->pending.len &&
	       !lws_send_pipe_choked(exchange->wsi) &&
	       !lws_partial_buffered(exchange->wsi);
}

static void drop_answer(struct h1_exchange *exchange)
{
	exchange_give_back(&exchange->base, exchange->base.held);
	buf_finish(&exchange->answer);
}

/* As much of what waits as the socket takes now; false: the connection is gone. */
static bool write_pending(struct h1_exchange *exchange)
{
	struct slice *pending = &exchange->pending;
	unsigned char *piece = exchange->server->piece + LWS_PRE;

	while (pending->len && !lws_send_pipe_choked(exchange->wsi)) {
		const size_t len =
			pending->len < PIECE_BYTES ? pending->len : PIECE_BYTES;

		memcpy(piece, pending->ptr, len);
		if (lws_write(exchange->wsi, piece, len, LWS_WRITE_HTTP) < 0)
			return false;
		*pending = slice_sub(*pending, len, pending->len);
		exchange_moved(&exchange->base, len);
	}
	if (pending->len || lws_partial_buffered(exchange->wsi))
		(void)lws_callback_on_writable(exchange->wsi);
	else
		drop_answer(exchange);
	return true;
}

static bool h1_send(struct exchange *base, struct slice piece)
{
	struct h1_exchange *exchange = h1_of(base);
	struct buf *out = &exchange->answer;

	if (!exchange_spend(base, piece.len)) {
		give_up(exchange);
		return false;
	}
	out->max = piece.len + 32;
	(void)buf_printf(out, "%zx\r\n", piece.len);
	(void)buf_append(out, piece);
	(void)buf_lit(out, "\r\n");
	exchange->pending = buf_slice(out);
	return write_pending(exchange);
}

static void h1_trust(struct exchange *base)
{
	struct visitor *visitor = lws_get_opaque_user_data(h1_of(base)->wsi);

	visitor->trusted = true;
}

static void h1_drop(struct exchange *base)
{
	struct h1_exchange *exchange = h1_of(base);

	exchange->dropped = true;
	exchange->pending = SLICE_EMPTY;
	drop_answer(exchange);
	give_up(exchange);
}

static const struct exchange_ops h1_ops = {
	.respond = h1_respond,
	.begin = h1_begin,
	.want_write = h1_want_write,
	.ready = h1_ready,
	.send = h1_send,
	.trust = h1_trust,
	.drop = h1_drop,
};

/* ---- requests ---- */

static struct door *door_of(struct h1_server *server, struct lws *wsi)
{
	const struct lws_vhost *vhost = lws_get_vhost(wsi);

	if (vhost == server->tcp.vhost)
		return &server->tcp;
	return vhost == server->local.vhost ? &server->local : &server->metrics;
}

static struct http_budget *budget_of(struct h1_server *server, struct lws *wsi)
{
	return door_of(server, wsi) == &server->metrics ? &server->metrics_budget
							: server->options.budget;
}

static void end_exchange(struct session *session)
{
	struct h1_exchange *exchange = session->exchange;

	if (!exchange)
		return;
	session->exchange = NULL;
	unwatch_reader(exchange);
	exchange_finish(&exchange->base);
	buf_finish(&exchange->answer);
	free(exchange);
}

static void copy_header(struct h1_exchange *exchange, enum http_header which,
			enum lws_token_indexes token)
{
	const int len = lws_hdr_total_length(exchange->wsi, token);
	struct buf text = {.max = BROKER_HEADER_MAX};
	char *out = len > 0 ? buf_extend(&text, (size_t)len + 1) : NULL;

	if (out && lws_hdr_copy(exchange->wsi, out, len + 1, token) == len)
		exchange_set_header(&exchange->base, which,
				    (struct slice){out, (size_t)len});
	buf_wipe(&text);
}

static void copy_custom(struct h1_exchange *exchange, enum http_header which,
			const char *name)
{
	const int len = lws_hdr_custom_length(exchange->wsi, name, (int)strlen(name));
	struct buf text = {.max = BROKER_HEADER_MAX};
	char *out = len > 0 ? buf_extend(&text, (size_t)len + 1) : NULL;

	if (out &&
	    lws_hdr_custom_copy(exchange->wsi, out, len + 1, name, (int)strlen(name)) > 0)
		exchange_set_header(&exchange->base, which,
				    (struct slice){out, (size_t)len});
	buf_finish(&text);
}

static void copy_query(struct h1_exchange *exchange)
{
	char piece[BROKER_HEADER_MAX];
	int len;

	for (int i = 0; (len = lws_hdr_copy_fragment(exchange->wsi, piece, sizeof(piece),
						     WSI_TOKEN_HTTP_URI_ARGS, i)) >= 0;
	     i++) {
		(void)buf_append(&exchange->base.query,
				 (struct slice){piece, (size_t)len});
		(void)buf_append_byte(&exchange->base.query, '\0');
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
static void check_length(struct h1_exchange *exchange)
{
	struct http_request *request = &exchange->base.request;
	struct lws *wsi = exchange->wsi;
	char text[24];
	uint64_t length = 0;

	if (lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING) > 0 ||
	    lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) <= 0)
		request->length = HTTP_LENGTH_MISSING;
	else if (lws_hdr_copy(wsi, text, sizeof(text), WSI_TOKEN_HTTP_CONTENT_LENGTH) <=
			 0 ||
		 !slice_parse_u64(slice_of(text), UINT64_MAX, &length))
		request->length = HTTP_LENGTH_MALFORMED;
	else if (length > BROKER_BODY_MAX)
		request->length = HTTP_LENGTH_TOO_LARGE;
	/* Who sends a little too much sends it all before it reads what we say. */
	exchange->closing =
		request->length != HTTP_LENGTH_OK &&
		(request->length != HTTP_LENGTH_TOO_LARGE || length > BODY_DROP_MAX);
}

static void dispatch(struct h1_exchange *exchange)
{
	const struct http_handler *handler = &exchange->server->options.handler;

	lws_set_timer_usecs(exchange->wsi, LWS_SET_TIMER_USEC_CANCEL);
	exchange->dispatched = true;
	exchange->base.request.body = buf_slice(&exchange->base.body);
	lws_set_timeout(exchange->wsi, PENDING_TIMEOUT_HTTP_CONTENT, ANSWER_S);
	handler->on_request(handler->ctx, &exchange->base);
	if (!exchange->answering && !exchange->base.streaming)
		watch_reader(exchange);
}

static void begin_post(struct h1_exchange *exchange)
{
	const struct http_handler *handler = &exchange->server->options.handler;
	struct http_request *request = &exchange->base.request;

	check_length(exchange);
	if (request->length == HTTP_LENGTH_OK &&
	    !handler->may_send(handler->ctx, request)) {
		request->length = HTTP_LENGTH_UNASKED;
		exchange->closing = true;
	} else if (request->length == HTTP_LENGTH_OK) {
		exchange_trust(&exchange->base);
	}
	lws_set_timer_usecs(exchange->wsi, BROKER_REQUEST_S * LWS_USEC_PER_SEC);
}

static void tell_time(struct h1_server *server)
{
	server->options.budget->now_ms = server->metrics_budget.now_ms = loop_now_ms();
}

static int on_http(struct h1_server *server, struct lws *wsi, struct session *session,
		   struct slice path)
{
	struct h1_exchange *exchange;
	struct http_request *request;

	end_exchange(session);
	if (!server || server->stopped)
		return -1;
	tell_time(server);
	exchange = session->exchange = mem_alloc(sizeof(*exchange));
	exchange_init(&exchange->base, &h1_ops, door_of(server, wsi)->way,
		      budget_of(server, wsi));
	exchange->server = server;
	exchange->wsi = wsi;
	request = &exchange->base.request;
	request->method = method_of(wsi);
	(void)buf_append(&exchange->base.path, path);
	request->path = buf_slice(&exchange->base.path);
	copy_header(exchange, HTTP_AUTHORIZATION, WSI_TOKEN_HTTP_AUTHORIZATION);
	copy_header(exchange, HTTP_HOST, WSI_TOKEN_HOST);
	copy_header(exchange, HTTP_ORIGIN, WSI_TOKEN_ORIGIN);
	copy_header(exchange, HTTP_CONTENT_TYPE, WSI_TOKEN_HTTP_CONTENT_TYPE);
	copy_header(exchange, HTTP_ACCEPT_ENCODING, WSI_TOKEN_HTTP_ACCEPT_ENCODING);
	copy_custom(exchange, HTTP_SEC_FETCH_SITE, "sec-fetch-site:");
	copy_query(exchange);
	if (request->method == HTTP_POST)
		begin_post(exchange);
	if (request->method != HTTP_POST || exchange->closing)
		dispatch(exchange);
	return 0;
}

static int on_body(struct session *session, struct slice piece)
{
	struct h1_exchange *exchange = session->exchange;

	if (exchange)
		tell_time(exchange->server);
	/* Who is answered before it, as all methods but POST are, has it dropped. */
	if (exchange && !exchange->dispatched &&
	    exchange->base.request.length == HTTP_LENGTH_OK)
		(void)exchange_take_body(&exchange->base, piece);
	return 0;
}

/* Of a body that comes right behind another request lws 4.1 reads the wrong bytes, and
 * says without end that it was all (lws_http_action()): that ends the connection. Nothing
 * has a time limit any more when it says so. */
static int on_body_end(struct session *session)
{
	struct h1_exchange *exchange = session->exchange;

	if (!exchange)
		return 0;
	if (exchange->body_ended)
		return -1;
	exchange->body_ended = true;
	if (!exchange->dispatched)
		dispatch(exchange);
	else
		lws_set_timeout(exchange->wsi, PENDING_TIMEOUT_HTTP_CONTENT,
				exchange->answering ? ANSWER_READ_S : ANSWER_S);
	return 0;
}

static void on_late(struct session *session)
{
	struct h1_exchange *exchange = session->exchange;

	if (!exchange || exchange->dispatched)
		return;
	exchange->dispatched = exchange->closing = true;
	exchange_respond_late(&exchange->base);
}

static int on_writable(struct session *session)
{
	struct h1_exchange *exchange = session->exchange;
	struct lws *wsi;
	bool closing;

	if (!exchange)
		return 0;
	tell_time(exchange->server);
	wsi = exchange->wsi;
	if (exchange->dropped || !write_pending(exchange))
		return -1;
	if (exchange->pending.len || lws_partial_buffered(wsi))
		return 0;
	if (exchange->base.streaming) {
		exchange->base.stream.on_writable(exchange->base.stream.ctx,
						  &exchange->base);
		return 0;
	}
	if (!exchange->answering)
		return 0;
	closing = exchange->closing;
	end_exchange(session);
	return closing || lws_http_transaction_completed(wsi) ? -1 : 0;
}

/* ---- connections ---- */

static struct http_way_figures *figures_of(const struct door *door)
{
	return &door->server->options.budget->figures->ways[door->way];
}

static void leave(struct visitor *visitor)
{
	if (visitor->leaving)
		return;
	visitor->leaving = true;
	visitor->door->count--;
	figures_of(visitor->door)->open--;
}

/* False: all that are here have shown the token. */
static bool make_room(struct door *door)
{
	struct visitor *oldest = NULL;

	if (door->count < BROKER_CONNECTIONS_MAX)
		return true;
	for (struct visitor *at = door->visitors; at; at = at->next)
		if (!at->trusted && !at->leaving)
			oldest = at;
	if (!oldest) {
		figures_of(door)->refused++;
		return false;
	}
	figures_of(door)->pushed_out++;
	leave(oldest);
	lws_set_timeout(oldest->wsi, PENDING_TIMEOUT_KILLED_BY_PARENT, LWS_TO_KILL_ASYNC);
	return true;
}

static int on_accept(struct h1_server *server, struct lws *wsi)
{
	return server && make_room(door_of(server, wsi)) ? 0 : -1;
}

static void on_accepted(struct h1_server *server, struct lws *wsi)
{
	struct visitor *visitor = mem_alloc(sizeof(*visitor));
	struct door *door = visitor->door = door_of(server, wsi);

	visitor->wsi = wsi;
	visitor->next = door->visitors;
	if (visitor->next)
		visitor->next->link = &visitor->next;
	visitor->link = &door->visitors;
	door->visitors = visitor;
	door->count++;
	figures_of(door)->open++;
	figures_of(door)->taken++;
	lws_set_opaque_user_data(wsi, visitor);
}

/* Listening sockets come here as well, and were never counted. */
static void on_destroyed(struct lws *wsi)
{
	struct visitor *visitor = lws_get_opaque_user_data(wsi);

	if (!visitor)
		return;
	leave(visitor);
	*visitor->link = visitor->next;
	if (visitor->next)
		visitor->next->link = visitor->link;
	free(visitor);
}

static int on_lws(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		  size_t len)
{
	struct lws_vhost *vhost = lws_get_vhost(wsi);
	struct h1_server *server = vhost ? lws_get_vhost_user(vhost) : NULL;
	struct session *session = user;

	switch (reason) {
	case LWS_CALLBACK_HTTP:
		return on_http(server, wsi, session, (struct slice){in, len});
	case LWS_CALLBACK_HTTP_BODY:
		return on_body(session, (struct slice){in, len});
	case LWS_CALLBACK_HTTP_BODY_COMPLETION:
		return on_body_end(session);
	case LWS_CALLBACK_TIMER:
		if (session)
			on_late(session);
		return 0;
	case LWS_CALLBACK_HTTP_WRITEABLE:
		return on_writable(session);
	case LWS_CALLBACK_CLOSED_HTTP:
	case LWS_CALLBACK_HTTP_DROP_PROTOCOL:
		if (session)
			end_exchange(session);
		return 0;
	case LWS_CALLBACK_FILTER_NETWORK_CONNECTION:
		return on_accept(server, wsi);
	case LWS_CALLBACK_SERVER_NEW_CLIENT_INSTANTIATED:
		if (server)
			on_accepted(server, wsi);
		return 0;
	case LWS_CALLBACK_WSI_DESTROY:
		on_destroyed(wsi);
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
	 .tx_packet_size = PIECE_BYTES},
	{.name = NULL},
};

/* ---- listening ---- */

static bool listen_tcp(struct door *door, const char *host, uint16_t port,
		       const char *name, const char *option, struct err *err)
{
	/* lws with IPv6 on does not find an IPv4 address and would listen on all. */
	const uint64_t family = strchr(host, ':') ? 0 : LWS_SERVER_OPTION_DISABLE_IPV6;
	const struct lws_context_creation_info info = {
		.port = port,
		.iface = host,
		.vhost_name = name,
		.protocols = protocols,
		.user = door->server,
		.keepalive_timeout = BROKER_IDLE_S,
		.options = LWS_SERVER_OPTION_FAIL_UPON_UNABLE_TO_BIND | family,
	};

	door->vhost = lws_create_vhost(door->server->loop->lws, &info);
	if (door->vhost)
		door->port = (uint16_t)lws_get_vhost_listen_port(door->vhost);
	else
		port_explain(host, port, option, err);
	return door->vhost != NULL;
}

static struct lws_vhost *listen_unix(struct h1_server *server, struct err *err)
{
	const struct lws_context_creation_info info = {
		.port = 0,
		.iface = server->unix_path,
		.vhost_name = "broker-local",
		.protocols = protocols,
		.user = server,
		.keepalive_timeout = BROKER_IDLE_S,
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

struct h1_server *h1_server_create(struct loop *loop, const struct h1_options *options,
				   struct err *err)
{
	struct h1_server *server = mem_alloc(sizeof(*server));

	server->loop = loop;
	server->options = *options;
	server->unix_path = mem_dup(slice_of(options->unix_path));
	server->metrics_budget.figures = options->budget->figures;
	server->tcp = (struct door){.server = server, .way = HTTP_BY_TCP};
	server->local = (struct door){.server = server, .way = HTTP_BY_UNIX};
	server->metrics = (struct door){.server = server, .way = HTTP_BY_METRICS};
	if (!listen_tcp(&server->tcp, options->host, options->port, "broker", "--listen",
			err))
		goto out;
	if (options->metrics_host &&
	    !listen_tcp(&server->metrics, options->metrics_host, options->metrics_port,
			"broker-metrics", "--metrics", err))
		goto out;
	server->local.vhost = listen_unix(server, err);
	if (!server->local.vhost)
		goto out;
	return server;
out:
	/* A vhost that was made goes with the loop. */
	h1_server_destroy(server);
	return NULL;
}

void h1_server_stop(struct h1_server *server)
{
	if (!server || server->stopped)
		return;
	server->stopped = true;
	(void)unlink(server->unix_path);
	lws_vhost_destroy(server->tcp.vhost);
	lws_vhost_destroy(server->local.vhost);
	if (server->metrics.vhost)
		lws_vhost_destroy(server->metrics.vhost);
}

void h1_server_destroy(struct h1_server *server)
{
	if (!server)
		return;
	free(server->unix_path);
	free(server);
}

uint16_t h1_server_port(const struct h1_server *server)
{
	return server->tcp.port;
}

uint16_t h1_server_metrics_port(const struct h1_server *server)
{
	return server->metrics.port;
}
