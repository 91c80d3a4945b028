#ifndef AGENT_LAST_SESSIONS_H
#define AGENT_LAST_SESSIONS_H

#include <stdbool.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/frame/uuid.h"

/* The last session of every channel, for `perch agent --resume last`: one small file for
 * each agent key (JSON, 0600, replaced atomically). */
struct last_sessions;

/* What cannot be read counts as empty; the next put replaces it. @path: borrowed. */
struct last_sessions *last_sessions_open(const char *path);
void last_sessions_close(struct last_sessions *sessions);
/* Appends the id to @out. False when none is known that worked in @cwd. */
bool last_sessions_get(const struct last_sessions *sessions, const char *cwd,
		       const struct uuid *channel, struct buf *out);
/* Writes it to the disk; what is known already costs nothing. */
bool last_sessions_put(struct last_sessions *sessions, const char *cwd,
		       const struct uuid *channel, struct slice session, struct err *err);

#endif
