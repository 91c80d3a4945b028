/* Secrets from pipes, files and descriptors. Terminals are the program tests' business.
 */
#include "tests/unit/support/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/host/secret.h"

static char folder[64], path[96];
static struct buf out;
static struct err err;

static void setup(void)
{
	(void)snprintf(folder, sizeof(folder), "/tmp/perch-secret-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/file", folder);
	buf_init(&out, 16);
	(void)unsetenv("PERCH_PASSPHRASE_FILE");
	(void)unsetenv("PERCH_PASSPHRASE_FD");
}

static void teardown(void)
{
	(void)unsetenv("PERCH_PASSPHRASE_FILE");
	(void)unsetenv("PERCH_PASSPHRASE_FD");
	buf_wipe(&out);
	test_remove_folder(folder);
}

/* A descriptor from which @text can be read. */
static int pipe_of(const char *text)
{
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(write(ends[1], text, strlen(text)), (ssize_t)strlen(text));
	(void)close(ends[1]);
	return ends[0];
}

static void write_file(const char *text, mode_t mode)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(fchmod(fd, mode), 0);
	(void)close(fd);
}

#define ASSERT_OUT(text) ck_assert(slice_eq(buf_slice(&out), SLICE(text)))

START_TEST(one_line_is_taken_and_no_more)
{
	const int fd = pipe_of("first\r\n\nrest");

	ck_assert(secret_line(fd, "", &out, &err));
	ASSERT_OUT("first");
	ck_assert(secret_line(fd, "", &out, &err));
	ASSERT_OUT("");
	ck_assert(secret_line(fd, "", &out, &err));
	ASSERT_OUT("rest");
	ck_assert(!secret_line(fd, "", &out, &err));
	ck_assert_int_eq(err.code, ERR_NOT_FOUND);
	(void)close(fd);
}
END_TEST

START_TEST(a_line_has_a_longest_length)
{
	int fd = pipe_of("0123456789abcdef\n");

	ck_assert(secret_line(fd, "", &out, &err));
	(void)close(fd);
	fd = pipe_of("0123456789abcdefg\n");
	ck_assert(!secret_line(fd, "", &out, &err));
	ck_assert_int_eq(err.code, ERR_TOO_LARGE);
	(void)close(fd);
}
END_TEST

START_TEST(a_file_that_others_can_read_is_refused)
{
	write_file("x\n", 0640);
	ck_assert(!secret_file(path, &out, &err));
	ck_assert_int_eq(err.code, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(err.text, "chmod 600"));
	write_file("x\nsecond\n", 0600);
	(void)chmod(path, 0600);
	ck_assert(secret_file(path, &out, &err));
	ASSERT_OUT("x");
	write_file("\n", 0600);
	ck_assert(!secret_file(path, &out, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "is empty"));
	ck_assert(!secret_file("/nonexistent/x", &out, &err));
	ck_assert_int_eq(err.code, ERR_NOT_FOUND);
}
END_TEST

START_TEST(a_passphrase_comes_from_option_file_or_descriptor_in_this_order)
{
	char number[16];
	const int fd = pipe_of("of-fd\n");

	(void)snprintf(number, sizeof(number), "%d", fd);
	(void)setenv("PERCH_PASSPHRASE_FD", number, 1);
	ck_assert_msg(secret_passphrase(NULL, "", true, &out, &err), "%s", err.text);
	ASSERT_OUT("of-fd");
	write_file("of-file\n", 0600);
	(void)setenv("PERCH_PASSPHRASE_FILE", "/nonexistent/x", 1);
	ck_assert(!secret_passphrase(NULL, "", false, &out, &err));
	ck_assert_int_eq(err.code, ERR_NOT_FOUND);
	ck_assert(secret_passphrase(path, "", false, &out, &err));
	ASSERT_OUT("of-file");
	(void)close(fd);
}
END_TEST

START_TEST(a_wrong_descriptor_is_named)
{
	(void)setenv("PERCH_PASSPHRASE_FD", "three", 1);
	ck_assert(!secret_passphrase(NULL, "", false, &out, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "PERCH_PASSPHRASE_FD takes a number"));
	(void)setenv("PERCH_PASSPHRASE_FD", "987", 1);
	ck_assert(!secret_passphrase(NULL, "", false, &out, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "cannot read descriptor 987"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("secret");
	TCase *tcase = tcase_create("secret");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, one_line_is_taken_and_no_more);
	tcase_add_test(tcase, a_line_has_a_longest_length);
	tcase_add_test(tcase, a_file_that_others_can_read_is_refused);
	tcase_add_test(tcase,
		       a_passphrase_comes_from_option_file_or_descriptor_in_this_order);
	tcase_add_test(tcase, a_wrong_descriptor_is_named);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
