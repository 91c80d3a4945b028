#include "wire/link/conn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libwebsockets.h>
#include <openssl/ssl.h>

#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"
#include "wire/link/nip11.h"

#define RX_BUFFER_BYTES \
	65536 /* handed to us at once; facts on lws: half of the service buffer */
#define MESSAGE_BYTES_MAX \
	(2 * RELAY_MESSAGE_MAX) /* an event and its envelope, with room */
#define PING_BYTES 8

struct message {
	struct message *next;
	struct buf bytes; /* LWS_PRE bytes of head room first */
};

/* Ends with its wsi. */
struct conn {
	const struct conn_events *events; /* NULL: nobody is interested any more */
	void *ctx;
	struct lws *wsi;
	bool document;   /* not the WebSocket */
	bool connecting; /* inside lws_client_connect_via_info() */
	bool gone;       /* lws let go of it while connecting */
	char reason[CONN_REASON_BYTES];
	struct buf in; /* pieces of a message, or of the document */

	struct message *first, **last; /* to be sent */
	size_t queued_bytes;
	bool ping_due;
	uint8_t ping_payload[PING_BYTES];
	int64_t ping_sent_ms; /* 0: no ping is under way */
};

/* ---- What is sent ---- */

void conn_message_init(struct buf *message, size_t max)
{
	buf_init(message, LWS_PRE + max);
	(void)buf_extend(message, LWS_PRE);
}

void conn_send(struct conn *conn, struct buf *message)
{
	struct message *waiting = mem_alloc(sizeof(*waiting));

	assert(buf_ok(message));
	waiting->bytes = *message;
	*conn->last = waiting;
	conn->last = &waiting->next;
	conn->queued_bytes += message->len;
	(void)lws_callback_on_writable(conn->wsi);
}

size_t conn_queued(const struct conn *conn)
{
	return conn->queued_bytes;
}

void conn_ping(struct conn *conn)
{
	conn->ping_due = true;
	(void)lws_callback_on_writable(conn->wsi);
}

static void remove_first(struct conn *conn)
{
	struct message *message = conn->first;

	conn->first = message->next;
	if (conn->first == NULL)
		conn->last = &conn->first;
	conn->queued_bytes -= message->bytes.len;
	buf_finish(&message->bytes);
	free(message);
}

/* One lws_write each; a client's is masked in place, which is why no text is shared. */
static bool write_ping(struct conn *conn)
{
	uint8_t bytes[LWS_PRE + PING_BYTES];

	loop_random(conn->ping_payload, PING_BYTES);
	memcpy(bytes + LWS_PRE, conn->ping_payload, PING_BYTES);
	conn->ping_due = false;
	conn->ping_sent_ms = loop_now_ms();
	return lws_write(conn->wsi, bytes + LWS_PRE, PING_BYTES, LWS_WRITE_PING) >= 0;
}

static bool write_first(struct conn *conn)
{
	struct buf *message = &conn->first->bytes;
	bool ok = lws_write(conn->wsi, (uint8_t *)message->ptr + LWS_PRE,
			    message->len - LWS_PRE, LWS_WRITE_TEXT) >= 0;

	remove_first(conn);
	return ok;
}

/* Returns what the lws callback must: -1 closes. */
static int on_writable(struct conn *conn)
{
	if (conn->ping_due && !lws_send_pipe_choked(conn->wsi) && !write_ping(conn))
		return -1;
	while (conn->first != NULL && !lws_send_pipe_choked(conn->wsi)) {
		if (!write_first(conn))
			return -1;
	}
	if (conn->first != NULL || conn->ping_due)
		(void)lws_callback_on_writable(conn->wsi);
	conn->events->on_writable(conn->ctx);
	return 0;
}

/* ---- How it ends ---- */

/* Nobody's any more. */
static void let_go(struct conn *conn)
{
	conn->events = NULL;
	while (conn->first != NULL)
		remove_first(conn);
}

void conn_drop(struct conn *conn)
{
	if (conn == NULL)
		return;
	let_go(conn);
	/* Not at once: it may be what calls us. */
	if (conn->wsi != NULL)
		lws_set_timeout(conn->wsi, PENDING_TIMEOUT_CLOSE_SEND, LWS_TO_KILL_ASYNC);
}

