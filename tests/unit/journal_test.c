/* The journal on a real disk and a real loop: what was put is there after the end, also
 * when that came unasked, and nobody but the agent can read it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>
#include <uv.h>

#include "agent/journal.h"
#include "agent/shared.h"
#include "tests/unit/support/support.h"
#include "wire/base/mem.h"
#include "wire/base/pool.h"
#include "wire/host/db.h"
#include "wire/host/log.h"

#define EPOCH_1 "692c0a0000000001"
#define EPOCH_2 "692c0a0100000001"
#define SECRET_TEXT "{\"payload\":\"what the agent said\"}"

static struct loop *loop;
static struct keypair *keypair;
static struct journal *journal;
static char folder[64], path[128];
static struct buf got;
static struct pool pool; /* of memory that the journal holds */
static bool opened, unclean, came, is_there, troubled;
static bool greedy; /* on_kept() asks for more */
static unsigned kept, lost, opens;
static struct err err;

static void on_open(void *ctx, bool was_unclean)
{
	(void)ctx;
	opened = true;
	opens++;
	unclean = was_unclean;
}

static void on_kept(void *ctx, uint64_t number)
{
	(void)ctx;
	kept++;
	if (greedy) {
		journal_read(journal, EPOCH_1, number);
		(void)journal_put(journal, number + 1000, SLICE("{}"));
	}
}

static void on_lost(void *ctx, uint64_t number)
{
	(void)ctx;
	(void)number;
	lost++;
}

static void on_frame(void *ctx, const char *epoch, uint64_t number, struct slice text)
{
	(void)ctx;
	(void)epoch;
	(void)number;
	came = true;
	is_there = text.ptr != NULL;
	buf_clear(&got);
	(void)buf_append(&got, text);
}

static void on_trouble(void *ctx, const char *reason, uint64_t count)
{
	(void)ctx;
	(void)count;
	troubled = reason != NULL;
}

static const struct journal_events events = {
	on_open, on_kept, on_lost, on_frame, on_frame, on_trouble,
};

static void until(const bool *flag)
{
	while (!*flag)
		(void)uv_run(loop->uv, UV_RUN_ONCE);
}

static void until_kept(unsigned count)
{
	while (kept < count)
		(void)uv_run(loop->uv, UV_RUN_ONCE);
}

static void start_with(const char *epoch, int64_t max_bytes, int64_t max_age_s)
{
	const struct journal_options options = {
		.path = path,
		.keypair = keypair,
		.epoch = epoch,
		.max_bytes = max_bytes,
		.max_age_s = max_age_s,
		.events = &events,
	};

	opened = came = troubled = false;
	kept = lost = opens = 0;
	journal = journal_create(loop, &options, &err);
	ck_assert_ptr_nonnull(journal);
	until(&opened);
}

static void start(const char *epoch)
{
	start_with(epoch, 1 << 20, 3600);
}

static void stop(void)
{
	journal_destroy(journal);
	journal = NULL;
}

static struct keypair *a_key(uint8_t first)
{
	const uint8_t secret[KEY_BYTES] = {first, 1};
	struct keypair *key = NULL;

	ck_assert(keypair_create(loop->crypto, secret, &key, NULL));
	return key;
}

static void setup(void)
{
	log_set_level(LOG_ERROR);
	(void)snprintf(folder, sizeof(folder), "/tmp/perch-journal-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/j.db", folder);
	loop = loop_create(&err);
	ck_assert_ptr_nonnull(loop);
	keypair = a_key(1);
	buf_init(&got, 64u << 20);
	pool = (struct pool){.max_bytes = 1 << 20};
}

static void teardown(void)
{
	journal_destroy(journal);
	journal = NULL;
	keypair_destroy(keypair);
	loop_destroy(loop);
	buf_finish(&got);
	pool_finish(&pool);
	test_remove_folder(folder);
}

static void read_frame(const char *epoch, uint64_t number)
{
	came = false;
	journal_read(journal, epoch, number);
	until(&came);
}

