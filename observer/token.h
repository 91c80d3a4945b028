#ifndef OBSERVER_TOKEN_H
#define OBSERVER_TOKEN_H

#include <stdbool.h>

#include "wire/base/err.h"

/* The page's key to the broker: 32 random bytes as base64url, kept 0600 in data/token
 * over restarts. */
#define TOKEN_LEN 43

/* Reads it, or makes it on the first run. */
bool token_ensure(char out[TOKEN_LEN + 1], struct err *err);
/* Makes and keeps another one. */
bool token_rotate(char out[TOKEN_LEN + 1], struct err *err);

#endif
