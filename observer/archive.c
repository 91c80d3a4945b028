#include "observer/archive.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observer/archive_db.h"
#include "wire/base/mem.h"
#include "wire/host/db.h"
#include "wire/host/log.h"

#define BATCH_MAX \
	200 /* stores in one transaction. Measured: facts, 100 rows are enough */

#define TRIM_EVERY_MS 60000 /* while nothing is to be let go; our choice */

enum job_type { JOB_FRAME, JOB_BODY, JOB_GONE, JOB_ROWS, JOB_FOLDS, JOB_EVENT };

struct job {
	struct job *next;
	enum job_type type;
	uint8_t agent[KEY_BYTES];
	char epoch[17];
	uint64_t number; /* frame or seq */
	int64_t received_ms;
	struct frame_range range;
	char *text; /* plaintext, body, channel */
	size_t len;
	char *skip; /* tag, or NULL */
	bool has_before;
	struct pos pos;
	size_t limit;
	archive_done *done;
	void *ctx;
	struct archive_answer answer;
};

struct queue {
	struct job *first, **end;
	size_t bytes;
};

struct archive {
	struct archive_db *db;
	uv_thread_t thread;
	bool started;
	uv_async_t async;
	bool full;     /* said so; the loop's */
	uint64_t lost; /* records since the disk last took one; the thread's */
	uv_mutex_t mutex;
	uv_cond_t more;
	struct archive_keep keep;
	bool in_memory;
	bool trims;         /* more is to be let go; the thread's */
	int64_t trimmed_ms; /* loop_now_ms(); the thread's */
	/* Under the mutex: */
	char trouble[200];
	struct queue work, done;
	bool ending;
};

static void queue_put(struct queue *queue, struct job *job)
{
	if (!queue->first)
		queue->end = &queue->first;
	job->next = NULL;
	*queue->end = job;
	queue->end = &job->next;
	queue->bytes += job->len + sizeof(*job);
}

static struct job *queue_take_all(struct queue *queue)
{
	struct job *jobs = queue->first;

	queue->first = NULL;
	queue->bytes = 0;
	return jobs;
}

static void job_destroy(struct job *job)
{
	archive_db_answer_finish(&job->answer);
	free(job->text);
	free(job->skip);
	free(job);
}

/* With what SQLite keeps beside it: a new file must not find the log of an old one. */
static bool move_aside(const char *path, struct err *err)
{
	static const char *const ends[] = {"", "-wal", "-shm"};
	char from[4200], to[4200];

	for (size_t i = 0; i < 3; i++) {
		(void)snprintf(from, sizeof(from), "%s%s", path, ends[i]);
		(void)snprintf(to, sizeof(to), "%s.broken-%lld%s", path,
			       (long long)loop_unix_ms() / 1000, ends[i]);
		if (rename(from, to) < 0 && (i == 0 || errno != ENOENT))
			return err_errno(err, "cannot move %s aside", from);
		if (i == 0)
			log_warn("archive",
				 "moved to %s; a new one is filled from the journals of "
				 "the agents",
				 to);
	}
	return true;
}

/* NULL with ERR_SYSTEM: the disk refuses. */
static struct archive_db *open_on_disk(const char *path, struct err *err)
{
	struct archive_db *db = archive_db_open(path, err);

	if (db || err->code != ERR_MALFORMED)
		return db;
	log_warn("archive", "%s", err->text);
	return move_aside(path, err) ? archive_db_open(path, err) : NULL;
}

struct archive *archive_open(const struct archive_options *options, struct err *err)
{
	struct archive *archive;
	struct archive_db *db = NULL;
	bool in_memory = !options->path;
	char why[200] = "";

	if (options->path)
		db = open_on_disk(options->path, err);
	if (options->path && !db && err->code == ERR_REFUSED)
		return NULL;
	if (!db) {
		in_memory = true;
		(void)snprintf(why, sizeof(why), "%s",
			       options->path ? err->text : options->why);
		log_warn("archive",
			 "what comes is kept in memory only, at most %d MiB: %s",
			 ARCHIVE_MEMORY_MIB, why);
		db = archive_db_open(DB_MEMORY, err);
	}
	if (!db)
		return NULL;
	archive = mem_alloc(sizeof(*archive));
	archive->db = db;
	archive->in_memory = in_memory;
	archive->keep = (struct archive_keep){options->keep_ms, options->keep_bytes};
	if (in_memory)
		archive->keep.bytes = (int64_t)ARCHIVE_MEMORY_MIB << 20;
	memcpy(archive->trouble, why, sizeof(why));
	archive->trims = true;
	return archive;
}

