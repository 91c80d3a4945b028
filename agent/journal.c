#include "agent/journal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>
#include <uv.h>

#include "agent/journal_db.h"
#include "agent/journal_job.h"
#include "wire/base/mem.h"
#include "wire/base/pool.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"

#define SUBJECT "journal"
#define BATCH_MAX 200 /* records in one transaction; more gain nothing */
/* After it has slept and was woken: what comes so close behind shares a transaction. Our
 * choice. */
#define GATHER_NS 5000000
/* Jobs that are kept for those to come: our choice. */
#define SPARE_JOBS_BYTES (BATCH_MAX * POOL_LEAST_BYTES)

struct journal {
	char *path;
	char epoch[17];
	const struct journal_events *events;
	void *ctx;

	/* The loop's. */
	enum journal_state state;
	bool opened, was_lost;
	struct journal_index index;
	struct ranges waiting;
	uint64_t lost;
	int64_t bytes;
	size_t held_bytes;      /* of records that are with the thread */
	struct pool copies;     /* for put_copy() */
	struct pool spare_jobs; /* those that the loop makes */

	uv_thread_t thread;
	uv_async_t async;
	uv_mutex_t mutex;
	uv_cond_t more;
	/* Under the mutex. */
	struct jobs writes, reads, done;
	bool ending, idle; /* @idle: the thread is to be woken by what is written next */
	int64_t disk_bytes;

	/* The thread's. */
	struct journal_db_options db_options;
	uint8_t *key; /* guarded */
	struct journal_db *db;
	bool failing, told_open, moved;
	uint64_t retry_ns; /* by uv_hrtime(), while it fails */
	struct jobs batch; /* taken from writes, not on disk yet */
	struct buf frame;  /* one to be written whole */
};

/* ---- the thread ---- */

/* Hands @jobs to the loop. */
static void answer_all(struct journal *journal, struct jobs *jobs)
{
	if (!jobs->first)
		return;
	uv_mutex_lock(&journal->mutex);
	jobs_put_all(&journal->done, jobs);
	if (journal->db)
		journal->disk_bytes = journal_db_bytes(journal->db);
	uv_mutex_unlock(&journal->mutex);
	(void)uv_async_send(&journal->async);
}

static void answer(struct journal *journal, struct job *job)
{
	struct jobs one = {0};

	jobs_put(&one, job);
	answer_all(journal, &one);
}

static void say(struct journal *journal, enum job_type type, const char *text)
{
	struct job *job = job_create(type, "", 0);

	if (text)
		job_own(job, slice_of(text));
	answer(journal, job);
}

static void fail(struct journal *journal, const struct err *err)
{
	if (!journal->failing)
		say(journal, JOB_TROUBLE, err->text);
	journal->failing = true;
	journal->retry_ns = uv_hrtime() + (uint64_t)JOURNAL_RETRY_MS * 1000000;
}

/* A file that is broken is no use to anyone: it goes aside, and a new one takes its
 * place. */
static void move_aside(struct journal *journal)
{
	static const char *const parts[] = {"", "-wal", "-shm"};
	const size_t room = strlen(journal->path) + 32;
	char *from = mem_alloc(room), *to = mem_alloc(room);

	journal_db_close(journal->db);
	journal->db = NULL;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		(void)snprintf(from, room, "%s%s", journal->path, parts[i]);
		(void)snprintf(to, room, "%s.broken%s", journal->path, parts[i]);
		(void)rename(from, to);
	}
	journal->moved = true;
	log_warn(SUBJECT, "%s is put aside for a new one: what it held cannot be sent",
		 journal->path);
	free(from);
	free(to);
}

/* Tells the loop what there is, once it is known, and again when that changed as a
 * whole. */
static void tell_open(struct journal *journal, struct job *opened, bool failed)
{
	opened->failed = failed;
	opened->was_lost =
		journal->moved || (journal->db && journal_db_was_lost(journal->db));
	journal->told_open = true;
	answer(journal, opened);
}

static bool open_db(struct journal *journal, bool may_move)
{
	struct job *opened = job_create(JOB_OPENED, "", 0);
	struct err err;

	if (journal_db_open(&journal->db_options, loop_unix_ms() / 1000, &journal->db,
			    &opened->index, &opened->unclean, &err)) {
		/* Not to be remembered is no reason not to go on. */
		if (journal->moved &&
		    !journal_db_put_lost(journal->db, loop_unix_ms() / 1000, &err))
			log_warn(SUBJECT, "%s", err.text);
		tell_open(journal, opened, false);
		return true;
	}
	if (err.code == ERR_MALFORMED && may_move) {
		job_destroy(opened);
		move_aside(journal);
		return open_db(journal, false);
	}
	fail(journal, &err);
	if (journal->told_open)
		job_destroy(opened);
	else
		tell_open(journal, opened, true);
	return false;
}

