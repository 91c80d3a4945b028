#include "agent/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* A command's helpers may hold its output open after it has ended: so long they are
 * listened to. As CHILD_DRAIN_MS of an agent. */
#define HELPERS_MS 500
/* How often an ending is looked at. */
#define LOOK_MS 10
/* How often a watcher that missed something is told so, while nothing else comes. */
#define LOST_MS 100
/* How long the last word to the watcher is tried, should its socket be full. */
#define LAST_WORD_MS 100
/* Exit statuses of shells. */
#define STATUS_CANNOT_RUN 126
#define STATUS_NOT_FOUND 127
#define STATUS_SIGNAL 128

/* What is passed on; SIGTSTP, SIGCONT and the like reach the command by themselves, which
 * is of our process group. */
static const int passed[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
			     SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH};
#define PASSED_COUNT (sizeof(passed) / sizeof(*passed))

/* One direction. */
struct stream {
	struct pump *pump;
	pthread_t thread;
	int from, to; /* closed at the end of the stream */
	enum pump_kind kind;
	bool is_terminal; /* to is a pty: its end is a character */
	atomic_bool idle; /* waits for bytes */
	atomic_bool done;
	uint32_t lost_lines, lost, lost_line_end;
	char last; /* byte that was carried */
	char bytes[PUMP_BLOCK_BYTES];
};

struct pump {
	const struct pump_options *options;
	struct stream streams[PUMP_DATA_KINDS];
	size_t stream_count;
	pthread_t listener;
	atomic_bool unwatched; /* the watcher is gone */
	atomic_bool up;        /* its relay takes what it sends */
	atomic_bool done;      /* it has sent all */
	pid_t child;
	int master; /* of the pty, or -1 */
	struct termios terminal;
	bool terminal_changed;
	sigset_t blocked, original;
};

/* --- Towards the watcher --- */

static bool send_head(struct pump *pump, const struct pump_head *head, const char *bytes,
		      size_t len)
{
	struct pump_head copy = *head;
	struct iovec parts[2] = {
		{.iov_base = &copy, .iov_len = sizeof(copy)},
		{.iov_len = len},
	};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = len ? 2 : 1};

	memcpy(&parts[1].iov_base, &bytes, sizeof(bytes)); /* iovec knows no const */
	if (pump->options->watcher_fd < 0 || atomic_load(&pump->unwatched))
		return false;
	if (sendmsg(pump->options->watcher_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >=
	    0)
		return true;
	if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
		atomic_store(&pump->unwatched, true);
	return false;
}

/* The bytes of the last read, and what was dropped before. */
static bool send_block(struct stream *stream, size_t len)
{
	const struct pump_head head = {
		.kind = stream->kind,
		.lost_lines = stream->lost_lines,
		.lost = stream->lost,
		.lost_line_end = stream->lost_line_end,
	};

	if (!send_head(stream->pump, &head, stream->bytes, len))
		return false;
	stream->lost_lines = stream->lost = stream->lost_line_end = 0;
	return true;
}

