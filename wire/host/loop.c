#include "wire/host/loop.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <libwebsockets.h>
#include <sodium.h>
#include <uv.h>

#include "wire/base/mem.h"
#include "wire/host/log.h"

/* Open files we ask for: 10,000 connections and what else a process holds. Not all that
 * the hard limit allows, which may be a million: lws keeps a table of 16 bytes for each.
 */
#define FILES_MAX 65536

/* Bytes that one read takes from a socket. Measured: facts on lws say that 128 KiB here
 * and 64 KiB of rx_buffer_size more than double the throughput of 88 kB messages. */
#define SERVICE_BUFFER_BYTES (128 * 1024)

/* Bytes of HTTP headers that a request may have (design §11). Browsers send to 127.0.0.1
 * the cookies of every server on it, which lws's default of 4 KiB does not hold. */
#define HEADER_BYTES (16 * 1024)

static const lws_retry_bo_t idle_policy = {
	.secs_since_valid_ping = LOOP_PING_S,
	.secs_since_valid_hangup = LOOP_HANGUP_S,
};

struct loop_state {
	uv_loop_t uv;
	uv_signal_t terminate, interrupt, hangup;
	bool signals_open, hangup_open;
	unsigned signals_seen;
	void (*on_signal)(void *ctx, int signal);
	void (*on_second)(void *ctx, int signal); /* NULL: the second one quits */
	void *ctx;
	void (*on_hangup)(void *ctx); /* NULL: there is nothing to do */
	void *hangup_ctx;
	bool ends_with_terminal, hung_up;
	uv_prepare_t prepare;
	bool prepare_open;
	void (*before_wait)(void *ctx);
	void *before_wait_ctx;
	bool ending; /* being destroyed */
};

/* What lws calls an error is mostly a peer's doing; whoever is concerned sees it as a
 * closed connection and says so. */
static void on_lws_log(int level, const char *line)
{
	struct slice text = slice_trim(slice_of(line));
	char quoted[LOG_QUOTE_BYTES];

	(void)level;
	if (log_enabled(LOG_DEBUG))
		log_debug("lws", "%s", log_quote(text, quoted));
}

static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= FILES_MAX)
		return;
	limit.rlim_cur = limit.rlim_max < FILES_MAX ? limit.rlim_max : FILES_MAX;
	/* With fewer files we refuse connections earlier; nothing else changes. */
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

static void on_uv_signal(uv_signal_t *handle, int number)
{
	struct loop *loop = handle->data;
	struct loop_state *state = loop->state;

	state->signals_seen++;
	if (state->on_signal != NULL && state->signals_seen == 1)
		state->on_signal(state->ctx, number);
	else if (state->on_second != NULL && state->signals_seen == 2)
		state->on_second(state->ctx, number);
	else
		loop_quit(loop);
}

static void on_uv_prepare(uv_prepare_t *handle)
{
	struct loop_state *state = handle->data;

	state->before_wait(state->before_wait_ctx);
}

static bool watch_signals(struct loop *loop, struct err *err)
{
	struct loop_state *state = loop->state;
	int status;

	state->terminate.data = loop;
	state->interrupt.data = loop;
	status = uv_signal_init(loop->uv, &state->terminate);
	if (status == 0)
		status = uv_signal_init(loop->uv, &state->interrupt);
	if (status != 0)
		return err_set(err, ERR_SYSTEM, "cannot watch signals: %s",
			       uv_strerror(status));
	state->signals_open = true;
	status = uv_signal_start(&state->terminate, on_uv_signal, SIGTERM);
	if (status == 0)
		status = uv_signal_start(&state->interrupt, on_uv_signal, SIGINT);
	if (status != 0)
		return err_set(err, ERR_SYSTEM, "cannot watch signals: %s",
			       uv_strerror(status));
	return true;
}

static bool start_lws(struct loop *loop, struct err *err)
{
	void *foreign[1] = {loop->uv};
	struct lws_context_creation_info info = {
		.options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_EXPLICIT_VHOSTS |
			   LWS_SERVER_OPTION_UV_NO_SIGSEGV_SIGFPE_SPIN |
			   LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT,
		.foreign_loops = foreign,
		.port = CONTEXT_PORT_NO_LISTEN,
		.pcontext = &loop->lws,
		.pt_serv_buf_size = SERVICE_BUFFER_BYTES,
		.max_http_header_data2 = HEADER_BYTES,
		.retry_and_idle_policy = &idle_policy,
	};

	lws_set_log_level(LLL_ERR | LLL_WARN, on_lws_log);
	loop->lws = lws_create_context(&info);
	if (loop->lws == NULL)
		return err_set(err, ERR_SYSTEM,
			       "libwebsockets did not start on libuv: install the Debian "
			       "package libwebsockets-evlib-uv");
	return true;
}

