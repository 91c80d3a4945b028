/* SQLite opened one way, and migrated. */
#include "tests/unit/support/support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include "wire/host/db.h"

static char folder[64];
static char path[128];
static struct sqlite3 *db;
static struct err err;

static const char *const one[] = {"CREATE TABLE a (x INTEGER NOT NULL)", NULL};
static const char *const two[] = {
	"CREATE TABLE a (x INTEGER NOT NULL)",
	"CREATE TABLE b (y REFERENCES a); INSERT INTO a VALUES (7)", NULL};
static const char *const two_broken[] = {"CREATE TABLE a (x INTEGER NOT NULL)",
					 "CREATE TABLE b (y); CREATE NONSENSE", NULL};

static void setup(void)
{
	(void)snprintf(folder, sizeof(folder), "/tmp/perch-db-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/x.db", folder);
	db = NULL;
}

static void teardown(void)
{
	db_close(db);
	test_remove_folder(folder);
}

static void open_ok(const char *const *migrations)
{
	db_close(db);
	db = NULL;
	ck_assert_msg(db_open(path, migrations, &db, &err), "%s", err.text);
}

/* The first column of the first row of @sql, as text. */
static const char *ask(const char *sql)
{
	static char answer[64];
	struct sqlite3_stmt *statement = NULL;

	ck_assert_msg(db_prepare(db, sql, &statement, &err), "%s", err.text);
	ck_assert_int_eq(sqlite3_step(statement), SQLITE_ROW);
	(void)snprintf(answer, sizeof(answer), "%s",
		       (const char *)sqlite3_column_text(statement, 0));
	(void)sqlite3_finalize(statement);
	return answer;
}

START_TEST(a_new_database_is_private_and_set_up)
{
	struct stat info;

	(void)umask(0);
	open_ok(one);
	ck_assert_int_eq(stat(path, &info), 0);
	ck_assert_uint_eq(info.st_mode & 07777, 0600);
	ck_assert_str_eq(ask("PRAGMA journal_mode"), "wal");
	ck_assert_str_eq(ask("PRAGMA auto_vacuum"), "2");
	ck_assert_str_eq(ask("PRAGMA synchronous"), "1");
	ck_assert_str_eq(ask("PRAGMA secure_delete"), "2");
	ck_assert_str_eq(ask("PRAGMA foreign_keys"), "1");
	ck_assert_str_eq(ask("PRAGMA trusted_schema"), "0");
	ck_assert_str_eq(ask("PRAGMA busy_timeout"), "5000");
	ck_assert_str_eq(ask("PRAGMA user_version"), "1");
}
END_TEST

START_TEST(a_database_that_others_could_read_is_made_private)
{
	struct stat info;

	open_ok(one);
	ck_assert_int_eq(chmod(path, 0644), 0);
	open_ok(one);
	ck_assert_int_eq(stat(path, &info), 0);
	ck_assert_uint_eq(info.st_mode & 07777, 0600);
}
END_TEST

START_TEST(what_was_stored_is_there_at_the_next_opening)
{
	open_ok(one);
	ck_assert(db_exec(db, "INSERT INTO a VALUES (42)", &err));
	open_ok(one);
	ck_assert_str_eq(ask("SELECT x FROM a"), "42");
}
END_TEST

START_TEST(only_migrations_that_did_not_run_yet_run)
{
	open_ok(one);
	open_ok(two);
	ck_assert_str_eq(ask("PRAGMA user_version"), "2");
	open_ok(two);
	ck_assert_str_eq(ask("SELECT count(*) FROM a"), "1");
}
END_TEST

START_TEST(a_migration_that_fails_changes_nothing)
{
	open_ok(one);
	db_close(db);
	db = NULL;
	ck_assert(!db_open(path, two_broken, &db, &err));
	ck_assert_ptr_null(db);
	open_ok(one);
	ck_assert_str_eq(ask("PRAGMA user_version"), "1");
	ck_assert_str_eq(ask("SELECT count(*) FROM sqlite_schema WHERE name = 'b'"), "0");
}
END_TEST

START_TEST(a_newer_database_is_refused_with_both_versions)
{
	open_ok(two);
	db_close(db);
	db = NULL;
	ck_assert(!db_open(path, one, &db, &err));
	ck_assert_int_eq(err.code, ERR_REFUSED);
	ck_assert_msg(strstr(err.text, "has version 2, this perch knows up to 1") != NULL,
		      "%s", err.text);
}
END_TEST

