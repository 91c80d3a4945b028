#include "agent/slot.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/acp.h"
#include "agent/lookup.h"
#include "agent/output.h"
#include "agent/report.h"
#include "agent/respawn.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"
#include "wire/nostr/json.h"

/* An agent that closed its stdout is about to exit: so long its status is waited for. */
#define STDOUT_GRACE_MS 200

/* So long an agent that is to stop may take to close its sessions; our choice. */
#define CLOSE_GRACE_MS 1000

enum slot_state {
	SLOT_IDLE, /* not started, or stopped */
	SLOT_STARTING,
	SLOT_READY,
	SLOT_RESPAWNING,
	SLOT_CIRCUIT_OPEN,
};

/* Why the process is being ended, should it be us who does it. */
enum slot_end {
	END_BY_ITSELF,
	END_STOPPED,
	END_REPLACED,
	END_STDOUT_CLOSED,
	END_UNUSABLE,
	END_NOT_INITIALIZED,
};

struct slot {
	struct slot_options options;
	enum slot_state state;
	enum slot_end end;
	bool stopping; /* for good */
	struct child *child;
	struct acp *acp;
	struct output output;
	struct respawn respawn;
	struct timer *timer;        /* respawn */
	struct timer *stdout_timer; /* STDOUT_GRACE_MS */
	struct timer *close_timer;  /* CLOSE_GRACE_MS; armed: sessions are being closed */
	int64_t spawned_ms, paused_ms;
	char unusable[200];
};

static struct feed_context own_context(const struct slot *slot)
{
	return (struct feed_context){.slot = slot->options.peer->slot,
				     .channel = &slot->options.channel};
}

static void begin(const struct slot *slot, struct buf *payload)
{
	report_begin(payload);
	(void)json_write_member_int(payload, SLICE("slot"), slot->options.peer->slot);
}

static void end(struct slot *slot, const char *kind, struct buf *payload)
{
	struct feed_context context = own_context(slot);

	report_end(slot->options.sender, &context, kind, payload);
}

/* --- The connection's events --- */

static void on_read(void *ctx, const struct acp_line *line, const struct acp_line *raw,
		    size_t bytes, void *route)
{
	struct slot *slot = ctx;
	struct feed_context elsewhere = own_context(slot);
	struct acp_line cut = *raw;

	if (cut.text.len > AGENT_MIRROR_MAX)
		cut.text = slice_sub(cut.text, 0, AGENT_MIRROR_MAX);
	peer_read(slot->options.peer, line, &cut, bytes, route, &elsewhere);
}

static void on_request(void *ctx, const struct acp_line *line)
{
	struct slot *slot = ctx;

	peer_request(slot->options.peer, line);
}

static void on_notification(void *ctx, const struct acp_line *line)
{
	struct slot *slot = ctx;

	peer_notification(slot->options.peer, line);
}

static void on_wrote(void *ctx, struct slice text, void *route,
		     struct slice authorization)
{
	struct slot *slot = ctx;
	struct feed_context context = route ? report_context(route) : own_context(slot);
	struct sender *sender = slot->options.sender;
	struct acp_line line;

	acp_line_scan(text, &line);
	(void)feed_line(sender_feed(sender), sender_time(sender), &context, FEED_WRITE,
			&line, text.len, authorization, NULL);
	sender_kick(sender);
}

static const struct acp_events acp_events = {
	.on_read = on_read,
	.on_request = on_request,
	.on_notification = on_notification,
	.on_wrote = on_wrote,
};

static void write_to_child(void *ctx, struct slice line, child_on_written *on_written,
			   void *written_ctx)
{
	struct slot *slot = ctx;

	child_write(slot->child, line, on_written, written_ctx);
}

/* --- initialize --- */

static void stop_process(struct slot *slot, enum slot_end why)
{
	if (slot->end == END_BY_ITSELF)
		slot->end = why;
	peer_stopping(slot->options.peer, why == END_STOPPED);
	if (slot->options.peer->closing > 0)
		timer_start(slot->close_timer, CLOSE_GRACE_MS);
	else
		child_stop(slot->child);
}

static void make_unusable(struct slot *slot, const char *text)
{
	struct feed_context context = own_context(slot);

	(void)snprintf(slot->unusable, sizeof(slot->unusable), "%s", text);
	report_note(slot->options.sender, &context, "error", slice_of(slot->unusable));
	stop_process(slot, END_UNUSABLE);
}

