#ifndef AGENT_TAP_H
#define AGENT_TAP_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/pump.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/host/loop.h"

/* The watcher's end of the socketpair: what the pump carried, handed to the loop in
 * order. A thread of its own empties the socket, which holds a few reads only, while the
 * loop packs, seals or waits for its turn; what waits here is bounded, and beyond that is
 * dropped and counted as in the pump. */
struct tap;

/* Bytes that may wait for the loop; our choice: some lines of AGENT_MIRROR_MAX. */
#define TAP_QUEUE_MAX (32u << 20)

struct tap_events {
	/* Bytes of one direction; none, should only a loss be to be told. @lost: bytes
	 * before them were dropped, with so many ends of lines; @cut: what was dropped
	 * did not end with one, so these bytes begin inside a line. */
	void (*on_bytes)(void *ctx, enum pump_kind kind, struct slice bytes, bool lost,
			 uint64_t lost_lines, bool cut);
	void (*on_started)(void *ctx, int64_t pid);
	/* The command ended (@wait_status as of waitpid()), or the pump is gone (-1). The
	 * last call. */
	void (*on_end)(void *ctx, int64_t wait_status);
};

/* Takes @fd. */
struct tap *tap_create(struct loop *loop, int fd, const struct tap_events *events,
		       void *ctx, struct err *err);
void tap_destroy(struct tap *tap); /* NULL is fine */
/* One of PUMP_UP, PUMP_DOWN, PUMP_DONE, PUMP_SAY; @text: for the last, cut to
 * PUMP_SAY_BYTES. Never waits. */
void tap_tell(int fd, char what, struct slice text);

#endif
