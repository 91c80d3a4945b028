#include "observer/archive_check.h"

#include <stdatomic.h>
#include <stdlib.h>

#include <uv.h>

#include "wire/base/err.h"
#include "wire/base/mem.h"
#include "wire/base/slice.h"
#include "wire/host/db.h"

/* The start comes first; then so long at most, in which a disk gives some GiB. Our
 * choice. */
#define WAIT_MS 5000
#define LIMIT_MS 120000

struct archive_check {
	char *path;
	void (*on_broken)(void *ctx, const char *why);
	void *ctx;
	atomic_bool stop;
	uv_thread_t thread;
	uv_mutex_t mutex;
	uv_cond_t stopped;
};

static void run(void *arg)
{
	struct archive_check *check = arg;
	struct err err;
	bool whole;

	uv_mutex_lock(&check->mutex);
	if (!atomic_load(&check->stop))
		(void)uv_cond_timedwait(&check->stopped, &check->mutex,
					(uint64_t)WAIT_MS * 1000000);
	uv_mutex_unlock(&check->mutex);
	if (!atomic_load(&check->stop) &&
	    !db_check(check->path, LIMIT_MS, &check->stop, &whole, &err) &&
	    err.code == ERR_MALFORMED)
		check->on_broken(check->ctx, err.text);
}

static void destroy(struct archive_check *check)
{
	uv_cond_destroy(&check->stopped);
	uv_mutex_destroy(&check->mutex);
	free(check->path);
	free(check);
}

struct archive_check *archive_check_start(const char *path,
					  void (*on_broken)(void *ctx, const char *why),
					  void *ctx)
{
	struct archive_check *check = mem_alloc(sizeof(*check));

	check->path = mem_dup(slice_of(path));
	check->on_broken = on_broken;
	check->ctx = ctx;
	(void)uv_mutex_init(&check->mutex);
	(void)uv_cond_init(&check->stopped);
	if (uv_thread_create(&check->thread, run, check) == 0)
		return check;
	destroy(check);
	return NULL;
}

void archive_check_stop(struct archive_check *check)
{
	if (!check)
		return;
	uv_mutex_lock(&check->mutex);
	atomic_store(&check->stop, true);
	uv_cond_signal(&check->stopped);
	uv_mutex_unlock(&check->mutex);
	(void)uv_thread_join(&check->thread);
	destroy(check);
}
