#ifndef AGENT_OUTPUT_H
#define AGENT_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/slice.h"

/* What an agent writes on stderr, as payloads of `output` events: lines of one read share
 * an event, a rate cap keeps a talkative agent from crowding out its own work (dropped
 * lines are counted and said), and the last 4 KiB are kept for agent_exited. Pure. */
#define OUTPUT_TAIL_BYTES 4096
#define OUTPUT_LINE_BYTES 4096  /* of one line; longer ones go in parts */
#define OUTPUT_EVENT_BYTES 8192 /* of text in one event */
#define OUTPUT_PER_S 8192       /* bytes: an eighth of what the feed can carry */
#define OUTPUT_BURST 32768      /* bytes */
/* After so long an unfinished line is shown as far as it goes: who asks for it starts a
 * timer and calls output_flush(). */
#define OUTPUT_PARTIAL_MS 100

struct output {
	const char *stream; /* "stdout" or "stderr" */
	int64_t per_s, burst;
	struct buf line; /* unfinished */
	struct buf text; /* of the event being made */
	char tail[OUTPUT_TAIL_BYTES];
	size_t tail_len;
	int64_t tokens, filled_ms;
	uint64_t suppressed; /* lines not said yet */
};

/* Takes the payload of one `output` event. */
typedef void output_emit(void *ctx, struct slice payload);

void output_init(struct output *output); /* an agent's stderr */
/* Of a command whose output is its work. @stream: as in the payload; bytes a second that
 * are let through, and at once. */
void output_init_stream(struct output *output, const char *stream, int64_t per_s,
			int64_t burst);
void output_finish(struct output *output);
void output_feed(struct output *output, struct slice bytes, int64_t now_ms,
		 output_emit *emit, void *ctx);
/* True if output_flush() would have something to say. */
bool output_is_waiting(const struct output *output);
/* Takes @bytes off what may pass, for a line that goes another way; false, and it counts
 * as suppressed, when there is not enough. */
bool output_spend(struct output *output, size_t bytes, int64_t now_ms);
/* Says an unfinished line as far as it goes (a character that has only begun waits), and
 * the count of suppressed ones. */
void output_pause(struct output *output, int64_t now_ms, output_emit *emit, void *ctx);
/* The same at the end of the stream: all that is left. */
void output_flush(struct output *output, int64_t now_ms, output_emit *emit, void *ctx);
/* Appends the tail as clean UTF-8. */
void output_tail(const struct output *output, struct buf *out);

#endif
