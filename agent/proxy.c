#include "agent/proxy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/acp_line.h"
#include "agent/channel.h"
#include "agent/lookup.h"
#include "agent/output.h"
#include "agent/permissions.h"
#include "agent/reader.h"
#include "agent/report.h"
#include "wire/base/map.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/nostr/json.h"

/* First words of a prompt, in turn_started (payloads.md). */
#define PROMPT_HEAD_BYTES 200
#define ID_BYTES_MAX 1024 /* of a request; our choice */
/* Whole permission requests that are kept for fetch_body. */
#define BODY_BYTES_MAX (AGENT_MIRROR_MAX + 65536)

struct turn {
	char id[UUID_LEN + 1], prompt_id[UUID_LEN + 1];
	unsigned prompts; /* without an answer yet: an editor may send several */
	int64_t started_ms, started_unix_ms, first_output_ms;
};

struct session {
	struct session *next; /* the one used longest ago is first */
	struct buf id;        /* plain text */
	struct uuid channel;
	char *name;
	bool resolved;
	struct turn *turn;
	struct buf title;                 /* JSON string content */
	struct buf modes, models, config; /* JSON values; empty: not offered */
};

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
	bool is_new;
	char nonce[PERMISSION_NONCE_LEN + 1];
	uint64_t seq;
	struct buf whole;
};

/* One direction of the pipe. */
struct direction {
	struct proxy *proxy;
	enum feed_direction way;
	struct reader reader;
	bool skips;  /* to the next line's end: bytes before were lost */
	bool missed; /* something; since the last prompt */
};

struct proxy {
	struct watch *watch;
	struct sender *sender;
	struct direction read, write;
	struct output log; /* the agent's stderr */
	struct timer *log_timer;
	struct map requests, sessions;
	struct request *first, **last;
	size_t session_count;
	struct session *oldest;
	struct session *recent; /* what an emitted event belongs to */
	bool initialized, two, exited;
	int64_t pid, started_ms;
	struct buf repaired, plain;
};

/* --- Sessions --- */

static struct feed_context own_context(const struct proxy *proxy)
{
	return (struct feed_context){.slot = 0,
				     .channel = watch_slot_channel(proxy->watch)};
}

static struct feed_context context_of(const struct proxy *proxy,
				      const struct session *session)
{
	struct feed_context context = own_context(proxy);

	if (!session)
		return context;
	context.channel = &session->channel;
	context.session = buf_slice(&session->id);
	if (session->turn) {
		context.turn = slice_of(session->turn->id);
		context.turn_started_ms = session->turn->started_unix_ms;
	}
	return context;
}

static void session_destroy(struct session *session)
{
	if (!session)
		return;
	buf_finish(&session->id);
	buf_finish(&session->title);
	buf_finish(&session->modes);
	buf_finish(&session->models);
	buf_finish(&session->config);
	free(session->turn);
	free(session->name);
	free(session);
}

static void unlink_session(struct proxy *proxy, const struct session *session)
{
	struct session **at = &proxy->oldest;

	while (*at && *at != session)
		at = &(*at)->next;
	if (*at)
		*at = session->next;
}

static void use_session(struct proxy *proxy, struct session *session)
{
	struct session **at;

	proxy->recent = session;
	unlink_session(proxy, session);
	for (at = &proxy->oldest; *at; at = &(*at)->next)
		;
	*at = session;
	session->next = NULL;
}

static void end_turn(struct proxy *proxy, struct session *session, struct slice result,
		     const char *cancelled_by);

static void forget_session(struct proxy *proxy, struct session *session)
{
	if (session->turn)
		end_turn(proxy, session, SLICE_EMPTY, NULL);
	for (struct request *at = proxy->first; at; at = at->next)
		if (at->session == session)
			at->session = NULL;
	if (proxy->recent == session)
		proxy->recent = NULL;
	unlink_session(proxy, session);
	(void)map_take(&proxy->sessions, buf_slice(&session->id));
	session_destroy(session);
}

/* @raw: the session's id as sent; ptr NULL or too long: none. @name: NULL for that of our
 * own folder. */
static struct session *session_of(struct proxy *proxy, struct slice raw, const char *name)
{
	const struct setup *setup = watch_setup(proxy->watch);
	struct session *session;

