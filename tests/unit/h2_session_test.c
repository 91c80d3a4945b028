/* HTTP/2 without a socket: nghttp2's client on the other side, and a clock of ours. */
#include "observer/http/h2_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nghttp2/nghttp2.h>

#include "observer/http/figures.h"
#include "tests/unit/support/support.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/loop.h"

#define STREAMS 256
#define SECOND INT64_C(1000)
#define PAGE_BYTES 40000 /* of a piece of the stream */
#define WANT_BYTES 65536
#define OVER_BYTES 32768 /* what is taken may be so much more, as h2.c has it */

/* ---- the handler ---- */

static struct h2_session *session;
static struct http_figures figures;
static struct http_budget budget = {.figures = &figures};
static int64_t now;
static bool alive; /* what h2_session_take() said last */
static struct exchange *held, *page;
static unsigned requests, gone, writes;
static enum http_length last_length;
static size_t last_body;
static char *large; /* BROKER_H2_HELD_MAX / 2 bytes */
static bool may;
static bool patterned; /* what comes is the beginning of that, and looked at */
static bool refused;   /* the last piece of the stream */
static bool stranger;  /* whoever asks next has no token */

static void on_writable(void *ctx, struct exchange *exchange)
{
	static const char piece[PAGE_BYTES] = {'p'};

	(void)ctx;
	ck_assert(exchange_ready(exchange));
	writes++;
	refused = !exchange_send(exchange, (struct slice){piece, sizeof(piece)});
}

static void on_page_gone(void *ctx, struct exchange *exchange)
{
	(void)ctx;
	ck_assert_ptr_eq(page, exchange);
	page = NULL;
	gone++;
}

static void on_held_gone(void *ctx)
{
	(void)ctx;
	held = NULL;
	gone++;
}

static void on_request(void *ctx, struct exchange *exchange)
{
	static const struct http_stream stream = {.on_writable = on_writable,
						  .on_gone = on_page_gone};
	const struct http_request *request = exchange_request(exchange);

	(void)ctx;
	requests++;
	last_length = request->length;
	last_body = request->body.len;
	if (!stranger)
		exchange_trust(exchange);
	if (slice_eq(request->path, SLICE("/hold"))) {
		held = exchange;
		exchange_hold(exchange, on_held_gone, NULL);
	} else if (slice_eq(request->path, SLICE("/page"))) {
		page = exchange;
		exchange_begin(exchange, "text/plain", &stream);
	} else if (slice_eq(request->path, SLICE("/large"))) {
		exchange_respond(exchange, 200, "text/plain", NULL,
				 (struct slice){large, BROKER_H2_HELD_MAX / 2});
	} else if (slice_eq(request->path, SLICE("/huge"))) {
		exchange_respond(exchange, 200, "text/plain", NULL,
				 (struct slice){large, BROKER_HELD_MAX + 1});
	} else if (slice_eq(request->path, SLICE("/lasting"))) {
		exchange_respond_lasting(exchange, 200, "text/plain", NULL,
					 (struct slice){large, BROKER_H2_HELD_MAX / 2});
	} else {
		exchange_respond(exchange, 200, "text/plain", NULL, SLICE("hello"));
	}
}

static bool may_send(void *ctx, const struct http_request *request)
{
	(void)ctx;
	(void)request;
	return may;
}

static void wake(void *ctx)
{
	(void)ctx;
}

/* ---- the client ---- */

struct answer {
	unsigned status;
	size_t bytes;
	bool ended, reset;
	uint32_t code; /* of the reset */
};

static nghttp2_session *client;
static struct answer answers[STREAMS];
static bool went_away;
static uint32_t away_code;
static unsigned pings;
static struct buf wire;

static int client_header(nghttp2_session *nghttp2, const nghttp2_frame *frame,
			 const uint8_t *name, size_t name_len, const uint8_t *value,
			 size_t value_len, uint8_t flags, void *ctx)
{
	(void)nghttp2;
	(void)flags;
	(void)ctx;
	(void)value_len;
	if (name_len == 7 && memcmp(name, ":status", 7) == 0)
		answers[frame->hd.stream_id].status =
			(unsigned)((value[0] - '0') * 100 + (value[1] - '0') * 10 +
				   (value[2] - '0'));
	return 0;
}

