#ifndef AGENT_DEMO_SCRIPT_H
#define AGENT_DEMO_SCRIPT_H

#include <stddef.h>

/* What the demo agent plays. Times in ms: how long the step takes. */
enum demo_kind {
	DEMO_THINK, /* text: streamed in small chunks */
	DEMO_SAY,   /* text: the same, as the answer */
	DEMO_PLAN,  /* text: one entry a line; its first character is its status: x > or .
		     */
	DEMO_READ,  /* target: path; text: what it holds */
	DEMO_SEARCH,  /* target: pattern; text: hits */
	DEMO_EDIT,    /* target: path; before: NULL for a new file; text: after */
	DEMO_RUN,     /* target: command; text: output, ANSI colours and all */
	DEMO_RUN_BAD, /* the same, failing */
	DEMO_ASK,   /* target: command, asked for first; text: its output; the rest of the
		     * script is `allowed` or `denied` */
	DEMO_USAGE, /* tokens: how full the context is */
	DEMO_ECHO,  /* answers with what was asked */
};

struct demo_step {
	enum demo_kind kind;
	int ms;
	const char *target, *before, *text;
	long tokens;
};

struct demo_script {
	const struct demo_step *steps;
	size_t count;
	const struct demo_step
		*denied; /* played in place of the rest after a refused DEMO_ASK */
	size_t denied_count;
};

extern const struct demo_script
	demo_script_code; /* in the first session and every other */
extern const struct demo_script demo_script_docs; /* in the others */
extern const struct demo_script demo_script_echo; /* for any other prompt */

#endif
