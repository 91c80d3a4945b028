#include "agent/tap.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <uv.h>

#include "wire/base/mem.h"

/* Bytes that one turn of the loop takes: it has others to serve. */
#define TURN_BYTES (1u << 20)

/* A datagram that waits. */
struct block {
	struct block *next;
	struct pump_head head;
	size_t len;
	char bytes[];
};

struct tap {
	int fd;
	const struct tap_events *events;
	void *ctx;
	uv_async_t *async; /* freed by its close */
	pthread_t thread;
	bool ended; /* on_end was called */
	int64_t wait_status;

	pthread_mutex_t lock; /* of what follows */
	struct block *first, **last;
	size_t waiting; /* bytes */
	bool closed;    /* nothing more will come */
	struct {
		uint32_t lines;
		bool any, line_end;
	} lost[PUMP_DATA_KINDS]; /* since the last block of that direction */
};

static size_t cost(const struct block *block)
{
	return sizeof(*block) + block->len;
}

static bool is_data(uint32_t kind)
{
	return kind < PUMP_DATA_KINDS;
}

static uint32_t count_lines(struct slice bytes)
{
	uint32_t lines = 0;
	struct slice line;

	while (slice_find(bytes, '\n') < bytes.len) {
		(void)slice_take_until(&bytes, '\n', &line);
		lines++;
	}
	return lines;
}

/* --- The thread --- */

static void lose(struct tap *tap, const struct pump_head *head, struct slice bytes)
{
	tap->lost[head->kind].any = true;
	tap->lost[head->kind].lines += head->lost_lines + count_lines(bytes);
	tap->lost[head->kind].line_end =
		bytes.len ? bytes.ptr[bytes.len - 1] == '\n' : head->lost_line_end;
}

static void keep(struct tap *tap, const struct pump_head *head, struct slice bytes)
{
	struct block *block = mem_alloc(sizeof(*block) + bytes.len);

	block->head = *head;
	block->len = bytes.len;
	if (bytes.len)
		memcpy(block->bytes, bytes.ptr, bytes.len);
	if (is_data(head->kind) && tap->lost[head->kind].any) {
		block->head.lost_lines += tap->lost[head->kind].lines;
		/* What the pump dropped came after what we did. */
		if (!head->lost)
			block->head.lost_line_end = tap->lost[head->kind].line_end;
		block->head.lost = 1;
		memset(&tap->lost[head->kind], 0, sizeof(tap->lost[head->kind]));
	}
	*tap->last = block;
	tap->last = &block->next;
	tap->waiting += cost(block);
}

/* One datagram. Few words that are no data come, so they always fit. */
static void take(struct tap *tap, const struct pump_head *head, struct slice bytes)
{
	if (head->kind > PUMP_EXITED ||
	    (is_data(head->kind) && bytes.len == 0 && !head->lost))
		return;
	if (is_data(head->kind) && tap->waiting + bytes.len > TAP_QUEUE_MAX)
		lose(tap, head, bytes);
	else
		keep(tap, head, bytes);
}

static void *read_all(void *ctx)
{
	char *datagram = mem_alloc(sizeof(struct pump_head) + PUMP_BLOCK_BYTES);
	struct tap *tap = ctx;
	struct pump_head head;
	ssize_t len;

	for (;;) {
		len = recv(tap->fd, datagram, sizeof(head) + PUMP_BLOCK_BYTES, 0);
		if (len < 0 && errno == EINTR)
			continue;
		if (len < (ssize_t)sizeof(head))
			break;
		memcpy(&head, datagram, sizeof(head));
		(void)pthread_mutex_lock(&tap->lock);
		take(tap, &head,
		     (struct slice){datagram + sizeof(head), (size_t)len - sizeof(head)});
		(void)pthread_mutex_unlock(&tap->lock);
		(void)uv_async_send(tap->async);
	}
	(void)pthread_mutex_lock(&tap->lock);
	tap->closed = true;
	(void)pthread_mutex_unlock(&tap->lock);
	(void)uv_async_send(tap->async);
	free(datagram);
	return NULL;
}

/* --- The loop --- */

static struct block *pop(struct tap *tap, bool *closed)
{
	struct block *block;

