#include "observer/http/h2.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <uv.h>

#include "observer/http/figures.h"
#include "observer/http/h2_session.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/port.h"

#define BACKLOG 128
#define READ_BYTES 65536
/* Plaintext that is sealed and handed to the socket at one time; measured: the libuv and
 * nghttp2 trial reached 540,000 answers a second with it. */
#define PLAIN_BYTES (64u << 10)
/* Sealed bytes that may wait: those, and what TLS itself has to say. */
#define SEALED_MAX (4 * PLAIN_BYTES)
/* RFC 8446, 4.6.3: new keys are for after millions of records, and each costs us much
 * more than who asks for them. Of one connection; our choice. */
#define KEY_UPDATES_MAX 256
#define TICK_MS 1000
/* After the last word: so long we read on, so that the peer's kernel does not drop it. */
#define LINGER_MS 2000

enum peer_state {
	PEER_GREETING, /* the TLS handshake */
	PEER_OPEN,
	PEER_ENDING, /* what waits goes out, what comes is dropped */
	PEER_CLOSED, /* freed when libuv lets go */
};

struct peer {
	struct peer *next, **link; /* the oldest is last */
	struct h2_server *server;
	enum peer_state state;
	uv_tcp_t tcp;
	SSL *ssl;
	BIO *in; /* the SSL's */
	struct h2_session *session;
	struct buf sealed;  /* what TLS says, not yet handed to the socket */
	struct buf writing; /* what was, until it is written */
	uv_write_t write;
	uv_shutdown_t shutdown;
	bool is_writing, finished;
	unsigned key_updates; /* that the peer sent */
	bool awake;           /* its session has something */
	int64_t since_ms;     /* the state began */
	int64_t written_ms;   /* the write began */
};

struct h2_server {
	struct h2_options options;
	struct loop *loop;
	SSL_CTX *context;
	uv_tcp_t listener;
	uv_prepare_t prepare;
	uv_timer_t tick;
	struct peer *peers;
	unsigned count;
	uint16_t port;
	bool awake;
	unsigned handles; /* that libuv has yet to let go */
	struct buf plain; /* between session and TLS */
	BIO_METHOD *sink; /* between TLS and the socket */
	char read_buffer[READ_BYTES];
};

static const char no_h2[] = "HTTP/1.1 505 HTTP Version Not Supported\r\n"
			    "Content-Type: text/plain; charset=utf-8\r\n"
			    "Connection: close\r\n\r\n"
			    "This port speaks HTTP/2 only, which every browser does.\n";
static const char no_tls[] = "HTTP/1.1 400 Bad Request\r\n"
			     "Content-Type: text/plain; charset=utf-8\r\n"
			     "Connection: close\r\n\r\n"
			     "This port speaks TLS: the address begins with https://\n";

static struct http_way_figures *figures_of(struct h2_server *server)
{
	return &server->options.budget->figures->ways[HTTP_BY_TLS];
}

/* ---- what TLS says ---- */

/* OpenSSL's own BIO of memory clears its room before it copies into it, and is copied
 * from once more. */
static int append_sealed(BIO *bio, const char *bytes, int len)
{
	struct buf *out = BIO_get_data(bio);

	return buf_append(out, (struct slice){bytes, (size_t)len}) ? len : -1;
}

static long control_sealed(BIO *bio, int command, long number, void *pointer)
{
	(void)bio;
	(void)number;
	(void)pointer;
	return command == BIO_CTRL_FLUSH; /* it always is */
}

static BIO_METHOD *make_sink(void)
{
	BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "sealed");

	assert(method && BIO_meth_set_write(method, append_sealed) == 1 &&
	       BIO_meth_set_ctrl(method, control_sealed) == 1);
	return method;
}

static BIO *open_sink(struct peer *peer)
{
	BIO *bio = BIO_new(peer->server->sink);

	assert(bio); /* no memory */
	BIO_set_data(bio, &peer->sealed);
	BIO_set_init(bio, 1);
	return bio;
}

/* ---- the end of a connection ---- */

/* Frees the server with the last of its handles. */
static void let_go(struct h2_server *server)
{
	if (--server->handles)
		return;
	buf_finish(&server->plain);
	BIO_meth_free(server->sink);
	free(server);
}

static void on_closed(uv_handle_t *handle)
{
	struct peer *peer = handle->data;

	SSL_free(peer->ssl); /* and both BIOs */
	buf_finish(&peer->sealed);
	buf_finish(&peer->writing);
	let_go(peer->server);
	free(peer);
}

