#include "agent/agent.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/acp.h"
#include "agent/acp_line.h"
#include "agent/channel.h"
#include "agent/demo_script.h"
#include "agent/lookup.h"
#include "agent/reader.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/options.h"
#include "wire/nostr/json.h"

/* `perch demo-agent`: a scripted ACP agent on stdio, so that everything else can be tried
 * without an account. It behaves as an agent should: cancels at any point, waits for
 * permission, ends when its stdin does. Upon the prompt `demo` it plays demo_script.c. */

#define SESSIONS_MAX 64
#define CHUNK_MS 70     /* between two pieces of streamed text */
#define PROMPT_MAX 4096 /* bytes of a prompt that are echoed */
#define CONTEXT_SIZE 200000

struct session {
	char id[16];
	unsigned number; /* from 1 */
	const char *mode, *model;
	/* The turn, if one runs. */
	bool running;
	struct buf prompt_id; /* raw token of the session/prompt */
	struct buf prompt;    /* what was asked, plain */
	const struct demo_step *steps;
	size_t step_count, step;
	const struct demo_script *script;
	unsigned phase; /* inside a step */
	size_t sent;    /* of a streamed text */
	int64_t due_ms;
	int64_t speed;       /* pauses are divided by it */
	long asked;          /* id of our permission request, -1: none waits */
	unsigned tool, turn; /* to number tool calls and messages */
};

struct demo {
	struct session *sessions[SESSIONS_MAX];
	size_t session_count;
	struct reader reader;
	struct buf out;
	int64_t speed;
	long next_id;
	bool ended;
};

static int64_t now(void)
{
	struct timespec at;

	(void)clock_gettime(CLOCK_MONOTONIC, &at);
	return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

/* --- Out --- */

static void flush(struct demo *demo)
{
	size_t done = 0;
	ssize_t sent;

	(void)buf_lit(&demo->out, "\n");
	while (done < demo->out.len) {
		sent = write(STDOUT_FILENO, demo->out.ptr + done, demo->out.len - done);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0) {
			demo->ended = true; /* nobody listens any more */
			break;
		}
		done += (size_t)sent;
	}
	buf_clear(&demo->out);
}

static void add(struct demo *demo, struct slice key, const char *text)
{
	(void)json_write_member_string(&demo->out, key, slice_of(text));
}

static void begin(struct demo *demo)
{
	(void)buf_lit(&demo->out, "{\"jsonrpc\":\"2.0\"");
}

static void reply(struct demo *demo, struct slice id, struct slice result)
{
	begin(demo);
	(void)json_write_member_raw(&demo->out, SLICE("id"), id);
	(void)json_write_member_raw(&demo->out, SLICE("result"), result);
	(void)buf_lit(&demo->out, "}");
	flush(demo);
}

static void refuse(struct demo *demo, struct slice id, int code, const char *text)
{
	begin(demo);
	(void)json_write_member_raw(&demo->out, SLICE("id"), id);
	(void)buf_printf(&demo->out, ",\"error\":{\"code\":%d", code);
	add(demo, SLICE("message"), text);
	(void)buf_lit(&demo->out, "}}");
	flush(demo);
}

/* session/update up to and with its kind; end_update() closes it. */
static void begin_update(struct demo *demo, const struct session *session,
			 const char *kind)
{
	begin(demo);
	(void)buf_printf(
		&demo->out,
		",\"method\":\"session/update\",\"params\":{\"sessionId\":\"%s\","
		"\"update\":{\"sessionUpdate\":\"%s\"",
		session->id, kind);
}

static void end_update(struct demo *demo)
{
	(void)buf_lit(&demo->out, "}}}");
	flush(demo);
}

static void add_tool_id(struct demo *demo, const struct session *session)
{
	(void)buf_printf(&demo->out, ",\"toolCallId\":\"call_%u_%u_%u\"", session->number,
			 session->turn, session->tool);
}

static void add_text_content(struct demo *demo, const char *text)
{
	(void)buf_lit(
		&demo->out,
		",\"content\":[{\"type\":\"content\",\"content\":{\"type\":\"text\"");
	add(demo, SLICE("text"), text);
	(void)buf_lit(&demo->out, "}}]");
}

