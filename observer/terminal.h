#ifndef OBSERVER_TERMINAL_H
#define OBSERVER_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/base/buf.h"
#include "wire/base/slice.h"

/* What a terminal is like, and text made to fit its line. */

/* May colours be written to @fd? A terminal, and NO_COLOR is not set (no-color.org). */
bool terminal_has_colour(int fd);
/* Columns of the terminal behind @fd; 0: none, or it does not say. */
size_t terminal_columns(int fd);
/* Columns that @text (UTF-8) takes: wide characters two, combining ones none. */
size_t terminal_width(struct slice text);
/* Appends @text as one line of at most @columns (0: no end), an ellipsis in place of what
 * does not fit. Line ends and tabs become spaces; what would not show, or would move the
 * cursor or the text around it, is written by its number: "<U+202E>". */
void terminal_line(struct slice text, size_t columns, struct buf *out);

#endif
