#ifndef RELAY_BUDGET_H
#define RELAY_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relay/rate.h"
#include "wire/base/slice.h"

/* What a client may use up, per second: of what, and on whose account. */
enum budget_kind {
	BUDGET_EVENTS,      /* EVENT of any kind but 24200 */
	BUDGET_FRAMES,      /* kind 24200: telemetry and controls, counted apart */
	BUDGET_REQS,        /* REQ and COUNT */
	BUDGET_CONNECTIONS, /* new ones; of a key: AUTH that proves it */
	BUDGET_BYTES,       /* of messages received */
	BUDGET_KINDS,
};
enum budget_scope {
	BUDGET_KEY,
	BUDGET_OWNER, /* whoever attested the key, else the key itself */
	BUDGET_ADDRESS,
	BUDGET_SCOPES,
};

/* Most that one second may give of anything. */
#define BUDGET_MAX INT64_C(1000000000)
#define BUDGET_TEXT_MAX 128

struct budgets {
	/* A second's worth, 0 for no limit; may be changed at any time. */
	int64_t per_second[BUDGET_SCOPES][BUDGET_KINDS];
	struct rate rates[BUDGET_SCOPES];
};

/* Every budget as an option: --NAME N. */
struct budget_option {
	enum budget_scope scope;
	enum budget_kind kind;
	const char *name; /* "key-events" */
	const char *help;
	int64_t per_second; /* the default */
};
#define BUDGET_OPTIONS 15
extern const struct budget_option budget_options[BUDGET_OPTIONS];

/* With the defaults. */
void budgets_init(struct budgets *budgets);
void budgets_finish(struct budgets *budgets);
/* The least that any account may use of it a second; 0 for no limit. */
int64_t budgets_least(const struct budgets *budgets, enum budget_kind kind);
/**
 * budgets_take - use some of a budget
 * @who: the key or address; @part: a byte that counts apart what else would share it
 * @text: written when it is refused: "rate-limited: events of this key: 10/s, try again
 *   in 3 s"
 *
 * What costs more than a bucket holds passes when that is full.
 */
bool budgets_take(struct budgets *budgets, enum budget_scope scope, enum budget_kind kind,
		  struct slice who, char part, int64_t cost, int64_t now_ms,
		  char text[BUDGET_TEXT_MAX]);

#endif
