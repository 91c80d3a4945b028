#include "observer/archive.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <uv.h>

#include "observer/archive_check.h"
#include "observer/archive_db.h"
#include "observer/archive_lost.h"
#include "wire/base/mem.h"
#include "wire/host/db.h"
#include "wire/host/log.h"

#define BATCH_MAX \
	200 /* stores in one transaction. Measured: facts, 100 rows are enough */

#define TRIM_EVERY_MS 60000 /* while nothing is to be let go; our choice */

/* The index of words follows in steps of that length, and rests three times as long after
 * each: an archive that it does not know yet leaves most of a core alone. Who searches
 * waits for what came since, so long. Our choice. */
#define INDEX_STEP_MS 20
#define INDEX_STEP_WORK 1000 /* pieces (search.h): 20 ms are some 400 */
#define INDEX_REST_FACTOR 3
#define INDEX_EVERY_MS 1000 /* at the most, for what just came */
#define INDEX_RETRY_MS 60000
#define CATCH_UP_MS 150
#define CATCH_UP_WORK 10000
#define FORGET_STEP_MS 150 /* likewise: others ask, too */

enum job_type {
	JOB_FRAME,
	JOB_BODY,
	JOB_GONE,
	JOB_ROWS,
	JOB_FOLDS,
	JOB_EVENT,
	JOB_RAW,
	JOB_PART,
	JOB_SEARCH,
	JOB_FORGET,
	JOB_FORGET_WORDS,
};

struct job {
	struct job *next;
	enum job_type type;
	uint8_t agent[KEY_BYTES];
	char epoch[17];
	uint64_t number; /* frame or seq */
	int64_t received_ms;
	struct gone_range gone;
	char *text; /* plaintext, body, channel */
	size_t len;
	char *skip; /* tag, or NULL */
	bool has_before;
	struct pos pos;
	size_t limit;
	struct raw_query raw;
	struct part_query part;
	struct search_query query;
	int64_t before; /* hit, or Unix ms */
	bool all_channels;
	archive_done *done;
	void *ctx;
	struct archive_answer answer;
};

struct queue {
	struct job *first, **end;
	size_t count, bytes;
};

struct archive {
	struct archive_db *db;
	char *path; /* NULL: none */
	uv_thread_t thread;
	uv_async_t async;
	uv_mutex_t mutex;
	uv_cond_t more;
	struct archive_keep keep;
	const struct archive_events *events; /* NULL: nobody listens */
	void *events_ctx;
	struct archive_check *check;
	bool started;
	bool full; /* said so; the loop's */
	/* The thread's: */
	bool trims;         /* more is to be let go */
	bool index_fails;   /* said so */
	bool merges;        /* what was forgotten leaves the index */
	uint64_t lost;      /* records since the disk last took one */
	int64_t trimmed_ms; /* loop_now_ms() */
	int64_t index_ms;   /* when the index goes on, the same; INT64_MAX: with news */
	/* Under the mutex, once it is started: */
	char trouble[200];
	char *aside;
	bool in_memory;
	uint64_t kept_ever, lost_ever; /* records */
	struct queue stores, questions, done;
	struct archive_lost refused, back; /* by the disk; to be told */
	bool broken;                       /* the check says so */
	bool anew;                         /* to be told */
	bool ending;
};

static void queue_put(struct queue *queue, struct job *job)
{
	if (!queue->first)
		queue->end = &queue->first;
	job->next = NULL;
	*queue->end = job;
	queue->end = &job->next;
	queue->count++;
	queue->bytes += job->len + sizeof(*job);
}

/* What *@at points to. */
static struct job *queue_take(struct queue *queue, struct job **at)
{
	struct job *job = *at;

	*at = job->next;
	if (!job->next)
		queue->end = at;
	queue->count--;
	queue->bytes -= job->len + sizeof(*job);
	return job;
}

static struct job *queue_take_all(struct queue *queue)
{
	struct job *jobs = queue->first;

	queue->first = NULL;
	queue->count = queue->bytes = 0;
	return jobs;
}

static void job_destroy(struct job *job)
{
	archive_db_answer_finish(&job->answer);
	search_query_finish(&job->query);
	free(job->text);
	free(job->skip);
	free(job);
}