START_TEST(what_was_put_is_read_by_the_next_start)
{
	start(EPOCH_1);
	ck_assert_int_eq(journal_state(journal), JOURNAL_KEEPING);
	ck_assert(!unclean);
	ck_assert(journal_put(journal, 1, SLICE(SECRET_TEXT)));
	ck_assert(journal_put(journal, 2, SLICE("{}")));
	ck_assert(journal_put_body(journal, 9, SLICE("{\"whole\":1}")));
	ck_assert(ranges_has(journal_waiting(journal), 2));
	until_kept(2);
	ck_assert(!ranges_has(journal_waiting(journal), 2));
	ck_assert(ranges_has(&journal_index_find(journal_index(journal), EPOCH_1)->frames,
			     2));
	journal_put_stopped(journal);
	stop();
	start(EPOCH_2);
	ck_assert(!unclean);
	ck_assert_uint_eq(journal_index_find(journal_index(journal), EPOCH_1)->last, 2);
	read_frame(EPOCH_1, 1);
	assert_slice_eq(buf_slice(&got), SECRET_TEXT);
	came = false;
	journal_read_body(journal, EPOCH_1, 9);
	until(&came);
	assert_slice_eq(buf_slice(&got), "{\"whole\":1}");
	read_frame(EPOCH_1, 3);
	ck_assert(!is_there);
	came = false;
	journal_read_body(journal, EPOCH_1, 8);
	until(&came);
	ck_assert(!is_there);
}
END_TEST

START_TEST(what_was_put_last_is_written_before_the_end)
{
	start(EPOCH_1);
	for (uint64_t i = 1; i <= 1000; i++)
		ck_assert(journal_put(journal, i, SLICE("{}")));
	stop();
	ck_assert_uint_eq(kept, 1000);
	ck_assert_uint_eq(lost, 0);
	start(EPOCH_2);
	ck_assert(unclean);
	ck_assert_uint_eq(journal_index_find(journal_index(journal), EPOCH_1)->last,
			  1000);
}
END_TEST

START_TEST(what_is_asked_for_at_the_end_is_not_taken)
{
	start(EPOCH_1);
	ck_assert(journal_put(journal, 1, SLICE("{}")));
	greedy = true;
	stop();
	greedy = false;
	ck_assert_uint_eq(kept, 1);
	ck_assert(!came);
	start(EPOCH_2);
	ck_assert_uint_eq(journal_index_find(journal_index(journal), EPOCH_1)->last, 1);
}
END_TEST

