#ifndef AGENT_READER_H
#define AGENT_READER_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/base/buf.h"
#include "wire/base/slice.h"

/* Cuts a byte stream into lines, at LF and nothing else: U+2028, NEL and a lone CR are
 * data (facts: a reader that split there cut frames in two). Every byte is looked at
 * once. A line over the cap costs no more memory than the cap and takes no other line
 * with it. Pure. */
struct reader {
	struct buf line; /* the unfinished line */
	size_t bytes;    /* of the unfinished line, also those that were not kept */
};

/* Of a line over the cap this much is kept, to show what it was. */
#define READER_HEAD_BYTES 8192

/**
 * A line without its LF.
 * @line: borrowed for the call; only the first READER_HEAD_BYTES when @bytes was over the
 * cap
 * @bytes: length of the line
 */
typedef void reader_on_line(void *ctx, struct slice line, size_t bytes);

/* @max: most bytes of a line, at least READER_HEAD_BYTES. */
void reader_init(struct reader *reader, size_t max);
void reader_finish(struct reader *reader);
void reader_feed(struct reader *reader, struct slice bytes, reader_on_line *on_line,
		 void *ctx);
/* The stream ended: what came after the last LF is a line too. */
void reader_end(struct reader *reader, reader_on_line *on_line, void *ctx);

#endif