struct loop *loop_create(struct err *err)
{
	struct loop *loop;
	int status;

	if (sodium_init() < 0) {
		(void)err_set(err, ERR_SYSTEM, "libsodium did not start");
		return NULL;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	/* A file at its limit (ulimit -f) is a failed write, like a full disk. */
	(void)signal(SIGXFSZ, SIG_IGN);
	raise_file_limit();
	loop = mem_alloc(sizeof(*loop));
	loop->state = mem_alloc(sizeof(*loop->state));
	status = uv_loop_init(&loop->state->uv);
	if (status != 0) {
		(void)err_set(err, ERR_SYSTEM, "cannot start an event loop: %s",
			      uv_strerror(status));
		loop_destroy(loop);
		return NULL;
	}
	loop->uv = &loop->state->uv;
	loop->crypto = loop_new_crypto(err);
	if (!loop->crypto || !watch_signals(loop, err) || !start_lws(loop, err)) {
		loop_destroy(loop);
		return NULL;
	}
	return loop;
}

/* lws frees nothing before its second destroy, which must come when libuv has closed what
 * the first one gave up; only that one clears loop->lws. */
static void stop_lws(struct loop *loop)
{
	for (int i = 0; i < 2 && loop->lws != NULL; i++) {
		lws_context_destroy(loop->lws);
		(void)uv_run(loop->uv, UV_RUN_DEFAULT);
	}
	assert(loop->lws == NULL);
}

void loop_destroy(struct loop *loop)
{
	int status;

	if (loop == NULL)
		return;
	if (loop->uv != NULL) {
		loop->state->ending = true;
		if (loop->state->signals_open) {
			uv_close((uv_handle_t *)&loop->state->terminate, NULL);
			uv_close((uv_handle_t *)&loop->state->interrupt, NULL);
		}
		if (loop->state->prepare_open)
			uv_close((uv_handle_t *)&loop->state->prepare, NULL);
		if (loop->state->hangup_open)
			uv_close((uv_handle_t *)&loop->state->hangup, NULL);
		/* A loop_quit() that no loop_run() saw would end the runs below at once.
		 */
		(void)uv_run(loop->uv, UV_RUN_NOWAIT);
		stop_lws(loop);
		(void)uv_run(loop->uv, UV_RUN_DEFAULT);
		status = uv_loop_close(loop->uv);
		assert(status == 0); /* else something on the loop outlives it */
	}
	crypto_destroy(loop->crypto);
	free(loop->state);
	free(loop);
}

void loop_run(struct loop *loop)
{
	(void)uv_run(loop->uv, UV_RUN_DEFAULT);
}

void loop_quit(struct loop *loop)
{
	/* While it is destroyed callbacks may still ask: the last runs must end by
	 * themselves. */
	if (loop->state->ending)
		return;
	uv_stop(loop->uv);
}

void loop_on_signal(struct loop *loop, void (*on_signal)(void *ctx, int signal),
		    void *ctx)
{
	loop->state->on_signal = on_signal;
	loop->state->ctx = ctx;
}

void loop_on_second_signal(struct loop *loop, void (*on_second)(void *ctx, int signal))
{
	loop->state->on_second = on_second;
}

void loop_before_wait(struct loop *loop, void (*before_wait)(void *ctx), void *ctx)
{
	struct loop_state *state = loop->state;

	assert(!state->prepare_open);
	state->before_wait = before_wait;
	state->before_wait_ctx = ctx;
	state->prepare.data = state;
	state->prepare_open = true;
	/* libuv: neither can fail. */
	(void)uv_prepare_init(loop->uv, &state->prepare);
	(void)uv_prepare_start(&state->prepare, on_uv_prepare);
	uv_unref((uv_handle_t *)&state->prepare);
}

/* Ours, of our session. */
static bool has_terminal(void)
{
	const int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0)
		(void)close(fd);
	return fd >= 0;
}

