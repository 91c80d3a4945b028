#ifndef AGENT_SHARED_H
#define AGENT_SHARED_H

#include <stdbool.h>
#include <stddef.h>

struct pool;

/* A block of memory that more than one may hold: the last who lets it go gives it back,
 * wiped, to the pool that it came from. Who holds it is known to one thread only; another
 * may read what that one wrote before. */
struct shared {
	struct pool *pool; /* outlives it */
	size_t bytes;      /* with this head */
	size_t used;       /* of data, to be wiped; all of it unless it is set to less */
	unsigned holders;
	char data[];
};

/* A block with room for at least @room bytes, held once. */
struct shared *shared_take(struct pool *pool, size_t room);
size_t shared_room(const struct shared *shared);
struct shared *shared_hold(struct shared *shared);
void shared_let_go(struct shared *shared); /* may be NULL */

#endif
