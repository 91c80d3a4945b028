#include "agent/child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uv.h>

#include "agent/cgroup.h"
#include "agent/proctree.h"
#include "wire/base/buf.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"

#define READ_BYTES (64u << 10)
/* Reads in one turn of the loop: other children and the relay want theirs too. */
#define READS_PER_TURN 8
/* Names the tree of processes that an agent starts, see proctree.h. */
#define CHILD_MARK "AGENT_TREE"
#define CHILD_MARK_LEN 16 /* hex digits */
/* What a line that waits holds beside its bytes, here and with whoever wrote it. */
#define LINE_OVERHEAD 512

/* --- A descriptor on the loop --- */

struct watch {
	uv_poll_t poll; /* first: uv_close() gives it back */
	int fd;
	struct child *child;
};

static void free_handle(uv_handle_t *handle)
{
	free(handle);
}

/* Takes @fd. */
static struct watch *watch_open(struct loop *loop, int fd, struct child *child)
{
	struct watch *watch = mem_alloc(sizeof(*watch));

	watch->fd = fd;
	watch->child = child;
	watch->poll.data = watch;
	if (uv_poll_init(loop->uv, &watch->poll, fd) != 0) {
		(void)close(fd);
		free(watch);
		return NULL;
	}
	return watch;
}

static void watch_close(struct watch **at)
{
	struct watch *watch = *at;

	if (!watch)
		return;
	*at = NULL;
	(void)uv_poll_stop(&watch->poll);
	uv_close((uv_handle_t *)&watch->poll, free_handle);
	(void)close(watch->fd);
}

/* --- The set of them --- */

enum child_state {
	CHILD_RUNNING,
	CHILD_CLOSING, /* stdin closed */
	CHILD_TERMINATING,
	CHILD_KILLED,
	CHILD_DRAINING, /* exited, not reaped: its pid is still ours to kill by */
	CHILD_DONE,
};

struct line {
	struct line *next;
	struct buf bytes;
	size_t sent;
	child_on_written *on_written;
	void *ctx;
};

struct child {
	struct children *set;
	struct child_options options;
	enum child_state state;
	pid_t pid;
	struct cgroup *group;                               /* NULL: not here */
	char mark[sizeof(CHILD_MARK "=") + CHILD_MARK_LEN]; /* in its environment */
	struct watch *in, *out, *err;                       /* NULL: closed */
	struct timer *timer;        /* for the next step of stopping or draining */
	struct line *first, **last; /* not written yet */
	size_t queued;              /* their bytes */
	bool writing; /* inside write_lines(): a callback that writes more only queues */
	struct child_exit how;
};

struct children {
	struct loop *loop;
	uv_signal_t *signal;
	struct child *list[CHILDREN_MAX];
	size_t count;
};

/* Pids of all but @but, for proctree. */
static size_t others(const struct children *set, const struct child *but,
		     pid_t out[CHILDREN_MAX])
{
	size_t count = 0;

	for (size_t i = 0; i < set->count; i++) {
		if (set->list[i] != but)
			out[count++] = set->list[i]->pid;
	}
	return count;
}

static void kill_tree(struct child *child)
{
	pid_t spare[CHILDREN_MAX];
	size_t count = others(child->set, child, spare);

	(void)kill(-child->pid, SIGKILL);
	cgroup_kill(child->group);
	/* Also where there is a group: a process may have been moved out of it. */
	proctree_kill(child->pid, child->mark, spare, count);
}

/* --- Writing --- */

static void pop_line(struct child *child, enum child_written outcome)
{
	struct line *line = child->first;

	child->first = line->next;
	if (!child->first)
		child->last = &child->first;
	child->queued -= line->bytes.len + LINE_OVERHEAD;
	line->on_written(line->ctx, buf_slice(&line->bytes), outcome);
	buf_finish(&line->bytes);
	free(line);
}

static void step(struct child *child, enum child_state state);

/* No byte will reach it any more. */
static void close_stdin(struct child *child)
{
	watch_close(&child->in);
	while (child->first)
		pop_line(child,
			 child->first->sent > 0 ? CHILD_CUT_OFF : CHILD_NOT_WRITTEN);
}

