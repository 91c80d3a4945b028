#ifndef OBSERVER_WHEN_H
#define OBSERVER_WHEN_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/err.h"

/* A moment on a command line: RFC 3339, or how long ago (30m, 12h, 7d, 4w). Unix ms.
 * ERR_MALFORMED names @option. */
bool when_parse(const char *option, const char *text, int64_t now_ms, int64_t *out_ms,
		struct err *err);

#endif