/* Before the bytes go on: an answer to them must not be seen first. */
static void show(struct stream *stream, size_t len)
{
	const char *at = stream->bytes, *const end = stream->bytes + len;

	if (send_block(stream, len))
		return;
	stream->lost = 1;
	stream->lost_line_end = stream->bytes[len - 1] == '\n';
	while ((at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
		stream->lost_lines++;
		at++;
	}
}

static void tell(struct pump *pump, enum pump_kind kind, int64_t number)
{
	const struct pump_head head = {.kind = kind, .number = number};
	const struct timespec pause = {.tv_nsec = 1000000};

	for (int i = 0; i < LAST_WORD_MS; i++) {
		if (send_head(pump, &head, NULL, 0) || atomic_load(&pump->unwatched) ||
		    pump->options->watcher_fd < 0)
			return;
		(void)nanosleep(&pause, NULL);
	}
}

/* What the watcher says. */
static void *listen_to_watcher(void *ctx)
{
	struct pump *pump = ctx;
	char text[PUMP_SAY_BYTES + 1];
	ssize_t len;

	for (;;) {
		len = recv(pump->options->watcher_fd, text, sizeof(text), 0);
		if (len < 0 && errno == EINTR)
			continue;
		if (len <= 0)
			break;
		switch (text[0]) {
		case PUMP_UP:
			atomic_store(&pump->up, true);
			break;
		case PUMP_DOWN:
			atomic_store(&pump->up, false);
			break;
		case PUMP_DONE:
			atomic_store(&pump->done, true);
			break;
		case PUMP_SAY:
			(void)!write(STDERR_FILENO, text + 1, (size_t)len - 1);
			break;
		}
	}
	atomic_store(&pump->unwatched, true);
	return NULL;
}

/* --- One direction --- */

static bool write_all(int fd, const char *bytes, size_t len)
{
	struct pollfd ready = {.fd = fd, .events = POLLOUT};
	ssize_t put;

	while (len > 0) {
		put = write(fd, bytes, len);
		if (put >= 0) {
			bytes += put;
			len -= (size_t)put;
		} else if (errno == EAGAIN) { /* someone else made it non-blocking */
			(void)poll(&ready, 1, -1);
		} else if (errno != EINTR) {
			return false;
		}
	}
	return true;
}

/* Waits for bytes, or their end. False when nobody will take them any more: whoever
 * writes them is to notice, as without us. */
static bool wait_for_bytes(struct stream *stream)
{
	struct pollfd fds[2] = {
		{.fd = stream->from, .events = POLLIN},
		{.fd = stream->to, .events = 0},
	};

	for (;;) {
		const bool lost = stream->lost && !atomic_load(&stream->pump->unwatched);
		const int ready = poll(fds, 2, lost ? LOST_MS : -1);

		if (ready == 0)
			(void)send_block(stream, 0);
		if (ready <= 0)
			continue; /* EINTR; nothing else can happen to two open files */
		if (fds[0].revents)
			return true;
		if (fds[1].revents)
			return false;
	}
}

static void *carry(void *ctx)
{
	/* A terminal's end of file: one when a line has just ended, else another that
	 * lets the unfinished line go. */
	static const char end_of_file[2] = {4, 4};
	struct stream *stream = ctx;
	ssize_t len;

	for (;;) {
		atomic_store(&stream->idle, true);
		if (!wait_for_bytes(stream))
			break;
		atomic_store(&stream->idle, false);
		len = read(stream->from, stream->bytes, sizeof(stream->bytes));
		if (len < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (len <= 0) /* EIO is a pty's end */
			break;
		stream->last = stream->bytes[len - 1];
		show(stream, (size_t)len);
		if (!write_all(stream->to, stream->bytes, (size_t)len))
			break;
	}
	if (stream->is_terminal)
		(void)write_all(stream->to, end_of_file, stream->last == '\n' ? 1 : 2);
	else if (stream->to != STDERR_FILENO) /* which we may need ourselves */
		(void)close(stream->to);
	if (stream->from != stream->pump->master)
		(void)close(stream->from);
	atomic_store(&stream->done, true);
	return NULL;
}

static void add_stream(struct pump *pump, enum pump_kind kind, int from, int to)
{
	struct stream *stream = &pump->streams[pump->stream_count++];

	stream->pump = pump;
	stream->kind = kind;
	stream->from = from;
	stream->to = to;
	stream->is_terminal = to == pump->master;
	stream->last = '\n';
}

/* Has all been carried that is there? Looks at the bytes first: those that were there
 * before it looked at the state make the stream busy. */
static bool is_settled(struct stream *stream)
{
	int waiting = 0;

	if (stream->kind == PUMP_STDIN || atomic_load(&stream->done))
		return true;
	if (ioctl(stream->from, FIONREAD, &waiting) == 0 && waiting > 0)
		return false;
	return atomic_load(&stream->idle);
}

static bool all_done(struct pump *pump)
{
	for (size_t i = 0; i < pump->stream_count; i++)
		if (pump->streams[i].kind != PUMP_STDIN &&
		    !atomic_load(&pump->streams[i].done))
			return false;
	return true;
}

static bool all_settled(struct pump *pump)
{
	for (size_t i = 0; i < pump->stream_count; i++)
		if (!is_settled(&pump->streams[i]))
			return false;
	return true;
}

/* --- The command --- */

/* What the command is given. */
struct ends {
	int in, out, err; /* -1: ours */
	int report;       /* takes errno when it cannot be run */
};

static _Noreturn void exec_child(const struct pump *pump, const struct ends *ends,
				 pid_t parent)
{
	const struct pump_options *options = pump->options;
	const int from[3] = {ends->in, ends->out, ends->err};
	int why;

	/* Should we be killed, so is the command, as it would have been without us. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(STATUS_NOT_FOUND);
	if (options->pty && (setsid() < 0 || ioctl(ends->in, TIOCSCTTY, 0) < 0))
		goto out;
	for (int fd = 0; fd < 3; fd++)
		if (from[fd] >= 0 && dup2(from[fd], fd) < 0)
			goto out;
	(void)sigprocmask(SIG_SETMASK, &pump->original, NULL);
	if (options->cwd && chdir(options->cwd) < 0)
		goto out;
	(void)execvpe(options->argv[0], options->argv, options->environment);
out:
	why = errno;
	(void)!write(ends->report, &why, sizeof(why));
	_exit(STATUS_NOT_FOUND);
}

static void close_if(int fd)
{
	if (fd >= 0)
		(void)close(fd);
}

static int cannot_run(const struct pump *pump, int why)
{
	(void)fprintf(stderr, "%s: cannot run %.200s: %s\n", pump->options->command,
		      pump->options->argv[0], strerror(why));
	return why == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN;
}

/* Returns 0, or errno. */
static int spawn(struct pump *pump, const struct ends *given)
{
	struct ends ends = *given;
	const pid_t self = getpid();
	int report[2], why = 0;
	ssize_t len;

	if (pipe2(report, O_CLOEXEC) < 0)
		return errno;
	ends.report = report[1];
	pump->child = fork();
	if (pump->child == 0)
		exec_child(pump, &ends, self);
	(void)close(report[1]);
	if (pump->child < 0) {
		why = errno;
	} else {
		do
			len = read(report[0], &why, sizeof(why));
		while (len < 0 && errno == EINTR);
		if (len == (ssize_t)sizeof(why)) {
			(void)waitpid(pump->child, NULL, 0);
			pump->child = -1;
		} else {
			why = 0;
		}
	}
	(void)close(report[0]);
	return why;
}

/* Without a terminal: a pipe for each stream that is carried. */
static int start_on_pipes(struct pump *pump)
{
	int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, why;
	struct ends ends;

	if ((pump->options->carry_stdin && pipe2(in, O_CLOEXEC) < 0) ||
	    pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
		return errno;
	ends = (struct ends){.in = in[0], .out = out[1], .err = err[1]};
	why = spawn(pump, &ends);
	close_if(in[0]);
	close_if(out[1]);
	close_if(err[1]);
	if (why)
		return why;
	if (pump->options->carry_stdin)
		add_stream(pump, PUMP_STDIN, STDIN_FILENO, in[1]);
	add_stream(pump, PUMP_STDOUT, out[0], STDOUT_FILENO);
	add_stream(pump, PUMP_STDERR, err[0], STDERR_FILENO);
	return 0;
}

/* The size of our own terminal, should we have one. */
static void copy_size(const struct pump *pump)
{
	struct winsize size;

	for (int fd = 0; fd < 3; fd++) {
		if (ioctl(fd, TIOCGWINSZ, &size) == 0) {
			(void)ioctl(pump->master, TIOCSWINSZ, &size);
			return;
		}
	}
}

/* Our terminal hands every key on; the command's own makes lines and signals of them. */
static void make_raw(struct pump *pump)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &pump->terminal) < 0)
		return;
	raw = pump->terminal;
	cfmakeraw(&raw);
	pump->terminal_changed = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

static int start_on_terminal(struct pump *pump)
{
	struct ends ends;
	int slave, why;

	if (openpty(&pump->master, &slave, NULL, NULL, NULL) < 0)
		return errno;
	(void)fcntl(pump->master, F_SETFD, FD_CLOEXEC);
	(void)fcntl(slave, F_SETFD, FD_CLOEXEC);
	copy_size(pump);
	ends = (struct ends){.in = slave, .out = slave, .err = slave};
	why = spawn(pump, &ends);
	(void)close(slave);
	if (why)
		return why;
	make_raw(pump);
	add_stream(pump, PUMP_STDIN, STDIN_FILENO, pump->master);
	add_stream(pump, PUMP_STDOUT, pump->master, STDOUT_FILENO);
	return 0;
}

/* --- Signals, and the end --- */

/* What was ignored stays so (nohup), for us and for the command. */
static void block_signals(struct pump *pump)
{
	struct sigaction action;

	(void)sigemptyset(&pump->blocked);
	(void)sigaddset(&pump->blocked, SIGCHLD);
	for (size_t i = 0; i < PASSED_COUNT; i++)
		if (sigaction(passed[i], NULL, &action) == 0 &&
		    action.sa_handler != SIG_IGN)
			(void)sigaddset(&pump->blocked, passed[i]);
	/* A write nobody reads is an error that stream deals with. The command has the
	 * disposition that we were given: a blocked signal needs none. */
	(void)sigaddset(&pump->blocked, SIGPIPE);
	(void)sigprocmask(SIG_BLOCK, &pump->blocked, &pump->original);
	(void)sigdelset(&pump->blocked, SIGPIPE);
}

static void pass_on(struct pump *pump, const siginfo_t *info)
{
	if (info->si_signo == SIGWINCH && pump->master >= 0) {
		copy_size(pump); /* which sends the signal there */
		return;
	}
	/* From the terminal the command has it already, unless it has its own; that the
	 * terminal has gone only the leader of its session is told. */
	if (info->si_code == SI_KERNEL && pump->master < 0 &&
	    (info->si_signo != SIGHUP || getsid(0) != getpid()))
		return;
	(void)kill(pump->child, info->si_signo);
}

static int64_t now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The next signal within LOOK_MS, or (@wait) ever. False: none. */
static bool next_signal(struct pump *pump, bool wait, siginfo_t *info)
{
	const struct timespec look = {.tv_nsec = LOOK_MS * 1000000};

	for (;;) {
		int got = wait ? sigwaitinfo(&pump->blocked, info)
			       : sigtimedwait(&pump->blocked, info, &look);

		if (got > 0)
			return true;
		if (errno == EAGAIN)
			return false;
	}
}

static bool is_request_to_end(int number)
{
	return number == SIGTERM || number == SIGINT || number == SIGHUP ||
	       number == SIGQUIT;
}

/* Returns its wait status. */
static int wait_for_child(struct pump *pump)
{
	siginfo_t info;
	int status;

	for (;;) {
		if (!next_signal(pump, true, &info))
			continue;
		if (info.si_signo != SIGCHLD) {
			pass_on(pump, &info);
			continue;
		}
		/* The watcher's end is one too, and signals do not queue. */
		if (waitpid(pump->child, &status, WNOHANG) == pump->child)
			return status;
	}
}

/* What the command has written goes to whoever reads it, however long they take; a
 * request to end ends that. */
static void finish_streams(struct pump *pump)
{
	const int64_t until_ms = now_ms() + HELPERS_MS;
	siginfo_t info;

	while (!all_done(pump) && (now_ms() < until_ms || !all_settled(pump)))
		if (next_signal(pump, false, &info) && is_request_to_end(info.si_signo))
			return;
}

/* The rest of the feed leaves, if it can. */
static void finish_watcher(struct pump *pump)
{
	const struct pump_options *options = pump->options;
	const int64_t start_ms = now_ms();
	siginfo_t info;

	if (options->drain_up_ms == 0)
		return;
	while (!atomic_load(&pump->unwatched) && !atomic_load(&pump->done) &&
	       now_ms() - start_ms < (atomic_load(&pump->up) ? options->drain_up_ms
							     : options->drain_down_ms))
		if (next_signal(pump, false, &info) && is_request_to_end(info.si_signo))
			return;
}

static bool start_threads(struct pump *pump)
{
	bool ok = true;

	for (size_t i = 0; i < pump->stream_count; i++)
		ok = pthread_create(&pump->streams[i].thread, NULL, carry,
				    &pump->streams[i]) == 0 &&
		     ok;
	if (pump->options->watcher_fd >= 0)
		(void)pthread_create(&pump->listener, NULL, listen_to_watcher, pump);
	return ok;
}

int pump_run(const struct pump_options *options)
{
	static struct pump pump; /* its threads outlive this call */
	int status, why;

	pump.options = options;
	pump.master = -1;
	block_signals(&pump);
	why = options->pty ? start_on_terminal(&pump) : start_on_pipes(&pump);
	if (why)
		return cannot_run(&pump, why);
	tell(&pump, PUMP_STARTED, pump.child);
	if (!start_threads(&pump)) {
		(void)kill(pump.child, SIGKILL);
		return cannot_run(&pump, EAGAIN);
	}
	status = wait_for_child(&pump);
	finish_streams(&pump);
	if (pump.terminal_changed)
		(void)tcsetattr(STDIN_FILENO, TCSADRAIN, &pump.terminal);
	tell(&pump, PUMP_EXITED, status);
	if (options->watcher_fd >= 0)
		(void)shutdown(options->watcher_fd, SHUT_WR);
	finish_watcher(&pump);
	return WIFSIGNALED(status) ? STATUS_SIGNAL + WTERMSIG(status)
				   : WEXITSTATUS(status);
}
