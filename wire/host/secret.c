#include "wire/host/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <sodium.h>

#include "wire/host/paths.h"

#define PASSPHRASE_BYTES_MAX 1024

/* A terminal that echoes nothing, and signals held back until it does again. */
struct quiet {
	bool is_terminal;
	struct termios before;
	sigset_t mask_before;
	int signal_fd;
};

static bool quiet_begin(struct quiet *quiet, int fd, const char *prompt)
{
	struct termios silent;
	sigset_t deadly;

	quiet->signal_fd = -1;
	quiet->is_terminal = tcgetattr(fd, &quiet->before) == 0;
	if (!quiet->is_terminal)
		return true;
	(void)sigemptyset(&deadly);
	(void)sigaddset(&deadly, SIGINT);
	(void)sigaddset(&deadly, SIGTERM);
	(void)sigaddset(&deadly, SIGHUP);
	(void)sigaddset(&deadly, SIGQUIT);
	(void)sigprocmask(SIG_BLOCK, &deadly, &quiet->mask_before);
	quiet->signal_fd = signalfd(-1, &deadly, SFD_CLOEXEC);
	silent = quiet->before;
	silent.c_lflag &= ~(tcflag_t)ECHO;
	silent.c_lflag |= ECHONL;
	(void)tcsetattr(fd, TCSADRAIN, &silent);
	return write(STDERR_FILENO, prompt, strlen(prompt)) >= 0 || errno != EBADF;
}

/* A signal that came meanwhile is taken now, as if we had not been here. */
static void quiet_end(const struct quiet *quiet, int fd)
{
	if (!quiet->is_terminal)
		return;
	(void)tcsetattr(fd, TCSADRAIN, &quiet->before);
	if (quiet->signal_fd >= 0)
		(void)close(quiet->signal_fd);
	(void)sigprocmask(SIG_SETMASK, &quiet->mask_before, NULL);
}

/* Waits for a byte; false when a signal came instead. */
static bool wait_for_byte(const struct quiet *quiet, int fd)
{
	struct pollfd polls[2] = {{.fd = fd, .events = POLLIN},
				  {.fd = quiet->signal_fd, .events = POLLIN}};

	while (poll(polls, 2, -1) < 0)
		if (errno != EINTR)
			return true; /* read() will say what is wrong */
	return (polls[1].revents & POLLIN) == 0;
}

static bool read_line(const struct quiet *quiet, int fd, struct buf *out, struct err *err)
{
	for (;;) {
		char byte;
		ssize_t got;

		if (!wait_for_byte(quiet, fd))
			return err_set(err, ERR_REFUSED, "interrupted");
		got = read(fd, &byte, 1);
		if (got < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (got < 0)
			return err_errno(err, "cannot read descriptor %d", fd);
		if (got == 0 && out->len == 0)
			return err_set(err, ERR_NOT_FOUND, "nothing came");
		if (got == 0 || byte == '\n')
			return true;
		if (!buf_append_byte(out, byte))
			return err_set(err, ERR_TOO_LARGE,
				       "that line is over %zu characters", out->max);
	}
}

bool secret_line(int fd, const char *prompt, struct buf *out, struct err *err)
{
	struct quiet quiet;
	bool ok;

	buf_clear(out);
	(void)quiet_begin(&quiet, fd, prompt);
	ok = read_line(&quiet, fd, out, err);
	quiet_end(&quiet, fd);
	if (ok && out->len > 0 && out->ptr[out->len - 1] == '\r')
		buf_truncate(out, out->len - 1);
	return ok;
}

bool secret_file(const char *path, struct buf *out, struct err *err)
{
	struct slice rest, line = SLICE_EMPTY;
	struct stat info;

	if (stat(path, &info) == 0 && (info.st_mode & 077) != 0)
		return err_set(err, ERR_REFUSED,
			       "%.120s can be read by others: run chmod 600 on it", path);
	if (!paths_read(path, out, err))
		return false;
	rest = buf_slice(out);
	(void)slice_take_until(&rest, '\n', &line);
	if (line.len > 0 && line.ptr[line.len - 1] == '\r')
		line.len--;
	if (line.len == 0)
		return err_set(err, ERR_MALFORMED, "the file %.120s is empty", path);
	buf_truncate(out, line.len);
	return true;
}

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && value[0] != '\0' ? value : NULL;
}

static bool from_descriptor(const char *number, struct buf *out, struct err *err)
{
	uint64_t fd;

	if (!slice_parse_u64(slice_of(number), 1U << 20, &fd))
		return err_set(err, ERR_MALFORMED,
			       "PERCH_PASSPHRASE_FD takes a number, got \"%.20s\"",
			       number);
	return secret_line((int)fd, "", out, err);
}

static bool from_terminal(int fd, const char *prompt, bool twice, struct buf *out,
			  struct err *err)
{
	struct buf again;
	bool ok;

	if (!secret_line(fd, prompt, out, err))
		return false;
	if (!twice)
		return true;
	buf_init(&again, out->max);
	ok = secret_line(fd, "Once more: ", &again, err);
	if (ok && (again.len != out->len ||
		   (out->len && sodium_memcmp(again.ptr, out->ptr, out->len) != 0)))
		ok = err_set(err, ERR_REFUSED, "the two passphrases differ");
	buf_wipe(&again);
	return ok;
}

bool secret_passphrase(const char *file, const char *prompt, bool twice, struct buf *out,
		       struct err *err)
{
	bool ok;
	int fd;

	if (!file)
		file = variable("PERCH_PASSPHRASE_FILE");
	buf_clear(out);
	out->max = PASSPHRASE_BYTES_MAX;
	if (file) {
		ok = secret_file(file, out, err);
	} else if (variable("PERCH_PASSPHRASE_FD")) {
		ok = from_descriptor(variable("PERCH_PASSPHRASE_FD"), out, err);
	} else {
		fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
		if (fd < 0)
			return err_set(err, ERR_REFUSED,
				       "there is no terminal to ask for the passphrase: "
				       "name a file with it (mode 0600) in "
				       "PERCH_PASSPHRASE_FILE");
		ok = from_terminal(fd, prompt, twice, out, err);
		(void)close(fd);
	}
	if (ok && out->len == 0)
		ok = err_set(err, ERR_MALFORMED, "the passphrase is empty");
	return ok;
}
