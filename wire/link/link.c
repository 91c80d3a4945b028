#include "wire/link/link.h"

#include <arpa/inet.h>
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libwebsockets.h>
#include <openssl/ssl.h>

#include "wire/base/arena.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"
#include "wire/link/link_url.h"
#include "wire/link/nip11.h"
#include "wire/link/resolve.h"
#include "wire/nostr/nip42.h"

#define RX_BUFFER_BYTES \
	65536 /* handed to us at once; facts on lws: half of the service buffer */
#define MESSAGE_BYTES_MAX \
	(2 * RELAY_MESSAGE_MAX) /* an event and its envelope, with room */
#define CHALLENGE_BYTES_MAX 1024
#define CHALLENGE_WAIT_MS 1000 /* for relays that ask for no authentication */
#define RETRY_FIRST_MS 500
#define RETRY_MAX_MS 30000
#define RETRY_SETTLED_MS 10000 /* ready for so long: the next back-off starts anew */
#define NOTICES_LOGGED_MAX 16  /* of one connection; our choice */
#define PING_BYTES 8
/* The years 2020 to 2100: another date is no clock to go by. */
#define DATE_MIN_MS INT64_C(1577836800000)
#define DATE_MAX_MS INT64_C(4102444800000)

enum phase {
	PHASE_WAITING, /* for the back-off to end */
	PHASE_RESOLVING,
	PHASE_CONNECTING,     /* until the WebSocket handshake is done */
	PHASE_AUTHENTICATING, /* and reading NIP-11 */
	PHASE_READY,
};

/* One connection of lws: it outlives the link's interest in it, because lws closes in its
 * own time. It ends with its wsi. */
struct conn {
	struct link *link; /* NULL: nobody is interested any more */
	struct lws *wsi;
	bool http;       /* the NIP-11 request, not the WebSocket */
	bool connecting; /* inside lws_client_connect_via_info() */
	bool gone;       /* lws let go of it while connecting */
	char reason[120];
	struct buf in; /* pieces of a message, or of the document */
};

struct sub {
	struct sub *next;
	struct slice id, filter; /* owned */
	bool sent;               /* on this connection, and not closed by the relay */
};

struct message {
	struct message *next;
	struct buf bytes; /* LWS_PRE bytes of head room first */
};

struct link {
	struct loop *loop;
	const struct link_events *events;
	void *ctx;
	const struct keypair *keypair;
	struct slice auth_tag; /* owned */
	char *url_text;
	struct link_url url;
	uint32_t deadline_ms;

	enum phase phase;
	struct timer *retry, *deadline, *challenge_wait, *nip11_wait, *ping;
	uint64_t retry_ms; /* of the last back-off, without jitter; 0: none yet */
	int64_t ready_at_ms;

	struct resolve *resolve;
	struct resolve_result addresses;
	size_t next_address;
	struct conn *ws, *http;

	char *challenge; /* NULL: none came */
	bool challenge_waited;
	bool nip11_done;
	bool auth_pending; /* auth_id waits for its OK */
	bool authenticated;
	uint8_t auth_id[32];
	unsigned notices; /* of this connection */

	struct link_info info;
	struct sub *subs; /* in the order in which they were made */
	struct message *first, **last;
	size_t queued_bytes;
	bool publish_refused;
	bool ping_due;
	uint8_t ping_payload[PING_BYTES];
	int64_t ping_sent_ms; /* 0: no ping is under way */
	int64_t rtt_ms;
	struct arena arena; /* of the message being handled */
};

