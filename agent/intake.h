#ifndef AGENT_INTAKE_H
#define AGENT_INTAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/gate.h"
#include "agent/sender.h"
#include "wire/base/slice.h"
#include "wire/frame/control.h"

/* Controls on their way in and their control_results on the way out: each is read, passes
 * the gate, is executed by whoever made the intake, and answered once (design §4).
 * What only reads, feed_sync, is executed here. */
struct intake;

/* Whom an answer goes to: keeps what of a control its control_result repeats, since some
 * answers come later. Ends with its answer or by asker_drop(). */
struct asker;

struct intake_calls {
	/* Executes @control (not feed_sync) and owns @asker from then on. */
	void (*run)(void *ctx, const struct control *control, struct asker *asker);
	/* Completes the context of an answer in a channel that is known here; the
	 * channel's id is set already. NULL: nothing is known but that. */
	void (*find)(void *ctx, struct slice channel_id, struct feed_context *context);
	void *ctx;
};

/* @sender: borrowed. @epoch_start_s: Unix seconds. */
struct intake *intake_create(struct sender *sender, enum control_level level,
			     int64_t epoch_start_s, const struct intake_calls *calls);
/* Before it every asker must have ended. NULL is fine. */
void intake_destroy(struct intake *intake);
/* A control of an owner, decrypted; @created_at: of its event. */
void intake_take(struct intake *intake, const uint8_t event_id[32], int64_t created_at,
		 struct slice plaintext);

/* The one answer. @position 0 and @detail NULL are left out. */
void asker_answer(struct asker *asker, const char *status, size_t position,
		  const char *detail);
void asker_drop(struct asker *asker);

#endif
