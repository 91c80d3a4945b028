#include "agent/run.h"

#include <stdlib.h>
#include <sys/wait.h>

#include "agent/json_lines.h"
#include "agent/output.h"
#include "agent/reader.h"
#include "agent/report.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

/* A count of suppressed lines is said after so long without a line that would say it. */
#define SUPPRESSED_MS 1000

/* One output of the command. */
struct flow {
	struct run *run;
	struct output output;
	struct timer *timer;
	struct reader reader; /* --json-lines, of stdout only */
	bool by_line;
};

struct run {
	struct watch *watch;
	struct sender *sender;
	struct flow out, err;
	struct emit_spans spans;
	int64_t pid;
	bool exited;
};

static struct feed_context context_of(void *source)
{
	const struct run *run = source;

	return (struct feed_context){
		.slot = 0, .channel = &watch_setup(run->watch)->channels[0].uuid};
}

static void emit(void *ctx, struct slice payload)
{
	struct flow *flow = ctx;
	struct feed_context context = context_of(flow->run);

	report_event(flow->run->sender, &context, "output", payload);
}

static void arm(struct flow *flow)
{
	if (output_is_waiting(&flow->output))
		timer_start(flow->timer,
			    flow->output.line.len ? OUTPUT_PARTIAL_MS : SUPPRESSED_MS);
	else
		timer_stop(flow->timer);
}

static void on_timer(void *ctx)
{
	struct flow *flow = ctx;

	output_pause(&flow->output, loop_now_ms(), emit, flow);
}

static void feed_text(struct flow *flow, struct slice bytes)
{
	output_feed(&flow->output, bytes, loop_now_ms(), emit, flow);
	arm(flow);
}

static void on_line(void *ctx, struct slice line, size_t bytes)
{
	struct flow *flow = ctx;
	struct run *run = flow->run;
	struct feed_context context = context_of(run);
	struct emit_event event;

	(void)bytes;
	if (!json_line_read(&run->spans, line, &event)) {
		feed_text(flow, line);
		feed_text(flow, SLICE("\n"));
	} else if (output_spend(&flow->output, line.len, loop_now_ms())) {
		(void)feed_emit(sender_feed(run->sender), sender_time(run->sender),
				&context, event.kind, SLICE_EMPTY,
				buf_slice(&event.payload));
		sender_kick(run->sender);
	} else {
		arm(flow);
	}
	emit_event_finish(&event);
}

static void flow_feed(struct flow *flow, struct slice bytes, bool cut)
{
	if (cut && flow->by_line) {
		/* The rest of a line that began before is no JSON. */
		reader_end(&flow->reader, on_line, flow);
	} else if (cut) {
		output_flush(&flow->output, loop_now_ms(), emit, flow);
	}
	if (flow->by_line)
		reader_feed(&flow->reader, bytes, on_line, flow);
	else
		feed_text(flow, bytes);
}

static void on_bytes(void *source, enum pump_kind kind, struct slice bytes, bool lost,
		     bool cut)
{
	struct run *run = source;

	(void)lost;
	switch (kind) {
	case PUMP_STDOUT:
		flow_feed(&run->out, bytes, cut);
		return;
	case PUMP_STDERR:
		flow_feed(&run->err, bytes, cut);
		return;
	case PUMP_STDIN: /* what is typed is nobody's business */
	case PUMP_STARTED:
	case PUMP_EXITED:
		return;
	}
}

static void on_started(void *source, int64_t pid)
{
	struct run *run = source;

	run->pid = pid;
}

static void flow_end(struct flow *flow)
{
	if (flow->by_line)
		reader_end(&flow->reader, on_line, flow);
	timer_stop(flow->timer);
	output_flush(&flow->output, loop_now_ms(), emit, flow);
}

