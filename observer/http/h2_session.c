#include "observer/http/h2_session.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nghttp2/nghttp2.h>

#include "observer/http/figures.h"
#include "observer/http/http_part.h"
#include "observer/http/target.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/loop.h"

/* Headers that are read on after they were too many, to keep the compression of both
 * sides in step; beyond that the connection ends. */
#define HEADERS_ENDURED (16u * BROKER_HEADER_MAX)
#define FIELD_OVERHEAD 32 /* bytes; RFC 9113, 6.5.2: of each in the header list */
#define TARGET_MAX 8192
#define BODY_DROP_MAX \
	(4 * BROKER_BODY_MAX) /* read, not kept, of a request answered early */
#define METHOD_MAX 16
#define STATUS_HEADER 1    /* before those of the answer */
#define FRAME_HEAD_BYTES 9 /* RFC 9113, 4.1 */
/* Of a body in one frame: with its head a record of TLS (RFC 8446, 5.1: 2^14 bytes). */
#define FRAME_BODY_BYTES (16384 - FRAME_HEAD_BYTES)

/* What comes in is counted by these: each gains so much a second, up to a burst. */
struct allowance {
	int64_t parts; /* thousandths */
	int64_t at_ms;
};

struct stream {
	struct exchange base; /* first */
	struct h2_session *session;
	struct stream *next, **link;
	int32_t id;
	int64_t since_ms; /* it began; of an answer, when a part of it was last taken */
	/* the request */
	size_t header_bytes;
	struct buf target;
	char method[METHOD_MAX];
	bool https;
	bool mismatch; /* Host and the authority differ */
	bool head_done, ended, dispatched;
	size_t unconsumed; /* bytes of the connection's window that the body holds */
	size_t dropped;    /* bytes that came and were not wanted */
	bool stopped;      /* and then it was reset */
	/* the answer */
	bool answering;
	struct slice body;
	struct buf answer; /* what body points into, if it is ours */
	size_t sent;       /* bytes of body */
	bool given_up;     /* others needed the room: it was reset */
	bool wants;        /* a stream's on_writable is to be called */
};

struct h2_session {
	struct h2_session_options options;
	nghttp2_session *nghttp2;
	struct stream *streams;
	size_t stream_count;
	size_t held; /* bytes of answers */
	/* While it is taken from: */
	struct buf *out;
	size_t enough; /* its length from which on no more is asked for */
	int64_t now_ms, since_ms;
	int64_t heard_ms; /* the peer's last byte */
	int64_t quiet_ms; /* when the last stream ended */
	struct allowance resets, frames;
	bool acknowledged; /* our SETTINGS */
	bool pinged, trusted;
	bool ending; /* GOAWAY is said: nothing is read any more */
};

static struct stream *stream_of(struct exchange *exchange)
{
	return (struct stream *)exchange;
}

/* Ends the connection with the reason in a GOAWAY. */
static void end(struct h2_session *session, uint32_t code)
{
	if (session->ending)
		return;
	session->ending = true;
	if (code == NGHTTP2_ENHANCE_YOUR_CALM)
		session->options.budget->figures->calmed++;
	(void)nghttp2_session_terminate_session(session->nghttp2, code);
}

static void set_now(struct h2_session *session, int64_t now_ms)
{
	session->now_ms = session->options.budget->now_ms = now_ms;
}

static void reset(struct stream *stream, uint32_t code)
{
	(void)nghttp2_submit_rst_stream(stream->session->nghttp2, NGHTTP2_FLAG_NONE,
					stream->id, code);
}

/* Takes one of the allowance; false: it is used up. */
static bool spend(struct allowance *allowance, int64_t per_s, int64_t burst,
		  int64_t now_ms)
{
	const int64_t passed_ms = now_ms - allowance->at_ms, full = burst * 1000;

	allowance->at_ms = now_ms;
	if (passed_ms >= full / per_s || allowance->parts + passed_ms * per_s > full)
		allowance->parts = full;
	else
		allowance->parts += passed_ms * per_s;
	if (allowance->parts < 1000)
		return false;
	allowance->parts -= 1000;
	return true;
}

