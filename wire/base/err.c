#include "wire/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
	va_list args;

	if (!err)
		return false;
	err->code = code;
	va_start(args, fmt);
	(void)vsnprintf(err->text, sizeof(err->text), fmt, args);
	va_end(args);
	return false;
}

/* What to do about trouble that has one remedy whatever was tried; "" otherwise. */
static const char *advice(int number)
{
	switch (number) {
	case ENOSPC:
	case EDQUOT:
		return ": make room there, or set PERCH_HOME to a folder with room";
	case EROFS:
		return ": set PERCH_HOME to a folder that can be written";
	default:
		return "";
	}
}

bool err_errno(struct err *err, const char *fmt, ...)
{
	const int saved = errno;
	va_list args;
	size_t len;

	if (!err)
		return false;
	err->code = ERR_SYSTEM;
	va_start(args, fmt);
	(void)vsnprintf(err->text, sizeof(err->text), fmt, args);
	va_end(args);
	len = strlen(err->text);
	(void)snprintf(err->text + len, sizeof(err->text) - len, ": %s%s",
		       strerror(saved), advice(saved));
	return false;
}
