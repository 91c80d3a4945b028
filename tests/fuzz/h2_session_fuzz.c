/* HTTP/2 as a client sends it, behind its preface: pieces of at most 256 bytes, each
 * after one of its length. A piece of length 0 lets a second pass and drops what we say;
 * a handler answers, holds, streams or refuses by the path's length. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>

#include "observer/http/figures.h"
#include "observer/http/h2_session.h"
#include "wire/frame/limits.h"

#define HELD_MAX 256

struct broker {
	struct h2_session *session;
	struct exchange *held;
	unsigned gone, streams;
};

static void on_writable(void *ctx, struct exchange *exchange)
{
	(void)ctx;
	assert(exchange_ready(exchange));
	(void)exchange_send(exchange, SLICE("a piece of the stream"));
}

static void on_page_gone(void *ctx, struct exchange *exchange)
{
	struct broker *broker = ctx;

	(void)exchange;
	broker->streams--;
}

static void on_held_gone(void *ctx)
{
	struct broker *broker = ctx;

	broker->held = NULL;
}

static void on_request(void *ctx, struct exchange *exchange)
{
	struct broker *broker = ctx;
	const struct http_request *request = exchange_request(exchange);
	const struct http_stream stream = {
		.on_writable = on_writable, .on_gone = on_page_gone, .ctx = broker};
	struct buf value = {0};

	assert(request->path.len && request->path.ptr[0] == '/');
	assert(request->body.len <= BROKER_BODY_MAX);
	(void)exchange_query(exchange, "a", &value);
	switch (request->path.len % 4) {
	case 1:
		broker->streams++;
		exchange_begin(exchange, "text/plain", &stream);
		break;
	case 2:
		if (!broker->held) {
			broker->held = exchange;
			exchange_hold(exchange, on_held_gone, broker);
			break;
		}
		/* fallthrough */
	default:
		exchange_respond(exchange, 200, "text/plain", NULL, request->body);
		break;
	}
	buf_finish(&value);
}

static bool may_send(void *ctx, const struct http_request *request)
{
	(void)ctx;
	return request->path.len % 2 == 0;
}

static void wake(void *ctx)
{
	(void)ctx;
}

/* All that there is to say, as to a peer that reads it. */
static bool drain(struct broker *broker, int64_t now)
{
	struct buf out = {.max = 1u << 20};
	bool goes_on, more;

	do {
		buf_clear(&out);
		goes_on = h2_session_take(broker->session, &out, 65536, now);
		assert(buf_ok(&out) && out.len < 65536 + 32768);
		more = out.len > 0;
	} while (goes_on && more);
	assert(h2_session_streams(broker->session) <= BROKER_H2_STREAMS_MAX + 1);
	buf_finish(&out);
	return goes_on;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct broker broker = {0};
	struct http_figures figures = {0};
	struct http_budget budget = {.figures = &figures};
	const struct h2_session_options options = {
		.handler = {.may_send = may_send,
			    .on_request = on_request,
			    .ctx = &broker},
		.budget = &budget,
		.wake = wake,
	};
	int64_t now = 1000000;
	bool goes_on;

	broker.session = h2_session_create(&options, now);
	h2_session_receive(broker.session, SLICE("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
			   now);
	goes_on = drain(&broker, now);
	while (goes_on && size) {
		const size_t len = *data < size - 1 ? *data : size - 1;

		data++;
		size--;
		if (len) {
			h2_session_receive(broker.session,
					   (struct slice){(const char *)data, len}, now);
		} else {
			now += 1000;
			if (broker.held)
				exchange_respond(broker.held, 200, "text/plain", NULL,
						 SLICE("late"));
			broker.held = NULL;
			goes_on = h2_session_tick(broker.session, now);
		}
		goes_on = drain(&broker, now) && goes_on;
		data += len;
		size -= len;
	}
	h2_session_destroy(broker.session);
	assert(!broker.held && !broker.streams);
	return 0;
}
