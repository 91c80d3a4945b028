#include "relay/store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>
#include <uv.h>

#include "relay/store_schema.h"
#include "wire/base/buf.h"
#include "wire/base/mem.h"
#include "wire/host/db.h"
#include "wire/host/paths.h"

#define LOCK_PATH_MAX 4096

struct job {
	struct job *next;
	size_t bytes;
	store_job *run;
	store_done *done;
	void *ctx;
	bool ok;
	struct err err;
};

struct list {
	struct job *first, **end;
	size_t bytes;
};

/* One thread, with a connection to the database of its own. */
struct worker {
	struct store *store;
	struct sqlite3 *db;
	/* Does some of what waits; false when nothing did. */
	bool (*work)(struct worker *worker);
	uv_thread_t thread;
	bool started;
	uv_cond_t more;
	struct list waiting; /* under the mutex */
};

struct store {
	struct worker writer, reader;
	int lock;
	bool has_async; /* answers go to the loop */
	uv_async_t async;
	uv_mutex_t mutex;
	/* Under the mutex: */
	struct list done;
	size_t bytes; /* of all jobs that were not answered */
	bool ending;
	struct store_figures figures; /* but waiting */
	bool is_trying;               /* the loop's: store_try_again() is not answered */
	bool has_tried;               /* the writer's: this batch holds it */
};

static void list_put(struct list *list, struct job *job)
{
	if (!list->first)
		list->end = &list->first;
	job->next = NULL;
	*list->end = job;
	list->end = &job->next;
	list->bytes += job->bytes;
}

static struct job *list_take(struct list *list)
{
	struct job *job = list->first;

	if (!job)
		return NULL;
	list->first = job->next;
	list->bytes -= job->bytes;
	return job;
}

/* Two relays would each believe to know the last seq. */
static int take_lock(const char *path, struct err *err)
{
	struct buf name;
	long pid = 0;
	int fd;

	buf_init(&name, LOCK_PATH_MAX);
	(void)buf_printf(&name, "%s" STORE_LOCK_SUFFIX, path);
	fd = paths_lock(buf_text(&name), &pid, err);
	buf_finish(&name);
	if (fd < 0 && err->code == ERR_REFUSED)
		(void)err_set(err, ERR_REFUSED,
			      "process %ld uses the database %.100s: stop it, or name "
			      "another with --db",
			      pid, path);
	return fd;
}

static bool write_some(struct worker *writer);
static bool read_some(struct worker *reader);

static void worker_init(struct worker *worker, struct store *store,
			bool (*work)(struct worker *worker))
{
	worker->store = store;
	worker->work = work;
	(void)uv_cond_init(&worker->more);
}

struct store *store_open(const char *path, struct err *err)
{
	struct store *store = mem_alloc(sizeof(*store));

	(void)uv_mutex_init(&store->mutex);
	worker_init(&store->writer, store, write_some);
	worker_init(&store->reader, store, read_some);
	store->lock = take_lock(path, err);
	/* An OK says that the event survives a power cut: NORMAL would lose the last
	 * commits. */
	if (store->lock >= 0 && db_open(path, store_migrations, &store->writer.db, err) &&
	    db_exec(store->writer.db, "PRAGMA synchronous = FULL", err) &&
	    db_open(path, store_migrations, &store->reader.db, err) &&
	    db_exec(store->reader.db, "PRAGMA query_only = ON", err))
		return store;
	store_close(store);
	return NULL;
}

struct sqlite3 *store_db(struct store *store)
{
	assert(!store->writer.started);
	return store->writer.db;
}

struct sqlite3 *store_reader_db(struct store *store)
{
	assert(!store->reader.started);
	return store->reader.db;
}

/* Runs one job so that its failure undoes only what it did itself. False when the whole
 * transaction is lost: a full disk, for one, ends it. */
static bool run_job(struct store *store, struct job *job, struct err *err)
{
	if (!db_exec(store->writer.db, "SAVEPOINT job", err))
		return false;
	job->ok = job->run(job->ctx, store->writer.db, &job->err);
	if (sqlite3_get_autocommit(store->writer.db)) {
		*err = job->err;
		if (job->ok)
			(void)err_set(err, ERR_SYSTEM, "the transaction was given up");
		return false;
	}
	if (!job->ok && !db_exec(store->writer.db, "ROLLBACK TO job", err))
		return false;
	return db_exec(store->writer.db, "RELEASE job", err);
}

/* @failed: all of it or a job. @changed: it wrote something; a transaction that only
 * looked says nothing of the disk. */
