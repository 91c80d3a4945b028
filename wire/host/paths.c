#include "wire/host/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/base/mem.h"

/* An environment variable that holds an absolute path. XDG Base Directory Specification:
 * "If an implementation encounters a relative path in any of these variables it should
 * consider the path invalid and ignore it." */
static const char *env_path(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && value[0] == '/' ? value : NULL;
}

static const char *home(void)
{
	const char *path = env_path("HOME");
	const struct passwd *user;

	if (path != NULL)
		return path;
	user = getpwuid(getuid());
	return user != NULL ? user->pw_dir : NULL;
}

/* @base/@middle[/@name] */
static bool join(const char *base, const char *middle, struct slice name, struct buf *out,
		 struct err *err)
{
	buf_clear(out);
	buf_append(out, slice_of(base));
	buf_append(out, slice_of(middle));
	if (name.len > 0) {
		buf_append_byte(out, '/');
		buf_append(out, name);
	}
	if (!buf_ok(out))
		return err_set(err, ERR_TOO_LARGE, "the path of \"%.60s\" is too long",
			       base);
	(void)buf_text(out);
	return true;
}

/* In the folder that @variable names, else in @fallback below the home folder. */
static bool xdg(const char *variable, const char *fallback, struct slice name,
		struct buf *out, struct err *err)
{
	const char *base = env_path(variable);

	if (base != NULL)
		return join(base, "/perch", name, out, err);
	base = home();
	if (base == NULL)
		return err_set(err, ERR_NOT_FOUND,
			       "there is no home folder: set HOME or PERCH_HOME");
	return join(base, fallback, name, out, err);
}

bool paths_data(struct slice name, struct buf *out, struct err *err)
{
	const char *perch_home = getenv("PERCH_HOME");

	if (perch_home == NULL || perch_home[0] == '\0')
		return xdg("XDG_DATA_HOME", "/.local/share/perch", name, out, err);
	if (perch_home[0] != '/')
		return err_set(err, ERR_MALFORMED,
			       "PERCH_HOME takes an absolute path, got \"%.60s\"",
			       perch_home);
	return join(perch_home, "", name, out, err);
}

bool paths_config(struct slice name, struct buf *out, struct err *err)
{
	const char *perch_home = getenv("PERCH_HOME");

	if (perch_home != NULL && perch_home[0] != '\0')
		return paths_data(name, out, err);
	return xdg("XDG_CONFIG_HOME", "/.config/perch", name, out, err);
}

bool paths_run(struct slice name, struct buf *out, struct err *err)
{
	const char *runtime = env_path("XDG_RUNTIME_DIR");
	const char *perch_home = getenv("PERCH_HOME");
	struct buf tail;
	bool ok;

	if (runtime != NULL && (perch_home == NULL || perch_home[0] == '\0'))
		return join(runtime, "/perch", name, out, err);
	buf_init(&tail, name.len + sizeof("run/"));
	buf_lit(&tail, "run");
	if (name.len > 0) {
		buf_append_byte(&tail, '/');
		buf_append(&tail, name);
	}
	ok = paths_data(buf_slice(&tail), out, err);
	buf_finish(&tail);
	return ok;
}

static bool make_folder(const char *path, struct err *err)
{
	struct stat info;

	if (mkdir(path, 0700) == 0)
		return true;
	if (errno != EEXIST)
		return err_errno(err, "cannot make the folder %s", path);
	if (stat(path, &info) < 0)
		return err_errno(err, "cannot look at %s", path);
	if (!S_ISDIR(info.st_mode))
		return err_set(err, ERR_SYSTEM, "%s is no folder", path);
	return true;
}

bool paths_make(const char *path, struct err *err)
{
	char *prefix = mem_dup(slice_of(path));
	bool ok = true;

	/* An ancestor that is there may be one we could not make (mkdir: EROFS, EACCES).
	 */
	for (char *at = strchr(prefix + 1, '/'); ok && at != NULL;
	     at = strchr(at + 1, '/')) {
		*at = '\0';
		ok = access(prefix, F_OK) == 0 || make_folder(prefix, err);
		*at = '/';
	}
	ok = ok && make_folder(prefix, err);
	free(prefix);
	return ok;
}

