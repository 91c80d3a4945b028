#include "agent/epoch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire/base/mem.h"
#include "wire/base/slice.h"

#define SECONDS_LEN 8

static bool is_epoch(struct slice text)
{
	uint8_t bytes[EPOCH_LEN / 2];

	return hex_decode(text, bytes, sizeof(bytes));
}

void epoch_next(const char *last, int64_t unix_s, uint32_t random,
		char out[EPOCH_LEN + 1])
{
	uint64_t seconds = unix_s > 0 ? (uint64_t)unix_s : 0;
	char digits[SECONDS_LEN + 1] = "";
	uint64_t after;

	if (is_epoch(slice_of(last))) {
		memcpy(digits, last, SECONDS_LEN);
		after = strtoull(digits, NULL, 16) + 1;
		if (after > seconds)
			seconds = after;
	}
	if (seconds > UINT32_MAX)
		seconds = UINT32_MAX;
	(void)snprintf(out, EPOCH_LEN + 1, "%08" PRIx64 "%08" PRIx32, seconds, random);
}

void epoch_load(const char *path, char out[EPOCH_LEN + 1])
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = 0;

	if (fd >= 0) {
		len = read(fd, out, EPOCH_LEN);
		(void)close(fd);
	}
	out[len > 0 ? len : 0] = '\0';
	if (!is_epoch(slice_of(out)))
		out[0] = '\0';
}

bool epoch_save(const char *path, const char epoch[EPOCH_LEN + 1], struct err *err)
{
	char *fresh = mem_alloc(strlen(path) + sizeof(".new"));
	bool ok = false;
	int fd;

	(void)snprintf(fresh, strlen(path) + sizeof(".new"), "%s.new", path);
	fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0) {
		(void)err_errno(err, "cannot write %s", fresh);
		goto out;
	}
	ok = write(fd, epoch, EPOCH_LEN) == EPOCH_LEN && fsync(fd) == 0;
	ok = close(fd) == 0 && ok;
	ok = ok && rename(fresh, path) == 0;
	if (!ok)
		(void)err_errno(err, "cannot write %s", path);
out:
	free(fresh);
	return ok;
}
