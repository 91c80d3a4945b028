/* What any process of our user may send to a harness, and what a command may print under
 * --json-lines. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <string.h>

#include "agent/emit_event.h"
#include "agent/json_lines.h"
#include "wire/nostr/json.h"

/* What is put into the feed is an object of a kind that is allowed, marked. */
static void check(const struct emit_event *event)
{
	const struct slice payload = buf_slice(&event->payload);

	assert(emit_kind_valid(event->kind));
	assert(payload.len > 0 && payload.ptr[0] == '{' && buf_ok(&event->payload));
	assert(json_check(payload, NULL, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice rest = {(const char *)data, size}, line;
	struct emit_spans spans;
	struct emit_event event;
	struct err err;

	emit_spans_init(&spans);
	while (slice_take_until(&rest, '\n', &line)) {
		if (emit_event_read(&spans, line, &event, &err)) {
			check(&event);
			assert(slice_ends(buf_slice(&event.payload),
					  SLICE("\"source\":\"emit\"}")));
		}
		emit_event_finish(&event);
		if (json_line_read(&spans, line, &event))
			check(&event);
		emit_event_finish(&event);
	}
	emit_spans_finish(&spans);
	return 0;
}
