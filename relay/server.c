#include "relay/server.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <libwebsockets.h>

#include "relay/http.h"
#include "relay/nip11.h"
#include "relay/outgoing.h"
#include "wire/host/port.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"

/* Bytes per read; with the loop's service buffer this measured best (facts on lws). */
#define RX_BUFFER_BYTES (64 * 1024)
/* One send may take a whole message; else lws copies the rest of every larger one. */
#define TX_PACKET_BYTES (1024 * 1024)
/* Seconds for what is queued to leave before the socket is cut. */
#define CLOSE_WITHIN_S 5
/* Open files kept for what is no client. */
#define FILES_RESERVED 64
#define ANSWER_MAX (64 * 1024)

struct server {
	struct loop *loop;
	struct core *core;
	const struct option_list *allow_origins;
	struct lws_vhost *vhost, *metrics_vhost;
	uint16_t port, metrics_port;
	uint64_t connections_max;
	uint64_t sockets; /* of clients, whatever they speak so far */
	struct outgoing outgoing;
	void (*on_stopped)(void *ctx); /* NULL until it stops */
	void *ctx;
};

/* What lws keeps for one socket, zeroed. */
struct session {
	struct connection *connection; /* once it speaks WebSocket */
	struct outgoing_link outgoing; /* likewise */
	struct http_answer answer;     /* until then */
	bool is_closing;               /* its deadline runs */
	bool is_flushed;               /* closes as soon as lws is back in its loop */
};

static struct server *server_of(struct lws *wsi)
{
	return lws_vhost_user(lws_get_vhost(wsi));
}

/* Connections */

static void wake(struct connection *connection)
{
	struct lws *wsi = connection->socket;
	struct session *session = lws_wsi_user(wsi);

	if (connection->state == CONNECTION_CLOSING && !session->is_closing) {
		session->is_closing = true;
		lws_set_timeout(wsi, PENDING_TIMEOUT_USER_OK, CLOSE_WITHIN_S);
	}
	outgoing_add(&server_of(wsi)->outgoing, &session->outgoing);
}

const struct connection_io server_io = {
	.wake = wake,
	.unix_ms = loop_unix_ms,
	.now_ms = loop_now_ms,
};

/* ws://Host when Host is a loopback name, whatever its port (it may be forwarded):
 * another name would let a relay in the middle pass our challenge on as its own. */
static bool host_url(struct lws *wsi, char *out, size_t size)
{
	char host[128], name[128];
	char *end;

	if (!http_header(wsi, WSI_TOKEN_HOST, host, sizeof(host)))
		return false;
	(void)snprintf(name, sizeof(name), "%s", host);
	end = name[0] == '[' ? strchr(name, ']') : NULL;
	end = end ? end + 1 : strchr(name, ':');
	if (end)
		*end = '\0';
	if (!host_is_loopback(name))
		return false;
	(void)snprintf(out, size, "ws://%s", host);
	return true;
}

static int on_established(struct server *server, struct lws *wsi, struct session *session)
{
	char url[160];
	bool has_url = host_url(wsi, url, sizeof(url));

	session->outgoing.wsi = wsi;
	session->connection = connection_create(server->core, wsi, has_url ? url : NULL);
	session->outgoing.connection = session->connection;
	lws_set_timer_usecs(wsi, RELAY_AUTH_TIMEOUT_S * LWS_US_PER_SEC);
	return 0;
}

static int on_receive(struct lws *wsi, struct session *session, struct slice bytes)
{
	connection_receive(session->connection, bytes,
			   lws_frame_is_binary(wsi) ? CHUNK_BINARY : CHUNK_TEXT,
			   lws_is_final_fragment(wsi) &&
				   !lws_remaining_packet_payload(wsi));
	outgoing_count_message(&server_of(wsi)->outgoing);
	return 0;
}

static int on_writable(struct server *server, struct lws *wsi, struct session *session)
{
	struct connection *connection = session->connection;

	if (!outgoing_send(&server->outgoing, &session->outgoing))
		return -1;
	if (connection->state != CONNECTION_CLOSING || connection->queue.count > 0 ||
	    lws_partial_buffered(wsi))
		return 0;
	/* Closing from here would cut the socket: lws takes a failed writable callback
	 * for a failed write. From the timer it sends the close frame. */
	session->is_flushed = true;
	lws_set_timer_usecs(wsi, 1);
	return 0;
}

