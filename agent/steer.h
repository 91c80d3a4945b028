#ifndef AGENT_STEER_H
#define AGENT_STEER_H

#include <stdint.h>

#include "agent/gate.h"
#include "agent/sender.h"
#include "agent/turns.h"

/* Executes what an owner asks of this harness, each at most once, and answers every
 * control by a control_result (design §4). */
struct steer;

/* @turns, @sender: borrowed. @epoch_start_s: Unix seconds. */
struct steer *steer_create(struct turns *turns, struct sender *sender,
			   enum control_level level, int64_t epoch_start_s);
void steer_destroy(struct steer *steer);
/* sender.h's sender_on_control_fn, with a struct steer as @ctx. */
void steer_on_control(void *ctx, const uint8_t event_id[32], int64_t created_at,
		      struct slice plaintext);

#endif
