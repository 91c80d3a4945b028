#ifndef AGENT_JOURNAL_JOB_H
#define AGENT_JOURNAL_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/journal_index.h"
#include "agent/shared.h"
#include "wire/base/pool.h"
#include "wire/base/slice.h"

/* What the journal's loop and its thread hand to each other, and lists of it. */

enum job_type {
	/* To the thread, and back when it is done. */
	JOB_FRAME,
	JOB_BODY,
	JOB_STOPPED,
	JOB_READ,
	JOB_READ_BODY,
	/* Made by the thread. */
	JOB_OPENED,
	JOB_DROPPED,
	JOB_TROUBLE,
	JOB_OVER,
};

struct job {
	struct job *next;
	enum job_type type;
	char epoch[17];
	uint64_t number;       /* of the frame, or seq */
	struct slice text;     /* in memory, or in owned */
	struct shared *memory; /* held; the thread only reads text; NULL: none */
	char *owned;           /* NULL: none */
	bool open; /* the last byte of text, }, may be another by now: not to be read */
	bool was_lost; /* a record; of JOB_OPENED an older file, which was broken */
	/* JOB_OPENED */
	struct journal_index index;
	bool unclean, failed;
};

/* One from the loop, which gets it back for later with job_give(). */
struct job *job_take(struct pool *pool, enum job_type type, const char *epoch,
		     uint64_t number);
void job_give(struct pool *pool, struct job *job);
/* One from the thread, which the loop destroys. */
struct job *job_create(enum job_type type, const char *epoch, uint64_t number);
void job_destroy(struct job *job);
/* Gives it a copy of @text. */
void job_own(struct job *job, struct slice text);
/* Memory that it takes while it is with the thread. */
size_t job_bytes(const struct job *job);

/* First in, first out. Zeroed it is empty. */
struct jobs {
	struct job *first, **end;
};
void jobs_put(struct jobs *jobs, struct job *job);
/* All of @more, which is empty then. */
void jobs_put_all(struct jobs *jobs, struct jobs *more);
struct job *jobs_take(struct jobs *jobs); /* NULL: it is empty */

#endif
