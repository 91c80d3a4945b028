#include "relay/histogram.h"

#include <inttypes.h>

/* Upper bounds, inclusive, and as they are written in seconds: from one signature to a
 * loop that stands still. */
static const struct {
	int64_t ns;
	const char *seconds;
} bounds[HISTOGRAM_BOUNDS] = {
	{10000, "1e-05"},   {25000, "2.5e-05"},  {50000, "5e-05"},
	{100000, "0.0001"}, {250000, "0.00025"}, {500000, "0.0005"},
	{1000000, "0.001"}, {2500000, "0.0025"}, {5000000, "0.005"},
	{10000000, "0.01"}, {25000000, "0.025"}, {50000000, "0.05"},
	{100000000, "0.1"}, {250000000, "0.25"}, {1000000000, "1"},
};

void histogram_add(struct histogram *histogram, int64_t ns)
{
	int i = 0;

	if (ns < 0)
		ns = 0;
	while (i < HISTOGRAM_BOUNDS && ns > bounds[i].ns)
		i++;
	histogram->counts[i]++;
	histogram->sum_ns += (uint64_t)ns;
}

void histogram_write(const struct histogram *histogram, const char *name, struct buf *out)
{
	uint64_t count = 0;
	int i;

	(void)buf_printf(out, "# TYPE perch_relay_%s_seconds histogram\n", name);
	for (i = 0; i <= HISTOGRAM_BOUNDS; i++) {
		count += histogram->counts[i];
		(void)buf_printf(
			out, "perch_relay_%s_seconds_bucket{le=\"%s\"} %" PRIu64 "\n",
			name, i < HISTOGRAM_BOUNDS ? bounds[i].seconds : "+Inf", count);
	}
	(void)buf_printf(out,
			 "perch_relay_%s_seconds_sum %" PRIu64 ".%09" PRIu64 "\n"
			 "perch_relay_%s_seconds_count %" PRIu64 "\n",
			 name, histogram->sum_ns / 1000000000,
			 histogram->sum_ns % 1000000000, name, count);
}