/* The record's text: whole, whatever became of its last byte. */
static struct slice text_of(struct journal *journal, const struct job *job)
{
	if (!job->open)
		return job->text;
	buf_clear(&journal->frame);
	(void)buf_reserve(&journal->frame, FRAME_PLAINTEXT_MAX);
	(void)buf_append(&journal->frame, slice_sub(job->text, 0, job->text.len - 1));
	(void)buf_lit(&journal->frame, "}");
	return buf_slice(&journal->frame);
}

static bool store(struct journal *journal, const struct job *job, struct err *err)
{
	const struct slice text = text_of(journal, job);
	const int64_t now_s = loop_unix_ms() / 1000;

	switch (job->type) {
	case JOB_FRAME:
		return journal_db_put_frame(journal->db, job->epoch, job->number, now_s,
					    text, err);
	case JOB_BODY:
		return journal_db_put_body(journal->db, job->epoch, job->number, now_s,
					   text, err);
	case JOB_STOPPED:
		return journal_db_put_stopped(journal->db, err);
	default:
		assert(!"no record");
		return false;
	}
}

/* Makes room for what was written; the numbers that went are told once that is sure. */
static bool drop(struct journal *journal, struct jobs *dropped, struct err *err)
{
	const int64_t now_s = loop_unix_ms() / 1000;
	char epoch[17];
	uint64_t number;

	*err = (struct err){0};
	while (journal_db_drop_body(journal->db, now_s, err))
		;
	while (err->code == ERR_NONE &&
	       journal_db_drop_frame(journal->db, now_s, epoch, &number, err))
		jobs_put(dropped, job_create(JOB_DROPPED, epoch, number));
	return err->code == ERR_NONE;
}

static bool write_batch(struct journal *journal, struct jobs *dropped, struct err *err)
{
	bool ok = journal_db_begin(journal->db, err);

	for (struct job *job = journal->batch.first; ok && job; job = job->next)
		ok = store(journal, job, err);
	if (journal->frame.ptr)
		sodium_memzero(journal->frame.ptr, journal->frame.cap);
	ok = ok && drop(journal, dropped, err) && journal_db_commit(journal->db, err);
	if (!ok)
		journal_db_rollback(journal->db);
	return ok;
}

/* The batch goes back to the loop, with what became of it. */
static void settle_batch(struct journal *journal, bool was_lost)
{
	for (struct job *job = journal->batch.first; job; job = job->next)
		job->was_lost = was_lost;
	answer_all(journal, &journal->batch);
}

/* Writes what was taken; on failure it stays in hand. */
static void try_batch(struct journal *journal)
{
	struct jobs dropped = {0};
	struct job *job;
	struct err err;

	if (!journal->db && !open_db(journal, true))
		return;
	if (write_batch(journal, &dropped, &err)) {
		settle_batch(journal, false);
		answer_all(journal, &dropped);
		if (journal->failing)
			say(journal, JOB_OVER, NULL);
		journal->failing = false;
		return;
	}
	while ((job = jobs_take(&dropped)))
		job_destroy(job);
	fail(journal, &err);
	if (err.code == ERR_MALFORMED) {
		move_aside(journal);
		(void)open_db(journal, false);
	}
}

static void read_one(struct journal *journal, struct job *job)
{
	const bool body = job->type == JOB_READ_BODY;
	struct buf text;
	struct err err = {.code = ERR_NOT_FOUND};

	buf_init(&text, 64u << 20);
	if (journal->db &&
	    (body ? journal_db_body(journal->db, job->epoch, job->number, &text, &err)
		  : journal_db_frame(journal->db, job->epoch, job->number, &text,
				     &err))) {
		job_own(job, buf_slice(&text));
	} else if (err.code != ERR_NOT_FOUND) {
		log_warn(SUBJECT, "%s", err.text);
	}
	buf_wipe(&text);
	answer(journal, job);
}

/* Takes what there is to do: under the mutex. */
static struct job *take_work(struct journal *journal)
{
	struct job *reads = journal->reads.first, *job;

