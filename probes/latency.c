/* From an agent's stdout to the page's stream, through real processes: `perch up` with
 * this program as its ACP agent. Two measurements:
 *
 *   lone   one event after a silence longer than a tick: milliseconds from the agent's
 * write to the stream message that carries it. Events that a frame of something else
 * (turn liveness, feed_state) preceded by less than a tick were not alone: "not_alone"
 *   pace   under a flood that never ends: milliseconds between two frames, taken where
 * the harness writes them (the sender's debug line)
 *
 * PERCH_PROBE_LONE (20) lone events, PERCH_PROBE_FLOOD_S (60) seconds of flood. Fails
 * unless every event arrived and frames kept flowing. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probes/probe.h"
#include "wire/base/slice.h"

#define LONE_MAX 1000
#define FRAMES_MAX 4000
#define TICK_US 1000000
/* Longer than a tick and no multiple of one, so that phases differ. */
#define SILENCE_MS 2170

static int64_t clock_us(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* --- The agent half: plays ACP on its own stdin and stdout. --- */

static void pause_ms(long ms)
{
	struct timespec length = {ms / 1000, ms % 1000 * 1000000};

	(void)nanosleep(&length, NULL);
}

static void update(const char *session, const char *kind, long number)
{
	(void)printf(
		"{\"jsonrpc\":\"2.0\",\"method\":\"session/"
		"update\",\"params\":{\"sessionId\":"
		"\"%s\",\"update\":{\"sessionUpdate\":\"%s\",\"toolCallId\":\"t%ld\","
		"\"title\":\"x\",\"status\":\"completed\",\"content\":{\"type\":\"text\","
		"\"text\":\"<%ld@%" PRId64 ">\"}}}}\n",
		session, kind, number % 7, number, clock_us());
	(void)fflush(stdout);
}

static void play(const char *line, long lone, long flood_s)
{
	int64_t flood_until;

	if (strstr(line, "flood")) {
		flood_until = clock_us() + flood_s * 1000000;
		for (long i = 0; clock_us() < flood_until; i++) {
			update("s", "tool_call_update", i);
			pause_ms(2);
		}
		return;
	}
	for (long i = 0; i < lone; i++) {
		pause_ms(SILENCE_MS);
		update("s", "agent_message_chunk", i);
	}
	pause_ms(SILENCE_MS);
}

static int agent(long lone, long flood_s)
{
	static char line[1 << 16];

	while (fgets(line, sizeof(line), stdin)) {
		const char *id = strstr(line, "\"id\":");
		long number = id ? strtol(id + 5, NULL, 10) : -1;

		if (strstr(line, "\"initialize\""))
			(void)printf("{\"jsonrpc\":\"2.0\",\"id\":%ld,\"result\":"
				     "{\"protocolVersion\":1}}\n",
				     number);
		else if (strstr(line, "\"session/new\""))
			(void)printf("{\"jsonrpc\":\"2.0\",\"id\":%ld,\"result\":"
				     "{\"sessionId\":\"s\"}}\n",
				     number);
		else if (strstr(line, "\"session/prompt\"")) {
			play(line, lone, flood_s);
			(void)printf("{\"jsonrpc\":\"2.0\",\"id\":%ld,\"result\":"
				     "{\"stopReason\":\"end_turn\"}}\n",
				     number);
		}
		(void)fflush(stdout);
	}
	return 0;
}

/* --- The observing half. --- */

struct probe {
	long lone, flood_s; /* what is asked for */
	pid_t up;
	int out, err, stream;
	char home[64];
	char host[64], token[256];
	int port;
	char lines[1 << 16]; /* unread part of up's stderr */
	size_t line_bytes;
	char tail[1 << 12]; /* end of the stream read so far: a marker may straddle two
			       reads */
	size_t tail_bytes;
	struct lone {
		int64_t written_us, seen_us; /* 0: not seen yet */
	} events[LONE_MAX];
	long lone_seen;
	struct {
		int64_t us;
		bool live;
	} frames[FRAMES_MAX];
	long frame_count;
	bool pacing;
};

static void start(struct probe *probe, const char *self)
{
	char perch[4096], lone[24], flood_s[24];
	int out[2], err[2];
	char *slash;

	(void)snprintf(lone, sizeof(lone), "%ld", probe->lone);
	(void)snprintf(flood_s, sizeof(flood_s), "%ld", probe->flood_s);

	(void)snprintf(probe->home, sizeof(probe->home), "/tmp/perch-latency-XXXXXX");
	if (!mkdtemp(probe->home) || pipe2(out, O_CLOEXEC) < 0 ||
	    pipe2(err, O_CLOEXEC) < 0)
		probe_fail("cannot make a folder and pipes");
	/* build/probes/latency lies beside build/perch. */
	(void)snprintf(perch, sizeof(perch), "%s", self);
	slash = strrchr(perch, '/');
	(void)snprintf(slash, (size_t)(perch + sizeof(perch) - slash), "/../perch");
	probe->up = fork();
	if (probe->up == 0) {
		/* However this probe ends, nothing of it stays. */
		(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
		(void)dup2(out[1], STDOUT_FILENO);
		(void)dup2(err[1], STDERR_FILENO);
		(void)setenv("PERCH_HOME", probe->home, 1);
		(void)execl(perch, "perch", "up", "--listen", "127.0.0.1:0",
			    "--relay-listen", "127.0.0.1:0", "--log-level", "debug",
			    "--prompt", "lone", "--prompt", "flood", "--", self, "agent",
			    lone, flood_s, (char *)NULL);
		_exit(127);
	}
	(void)close(out[1]);
	(void)close(err[1]);
	probe->out = out[0];
	probe->err = err[0];
}

/* `perch: ready http://HOST:PORT/#TOKEN` */
static bool parse_ready(struct probe *probe, const char *text)
{
	static const char start[] = "perch: ready http://";
	const char *at = strstr(text, start);
	struct slice rest, host, port, token;
	uint64_t number;

	if (!at || !strchr(at, '\n'))
		return false;
	rest = slice_of(at + sizeof(start) - 1);
	if (!slice_take_until(&rest, ':', &host) || host.len >= sizeof(probe->host) ||
	    !slice_take_until(&rest, '/', &port) ||
	    !slice_parse_u64(port, UINT16_MAX, &number) ||
	    !slice_starts(rest, SLICE("#")))
		return false;
	rest = slice_sub(rest, 1, rest.len);
	if (!slice_take_until(&rest, '\n', &token) || token.len >= sizeof(probe->token))
		return false;
	memcpy(probe->host, host.ptr, host.len);
	memcpy(probe->token, token.ptr, token.len);
	probe->port = (int)number;
	return true;
}

static void subscribe(struct probe *probe)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)probe->port)};
	char request[1024];
	int len;

	(void)inet_pton(AF_INET, probe->host, &address.sin_addr);
	probe->stream = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(probe->stream, (struct sockaddr *)&address, sizeof(address)) < 0)
		probe_fail("cannot connect to the observer");
	len = snprintf(request, sizeof(request),
		       "GET /api/stream HTTP/1.1\r\nHost: %s:%d\r\nAuthorization: Bearer "
		       "%s\r\n\r\n",
		       probe->host, probe->port, probe->token);
	if (write(probe->stream, request, (size_t)len) != len)
		probe_fail("cannot ask for the stream");
}

