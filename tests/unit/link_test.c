/* The link against a relay-like peer in the same loop: over real sockets, without sleeps.
 */
#include "tests/unit/support/support.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <libwebsockets.h>
#include <uv.h>

#include "wire/base/arena.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/link/link.h"
#include "wire/link/link_url.h"
#include "wire/link/nip11.h"
#include "wire/nostr/nip42.h"

#define CHALLENGE "a challenge of the test's"
#define ID_HEX "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* ---- The peer ---- */

struct outgoing {
	struct outgoing *next;
	size_t len;
	enum lws_write_protocol how;
	unsigned char bytes[]; /* LWS_PRE first */
};

/* One WebSocket of the peer. */
struct session {
	struct lws *wsi;
	struct outgoing *first, **last;
	bool hang_up;
	struct buf in;
};

/* What the peer does, set by the test before it runs, and what it saw. */
struct peer {
	bool silent_challenge; /* sends none */
	bool refuse_auth;
	bool silent_nip11;
	const char *nip11; /* body; NULL: 404 */
	int64_t clock_ahead_s;
	int64_t dated_ms; /* loop_unix_ms() of the last answer with a date */
	bool has_date;

	char url[64];
	struct session *session; /* the latest */
	unsigned sessions;
	unsigned auths, nip11_asked;
	int64_t auth_created_at;
	bool auth_had_tag;
	struct buf last_req; /* the whole message */
	unsigned reqs, closes, events;
	size_t event_bytes;
};

static struct loop *loop;
static struct peer peer;
static struct keypair *keypair;

static void session_send(struct session *session, struct slice text,
			 enum lws_write_protocol how)
{
	struct outgoing *out = mem_alloc(sizeof(*out) + LWS_PRE + text.len);

	memcpy(out->bytes + LWS_PRE, text.ptr, text.len);
	out->len = text.len;
	out->how = how;
	*session->last = out;
	session->last = &out->next;
	(void)lws_callback_on_writable(session->wsi);
}

static void peer_say(struct slice text)
{
	session_send(peer.session, text, LWS_WRITE_TEXT);
}

static void peer_hang_up(void)
{
	peer.session->hang_up = true;
	(void)lws_callback_on_writable(peer.session->wsi);
}

static void on_auth(struct slice text)
{
	struct arena arena;
	struct event event;
	struct buf scratch;
	struct err err;
	char answer[200];
	char id[65] = "";
	struct slice url = slice_of(peer.url);
	int64_t now = loop_unix_ms() / 1000 + peer.clock_ahead_s;

	arena_init(&arena, 4096);
	buf_init(&scratch, 65536);
	ck_assert_msg(event_parse(text, &arena, &event, &err), "%s", err.text);
	ck_assert_msg(event_verify(loop->crypto, &event, &scratch, &err), "%s", err.text);
	ck_assert_msg(nip42_check(&event, SLICE(CHALLENGE), &url, 1, now, &err), "%s",
		      err.text);
	ck_assert_mem_eq(event.pubkey, keypair_public(keypair), KEY_BYTES);
	hex_encode(event.id, 32, id);
	peer.auths++;
	peer.auth_created_at = event.created_at;
	peer.auth_had_tag = event_tag(&event, SLICE("auth")) != NULL;
	(void)snprintf(answer, sizeof(answer), "[\"OK\",\"%s\",%s]", id,
		       peer.refuse_auth ? "false,\"restricted: not on the list\""
					: "true,\"\"");
	peer_say(slice_of(answer));
	buf_finish(&scratch);
	arena_finish(&arena);
}

static void on_client_message(struct slice text)
{
	struct client_message message;
	struct arena arena;
	struct err err;

	arena_init(&arena, 4096);
	ck_assert_msg(client_message_parse(text, &arena, &message, NULL, &err), "%s",
		      err.text);
	switch (message.verb) {
	case CLIENT_AUTH:
		on_auth(message.event);
		break;
	case CLIENT_REQ:
		peer.reqs++;
		buf_clear(&peer.last_req);
		buf_append(&peer.last_req, text);
		break;
	case CLIENT_CLOSE:
		peer.closes++;
		break;
	case CLIENT_EVENT:
		peer.events++;
		peer.event_bytes = message.event.len;
		break;
	case CLIENT_COUNT:
		ck_abort_msg("the link never counts");
	}
	arena_finish(&arena);
}

static int session_write(struct session *session)
{
	struct outgoing *out = session->first;

	if (out != NULL) {
		int sent =
			lws_write(session->wsi, out->bytes + LWS_PRE, out->len, out->how);

		session->first = out->next;
		if (session->first == NULL)
			session->last = &session->first;
		free(out);
		if (sent < 0)
			return -1;
		(void)lws_callback_on_writable(session->wsi);
		return 0;
	}
	return session->hang_up ? -1 : 0;
}

static void session_end(struct session *session)
{
	struct outgoing *out;

	while ((out = session->first) != NULL) {
		session->first = out->next;
		free(out);
	}
	buf_finish(&session->in);
	if (peer.session == session)
		peer.session = NULL;
}

