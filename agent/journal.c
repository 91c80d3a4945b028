#include "agent/journal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "agent/journal_db.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"

#define SUBJECT "journal"
#define BATCH_MAX 200 /* records in one transaction; more gain nothing */

enum job_type {
	/* to the thread */
	JOB_FRAME,
	JOB_BODY,
	JOB_STOPPED,
	JOB_READ,
	JOB_READ_BODY,
	/* and back */
	JOB_OPENED,
	JOB_KEPT,
	JOB_LOST,
	JOB_DROPPED,
	JOB_TROUBLE,
	JOB_OVER,
};

struct job {
	struct job *next;
	enum job_type type;
	char epoch[17];
	uint64_t number; /* of the frame, or seq */
	char *text;      /* owned; NULL: none */
	size_t len;
	/* JOB_OPENED */
	struct journal_index index;
	bool unclean, failed;
};

struct jobs {
	struct job *first, **end;
	size_t bytes;
};

struct journal {
	char *path;
	char epoch[17];
	const struct journal_events *events;
	void *ctx;

	/* The loop's. */
	enum journal_state state;
	struct journal_index index;
	struct ranges waiting;
	uint64_t lost;
	int64_t bytes;

	uv_thread_t thread;
	uv_async_t async;
	uv_mutex_t mutex;
	uv_cond_t more;
	/* Under the mutex. */
	struct jobs writes, reads, done;
	bool ending;
	int64_t disk_bytes;

	/* The thread's. */
	struct journal_db_options db_options;
	uint8_t *key; /* guarded */
	struct journal_db *db;
	bool failing, told_open;
	uint64_t retry_ns; /* by uv_hrtime(), while it fails */
	struct job *batch; /* taken from writes, not on disk yet */
};

/* ---- lists ---- */

static struct job *job_create(enum job_type type, const char *epoch, uint64_t number,
			      struct slice text)
{
	struct job *job = mem_alloc(sizeof(*job));

	job->type = type;
	memcpy(job->epoch, epoch, strlen(epoch) + 1);
	job->number = number;
	if (text.ptr) {
		job->text = mem_dup(text);
		job->len = text.len;
	}
	return job;
}

static void job_destroy(struct job *job)
{
	journal_index_finish(&job->index);
	if (job->text)
		sodium_memzero(job->text, job->len);
	free(job->text);
	free(job);
}

static size_t job_bytes(const struct job *job)
{
	return sizeof(*job) + job->len;
}

static void jobs_put(struct jobs *jobs, struct job *job)
{
	if (!jobs->first)
		jobs->end = &jobs->first;
	job->next = NULL;
	*jobs->end = job;
	jobs->end = &job->next;
	jobs->bytes += job_bytes(job);
}

static struct job *jobs_take(struct jobs *jobs)
{
	struct job *job = jobs->first;

	if (job) {
		jobs->first = job->next;
		jobs->bytes -= job_bytes(job);
		job->next = NULL;
	}
	return job;
}

/* ---- the thread ---- */

/* Hands @job to the loop. */
static void answer(struct journal *journal, struct job *job)
{
	uv_mutex_lock(&journal->mutex);
	jobs_put(&journal->done, job);
	if (journal->db)
		journal->disk_bytes = journal_db_bytes(journal->db);
	uv_mutex_unlock(&journal->mutex);
	(void)uv_async_send(&journal->async);
}

static void say(struct journal *journal, enum job_type type, const char *text)
{
	answer(journal, job_create(type, "", 0, text ? slice_of(text) : SLICE_EMPTY));
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
	log_warn(SUBJECT, "%s is broken and was moved aside, what it held cannot be sent",
		 journal->path);
	free(from);
	free(to);
}

/* Tells the loop what there is, once it is known, and again when that changed as a
 * whole. */
static void tell_open(struct journal *journal, struct job *opened, bool failed)
{
	opened->failed = failed;
	journal->told_open = true;
	answer(journal, opened);
}