	if (!raw.ptr || raw.len > CHANNEL_SESSION_MAX)
		return NULL;
	buf_clear(&proxy->plain);
	(void)json_unescape(raw, &proxy->plain);
	session = map_get(&proxy->sessions, buf_slice(&proxy->plain));
	if (session) {
		use_session(proxy, session);
		return session;
	}
	if (proxy->sessions.count >= PROXY_SESSIONS_MAX)
		forget_session(proxy, proxy->oldest);
	session = mem_alloc(sizeof(*session));
	buf_init(&session->id, CHANNEL_SESSION_MAX);
	(void)buf_append(&session->id, buf_slice(&proxy->plain));
	buf_init(&session->title, ID_BYTES_MAX);
	buf_init(&session->modes, CHANNEL_OFFER_MAX);
	buf_init(&session->models, CHANNEL_OFFER_MAX);
	buf_init(&session->config, CHANNEL_OFFER_MAX);
	uuid_of_session(watch_loop(proxy->watch)->crypto, keypair_public(setup->keypair),
			buf_slice(&session->id), &session->channel);
	session->name = mem_dup(slice_of(name ? name : setup->channels[0].name));
	(void)map_put(&proxy->sessions, buf_slice(&session->id), session);
	use_session(proxy, session);
	return session;
}

static void keep_value(struct buf *out, struct slice object, struct slice key)
{
	const struct slice value = lookup(object, key);

	if (!value.len)
		return;
	buf_clear(out);
	if (!buf_append(out, value))
		buf_clear(out);
}

static void write_offers(const struct session *session, struct buf *out)
{
	if (session->modes.len)
		(void)json_write_member_raw(out, SLICE("modes"),
					    buf_slice(&session->modes));
	if (session->models.len)
		(void)json_write_member_raw(out, SLICE("models"),
					    buf_slice(&session->models));
	if (session->config.len)
		(void)json_write_member_raw(out, SLICE("configOptions"),
					    buf_slice(&session->config));
	if (session->title.len)
		(void)buf_printf(out, ",\"title\":\"%.*s\"",
				 SLICE_ARG(buf_slice(&session->title)));
}

/* What an agent may answer with, or tell later. */
static void take_offers(struct session *session, struct slice object)
{
	const struct slice title = lookup_string(object, SLICE("title"));

	keep_value(&session->modes, object, SLICE("modes"));
	keep_value(&session->models, object, SLICE("models"));
	keep_value(&session->config, object, SLICE("configOptions"));
	if (title.ptr) {
		buf_clear(&session->title);
		if (!buf_append(&session->title, title))
			buf_clear(&session->title);
	}
}

static void report_resolved(struct proxy *proxy, struct session *session, bool is_new)
{
	struct feed_context context = context_of(proxy, session);
	struct buf payload;

	session->resolved = true;
	report_begin(&payload);
	(void)json_write_member_string(&payload, SLICE("sessionId"),
				       buf_slice(&session->id));
	(void)json_write_member_bool(&payload, SLICE("isNew"), is_new);
	report_member(&payload, SLICE("channelName"), slice_of(session->name));
	write_offers(session, &payload);
	report_end(proxy->sender, &context, "session_resolved", &payload);
}

/* --- Turns --- */

static void begin_turn(struct proxy *proxy, struct session *session, struct slice prompt)
{
	struct turn *turn = session->turn = mem_alloc(sizeof(*turn));
	struct feed_context context;
	struct buf payload, head;

	report_uuid(turn->id);
	report_uuid(turn->prompt_id);
	turn->started_ms = loop_now_ms();
	turn->started_unix_ms = loop_unix_ms();
	context = context_of(proxy, session);
	report_begin(&payload);
	(void)json_write_member_string(&payload, SLICE("promptId"),
				       slice_of(turn->prompt_id));
	(void)json_write_member_string(&payload, SLICE("source"), SLICE("editor"));
	buf_init(&head, PROMPT_HEAD_BYTES);
	if (prompt_content_valid(prompt))
		prompt_head(prompt, PROMPT_HEAD_BYTES, &head);
	if (head.len)
		(void)json_write_member_string(&payload, SLICE("text"), buf_slice(&head));
	buf_finish(&head);
	report_end(proxy->sender, &context, "turn_started", &payload);
}

