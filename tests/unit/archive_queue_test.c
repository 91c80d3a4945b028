/* Who waits for the archive's thread, and in which order. Another writer holds the
 * database meanwhile, so that what is put waits. */
#include "observer/archive.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sqlite3.h>

#include "tests/unit/support/support.h"

#define EPOCH "6a0000010000000a"
#define T0 1796040000000
#define ASKED_MAX (ARCHIVE_QUESTIONS_MAX + 8)

static const uint8_t claude[KEY_BYTES] = {0xc1};

static char folder[64], path[96];
static struct loop *loop;
static struct archive *archive;
static struct sqlite3 *other;

struct asked {
	bool answered, ok;
	unsigned place; /* among the answers */
	struct err err;
};

static struct asked asked[ASKED_MAX];
static unsigned answers, awaited, anew;
static struct frame_range lost;

static void on_lost(void *ctx, const uint8_t *agent, const char *epoch,
		    struct frame_range range)
{
	(void)ctx;
	ck_assert_mem_eq(agent, claude, KEY_BYTES);
	ck_assert_str_eq(epoch, EPOCH);
	ck_assert_uint_eq(lost.first, 0); /* told once */
	lost = range;
	loop_quit(loop);
}

static void on_anew(void *ctx)
{
	(void)ctx;
	anew++;
	loop_quit(loop);
}

static const struct archive_events events = {on_lost, on_anew};

static void setup(void)
{
	struct archive_options options = {.path = path};
	struct err err;

	(void)snprintf(folder, sizeof(folder), "%s/perch-queue-XXXXXX", P_tmpdir);
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/a.db", folder);
	loop = loop_create(&err);
	ck_assert_msg(loop != NULL, "%s", err.text);
	archive = archive_open(&options, &err);
	ck_assert_msg(archive != NULL, "%s", err.text);
	ck_assert_msg(archive_start(archive, loop, &events, NULL, &err), "%s", err.text);
	ck_assert_int_eq(sqlite3_open(path, &other), SQLITE_OK);
	ck_assert_int_eq(sqlite3_busy_timeout(other, 20000), SQLITE_OK);
	answers = awaited = anew = 0;
	lost = (struct frame_range){0, 0};
	for (size_t i = 0; i < ASKED_MAX; i++)
		asked[i] = (struct asked){0};
}

static void teardown(void)
{
	static const char *const names[] = {"", "-wal", "-shm"};
	char name[256], aside[128];

	ck_assert_int_eq(sqlite3_close(other), SQLITE_OK);
	(void)snprintf(aside, sizeof(aside), "%s", archive_aside(archive));
	archive_close(archive);
	loop_destroy(loop);
	for (size_t i = 0; i < 3; i++) {
		(void)snprintf(name, sizeof(name), "%s%s", path, names[i]);
		(void)unlink(name);
		(void)snprintf(name, sizeof(name), "%s%s", aside, names[i]);
		if (*aside)
			(void)unlink(name);
	}
	ck_assert_int_eq(rmdir(folder), 0);
}

static void hold_database(void)
{
	ck_assert_int_eq(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL),
			 SQLITE_OK);
}

