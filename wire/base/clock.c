#include "wire/base/clock.h"

#include <string.h>

#define DAY_MS INT64_C(86400000)
#define LAST_MS INT64_C(253402300799999) /* 9999-12-31T23:59:59.999Z */

/* Days since 1970-01-01 of a date in the Gregorian calendar. Years are counted from
 * March, so that the leap day is the last of its year; 719468 days lie between 0000-03-01
 * and 1970-01-01. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
	const int64_t y = month > 2 ? year : year - 1;
	const int64_t m = month > 2 ? month - 3 : month + 9;

	return 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719468;
}

/* The inverse of days_of for dates from 1970 on. */
static void date_of(int64_t days, int *year, int *month, int *day)
{
	const int64_t n = days + 719468;
	const int64_t era = n / 146097, of_era = n % 146097;
	const int64_t y =
		(of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	const int64_t of_year = of_era - (365 * y + y / 4 - y / 100);
	const int64_t m = (5 * of_year + 2) / 153;

	*day = (int)(of_year - (153 * m + 2) / 5 + 1);
	*month = (int)(m < 10 ? m + 3 : m - 9);
	*year = (int)(era * 400 + y + (*month <= 2));
}

/* Writes @count digits at @at. */
static void put_digits(char *at, int count, int number)
{
	while (count--) {
		at[count] = (char)('0' + number % 10);
		number /= 10;
	}
}

void clock_format(int64_t unix_ms, char out[CLOCK_RFC3339_LEN + 1])
{
	int year, month, day, ms;

	if (unix_ms < 0)
		unix_ms = 0;
	if (unix_ms > LAST_MS)
		unix_ms = LAST_MS;
	date_of(unix_ms / DAY_MS, &year, &month, &day);
	ms = (int)(unix_ms % DAY_MS);
	/* Every event has one or two of these: snprintf() cost more than the rest. */
	memcpy(out, "0000-00-00T00:00:00.000Z", CLOCK_RFC3339_LEN + 1);
	put_digits(out, 4, year);
	put_digits(out + 5, 2, month);
	put_digits(out + 8, 2, day);
	put_digits(out + 11, 2, ms / 3600000);
	put_digits(out + 14, 2, ms / 60000 % 60);
	put_digits(out + 17, 2, ms / 1000 % 60);
	put_digits(out + 20, 3, ms % 1000);
}

/* Takes exactly @count digits off the front, as a number in [min, max]. */
static bool take_digits(struct slice *text, size_t count, int64_t min, int64_t max,
			int64_t *out)
{
	int64_t value = 0;

	if (text->len < count)
		return false;
	for (size_t i = 0; i < count; i++) {
		if (text->ptr[i] < '0' || text->ptr[i] > '9')
			return false;
		value = 10 * value + (text->ptr[i] - '0');
	}
	*text = slice_sub(*text, count, text->len);
	*out = value;
	return value >= min && value <= max;
}

static bool take_byte(struct slice *text, char byte)
{
	if (!text->len || text->ptr[0] != byte)
		return false;
	*text = slice_sub(*text, 1, text->len);
	return true;
}

static bool take_fraction(struct slice *text, int64_t *ms)
{
	size_t digits = 0;

	*ms = 0;
	if (!take_byte(text, '.'))
		return true;
	for (; digits < text->len && text->ptr[digits] >= '0' && text->ptr[digits] <= '9';
	     digits++)
		if (digits < 3)
			*ms = 10 * *ms + (text->ptr[digits] - '0');
	if (digits < 1 || digits > 9)
		return false;
	for (size_t i = digits; i < 3; i++)
		*ms *= 10;
	*text = slice_sub(*text, digits, text->len);
	return true;
}

/* "Z" or "+hh:mm" to the end of the text, as minutes east of UTC. */
static bool take_offset(struct slice *text, int64_t *minutes)
{
	int64_t hours, rest;
	bool west;

	*minutes = 0;
	if (take_byte(text, 'Z') || take_byte(text, 'z'))
		return true;
	west = take_byte(text, '-');
	if (!west && !take_byte(text, '+'))
		return false;
	if (!take_digits(text, 2, 0, 23, &hours) || !take_byte(text, ':') ||
	    !take_digits(text, 2, 0, 59, &rest))
		return false;
	*minutes = 60 * hours + rest;
	if (west)
		*minutes = -*minutes;
	return true;
}

static int64_t month_days(int64_t year, int64_t month)
{
	static const int8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

	return month == 2 && leap ? 29 : days[month - 1];
}

bool clock_parse(struct slice text, int64_t *unix_ms)
{
	int64_t year, month, day, hour, minute, second, ms, offset;

	if (!take_digits(&text, 4, 1, 9999, &year) || !take_byte(&text, '-') ||
	    !take_digits(&text, 2, 1, 12, &month) || !take_byte(&text, '-') ||
	    !take_digits(&text, 2, 1, month_days(year, month), &day))
		return false;
	if (!take_byte(&text, 'T') && !take_byte(&text, 't') && !take_byte(&text, ' '))
		return false;
	/* RFC 3339, 5.6: time-second is 00-58, 00-59, 00-60 based on leap second rules.
	 */
	if (!take_digits(&text, 2, 0, 23, &hour) || !take_byte(&text, ':') ||
	    !take_digits(&text, 2, 0, 59, &minute) || !take_byte(&text, ':') ||
	    !take_digits(&text, 2, 0, 60, &second) || !take_fraction(&text, &ms) ||
	    !take_offset(&text, &offset) || text.len)
		return false;
	*unix_ms = days_of(year, month, day) * DAY_MS + hour * 3600000 +
		   (minute - offset) * 60000 + second * 1000 + ms;
	return true;
}
