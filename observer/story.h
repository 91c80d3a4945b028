#ifndef OBSERVER_STORY_H
#define OBSERVER_STORY_H

#include <stdbool.h>
#include <stdint.h>

#include "observer/row.h"
#include "wire/base/buf.h"
#include "wire/base/map.h"
#include "wire/base/slice.h"

/* The story zoom: one sentence a row, like rows that follow each other in one. Pure.
 *
 * A row says its sentence in the member `story` (PROTOCOL.md), where its own members do
 * not say it already: verb, object (as code), text (prose), outcome; and what makes it
 * like others: `like` ("files": "Read 4 files"), count, added, removed. */
#define STORY_TEXT_MAX 240 /* bytes of a sentence that is quoted; our choice */

/* Appends `,"story":{…}` to a row's JSON, or nothing. */
void story_write(const struct row *row, struct buf *out);

/* Some rows that are told as one. Zeroed at first. */
struct story {
	struct buf row;     /* JSON of the first */
	struct map objects; /* what they were about */
	uint64_t rows, count, added, removed;
};

/* Takes @row (JSON) if it goes on with what the story has: true, also for the first. The
 * page joins by the same rule (web/src/story.ts). An open question takes the place of the
 * call that waits for it. */
bool story_take(struct story *story, struct slice row);
/* The sentence as plain text: "Ran make: failed (2)". @out is cleared. Hidden characters
 * are still in it. */
void story_say(const struct story *story, struct buf *out);
void story_finish(struct story *story); /* zeroed again */

#endif
