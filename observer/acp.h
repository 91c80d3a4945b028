#ifndef OBSERVER_ACP_H
#define OBSERVER_ACP_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/slice.h"

/* Looking into JSON that was checked before (a frame's payloads). A value is a slice of
 * its text; absent, null or of another kind than asked for is the slice with ptr NULL.
 * Nothing here fails: what is not there is simply not shown. */

/* Member of an object; null counts as absent. */
struct slice acp_get(struct slice object, const char *key);
/* Member of a member: acp_get2(payload, "params", "update"). */
struct slice acp_get2(struct slice object, const char *key, const char *inner);
/* String member: between the quotes, escapes as sent. */
struct slice acp_get_string(struct slice object, const char *key);
/* The content of a string value. */
struct slice acp_string(struct slice value);
bool acp_is_object(struct slice value);
bool acp_is_array(struct slice value);
bool acp_is_true(struct slice value);
/* An integer member in [0, 2^53 - 1], or @otherwise. */
int64_t acp_get_int(struct slice object, const char *key, int64_t otherwise);

/* Walks an array: `struct slice rest = array, item; while (acp_next(&rest, &item))`. */
bool acp_next(struct slice *rest, struct slice *item);

/* Replaces @out by the meaning of string content @raw, at most @max bytes of it (cut at a
 * character). A NUL stays a NUL: nothing is hidden behind it. */
void acp_set_text(struct buf *out, struct slice raw, size_t max);
/* Appends the meaning of @raw as long as @out holds at most @max bytes; returns the bytes
 * that it means in full. */
size_t acp_append_text(struct buf *out, struct slice raw, size_t max);

/* Appends what a content block says: text as it is, other kinds as Markdown that names
 * them. Returns the bytes that it means in full. */
size_t acp_append_block(struct buf *out, struct slice block, size_t max);
/* The same for an array of blocks, a blank line between two. */
size_t acp_append_blocks(struct buf *out, struct slice blocks, size_t max);

#endif
