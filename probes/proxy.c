/* What `perch proxy` adds between an editor and its agent: the time from writing a line
 * to reading its echo, through `cat` alone and through `perch proxy -- cat`, line by line
 * in turns. Arms:
 *
 *   direct   cat
 *   proxy    behind the proxy, with a relay that takes what it sends
 *   stopped  the same, that relay stopped by SIGSTOP in the middle
 *   killed   the same, the watcher killed
 *
 * PERCH_PROBE_LINES (4000) lines an arm of PERCH_PROBE_BYTES (400) bytes, one every
 * PERCH_PROBE_GAP_US (1000). PERCH_BIN is the perch that is measured (default: beside
 * this program's folder). Fails unless each line came back as it went. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probes/probe.h"

#define ARMS 4
#define LINES_MAX 1000000
#define LINE_MAX_BYTES 60000
#define READY_MS 20000

static const char *const names[ARMS] = {"direct", "proxy", "stopped", "killed"};

struct side {
	pid_t pid;
	int in, out;
	int64_t *ns;
	size_t count;
};

static char perch[PATH_MAX], home[64];

/* Starts @argv with pipes; descriptor 3 is the writing end of @ready. */
#define ARGUMENTS_MAX 16

static struct side start(const char *const given[], int ready[2])
{
	char *argv[ARGUMENTS_MAX] = {NULL};
	struct side side = {0};
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
	    pipe2(ready, O_CLOEXEC) < 0)
		probe_fail("no pipes");
	for (size_t i = 0; given[i]; i++)
		argv[i] = strdup(given[i]);
	side.pid = fork();
	if (side.pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(in[0], 0);
		(void)dup2(out[1], 1);
		(void)dup2(ready[1], 3);
		(void)execvp(argv[0], argv);
		_exit(127);
	}
	(void)close(in[0]);
	(void)close(out[1]);
	(void)close(ready[1]);
	side.in = in[1];
	side.out = out[0];
	return side;
}

/* What it writes on descriptor 3 first. */
static void wait_ready(int fd, char *word, size_t size)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	ssize_t len;

	if (poll(&ready, 1, READY_MS) <= 0)
		probe_fail("not ready in time");
	len = read(fd, word, size - 1);
	if (len <= 0)
		probe_fail("ended before it was ready");
	word[len] = '\0';
}

/* The child of @pid that is the watcher: the one started first. */
static pid_t watcher_of(pid_t pid)
{
	char path[64], children[256];
	long child;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", (long)pid,
		       (long)pid);
	file = fopen(path, "re");
	if (!file || !fgets(children, sizeof(children), file))
		probe_fail("no watcher");
	(void)fclose(file);
	child = strtol(children, NULL, 10);
	if (child <= 0)
		probe_fail("no watcher");
	return (pid_t)child;
}

static void bounce(struct side *side, const char *line, char *back, size_t bytes)
{
	const int64_t from = probe_clock_ns();
	size_t got = 0;

	if (write(side->in, line, bytes) != (ssize_t)bytes)
		probe_fail("a line was not taken whole");
	while (got < bytes) {
		ssize_t len = read(side->out, back + got, bytes - got);

		if (len <= 0)
			probe_fail("the echo ended");
		got += (size_t)len;
	}
	side->ns[side->count++] = probe_clock_ns() - from;
	if (memcmp(line, back, bytes) != 0)
		probe_fail("a line came back changed");
}

static void measure(struct side sides[ARMS], size_t lines, size_t bytes, long gap_us)
{
	static char line[LINE_MAX_BYTES], back[LINE_MAX_BYTES];
	const struct timespec gap = {.tv_sec = gap_us / 1000000,
				     .tv_nsec = gap_us % 1000000 * 1000};

	/* Zeros up to the length that is wanted. */
	(void)snprintf(line, sizeof(line),
		       "{\"jsonrpc\":\"2.0\",\"method\":\"_x\",\"params\":\"%0*d\"}\n",
		       (int)bytes - 44, 0);
	for (size_t round = 0; round < lines; round++) {
		for (size_t turn = 0; turn < ARMS; turn++) {
			bounce(&sides[probe_turn(round, turn, ARMS)], line, back, bytes);
			(void)nanosleep(&gap, NULL);
		}
	}
}