static void spend_reset(struct h2_session *session)
{
	if (!spend(&session->resets, BROKER_H2_RESETS_PER_S, BROKER_H2_RESETS_BURST,
		   session->now_ms))
		end(session, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* ---- streams ---- */

static struct stream *stream_create(struct h2_session *session, int32_t id,
				    const struct exchange_ops *ops)
{
	struct stream *stream = mem_alloc(sizeof(*stream));

	exchange_init(&stream->base, ops, HTTP_BY_TLS, session->options.budget);
	stream->session = session;
	stream->id = id;
	stream->since_ms = session->now_ms;
	stream->target.max = TARGET_MAX;
	stream->next = session->streams;
	if (stream->next)
		stream->next->link = &stream->next;
	stream->link = &session->streams;
	session->streams = stream;
	session->stream_count++;
	return stream;
}

static void drop_answer(struct stream *stream)
{
	stream->session->held -= stream->answer.len;
	exchange_give_back(&stream->base, stream->answer.len);
	buf_finish(&stream->answer);
	stream->body = SLICE_EMPTY;
	stream->sent = 0;
}

static void stream_destroy(struct stream *stream)
{
	struct h2_session *session = stream->session;

	*stream->link = stream->next;
	if (stream->next)
		stream->next->link = stream->link;
	if (--session->stream_count == 0)
		session->quiet_ms = session->now_ms;
	drop_answer(stream);
	exchange_finish(&stream->base);
	buf_finish(&stream->target);
	free(stream);
}

/* ---- answers ---- */

static nghttp2_nv pair_of(struct slice name, const char *value)
{
	/* nghttp2 copies both: its type forgot the const. */
	return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name.ptr,
			    .value = (uint8_t *)(uintptr_t)value,
			    .namelen = name.len,
			    .valuelen = strlen(value)};
}

/* How much of the body is next. nghttp2 has no room for it: it asks at once for the bytes
 * themselves, by send_body(). */
static ssize_t read_body(nghttp2_session *nghttp2, int32_t id, uint8_t *out, size_t len,
			 uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
	const struct stream *stream = source->ptr;
	const struct h2_session *session = ctx;
	const size_t left = stream->body.len - stream->sent;
	size_t now = left < len ? left : len;

	(void)nghttp2;
	(void)id;
	(void)out;
	if (stream->given_up)
		return NGHTTP2_ERR_DEFERRED;
	if (!now && stream->base.streaming)
		return NGHTTP2_ERR_DEFERRED;
	if (session->out->len >= session->enough)
		return NGHTTP2_ERR_PAUSE;
	now = now < FRAME_BODY_BYTES ? now : FRAME_BODY_BYTES;
	if (now)
		*flags |= NGHTTP2_DATA_FLAG_NO_COPY;
	if (now == left && !stream->base.streaming)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)now;
}

static int send_body(nghttp2_session *nghttp2, nghttp2_frame *frame, const uint8_t *head,
		     size_t len, nghttp2_data_source *source, void *ctx)
{
	struct stream *stream = source->ptr;
	struct h2_session *session = ctx;
	const struct slice piece =
		slice_sub(stream->body, stream->sent, stream->sent + len);

	(void)nghttp2;
	(void)frame;
	assert(piece.len == len); /* read_body() was asked for no other */
	(void)buf_append(session->out,
			 (struct slice){(const char *)head, FRAME_HEAD_BYTES});
	(void)buf_append(session->out, piece);
	stream->sent += len;
	stream->since_ms = session->now_ms;
	exchange_moved(&stream->base, len);
	if (stream->base.streaming && stream->sent == stream->body.len)
		drop_answer(stream);
	return 0;
}

