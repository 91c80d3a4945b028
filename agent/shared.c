#include "agent/shared.h"

#include <assert.h>

#include <sodium.h>

#include "wire/base/pool.h"

struct shared *shared_take(struct pool *pool, size_t room)
{
	size_t bytes = sizeof(struct shared) + room;
	struct shared *shared = pool_take(pool, &bytes);

	*shared = (struct shared){
		.pool = pool,
		.bytes = bytes,
		.used = bytes - sizeof(*shared),
		.holders = 1,
	};
	return shared;
}

size_t shared_room(const struct shared *shared)
{
	return shared->bytes - sizeof(*shared);
}

struct shared *shared_hold(struct shared *shared)
{
	shared->holders++;
	return shared;
}

void shared_let_go(struct shared *shared)
{
	if (!shared)
		return;
	assert(shared->holders);
	if (--shared->holders)
		return;
	sodium_memzero(shared->data, shared->used);
	pool_give(shared->pool, shared, shared->bytes);
}