static int client_frame(nghttp2_session *nghttp2, const nghttp2_frame *frame, void *ctx)
{
	struct answer *answer = &answers[frame->hd.stream_id];

	(void)nghttp2;
	(void)ctx;
	switch (frame->hd.type) {
	case NGHTTP2_GOAWAY:
		went_away = true;
		away_code = frame->goaway.error_code;
		break;
	case NGHTTP2_RST_STREAM:
		answer->reset = true;
		answer->code = frame->rst_stream.error_code;
		break;
	case NGHTTP2_PING:
		pings++;
		break;
	case NGHTTP2_DATA:
	case NGHTTP2_HEADERS:
		answer->ended = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
		break;
	default:
		break;
	}
	return 0;
}

static int client_data(nghttp2_session *nghttp2, uint8_t flags, int32_t id,
		       const uint8_t *bytes, size_t len, void *ctx)
{
	(void)nghttp2;
	(void)flags;
	(void)ctx;
	if (patterned)
		ck_assert_mem_eq(bytes, large + answers[id].bytes, len);
	answers[id].bytes += len;
	return 0;
}

/* What we say goes over, unless it is not to. */
static void take(bool deliver)
{
	do {
		buf_clear(&wire);
		alive = h2_session_take(session, &wire, WANT_BYTES, now);
		ck_assert_uint_lt(wire.len, WANT_BYTES + OVER_BYTES);
		if (deliver && wire.len)
			ck_assert_int_ge(
				nghttp2_session_mem_recv(
					client, (const uint8_t *)wire.ptr, wire.len),
				0);
	} while (wire.len);
}

static void talk(void)
{
	for (;;) {
		const uint8_t *bytes;
		const ssize_t len = nghttp2_session_mem_send(client, &bytes);

		ck_assert_int_ge(len, 0);
		if (len)
			h2_session_receive(
				session, (struct slice){(const char *)bytes, (size_t)len},
				now);
		take(true);
		if (!len)
			return;
	}
}

static void pass(int64_t ms)
{
	bool there;

	now += ms;
	there = h2_session_tick(session, now);
	take(true);
	alive = alive && there;
}

static void open_client(uint32_t window, bool hello)
{
	const nghttp2_settings_entry settings = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
						 window};
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *option;

	ck_assert_int_eq(nghttp2_session_callbacks_new(&callbacks), 0);
	ck_assert_int_eq(nghttp2_option_new(&option), 0);
	nghttp2_option_set_no_auto_window_update(option, 1);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, client_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, client_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, client_data);
	ck_assert_int_eq(nghttp2_session_client_new2(&client, callbacks, NULL, option),
			 0);
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(callbacks);
	ck_assert_int_eq(nghttp2_submit_settings(client, 0, &settings, 1), 0);
	ck_assert_int_eq(nghttp2_session_set_local_window_size(client, 0, 0, 64 << 20),
			 0);
	if (hello)
		talk();
}

static void setup(void)
{
	const struct h2_session_options options = {
		.handler = {.may_send = may_send, .on_request = on_request},
		.budget = &budget,
		.wake = wake,
	};

	budget.held = 0;
	now = 1000000;
	requests = gone = writes = pings = 0;
	held = page = NULL;
	went_away = refused = stranger = patterned = false;
	may = true;
	figures = (struct http_figures){0};
	memset(answers, 0, sizeof(answers));
	large = mem_alloc(BROKER_H2_HELD_MAX / 2);
	wire = (struct buf){.max = 1u << 20};
	session = h2_session_create(&options, now);
	client = NULL;
}

static void teardown(void)
{
	h2_session_destroy(session);
	ck_assert_uint_eq(budget.held, 0); /* all is given back */
	ck_assert_uint_eq(budget.strangers, 0);
	ck_assert_ptr_null(budget.first);
	ck_assert_ptr_null(budget.last);
	nghttp2_session_del(client);
	buf_finish(&wire);
	free(large);
}