static void report_initialized(struct slot *slot, struct slice result)
{
	static const struct slice kept[] = {
		SLICE_INIT("agentInfo"),
		SLICE_INIT("agentCapabilities"),
		SLICE_INIT("authMethods"),
	};
	struct buf payload;

	begin(slot, &payload);
	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
		struct slice value = lookup(result, kept[i]);

		if (value.len)
			(void)json_write_member_raw(&payload, kept[i], value);
	}
	(void)json_write_member_int(&payload, SLICE("pid"), child_pid(slot->child));
	(void)json_write_member_int(&payload, SLICE("tookMs"),
				    loop_now_ms() - slot->spawned_ms);
	end(slot, "agent_initialized", &payload);
}

static void on_initialize_answer(void *ctx, const struct acp_answer *answer)
{
	struct slot *slot = ctx;
	struct slice version = lookup(answer->result, SLICE("protocolVersion"));
	char text[200], quoted[LOG_QUOTE_BYTES];
	struct buf payload;

	if (answer->failure == ACP_GONE)
		return; /* its exit says it */
	if (answer->failure == ACP_TIMED_OUT) {
		log_error("agent",
			  "did not answer initialize within --start-timeout (%lld s)",
			  (long long)(slot->options.start_ms / 1000));
		stop_process(slot, END_NOT_INITIALIZED);
		return;
	}
	if (!answer->ok && answer->code == ACP_VERSION_UNSUPPORTED) {
		version =
			lookup(lookup(answer->error, SLICE("data")), SLICE("supported"));
		(void)snprintf(text, sizeof(text),
			       "the agent speaks ACP %.40s only, perch speaks version 1",
			       version.len ? log_quote(version, quoted)
					   : "of another version");
		make_unusable(slot, text);
		return;
	}
	if (!answer->ok) {
		(void)snprintf(
			text, sizeof(text),
			"the agent refused initialize: %.120s (does it speak ACP?)",
			log_quote(answer->message, quoted));
		make_unusable(slot, text);
		return;
	}
	if (!slice_eq(version, SLICE("1"))) {
		(void)snprintf(text, sizeof(text),
			       "the agent speaks ACP version %.40s, perch speaks 1",
			       version.len ? log_quote(version, quoted) : "(not said)");
		make_unusable(slot, text);
		return;
	}
	slot->state = SLOT_READY;
	report_initialized(slot, answer->result);
	if (respawn_recovered(&slot->respawn)) {
		begin(slot, &payload);
		end(slot, "circuit_recovered", &payload);
	}
	peer_ready(slot->options.peer, answer->result);
	slot->options.events->on_ready(slot->options.ctx);
}

static void initialize(struct slot *slot)
{
	acp_call(slot->acp, "initialize",
		 SLICE("{\"protocolVersion\":1,\"clientCapabilities\":{\"fs\":"
		       "{\"readTextFile\":false,\"writeTextFile\":false},"
		       "\"terminal\":false},\"clientInfo\":{\"name\":\"perch\","
		       "\"title\":\"Perch\",\"version\":\"" PERCH_VERSION "\"}}"),
		 NULL, (uint64_t)slot->options.start_ms, on_initialize_answer, slot);
}

/* --- The process's events --- */

/* All sessions are closed, or had their time. */
static void on_closed(void *ctx)
{
	struct slot *slot = ctx;

	timer_stop(slot->close_timer);
	child_stop(slot->child);
}

static void on_stdout(void *ctx, struct slice bytes)
{
	struct slot *slot = ctx;

	acp_receive(slot->acp, bytes);
	if (timer_armed(slot->close_timer) && slot->options.peer->closing == 0)
		on_closed(slot);
}

static void on_stdout_end(void *ctx)
{
	struct slot *slot = ctx;

	acp_receive_end(slot->acp);
	timer_start(slot->stdout_timer, STDOUT_GRACE_MS);
}

static void on_stdout_grace(void *ctx)
{
	struct slot *slot = ctx;

	if (slot->end != END_BY_ITSELF)
		return;
	log_warn("agent", "closed its stdout and did not exit: it is stopped");
	stop_process(slot, END_STDOUT_CLOSED);
}

static void emit_output(void *ctx, struct slice payload)
{
	struct slot *slot = ctx;
	struct feed_context context = own_context(slot);

	report_event(slot->options.sender, &context, "output", payload);
}

static void on_stderr(void *ctx, struct slice bytes)
{
	struct slot *slot = ctx;

	output_feed(&slot->output, bytes, loop_now_ms(), emit_output, slot);
}

static void on_pause(void *ctx, bool stopped)
{
	struct slot *slot = ctx;
	int64_t now_ms = loop_now_ms();
	struct buf payload;

	begin(slot, &payload);
	(void)json_write_member_string(&payload, SLICE("reason"), SLICE("stopped"));
	if (!stopped && slot->paused_ms)
		(void)json_write_member_int(&payload, SLICE("sinceMs"),
					    now_ms - slot->paused_ms);
	slot->paused_ms = stopped ? now_ms : 0;
	end(slot, stopped ? "agent_stalled" : "agent_resumed", &payload);
}