static int answer_http(struct lws *wsi)
{
	static unsigned char date_name[] = "date:";
	static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
					     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
	unsigned char buffer[LWS_PRE + 4096];
	unsigned char *at = buffer + LWS_PRE;
	unsigned char *start = at;
	unsigned char *end = buffer + sizeof(buffer);
	size_t len = peer.nip11 != NULL ? strlen(peer.nip11) : 0;
	char accept[64] = "";

	(void)lws_hdr_copy(wsi, accept, sizeof(accept), WSI_TOKEN_HTTP_ACCEPT);
	ck_assert_str_eq(accept, "application/nostr+json");
	peer.nip11_asked++;
	if (peer.silent_nip11)
		return 0;
	ck_assert_int_eq(lws_add_http_common_headers(wsi, len > 0 ? 200 : 404,
						     "application/nostr+json", len, &at,
						     end),
			 0);
	if (peer.has_date) {
		struct tm tm;
		char text[64];
		time_t now;

		peer.dated_ms = loop_unix_ms();
		now = (time_t)(peer.dated_ms / 1000 + peer.clock_ahead_s);
		ck_assert_ptr_nonnull(gmtime_r(&now, &tm));
		(void)strftime(text, sizeof(text), "Mon, %d MMM %Y %H:%M:%S GMT", &tm);
		memcpy(strstr(text, "MMM"), months[tm.tm_mon], 3);
		ck_assert_int_eq(lws_add_http_header_by_name(wsi, date_name,
							     (unsigned char *)text,
							     (int)strlen(text), &at, end),
				 0);
	}
	ck_assert_int_eq(lws_finalize_write_http_header(wsi, start, &at, end), 0);
	if (len > 0) {
		memcpy(buffer + LWS_PRE, peer.nip11, len);
		(void)lws_write(wsi, buffer + LWS_PRE, len, LWS_WRITE_HTTP_FINAL);
	}
	return lws_http_transaction_completed(wsi) != 0 ? -1 : 0;
}

static int on_peer(struct lws *wsi, enum lws_callback_reasons reason, void *user,
		   void *in, size_t len)
{
	struct session *session = user;

	switch ((int)reason) {
	case LWS_CALLBACK_HTTP:
		return answer_http(wsi);
	case LWS_CALLBACK_ESTABLISHED:
		session->wsi = wsi;
		session->last = &session->first;
		buf_init(&session->in, 4u << 20);
		peer.session = session;
		peer.sessions++;
		if (!peer.silent_challenge)
			peer_say(SLICE("[\"AUTH\",\"" CHALLENGE "\"]"));
		return 0;
	case LWS_CALLBACK_RECEIVE:
		buf_append(&session->in, (struct slice){in, len});
		if (!lws_is_final_fragment(wsi) || lws_remaining_packet_payload(wsi) > 0)
			return 0;
		on_client_message(buf_slice(&session->in));
		buf_clear(&session->in);
		return 0;
	case LWS_CALLBACK_SERVER_WRITEABLE:
		return session_write(session);
	case LWS_CALLBACK_CLOSED:
		session_end(session);
		return 0;
	default:
		return 0;
	}
}

static const struct lws_protocols peer_protocols[] = {
	{"peer", on_peer, sizeof(struct session), 65536, 0, NULL, 1u << 20},
	{NULL, NULL, 0, 0, 0, NULL, 0},
};

/* Listens on a free port of 127.0.0.1; @host is what the URL says. */
static void peer_listen(bool tls, const char *host)
{
	struct lws_context_creation_info info = {
		.port = 0,
		.iface = "127.0.0.1",
		.vhost_name = "peer",
		.protocols = peer_protocols,
		.options = tls ? LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT : 0,
		.ssl_cert_filepath = tls ? PERCH_TEST_DATA "/link/cert.pem" : NULL,
		.ssl_private_key_filepath = tls ? PERCH_TEST_DATA "/link/key.pem" : NULL,
	};
	struct lws_vhost *vhost = lws_create_vhost(loop->lws, &info);

	ck_assert_ptr_nonnull(vhost);
	(void)snprintf(peer.url, sizeof(peer.url), "%s://%s:%d/path", tls ? "wss" : "ws",
		       host, lws_get_vhost_listen_port(vhost));
}

/* ---- The link's side ---- */

struct seen {
	struct link *link;
	enum link_state state;
	unsigned ready, down;
	char reason[400];
	uint64_t retry_ms;
	unsigned events, oks, eoses, closeds, writables;
	struct buf event;
	char words[200];
	bool accepted;
	/* The callback that destroys the link, "state", "event"; NULL: none. */
	const char *destroy_in;
	enum link_state destroy_at;
};

static struct seen seen;

static void maybe_destroy(const char *where)
{
	if (seen.destroy_in == NULL || strcmp(seen.destroy_in, where) != 0)
		return;
	link_destroy(seen.link);
	seen.link = NULL;
}

