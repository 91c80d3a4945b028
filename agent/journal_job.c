#include "agent/journal_job.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "wire/base/mem.h"

static_assert(sizeof(struct job) <= POOL_LEAST_BYTES, "a job takes the least block");

static void set_place(struct job *job, enum job_type type, const char *epoch,
		      uint64_t number)
{
	*job = (struct job){.type = type, .number = number};
	memcpy(job->epoch, epoch, strlen(epoch) + 1);
}

static void let_go(struct job *job)
{
	journal_index_finish(&job->index);
	shared_let_go(job->memory);
	if (job->owned)
		sodium_memzero(job->owned, job->text.len);
	free(job->owned);
}

struct job *job_take(struct pool *pool, enum job_type type, const char *epoch,
		     uint64_t number)
{
	size_t bytes = sizeof(struct job);
	struct job *job = pool_take(pool, &bytes);

	set_place(job, type, epoch, number);
	return job;
}

void job_give(struct pool *pool, struct job *job)
{
	let_go(job);
	pool_give(pool, job, sizeof(*job));
}

struct job *job_create(enum job_type type, const char *epoch, uint64_t number)
{
	struct job *job = mem_alloc(sizeof(*job));

	set_place(job, type, epoch, number);
	return job;
}

void job_destroy(struct job *job)
{
	let_go(job);
	free(job);
}

void job_own(struct job *job, struct slice text)
{
	job->owned = mem_dup(text);
	job->text = (struct slice){job->owned, text.len};
}

size_t job_bytes(const struct job *job)
{
	return POOL_LEAST_BYTES + (job->memory ? job->memory->bytes : 0);
}

void jobs_put(struct jobs *jobs, struct job *job)
{
	if (!jobs->first)
		jobs->end = &jobs->first;
	job->next = NULL;
	*jobs->end = job;
	jobs->end = &job->next;
}

void jobs_put_all(struct jobs *jobs, struct jobs *more)
{
	if (!more->first)
		return;
	if (!jobs->first)
		jobs->end = &jobs->first;
	*jobs->end = more->first;
	jobs->end = more->end;
	*more = (struct jobs){0};
}

struct job *jobs_take(struct jobs *jobs)
{
	struct job *job = jobs->first;

	if (job) {
		jobs->first = job->next;
		job->next = NULL;
	}
	return job;
}