/* With what SQLite keeps beside it: a new file must not find the log of an old one. */
static bool move_aside(const char *path, char **aside, struct err *err)
{
	static const char *const ends[] = {"", "-wal", "-shm"};
	char from[4200], to[4200];

	for (size_t i = 0; i < 3; i++) {
		(void)snprintf(from, sizeof(from), "%s%s", path, ends[i]);
		(void)snprintf(to, sizeof(to), "%s.broken-%lld%s", path,
			       (long long)loop_unix_ms() / 1000, ends[i]);
		if (rename(from, to) == 0) {
			if (i == 0)
				*aside = mem_dup(slice_of(to));
		} else if (errno != ENOENT) {
			return err_errno(err, "cannot move %s aside", from);
		}
	}
	log_warn("archive", "%s%s; a new one is filled from the journals of the agents",
		 *aside ? "moved to " : "it is gone", *aside ? *aside : "");
	return true;
}

/* NULL with ERR_SYSTEM: the disk refuses. */
static struct archive_db *open_on_disk(const char *path, char **aside, struct err *err)
{
	struct archive_db *db = archive_db_open(path, err);

	if (db || err->code != ERR_MALFORMED)
		return db;
	log_warn("archive", "%s", err->text);
	return move_aside(path, aside, err) ? archive_db_open(path, err) : NULL;
}

static struct archive_db *open_in_memory(const char *why, struct err *err)
{
	log_warn("archive", "what comes is kept in memory only, at most %d MiB: %s",
		 ARCHIVE_MEMORY_MIB, why);
	return archive_db_open(DB_MEMORY, err);
}

struct archive *archive_open(const struct archive_options *options, struct err *err)
{
	struct archive *archive = mem_alloc(sizeof(*archive));

	archive->trims = true;
	archive->keep = (struct archive_keep){options->keep_ms, options->keep_bytes};
	if (options->path) {
		archive->path = mem_dup(slice_of(options->path));
		archive->db = open_on_disk(options->path, &archive->aside, err);
		if (!archive->db && err->code == ERR_REFUSED) {
			archive_close(archive);
			return NULL;
		}
	}
	if (archive->db)
		return archive;
	archive->in_memory = true;
	archive->keep.bytes = (int64_t)ARCHIVE_MEMORY_MIB << 20;
	(void)snprintf(archive->trouble, sizeof(archive->trouble), "%s",
		       options->path ? err->text : options->why);
	archive->db = open_in_memory(archive->trouble, err);
	if (archive->db)
		return archive;
	archive_close(archive);
	return NULL;
}

static void lock(struct archive *archive)
{
	if (archive->started)
		uv_mutex_lock(&archive->mutex);
}

static void unlock(struct archive *archive)
{
	if (archive->started)
		uv_mutex_unlock(&archive->mutex);
}

void archive_trouble(struct archive *archive, char out[200])
{
	lock(archive);
	memcpy(out, archive->trouble, sizeof(archive->trouble));
	unlock(archive);
}

bool archive_is_in_memory(struct archive *archive)
{
	bool in_memory;

	lock(archive);
	in_memory = archive->in_memory;
	unlock(archive);
	return in_memory;
}

static uint64_t size_of(const char *path, const char *end)
{
	char text[4200];
	struct stat info;

	(void)snprintf(text, sizeof(text), "%s%s", path, end);
	return stat(text, &info) == 0 ? (uint64_t)info.st_size : 0;
}

void archive_figures(struct archive *archive, struct archive_figures *out)
{
	bool in_memory;

	lock(archive);
	*out = (struct archive_figures){
		.kept = archive->kept_ever,
		.lost = archive->lost_ever,
		.waiting = archive->stores.count,
		.waiting_bytes = archive->stores.bytes,
		.questions = archive->questions.count,
		.failing = *archive->trouble != '\0',
	};
	in_memory = archive->in_memory;
	unlock(archive);
	if (!in_memory)
		out->bytes = size_of(archive->path, "") + size_of(archive->path, "-wal");
}

const char *archive_aside(struct archive *archive)
{
	const char *aside;

	lock(archive);
	aside = archive->aside;
	unlock(archive);
	return aside ? aside : ""; /* it stays where it is */
}

