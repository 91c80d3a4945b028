#include "observer/expiry.h"

#include <stdio.h>
#include <time.h>

#include "wire/base/slice.h"

static int64_t unit_seconds(char unit)
{
	switch (unit) {
	case 'm':
		return 60;
	case 'h':
		return 3600;
	case 'd':
		return 86400;
	case 'w':
		return INT64_C(7) * 86400;
	default:
		return 0;
	}
}

bool expiry_parse(const char *text, int64_t now, int64_t *out, struct err *err)
{
	struct slice digits = slice_of(text);
	int64_t unit = digits.len ? unit_seconds(digits.ptr[digits.len - 1]) : 0;
	uint64_t number;
	int64_t expires;

	if (unit)
		digits.len--;
	if (!slice_parse_u64(digits, UINT32_MAX, &number))
		return err_set(err, ERR_MALFORMED,
			       "--expires takes a time from now (30m, 12h, 7d, 4w) or "
			       "Unix seconds, got \"%.40s\"",
			       text);
	expires = unit ? now + (int64_t)number * unit : (int64_t)number;
	if (expires <= now)
		return err_set(err, ERR_MALFORMED, "--expires %.40s is in the past",
			       text);
	if (expires > UINT32_MAX)
		return err_set(err, ERR_MALFORMED,
			       "--expires %.40s is beyond the year 2106", text);
	*out = expires;
	return true;
}

void expiry_text(int64_t expires, char out[32])
{
	const time_t t = (time_t)expires;
	struct tm tm;

	(void)gmtime_r(&t, &tm);
	(void)strftime(out, 32, "%Y-%m-%d %H:%M UTC", &tm);
}