/* It reads nothing any more, so nothing that we would say later can arrive either: an
 * agent that lives on like that would leave every request open. */
static void end_deaf(struct child *child)
{
	close_stdin(child);
	if (child->state == CHILD_RUNNING)
		step(child, CHILD_CLOSING);
}

static void on_stdin_ready(uv_poll_t *poll, int status, int events);

static void write_lines(struct child *child)
{
	struct line *line;
	ssize_t sent;

	child->writing = true;
	while (child->in && (line = child->first)) {
		sent = write(child->in->fd, line->bytes.ptr + line->sent,
			     line->bytes.len - line->sent);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && errno == EAGAIN) {
			(void)uv_poll_start(&child->in->poll, UV_WRITABLE,
					    on_stdin_ready);
			break;
		}
		if (sent < 0) { /* EPIPE: it closed its stdin, or is gone */
			end_deaf(child);
			break;
		}
		line->sent += (size_t)sent;
		if (line->sent == line->bytes.len)
			pop_line(child, CHILD_WRITTEN);
	}
	if (child->in && !child->first)
		(void)uv_poll_stop(&child->in->poll);
	child->writing = false;
}

static void on_stdin_ready(uv_poll_t *poll, int status, int events)
{
	struct watch *watch = poll->data;

	(void)events;
	if (status < 0)
		end_deaf(watch->child);
	else
		write_lines(watch->child);
}

void child_write(struct child *child, struct slice bytes, child_on_written *on_written,
		 void *ctx)
{
	struct line *line;

	if (!child->in || child->queued + LINE_OVERHEAD + bytes.len > CHILD_QUEUE_MAX) {
		on_written(ctx, bytes, CHILD_NOT_WRITTEN);
		if (child->in) {
			child->how.deaf = true;
			end_deaf(child);
		}
		return;
	}
	line = mem_alloc(sizeof(*line));
	buf_init(&line->bytes, bytes.len);
	(void)buf_append(&line->bytes, bytes);
	line->on_written = on_written;
	line->ctx = ctx;
	*child->last = line;
	child->last = &line->next;
	child->queued += bytes.len + LINE_OVERHEAD;
	if (!child->writing && child->first == line)
		write_lines(child);
}

/* --- Stopping and exit --- */

/* Bounded: what is left comes on the next turn, the poll is level-triggered. False at the
 * end of the stream. */
static bool read_some(int fd, void (*take)(void *ctx, struct slice bytes), void *ctx)
{
	char bytes[READ_BYTES];
	ssize_t got;

	for (int i = 0; i < READS_PER_TURN; i++) {
		got = read(fd, bytes, sizeof(bytes));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN;
		if (got == 0)
			return false;
		take(ctx, (struct slice){bytes, (size_t)got});
	}
	return true;
}

static void finish(struct child *child)
{
	struct children *set = child->set;
	struct child_exit how = child->how;
	const struct child_events *events = child->options.events;
	void *ctx = child->options.ctx;

	(void)waitpid(child->pid, NULL, WNOHANG);
	close_stdin(child);
	watch_close(&child->err);
	watch_close(&child->out);
	timer_stop(child->timer);
	for (size_t i = 0; i < set->count; i++) {
		if (set->list[i] != child)
			continue;
		set->list[i] = set->list[--set->count];
		break;
	}
	events->on_exit(ctx, &how); /* may destroy it */
}

/* The timer may come first, should we have stood still: what a dead one wrote is in its
 * pipes. A helper that escaped may write for ever, which is not waited for. */
static void read_rest(struct child *child)
{
	const struct child_events *events = child->options.events;

	if (child->out)
		(void)read_some(child->out->fd, events->on_stdout, child->options.ctx);
	if (child->err)
		(void)read_some(child->err->fd, events->on_stderr, child->options.ctx);
}

