#ifndef OBSERVER_SEARCH_TEXT_H
#define OBSERVER_SEARCH_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observer/row.h"
#include "wire/base/buf.h"
#include "wire/base/slice.h"

/* What of a row is searched: what its owner sees of it, as plain text. Pure. */

#define SEARCH_TEXT_MAX ROW_TEXT_MAX
/* Of outputs, diffs and answers of one tool call, half of it from their beginning and
 * half from their end: what people look for is said there. Design §8. */
#define SEARCH_OUTPUT_MAX 2048

/* The name of a row's type, as in the local API. */
const char *row_type_name(enum row_type type);
/* False for a name that no type has. */
bool row_type_of(struct slice name, enum row_type *out);

/* Appends the text of @row to @out, whose max it sets; nothing for a row that says
 * nothing of its own (gaps). The first line is what the row is about. */
void search_text(const struct row *row, struct buf *out);

/* A blank before and after each character that is a word by itself (CJK, scripts without
 * blanks, emoji), so that parts of such texts are found; lines that only draw become
 * blanks. Appends to @out; @at[i] are the offsets in @out of the blanks that came in, of
 * which there are *@at_count (array grown by mem_grow(), to be freed). NULL: not wanted.
 */
void search_spread(struct slice text, struct buf *out, uint32_t **at, size_t *at_count);

#endif