static void let_go(void)
{
	ck_assert_int_eq(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
}

static void store(unsigned seq)
{
	char text[512];

	(void)snprintf(text, sizeof(text),
		       "{\"seq\":%u,\"monotonicMs\":%u,\"timestamp\":"
		       "\"2026-11-30T12:00:00.000Z\",\"kind\":\"note\",\"agentIndex\":0,"
		       "\"channelId\":\"c\",\"sessionId\":\"s\",\"turnId\":null,"
		       "\"payload\":{\"text\":\"n\"},\"epoch\":\"" EPOCH
		       "\",\"frame\":%u}",
		       seq, seq, seq);
	archive_store(archive, claude, EPOCH, seq, T0, slice_of(text));
}

static void on_answer(void *ctx, const struct archive_answer *answer)
{
	struct asked *about = ctx;

	if (about->answered)
		ck_abort_msg("answered twice");
	about->answered = true;
	about->ok = answer->ok;
	about->err = answer->err;
	about->place = answers++;
	if (answers == awaited)
		loop_quit(loop);
}

static void ask(size_t at, unsigned seq)
{
	const struct pos pos = {EPOCH, seq};

	archive_event(archive, claude, &pos, on_answer, &asked[at]);
}

static void await(unsigned count)
{
	awaited = count;
	if (answers < count)
		loop_run(loop);
	ck_assert_uint_eq(answers, count);
}

START_TEST(what_comes_is_kept_before_the_next_question_is_answered)
{
	hold_database();
	store(1);
	ask(0, 1);
	ask(1, 2);
	ask(2, 3);
	store(2);
	store(3);
	let_go();
	await(3);
	ck_assert(asked[0].ok && asked[1].ok && asked[2].ok);
	ck_assert(asked[0].place < asked[1].place && asked[1].place < asked[2].place);
}
END_TEST

START_TEST(a_question_that_nobody_waits_for_is_not_looked_for)
{
	hold_database();
	store(1);
	ask(0, 1);
	ask(1, 1);
	ask(2, 1);
	ask(3, 1);
	archive_drop(archive, &asked[3]); /* the last, then behind it */
	ask(4, 1);
	archive_drop(archive, &asked[1]);
	archive_drop(archive, "somebody else");
	let_go();
	await(5);
	ck_assert(asked[0].ok && asked[2].ok && asked[4].ok);
	ck_assert(!asked[1].ok && !asked[3].ok);
	ck_assert_str_eq(asked[1].err.text, "nobody waits");
}
END_TEST

START_TEST(more_questions_than_may_wait_are_refused)
{
	unsigned refused = 0;

	hold_database();
	store(1);
	for (size_t i = 0; i < ASKED_MAX; i++)
		ask(i, 1);
	let_go();
	await(ASKED_MAX);
	for (size_t i = 0; i < ASKED_MAX; i++)
		refused += !asked[i].ok && asked[i].err.code == ERR_SYSTEM;
	/* One may have been with the thread already. */
	ck_assert_uint_ge(refused, 7);
	ck_assert_uint_le(refused, 8);
	ck_assert(asked[ARCHIVE_QUESTIONS_MAX - 1].ok);
	ck_assert(!asked[ASKED_MAX - 1].ok);
	asked[0].answered = false; /* asked again it is answered */
	ask(0, 1);
	await(ASKED_MAX + 1);
	ck_assert(asked[0].ok);
}
END_TEST

START_TEST(an_end_keeps_what_came_and_refuses_what_is_asked)
{
	struct archive_options options = {.path = path};
	struct err err;

	hold_database();
	store(1);
	ask(0, 9);
	ask(1, 9);
	store(2);
	let_go();
	archive_close(archive);
	ck_assert_uint_eq(answers, 2);
	archive = archive_open(&options, &err);
	ck_assert_msg(archive != NULL, "%s", err.text);
	ck_assert_msg(archive_start(archive, loop, &events, NULL, &err), "%s", err.text);
	ask(2, 1);
	ask(3, 2);
	await(4);
	ck_assert(asked[2].ok && asked[3].ok);
}
END_TEST

START_TEST(frames_that_the_disk_refused_are_told_once_it_takes_some_again)
{
	char trouble[200];

	hold_database();
	for (unsigned seq = 3; seq <= 5; seq++)
		store(seq);
	ask(0, 3); /* answered after they were tried */
	await(1);
	ck_assert(!asked[0].ok);
	archive_trouble(archive, trouble);
	ck_assert_str_ne(trouble, "");
	ck_assert_uint_eq(lost.first, 0);
	let_go();
	store(6);
	loop_run(loop);
	ck_assert_uint_eq(lost.first, 3);
	ck_assert_uint_eq(lost.last, 5);
	archive_trouble(archive, trouble);
	ck_assert_str_eq(trouble, "");
	ask(1, 6);
	await(2);
	ck_assert(asked[1].ok);
}
END_TEST

/* As if the disk had changed under it. */
static void break_file(void)
{
	ck_assert_int_eq(sqlite3_exec(other,
				      "PRAGMA writable_schema = ON;"
				      "UPDATE sqlite_schema SET rootpage = 99999"
				      " WHERE name = 'frame';"
				      "PRAGMA schema_version = 4711",
				      NULL, NULL, NULL),
			 SQLITE_OK);
}

START_TEST(a_file_that_breaks_is_moved_aside_and_what_comes_is_kept_in_a_new_one)
{
	store(1);
	ask(0, 1);
	await(1);
	ck_assert(asked[0].ok);
	break_file();
	store(2);
	loop_run(loop);
	ck_assert_uint_eq(anew, 1);
	ck_assert_int_eq(access(archive_aside(archive), F_OK), 0);
	store(3);
	ask(1, 1);
	ask(2, 3);
	await(3);
	ck_assert(!asked[1].ok);
	ck_assert(asked[2].ok);
	ck_assert(!archive_is_in_memory(archive));
	ck_assert_uint_eq(anew, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("archive_queue");
	TCase *tcase = tcase_create("queue");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_comes_is_kept_before_the_next_question_is_answered);
	tcase_add_test(tcase, a_question_that_nobody_waits_for_is_not_looked_for);
	tcase_add_test(tcase, more_questions_than_may_wait_are_refused);
	tcase_add_test(tcase, an_end_keeps_what_came_and_refuses_what_is_asked);
	tcase_add_test(tcase,
		       frames_that_the_disk_refused_are_told_once_it_takes_some_again);
	tcase_add_test(
		tcase,
		a_file_that_breaks_is_moved_aside_and_what_comes_is_kept_in_a_new_one);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