/* Tells the owner; lws closes, or has closed. */
static void end(struct conn *conn, enum conn_end how, const char *reason)
{
	const struct conn_events *events = conn->events;

	let_go(conn);
	events->on_end(conn->ctx, how, reason);
}

static void end_document(struct conn *conn, struct slice text)
{
	const struct conn_events *events = conn->events;

	let_go(conn);
	events->on_document(conn->ctx, text);
}

static void conn_free(struct conn *conn)
{
	buf_finish(&conn->in);
	free(conn);
}

/* The wsi is gone. Should it go without a word before, the owner must not wait for it. */
static void on_wsi_destroyed(struct conn *conn)
{
	conn->wsi = NULL;
	if (conn->connecting) {
		conn->gone = true;
		return;
	}
	if (conn->events != NULL && conn->document)
		end_document(conn, SLICE(""));
	else if (conn->events != NULL)
		end(conn, CONN_LOST, "");
	conn_free(conn);
}

/* ---- The WebSocket ---- */

static int on_data(struct conn *conn, struct slice piece)
{
	struct lws *wsi = conn->wsi;
	bool last = lws_is_final_fragment(wsi) && lws_remaining_packet_payload(wsi) == 0;

	if (lws_frame_is_binary(wsi)) {
		end(conn, CONN_BROKEN, "the relay sent a binary message");
		return -1;
	}
	if (last && conn->in.len == 0) {
		/* Whole, as nearly all are: read where lws has it. */
		conn->events->on_text(conn->ctx, piece);
	} else if (!buf_append(&conn->in, piece)) {
		(void)snprintf(conn->reason, sizeof(conn->reason),
			       "the relay sent a message of over %d bytes",
			       MESSAGE_BYTES_MAX);
		end(conn, CONN_BROKEN, conn->reason);
		return -1;
	} else if (last) {
		conn->events->on_text(conn->ctx, buf_slice(&conn->in));
		buf_clear(&conn->in);
	}
	return conn->events != NULL ? 0 : -1;
}

static void on_pong(struct conn *conn, struct slice payload)
{
	int64_t rtt_ms = loop_now_ms() - conn->ping_sent_ms;

	if (conn->ping_sent_ms == 0 || payload.len != PING_BYTES ||
	    memcmp(payload.ptr, conn->ping_payload, PING_BYTES) != 0)
		return;
	conn->ping_sent_ms = 0;
	conn->events->on_pong(conn->ctx, rtt_ms);
}

/* Why the relay closed, in its own words where it gave some. */
static void note_close(struct conn *conn, struct slice in)
{
	char quoted[LOG_QUOTE_BYTES];
	unsigned code;

	if (in.len < 2)
		return;
	code = (unsigned)(uint8_t)in.ptr[0] << 8 | (uint8_t)in.ptr[1];
	(void)snprintf(conn->reason, sizeof(conn->reason), " (%u %.80s)", code,
		       log_quote(slice_sub(in, 2, in.len), quoted));
}

/* Puts lws's words into the user's, where it has none worth reading. */
static void note_refusal(struct conn *conn, struct slice words)
{
	char quoted[LOG_QUOTE_BYTES];
	const char *text = quoted;
	SSL *ssl = conn->wsi != NULL ? lws_get_ssl(conn->wsi) : NULL;
	long verdict = ssl != NULL ? SSL_get_verify_result(ssl) : X509_V_OK;

	words.len = slice_find(words, '\0');
	(void)log_quote(words, quoted);
	if (verdict != X509_V_OK)
		text = X509_verify_cert_error_string(verdict);
	else if (words.len == 0 || slice_eq(words, SLICE("closed before established")))
		text = "nothing answers there";
	(void)snprintf(conn->reason, sizeof(conn->reason), "%.110s", text);
}

