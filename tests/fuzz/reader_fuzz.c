/* The line reader, fed in pieces of any size, against splitting the whole text at LF. The
 * first byte of the input is the size of the pieces. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <string.h>

#include "agent/reader.h"

/* What is left of the text, split as it should be. */
struct expected {
	struct slice rest;
	size_t max;
};

static void on_line(void *ctx, struct slice line, size_t bytes)
{
	struct expected *expected = ctx;
	struct slice want;
	size_t kept;

	assert(slice_take_until(&expected->rest, '\n', &want));
	assert(bytes == want.len);
	kept = want.len > expected->max ? READER_HEAD_BYTES : want.len;
	assert(line.len == kept);
	assert(kept == 0 || memcmp(line.ptr, want.ptr, kept) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct expected expected = {.max = READER_HEAD_BYTES};
	struct reader reader;
	struct slice rest;
	size_t piece;

	if (size == 0)
		return 0;
	piece = (size_t)data[0] + 1;
	rest = (struct slice){(const char *)data + 1, size - 1};
	expected.rest = rest;
	reader_init(&reader, READER_HEAD_BYTES);
	while (rest.len > 0) {
		reader_feed(&reader, slice_sub(rest, 0, piece), on_line, &expected);
		rest = slice_sub(rest, piece, rest.len);
	}
	reader_end(&reader, on_line, &expected);
	assert(expected.rest.len == 0);
	reader_finish(&reader);
	return 0;
}
