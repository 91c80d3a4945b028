#include "agent/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "wire/base/buf.h"
#include "wire/base/mem.h"
#include "wire/base/slice.h"

#define PREFIX "perch-" /* then our pid, a dot and a number */
#define FILE_MAX (1u << 20)
/* Killed processes were gone after less than a millisecond; our choice. */
#define REMOVE_TRIES 50
#define REMOVE_PAUSE_NS 1000000

struct cgroup {
	int parent_fd, folder_fd, join_fd;
	char name[64];
};

static bool read_file(const char *path, struct buf *out)
{
	char bytes[4096];
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return false;
	while ((got = read(fd, bytes, sizeof(bytes))) > 0) {
		if (!buf_append(out, (struct slice){bytes, (size_t)got}))
			break;
	}
	(void)close(fd);
	return got == 0;
}

/* proc(5): "0::/PATH" is our place in the version 2 tree. */
static bool own_path(struct slice text, struct slice *out)
{
	struct slice line;

	while (slice_take_until(&text, '\n', &line)) {
		if (!slice_starts(line, SLICE("0::/")))
			continue;
		*out = slice_sub(line, 3, line.len);
		return true;
	}
	return false;
}

/* proc(5), mountinfo: "ID PARENT MAJ:MIN ROOT POINT OPTIONS … - cgroup2 …". A tree that
 * is mounted from its root, at a place without spaces. */
static bool mount_point(struct slice text, struct slice *out)
{
	struct slice line, root, ignored;

	while (slice_take_until(&text, '\n', &line)) {
		if (!memmem(line.ptr, line.len, " - cgroup2 ", 11))
			continue;
		for (int i = 0; i < 3; i++)
			(void)slice_take_until(&line, ' ', &ignored);
		if (slice_take_until(&line, ' ', &root) && slice_eq(root, SLICE("/")) &&
		    slice_take_until(&line, ' ', out) &&
		    slice_find(*out, '\\') == out->len)
			return true;
	}
	return false;
}

/* systemd: "user.delegate" or "trusted.delegate" on a group says that whoever runs in it
 * may divide it. Without that root would meddle with what is systemd's. */
static bool is_delegated(const char *folder)
{
	char value[8];

	return getxattr(folder, "user.delegate", value, sizeof(value)) > 0 ||
	       getxattr(folder, "trusted.delegate", value, sizeof(value)) > 0;
}

/* Our own group's folder; -1: none, or none that we may divide. */
static int open_own(void)
{
	struct slice place = SLICE_EMPTY, point = SLICE_EMPTY;
	struct buf groups, mounts, path;
	int fd = -1;

	buf_init(&groups, FILE_MAX);
	buf_init(&mounts, FILE_MAX);
	buf_init(&path, PATH_MAX);
	if (read_file("/proc/self/cgroup", &groups) &&
	    read_file("/proc/self/mountinfo", &mounts) &&
	    own_path(buf_slice(&groups), &place) &&
	    mount_point(buf_slice(&mounts), &point) && buf_append(&path, point) &&
	    buf_append(&path, place) &&
	    (geteuid() != 0 || place.len == 1 || is_delegated(buf_text(&path))))
		fd = open(buf_text(&path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	buf_finish(&groups);
	buf_finish(&mounts);
	buf_finish(&path);
	return fd;
}

/* Those of processes that are gone; one that is not empty stays. */
static void sweep(int parent_fd)
{
	const int copy = openat(parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;
	struct slice name, pid;
	uint64_t number;

	while (folder && (entry = readdir(folder))) {
		name = slice_of(entry->d_name);
		if (!slice_starts(name, SLICE(PREFIX)))
			continue;
		name = slice_sub(name, sizeof(PREFIX) - 1, name.len);
		if (slice_take_until(&name, '.', &pid) &&
		    slice_parse_u64(pid, INT32_MAX, &number) &&
		    kill((pid_t)number, 0) < 0 && errno == ESRCH)
			(void)unlinkat(parent_fd, entry->d_name, AT_REMOVEDIR);
	}
	if (folder)
		(void)closedir(folder);
	else if (copy >= 0)
		(void)close(copy);
}

static void close_fd(int fd)
{
	if (fd >= 0)
		(void)close(fd);
}

struct cgroup *cgroup_create(void)
{
	static atomic_uint last;
	struct cgroup *group = mem_alloc(sizeof(*group));

	group->folder_fd = group->join_fd = -1;
	group->parent_fd = open_own();
	(void)snprintf(group->name, sizeof(group->name), PREFIX "%ld.%u", (long)getpid(),
		       atomic_fetch_add(&last, 1));
	if (group->parent_fd >= 0)
		sweep(group->parent_fd);
	if (group->parent_fd < 0 || mkdirat(group->parent_fd, group->name, 0755) < 0) {
		close_fd(group->parent_fd);
		free(group);
		return NULL;
	}
	group->folder_fd =
		openat(group->parent_fd, group->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (group->folder_fd >= 0)
		group->join_fd =
			openat(group->folder_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	/* Linux 5.14 has cgroup.kill; before, the walk of proctree.h does it. */
	if (group->join_fd >= 0 &&
	    faccessat(group->folder_fd, "cgroup.kill", W_OK, 0) == 0)
		return group;
	cgroup_destroy(group);
	return NULL;
}

int cgroup_join_fd(const struct cgroup *group)
{
	return group ? group->join_fd : -1;
}

void cgroup_kill(const struct cgroup *group)
{
	int fd;

	if (!group)
		return;
	fd = openat(group->folder_fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)!write(fd, "1", 1);
	(void)close(fd);
}

void cgroup_destroy(struct cgroup *group)
{
	const struct timespec pause = {.tv_nsec = REMOVE_PAUSE_NS};

	if (!group)
		return;
	cgroup_kill(group);
	for (int i = 0; i < REMOVE_TRIES; i++) {
		if (unlinkat(group->parent_fd, group->name, AT_REMOVEDIR) == 0 ||
		    errno != EBUSY)
			break;
		(void)nanosleep(&pause, NULL);
	}
	close_fd(group->join_fd);
	close_fd(group->folder_fd);
	close_fd(group->parent_fd);
	free(group);
}
