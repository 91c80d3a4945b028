#include "observer/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "observer/archive_db.h"
#include "tests/unit/support/search_home.h"
#include "tests/unit/support/support.h"
#include "wire/base/buf.h"

/* The index takes in a segment piece by piece: whatever the pieces, and whatever comes
 * between them, it ends with what the archive has. */

#define MIXED 300u /* events of a small archive */
#define TURN 120u  /* of one turn */

static void update(struct home *home, unsigned seq, const char *turn, const char *what)
{
	char payload[1024];

	(void)snprintf(payload, sizeof(payload),
		       "{\"method\":\"session/update\",\"params\":{\"update\":{%s}}}",
		       what);
	event(home, claude, seq, seq * 100, "acp_read", turn, payload);
}

/* Texts of several events, calls that change later, and what belongs to no turn. */
static void mixed(struct home *home, unsigned seq)
{
	char turn[16], what[512], payload[128];
	const unsigned of = seq / 6 % 8;

	(void)snprintf(turn, sizeof(turn), "t%u", seq / TURN);
	(void)snprintf(payload, sizeof(payload), "{\"text\":\"common w%u\"}", seq);
	(void)snprintf(what, sizeof(what),
		       "\"sessionUpdate\":\"%s\",\"content\":{\"type\":\"text\","
		       "\"text\":\"common w%u \"}",
		       seq % 6 == 1 ? "agent_thought_chunk" : "agent_message_chunk", seq);
	if (seq % 6 == 2)
		(void)snprintf(what, sizeof(what),
			       "\"sessionUpdate\":\"tool_call\",\"toolCallId\":\"c%u\","
			       "\"title\":\"common w%u\",\"kind\":\"execute\","
			       "\"status\":\"pending\"",
			       of, seq);
	else if (seq % 6 == 3)
		(void)snprintf(
			what, sizeof(what),
			"\"sessionUpdate\":\"tool_call_update\",\"toolCallId\":\"c%u\","
			"\"status\":\"completed\",\"content\":[{\"type\":\"content\","
			"\"content\":{\"type\":\"text\",\"text\":\"common w%u\"}}]",
			of, seq);
	if (seq % 6 == 4)
		event(home, claude, seq, seq * 100, "note", seq % 12 == 4 ? turn : NULL,
		      payload);
	else
		update(home, seq, turn, what);
}

static void mix(struct home *home)
{
	ck_assert(archive_db_begin(home->db, NULL));
	for (unsigned seq = 1; seq <= MIXED; seq++)
		mixed(home, seq);
	ck_assert(archive_db_commit(home->db, NULL));
}

#define DOCS \
	"SELECT row, lane, place, seq, t, kind, hash, size, hex(text) FROM doc ORDER " \
	"BY " \
	"row, seq, t"
#define DOCS_AND_IDS \
	"SELECT id, row, lane, place, seq, t, kind, hash, size, hex(text) FROM doc " \
	"ORDER BY id"

static int write_line(void *ctx, int count, char **values, char **names)
{
	struct buf *out = ctx;

	(void)names;
	for (int i = 0; i < count; i++)
		(void)buf_printf(out, "%s|", values[i] ? values[i] : "-");
	(void)buf_lit(out, "\n");
	return 0;
}

/* All that the index has: its texts, and what is found of some words. */
static void dump(struct home *home, const char *query, struct buf *out)
{
	sqlite3 *db = NULL;

	*out = (struct buf){.max = 16u << 20};
	ck_assert_int_eq(sqlite3_open(home->path, &db), SQLITE_OK);
	ck_assert_int_eq(sqlite3_exec(db, query, write_line, out, NULL), SQLITE_OK);
	(void)sqlite3_close(db);
	(void)buf_printf(out, "common: %u\n", hits(home, "common"));
	for (unsigned seq = 1; seq <= MIXED; seq += 7) {
		char word[16];

		(void)snprintf(word, sizeof(word), "w%u", seq);
		(void)buf_printf(out, "%s: %u\n", word, hits(home, word));
	}
}

static void expect_same(struct buf *one, struct buf *other, const char *where)
{
	struct slice left = buf_slice(one), right = buf_slice(other), a, b;

	for (bool more = true; more;) {
		a = b = SLICE_EMPTY;
		more = slice_take_until(&left, '\n', &a);
		more = slice_take_until(&right, '\n', &b) || more;
		if (!slice_eq(a, b))
			ck_abort_msg("%s: %.*s, not %.*s", where, (int)(a.len % 300),
				     a.ptr, (int)(b.len % 300), b.ptr);
	}
	buf_finish(one);
	buf_finish(other);
}

