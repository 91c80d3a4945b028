#include "agent/proxy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/acp_line.h"
#include "agent/lookup.h"
#include "agent/output.h"
#include "agent/permissions.h"
#include "agent/proxy_session.h"
#include "agent/reader.h"
#include "agent/report.h"
#include "wire/base/map.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/nostr/json.h"

#define ID_BYTES_MAX 1024 /* of a request; our choice */
/* Whole permission requests that are kept for fetch_body. */
#define BODY_BYTES_MAX (AGENT_MIRROR_MAX + 65536)

enum role {
	ROLE_OTHER,
	ROLE_INITIALIZE,
	ROLE_PROMPT,
	ROLE_OPEN, /* session/new, load, resume */
	ROLE_PERMISSION,
};

/* A request whose answer is awaited. */
struct request {
	struct request *next, **link;
	enum role role;
	struct buf key;          /* direction and id */
	struct session *session; /* NULL: none, or not known yet */
	char *name;              /* ROLE_OPEN: base name of its folder */
	bool is_new, loads;
	char nonce[PERMISSION_NONCE_LEN + 1];
	uint64_t seq;
	struct buf whole;
};

/* One direction of the pipe. */
struct direction {
	struct proxy *proxy;
	enum feed_direction way;
	struct reader reader;
	struct acp_alike alike; /* of its lines */
	bool skips;             /* to the next line's end: bytes before were lost */
	bool missed;            /* something; since the last prompt */
};

struct proxy {
	struct watch *watch;
	struct sender *sender;
	struct direction read, write;
	struct output log; /* the agent's stderr */
	struct timer *log_timer;
	struct map requests;
	struct sessions sessions;
	struct request *first, **last;
	bool initialized, two, exited;
	int64_t pid, started_ms;
	struct buf repaired;
};

static void on_prompt(struct proxy *proxy, struct session *session,
		      const struct acp_line *line)
{
	sessions_end_load(session); /* should the answer not have been seen */
	/* An answer that was never seen: what it would have ended is over. */
	if (session->turn && proxy->read.missed)
		sessions_end_turn(&proxy->sessions, session, SLICE_EMPTY, NULL);
	proxy->read.missed = false;
	if (!session->turn)
		sessions_begin_turn(&proxy->sessions, session,
				    lookup(line->params, SLICE("prompt")));
	session->turn->prompts++;
}

static void on_prompt_answer(struct proxy *proxy, struct session *session,
			     const struct acp_line *line)
{
	if (!session || !session->turn)
		return;
	if (line->error.len)
		sessions_report_error(&proxy->sessions, session, line->error);
	else if (proxy->two && !lookup(line->result, SLICE("stopReason")).len)
		return; /* version 2 only says that the prompt was taken */
	if (--session->turn->prompts == 0)
		sessions_end_turn(&proxy->sessions, session, line->result, NULL);
}

static void on_update(struct proxy *proxy, struct session *session,
		      const struct acp_line *line)
{
	const struct slice update = lookup(line->params, SLICE("update"));
	struct proxy_turn *turn = session->turn;

	if (json_is(line->update, SLICE("session_info_update")) ||
	    json_is(line->update, SLICE("config_option_update")))
		session_take_offers(session, update);
	if (turn && !turn->first_output_ms)
		turn->first_output_ms = loop_now_ms();
	/* Version 2: the state says when the turn is over. */
	if (turn && proxy->two && json_is(line->update, SLICE("state_update")) &&
	    lookup_is(update, SLICE("state"), SLICE("idle")))
		sessions_end_turn(&proxy->sessions, session, update, NULL);
}

/* --- Requests and their answers --- */

static void make_key(struct buf *out, enum feed_direction way, struct slice id)
{
	buf_init(out, id.len + 1);
	(void)buf_append_byte(out, way == FEED_READ ? 'r' : 'w');
	(void)buf_append(out, id);
}

static void request_destroy(struct proxy *proxy, struct request *request)
{
	*request->link = request->next;
	if (request->next)
		request->next->link = request->link;
	else
		proxy->last = request->link;
	if (request->loads && request->session)
		sessions_end_load(request->session);
	(void)map_take(&proxy->requests, buf_slice(&request->key));
	buf_finish(&request->key);
	buf_finish(&request->whole);
	free(request->name);
	free(request);
}

static struct request *request_find(const struct proxy *proxy, enum feed_direction way,
				    struct slice id)
{
	struct request *request;
	struct buf key;

	if (!id.len || id.len > ID_BYTES_MAX)
		return NULL;
	make_key(&key, way, id);
	request = map_get(&proxy->requests, buf_slice(&key));
	buf_finish(&key);
	return request;
}

