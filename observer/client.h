#ifndef OBSERVER_CLIENT_H
#define OBSERVER_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/host/log.h"

/* What the small commands share: asking the observer of this user over its Unix socket.
 * Blocks. */

#define CLIENT_AGENT_BYTES (2 * LOG_QUOTE_BYTES + 2)

/* Appends @text as a value of a query (RFC 3986, 2.1 and 2.3): all but unreserved
 * characters as %XX. False where there is no room. */
bool client_escape(struct slice text, struct buf *out);
/* One request; @body with ptr NULL makes it a GET, else a POST of JSON. @out is cleared
 * and holds the answer's body. A refusal is ERR_REFUSED with the broker's own words. */
bool client_ask(const char *path, struct slice body, struct buf *out, struct err *err);
#define CLIENT_QUIET_MS 1000
/* Reads the stream from here on; @on_message gets each message (JSON), and an empty one
 * when none came for CLIENT_QUIET_MS, and says whether to go on. True when it said no;
 * false when the observer went away. */
bool client_follow(bool (*on_message)(void *ctx, struct slice message), void *ctx,
		   struct err *err);

/* What an observer's snapshot says of a lane. */
struct client_lane {
	struct slice agent, channel, channel_name, id, json;
};
/* Finds the lane that @name means, AGENT or AGENT/CHANNEL by names, ids or npub. */
bool client_find_lane(struct slice fleet, struct slice name, struct client_lane *out,
		      struct err *err);
/* The agent object of that id; ptr NULL when it is not there. */
struct slice client_agent(struct slice fleet, struct slice id);
/* The lane object of that id; ptr NULL when it is not there (a slot's own is not shown).
 */
struct slice client_lane(struct slice fleet, struct slice id);
/* Is @agent (JSON) the one that @name means: its name, what we call it, its npub or id?
 */
bool client_is_agent(struct slice agent, struct slice name);
/* What to call an agent: its name, with @host where that is not this machine; without a
 * name the start of its npub. */
const char *client_agent_words(struct slice agent, char out[CLIENT_AGENT_BYTES]);
/* A string's content as one line for a terminal: its first line that says something, and
 * an ellipsis where there is more. */
const char *client_words(struct slice raw, char out[LOG_QUOTE_BYTES]);
/* What to call the channel of a lane (JSON): its name, or how its id begins. */
const char *client_lane_words(struct slice lane, char out[LOG_QUOTE_BYTES]);
/* "0:42", "3 min", "2 h", "5 d". */
void client_age(int64_t ms, char out[16]);
/* Waits until the request is answered or expires; its last Control (JSON) into @out. */
bool client_wait(struct slice request_id, struct buf *out, struct err *err);

/* Prints the error of a command and returns its exit status. */
int client_fail(const char *command, const struct err *err);

#endif
