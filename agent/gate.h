#ifndef AGENT_GATE_H
#define AGENT_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/err.h"
#include "wire/base/map.h"
#include "wire/frame/control.h"

/* What stands between a control and its execution: only in this epoch, unexpired, once,
 * not above --control, at most ten a second (design §4, Controls). Pure. */

enum control_level {
	CONTROL_LEVEL_NONE,    /* only reads */
	CONTROL_LEVEL_APPROVE, /* permission_decision and cancel_turn too */
	CONTROL_LEVEL_FULL,
};

bool control_level_parse(const char *text, enum control_level *out, struct err *err);
const char *control_level_name(enum control_level level);

struct gate_order;

struct gate {
	enum control_level level;
	char epoch[17];
	int64_t epoch_start_s;    /* Unix seconds */
	struct map answers;       /* request id or event id → struct remembered */
	struct gate_order *order; /* ring of their keys, oldest first */
	size_t order_at, order_count;
	size_t answer_bytes; /* of all answers, at most CONTROL_ANSWERS_MAX */
	size_t forgotten;    /* of the oldest ones in order */
	int64_t second;      /* the Unix second that is being counted */
	unsigned in_second;
};

enum gate_verdict {
	GATE_RUN,    /* execute it, then gate_answered() */
	GATE_ANSWER, /* do not: answer with @status_out */
	GATE_REPEAT, /* seen before: send @again_out once more */
	GATE_DROP, /* say nothing: a repeat whose answer is not known yet, an unknown type
		    * that asks for none, or a flood */
};

struct gate_control {
	const struct control *control;
	bool malformed;          /* control_parse() refused it */
	const uint8_t *event_id; /* 32 bytes */
	int64_t created_at;
	/* Unix seconds by the clock that owner and harness share, the relay's, and how
	 * far it is ahead of ours. */
	int64_t now_s, clock_offset_s;
};

void gate_init(struct gate *gate, enum control_level level, const char epoch[17],
	       int64_t epoch_start_s);
void gate_finish(struct gate *gate);
/* Of GATE_RUN and GATE_ANSWER the caller tells the answer by gate_answered(), now or
 * later (not after `rate_limited`, which is not remembered). @again_out: borrowed until
 * then. */
enum gate_verdict gate_check(struct gate *gate, const struct gate_control *in,
			     const char **status_out, struct slice *again_out);
/* Remembers the answer (the control_result's payload) to a control: by its request id
 * when it has one, else by its event id. A repeat of one whose answer had to make room
 * for CONTROL_ANSWERS_MAX bytes of newer ones is not run either: it is `expired`. */
void gate_answered(struct gate *gate, struct slice key, struct slice payload);
/* The key of a control for gate_answered(); lives as long as the control and its event
 * id. */
struct slice gate_key(const struct control *control, const uint8_t event_id[32]);

#endif