static void submit(struct stream *stream, unsigned status,
		   const struct http_field *fields, bool has_body)
{
	const nghttp2_data_provider body = {.source.ptr = stream,
					    .read_callback = read_body};
	nghttp2_nv list[STATUS_HEADER + HTTP_FIELDS_MAX];
	size_t count = 0;
	char digits[16];

	(void)snprintf(digits, sizeof(digits), "%03u", status);
	list[count++] = pair_of(SLICE(":status"), digits);
	for (; fields->name; fields++) {
		struct slice name = slice_of(fields->name);

		name.len--; /* the colon */
		list[count++] = pair_of(name, fields->value);
	}
	stream->answering = true;
	stream->since_ms = stream->session->now_ms;
	/* It fails only without memory or where the peer is gone. */
	if (nghttp2_submit_response(stream->session->nghttp2, stream->id, list, count,
				    has_body ? &body : NULL) != 0)
		reset(stream, NGHTTP2_INTERNAL_ERROR);
	stream->session->options.wake(stream->session->options.ctx);
}

static unsigned h2_respond(struct exchange *exchange, unsigned status,
			   const struct http_field *fields, struct slice body, bool lasts)
{
	struct stream *stream = stream_of(exchange);
	struct h2_session *session = stream->session;

	if (!lasts && session->held && session->held + body.len > BROKER_H2_HELD_MAX) {
		static const struct http_field why[] = {{"retry-after:", "1"},
							{NULL, NULL}};

		exchange_give_back(exchange, body.len);
		submit(stream, 503, why, false);
		return 503;
	}
	stream->body = body;
	if (!lasts && body.len) {
		stream->answer.max = body.len;
		(void)buf_append(&stream->answer, body);
		stream->body = buf_slice(&stream->answer);
		session->held += body.len;
	}
	submit(stream, status, fields, body.len > 0);
	return status;
}

static void h2_begin(struct exchange *exchange, const struct http_field *fields)
{
	stream_of(exchange)->wants = true;
	submit(stream_of(exchange), 200, fields, true);
}

static void h2_want_write(struct exchange *exchange)
{
	struct stream *stream = stream_of(exchange);

	stream->wants = true;
	if (exchange_ready(exchange))
		stream->session->options.wake(stream->session->options.ctx);
}

/* One piece at a time: the peer's window is what a piece waits for. */
static bool h2_ready(const struct exchange *exchange)
{
	const struct stream *stream = (const struct stream *)exchange;

	return !stream->given_up && stream->sent == stream->body.len;
}

static bool h2_send(struct exchange *exchange, struct slice piece)
{
	struct stream *stream = stream_of(exchange);

	assert(exchange_ready(exchange));
	if (!exchange_spend(exchange, piece.len)) {
		reset(stream, NGHTTP2_CANCEL);
		return false;
	}
	stream->answer.max = piece.len;
	(void)buf_append(&stream->answer, piece);
	stream->body = buf_slice(&stream->answer);
	stream->session->held += piece.len;
	return nghttp2_session_resume_data(stream->session->nghttp2, stream->id) == 0;
}

static void h2_trust(struct exchange *exchange)
{
	stream_of(exchange)->session->trusted = true;
}

static void h2_drop(struct exchange *exchange)
{
	struct stream *stream = stream_of(exchange);

	stream->given_up = true;
	drop_answer(stream);
	reset(stream, NGHTTP2_CANCEL);
	stream->session->options.wake(stream->session->options.ctx);
}

static const struct exchange_ops h2_ops = {
	.respond = h2_respond,
	.begin = h2_begin,
	.want_write = h2_want_write,
	.ready = h2_ready,
	.send = h2_send,
	.trust = h2_trust,
	.drop = h2_drop,
};

/* ---- requests ---- */

static void dispatch(struct stream *stream)
{
	const struct http_handler *handler = &stream->session->options.handler;

	if (stream->dispatched)
		return;
	stream->dispatched = true;
	stream->base.request.body = buf_slice(&stream->base.body);
	handler->on_request(handler->ctx, &stream->base);
}

static void refuse_head(struct stream *stream, unsigned status, const char *sentence)
{
	stream->dispatched = true;
	exchange_respond(&stream->base, status, "text/plain; charset=utf-8", NULL,
			 slice_of(sentence));
}

