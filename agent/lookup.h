#ifndef AGENT_LOOKUP_H
#define AGENT_LOOKUP_H

#include <stdbool.h>

#include "wire/base/buf.h"
#include "wire/base/slice.h"

/* Members of JSON objects whose text was checked before. Of a repeated member the last
 * one counts, as in JSON.parse(). */

/* Text of the value; ptr NULL when @object is none or has no such member. */
struct slice lookup(struct slice object, struct slice key);
/* The same for strings: between the quotes, escapes as sent. Other kinds give ptr NULL.
 */
struct slice lookup_string(struct slice object, struct slice key);
/* A string's meaning as an own NUL-terminated copy (what follows a NUL inside is lost),
 * to be freed; NULL when there is no such string or it means more than @max bytes. */
char *lookup_text(struct slice object, struct slice key, size_t max);
/* True if the member is a string that means @text. */
bool lookup_is(struct slice object, struct slice key, struct slice text);
/* Appends any bytes as UTF-8: a maximal invalid part becomes U+FFFD. True if there was
 * one. */
bool text_clean(struct slice bytes, struct buf *out);

#endif