static void on_end(void *source, int64_t wait_status)
{
	struct run *run = source;
	struct feed_context context = context_of(run);
	const int status = (int)wait_status;
	struct buf payload, tail;

	flow_end(&run->out);
	flow_end(&run->err);
	run->exited = true;
	report_begin(&payload);
	(void)json_write_member_int(&payload, SLICE("slot"), 0);
	if (wait_status >= 0 && WIFSIGNALED(status))
		(void)json_write_member_int(&payload, SLICE("signal"), WTERMSIG(status));
	else if (wait_status >= 0)
		(void)json_write_member_int(&payload, SLICE("code"), WEXITSTATUS(status));
	(void)json_write_member_bool(&payload, SLICE("command"), true);
	(void)json_write_member_string(&payload, SLICE("reason"),
				       wait_status > 0 ? SLICE("crash") : SLICE("exit"));
	buf_init(&tail, (size_t)3 * OUTPUT_TAIL_BYTES);
	output_tail(&run->err.output, &tail);
	if (tail.len)
		(void)json_write_member_string(&payload, SLICE("stderrTail"),
					       buf_slice(&tail));
	buf_finish(&tail);
	report_end(run->sender, &context, "agent_exited", &payload);
}

static void write_state(void *source, struct buf *out)
{
	const struct run *run = source;
	const struct setup *setup = watch_setup(run->watch);

	(void)json_write_key(out, SLICE("channels"));
	(void)buf_lit(out, "[{");
	(void)json_write_member_string(out, SLICE("id"),
				       uuid_slice(&setup->channels[0].uuid));
	report_member(out, SLICE("name"), slice_of(setup->channels[0].name));
	(void)buf_lit(out, "}]");
	(void)json_write_key(out, SLICE("slots"));
	(void)buf_lit(out, "[{");
	(void)json_write_member_int(out, SLICE("slot"), 0);
	(void)json_write_member_string(out, SLICE("state"),
				       run->exited ? SLICE("exited") : SLICE("ready"));
	if (run->pid > 0 && !run->exited)
		(void)json_write_member_int(out, SLICE("pid"), run->pid);
	(void)buf_lit(out, "}]");
	(void)json_write_member_raw(out, SLICE("sessions"), SLICE("[]"));
	(void)json_write_member_raw(out, SLICE("turns"), SLICE("[]"));
	(void)json_write_member_raw(out, SLICE("pending"), SLICE("[]"));
}

static struct slice body(void *source, uint64_t seq, struct feed_context *context)
{
	(void)source;
	(void)seq;
	(void)context;
	return SLICE_EMPTY;
}

static void flow_init(struct flow *flow, struct run *run, const char *stream)
{
	flow->run = run;
	output_init_stream(&flow->output, stream, RUN_PER_S, RUN_BURST);
	flow->timer = timer_create_on(watch_loop(run->watch), on_timer, flow);
	reader_init(&flow->reader, EMIT_MESSAGE_MAX);
}

static void flow_finish(struct flow *flow)
{
	timer_destroy(flow->timer);
	output_finish(&flow->output);
	reader_finish(&flow->reader);
}

static void *create(struct watch *watch)
{
	struct run *run = mem_alloc(sizeof(*run));

	run->watch = watch;
	run->sender = watch_sender(watch);
	flow_init(&run->out, run, "stdout");
	flow_init(&run->err, run, "stderr");
	run->out.by_line = watch_json_lines(watch);
	emit_spans_init(&run->spans);
	return run;
}

static void destroy(void *source)
{
	struct run *run = source;

	flow_finish(&run->out);
	flow_finish(&run->err);
	emit_spans_finish(&run->spans);
	free(run);
}

const struct watch_mode run_mode = {
	.name = "run",
	.up_grace_ms = RUN_DRAIN_UP_MS - 1500, /* harness_stopping has the rest */
	.down_grace_ms = RUN_DRAIN_DOWN_MS - 500,
	.create = create,
	.destroy = destroy,
	.on_bytes = on_bytes,
	.on_started = on_started,
	.on_end = on_end,
	.context = context_of,
	.write_state = write_state,
	.body = body,
};
