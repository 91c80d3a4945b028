#include "probes/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "probes/probe.h"

#define ARGUMENTS_MAX 64

char process_perch[PATH_MAX], process_home[64];

void process_find_perch(const char *self)
{
	const char *given = getenv("PERCH_BIN");
	const char *slash = strrchr(self, '/');

	if (given)
		(void)snprintf(process_perch, sizeof(process_perch), "%s", given);
	else
		(void)snprintf(process_perch, sizeof(process_perch), "%.*s/../perch",
			       slash ? (int)(slash - self) : 1, slash ? self : ".");
	if (access(process_perch, X_OK) < 0)
		probe_fail("PERCH_BIN: want the perch to measure");
}

void process_make_home(void)
{
	char path[128], command[PATH_MAX + 64];

	(void)snprintf(process_home, sizeof(process_home), "/tmp/perch-probe-%ld",
		       (long)getpid());
	(void)setenv("PERCH_HOME", process_home, 1);
	(void)snprintf(path, sizeof(path), "%s/keys", process_home);
	if (mkdir(process_home, 0700) < 0 || mkdir(path, 0700) < 0)
		probe_fail("no folder for a home");
	(void)snprintf(command, sizeof(command),
		       "umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' "
		       "> %s/owner; echo >> %s/owner",
		       path, path);
	if (system(command) != 0) /* NOLINT(cert-env33-c) */
		probe_fail("no owner key");
}

void process_remove_home(void)
{
	char command[128];

	(void)snprintf(command, sizeof(command), "rm -rf %s", process_home);
	if (system(command) != 0) /* NOLINT(cert-env33-c) */
		probe_fail("its folder could not be removed");
}

struct process process_start(const char *const given[], int ready[2])
{
	char *argv[ARGUMENTS_MAX] = {NULL};
	struct process process = {0};
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
	    pipe2(ready, O_CLOEXEC) < 0)
		probe_fail("no pipes");
	for (size_t i = 0; given[i]; i++) {
		if (i + 1 == ARGUMENTS_MAX)
			probe_fail("too many arguments");
		argv[i] = strdup(given[i]);
	}
	process.pid = fork();
	if (process.pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(in[0], 0);
		(void)dup2(out[1], 1);
		(void)dup2(ready[1], 3);
		(void)execvp(argv[0], argv);
		_exit(127);
	}
	for (size_t i = 0; argv[i]; i++)
		free(argv[i]);
	(void)close(in[0]);
	(void)close(out[1]);
	(void)close(ready[1]);
	process.in = in[1];
	process.out = out[0];
	return process;
}

void process_wait_ready(int fd, char *word, size_t size)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	ssize_t len;

	if (poll(&ready, 1, PROCESS_READY_MS) <= 0)
		probe_fail("not ready in time");
	len = read(fd, word, size - 1);
	if (len <= 0)
		probe_fail("ended before it was ready");
	word[len] = '\0';
}

struct process process_relay(const char *name, char *url, size_t size)
{
	char database[128], port[32];
	const char *argv[] = {process_perch, "relay", "--listen", "127.0.0.1:0",
			      "--ready-fd",  "3",     "--db",     database,
			      "--log-level", "warn",  NULL};
	struct process process;
	int ready[2];

	(void)snprintf(database, sizeof(database), "%s/%s.db", process_home, name);
	process = process_start(argv, ready);
	process_wait_ready(ready[0], port, sizeof(port));
	(void)snprintf(url, size, "ws://127.0.0.1:%ld", strtol(port, NULL, 10));
	(void)close(ready[0]);
	return process;
}