static void fail(struct link *link, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void on_ws_established(struct link *link);
static void connect_next(struct link *link);

/* ---- What is sent ---- */

static struct message *message_create(size_t max)
{
	struct message *message = mem_alloc(sizeof(*message));

	buf_init(&message->bytes, LWS_PRE + max);
	(void)buf_extend(&message->bytes, LWS_PRE);
	return message;
}

static void message_destroy(struct message *message)
{
	buf_finish(&message->bytes);
	free(message);
}

/* Takes @message. */
static void enqueue(struct link *link, struct message *message)
{
	assert(buf_ok(&message->bytes));
	*link->last = message;
	link->last = &message->next;
	link->queued_bytes += message->bytes.len;
	(void)lws_callback_on_writable(link->ws->wsi);
}

static void clear_queue(struct link *link)
{
	struct message *message;

	while ((message = link->first) != NULL) {
		link->first = message->next;
		message_destroy(message);
	}
	link->last = &link->first;
	link->queued_bytes = 0;
}

/* The relay's time as well as we know it, Unix seconds. */
static int64_t relay_now(const struct link *link)
{
	return (loop_unix_ms() + link->info.clock_offset_ms) / 1000;
}

/* Appends @filter with every "$now-300" replaced. */
static void write_filter(const struct link *link, struct slice filter, struct buf *out)
{
	const struct slice now = SLICE("$now-300");

	while (filter.len > 0) {
		size_t at = slice_find_slice(filter, now);

		buf_append(out, slice_sub(filter, 0, at));
		if (at < filter.len)
			buf_printf(out, "%" PRId64, relay_now(link) - RELAY_WINDOW_S);
		filter = slice_sub(filter, at + now.len, filter.len);
	}
}

static void send_sub(struct link *link, struct sub *sub)
{
	/* A name of 8 bytes becomes a number of at most 20 digits; an id at most
	 * six-fold. */
	size_t max = 64 + 6 * sub->id.len + 3 * sub->filter.len;
	struct message *message = message_create(max);
	struct buf filter;

	buf_init(&filter, max);
	write_filter(link, sub->filter, &filter);
	message_write_req(&message->bytes, sub->id, buf_slice(&filter));
	buf_finish(&filter);
	sub->sent = true;
	enqueue(link, message);
}

static void send_subs(struct link *link)
{
	for (struct sub *sub = link->subs; sub != NULL; sub = sub->next) {
		if (!sub->sent)
			send_sub(link, sub);
	}
}

static void send_auth(struct link *link)
{
	struct slice id;
	struct buf event;
	struct message *message;
	uint8_t aux[32];
	struct err err;
	bool ok;

	buf_init(&event, RELAY_MESSAGE_MAX);
	loop_random(aux, sizeof(aux));
	ok = nip42_sign(link->loop->crypto, link->keypair, slice_of(link->url_text),
			slice_of(link->challenge), link->auth_tag, relay_now(link), aux,
			&event, &err);
	if (ok) {
		bool found = event_find_id(buf_slice(&event), &id) &&
			     hex_decode(id, link->auth_id, sizeof(link->auth_id));

		assert(found);
		message = message_create(event.len + 64);
		message_write_auth(&message->bytes, buf_slice(&event));
		enqueue(link, message);
		link->auth_pending = true;
	}
	buf_finish(&event);
	if (!ok)
		fail(link, "cannot answer the relay's challenge: %s", err.text);
}

/* One lws_write each; a client's is masked in place, which is why no text is shared. */
static bool write_ping(struct link *link)
{
	uint8_t bytes[LWS_PRE + PING_BYTES];

	loop_random(link->ping_payload, PING_BYTES);
	memcpy(bytes + LWS_PRE, link->ping_payload, PING_BYTES);
	link->ping_due = false;
	link->ping_sent_ms = loop_now_ms();
	return lws_write(link->ws->wsi, bytes + LWS_PRE, PING_BYTES, LWS_WRITE_PING) >= 0;
}

static bool write_first(struct link *link)
{
	struct message *message = link->first;
	uint8_t *bytes = (uint8_t *)message->bytes.ptr + LWS_PRE;
	size_t len = message->bytes.len - LWS_PRE;
	bool ok = lws_write(link->ws->wsi, bytes, len, LWS_WRITE_TEXT) >= 0;

	link->first = message->next;
	if (link->first == NULL)
		link->last = &link->first;
	link->queued_bytes -= message->bytes.len;
	message_destroy(message);
	return ok;
}

/* Returns what the lws callback must: -1 closes. */
static int on_writable(struct link *link)
{
	struct lws *wsi = link->ws->wsi;

	if (link->ping_due && !lws_send_pipe_choked(wsi) && !write_ping(link))
		return -1;
	while (link->first != NULL && !lws_send_pipe_choked(wsi)) {
		if (!write_first(link))
			return -1;
	}
	if (link->first != NULL || link->ping_due)
		(void)lws_callback_on_writable(wsi);
	if (link->publish_refused && link->queued_bytes <= LINK_QUEUE_MAX) {
		link->publish_refused = false;
		if (link->events->on_writable != NULL)
			link->events->on_writable(link->ctx);
	}
	return 0;
}

/* ---- How a connection ends ---- */

/* Lets lws close @conn in its own time. Not at once: it may be what calls us. */
static void abandon(struct conn *conn)
{
	if (conn == NULL)
		return;
	conn->link = NULL;
	if (conn->wsi != NULL)
		lws_set_timeout(conn->wsi, PENDING_TIMEOUT_CLOSE_SEND, LWS_TO_KILL_ASYNC);
}

static void drop_connection(struct link *link)
{
	resolve_destroy(link->resolve);
	link->resolve = NULL;
	abandon(link->ws);
	link->ws = NULL;
	abandon(link->http);
	link->http = NULL;
	clear_queue(link);
	free(link->challenge);
	link->challenge = NULL;
	link->publish_refused = false;
	link->ping_due = false;
	link->ping_sent_ms = 0;
	timer_stop(link->deadline);
	timer_stop(link->challenge_wait);
	timer_stop(link->nip11_wait);
	timer_stop(link->ping);
}

/* The next back-off: doubled, with up to half of it on top so that many do not come at
 * once. */
static uint64_t next_retry_ms(struct link *link)
{
	uint32_t random;
	bool settled = link->phase == PHASE_READY &&
		       loop_now_ms() - link->ready_at_ms >= RETRY_SETTLED_MS;

	if (link->retry_ms == 0 || settled)
		link->retry_ms = RETRY_FIRST_MS;
	else if (link->retry_ms < RETRY_MAX_MS / 2)
		link->retry_ms *= 2;
	else
		link->retry_ms = RETRY_MAX_MS;
	loop_random(&random, sizeof(random));
	return link->retry_ms + random % (link->retry_ms / 2);
}

/* Ends the attempt or the connection. The link may be gone when it returns. */
static void fail(struct link *link, const char *fmt, ...)
{
	char reason[LOG_QUOTE_BYTES + 120];
	uint64_t delay_ms = next_retry_ms(link);
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(reason, sizeof(reason), fmt, args);
	va_end(args);
	drop_connection(link);
	link->phase = PHASE_WAITING;
	timer_start(link->retry, delay_ms);
	link->events->on_state(link->ctx, LINK_DOWN, reason, delay_ms);
}

/* ---- From connected to ready ---- */

static void become_ready(struct link *link)
{
	link->phase = PHASE_READY;
	link->ready_at_ms = loop_now_ms();
	timer_stop(link->deadline);
	timer_stop(link->challenge_wait);
	send_subs(link);
	link->events->on_state(link->ctx, LINK_READY, "", 0);
}

/* Takes the next step of PHASE_AUTHENTICATING if what it waits for is there. NIP-11 comes
 * first: its Date is what AUTH must be stamped with when our clock is wrong. */
static void proceed(struct link *link)
{
	if (link->phase != PHASE_AUTHENTICATING || !link->nip11_done ||
	    link->auth_pending)
		return;
	if (link->challenge != NULL)
		send_auth(link);
	else if (link->challenge_waited)
		become_ready(link);
}

static void on_challenge(struct link *link, struct slice challenge)
{
	if (challenge.len == 0 || challenge.len > CHALLENGE_BYTES_MAX ||
	    memchr(challenge.ptr, '\0', challenge.len) != NULL ||
	    link->queued_bytes > LINK_QUEUE_MAX)
		return;
	free(link->challenge);
	link->challenge = mem_dup(challenge);
	if (link->phase == PHASE_READY)
		send_auth(link);
	else
		proceed(link);
}

static void on_auth_answer(struct link *link, const struct relay_message *message)
{
	char quoted[LOG_QUOTE_BYTES];

	link->auth_pending = false;
	if (!message->accepted) {
		fail(link, "the relay refused our authentication: %s",
		     log_quote(message->text, quoted));
		return;
	}
	link->authenticated = true;
	if (link->phase == PHASE_READY)
		send_subs(link);
	else
		become_ready(link);
}

static void finish_nip11(struct link *link)
{
	abandon(link->http);
	link->http = NULL;
	link->nip11_done = true;
	timer_stop(link->nip11_wait);
	proceed(link);
}

static void on_challenge_wait(void *ctx)
{
	struct link *link = ctx;

	link->challenge_waited = true;
	proceed(link);
}

static void on_nip11_wait(void *ctx)
{
	finish_nip11(ctx);
}

static void on_deadline(void *ctx)
{
	struct link *link = ctx;

	switch (link->phase) {
	case PHASE_RESOLVING:
		fail(link, "no answer for the name %s in time", link->url.host);
		return;
	case PHASE_CONNECTING:
		fail(link, "%s did not answer in time", link->url.authority);
		return;
	case PHASE_AUTHENTICATING:
		fail(link, "the relay did not answer our authentication in time");
		return;
	case PHASE_WAITING:
	case PHASE_READY:
		return;
	}
}

static void on_ping(void *ctx)
{
	struct link *link = ctx;

	link->ping_due = true;
	timer_start(link->ping, 1000 * LOOP_PING_S);
	(void)lws_callback_on_writable(link->ws->wsi);
}

/* ---- What the relay says ---- */

static struct sub **find_sub(struct link *link, struct slice id)
{
	struct sub **at = &link->subs;

	while (*at != NULL && !slice_eq((*at)->id, id))
		at = &(*at)->next;
	return at;
}

static void on_closed(struct link *link, const struct relay_message *message)
{
	struct sub *sub = *find_sub(link, message->sub_id);
	bool waits = !link->authenticated &&
		     slice_starts(message->text, SLICE("auth-required:"));

	if (sub == NULL)
		return;
	/* Left marked as sent it is not asked for again on this connection. */
	if (waits)
		sub->sent = false;
	else
		link->events->on_closed(link->ctx, message->sub_id, message->text);
}

static void handle(struct link *link, const struct relay_message *message)
{
	char quoted[LOG_QUOTE_BYTES];

	switch (message->verb) {
	case RELAY_EVENT:
		link->events->on_event(link->ctx, message->sub_id, message->event);
		return;
	case RELAY_OK:
		if (link->auth_pending &&
		    memcmp(message->id, link->auth_id, sizeof(link->auth_id)) == 0)
			on_auth_answer(link, message);
		else
			link->events->on_ok(link->ctx, message->id, message->accepted,
					    message->text);
		return;
	case RELAY_EOSE:
		link->events->on_eose(link->ctx, message->sub_id);
		return;
	case RELAY_CLOSED:
		on_closed(link, message);
		return;
	case RELAY_NOTICE:
		if (link->notices++ >= NOTICES_LOGGED_MAX)
			return;
		log_info("link", "%s says: %s", link->url.authority,
			 log_quote(message->text, quoted));
		return;
	case RELAY_AUTH:
		on_challenge(link, message->text);
		return;
	case RELAY_COUNT:
		return; /* nobody here asks */
	}
}

/* The link may be gone when it returns. */
static void on_message(struct link *link, struct slice text)
{
	struct relay_message message;
	struct err err;

	arena_reset(&link->arena);
	if (relay_message_parse(text, &link->arena, &message, &err))
		handle(link, &message);
	else
		log_debug("link", "%s sent a message that is none: %s",
			  link->url.authority, err.text);
}

/* ---- Callbacks of lws ---- */

static int on_ws_data(struct conn *conn, struct slice piece)
{
	struct lws *wsi = conn->wsi;
	bool last = lws_is_final_fragment(wsi) && lws_remaining_packet_payload(wsi) == 0;

	if (lws_frame_is_binary(wsi)) {
		fail(conn->link, "the relay sent a binary message");
		return -1;
	}
	if (last && conn->in.len == 0) {
		/* Whole, as nearly all are: read where lws has it. */
		on_message(conn->link, piece);
	} else if (!buf_append(&conn->in, piece)) {
		fail(conn->link, "the relay sent a message of over %d bytes",
		     MESSAGE_BYTES_MAX);
		return -1;
	} else if (last) {
		on_message(conn->link, buf_slice(&conn->in));
		buf_clear(&conn->in);
	}
	return conn->link != NULL ? 0 : -1;
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

/* The handshake failed: perhaps another of the name's addresses answers. */
static void on_ws_refused(struct conn *conn, struct slice words)
{
	struct link *link = conn->link;

	note_refusal(conn, words);
	if (conn->connecting)
		return; /* conn_create() sees that it failed */
	link->ws = NULL;
	conn->link = NULL;
	if (link->next_address < link->addresses.count)
		connect_next(link);
	else
		fail(link, "cannot connect to %s: %s", link->url.authority, conn->reason);
}

static int ws_callback(struct conn *conn, enum lws_callback_reasons reason,
		       struct slice in)
{
	struct link *link = conn->link;

	switch ((int)reason) { /* of some hundred, these concern us */
	case LWS_CALLBACK_CLIENT_ESTABLISHED:
		on_ws_established(link);
		return 0;
	case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
		on_ws_refused(conn, in);
		return 0;
	case LWS_CALLBACK_CLIENT_RECEIVE:
		return on_ws_data(conn, in);
	case LWS_CALLBACK_CLIENT_RECEIVE_PONG:
		if (link->ping_sent_ms != 0 && in.len == PING_BYTES &&
		    memcmp(in.ptr, link->ping_payload, PING_BYTES) == 0) {
			link->rtt_ms = loop_now_ms() - link->ping_sent_ms;
			link->ping_sent_ms = 0;
		}
		return 0;
	case LWS_CALLBACK_CLIENT_WRITEABLE:
		return on_writable(link);
	case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE:
		note_close(conn, in);
		return 0;
	case LWS_CALLBACK_CLIENT_CLOSED:
		conn->wsi = NULL; /* lws is closing it already */
		fail(link, "the connection to %s was closed%s", link->url.authority,
		     conn->reason);
		return 0;
	default:
		return 0;
	}
}

/* Appends the header that makes it a NIP-11 request. */
static int ask_for_nip11(struct lws *wsi, unsigned char **at, size_t room)
{
	static const char accept[] = "application/nostr+json";

	assert(at != NULL && *at != NULL);
	return lws_add_http_header_by_token(wsi, WSI_TOKEN_HTTP_ACCEPT,
					    (const unsigned char *)accept,
					    sizeof(accept) - 1, at, *at + room);
}

/* The clock of the relay, from a document or from a refusal. */
static void read_date(struct link *link, struct lws *wsi)
{
	char text[64];
	int len = lws_hdr_copy(wsi, text, sizeof(text), WSI_TOKEN_HTTP_DATE);
	int64_t unix_ms;

	if (len > 0 && nip11_parse_date((struct slice){text, (size_t)len}, &unix_ms) &&
	    unix_ms > DATE_MIN_MS && unix_ms < DATE_MAX_MS)
		link->info.clock_offset_ms = unix_ms - loop_unix_ms();
}

/* Reads what has come; lws hands it to RECEIVE_CLIENT_HTTP_READ from in here. */
static int drain_http(struct lws *wsi)
{
	char space[LWS_PRE + 4096];
	char *at = space + LWS_PRE;
	int len = 4096;

	return lws_http_client_read(wsi, &at, &len);
}

static int http_callback(struct conn *conn, struct lws *wsi,
			 enum lws_callback_reasons reason, void *in, size_t len)
{
	struct link *link = conn->link;

	switch ((int)reason) {
	case LWS_CALLBACK_CLIENT_APPEND_HANDSHAKE_HEADER:
		return ask_for_nip11(wsi, in, len);
	case LWS_CALLBACK_ESTABLISHED_CLIENT_HTTP:
		read_date(link, wsi);
		if (lws_http_client_http_response(wsi) == 200)
			return 0;
		finish_nip11(link);
		return -1;
	case LWS_CALLBACK_RECEIVE_CLIENT_HTTP:
		return drain_http(wsi) < 0 ? -1 : 0;
	case LWS_CALLBACK_RECEIVE_CLIENT_HTTP_READ:
		return buf_append(&conn->in, (struct slice){in, len}) ? 0 : -1;
	case LWS_CALLBACK_COMPLETED_CLIENT_HTTP:
		nip11_parse(buf_slice(&conn->in), &link->info);
		finish_nip11(link);
		return -1;
	case LWS_CALLBACK_CLOSED_CLIENT_HTTP:
	case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
		if (conn->connecting)
			return 0; /* conn_create() sees that it failed */
		conn->wsi = NULL; /* lws is closing it already */
		nip11_parse(buf_slice(&conn->in), &link->info);
		finish_nip11(link);
		return 0;
	default:
		return 0;
	}
}

static void conn_free(struct conn *conn)
{
	buf_finish(&conn->in);
	free(conn);
}

/* The wsi is gone. Should it go without a word before, the link must not wait for it. */
static void on_wsi_destroyed(struct conn *conn)
{
	struct link *link = conn->link;

	conn->wsi = NULL;
	if (conn->connecting) {
		conn->gone = true;
		return;
	}
	if (link != NULL && conn->http)
		finish_nip11(link);
	else if (link != NULL)
		fail(link, "the connection to %s was lost", link->url.authority);
	conn_free(conn);
}

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
	if (conn->link == NULL)
		return is_stream(reason) ? -1 : 0;
	if (conn->http)
		return http_callback(conn, wsi, reason, in, len);
	return ws_callback(conn, reason, bytes);
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
static struct lws_vhost *client_vhost(struct loop *loop, bool tls, struct err *err)
{
	struct lws_context_creation_info info = {
		.options = tls ? LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT : 0,
		.port = CONTEXT_PORT_NO_LISTEN,
		.vhost_name = vhost_name(tls),
		.protocols = protocols,
		.retry_and_idle_policy = &idle_policy,
		.alpn = "http/1.1",
	};
	struct lws_vhost *vhost = lws_get_vhost_by_name(loop->lws, info.vhost_name);

	if (vhost == NULL)
		vhost = lws_create_vhost(loop->lws, &info);
	if (vhost == NULL)
		(void)err_set(err, ERR_SYSTEM, "libwebsockets made no client");
	return vhost;
}

/* Starts a connection to @address; NULL when that failed at once, with @reason filled. */
static struct conn *conn_create(struct link *link, const char *address, bool http,
				char reason[120])
{
	struct conn *conn = mem_alloc(sizeof(*conn));
	struct lws_client_connect_info info = {
		.context = link->loop->lws,
		.vhost =
			lws_get_vhost_by_name(link->loop->lws, vhost_name(link->url.tls)),
		.address = address,
		.port = link->url.port,
		.path = link->url.path,
		.host = link->url.authority,
		.ssl_connection = (link->url.tls ? LCCSCF_USE_SSL : 0) |
				  LCCSCF_HTTP_NO_FOLLOW_REDIRECT,
		.method = http ? "GET" : NULL,
		.alpn = "http/1.1",
		.local_protocol_name = protocols[0].name,
		.opaque_user_data = conn,
		.pwsi = &conn->wsi,
		.retry_and_idle_policy = &idle_policy,
	};
	struct lws *wsi;

	conn->link = link;
	conn->http = http;
	buf_init(&conn->in, http ? NIP11_BYTES_MAX : MESSAGE_BYTES_MAX);
	conn->connecting = true;
	wsi = lws_client_connect_via_info(&info);
	conn->connecting = false;
	if (wsi != NULL && !conn->gone)
		return conn;
	memcpy(reason, conn->reason, sizeof(conn->reason));
	conn_free(conn);
	return NULL;
}

/* Tries the addresses that are left until one does not fail at once. */
static void connect_next(struct link *link)
{
	char reason[120] = "no connection";

	link->phase = PHASE_CONNECTING;
	while (link->ws == NULL && link->next_address < link->addresses.count)
		link->ws =
			conn_create(link, link->addresses.addresses[link->next_address++],
				    false, reason);
	if (link->ws == NULL)
		fail(link, "cannot connect to %s: %s", link->url.authority, reason);
}

static void on_ws_established(struct link *link)
{
	char reason[120];

	link->phase = PHASE_AUTHENTICATING;
	link->challenge_waited = false;
	link->nip11_done = false;
	link->auth_pending = false;
	link->authenticated = false;
	link->notices = 0;
	link->info = (struct link_info){0};
	for (struct sub *sub = link->subs; sub != NULL; sub = sub->next)
		sub->sent = false;
	timer_start(link->challenge_wait, CHALLENGE_WAIT_MS);
	timer_start(link->ping, 0);
	link->http = conn_create(link, link->addresses.addresses[link->next_address - 1],
				 true, reason);
	if (link->http == NULL)
		finish_nip11(link);
	else
		timer_start(link->nip11_wait, NIP11_WAIT_MS);
}

static void on_resolved(void *ctx, const struct resolve_result *result)
{
	struct link *link = ctx;

	link->addresses = *result;
	link->next_address = 0;
	resolve_destroy(link->resolve);
	link->resolve = NULL;
	if (result->count == 0)
		fail(link, "cannot find %s: %s", link->url.host, link->addresses.reason);
	else
		connect_next(link);
}

static bool is_address(const char *host)
{
	struct in6_addr space;

	return inet_pton(AF_INET, host, &space) == 1 ||
	       inet_pton(AF_INET6, host, &space) == 1;
}

static void start_attempt(struct link *link)
{
	timer_start(link->deadline, link->deadline_ms);
	if (!is_address(link->url.host)) {
		link->phase = PHASE_RESOLVING;
		link->resolve =
			resolve_create(link->loop, link->url.host, on_resolved, link);
		return;
	}
	link->addresses = (struct resolve_result){.count = 1};
	(void)snprintf(link->addresses.addresses[0], RESOLVE_ADDRESS_BYTES, "%.63s",
		       link->url.host);
	link->next_address = 0;
	connect_next(link);
}

static void on_retry(void *ctx)
{
	struct link *link = ctx;

	if (link->phase == PHASE_WAITING) {
		/* The attempt begins in the next turn: on_state() may destroy the link.
		 */
		link->phase = PHASE_RESOLVING;
		timer_start(link->retry, 0);
		link->events->on_state(link->ctx, LINK_CONNECTING, "", 0);
		return;
	}
	start_attempt(link);
}

/* ---- The public part ---- */

static struct slice own(struct slice bytes)
{
	return (struct slice){mem_dup(bytes), bytes.len};
}

static void disown(struct slice bytes)
{
	free((void *)(uintptr_t)bytes.ptr);
}

struct link *link_create(struct loop *loop, const struct link_options *options,
			 struct err *err)
{
	struct link *link;
	struct link_url url;

	if (!link_url_parse(options->url, &url, err) ||
	    client_vhost(loop, url.tls, err) == NULL)
		return NULL;
	link = mem_alloc(sizeof(*link));
	link->loop = loop;
	link->events = options->events;
	link->ctx = options->ctx;
	link->keypair = options->keypair;
	link->auth_tag = own(options->auth_tag);
	link->url_text = mem_dup(slice_of(options->url));
	link->url = url;
	link->deadline_ms =
		options->deadline_ms != 0 ? options->deadline_ms : LINK_DEADLINE_MS;
	link->phase = PHASE_WAITING;
	link->last = &link->first;
	link->rtt_ms = -1;
	arena_init(&link->arena, 4096);
	link->retry = timer_create_on(loop, on_retry, link);
	link->deadline = timer_create_on(loop, on_deadline, link);
	link->challenge_wait = timer_create_on(loop, on_challenge_wait, link);
	link->nip11_wait = timer_create_on(loop, on_nip11_wait, link);
	link->ping = timer_create_on(loop, on_ping, link);
	timer_start(link->retry, 0);
	return link;
}

void link_destroy(struct link *link)
{
	if (link == NULL)
		return;
	drop_connection(link);
	link->phase = PHASE_WAITING;
	timer_destroy(link->retry);
	timer_destroy(link->deadline);
	timer_destroy(link->challenge_wait);
	timer_destroy(link->nip11_wait);
	timer_destroy(link->ping);
	while (link->subs != NULL)
		link_unsubscribe(link, link->subs->id);
	disown(link->auth_tag);
	free(link->url_text);
	arena_finish(&link->arena);
	free(link);
}

enum link_state link_state(const struct link *link)
{
	switch (link->phase) {
	case PHASE_WAITING:
		return LINK_DOWN;
	case PHASE_RESOLVING:
	case PHASE_CONNECTING:
	case PHASE_AUTHENTICATING:
		return LINK_CONNECTING;
	case PHASE_READY:
		return LINK_READY;
	}
	return LINK_DOWN;
}

const struct link_info *link_info(const struct link *link)
{
	return &link->info;
}

int64_t link_rtt_ms(const struct link *link)
{
	return link->rtt_ms;
}

void link_subscribe(struct link *link, struct slice sub_id, struct slice filter)
{
	struct sub **at = find_sub(link, sub_id);

	if (*at == NULL) {
		*at = mem_alloc(sizeof(**at));
		(*at)->id = own(sub_id);
	} else {
		disown((*at)->filter);
	}
	(*at)->filter = own(filter);
	(*at)->sent = false;
	if (link->phase == PHASE_READY)
		send_sub(link, *at);
}

void link_unsubscribe(struct link *link, struct slice sub_id)
{
	struct sub **at = find_sub(link, sub_id);
	struct sub *sub = *at;

	if (sub == NULL)
		return;
	if (link->phase == PHASE_READY && sub->sent) {
		struct message *message = message_create(64 + 6 * sub_id.len);

		message_write_close(&message->bytes, sub_id);
		enqueue(link, message);
	}
	*at = sub->next;
	disown(sub->id);
	disown(sub->filter);
	free(sub);
}

bool link_publish(struct link *link, struct slice event)
{
	struct message *message;

	if (link->phase != PHASE_READY)
		return false;
	if (link->queued_bytes > LINK_QUEUE_MAX) {
		link->publish_refused = true;
		return false;
	}
	message = message_create(event.len + 64);
	message_write_event(&message->bytes, event);
	enqueue(link, message);
	return true;
}

void link_reset(struct link *link, const char *reason)
{
	if (link->phase != PHASE_WAITING)
		fail(link, "%s", reason);
}