/* @words: NULL when it keeps again. In memory the first trouble stays. */
static void set_trouble(struct archive *archive, const char *words)
{
	uv_mutex_lock(&archive->mutex);
	if (!archive->in_memory)
		(void)snprintf(archive->trouble, sizeof(archive->trouble), "%s",
			       words ? words : "");
	uv_mutex_unlock(&archive->mutex);
}

bool archive_load(struct archive *archive, const struct archive_loader *loader, void *ctx,
		  struct err *err)
{
	return archive_db_load(archive->db, loader, ctx, err);
}

/* ---- a file that turns out to be broken ---- */

/* The thread's: a new one takes its place, and the loop is told that it has nothing. */
static void begin_anew(struct archive *archive, const char *why)
{
	struct archive_db *db = NULL;
	char *aside = NULL;
	struct err err;

	if (!archive->path || archive->in_memory)
		return;
	log_warn("archive", "%s", why);
	archive_db_close(archive->db);
	if (move_aside(archive->path, &aside, &err))
		db = archive_db_open(archive->path, &err);
	uv_mutex_lock(&archive->mutex);
	archive->broken = false;
	archive->anew = true;
	if (!archive->aside) {
		archive->aside = aside;
		aside = NULL;
	}
	if (!db) {
		(void)snprintf(archive->trouble, sizeof(archive->trouble), "%s",
			       err.text);
		archive->in_memory = true;
	}
	uv_mutex_unlock(&archive->mutex);
	free(aside);
	if (!db) {
		archive->keep.bytes = (int64_t)ARCHIVE_MEMORY_MIB << 20;
		db = open_in_memory(err.text, &err);
	}
	assert(db); /* else there is no memory at all */
	archive->db = db;
	(void)uv_async_send(&archive->async);
}

/* On the thread of the check. */
static void on_broken(void *ctx, const char *why)
{
	struct archive *archive = ctx;

	log_warn("archive", "%s", why);
	uv_mutex_lock(&archive->mutex);
	archive->broken = true;
	uv_cond_signal(&archive->more);
	uv_mutex_unlock(&archive->mutex);
}

static void look_after(struct archive *archive)
{
	bool broken;

	uv_mutex_lock(&archive->mutex);
	broken = archive->broken;
	uv_mutex_unlock(&archive->mutex);
	if (broken || archive_db_is_broken(archive->db))
		begin_anew(archive, "the archive is broken");
}

/* ---- storing ---- */

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
		return archive_db_gone(db, job->agent, job->epoch, job->gone, err);
	case JOB_ROWS:
	case JOB_FOLDS:
	case JOB_EVENT:
	case JOB_RAW:
	case JOB_PART:
	case JOB_SEARCH:
	case JOB_FORGET:
	case JOB_FORGET_WORDS:
		break;
	}
	return true;
}

static void index_within(struct archive *archive, int64_t ms)
{
	const int64_t at = loop_now_ms() + ms;

	if (at < archive->index_ms)
		archive->index_ms = at;
}

/* After archive_db_begin(): all of these, or none. */
static bool store_all(struct archive_db *db, struct job *first, const struct job *end,
		      struct err *err)
{
	bool ok = true;

	for (struct job *job = first; ok && job != end; job = job->next)
		ok = store(db, job, err);
	if (!ok)
		archive_db_rollback(db);
	return ok && archive_db_commit(db, err);
}

/* One that the disk refuses is asked for again once it takes some; one that is no good
 * would only come again. */
static void note_lost(struct archive *archive, const struct job *job,
		      const struct err *err)
{
	if (job->type != JOB_FRAME || !*job->epoch || err->code != ERR_SYSTEM)
		return;
	uv_mutex_lock(&archive->mutex);
	archive_lost_add(&archive->refused, job->agent, job->epoch, job->number);
	uv_mutex_unlock(&archive->mutex);
}

static unsigned lose_all(struct archive *archive, const struct job *first,
			 const struct job *end, const struct err *err)
{
	unsigned lost = 0;

	for (const struct job *job = first; job != end; job = job->next, lost++)
		note_lost(archive, job, err);
	return lost;
}

