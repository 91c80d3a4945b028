#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/epoch.h"
#include "tests/unit/support/support.h"

static char folder[64], path[96];
static char epoch[EPOCH_LEN + 1];

static void setup(void)
{
	(void)snprintf(folder, sizeof(folder), "%s/perch-epoch-XXXXXX", P_tmpdir);
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/epoch", folder);
}

static void teardown(void)
{
	(void)unlink(path);
	(void)rmdir(folder);
}

START_TEST(epoch_is_the_second_and_random_digits)
{
	epoch_next("", 0x6b0d3c80, 0x0000beef, epoch);
	ck_assert_str_eq(epoch, "6b0d3c800000beef");
}
END_TEST

START_TEST(epochs_rise_even_if_the_clock_goes_back)
{
	epoch_next("6b0d3c80ffffffff", 0x6b0d3c80, 1, epoch);
	ck_assert_str_eq(epoch, "6b0d3c8100000001");
	epoch_next("6b0d3c80ffffffff", 5, 1, epoch);
	ck_assert_str_eq(epoch, "6b0d3c8100000001");
	epoch_next("6b0d3c80ffffffff", 0x6b0d3c99, 1, epoch);
	ck_assert_str_eq(epoch, "6b0d3c9900000001");
}
END_TEST

START_TEST(saved_epoch_is_loaded_and_private)
{
	struct stat info;

	ck_assert(epoch_save(path, "6b0d3c800000beef", NULL));
	ck_assert(epoch_save(path, "6b0d3c810000beef", NULL));
	epoch_load(path, epoch);
	ck_assert_str_eq(epoch, "6b0d3c810000beef");
	ck_assert_int_eq(stat(path, &info), 0);
	ck_assert_int_eq(info.st_mode & 0777, 0600);
}
END_TEST

START_TEST(missing_or_broken_file_is_no_epoch)
{
	FILE *file;

	epoch_load(path, epoch);
	ck_assert_str_eq(epoch, "");
	file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	(void)fputs("not an epoch at all", file);
	(void)fclose(file);
	epoch_load(path, epoch);
	ck_assert_str_eq(epoch, "");
}
END_TEST

START_TEST(folder_that_is_not_there_is_an_error_with_its_path)
{
	struct err err;

	ck_assert(!epoch_save("/nonexistent/epoch", "6b0d3c800000beef", &err));
	ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/epoch"));
}
END_TEST

static Suite *epoch_suite(void)
{
	Suite *suite = suite_create("epoch");
	TCase *tcase = tcase_create("epoch");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, epoch_is_the_second_and_random_digits);
	tcase_add_test(tcase, epochs_rise_even_if_the_clock_goes_back);
	tcase_add_test(tcase, saved_epoch_is_loaded_and_private);
	tcase_add_test(tcase, missing_or_broken_file_is_no_epoch);
	tcase_add_test(tcase, folder_that_is_not_there_is_an_error_with_its_path);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return test_run(epoch_suite());
}