/* A repeated id takes the place of what had it before. */
static struct request *request_add(struct proxy *proxy, enum feed_direction way,
				   struct slice id)
{
	struct request *request = request_find(proxy, way, id);

	if (!id.len || id.len > ID_BYTES_MAX)
		return NULL;
	if (request)
		request_destroy(proxy, request);
	if (proxy->requests.count >= PROXY_REQUESTS_MAX)
		request_destroy(proxy, proxy->first);
	request = mem_alloc(sizeof(*request));
	make_key(&request->key, way, id);
	request->link = proxy->last;
	*proxy->last = request;
	proxy->last = &request->next;
	(void)map_put(&proxy->requests, buf_slice(&request->key), request);
	return request;
}

static void on_forget(void *ctx, const struct session *session)
{
	struct proxy *proxy = ctx;

	for (struct request *at = proxy->first; at; at = at->next)
		if (at->session == session)
			at->session = NULL;
}

static enum role role_of(const struct acp_line *line, enum feed_direction way)
{
	static const struct {
		struct slice method;
		enum feed_direction way;
		enum role role;
	} roles[] = {
		{SLICE_INIT("initialize"), FEED_WRITE, ROLE_INITIALIZE},
		{SLICE_INIT("session/prompt"), FEED_WRITE, ROLE_PROMPT},
		{SLICE_INIT("session/new"), FEED_WRITE, ROLE_OPEN},
		{SLICE_INIT("session/load"), FEED_WRITE, ROLE_OPEN},
		{SLICE_INIT("session/resume"), FEED_WRITE, ROLE_OPEN},
		{SLICE_INIT("session/request_permission"), FEED_READ, ROLE_PERMISSION},
	};

	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
		if (way == roles[i].way && json_is(line->method, roles[i].method))
			return roles[i].role;
	return ROLE_OTHER;
}

/* The last part of params.cwd; NULL when there is none. */
static char *folder_name(const struct acp_line *line)
{
	char *cwd = lookup_text(line->params, SLICE("cwd"), 4096), *slash, *name;

	if (!cwd)
		return NULL;
	for (size_t len = strlen(cwd); len > 1 && cwd[len - 1] == '/'; len--)
		cwd[len - 1] = '\0';
	slash = strrchr(cwd, '/');
	name = mem_dup(slice_of(slash && slash[1] ? slash + 1 : cwd));
	free(cwd);
	return name;
}

static void write_authorization(struct buf *out, const struct request *request,
				const char *reason)
{
	(void)buf_lit(out, "{");
	(void)json_write_member_string(out, SLICE("requestNonce"),
				       slice_of(request->nonce));
	(void)json_write_member_bool(out, SLICE("actionable"), false);
	if (reason)
		(void)json_write_member_string(out, SLICE("reason"), slice_of(reason));
	(void)buf_lit(out, "}");
}

/* A line as it was, and how long it was on the pipe. */
struct seen {
	const struct acp_line *line;
	size_t bytes;
	enum feed_direction way;
};

static uint64_t mirror(struct proxy *proxy, const struct seen *seen,
		       const struct session *session, struct slice authorization,
		       struct buf *whole)
{
	const struct feed_context context = sessions_context(&proxy->sessions, session);

	return feed_line(sender_feed(proxy->sender), sender_time(proxy->sender), &context,
			 seen->way, seen->line, seen->bytes, authorization, whole);
}

static void mirror_permission(struct proxy *proxy, const struct seen *seen,
			      struct request *request)
{
	uint8_t nonce[PERMISSION_NONCE_LEN / 2];
	struct buf authorization;

	loop_random(nonce, sizeof(nonce));
	hex_encode(nonce, sizeof(nonce), request->nonce);
	buf_init(&authorization, 512);
	buf_init(&request->whole, BODY_BYTES_MAX);
	write_authorization(&authorization, request, NULL);
	request->seq = mirror(proxy, seen, request->session, buf_slice(&authorization),
			      &request->whole);
	buf_finish(&authorization);
}

/* Asks for a session with its history. */
static bool is_load(const struct acp_line *line)
{
	return json_is(line->method, SLICE("session/load")) ||
	       (json_is(line->method, SLICE("session/resume")) && /* version 2 */
		lookup(line->params, SLICE("replayFrom")).len > 0);
}

