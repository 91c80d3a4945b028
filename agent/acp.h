#ifndef AGENT_ACP_H
#define AGENT_ACP_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/acp_line.h"
#include "agent/child.h"
#include "wire/base/buf.h"
#include "wire/base/slice.h"
#include "wire/host/loop.h"

/* The client's end of one ACP connection: lines in, lines out, and which answer belongs
 * to which request. It knows JSON-RPC; what the methods mean is its owner's business. How
 * bytes reach the agent comes in as a function, so it runs without a process.
 *
 * A *route* says whose line it is (a channel), for the mirror; opaque here, NULL is fine,
 * and it must live as long as the connection. Source: facts/acp.md §1, §2. */
struct acp;

/* Why a request of ours will have no answer. */
enum acp_failure {
	ACP_ANSWERED, /* it has one */
	ACP_TIMED_OUT,
	ACP_GONE, /* the agent exited, or closed its stdout */
};

struct acp_answer {
	enum acp_failure failure;
	bool ok;
	struct slice result;  /* value text when ok */
	struct slice error;   /* value text otherwise */
	int64_t code;         /* error.code, 0 when it has none */
	struct slice message; /* error.message, between the quotes; ptr NULL: none */
};
typedef void acp_on_answer(void *ctx, const struct acp_answer *answer);

struct acp_events {
	/* Every line that came, before it is acted on, blank ones excepted. @line: what
	 * it means; @raw: as it was read, which differs only where broken strings had to
	 * be repaired to understand it. @bytes: its length on the pipe. @route: of our
	 * request that it answers, else NULL. */
	void (*on_read)(void *ctx, const struct acp_line *line,
			const struct acp_line *raw, size_t bytes, void *route);
	/* A request; acp_reply() or acp_refuse() it, now or later, once. */
	void (*on_request)(void *ctx, const struct acp_line *line);
	void (*on_notification)(void *ctx, const struct acp_line *line);
	/* A line of ours was handed to the agent's stdin whole. @authorization: what
	 * acp_reply() was given, else empty. */
	void (*on_wrote)(void *ctx, struct slice line, void *route,
			 struct slice authorization);
};

typedef void acp_write(void *ctx, struct slice line, child_on_written *on_written,
		       void *written_ctx);

struct acp *acp_create(struct loop *loop, const struct acp_events *events, void *ctx,
		       acp_write *write, void *write_ctx);
/* No callback comes after this. Writes on their way must have been answered before. */
void acp_destroy(struct acp *acp);

/* Bytes of the agent's stdout, and its end. */
void acp_receive(struct acp *acp, struct slice bytes);
void acp_receive_end(struct acp *acp);
/* Requests of ours that have no answer yet. */
size_t acp_pending(const struct acp *acp);
/* Nothing will be answered any more: every pending request fails with ACP_GONE, as does
 * each later one. */
void acp_close(struct acp *acp);

/* @params: object text; @timeout_ms 0: none. @on_answer is called exactly once, but not
 * before this returns unless the connection is closed. */
void acp_call(struct acp *acp, const char *method, struct slice params, void *route,
	      uint64_t timeout_ms, acp_on_answer *on_answer, void *ctx);
void acp_notify(struct acp *acp, const char *method, struct slice params, void *route);

typedef void acp_on_replied(void *ctx, enum child_written outcome);
/* @id: the raw token of the request. @authorization: object text for the mirror, or
 * empty.
 * @on_replied: NULL, or told whether it was written, perhaps before this returns. */
void acp_reply(struct acp *acp, struct slice id, struct slice result, void *route,
	       struct slice authorization, acp_on_replied *on_replied, void *ctx);
void acp_refuse(struct acp *acp, struct slice id, int code, const char *message,
		void *route);

#define ACP_METHOD_NOT_FOUND (-32601)
#define ACP_INVALID_PARAMS (-32602)
#define ACP_INVALID_REQUEST (-32600)
#define ACP_AUTH_REQUIRED (-32000)
#define ACP_VERSION_UNSUPPORTED (-32022) /* of agents that know only protocol 2 */

#endif
