#include "agent/acp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agent/lookup.h"
#include "agent/reader.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/nostr/json.h"

struct call {
	struct call *next;
	uint64_t id; /* small integers: JavaScript peers corrupt those above 2^53 */
	void *route;
	int64_t deadline_ms; /* INT64_MAX: none */
	acp_on_answer *on_answer;
	void *ctx;
};

struct acp {
	const struct acp_events *events;
	void *ctx;
	acp_write *write;
	void *write_ctx;
	struct reader reader;
	struct acp_alike alike; /* of the lines read */
	struct timer *timer;
	int64_t due_ms; /* when it was to fire */
	struct call *calls;
	uint64_t next_id;
	bool closed;
};

/* A line on its way to the agent. */
struct sending {
	struct acp *acp;
	void *route;
	struct buf authorization;
	acp_on_replied *on_replied;
	void *ctx;
};

/* The timer came so much too late that we must have been stopped, or the machine asleep:
 * answers may lie in the pipe, and get some time to be read. Our choice. */
#define STOPPED_MS 1000
#define AFTER_STOP_MS 5000

static void arm(struct acp *acp)
{
	int64_t next_ms = INT64_MAX, now_ms = loop_now_ms();

	for (struct call *call = acp->calls; call; call = call->next) {
		if (call->deadline_ms < next_ms)
			next_ms = call->deadline_ms;
	}
	acp->due_ms = next_ms;
	if (next_ms == INT64_MAX)
		timer_stop(acp->timer);
	else
		timer_start(acp->timer,
			    next_ms > now_ms ? (uint64_t)(next_ms - now_ms) : 0);
}

static struct call *unlink_call(struct call **at)
{
	struct call *call = *at;

	*at = call->next;
	return call;
}

static void fail_call(struct call *call, enum acp_failure failure)
{
	struct acp_answer answer = {.failure = failure};

	call->on_answer(call->ctx, &answer);
	free(call);
}

/* Nobody waits for its answer any more; the agent may stop working on it. */
static void cancel_request(struct acp *acp, const struct call *call)
{
	struct buf params;

	buf_init(&params, 64);
	(void)buf_printf(&params, "{\"requestId\":%" PRIu64 "}", call->id);
	acp_notify(acp, "$/cancel_request", buf_slice(&params), call->route);
	buf_finish(&params);
}

static void on_timer(void *ctx)
{
	struct acp *acp = ctx;
	int64_t now_ms = loop_now_ms(), late_ms = now_ms - acp->due_ms;
	struct call **at = &acp->calls;
	struct call *call;

	for (call = acp->calls; call && late_ms >= STOPPED_MS; call = call->next) {
		if (call->deadline_ms < now_ms + AFTER_STOP_MS)
			call->deadline_ms = now_ms + AFTER_STOP_MS;
	}
	while (*at) {
		if ((*at)->deadline_ms > now_ms) {
			at = &(*at)->next;
			continue;
		}
		call = unlink_call(at);
		cancel_request(acp, call);
		fail_call(call, ACP_TIMED_OUT);
		at = &acp->calls; /* the callback may have made or ended others */
	}
	arm(acp);
}

struct acp *acp_create(struct loop *loop, const struct acp_events *events, void *ctx,
		       acp_write *write, void *write_ctx)
{
	struct acp *acp = mem_alloc(sizeof(*acp));

	acp->events = events;
	acp->ctx = ctx;
	acp->write = write;
	acp->write_ctx = write_ctx;
	acp->due_ms = INT64_MAX;
	acp->timer = timer_create_on(loop, on_timer, acp);
	reader_init(&acp->reader, AGENT_LINE_MAX);
	return acp;
}

void acp_destroy(struct acp *acp)
{
	if (!acp)
		return;
	while (acp->calls)
		free(unlink_call(&acp->calls));
	timer_destroy(acp->timer);
	reader_finish(&acp->reader);
	free(acp);
}

size_t acp_pending(const struct acp *acp)
{
	size_t count = 0;

	for (const struct call *call = acp->calls; call; call = call->next)
		count++;
	return count;
}

void acp_close(struct acp *acp)
{
	acp->closed = true;
	while (acp->calls)
		fail_call(unlink_call(&acp->calls), ACP_GONE);
	arm(acp);
}

/* --- Out --- */