START_TEST(what_is_on_disk_survives_a_kill)
{
	const pid_t pid = fork();
	int status;

	if (pid == 0) {
		/* Of its own: a loop is not to be shared over a fork. */
		loop = loop_create(&err);
		start(EPOCH_1);
		(void)journal_put(journal, 1, SLICE(SECRET_TEXT));
		until_kept(1);
		(void)kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
	start(EPOCH_2);
	ck_assert(unclean);
	read_frame(EPOCH_1, 1);
	assert_slice_eq(buf_slice(&got), SECRET_TEXT);
}
END_TEST

/* Runs on the file while no journal has it. */
static void with_file(const char *sql)
{
	sqlite3 *db = NULL;

	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	ck_assert_msg(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s",
		      sqlite3_errmsg(db));
	(void)sqlite3_close(db);
}

START_TEST(the_file_is_private_and_tells_nothing)
{
	struct stat info;
	static char bytes[1 << 20];
	ssize_t len;
	int fd;

	start(EPOCH_1);
	(void)journal_put(journal, 1, SLICE(SECRET_TEXT));
	(void)journal_put_body(journal, 1, SLICE(SECRET_TEXT));
	until_kept(1);
	stop();
	ck_assert_int_eq(stat(path, &info), 0);
	ck_assert_int_eq(info.st_mode & 0777, 0600);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = read(fd, bytes, sizeof(bytes));
	(void)close(fd);
	ck_assert_int_gt(len, 0);
	ck_assert_ptr_null(memmem(bytes, (size_t)len, "the agent said", 14));
	ck_assert_ptr_nonnull(memmem(bytes, (size_t)len, EPOCH_1, 16));
}
END_TEST

START_TEST(another_key_reads_nothing)
{
	start(EPOCH_1);
	(void)journal_put(journal, 1, SLICE(SECRET_TEXT));
	until_kept(1);
	stop();
	keypair_destroy(keypair);
	keypair = a_key(2);
	start(EPOCH_2);
	read_frame(EPOCH_1, 1);
	ck_assert(!is_there);
	ck_assert_ptr_null(journal_index_find(journal_index(journal), EPOCH_1));
}
END_TEST

START_TEST(rows_cannot_change_places)
{
	start(EPOCH_1);
	(void)journal_put(journal, 1, SLICE(SECRET_TEXT));
	(void)journal_put(journal, 2, SLICE("{}"));
	until_kept(2);
	stop();
	with_file("UPDATE frame SET number = number + 10");
	start(EPOCH_2);
	read_frame(EPOCH_1, 11);
	ck_assert(!is_there);
}
END_TEST

START_TEST(a_put_of_the_same_number_replaces)
{
	start(EPOCH_1);
	(void)journal_put(journal, 1, SLICE(SECRET_TEXT));
	(void)journal_put(journal, 1, SLICE("{\"first\":\"part\"}"));
	until_kept(2);
	read_frame(EPOCH_1, 1);
	assert_slice_eq(buf_slice(&got), "{\"first\":\"part\"}");
}
END_TEST

static void put_sized(uint64_t number, size_t bytes)
{
	char *text = mem_alloc(bytes);

	memset(text, 'a', bytes);
	ck_assert(journal_put(journal, number, (struct slice){text, bytes}));
	free(text);
}

START_TEST(the_oldest_frames_go_when_there_are_too_many)
{
	uint64_t first;

	start_with(EPOCH_1, 100000, 3600);
	for (uint64_t i = 1; i <= 30; i++)
		put_sized(i, 10000);
	until_kept(30);
	while (lost < 20) /* told after those that were kept */
		(void)uv_run(loop->uv, UV_RUN_ONCE);
	ck_assert_int_le(journal_bytes(journal), 100000);
	(void)ranges_next(&journal_index_find(journal_index(journal), EPOCH_1)->frames, 1,
			  &first);
	ck_assert_uint_eq(first, lost + 1);
	stop();
	/* Less room at the next start. */
	start_with(EPOCH_2, 30000, 3600);
	(void)ranges_next(&journal_index_find(journal_index(journal), EPOCH_1)->frames, 1,
			  &first);
	ck_assert_uint_eq(first, 29);
}
END_TEST

START_TEST(bodies_leave_half_of_the_room_to_frames)
{
	char *text = mem_alloc(40000);

	memset(text, 'b', 40000);
	start_with(EPOCH_1, 200000, 3600);
	put_sized(1, 50000);
	for (uint64_t i = 1; i <= 20; i++)
		(void)journal_put_body(journal, i, (struct slice){text, 40000});
	put_sized(2, 1000);
	until_kept(2);
	read_frame(EPOCH_1, 1);
	ck_assert(is_there);
	came = false;
	journal_read_body(journal, EPOCH_1, 20);
	until(&came);
	ck_assert(is_there);
	came = false;
	journal_read_body(journal, EPOCH_1, 1);
	until(&came);
	ck_assert(!is_there);
	free(text);
}
END_TEST

START_TEST(what_is_too_old_goes)
{
	start(EPOCH_1);
	(void)journal_put(journal, 1, SLICE("{}"));
	(void)journal_put(journal, 2, SLICE("{}"));
	until_kept(2);
	stop();
	with_file("UPDATE frame SET at = at - 4000 WHERE number = 1");
	start(EPOCH_2);
	read_frame(EPOCH_1, 1);
	ck_assert(!is_there);
	read_frame(EPOCH_1, 2);
	ck_assert(is_there);
}
END_TEST

START_TEST(a_broken_file_goes_aside_and_a_new_one_takes_its_place)
{
	char aside[160];
	FILE *file = fopen(path, "we");

	ck_assert_ptr_nonnull(file);
	for (int i = 0; i < 2000; i++)
		(void)fputs("this is no database", file);
	(void)fclose(file);
	(void)snprintf(aside, sizeof(aside), "%s.broken", path);
	start(EPOCH_1);
	ck_assert_int_eq(journal_state(journal), JOURNAL_KEEPING);
	ck_assert_int_eq(access(aside, F_OK), 0);
	(void)journal_put(journal, 1, SLICE("{}"));
	until_kept(1);
}
END_TEST

START_TEST(a_file_that_was_lost_is_remembered_until_frames_are_let_go)
{
	FILE *file = fopen(path, "we");

	ck_assert_ptr_nonnull(file);
	for (int i = 0; i < 2000; i++)
		(void)fputs("this is no database", file);
	(void)fclose(file);
	start(EPOCH_1);
	ck_assert(journal_was_lost(journal));
	put_sized(1, 50000);
	until_kept(1);
	stop();
	start(EPOCH_2);
	ck_assert(journal_was_lost(journal));
	stop();
	start_with("692c0a0200000001", 30000, 3600); /* no room for that frame */
	stop();
	start("692c0a0300000001");
	ck_assert(!journal_was_lost(journal));
}
END_TEST

START_TEST(a_newer_file_is_left_alone_and_said_so)
{
	start(EPOCH_1);
	(void)journal_put(journal, 1, SLICE("{}"));
	until_kept(1);
	stop();
	with_file("PRAGMA user_version = 1000");
	start(EPOCH_2);
	ck_assert_int_eq(journal_state(journal), JOURNAL_FAILING);
	ck_assert(troubled);
	ck_assert(!journal_can_take(journal));
	stop();
	with_file("PRAGMA user_version = 3");
	start(EPOCH_2);
	read_frame(EPOCH_1, 1);
	ck_assert(is_there);
}
END_TEST

START_TEST(what_the_disk_refuses_is_bounded_counted_and_told_lost)
{
	char text[60000];
	uint64_t number = 0;

	memset(text, 'a', sizeof(text));
	(void)snprintf(path, sizeof(path), "%s/no/such/folder/j.db", folder);
	start(EPOCH_1);
	ck_assert_int_eq(journal_state(journal), JOURNAL_FAILING);
	while (journal_put(journal, ++number, (struct slice){text, sizeof(text)}))
		ck_assert_uint_lt(number, 1000);
	ck_assert_uint_le(number * sizeof(text), JOURNAL_QUEUE_MAX + 200000);
	ck_assert_uint_eq(journal_lost(journal), 1);
	stop();
	ck_assert_uint_eq(lost, number - 1);
	ck_assert_uint_eq(kept, 0);
}
END_TEST

START_TEST(once_the_disk_takes_again_what_waited_is_written)
{
	char missing[96];

	(void)snprintf(missing, sizeof(missing), "%s/later", folder);
	(void)snprintf(path, sizeof(path), "%s/j.db", missing);
	start(EPOCH_1);
	ck_assert_int_eq(journal_state(journal), JOURNAL_FAILING);
	ck_assert(journal_put(journal, 1, SLICE("{}")));
	ck_assert_int_eq(mkdir(missing, 0700), 0);
	until_kept(1);
	while (troubled)
		(void)uv_run(loop->uv, UV_RUN_ONCE);
	ck_assert_int_eq(journal_state(journal), JOURNAL_KEEPING);
	ck_assert_uint_eq(lost, 0);
	ck_assert_uint_eq(opens, 2);
}
END_TEST

/* ---- frames that the journal reads where they are ---- */

/* A block with @text at its front. */
static struct shared *a_block(const char *text)
{
	struct shared *memory = shared_take(&pool, 60000);

	memcpy(memory->data, text, strlen(text));
	return memory;
}

static bool hold(uint64_t number, struct shared *memory, const char *text)
{
	return journal_hold(journal, number, memory,
			    (struct slice){memory->data, strlen(text)});
}

START_TEST(memory_is_held_until_the_frame_is_on_disk)
{
	struct shared *memory = a_block(SECRET_TEXT);

	start(EPOCH_1);
	ck_assert(hold(1, memory, SECRET_TEXT));
	ck_assert_uint_eq(memory->holders, 2);
	ck_assert(ranges_has(journal_waiting(journal), 1));
	until_kept(1);
	ck_assert_uint_eq(memory->holders, 1);
	read_frame(EPOCH_1, 1);
	assert_slice_eq(buf_slice(&got), SECRET_TEXT);
	shared_let_go(memory);
	ck_assert_uint_eq(pool.spare_bytes, 65536);
}
END_TEST

START_TEST(who_packed_a_frame_may_let_it_go_first)
{
	struct shared *memory = a_block(SECRET_TEXT);

	start(EPOCH_1);
	ck_assert(hold(1, memory, SECRET_TEXT));
	shared_let_go(memory);
	ck_assert_uint_eq(pool.spare_bytes, 0);
	until_kept(1);
	/* Wiped, and back where it came from. */
	ck_assert_uint_eq(pool.spare_bytes, 65536);
	ck_assert_int_eq(memory->data[0], 0);
	read_frame(EPOCH_1, 1);
	assert_slice_eq(buf_slice(&got), SECRET_TEXT);
}
END_TEST

/* As the suffix of a frame that leaves does it. */
START_TEST(what_comes_in_place_of_the_last_brace_is_not_written)
{
	struct shared *memory;

	start(EPOCH_1);
	for (uint64_t i = 1; i <= 50; i++) {
		memory = a_block(SECRET_TEXT);
		ck_assert(hold(i, memory, SECRET_TEXT));
		memcpy(memory->data + strlen(SECRET_TEXT) - 1, ",\"frame\":1}", 12);
		shared_let_go(memory);
	}
	until_kept(50);
	for (uint64_t i = 1; i <= 50; i++) {
		read_frame(EPOCH_1, i);
		assert_slice_eq(buf_slice(&got), SECRET_TEXT);
	}
}
END_TEST

START_TEST(one_block_may_be_held_for_more_than_one_frame)
{
	struct shared *memory = a_block("{}");

	start(EPOCH_1);
	for (uint64_t i = 1; i <= 3; i++)
		ck_assert(hold(i, memory, "{}"));
	ck_assert_uint_eq(memory->holders, 4);
	until_kept(3);
	ck_assert_uint_eq(memory->holders, 1);
	shared_let_go(memory);
}
END_TEST

/* Small or large: a frame counts with the block that it keeps from others. */
START_TEST(a_disk_that_refuses_holds_no_more_than_its_bound_and_lets_all_go_at_the_end)
{
	size_t held = 0;
	uint64_t number = 0;

	(void)snprintf(path, sizeof(path), "%s/no/such/folder/j.db", folder);
	start(EPOCH_1);
	for (bool ok = true; ok; held += 65536) {
		struct shared *memory = a_block("{}");

		ok = hold(++number, memory, "{}");
		ck_assert_uint_eq(memory->holders, ok ? 2 : 1);
		ck_assert_uint_lt(number, 1000);
		shared_let_go(memory);
	}
	ck_assert_uint_le(held, JOURNAL_QUEUE_MAX + 2 * 65536);
	ck_assert_uint_gt(held, JOURNAL_QUEUE_MAX - 2 * 65536);
	ck_assert_uint_eq(journal_lost(journal), 1);
	ck_assert_uint_eq(pool.spare_bytes, 65536);
	stop();
	ck_assert_uint_eq(lost, number - 1);
	ck_assert_uint_eq(pool.spare_bytes, 1 << 20);
}
END_TEST

START_TEST(a_stop_in_the_middle_writes_what_is_held_and_lets_it_go)
{
	start(EPOCH_1);
	for (uint64_t i = 1; i <= 100; i++) {
		struct shared *memory = a_block(SECRET_TEXT);

		ck_assert(hold(i, memory, SECRET_TEXT));
		shared_let_go(memory);
	}
	stop();
	ck_assert_uint_eq(kept, 100);
	ck_assert_uint_eq(pool.spare_bytes, 1 << 20);
	start(EPOCH_2);
	read_frame(EPOCH_1, 100);
	assert_slice_eq(buf_slice(&got), SECRET_TEXT);
}
END_TEST

START_TEST(a_file_that_was_deleted_is_made_anew)
{
	start(EPOCH_1);
	ck_assert(journal_put(journal, 1, SLICE("{}")));
	until_kept(1);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert(journal_put(journal, 2, SLICE(SECRET_TEXT)));
	until_kept(2);
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert(journal_was_lost(journal));
	read_frame(EPOCH_1, 2);
	assert_slice_eq(buf_slice(&got), SECRET_TEXT);
}
END_TEST

START_TEST(what_is_held_while_the_file_breaks_is_written_to_the_new_one)
{
	struct shared *memory = a_block(SECRET_TEXT);
	char aside[160];

	start(EPOCH_1);
	ck_assert(hold(1, memory, SECRET_TEXT));
	until_kept(1);
	/* Then no statement can be run. */
	with_file("PRAGMA writable_schema = ON;"
		  "UPDATE sqlite_schema SET sql = 'CREATE TABLE is broken';"
		  "PRAGMA schema_version = 1000");
	ck_assert(hold(2, memory, SECRET_TEXT));
	until_kept(2);
	(void)snprintf(aside, sizeof(aside), "%s.broken", path);
	ck_assert_int_eq(access(aside, F_OK), 0);
	ck_assert_uint_eq(memory->holders, 1);
	shared_let_go(memory);
	read_frame(EPOCH_1, 2);
	assert_slice_eq(buf_slice(&got), SECRET_TEXT);
}
END_TEST

static Suite *journal_suite(void)
{
	Suite *suite = suite_create("journal");
	TCase *tcase = tcase_create("journal");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_was_put_is_read_by_the_next_start);
	tcase_add_test(tcase, what_was_put_last_is_written_before_the_end);
	tcase_add_test(tcase, what_is_asked_for_at_the_end_is_not_taken);
	tcase_add_test(tcase, what_is_on_disk_survives_a_kill);
	tcase_add_test(tcase, the_file_is_private_and_tells_nothing);
	tcase_add_test(tcase, another_key_reads_nothing);
	tcase_add_test(tcase, rows_cannot_change_places);
	tcase_add_test(tcase, a_put_of_the_same_number_replaces);
	tcase_add_test(tcase, the_oldest_frames_go_when_there_are_too_many);
	tcase_add_test(tcase, bodies_leave_half_of_the_room_to_frames);
	tcase_add_test(tcase, what_is_too_old_goes);
	tcase_add_test(tcase, a_broken_file_goes_aside_and_a_new_one_takes_its_place);
	tcase_add_test(tcase, a_file_that_was_lost_is_remembered_until_frames_are_let_go);
	tcase_add_test(tcase, a_newer_file_is_left_alone_and_said_so);
	tcase_add_test(tcase, what_the_disk_refuses_is_bounded_counted_and_told_lost);
	tcase_add_test(tcase, once_the_disk_takes_again_what_waited_is_written);
	tcase_add_test(tcase, memory_is_held_until_the_frame_is_on_disk);
	tcase_add_test(tcase, who_packed_a_frame_may_let_it_go_first);
	tcase_add_test(tcase, what_comes_in_place_of_the_last_brace_is_not_written);
	tcase_add_test(tcase, one_block_may_be_held_for_more_than_one_frame);
	tcase_add_test(
		tcase,
		a_disk_that_refuses_holds_no_more_than_its_bound_and_lets_all_go_at_the_end);
	tcase_add_test(tcase, a_stop_in_the_middle_writes_what_is_held_and_lets_it_go);
	tcase_add_test(tcase, a_file_that_was_deleted_is_made_anew);
	tcase_add_test(tcase,
		       what_is_held_while_the_file_breaks_is_written_to_the_new_one);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return test_run(journal_suite());
}
