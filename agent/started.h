#ifndef AGENT_STARTED_H
#define AGENT_STARTED_H

#include <stddef.h>

#include "agent/sender.h"
#include "agent/setup.h"

/* A harness's first word, harness_started (payloads.md). */
struct started {
	const char *name;
	char *const *command; /* argv */
	const char *mode;     /* "agent", "proxy", "run" */
	const char *cwd;
	int slots;
	const char *control, *permissions;
	const char *rules; /* as given; NULL or "": none */
	const struct harness_channel *channels;
	size_t channel_count;
};

void started_report(struct sender *sender, const struct started *started);

#endif
