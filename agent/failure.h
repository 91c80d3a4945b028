#ifndef AGENT_FAILURE_H
#define AGENT_FAILURE_H

#include "agent/acp.h"

/* `turn_error`: why something that was asked of an agent did not work. */

struct channel;
struct turns;

/* In words of ours. @class: "agent", "protocol", "timeout" or "exit". */
void failure_text(struct turns *turns, const struct channel *channel, const char *class,
		  const char *text);
/* An error answer to @what (a noun), or none at all. A wish for a login is told with what
 * to do. */
void failure_answer(struct turns *turns, const struct channel *channel,
		    const struct acp_answer *answer, const char *what);

#endif