static void on_state(void *ctx, enum link_state state, const char *reason,
		     uint64_t retry_ms)
{
	ck_assert_ptr_eq(ctx, &seen);
	seen.state = state;
	seen.ready += state == LINK_READY;
	seen.down += state == LINK_DOWN;
	seen.retry_ms = retry_ms;
	if (state == LINK_DOWN)
		(void)snprintf(seen.reason, sizeof(seen.reason), "%s", reason);
	else
		ck_assert_str_eq(reason, "");
	if (state == seen.destroy_at)
		maybe_destroy("state");
}

static void keep_words(struct slice words)
{
	(void)snprintf(seen.words, sizeof(seen.words), "%.*s", SLICE_ARG(words));
}

static void on_event(void *ctx, struct slice sub_id, struct slice event)
{
	(void)ctx;
	assert_slice_eq(sub_id, "feed");
	seen.events++;
	buf_clear(&seen.event);
	buf_append(&seen.event, event);
	maybe_destroy("event");
}

static void on_ok(void *ctx, const uint8_t id[32], bool accepted, struct slice text)
{
	char hex[64];

	(void)ctx;
	hex_encode(id, 32, hex);
	assert_slice_eq(((struct slice){hex, 64}), ID_HEX);
	seen.oks++;
	seen.accepted = accepted;
	keep_words(text);
}

static void on_eose(void *ctx, struct slice sub_id)
{
	(void)ctx;
	assert_slice_eq(sub_id, "feed");
	seen.eoses++;
}

static void on_closed(void *ctx, struct slice sub_id, struct slice text)
{
	(void)ctx;
	assert_slice_eq(sub_id, "feed");
	seen.closeds++;
	keep_words(text);
}

static void on_writable(void *ctx)
{
	(void)ctx;
	seen.writables++;
}

static const struct link_events link_events = {
	.on_state = on_state,
	.on_event = on_event,
	.on_ok = on_ok,
	.on_eose = on_eose,
	.on_closed = on_closed,
	.on_writable = on_writable,
};

static void make_link(const char *url, uint32_t deadline_ms)
{
	struct link_options options = {
		.url = url,
		.keypair = keypair,
		.auth_tag = SLICE("[\"auth\",\"x\",\"\",\"y\"]"),
		.events = &link_events,
		.ctx = &seen,
		.deadline_ms = deadline_ms,
	};
	struct err err;

	seen.link = link_create(loop, &options, &err);
	ck_assert_msg(seen.link != NULL, "%s", err.text);
}

/* Runs the loop until @what holds; ctest's timeout is what ends a test that never gets
 * there. */
#define RUN_UNTIL(what) \
	do { \
		while (!(what)) \
			(void)uv_run(loop->uv, UV_RUN_ONCE); \
	} while (0)

static void connect_ready(void)
{
	peer_listen(false, "127.0.0.1");
	make_link(peer.url, 0);
	RUN_UNTIL(seen.ready == 1);
}

static void setup(void)
{
	uint8_t secret[KEY_BYTES] = {7};
	struct err err;

	memset(&peer, 0, sizeof(peer));
	memset(&seen, 0, sizeof(seen));
	buf_init(&peer.last_req, 65536);
	buf_init(&seen.event, 1u << 20);
	loop = loop_create(&err);
	ck_assert_msg(loop != NULL, "%s", err.text);
	ck_assert(keypair_create(loop->crypto, secret, &keypair, &err));
}

static void teardown(void)
{
	link_destroy(seen.link);
	loop_destroy(loop);
	keypair_destroy(keypair);
	buf_finish(&peer.last_req);
	buf_finish(&seen.event);
}

/* ---- Authentication ---- */

START_TEST(the_challenge_is_answered_and_then_the_link_is_ready)
{
	connect_ready();
	ck_assert_uint_eq(peer.auths, 1);
	ck_assert(peer.auth_had_tag);
	ck_assert_int_eq(link_state(seen.link), LINK_READY);
}
END_TEST

START_TEST(a_refused_authentication_takes_the_link_down_with_the_relays_words)
{
	peer.refuse_auth = true;
	peer_listen(false, "127.0.0.1");
	make_link(peer.url, 0);
	RUN_UNTIL(seen.down == 1);
	ck_assert_str_eq(seen.reason, "the relay refused our authentication: "
				      "restricted: not on the list");
	ck_assert_uint_ge(seen.retry_ms, 500);
	ck_assert_uint_eq(seen.ready, 0);
}
END_TEST

START_TEST(a_relay_that_never_challenges_nor_has_nip11_is_ready_all_the_same)
{
	peer.silent_challenge = true;
	peer.silent_nip11 = true;
	connect_ready();
	ck_assert_uint_eq(peer.auths, 0);
	ck_assert_uint_eq(peer.nip11_asked, 1);
	ck_assert(!link_info(seen.link)->known && !link_info(seen.link)->has_clock);
}
END_TEST

