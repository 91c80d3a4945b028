#include "observer/when.h"

#include "wire/base/clock.h"
#include "wire/base/slice.h"

#define AGO_MAX 100000 /* of any unit */

static int64_t unit_ms(char unit)
{
	switch (unit) {
	case 'm':
		return 60000;
	case 'h':
		return 3600000;
	case 'd':
		return 86400000;
	case 'w':
		return INT64_C(7) * 86400000;
	default:
		return 0;
	}
}

bool when_parse(const char *option, const char *text, int64_t now_ms, int64_t *out_ms,
		struct err *err)
{
	const struct slice whole = slice_of(text);
	const int64_t unit = whole.len ? unit_ms(whole.ptr[whole.len - 1]) : 0;
	uint64_t number;

	if (clock_parse(whole, out_ms))
		return true;
	if (!unit ||
	    !slice_parse_u64(slice_sub(whole, 0, whole.len - 1), AGO_MAX, &number))
		return err_set(err, ERR_MALFORMED,
			       "%s takes a moment (2026-11-30T08:00:00Z) or how long ago "
			       "(30m, 12h, 7d, 4w), got \"%.40s\"",
			       option, text);
	*out_ms = now_ms - (int64_t)number * unit;
	return true;
}