static bool is_ignored(int number)
{
	struct sigaction action;

	return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static void on_uv_hangup(uv_signal_t *handle, int number)
{
	struct loop *loop = handle->data;
	struct loop_state *state = loop->state;

	if (state->ends_with_terminal && !has_terminal()) {
		/* The kernel and the shell may both tell. */
		if (!state->hung_up)
			on_uv_signal(handle, number);
		state->hung_up = true;
	} else if (state->on_hangup) {
		state->on_hangup(state->hangup_ctx);
	} else {
		log_info("signal", "SIGHUP: there is nothing to read again, going on");
	}
}

bool loop_on_hangup(struct loop *loop, void (*on_hangup)(void *ctx), void *ctx,
		    struct err *err)
{
	struct loop_state *state = loop->state;
	int status = 0;

	/* Opened once, and judged before it is: of several that ask the last is told. */
	if (!state->hangup_open) {
		state->ends_with_terminal = !is_ignored(SIGHUP) && has_terminal();
		status = uv_signal_init(loop->uv, &state->hangup);
	}
	state->on_hangup = on_hangup;
	state->hangup_ctx = ctx;
	state->hangup.data = loop;
	if (status == 0) {
		state->hangup_open = true;
		status = uv_signal_start(&state->hangup, on_uv_hangup, SIGHUP);
	}
	if (status != 0)
		return err_set(err, ERR_SYSTEM, "cannot watch signals: %s",
			       uv_strerror(status));
	return true;
}

static int64_t clock_ms(clockid_t clock)
{
	struct timespec now;
	int status = clock_gettime(clock, &now);

	assert(status == 0);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t loop_now_ms(void)
{
	return clock_ms(CLOCK_BOOTTIME);
}

int64_t loop_now_ns(void)
{
	struct timespec now;
	int status = clock_gettime(CLOCK_MONOTONIC, &now);

	assert(status == 0);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t loop_unix_ms(void)
{
	return clock_ms(CLOCK_REALTIME);
}

void loop_random(void *out, size_t len)
{
	randombytes_buf(out, len);
}

struct crypto *loop_new_crypto(struct err *err)
{
	uint8_t seed[32];
	struct crypto *crypto;

	loop_random(seed, sizeof(seed));
	crypto = crypto_create(seed, err);
	sodium_memzero(seed, sizeof(seed));
	return crypto;
}

/* A timer comes so late only if this process stood still, or was busy. */
#define LATE_MS 10
#define NEVER_LATE UINT64_MAX

struct timer {
	uv_timer_t uv;
	void (*on_timer)(void *ctx);
	void *ctx;
	uint64_t due_ms; /* by uv_now() */
};

static void on_timer_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void on_uv_timer(uv_timer_t *handle)
{
	struct timer *timer = handle->data;
	const uint64_t now_ms = uv_now(handle->loop);

	/* libuv has its timers before what can be read: what a deadline waits for may lie
	 * there since long before it. */
	if (now_ms > timer->due_ms && now_ms - timer->due_ms > LATE_MS) {
		timer->due_ms = NEVER_LATE;
		(void)uv_timer_start(handle, on_uv_timer, 1, 0);
		return;
	}
	timer->on_timer(timer->ctx);
}

struct timer *timer_create_on(struct loop *loop, void (*on_timer)(void *ctx), void *ctx)
{
	struct timer *timer = mem_alloc(sizeof(*timer));
	int status = uv_timer_init(loop->uv, &timer->uv);

	assert(status == 0); /* libuv: it cannot fail */
	timer->uv.data = timer;
	timer->on_timer = on_timer;
	timer->ctx = ctx;
	return timer;
}

void timer_destroy(struct timer *timer)
{
	if (timer != NULL)
		uv_close((uv_handle_t *)&timer->uv, on_timer_closed);
}

void timer_start(struct timer *timer, uint64_t delay_ms)
{
	/* libuv counts from when this turn of the loop began, in whole milliseconds:
	 * without both corrections a timer could fire early. */
	uv_update_time(timer->uv.loop);
	timer->due_ms =
		delay_ms == 0 ? NEVER_LATE : uv_now(timer->uv.loop) + delay_ms + 1;
	(void)uv_timer_start(&timer->uv, on_uv_timer, delay_ms == 0 ? 0 : delay_ms + 1,
			     0);
}

void timer_stop(struct timer *timer)
{
	(void)uv_timer_stop(&timer->uv);
}

bool timer_armed(const struct timer *timer)
{
	return uv_is_active((const uv_handle_t *)&timer->uv) != 0;
}
