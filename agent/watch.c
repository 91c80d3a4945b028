#include "agent/watch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/emit_server.h"
#include "agent/report.h"
#include "agent/started.h"
#include "agent/tap.h"
#include "agent/watch_control.h"
#include "wire/base/clock.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/keyfile.h"
#include "wire/host/paths.h"
#include "wire/nostr/json.h"

/* Losses of so long share one gap: a gap for each dropped block would make it worse. */
#define GAP_MS 500
/* Then harness_stopping has a tick to leave in, as in `perch agent`. */
#define LAST_UP_MS 1500
#define LAST_DOWN_MS 300

struct watch {
	const struct watch_options *options;
	struct loop *loop;
	struct setup setup;
	struct harness_channel slot_channel;
	struct sender *sender;
	struct watch_control *control;
	struct emit_server *emit;
	struct tap *tap;
	struct timer *gap_timer;
	int fd; /* the tap's; for words to the pump */
	void *source;
	bool ending, up, told_ready;
	uint64_t lost; /* lines, not said yet */
	int64_t lost_first_ms, lost_last_ms;
};

struct loop *watch_loop(struct watch *watch)
{
	return watch->loop;
}

struct sender *watch_sender(struct watch *watch)
{
	return watch->sender;
}

const struct setup *watch_setup(const struct watch *watch)
{
	return &watch->setup;
}

const struct uuid *watch_slot_channel(const struct watch *watch)
{
	return &watch->slot_channel.uuid;
}

const char *watch_sessions_path(struct watch *watch)
{
	return buf_text(&watch->setup.sessions_path);
}

bool watch_json_lines(const struct watch *watch)
{
	return watch->options->json_lines;
}

/* --- Gaps --- */

void watch_lost(struct watch *watch, uint64_t lines)
{
	if (lines == 0)
		return;
	watch->lost_last_ms = loop_unix_ms();
	if (watch->lost == 0)
		watch->lost_first_ms = watch->lost_last_ms;
	watch->lost += lines;
	if (!timer_armed(watch->gap_timer))
		timer_start(watch->gap_timer, GAP_MS);
}

static void say_gap(void *ctx)
{
	struct watch *watch = ctx;
	struct feed_context context = watch->options->mode->context(watch->source);
	char first[CLOCK_RFC3339_LEN + 1], last[CLOCK_RFC3339_LEN + 1];
	struct buf payload;

	timer_stop(watch->gap_timer);
	if (watch->lost == 0)
		return;
	log_warn("watch", "%" PRIu64 " lines were not seen: they came too fast",
		 watch->lost);
	clock_format(watch->lost_first_ms, first);
	clock_format(watch->lost_last_ms, last);
	report_begin(&payload);
	(void)json_write_member_int(&payload, SLICE("droppedEvents"),
				    (int64_t)watch->lost);
	(void)json_write_key(&payload, SLICE("reasonCounts"));
	/* All five of Buzz, as in every gap. */
	(void)buf_printf(&payload,
			 "{\"replayBufferOverflow\":0,\"publishQueueEviction\":0,"
			 "\"broadcastLag\":0,\"publishFailure\":0,"
			 "\"relayQueueEviction\":0,\"mirror_full\":%" PRIu64 "}",
			 watch->lost);
	(void)json_write_member_string(&payload, SLICE("firstObservedAt"),
				       slice_of(first));
	(void)json_write_member_string(&payload, SLICE("lastObservedAt"), slice_of(last));
	(void)json_write_member_string(&payload, SLICE("scope"), SLICE("channel"));
	watch->lost = 0;
	report_end(watch->sender, &context, "observer_telemetry_gap", &payload);
}

/* --- The end --- */

static void on_last_sent(void *ctx)
{
	struct watch *watch = ctx;

	loop_quit(watch->loop);
}

static void on_drained(void *ctx)
{
	struct watch *watch = ctx;
	struct sender_left left;

	/* Our own last word holds nobody up. */
	tap_tell(watch->fd, PUMP_DONE, SLICE_EMPTY);
	sender_leave(watch->sender, &left);
	log_info("watch", "ends: unsent=%" PRIu64 " kept=%" PRIu64, left.events,
		 left.journalled);
	report_stopping(watch->sender, "finished", &left);
	sender_stop(watch->sender, watch->up ? LAST_UP_MS : LAST_DOWN_MS, on_last_sent,
		    watch);
}

static void end(struct watch *watch, int64_t wait_status)
{
	const struct watch_mode *mode = watch->options->mode;

	if (watch->ending)
		return;
	watch->ending = true;
	mode->on_end(watch->source, wait_status);
	say_gap(watch);
	sender_stop(watch->sender, watch->up ? mode->up_grace_ms : mode->down_grace_ms,
		    on_drained, watch);
}