static int on_websocket(struct conn *conn, enum lws_callback_reasons reason,
			struct slice in)
{
	switch ((int)reason) { /* of some hundred, these concern us */
	case LWS_CALLBACK_CLIENT_ESTABLISHED:
		conn->events->on_open(conn->ctx);
		return 0;
	case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
		note_refusal(conn, in);
		if (!conn->connecting) /* else start() sees that it failed */
			end(conn, CONN_REFUSED, conn->reason);
		return 0;
	case LWS_CALLBACK_CLIENT_RECEIVE:
		return on_data(conn, in);
	case LWS_CALLBACK_CLIENT_RECEIVE_PONG:
		on_pong(conn, in);
		return 0;
	case LWS_CALLBACK_CLIENT_WRITEABLE:
		return on_writable(conn);
	case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE:
		note_close(conn, in);
		return 0;
	case LWS_CALLBACK_CLIENT_CLOSED:
		conn->wsi = NULL; /* lws is closing it already */
		end(conn, CONN_CLOSED, conn->reason);
		return 0;
	default:
		return 0;
	}
}

/* ---- The document ---- */

/* Appends the header that makes it a NIP-11 request. */
static int ask_for_nip11(struct lws *wsi, unsigned char **at, size_t room)
{
	static const char accept[] = "application/nostr+json";

	assert(at != NULL && *at != NULL);
	return lws_add_http_header_by_token(wsi, WSI_TOKEN_HTTP_ACCEPT,
					    (const unsigned char *)accept,
					    sizeof(accept) - 1, at, *at + room);
}

static void read_date(struct conn *conn)
{
	char text[64];
	int len = lws_hdr_copy(conn->wsi, text, sizeof(text), WSI_TOKEN_HTTP_DATE);

	if (len > 0)
		conn->events->on_date(conn->ctx, (struct slice){text, (size_t)len});
}

/* Reads what has come; lws hands it to RECEIVE_CLIENT_HTTP_READ from in here. */
static int drain(struct lws *wsi)
{
	char space[LWS_PRE + 4096];
	char *at = space + LWS_PRE;
	int len = 4096;

	return lws_http_client_read(wsi, &at, &len);
}

static int on_http(struct conn *conn, enum lws_callback_reasons reason, void *in,
		   size_t len)
{
	struct lws *wsi = conn->wsi;

	switch ((int)reason) {
	case LWS_CALLBACK_CLIENT_APPEND_HANDSHAKE_HEADER:
		return ask_for_nip11(wsi, in, len);
	case LWS_CALLBACK_ESTABLISHED_CLIENT_HTTP:
		read_date(conn);
		if (lws_http_client_http_response(wsi) == 200)
			return 0;
		end_document(conn, SLICE(""));
		return -1;
	case LWS_CALLBACK_RECEIVE_CLIENT_HTTP:
		return drain(wsi) < 0 ? -1 : 0;
	case LWS_CALLBACK_RECEIVE_CLIENT_HTTP_READ:
		return buf_append(&conn->in, (struct slice){in, len}) ? 0 : -1;
	case LWS_CALLBACK_COMPLETED_CLIENT_HTTP:
		end_document(conn, buf_slice(&conn->in));
		return -1;
	case LWS_CALLBACK_CLOSED_CLIENT_HTTP:
	case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
		if (conn->connecting)
			return 0; /* start() sees that it failed */
		conn->wsi = NULL; /* lws is closing it already */
		end_document(conn, buf_slice(&conn->in));
		return 0;
	default:
		return 0;
	}
}

/* ---- Callbacks of lws ---- */

/* Reasons for which -1 means: close. For others it can mean that lws may not clean up. */
static bool is_stream(enum lws_callback_reasons reason)
{
	switch ((int)reason) {
	case LWS_CALLBACK_CLIENT_FILTER_PRE_ESTABLISH:
	case LWS_CALLBACK_CLIENT_ESTABLISHED:
	case LWS_CALLBACK_CLIENT_RECEIVE:
	case LWS_CALLBACK_CLIENT_WRITEABLE:
	case LWS_CALLBACK_ESTABLISHED_CLIENT_HTTP:
	case LWS_CALLBACK_RECEIVE_CLIENT_HTTP:
	case LWS_CALLBACK_RECEIVE_CLIENT_HTTP_READ:
		return true;
	default:
		return false;
	}
}