static nghttp2_nv pair(const char *name, const char *value)
{
	return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value,
			    strlen(name), strlen(value), 0};
}

static ssize_t body_waits(nghttp2_session *nghttp2, int32_t id, uint8_t *out, size_t len,
			  uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
	(void)nghttp2;
	(void)id;
	(void)out;
	(void)len;
	(void)flags;
	(void)source;
	(void)ctx;
	return NGHTTP2_ERR_DEFERRED;
}

/* As many bytes as the source's number says. */
static ssize_t body_comes(nghttp2_session *nghttp2, int32_t id, uint8_t *out, size_t len,
			  uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
	size_t *left = source->ptr;
	const size_t part = *left < len ? *left : len;

	(void)nghttp2;
	(void)id;
	(void)ctx;
	memset(out, ' ', part);
	*left -= part;
	if (!*left)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)part;
}

static int32_t submit(const char *method, const char *path,
		      const nghttp2_data_provider *body)
{
	const nghttp2_nv list[] = {pair(":method", method), pair(":scheme", "https"),
				   pair(":authority", "here"), pair(":path", path)};
	const int32_t id = nghttp2_submit_request(client, NULL, list, 4, body, NULL);

	ck_assert_int_gt(id, 0);
	ck_assert_int_lt(id, STREAMS);
	return id;
}

static int32_t ask(const char *method, const char *path,
		   const nghttp2_data_provider *body)
{
	const int32_t id = submit(method, path, body);

	talk();
	return id;
}

static int32_t get(const char *path)
{
	return ask("GET", path, NULL);
}

/* ---- tests ---- */

START_TEST(a_request_is_answered)
{
	int32_t id;

	stranger = true;
	open_client(65535, true);
	id = get("/");
	ck_assert_uint_eq(answers[id].status, 200);
	ck_assert_uint_eq(answers[id].bytes, 5);
	ck_assert(answers[id].ended && alive);
	ck_assert_uint_eq(h2_session_streams(session), 0);
	ck_assert(!h2_session_is_trusted(session));
}
END_TEST

/* Ours and one that lasts, side by side, to a peer that has room for all of both. */
START_TEST(answers_come_whole_and_a_bounded_part_is_taken_at_one_time)
{
	const size_t bytes = BROKER_H2_HELD_MAX / 2;
	int32_t ids[2];

	for (size_t i = 0; i < bytes; i++)
		large[i] = (char)(i % 251);
	patterned = true;
	open_client(BROKER_H2_HELD_MAX, true);
	ids[0] = submit("GET", "/large", NULL);
	ids[1] = submit("GET", "/lasting", NULL);
	talk();
	for (size_t i = 0; i < 2; i++) {
		ck_assert_uint_eq(answers[ids[i]].bytes, bytes);
		ck_assert(answers[ids[i]].ended && !answers[ids[i]].reset);
	}
	ck_assert_uint_eq(h2_session_streams(session), 0);
}
END_TEST

START_TEST(settings_that_are_not_taken_end_the_connection)
{
	open_client(65535, false);
	h2_session_receive(session,
			   SLICE("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"),
			   now);
	take(true);
	pass(BROKER_REQUEST_S * SECOND);
	ck_assert(alive && !went_away);
	pass(1);
	ck_assert(!alive && went_away);
	ck_assert_uint_eq(away_code, NGHTTP2_SETTINGS_TIMEOUT);
}
END_TEST

START_TEST(a_body_that_does_not_come_is_waited_for_so_long)
{
	const nghttp2_data_provider body = {.read_callback = body_waits};
	int32_t id;

	open_client(65535, true);
	id = ask("POST", "/", &body);
	pass(BROKER_REQUEST_S * SECOND);
	ck_assert_uint_eq(answers[id].status, 0);
	pass(1);
	ck_assert_uint_eq(answers[id].status, 408);
	ck_assert_uint_eq(requests, 0);
	/* And a little longer for the sender to see it. */
	ck_assert(!answers[id].reset);
	pass(BROKER_REQUEST_S * SECOND + 1);
	ck_assert(answers[id].reset && alive);
	ck_assert_uint_eq(answers[id].code, NGHTTP2_NO_ERROR);
	ck_assert_uint_eq(h2_session_streams(session), 0);
}
END_TEST