/* --- What comes in --- */

static void on_bytes(void *ctx, enum pump_kind kind, struct slice bytes, bool lost,
		     uint64_t lost_lines, bool cut)
{
	struct watch *watch = ctx;

	watch_lost(watch, lost_lines);
	watch->options->mode->on_bytes(watch->source, kind, bytes, lost, cut);
}

static void on_started(void *ctx, int64_t pid)
{
	struct watch *watch = ctx;

	watch->options->mode->on_started(watch->source, pid);
}

static void on_end(void *ctx, int64_t wait_status)
{
	end(ctx, wait_status);
}

static const struct tap_events tap_events = {
	.on_bytes = on_bytes,
	.on_started = on_started,
	.on_end = on_end,
};

static void on_emitted(void *ctx, struct slice kind, struct slice payload)
{
	struct watch *watch = ctx;
	struct feed_context context = watch->options->mode->context(watch->source);

	(void)feed_emit(sender_feed(watch->sender), sender_time(watch->sender), &context,
			kind, SLICE_EMPTY, payload);
	sender_kick(watch->sender);
}

static void on_signal(void *ctx, int number)
{
	(void)number;
	end(ctx, -1);
}

/* --- The sender's callbacks --- */

static void write_state(void *ctx, struct buf *out)
{
	struct watch *watch = ctx;

	(void)json_write_member_string(out, SLICE("control"), SLICE("none"));
	(void)json_write_member_string(out, SLICE("permissions"), SLICE("ask"));
	watch->options->mode->write_state(watch->source, out);
}

static void on_control(void *ctx, const uint8_t event_id[32], int64_t created_at,
		       struct slice plaintext)
{
	struct watch *watch = ctx;

	watch_control_take(watch->control, event_id, created_at, plaintext);
}

static struct slice on_body(void *ctx, uint64_t seq, struct feed_context *context)
{
	struct watch *watch = ctx;

	return watch->options->mode->body(watch->source, seq, context);
}

static void tell_ready(struct watch *watch)
{
	if (watch->told_ready || watch->options->ready_fd < 0)
		return;
	watch->told_ready = true;
	(void)!write(watch->options->ready_fd, "ready\n", 6);
	(void)close(watch->options->ready_fd);
}

static void on_link(void *ctx, enum link_state state, const char *reason)
{
	struct watch *watch = ctx;

	watch->up = state == LINK_READY;
	switch (state) {
	case LINK_READY:
		log_info("relay", "connected to %s", watch->setup.relay);
		tell_ready(watch);
		break;
	case LINK_DOWN:
		log_warn("relay", "not connected to %s: %s", watch->setup.relay, reason);
		break;
	case LINK_CONNECTING:
		break;
	}
	tap_tell(watch->fd, watch->up ? PUMP_UP : PUMP_DOWN, SLICE_EMPTY);
}

/* --- Life --- */

/* Descriptors of the editor's would be held open as long as we drain. The pump's socket
 * becomes 3, the one to say "ready" on 4. */
static void keep_own_files(struct watch_options *options)
{
	const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int pump_fd, ready_fd = -1;

	for (int fd = 0; null >= 0 && fd < 3; fd++)
		(void)dup2(null, fd);
	/* Above both places first: they may be taken by each other. */
	pump_fd = fcntl(options->pump_fd, F_DUPFD_CLOEXEC, 5);
	if (options->ready_fd >= 0)
		ready_fd = fcntl(options->ready_fd, F_DUPFD_CLOEXEC, 5);
	options->pump_fd = dup3(pump_fd, 3, O_CLOEXEC);
	if (ready_fd >= 0)
		options->ready_fd = dup3(ready_fd, 4, O_CLOEXEC);
	(void)close_range(ready_fd >= 0 ? 5 : 4, UINT_MAX, 0);
}