START_TEST(a_late_challenge_is_answered_and_closed_subscriptions_are_asked_for_again)
{
	peer.silent_challenge = true;
	connect_ready();
	link_subscribe(seen.link, SLICE("feed"), SLICE("{}"));
	RUN_UNTIL(peer.reqs == 1);
	peer_say(SLICE("[\"CLOSED\",\"feed\",\"auth-required: who are you\"]"));
	peer_say(SLICE("[\"AUTH\",\"" CHALLENGE "\"]"));
	RUN_UNTIL(peer.reqs == 2);
	ck_assert_uint_eq(peer.auths, 1);
	ck_assert_uint_eq(seen.closeds, 0);
	ck_assert_uint_eq(seen.ready, 1);
}
END_TEST

/* ---- NIP-11 ---- */

START_TEST(nip11_tells_limits_and_the_relays_clock)
{
	const int64_t began_ms = loop_unix_ms();
	int64_t late_ms;

	peer.nip11 =
		"{\"name\":\"x\",\"limitation\":{\"max_message_length\":131072,"
		"\"max_content_length\":90000},\"perch\":{\"backfill_per_second\":8}}";
	peer.has_date = true;
	peer.clock_ahead_s = 5000;
	connect_ready();
	ck_assert(link_info(seen.link)->known);
	ck_assert(link_info(seen.link)->has_clock);
	ck_assert_uint_eq(link_info(seen.link)->max_message_bytes, 131072);
	ck_assert_uint_eq(link_info(seen.link)->max_content_bytes, 90000);
	ck_assert_uint_eq(link_info(seen.link)->backfill_per_second, 8);
	/* To half a second, and what the answer took to be read. */
	late_ms = loop_unix_ms() - peer.dated_ms;
	ck_assert_int_ge(link_info(seen.link)->clock_offset_ms,
			 5000 * 1000 - 500 - late_ms);
	ck_assert_int_le(link_info(seen.link)->clock_offset_ms, 5000 * 1000 + 500);
	/* nip42_check() in the peer allows 600 s: the stamp was the relay's time. */
	ck_assert_int_ge(peer.auth_created_at, began_ms / 1000 + 4999);
}
END_TEST

START_TEST(a_relay_without_nip11_says_nothing_but_the_time)
{
	peer.has_date = true;
	peer.clock_ahead_s = -5000;
	connect_ready();
	ck_assert(!link_info(seen.link)->known);
	ck_assert_uint_eq(link_info(seen.link)->max_message_bytes, 0);
	ck_assert_int_le(link_info(seen.link)->clock_offset_ms, -4999 * 1000);
}
END_TEST

static const struct slice odd_documents[] = {
	SLICE_INIT(""),
	SLICE_INIT("<html>"),
	SLICE_INIT("[]"),
	SLICE_INIT("{\"limitation\":{\"max_message_length\":1}"),
};

START_TEST(what_is_no_nip11_document_says_nothing)
{
	struct link_info info = {0};

	nip11_parse(odd_documents[_i], &info);
	ck_assert(!info.known);
	ck_assert_uint_eq(info.max_message_bytes, 0);
}
END_TEST

START_TEST(limits_of_another_shape_are_no_limits)
{
	struct link_info info = {0};

	nip11_parse(SLICE("{\"limitation\":{\"max_message_length\":-1,"
			  "\"max_content_length\":\"7\"},\"perch\":[1]}"),
		    &info);
	ck_assert(info.known);
	ck_assert_uint_eq(info.max_message_bytes, 0);
	ck_assert_uint_eq(info.max_content_bytes, 0);
}
END_TEST

START_TEST(an_http_date_is_read_as_the_middle_of_its_second)
{
	int64_t unix_ms = 0;

	ck_assert(nip11_parse_date(SLICE("Mon, 30 Nov 2026 08:00:00 GMT"), &unix_ms));
	ck_assert_int_eq(unix_ms, 1796025600500);
	ck_assert(!nip11_parse_date(SLICE("Mon, 30 Nov 2026 08:00:00 CET"), &unix_ms));
	ck_assert(!nip11_parse_date(SLICE("2026-11-30T08:00:00Z"), &unix_ms));
	ck_assert(!nip11_parse_date(SLICE(""), &unix_ms));
}
END_TEST

/* ---- Subscriptions and messages ---- */

START_TEST(subscriptions_are_sent_after_authentication_with_the_time_filled_in)
{
	int64_t before = loop_unix_ms() / 1000 - 300;
	char text[120];
	bool found = false;

	peer_listen(false, "127.0.0.1");
	make_link(peer.url, 0);
	link_subscribe(seen.link, SLICE("feed"),
		       SLICE("{\"since\":$now-300,\"kinds\":[1]}"));
	RUN_UNTIL(peer.reqs == 1);
	ck_assert_uint_eq(peer.auths, 1);
	for (int64_t t = before; t <= loop_unix_ms() / 1000 - 300; t++) {
		(void)snprintf(text, sizeof(text),
			       "[\"REQ\",\"feed\",{\"since\":%lld,\"kinds\":[1]}]",
			       (long long)t);
		found = found || slice_eq(buf_slice(&peer.last_req), slice_of(text));
	}
	ck_assert_msg(found, "%.*s", SLICE_ARG(buf_slice(&peer.last_req)));
}
END_TEST