static enum http_method method_of(const char *name)
{
	if (strcmp(name, "GET") == 0)
		return HTTP_GET;
	if (strcmp(name, "HEAD") == 0)
		return HTTP_HEAD;
	return strcmp(name, "POST") == 0 ? HTTP_POST : HTTP_OTHER;
}

/* All but the body is there. What is wrong is answered now; the body, if any, is not
 * kept. */
static void on_head(struct stream *stream)
{
	struct http_request *request = &stream->base.request;
	const struct http_handler *handler = &stream->session->options.handler;

	stream->head_done = true;
	request->method = method_of(stream->method);
	if (stream->header_bytes > BROKER_HEADER_MAX) {
		refuse_head(stream, 431, "the headers of a request are at most 16 KiB\n");
		return;
	}
	if (!stream->https || stream->mismatch ||
	    !target_parse(buf_slice(&stream->target), &stream->base.path,
			  &stream->base.query)) {
		refuse_head(stream, 400, "this is no request for an https page\n");
		return;
	}
	buf_finish(&stream->target);
	request->path = buf_slice(&stream->base.path);
	if (request->method != HTTP_POST)
		return;
	if (handler->may_send(handler->ctx, request))
		exchange_trust(&stream->base);
	else
		request->length = HTTP_LENGTH_UNASKED;
	if (request->length != HTTP_LENGTH_OK)
		dispatch(stream);
}

static bool is(const uint8_t *name, size_t len, const char *text)
{
	return slice_eq((struct slice){(const char *)name, len}, slice_of(text));
}

static void set_host(struct stream *stream, struct slice value)
{
	const struct slice before = stream->base.request.headers[HTTP_HOST];

	/* RFC 9113, 8.3.1: "An intermediary or server ... SHOULD treat a request as
	 * malformed if it contains a Host header field that identifies an entity that
	 * differs from the entity in the ":authority"". */
	if (before.ptr && !slice_eq(before, value))
		stream->mismatch = true;
	else
		exchange_set_header(&stream->base, HTTP_HOST, value);
}

static void take_header(struct stream *stream, const uint8_t *name, size_t len,
			struct slice value)
{
	static const char *const names[HTTP_HEADERS] = {
		[HTTP_AUTHORIZATION] = "authorization",
		[HTTP_ORIGIN] = "origin",
		[HTTP_CONTENT_TYPE] = "content-type",
		[HTTP_ACCEPT_ENCODING] = "accept-encoding",
		[HTTP_SEC_FETCH_SITE] = "sec-fetch-site",
	};
	uint64_t length;

	if (is(name, len, ":method")) {
		if (value.len < METHOD_MAX)
			memcpy(stream->method, value.ptr, value.len);
	} else if (is(name, len, ":path")) {
		buf_clear(&stream->target);
		(void)buf_append(&stream->target, value);
	} else if (is(name, len, ":scheme")) {
		stream->https = slice_eq(value, SLICE("https"));
	} else if (is(name, len, ":authority") || is(name, len, "host")) {
		set_host(stream, value);
	} else if (is(name, len, "content-length")) {
		if (!slice_parse_u64(value, UINT64_MAX, &length))
			stream->base.request.length = HTTP_LENGTH_MALFORMED;
		else if (length > BROKER_BODY_MAX)
			stream->base.request.length = HTTP_LENGTH_TOO_LARGE;
	}
	for (size_t i = 0; i < HTTP_HEADERS; i++)
		if (names[i] && is(name, len, names[i]))
			exchange_set_header(&stream->base, (enum http_header)i, value);
}

static int on_begin_headers(nghttp2_session *nghttp2, const nghttp2_frame *frame,
			    void *ctx)
{
	struct h2_session *session = ctx;

	if (frame->hd.type == NGHTTP2_HEADERS &&
	    frame->headers.cat == NGHTTP2_HCAT_REQUEST)
		(void)nghttp2_session_set_stream_user_data(
			nghttp2, frame->hd.stream_id,
			stream_create(session, frame->hd.stream_id, &h2_ops));
	return 0;
}

