#ifndef AGENT_EPOCH_H
#define AGENT_EPOCH_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/err.h"

#define EPOCH_LEN 16 /* hex digits */

/**
 * epoch_next - the name of a new start of the harness
 * @last: the last epoch's, or "" when there is none known
 * 8 hex digits of max(Unix seconds, last epoch's + 1), then 8 of @random: epochs of one
 * agent compare as strings, whatever the clock does. Source: design §4.
 */
void epoch_next(const char *last, int64_t unix_s, uint32_t random,
		char out[EPOCH_LEN + 1]);
/* Reads the last epoch from a file; "" with no file or no epoch in it. */
void epoch_load(const char *path, char out[EPOCH_LEN + 1]);
/* Replaces the file (0600), whole or not at all. */
bool epoch_save(const char *path, const char epoch[EPOCH_LEN + 1], struct err *err);

#endif
