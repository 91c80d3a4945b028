/* How much a replay may hold, to the byte. */
#include "observer/export_replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "observer/archive.h"
#include "observer/http/page.h"
#include "tests/unit/support/support.h"

#define EPOCH "6a0000010000000a"
#define T0 1796040000000
#define NOTES 20

static const uint8_t claude[KEY_BYTES] = {0xc1};

static char folder[64], path[96];
static struct loop *loop;
static struct archive *archive;
static struct archive_reader *reader;

static void on_lost(void *ctx, const uint8_t *agent, const char *epoch,
		    struct frame_range range)
{
	(void)ctx;
	(void)agent;
	(void)epoch;
	(void)range;
	ck_abort_msg("the disk refused a frame");
}

static void on_anew(void *ctx)
{
	(void)ctx;
	ck_abort_msg("the archive was begun anew");
}

static void on_answer(void *ctx, const struct archive_answer *answer)
{
	(void)ctx;
	ck_assert(answer->ok);
	loop_quit(loop);
}

static void store(unsigned seq)
{
	char text[512];

	(void)snprintf(text, sizeof(text),
		       "{\"seq\":%u,\"monotonicMs\":%u,\"timestamp\":"
		       "\"2026-11-30T12:00:00.000Z\",\"kind\":\"note\",\"agentIndex\":0,"
		       "\"channelId\":\"c\",\"sessionId\":\"s\",\"turnId\":null,"
		       "\"payload\":{\"text\":\"note %u\"},\"epoch\":\"" EPOCH
		       "\",\"frame\":%u}",
		       seq, seq, seq, seq);
	archive_store(archive, claude, EPOCH, seq, T0, slice_of(text));
}

static void setup(void)
{
	static const struct archive_events events = {on_lost, on_anew};
	const struct archive_options options = {.path = path};
	const struct pos last = {EPOCH, NOTES};
	struct err err;

	(void)snprintf(folder, sizeof(folder), "%s/perch-replay-XXXXXX", P_tmpdir);
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/a.db", folder);
	loop = loop_create(&err);
	ck_assert_msg(loop != NULL, "%s", err.text);
	archive = archive_open(&options, &err);
	ck_assert_msg(archive != NULL, "%s", err.text);
	ck_assert_msg(archive_start(archive, loop, &events, NULL, &err), "%s", err.text);
	for (unsigned seq = 1; seq <= NOTES; seq++)
		store(seq);
	/* What came is kept before this is answered. */
	archive_event(archive, claude, &last, on_answer, NULL);
	loop_run(loop);
	archive_close(archive);
	reader = archive_reader_open(path, &err);
	ck_assert_msg(reader != NULL, "%s", err.text);
}

static void teardown(void)
{
	static const char *const names[] = {"", "-wal", "-shm"};
	char name[256];

	archive_reader_close(reader);
	loop_destroy(loop);
	for (size_t i = 0; i < 3; i++) {
		(void)snprintf(name, sizeof(name), "%s%s", path, names[i]);
		(void)unlink(name);
	}
	ck_assert_int_eq(rmdir(folder), 0);
}

/* What is written when it may hold so much. */
static bool replay(size_t max_bytes, char **text, size_t *len, struct err *err)
{
	const struct replay_options options = {.path = path,
					       .channel = SLICE(""),
					       .from_ms = 0,
					       .to_ms = T0 + 3600000,
					       .now_ms = T0 + 3600000,
					       .max_bytes = max_bytes};
	FILE *out = open_memstream(text, len);
	bool ok;

	ck_assert_ptr_nonnull(out);
	ok = replay_write(&options, reader, out, err);
	ck_assert_int_eq(fclose(out), 0);
	return ok;
}

START_TEST(a_replay_holds_as_much_as_it_may_and_not_a_byte_more)
{
	char *whole, *same, *none;
	size_t whole_len, same_len, none_len;
	struct err err;
	size_t held;

	ck_assert_msg(replay(0, &whole, &whole_len, &err), "%s", err.text);
	ck_assert_ptr_nonnull(strstr(whole, "note 20"));
	held = whole_len - page_replay[0].len - page_replay[1].len;

	ck_assert_msg(replay(held, &same, &same_len, &err), "%s", err.text);
	ck_assert_uint_eq(same_len, whole_len);
	ck_assert_int_eq(memcmp(same, whole, whole_len), 0);

	ck_assert(!replay(held - 1, &none, &none_len, &err));
	ck_assert_int_eq(err.code, ERR_TOO_LARGE);
	ck_assert_ptr_nonnull(strstr(err.text, "choose less by --from"));
	ck_assert_uint_eq(none_len, 0);
	free(whole);
	free(same);
	free(none);
}
END_TEST

/* Where it ends does not matter: nothing is written, and it says the same. */
START_TEST(a_replay_that_is_too_large_by_any_part_writes_nothing)
{
	static const size_t most[] = {1, 100, 1000, 3000};
	struct err err;

	for (size_t i = 0; i < sizeof(most) / sizeof(*most); i++) {
		char *text;
		size_t len;

		ck_assert(!replay(most[i], &text, &len, &err));
		ck_assert_int_eq(err.code, ERR_TOO_LARGE);
		ck_assert_uint_eq(len, 0);
		free(text);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("replay");
	TCase *tcase = tcase_create("limit");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_replay_holds_as_much_as_it_may_and_not_a_byte_more);
	tcase_add_test(tcase, a_replay_that_is_too_large_by_any_part_writes_nothing);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