static void add_modes(struct buf *out, const struct session *session)
{
	(void)buf_printf(out,
			 "\"modes\":{\"currentModeId\":\"%s\",\"availableModes\":["
			 "{\"id\":\"ask\",\"name\":\"Ask\",\"description\":\"Asks before "
			 "it acts\"},"
			 "{\"id\":\"code\",\"name\":\"Code\",\"description\":\"Edits by "
			 "itself\"}]}",
			 session->mode);
}

static void add_config(struct buf *out, const struct session *session)
{
	(void)buf_printf(
		out,
		"\"configOptions\":[{\"id\":\"model\",\"name\":\"Model\","
		"\"category\":\"model\",\"type\":\"select\",\"currentValue\":\"%s\","
		"\"options\":[{\"value\":\"demo-small\",\"name\":\"Demo small\"},"
		"{\"value\":\"demo-large\",\"name\":\"Demo large\"}]}]",
		session->model);
}

/* --- Playing --- */

static void end_turn(struct demo *demo, struct session *session, const char *stop_reason)
{
	struct buf result;

	buf_init(&result, 256);
	(void)buf_printf(&result,
			 "{\"stopReason\":\"%s\",\"usage\":{\"inputTokens\":%zu,"
			 "\"outputTokens\":%zu,\"totalTokens\":%zu}}",
			 stop_reason, 4200 * session->step, 310 * session->step,
			 4510 * session->step);
	session->running = false;
	session->asked = -1;
	reply(demo, buf_slice(&session->prompt_id), buf_slice(&result));
	buf_finish(&result);
}

static void pause_for(struct session *session, int ms)
{
	session->due_ms = now() + ms / session->speed;
}

/* Goes to the next step in @ms. */
static void next_step(struct session *session, int ms)
{
	session->step++;
	session->phase = 0;
	session->sent = 0;
	pause_for(session, ms);
}

static void next_phase(struct session *session, int ms)
{
	session->phase++;
	pause_for(session, ms);
}

/* A few words more of @text. */
static void stream(struct demo *demo, struct session *session, struct slice text,
		   const char *kind)
{
	size_t end = session->sent;

	for (int words = 0; words < 4 && end < text.len; words++) {
		while (end < text.len && text.ptr[end] == ' ')
			end++;
		while (end < text.len && text.ptr[end] != ' ')
			end++;
	}
	begin_update(demo, session, kind);
	(void)buf_printf(&demo->out, ",\"messageId\":\"m%u-%u-%zu\"", session->number,
			 session->turn, session->step);
	(void)buf_lit(&demo->out, ",\"content\":{\"type\":\"text\"");
	(void)json_write_member_string(&demo->out, SLICE("text"),
				       slice_sub(text, session->sent, end));
	(void)buf_lit(&demo->out, "}");
	end_update(demo);
	session->sent = end;
	if (end == text.len)
		next_step(session, 250);
	else
		pause_for(session, CHUNK_MS);
}

static void play_plan(struct demo *demo, struct session *session,
		      const struct demo_step *step)
{
	struct slice rest = slice_of(step->text), line;
	bool first = true;

	begin_update(demo, session, "plan");
	(void)buf_lit(&demo->out, ",\"entries\":[");
	while (slice_take_until(&rest, '\n', &line)) {
		const char *status = line.ptr[0] == 'x'   ? "completed"
				     : line.ptr[0] == '>' ? "in_progress"
							  : "pending";

		(void)buf_append(&demo->out, first ? SLICE("{") : SLICE(",{"));
		(void)json_write_member_string(&demo->out, SLICE("content"),
					       slice_sub(line, 1, line.len));
		add(demo, SLICE("priority"), "medium");
		add(demo, SLICE("status"), status);
		(void)buf_lit(&demo->out, "}");
		first = false;
	}
	(void)buf_lit(&demo->out, "]");
	end_update(demo);
	next_step(session, step->ms);
}

static void play_usage(struct demo *demo, struct session *session,
		       const struct demo_step *step)
{
	begin_update(demo, session, "usage_update");
	(void)buf_printf(&demo->out,
			 ",\"used\":%ld,\"size\":%d,\"cost\":{\"amount\":%ld.%02ld,"
			 "\"currency\":\"USD\"}",
			 step->tokens, CONTEXT_SIZE, step->tokens / 100000,
			 step->tokens / 1000 % 100);
	end_update(demo);
	next_step(session, step->ms);
}