	(void)pthread_mutex_lock(&tap->lock);
	block = tap->first;
	if (block) {
		tap->first = block->next;
		if (!tap->first)
			tap->last = &tap->first;
		tap->waiting -= cost(block);
	}
	*closed = tap->closed;
	(void)pthread_mutex_unlock(&tap->lock);
	return block;
}

static void give(struct tap *tap, const struct pump_head *head, struct slice bytes)
{
	switch ((enum pump_kind)head->kind) {
	case PUMP_STDIN:
	case PUMP_STDOUT:
	case PUMP_STDERR:
		tap->events->on_bytes(tap->ctx, (enum pump_kind)head->kind, bytes,
				      head->lost, head->lost_lines,
				      head->lost && !head->lost_line_end);
		return;
	case PUMP_STARTED:
		tap->events->on_started(tap->ctx, head->number);
		return;
	case PUMP_EXITED:
		tap->wait_status = head->number;
		return;
	}
}

/* What was dropped here last, with nothing behind it that would say so. */
static void give_lost(struct tap *tap)
{
	struct pump_head heads[PUMP_DATA_KINDS] = {0};

	(void)pthread_mutex_lock(&tap->lock);
	for (uint32_t kind = 0; kind < PUMP_DATA_KINDS && !tap->first; kind++) {
		heads[kind] = (struct pump_head){
			.kind = kind,
			.lost_lines = tap->lost[kind].lines,
			.lost = tap->lost[kind].any,
			.lost_line_end = tap->lost[kind].line_end,
		};
		memset(&tap->lost[kind], 0, sizeof(tap->lost[kind]));
	}
	(void)pthread_mutex_unlock(&tap->lock);
	for (size_t kind = 0; kind < PUMP_DATA_KINDS; kind++)
		if (heads[kind].lost)
			give(tap, &heads[kind], SLICE_EMPTY);
}

static void on_async(uv_async_t *async)
{
	struct tap *tap = async->data;
	size_t given = 0;
	struct block *block;
	bool closed = false;

	while (given < TURN_BYTES && (block = pop(tap, &closed))) {
		given += block->len;
		give(tap, &block->head, (struct slice){block->bytes, block->len});
		free(block);
	}
	if (given >= TURN_BYTES) {
		(void)uv_async_send(async);
		return;
	}
	give_lost(tap);
	if (closed && !tap->ended) {
		tap->ended = true;
		tap->events->on_end(tap->ctx, tap->wait_status);
	}
}

static void on_closed(uv_handle_t *handle)
{
	free(handle);
}

struct tap *tap_create(struct loop *loop, int fd, const struct tap_events *events,
		       void *ctx, struct err *err)
{
	struct tap *tap = mem_alloc(sizeof(*tap));

	tap->fd = fd;
	tap->events = events;
	tap->ctx = ctx;
	tap->wait_status = -1;
	tap->last = &tap->first;
	(void)pthread_mutex_init(&tap->lock, NULL);
	tap->async = mem_alloc(sizeof(*tap->async));
	tap->async->data = tap;
	(void)uv_async_init(loop->uv, tap->async, on_async);
	if (pthread_create(&tap->thread, NULL, read_all, tap) == 0)
		return tap;
	err_set(err, ERR_SYSTEM, "cannot start a thread");
	uv_close((uv_handle_t *)tap->async, on_closed);
	(void)pthread_mutex_destroy(&tap->lock);
	(void)close(fd);
	free(tap);
	return NULL;
}

void tap_destroy(struct tap *tap)
{
	struct block *block;
	bool closed;

	if (!tap)
		return;
	(void)shutdown(tap->fd, SHUT_RDWR);
	(void)pthread_join(tap->thread, NULL);
	(void)close(tap->fd);
	while ((block = pop(tap, &closed)))
		free(block);
	(void)pthread_mutex_destroy(&tap->lock);
	uv_close((uv_handle_t *)tap->async, on_closed);
	free(tap);
}

void tap_tell(int fd, char what, struct slice text)
{
	char word[PUMP_SAY_BYTES + 1] = {what};

	text = slice_sub(text, 0, utf8_floor(text, PUMP_SAY_BYTES));
	if (text.len)
		memcpy(word + 1, text.ptr, text.len);
	(void)send(fd, word, 1 + text.len, MSG_DONTWAIT | MSG_NOSIGNAL);
}