	journal->reads = (struct jobs){0};
	if (journal->batch.first)
		return reads;
	for (size_t i = 0; i < BATCH_MAX && (job = jobs_take(&journal->writes)); i++)
		jobs_put(&journal->batch, job);
	return reads;
}

/* Sleeps until there is something to do, or, while it fails, until it is worth another
 * try. False: it is time to end, and nothing is left. */
static bool wait_for_work(struct journal *journal, bool *retry)
{
	bool gathered = false;

	*retry = false;
	while (!journal->ending && !journal->reads.first) {
		const uint64_t now_ns = uv_hrtime();

		if (journal->failing && now_ns < journal->retry_ns) {
			(void)uv_cond_timedwait(&journal->more, &journal->mutex,
						journal->retry_ns - now_ns);
		} else if (journal->failing) {
			*retry = true;
			break;
		} else if (!journal->writes.first) {
			journal->idle = true;
			uv_cond_wait(&journal->more, &journal->mutex);
			journal->idle = false;
		} else if (!gathered) {
			(void)uv_cond_timedwait(&journal->more, &journal->mutex,
						GATHER_NS);
			gathered = true;
		} else {
			break;
		}
	}
	return !journal->ending || journal->writes.first || journal->batch.first ||
	       journal->reads.first;
}

static void work(void *ctx)
{
	struct journal *journal = ctx;
	struct job *reads, *next;
	bool retry, ending, go_on = true;

	(void)open_db(journal, true);
	while (go_on) {
		uv_mutex_lock(&journal->mutex);
		go_on = wait_for_work(journal, &retry);
		ending = journal->ending;
		reads = take_work(journal);
		uv_mutex_unlock(&journal->mutex);
		for (; reads; reads = next) {
			next = reads->next;
			reads->next = NULL;
			read_one(journal, reads);
		}
		if (journal->batch.first && (!journal->failing || retry || ending))
			try_batch(journal);
		else if (!journal->batch.first && retry && !journal->db &&
			 open_db(journal, true)) {
			journal->failing = false;
			say(journal, JOB_OVER, NULL);
		}
		/* The last try was the last. */
		if (ending && journal->batch.first)
			settle_batch(journal, true);
	}
	journal_db_close(journal->db);
	journal->db = NULL;
}

/* ---- the loop ---- */

static void on_opened(struct journal *journal, struct job *job)
{
	journal_index_finish(&journal->index);
	journal->index = job->index;
	job->index = (struct journal_index){0};
	journal->state = job->failed ? JOURNAL_FAILING : JOURNAL_KEEPING;
	journal->opened = journal->opened || !job->failed;
	journal->was_lost = job->was_lost;
	journal->events->on_open(journal->ctx, job->unclean);
}

static void on_settled(struct journal *journal, const struct job *job)
{
	const bool ours = strcmp(job->epoch, journal->epoch) == 0;

	journal->held_bytes -= job_bytes(job);
	if (job->was_lost)
		journal->lost++;
	if (job->type != JOB_FRAME)
		return;
	if (ours)
		ranges_remove(&journal->waiting, job->number);
	if (!job->was_lost)
		journal_index_add(&journal->index, job->epoch, job->number);
	if (ours && job->was_lost)
		journal->events->on_lost(journal->ctx, job->number);
	else if (ours)
		journal->events->on_kept(journal->ctx, job->number);
}

static void on_dropped(struct journal *journal, const struct job *job)
{
	journal_index_let_go(&journal->index, job->epoch, job->number, journal->epoch);
	if (strcmp(job->epoch, journal->epoch) == 0)
		journal->events->on_lost(journal->ctx, job->number);
}

static void on_read(struct journal *journal, const struct job *job)
{
	if (job->type == JOB_READ_BODY) {
		journal->events->on_body(journal->ctx, job->epoch, job->number,
					 job->text);
		return;
	}
	/* One that cannot be read is not there, whatever the index said. */
	if (!job->text.ptr)
		journal_index_remove(&journal->index, job->epoch, job->number,
				     journal->epoch);
	journal->events->on_frame(journal->ctx, job->epoch, job->number, job->text);
}

static void on_trouble(struct journal *journal, const struct job *job)
{
	char reason[256];

	journal->state = JOURNAL_FAILING;
	(void)snprintf(reason, sizeof(reason), "%.*s", SLICE_ARG(job->text));
	log_warn(SUBJECT, "what leaves is not kept for later: %s", reason);
	journal->events->on_trouble(journal->ctx, reason, journal->lost);
}

