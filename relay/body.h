#ifndef RELAY_BODY_H
#define RELAY_BODY_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/base/slice.h"

/* A text that send queues and the recent window share instead of copying. Immutable;
 * freed with its last reference. */
struct body {
	size_t refs;
	size_t waiting; /* the queues' count: how many of the references wait to be sent
			 */
	bool kept;      /* the window's mark: it would serve this text to a new REQ */
	size_t len;     /* bytes of text */
	char text[];
};

/* A copy of @text; the caller owns the one reference. */
struct body *body_create(struct slice text);
/* One more reference to the same body, returned. */
struct body *body_ref(struct body *body);
/* Gives up one reference; NULL is fine. */
void body_unref(struct body *body);
static inline struct slice body_slice(const struct body *body)
{
	return (struct slice){body->text, body->len};
}

#endif