START_TEST(headers_that_do_not_come_end_the_connection)
{
	open_client(65535, true);
	/* HEADERS of stream 1 without their end. */
	h2_session_receive(session, SLICE("\0\0\1\1\0\0\0\0\1\x82"), now);
	pass(BROKER_REQUEST_S * SECOND);
	ck_assert(alive && !went_away);
	pass(1);
	ck_assert(!alive && went_away);
	ck_assert_uint_eq(away_code, NGHTTP2_ENHANCE_YOUR_CALM);
}
END_TEST

START_TEST(an_answer_that_is_not_read_is_given_up)
{
	int32_t id;

	open_client(3, true);
	id = get("/");
	ck_assert_uint_eq(answers[id].bytes, 3);
	pass(BROKER_H2_UNREAD_S * SECOND);
	ck_assert(!answers[id].reset);
	talk();
	pass(1);
	ck_assert(answers[id].reset && alive);
	ck_assert_uint_eq(answers[id].code, NGHTTP2_CANCEL);
}
END_TEST

START_TEST(answers_that_wait_are_bounded)
{
	int32_t ids[4];

	open_client(0, true);
	for (int i = 0; i < 3; i++)
		ids[i] = get("/large");
	ids[3] = get("/lasting");
	ck_assert_uint_eq(answers[ids[0]].status, 200);
	ck_assert_uint_eq(answers[ids[1]].status, 200);
	ck_assert_uint_eq(answers[ids[2]].status, 503);
	ck_assert_uint_eq(answers[ids[3]].status, 200); /* nobody's memory */
	/* What is let go makes room. */
	ck_assert_int_eq(nghttp2_submit_rst_stream(client, 0, ids[0], NGHTTP2_CANCEL), 0);
	talk();
	ck_assert_uint_eq(answers[get("/large")].status, 200);
}
END_TEST

/* What others hold, so that @left bytes are left of the budget. */
static void leave(size_t left)
{
	budget.held = BROKER_HELD_MAX - left;
}

START_TEST(answers_of_all_connections_are_bounded)
{
	int32_t id;

	open_client(0, true);
	leave(BROKER_H2_HELD_MAX / 2 - 1);
	id = get("/large");
	ck_assert_uint_eq(answers[id].status, 503);
	ck_assert(answers[id].ended);
	ck_assert_uint_eq(answers[get("/lasting")].status, 200);
	leave(BROKER_H2_HELD_MAX / 2);
	ck_assert_uint_eq(answers[get("/large")].status, 200);
	ck_assert_uint_eq(budget.held, BROKER_HELD_MAX);
	/* Nothing is left; when the others have read theirs there is. */
	ck_assert_uint_eq(answers[get("/")].status, 503);
	budget.held = BROKER_H2_HELD_MAX / 2;
	ck_assert_uint_eq(answers[get("/")].status, 200);
}
END_TEST

START_TEST(who_is_alone_is_answered_however_much_it_is)
{
	free(large);
	large = mem_alloc(BROKER_HELD_MAX + 1);
	open_client(0, true);
	ck_assert_uint_eq(answers[get("/huge")].status, 200);
	ck_assert_uint_eq(answers[get("/")].status, 503);
}
END_TEST

START_TEST(bodies_of_all_connections_are_bounded)
{
	static const enum http_length lengths[] = {HTTP_LENGTH_NO_ROOM, HTTP_LENGTH_OK};

	open_client(65535, true);
	for (size_t more = 0; more < 2; more++) {
		size_t left = BROKER_BODY_MAX;
		const nghttp2_data_provider body = {.source.ptr = &left,
						    .read_callback = body_comes};

		/* The answer, "hello", comes while the body is held. */
		leave(BROKER_BODY_MAX - 1 + more * 6);
		(void)ask("POST", "/", &body);
		ck_assert_int_eq(last_length, lengths[more]);
		ck_assert_uint_eq(last_body, more ? BROKER_BODY_MAX : 0);
		ck_assert_uint_eq(left, 0);
	}
	budget.held = 0;
}
END_TEST