static void on_over(struct journal *journal)
{
	journal->state = JOURNAL_KEEPING;
	log_warn(SUBJECT, "what leaves is kept again; %" PRIu64 " records were not",
		 journal->lost);
	journal->events->on_trouble(journal->ctx, NULL, journal->lost);
}

static void on_answer(struct journal *journal, struct job *job)
{
	switch (job->type) {
	case JOB_OPENED:
		on_opened(journal, job);
		break;
	case JOB_FRAME:
	case JOB_BODY:
	case JOB_STOPPED:
		on_settled(journal, job);
		break;
	case JOB_DROPPED:
		on_dropped(journal, job);
		break;
	case JOB_READ:
	case JOB_READ_BODY:
		on_read(journal, job);
		break;
	case JOB_TROUBLE:
		on_trouble(journal, job);
		break;
	case JOB_OVER:
		on_over(journal);
		break;
	}
}

static void on_done(uv_async_t *async)
{
	struct journal *journal = async->data;
	struct jobs done;
	struct job *job;

	uv_mutex_lock(&journal->mutex);
	done = journal->done;
	journal->done = (struct jobs){0};
	journal->bytes = journal->disk_bytes;
	uv_mutex_unlock(&journal->mutex);
	while ((job = jobs_take(&done))) {
		on_answer(journal, job);
		if (job->type < JOB_OPENED)
			job_give(&journal->spare_jobs, job);
		else
			job_destroy(job);
	}
}

/* The key of the rows, from that of the agent: who has the one has the other. */
static bool derive_key(struct journal *journal, struct crypto *crypto,
		       const struct keypair *keypair, struct err *err)
{
	uint8_t *secret = sodium_malloc(KEY_BYTES);

	journal->key = sodium_malloc(JOURNAL_KEY_BYTES);
	if (secret && journal->key) {
		keypair_secret(keypair, secret);
		hkdf_extract(crypto, SLICE("perch journal 1"),
			     (struct slice){(char *)secret, KEY_BYTES}, journal->key);
	}
	sodium_free(secret);
	return (secret && journal->key) ||
	       err_set(err, ERR_SYSTEM, "no locked memory for a key");
}

static void journal_free(struct journal *journal)
{
	assert(!journal->held_bytes);
	journal_index_finish(&journal->index);
	ranges_finish(&journal->waiting);
	pool_finish(&journal->copies);
	pool_finish(&journal->spare_jobs);
	buf_finish(&journal->frame);
	sodium_free(journal->key);
	free(journal->path);
	free(journal);
}

struct journal *journal_create(struct loop *loop, const struct journal_options *options,
			       struct err *err)
{
	struct journal *journal = mem_alloc(sizeof(*journal));

	journal->path = mem_dup(slice_of(options->path));
	memcpy(journal->epoch, options->epoch, sizeof(journal->epoch));
	journal->events = options->events;
	journal->ctx = options->ctx;
	journal->copies.max_bytes = JOURNAL_SPARE_MAX;
	journal->spare_jobs.max_bytes = SPARE_JOBS_BYTES;
	buf_init(&journal->frame, FRAME_PLAINTEXT_MAX);
	if (!derive_key(journal, loop->crypto, options->keypair, err)) {
		journal_free(journal);
		return NULL;
	}
	journal->db_options = (struct journal_db_options){
		.path = journal->path,
		.key = journal->key,
		.epoch = journal->epoch,
		.max_bytes = options->max_bytes,
		.max_age_s = options->max_age_s,
	};
	(void)uv_mutex_init(&journal->mutex);
	(void)uv_cond_init(&journal->more);
	(void)uv_async_init(loop->uv, &journal->async, on_done);
	journal->async.data = journal;
	if (uv_thread_create(&journal->thread, work, journal) == 0)
		return journal;
	(void)err_set(err, ERR_SYSTEM, "cannot start the journal's thread");
	journal->ending = true;
	journal_destroy(journal);
	return NULL;
}

static void on_closed(uv_handle_t *handle)
{
	struct journal *journal = handle->data;

	uv_cond_destroy(&journal->more);
	uv_mutex_destroy(&journal->mutex);
	journal_free(journal);
}