/* Markers look like <12@123456789>; one that is not whole yet comes again. */
#define MARKER_MAX 64

static bool parse_marker(const char *text, uint64_t *number, uint64_t *then)
{
	const char *end = memchr(text, '>', strnlen(text, MARKER_MAX));
	struct slice rest, digits;

	if (!end)
		return false;
	rest = (struct slice){text + 1, (size_t)(end - text - 1)};
	return slice_take_until(&rest, '@', &digits) &&
	       slice_parse_u64(digits, LONE_MAX - 1, number) &&
	       slice_parse_u64(rest, INT64_MAX, then);
}

/* The first sight of each marker counts. */
static void on_stream(struct probe *probe)
{
	static char text[1 << 20];
	int64_t now;
	ssize_t got;

	memcpy(text, probe->tail, probe->tail_bytes);
	got = read(probe->stream, text + probe->tail_bytes,
		   sizeof(text) - probe->tail_bytes - 1);
	if (got <= 0)
		probe_fail("the stream ended");
	now = clock_us();
	text[probe->tail_bytes + (size_t)got] = '\0';
	for (char *at = text; (at = strchr(at, '<')); at++) {
		uint64_t number, then;

		if (!parse_marker(at, &number, &then) || probe->events[number].seen_us ||
		    probe->pacing)
			continue;
		probe->events[number] = (struct lone){(int64_t)then, now};
		probe->lone_seen++;
	}
	probe->tail_bytes = strlen(text);
	if (probe->tail_bytes > MARKER_MAX)
		probe->tail_bytes = MARKER_MAX;
	memcpy(probe->tail, text + strlen(text) - probe->tail_bytes, probe->tail_bytes);
}

/* The sender's debug line ends in sent_us=CLOCK. */
static void on_line(struct probe *probe, const char *line)
{
	const char *at = strstr(line, "sent_us=");

	if (!at || probe->frame_count == FRAMES_MAX)
		return;
	probe->frames[probe->frame_count].us = strtoll(at + 8, NULL, 10);
	probe->frames[probe->frame_count++].live = strstr(line, " live ") != NULL;
}

static bool on_stderr(struct probe *probe)
{
	char *newline;
	ssize_t got = read(probe->err, probe->lines + probe->line_bytes,
			   sizeof(probe->lines) - probe->line_bytes - 1);

	if (got <= 0)
		return false;
	probe->line_bytes += (size_t)got;
	probe->lines[probe->line_bytes] = '\0';
	while ((newline = strchr(probe->lines, '\n'))) {
		*newline = '\0';
		on_line(probe, probe->lines);
		probe->line_bytes -= (size_t)(newline + 1 - probe->lines);
		memmove(probe->lines, newline + 1, probe->line_bytes + 1);
	}
	if (probe->line_bytes == sizeof(probe->lines) - 1)
		probe->line_bytes = 0; /* a line that long is none of the sender's */
	return true;
}

