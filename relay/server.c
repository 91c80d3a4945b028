#include "relay/server.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <libwebsockets.h>

#include "relay/http.h"
#include "relay/listener.h"
#include "relay/nip11.h"
#include "relay/outgoing.h"
#include "relay/publish.h"
#include "relay/store.h"
#include "relay/tally.h"
#include "wire/base/mem.h"
#include "wire/base/metrics.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"
#include "wire/host/port.h"

/* Bytes per read; with the loop's service buffer this measured best (facts on lws). */
#define RX_BUFFER_BYTES (64 * 1024)
/* One send may take a whole message; else lws copies the rest of every larger one. */
#define TX_PACKET_BYTES (1024 * 1024)
/* Seconds for what is queued to leave before the socket is cut. */
#define CLOSE_WITHIN_S 5
/* Open files kept for what is no client: database, listeners, a descriptor to open a
 * certificate with when all others are taken. */
#define FILES_RESERVED 64
/* An address may have this many times its connections in sockets that have not said what
 * they are. */
#define SOCKETS_PER_CONNECTION 2
/* Longest X-Forwarded-For: all that the headers of one request hold. */
#define FORWARDED_MAX (16 * 1024)
/* Refused connections that are logged a second; the rest is counted in the next line. */
#define REFUSED_LINES_PER_S 10
#define ANSWER_MAX (64 * 1024)
#define HTTP_TOO_MANY_REQUESTS 429 /* RFC 6585; lws has no name for it */

struct server;

/* One of the ports, of which all sockets are on the one vhost. */
struct door {
	struct server *server;
	struct listener *listener;
	uint16_t port;
	lws_adoption_type type; /* with TLS or without */
};

struct server {
	struct loop *loop;
	struct core *core;
	struct server_options options;
	struct lws_vhost *vhost;
	struct door relay, metrics; /* metrics.listener: NULL for none */
	struct door *entering;      /* through which a socket comes just now */
	uint64_t sockets;           /* of clients, whatever they speak so far */
	/* By address, of those whose number is limited. */
	struct tally socket_tally, connection_tally;
	struct {
		int64_t second;
		unsigned lines;
		uint64_t silent;
	} refused; /* the log's */
	struct outgoing outgoing;
	struct buf forwarded;          /* X-Forwarded-For of one request */
	void (*on_stopped)(void *ctx); /* NULL until it stops */
	void *ctx;
};

/* Whose a socket is: from accept() to its end. */
struct visitor {
	struct server *server;
	bool is_metrics;       /* it came to that port */
	struct address peer;   /* the other end of the socket */
	struct address client; /* that, or who a trusted proxy says stands behind it */
	bool is_counted;       /* in connection_tally */
};

/* What lws keeps for one socket, zeroed. */
struct session {
	struct connection *connection; /* once it speaks WebSocket */
	struct outgoing_link outgoing; /* likewise */
	struct http_answer answer;     /* until then */
	bool is_closing;               /* its deadline runs */
	bool is_left;                  /* the peer has said close: it says nothing more */
	bool is_flushed;               /* closes as soon as lws is back in its loop */
};

static struct server *server_of(struct lws *wsi)
{
	return lws_vhost_user(lws_get_vhost(wsi));
}

static struct visitor *visitor_of(struct lws *wsi)
{
	return lws_get_opaque_user_data(wsi);
}

/* Refused connections */

/* One line for each, unless they come in a flood. @text never holds content. */
static void log_refused(struct server *server, const struct address *from,
			enum refusal refusal, const char *text)
{
	int64_t second = loop_now_ms() / 1000;
	char address[ADDRESS_TEXT_MAX];
	char quoted[LOG_QUOTE_BYTES];

	server->core->counters.refused[refusal]++;
	if (second != server->refused.second) {
		server->refused.second = second;
		server->refused.lines = 0;
	}
	if (server->refused.lines++ >= REFUSED_LINES_PER_S) {
		server->refused.silent++;
		return;
	}
	log_info("relay",
		 "refused connection address=%s reason=%s silent=%" PRIu64 ": %s",
		 address_text(from, address), refusal_name(refusal),
		 server->refused.silent, log_quote(slice_of(text), quoted));
	server->refused.silent = 0;
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
	if (!session->is_left)
		outgoing_add(&server_of(wsi)->outgoing, &session->outgoing);
}