START_TEST(subscribing_again_replaces_and_unsubscribing_closes)
{
	connect_ready();
	link_subscribe(seen.link, SLICE("feed"), SLICE("{\"kinds\":[1]}"));
	link_subscribe(seen.link, SLICE("feed"), SLICE("{\"kinds\":[2]}"));
	RUN_UNTIL(peer.reqs == 2);
	assert_slice_eq(buf_slice(&peer.last_req), "[\"REQ\",\"feed\",{\"kinds\":[2]}]");
	link_unsubscribe(seen.link, SLICE("feed"));
	link_unsubscribe(seen.link, SLICE("feed"));
	RUN_UNTIL(peer.closes == 1);
}
END_TEST

START_TEST(what_the_relay_says_reaches_the_caller)
{
	connect_ready();
	link_subscribe(seen.link, SLICE("feed"), SLICE("{}"));
	RUN_UNTIL(peer.reqs == 1);
	peer_say(SLICE("[\"NOTICE\",\"be nice\"]"));
	peer_say(SLICE("this is no message"));
	peer_say(SLICE("[\"EVENT\",\"feed\",{\"id\": 1}]"));
	peer_say(SLICE("[\"EOSE\",\"feed\"]"));
	peer_say(SLICE("[\"OK\",\"" ID_HEX "\",false,\"rate-limited: slow\"]"));
	RUN_UNTIL(seen.oks == 1);
	assert_slice_eq(buf_slice(&seen.event), "{\"id\": 1}");
	ck_assert_uint_eq(seen.eoses, 1);
	ck_assert(!seen.accepted);
	ck_assert_str_eq(seen.words, "rate-limited: slow");
	peer_say(SLICE("[\"CLOSED\",\"feed\",\"error: bye\"]"));
	RUN_UNTIL(seen.closeds == 1);
	ck_assert_str_eq(seen.words, "error: bye");
	ck_assert_uint_eq(seen.down, 0);
}
END_TEST

/* Says an EVENT whose text has @bytes bytes, in two WebSocket fragments. */
static void say_large(size_t bytes)
{
	struct buf text;
	size_t half = bytes / 2;

	buf_init(&text, bytes + 100);
	buf_lit(&text, "[\"EVENT\",\"feed\",{\"content\":\"");
	while (text.len < bytes)
		buf_append_byte(&text, 'x');
	ck_assert(buf_lit(&text, "\"}]"));
	session_send(peer.session, slice_sub(buf_slice(&text), 0, half),
		     LWS_WRITE_TEXT | LWS_WRITE_NO_FIN);
	session_send(peer.session, slice_sub(buf_slice(&text), half, text.len),
		     LWS_WRITE_CONTINUATION);
	buf_finish(&text);
}

START_TEST(a_fragmented_message_of_256_kib_arrives_whole)
{
	connect_ready();
	say_large(RELAY_MESSAGE_MAX);
	RUN_UNTIL(seen.events == 1);
	ck_assert_uint_gt(seen.event.len, RELAY_MESSAGE_MAX - 50);
	say_large(1000);
	RUN_UNTIL(seen.events == 2);
	ck_assert_uint_lt(seen.event.len, 1000);
}
END_TEST

START_TEST(a_message_without_end_takes_the_link_down)
{
	connect_ready();
	say_large(2 * RELAY_MESSAGE_MAX + 1);
	RUN_UNTIL(seen.down == 1);
	ck_assert_uint_eq(seen.events, 0);
	ck_assert_str_eq(seen.reason, "the relay sent a message of over 524288 bytes");
}
END_TEST

START_TEST(a_binary_message_takes_the_link_down)
{
	connect_ready();
	session_send(peer.session, SLICE("[]"), LWS_WRITE_BINARY);
	RUN_UNTIL(seen.down == 1);
	ck_assert_str_eq(seen.reason, "the relay sent a binary message");
}
END_TEST

/* ---- Publishing ---- */

START_TEST(an_event_is_published_once_ready_and_not_before)
{
	peer_listen(false, "127.0.0.1");
	make_link(peer.url, 0);
	ck_assert(!link_publish(seen.link, SLICE("{\"a\":1}")));
	RUN_UNTIL(seen.ready == 1);
	ck_assert(link_publish(seen.link, SLICE("{\"a\":1}")));
	RUN_UNTIL(peer.events == 1);
	ck_assert_uint_eq(peer.event_bytes, 7);
}
END_TEST

/* A JSON object of @bytes bytes. */
static void write_object(struct buf *out, size_t bytes)
{
	buf_init(out, bytes);
	buf_lit(out, "{\"a\":\"");
	while (out->len < bytes - 2)
		buf_append_byte(out, 'x');
	ck_assert(buf_lit(out, "\"}"));
}

