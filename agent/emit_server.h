#ifndef AGENT_EMIT_SERVER_H
#define AGENT_EMIT_SERVER_H

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/host/loop.h"

/* Where `perch emit` reaches a harness: a Unix socket (SOCK_SEQPACKET, 0600) that takes
 * messages of emit_event.h from processes of our own user, and answers each by "ok" or a
 * line that says what was wrong. */
struct emit_server;

/* Messages a second that are taken, and at once; and their bytes. Beyond: refused. Our
 * choice: a script in a loop must not crowd out the agent's own events. */
#define EMIT_PER_S 20
#define EMIT_BURST 100
#define EMIT_BYTES_PER_S 16384
#define EMIT_BYTES_BURST 131072
#define EMIT_CLIENTS_MAX 16 /* at a time */
#define EMIT_CLIENT_MS 5000 /* a client that says nothing for so long is let go */

/* The variable that tells a child of a harness where its socket is: no secret. */
#define EMIT_VARIABLE "PERCH_EMIT"

/* Takes an event that was checked; the slices live for the call. */
typedef void emit_on_event(void *ctx, struct slice kind, struct slice payload);

/* The socket's path: of the harness @name, or (@pid not 0) of a proxy's or run's process,
 * whose name is not known when its command starts. ERR_TOO_LARGE when the folder's name
 * is too long for a socket. */
bool emit_path_of_name(struct slice name, struct buf *out, struct err *err);
bool emit_path_of_pid(long pid, struct buf *out, struct err *err);

/**
 * emit_server_create - listen at @path
 * What a dead harness left there is replaced. @name: NULL, or the path of a symbolic link
 * to @path that is made too. Both go with the server.
 */
struct emit_server *emit_server_create(struct loop *loop, const char *path,
				       const char *name, emit_on_event *on_event,
				       void *ctx, struct err *err);
void emit_server_destroy(struct emit_server *server); /* NULL is fine */

#endif