static void on_request(struct proxy *proxy, const struct seen *seen,
		       const struct acp_line *line)
{
	struct session *session = sessions_get(&proxy->sessions, line->session, NULL);
	const enum role role = role_of(line, seen->way);
	struct request *request;

	if (role == ROLE_PROMPT && session)
		on_prompt(proxy, session, line);
	request = request_add(proxy, seen->way, line->id);
	if (request) {
		request->role = role;
		request->session = session;
	}
	if (request && role == ROLE_OPEN) {
		request->name = folder_name(line);
		request->is_new = json_is(line->method, SLICE("session/new"));
		request->loads = session && is_load(line);
	}
	if (request && request->loads)
		sessions_begin_load(&proxy->sessions, session);
	if (request && role == ROLE_PERMISSION)
		mirror_permission(proxy, seen, request);
	else
		(void)mirror(proxy, seen, session, SLICE_EMPTY, NULL);
}

static void on_initialized(struct proxy *proxy, const struct acp_line *line)
{
	static const struct slice kept[] = {
		SLICE_INIT("agentInfo"),
		SLICE_INIT("agentCapabilities"),
		SLICE_INIT("authMethods"),
	};
	struct feed_context context = sessions_own_context(&proxy->sessions);
	struct buf payload;

	if (line->error.len || proxy->initialized)
		return;
	proxy->initialized = true;
	proxy->two = slice_eq(lookup(line->result, SLICE("protocolVersion")), SLICE("2"));
	report_begin(&payload);
	(void)json_write_member_int(&payload, SLICE("slot"), 0);
	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
		const struct slice value = lookup(line->result, kept[i]);

		if (value.len)
			(void)json_write_member_raw(&payload, kept[i], value);
	}
	if (proxy->pid > 0)
		(void)json_write_member_int(&payload, SLICE("pid"), proxy->pid);
	(void)json_write_member_int(&payload, SLICE("tookMs"),
				    loop_now_ms() - proxy->started_ms);
	report_end(proxy->sender, &context, "agent_initialized", &payload);
}

static void on_opened(struct proxy *proxy, const struct acp_line *line,
		      const struct request *request, struct session *session)
{
	if (line->error.len || !session)
		return;
	if (request->name) {
		session_rename(session, request->name);
	}
	session_take_offers(session, line->result);
	sessions_report_resolved(&proxy->sessions, session, request->is_new,
				 request->loads);
}

static void mirror_answer(struct proxy *proxy, const struct seen *seen,
			  const struct acp_line *line, const struct request *request)
{
	const struct slice outcome = lookup(line->result, SLICE("outcome"));
	struct buf authorization;

	buf_init(&authorization, 512);
	write_authorization(&authorization, request,
			    lookup_is(outcome, SLICE("outcome"), SLICE("selected"))
				    ? "editor"
				    : "cancelled");
	(void)mirror(proxy, seen, request->session, buf_slice(&authorization), NULL);
	buf_finish(&authorization);
}

static void on_answer(struct proxy *proxy, const struct seen *seen,
		      const struct acp_line *line)
{
	const enum feed_direction asked = seen->way == FEED_READ ? FEED_WRITE : FEED_READ;
	struct request *request = request_find(proxy, asked, line->id);
	struct session *session = request ? request->session : NULL;

	if (request && request->role == ROLE_OPEN && !session)
		session = sessions_get(&proxy->sessions, line->session, request->name);
	if (request && request->role == ROLE_PERMISSION)
		mirror_answer(proxy, seen, line, request);
	else
		(void)mirror(proxy, seen, session, SLICE_EMPTY, NULL);
	if (!request)
		return;
	switch (request->role) {
	case ROLE_INITIALIZE:
		on_initialized(proxy, line);
		break;
	case ROLE_PROMPT:
		on_prompt_answer(proxy, session, line);
		break;
	case ROLE_OPEN:
		on_opened(proxy, line, request, session);
		break;
	case ROLE_PERMISSION:
	case ROLE_OTHER:
		break;
	}
	request_destroy(proxy, request);
}

static void on_notification(struct proxy *proxy, const struct seen *seen,
			    const struct acp_line *line)
{
	struct session *session = sessions_get(&proxy->sessions, line->session, NULL);
	const bool is_update = session && seen->way == FEED_READ &&
			       json_is(line->method, SLICE("session/update"));

	if (!is_update || !sessions_is_replay(session))
		(void)mirror(proxy, seen, session, SLICE_EMPTY, NULL);
	if (is_update)
		on_update(proxy, session, line);
}

/* --- Lines --- */

