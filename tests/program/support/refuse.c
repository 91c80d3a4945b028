/* Stands before the C library (LD_PRELOAD) and lets the system refuse what no test can
 * make it refuse for one process. In the folder $PERCH_REFUSE a file "writes" means that
 * regular files cannot be written, as on a file system that has turned read-only under
 * its users, a file "files" that no descriptor can be had, because others have them
 * all, and a file "threads" that no thread can be had but for what the first does. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static bool refuses(const char *what)
{
	const char *folder = getenv("PERCH_REFUSE");
	const int saved = errno;
	char path[PATH_MAX];
	bool found;

	if (!folder)
		return false;
	(void)snprintf(path, sizeof(path), "%s/%s", folder, what);
	found = access(path, F_OK) == 0;
	errno = saved;
	return found;
}

static bool refuses_write(int fd)
{
	struct stat status;

	if (!refuses("writes") || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
		return false;
	errno = EROFS;
	return true;
}

static bool refuses_file(void)
{
	if (!refuses("files"))
		return false;
	errno = ENFILE;
	return true;
}

/* The function behind ours; its type is the variable's. */
#define NEXT(pointer, name) (*(void **)&(pointer) = dlsym(RTLD_NEXT, name))

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at)
{
	ssize_t (*next)(int, const void *, size_t, off64_t);

	if (refuses_write(fd))
		return -1;
	NEXT(next, "pwrite64");
	return next(fd, bytes, len, at);
}

int accept4(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
	int (*next)(int, struct sockaddr *, socklen_t *, int);

	if (refuses_file())
		return -1;
	NEXT(next, "accept4");
	return next(fd, address, len, flags);
}

int open(const char *path, int flags, ...)
{
	int (*next)(const char *, int, ...);
	mode_t mode;
	va_list args;

	if (refuses_file())
		return -1;
	va_start(args, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	NEXT(next, "open");
	return next(path, flags, mode);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
		   void *(*start)(void *), void *arg)
{
	static void *(*first)(void *);
	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

	if (!first)
		first = start;
	if (start != first && refuses("threads"))
		return EAGAIN;
	NEXT(next, "pthread_create");
	return next(thread, attributes, start, arg);
}