static const char *tool_kind(enum demo_kind kind)
{
	switch (kind) {
	case DEMO_READ:
		return "read";
	case DEMO_SEARCH:
		return "search";
	case DEMO_EDIT:
		return "edit";
	case DEMO_RUN:
	case DEMO_RUN_BAD:
	case DEMO_ASK:
		return "execute";
	case DEMO_THINK:
	case DEMO_SAY:
	case DEMO_PLAN:
	case DEMO_USAGE:
	case DEMO_ECHO:
		break;
	}
	return "other";
}

/* title, kind, and what the tool works on: of a tool_call and of a permission request. */
static void add_tool(struct demo *demo, const struct demo_step *step)
{
	static const char *const verbs[] = {[DEMO_READ] = "Read ",
					    [DEMO_SEARCH] = "Search for ",
					    [DEMO_EDIT] = "Edit "};
	const char *verb = step->kind <= DEMO_EDIT ? verbs[step->kind] : "";
	struct buf title;

	buf_init(&title, 512);
	(void)buf_printf(&title, "%s%s", verb ? verb : "", step->target);
	add(demo, SLICE("title"), buf_text(&title));
	buf_finish(&title);
	add(demo, SLICE("kind"), tool_kind(step->kind));
	if (step->kind == DEMO_READ || step->kind == DEMO_EDIT) {
		(void)buf_lit(&demo->out, ",\"locations\":[{");
		(void)json_write_key(&demo->out, SLICE("path"));
		(void)buf_printf(&demo->out, "\"/project/%s\"}]", step->target);
	}
	(void)buf_lit(&demo->out, ",\"rawInput\":{");
	add(demo,
	    step->kind == DEMO_SEARCH ? SLICE("pattern")
	    : step->kind <= DEMO_EDIT ? SLICE("path")
				      : SLICE("command"),
	    step->target);
	(void)buf_lit(&demo->out, "}");
}

static void announce_tool(struct demo *demo, struct session *session,
			  const struct demo_step *step)
{
	session->tool++;
	begin_update(demo, session, "tool_call");
	add_tool_id(demo, session);
	add_tool(demo, step);
	add(demo, SLICE("status"), "pending");
	end_update(demo);
}

static void set_tool_status(struct demo *demo, struct session *session,
			    const char *status)
{
	begin_update(demo, session, "tool_call_update");
	add_tool_id(demo, session);
	add(demo, SLICE("status"), status);
	end_update(demo);
}

static void finish_tool(struct demo *demo, struct session *session,
			const struct demo_step *step)
{
	bool bad = step->kind == DEMO_RUN_BAD;

	begin_update(demo, session, "tool_call_update");
	add_tool_id(demo, session);
	add(demo, SLICE("status"), bad ? "failed" : "completed");
	if (step->kind == DEMO_EDIT) {
		(void)buf_lit(&demo->out, ",\"content\":[{\"type\":\"diff\"");
		(void)buf_printf(&demo->out, ",\"path\":\"/project/%s\"", step->target);
		(void)json_write_member_string(&demo->out, SLICE("oldText"),
					       slice_of(step->before));
		add(demo, SLICE("newText"), step->text);
		(void)buf_lit(&demo->out, "}]");
	} else {
		add_text_content(demo, step->text);
	}
	if (tool_kind(step->kind)[0] == 'e' && step->kind != DEMO_EDIT)
		(void)buf_printf(&demo->out, ",\"rawOutput\":{\"exitCode\":%d}",
				 bad ? 2 : 0);
	end_update(demo);
}

/* A tool call from announcement to end. */
static void play_tool(struct demo *demo, struct session *session,
		      const struct demo_step *step)
{
	switch (session->phase) {
	case 0:
		announce_tool(demo, session, step);
		next_phase(session, 120);
		return;
	case 1:
		set_tool_status(demo, session, "in_progress");
		next_phase(session, step->ms);
		return;
	default:
		finish_tool(demo, session, step);
		next_step(session, 300);
	}
}

