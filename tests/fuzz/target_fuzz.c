/* Targets of requests: the path and the parameters hold no control character. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>

#include "observer/http/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf path = {.max = 4096}, query = {.max = 4096};

	if (target_parse((struct slice){(const char *)data, size}, &path, &query)) {
		assert(path.len && path.ptr[0] == '/');
		for (size_t i = 0; i < path.len; i++)
			assert((uint8_t)path.ptr[i] >= ' ' && path.ptr[i] != 0x7f);
		assert(!query.len || query.ptr[query.len - 1] == '\0');
		for (size_t i = 0; i < query.len; i++)
			assert(!query.ptr[i] || (uint8_t)query.ptr[i] >= ' ');
	}
	buf_finish(&path);
	buf_finish(&query);
	return 0;
}