/* Each by itself: one that cannot be kept takes no other with it. Returns how many were
 * lost. */
static unsigned store_each(struct archive *archive, struct job *first,
			   const struct job *end, struct err *err)
{
	unsigned lost = 0;
	struct err refused;

	for (struct job *job = first; job != end; job = job->next) {
		/* Whoever holds the database holds it for all. */
		if (!archive_db_begin(archive->db, err))
			return lost + lose_all(archive, job, end, err);
		if (store_all(archive->db, job, job->next, &refused))
			continue;
		note_lost(archive, job, &refused);
		*err = refused;
		lost++;
	}
	return lost;
}

/* What the disk refused may come again. */
static void take_back(struct archive *archive)
{
	uv_mutex_lock(&archive->mutex);
	if (archive->refused.count && !archive->back.count) {
		archive->back = archive->refused;
		archive->refused = (struct archive_lost){0};
		(void)uv_async_send(&archive->async);
	}
	uv_mutex_unlock(&archive->mutex);
}

/* Said when it begins and when it is over, not for each of them. */
static void count_lost(struct archive *archive, unsigned lost, const struct err *err)
{
	if (lost || archive->lost)
		set_trouble(archive, lost ? err->text : NULL);
	if (lost && !archive->lost)
		log_warn("archive", "records are not kept, what comes is only shown: %s",
			 err->text);
	if (!lost && archive->lost) {
		log_warn("archive",
			 "records are kept again; %llu were not, frames among them are "
			 "asked for again",
			 (unsigned long long)archive->lost);
		archive->lost = 0;
	}
	archive->lost += lost;
	if (!lost)
		take_back(archive);
}

static void count_records(struct archive *archive, unsigned kept, unsigned lost)
{
	uv_mutex_lock(&archive->mutex);
	archive->kept_ever += kept;
	archive->lost_ever += lost;
	uv_mutex_unlock(&archive->mutex);
}

/* Some stores; returns the job behind them. */
static struct job *store_run(struct archive *archive, struct job *first)
{
	struct job *end = first, *next;
	struct err err;
	unsigned count = 0, lost = 0;

	for (; end && count < BATCH_MAX; count++)
		end = end->next;
	if (!archive_db_begin(archive->db, &err))
		lost = lose_all(archive, first, end, &err);
	else if (!store_all(archive->db, first, end, &err))
		lost = store_each(archive, first, end, &err);
	for (struct job *job = first; job != end; job = next) {
		next = job->next;
		job_destroy(job);
	}
	count_records(archive, count - lost, lost);
	count_lost(archive, lost, &err);
	index_within(archive, INDEX_EVERY_MS);
	return end;
}

static bool find(struct archive *archive, struct job *job)
{
	struct search_question question = {
		.query = &job->query,
		.agents = (const uint8_t *)job->text,
		.agent_count = job->len / KEY_BYTES,
		.before = job->before,
		.limit = job->limit,
	};
	struct search_pace pace = search_pace_begin(CATCH_UP_MS, CATCH_UP_WORK);
	int64_t next_ms;

	/* Without it what is there is still found. */
	(void)archive_db_index(archive->db, true, loop_unix_ms(), &pace, &next_ms,
			       &job->answer.err);
	question.until_ms = loop_now_ms() + SEARCH_FIND_MS;
	return archive_db_search(archive->db, &question, &job->answer, &job->answer.err);
}

static bool answer_forgotten(struct archive_answer *out, uint64_t frames)
{
	struct buf json = {.max = 128};

	(void)buf_printf(&json, "{\"frames\":%llu,\"more\":%s}",
			 (unsigned long long)frames, out->more ? "true" : "false");
	out->text = mem_dup(buf_slice(&json));
	out->text_len = json.len;
	buf_finish(&json);
	return true;
}

static bool forget(struct archive *archive, const struct job *job,
		   struct archive_answer *out)
{
	const int64_t until_ms = loop_now_ms() + FORGET_STEP_MS;
	const struct slice channel =
		job->all_channels ? SLICE_EMPTY : (struct slice){job->text, job->len};
	uint64_t frames = 0;

	do {
		if (!archive_db_forget(archive->db, job->agent, channel, job->before,
				       &frames, &out->more, &out->err))
			return false;
	} while (out->more && loop_now_ms() < until_ms);
	return answer_forgotten(out, frames);
}

