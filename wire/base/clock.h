#ifndef WIRE_BASE_CLOCK_H
#define WIRE_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/slice.h"

/* "2026-11-30T08:00:00.123Z" is 24 characters. */
#define CLOCK_RFC3339_LEN 24

/* Writes Unix milliseconds (year 1970 to 9999) as RFC 3339 UTC with milliseconds; @out
 * has room for CLOCK_RFC3339_LEN + 1 and is NUL-terminated. */
void clock_format(int64_t unix_ms, char out[CLOCK_RFC3339_LEN + 1]);
/* Reads RFC 3339 with Z or a numeric offset, any number of fraction digits (1 to 9), into
 * Unix milliseconds. */
bool clock_parse(struct slice text, int64_t *unix_ms);

#endif
