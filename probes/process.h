#ifndef PROBES_PROCESS_H
#define PROBES_PROCESS_H

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

/* Processes that a probe measures: perch's own and others. All end with the probe; what
 * goes wrong ends it. */
#define PROCESS_READY_MS 60000

struct process {
	pid_t pid;
	int in, out; /* to its standard input, from its output */
};

/* The perch that is measured: PERCH_BIN, or beside @self's folder. */
extern char process_perch[PATH_MAX];
void process_find_perch(const char *self);
/* A PERCH_HOME of its own with an owner's key, for all that is started later. */
extern char process_home[64];
void process_make_home(void);
void process_remove_home(void);

/* Starts @argv (ends with NULL) with pipes; descriptor 3 is the writing end of @ready. */
struct process process_start(const char *const argv[], int ready[2]);
/* What it writes on descriptor 3 first. */
void process_wait_ready(int ready_fd, char *word, size_t size);
/* A relay whose database has that name; @url: where it listens. */
struct process process_relay(const char *name, char *url, size_t size);

#endif
