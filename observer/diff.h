#ifndef OBSERVER_DIFF_H
#define OBSERVER_DIFF_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/slice.h"

/* The difference of two texts by lines, within a budget: shortest edit script (Myers) up
 * to DIFF_EDITS_MAX edits; beyond that the differing middle is one removal and one
 * addition. */
#define DIFF_EDITS_MAX 400   /* memory and time are quadratic in it: 1.3 MB; our choice */
#define DIFF_SIDE_MAX 20000  /* lines of a side that are looked at */
#define DIFF_LINES_MAX 200   /* lines written, then `more` (the page's API) */
#define DIFF_LINE_BYTES 2000 /* bytes of a line that are written */
#define DIFF_CONTEXT 3

struct diff_size {
	uint32_t added, removed; /* lines */
};

/**
 * diff_write - append `"added":…,"removed":…,"hunks":[…],"more":…`
 * @old_text, @new_text: UTF-8; a last line without LF is a line
 * Hunks are {"old":LINE,"new":LINE,"lines":[…]}; the first character of a line is its
 * sign.
 */
void diff_write(struct slice old_text, struct slice new_text, struct buf *out,
		struct diff_size *size_out);
/* The same of the lines from @from on, at most @limit, and `"lines":N`: all that there
 * are to be had. */
void diff_write_lines(struct slice old_text, struct slice new_text, size_t from,
		      size_t limit, struct buf *out, struct diff_size *size_out);

#endif