static int on_header(nghttp2_session *nghttp2, const nghttp2_frame *frame,
		     const uint8_t *name, size_t name_len, const uint8_t *value,
		     size_t value_len, uint8_t flags, void *ctx)
{
	struct h2_session *session = ctx;
	struct stream *stream =
		nghttp2_session_get_stream_user_data(nghttp2, frame->hd.stream_id);

	(void)flags;
	if (!stream)
		return 0;
	stream->header_bytes += name_len + value_len + FIELD_OVERHEAD;
	if (stream->header_bytes > HEADERS_ENDURED) {
		/* A small block may unfold to very much: it is not looked at further. */
		end(session, NGHTTP2_ENHANCE_YOUR_CALM);
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	}
	if (!stream->head_done && stream->header_bytes <= BROKER_HEADER_MAX)
		take_header(stream, name, name_len,
			    (struct slice){(const char *)value, value_len});
	return 0;
}

/* Who is answered early may not know it yet: a little of the body is still taken, and
 * dropped. RFC 9113, 8.1: then its sender is asked to stop, without error; some clients
 * take no answer that comes together with that. */
static void drop_data(struct stream *stream, size_t len)
{
	stream->dropped += len;
	if (stream->dropped > BODY_DROP_MAX && !stream->stopped) {
		stream->stopped = true;
		reset(stream, NGHTTP2_NO_ERROR);
	}
	(void)nghttp2_session_consume(stream->session->nghttp2, stream->id, len);
}

static int on_data(nghttp2_session *nghttp2, uint8_t flags, int32_t id,
		   const uint8_t *bytes, size_t len, void *ctx)
{
	struct stream *stream = nghttp2_session_get_stream_user_data(nghttp2, id);

	(void)flags;
	(void)ctx;
	if (!stream) {
		(void)nghttp2_session_consume_connection(nghttp2, len);
		return 0;
	}
	if (!stream->dispatched && stream->base.request.method == HTTP_POST) {
		if (exchange_take_body(&stream->base,
				       (struct slice){(const char *)bytes, len})) {
			stream->unconsumed += len;
			return 0;
		}
		len += stream->unconsumed;
		stream->unconsumed = 0;
		dispatch(stream);
	}
	drop_data(stream, len);
	return 0;
}

/* ---- frames ---- */

/* Frames that make no request and carry nothing: a few are needed, thousands are not. */
static bool asks_nothing(const nghttp2_frame_hd *head)
{
	switch (head->type) {
	case NGHTTP2_DATA:
		return head->length == 0 && !(head->flags & NGHTTP2_FLAG_END_STREAM);
	case NGHTTP2_HEADERS:
	case NGHTTP2_CONTINUATION: /* nghttp2 counts them */
	case NGHTTP2_RST_STREAM:
	case NGHTTP2_WINDOW_UPDATE: /* a reader of much sends many */
		return false;
	default:
		return true;
	}
}

static int on_begin_frame(nghttp2_session *nghttp2, const nghttp2_frame_hd *head,
			  void *ctx)
{
	struct h2_session *session = ctx;

	(void)nghttp2;
	if (head->type == NGHTTP2_RST_STREAM)
		spend_reset(session);
	else if (asks_nothing(head) && !spend(&session->frames, BROKER_H2_FRAMES_PER_S,
					      BROKER_H2_FRAMES_BURST, session->now_ms))
		end(session, NGHTTP2_ENHANCE_YOUR_CALM);
	return 0;
}

static int on_frame(nghttp2_session *nghttp2, const nghttp2_frame *frame, void *ctx)
{
	struct h2_session *session = ctx;
	struct stream *stream =
		nghttp2_session_get_stream_user_data(nghttp2, frame->hd.stream_id);

	if (frame->hd.type == NGHTTP2_SETTINGS && (frame->hd.flags & NGHTTP2_FLAG_ACK))
		session->acknowledged = true;
	if (!stream || session->ending)
		return 0;
	if (frame->hd.type == NGHTTP2_HEADERS && !stream->head_done)
		on_head(stream);
	if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
	    (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
		stream->ended = true;
		dispatch(stream);
	}
	return 0;
}

