#ifndef OBSERVER_TOOL_H
#define OBSERVER_TOOL_H

#include "observer/row.h"

/* From ACP's tool calls to what a row shows of them. Pure. */

/* Most parts a tool row keeps, and bytes of an output part's head and tail (local API).
 */
#define TOOL_PARTS_MAX 64
#define TOOL_OUTPUT_SIDE 8192

/**
 * tool_update - take over what a tool_call, tool_call_update or permission request's
 * toolCall says: members that are there replace, arrays as a whole; a finished status
 * never goes back
 */
void tool_update(struct tool *tool, struct slice update);
/* The text that a person decides on: the exact command, else the input's JSON, else the
 * title; at most ROW_TEXT_MAX bytes in @out; returns its whole length. */
uint64_t tool_request_text(const struct tool *tool, struct slice update, struct buf *out);

/* What rawOutput says in words, between its quotes as in the JSON; empty if nothing. */
struct slice tool_output_text(struct slice update);

/* What calls of its like are added up under: "Read", "Edit"; for a command its first
 * words, which @is_command then says. @out is cleared. */
void tool_name(const struct tool *tool, struct buf *out, bool *is_command);

#endif