/* What else those rows said is found again by the rows that stay; of the others the index
 * keeps no word. */
static bool forget_words(struct archive *archive, struct archive_answer *out)
{
	struct search_pace pace = search_pace_begin(CATCH_UP_MS, CATCH_UP_WORK);
	int64_t next_ms = 0;
	bool done = true;

	if (!archive_db_index(archive->db, true, loop_unix_ms(), &pace, &next_ms,
			      &out->err))
		return false;
	if (next_ms != 0 &&
	    !archive_db_merge(archive->db, !archive->merges, &done, &out->err))
		return false;
	archive->merges = next_ms != 0 && !done;
	out->more = next_ms == 0 || !done;
	return answer_forgotten(out, 0);
}

/* The event's text gives way to what is asked of it. */
static bool answer_part(struct archive_db *db, struct job *job, struct err *err)
{
	struct archive_answer *out = &job->answer;
	struct buf json = {.max = 6 * PART_TEXT_MAX};
	bool ok = archive_db_event(db, job->agent, &job->pos, out, err) &&
		  part_write((struct slice){out->text, out->text_len}, &job->part, &json,
			     err);

	if (ok && !buf_ok(&json))
		ok = err_set(err, ERR_TOO_LARGE, "this is too long to show");
	if (ok) {
		free(out->text);
		out->text = mem_dup(buf_slice(&json));
		out->text_len = json.len;
	}
	buf_finish(&json);
	return ok;
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
	else if (job->type == JOB_RAW)
		out->ok = archive_db_raw(archive->db, job->agent, channel, &job->raw, out,
					 &out->err);
	else if (job->type == JOB_SEARCH)
		out->ok = find(archive, job);
	else if (job->type == JOB_FORGET)
		out->ok = forget(archive, job, out);
	else if (job->type == JOB_FORGET_WORDS)
		out->ok = forget_words(archive, out);
	else if (job->type == JOB_PART)
		out->ok = answer_part(archive->db, job, &out->err);
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
	if (archive->trims)
		index_within(archive, TRIM_EVERY_MS);
}

/* A step of the index, if its time has come. */
static void index_some(struct archive *archive)
{
	const int64_t now = loop_now_ms(), unix_ms = loop_unix_ms();
	struct search_pace pace = search_pace_begin(INDEX_STEP_MS, INDEX_STEP_WORK);
	int64_t next_ms = INT64_MAX;
	struct err err;
	bool ok;

	if (now < archive->index_ms)
		return;
	ok = archive_db_index(archive->db, false, unix_ms, &pace, &next_ms, &err);
	archive->index_ms = INT64_MAX;
	if (!ok)
		index_within(archive, INDEX_RETRY_MS);
	else if (next_ms == 0)
		index_within(archive, (loop_now_ms() - now) * INDEX_REST_FACTOR);
	else if (next_ms < unix_ms + INDEX_EVERY_MS)
		index_within(archive, INDEX_EVERY_MS);
	else if (next_ms < INT64_MAX)
		index_within(archive, next_ms - unix_ms);
	/* Said when it begins. */
	if (!ok && !archive->index_fails)
		log_warn("search", "what comes is not found until this is over: %s",
			 err.text);
	archive->index_fails = !ok;
}

/* Under the mutex: until there is work, or time for some. */
static void await_work(struct archive *archive)
{
	while (!archive->stores.first && !archive->questions.first && !archive->ending &&
	       !archive->trims && !archive->broken) {
		const int64_t left_ms = archive->index_ms - loop_now_ms();

		if (left_ms <= 0)
			return;
		if (archive->index_ms == INT64_MAX)
			uv_cond_wait(&archive->more, &archive->mutex);
		else
			(void)uv_cond_timedwait(&archive->more, &archive->mutex,
						(uint64_t)left_ms * 1000000);
	}
}

/* All that waits to be kept, then one question: however many are asked, what comes is
 * kept meanwhile. */