static int on_lws(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		  size_t len)
{
	struct conn *conn;
	struct slice bytes = {in, in != NULL ? len : 0};

	if (reason == LWS_CALLBACK_OPENSSL_LOAD_EXTRA_CLIENT_VERIFY_CERTS) {
		/* The system's authorities, or SSL_CERT_FILE and SSL_CERT_DIR: the paths
		 * compiled into lws may be others. */
		(void)SSL_CTX_set_default_verify_paths(user);
		return 0;
	}
	conn = wsi != NULL ? lws_get_opaque_user_data(wsi) : NULL;
	if (conn == NULL)
		return 0;
	conn->wsi = wsi;
	if (reason == LWS_CALLBACK_WSI_DESTROY) {
		on_wsi_destroyed(conn);
		return 0;
	}
	if (conn->events == NULL)
		return is_stream(reason) ? -1 : 0;
	if (conn->document)
		return on_http(conn, reason, in, len);
	return on_websocket(conn, reason, bytes);
}

/* ---- Connecting ---- */

static const lws_retry_bo_t idle_policy = {
	.secs_since_valid_ping = LOOP_PING_S,
	.secs_since_valid_hangup = LOOP_HANGUP_S,
};

static const struct lws_protocols protocols[] = {
	{"perch-link", on_lws, 0, RX_BUFFER_BYTES, 0, NULL, 0},
	{NULL, NULL, 0, 0, 0, NULL, 0},
};

static const char *vhost_name(bool tls)
{
	return tls ? "perch-link-tls" : "perch-link";
}

/* All links of a loop share one vhost, or two: a plain one need not read the system's
 * authorities, which takes longer than all else that a start does. They end with the
 * loop. */
bool conn_prepare(struct loop *loop, bool tls, struct err *err)
{
	struct lws_context_creation_info info = {
		.options = tls ? LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT : 0,
		.port = CONTEXT_PORT_NO_LISTEN,
		.vhost_name = vhost_name(tls),
		.protocols = protocols,
		.retry_and_idle_policy = &idle_policy,
		.alpn = "http/1.1",
	};

	if (lws_get_vhost_by_name(loop->lws, info.vhost_name) != NULL ||
	    lws_create_vhost(loop->lws, &info) != NULL)
		return true;
	return err_set(err, ERR_SYSTEM, "libwebsockets made no client");
}

static struct conn *start(const struct conn_options *options, bool document,
			  char reason[CONN_REASON_BYTES])
{
	const struct link_url *url = options->url;
	struct lws_context *lws = options->loop->lws;
	struct conn *conn = mem_alloc(sizeof(*conn));
	struct lws_client_connect_info info = {
		.context = lws,
		.vhost = lws_get_vhost_by_name(lws, vhost_name(url->tls)),
		.address = options->address,
		.port = url->port,
		.path = url->path,
		.host = url->authority,
		.ssl_connection =
			(url->tls ? LCCSCF_USE_SSL : 0) | LCCSCF_HTTP_NO_FOLLOW_REDIRECT,
		.method = document ? "GET" : NULL,
		.alpn = "http/1.1",
		.local_protocol_name = protocols[0].name,
		.opaque_user_data = conn,
		.pwsi = &conn->wsi,
		.retry_and_idle_policy = &idle_policy,
	};
	struct lws *wsi;

	conn->events = options->events;
	conn->ctx = options->ctx;
	conn->document = document;
	conn->last = &conn->first;
	buf_init(&conn->in, document ? NIP11_BYTES_MAX : MESSAGE_BYTES_MAX);
	conn->connecting = true;
	wsi = lws_client_connect_via_info(&info);
	conn->connecting = false;
	if (wsi != NULL && !conn->gone)
		return conn;
	memcpy(reason, conn->reason, sizeof(conn->reason));
	conn_free(conn);
	return NULL;
}

struct conn *conn_open(const struct conn_options *options, char reason[CONN_REASON_BYTES])
{
	return start(options, false, reason);
}

struct conn *conn_fetch(const struct conn_options *options,
			char reason[CONN_REASON_BYTES])
{
	return start(options, true, reason);
}
