#ifndef OBSERVER_WORDS_H
#define OBSERVER_WORDS_H

#include <stdint.h>

#include "wire/base/buf.h"

/* A public key as words that two people can compare: one for each of its first bytes.
 * They tell keys apart at a glance; they do not replace the key. */
#define WORDS_COUNT 6

void words_write(const uint8_t *key, struct buf *out);

#endif