static void work(void *arg)
{
	struct archive *archive = arg;

	for (;;) {
		struct job *stores, *question = NULL;
		bool ending;

		uv_mutex_lock(&archive->mutex);
		await_work(archive);
		stores = queue_take_all(&archive->stores);
		if (archive->questions.first)
			question = queue_take(&archive->questions,
					      &archive->questions.first);
		ending = !stores && !question && archive->ending;
		uv_mutex_unlock(&archive->mutex);
		if (ending)
			return; /* and nothing waits */
		while (stores)
			stores = store_run(archive, stores);
		look_after(archive);
		if (question)
			answer(archive, question);
		trim(archive);
		index_some(archive);
	}
}

static void tell(struct archive *archive, bool anew, const struct archive_lost *back)
{
	if (!archive->events)
		return;
	if (anew)
		archive->events->on_anew(archive->events_ctx);
	for (size_t i = 0; i < back->count; i++)
		archive->events->on_lost(archive->events_ctx, back->ranges[i].agent,
					 back->ranges[i].epoch, back->ranges[i].range);
}

static void on_done(uv_async_t *async)
{
	struct archive *archive = async->data;
	struct archive_lost back;
	struct job *job, *next;
	bool anew;

	uv_mutex_lock(&archive->mutex);
	job = queue_take_all(&archive->done);
	anew = archive->anew;
	back = archive->back;
	archive->anew = false;
	archive->back = (struct archive_lost){0};
	uv_mutex_unlock(&archive->mutex);
	tell(archive, anew, &back);
	archive_lost_finish(&back);
	for (; job; job = next) {
		next = job->next;
		job->done(job->ctx, &job->answer);
		job_destroy(job);
	}
}

/* A small one was read when it was opened. */
static bool is_to_be_checked(const struct archive *archive)
{
	struct stat info;

	return !archive->in_memory && archive->path && stat(archive->path, &info) == 0 &&
	       info.st_size > ARCHIVE_OPEN_CHECK_BYTES;
}

bool archive_start(struct archive *archive, struct loop *loop,
		   const struct archive_events *events, void *ctx, struct err *err)
{
	archive->events = events;
	archive->events_ctx = ctx;
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
	if (is_to_be_checked(archive))
		archive->check = archive_check_start(archive->path, on_broken, archive);
	return true;
}

static void archive_free(struct archive *archive)
{
	archive_lost_finish(&archive->refused);
	archive_lost_finish(&archive->back);
	free(archive->aside);
	free(archive->path);
	free(archive);
}

static void on_closed(uv_handle_t *handle)
{
	struct archive *archive = handle->data;

	uv_cond_destroy(&archive->more);
	uv_mutex_destroy(&archive->mutex);
	archive_free(archive);
}

/* Under the mutex: @job, a question, is not looked at. */
static void refuse(struct archive *archive, struct job *job, const char *why)
{
	(void)err_set(&job->answer.err, ERR_SYSTEM, "%s", why);
	queue_put(&archive->done, job);
	(void)uv_async_send(&archive->async);
}

void archive_drop(struct archive *archive, const void *ctx)
{
	struct queue *questions = &archive->questions;

	uv_mutex_lock(&archive->mutex);
	for (struct job **at = &questions->first; *at; at = &(*at)->next) {
		if ((*at)->ctx == ctx) {
			refuse(archive, queue_take(questions, at), "nobody waits");
			break;
		}
	}
	uv_mutex_unlock(&archive->mutex);
}