static void ask(struct demo *demo, struct session *session, const struct demo_step *step)
{
	session->asked = demo->next_id++;
	begin(demo);
	(void)buf_printf(&demo->out,
			 ",\"id\":%ld,\"method\":\"session/request_permission\","
			 "\"params\":{\"sessionId\":\"%s\",\"toolCall\":{\"toolCallId\":"
			 "\"call_%u_%u_%u\"",
			 session->asked, session->id, session->number, session->turn,
			 session->tool);
	add_tool(demo, step);
	add(demo, SLICE("status"), "pending");
	(void)buf_lit(
		&demo->out,
		"},\"options\":["
		"{\"optionId\":\"once\",\"name\":\"Allow once\",\"kind\":\"allow_once\"},"
		"{\"optionId\":\"always\",\"name\":\"Always allow this command\","
		"\"kind\":\"allow_always\"},"
		"{\"optionId\":\"no\",\"name\":\"Reject\",\"kind\":\"reject_once\"}]}}");
	flush(demo);
}

static void play_ask(struct demo *demo, struct session *session,
		     const struct demo_step *step)
{
	switch (session->phase) {
	case 0:
		announce_tool(demo, session, step);
		next_phase(session, 200);
		return;
	case 1:
		ask(demo, session, step);
		session->phase = 2;
		session->due_ms = INT64_MAX; /* until it is answered */
		return;
	case 2:
		set_tool_status(demo, session, "in_progress");
		next_phase(session, step->ms);
		return;
	default:
		finish_tool(demo, session, step);
		next_step(session, 300);
	}
}

static void play_echo(struct demo *demo, struct session *session)
{
	struct buf text;

	buf_init(&text, PROMPT_MAX + 512);
	(void)buf_lit(&text, "You asked: \xe2\x80\x9c");
	(void)buf_append(&text, buf_slice(&session->prompt));
	(void)buf_printf(
		&text,
		"\xe2\x80\x9d\n\nI am the demo agent, so all I know is what is in "
		"`README.md`. [marker %u.%u] Prompt me with `demo` and I play my "
		"script again.\n",
		session->number, session->turn);
	stream(demo, session, buf_slice(&text), "agent_message_chunk");
	buf_finish(&text);
}

static void play(struct demo *demo, struct session *session)
{
	const struct demo_step *step = &session->steps[session->step];

	if (session->step == session->step_count) {
		end_turn(demo, session, "end_turn");
		return;
	}
	switch (step->kind) {
	case DEMO_THINK:
		stream(demo, session, slice_of(step->text), "agent_thought_chunk");
		return;
	case DEMO_SAY:
		stream(demo, session, slice_of(step->text), "agent_message_chunk");
		return;
	case DEMO_PLAN:
		play_plan(demo, session, step);
		return;
	case DEMO_READ:
	case DEMO_SEARCH:
	case DEMO_EDIT:
	case DEMO_RUN:
	case DEMO_RUN_BAD:
		play_tool(demo, session, step);
		return;
	case DEMO_ASK:
		play_ask(demo, session, step);
		return;
	case DEMO_USAGE:
		play_usage(demo, session, step);
		return;
	case DEMO_ECHO:
		play_echo(demo, session);
		return;
	}
}

/* --- In --- */

static struct session *find_session(struct demo *demo, struct slice id)
{
	for (size_t i = 0; i < demo->session_count; i++) {
		if (id.ptr && json_is(id, slice_of(demo->sessions[i]->id)))
			return demo->sessions[i];
	}
	return NULL;
}

static void initialize(struct demo *demo, const struct acp_line *line)
{
	reply(demo, line->id,
	      SLICE("{\"protocolVersion\":1,\"agentCapabilities\":{\"loadSession\":false,"
		    "\"promptCapabilities\":{\"image\":false,\"audio\":false,"
		    "\"embeddedContext\":true}},\"agentInfo\":{\"name\":\"perch-demo\","
		    "\"title\":\"Demo agent\",\"version\":\"" PERCH_VERSION
		    "\"},\"authMethods\":[]}"));
}

static void new_session(struct demo *demo, const struct acp_line *line)
{
	struct session *session;
	struct buf result;

	if (lookup(line->params, SLICE("mcpServers")).len == 0 ||
	    !lookup_string(line->params, SLICE("cwd")).ptr) {
		refuse(demo, line->id, ACP_INVALID_PARAMS,
		       "cwd and mcpServers are required");
		return;
	}
	if (demo->session_count == SESSIONS_MAX) {
		refuse(demo, line->id, ACP_INVALID_REQUEST, "too many sessions");
		return;
	}
	session = mem_alloc(sizeof(*session));
	demo->sessions[demo->session_count++] = session;
	session->number = (unsigned)demo->session_count;
	session->mode = "ask";
	session->model = "demo-small";
	session->speed = demo->speed;
	session->asked = -1;
	(void)snprintf(session->id, sizeof(session->id), "demo-%u", session->number);
	buf_init(&session->prompt_id, 1024);
	buf_init(&session->prompt, PROMPT_MAX);
	buf_init(&result, 4096);
	(void)buf_printf(&result, "{\"sessionId\":\"%s\",", session->id);
	add_modes(&result, session);
	(void)buf_lit(&result, ",");
	add_config(&result, session);
	(void)buf_lit(&result, "}");
	reply(demo, line->id, buf_slice(&result));
	buf_finish(&result);
}