static void on_written(void *ctx, struct slice line, enum child_written outcome)
{
	struct sending *sending = ctx;
	struct acp *acp = sending->acp;

	if (outcome == CHILD_WRITTEN)
		acp->events->on_wrote(acp->ctx, slice_sub(line, 0, line.len - 1),
				      sending->route, buf_slice(&sending->authorization));
	if (sending->on_replied)
		sending->on_replied(sending->ctx, outcome);
	buf_finish(&sending->authorization);
	free(sending);
}

/* @message: one whole message; gets its LF here. */
static void transmit(struct acp *acp, struct buf *message, void *route,
		     struct slice authorization, acp_on_replied *on_replied, void *ctx)
{
	struct sending *sending = mem_alloc(sizeof(*sending));

	*sending = (struct sending){
		.acp = acp, .route = route, .on_replied = on_replied, .ctx = ctx};
	buf_init(&sending->authorization, authorization.len);
	(void)buf_append(&sending->authorization, authorization);
	(void)buf_lit(message, "\n");
	acp->write(acp->write_ctx, buf_slice(message), on_written, sending);
}

static void begin(struct buf *message)
{
	buf_init(message, AGENT_LINE_MAX);
	(void)buf_lit(message, "{\"jsonrpc\":\"2.0\"");
}

static void write_method(struct buf *message, const char *method, struct slice params)
{
	(void)json_write_member_string(message, SLICE("method"), slice_of(method));
	(void)json_write_member_raw(message, SLICE("params"), params);
	(void)buf_lit(message, "}");
}

void acp_call(struct acp *acp, const char *method, struct slice params, void *route,
	      uint64_t timeout_ms, acp_on_answer *on_answer, void *ctx)
{
	struct call *call = mem_alloc(sizeof(*call));
	struct buf message;

	*call = (struct call){.next = acp->calls,
			      .id = acp->next_id++,
			      .route = route,
			      .deadline_ms = INT64_MAX,
			      .on_answer = on_answer,
			      .ctx = ctx};
	if (acp->closed) {
		fail_call(call, ACP_GONE);
		return;
	}
	if (timeout_ms > 0)
		call->deadline_ms = loop_now_ms() + (int64_t)timeout_ms;
	acp->calls = call;
	arm(acp);
	begin(&message);
	(void)json_write_member_int(&message, SLICE("id"), (int64_t)call->id);
	write_method(&message, method, params);
	transmit(acp, &message, route, SLICE_EMPTY, NULL, NULL);
	buf_finish(&message);
}

void acp_notify(struct acp *acp, const char *method, struct slice params, void *route)
{
	struct buf message;

	begin(&message);
	write_method(&message, method, params);
	transmit(acp, &message, route, SLICE_EMPTY, NULL, NULL);
	buf_finish(&message);
}

void acp_reply(struct acp *acp, struct slice id, struct slice result, void *route,
	       struct slice authorization, acp_on_replied *on_replied, void *ctx)
{
	struct buf message;

	begin(&message);
	(void)json_write_member_raw(&message, SLICE("id"), id);
	(void)json_write_member_raw(&message, SLICE("result"), result);
	(void)buf_lit(&message, "}");
	transmit(acp, &message, route, authorization, on_replied, ctx);
	buf_finish(&message);
}

void acp_refuse(struct acp *acp, struct slice id, int code, const char *text, void *route)
{
	struct buf message;

	begin(&message);
	(void)json_write_member_raw(&message, SLICE("id"), id);
	(void)json_write_key(&message, SLICE("error"));
	(void)buf_lit(&message, "{");
	(void)json_write_member_int(&message, SLICE("code"), code);
	(void)json_write_member_string(&message, SLICE("message"), slice_of(text));
	(void)buf_lit(&message, "}}");
	transmit(acp, &message, route, SLICE_EMPTY, NULL, NULL);
	buf_finish(&message);
}

/* --- In --- */

/* The request of ours that a response answers. Ids are compared as the tokens that we
 * sent: 1 and "1" differ. */
static struct call **find_call(struct acp *acp, const struct acp_line *line)
{
	struct call **at = &acp->calls;
	uint64_t id;

	if (line->shape != ACP_RESPONSE || !slice_parse_u64(line->id, INT64_MAX, &id))
		return NULL;
	while (*at && (*at)->id != id)
		at = &(*at)->next;
	return *at ? at : NULL;
}

