#include "wire/link/resolve.h"

#include <assert.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include <uv.h>

#include "wire/base/mem.h"

/* What thread and loop share; whoever lets go last frees it. */
struct job {
	pthread_mutex_t mutex;
	struct resolve *resolve; /* NULL: nobody waits any more */
	bool thread_done;
	char *host;
	struct resolve_result result;
};

struct resolve {
	uv_async_t async;
	struct job *job;
	void (*on_done)(void *ctx, const struct resolve_result *result);
	void *ctx;
};

static void job_free(struct job *job)
{
	(void)pthread_mutex_destroy(&job->mutex);
	free(job->host);
	free(job);
}

/* RFC 6761 §6.3: localhost is the loopback, also where no /etc/hosts says so. */
static bool is_localhost(const char *host, struct resolve_result *out)
{
	if (strcasecmp(host, "localhost") != 0 && strcasecmp(host, "localhost.") != 0)
		return false;
	(void)snprintf(out->addresses[0], RESOLVE_ADDRESS_BYTES, "127.0.0.1");
	(void)snprintf(out->addresses[1], RESOLVE_ADDRESS_BYTES, "::1");
	out->count = 2;
	return true;
}

static void look_up(const char *host, struct resolve_result *out)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				       .ai_flags = AI_ADDRCONFIG};
	struct addrinfo *list = NULL;
	int status;

	if (is_localhost(host, out))
		return;
	status = getaddrinfo(host, NULL, &hints, &list);
	for (struct addrinfo *at = list; at != NULL && out->count < RESOLVE_ADDRESSES_MAX;
	     at = at->ai_next) {
		status = getnameinfo(at->ai_addr, at->ai_addrlen,
				     out->addresses[out->count], RESOLVE_ADDRESS_BYTES,
				     NULL, 0, NI_NUMERICHOST);
		if (status == 0)
			out->count++;
	}
	if (list != NULL)
		freeaddrinfo(list);
	if (out->count == 0)
		(void)snprintf(out->reason, sizeof(out->reason), "%s",
			       gai_strerror(status));
}

static void *run(void *arg)
{
	struct job *job = arg;
	struct resolve_result result = {0};
	bool alone;

	look_up(job->host, &result);
	(void)pthread_mutex_lock(&job->mutex);
	job->result = result;
	job->thread_done = true;
	alone = job->resolve == NULL;
	if (!alone)
		(void)uv_async_send(&job->resolve->async);
	(void)pthread_mutex_unlock(&job->mutex);
	if (alone)
		job_free(job);
	return NULL;
}

/* Starts @run with every signal blocked: they belong to the loop. */
static bool start_thread(struct job *job)
{
	sigset_t all;
	sigset_t before;
	pthread_t thread;
	bool ok;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	ok = pthread_create(&thread, NULL, run, job) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ok && pthread_detach(thread) == 0;
}

static void on_async(uv_async_t *handle)
{
	struct resolve *resolve = handle->data;
	struct resolve_result result;

	(void)pthread_mutex_lock(&resolve->job->mutex);
	result = resolve->job->result;
	(void)pthread_mutex_unlock(&resolve->job->mutex);
	resolve->on_done(resolve->ctx, &result);
}

struct resolve *resolve_create(struct loop *loop, const char *host,
			       void (*on_done)(void *ctx,
					       const struct resolve_result *result),
			       void *ctx)
{
	struct resolve *resolve = mem_alloc(sizeof(*resolve));
	struct job *job = mem_alloc(sizeof(*job));
	int status = uv_async_init(loop->uv, &resolve->async, on_async);

	assert(status == 0); /* what it needs was opened with the loop */
	resolve->async.data = resolve;
	resolve->job = job;
	resolve->on_done = on_done;
	resolve->ctx = ctx;
	(void)pthread_mutex_init(&job->mutex, NULL);
	job->resolve = resolve;
	job->host = mem_dup(slice_of(host));
	if (!start_thread(job)) {
		job->thread_done = true;
		(void)snprintf(job->result.reason, sizeof(job->result.reason),
			       "no thread to look it up");
		(void)uv_async_send(&resolve->async);
	}
	return resolve;
}

static void on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void resolve_destroy(struct resolve *resolve)
{
	struct job *job;
	bool alone;

	if (resolve == NULL)
		return;
	job = resolve->job;
	(void)pthread_mutex_lock(&job->mutex);
	job->resolve = NULL;
	alone = job->thread_done;
	(void)pthread_mutex_unlock(&job->mutex);
	if (alone)
		job_free(job);
	uv_close((uv_handle_t *)&resolve->async, on_closed);
}
