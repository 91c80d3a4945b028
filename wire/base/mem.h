#ifndef WIRE_BASE_MEM_H
#define WIRE_BASE_MEM_H

#include <stddef.h>

#include "wire/base/slice.h"

/* Allocation that aborts when there is none: every size a peer controls was checked
 * against a limit before, and recovery code that never runs does not work. Freed with
 * free(). */
void *mem_alloc(size_t size);               /* zeroed */
void *mem_array(size_t count, size_t size); /* zeroed; the product is checked */
void *mem_grow(void *old, size_t count, size_t size);
char *mem_dup(struct slice text); /* NUL-terminated copy */

#endif