START_TEST(publishing_is_refused_while_a_mebibyte_waits_and_taken_up_again)
{
	struct buf event;
	unsigned published = 0;

	connect_ready();
	write_object(&event, 100000);
	while (link_publish(seen.link, buf_slice(&event)))
		published++;
	ck_assert_uint_ge(published, LINK_QUEUE_MAX / 100100);
	ck_assert_uint_le(published, LINK_QUEUE_MAX / 100000 + 1);
	ck_assert_uint_eq(seen.writables, 0);
	RUN_UNTIL(seen.writables == 1);
	ck_assert(link_publish(seen.link, buf_slice(&event)));
	RUN_UNTIL(peer.events == published + 1);
	ck_assert_uint_eq(peer.event_bytes, 100000);
	buf_finish(&event);
}
END_TEST

START_TEST(the_round_trip_is_measured)
{
	connect_ready();
	RUN_UNTIL(link_rtt_ms(seen.link) >= 0);
	ck_assert_int_lt(link_rtt_ms(seen.link), 10000);
}
END_TEST

/* ---- Ends and beginnings ---- */

START_TEST(a_dropped_link_comes_back_and_asks_again)
{
	connect_ready();
	link_subscribe(seen.link, SLICE("feed"), SLICE("{}"));
	RUN_UNTIL(peer.reqs == 1);
	peer_hang_up();
	RUN_UNTIL(seen.down == 1);
	ck_assert(strstr(seen.reason, "was closed") != NULL);
	ck_assert_uint_ge(seen.retry_ms, 500);
	ck_assert_uint_lt(seen.retry_ms, 750);
	RUN_UNTIL(peer.reqs == 2);
	ck_assert_uint_eq(seen.ready, 2);
	ck_assert_uint_eq(peer.sessions, 2);
	ck_assert_uint_eq(peer.auths, 2);
}
END_TEST

START_TEST(a_reset_link_says_why_and_comes_back)
{
	connect_ready();
	link_reset(seen.link, "no answer for 30 s");
	ck_assert_int_eq(link_state(seen.link), LINK_DOWN);
	ck_assert_str_eq(seen.reason, "no answer for 30 s");
	ck_assert(!link_publish(seen.link, SLICE("{}")));
	link_reset(seen.link, "again");
	ck_assert_uint_eq(seen.down, 1);
	RUN_UNTIL(seen.ready == 2);
}
END_TEST

/* A TCP port of 127.0.0.1 that nobody else can have, where nothing answers. */
static int take_port(char url[64])
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, len), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	(void)snprintf(url, 64, "ws://127.0.0.1:%u", ntohs(address.sin_port));
	return fd;
}

/* One that takes connections into its backlog and never says a word. */
static int listen_mute(char url[64])
{
	int fd = take_port(url);

	ck_assert_int_eq(listen(fd, 8), 0);
	return fd;
}

START_TEST(a_relay_that_never_answers_is_given_up)
{
	char url[64];
	int fd = listen_mute(url);

	make_link(url, 30);
	RUN_UNTIL(seen.down == 1);
	ck_assert_msg(strstr(seen.reason, "did not answer in time") != NULL, "%s",
		      seen.reason);
	(void)close(fd);
}
END_TEST

START_TEST(the_back_off_doubles_while_nobody_is_there)
{
	char url[64];
	int fd = take_port(url);
	uint64_t first_ms;

	make_link(url, 0);
	RUN_UNTIL(seen.down == 1);
	first_ms = seen.retry_ms;
	ck_assert_msg(slice_starts(slice_of(seen.reason),
				   SLICE("cannot connect to 127.0.0.1:")),
		      "%s", seen.reason);
	ck_assert(slice_ends(slice_of(seen.reason), SLICE(": nothing answers there")));
	ck_assert_uint_ge(first_ms, 500);
	ck_assert_uint_lt(first_ms, 750);
	RUN_UNTIL(seen.down == 2);
	ck_assert_uint_ge(seen.retry_ms, 1000);
	ck_assert_uint_lt(seen.retry_ms, 1500);
	(void)close(fd);
}
END_TEST

START_TEST(a_name_is_resolved_and_each_of_its_addresses_tried)
{
	/* The peer listens on 127.0.0.1 only; localhost is also ::1, with or without an
	 * /etc/hosts that says so. */
	peer_listen(false, "localhost");
	make_link(peer.url, 0);
	RUN_UNTIL(seen.ready == 1);
	ck_assert_uint_eq(seen.down, 0);
}
END_TEST

START_TEST(a_name_that_is_none_takes_the_link_down)
{
	make_link("ws://no..name", 0);
	RUN_UNTIL(seen.down == 1);
	ck_assert_msg(
		slice_starts(slice_of(seen.reason), SLICE("cannot find no..name: ")),
		"%s", seen.reason);
}
END_TEST

/* ---- TLS ---- */

START_TEST(a_certificate_nobody_vouches_for_is_refused)
{
	(void)unsetenv("SSL_CERT_FILE");
	peer_listen(true, "localhost");
	make_link(peer.url, 0);
	RUN_UNTIL(seen.down == 1);
	ck_assert_uint_eq(peer.sessions, 0);
	ck_assert_msg(strstr(seen.reason, "self-signed certificate") != NULL, "%s",
		      seen.reason);
}
END_TEST

