#include "relay/store.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/support/support.h"
#include "wire/host/db.h"

/* The writer: jobs of any module, in order, several in one transaction. */

static char folder[64], path[96];
static struct store *store;

static void setup(void)
{
	struct err err;

	(void)snprintf(folder, sizeof(folder), "/tmp/perch-store-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/relay.db", folder);
	store = store_open(path, &err);
	ck_assert_msg(store != NULL, "%s", err.text);
	ck_assert(db_exec(store_db(store), "CREATE TABLE note (text UNIQUE)", &err));
}

static void teardown(void)
{
	store_close(store);
	test_remove_folder(folder);
}

/* What one job is to do, and what became of it. */
struct note {
	const char *sql;
	int answers;
	bool ok;
	struct err err;
};

static bool run(void *ctx, struct sqlite3 *db, struct err *err)
{
	const struct note *note = ctx;

	return db_exec(db, note->sql, err);
}

static void done(void *ctx, const struct err *err)
{
	struct note *note = ctx;

	note->answers++;
	note->ok = !err;
	if (err)
		note->err = *err;
}

static int count_notes(void)
{
	sqlite3_stmt *statement = NULL;
	struct err err;
	int count;

	ck_assert(db_prepare(store_db(store), "SELECT count(*) FROM note", &statement,
			     &err));
	ck_assert_int_eq(sqlite3_step(statement), SQLITE_ROW);
	count = sqlite3_column_int(statement, 0);
	(void)sqlite3_finalize(statement);
	return count;
}

START_TEST(a_job_is_answered_once_and_after_the_commit)
{
	struct note note = {.sql = "INSERT INTO note VALUES ('a')"};

	ck_assert(store_write(store, run, done, &note, 0));
	ck_assert_int_eq(note.answers, 0);
	store_step(store);
	ck_assert_int_eq(note.answers, 1);
	ck_assert(note.ok);
	ck_assert_int_eq(count_notes(), 1);
}
END_TEST

START_TEST(a_failed_job_undoes_what_it_did_and_nothing_else)
{
	struct note notes[] = {
		{.sql = "INSERT INTO note VALUES ('a')"},
		{.sql = "INSERT INTO note VALUES ('b'); INSERT INTO note VALUES ('a')"},
		{.sql = "INSERT INTO note VALUES ('c')"},
	};

	for (int i = 0; i < 3; i++)
		ck_assert(store_write(store, run, done, &notes[i], 0));
	store_step(store);
	ck_assert(notes[0].ok && !notes[1].ok && notes[2].ok);
	ck_assert_int_eq(count_notes(), 2);
}
END_TEST

START_TEST(what_waits_when_it_closes_is_written)
{
	struct note note = {.sql = "INSERT INTO note VALUES ('a')"};
	struct err err;

	ck_assert(store_write(store, run, done, &note, 0));
	store_close(store);
	ck_assert(note.ok);
	store = store_open(path, &err);
	ck_assert_int_eq(count_notes(), 1);
}
END_TEST

START_TEST(more_than_may_wait_is_refused)
{
	struct note note = {.sql = "SELECT 1"};

	ck_assert(store_write(store, run, done, &note, STORE_QUEUE_MAX / 2));
	ck_assert(!store_write(store, run, done, &note, STORE_QUEUE_MAX / 2));
	store_step(store);
	ck_assert_int_eq(note.answers, 1);
	ck_assert(store_write(store, run, done, &note, STORE_QUEUE_MAX / 2));
	store_step(store);
}
END_TEST

static void on_first_done(void *ctx, const struct err *err)
{
	static struct note second = {.sql = "INSERT INTO note VALUES ('second')"};

	done(ctx, err);
	ck_assert(store_write(store, run, done, &second, 0));
}

START_TEST(an_answer_may_ask_for_more)
{
	struct note note = {.sql = "SELECT 1"};

	ck_assert(store_write(store, run, on_first_done, &note, 0));
	store_step(store);
	ck_assert_int_eq(count_notes(), 1);
}
END_TEST

struct threaded {
	struct loop *loop;
	struct note notes[1000];
	int answered;
	bool in_order;
};
static struct threaded threaded;

static void on_threaded(void *ctx, const struct err *err)
{
	done(ctx, err);
	threaded.in_order &= ctx == &threaded.notes[threaded.answered];
	if (++threaded.answered == 1000)
		loop_quit(threaded.loop);
}

START_TEST(the_thread_answers_on_the_loop_in_order)
{
	struct err err;

	threaded.loop = loop_create(&err);
	threaded.in_order = true;
	ck_assert(store_start(store, threaded.loop, &err));
	for (int i = 0; i < 1000; i++) {
		threaded.notes[i].sql = "INSERT INTO note VALUES (NULL)";
		ck_assert(store_write(store, run, on_threaded, &threaded.notes[i], 0));
	}
	loop_run(threaded.loop);
	store_close(store);
	loop_destroy(threaded.loop);
	ck_assert(threaded.in_order);
	store = store_open(path, &err);
	ck_assert_int_eq(count_notes(), 1000);
}
END_TEST

START_TEST(a_second_relay_is_kept_out_and_told_whom_to_stop)
{
	struct err err;

	ck_assert_ptr_null(store_open(path, &err));
	ck_assert_int_eq(err.code, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(err.text, "or name another with --db"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("relay/store");
	TCase *tcase = tcase_create("writer");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_job_is_answered_once_and_after_the_commit);
	tcase_add_test(tcase, a_failed_job_undoes_what_it_did_and_nothing_else);
	tcase_add_test(tcase, what_waits_when_it_closes_is_written);
	tcase_add_test(tcase, more_than_may_wait_is_refused);
	tcase_add_test(tcase, an_answer_may_ask_for_more);
	tcase_add_test(tcase, the_thread_answers_on_the_loop_in_order);
	tcase_add_test(tcase, a_second_relay_is_kept_out_and_told_whom_to_stop);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