static bool read_all(int fd, const char *path, struct buf *out, struct err *err)
{
	for (;;) {
		char piece[16384];
		ssize_t got = read(fd, piece, sizeof(piece));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_errno(err, "cannot read %s", path);
		if (got == 0)
			return true;
		if (!buf_append(out, (struct slice){piece, (size_t)got}))
			return err_set(err, ERR_TOO_LARGE, "%s is over %zu bytes", path,
				       out->max);
	}
}

bool paths_read(const char *path, struct buf *out, struct err *err)
{
	/* Not blocking: what looks like a file may be a FIFO without a writer. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat info;
	bool ok = false;

	buf_clear(out);
	if (fd < 0 && errno == ENOENT)
		return err_set(err, ERR_NOT_FOUND, "there is no file %s", path);
	if (fd < 0)
		return err_errno(err, "cannot open %s", path);
	if (fstat(fd, &info) < 0)
		(void)err_errno(err, "cannot look at %s", path);
	else if (!S_ISREG(info.st_mode))
		(void)err_set(err, ERR_SYSTEM, "%s is no regular file", path);
	else
		ok = read_all(fd, path, out, err);
	(void)close(fd);
	return ok;
}

static bool write_all(int fd, struct slice bytes)
{
	while (bytes.len > 0) {
		ssize_t put = write(fd, bytes.ptr, bytes.len);

		if (put < 0 && errno != EINTR)
			return false;
		if (put > 0)
			bytes = slice_sub(bytes, (size_t)put, bytes.len);
	}
	return true;
}

/* So that the new name survives a power cut. */
static bool sync_folder_of(const char *path)
{
	char *folder = mem_dup(slice_of(path));
	char *slash = strrchr(folder, '/');
	bool ok;
	int fd;

	if (slash != NULL)
		slash[slash == folder ? 1 : 0] = '\0';
	fd = open(slash != NULL ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ok = fd >= 0 && fsync(fd) == 0;
	if (fd >= 0)
		(void)close(fd);
	free(folder);
	return ok;
}

bool paths_write(const char *path, struct slice bytes, struct err *err)
{
	struct buf temporary;
	char *name;
	bool ok;
	int fd;

	buf_init(&temporary, strlen(path) + sizeof(".XXXXXX"));
	buf_append(&temporary, slice_of(path));
	buf_lit(&temporary, ".XXXXXX");
	(void)buf_text(&temporary);
	name = temporary.ptr;
	fd = mkostemp(name, O_CLOEXEC); /* mode 0600 */
	ok = fd >= 0 && write_all(fd, bytes) && fsync(fd) == 0 &&
	     rename(name, path) == 0 && sync_folder_of(path);
	if (!ok) {
		(void)err_errno(err, "cannot write %s", path);
		if (fd >= 0)
			(void)unlink(name);
	}
	if (fd >= 0)
		(void)close(fd);
	buf_finish(&temporary);
	return ok;
}

static long read_pid(int fd)
{
	char text[24];
	ssize_t got = pread(fd, text, sizeof(text), 0);
	uint64_t pid;

	if (got <= 0 || !slice_parse_u64(slice_trim((struct slice){text, (size_t)got}),
					 INT32_MAX, &pid))
		return 0;
	return (long)pid;
}

int paths_lock(const char *path, long *pid_out, struct err *err)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	char text[24];
	int len;

	if (fd < 0) {
		(void)err_errno(err, "cannot open the lock %s", path);
		return -1;
	}
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno == EWOULDBLOCK) {
			*pid_out = read_pid(fd);
			(void)err_set(err, ERR_REFUSED, "%s is locked by process %ld",
				      path, *pid_out);
		} else {
			(void)err_errno(err, "cannot lock %s", path);
		}
		(void)close(fd);
		return -1;
	}
	len = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)len, 0) != len) {
		(void)err_errno(err, "cannot write the lock %s", path);
		(void)close(fd);
		return -1;
	}
	return fd;
}