static void before_wait(void *ctx)
{
	struct server *server = ctx;

	outgoing_flush(&server->outgoing);
}

static int on_timer(struct lws *wsi, struct session *session)
{
	struct connection *connection = session->connection;
	unsigned char reason[64];
	size_t len;

	if (!session->is_flushed) {
		connection_auth_timeout(connection);
		return 0;
	}
	len = strlen(connection->close_reason);
	assert(len <= sizeof(reason));
	memcpy(reason, connection->close_reason, len); /* lws wants it mutable */
	lws_close_reason(wsi, (enum lws_close_status)connection->close_code, reason, len);
	return -1;
}

static int on_closed(struct server *server, struct session *session)
{
	outgoing_remove(&server->outgoing, &session->outgoing);
	connection_destroy(session->connection);
	session->connection = NULL;
	if (server->on_stopped && !server->core->connections)
		server->on_stopped(server->ctx);
	return 0;
}

/* HTTP */

static int respond_nip11(struct lws *wsi, struct session *session)
{
	struct buf body;
	int result;

	buf_init(&body, ANSWER_MAX);
	nip11_write(&body);
	result = http_respond(wsi, &session->answer, HTTP_STATUS_OK,
			      "application/nostr+json", buf_slice(&body));
	buf_finish(&body);
	return result;
}

static int respond_page(struct server *server, struct lws *wsi, struct session *session)
{
	char text[512];

	(void)snprintf(
		text, sizeof(text),
		"Perch relay %s\n\nThis is a Nostr relay. It routes sealed frames (kind "
		"24200) between coding agents\nand their owners, and can read none of "
		"them. Point a client at ws://127.0.0.1:%u/\n\n  perch agent --relay "
		"ws://127.0.0.1:%u/ -- COMMAND\n",
		PERCH_VERSION, server->port, server->port);
	return http_respond_text(wsi, &session->answer, HTTP_STATUS_OK, text);
}

static int respond_metrics(struct server *server, struct lws *wsi,
			   struct session *session)
{
	struct core *core = server->core;
	struct buf body;
	int result;

	buf_init(&body, ANSWER_MAX);
	counters_write(&core->counters, &body);
	(void)buf_printf(
		&body,
		"# TYPE perch_relay_subscriptions gauge\nperch_relay_subscriptions %zu\n"
		"# TYPE perch_relay_window_bytes gauge\nperch_relay_window_bytes %zu\n"
		"# TYPE perch_relay_unsent_bytes gauge\nperch_relay_unsent_bytes %zu\n",
		core->route.count, core->window.bytes, core->retained.bytes);
	result = http_respond(wsi, &session->answer, HTTP_STATUS_OK,
			      "text/plain; version=0.0.4", buf_slice(&body));
	buf_finish(&body);
	return result;
}

/* Accept may list several types with weights: it is searched, not compared. */
static bool wants_nip11(struct lws *wsi)
{
	char accept[1024];

	return http_header(wsi, WSI_TOKEN_HTTP_ACCEPT, accept, sizeof(accept)) &&
	       strcasestr(accept, "application/nostr+json") != NULL;
}

static int on_http(struct server *server, struct lws *wsi, struct session *session,
		   const char *path)
{
	bool is_metrics = lws_get_vhost(wsi) == server->metrics_vhost;

	if (lws_hdr_total_length(wsi, WSI_TOKEN_OPTIONS_URI) > 0)
		return http_respond_text(wsi, &session->answer, HTTP_STATUS_NO_CONTENT,
					 "");
	if (lws_hdr_total_length(wsi, WSI_TOKEN_GET_URI) == 0 &&
	    lws_hdr_total_length(wsi, WSI_TOKEN_HEAD_URI) == 0)
		return http_refuse(wsi, HTTP_STATUS_METHOD_NOT_ALLOWED,
				   SLICE("GET, HEAD and OPTIONS only\n"));
	if (strcmp(path, "/healthz") == 0)
		return http_respond_text(wsi, &session->answer, HTTP_STATUS_OK, "ok\n");
	if (is_metrics && strcmp(path, "/metrics") == 0)
		return respond_metrics(server, wsi, session);
	if (is_metrics || strcmp(path, "/") != 0)
		return http_respond_text(wsi, &session->answer, HTTP_STATUS_NOT_FOUND,
					 "not here: the relay is at /\n");
	if (wants_nip11(wsi))
		return respond_nip11(wsi, session);
	return respond_page(server, wsi, session);
}