static bool spawn(struct slot *slot, struct err *err);

/* Waits and starts again, or opens the circuit. @opened: by how long it is. */
static void wait_to_respawn(struct slot *slot, int64_t delay_ms, bool open,
			    const char *error)
{
	struct buf payload;

	begin(slot, &payload);
	if (open) {
		(void)json_write_member_int(&payload, SLICE("cooldownMs"), delay_ms);
		(void)json_write_member_string(&payload, SLICE("error"), slice_of(error));
		end(slot, "circuit_open", &payload);
		log_error("agent", "%s: next try in %lld s", error,
			  (long long)(delay_ms / 1000));
	} else {
		(void)json_write_member_int(&payload, SLICE("attempt"),
					    slot->respawn.attempt);
		(void)json_write_member_int(&payload, SLICE("delayMs"), delay_ms);
		end(slot, "agent_respawning", &payload);
		log_warn("agent", "%s: starts again in %lld ms", error,
			 (long long)delay_ms);
	}
	slot->state = open ? SLOT_CIRCUIT_OPEN : SLOT_RESPAWNING;
	timer_start(slot->timer, (uint64_t)delay_ms);
}

static void on_respawn(void *ctx)
{
	struct slot *slot = ctx;
	struct err err;

	if (spawn(slot, &err))
		return;
	slot_start_later(slot, err.text);
}

void slot_start_later(struct slot *slot, const char *error)
{
	wait_to_respawn(slot, respawn_failed(&slot->respawn, loop_now_ms()), true, error);
	peer_down(slot->options.peer);
	slot->options.events->on_crash(slot->options.ctx, slot->options.peer->slot, true);
}

/* @early: it never answered initialize, which makes the best exit status a failure. */
static const char *reason_of(enum slot_end why, const struct child_exit *how, bool early)
{
	switch (why) {
	case END_BY_ITSELF:
		return how->by_signal || how->code != 0 || how->deaf || early ? "crash"
									      : "exit";
	case END_STDOUT_CLOSED:
		return "stdout_closed";
	case END_STOPPED:
	case END_REPLACED:
	case END_UNUSABLE:
	case END_NOT_INITIALIZED:
		break;
	}
	return "stopped";
}

static void write_how(struct buf *payload, const struct child_exit *how)
{
	const char *name = how->by_signal ? sigabbrev_np(how->code) : NULL;
	char text[32];

	if (!how->by_signal) {
		(void)json_write_member_int(payload, SLICE("code"), how->code);
		return;
	}
	(void)snprintf(text, sizeof(text), "SIG%s", name ? name : "RT");
	(void)json_write_member_string(payload, SLICE("signal"), slice_of(text));
}

static void report_exit(struct slot *slot, const struct child_exit *how, bool early,
			const char *text)
{
	struct buf payload, tail;

	output_flush(&slot->output, loop_now_ms(), emit_output, slot);
	begin(slot, &payload);
	write_how(&payload, how);
	(void)json_write_member_string(&payload, SLICE("reason"),
				       slice_of(reason_of(slot->end, how, early)));
	(void)json_write_member_string(&payload, SLICE("error"), slice_of(text));
	buf_init(&tail, 3 * OUTPUT_TAIL_BYTES);
	output_tail(&slot->output, &tail);
	if (tail.len)
		(void)json_write_member_string(&payload, SLICE("stderrTail"),
					       buf_slice(&tail));
	buf_finish(&tail);
	(void)json_write_member_int(&payload, SLICE("failedRequests"),
				    (int64_t)acp_pending(slot->acp));
	end(slot, "agent_exited", &payload);
}

/* What becomes of a slot whose process has ended. */
static void after_exit(struct slot *slot, enum slot_end why, const char *text)
{
	bool opened = false;
	int64_t delay_ms;

	if (slot->stopping) {
		slot->options.events->on_stopped(slot->options.ctx);
		return;
	}
	switch (why) {
	case END_UNUSABLE:
		slot->options.events->on_unusable(slot->options.ctx, slot->unusable);
		return;
	case END_REPLACED:
		slot->state = SLOT_RESPAWNING;
		timer_start(slot->timer, 0);
		return;
	case END_BY_ITSELF:
	case END_STOPPED:
	case END_STDOUT_CLOSED:
	case END_NOT_INITIALIZED:
		break;
	}
	delay_ms = respawn_crashed(&slot->respawn, loop_now_ms(), &opened);
	wait_to_respawn(slot, delay_ms, opened, text);
	if (opened)
		peer_down(slot->options.peer);
	slot->options.events->on_crash(slot->options.ctx, slot->options.peer->slot,
				       opened);
}

