#ifndef OBSERVER_POS_H
#define OBSERVER_POS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/slice.h"

/* Where an event stands among its agent's: (epoch, seq), design §4. A foreign feed has no
 * epoch; its order is (timestamp, seq), so its epoch here is the event's own timestamp,
 * Unix ms as 16 hex digits. As text `EPOCH/SEQ`, seq padded to 16 digits, compared
 * bytewise. */
struct pos {
	char epoch[17]; /* 16 hex digits, NUL-terminated; "" is before everything */
	uint64_t seq;
};

#define POS_LEN 33 /* characters */

/* <0, 0, >0. */
int pos_compare(const struct pos *a, const struct pos *b);
/* NUL-terminated. */
void pos_format(const struct pos *pos, char out[POS_LEN + 1]);
bool pos_parse(struct slice text, struct pos *out);
/* The epoch that stands for a foreign event's timestamp (Unix ms, not negative). */
void pos_foreign_epoch(int64_t unix_ms, char out[17]);

#endif
