#ifndef RELAY_STORE_H
#define RELAY_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relay/histogram.h"
#include "wire/base/err.h"
#include "wire/host/loop.h"

struct sqlite3;

/* Behind the database's path: the file that a relay which uses it has locked. */
#define STORE_LOCK_SUFFIX ".lock"

/* What the relay keeps on disk: events of stored kinds, and small tables of other modules
 * (their schema is a script in store_schema.c). One thread writes: it takes what waits,
 * commits it as one transaction and only then answers, on the loop and in the order of
 * asking. Another thread reads. The loop never waits for the disk. */
struct store;

/* What may wait for the disk before more is refused; our choice. */
#define STORE_QUEUE_MAX (32u << 20) /* bytes */
/* Most of one transaction: measured, more gains nothing (facts on SQLite). */
#define STORE_BATCH_MAX 256              /* jobs */
#define STORE_BATCH_BYTES_MAX (4u << 20) /* their bytes */
#define STORE_BATCH_MS_MAX 50            /* from the first to the commit */

/**
 * store_open - open or make the database at @path
 * The caller's thread has it until store_start(). A second relay on the same file is
 * ERR_REFUSED; a newer, broken, full, held or read-only database says so and what to do.
 */
struct store *store_open(const char *path, struct err *err);
/* The database, for a module that reads its tables at start: before store_start() only.
 */
struct sqlite3 *store_db(struct store *store);
/* The reader's own connection to it, for what is to be prepared there: likewise. */
struct sqlite3 *store_reader_db(struct store *store);
/* Starts the threads; answers come on @loop. Without this (a test) store_step() does
 * their work. */
bool store_start(struct store *store, struct loop *loop, struct err *err);
/* Commits and answers all that waits, ends the threads, closes. Call it while the loop
 * still is and whoever is answered, too. NULL is fine. */
void store_close(struct store *store);
/* Does and answers all that waits on this thread: for a store that was not started. */
void store_step(struct store *store);

/* Changes the database inside the writer's transaction, which it must not end, on the
 * writer's thread; false undoes what it did and nothing else. It must touch nothing that
 * the loop touches: copy what it needs into @ctx. */
typedef bool store_job(void *ctx, struct sqlite3 *db, struct err *err);
/* On the loop, once, when @ctx is the caller's again. @err: NULL when it is committed. */
typedef void store_done(void *ctx, const struct err *err);

/**
 * store_write - have a job done by the writer
 * @ctx: handed to both; nobody else may use it until @done
 * @bytes: what it holds, for STORE_QUEUE_MAX; 0 is fine for a small one
 * False, and nothing is called, when too much waits. Jobs are done in the order of
 * asking, several in one transaction: @done is called after the commit.
 */
bool store_write(struct store *store, store_job *job, store_done *done, void *ctx,
		 size_t bytes);

/* How the writer does; since its start but @waiting. */
struct store_figures {
	uint64_t commits, failed; /* transactions */
	struct histogram commit;  /* of one transaction, from its begin */
	size_t waiting;           /* bytes of jobs that were not answered */
	bool is_failing;          /* the last transaction that changed something failed */
};
void store_figures(struct store *store, struct store_figures *out);
/* If it is failing: has the writer try again with a change that changes nothing, so that
 * it is known when it works. Several at once are one. */
void store_try_again(struct store *store);

/* Has a job done by the reader, in a snapshot of its own that ends with the job: whatever
 * was committed before is in it. Answered like store_write(). Whoever asks bounds what
 * waits here. */
void store_read(struct store *store, store_job *job, store_done *done, void *ctx);

#endif
