#ifndef OBSERVER_DEMO_H
#define OBSERVER_DEMO_H

#include <stdbool.h>

#include "wire/base/err.h"

/* The demo agent that a page without agents offers to play: `perch agent` with the
 * scripted agent below it, as `perch up --demo` has it. A child of ours, one at a time.
 */
struct demo;

/* @relay, @log_level: borrowed. */
struct demo *demo_create(const char *relay, const char *log_level);
/* Ends it, and waits until it has ended (at most some 10 s). */
void demo_destroy(struct demo *demo);
/* Starts it; ERR_REFUSED while it runs. What goes wrong later is said by itself on our
 * standard error. */
bool demo_play(struct demo *demo, struct err *err);

#endif
