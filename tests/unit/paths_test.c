/* Where things are on this machine, and how files are read and written there. */
#include "tests/unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire/host/paths.h"

static char folder[64];
static struct buf out;
static struct err err;

static const char *const variables[] = {"PERCH_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME",
					"XDG_RUNTIME_DIR"};

static void setup(void)
{
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		(void)unsetenv(variables[i]);
	(void)setenv("HOME", "/home/ada", 1);
	(void)snprintf(folder, sizeof(folder), "/tmp/perch-paths-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	buf_init(&out, 4096);
}

static void teardown(void)
{
	test_remove_folder(folder);
	buf_finish(&out);
}

/* folder/@name */
static const char *in_folder(const char *name)
{
	static char path[256];

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static unsigned mode_of(const char *path)
{
	struct stat info;

	ck_assert_int_eq(stat(path, &info), 0);
	return info.st_mode & 07777;
}

/* ---- Where ---- */

START_TEST(data_is_below_the_home_folder_by_default)
{
	ck_assert(paths_data(SLICE("keys/owner"), &out, &err));
	assert_slice_eq(buf_slice(&out), "/home/ada/.local/share/perch/keys/owner");
	ck_assert(paths_data(SLICE_EMPTY, &out, &err));
	assert_slice_eq(buf_slice(&out), "/home/ada/.local/share/perch");
}
END_TEST

START_TEST(xdg_folders_are_followed)
{
	(void)setenv("XDG_DATA_HOME", "/d", 1);
	(void)setenv("XDG_CONFIG_HOME", "/c", 1);
	(void)setenv("XDG_RUNTIME_DIR", "/r", 1);
	ck_assert(paths_data(SLICE("x"), &out, &err));
	assert_slice_eq(buf_slice(&out), "/d/perch/x");
	ck_assert(paths_config(SLICE("perch.conf"), &out, &err));
	assert_slice_eq(buf_slice(&out), "/c/perch/perch.conf");
	ck_assert(paths_run(SLICE("s"), &out, &err));
	assert_slice_eq(buf_slice(&out), "/r/perch/s");
}
END_TEST

/* "If an implementation encounters a relative path ... ignore it." */
START_TEST(a_relative_xdg_folder_is_ignored)
{
	(void)setenv("XDG_DATA_HOME", "d", 1);
	ck_assert(paths_data(SLICE("x"), &out, &err));
	assert_slice_eq(buf_slice(&out), "/home/ada/.local/share/perch/x");
}
END_TEST

START_TEST(perch_home_holds_data_and_sockets)
{
	(void)setenv("PERCH_HOME", "/p", 1);
	(void)setenv("XDG_DATA_HOME", "/d", 1);
	(void)setenv("XDG_CONFIG_HOME", "/c", 1);
	ck_assert(paths_config(SLICE("perch.conf"), &out, &err));
	assert_slice_eq(buf_slice(&out), "/p/perch.conf");
	(void)setenv("XDG_RUNTIME_DIR", "/r", 1);
	ck_assert(paths_data(SLICE("x"), &out, &err));
	assert_slice_eq(buf_slice(&out), "/p/x");
	ck_assert(paths_run(SLICE("x"), &out, &err));
	assert_slice_eq(buf_slice(&out), "/p/run/x");
}
END_TEST

START_TEST(sockets_are_in_data_where_there_is_no_runtime_folder)
{
	ck_assert(paths_run(SLICE("x"), &out, &err));
	assert_slice_eq(buf_slice(&out), "/home/ada/.local/share/perch/run/x");
}
END_TEST

START_TEST(a_relative_perch_home_is_refused)
{
	(void)setenv("PERCH_HOME", "here", 1);
	ck_assert(!paths_data(SLICE("x"), &out, &err));
	ck_assert_str_eq(err.text, "PERCH_HOME takes an absolute path, got \"here\"");
}
END_TEST

START_TEST(a_path_longer_than_the_buffer_is_refused)
{
	struct buf small;

	buf_init(&small, 8);
	ck_assert(!paths_data(SLICE("x"), &small, &err));
	ck_assert_int_eq(err.code, ERR_TOO_LARGE);
	buf_finish(&small);
}
END_TEST

/* ---- Folders ---- */

START_TEST(missing_folders_are_made_private)
{
	ck_assert_msg(paths_make(in_folder("a/b/c"), &err), "%s", err.text);
	ck_assert_uint_eq(mode_of(in_folder("a")), 0700);
	ck_assert_uint_eq(mode_of(in_folder("a/b/c")), 0700);
	ck_assert_msg(paths_make(in_folder("a/b/c"), &err), "%s", err.text);
}
END_TEST

START_TEST(a_file_in_the_way_of_a_folder_is_named)
{
	ck_assert(paths_write(in_folder("a"), SLICE("x"), &err));
	ck_assert(!paths_make(in_folder("a"), &err));
	ck_assert_ptr_nonnull(strstr(err.text, "is no folder"));
	ck_assert(!paths_make(in_folder("a/b"), &err));
	ck_assert_int_eq(err.code, ERR_SYSTEM);
}
END_TEST

/* ---- Files ---- */

START_TEST(what_was_written_is_read)
{
	ck_assert_msg(paths_write(in_folder("f"), SLICE("one\0two"), &err), "%s",
		      err.text);
	ck_assert_msg(paths_read(in_folder("f"), &out, &err), "%s", err.text);
	ck_assert(slice_eq(buf_slice(&out), SLICE("one\0two")));
	ck_assert_uint_eq(mode_of(in_folder("f")), 0600);
}
END_TEST

START_TEST(writing_replaces_and_leaves_no_other_file)
{
	ck_assert(paths_write(in_folder("f"), SLICE("long text"), &err));
	ck_assert(paths_write(in_folder("f"), SLICE("x"), &err));
	ck_assert(paths_read(in_folder("f"), &out, &err));
	assert_slice_eq(buf_slice(&out), "x");
	ck_assert_int_eq(unlink(in_folder("f")), 0);
	ck_assert_int_eq(rmdir(folder), 0);
	ck_assert_int_eq(mkdir(folder, 0700), 0);
}
END_TEST

START_TEST(writing_where_nothing_can_be_written_says_so)
{
	ck_assert(!paths_write(in_folder("no/f"), SLICE("x"), &err));
	ck_assert_int_eq(err.code, ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(err.text, "No such file"));
}
END_TEST

START_TEST(a_missing_file_is_not_found)
{
	ck_assert(!paths_read(in_folder("f"), &out, &err));
	ck_assert_int_eq(err.code, ERR_NOT_FOUND);
}
END_TEST

START_TEST(a_file_over_the_buffers_limit_is_refused)
{
	struct buf small;

	buf_init(&small, 3);
	ck_assert(paths_write(in_folder("f"), SLICE("four"), &err));
	ck_assert(!paths_read(in_folder("f"), &small, &err));
	ck_assert_int_eq(err.code, ERR_TOO_LARGE);
	buf_finish(&small);
}
END_TEST

START_TEST(a_folder_or_fifo_is_no_file_to_read)
{
	ck_assert(!paths_read(folder, &out, &err));
	ck_assert_int_eq(err.code, ERR_SYSTEM);
	ck_assert_int_eq(mkfifo(in_folder("fifo"), 0600), 0);
	ck_assert(!paths_read(in_folder("fifo"), &out, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "is no regular file"));
}
END_TEST

/* ---- Locks ---- */

START_TEST(a_lock_keeps_others_out_and_names_who_has_it)
{
	long pid = 0;
	int fd = paths_lock(in_folder("lock"), &pid, &err);

	ck_assert_msg(fd >= 0, "%s", err.text);
	ck_assert_uint_eq(mode_of(in_folder("lock")), 0600);
	/* flock() locks belong to the open file, so this process may stand for another.
	 */
	ck_assert_int_eq(paths_lock(in_folder("lock"), &pid, &err), -1);
	ck_assert_int_eq(err.code, ERR_REFUSED);
	ck_assert_int_eq(pid, getpid());
	(void)close(fd);
	fd = paths_lock(in_folder("lock"), &pid, &err);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
}
END_TEST

START_TEST(a_lock_ends_with_its_process)
{
	long pid = 0;
	int status = 0;
	pid_t child = fork();
	int fd;

	if (child == 0)
		_exit(paths_lock(in_folder("lock"), &pid, &err) >= 0 ? 0 : 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	fd = paths_lock(in_folder("lock"), &pid, &err);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("paths");
	TCase *tcase = tcase_create("paths");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, data_is_below_the_home_folder_by_default);
	tcase_add_test(tcase, xdg_folders_are_followed);
	tcase_add_test(tcase, a_relative_xdg_folder_is_ignored);
	tcase_add_test(tcase, perch_home_holds_data_and_sockets);
	tcase_add_test(tcase, sockets_are_in_data_where_there_is_no_runtime_folder);
	tcase_add_test(tcase, a_relative_perch_home_is_refused);
	tcase_add_test(tcase, a_path_longer_than_the_buffer_is_refused);
	tcase_add_test(tcase, missing_folders_are_made_private);
	tcase_add_test(tcase, a_file_in_the_way_of_a_folder_is_named);
	tcase_add_test(tcase, what_was_written_is_read);
	tcase_add_test(tcase, writing_replaces_and_leaves_no_other_file);
	tcase_add_test(tcase, writing_where_nothing_can_be_written_says_so);
	tcase_add_test(tcase, a_missing_file_is_not_found);
	tcase_add_test(tcase, a_file_over_the_buffers_limit_is_refused);
	tcase_add_test(tcase, a_folder_or_fifo_is_no_file_to_read);
	tcase_add_test(tcase, a_lock_keeps_others_out_and_names_who_has_it);
	tcase_add_test(tcase, a_lock_ends_with_its_process);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
