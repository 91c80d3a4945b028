#ifndef RELAY_HISTOGRAM_H
#define RELAY_HISTOGRAM_H

#include <stdint.h>

#include "wire/base/buf.h"

/* How long something takes, as Prometheus counts it. Zeroed: nothing yet. */
#define HISTOGRAM_BOUNDS 15

struct histogram {
	uint64_t counts[HISTOGRAM_BOUNDS +
			1]; /* by bucket; the last is beyond all bounds */
	uint64_t sum_ns;
};

void histogram_add(struct histogram *histogram, int64_t ns);
/* Appends perch_relay_@name_seconds in Prometheus' text format. */
void histogram_write(const struct histogram *histogram, const char *name,
		     struct buf *out);

#endif