static void count_batch(struct store *store, bool committed, bool failed, bool changed,
			int64_t begin_ns)
{
	uv_mutex_lock(&store->mutex);
	if (failed || changed)
		store->figures.is_failing = failed;
	store->figures.commits += committed;
	store->figures.failed += !committed;
	histogram_add(&store->figures.commit, loop_now_ns() - begin_ns);
	uv_mutex_unlock(&store->mutex);
}

void store_figures(struct store *store, struct store_figures *out)
{
	uv_mutex_lock(&store->mutex);
	*out = store->figures;
	out->waiting = store->bytes;
	uv_mutex_unlock(&store->mutex);
}

/* db_fail()'s codes. */
static bool is_the_disk(const struct err *err)
{
	return err->code == ERR_SYSTEM || err->code == ERR_MALFORMED;
}

/* One transaction over the front of @batch: all of it is committed, or none. Returns the
 * first job that is left for the next, because time was up. */
static struct job *write_batch(struct store *store, struct job *batch)
{
	const int64_t until_ms = loop_now_ms() + STORE_BATCH_MS_MAX;
	const int64_t begin_ns = loop_now_ns();
	const int changes = sqlite3_total_changes(store->writer.db);
	struct job *job = batch;
	struct job *at;
	struct err err;
	bool failed = false;
	bool ok = db_exec(store->writer.db, "BEGIN IMMEDIATE", &err);

	store->has_tried = false;
	do {
		ok = ok && run_job(store, job, &err);
		failed = failed || (ok && !job->ok && is_the_disk(&job->err));
		job = job->next;
	} while (job && loop_now_ms() < until_ms);
	ok = ok && db_commit(store->writer.db, &err);
	count_batch(store, ok, !ok || failed,
		    store->has_tried ||
			    sqlite3_total_changes(store->writer.db) != changes,
		    begin_ns);
	if (ok)
		return job;
	if (!sqlite3_get_autocommit(store->writer.db))
		(void)sqlite3_exec(store->writer.db, "ROLLBACK", NULL, NULL, NULL);
	for (at = batch; at != job; at = at->next) {
		at->ok = false;
		at->err = err;
	}
	return job;
}

/* Takes the next transaction's jobs off what waits. Under the mutex. */
static struct job *take_batch(struct store *store)
{
	struct list batch = {0};
	size_t count = 0;

	while (store->writer.waiting.first && count < STORE_BATCH_MAX &&
	       batch.bytes < STORE_BATCH_BYTES_MAX) {
		list_put(&batch, list_take(&store->writer.waiting));
		count++;
	}
	return batch.first;
}

/* From @job up to @end they are committed, or have failed. */
static void hand_back(struct store *store, struct job *job, const struct job *end)
{
	struct job *next;

	uv_mutex_lock(&store->mutex);
	for (; job != end; job = next) {
		next = job->next;
		list_put(&store->done, job);
	}
	uv_mutex_unlock(&store->mutex);
	if (store->has_async)
		(void)uv_async_send(&store->async);
}

/* Writes some of what waits; false when nothing did. */
static bool write_some(struct worker *writer)
{
	struct store *store = writer->store;
	struct job *batch, *left;

	uv_mutex_lock(&store->mutex);
	batch = take_batch(store);
	uv_mutex_unlock(&store->mutex);
	if (!batch)
		return false;
	while (batch) {
		left = write_batch(store, batch);
		hand_back(store, batch, left);
		batch = left;
	}
	return true;
}

/* One job in a snapshot of its own. */
static bool read_some(struct worker *reader)
{
	struct store *store = reader->store;
	struct job *job;

	uv_mutex_lock(&store->mutex);
	job = list_take(&reader->waiting);
	uv_mutex_unlock(&store->mutex);
	if (!job)
		return false;
	job->next = NULL;
	job->ok = db_exec(reader->db, "BEGIN", &job->err) &&
		  job->run(job->ctx, reader->db, &job->err);
	(void)sqlite3_exec(reader->db, "ROLLBACK", NULL, NULL, NULL);
	hand_back(store, job, NULL);
	return true;
}

static void worker_main(void *arg)
{
	struct worker *worker = arg;
	struct store *store = worker->store;
	bool ending = false;

	while (!ending) {
		uv_mutex_lock(&store->mutex);
		while (!worker->waiting.first && !store->ending)
			uv_cond_wait(&worker->more, &store->mutex);
		ending = store->ending && !worker->waiting.first;
		uv_mutex_unlock(&store->mutex);
		(void)worker->work(worker);
	}
}

