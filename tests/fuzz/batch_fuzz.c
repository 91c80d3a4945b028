/* A telemetry plaintext, as whoever holds an agent key may write it. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>

#include "wire/base/arena.h"
#include "wire/frame/observer_event.h"

/* What was read once must be read the same when it is written anew. */
static void check_round_trip(const struct observer_event *event)
{
	struct observer_event again;
	struct buf text;
	struct buf text_again;
	bool ok;

	buf_init(&text, 4 * 65536);
	buf_init(&text_again, 4 * 65536);
	ok = observer_event_write(&text, event) &&
	     observer_event_parse(buf_slice(&text), &again, NULL) &&
	     observer_event_write(&text_again, &again);
	assert(ok);
	assert(slice_eq(buf_slice(&text), buf_slice(&text_again)));
	buf_finish(&text_again);
	buf_finish(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice plaintext = {(const char *)data, size};
	struct arena arena;
	struct frame frame;
	struct err err;

	arena_init(&arena, 4096);
	if (frame_parse(plaintext, &arena, &frame, &err)) {
		assert(frame.event_count > 0);
		for (size_t i = 0; i < frame.event_count; i++)
			check_round_trip(&frame.events[i]);
	}
	arena_finish(&arena);
	return 0;
}
