/* A control's plaintext, as whoever holds an owner key may write it. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>

#include "wire/base/arena.h"
#include "wire/frame/control.h"

/* What was read once must be read the same when it is written anew. */
static void check_round_trip(const struct control *control, struct arena *arena)
{
	struct control again;
	struct buf text;
	struct buf text_again;
	bool ok;

	buf_init(&text, 4 * 65536);
	buf_init(&text_again, 4 * 65536);
	ok = control_write(&text, control) &&
	     control_parse(buf_slice(&text), arena, &again, NULL) &&
	     control_write(&text_again, &again);
	assert(ok);
	assert(slice_eq(buf_slice(&text), buf_slice(&text_again)));
	buf_finish(&text_again);
	buf_finish(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice plaintext = {(const char *)data, size};
	struct arena arena;
	struct control control;
	struct err err;

	arena_init(&arena, 4096);
	if (size <= 65536 && control_parse(plaintext, &arena, &control, &err))
		check_round_trip(&control, &arena);
	arena_finish(&arena);
	return 0;
}
