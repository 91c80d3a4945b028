#include "wire/base/metrics.h"

#include <inttypes.h>

void metrics_type(struct buf *out, const char *prefix, const char *name, const char *type)
{
	(void)buf_printf(out, "# TYPE %s%s %s\n", prefix, name, type);
}

void metrics_one(struct buf *out, const char *prefix, const char *name, const char *type,
		 uint64_t value)
{
	metrics_type(out, prefix, name, type);
	(void)buf_printf(out, "%s%s %" PRIu64 "\n", prefix, name, value);
}

void metrics_labelled(struct buf *out, const char *prefix, const char *name,
		      const char *label, const char *of, uint64_t value)
{
	(void)buf_printf(out, "%s%s{%s=\"%s\"} %" PRIu64 "\n", prefix, name, label, of,
			 value);
}