const struct connection_io server_io = {
	.wake = wake,
	.unix_ms = loop_unix_ms,
	.now_ms = loop_now_ms,
};

/* Host without its port; false when there is none. */
static bool host_name(struct lws *wsi, char *host, char *name, int size)
{
	char *end;

	if (!http_header(wsi, WSI_TOKEN_HOST, host, size))
		return false;
	(void)snprintf(name, (size_t)size, "%s", host + (host[0] == '['));
	end = host[0] == '[' ? strchr(name, ']') : strchr(name, ':');
	if (end)
		*end = '\0';
	return true;
}

/* Is that the address by which the client reached us? */
static bool is_local_address(struct lws *wsi, const char *name)
{
	struct sockaddr_storage local;
	socklen_t len = sizeof(local);
	struct address here, said;

	return address_parse(slice_of(name), &said) &&
	       getsockname(lws_get_socket_fd(wsi), (struct sockaddr *)&local, &len) ==
		       0 &&
	       address_from_socket((struct sockaddr *)&local, &here) &&
	       address_eq(&here, &said);
}

/* ws://Host when Host cannot be anybody else's: a loopback name, whatever its port (it
 * may be forwarded), the address of this very socket, or a name in our certificate. Any
 * other would let a relay in the middle pass our challenge on as its own. */
static bool host_url(const struct server *server, struct lws *wsi, char *out, size_t size)
{
	char host[128], name[128];

	if (!host_name(wsi, host, name, sizeof(host)))
		return false;
	if (!host_is_loopback(name) && !is_local_address(wsi, name) &&
	    !(server->options.tls && tls_is_for(server->options.tls, name)))
		return false;
	(void)snprintf(out, size, "%s://%s", server->options.tls ? "wss" : "ws", host);
	return true;
}

/* Loopback is this machine's own, and a proxy's connections are many people's. */
static bool is_limited(const struct server *server, const struct address *address)
{
	return address->known && !proxies_have(server->options.proxies, address) &&
	       (server->core->admit.count_loopback || !address_is_loopback(address));
}

static int on_established(struct server *server, struct lws *wsi, struct session *session)
{
	struct visitor *visitor = visitor_of(wsi);
	char url[160];
	bool has_url = host_url(server, wsi, url, sizeof(url));

	session->outgoing.wsi = wsi;
	session->connection = connection_create(server->core, wsi, has_url ? url : NULL);
	session->outgoing.connection = session->connection;
	session->connection->from = visitor->client;
	if (is_limited(server, &visitor->client)) {
		tally_add(&server->connection_tally, address_key(&visitor->client));
		visitor->is_counted = true;
	}
	lws_set_timer_usecs(wsi, RELAY_AUTH_TIMEOUT_S * LWS_US_PER_SEC);
	return 0;
}

/* What came is handled, and what was queued goes out. */
static void finish_turn(struct server *server)
{
	publish_settle(server->core);
	outgoing_flush(&server->outgoing);
}