/* Who may open a WebSocket */

/* A page on our own address is not foreign. */
static bool is_own_origin(const struct server *server, const char *origin)
{
	static const char *const hosts[] = {"127.0.0.1", "localhost", "[::1]"};
	char own[64];
	size_t i;

	for (i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		(void)snprintf(own, sizeof(own), "http://%s:%u", hosts[i], server->port);
		if (strcasecmp(origin, own) == 0)
			return true;
	}
	return false;
}

/* Browsers send Origin, programs do not: a web page must not reach a relay on loopback
 * just because the person looking at it runs one. */
static bool origin_allowed(const struct server *server, struct lws *wsi, char *origin,
			   int size)
{
	size_t i;

	if (lws_hdr_total_length(wsi, WSI_TOKEN_ORIGIN) == 0)
		return true;
	if (!http_header(wsi, WSI_TOKEN_ORIGIN, origin, size)) {
		(void)snprintf(origin, (size_t)size, "(too long)");
		return false;
	}
	for (i = 0; i < server->allow_origins->count; i++)
		if (strcmp(server->allow_origins->values[i], "*") == 0 ||
		    strcasecmp(server->allow_origins->values[i], origin) == 0)
			return true;
	return is_own_origin(server, origin);
}

static int on_upgrade(struct server *server, struct lws *wsi)
{
	char path[64], origin[256];

	if (lws_get_vhost(wsi) == server->metrics_vhost ||
	    !http_header(wsi, WSI_TOKEN_GET_URI, path, sizeof(path)) ||
	    strcmp(path, "/") != 0)
		return http_refuse(wsi, HTTP_STATUS_NOT_FOUND,
				   SLICE("not here: the relay is at /\n"));
	if (!origin_allowed(server, wsi, origin, sizeof(origin))) {
		core_refuse(server->core, 0, REFUSAL_ORIGIN, origin);
		return http_refuse(
			wsi, HTTP_STATUS_FORBIDDEN,
			SLICE("this origin may not connect: start the relay with "
			      "--allow-origin ORIGIN\n"));
	}
	if (server->on_stopped ||
	    server->core->counters.connections >= server->connections_max) {
		core_refuse(server->core, 0, REFUSAL_FULL, "too many connections");
		return http_refuse(wsi, HTTP_STATUS_SERVICE_UNAVAILABLE,
				   SLICE("too many connections, try again later\n"));
	}
	return 0;
}

/* lws would also take h2c, on which it ignores flow control. `in` must not be read here:
 * for an unknown protocol it points into freed memory (lws issue NN-2025-0102). */
static int on_upgrade_asked(struct lws *wsi)
{
	char upgrade[32];

	if (!http_header(wsi, WSI_TOKEN_UPGRADE, upgrade, sizeof(upgrade)) ||
	    strcasecmp(upgrade, "websocket") != 0)
		return -1;
	return 0;
}

static int on_add_headers(struct lws *wsi, struct lws_process_html_args *args)
{
	unsigned char *at = (unsigned char *)args->p;

	if (!http_add_date(wsi, &at, at + args->max_len))
		return -1;
	args->p = (char *)at;
	return 0;
}

/* Sockets that say nothing, or only HTTP, take files as well: out of them, accept() would
 * fail again and again while clients wait unseen. */
static int on_accept(struct server *server)
{
	if (server->sockets < server->connections_max + FILES_RESERVED / 2)
		return 0;
	core_refuse(server->core, 0, REFUSAL_FULL, "too many sockets");
	return -1;
}

static void on_accepted(struct server *server, struct lws *wsi)
{
	lws_set_opaque_user_data(wsi, server);
	server->sockets++;
}

/* Listening sockets come here as well, and were never counted. */
static void on_destroyed(struct lws *wsi)
{
	struct server *server = lws_get_opaque_user_data(wsi);

	if (server)
		server->sockets--;
}

