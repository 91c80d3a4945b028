#ifndef AGENT_FIT_H
#define AGENT_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/slice.h"

/* Bytes that a string leaf keeps of its head and of its tail. Source: Buzz. */
#define FIT_KEEP_BYTES 3000

/**
 * fit_payload - trim a payload so that its event stays within a limit
 * @payload: strict JSON text
 * @overhead: bytes of the event without its payload and without the mark "trimmed"
 * @kind: the event's, plain
 * @out: the payload to send is appended, if it had to change
 *
 * Returns what the mark "trimmed" says: the escaped bytes that are gone, or 0 when
 * payload fits as it is (then @out is untouched). String leaves shrink, longest first,
 * only until it fits; if that is not enough all of it becomes
 * {"elided":…,"originalBytes":N}, and "trimmed" is N. Source: design §5, "Fit".
 */
uint64_t fit_payload(struct slice payload, size_t overhead, size_t limit,
		     struct slice kind, struct buf *out);

#endif