static void on_line(void *ctx, struct slice text, size_t bytes)
{
	struct direction *direction = ctx;
	struct proxy *proxy = direction->proxy;
	struct acp_line raw, again, *line = &raw;
	const struct seen seen = {&raw, bytes, direction->way};

	acp_line_scan_alike(text, &direction->alike, &raw);
	/* What it means may be read although its strings are broken. */
	if (raw.repairable) {
		buf_clear(&proxy->repaired);
		if (json_repair(raw.text, &proxy->repaired)) {
			acp_line_scan(buf_slice(&proxy->repaired), &again);
			line = &again;
		}
	}
	switch (line->shape) {
	case ACP_REQUEST:
		on_request(proxy, &seen, line);
		break;
	case ACP_RESPONSE:
		on_answer(proxy, &seen, line);
		break;
	case ACP_NOTIFICATION:
		on_notification(proxy, &seen, line);
		break;
	case ACP_BLANK:
	case ACP_ARRAY:
	case ACP_OBJECT:
	case ACP_BROKEN:
		(void)mirror(proxy, &seen, NULL, SLICE_EMPTY, NULL);
		break;
	}
}

/* Bytes before these were lost, in the middle of a line: neither its beginning nor the
 * end that comes now is one. */
static void skip_line(struct direction *direction, struct slice *bytes)
{
	const size_t end = slice_find(*bytes, '\n');

	reader_finish(&direction->reader);
	reader_init(&direction->reader, AGENT_MIRROR_MAX);
	direction->skips = end == bytes->len;
	if (!direction->skips)
		watch_lost(direction->proxy->watch, 1);
	*bytes = slice_sub(*bytes, direction->skips ? end : end + 1, bytes->len);
}

static void feed_bytes(struct direction *direction, struct slice bytes, bool lost,
		       bool cut)
{
	direction->missed = direction->missed || lost;
	if (cut || direction->skips)
		skip_line(direction, &bytes);
	reader_feed(&direction->reader, bytes, on_line, direction);
	sender_kick(direction->proxy->sender);
}

static void emit_log(void *ctx, struct slice payload)
{
	struct proxy *proxy = ctx;
	struct feed_context context = sessions_own_context(&proxy->sessions);

	report_event(proxy->sender, &context, "output", payload);
}

static void on_log_timer(void *ctx)
{
	struct proxy *proxy = ctx;

	output_pause(&proxy->log, loop_now_ms(), emit_log, proxy);
}

static void on_bytes(void *source, enum pump_kind kind, struct slice bytes, bool lost,
		     bool cut)
{
	struct proxy *proxy = source;

	switch (kind) {
	case PUMP_STDIN:
		feed_bytes(&proxy->write, bytes, lost, cut);
		return;
	case PUMP_STDOUT:
		feed_bytes(&proxy->read, bytes, lost, cut);
		return;
	case PUMP_STDERR:
		output_feed(&proxy->log, bytes, loop_now_ms(), emit_log, proxy);
		timer_start(proxy->log_timer, OUTPUT_PARTIAL_MS);
		return;
	case PUMP_STARTED:
	case PUMP_EXITED:
		return;
	}
}

static void on_started(void *source, int64_t pid)
{
	struct proxy *proxy = source;

	proxy->pid = pid;
}

/* --- The end --- */

static void report_exit(struct proxy *proxy, int64_t wait_status)
{
	struct feed_context context = sessions_own_context(&proxy->sessions);
	const int status = (int)wait_status;
	const bool known = wait_status >= 0;
	struct buf payload, tail;

	report_begin(&payload);
	(void)json_write_member_int(&payload, SLICE("slot"), 0);
	if (known && WIFSIGNALED(status))
		(void)json_write_member_int(&payload, SLICE("signal"), WTERMSIG(status));
	else if (known)
		(void)json_write_member_int(&payload, SLICE("code"), WEXITSTATUS(status));
	(void)json_write_member_string(&payload, SLICE("reason"),
				       known && status != 0 ? SLICE("crash")
							    : SLICE("exit"));
	buf_init(&tail, (size_t)3 * OUTPUT_TAIL_BYTES);
	output_tail(&proxy->log, &tail);
	if (tail.len)
		(void)json_write_member_string(&payload, SLICE("stderrTail"),
					       buf_slice(&tail));
	buf_finish(&tail);
	(void)json_write_member_int(&payload, SLICE("failedRequests"),
				    (int64_t)proxy->requests.count);
	report_end(proxy->sender, &context, "agent_exited", &payload);
}