void journal_destroy(struct journal *journal)
{
	if (!journal)
		return;
	if (!journal->ending) {
		uv_mutex_lock(&journal->mutex);
		journal->ending = true;
		uv_cond_signal(&journal->more);
		uv_mutex_unlock(&journal->mutex);
		(void)uv_thread_join(&journal->thread);
		on_done(&journal->async);
	}
	uv_close((uv_handle_t *)&journal->async, on_closed);
}

enum journal_state journal_state(const struct journal *journal)
{
	return journal->state;
}

bool journal_was_opened(const struct journal *journal)
{
	return journal->opened;
}

bool journal_was_lost(const struct journal *journal)
{
	return journal->was_lost;
}

const struct journal_index *journal_index(const struct journal *journal)
{
	return &journal->index;
}

const struct ranges *journal_waiting(const struct journal *journal)
{
	return &journal->waiting;
}

int64_t journal_bytes(const struct journal *journal)
{
	return journal->bytes;
}

uint64_t journal_lost(const struct journal *journal)
{
	return journal->lost;
}

void journal_refuse(struct journal *journal, const char *epoch, uint64_t number)
{
	journal_index_refuse(&journal->index, epoch, number);
}

bool journal_can_take(const struct journal *journal)
{
	return journal->state == JOURNAL_KEEPING;
}

/* Hands @job, to be done, to the thread. Waking it costs more than all else here, so a
 * burst of what is to be written does that once. */
static void give(struct journal *journal, struct jobs *jobs, struct job *job)
{
	bool wake;

	uv_mutex_lock(&journal->mutex);
	jobs_put(jobs, job);
	wake = journal->idle || jobs == &journal->reads;
	journal->idle = false;
	uv_mutex_unlock(&journal->mutex);
	if (wake)
		uv_cond_signal(&journal->more);
}

/* Has a record written; false when too much waits, or it ends. */
static bool put(struct journal *journal, struct job *job)
{
	if (journal->ending || journal->held_bytes > JOURNAL_QUEUE_MAX) {
		journal->lost++;
		job_give(&journal->spare_jobs, job);
		return false;
	}
	journal->held_bytes += job_bytes(job);
	give(journal, &journal->writes, job);
	return true;
}

static bool put_copy(struct journal *journal, struct job *job, struct slice text)
{
	job->memory = shared_take(&journal->copies, text.len);
	job->memory->used = text.len;
	memcpy(job->memory->data, text.ptr, text.len);
	job->text = (struct slice){job->memory->data, text.len};
	return put(journal, job);
}

bool journal_hold(struct journal *journal, uint64_t number, struct shared *memory,
		  struct slice frame)
{
	struct job *job =
		job_take(&journal->spare_jobs, JOB_FRAME, journal->epoch, number);

	job->memory = shared_hold(memory);
	job->text = frame;
	job->open = true;
	if (!put(journal, job))
		return false;
	ranges_add(&journal->waiting, number);
	return true;
}

bool journal_put_of(struct journal *journal, const char *epoch, uint64_t number,
		    struct slice frame)
{
	if (!put_copy(journal, job_take(&journal->spare_jobs, JOB_FRAME, epoch, number),
		      frame))
		return false;
	if (strcmp(epoch, journal->epoch) == 0)
		ranges_add(&journal->waiting, number);
	return true;
}

uint64_t journal_number(struct journal *journal, const char *epoch)
{
	struct journal_epoch *at = journal_index_find(&journal->index, epoch);

	assert(at && strcmp(epoch, journal->epoch) != 0);
	return ++at->last;
}

bool journal_put(struct journal *journal, uint64_t number, struct slice frame)
{
	return journal_put_of(journal, journal->epoch, number, frame);
}

bool journal_put_body(struct journal *journal, uint64_t seq, struct slice event)
{
	return put_copy(journal,
			job_take(&journal->spare_jobs, JOB_BODY, journal->epoch, seq),
			event);
}

void journal_put_stopped(struct journal *journal)
{
	(void)put(journal,
		  job_take(&journal->spare_jobs, JOB_STOPPED, journal->epoch, 0));
}

static void ask(struct journal *journal, enum job_type type, const char *epoch,
		uint64_t number)
{
	if (!journal->ending) /* else nobody is there who answers */
		give(journal, &journal->reads,
		     job_take(&journal->spare_jobs, type, epoch, number));
}

void journal_read(struct journal *journal, const char *epoch, uint64_t number)
{
	ask(journal, JOB_READ, epoch, number);
}

void journal_read_body(struct journal *journal, const char *epoch, uint64_t seq)
{
	ask(journal, JOB_READ_BODY, epoch, seq);
}