static bool open_db(struct journal *journal, bool may_move)
{
	struct job *opened = job_create(JOB_OPENED, "", 0, SLICE_EMPTY);
	struct err err;

	if (journal_db_open(&journal->db_options, loop_unix_ms() / 1000, &journal->db,
			    &opened->index, &opened->unclean, &err)) {
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

static bool store(struct journal *journal, const struct job *job, struct err *err)
{
	const struct slice text = {job->text, job->len};
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
		jobs_put(dropped, job_create(JOB_DROPPED, epoch, number, SLICE_EMPTY));
	return err->code == ERR_NONE;
}

static bool write_batch(struct journal *journal, struct jobs *dropped, struct err *err)
{
	bool ok = journal_db_begin(journal->db, err);

	for (struct job *job = journal->batch; ok && job; job = job->next)
		ok = store(journal, job, err);
	ok = ok && drop(journal, dropped, err) && journal_db_commit(journal->db, err);
	if (!ok)
		journal_db_rollback(journal->db);
	return ok;
}

/* What became of the batch goes back to the loop, without its text. */
static void settle_batch(struct journal *journal, enum job_type verdict)
{
	struct job *job;

	while ((job = journal->batch)) {
		journal->batch = job->next;
		if (verdict == JOB_LOST || job->type == JOB_FRAME)
			answer(journal,
			       job_create(verdict,
					  job->type == JOB_FRAME ? job->epoch : "",
					  job->number, SLICE_EMPTY));
		job_destroy(job);
	}
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
		settle_batch(journal, JOB_KEPT);
		while ((job = jobs_take(&dropped)))
			answer(journal, job);
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
		job->text = mem_dup(buf_slice(&text));
		job->len = text.len;
	} else if (err.code != ERR_NOT_FOUND) {
		log_warn(SUBJECT, "%s", err.text);
	}
	buf_wipe(&text);
	answer(journal, job);
}

/* Takes what there is to do: under the mutex. */
static struct job *take_work(struct journal *journal)
{
	struct job *reads = journal->reads.first, **end = &journal->batch, *job;

	journal->reads = (struct jobs){0};
	if (journal->batch)
		return reads;
	for (size_t i = 0; i < BATCH_MAX && (job = jobs_take(&journal->writes)); i++) {
		*end = job;
		end = &job->next;
	}
	return reads;
}

/* Sleeps until there is something to do, or, while it fails, until it is worth another
 * try. False: it is time to end, and nothing is left. */
static bool wait_for_work(struct journal *journal, bool *retry)
{
	*retry = false;
	while (!journal->ending && !journal->reads.first) {
		const uint64_t now_ns = uv_hrtime();

		if (!journal->failing && journal->writes.first)
			break;
		if (!journal->failing) {
			uv_cond_wait(&journal->more, &journal->mutex);
		} else if (now_ns < journal->retry_ns) {
			(void)uv_cond_timedwait(&journal->more, &journal->mutex,
						journal->retry_ns - now_ns);
		} else {
			*retry = true;
			break;
		}
	}
	return !journal->ending || journal->writes.first || journal->batch ||
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
		if (journal->batch && (!journal->failing || retry || ending))
			try_batch(journal);
		else if (!journal->batch && retry && !journal->db &&
			 open_db(journal, true)) {
			journal->failing = false;
			say(journal, JOB_OVER, NULL);
		}
		/* The last try was the last. */
		if (ending && journal->batch)
			settle_batch(journal, JOB_LOST);
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
	journal->events->on_open(journal->ctx, job->unclean);
}

static void on_settled(struct journal *journal, const struct job *job)
{
	const bool ours = strcmp(job->epoch, journal->epoch) == 0;

	if (job->type == JOB_LOST)
		journal->lost++;
	if (!job->epoch[0])
		return;
	if (ours)
		ranges_remove(&journal->waiting, job->number);
	if (job->type == JOB_KEPT)
		journal_index_add(&journal->index, job->epoch, job->number);
	if (ours && job->type == JOB_KEPT)
		journal->events->on_kept(journal->ctx, job->number);
	else if (ours)
		journal->events->on_lost(journal->ctx, job->number);
}

static void on_dropped(struct journal *journal, const struct job *job)
{
	journal_index_remove(&journal->index, job->epoch, job->number, journal->epoch);
	if (strcmp(job->epoch, journal->epoch) == 0)
		journal->events->on_lost(journal->ctx, job->number);
}

static void on_read(struct journal *journal, const struct job *job)
{
	const struct slice text = {job->text, job->len};

	if (job->type == JOB_READ_BODY) {
		journal->events->on_body(journal->ctx, job->epoch, job->number, text);
		return;
	}
	/* One that cannot be read is not there, whatever the index said. */
	if (!text.ptr)
		journal_index_remove(&journal->index, job->epoch, job->number,
				     journal->epoch);
	journal->events->on_frame(journal->ctx, job->epoch, job->number, text);
}

static void on_trouble(struct journal *journal, const struct job *job)
{
	char reason[256];

	journal->state = JOURNAL_FAILING;
	(void)snprintf(reason, sizeof(reason), "%.*s", (int)job->len, job->text);
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
	case JOB_KEPT:
	case JOB_LOST:
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
	case JOB_FRAME:
	case JOB_BODY:
	case JOB_STOPPED:
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
	journal_index_finish(&journal->index);
	ranges_finish(&journal->waiting);
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

bool journal_can_take(const struct journal *journal)
{
	return journal->state == JOURNAL_KEEPING;
}

static bool put(struct journal *journal, struct job *job)
{
	bool full;

	uv_mutex_lock(&journal->mutex);
	full = journal->writes.bytes > JOURNAL_QUEUE_MAX;
	if (!full) {
		jobs_put(&journal->writes, job);
		uv_cond_signal(&journal->more);
	}
	uv_mutex_unlock(&journal->mutex);
	if (full) {
		journal->lost++;
		job_destroy(job);
	}
	return !full;
}

bool journal_put_of(struct journal *journal, const char *epoch, uint64_t number,
		    struct slice frame)
{
	if (!put(journal, job_create(JOB_FRAME, epoch, number, frame)))
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
	return put(journal, job_create(JOB_BODY, journal->epoch, seq, event));
}

void journal_put_stopped(struct journal *journal)
{
	(void)put(journal, job_create(JOB_STOPPED, journal->epoch, 0, SLICE_EMPTY));
}

static void ask(struct journal *journal, enum job_type type, const char *epoch,
		uint64_t number)
{
	struct job *job = job_create(type, epoch, number, SLICE_EMPTY);

	uv_mutex_lock(&journal->mutex);
	jobs_put(&journal->reads, job);
	uv_cond_signal(&journal->more);
	uv_mutex_unlock(&journal->mutex);
}

void journal_read(struct journal *journal, const char *epoch, uint64_t number)
{
	ask(journal, JOB_READ, epoch, number);
}

void journal_read_body(struct journal *journal, const char *epoch, uint64_t seq)
{
	ask(journal, JOB_READ_BODY, epoch, seq);
}
