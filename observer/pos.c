#include "observer/pos.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "wire/frame/limits.h"

int pos_compare(const struct pos *a, const struct pos *b)
{
	const int order = strcmp(a->epoch, b->epoch);

	if (order)
		return order;
	return a->seq < b->seq ? -1 : a->seq > b->seq;
}

void pos_format(const struct pos *pos, char out[POS_LEN + 1])
{
	(void)snprintf(out, POS_LEN + 1, "%s/%016" PRIu64, pos->epoch, pos->seq);
}

bool pos_parse(struct slice text, struct pos *out)
{
	uint8_t bytes[8];
	struct slice seq;

	if (text.len != POS_LEN || text.ptr[16] != '/' ||
	    !hex_decode(slice_sub(text, 0, 16), bytes, sizeof(bytes)))
		return false;
	seq = slice_sub(text, 17, POS_LEN);
	while (seq.len > 1 && *seq.ptr == '0')
		seq = slice_sub(seq, 1, seq.len);
	if (!slice_parse_u64(seq, FRAME_NUMBER_MAX, &out->seq))
		return false;
	memcpy(out->epoch, text.ptr, 16);
	out->epoch[16] = '\0';
	return true;
}

void pos_foreign_epoch(int64_t unix_ms, char out[17])
{
	(void)snprintf(out, 17, "%016" PRIx64, (uint64_t)unix_ms);
}