static void answer(struct acp *acp, struct call *call, const struct acp_line *line)
{
	struct acp_answer answer = {
		.ok = line->error.len == 0, .result = line->result, .error = line->error};
	struct slice code = lookup(line->error, SLICE("code"));
	struct json json;

	if (code.len > 0) {
		json_init(&json, code);
		(void)json_int(&json, INT32_MIN, INT32_MAX, &answer.code);
	}
	answer.message = lookup_string(line->error, SLICE("message"));
	call->on_answer(call->ctx, &answer);
	free(call);
	arm(acp);
}

/* Does what @line asks. @raw: see acp_events. */
static void take_line(struct acp *acp, const struct acp_line *line,
		      const struct acp_line *raw, size_t bytes)
{
	struct call **at = find_call(acp, line);
	struct call *call;

	acp->events->on_read(acp->ctx, line, raw, bytes, at ? (*at)->route : NULL);
	switch (line->shape) {
	case ACP_REQUEST:
		acp->events->on_request(acp->ctx, line);
		return;
	case ACP_NOTIFICATION:
		acp->events->on_notification(acp->ctx, line);
		return;
	case ACP_RESPONSE:
		/* A stray one is answered by nobody, however wrong it is. */
		if (at) {
			call = unlink_call(at);
			answer(acp, call, line);
		}
		return;
	case ACP_ARRAY:
		/* ACP has no batches; the official SDK, too, answers one error for all.
		 */
		acp_refuse(acp, SLICE("null"), ACP_INVALID_REQUEST,
			   "batches are no part of ACP", NULL);
		return;
	case ACP_BLANK:
	case ACP_OBJECT:
	case ACP_BROKEN:
		return;
	}
}

/* What stands behind the terminal control sequences that @text begins with: launchers
 * write a title (ESC ] … BEL) or colours (ESC [ … letter) in front of whatever comes
 * next. */
static struct slice behind_escapes(struct slice text)
{
	while (text.len > 2 && text.ptr[0] == '\x1b') {
		size_t at = 2;

		if (text.ptr[1] == ']') {
			while (at < text.len && text.ptr[at] != '\a' &&
			       text.ptr[at] != '\x1b')
				at++;
			at += at < text.len && text.ptr[at] == '\x1b'; /* ESC \ */
		} else if (text.ptr[1] == '[') {
			while (at < text.len &&
			       (text.ptr[at] < '@' || text.ptr[at] > '~'))
				at++;
		} else {
			return text;
		}
		text = slice_sub(text, at < text.len ? at + 1 : at, text.len);
	}
	return text;
}

static void on_line(void *ctx, struct slice text, size_t bytes)
{
	struct acp *acp = ctx;
	struct acp_line raw, line;
	struct slice behind = behind_escapes(text);
	struct buf repaired;

	acp_line_scan_alike(text, &acp->alike, &raw);
	if (bytes > text.len) { /* only its head was kept */
		raw.shape = ACP_BROKEN;
		raw.repairable = false;
		err_set(&raw.fault, ERR_TOO_LARGE, "line is over %u bytes",
			AGENT_LINE_MAX);
	}
	if (raw.shape == ACP_BLANK)
		return;
	if (raw.shape == ACP_BROKEN && behind.len < text.len && bytes == text.len) {
		/* The line is shown as it came, the message is acted on. */
		acp->events->on_read(acp->ctx, &raw, &raw, bytes, NULL);
		on_line(acp, behind, behind.len);
		return;
	}
	if (raw.shape != ACP_BROKEN || !raw.repairable) {
		take_line(acp, &raw, &raw, bytes);
		return;
	}
	/* A permission request or an answer counts, whatever is wrong with its strings.
	 */
	buf_init(&repaired, 3 * raw.text.len);
	(void)json_repair(raw.text, &repaired);
	acp_line_scan(buf_slice(&repaired), &line);
	take_line(acp, &line, &raw, bytes);
	buf_finish(&repaired);
}

void acp_receive(struct acp *acp, struct slice bytes)
{
	reader_feed(&acp->reader, bytes, on_line, acp);
}

void acp_receive_end(struct acp *acp)
{
	reader_end(&acp->reader, on_line, acp);
}
