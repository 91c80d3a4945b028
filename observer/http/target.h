#ifndef OBSERVER_HTTP_TARGET_H
#define OBSERVER_HTTP_TARGET_H

#include <stdbool.h>

#include "wire/base/buf.h"
#include "wire/base/slice.h"

/**
 * target_parse - what a request is for
 * @target: "/path?name=value&name=value", each part percent-encoded, '+' in the query a
 *   blank; borrowed
 * @path: cleared, then the decoded path
 * @query: cleared, then name=value, decoded, each ended by a NUL
 *
 * False, and both are to be forgotten, for what does not begin with '/', for an escape
 * without two hex digits, for control characters however they are written, and for what
 * the buffers do not hold. Source: RFC 9112, 3.2.1; RFC 3986, 2.1.
 */
bool target_parse(struct slice target, struct buf *path, struct buf *query);

#endif