/* The one place where a child's state changes; each state arms what ends it. */
static void step(struct child *child, enum child_state state)
{
	child->state = state;
	switch (state) {
	case CHILD_RUNNING:
		return;
	case CHILD_CLOSING:
		close_stdin(child);
		timer_start(child->timer, CHILD_EOF_GRACE_MS);
		return;
	case CHILD_TERMINATING:
		(void)kill(-child->pid, SIGTERM);
		(void)kill(-child->pid, SIGCONT); /* a stopped one would never hear it */
		timer_start(child->timer, CHILD_TERM_GRACE_MS);
		return;
	case CHILD_KILLED:
		kill_tree(child);
		return; /* SIGCHLD brings the rest */
	case CHILD_DRAINING:
		close_stdin(child);
		timer_start(child->timer, child->out ? CHILD_DRAIN_MS : 0);
		return;
	case CHILD_DONE:
		kill_tree(child);
		read_rest(child);
		if (child->out) {
			watch_close(&child->out);
			child->options.events->on_stdout_end(child->options.ctx);
		}
		finish(child);
		return;
	}
}

static void on_timer(void *ctx)
{
	struct child *child = ctx;

	switch (child->state) {
	case CHILD_CLOSING:
		if (!child->how.asked)
			child->how.deaf = true; /* it lives, and had closed its stdin */
		if (child->how.deaf)
			log_warn("agent", "does not read its stdin: it is ended");
		step(child, CHILD_TERMINATING);
		return;
	case CHILD_TERMINATING:
		step(child, CHILD_KILLED);
		return;
	case CHILD_DRAINING:
		step(child, CHILD_DONE);
		return;
	case CHILD_RUNNING:
	case CHILD_KILLED:
	case CHILD_DONE:
		return;
	}
}

void child_stop(struct child *child)
{
	if (child->state != CHILD_RUNNING)
		return;
	child->how.asked = true;
	step(child, CHILD_CLOSING);
}

void child_kill(struct child *child)
{
	if (child->state >= CHILD_KILLED)
		return;
	child->how.asked = true;
	close_stdin(child);
	timer_stop(child->timer);
	step(child, CHILD_KILLED);
}

/* --- Reading --- */

static void on_stdout_ready(uv_poll_t *poll, int status, int events)
{
	struct watch *watch = poll->data;
	struct child *child = watch->child;

	(void)events;
	if (status == 0 &&
	    read_some(watch->fd, child->options.events->on_stdout, child->options.ctx))
		return;
	watch_close(&child->out);
	child->options.events->on_stdout_end(child->options.ctx);
	if (child->state == CHILD_DRAINING)
		timer_start(child->timer, 0);
}

static void on_stderr_ready(uv_poll_t *poll, int status, int events)
{
	struct watch *watch = poll->data;
	struct child *child = watch->child;

	(void)events;
	if (status != 0 ||
	    !read_some(watch->fd, child->options.events->on_stderr, child->options.ctx))
		watch_close(&child->err);
}

/* --- SIGCHLD --- */

static void look_after(struct child *child)
{
	siginfo_t info = {0};

	while (waitid(P_PID, (id_t)child->pid, &info, WSTOPPED | WCONTINUED | WNOHANG) ==
		       0 &&
	       info.si_pid != 0) {
		child->options.events->on_pause(child->options.ctx,
						info.si_code == CLD_STOPPED);
		info.si_pid = 0;
	}
	info = (siginfo_t){0};
	if (child->state >= CHILD_DRAINING ||
	    waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
	    info.si_pid == 0)
		return;
	child->how.by_signal = info.si_code != CLD_EXITED;
	child->how.code = info.si_status;
	step(child, CHILD_DRAINING);
}

static void on_child_signal(uv_signal_t *handle, int number)
{
	struct children *set = handle->data;
	pid_t spare[CHILDREN_MAX];
	size_t count;

	(void)number;
	for (size_t i = 0; i < set->count; i++)
		look_after(set->list[i]);
	count = others(set, NULL, spare);
	proctree_reap(spare, count);
}

struct children *children_create(struct loop *loop, struct err *err)
{
	struct children *set;

	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
		err_errno(err, "cannot become the subreaper of agents");
		return NULL;
	}
	set = mem_alloc(sizeof(*set));
	set->loop = loop;
	set->signal = mem_alloc(sizeof(*set->signal));
	set->signal->data = set;
	(void)uv_signal_init(loop->uv, set->signal);
	(void)uv_signal_start(set->signal, on_child_signal, SIGCHLD);
	return set;
}

