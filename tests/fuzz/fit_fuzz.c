/* Fitting any strict JSON into any room: what comes out is strict JSON that fits with its
 * mark, or the stub, and fitting it again changes nothing. The first two bytes of the
 * input are the limit; in the rest 01 N C stands for 64 * N times C, for long strings. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "agent/fit.h"
#include "wire/nostr/json.h"

#define TEXT_MAX (1u << 20)

static void expand(const uint8_t *data, size_t size, struct buf *out)
{
	for (size_t i = 0; i < size; i++) {
		if (data[i] == 1 && size - i >= 3) {
			const size_t times = (size_t)data[i + 1] * 64;
			char *room = buf_extend(out, times);

			if (room)
				memset(room, data[i + 2], times);
			i += 2;
		} else {
			(void)buf_append_byte(out, (char)data[i]);
		}
	}
}

static void check_fitted(struct slice fitted, size_t overhead, size_t limit,
			 uint64_t trimmed)
{
	struct buf mark, again;

	buf_init(&mark, 64);
	buf_init(&again, TEXT_MAX);
	(void)buf_printf(&mark, ",\"trimmed\":%" PRIu64, trimmed);
	assert(trimmed > 0 && json_check(fitted, NULL, NULL));
	if (!slice_starts(fitted, SLICE("{\"elided\":"))) {
		assert(overhead + mark.len + fitted.len <= limit);
		assert(!fit_payload(fitted, overhead + mark.len, limit, SLICE("note"),
				    &again));
	}
	buf_finish(&mark);
	buf_finish(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf text, out;
	size_t overhead, limit;
	uint64_t trimmed;

	if (size < 2)
		return 0;
	overhead = data[1];
	limit = (size_t)data[0] << 8 | data[1];
	buf_init(&text, TEXT_MAX);
	buf_init(&out, TEXT_MAX);
	expand(data + 2, size - 2, &text);
	if (buf_ok(&text) && json_check(buf_slice(&text), NULL, NULL)) {
		trimmed = fit_payload(buf_slice(&text), overhead, limit, SLICE("note"),
				      &out);
		if (overhead + text.len <= limit)
			assert(!trimmed && !out.len);
		else
			check_fitted(buf_slice(&out), overhead, limit, trimmed);
	}
	buf_finish(&text);
	buf_finish(&out);
	return 0;
}
