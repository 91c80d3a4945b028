#ifndef OBSERVER_EXPIRY_H
#define OBSERVER_EXPIRY_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/err.h"

/**
 * expiry_parse - read what --expires was given
 * @text: Unix seconds, or a time from now: 30m, 12h, 7d, 4w
 * @now: Unix seconds
 *
 * ERR_MALFORMED: neither, in the past, or beyond 2106 (NIP-OA's 32 bits).
 */
bool expiry_parse(const char *text, int64_t now, int64_t *out, struct err *err);
/* "2026-12-07 15:00 UTC" */
void expiry_text(int64_t expires, char out[32]);

#endif