/* What happened, for people. */
static void describe(const struct child_exit *how, enum slot_end why, bool early,
		     char *out, size_t size)
{
	const char *name = how->by_signal ? sigabbrev_np(how->code) : NULL;
	char end[32];

	if (name)
		(void)snprintf(end, sizeof(end), "SIG%s", name);
	else
		(void)snprintf(end, sizeof(end), "%s %d",
			       how->by_signal ? "signal" : "status", how->code);
	if (how->deaf)
		(void)snprintf(out, size, "the agent did not read its stdin (%s)", end);
	else if (why == END_NOT_INITIALIZED)
		(void)snprintf(out, size,
			       "the agent did not answer initialize within "
			       "--start-timeout (%s)",
			       end);
	else
		(void)snprintf(
			out, size, "the agent %s (%s)%s",
			why == END_BY_ITSELF ? "exited" : "was stopped", end,
			early ? " before it answered initialize (does it speak ACP?)"
			      : "");
}

static void on_exit_of_child(void *ctx, const struct child_exit *how)
{
	struct slot *slot = ctx;
	enum slot_end why = slot->end;
	bool early = slot->state == SLOT_STARTING && why == END_BY_ITSELF;
	char text[128];

	timer_stop(slot->stdout_timer);
	timer_stop(slot->close_timer);
	describe(how, why, early, text, sizeof(text));
	log_info("agent", "%s", text);
	report_exit(slot, how, early, text);
	peer_gone(slot->options.peer, text);
	child_destroy(slot->child);
	slot->child = NULL;
	acp_destroy(slot->acp);
	slot->acp = NULL;
	output_finish(&slot->output);
	slot->state = SLOT_IDLE;
	after_exit(slot, why, text);
}

static const struct child_events child_events = {
	.on_stdout = on_stdout,
	.on_stdout_end = on_stdout_end,
	.on_stderr = on_stderr,
	.on_pause = on_pause,
	.on_exit = on_exit_of_child,
};

/* --- Life --- */

static bool spawn(struct slot *slot, struct err *err)
{
	struct child_options options = {
		.argv = slot->options.command,
		.cwd = slot->options.cwd,
		.environment = slot->options.environment,
		.events = &child_events,
		.ctx = slot,
	};

	slot->child = child_spawn(slot->options.children, &options, err);
	if (!slot->child)
		return false;
	slot->state = SLOT_STARTING;
	slot->end = END_BY_ITSELF;
	slot->spawned_ms = loop_now_ms();
	slot->paused_ms = 0;
	output_init(&slot->output);
	slot->acp =
		acp_create(slot->options.loop, &acp_events, slot, write_to_child, slot);
	peer_connected(slot->options.peer, slot->acp);
	initialize(slot);
	return true;
}

struct slot *slot_create(const struct slot_options *options)
{
	struct slot *slot = mem_alloc(sizeof(*slot));

	slot->options = *options;
	slot->timer = timer_create_on(options->loop, on_respawn, slot);
	slot->stdout_timer = timer_create_on(options->loop, on_stdout_grace, slot);
	slot->close_timer = timer_create_on(options->loop, on_closed, slot);
	return slot;
}

void slot_destroy(struct slot *slot)
{
	if (!slot)
		return;
	timer_destroy(slot->timer);
	timer_destroy(slot->stdout_timer);
	timer_destroy(slot->close_timer);
	if (slot->child) {
		child_destroy(slot->child);
		peer_gone(slot->options.peer, "the harness ended");
		acp_destroy(slot->acp);
		output_finish(&slot->output);
	}
	free(slot);
}

bool slot_start(struct slot *slot, struct err *err)
{
	return spawn(slot, err);
}

void slot_stop(struct slot *slot)
{
	if (slot->stopping)
		return;
	slot->stopping = true;
	timer_stop(slot->timer);
	if (slot->child)
		stop_process(slot, END_STOPPED);
	else
		slot->options.events->on_stopped(slot->options.ctx);
}

void slot_kill(struct slot *slot)
{
	slot_stop(slot);
	timer_stop(slot->close_timer);
	if (slot->child)
		child_kill(slot->child);
}

void slot_replace(struct slot *slot)
{
	if (slot->child)
		stop_process(slot, END_REPLACED);
}

const char *slot_state_name(const struct slot *slot)
{
	switch (slot->state) {
	case SLOT_IDLE:
		return "exited";
	case SLOT_STARTING:
		return "starting";
	case SLOT_READY:
		return "ready";
	case SLOT_RESPAWNING:
		return "respawning";
	case SLOT_CIRCUIT_OPEN:
		return "circuit_open";
	}
	return "";
}

pid_t slot_pid(const struct slot *slot)
{
	return slot->child ? child_pid(slot->child) : 0;
}
