/* What settled processes use while nothing happens: a relay, a harness with N agents (its
 * slots, each with a channel of its own) and an observer, all sizes at the same time.
 *
 * PERCH_PROBE_SECONDS (60) are looked at, after PERCH_PROBE_SETTLE (20) seconds in which
 * what the start left is done. Each process is a line: CPU time of all its threads, how
 * often they woke, and its memory. Fails unless every agent's session was opened and
 * every process lived to the end. PERCH_BIN as in the proxy's probe. */

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probes/probe.h"
#include "probes/process.h"

static const int sizes[] = {1, 4, 8, 16};
#define SIZES (sizeof(sizes) / sizeof(*sizes))

enum role { RELAY, HARNESS, OBSERVER, ROLES };
static const char *const roles[ROLES] = {"relay", "harness", "observer"};

struct usage {
	uint64_t cpu_ns, wakeups, own_kib; /* own: not of files */
};

/* The first number behind @key in a file of /proc; 0 when there is none. */
static uint64_t number_in(const char *path, const char *key)
{
	char text[4096];
	const char *at;
	FILE *file = fopen(path, "re");
	size_t len;

	if (!file)
		return 0;
	len = fread(text, 1, sizeof(text) - 1, file);
	text[len] = '\0';
	(void)fclose(file);
	at = strstr(text, key);
	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static struct usage look(pid_t pid)
{
	char path[300];
	struct usage sum = {0};
	struct dirent *entry;
	DIR *tasks;

	(void)snprintf(path, sizeof(path), "/proc/%ld/task", (long)pid);
	tasks = opendir(path);
	if (!tasks)
		probe_fail("a process ended");
	while ((entry = readdir(tasks))) {
		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%ld/task/%.32s/schedstat",
			       (long)pid, entry->d_name);
		sum.cpu_ns += number_in(path, "");
		(void)snprintf(path, sizeof(path), "/proc/%ld/task/%.32s/status",
			       (long)pid, entry->d_name);
		sum.wakeups += number_in(path, "\nvoluntary_ctxt_switches:");
	}
	(void)closedir(tasks);
	(void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)pid);
	sum.own_kib = number_in(path, "RssAnon:");
	return sum;
}

static struct process start_harness(int agents, const char *url)
{
	const char *argv[24 + 2 * 16] = {process_perch, "agent", "--relay",     url,
					 "--ready-fd",  "3",     "--log-level", "warn"};
	char name[32], slots[16], channels[16][16], word[32];
	size_t count = 8;
	struct process process;
	int ready[2];

	(void)snprintf(name, sizeof(name), "idle-%d", agents);
	(void)snprintf(slots, sizeof(slots), "%d", agents);
	argv[count++] = "--name";
	argv[count++] = name;
	argv[count++] = "--slots";
	argv[count++] = slots;
	for (int i = 0; i < agents; i++) {
		(void)snprintf(channels[i], sizeof(channels[i]), "c%d", i);
		argv[count++] = "--channel";
		argv[count++] = channels[i];
	}
	/* Each channel's session is opened by a prompt; then nothing is said any more. */
	argv[count++] = "--prompt";
	argv[count++] = "hello";
	argv[count++] = "--stay";
	argv[count++] = "--permissions";
	argv[count++] = "allow";
	argv[count++] = "--";
	argv[count++] = process_perch;
	argv[count++] = "demo-agent";
	process = process_start(argv, ready);
	process_wait_ready(ready[0], word, sizeof(word));
	(void)close(ready[0]);
	return process;
}

static struct process start_observer(int agents, const char *url)
{
	const char *argv[] = {process_perch, "observer",    "--relay",    url,
			      "--listen",    "127.0.0.1:0", "--ready-fd", "3",
			      "--log-level", "warn",        NULL};
	char home[128], word[512];
	struct process process;
	int ready[2];

	/* One observer a home: the archive is one's own; the owner is the same. */
	(void)snprintf(home, sizeof(home), "%s/observer-%d", process_home, agents);
	(void)snprintf(word, sizeof(word), "mkdir -p -m 700 %s && cp -r %s/keys %s/",
		       home, process_home, home);
	if (system(word) != 0) /* NOLINT(cert-env33-c) */
		probe_fail("no home for an observer");
	(void)setenv("PERCH_HOME", home, 1);
	process = process_start(argv, ready);
	(void)setenv("PERCH_HOME", process_home, 1);
	process_wait_ready(ready[0], word, sizeof(word));
	(void)close(ready[0]);
	return process;
}

/* The agents that a harness runs. */
static int children_of(pid_t pid)
{
	char path[64], text[512];
	const char *at = text;
	char *end;
	int count = 0;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", (long)pid,
		       (long)pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (!fgets(text, sizeof(text), file))
		text[0] = '\0';
	(void)fclose(file);
	for (; strtol(at, &end, 10) > 0 && end != at; at = end)
		count++;
	return count;
}

int main(int argc, char *argv[])
{
	const size_t seconds = probe_setting("PERCH_PROBE_SECONDS", 60, 1, 3600);
	const size_t settle = probe_setting("PERCH_PROBE_SETTLE", 20, 1, 3600);
	const size_t count =
		probe_setting("PERCH_PROBE_OBSERVERS", 1, 0, 1) ? ROLES : OBSERVER;
	struct process processes[SIZES][ROLES];
	struct usage before[SIZES][ROLES];
	char urls[SIZES][64], name[32];

	(void)argc;
	(void)signal(SIGPIPE, SIG_IGN);
	process_find_perch(argv[0]);
	process_make_home();
	for (size_t i = 0; i < SIZES; i++) {
		(void)snprintf(name, sizeof(name), "relay-%d", sizes[i]);
		processes[i][RELAY] = process_relay(name, urls[i], sizeof(urls[i]));
		processes[i][HARNESS] = start_harness(sizes[i], urls[i]);
		if (count == ROLES)
			processes[i][OBSERVER] = start_observer(sizes[i], urls[i]);
	}
	(void)sleep((unsigned)settle);
	for (size_t i = 0; i < SIZES; i++) {
		if (children_of(processes[i][HARNESS].pid) != sizes[i])
			probe_fail("not every agent runs");
		for (size_t k = 0; k < count; k++)
			before[i][k] = look(processes[i][k].pid);
	}
	(void)sleep((unsigned)seconds);
	for (size_t i = 0; i < SIZES; i++) {
		for (size_t k = 0; k < count; k++) {
			const struct usage now = look(processes[i][k].pid);

			probe_note(
				roles[k],
				",\"agents\":%d,\"seconds\":%zu,\"cpu_us\":%llu,"
				"\"wakeups\":%llu,\"own_kib\":%llu",
				sizes[i], seconds,
				(unsigned long long)((now.cpu_ns - before[i][k].cpu_ns) /
						     1000),
				(unsigned long long)(now.wakeups - before[i][k].wakeups),
				(unsigned long long)now.own_kib);
		}
	}
	for (size_t i = 0; i < SIZES; i++) {
		for (size_t k = count; k-- > 0;) {
			(void)kill(processes[i][k].pid, SIGTERM);
			(void)waitpid(processes[i][k].pid, NULL, 0);
		}
	}
	process_remove_home();
	return EXIT_SUCCESS;
}
