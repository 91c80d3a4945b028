#ifndef OBSERVER_ARCHIVE_LOST_H
#define OBSERVER_ARCHIVE_LOST_H

#include <stddef.h>
#include <stdint.h>

#include "wire/frame/control.h"
#include "wire/nostr/crypto.h"

/* Frames that the disk did not take, to be asked for again once it takes some. Pure,
 * bounded: ranges that would be too many grow together, which costs frames that come
 * twice; of more feeds than there is room for, the rest is asked for at the next start. A
 * zeroed struct is valid and empty. */
#define ARCHIVE_LOST_MAX 1024 /* ranges; our choice */

struct lost_range {
	uint8_t agent[KEY_BYTES];
	char epoch[17];
	struct frame_range range;
};

struct archive_lost {
	struct lost_range *ranges;
	size_t count, room;
};

void archive_lost_finish(struct archive_lost *lost);
void archive_lost_add(struct archive_lost *lost, const uint8_t *agent, const char *epoch,
		      uint64_t number);

#endif
