#include "wire/base/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void *or_abort(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

void *mem_alloc(size_t size)
{
	return or_abort(calloc(1, size ? size : 1));
}

void *mem_array(size_t count, size_t size)
{
	return or_abort(calloc(count ? count : 1, size ? size : 1));
}

void *mem_grow(void *old, size_t count, size_t size)
{
	size_t total;

	if (__builtin_mul_overflow(count, size, &total))
		abort();
	return or_abort(realloc(old, total ? total : 1));
}

char *mem_dup(struct slice text)
{
	char *copy;

	if (text.len == SIZE_MAX)
		abort();
	copy = mem_alloc(text.len + 1);
	if (text.len)
		memcpy(copy, text.ptr, text.len);
	return copy;
}