static void peer_close(struct peer *peer)
{
	if (peer->state == PEER_CLOSED)
		return;
	peer->state = PEER_CLOSED;
	*peer->link = peer->next;
	if (peer->next)
		peer->next->link = peer->link;
	peer->server->count--;
	figures_of(peer->server)->open--;
	if (!peer->server->count)
		(void)uv_timer_stop(&peer->server->tick);
	h2_session_destroy(peer->session);
	peer->session = NULL;
	uv_close((uv_handle_t *)&peer->tcp, on_closed);
}

static void peer_end(struct peer *peer)
{
	if (peer->state >= PEER_ENDING)
		return;
	if (peer->state == PEER_OPEN)
		(void)SSL_shutdown(peer->ssl);
	ERR_clear_error();
	peer->state = PEER_ENDING;
	peer->since_ms = loop_now_ms();
}

/* ---- writing ---- */

static void pump(struct peer *peer);

static void on_written(uv_write_t *write, int status)
{
	struct peer *peer = write->data;

	peer->is_writing = false;
	if (peer->state == PEER_CLOSED)
		return;
	if (status < 0) {
		peer_close(peer);
		return;
	}
	pump(peer);
}

/* Hands what TLS has sealed to the socket. */
static void send_sealed(struct peer *peer)
{
	const struct buf written = peer->writing;
	uv_buf_t bytes;

	peer->writing = peer->sealed;
	peer->sealed = written;
	buf_clear(&peer->sealed);
	bytes = uv_buf_init(peer->writing.ptr, (unsigned)peer->writing.len);
	peer->write.data = peer;
	peer->written_ms = loop_now_ms();
	if (uv_write(&peer->write, (uv_stream_t *)&peer->tcp, &bytes, 1, on_written) != 0)
		peer_close(peer);
	else
		peer->is_writing = true;
}

/* Seals what the session has to say. */
static void seal(struct peer *peer)
{
	struct buf *plain = &peer->server->plain;
	bool goes_on;

	buf_clear(plain);
	goes_on = h2_session_take(peer->session, plain, PLAIN_BYTES, loop_now_ms());
	ERR_clear_error();
	/* Into memory it fails only where the connection is broken. */
	if (plain->len && SSL_write(peer->ssl, plain->ptr, (int)plain->len) <= 0)
		peer_close(peer);
	else if (!goes_on)
		peer_end(peer);
}

static void on_shutdown(uv_shutdown_t *shutdown, int status)
{
	(void)shutdown; /* the peer's end, or LINGER_MS, closes it */
	(void)status;
}

static void finish(struct peer *peer)
{
	if (peer->finished)
		return;
	peer->finished = true;
	if (uv_shutdown(&peer->shutdown, (uv_stream_t *)&peer->tcp, on_shutdown) != 0)
		peer_close(peer);
}

static void pump(struct peer *peer)
{
	if (peer->is_writing)
		return;
	if (peer->state == PEER_OPEN && !peer->sealed.len)
		seal(peer);
	if (peer->state != PEER_CLOSED && peer->sealed.len)
		send_sealed(peer);
	if (peer->state == PEER_ENDING && !peer->is_writing)
		finish(peer);
}

/* ---- reading ---- */

/* Plain HTTP where TLS begins: the answer is plain as well. */
static void say_plainly(struct peer *peer)
{
	buf_clear(&peer->sealed);
	(void)buf_append(&peer->sealed, slice_of(no_tls));
	peer_end(peer);
}

static void on_session_wakes(void *ctx)
{
	struct peer *peer = ctx;

	peer->awake = peer->server->awake = true;
}

static void open_session(struct peer *peer)
{
	const struct h2_session_options options = {
		.handler = peer->server->options.handler,
		.budget = peer->server->options.budget,
		.wake = on_session_wakes,
		.ctx = peer,
	};
	const unsigned char *protocol;
	unsigned len;

	peer->state = PEER_OPEN;
	peer->since_ms = loop_now_ms();
	SSL_get0_alpn_selected(peer->ssl, &protocol, &len);
	if (len == 2 && memcmp(protocol, "h2", 2) == 0) {
		peer->session = h2_session_create(&options, loop_now_ms());
		return;
	}
	(void)SSL_write(peer->ssl, no_h2, sizeof(no_h2) - 1);
	peer_end(peer);
}

static void fail_handshake(struct peer *peer)
{
	peer->server->options.budget->figures->handshakes_failed++;
	if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST)
		say_plainly(peer);
	else
		peer_end(peer); /* with the alert that says why */
}

static void shake_hands(struct peer *peer)
{
	int done;

	ERR_clear_error();
	done = SSL_do_handshake(peer->ssl);
	if (done == 1)
		open_session(peer);
	else if (SSL_get_error(peer->ssl, done) == SSL_ERROR_WANT_READ)
		return;
	else
		fail_handshake(peer);
	ERR_clear_error();
}

