#ifndef AGENT_JSON_LINES_H
#define AGENT_JSON_LINES_H

#include <stdbool.h>

#include "agent/emit_event.h"
#include "wire/base/slice.h"

/* `perch run --json-lines`: what a line that is a JSON object becomes. Pure.
 *
 *   {"kind":K,"payload":{…}}   with K one of emit_event.h's: that event
 *   {"level":…,"msg":TEXT,…}   a note. TEXT is msg, message or text; level is a word
 *                              (trace debug info notice warn warning error err fatal
 *                              critical panic) or a number (below 40 info, below 50
 *                              warn, else error), or is called severity
 *   any other object           x-json, with the line as it is
 *
 * The first two are marked "source":"emit": whoever writes them has said them. */

/* True if @line is such an object; fills @out (freed by emit_event_finish() either way).
 * False: it is text like any other. */
bool json_line_read(struct emit_spans *spans, struct slice line, struct emit_event *out);

#endif