void archive_trouble(struct archive *archive, char out[200])
{
	if (archive->started)
		uv_mutex_lock(&archive->mutex);
	memcpy(out, archive->trouble, sizeof(archive->trouble));
	if (archive->started)
		uv_mutex_unlock(&archive->mutex);
}

/* @words: NULL when it keeps again. In memory the first trouble stays. */
static void set_trouble(struct archive *archive, const char *words)
{
	if (archive->in_memory)
		return;
	uv_mutex_lock(&archive->mutex);
	(void)snprintf(archive->trouble, sizeof(archive->trouble), "%s",
		       words ? words : "");
	uv_mutex_unlock(&archive->mutex);
}

bool archive_load(struct archive *archive, const struct archive_loader *loader, void *ctx,
		  struct err *err)
{
	return archive_db_load(archive->db, loader, ctx, err);
}

static bool store(struct archive_db *db, struct job *job, struct err *err)
{
	const struct slice text = {job->text, job->len};

	switch (job->type) {
	case JOB_FRAME:
		return archive_db_frame(db, job->agent, job->epoch, job->number,
					job->received_ms, text, err);
	case JOB_BODY:
		return archive_db_body(db, job->agent, job->epoch, job->number, text,
				       err);
	case JOB_GONE:
		return archive_db_gone(db, job->agent, job->epoch, job->range, err);
	case JOB_ROWS:
	case JOB_FOLDS:
	case JOB_EVENT:
		break;
	}
	return true;
}

/* A run of stores in one transaction; returns the job behind it. */
static struct job *store_run(struct archive *archive, struct job *job)
{
	struct job *next;
	struct err err;
	unsigned count = 0, lost = 0;
	bool ok = archive_db_begin(archive->db, &err);

	for (; job && job->type <= JOB_GONE && count < BATCH_MAX; job = next) {
		next = job->next;
		count++;
		lost += !ok || !store(archive->db, job, &err);
		job_destroy(job);
	}
	if (ok && !archive_db_commit(archive->db, &err))
		lost = count;
	if (lost || archive->lost)
		set_trouble(archive, lost ? err.text : NULL);
	/* Said when it begins and when it is over, not for each of them. */
	if (lost && !archive->lost)
		log_warn("archive", "records are not kept, what comes is only shown: %s",
			 err.text);
	if (!lost && archive->lost) {
		log_warn("archive", "records are kept again; %llu were not",
			 (unsigned long long)archive->lost);
		archive->lost = 0;
	}
	archive->lost += lost;
	return job;
}

static void answer(struct archive *archive, struct job *job)
{
	const struct slice channel = {job->text, job->len};
	struct archive_answer *out = &job->answer;

	if (job->type == JOB_ROWS)
		out->ok = archive_db_rows(archive->db, job->agent, channel,
					  job->has_before ? &job->pos : NULL, job->limit,
					  out, &out->err);
	else if (job->type == JOB_FOLDS)
		out->ok = archive_db_folds(archive->db, job->agent, channel, &job->pos,
					   slice_of(job->skip), out, &out->err);
	else
		out->ok = archive_db_event(archive->db, job->agent, &job->pos, out,
					   &out->err);
	uv_mutex_lock(&archive->mutex);
	queue_put(&archive->done, job);
	uv_mutex_unlock(&archive->mutex);
	(void)uv_async_send(&archive->async);
}

/* A few frames at a time: whoever asks something waits for one slice at most. */
static void trim(struct archive *archive)
{
	const int64_t now = loop_now_ms();
	struct err err;

	if (!archive->trims && now - archive->trimmed_ms < TRIM_EVERY_MS)
		return;
	archive->trimmed_ms = now;
	if (!archive_db_trim(archive->db, &archive->keep, loop_unix_ms(), &archive->trims,
			     &err))
		log_warn("archive", "what is too old or too much stays: %s", err.text);
}

static void work(void *arg)
{
	struct archive *archive = arg;

	for (;;) {
		struct job *job, *next;
		bool ending;

		uv_mutex_lock(&archive->mutex);
		while (!archive->work.first && !archive->ending && !archive->trims)
			uv_cond_wait(&archive->more, &archive->mutex);
		job = queue_take_all(&archive->work);
		ending = !job && archive->ending;
		uv_mutex_unlock(&archive->mutex);
		if (ending)
			return; /* and nothing waits */
		while (job) {
			if (job->type <= JOB_GONE) {
				job = store_run(archive, job);
				continue;
			}
			next = job->next;
			answer(archive, job);
			job = next;
		}
		trim(archive);
	}
}