static void wait_ready(struct probe *probe)
{
	char text[4096];
	size_t len = 0;
	int64_t deadline = clock_us() + 60 * 1000000;

	for (;;) {
		struct pollfd polls[2] = {{.fd = probe->out, .events = POLLIN},
					  {.fd = probe->err, .events = POLLIN}};
		ssize_t got;

		if (clock_us() > deadline)
			probe_fail("perch up was not ready within a minute");
		(void)poll(polls, 2, 1000);
		if (polls[1].revents && !on_stderr(probe))
			probe_fail("perch up ended");
		if (!polls[0].revents)
			continue;
		got = read(probe->out, text + len, sizeof(text) - len - 1);
		if (got <= 0)
			probe_fail("perch up ended before it was ready");
		len += (size_t)got;
		text[len] = '\0';
		if (parse_ready(probe, text))
			return;
	}
}

static void watch(struct probe *probe, int64_t until_us, long want_lone)
{
	while (clock_us() < until_us && probe->lone_seen < want_lone) {
		struct pollfd polls[2] = {{.fd = probe->stream, .events = POLLIN},
					  {.fd = probe->err, .events = POLLIN}};

		(void)poll(polls, 2, 200);
		if (polls[0].revents)
			on_stream(probe);
		if (polls[1].revents && !on_stderr(probe))
			probe_fail("perch up ended");
	}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quantile(const double *sorted, long count, double q)
{
	long at = (long)((double)(count - 1) * q + 0.5);

	return sorted[at];
}

/* Did a frame leave less than a tick before this moment? */
static bool frame_before(const struct probe *probe, int64_t us)
{
	for (long i = 0; i < probe->frame_count; i++)
		if (probe->frames[i].us < us && us - probe->frames[i].us < TICK_US)
			return true;
	return false;
}

static void report_lone(struct probe *probe)
{
	static double ms[LONE_MAX];
	long count = 0;

	for (long i = 0; i < probe->lone; i++) {
		const struct lone *event = &probe->events[i];

		if (!frame_before(probe, event->written_us))
			ms[count++] = (double)(event->seen_us - event->written_us) / 1000;
	}
	if (count < probe->lone / 2)
		probe_fail("hardly an event was alone");
	qsort(ms, (size_t)count, sizeof(double), compare);
	probe_note("lone",
		   ",\"unit\":\"ms\",\"runs\":%ld,\"not_alone\":%ld,\"median\":%.1f,"
		   "\"p95\":%.1f,\"max\":%.1f",
		   count, probe->lone - count, quantile(ms, count, 0.5),
		   quantile(ms, count, 0.95), ms[count - 1]);
}

static void report_pace(struct probe *probe)
{
	static double gaps[FRAMES_MAX];
	int64_t last = 0;
	long count = 0;

	for (long i = 0; i < probe->frame_count; i++) {
		if (!probe->frames[i].live)
			continue;
		if (last)
			gaps[count++] = (double)(probe->frames[i].us - last) / 1000;
		last = probe->frames[i].us;
	}
	if (count < probe->flood_s / 2)
		probe_fail("frames stopped flowing under the flood");
	qsort(gaps, (size_t)count, sizeof(double), compare);
	probe_note("pace",
		   ",\"unit\":\"ms\",\"runs\":%ld,\"min\":%.1f,\"median\":%.1f,"
		   "\"max\":%.1f",
		   count, gaps[0], quantile(gaps, count, 0.5), gaps[count - 1]);
}

static void stop(struct probe *probe)
{
	char command[128];

	(void)kill(probe->up, SIGTERM);
	while (on_stderr(probe)) {
	}
	(void)waitpid(probe->up, NULL, 0);
	(void)snprintf(command, sizeof(command), "rm -rf -- '%s'", probe->home);
	(void)!system(command); /* NOLINT(cert-env33-c): a folder we named ourselves */
}

int main(int argc, char *argv[])
{
	static struct probe probe;
	char self[4096] = ""; /* readlink() ends it with no NUL */
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (argc == 4 && strcmp(argv[1], "agent") == 0)
		return agent(strtol(argv[2], NULL, 10), strtol(argv[3], NULL, 10));
	if (len < 0)
		probe_fail("cannot find myself");
	probe.lone = (long)probe_setting("PERCH_PROBE_LONE", 20, 0, LONE_MAX);
	probe.flood_s = (long)probe_setting("PERCH_PROBE_FLOOD_S", 60, 0, 3600);
	start(&probe, self);
	wait_ready(&probe);
	subscribe(&probe);
	watch(&probe, clock_us() + (probe.lone + 10) * (SILENCE_MS + 300) * 1000,
	      probe.lone);
	if (probe.lone_seen != probe.lone)
		probe_fail("not every lone event arrived");
	report_lone(&probe);
	probe.frame_count = 0;
	probe.pacing = true;
	watch(&probe, clock_us() + probe.flood_s * 1000000, LONE_MAX + 1);
	report_pace(&probe);
	stop(&probe);
	return 0;
}