static void end_turn(struct proxy *proxy, struct session *session, struct slice result,
		     const char *cancelled_by)
{
	const struct slice stop_reason = lookup(result, SLICE("stopReason"));
	const struct slice usage = lookup(result, SLICE("usage"));
	struct feed_context context = context_of(proxy, session);
	struct turn *turn = session->turn;
	struct buf payload;

	report_begin(&payload);
	(void)json_write_member_string(&payload, SLICE("promptId"),
				       slice_of(turn->prompt_id));
	if (stop_reason.len && stop_reason.ptr[0] == '"')
		(void)json_write_member_raw(&payload, SLICE("stopReason"), stop_reason);
	if (cancelled_by)
		(void)json_write_member_string(&payload, SLICE("cancelledBy"),
					       slice_of(cancelled_by));
	(void)json_write_member_int(&payload, SLICE("durationMs"),
				    loop_now_ms() - turn->started_ms);
	if (turn->first_output_ms)
		(void)json_write_member_int(&payload, SLICE("firstOutputMs"),
					    turn->first_output_ms - turn->started_ms);
	if (usage.len && usage.ptr[0] == '{')
		(void)json_write_member_raw(&payload, SLICE("usage"), usage);
	report_end(proxy->sender, &context, "turn_completed", &payload);
	session->turn = NULL;
	free(turn);
}

static void report_turn_error(struct proxy *proxy, const struct session *session,
			      struct slice error)
{
	struct feed_context context = context_of(proxy, session);
	const struct slice code = lookup(error, SLICE("code"));
	const struct slice message = lookup(error, SLICE("message"));
	const struct slice data = lookup(error, SLICE("data"));
	uint64_t number;
	struct buf payload;

	report_begin(&payload);
	(void)json_write_member_string(&payload, SLICE("promptId"),
				       slice_of(session->turn->prompt_id));
	if (code.len && (code.ptr[0] == '-' || slice_parse_u64(code, INT32_MAX, &number)))
		(void)json_write_member_raw(&payload, SLICE("code"), code);
	(void)json_write_member_raw(&payload, SLICE("message"),
				    message.len && message.ptr[0] == '"'
					    ? message
					    : SLICE("\"failed without a reason\""));
	if (data.len && data.len <= CHANNEL_OFFER_MAX)
		(void)json_write_member_raw(&payload, SLICE("data"), data);
	(void)json_write_member_string(&payload, SLICE("class"), SLICE("agent"));
	report_end(proxy->sender, &context, "turn_error", &payload);
}

static void on_prompt(struct proxy *proxy, struct session *session,
		      const struct acp_line *line)
{
	/* An answer that was never seen: what it would have ended is over. */
	if (session->turn && proxy->read.missed)
		end_turn(proxy, session, SLICE_EMPTY, NULL);
	proxy->read.missed = false;
	if (!session->turn)
		begin_turn(proxy, session, lookup(line->params, SLICE("prompt")));
	session->turn->prompts++;
}

static void on_prompt_answer(struct proxy *proxy, struct session *session,
			     const struct acp_line *line)
{
	if (!session || !session->turn)
		return;
	if (line->error.len)
		report_turn_error(proxy, session, line->error);
	else if (proxy->two && !lookup(line->result, SLICE("stopReason")).len)
		return; /* version 2 only says that the prompt was taken */
	if (--session->turn->prompts == 0)
		end_turn(proxy, session, line->result, NULL);
}

static void on_update(struct proxy *proxy, struct session *session,
		      const struct acp_line *line)
{
	const struct slice update = lookup(line->params, SLICE("update"));
	struct turn *turn = session->turn;

	if (json_is(line->update, SLICE("session_info_update")) ||
	    json_is(line->update, SLICE("config_option_update")))
		take_offers(session, update);
	if (turn && !turn->first_output_ms)
		turn->first_output_ms = loop_now_ms();
	/* Version 2: the state says when the turn is over. */
	if (turn && proxy->two && json_is(line->update, SLICE("state_update")) &&
	    lookup_is(update, SLICE("state"), SLICE("idle")))
		end_turn(proxy, session, update, NULL);
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
	const struct feed_context context = context_of(proxy, session);

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

static void on_request(struct proxy *proxy, const struct seen *seen,
		       const struct acp_line *line)
{
	struct session *session = session_of(proxy, line->session, NULL);
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
	}
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
	struct feed_context context = own_context(proxy);
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
		free(session->name);
		session->name = mem_dup(slice_of(request->name));
	}
	take_offers(session, line->result);
	report_resolved(proxy, session, request->is_new);
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
		session = session_of(proxy, line->session, request->name);
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
	struct session *session = session_of(proxy, line->session, NULL);

	(void)mirror(proxy, seen, session, SLICE_EMPTY, NULL);
	if (session && seen->way == FEED_READ &&
	    json_is(line->method, SLICE("session/update")))
		on_update(proxy, session, line);
}