void archive_close(struct archive *archive)
{
	if (!archive)
		return;
	if (!archive->started) {
		archive_db_close(archive->db);
		archive_free(archive);
		return;
	}
	archive->events = NULL; /* who listened may be gone */
	archive_check_stop(archive->check);
	uv_mutex_lock(&archive->mutex);
	archive->ending = true;
	while (archive->questions.first)
		refuse(archive,
		       queue_take(&archive->questions, &archive->questions.first),
		       "this observer ends");
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

static void put_store(struct archive *archive, struct job *job)
{
	bool full;

	uv_mutex_lock(&archive->mutex);
	full = archive->stores.bytes + job->len > ARCHIVE_QUEUE_MAX;
	if (!full)
		queue_put(&archive->stores, job);
	uv_cond_signal(&archive->more);
	uv_mutex_unlock(&archive->mutex);
	if (full && !archive->full)
		log_warn("archive", "the disk is too slow: frames are not kept");
	if (full) {
		const struct err slow = {.code = ERR_SYSTEM};

		note_lost(archive, job, &slow);
		count_records(archive, 0, 1);
		job_destroy(job);
	}
	archive->full = full;
}

/* The history asks one thing at a time, for itself: it is never too much. */
static void put_question(struct archive *archive, struct job *job)
{
	uv_mutex_lock(&archive->mutex);
	if (archive->questions.count < ARCHIVE_QUESTIONS_MAX || job->type == JOB_FOLDS)
		queue_put(&archive->questions, job);
	else
		refuse(archive, job, "too much is asked at once: try again in a moment");
	uv_cond_signal(&archive->more);
	uv_mutex_unlock(&archive->mutex);
}

void archive_store(struct archive *archive, const uint8_t *agent, const char *epoch,
		   uint64_t number, int64_t received_ms, struct slice plaintext)
{
	struct job *job = job_create(JOB_FRAME, agent, plaintext);

	memcpy(job->epoch, epoch, strlen(epoch) + 1);
	job->number = number;
	job->received_ms = received_ms;
	put_store(archive, job);
}

void archive_store_body(struct archive *archive, const uint8_t *agent, const char *epoch,
			uint64_t seq, struct slice text)
{
	struct job *job = job_create(JOB_BODY, agent, text);

	memcpy(job->epoch, epoch, strlen(epoch) + 1);
	job->number = seq;
	put_store(archive, job);
}

void archive_store_gone(struct archive *archive, const uint8_t *agent, const char *epoch,
			struct gone_range gone)
{
	struct job *job = job_create(JOB_GONE, agent, SLICE(""));

	memcpy(job->epoch, epoch, strlen(epoch) + 1);
	job->gone = gone;
	put_store(archive, job);
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
	put_question(archive, job);
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
	put_question(archive, job);
}

void archive_event(struct archive *archive, const uint8_t *agent, const struct pos *pos,
		   archive_done *done, void *ctx)
{
	struct job *job = job_create(JOB_EVENT, agent, SLICE(""));

	job->pos = *pos;
	job->done = done;
	job->ctx = ctx;
	put_question(archive, job);
}

void archive_raw(struct archive *archive, const uint8_t *agent, struct slice channel,
		 const struct raw_query *query, archive_done *done, void *ctx)
{
	struct job *job = job_create(JOB_RAW, agent, channel);

	job->raw = *query;
	job->done = done;
	job->ctx = ctx;
	put_question(archive, job);
}

void archive_search(struct archive *archive, struct search_query *query,
		    const uint8_t *agents, size_t agent_count, int64_t before,
		    size_t limit, archive_done *done, void *ctx)
{
	static const uint8_t nobody[KEY_BYTES];
	struct job *job =
		job_create(JOB_SEARCH, nobody,
			   (struct slice){(const char *)agents, agent_count * KEY_BYTES});

	job->query = *query;
	*query = (struct search_query){0};
	job->before = before;
	job->limit = limit;
	job->done = done;
	job->ctx = ctx;
	put_question(archive, job);
}

void archive_forget(struct archive *archive, const uint8_t *agent, struct slice channel,
		    int64_t before_ms, archive_done *done, void *ctx)
{
	struct job *job =
		job_create(JOB_FORGET, agent, channel.ptr ? channel : SLICE(""));

	job->all_channels = !channel.ptr;
	job->before = before_ms;
	job->done = done;
	job->ctx = ctx;
	put_question(archive, job);
}

void archive_forget_words(struct archive *archive, archive_done *done, void *ctx)
{
	static const uint8_t nobody[KEY_BYTES];
	struct job *job = job_create(JOB_FORGET_WORDS, nobody, SLICE(""));

	job->done = done;
	job->ctx = ctx;
	put_question(archive, job);
}

void archive_part(struct archive *archive, const uint8_t *agent, const struct pos *pos,
		  const struct part_query *query, archive_done *done, void *ctx)
{
	struct job *job = job_create(JOB_PART, agent, SLICE(""));

	job->pos = *pos;
	job->part = *query;
	job->done = done;
	job->ctx = ctx;
	put_question(archive, job);
}
