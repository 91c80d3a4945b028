#ifndef TESTS_UNIT_SUPPORT_SUPPORT_H
#define TESTS_UNIT_SUPPORT_SUPPORT_H

#include <check.h>

#include "wire/base/buf.h"
#include "wire/base/slice.h"

/* Reads tests/data/@name whole into @out (cleared first); the test fails if it cannot. */
void test_data(const char *name, struct buf *out);

/* True if the slice holds exactly this text. For ck_assert with a message of both. */
#define assert_slice_eq(got, text) \
	do { \
		struct slice slice_got_ = (got); \
		ck_assert_msg(slice_eq(slice_got_, slice_of(text)), "got \"%.*s\"", \
			      SLICE_ARG(slice_got_)); \
	} while (0)

/* Removes @folder and all that is in it; the test fails if it cannot. */
void test_remove_folder(const char *folder);

/* Runs one suite as a whole program: the exit status for main(). */
int test_run(Suite *suite);

#endif