static int on_receive(struct lws *wsi, struct session *session, struct slice bytes)
{
	/* RFC 6455, 1.4: "After receiving a control frame indicating the connection
	 * should be closed, a peer discards any further data received." lws hands it on.
	 */
	if (session->is_left)
		return 0;
	connection_receive(session->connection, bytes,
			   lws_frame_is_binary(wsi) ? CHUNK_BINARY : CHUNK_TEXT,
			   lws_is_final_fragment(wsi) &&
				   !lws_remaining_packet_payload(wsi));
	/* A long read must not make readers wait for its end. */
	if (outgoing_count_message(&server_of(wsi)->outgoing))
		finish_turn(server_of(wsi));
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

/* Answers to what came before the close go out before ours; it is no reader any more. */
static void on_peer_close(struct server *server, struct session *session)
{
	publish_settle(server->core);
	(void)outgoing_send(&server->outgoing, &session->outgoing);
	session->is_left = true;
	connection_close(session->connection, CLOSE_NORMAL, "");
}

static void before_wait(void *ctx)
{
	finish_turn(ctx);
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

/* Has the peer ended its side, or the socket failed? */
static bool is_gone(struct lws *wsi)
{
	char byte;
	ssize_t len = recv(lws_get_socket_fd(wsi), &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return len == 0 || (len < 0 && errno != EAGAIN);
}

/* lws ends the connection. For a control frame that is too long, or a length with the
 * highest bit, it has no close code of its own, but sends the one it is given here. A
 * peer that has gone does not care. */
static void on_drop(struct lws *wsi, const struct session *session)
{
	unsigned char reason[] = "bad length";

	if (session->connection && session->connection->state == CONNECTION_OPEN &&
	    !is_gone(wsi))
		lws_close_reason(wsi, LWS_CLOSE_STATUS_PROTOCOL_ERR, reason,
				 sizeof(reason) - 1);
}

static int on_closed(struct server *server, struct session *session)
{
	/* What was put off is answered now: that must not put it in line again. */
	session->is_left = true;
	outgoing_remove(&server->outgoing, &session->outgoing);
	connection_destroy(session->connection);
	session->connection = NULL;
	if (server->on_stopped && !server->core->connections)
		server->on_stopped(server->ctx);
	return 0;
}

/* HTTP */

static int respond_nip11(struct server *server, struct lws *wsi, struct session *session)
{
	const struct admit *admit = &server->core->admit;
	const struct nip11_access access = {
		.by_list = admit->owners.by_list,
		.open = admit->open,
		.frames_per_s = budgets_least(&admit->budgets, BUDGET_FRAMES),
	};
	struct buf body;
	int result;

	buf_init(&body, ANSWER_MAX);
	nip11_write(&access, &body);
	result = http_respond(wsi, &session->answer, HTTP_STATUS_OK,
			      "application/nostr+json", buf_slice(&body));
	buf_finish(&body);
	return result;
}

static int respond_page(struct server *server, struct lws *wsi, struct session *session)
{
	const struct core *core = server->core;
	const struct slice last = core->urls[core->url_count - 1];
	char text[1024], url[160];

	/* As it was called, else by what it was told: a proxy has another name for it. */
	if (!host_url(server, wsi, url, sizeof(url)))
		(void)snprintf(url, sizeof(url), "%.*s", SLICE_ARG(last));
	(void)snprintf(
		text, sizeof(text),
		"Perch relay %s\n\nThis is a Nostr relay. It routes sealed frames (kind "
		"24200) between coding agents\nand their owners, and can read none of "
		"them. Point a client at %s\n\n  perch agent --relay %s -- COMMAND\n",
		PERCH_VERSION, url, url);
	return http_respond_text(wsi, &session->answer, HTTP_STATUS_OK, text);
}

static void write_store(struct store *store, struct buf *out)
{
	struct store_figures figures;

	store_figures(store, &figures);
	(void)buf_printf(out,
			 "# TYPE perch_relay_commits_total counter\n"
			 "perch_relay_commits_total %" PRIu64 "\n"
			 "# TYPE perch_relay_commits_failed_total counter\n"
			 "perch_relay_commits_failed_total %" PRIu64 "\n"
			 "# TYPE perch_relay_store_waiting_bytes gauge\n"
			 "perch_relay_store_waiting_bytes %zu\n"
			 "# TYPE perch_relay_store_failing gauge\n"
			 "perch_relay_store_failing %d\n",
			 figures.commits, figures.failed, figures.waiting,
			 figures.is_failing);
	histogram_write(&figures.commit, "commit", out);
}

static int respond_metrics(struct server *server, struct lws *wsi,
			   struct session *session)
{
	struct core *core = server->core;
	struct buf body;
	int result;

	buf_init(&body, ANSWER_MAX);
	counters_write(&core->counters, &body);
	histogram_write(&core->admit.verify, "verify", &body);
	(void)buf_printf(
		&body,
		"# TYPE perch_relay_subscriptions gauge\nperch_relay_subscriptions %zu\n"
		"# TYPE perch_relay_window_bytes gauge\nperch_relay_window_bytes %zu\n"
		"# TYPE perch_relay_unsent_bytes gauge\nperch_relay_unsent_bytes %zu\n",
		core->route.count, core->window.bytes, core->retained.bytes);
	(void)buf_printf(
		&body,
		"# TYPE perch_relay_agents_bound gauge\nperch_relay_agents_bound %zu\n"
		"# TYPE perch_relay_owners_listed gauge\nperch_relay_owners_listed %zu\n"
		"# TYPE perch_relay_sockets gauge\nperch_relay_sockets %" PRIu64 "\n",
		core->admit.owners.count, core->admit.owners.listed.count,
		server->sockets);
	if (core->store)
		write_store(core->store, &body);
	result = http_respond(wsi, &session->answer, HTTP_STATUS_OK, METRICS_TYPE,
			      buf_slice(&body));
	buf_finish(&body);
	return result;
}

/* Alive is not yet of use: it may stop, or its disk may refuse. Whoever asks then has the
 * disk tried again. */
static int respond_ready(const struct server *server, struct lws *wsi,
			 struct session *session)
{
	struct store *store = server->core->store;
	struct store_figures figures = {0};

	if (server->on_stopped)
		return http_respond_text(wsi, &session->answer,
					 HTTP_STATUS_SERVICE_UNAVAILABLE, "stopping\n");
	if (store) {
		store_figures(store, &figures);
		store_try_again(store);
	}
	if (figures.is_failing)
		return http_respond_text(wsi, &session->answer,
					 HTTP_STATUS_SERVICE_UNAVAILABLE,
					 "the database cannot be written, the log says "
					 "why; frames are served\n");
	return http_respond_text(wsi, &session->answer, HTTP_STATUS_OK, "ready\n");
}

/* Accept may list several types with weights: it is searched, not compared. */
static bool wants_nip11(struct lws *wsi)
{
	char accept[1024];

	return http_header(wsi, WSI_TOKEN_HTTP_ACCEPT, accept, sizeof(accept)) &&
	       strcasestr(accept, "application/nostr+json") != NULL;
}

/* None is wanted; and one that comes right behind another request has lws 4.1 go round
 * for ever (lws_http_action()). */
static bool has_body(struct lws *wsi)
{
	char length[24];

	return lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH) > 0 &&
	       (!http_header(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH, length,
			     sizeof(length)) ||
		strcmp(length, "0") != 0);
}

static int on_http(struct server *server, struct lws *wsi, struct session *session,
		   const char *path)
{
	const bool is_metrics = visitor_of(wsi)->is_metrics;
	const bool is_options = lws_hdr_total_length(wsi, WSI_TOKEN_OPTIONS_URI) > 0;

	if (!is_options && lws_hdr_total_length(wsi, WSI_TOKEN_GET_URI) == 0 &&
	    lws_hdr_total_length(wsi, WSI_TOKEN_HEAD_URI) == 0)
		return http_refuse(wsi, HTTP_STATUS_METHOD_NOT_ALLOWED,
				   SLICE("GET, HEAD and OPTIONS only\n"));
	if (has_body(wsi))
		return http_refuse(wsi, HTTP_STATUS_BAD_REQUEST,
				   SLICE("a request here has no body\n"));
	if (is_options)
		return http_respond_text(wsi, &session->answer, HTTP_STATUS_NO_CONTENT,
					 "");
	if (strcmp(path, "/healthz") == 0)
		return http_respond_text(wsi, &session->answer, HTTP_STATUS_OK, "ok\n");
	if (strcmp(path, "/readyz") == 0)
		return respond_ready(server, wsi, session);
	if (is_metrics && strcmp(path, "/metrics") == 0)
		return respond_metrics(server, wsi, session);
	if (is_metrics || strcmp(path, "/") != 0)
		return http_respond_text(wsi, &session->answer, HTTP_STATUS_NOT_FOUND,
					 "not here: the relay is at /\n");
	if (wants_nip11(wsi))
		return respond_nip11(server, wsi, session);
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
		(void)snprintf(own, sizeof(own), "%s://%s:%u",
			       server->options.tls ? "https" : "http", hosts[i],
			       server_port(server));
		if (strcasecmp(origin, own) == 0)
			return true;
	}
	return false;
}

/* Browsers send Origin, programs do not: a web page must not reach a relay from its own
 * machine just because the person looking at it runs one there. */
static bool origin_allowed(const struct server *server, struct lws *wsi, char *origin,
			   int size)
{
	const struct option_list *allowed = server->options.allow_origins;
	size_t i;

	if (lws_hdr_total_length(wsi, WSI_TOKEN_ORIGIN) == 0 ||
	    !address_is_loopback(&visitor_of(wsi)->client))
		return true;
	if (!http_header(wsi, WSI_TOKEN_ORIGIN, origin, size)) {
		(void)snprintf(origin, (size_t)size, "(too long)");
		return false;
	}
	for (i = 0; i < allowed->count; i++)
		if (strcmp(allowed->values[i], "*") == 0 ||
		    strcasecmp(allowed->values[i], origin) == 0)
			return true;
	return is_own_origin(server, origin);
}

/* Answers with the reason and closes; @text is for the client, @detail for the log. */
static int refuse_upgrade(struct server *server, struct lws *wsi, unsigned status,
			  enum refusal refusal, const char *text, const char *detail)
{
	char line[256];

	(void)snprintf(line, sizeof(line), "%s\n", text);
	log_refused(server, &visitor_of(wsi)->client, refusal, detail);
	return http_refuse(wsi, status, slice_of(line));
}

/* Who a trusted proxy says it speaks for: the header as many times as it comes. */
static void find_client(struct server *server, struct lws *wsi)
{
	struct visitor *visitor = visitor_of(wsi);
	struct buf *list = &server->forwarded;
	int i, len;

	visitor->client = visitor->peer;
	if (!proxies_have(server->options.proxies, &visitor->peer))
		return;
	buf_clear(list);
	for (i = 0;
	     i < FORWARDED_MAX &&
	     (len = lws_hdr_fragment_length(wsi, WSI_TOKEN_X_FORWARDED_FOR, i)) > 0;
	     i++) {
		char *at = list->len > 0 && !buf_lit(list, ",")
				   ? NULL
				   : buf_extend(list, (size_t)len + 1);

		if (!at || lws_hdr_copy_fragment(wsi, at, len + 1,
						 WSI_TOKEN_X_FORWARDED_FOR, i) != len)
			return;
		buf_truncate(list, list->len - 1);
	}
	proxies_client(server->options.proxies, &visitor->peer, buf_slice(list),
		       &visitor->client);
}

static int on_upgrade(struct server *server, struct lws *wsi)
{
	struct visitor *visitor = visitor_of(wsi);
	struct core *core = server->core;
	struct admission admission;
	char path[64], origin[256], text[128];

	find_client(server, wsi);
	if (visitor->is_metrics ||
	    !http_header(wsi, WSI_TOKEN_GET_URI, path, sizeof(path)) ||
	    strcmp(path, "/") != 0)
		return http_refuse(wsi, HTTP_STATUS_NOT_FOUND,
				   SLICE("not here: the relay is at /\n"));
	if (!origin_allowed(server, wsi, origin, sizeof(origin)))
		return refuse_upgrade(server, wsi, HTTP_STATUS_FORBIDDEN, REFUSAL_ORIGIN,
				      "this origin may not connect: start the relay with "
				      "--allow-origin ORIGIN",
				      origin);
	(void)snprintf(text, sizeof(text), "too many connections, try again later");
	if (server->on_stopped ||
	    core->counters.connections >= server->options.connections_max)
		return refuse_upgrade(server, wsi, HTTP_STATUS_SERVICE_UNAVAILABLE,
				      REFUSAL_FULL, text, text);
	(void)snprintf(text, sizeof(text),
		       "too many connections from this address: %" PRIu64
		       " at most, close one first",
		       server->options.address_max);
	if (is_limited(server, &visitor->client) &&
	    tally_of(&server->connection_tally, address_key(&visitor->client)) >=
		    server->options.address_max)
		return refuse_upgrade(server, wsi, HTTP_TOO_MANY_REQUESTS,
				      REFUSAL_ADDRESS, text, text);
	if (!admit_connection(&core->admit, &visitor->client, loop_now_ms(), &admission))
		return refuse_upgrade(server, wsi, HTTP_TOO_MANY_REQUESTS,
				      admission.refusal, admission.text, admission.text);
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

/* lws made the context of the one vhost that speaks TLS; our certificate is shown by it.
 */
static void on_tls_context(struct lws_vhost *vhost, void *context)
{
	struct server *server = lws_vhost_user(vhost);

	tls_attach(server->options.tls, context);
}

static int on_add_headers(struct lws *wsi, struct lws_process_html_args *args)
{
	unsigned char *at = (unsigned char *)args->p;

	if (!http_add_date(wsi, &at, at + args->max_len))
		return -1;
	args->p = (char *)at;
	return 0;
}

static bool peer_address(int fd, struct address *out)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	return getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
	       address_from_socket((struct sockaddr *)&peer, out);
}

/* Sockets that say nothing, or only HTTP, take files as well. */
static bool on_accept(struct server *server, int fd)
{
	struct address from = {0};

	(void)peer_address(fd, &from);
	if (server->sockets >= server->options.connections_max + FILES_RESERVED / 2) {
		log_refused(server, &from, REFUSAL_FULL, "too many sockets");
		return false;
	}
	if (is_limited(server, &from) &&
	    tally_of(&server->socket_tally, address_key(&from)) >=
		    server->options.address_max * SOCKETS_PER_CONNECTION) {
		log_refused(server, &from, REFUSAL_ADDRESS, "too many sockets");
		return false;
	}
	return true;
}

static void on_accepted(struct server *server, struct lws *wsi)
{
	struct visitor *visitor = mem_alloc(sizeof(*visitor));

	visitor->server = server;
	visitor->is_metrics = server->entering == &server->metrics;
	(void)peer_address(lws_get_socket_fd(wsi), &visitor->peer);
	visitor->client = visitor->peer;
	lws_set_opaque_user_data(wsi, visitor);
	server->sockets++;
	/* All are counted, also those that have no limit now: that may change. */
	tally_add(&server->socket_tally, address_key(&visitor->peer));
}

static void on_socket(void *ctx, int fd)
{
	struct door *door = ctx;
	struct server *server = door->server;

	if (!on_accept(server, fd)) {
		(void)close(fd);
		return;
	}
	server->entering = door;
	/* Closes it when there is no place for it. */
	(void)lws_adopt_descriptor_vhost(server->vhost, door->type,
					 (lws_sock_file_fd_type){.sockfd = fd}, NULL,
					 NULL);
	server->entering = NULL;
}

static void on_starved(void *ctx)
{
	const struct door *door = ctx;

	core_refuse(
		door->server->core, 0, REFUSAL_FILES,
		"no file descriptor for another connection: raise the limit (ulimit -n, "
		"LimitNOFILE) or the system's (fs.file-max)");
}

/* Others than ours come here as well, and were never counted. */
static void on_destroyed(struct lws *wsi)
{
	struct visitor *visitor = visitor_of(wsi);

	if (!visitor)
		return;
	visitor->server->sockets--;
	tally_remove(&visitor->server->socket_tally, address_key(&visitor->peer));
	if (visitor->is_counted)
		tally_remove(&visitor->server->connection_tally,
			     address_key(&visitor->client));
	free(visitor);
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
	case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE:
		on_peer_close(server_of(wsi), session);
		return 0;
	case LWS_CALLBACK_SERVER_WRITEABLE:
		return on_writable(server_of(wsi), wsi, session);
	case LWS_CALLBACK_TIMER:
		return session && session->connection ? on_timer(wsi, session) : 0;
	case LWS_CALLBACK_WS_SERVER_DROP_PROTOCOL:
		on_drop(wsi, session);
		return 0;
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
	case LWS_CALLBACK_SERVER_NEW_CLIENT_INSTANTIATED:
		on_accepted(server_of(wsi), wsi);
		return 0;
	case LWS_CALLBACK_WSI_DESTROY:
		on_destroyed(wsi);
		return 0;
	case LWS_CALLBACK_ADD_HEADERS:
		return on_add_headers(wsi, in);
	case LWS_CALLBACK_OPENSSL_LOAD_EXTRA_SERVER_VERIFY_CERTS:
		on_tls_context(in, user);
		return 0;
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

static struct lws_vhost *create_vhost(struct server *server, const struct tls *tls)
{
	struct lws_context_creation_info info = {
		.port = CONTEXT_PORT_NO_LISTEN_SERVER,
		.vhost_name = "relay",
		.protocols = protocols,
		.user = server,
	};

	if (tls) {
		info.options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
		info.ssl_cert_filepath = tls_cert_path(tls);
		info.ssl_private_key_filepath = tls_key_path(tls);
		info.alpn = "http/1.1";
	}
	return lws_create_vhost(server->loop->lws, &info);
}

static bool open_door(struct server *server, struct door *door, const char *host,
		      uint16_t port, const struct tls *tls, struct err *err)
{
	door->server = server;
	door->type = LWS_ADOPT_SOCKET | LWS_ADOPT_HTTP | (tls ? LWS_ADOPT_ALLOW_SSL : 0);
	door->listener =
		listener_create(server->loop, host, port,
				door == &server->metrics ? "--metrics" : "--listen",
				on_socket, on_starved, door, err);
	if (door->listener)
		door->port = listener_port(door->listener);
	return door->listener != NULL;
}

/* Of @wanted connections, as many as there can be files; the soft limit was raised when
 * the loop was made. */
static uint64_t connections_max(uint64_t wanted)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 ||
	    limit.rlim_cur >= wanted + FILES_RESERVED)
		return wanted;
	return limit.rlim_cur > FILES_RESERVED ? limit.rlim_cur - FILES_RESERVED : 1;
}

