#include "relay/body.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"

struct body *body_create(struct slice text)
{
	struct body *body = mem_alloc(sizeof(*body) + text.len);

	body->refs = 1;
	body->len = text.len;
	if (text.len > 0)
		memcpy(body->text, text.ptr, text.len);
	return body;
}

struct body *body_ref(struct body *body)
{
	body->refs++;
	return body;
}

void body_unref(struct body *body)
{
	if (!body)
		return;
	assert(body->refs > 0);
	if (--body->refs == 0)
		free(body);
}