static struct side start_proxy(char *relay)
{
	const char *argv[] = {perch, "proxy", "--relay", relay, "--ready-fd",
			      "3",   "--",    "cat",     NULL};
	struct side side;
	char word[32];
	int ready[2];

	side = start(argv, ready);
	wait_ready(ready[0], word, sizeof(word));
	(void)close(ready[0]);
	return side;
}

static struct side start_relay(const char *name, char *url, size_t size)
{
	char database[128], port[32];
	const char *argv[] = {perch,         "relay", "--listen", "127.0.0.1:0",
			      "--ready-fd",  "3",     "--db",     database,
			      "--log-level", "warn",  NULL};
	struct side side;
	int ready[2];

	(void)snprintf(database, sizeof(database), "%s/%s.db", home, name);
	side = start(argv, ready);
	wait_ready(ready[0], port, sizeof(port));
	(void)snprintf(url, size, "ws://127.0.0.1:%ld", strtol(port, NULL, 10));
	(void)close(ready[0]);
	return side;
}

/* A home of its own, with an owner. */
static void make_home(void)
{
	char path[128], command[PATH_MAX + 64];

	(void)snprintf(home, sizeof(home), "/tmp/perch-probe-%ld", (long)getpid());
	(void)setenv("PERCH_HOME", home, 1);
	(void)snprintf(path, sizeof(path), "%s/keys", home);
	if (mkdir(home, 0700) < 0 || mkdir(path, 0700) < 0)
		probe_fail("no folder for a home");
	(void)snprintf(command, sizeof(command),
		       "umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' "
		       "> %s/owner; echo >> %s/owner",
		       path, path);
	if (system(command) != 0) /* NOLINT(cert-env33-c) */
		probe_fail("no owner key");
}

static void find_perch(const char *self)
{
	const char *given = getenv("PERCH_BIN");
	const char *slash = strrchr(self, '/');

	if (given)
		(void)snprintf(perch, sizeof(perch), "%s", given);
	else
		(void)snprintf(perch, sizeof(perch), "%.*s/../perch",
			       slash ? (int)(slash - self) : 1, slash ? self : ".");
	if (access(perch, X_OK) < 0)
		probe_fail("PERCH_BIN: want the perch to measure");
}

int main(int argc, char *argv[])
{
	const size_t lines = probe_setting("PERCH_PROBE_LINES", 4000, 10, LINES_MAX);
	const size_t bytes =
		probe_setting("PERCH_PROBE_BYTES", 400, 64, LINE_MAX_BYTES - 1);
	const size_t gap_us = probe_setting("PERCH_PROBE_GAP_US", 1000, 0, 1000000);
	const char *cat[] = {"cat", NULL};
	char url[64], url_stopped[64], command[128];
	struct side sides[ARMS], relay, stopped;
	int64_t most;
	int ready[2];

	(void)argc;
	(void)signal(SIGPIPE, SIG_IGN);
	find_perch(argv[0]);
	make_home();
	relay = start_relay("relay", url, sizeof(url));
	stopped = start_relay("stopped", url_stopped, sizeof(url_stopped));
	sides[0] = start(cat, ready);
	sides[1] = start_proxy(url);
	sides[2] = start_proxy(url_stopped);
	sides[3] = start_proxy(url);
	for (size_t i = 0; i < ARMS; i++)
		sides[i].ns = calloc(lines, sizeof(int64_t));
	(void)kill(stopped.pid, SIGSTOP);
	(void)kill(watcher_of(sides[3].pid), SIGKILL);
	measure(sides, lines, bytes, (long)gap_us);
	for (size_t i = 0; i < ARMS; i++) {
		most = 0;
		for (size_t k = 0; k < sides[i].count; k++)
			most = sides[i].ns[k] > most ? sides[i].ns[k] : most;
		probe_print(names[i], sides[i].ns, sides[i].count, "ns",
			    ",\"bytes\":%zu,\"max_ns\":%lld", bytes, (long long)most);
		(void)kill(sides[i].pid, SIGKILL);
	}
	(void)kill(stopped.pid, SIGKILL);
	(void)kill(relay.pid, SIGKILL);
	(void)snprintf(command, sizeof(command), "rm -rf %s", home);
	if (system(command) != 0) /* NOLINT(cert-env33-c) */
		probe_fail("its folder could not be removed");
	return EXIT_SUCCESS;
}