START_TEST(a_certificate_that_the_system_trusts_is_taken)
{
	(void)setenv("SSL_CERT_FILE", PERCH_TEST_DATA "/link/cert.pem", 1);
	peer_listen(true, "localhost");
	make_link(peer.url, 0);
	RUN_UNTIL(seen.ready + seen.down > 0);
	ck_assert_msg(seen.ready == 1, "%s", seen.reason);
	say_large(RELAY_MESSAGE_MAX);
	RUN_UNTIL(seen.events == 1);
	(void)unsetenv("SSL_CERT_FILE");
}
END_TEST

START_TEST(a_trusted_certificate_of_another_name_is_refused)
{
	(void)setenv("SSL_CERT_FILE", PERCH_TEST_DATA "/link/cert.pem", 1);
	peer_listen(true, "127.0.0.1");
	make_link(peer.url, 0);
	RUN_UNTIL(seen.down == 1);
	ck_assert_uint_eq(peer.sessions, 0);
	ck_assert_msg(strstr(seen.reason, "mismatch") != NULL, "%s", seen.reason);
	(void)unsetenv("SSL_CERT_FILE");
}
END_TEST

/* ---- Destroying at any moment: AddressSanitizer is who checks ---- */

START_TEST(a_link_may_be_destroyed_before_it_began)
{
	make_link("ws://127.0.0.1:1", 0);
	link_subscribe(seen.link, SLICE("feed"), SLICE("{}"));
}
END_TEST

START_TEST(a_link_may_be_destroyed_while_it_resolves)
{
	make_link("ws://localhost:1", 0);
	RUN_UNTIL(seen.state == LINK_CONNECTING);
	(void)uv_run(loop->uv, UV_RUN_NOWAIT);
}
END_TEST

START_TEST(a_link_may_be_destroyed_in_the_handshake)
{
	char url[64];
	int fd = listen_mute(url);

	make_link(url, 0);
	RUN_UNTIL(seen.state == LINK_CONNECTING);
	for (int i = 0; i < 5; i++)
		(void)uv_run(loop->uv, UV_RUN_NOWAIT);
	link_destroy(seen.link);
	seen.link = NULL;
	(void)uv_run(loop->uv, UV_RUN_NOWAIT);
	(void)close(fd);
}
END_TEST

START_TEST(a_link_may_be_destroyed_while_it_authenticates)
{
	peer.silent_nip11 = true;
	peer_listen(false, "127.0.0.1");
	make_link(peer.url, 0);
	RUN_UNTIL(peer.nip11_asked == 1);
}
END_TEST

START_TEST(a_link_may_be_destroyed_with_messages_waiting)
{
	struct buf event;

	connect_ready();
	link_subscribe(seen.link, SLICE("feed"), SLICE("{}"));
	write_object(&event, 100000);
	while (link_publish(seen.link, buf_slice(&event)))
		;
	buf_finish(&event);
}
END_TEST

static const enum link_state destroy_states[] = {LINK_CONNECTING, LINK_READY, LINK_DOWN};

START_TEST(a_link_may_be_destroyed_inside_on_state)
{
	seen.destroy_in = "state";
	seen.destroy_at = destroy_states[_i];
	peer.refuse_auth = seen.destroy_at == LINK_DOWN;
	peer_listen(false, "127.0.0.1");
	make_link(peer.url, 0);
	RUN_UNTIL(seen.link == NULL);
	(void)uv_run(loop->uv, UV_RUN_NOWAIT);
}
END_TEST

START_TEST(a_link_may_be_destroyed_inside_on_event)
{
	seen.destroy_in = "event";
	connect_ready();
	say_large(RELAY_MESSAGE_MAX);
	RUN_UNTIL(seen.link == NULL);
	RUN_UNTIL(peer.session == NULL);
	ck_assert_uint_eq(seen.events, 1);
}
END_TEST

START_TEST(a_link_destroyed_at_any_turn_of_the_loop_leaves_nothing)
{
	peer.nip11 = "{}";
	peer_listen(false, "localhost");
	make_link(peer.url, 0);
	for (int turn = 0; turn < _i && link_rtt_ms(seen.link) < 0; turn++)
		(void)uv_run(loop->uv, UV_RUN_ONCE);
	link_destroy(seen.link);
	seen.link = NULL;
	(void)uv_run(loop->uv, UV_RUN_NOWAIT);
}
END_TEST

/* ---- URLs ---- */

static const struct {
	const char *text;
	bool tls;
	uint16_t port;
	const char *host, *authority, *path;
} urls[] = {
	{"ws://127.0.0.1:7447", false, 7447, "127.0.0.1", "127.0.0.1:7447", "/"},
	{"wss://relay.example", true, 443, "relay.example", "relay.example", "/"},
	{"ws://h/a/b?c=d", false, 80, "h", "h", "/a/b?c=d"},
	{"ws://h?c", false, 80, "h", "h", "/?c"},
	{"wss://[::1]:8443/x", true, 8443, "::1", "[::1]:8443", "/x"},
};