/* The index, made anew by one step, says the same. */
static void expect_as_anew(struct home *home, const char *where)
{
	struct buf is, anew;

	dump(home, DOCS, &is);
	archive_db_close(home->db);
	sql(home, SEARCH_GONE);
	open_db(home);
	settle(home);
	dump(home, DOCS, &anew);
	expect_same(&is, &anew, where);
}

static const size_t cuts[] = {1, 7, 1000};

START_TEST(any_cutting_ends_with_the_same_rows_and_hits)
{
	struct home whole = {0}, cut = {0};
	struct buf one, other;

	begin(&whole);
	mix(&whole);
	settle(&whole);
	begin(&cut);
	mix(&cut);
	settle_by(&cut, cuts[_i]);
	/* Every event and every row is a piece of its own. */
	ck_assert_uint_ge(cut.steps * cuts[_i], MIXED + 100);
	ck_assert_uint_eq(cut.most_done > cuts[_i], 0);
	dump(&whole, DOCS_AND_IDS, &one);
	dump(&cut, DOCS_AND_IDS, &other);
	ck_assert(slice_find_slice(buf_slice(&one), SLICE("w295: 1")) < one.len);
	expect_same(&one, &other, "cut");
	end(&whole);
	end(&cut);
}
END_TEST

/* A turn of so many events, in one segment. */
static void long_turn(struct home *home, unsigned count)
{
	ck_assert(archive_db_begin(home->db, NULL));
	for (unsigned seq = 1; seq <= count; seq++) {
		char payload[64];

		(void)snprintf(payload, sizeof(payload), "{\"text\":\"common w%u\"}",
			       seq);
		event(home, claude, seq, seq * 10, "note", "t1", payload);
	}
	ck_assert(archive_db_commit(home->db, NULL));
}

START_TEST(a_step_costs_what_it_may_however_long_the_turn_is)
{
	struct home little = {0}, much = {0};

	begin(&little);
	long_turn(&little, 2000);
	settle_by(&little, 200);
	begin(&much);
	long_turn(&much, 20000);
	settle_by(&much, 200);
	ck_assert_uint_eq(little.most_done, 200);
	ck_assert_uint_eq(much.most_done, 200);
	/* Each event is read once and its row compared once, and that is all. */
	ck_assert_uint_ge(much.steps, 2 * 20000 / 200);
	ck_assert_uint_le(much.steps, 2 * 20000 / 200 + 10);
	ck_assert_uint_eq(hits(&much, "w1"), 1);
	ck_assert_uint_eq(hits(&much, "w20000"), 1);
	end(&little);
	end(&much);
}
END_TEST

START_TEST(a_long_text_is_more_pieces_than_one)
{
	struct home home = {0};
	struct buf payload = {.max = 65000};

	begin(&home);
	(void)buf_lit(&payload, "{\"text\":\"");
	while (payload.len < 40000)
		(void)buf_lit(&payload, "long ");
	(void)buf_lit(&payload, "\"}");
	for (unsigned seq = 1; seq <= 20; seq++)
		event(&home, claude, seq, seq * 10, "note", "t1", buf_text(&payload));
	settle_by(&home, 20);
	/* Ten pieces and more each: two of them end a step. */
	ck_assert_uint_lt(home.most_done, 20 + 11);
	ck_assert_uint_ge(home.steps, 20);
	ck_assert_uint_eq(hits(&home, "long"), 20);
	buf_finish(&payload);
	end(&home);
}
END_TEST

START_TEST(a_restart_in_the_middle_of_a_turn_loses_and_doubles_nothing)
{
	struct home whole = {0};
	struct buf one, other;
	size_t steps;

	begin(&whole);
	mix(&whole);
	settle_by(&whole, 7);
	steps = whole.steps;
	for (size_t after = 1; after < steps; after += 9) {
		struct home home = {0};

		begin(&home);
		mix(&home);
		for (size_t i = 0; i < after; i++)
			ck_assert_int_eq(step(&home, false, T0 + 3600000, 7), 0);
		archive_db_close(home.db);
		open_db(&home);
		settle_by(&home, 7);
		dump(&whole, DOCS, &one);
		dump(&home, DOCS, &other);
		expect_same(&one, &other, "after a restart");
		end(&home);
	}
	end(&whole);
}
END_TEST

/* The same numbers for the same seed everywhere. */
static unsigned next_random(uint32_t *state, unsigned below)
{
	*state = *state * 1664525u + 1013904223u;
	return (*state >> 8) % below;
}

