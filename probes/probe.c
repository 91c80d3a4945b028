#include "probes/probe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "wire/base/slice.h"

void probe_fail(const char *what)
{
	(void)fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
	exit(1);
}

size_t probe_setting(const char *name, size_t normal, size_t min, size_t max)
{
	const char *text = getenv(name);
	uint64_t value;

	if (!text)
		return normal;
	if (!slice_parse_u64(slice_of(text), max, &value) || value < min) {
		(void)fprintf(stderr, "%s: %s takes %zu..%zu, got \"%s\"\n",
			      program_invocation_short_name, name, min, max, text);
		exit(2);
	}
	return (size_t)value;
}

static _Noreturn void refuse_choice(const char *name, const char *const names[],
				    size_t count, struct slice got)
{
	(void)fprintf(stderr, "%s: %s takes a list of", program_invocation_short_name,
		      name);
	for (size_t i = 0; i < count; i++)
		(void)fprintf(stderr, "%s %s", i ? "," : "", names[i]);
	(void)fprintf(stderr, "; got \"%.*s\"\n", SLICE_ARG(got));
	exit(2);
}

unsigned probe_choice(const char *name, const char *const names[], size_t count)
{
	const char *text = getenv(name);
	struct slice rest = slice_of(text), one;
	unsigned chosen = 0;

	if (!text)
		return (1u << count) - 1;
	while (slice_take_until(&rest, ',', &one)) {
		size_t i = 0;

		while (i < count && !slice_eq(one, slice_of(names[i])))
			i++;
		if (i == count)
			refuse_choice(name, names, count, one);
		chosen |= 1u << i;
	}
	if (!chosen)
		refuse_choice(name, names, count, SLICE_EMPTY);
	return chosen;
}

int64_t probe_clock_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

size_t probe_turn(size_t round, size_t turn, size_t arms)
{
	return round % 2 ? arms - 1 - turn : turn;
}

static int by_value(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

int64_t probe_quantile(int64_t *values, size_t count, unsigned percent)
{
	qsort(values, count, sizeof(*values), by_value);
	return values[(count * percent - 1) / 100];
}

static void print_start(const char *arm, const char *more, va_list args)
{
	(void)printf("{\"probe\":\"%s\",\"arm\":\"%s\"", program_invocation_short_name,
		     arm);
	(void)vprintf(more, args);
}

static void print_end(void)
{
	(void)printf(",\"profile\":\"%s\",\"commit\":\"%s\"}\n", PERCH_PROFILE,
		     PERCH_COMMIT);
	(void)fflush(stdout);
}

void probe_print(const char *arm, int64_t *values, size_t count, const char *unit,
		 const char *more, ...)
{
	va_list args;

	va_start(args, more);
	print_start(arm, more, args);
	va_end(args);
	(void)printf(",\"runs\":%zu,\"median_%s\":%" PRId64 ",\"p99_%s\":%" PRId64, count,
		     unit, probe_quantile(values, count, 50), unit,
		     probe_quantile(values, count, 99));
	print_end();
}

void probe_note(const char *arm, const char *more, ...)
{
	va_list args;

	va_start(args, more);
	print_start(arm, more, args);
	va_end(args);
	print_end();
}