/* 8 MiB each, of which nothing is read. */
START_TEST(what_is_not_read_makes_room_for_whoever_has_the_token)
{
	int32_t first, second;

	open_client(0, true);
	leave(BROKER_H2_HELD_MAX / 2);
	first = get("/large");
	ck_assert_uint_eq(answers[first].status, 200);
	now += BROKER_STALLED_S * SECOND - 1;
	second = get("/");
	ck_assert_uint_eq(answers[second].status, 503);
	ck_assert_uint_eq(figures.no_room, 1);
	ck_assert(!answers[first].reset);
	/* Somebody else gets nothing of it. */
	now++;
	stranger = true;
	ck_assert_uint_eq(answers[get("/")].status, 503);
	ck_assert(!answers[first].reset);
	stranger = false;
	ck_assert_uint_eq(answers[get("/")].status, 200);
	ck_assert(answers[first].reset);
	ck_assert_uint_eq(answers[first].code, NGHTTP2_CANCEL);
	ck_assert_uint_eq(figures.stalled, 1);
	ck_assert_uint_eq(figures.no_room, 2);
	budget.held -= BROKER_HELD_MAX - BROKER_H2_HELD_MAX / 2;
}
END_TEST

START_TEST(an_answer_that_is_being_read_makes_no_room)
{
	int32_t id;

	open_client(0, true);
	leave(BROKER_H2_HELD_MAX / 2);
	id = get("/large");
	for (int i = 0; i < 5; i++) {
		now += BROKER_STALLED_S * SECOND - 1;
		ck_assert_int_eq(nghttp2_submit_window_update(client, 0, id, PAGE_BYTES),
				 0);
		talk();
	}
	ck_assert_uint_eq(answers[id].bytes, 5 * PAGE_BYTES);
	now += BROKER_STALLED_S * SECOND - 1;
	ck_assert_uint_eq(answers[get("/")].status, 503);
	ck_assert(!answers[id].reset);
	budget.held -= BROKER_HELD_MAX - BROKER_H2_HELD_MAX / 2;
}
END_TEST

START_TEST(a_page_that_stopped_reading_makes_room_and_is_told_of_once)
{
	int32_t id;

	open_client(0, true);
	leave(PAGE_BYTES);
	id = get("/page");
	ck_assert(page && !refused);
	now += BROKER_STALLED_S * SECOND;
	ck_assert_uint_eq(answers[get("/")].status, 200);
	ck_assert_uint_eq(answers[id].code, NGHTTP2_CANCEL);
	ck_assert(!page);
	ck_assert_uint_eq(gone, 1);
	ck_assert_uint_eq(writes, 1);
	budget.held -= BROKER_HELD_MAX - PAGE_BYTES;
}
END_TEST

START_TEST(strangers_have_a_part_of_the_budget)
{
	open_client(0, true);
	stranger = true;
	budget.held = budget.strangers = BROKER_STRANGERS_HELD_MAX - 5; /* "hello" */
	ck_assert_uint_eq(answers[get("/")].status, 200);
	ck_assert_uint_eq(answers[get("/")].status, 503);
	stranger = false;
	ck_assert_uint_eq(answers[get("/")].status, 200);
	ck_assert_uint_eq(budget.strangers, BROKER_STRANGERS_HELD_MAX);
	budget.held -= BROKER_STRANGERS_HELD_MAX - 5;
	budget.strangers = 5;
}
END_TEST

