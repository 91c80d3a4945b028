#ifndef WIRE_BASE_METRICS_H
#define WIRE_BASE_METRICS_H

#include <stdint.h>

#include "wire/base/buf.h"

/* Figures as Prometheus reads them (text format 0.0.4). */
#define METRICS_TYPE "text/plain; version=0.0.4"

/* Appends "# TYPE @prefix@name @type" and nothing else: samples follow. */
void metrics_type(struct buf *out, const char *prefix, const char *name,
		  const char *type);
/* A figure that is alone under its name; with its type. */
void metrics_one(struct buf *out, const char *prefix, const char *name, const char *type,
		 uint64_t value);
/* One of several, after metrics_type(): @prefix@name{@label="@of"}. @of has neither
 * quotes nor backslashes: it is ours. */
void metrics_labelled(struct buf *out, const char *prefix, const char *name,
		      const char *label, const char *of, uint64_t value);

#endif
