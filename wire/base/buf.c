#include "wire/base/buf.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "wire/base/mem.h"

/* First allocation: most small messages need no second one. */
#define BUF_FIRST_BYTES 256

void buf_init(struct buf *buf, size_t max)
{
	*buf = (struct buf){.max = max};
}

void buf_finish(struct buf *buf)
{
	free(buf->ptr);
	buf_init(buf, buf->max);
}

void buf_wipe(struct buf *buf)
{
	if (buf->ptr)
		sodium_memzero(buf->ptr, buf->cap);
	buf_finish(buf);
}

void buf_clear(struct buf *buf)
{
	buf->len = 0;
	buf->full = false;
}

/* Brings the capacity to at least @need, which may pass max by the NUL of buf_text(). */
static void grow(struct buf *buf, size_t need)
{
	size_t cap = buf->cap ? buf->cap : BUF_FIRST_BYTES;

	while (cap < need && cap <= SIZE_MAX / 2)
		cap *= 2;
	if (cap > buf->max)
		cap = buf->max;
	if (cap < need)
		cap = need;
	buf->ptr = mem_grow(buf->ptr, cap, 1);
	buf->cap = cap;
}

bool buf_reserve(struct buf *buf, size_t more)
{
	if (buf->full || more > buf->max - buf->len) {
		buf->full = true;
		return false;
	}
	if (more > buf->cap - buf->len)
		grow(buf, buf->len + more);
	return true;
}

char *buf_extend(struct buf *buf, size_t len)
{
	char *at;

	if (!buf_reserve(buf, len))
		return NULL;
	if (!buf->ptr)
		grow(buf, 1);
	at = buf->ptr + buf->len;
	buf->len += len;
	return at;
}

bool buf_append(struct buf *buf, struct slice bytes)
{
	if (!buf_reserve(buf, bytes.len))
		return false;
	if (bytes.len)
		memcpy(buf->ptr + buf->len, bytes.ptr, bytes.len);
	buf->len += bytes.len;
	return true;
}

bool buf_append_byte(struct buf *buf, char byte)
{
	if (!buf_reserve(buf, 1))
		return false;
	buf->ptr[buf->len++] = byte;
	return true;
}

bool buf_append_u64(struct buf *buf, uint64_t number)
{
	char digits[20]; /* of 2^64 - 1 */
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	return buf_append(buf, (struct slice){digits + at, sizeof(digits) - at});
}

bool buf_vprintf(struct buf *buf, const char *fmt, va_list args)
{
	char small[256];
	va_list again;
	char *text;
	int len;

	va_copy(again, args);
	len = vsnprintf(small, sizeof(small), fmt, args);
	assert(len >= 0);
	if ((size_t)len < sizeof(small)) {
		va_end(again);
		return buf_append(buf, (struct slice){small, (size_t)len});
	}
	text = mem_alloc((size_t)len + 1);
	(void)vsnprintf(text, (size_t)len + 1, fmt, again);
	va_end(again);
	(void)buf_append(buf, (struct slice){text, (size_t)len});
	free(text);
	return buf_ok(buf);
}

bool buf_printf(struct buf *buf, const char *fmt, ...)
{
	va_list args;
	bool ok;

	va_start(args, fmt);
	ok = buf_vprintf(buf, fmt, args);
	va_end(args);
	return ok;
}

bool buf_append_hex(struct buf *buf, const uint8_t *bytes, size_t len)
{
	char *at;

	assert(len <= SIZE_MAX / 2);
	at = buf_extend(buf, 2 * len);
	if (!at)
		return false;
	hex_encode(bytes, len, at);
	return true;
}

void buf_consume(struct buf *buf, size_t len)
{
	if (len >= buf->len) {
		buf->len = 0;
		return;
	}
	buf->len -= len;
	memmove(buf->ptr, buf->ptr + len, buf->len);
}

void buf_truncate(struct buf *buf, size_t len)
{
	if (len < buf->len)
		buf->len = len;
}

const char *buf_text(struct buf *buf)
{
	if (buf->len == buf->cap)
		grow(buf, buf->len + 1);
	buf->ptr[buf->len] = '\0';
	return buf->ptr;
}
