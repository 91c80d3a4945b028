#ifndef WIRE_LINK_RESOLVE_H
#define WIRE_LINK_RESOLVE_H

#include <stddef.h>

#include "wire/host/loop.h"

#define RESOLVE_ADDRESSES_MAX 8
#define RESOLVE_ADDRESS_BYTES 64 /* numeric, with a zone, NUL-terminated */

struct resolve_result {
	size_t count; /* 0: failed, see reason */
	char addresses[RESOLVE_ADDRESSES_MAX][RESOLVE_ADDRESS_BYTES];
	char reason[120];
};

/* A name being looked up by a thread of its own: getaddrinfo() blocks for as long as the
 * resolver likes, and libuv's pool would hold the loop's end, and exit(), for as long. */
struct resolve;

/* Calls @on_done on the loop, once, unless it is destroyed before. */
struct resolve *resolve_create(struct loop *loop, const char *host,
			       void (*on_done)(void *ctx,
					       const struct resolve_result *result),
			       void *ctx);
/* NULL is fine; also inside the callback. The thread ends when it can and is not waited
 * for. */
void resolve_destroy(struct resolve *resolve);

#endif