void server_set_options(struct server *server, const struct server_options *options)
{
	uint64_t possible = connections_max(options->connections_max);
	struct tls *tls = server->options.tls;

	if (possible < options->connections_max &&
	    possible != server->options.connections_max)
		log_warn("relay",
			 "at most %" PRIu64 " connections: the limit of open files "
			 "allows no more, raise it (ulimit -n, LimitNOFILE)",
			 possible);
	server->options = *options;
	server->options.connections_max = possible;
	server->options.tls = tls;
}

struct server *server_create(struct loop *loop, struct core *core,
			     const struct server_options *options, struct err *err)
{
	struct server *server = mem_alloc(sizeof(*server));

	server->loop = loop;
	server->core = core;
	server->options.tls = options->tls;
	server_set_options(server, options);
	tally_init(&server->socket_tally);
	tally_init(&server->connection_tally);
	buf_init(&server->forwarded, FORWARDED_MAX);
	outgoing_init(&server->outgoing);
	server->vhost = create_vhost(server, options->tls);
	if (!server->vhost) {
		(void)err_set(err, ERR_SYSTEM, "libwebsockets cannot serve");
		goto out;
	}
	if (!open_door(server, &server->relay, options->host, options->port, options->tls,
		       err) ||
	    (options->metrics_host &&
	     !open_door(server, &server->metrics, options->metrics_host,
			options->metrics_port, NULL, err)))
		goto out;
	loop_before_wait(loop, before_wait, server);
	return server;
out:
	/* A vhost that was made goes with the loop; it has no client yet. */
	server_close(server);
	server_destroy(server);
	return NULL;
}

uint16_t server_port(const struct server *server)
{
	return server->relay.port;
}

uint16_t server_metrics_port(const struct server *server)
{
	return server->metrics.port;
}

void server_stop(struct server *server, void (*on_stopped)(void *ctx), void *ctx)
{
	struct connection *at;

	publish_settle(server->core);
	server->on_stopped = on_stopped;
	server->ctx = ctx;
	for (at = server->core->connections; at; at = at->next)
		connection_close(at, CLOSE_GOING_AWAY, "the relay stops");
	if (!server->core->connections)
		on_stopped(ctx);
}

void server_close(struct server *server)
{
	if (!server)
		return;
	listener_destroy(server->relay.listener);
	listener_destroy(server->metrics.listener);
	server->relay.listener = NULL;
	server->metrics.listener = NULL;
}

void server_destroy(struct server *server)
{
	if (!server)
		return;
	tally_finish(&server->socket_tally);
	tally_finish(&server->connection_tally);
	buf_finish(&server->forwarded);
	outgoing_finish(&server->outgoing);
	free(server);
}