/* What TLS says to itself. */
static void on_tls_message(int sent, int version, int type, const void *bytes, size_t len,
			   SSL *ssl, void *ctx)
{
	struct peer *peer = ctx;

	(void)version;
	(void)ssl;
	if (!sent && type == SSL3_RT_HANDSHAKE && len &&
	    *(const unsigned char *)bytes == SSL3_MT_KEY_UPDATE)
		peer->key_updates++;
}

static void open_sealed(struct peer *peer)
{
	char bytes[16384]; /* RFC 8446, 5.1: a record holds no more */

	while (peer->state == PEER_OPEN) {
		int len;

		ERR_clear_error();
		len = SSL_read(peer->ssl, bytes, sizeof(bytes));
		if (peer->key_updates > KEY_UPDATES_MAX) {
			peer_end(peer);
			break;
		}
		if (len > 0) {
			h2_session_receive(peer->session,
					   (struct slice){bytes, (size_t)len},
					   loop_now_ms());
			continue;
		}
		if (SSL_get_error(peer->ssl, len) != SSL_ERROR_WANT_READ)
			peer_end(peer);
		break;
	}
	ERR_clear_error();
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
	struct peer *peer = handle->data;

	(void)suggested;
	*out = uv_buf_init(peer->server->read_buffer, READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *bytes)
{
	struct peer *peer = stream->data;

	if (len < 0) {
		peer_close(peer);
		return;
	}
	if (len == 0 || peer->state >= PEER_ENDING)
		return;
	(void)BIO_write(peer->in, bytes->base, (int)len);
	if (peer->state == PEER_GREETING)
		shake_hands(peer);
	open_sealed(peer);
	/* One who makes TLS talk and reads nothing of it. */
	if (peer->sealed.len > SEALED_MAX)
		peer_close(peer);
	else
		pump(peer);
}

/* ---- connections ---- */

static bool is_trusted(const struct peer *peer)
{
	return peer->session && h2_session_is_trusted(peer->session);
}

/* False: all that are here have shown the token. */
static bool make_room(struct h2_server *server)
{
	struct peer *oldest = NULL;

	if (server->count < BROKER_CONNECTIONS_MAX)
		return true;
	for (struct peer *peer = server->peers; peer; peer = peer->next)
		if (!is_trusted(peer))
			oldest = peer;
	if (!oldest) {
		figures_of(server)->refused++;
		return false;
	}
	figures_of(server)->pushed_out++;
	peer_close(oldest);
	return true;
}

static struct peer *peer_create(struct h2_server *server)
{
	struct peer *peer = mem_alloc(sizeof(*peer));

	peer->server = server;
	peer->ssl = SSL_new(server->context);
	peer->in = BIO_new(BIO_s_mem());
	assert(peer->ssl && peer->in); /* no memory */
	SSL_set_bio(peer->ssl, peer->in, open_sink(peer));
	SSL_set_accept_state(peer->ssl);
	SSL_set_msg_callback(peer->ssl, on_tls_message);
	(void)SSL_set_msg_callback_arg(peer->ssl, peer);
	peer->sealed.max = peer->writing.max = 2 * SEALED_MAX;
	peer->since_ms = peer->written_ms = loop_now_ms();
	peer->tcp.data = peer;
	peer->next = server->peers;
	if (peer->next)
		peer->next->link = &peer->next;
	peer->link = &server->peers;
	server->peers = peer;
	server->count++;
	server->handles++;
	figures_of(server)->open++;
	return peer;
}

static void on_tick(uv_timer_t *timer);

static void on_connection(uv_stream_t *listener, int status)
{
	struct h2_server *server = listener->data;
	struct peer *peer;
	bool has_room;
	int failed;

	if (status < 0)
		return;
	has_room = make_room(server);
	peer = peer_create(server);
	failed = uv_tcp_init(server->loop->uv, &peer->tcp);
	assert(failed == 0); /* libuv: no descriptor is made yet */
	if (uv_accept(listener, (uv_stream_t *)&peer->tcp) != 0 || !has_room ||
	    uv_read_start((uv_stream_t *)&peer->tcp, on_room, on_read) != 0) {
		peer_close(peer);
		return;
	}
	figures_of(server)->taken++;
	(void)uv_tcp_nodelay(&peer->tcp, 1);
	if (!uv_is_active((const uv_handle_t *)&server->tick))
		(void)uv_timer_start(&server->tick, on_tick, TICK_MS, TICK_MS);
}

static bool is_over(struct peer *peer, int64_t now)
{
	if (peer->is_writing && now - peer->written_ms > BROKER_H2_UNREAD_S * 1000)
		return true;
	switch (peer->state) {
	case PEER_GREETING:
		return now - peer->since_ms > BROKER_HANDSHAKE_S * 1000;
	case PEER_OPEN:
		return !h2_session_tick(peer->session, now);
	case PEER_ENDING:
		return now - peer->since_ms > LINGER_MS;
	case PEER_CLOSED:
		break;
	}
	return false;
}

static void on_tick(uv_timer_t *timer)
{
	struct h2_server *server = timer->data;
	const int64_t now = loop_now_ms();
	struct peer *peer, *next;

	for (peer = server->peers; peer; peer = next) {
		next = peer->next;
		if (is_over(peer, now))
			peer_close(peer);
	}
}

/* What this turn of the loop left to be sent goes out in one go. */
static void on_prepare(uv_prepare_t *prepare)
{
	struct h2_server *server = prepare->data;
	struct peer *peer, *next;

	if (!server->awake)
		return;
	server->awake = false;
	for (peer = server->peers; peer; peer = next) {
		next = peer->next;
		if (!peer->awake)
			continue;
		peer->awake = false;
		pump(peer);
	}
}

/* ---- the server ---- */

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
			   const unsigned char *offered, unsigned offered_len, void *ctx)
{
	/* The second only to be told in its own words that the first is needed. */
	static const unsigned char ours[] = "\x02h2\x08http/1.1";
	unsigned char *chosen;

	(void)ssl;
	(void)ctx;
	if (SSL_select_next_proto(&chosen, out_len, ours, sizeof(ours) - 1, offered,
				  offered_len) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL; /* no_application_protocol */
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

bool h2_server_renew(struct h2_server *server, struct err *err)
{
	SSL_CTX *context = server->context = tls_context(server->options.tls);

	SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
	(void)SSL_CTX_set_options(context,
				  SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	(void)SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
	(void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	/* RFC 9113, 9.2.2: with TLS 1.2 only ciphers that are not on its list. */
	if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 ||
	    SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1)
		return err_set(err, ERR_SYSTEM, "OpenSSL knows no TLS 1.2");
	return true;
}

static bool listen_tls(struct h2_server *server, struct err *err)
{
	const char *host = server->options.host;
	struct sockaddr_storage address;
	int len = sizeof(address), failed;

	failed = strchr(host, ':') ? uv_ip6_addr(host, server->options.port,
						 (struct sockaddr_in6 *)&address)
				   : uv_ip4_addr(host, server->options.port,
						 (struct sockaddr_in *)&address);
	if (failed)
		return err_set(err, ERR_MALFORMED,
			       "--tls %s is no numeric address: give that of an "
			       "interface, or 0.0.0.0 for all",
			       host);
	if (uv_tcp_bind(&server->listener, (const struct sockaddr *)&address, 0) != 0 ||
	    uv_listen((uv_stream_t *)&server->listener, BACKLOG, on_connection) != 0) {
		port_explain(host, server->options.port, "--tls", err);
		return false;
	}
	(void)uv_tcp_getsockname(&server->listener, (struct sockaddr *)&address, &len);
	server->port = ntohs(address.ss_family == AF_INET6
				     ? ((struct sockaddr_in6 *)&address)->sin6_port
				     : ((struct sockaddr_in *)&address)->sin_port);
	return true;
}

struct h2_server *h2_server_create(struct loop *loop, const struct h2_options *options,
				   struct err *err)
{
	struct h2_server *server = mem_alloc(sizeof(*server));

	server->loop = loop;
	server->options = *options;
	server->handles = 3;
	server->sink = make_sink();
	server->plain.max = PLAIN_BYTES + 32768; /* nghttp2 goes over by one frame */
	server->listener.data = server->prepare.data = server->tick.data = server;
	(void)uv_tcp_init(loop->uv, &server->listener); /* none of the three can fail */
	(void)uv_prepare_init(loop->uv, &server->prepare);
	(void)uv_timer_init(loop->uv, &server->tick);
	(void)uv_prepare_start(&server->prepare, on_prepare);
	if (h2_server_renew(server, err) && listen_tls(server, err))
		return server;
	h2_server_destroy(server);
	return NULL;
}

static void on_server_closed(uv_handle_t *handle)
{
	let_go(handle->data);
}

void h2_server_destroy(struct h2_server *server)
{
	if (!server)
		return;
	while (server->peers) {
		struct peer *peer = server->peers;

		if (peer->session) {
			h2_session_end(peer->session);
			pump(peer);
		}
		if (peer->state != PEER_CLOSED)
			peer_close(peer);
	}
	uv_close((uv_handle_t *)&server->listener, on_server_closed);
	uv_close((uv_handle_t *)&server->prepare, on_server_closed);
	uv_close((uv_handle_t *)&server->tick, on_server_closed);
}

uint16_t h2_server_port(const struct h2_server *server)
{
	return server->port;
}
