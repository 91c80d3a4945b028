#include <time.h>

#include "tests/unit/support/support.h"
#include "wire/base/clock.h"

#define COUNT(table) (int)(sizeof(table) / sizeof((table)[0]))

static const struct {
	int64_t unix_ms;
	const char *text;
} moments[] = {
	{0, "1970-01-01T00:00:00.000Z"},
	{1, "1970-01-01T00:00:00.001Z"},
	{951782399999, "2000-02-28T23:59:59.999Z"},
	{951782400000, "2000-02-29T00:00:00.000Z"},
	{1764489600123, "2025-11-30T08:00:00.123Z"},
	{4107542400000, "2100-03-01T00:00:00.000Z"}, /* no leap year */
	{253402300799999, "9999-12-31T23:59:59.999Z"},
};

START_TEST(moments_are_written_and_read)
{
	char text[CLOCK_RFC3339_LEN + 1];
	int64_t got;

	clock_format(moments[_i].unix_ms, text);
	ck_assert_str_eq(text, moments[_i].text);
	ck_assert(clock_parse(slice_of(text), &got));
	ck_assert_int_eq(got, moments[_i].unix_ms);
}
END_TEST

START_TEST(days_of_140_years_agree_with_the_c_library)
{
	for (int64_t day = 0; day < 140 * 366; day += 7) {
		const time_t seconds = (time_t)(day * 86400);
		char text[CLOCK_RFC3339_LEN + 1], want[32];
		struct tm parts;
		int64_t got;

		ck_assert_ptr_nonnull(gmtime_r(&seconds, &parts));
		(void)strftime(want, sizeof(want), "%Y-%m-%dT00:00:00.000Z", &parts);
		clock_format(day * 86400000, text);
		ck_assert_str_eq(text, want);
		ck_assert(clock_parse(slice_of(text), &got));
		ck_assert_int_eq(got, day * 86400000);
	}
}
END_TEST

START_TEST(moments_outside_the_calendar_are_clamped)
{
	char text[CLOCK_RFC3339_LEN + 1];

	clock_format(-1, text);
	ck_assert_str_eq(text, "1970-01-01T00:00:00.000Z");
	clock_format(INT64_MAX, text);
	ck_assert_str_eq(text, "9999-12-31T23:59:59.999Z");
}
END_TEST

/* RFC 3339, 5.6 and 5.8. */
static const struct {
	const char *text;
	bool ok;
	int64_t unix_ms;
} texts[] = {
	{"1985-04-12T23:20:50.52Z", true, 482196050520},
	{"1996-12-19T16:39:57-08:00", true, 851042397000},
	{"1990-12-31T23:59:60Z", true, 662688000000},
	{"1937-01-01T12:00:27.87+00:20", true, -1041337172130},
	{"2025-11-30t08:00:00z", true, 1764489600000},
	{"2025-11-30 08:00:00Z", true, 1764489600000},
	{"2025-11-30T08:00:00.123456789Z", true, 1764489600123},
	{"2025-11-30T08:00:00.1Z", true, 1764489600100},
	{"2024-02-29T00:00:00Z", true, 1709164800000},
	{"2025-02-29T00:00:00Z", false, 0},
	{"2025-11-31T00:00:00Z", false, 0},
	{"2025-13-01T00:00:00Z", false, 0},
	{"2025-00-01T00:00:00Z", false, 0},
	{"2025-01-00T00:00:00Z", false, 0},
	{"2025-01-01T24:00:00Z", false, 0},
	{"2025-01-01T00:60:00Z", false, 0},
	{"2025-01-01T00:00:61Z", false, 0},
	{"2025-01-01T00:00:00", false, 0},
	{"2025-01-01T00:00:00.Z", false, 0},
	{"2025-01-01T00:00:00.1234567890Z", false, 0},
	{"2025-01-01T00:00:00+0100", false, 0},
	{"2025-01-01T00:00:00+24:00", false, 0},
	{"2025-01-01T00:00Z", false, 0},
	{"2025-1-1T00:00:00Z", false, 0},
	{"25-01-01T00:00:00Z", false, 0},
	{"2025-01-01", false, 0},
	{"2025-01-01T00:00:00Z ", false, 0},
	{"+2025-01-01T00:00:00Z", false, 0},
	{"", false, 0},
};

START_TEST(texts_are_read_as_rfc_3339_says)
{
	int64_t got = 42;

	ck_assert_msg(clock_parse(slice_of(texts[_i].text), &got) == texts[_i].ok, "%s",
		      texts[_i].text);
	ck_assert_int_eq(got, texts[_i].ok ? texts[_i].unix_ms : 42);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("clock");
	TCase *tcase = tcase_create("clock");

	tcase_add_loop_test(tcase, moments_are_written_and_read, 0, COUNT(moments));
	tcase_add_test(tcase, days_of_140_years_agree_with_the_c_library);
	tcase_add_test(tcase, moments_outside_the_calendar_are_clamped);
	tcase_add_loop_test(tcase, texts_are_read_as_rfc_3339_says, 0, COUNT(texts));
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
