#ifndef OBSERVER_PART_H
#define OBSERVER_PART_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"

/* More of a tool call's part than its row shows, out of the event that said it. Pure. */

#define PART_LINES_DEFAULT 500 /* of a diff, in one answer */
#define PART_LINES_MAX 2000
#define PART_TEXT_MAX (16u << 20) /* bytes of a side, as text */

enum part_side { PART_DIFF, PART_OLD, PART_NEW, PART_TEXT };

struct part_query {
	size_t part;         /* index in the call's content */
	enum part_side side; /* PART_TEXT: of a part that is no diff */
	size_t from, limit;  /* lines of the diff */
};

/* Appends the JSON of /api/part; ERR_NOT_FOUND: there is no such thing at that place. */
bool part_write(struct slice event, const struct part_query *query, struct buf *out,
		struct err *err);

#endif