static void open_log(const struct watch *watch)
{
	char file[KEY_NAME_MAX + 16];
	struct buf path;
	struct err err;
	int fd;

	buf_init(&path, PATH_MAX);
	(void)snprintf(file, sizeof(file), "run/%s.log", watch->setup.name);
	if (paths_data(slice_of(file), &path, &err)) {
		fd = open(buf_text(&path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
			  0600);
		if (fd >= 0 && fd != STDERR_FILENO) {
			(void)dup2(fd, STDERR_FILENO);
			(void)close(fd);
		}
	}
	buf_finish(&path);
}

static bool identify(struct watch *watch, struct err *err)
{
	const struct watch_options *options = watch->options;
	const struct setup_options setup = {
		.name = options->name,
		.cwd = ".",
		.command = options->command[0],
		.channels = options->channels,
		.relay = options->relay,
		.invite = options->invite,
	};

	if (!setup_names(&watch->setup, &setup, watch->loop->crypto, err) ||
	    !setup_identity(&watch->setup, SETUP_NEXT_NAME, watch->loop->crypto, err))
		return false;
	uuid_of_slot(watch->loop->crypto, keypair_public(watch->setup.keypair), 0,
		     &watch->slot_channel.uuid);
	watch->slot_channel.name = watch->setup.channels[0].name;
	return true;
}

static bool create_sender(struct watch *watch, struct err *err)
{
	const struct setup *setup = &watch->setup;
	struct sender_options options = {
		.relay_url = watch->setup.relay,
		.keypair = setup->keypair,
		.auth_tag = buf_slice(&setup->auth_tag),
		.tick_ms = watch->options->tick_ms,
		.epoch_path = buf_text(&watch->setup.epoch_path),
		.journal_path = buf_text(&watch->setup.journal_path),
		.journal_bytes = AGENT_JOURNAL_MAX,
		.journal_s = AGENT_JOURNAL_DAYS * INT64_C(86400),
		.default_context = {.slot = -1,
				    .channel = watch->options->mode->per_session
						       ? &watch->slot_channel.uuid
						       : &setup->channels[0].uuid},
		.write_state = write_state,
		.on_control = on_control,
		.on_link = on_link,
		.ctx = watch,
	};

	memcpy(options.owner, setup->owner, sizeof(options.owner));
	watch->sender = sender_create(watch->loop, &options, err);
	return watch->sender != NULL;
}

/* Without it the rest goes on. */
static void create_emit(struct watch *watch)
{
	struct buf path, name;
	struct err err;

	buf_init(&path, PATH_MAX);
	buf_init(&name, PATH_MAX);
	if (emit_path_of_pid(watch->options->pump_pid, &path, &err) &&
	    emit_path_of_name(slice_of(watch->setup.name), &name, &err))
		watch->emit =
			emit_server_create(watch->loop, buf_text(&path), buf_text(&name),
					   on_emitted, watch, &err);
	if (!watch->emit)
		log_warn("emit", "takes no events: %s", err.text);
	buf_finish(&path);
	buf_finish(&name);
}

static void say_started(struct watch *watch)
{
	const struct watch_mode *mode = watch->options->mode;
	const struct started started = {
		.name = watch->setup.name,
		.command = watch->options->command,
		.mode = mode->name,
		.cwd = watch->setup.cwd,
		.slots = 1,
		.control = "none",
		.permissions = "ask",
		.channels =
			mode->per_session ? &watch->slot_channel : watch->setup.channels,
		.channel_count = mode->per_session ? 1 : watch->setup.channel_count,
	};

	started_report(watch->sender, &started);
}

static bool start(struct watch *watch, struct err *err)
{
	if (!identify(watch, err))
		return false;
	open_log(watch);
	watch->gap_timer = timer_create_on(watch->loop, say_gap, watch);
	if (!create_sender(watch, err))
		return false;
	watch->control = watch_control_create(watch->sender, on_body, watch);
	watch->source = watch->options->mode->create(watch);
	say_started(watch);
	create_emit(watch);
	watch->tap = tap_create(watch->loop, watch->fd, &tap_events, watch, err);
	if (!watch->tap)
		return false;
	loop_on_signal(watch->loop, on_signal, watch);
	return true;
}

static void finish(struct watch *watch)
{
	tap_destroy(watch->tap);
	emit_server_destroy(watch->emit);
	if (watch->source)
		watch->options->mode->destroy(watch->source);
	watch_control_destroy(watch->control);
	timer_destroy(watch->gap_timer);
	sender_destroy(watch->sender);
	if (watch->loop)
		loop_destroy(watch->loop);
	setup_finish(&watch->setup);
}

void watch_run(const struct watch_options *given)
{
	struct watch_options options = *given;
	struct watch watch = {.options = &options};
	char text[512];
	struct err err;

	(void)setsid(); /* what is meant for the command is not for us */
	keep_own_files(&options);
	keyfile_guard_process();
	log_set_level(options.log_level);
	watch.fd = options.pump_fd;
	setup_init(&watch.setup);
	watch.loop = loop_create(&err);
	if (watch.loop && start(&watch, &err)) {
		loop_run(watch.loop);
	} else {
		(void)snprintf(text, sizeof(text), "%s: nobody watches this: %s\n",
			       options.command_name, err.text);
		tap_tell(watch.fd, PUMP_SAY, slice_of(text));
	}
	finish(&watch);
}
