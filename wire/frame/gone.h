#ifndef WIRE_FRAME_GONE_H
#define WIRE_FRAME_GONE_H

#include "wire/base/slice.h"
#include "wire/frame/control.h"

/* Why frames will never come, as a harness says it in feed_state and as the observer
 * keeps it. A word that is not known is GONE_UNKNOWN: peers may have more of them. */
enum gone_why {
	GONE_UNKNOWN,
	GONE_RETENTION,  /* the journal let them go: too old, or too many */
	GONE_DISK,       /* the disk did not take them, or lost them */
	GONE_KILLED,     /* the harness ended before they were on disk */
	GONE_NO_JOURNAL, /* the harness keeps none, and its memory is short */
	GONE_SHED,       /* the observer keeps count of no more holes */
	GONE_REFUSED,    /* the relay does not take them */
};
#define GONE_WHYS 7

struct gone_range {
	struct frame_range range;
	enum gone_why why;
};

/* "retention" … ; of GONE_UNKNOWN "". */
const char *gone_why_name(enum gone_why why);
/* @name: JSON string content. */
enum gone_why gone_why_parse(struct slice name);

#endif