static void answer_all(struct store *store)
{
	struct job *job;

	for (;;) {
		uv_mutex_lock(&store->mutex);
		job = list_take(&store->done);
		if (job)
			store->bytes -= job->bytes;
		uv_mutex_unlock(&store->mutex);
		if (!job)
			return;
		if (job->done)
			job->done(job->ctx, job->ok ? NULL : &job->err);
		free(job);
	}
}

void store_step(struct store *store)
{
	assert(!store->writer.started && !store->reader.started);
	while (write_some(&store->writer) || read_some(&store->reader))
		answer_all(store);
}

static void on_async(uv_async_t *async)
{
	answer_all(async->data);
}

static bool worker_start(struct worker *worker, struct err *err)
{
	if (uv_thread_create(&worker->thread, worker_main, worker) != 0)
		return err_set(err, ERR_SYSTEM, "cannot start a thread for the database");
	worker->started = true;
	return true;
}

static void worker_join(struct worker *worker)
{
	if (!worker->started)
		return;
	(void)uv_thread_join(&worker->thread);
	worker->started = false;
}

bool store_start(struct store *store, struct loop *loop, struct err *err)
{
	(void)uv_async_init(loop->uv, &store->async, on_async);
	store->async.data = store;
	store->has_async = true;
	return worker_start(&store->writer, err) && worker_start(&store->reader, err);
}

static void destroy(struct store *store)
{
	uv_cond_destroy(&store->writer.more);
	uv_cond_destroy(&store->reader.more);
	uv_mutex_destroy(&store->mutex);
	free(store);
}

static void on_closed(uv_handle_t *handle)
{
	destroy(handle->data);
}

void store_close(struct store *store)
{
	if (!store)
		return;
	uv_mutex_lock(&store->mutex);
	store->ending = true;
	uv_cond_signal(&store->writer.more);
	uv_cond_signal(&store->reader.more);
	uv_mutex_unlock(&store->mutex);
	worker_join(&store->writer);
	worker_join(&store->reader);
	/* An answer may ask for more. */
	if (store->reader.db) {
		answer_all(store);
		store_step(store);
	}
	db_close(store->reader.db);
	db_close(store->writer.db);
	if (store->lock >= 0)
		(void)close(store->lock);
	if (store->has_async)
		uv_close((uv_handle_t *)&store->async, on_closed);
	else
		destroy(store);
}

/* Under the mutex. */
static void put_job(struct worker *worker, store_job *run, store_done *done, void *ctx,
		    size_t bytes)
{
	struct job *job = mem_alloc(sizeof(*job));

	job->run = run;
	job->done = done;
	job->ctx = ctx;
	job->bytes = bytes;
	list_put(&worker->waiting, job);
	worker->store->bytes += bytes;
	uv_cond_signal(&worker->more);
}

bool store_write(struct store *store, store_job *run, store_done *done, void *ctx,
		 size_t bytes)
{
	bool ok;

	bytes += sizeof(struct job);
	uv_mutex_lock(&store->mutex);
	ok = store->bytes + bytes <= STORE_QUEUE_MAX;
	if (ok)
		put_job(&store->writer, run, done, ctx, bytes);
	uv_mutex_unlock(&store->mutex);
	return ok;
}

void store_read(struct store *store, store_job *run, store_done *done, void *ctx)
{
	uv_mutex_lock(&store->mutex);
	put_job(&store->reader, run, done, ctx, 0);
	uv_mutex_unlock(&store->mutex);
}

/* Writes the first page as it was. */
static bool try_again(void *ctx, struct sqlite3 *db, struct err *err)
{
	struct store *store = ctx;
	struct sqlite3_stmt *stmt = NULL;
	char sql[48];
	int version = 0;

	store->has_tried = true;
	if (!db_prepare(db, "PRAGMA user_version", &stmt, err))
		return false;
	if (sqlite3_step(stmt) == SQLITE_ROW)
		version = sqlite3_column_int(stmt, 0);
	(void)sqlite3_finalize(stmt);
	(void)snprintf(sql, sizeof(sql), "PRAGMA user_version = %d", version);
	return db_exec(db, sql, err);
}

static void on_tried(void *ctx, const struct err *err)
{
	struct store *store = ctx;

	(void)err; /* the figures say it */
	store->is_trying = false;
}

void store_try_again(struct store *store)
{
	bool is_failing;

	uv_mutex_lock(&store->mutex);
	is_failing = store->figures.is_failing;
	uv_mutex_unlock(&store->mutex);
	if (!is_failing || store->is_trying)
		return;
	store->is_trying = store_write(store, try_again, on_tried, store, 0);
}