static void body(struct home *home, unsigned seq)
{
	char text[512];
	struct err err;

	(void)snprintf(text, sizeof(text),
		       "{\"seq\":%u,\"monotonicMs\":%u,\"timestamp\":"
		       "\"2026-11-30T12:00:%02u.%03uZ\",\"kind\":\"note\","
		       "\"agentIndex\":0,\"channelId\":\"" API
		       "\",\"sessionId\":\"s\",\"turnId\":null,\"payload\":{\"text\":"
		       "\"common whole%u\"}}",
		       seq, seq * 100, seq / 10, seq % 10 * 100, seq);
	if (!archive_db_body(home->db, claude, EPOCH, seq,
			     (struct slice){text, strlen(text)}, &err))
		ck_abort_msg("%s", err.text);
}

/* What the first @below hundreds of milliseconds had is gone, and found no more. */
static void forget(struct home *home, unsigned below)
{
	bool more = true;
	uint64_t count = 0;
	struct err err;

	while (more)
		if (!archive_db_forget(home->db, claude, SLICE_EMPTY, T0 + below * 100,
				       &count, &more, &err))
			ck_abort_msg("%s", err.text);
}

START_TEST(what_comes_late_changes_or_goes_between_two_steps_is_right_in_the_end)
{
	uint32_t random = 7919u * (uint32_t)(_i + 1);
	unsigned order[MIXED];
	struct home home = {0};
	char where[64];
	unsigned gone = 0;

	for (unsigned i = 0; i < MIXED; i++)
		order[i] = i + 1;
	/* Mostly in order, as from a harness; some come much later. */
	for (unsigned i = 0; i < MIXED / 5; i++) {
		const unsigned a = next_random(&random, MIXED);
		const unsigned b = next_random(&random, MIXED);
		const unsigned was = order[a];

		order[a] = order[b];
		order[b] = was;
	}
	begin(&home);
	for (unsigned i = 0; i < MIXED; i++) {
		if (order[i] > gone)
			mixed(&home, order[i]);
		if (order[i] > gone && order[i] % 12 == 10 && next_random(&random, 2))
			body(&home, order[i]);
		if (i % 97 == 96) {
			gone = i / 4;
			forget(&home, gone + 1);
		}
		if (next_random(&random, 3))
			(void)step(&home, next_random(&random, 4) == 0,
				   T0 + (int64_t)i * 60000, 1 + next_random(&random, 60));
		if (gone) {
			char word[16];

			(void)snprintf(word, sizeof(word), "w%u",
				       1 + next_random(&random, gone));
			if (hits(&home, word))
				ck_abort_msg("seed %d: %s is gone and found", _i, word);
		}
	}
	home.now = T0 + 3650 * DAY; /* later than any clock's due */
	settle_by(&home, 13);
	settle_by(&home, 13); /* what came behind its back rests before it */
	(void)snprintf(where, sizeof(where), "seed %d", _i);
	expect_as_anew(&home, where);
	ck_assert_uint_gt(hits(&home, "common"), 50);
	end(&home);
}
END_TEST

START_TEST(what_just_came_does_not_wait_for_a_long_turn_of_before)
{
	struct home home = {0};

	begin(&home);
	long_turn(&home, 3000);
	archive_db_close(home.db);
	sql(&home, SEARCH_GONE);
	open_db(&home);
	/* It is in the middle of the old turn. */
	for (unsigned i = 0; i < 20; i++)
		ck_assert_int_eq(step(&home, false, T0, 100), 0);
	ck_assert_uint_eq(hits(&home, "common"), 0);
	say(&home, codex, 1, "fresh");
	(void)step(&home, true, T0, 100);
	ck_assert_uint_eq(hits(&home, "fresh"), 1);
	/* What comes for that turn itself takes what was read along. */
	event(&home, claude, 3001, 31000, "note", "t1", "{\"text\":\"newest\"}");
	home.steps = 0;
	while (step(&home, true, T0, 100) == 0) {
	}
	ck_assert_uint_eq(hits(&home, "newest"), 1);
	ck_assert_uint_lt(home.steps, 50);
	settle(&home);
	expect_as_anew(&home, "in the end");
	end(&home);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("search_steps");
	TCase *tcase = tcase_create("steps");

	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, any_cutting_ends_with_the_same_rows_and_hits, 0,
			    sizeof(cuts) / sizeof(*cuts));
	tcase_add_test(tcase, a_step_costs_what_it_may_however_long_the_turn_is);
	tcase_add_test(tcase, a_long_text_is_more_pieces_than_one);
	tcase_add_test(tcase,
		       a_restart_in_the_middle_of_a_turn_loses_and_doubles_nothing);
	tcase_add_loop_test(
		tcase,
		what_comes_late_changes_or_goes_between_two_steps_is_right_in_the_end, 0,
		12);
	tcase_add_test(tcase, what_just_came_does_not_wait_for_a_long_turn_of_before);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