void children_destroy(struct children *set)
{
	if (!set)
		return;
	assert(set->count == 0);
	(void)uv_signal_stop(set->signal);
	uv_close((uv_handle_t *)set->signal, free_handle);
	free(set);
}

/* --- Starting --- */

static struct slice path_of(char *const *environment)
{
	for (; *environment; environment++) {
		struct slice entry = slice_of(*environment);

		if (slice_starts(entry, SLICE("PATH=")))
			return slice_sub(entry, 5, entry.len);
	}
	return SLICE("/usr/local/bin:/usr/bin:/bin");
}

static bool is_program(const char *path)
{
	struct stat info;

	return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

/* The file that @name means, as a shell would find it. */
static bool find_program(const struct child_options *options, struct buf *out,
			 struct err *err)
{
	struct slice name = slice_of(options->argv[0]), path, folder;

	if (slice_find(name, '/') < name.len) {
		if (name.ptr[0] != '/')
			(void)buf_printf(out, "%s/", options->cwd);
		(void)buf_append(out, name);
		if (is_program(buf_text(out)))
			return true;
		return err_set(err, ERR_NOT_FOUND, "cannot run %.120s: %s",
			       options->argv[0],
			       access(buf_text(out), F_OK) == 0 ? "not an executable file"
								: "no such file");
	}
	path = path_of(options->environment);
	while (name.len > 0 && slice_take_until(&path, ':', &folder)) {
		buf_clear(out);
		(void)buf_append(out, folder.len > 0 ? folder : SLICE("."));
		(void)buf_lit(out, "/");
		(void)buf_append(out, name);
		if (buf_ok(out) && is_program(buf_text(out)))
			return true;
	}
	return err_set(
		err, ERR_NOT_FOUND,
		"cannot run %.120s: not found in PATH; install it or give its path",
		options->argv[0]);
}

/* In the new process, between fork and exec: only calls that are safe there. */
static void become(const char *program, const struct child_options *options,
		   const int ends[3], int report, int join_fd, pid_t parent)
{
	struct sigaction standard = {.sa_handler = SIG_DFL};
	sigset_t none;
	int error;

	(void)setsid();
	/* Should we die without a word, so does it. */
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(127);
	if (join_fd >= 0)
		(void)!write(join_fd, "0", 1);
	for (int number = 1; number < NSIG; number++)
		(void)sigaction(number, &standard, NULL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	for (int fd = 0; fd < 3; fd++) {
		if (dup2(ends[fd], fd) < 0)
			goto failed;
	}
	/* Whatever a library opened without O_CLOEXEC is none of its business. */
	(void)syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
	if (chdir(options->cwd) == 0)
		(void)execve(program, options->argv, options->environment);
failed:
	error = errno;
	(void)!write(report, &error, sizeof(error));
	_exit(127);
}

/* The environment that it gets: @environment and @mark. The list is to be freed. */
static char **with_mark(char *const *environment, char *mark)
{
	size_t count = 0;
	char **list;

	while (environment[count])
		count++;
	list = mem_array(count + 2, sizeof(*list));
	list[0] = mark;
	for (size_t i = 0; i < count; i++)
		list[i + 1] = environment[i];
	return list;
}

static void make_mark(char out[sizeof(CHILD_MARK "=") + CHILD_MARK_LEN])
{
	uint8_t bytes[CHILD_MARK_LEN / 2];
	char hex[CHILD_MARK_LEN + 1] = "";

	loop_random(bytes, sizeof(bytes));
	hex_encode(bytes, sizeof(bytes), hex);
	(void)snprintf(out, sizeof(CHILD_MARK "=") + CHILD_MARK_LEN, CHILD_MARK "=%s",
		       hex);
}

static void close_pair(int pair[2])
{
	for (int i = 0; i < 2; i++) {
		if (pair[i] >= 0)
			(void)close(pair[i]);
		pair[i] = -1;
	}
}

/* A pipe whose ends are none of the three that the child's go to, even when somebody
 * started us with one of those closed. */
static bool make_pipe(int pair[2], struct err *err)
{
	if (pipe2(pair, O_CLOEXEC) != 0)
		return err_errno(err, "cannot make a pipe");
	for (int i = 0; i < 2; i++) {
		int low = pair[i];

		if (low > STDERR_FILENO)
			continue;
		pair[i] = fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		(void)close(low);
		if (pair[i] < 0)
			return err_errno(err, "cannot make a pipe");
	}
	return true;
}

/* Forks; false with the reason when exec did not happen. */
static bool launch(const char *program, const struct child_options *options,
		   int pipes[3][2], int join_fd, pid_t *pid_out, struct err *err)
{
	int ends[3] = {pipes[0][0], pipes[1][1], pipes[2][1]};
	int report[2] = {-1, -1}, error = 0;
	pid_t parent = getpid(), pid;
	ssize_t got;

	if (!make_pipe(report, err)) {
		close_pair(report);
		return false;
	}
	pid = fork();
	if (pid == 0)
		become(program, options, ends, report[1], join_fd, parent);
	(void)close(report[1]);
	if (pid < 0) {
		(void)close(report[0]);
		return err_errno(err, "cannot start a process");
	}
	do
		got = read(report[0], &error, sizeof(error));
	while (got < 0 && errno == EINTR);
	(void)close(report[0]);
	if (got == 0) {
		*pid_out = pid;
		return true;
	}
	(void)waitpid(pid, NULL, 0);
	errno = error;
	return err_errno(err, "cannot run %.100s in %.60s", program, options->cwd);
}

struct child *child_spawn(struct children *set, const struct child_options *options,
			  struct err *err)
{
	int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
	char mark[sizeof(CHILD_MARK "=") + CHILD_MARK_LEN];
	struct child_options marked = *options;
	struct child *child = NULL;
	struct cgroup *group;
	char **environment;
	struct buf program;
	pid_t pid = 0;

	assert(set->count < CHILDREN_MAX);
	make_mark(mark);
	marked.environment = environment = with_mark(options->environment, mark);
	buf_init(&program, 64u << 10);
	if (!find_program(options, &program, err))
		goto out;
	for (int i = 0; i < 3; i++) {
		if (!make_pipe(pipes[i], err))
			goto out;
	}
	group = cgroup_create();
	if (!launch(buf_text(&program), &marked, pipes, cgroup_join_fd(group), &pid,
		    err)) {
		cgroup_destroy(group);
		goto out;
	}
	child = mem_alloc(sizeof(*child));
	*child = (struct child){
		.set = set, .options = *options, .pid = pid, .group = group};
	memcpy(child->mark, mark, sizeof(child->mark));
	child->last = &child->first;
	child->timer = timer_create_on(set->loop, on_timer, child);
	child->in = watch_open(set->loop, pipes[0][1], child);
	child->out = watch_open(set->loop, pipes[1][0], child);
	child->err = watch_open(set->loop, pipes[2][0], child);
	pipes[0][1] = pipes[1][0] = pipes[2][0] = -1;
	assert(child->in && child->out && child->err); /* a pipe can always be polled */
	set->list[set->count++] = child;
	(void)uv_poll_start(&child->out->poll, UV_READABLE, on_stdout_ready);
	(void)uv_poll_start(&child->err->poll, UV_READABLE, on_stderr_ready);
	look_after(child); /* its SIGCHLD may have come before we knew it */
out:
	for (int i = 0; i < 3; i++)
		close_pair(pipes[i]);
	buf_finish(&program);
	free(environment);
	return child;
}

pid_t child_pid(const struct child *child)
{
	return child->pid;
}

void child_destroy(struct child *child)
{
	struct children *set;

	if (!child)
		return;
	set = child->set;
	for (size_t i = 0; i < set->count; i++) {
		if (set->list[i] != child)
			continue;
		kill_tree(child);
		(void)waitpid(child->pid, NULL, 0);
		set->list[i] = set->list[--set->count];
		break;
	}
	close_stdin(child);
	watch_close(&child->out);
	watch_close(&child->err);
	timer_destroy(child->timer);
	cgroup_destroy(child->group);
	free(child);
}
