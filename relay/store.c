#include "relay/store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

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

struct store {
	struct sqlite3 *db; /* the writer's, once there is one */
	int lock;
	bool started;   /* the thread runs */
	bool has_async; /* answers go to the loop */
	uv_thread_t writer;
	uv_async_t async;
	uv_mutex_t mutex;
	uv_cond_t more;
	/* Under the mutex: */
	struct list waiting, done;
	size_t bytes; /* of both, and of what is being written */
	bool ending;
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

struct store *store_open(const char *path, struct err *err)
{
	struct store *store = mem_alloc(sizeof(*store));

	(void)uv_mutex_init(&store->mutex);
	(void)uv_cond_init(&store->more);
	store->lock = take_lock(path, err);
	/* An OK says that the event survives a power cut: NORMAL would lose the last
	 * commits. */
	if (store->lock >= 0 && db_open(path, store_migrations, &store->db, err) &&
	    db_exec(store->db, "PRAGMA synchronous = FULL", err))
		return store;
	store_close(store);
	return NULL;
}

struct sqlite3 *store_db(struct store *store)
{
	assert(!store->started);
	return store->db;
}

/* Runs one job so that its failure undoes only what it did itself. False when the whole
 * transaction is lost: a full disk, for one, ends it. */
static bool run_job(struct store *store, struct job *job, struct err *err)
{
	if (!db_exec(store->db, "SAVEPOINT job", err))
		return false;
	job->ok = job->run(job->ctx, store->db, &job->err);
	if (sqlite3_get_autocommit(store->db)) {
		*err = job->err;
		if (job->ok)
			(void)err_set(err, ERR_SYSTEM, "the transaction was given up");
		return false;
	}
	if (!job->ok && !db_exec(store->db, "ROLLBACK TO job", err))
		return false;
	return db_exec(store->db, "RELEASE job", err);
}

/* One transaction over the front of @batch: all of it is committed, or none. Returns the
 * first job that is left for the next, because time was up. */
static struct job *write_batch(struct store *store, struct job *batch)
{
	const int64_t until_ms = loop_now_ms() + STORE_BATCH_MS_MAX;
	struct job *job = batch;
	struct job *at;
	struct err err;
	bool ok = db_exec(store->db, "BEGIN IMMEDIATE", &err);

	do {
		ok = ok && run_job(store, job, &err);
		job = job->next;
	} while (job && loop_now_ms() < until_ms);
	if (ok && db_exec(store->db, "COMMIT", &err))
		return job;
	if (!sqlite3_get_autocommit(store->db))
		(void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
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

	while (store->waiting.first && count < STORE_BATCH_MAX &&
	       batch.bytes < STORE_BATCH_BYTES_MAX) {
		list_put(&batch, list_take(&store->waiting));
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
static bool write_some(struct store *store)
{
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

static void writer_main(void *arg)
{
	struct store *store = arg;
	bool ending = false;

	while (!ending) {
		uv_mutex_lock(&store->mutex);
		while (!store->waiting.first && !store->ending)
			uv_cond_wait(&store->more, &store->mutex);
		ending = store->ending && !store->waiting.first;
		uv_mutex_unlock(&store->mutex);
		(void)write_some(store);
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
	assert(!store->started);
	while (write_some(store))
		answer_all(store);
}

static void on_async(uv_async_t *async)
{
	answer_all(async->data);
}

bool store_start(struct store *store, struct loop *loop, struct err *err)
{
	(void)uv_async_init(loop->uv, &store->async, on_async);
	store->async.data = store;
	store->has_async = true;
	if (uv_thread_create(&store->writer, writer_main, store) != 0)
		return err_set(err, ERR_SYSTEM, "cannot start the thread that writes");
	store->started = true;
	return true;
}

static void destroy(struct store *store)
{
	uv_cond_destroy(&store->more);
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
	if (store->started) {
		uv_mutex_lock(&store->mutex);
		store->ending = true;
		uv_cond_signal(&store->more);
		uv_mutex_unlock(&store->mutex);
		(void)uv_thread_join(&store->writer);
		store->started = false;
	}
	/* An answer may ask for more. */
	if (store->db) {
		answer_all(store);
		store_step(store);
	}
	db_close(store->db);
	if (store->lock >= 0)
		(void)close(store->lock);
	if (store->has_async)
		uv_close((uv_handle_t *)&store->async, on_closed);
	else
		destroy(store);
}

bool store_write(struct store *store, store_job *run, store_done *done, void *ctx,
		 size_t bytes)
{
	struct job *job;
	bool ok;

	bytes += sizeof(*job);
	uv_mutex_lock(&store->mutex);
	ok = store->bytes + bytes <= STORE_QUEUE_MAX;
	if (ok) {
		job = mem_alloc(sizeof(*job));
		job->run = run;
		job->done = done;
		job->ctx = ctx;
		job->bytes = bytes;
		list_put(&store->waiting, job);
		store->bytes += bytes;
		uv_cond_signal(&store->more);
	}
	uv_mutex_unlock(&store->mutex);
	return ok;
}
