#ifndef AGENT_ASKS_H
#define AGENT_ASKS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/acp.h"
#include "agent/channel.h"
#include "agent/permissions.h"
#include "agent/sender.h"
#include "wire/host/loop.h"

/* Permission requests from the moment they are read until their answer is on the pipe:
 * which are put to the owner, which are settled here, and that each is answered once and
 * the answer shown only once it was written. The rules are permissions.h's; this is their
 * life. */
struct asks;

/* No observer heard for so long: nobody will answer (design §6). */
#define ASKS_SILENCE_S 120

struct asks_options {
	struct loop *loop;
	struct sender *sender;
	struct permission_rules rules;
	int64_t timeout_ms;
	/* The number of open requests of @channel changed. */
	void (*on_change)(void *ctx, struct channel *channel);
	void *ctx;
};

struct asks *asks_create(const struct asks_options *options);
void asks_destroy(struct asks *asks);
/* The connection that the answers go to; NULL: the agent is gone, and with it all that it
 * asked. */
void asks_set_acp(struct asks *asks, struct acp *acp);

/**
 * asks_read - a session/request_permission was read: mirror it
 * @line, @raw: see acp.h
 * @channel: whose session asks; NULL: no session of ours
 * asks_request() must follow with the same line: it acts on it.
 */
void asks_read(struct asks *asks, const struct acp_line *line, const struct acp_line *raw,
	       size_t bytes, struct channel *channel, const struct feed_context *context);

enum asks_ground {
	ASKS_TURN,      /* a turn runs there */
	ASKS_CANCELLED, /* it was cancelled and has not ended yet */
	ASKS_NO_TURN,   /* none: nothing that an owner could decide on */
};
/* @left_ms: what is left of the turn's hard cap. */
void asks_request(struct asks *asks, const struct acp_line *line, enum asks_ground ground,
		  int64_t left_ms);
/* True if a request with this id waits: nothing else with it may be answered. */
bool asks_is_pending(const struct asks *asks, struct slice id);
/* The agent takes the request with this id back ($/cancel_request): it is answered with
 * "cancelled" if it waits still. */
void asks_withdraw(struct asks *asks, struct slice id);
/* Answers every request that waits in @channel with "cancelled". */
void asks_cancel(struct asks *asks, struct channel *channel);
/* The owner's decision, in decoded text; status is what control_result says. */
const char *asks_decide(struct asks *asks, struct channel *channel, struct slice nonce,
			struct slice option);
size_t asks_pending(const struct asks *asks, const struct channel *channel);
/* The whole text of the pending request that was event @seq; empty when there is none, or
 * when it left whole anyway. */
struct slice asks_body(const struct asks *asks, uint64_t seq,
		       struct channel **channel_out);
/* Appends the elements of feed_state's `pending` array. @unix_ms: now, Unix; @first: no
 * element is there yet. */
void asks_write_state(const struct asks *asks, struct buf *out, int64_t unix_ms,
		      bool *first);

#endif
