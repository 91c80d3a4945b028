#ifndef WIRE_BASE_ERR_H
#define WIRE_BASE_ERR_H

#include <stdbool.h>

enum err_code {
	ERR_NONE,
	ERR_MALFORMED, /* the peer sent something the protocol forbids */
	ERR_TOO_LARGE, /* well-formed, but over one of our limits */
	ERR_REFUSED,   /* well-formed, but not allowed for this peer */
	ERR_NOT_FOUND, /* the named thing does not exist (a key file, a channel) */
	ERR_SYSTEM,    /* the operating system or a library said no; text has its words */
};

/* Filled by whoever failed; the caller decides whether to log it. */
struct err {
	enum err_code code;
	char text[200]; /* lower case, no full stop, holds no secret */
};

/* Always returns false, so that failing is one line: return err_set(...). @err may be
 * NULL. */
bool err_set(struct err *err, enum err_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* err_set with ERR_SYSTEM and ": strerror(errno)" at the end, and what to do where the
 * disk is full or read-only. */
bool err_errno(struct err *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
