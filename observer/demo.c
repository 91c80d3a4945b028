#include "observer/demo.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "wire/base/mem.h"
#include "wire/host/loop.h"

/* A harness closes its agent within 5 s and drains for 3 s (design §5, §6). */
#define STOP_WAIT_MS 10000
#define LOOK_EVERY_MS 10
#define PATH_BYTES 4096

struct demo {
	const char *relay, *log_level;
	pid_t pid; /* 0: none */
};

struct demo *demo_create(const char *relay, const char *log_level)
{
	struct demo *demo = mem_alloc(sizeof(*demo));

	demo->relay = relay;
	demo->log_level = log_level;
	return demo;
}

static bool runs(struct demo *demo)
{
	pid_t got;

	if (!demo->pid)
		return false;
	do {
		got = waitpid(demo->pid, NULL, WNOHANG);
	} while (got < 0 && errno == EINTR);
	if (got != 0)
		demo->pid = 0;
	return demo->pid != 0;
}

void demo_destroy(struct demo *demo)
{
	const struct timespec moment = {.tv_nsec = LOOK_EVERY_MS * 1000000L};
	const int64_t end = loop_now_ms() + STOP_WAIT_MS;

	if (!demo)
		return;
	if (runs(demo))
		(void)kill(demo->pid, SIGTERM);
	while (runs(demo) && loop_now_ms() < end)
		(void)nanosleep(&moment, NULL);
	if (runs(demo))
		(void)kill(demo->pid, SIGKILL);
	free(demo);
}

/* In the child: it ends when we do, however we end. */
static void become(const char *self, pid_t parent, const char *const *argv)
{
	const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	(void)setpgid(0, 0);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent) /* it died before prctl */
		_exit(1);
	if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 ||
	    dup2(nothing, STDOUT_FILENO) < 0)
		_exit(1);
	(void)signal(SIGPIPE, SIG_DFL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	/* execv takes char *const[] for history's sake and changes nothing. */
	(void)execv(self, (char *const *)(uintptr_t)argv);
	_exit(127);
}

bool demo_play(struct demo *demo, struct err *err)
{
	char self[PATH_BYTES];
	const ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const pid_t parent = getpid();
	pid_t pid;
	const char *const argv[] = {
		"perch",         "agent",       "--relay",
		demo->relay,     "--name",      "demo",
		"--channel",     "api-server",  "--channel",
		"web",           "--control",   "full",
		"--permissions", "ask",         "--prompt",
		"demo",          "--log-level", demo->log_level,
		"--stay",        "--",          self,
		"demo-agent",    NULL,
	};

	if (runs(demo))
		return err_set(err, ERR_REFUSED, "the demo agent runs already");
	if (len < 0)
		return err_errno(err, "cannot read /proc/self/exe");
	self[len] = '\0';
	pid = fork();
	if (pid == 0)
		become(self, parent, argv);
	if (pid < 0)
		return err_errno(err, "cannot start the demo agent");
	demo->pid = pid;
	return true;
}