static void start_prompt(struct demo *demo, struct session *session,
			 const struct acp_line *line)
{
	if (session->running) {
		refuse(demo, line->id, ACP_INVALID_REQUEST, "a turn is running already");
		return;
	}
	buf_clear(&session->prompt_id);
	if (!buf_append(&session->prompt_id, line->id)) {
		refuse(demo, SLICE("null"), ACP_INVALID_REQUEST,
		       "the request id is too long");
		return;
	}
	buf_clear(&session->prompt);
	prompt_head(lookup(line->params, SLICE("prompt")), PROMPT_MAX, &session->prompt);
	session->script = &demo_script_echo;
	if (slice_eq(slice_trim(buf_slice(&session->prompt)), SLICE("demo")))
		session->script =
			session->number % 2 ? &demo_script_code : &demo_script_docs;
	session->steps = session->script->steps;
	session->step_count = session->script->count;
	session->step = session->phase = 0;
	session->sent = 0;
	session->tool = 0;
	session->turn++;
	session->running = true;
	pause_for(session, 150);
}

static void set_mode(struct demo *demo, struct session *session,
		     const struct acp_line *line)
{
	if (lookup_is(line->params, SLICE("modeId"), SLICE("ask")))
		session->mode = "ask";
	else if (lookup_is(line->params, SLICE("modeId"), SLICE("code")))
		session->mode = "code";
	else {
		refuse(demo, line->id, ACP_INVALID_PARAMS, "no such mode");
		return;
	}
	begin_update(demo, session, "current_mode_update");
	add(demo, SLICE("currentModeId"), session->mode);
	end_update(demo);
	reply(demo, line->id, SLICE("{}"));
}

static void set_config(struct demo *demo, struct session *session,
		       const struct acp_line *line)
{
	struct buf result;

	if (!lookup_is(line->params, SLICE("configId"), SLICE("model"))) {
		refuse(demo, line->id, ACP_INVALID_PARAMS, "no such option");
		return;
	}
	if (lookup_is(line->params, SLICE("value"), SLICE("demo-small")))
		session->model = "demo-small";
	else if (lookup_is(line->params, SLICE("value"), SLICE("demo-large")))
		session->model = "demo-large";
	else {
		refuse(demo, line->id, ACP_INVALID_PARAMS, "no such model");
		return;
	}
	buf_init(&result, 4096);
	(void)buf_lit(&result, "{");
	add_config(&result, session);
	(void)buf_lit(&result, "}");
	reply(demo, line->id, buf_slice(&result));
	buf_finish(&result);
}

static void on_request(struct demo *demo, const struct acp_line *line)
{
	struct session *session = find_session(demo, line->session);

	if (json_is(line->method, SLICE("initialize")))
		initialize(demo, line);
	else if (json_is(line->method, SLICE("authenticate")))
		reply(demo, line->id, SLICE("{}"));
	else if (json_is(line->method, SLICE("session/new")))
		new_session(demo, line);
	else if (slice_starts(line->method, SLICE("session/")) && !session)
		refuse(demo, line->id, ACP_INVALID_PARAMS, "no such session");
	else if (json_is(line->method, SLICE("session/prompt")))
		start_prompt(demo, session, line);
	else if (json_is(line->method, SLICE("session/set_mode")))
		set_mode(demo, session, line);
	else if (json_is(line->method, SLICE("session/set_config_option")))
		set_config(demo, session, line);
	else
		refuse(demo, line->id, ACP_METHOD_NOT_FOUND, "method not found");
}

/* The answer to a permission request of ours; an answer that comes too late names none.
 */
