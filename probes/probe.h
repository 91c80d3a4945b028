#ifndef PROBES_PROBE_H
#define PROBES_PROBE_H

#include <stddef.h>
#include <stdint.h>

/* What the probes share: settings from the environment, fair turns, and the form of the
 * lines that they print. A probe measures one thing, checks that the work was done, and
 * exits 1 if it was not. */

#define PROBE_RUNS_MAX 1000

/* Says on stderr, after the probe's name, what is wrong; exits 1. */
void probe_fail(const char *what) __attribute__((noreturn));

/* A number from the environment, @normal if it is not set. Anything else than a decimal
 * from @min to @max is refused: says what is allowed, exits 2. */
size_t probe_setting(const char *name, size_t normal, size_t min, size_t max);
/* A list of @names, separated by commas, as bits by their index; all if it is not set.
 * Others are refused in the same way. */
unsigned probe_choice(const char *name, const char *const names[], size_t count);

int64_t probe_clock_ns(void); /* monotonic */

/* Whose turn it is, of @arms that are measured once in each round: first to last, then
 * last to first (ABBA), so that a drift of the machine meets all alike. */
size_t probe_turn(size_t round, size_t turn, size_t arms);

/* Sorts @values; the smallest that @percent of them do not exceed. */
int64_t probe_quantile(int64_t *values, size_t count, unsigned percent);

/**
 * probe_print - one figure as a line of JSON
 * @values: one per run, @unit ("ns", "us") each; sorted in place
 * @more: printf form of further members, each ,"name":value
 *
 *   {"probe":…,"arm":… @more,"runs":…,"median_ns":…,"p99_ns":…,"profile":…,"commit":…}
 */
void probe_print(const char *arm, int64_t *values, size_t count, const char *unit,
		 const char *more, ...) __attribute__((format(printf, 5, 6)));
/* The same line without runs and quantiles. */
void probe_note(const char *arm, const char *more, ...)
	__attribute__((format(printf, 2, 3)));

#endif
