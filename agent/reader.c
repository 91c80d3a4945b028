#include "agent/reader.h"

#include <assert.h>
#include <string.h>

/* A buffer that one huge line has blown up is given back when that line is done. */
#define READER_KEEP_BYTES (1u << 20)

void reader_init(struct reader *reader, size_t max)
{
	assert(max >= READER_HEAD_BYTES);
	*reader = (struct reader){0};
	buf_init(&reader->line, max);
}

void reader_finish(struct reader *reader)
{
	buf_finish(&reader->line);
}

static void keep(struct reader *reader, struct slice part)
{
	struct buf *line = &reader->line;

	reader->bytes += part.len;
	/* Most parts: there is room, which never goes beyond the cap. */
	if (!line->full && part.len <= line->cap - line->len) {
		memcpy(line->ptr + line->len, part.ptr, part.len);
		line->len += part.len;
		return;
	}
	if (buf_append(&reader->line, part))
		return;
	/* Over the cap: fill up the head, should it be short of that, and let the rest
	 * pass. */
	if (reader->line.len < READER_HEAD_BYTES) {
		reader->line.full = false;
		(void)buf_append(
			&reader->line,
			slice_sub(part, 0, READER_HEAD_BYTES - reader->line.len));
		reader->line.full = true;
	}
	buf_truncate(&reader->line, READER_HEAD_BYTES);
}

static void deliver(struct reader *reader, reader_on_line *on_line, void *ctx)
{
	size_t bytes = reader->bytes;

	reader->bytes = 0;
	on_line(ctx, buf_slice(&reader->line), bytes);
	if (reader->line.cap > READER_KEEP_BYTES)
		buf_finish(&reader->line);
	else
		buf_clear(&reader->line);
}

void reader_feed(struct reader *reader, struct slice bytes, reader_on_line *on_line,
		 void *ctx)
{
	struct slice part;
	size_t end;

	while (bytes.len > 0) {
		end = slice_find(bytes, '\n');
		part = slice_sub(bytes, 0, end);
		if (end == bytes.len) {
			keep(reader, part);
			return;
		}
		bytes = slice_sub(bytes, end + 1, bytes.len);
		if (reader->bytes == 0 && part.len <= reader->line.max) {
			on_line(ctx, part, part.len); /* whole in this read: no copy */
			continue;
		}
		keep(reader, part);
		deliver(reader, on_line, ctx);
	}
}

void reader_end(struct reader *reader, reader_on_line *on_line, void *ctx)
{
	if (reader->bytes > 0)
		deliver(reader, on_line, ctx);
}