static void on_done(uv_async_t *async)
{
	struct archive *archive = async->data;
	struct job *job, *next;

	uv_mutex_lock(&archive->mutex);
	job = queue_take_all(&archive->done);
	uv_mutex_unlock(&archive->mutex);
	for (; job; job = next) {
		next = job->next;
		job->done(job->ctx, &job->answer);
		job_destroy(job);
	}
}

bool archive_start(struct archive *archive, struct loop *loop, struct err *err)
{
	(void)uv_mutex_init(&archive->mutex);
	(void)uv_cond_init(&archive->more);
	(void)uv_async_init(loop->uv, &archive->async, on_done);
	archive->async.data = archive;
	if (uv_thread_create(&archive->thread, work, archive) != 0) {
		uv_cond_destroy(&archive->more);
		uv_mutex_destroy(&archive->mutex);
		return err_set(err, ERR_SYSTEM, "cannot start the archive's thread");
	}
	archive->started = true;
	return true;
}

static void on_closed(uv_handle_t *handle)
{
	struct archive *archive = handle->data;

	uv_cond_destroy(&archive->more);
	uv_mutex_destroy(&archive->mutex);
	free(archive);
}

void archive_close(struct archive *archive)
{
	if (!archive)
		return;
	if (!archive->started) {
		archive_db_close(archive->db);
		free(archive);
		return;
	}
	uv_mutex_lock(&archive->mutex);
	archive->ending = true;
	uv_cond_signal(&archive->more);
	uv_mutex_unlock(&archive->mutex);
	(void)uv_thread_join(&archive->thread);
	archive_db_close(archive->db);
	on_done(&archive->async);
	uv_close((uv_handle_t *)&archive->async, on_closed);
}

static struct job *job_create(enum job_type type, const uint8_t *agent, struct slice text)
{
	struct job *job = mem_alloc(sizeof(*job));

	job->type = type;
	memcpy(job->agent, agent, KEY_BYTES);
	job->text = mem_dup(text);
	job->len = text.len;
	return job;
}

/* Questions are few and small; only what is to be kept can fill the queue. */
static void put(struct archive *archive, struct job *job)
{
	bool full;

	uv_mutex_lock(&archive->mutex);
	full = job->type <= JOB_GONE &&
	       archive->work.bytes + job->len > ARCHIVE_QUEUE_MAX;
	if (!full)
		queue_put(&archive->work, job);
	uv_cond_signal(&archive->more);
	uv_mutex_unlock(&archive->mutex);
	if (full && !archive->full)
		log_warn("archive", "the disk is too slow: frames are not kept");
	if (full)
		job_destroy(job);
	archive->full = full;
}

void archive_store(struct archive *archive, const uint8_t *agent, const char *epoch,
		   uint64_t number, int64_t received_ms, struct slice plaintext)
{
	struct job *job = job_create(JOB_FRAME, agent, plaintext);

	memcpy(job->epoch, epoch, strlen(epoch) + 1);
	job->number = number;
	job->received_ms = received_ms;
	put(archive, job);
}

void archive_store_body(struct archive *archive, const uint8_t *agent, const char *epoch,
			uint64_t seq, struct slice text)
{
	struct job *job = job_create(JOB_BODY, agent, text);

	memcpy(job->epoch, epoch, strlen(epoch) + 1);
	job->number = seq;
	put(archive, job);
}

void archive_store_gone(struct archive *archive, const uint8_t *agent, const char *epoch,
			struct frame_range range)
{
	struct job *job = job_create(JOB_GONE, agent, SLICE(""));

	memcpy(job->epoch, epoch, strlen(epoch) + 1);
	job->range = range;
	put(archive, job);
}

void archive_rows(struct archive *archive, const uint8_t *agent, struct slice channel,
		  const struct pos *before, size_t limit, archive_done *done, void *ctx)
{
	struct job *job = job_create(JOB_ROWS, agent, channel);

	job->has_before = before != NULL;
	if (before)
		job->pos = *before;
	job->limit = limit;
	job->done = done;
	job->ctx = ctx;
	put(archive, job);
}

void archive_folds(struct archive *archive, const uint8_t *agent, struct slice channel,
		   const struct pos *before, struct slice skip, archive_done *done,
		   void *ctx)
{
	struct job *job = job_create(JOB_FOLDS, agent, channel);

	job->skip = mem_dup(skip);
	job->pos = *before;
	job->done = done;
	job->ctx = ctx;
	put(archive, job);
}

void archive_event(struct archive *archive, const uint8_t *agent, const struct pos *pos,
		   archive_done *done, void *ctx)
{
	struct job *job = job_create(JOB_EVENT, agent, SLICE(""));

	job->pos = *pos;
	job->done = done;
	job->ctx = ctx;
	put(archive, job);
}