static void on_end(void *source, int64_t wait_status)
{
	struct proxy *proxy = source;

	reader_end(&proxy->write.reader, on_line, &proxy->write);
	reader_end(&proxy->read.reader, on_line, &proxy->read);
	timer_stop(proxy->log_timer);
	output_flush(&proxy->log, loop_now_ms(), emit_log, proxy);
	proxy->exited = true;
	report_exit(proxy, wait_status);
	sessions_end_all(&proxy->sessions);
}

/* --- What is asked of it --- */

static struct feed_context emit_context(void *source)
{
	const struct proxy *proxy = source;

	return sessions_context(&proxy->sessions, proxy->sessions.recent);
}

static struct slice body(void *source, uint64_t seq, struct feed_context *context)
{
	const struct proxy *proxy = source;

	for (const struct request *at = proxy->first; at; at = at->next) {
		if (at->role != ROLE_PERMISSION || at->seq != seq)
			continue;
		*context = sessions_context(&proxy->sessions, at->session);
		return buf_slice(&at->whole);
	}
	return SLICE_EMPTY;
}

static void open_array(struct buf *out, struct slice key)
{
	(void)json_write_key(out, key);
	(void)buf_lit(out, "[");
}

/* The next object of an array that may be empty so far. */
static void open_item(struct buf *out)
{
	(void)buf_append(out, out->ptr[out->len - 1] == '[' ? SLICE("{") : SLICE(",{"));
}

static void write_pending(const struct proxy *proxy, struct buf *out)
{
	open_array(out, SLICE("pending"));
	for (const struct request *at = proxy->first; at; at = at->next) {
		const struct feed_context context =
			sessions_context(&proxy->sessions, at->session);

		if (at->role != ROLE_PERMISSION)
			continue;
		open_item(out);
		(void)json_write_member_string(out, SLICE("requestNonce"),
					       slice_of(at->nonce));
		(void)json_write_member_string(out, SLICE("channelId"),
					       uuid_slice(context.channel));
		(void)json_write_member_string(out, SLICE("epoch"),
					       slice_of(sender_epoch(proxy->sender)));
		(void)json_write_member_int(out, SLICE("seq"), (int64_t)at->seq);
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
}

static void write_state(void *source, struct buf *out)
{
	const struct proxy *proxy = source;

	open_array(out, SLICE("slots"));
	open_item(out);
	(void)json_write_member_int(out, SLICE("slot"), 0);
	(void)json_write_member_string(out, SLICE("state"),
				       proxy->exited        ? SLICE("exited")
				       : proxy->initialized ? SLICE("ready")
							    : SLICE("starting"));
	if (proxy->pid > 0 && !proxy->exited)
		(void)json_write_member_int(out, SLICE("pid"), proxy->pid);
	(void)buf_lit(out, "}]");
	sessions_write_state(&proxy->sessions, out);
	write_pending(proxy, out);
}

/* --- Life --- */

static void direction_init(struct direction *direction, struct proxy *proxy,
			   enum feed_direction way)
{
	direction->proxy = proxy;
	direction->way = way;
	reader_init(&direction->reader, AGENT_MIRROR_MAX);
}

static void *create(struct watch *watch)
{
	struct proxy *proxy = mem_alloc(sizeof(*proxy));

	proxy->watch = watch;
	proxy->sender = watch_sender(watch);
	proxy->started_ms = loop_now_ms();
	proxy->last = &proxy->first;
	direction_init(&proxy->read, proxy, FEED_READ);
	direction_init(&proxy->write, proxy, FEED_WRITE);
	output_init(&proxy->log);
	proxy->log_timer = timer_create_on(watch_loop(watch), on_log_timer, proxy);
	map_init(&proxy->requests);
	sessions_init(&proxy->sessions, watch, on_forget, proxy);
	buf_init(&proxy->repaired, (size_t)4 * AGENT_MIRROR_MAX);
	return proxy;
}

static void destroy(void *source)
{
	struct proxy *proxy = source;

	while (proxy->first)
		request_destroy(proxy, proxy->first);
	map_finish(&proxy->requests);
	sessions_finish(&proxy->sessions);
	timer_destroy(proxy->log_timer);
	output_finish(&proxy->log);
	reader_finish(&proxy->read.reader);
	reader_finish(&proxy->write.reader);
	buf_finish(&proxy->repaired);
	free(proxy);
}

const struct watch_mode proxy_mode = {
	.name = "proxy",
	.per_session = true,
	.up_grace_ms = 3000, /* design §5, Shutdown */
	.down_grace_ms = 1000,
	.create = create,
	.destroy = destroy,
	.on_bytes = on_bytes,
	.on_started = on_started,
	.on_end = on_end,
	.context = emit_context,
	.write_state = write_state,
	.body = body,
};