static int on_frame_sent(nghttp2_session *nghttp2, const nghttp2_frame *frame, void *ctx)
{
	struct h2_session *session = ctx;

	(void)nghttp2;
	/* A peer that makes us reset its requests costs as much as one that does so
	 * itself. */
	if (frame->hd.type == NGHTTP2_RST_STREAM &&
	    frame->rst_stream.error_code != NGHTTP2_NO_ERROR)
		spend_reset(session);
	return 0;
}

static int on_stream_close(nghttp2_session *nghttp2, int32_t id, uint32_t code, void *ctx)
{
	struct stream *stream = nghttp2_session_get_stream_user_data(nghttp2, id);

	(void)code;
	(void)ctx;
	if (!stream)
		return 0;
	(void)nghttp2_session_set_stream_user_data(nghttp2, id, NULL);
	(void)nghttp2_session_consume_connection(nghttp2, stream->unconsumed);
	stream_destroy(stream);
	return 0;
}

/* ---- the session ---- */

static nghttp2_session *open_nghttp2(struct h2_session *session)
{
	nghttp2_session_callbacks *callbacks = NULL;
	nghttp2_option *option = NULL;
	nghttp2_session *nghttp2 = NULL;
	int failed = nghttp2_session_callbacks_new(&callbacks);

	failed = failed ? failed : nghttp2_option_new(&option);
	assert(!failed); /* no memory */
	nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
	nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks,
								on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	nghttp2_session_callbacks_set_send_data_callback(callbacks, send_body);
	nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks,
							       on_stream_close);
	nghttp2_option_set_no_auto_window_update(option, 1);
	nghttp2_option_set_no_closed_streams(option, 1);
	nghttp2_option_set_max_outbound_ack(option, BROKER_H2_ACKS_MAX);
	failed = nghttp2_session_server_new2(&nghttp2, callbacks, session, option);
	assert(!failed);
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(callbacks);
	return nghttp2;
}

struct h2_session *h2_session_create(const struct h2_session_options *options,
				     int64_t now_ms)
{
	static const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, BROKER_H2_STREAMS_MAX},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, BROKER_HEADER_MAX},
		/* A body that is too large is seen to be, and no more of it comes. */
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, BROKER_BODY_MAX + 1},
		{NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
	};
	struct h2_session *session = mem_alloc(sizeof(*session));
	int failed;

	session->options = *options;
	session->now_ms = session->since_ms = session->heard_ms = session->quiet_ms =
		now_ms;
	session->resets = (struct allowance){BROKER_H2_RESETS_BURST * 1000, now_ms};
	session->frames = (struct allowance){BROKER_H2_FRAMES_BURST * 1000, now_ms};
	session->nghttp2 = open_nghttp2(session);
	failed = nghttp2_submit_settings(session->nghttp2, NGHTTP2_FLAG_NONE, settings,
					 sizeof(settings) / sizeof(*settings));
	failed = failed ? failed
			: nghttp2_session_set_local_window_size(session->nghttp2,
								NGHTTP2_FLAG_NONE, 0,
								BROKER_H2_WINDOW_BYTES);
	assert(!failed);
	return session;
}

void h2_session_destroy(struct h2_session *session)
{
	if (!session)
		return;
	nghttp2_session_del(session->nghttp2);
	for (struct stream *stream = session->streams, *next; stream; stream = next) {
		next = stream->next;
		stream_destroy(stream);
	}
	free(session);
}

static uint32_t code_of(ssize_t failure)
{
	switch (failure) {
	case NGHTTP2_ERR_FLOODED:
	case NGHTTP2_ERR_TOO_MANY_CONTINUATIONS:
		return NGHTTP2_ENHANCE_YOUR_CALM;
	case NGHTTP2_ERR_BAD_CLIENT_MAGIC:
		return NGHTTP2_PROTOCOL_ERROR;
	default:
		return NGHTTP2_INTERNAL_ERROR;
	}
}

