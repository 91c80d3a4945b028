#ifndef WIRE_BASE_BUF_H
#define WIRE_BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/slice.h"

/* Growing memory with a cap. An append past the cap appends nothing, sets @full and
 * fails, and so does every later append until buf_clear(): a writer may append many
 * pieces and look once, with buf_ok(). Out of memory aborts. All fields are the buffer's;
 * reading them is fine. A zeroed struct with @max set is a valid empty buffer. */
struct buf {
	char *ptr;
	size_t len; /* bytes used */
	size_t cap; /* bytes allocated */
	size_t max; /* most bytes it may ever hold */
	bool full;  /* an append was refused */
};

void buf_init(struct buf *buf, size_t max);
void buf_finish(struct buf *buf);
/* Like buf_finish, but overwrites the memory first: for plaintexts and keys. */
void buf_wipe(struct buf *buf);
/* Empties it; keeps the memory. */
void buf_clear(struct buf *buf);
static inline bool buf_ok(const struct buf *buf)
{
	return !buf->full;
}
static inline struct slice buf_slice(const struct buf *buf)
{
	return (struct slice){buf->ptr, buf->len};
}
/* Makes room for @more bytes beyond len; false (and full) when that would pass the cap.
 */
bool buf_reserve(struct buf *buf, size_t more);
bool buf_append(struct buf *buf, struct slice bytes);
bool buf_append_byte(struct buf *buf, char byte);
/* In decimal digits; many times faster than buf_printf(). */
bool buf_append_u64(struct buf *buf, uint64_t number);
/* Appends @len bytes of memory for the caller to fill; NULL when full. */
char *buf_extend(struct buf *buf, size_t len);
bool buf_printf(struct buf *buf, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
bool buf_vprintf(struct buf *buf, const char *fmt, va_list args)
	__attribute__((format(printf, 2, 0)));
bool buf_append_hex(struct buf *buf, const uint8_t *bytes, size_t len);
/* Removes @len bytes (at most buf->len) from the front. Costs the bytes that stay. */
void buf_consume(struct buf *buf, size_t len);
/* Shortens to @len bytes. */
void buf_truncate(struct buf *buf, size_t len);
/* Literal text: buf_lit(&b, "{"). */
#define buf_lit(buf, literal) buf_append((buf), SLICE(literal))
/* NUL-terminates behind len (not counted) and returns the text; for C interfaces. */
const char *buf_text(struct buf *buf);

#endif
