#include "agent/pack.h"

#include <assert.h>
#include <string.h>

#define BATCH_KIND "\"batch\""
#define BATCH_OPEN ",\"payload\":{\"events\":["
#define BATCH_CLOSE "]}}"
#define LEN(literal) (sizeof(literal) - 1)

size_t pack_bytes(const struct pack_item *last, size_t count, size_t inner_bytes)
{
	if (count == 1)
		return inner_bytes;
	return last->header_len - last->kind_len +
	       LEN(BATCH_KIND BATCH_OPEN BATCH_CLOSE) + inner_bytes + (count - 1);
}

static char *put(char *at, const char *bytes, size_t len)
{
	memcpy(at, bytes, len);
	return at + len;
}

bool pack_write(const struct pack_item *items, size_t count, struct buf *out)
{
	const struct pack_item *last = &items[count - 1];
	const char *header = last->text.ptr;
	const size_t kind_end = last->kind_at + last->kind_len;
	size_t inner_bytes = 0, bytes;
	char *start, *at;

	for (size_t i = 0; i < count; i++)
		inner_bytes += items[i].text.len;
	bytes = pack_bytes(last, count, inner_bytes);
	start = at = buf_extend(out, bytes);
	if (!at)
		return false;
	if (count == 1) {
		memcpy(at, header, bytes);
		return true;
	}
	/* The header (seq to startedAt; neither authorization nor marks) of the last one.
	 */
	at = put(at, header, last->kind_at);
	at = put(at, BATCH_KIND, LEN(BATCH_KIND));
	at = put(at, header + kind_end, last->header_len - kind_end);
	at = put(at, BATCH_OPEN, LEN(BATCH_OPEN));
	for (size_t i = 0; i < count; i++) {
		if (i)
			*at++ = ',';
		at = put(at, items[i].text.ptr, items[i].text.len);
	}
	at = put(at, BATCH_CLOSE, LEN(BATCH_CLOSE));
	assert((size_t)(at - start) == bytes);
	return true;
}