void h2_session_receive(struct h2_session *session, struct slice bytes, int64_t now_ms)
{
	ssize_t taken;

	set_now(session, now_ms);
	session->heard_ms = now_ms;
	session->pinged = false;
	if (session->ending)
		return;
	taken = nghttp2_session_mem_recv(session->nghttp2, (const uint8_t *)bytes.ptr,
					 bytes.len);
	if (taken < 0)
		end(session, code_of(taken));
}

/* Streams that may go on. True when one had something. */
static bool feed_streams(struct h2_session *session)
{
	bool fed = false;

	for (struct stream *stream = session->streams; stream; stream = stream->next) {
		if (!stream->base.streaming || !stream->wants ||
		    !exchange_ready(&stream->base))
			continue;
		stream->wants = false;
		stream->base.stream.on_writable(stream->base.stream.ctx, &stream->base);
		fed = fed || !exchange_ready(&stream->base);
	}
	return fed;
}

bool h2_session_take(struct h2_session *session, struct buf *out, size_t want,
		     int64_t now_ms)
{
	session->out = out;
	session->enough = out->len + want;
	set_now(session, now_ms);
	while (out->len < session->enough) {
		const uint8_t *bytes;
		const ssize_t len = nghttp2_session_mem_send(session->nghttp2, &bytes);

		if (len < 0)
			return false;
		if (len == 0 && !feed_streams(session))
			break;
		if (len)
			(void)buf_append(
				out, (struct slice){(const char *)bytes, (size_t)len});
	}
	return nghttp2_session_want_read(session->nghttp2) ||
	       nghttp2_session_want_write(session->nghttp2);
}

static void check_stream(struct stream *stream, int64_t now_ms)
{
	const int64_t passed_ms = now_ms - stream->since_ms;

	if (!stream->dispatched && passed_ms > BROKER_REQUEST_S * 1000) {
		/* Within headers nothing else can be said. */
		if (!stream->head_done) {
			end(stream->session, NGHTTP2_ENHANCE_YOUR_CALM);
			return;
		}
		stream->dispatched = true;
		exchange_respond_late(&stream->base);
	} else if (stream->answering && !stream->base.streaming && !stream->given_up) {
		const bool is_read = stream->sent == stream->body.len;

		if (is_read && passed_ms > BROKER_REQUEST_S * 1000)
			reset(stream, NGHTTP2_NO_ERROR); /* its body never ended */
		else if (passed_ms > BROKER_H2_UNREAD_S * 1000)
			reset(stream, NGHTTP2_CANCEL);
	}
}

bool h2_session_tick(struct h2_session *session, int64_t now_ms)
{
	set_now(session, now_ms);
	if (now_ms - session->heard_ms > LOOP_HANGUP_S * 1000)
		return false;
	for (struct stream *stream = session->streams; stream; stream = stream->next)
		check_stream(stream, now_ms);
	if (!session->acknowledged &&
	    now_ms - session->since_ms > BROKER_REQUEST_S * 1000)
		end(session, NGHTTP2_SETTINGS_TIMEOUT);
	else if (!session->streams && now_ms - session->quiet_ms > BROKER_IDLE_S * 1000)
		end(session, NGHTTP2_NO_ERROR);
	if (!session->pinged && now_ms - session->heard_ms > LOOP_PING_S * 1000) {
		session->pinged = true;
		(void)nghttp2_submit_ping(session->nghttp2, NGHTTP2_FLAG_NONE, NULL);
	}
	session->options.wake(session->options.ctx);
	return true;
}

void h2_session_end(struct h2_session *session)
{
	end(session, NGHTTP2_NO_ERROR);
}

bool h2_session_is_trusted(const struct h2_session *session)
{
	return session->trusted;
}

size_t h2_session_streams(const struct h2_session *session)
{
	return session->stream_count;
}
