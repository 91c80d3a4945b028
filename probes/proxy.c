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

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probes/probe.h"
#include "probes/process.h"

#define ARMS 4
#define LINES_MAX 1000000
#define LINE_MAX_BYTES 60000

static const char *const names[ARMS] = {"direct", "proxy", "stopped", "killed"};

struct side {
	struct process process;
	int64_t *ns;
	size_t count;
};

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

	if (write(side->process.in, line, bytes) != (ssize_t)bytes)
		probe_fail("a line was not taken whole");
	while (got < bytes) {
		ssize_t len = read(side->process.out, back + got, bytes - got);

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
	const char *argv[] = {process_perch, "proxy", "--relay", relay, "--ready-fd",
			      "3",           "--",    "cat",     NULL};
	struct side side = {0};
	char word[32];
	int ready[2];

	side.process = process_start(argv, ready);
	process_wait_ready(ready[0], word, sizeof(word));
	(void)close(ready[0]);
	return side;
}

int main(int argc, char *argv[])
{
	const size_t lines = probe_setting("PERCH_PROBE_LINES", 4000, 10, LINES_MAX);
	const size_t bytes =
		probe_setting("PERCH_PROBE_BYTES", 400, 64, LINE_MAX_BYTES - 1);
	const size_t gap_us = probe_setting("PERCH_PROBE_GAP_US", 1000, 0, 1000000);
	const char *cat[] = {"cat", NULL};
	char url[64], url_stopped[64];
	struct side sides[ARMS] = {0};
	struct process relay, stopped;
	int64_t most;
	int ready[2];

	(void)argc;
	(void)signal(SIGPIPE, SIG_IGN);
	process_find_perch(argv[0]);
	process_make_home();
	relay = process_relay("relay", url, sizeof(url));
	stopped = process_relay("stopped", url_stopped, sizeof(url_stopped));
	sides[0].process = process_start(cat, ready);
	sides[1] = start_proxy(url);
	sides[2] = start_proxy(url_stopped);
	sides[3] = start_proxy(url);
	for (size_t i = 0; i < ARMS; i++)
		sides[i].ns = calloc(lines, sizeof(int64_t));
	(void)kill(stopped.pid, SIGSTOP);
	(void)kill(watcher_of(sides[3].process.pid), SIGKILL);
	measure(sides, lines, bytes, (long)gap_us);
	for (size_t i = 0; i < ARMS; i++) {
		most = 0;
		for (size_t k = 0; k < sides[i].count; k++)
			most = sides[i].ns[k] > most ? sides[i].ns[k] : most;
		probe_print(names[i], sides[i].ns, sides[i].count, "ns",
			    ",\"bytes\":%zu,\"max_ns\":%lld", bytes, (long long)most);
		(void)kill(sides[i].process.pid, SIGKILL);
	}
	(void)kill(stopped.pid, SIGKILL);
	(void)kill(relay.pid, SIGKILL);
	process_remove_home();
	return EXIT_SUCCESS;
}