/* --- Lines --- */

static void on_line(void *ctx, struct slice text, size_t bytes)
{
	struct direction *direction = ctx;
	struct proxy *proxy = direction->proxy;
	struct acp_line raw, again, *line = &raw;
	const struct seen seen = {&raw, bytes, direction->way};

	acp_line_scan(text, &raw);
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
	struct feed_context context = own_context(proxy);

	report_event(proxy->sender, &context, "output", payload);
}

static void on_log_timer(void *ctx)
{
	struct proxy *proxy = ctx;

	output_flush(&proxy->log, loop_now_ms(), emit_log, proxy);
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
	struct feed_context context = own_context(proxy);
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
	for (struct session *at = proxy->oldest; at; at = at->next)
		if (at->turn)
			end_turn(proxy, at, SLICE_EMPTY, "exit");
}

/* --- What is asked of it --- */

static struct feed_context emit_context(void *source)
{
	const struct proxy *proxy = source;

	return context_of(proxy, proxy->recent);
}

static struct slice body(void *source, uint64_t seq, struct feed_context *context)
{
	const struct proxy *proxy = source;

	for (const struct request *at = proxy->first; at; at = at->next) {
		if (at->role != ROLE_PERMISSION || at->seq != seq)
			continue;
		*context = context_of(proxy, at->session);
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

static void write_channels(const struct proxy *proxy, struct buf *out)
{
	open_array(out, SLICE("channels"));
	open_item(out);
	(void)json_write_member_string(out, SLICE("id"),
				       uuid_slice(watch_slot_channel(proxy->watch)));
	report_member(out, SLICE("name"),
		      slice_of(watch_setup(proxy->watch)->channels[0].name));
	(void)buf_lit(out, "}");
	for (const struct session *at = proxy->oldest; at; at = at->next) {
		open_item(out);
		(void)json_write_member_string(out, SLICE("id"),
					       uuid_slice(&at->channel));
		report_member(out, SLICE("name"), slice_of(at->name));
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
}

static void write_sessions(const struct proxy *proxy, struct buf *out)
{
	open_array(out, SLICE("sessions"));
	for (const struct session *at = proxy->oldest; at; at = at->next) {
		open_item(out);
		(void)json_write_member_string(out, SLICE("sessionId"),
					       buf_slice(&at->id));
		(void)json_write_member_string(out, SLICE("channelId"),
					       uuid_slice(&at->channel));
		(void)json_write_member_int(out, SLICE("slot"), 0);
		if (at == proxy->recent) /* what all offer would be too much */
			write_offers(at, out);
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
	open_array(out, SLICE("turns"));
	for (const struct session *at = proxy->oldest; at; at = at->next) {
		if (!at->turn)
			continue;
		open_item(out);
		(void)json_write_member_string(out, SLICE("turnId"),
					       slice_of(at->turn->id));
		(void)json_write_member_string(out, SLICE("channelId"),
					       uuid_slice(&at->channel));
		(void)json_write_member_int(out, SLICE("sinceMs"),
					    at->turn->started_unix_ms);
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
}

static void write_pending(const struct proxy *proxy, struct buf *out)
{
	open_array(out, SLICE("pending"));
	for (const struct request *at = proxy->first; at; at = at->next) {
		const struct feed_context context = context_of(proxy, at->session);

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

	write_channels(proxy, out);
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
	write_sessions(proxy, out);
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
	map_init(&proxy->sessions);
	buf_init(&proxy->repaired, (size_t)4 * AGENT_MIRROR_MAX);
	buf_init(&proxy->plain, CHANNEL_SESSION_MAX);
	return proxy;
}

static void destroy(void *source)
{
	struct proxy *proxy = source;
	struct session *session;

	while (proxy->first)
		request_destroy(proxy, proxy->first);
	while ((session = proxy->oldest)) {
		proxy->oldest = session->next;
		session_destroy(session);
	}
	map_finish(&proxy->requests);
	map_finish(&proxy->sessions);
	timer_destroy(proxy->log_timer);
	output_finish(&proxy->log);
	reader_finish(&proxy->read.reader);
	reader_finish(&proxy->write.reader);
	buf_finish(&proxy->repaired);
	buf_finish(&proxy->plain);
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