static void on_response(struct demo *demo, const struct acp_line *line)
{
	struct slice outcome = lookup(line->result, SLICE("outcome"));
	bool allowed = lookup_is(outcome, SLICE("optionId"), SLICE("once")) ||
		       lookup_is(outcome, SLICE("optionId"), SLICE("always"));
	uint64_t id;

	if (!slice_parse_u64(line->id, INT64_MAX, &id))
		return;
	for (size_t i = 0; i < demo->session_count; i++) {
		struct session *session = demo->sessions[i];

		if (!session->running || session->asked != (long)id)
			continue;
		session->asked = -1;
		session->due_ms = now();
		if (allowed)
			return;
		set_tool_status(demo, session, "failed");
		session->steps = session->script->denied;
		session->step_count = session->script->denied_count;
		session->step = session->phase = 0;
		return;
	}
}

static void on_cancel(struct demo *demo, const struct acp_line *line)
{
	struct session *session = find_session(demo, line->session);

	if (session && session->running)
		end_turn(demo, session, "cancelled");
}

static void on_line(void *ctx, struct slice text, size_t bytes)
{
	struct demo *demo = ctx;
	struct acp_line line;

	(void)bytes;
	acp_line_scan(text, &line);
	switch (line.shape) {
	case ACP_REQUEST:
		on_request(demo, &line);
		return;
	case ACP_NOTIFICATION:
		if (json_is(line.method, SLICE("session/cancel")))
			on_cancel(demo, &line);
		return;
	case ACP_RESPONSE:
		on_response(demo, &line);
		return;
	case ACP_BLANK:
		return;
	case ACP_ARRAY:
	case ACP_OBJECT:
		refuse(demo, SLICE("null"), ACP_INVALID_REQUEST,
		       "not a JSON-RPC message");
		return;
	case ACP_BROKEN:
		refuse(demo, SLICE("null"), -32700, line.fault.text);
		return;
	}
}

/* --- The loop --- */

/* Plays what is due; returns how long to wait for the next, -1: until something is read.
 */
static int play_due(struct demo *demo)
{
	int64_t next_ms = INT64_MAX, at_ms = now();

	for (size_t i = 0; i < demo->session_count; i++) {
		struct session *session = demo->sessions[i];

		if (session->running && session->due_ms <= at_ms)
			play(demo, session);
		if (session->running && session->due_ms < next_ms)
			next_ms = session->due_ms;
	}
	if (next_ms == INT64_MAX)
		return -1;
	return next_ms > at_ms ? (int)(next_ms - at_ms) : 0;
}

static void read_stdin(struct demo *demo)
{
	char bytes[16384];
	ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));

	if (got > 0) {
		reader_feed(&demo->reader, (struct slice){bytes, (size_t)got}, on_line,
			    demo);
	} else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
		reader_end(&demo->reader, on_line, demo);
		demo->ended = true;
	}
}

int demo_main(int argc, char *argv[])
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	struct demo demo = {.speed = 1};
	const struct option_spec table[] = {
		{"speed", OPTION_INT, &demo.speed, 1, 1000, "N",
		 "play so many times faster (default 1)", true},
		{NULL, OPTION_FLAG, NULL, 0, 0, NULL, NULL, false},
	};
	const struct options_spec spec = {
		.command = "perch demo-agent",
		.usage = "[OPTIONS]",
		.summary = "A scripted ACP agent on standard input and output: give it "
			   "the prompt "
			   "\"demo\".",
		.example = "  perch up -- perch demo-agent",
		.options = table,
	};
	struct options *options;
	char **args;
	int arg_count;

	switch (options_parse(&spec, argc, argv, &options, &args, &arg_count)) {
	case OPTIONS_EXIT_OK:
		return EXIT_SUCCESS;
	case OPTIONS_EXIT_USAGE:
		return 2;
	case OPTIONS_OK:
		break;
	}
	options_destroy(options);
	(void)signal(SIGPIPE, SIG_IGN);
	reader_init(&demo.reader, AGENT_LINE_MAX);
	buf_init(&demo.out, 1u << 20);
	while (!demo.ended) {
		int ready = poll(&input, 1, play_due(&demo));

		if (ready > 0)
			read_stdin(&demo);
	}
	for (size_t i = 0; i < demo.session_count; i++) {
		buf_finish(&demo.sessions[i]->prompt_id);
		buf_finish(&demo.sessions[i]->prompt);
		free(demo.sessions[i]);
	}
	reader_finish(&demo.reader);
	buf_finish(&demo.out);
	return EXIT_SUCCESS;
}