START_TEST(a_file_that_is_no_database_is_refused_and_kept)
{
	static const char text[] = "these are 40 bytes of something different";
	char found[sizeof(text)];
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_eq(write(fd, text, sizeof(text)), sizeof(text));
	ck_assert(!db_open(path, one, &db, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert_msg(strstr(err.text, "is broken") != NULL, "%s", err.text);
	ck_assert_int_eq(pread(fd, found, sizeof(found), 0), sizeof(found));
	ck_assert_mem_eq(found, text, sizeof(text));
	(void)close(fd);
}
END_TEST

START_TEST(a_database_with_a_damaged_page_is_refused)
{
	char rubbish[4096];
	int fd;

	open_ok(one);
	ck_assert(
		db_exec(db,
			"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
			"LIMIT 5000) INSERT INTO a SELECT i FROM n",
			&err));
	db_close(db);
	db = NULL;
	fd = open(path, O_RDWR | O_CLOEXEC);
	memset(rubbish, 0x5a, sizeof(rubbish));
	ck_assert_int_eq(pwrite(fd, rubbish, sizeof(rubbish), 4L * 4096),
			 sizeof(rubbish));
	(void)close(fd);
	ck_assert(!db_open(path, one, &db, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

START_TEST(nothing_is_committed_to_a_file_that_is_not_where_it_was)
{
	char away[140];

	(void)snprintf(away, sizeof(away), "%s.away", path);
	open_ok(one);
	ck_assert_int_eq(rename(path, away), 0);
	ck_assert(db_exec(db, "BEGIN; INSERT INTO a VALUES (1)", &err));
	ck_assert(!db_commit(db, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert_ptr_nonnull(strstr(err.text, "was moved or deleted while in use"));
	ck_assert_int_eq(rename(away, path), 0);
	ck_assert(db_commit(db, &err));
}
END_TEST

START_TEST(a_path_that_cannot_be_made_says_why)
{
	(void)snprintf(path, sizeof(path), "%s/missing/x.db", folder);
	ck_assert(!db_open(path, one, &db, &err));
	ck_assert_int_eq(err.code, ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(err.text, "No such file"));
	ck_assert(!db_open(folder, one, &db, &err));
	ck_assert_int_eq(err.code, ERR_SYSTEM);
}
END_TEST

/* Runs @child in a process that is not root and returns its exit status: root may write
 * everywhere. */
static int run_as_nobody(int (*child)(void))
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		if (getuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
			_exit(99);
		_exit(child());
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

static int open_in_locked_folder(void)
{
	if (db_open(path, one, &db, &err))
		return 1;
	return err.code == ERR_SYSTEM && strstr(err.text, "cannot be written") != NULL
		       ? 0
		       : 2;
}

START_TEST(a_folder_that_cannot_be_written_is_named)
{
	open_ok(one);
	db_close(db);
	db = NULL;
	/* The file may be written, its folder not: WAL needs two more files there. */
	ck_assert_int_eq(chmod(path, 0666), 0);
	ck_assert_int_eq(chmod(folder, 0555), 0);
	ck_assert_int_eq(run_as_nobody(open_in_locked_folder), 0);
	ck_assert_int_eq(chmod(folder, 0700), 0);
}
END_TEST

/* A limit on the size of files stands for a disk without room. */
static int write_beyond_limit(void)
{
	const struct rlimit limit = {200000, 200000};
	bool ok = true;

	(void)signal(SIGXFSZ, SIG_IGN);
	if (!db_open(path, one, &db, &err) || setrlimit(RLIMIT_FSIZE, &limit) < 0)
		return 1;
	for (int i = 0; ok && i < 100; i++)
		ok = db_exec(db, "INSERT INTO a VALUES (zeroblob(9999))", &err);
	if (ok)
		return 2;
	return err.code == ERR_SYSTEM && strstr(err.text, "change the database") != NULL
		       ? 0
		       : 3;
}

START_TEST(a_write_without_room_fails_and_the_database_lives)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0)
		_exit(write_beyond_limit());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	open_ok(one);
	ck_assert_str_ne(ask("SELECT count(*) FROM a"), "0");
}
END_TEST

START_TEST(a_full_disk_is_called_that)
{
	open_ok(one);
	ck_assert(db_exec(db, "PRAGMA max_page_count = 3", &err));
	ck_assert(!db_exec(db, "INSERT INTO a VALUES (zeroblob(99999))", &err));
	ck_assert_int_eq(err.code, ERR_SYSTEM);
	ck_assert_msg(strstr(err.text, "is full: make room") != NULL, "%s", err.text);
}
END_TEST

START_TEST(a_wrong_statement_is_an_error)
{
	struct sqlite3_stmt *statement = NULL;

	open_ok(one);
	ck_assert(!db_prepare(db, "SELECT x FROM nowhere", &statement, &err));
	ck_assert_msg(strstr(err.text, "no such table") != NULL, "%s", err.text);
	ck_assert(!db_exec(db, "INSERT INTO a VALUES (NULL)", &err));
	ck_assert_ptr_nonnull(strstr(err.text, "NOT NULL"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("db");
	TCase *tcase = tcase_create("db");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_new_database_is_private_and_set_up);
	tcase_add_test(tcase, a_database_that_others_could_read_is_made_private);
	tcase_add_test(tcase, what_was_stored_is_there_at_the_next_opening);
	tcase_add_test(tcase, only_migrations_that_did_not_run_yet_run);
	tcase_add_test(tcase, a_migration_that_fails_changes_nothing);
	tcase_add_test(tcase, a_newer_database_is_refused_with_both_versions);
	tcase_add_test(tcase, a_file_that_is_no_database_is_refused_and_kept);
	tcase_add_test(tcase, a_database_with_a_damaged_page_is_refused);
	tcase_add_test(tcase, nothing_is_committed_to_a_file_that_is_not_where_it_was);
	tcase_add_test(tcase, a_path_that_cannot_be_made_says_why);
	tcase_add_test(tcase, a_folder_that_cannot_be_written_is_named);
	tcase_add_test(tcase, a_write_without_room_fails_and_the_database_lives);
	tcase_add_test(tcase, a_full_disk_is_called_that);
	tcase_add_test(tcase, a_wrong_statement_is_an_error);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