static int on_lws(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		  size_t len)
{
	struct session *session = user;

	switch (reason) {
	case LWS_CALLBACK_ESTABLISHED:
		return on_established(server_of(wsi), wsi, session);
	case LWS_CALLBACK_RECEIVE:
		return on_receive(wsi, session, (struct slice){in, len});
	case LWS_CALLBACK_SERVER_WRITEABLE:
		return on_writable(server_of(wsi), wsi, session);
	case LWS_CALLBACK_TIMER:
		return session && session->connection ? on_timer(wsi, session) : 0;
	case LWS_CALLBACK_CLOSED:
		return on_closed(server_of(wsi), session);
	case LWS_CALLBACK_HTTP:
		return on_http(server_of(wsi), wsi, session, in);
	case LWS_CALLBACK_HTTP_WRITEABLE:
		return http_send(wsi, &session->answer);
	case LWS_CALLBACK_CLOSED_HTTP:
		if (session)
			http_forget(&session->answer);
		return 0;
	case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
		return on_upgrade_asked(wsi);
	case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
		return on_upgrade(server_of(wsi), wsi);
	case LWS_CALLBACK_FILTER_NETWORK_CONNECTION:
		return on_accept(server_of(wsi));
	case LWS_CALLBACK_SERVER_NEW_CLIENT_INSTANTIATED:
		on_accepted(server_of(wsi), wsi);
		return 0;
	case LWS_CALLBACK_WSI_DESTROY:
		on_destroyed(wsi);
		return 0;
	case LWS_CALLBACK_ADD_HEADERS:
		return on_add_headers(wsi, in);
	default:
		return 0;
	}
}

/* Nostr clients ask for no subprotocol; lws then takes the first. */
static const struct lws_protocols protocols[] = {
	{.name = "nostr",
	 .callback = on_lws,
	 .per_session_data_size = sizeof(struct session),
	 .rx_buffer_size = RX_BUFFER_BYTES,
	 .tx_packet_size = TX_PACKET_BYTES},
	{.name = NULL},
};

static struct lws_vhost *listen_on(struct server *server, const char *name,
				   const char *host, uint16_t port, struct err *err)
{
	/* With IPv6 on, lws listens on every address of the machine when asked for an
	 * IPv4 one (4.1.6 does not find it among its IPv6 interfaces and falls back). */
	uint64_t family = strchr(host, ':') ? 0 : LWS_SERVER_OPTION_DISABLE_IPV6;
	struct lws_context_creation_info info = {
		.port = port,
		.iface = host,
		.vhost_name = name,
		.protocols = protocols,
		.user = server,
		.options = LWS_SERVER_OPTION_FAIL_UPON_UNABLE_TO_BIND | family,
	};
	struct lws_vhost *vhost = lws_create_vhost(server->loop->lws, &info);

	if (!vhost)
		port_explain(host, port, err);
	return vhost;
}

static uint64_t connections_max(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 ||
	    limit.rlim_cur >= RELAY_CONNECTIONS_MAX + FILES_RESERVED)
		return RELAY_CONNECTIONS_MAX;
	return limit.rlim_cur > FILES_RESERVED ? limit.rlim_cur - FILES_RESERVED : 1;
}

struct server *server_create(struct loop *loop, struct core *core,
			     const struct server_options *options, struct err *err)
{
	struct server *server = mem_alloc(sizeof(*server));

	server->loop = loop;
	server->core = core;
	server->allow_origins = options->allow_origins;
	server->connections_max = connections_max();
	outgoing_init(&server->outgoing);
	server->vhost = listen_on(server, "relay", options->host, options->port, err);
	if (!server->vhost)
		goto out;
	server->port = (uint16_t)lws_get_vhost_listen_port(server->vhost);
	if (options->metrics_host) {
		server->metrics_vhost =
			listen_on(server, "metrics", options->metrics_host,
				  options->metrics_port, err);
		if (!server->metrics_vhost)
			goto out;
		server->metrics_port =
			(uint16_t)lws_get_vhost_listen_port(server->metrics_vhost);
	}
	loop_before_wait(loop, before_wait, server);
	return server;
out:
	/* A vhost that was made goes with the loop; it has no client yet. */
	server_destroy(server);
	return NULL;
}

uint16_t server_port(const struct server *server)
{
	return server->port;
}

uint16_t server_metrics_port(const struct server *server)
{
	return server->metrics_port;
}

void server_stop(struct server *server, void (*on_stopped)(void *ctx), void *ctx)
{
	struct connection *at;

	server->on_stopped = on_stopped;
	server->ctx = ctx;
	for (at = server->core->connections; at; at = at->next)
		connection_close(at, CLOSE_GOING_AWAY, "the relay stops");
	if (!server->core->connections)
		on_stopped(ctx);
}

void server_destroy(struct server *server)
{
	if (!server)
		return;
	outgoing_finish(&server->outgoing);
	free(server);
}