START_TEST(a_relays_address_is_read_into_its_parts)
{
	struct link_url url;
	struct err err;

	ck_assert_msg(link_url_parse(urls[_i].text, &url, &err), "%s", err.text);
	ck_assert_int_eq(url.tls, urls[_i].tls);
	ck_assert_uint_eq(url.port, urls[_i].port);
	ck_assert_str_eq(url.host, urls[_i].host);
	ck_assert_str_eq(url.authority, urls[_i].authority);
	ck_assert_str_eq(url.path, urls[_i].path);
}
END_TEST

static const char *const no_urls[] = {
	"",
	"relay.example",
	"http://relay.example",
	"ws://",
	"ws:///path",
	"ws://h:0",
	"ws://h:65536",
	"ws://h:",
	"ws://h:80:80",
	"ws://u@h",
	"ws://[::1",
	"ws://[::1]x",
	"ws://h/a b",
	"ws://h/\r\nX: y",
	"ws://h/#f",
	"ws://h/\x7f",
	"ws://h\xc3\xa4/",
};

START_TEST(what_is_no_relays_address_is_refused_before_anything_starts)
{
	struct link_options options = {
		.url = no_urls[_i],
		.keypair = keypair,
		.events = &link_events,
		.ctx = &seen,
	};
	struct err err = {ERR_NONE, ""};

	ck_assert_ptr_null(link_create(loop, &options, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert_ptr_nonnull(strstr(err.text, "ws://HOST"));
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

int main(void)
{
	Suite *suite = suite_create("link");
	TCase *tcase = tcase_create("link");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, the_challenge_is_answered_and_then_the_link_is_ready);
	tcase_add_test(
		tcase,
		a_refused_authentication_takes_the_link_down_with_the_relays_words);
	tcase_add_test(tcase,
		       a_relay_that_never_challenges_nor_has_nip11_is_ready_all_the_same);
	tcase_add_test(
		tcase,
		a_late_challenge_is_answered_and_closed_subscriptions_are_asked_for_again);
	tcase_add_test(tcase, nip11_tells_limits_and_the_relays_clock);
	tcase_add_test(tcase, a_relay_without_nip11_says_nothing_but_the_time);
	tcase_add_loop_test(tcase, what_is_no_nip11_document_says_nothing, 0,
			    COUNT(odd_documents));
	tcase_add_test(tcase, limits_of_another_shape_are_no_limits);
	tcase_add_test(tcase, an_http_date_is_read_as_the_middle_of_its_second);
	tcase_add_test(
		tcase,
		subscriptions_are_sent_after_authentication_with_the_time_filled_in);
	tcase_add_test(tcase, subscribing_again_replaces_and_unsubscribing_closes);
	tcase_add_test(tcase, what_the_relay_says_reaches_the_caller);
	tcase_add_test(tcase, a_fragmented_message_of_256_kib_arrives_whole);
	tcase_add_test(tcase, a_message_without_end_takes_the_link_down);
	tcase_add_test(tcase, a_binary_message_takes_the_link_down);
	tcase_add_test(tcase, an_event_is_published_once_ready_and_not_before);
	tcase_add_test(tcase,
		       publishing_is_refused_while_a_mebibyte_waits_and_taken_up_again);
	tcase_add_test(tcase, the_round_trip_is_measured);
	tcase_add_test(tcase, a_dropped_link_comes_back_and_asks_again);
	tcase_add_test(tcase, a_reset_link_says_why_and_comes_back);
	tcase_add_test(tcase, a_relay_that_never_answers_is_given_up);
	tcase_add_test(tcase, the_back_off_doubles_while_nobody_is_there);
	tcase_add_test(tcase, a_name_is_resolved_and_each_of_its_addresses_tried);
	tcase_add_test(tcase, a_name_that_is_none_takes_the_link_down);
	tcase_add_test(tcase, a_certificate_nobody_vouches_for_is_refused);
	tcase_add_test(tcase, a_certificate_that_the_system_trusts_is_taken);
	tcase_add_test(tcase, a_trusted_certificate_of_another_name_is_refused);
	tcase_add_test(tcase, a_link_may_be_destroyed_before_it_began);
	tcase_add_test(tcase, a_link_may_be_destroyed_while_it_resolves);
	tcase_add_test(tcase, a_link_may_be_destroyed_in_the_handshake);
	tcase_add_test(tcase, a_link_may_be_destroyed_while_it_authenticates);
	tcase_add_test(tcase, a_link_may_be_destroyed_with_messages_waiting);
	tcase_add_loop_test(tcase, a_link_may_be_destroyed_inside_on_state, 0,
			    COUNT(destroy_states));
	tcase_add_test(tcase, a_link_may_be_destroyed_inside_on_event);
	tcase_add_loop_test(
		tcase, a_link_destroyed_at_any_turn_of_the_loop_leaves_nothing, 0, 40);
	tcase_add_loop_test(tcase, a_relays_address_is_read_into_its_parts, 0,
			    COUNT(urls));
	tcase_add_loop_test(tcase,
			    what_is_no_relays_address_is_refused_before_anything_starts,
			    0, COUNT(no_urls));
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