START_TEST(a_page_of_the_stream_that_finds_no_room_ends)
{
	int32_t id;

	open_client(0, true);
	leave(PAGE_BYTES);
	id = get("/page");
	ck_assert(page && !refused);
	ck_assert_int_eq(nghttp2_submit_rst_stream(client, 0, id, NGHTTP2_CANCEL), 0);
	talk();
	ck_assert_uint_eq(gone, 1);
	leave(PAGE_BYTES - 1);
	id = get("/page");
	ck_assert(refused && !page);
	ck_assert_uint_eq(gone, 2);
	ck_assert_uint_eq(answers[id].code, NGHTTP2_CANCEL);
	budget.held = 0;
}
END_TEST

START_TEST(a_connection_without_requests_ends)
{
	open_client(65535, true);
	pass(10 * SECOND);
	(void)get("/");
	pass(BROKER_IDLE_S * SECOND / 2);
	talk(); /* it answers our PING */
	pass(BROKER_IDLE_S * SECOND / 2);
	ck_assert(alive && !went_away);
	pass(1);
	ck_assert(!alive && went_away);
	ck_assert_uint_eq(away_code, NGHTTP2_NO_ERROR);
}
END_TEST

START_TEST(silence_is_asked_about_and_then_the_end)
{
	open_client(65535, true);
	(void)get("/hold");
	for (int i = 0; i < 5; i++) {
		pass(LOOP_PING_S * SECOND + 1);
		ck_assert_uint_eq(pings, (unsigned)i + 1);
		talk();
		ck_assert(alive);
	}
	pass(LOOP_PING_S * SECOND + 1);
	pass(LOOP_PING_S * SECOND + 1); /* once is enough */
	ck_assert(alive);
	ck_assert_uint_eq(pings, 6);
	pass((LOOP_HANGUP_S - 2 * LOOP_PING_S) * SECOND - 2);
	ck_assert(alive);
	pass(1);
	ck_assert(!alive);
}
END_TEST

START_TEST(a_page_that_stops_reading_holds_one_piece_and_may_take_its_time)
{
	int32_t id;

	open_client(50000, true);
	id = get("/page");
	ck_assert(h2_session_is_trusted(session));
	ck_assert_uint_eq(writes, 1);
	for (int i = 0; i < 100; i++) { /* news comes, as from the hub */
		exchange_want_write(page);
		pass(LOOP_PING_S * SECOND);
		talk();
	}
	ck_assert(alive && page);
	/* The second is on its way, the third has not been asked for. */
	ck_assert_uint_eq(writes, 2);
	ck_assert_uint_eq(answers[id].bytes, 50000);
	ck_assert(!exchange_ready(page));
	ck_assert_int_eq(nghttp2_submit_window_update(client, 0, id, 30000), 0);
	talk();
	ck_assert_uint_eq(answers[id].bytes, 80000);
	exchange_want_write(page);
	talk();
	ck_assert_uint_eq(writes, 3);
}
END_TEST

START_TEST(who_leaves_is_told_of_once)
{
	int32_t id;

	open_client(65535, true);
	id = get("/page");
	(void)get("/hold");
	ck_assert(page && held);
	ck_assert_int_eq(nghttp2_submit_rst_stream(client, 0, id, NGHTTP2_CANCEL), 0);
	talk();
	ck_assert(!page && held);
	exchange_respond(held, 200, "text/plain", NULL, SLICE("late"));
	take(false);
	h2_session_destroy(session);
	session = NULL;
	ck_assert_uint_eq(gone, 1);
}
END_TEST

START_TEST(who_holds_an_exchange_is_told_when_the_connection_ends)
{
	open_client(65535, true);
	(void)get("/hold");
	(void)get("/page");
	h2_session_destroy(session);
	session = NULL;
	ck_assert_uint_eq(gone, 2);
	ck_assert(!held && !page);
}
END_TEST

