#include "agent/proctree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire/base/buf.h"
#include "wire/base/mem.h"
#include "wire/base/slice.h"

/* Most processes of the machine that are looked at, and most walks: a fork bomb must not
 * keep us busy for ever. */
#define PROCESSES_MAX 65536
#define WALKS_MAX 16
/* Of an environment that is searched for a mark; the kernel's own limit for one string is
 * far below. */
#define ENVIRONMENT_MAX (1u << 20)

struct process {
	pid_t pid, parent, session;
	char state;
	bool doomed;
};

struct table {
	struct process *list;
	size_t count, cap;
};

/* /proc/PID/stat: "PID (NAME) STATE PARENT GROUP SESSION …"; NAME may hold anything, so
 * from the last
 * ')'. */
static bool read_process(pid_t pid, struct process *out)
{
	char path[64], text[512];
	struct slice rest, parent, group, session;
	const char *name_end;
	uint64_t number, session_number;
	ssize_t len;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	len = read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	if (len <= 0)
		return false;
	text[len] = '\0';
	name_end = strrchr(text, ')');
	rest = slice_of(name_end);
	if (rest.len < 4) /* ") S " */
		return false;
	out->state = rest.ptr[2];
	rest = slice_sub(rest, 4, rest.len);
	if (!slice_take_until(&rest, ' ', &parent) ||
	    !slice_take_until(&rest, ' ', &group) ||
	    !slice_take_until(&rest, ' ', &session) ||
	    !slice_parse_u64(parent, INT32_MAX, &number) ||
	    !slice_parse_u64(session, INT32_MAX, &session_number))
		return false;
	out->pid = pid;
	out->parent = (pid_t)number;
	out->session = (pid_t)session_number;
	out->doomed = false;
	return true;
}

static void read_table(struct table *table)
{
	struct dirent *entry;
	uint64_t pid;
	DIR *proc = opendir("/proc");

	table->count = 0;
	if (!proc)
		return;
	while (table->count < PROCESSES_MAX && (entry = readdir(proc))) {
		if (!slice_parse_u64(slice_of(entry->d_name), INT32_MAX, &pid))
			continue;
		if (table->count == table->cap) {
			table->cap = table->cap ? 2 * table->cap : 256;
			table->list =
				mem_grow(table->list, table->cap, sizeof(*table->list));
		}
		if (read_process((pid_t)pid, &table->list[table->count]))
			table->count++;
	}
	(void)closedir(proc);
}

static bool is_spared(pid_t pid, const pid_t *spare, size_t spare_count)
{
	for (size_t i = 0; i < spare_count; i++) {
		if (spare[i] == pid)
			return true;
	}
	return false;
}

/* True if @pid has @entry in its environment. */
static bool has_entry(pid_t pid, const char *entry)
{
	char path[64], bytes[4096];
	struct buf text;
	ssize_t got;
	bool found;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	buf_init(&text, ENVIRONMENT_MAX);
	while ((got = read(fd, bytes, sizeof(bytes))) > 0) {
		if (!buf_append(&text, (struct slice){bytes, (size_t)got}))
			break;
	}
	(void)close(fd);
	found = text.len > 0 && memmem(text.ptr, text.len, entry, strlen(entry));
	buf_finish(&text);
	return found;
}

struct hunt {
	pid_t root, self;
	const char *mark;
	const pid_t *spare;
	size_t spare_count;
};

/* A child of ours that is no agent: what some agent left behind. Whose? */
static bool is_orphan_of_root(const struct hunt *hunt, const struct process *process)
{
	return process->parent == hunt->self &&
	       (hunt->spare_count == 0 || process->session == hunt->root ||
		has_entry(process->pid, hunt->mark));
}

/* One pass: marks what is doomed by itself or by its parent. True if it marked any. */
static bool mark(struct table *table, const struct hunt *hunt)
{
	bool found = false;

	for (size_t i = 0; i < table->count; i++) {
		struct process *process = &table->list[i];
		bool doomed;

		if (process->doomed ||
		    is_spared(process->pid, hunt->spare, hunt->spare_count))
			continue;
		doomed = process->pid == hunt->root || is_orphan_of_root(hunt, process);
		for (size_t k = 0; k < table->count && !doomed; k++)
			doomed = table->list[k].doomed &&
				 table->list[k].pid == process->parent;
		if (doomed)
			process->doomed = found = true;
	}
	return found;
}

void proctree_kill(pid_t root, const char *entry, const pid_t *spare, size_t spare_count)
{
	const struct hunt hunt = {.root = root,
				  .self = getpid(),
				  .mark = entry,
				  .spare = spare,
				  .spare_count = spare_count};
	struct table table = {0};
	bool alive = true;

	for (int walk = 0; alive && walk < WALKS_MAX; walk++) {
		alive = false;
		read_table(&table);
		while (mark(&table, &hunt))
			continue;
		for (size_t i = 0; i < table.count; i++) {
			struct process *process = &table.list[i];

			if (!process->doomed || process->state == 'Z')
				continue;
			alive = kill(process->pid, SIGKILL) == 0 || alive;
		}
	}
	free(table.list);
}

/* All of them, found in /proc. */
static void reap_by_table(const pid_t *spare, size_t spare_count)
{
	struct table table = {0};
	pid_t self = getpid();

	read_table(&table);
	for (size_t i = 0; i < table.count; i++) {
		const struct process *process = &table.list[i];

		if (process->parent == self && process->state == 'Z' &&
		    !is_spared(process->pid, spare, spare_count))
			(void)waitpid(process->pid, NULL, WNOHANG);
	}
	free(table.list);
}

void proctree_reap(const pid_t *spare, size_t spare_count)
{
	siginfo_t info = {0};

	while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid != 0) {
		if (is_spared(info.si_pid, spare, spare_count)) {
			/* It would be named again and again, and hide the others. */
			reap_by_table(spare, spare_count);
			return;
		}
		(void)waitpid(info.si_pid, NULL, WNOHANG);
		info.si_pid = 0;
	}
}