START_TEST(a_body_comes_whole_or_not_at_all)
{
	static const struct {
		size_t bytes;
		bool may;
		enum http_length length;
		size_t body;
	} cases[] = {
		{0, true, HTTP_LENGTH_OK, 0},
		{BROKER_BODY_MAX, true, HTTP_LENGTH_OK, BROKER_BODY_MAX},
		{BROKER_BODY_MAX + 1, true, HTTP_LENGTH_TOO_LARGE, 0},
		{3 * BROKER_BODY_MAX, true, HTTP_LENGTH_TOO_LARGE, 0},
		{3 * BROKER_BODY_MAX, false, HTTP_LENGTH_UNASKED, 0},
	};
	int32_t id;

	open_client(65535, true);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size_t left = cases[i].bytes;
		const nghttp2_data_provider body = {.source.ptr = &left,
						    .read_callback = body_comes};

		may = cases[i].may;
		id = ask("POST", "/", &body);
		ck_assert_uint_eq(requests, i + 1);
		ck_assert_int_eq(last_length, cases[i].length);
		ck_assert_uint_eq(last_body, cases[i].body);
		ck_assert(answers[id].ended && !answers[id].reset);
		ck_assert_uint_eq(left, 0);
	}
}
END_TEST

START_TEST(a_sender_that_does_not_stop_is_stopped)
{
	size_t left = 100 * BROKER_BODY_MAX;
	const nghttp2_data_provider body = {.source.ptr = &left,
					    .read_callback = body_comes};
	int32_t id;

	open_client(65535, true);
	may = false;
	id = ask("POST", "/", &body);
	ck_assert(answers[id].ended && answers[id].reset);
	ck_assert_uint_eq(answers[id].code, NGHTTP2_NO_ERROR);
	ck_assert_uint_gt(left, 90 * BROKER_BODY_MAX);
	ck_assert_uint_eq(answers[get("/")].status, 200);
}
END_TEST

START_TEST(resets_come_back_with_time)
{
	open_client(65535, true);
	for (int i = 0; i < 100; i++) {
		const int32_t id = get("/hold");

		ck_assert_int_eq(nghttp2_submit_rst_stream(client, 0, id, NGHTTP2_CANCEL),
				 0);
		talk();
		ck_assert(!went_away);
		pass(SECOND / BROKER_H2_RESETS_PER_S);
	}
	ck_assert_uint_eq(h2_session_streams(session), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("observer/h2_session");
	TCase *tcase = tcase_create("h2_session");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_request_is_answered);
	tcase_add_test(tcase, answers_come_whole_and_a_bounded_part_is_taken_at_one_time);
	tcase_add_test(tcase, settings_that_are_not_taken_end_the_connection);
	tcase_add_test(tcase, a_body_that_does_not_come_is_waited_for_so_long);
	tcase_add_test(tcase, headers_that_do_not_come_end_the_connection);
	tcase_add_test(tcase, an_answer_that_is_not_read_is_given_up);
	tcase_add_test(tcase, answers_that_wait_are_bounded);
	tcase_add_test(tcase, answers_of_all_connections_are_bounded);
	tcase_add_test(tcase, who_is_alone_is_answered_however_much_it_is);
	tcase_add_test(tcase, bodies_of_all_connections_are_bounded);
	tcase_add_test(tcase, what_is_not_read_makes_room_for_whoever_has_the_token);
	tcase_add_test(tcase, an_answer_that_is_being_read_makes_no_room);
	tcase_add_test(tcase, a_page_that_stopped_reading_makes_room_and_is_told_of_once);
	tcase_add_test(tcase, strangers_have_a_part_of_the_budget);
	tcase_add_test(tcase, a_page_of_the_stream_that_finds_no_room_ends);
	tcase_add_test(tcase, a_connection_without_requests_ends);
	tcase_add_test(tcase, silence_is_asked_about_and_then_the_end);
	tcase_add_test(tcase,
		       a_page_that_stops_reading_holds_one_piece_and_may_take_its_time);
	tcase_add_test(tcase, who_leaves_is_told_of_once);
	tcase_add_test(tcase, who_holds_an_exchange_is_told_when_the_connection_ends);
	tcase_add_test(tcase, a_body_comes_whole_or_not_at_all);
	tcase_add_test(tcase, a_sender_that_does_not_stop_is_stopped);
	tcase_add_test(tcase, resets_come_back_with_time);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
