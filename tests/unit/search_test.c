#include "observer/search.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "observer/archive_db.h"
#include "observer/search_mark.h"
#include "observer/search_text.h"
#include "tests/unit/support/search_home.h"
#include "tests/unit/support/support.h"
#include "wire/base/mem.h"

START_TEST(a_word_that_came_in_two_events_is_found_in_one_row)
{
	struct home home = {0};

	begin(&home);
	chunk(&home, 1, "t1", "the rou");
	chunk(&home, 2, "t1", "ter is split");
	settle(&home);
	ck_assert_uint_eq(hits(&home, "router"), 1);
	ck_assert_uint_eq(hits(&home, "rou"), 0);
	expect(&home, "router", "\"snippet\":[\"the \",\"router\",\" is split\"]");
	expect(&home, "router", "\"pos\":\"" EPOCH "/0000000000000001\"");
	expect(&home, "router", "\"type\":\"message\"");
	end(&home);
}
END_TEST

START_TEST(what_came_after_a_row_was_taken_in_is_found_and_nothing_twice)
{
	struct home home = {0};

	begin(&home);
	chunk(&home, 1, "t1", "alpha ");
	settle(&home);
	ck_assert_uint_eq(hits(&home, "alpha"), 1);
	chunk(&home, 2, "t1", "beta");
	settle(&home);
	ck_assert_uint_eq(hits(&home, "alpha"), 1);
	ck_assert_uint_eq(hits(&home, "alpha beta"), 1);
	end(&home);
}
END_TEST

START_TEST(words_phrases_beginnings_and_filters)
{
	static const struct {
		const char *words;
		unsigned hits;
	} cases[] = {
		{"quick", 2},
		{"QUICK Fox", 1},
		{"fox quick", 1},
		{"\"quick brown\"", 1},
		{"\"brown quick\"", 0},
		{"brow*", 2},
		{"\"quick bro\"*", 1},
		{"\"quick bro\"", 0},
		{"src/router.c", 1},
		{"router", 1},
		{"kind:note quick", 2},
		{"kind:tool quick", 0},
		{"kind:tool", 0},
		{"kind:note,tool", 4},
		{"since:2026-11-30T12:00:02Z", 3},
		{"since:2026-11-30T12:00:02Z quick", 1},
		{"since:1h quick", 0},
		{"nowhere", 0},
		{"quick nowhere", 0},
	};
	struct home home = {0};

	begin(&home);
	say(&home, claude, 1, "the quick brown fox");
	say(&home, claude, 2, "a brownie");
	say(&home, claude, 3, "quick!");
	say(&home, claude, 4, "in src/router.c:12");
	settle(&home);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (hits(&home, cases[i].words) != cases[i].hits)
			ck_abort_msg("%s: %u", cases[i].words,
				     hits(&home, cases[i].words));
	end(&home);
}
END_TEST

START_TEST(any_script_is_found_and_marked_as_it_was_written)
{
	static const struct {
		const char *text, *words, *snippet;
	} cases[] = {
		{"Caf\xc3\xa9 au lait", "cafe", "[\"\",\"Caf\xc3\xa9\",\" au lait\"]"},
		{"Cafe\xcc\x81 au lait", "CAF\xc3\x89",
		 "[\"\",\"Cafe\xcc\x81\",\" au lait\"]"},
		/* 東京タワーへ行く: a part of a text without blanks */
		{"\xe6\x9d\xb1\xe4\xba\xac\xe3\x82\xbf\xe3\x83\xaf\xe3\x83\xbc\xe3\x81"
		 "\xb8",
		 "\xe3\x82\xbf\xe3\x83\xaf\xe3\x83\xbc",
		 "[\"\xe6\x9d\xb1\xe4\xba\xac\","
		 "\"\xe3\x82\xbf\xe3\x83\xaf\xe3\x83\xbc\",\"\xe3\x81\xb8\"]"},
		{"done\xe2\x9c\x85ok", "\xe2\x9c\x85",
		 "[\"done\",\"\xe2\x9c\x85\",\"ok\"]"},
		{"done\xe2\x9c\x85ok", "ok", "[\"done\xe2\x9c\x85\",\"ok\",\"\"]"},
		{"\xf0\x9f\x9a\x80 launch", "\xf0\x9f\x9a\x80",
		 "[\"\",\"\xf0\x9f\x9a\x80\",\" launch\"]"},
		{"\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82",
		 "\xd0\xbf\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82",
		 "[\"\",\"\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82\",\"\"]"},
		/* Thai has no blanks either. */
		{"\xe0\xb8\xaa\xe0\xb8\xa7\xe0\xb8\xb1\xe0\xb8\xaa\xe0\xb8\x94\xe0\xb8"
		 "\xb5",
		 "\xe0\xb8\xaa\xe0\xb8\x94", "\"\xe0\xb8\xaa\xe0\xb8\x94\""},
		/* A colour inside a word of a command's output is none of its letters. */
		{"\\u001b[31mfai\\u001b[1mlure\\u001b[0m here", "failure",
		 "[\"\",\"failure\",\" here\"]"},
	};
	struct home home = {0};

	begin(&home);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		say(&home, claude, i + 1, cases[i].text);
	settle(&home);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		expect(&home, cases[i].words, cases[i].snippet);
	end(&home);
}
END_TEST

/* Whatever is typed is words, or a sentence that says what is wrong; never FTS5's. */
START_TEST(nothing_typed_is_an_error_of_syntax)
{
	static const char *const words[] = {
		"\"",
		"\"\"",
		"\"\"\"",
		"\"a",
		"a\"b",
		"*",
		"a*b*",
		"***",
		"(",
		")",
		"()",
		"a AND",
		"OR",
		"NOT",
		"AND AND",
		"NEAR(a b)",
		"NEAR",
		"a NEAR/2 b",
		"text:a",
		"about:a1",
		"{text about}: a",
		"^a",
		"a^2",
		"-a",
		"+a",
		"a + b",
		"'; DROP TABLE doc; --",
		"rowid:1",
		"a:b:c",
		":",
		"agent:",
		"kind:",
		"since:",
		"\\",
		"\\\"",
		"%",
		"_",
		"\x01",
		"a\tb\nc",
		"\"a\"*\"b\"*",
		"\"a\" * b",
		"[a]",
		"a|b",
		"a,b",
		"\xe2\x80\xae",
		"\xf0\x9f\x9a\x80*",
		"\"*\"",
		"a1 k8",
		"\"a\"\"b\"",
	};
	struct home home = {0};
	char text[2 * SEARCH_QUERY_MAX];
	uint32_t noise = 7;

	begin(&home);
	say(&home, claude, 1, "a b c text about near and or not rowid drop table");
	settle(&home);
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		struct found found =
			find_page(&home, words[i], SEARCH_BEFORE_MAX, 10, NULL);

		if (!found.ok && found.err.code != ERR_MALFORMED)
			ck_abort_msg("%s: %s", words[i], found.err.text);
		archive_db_answer_finish(&found.answer);
	}
	for (unsigned round = 0; round < 2000; round++) {
		static const char alphabet[] = "ab \"*():^-{}+ORANDNOT,\\'k1";
		const size_t len = round % 40;
		struct found found;

		for (size_t i = 0; i < len; i++) {
			noise = noise * 1664525u + 1013904223u;
			text[i] = alphabet[(noise >> 16) % (sizeof(alphabet) - 1)];
		}
		text[len] = '\0';
		found = find_page(&home, text, SEARCH_BEFORE_MAX, 10, NULL);
		if (!found.ok && found.err.code != ERR_MALFORMED)
			ck_abort_msg("%s: %s", text, found.err.text);
		archive_db_answer_finish(&found.answer);
	}
	ck_assert_uint_eq(hits(&home, "AND near NOT"), 1);
	ck_assert_uint_eq(hits(&home, "'; DROP TABLE"), 1);
	end(&home);
}
END_TEST

static void refused(struct home *home, const char *words, const char *part)
{
	struct found found = find_page(home, words, SEARCH_BEFORE_MAX, 10, NULL);

	if (found.ok || found.err.code != ERR_MALFORMED || !strstr(found.err.text, part))
		ck_abort_msg("%s: %s", words, found.ok ? "taken" : found.err.text);
}

START_TEST(a_search_has_limits_that_it_names)
{
	struct home home = {0};
	char text[SEARCH_QUERY_MAX + 2];

	begin(&home);
	refused(&home, "", "nothing to look for");
	refused(&home, "  ... !!", "nothing to look for");
	refused(&home, "kind:cat", "kind:cat is none");
	refused(&home, "since:soon", "since: takes a moment");
	refused(&home, "\xff", "UTF-8");
	memset(text, 'x', sizeof(text));
	text[SEARCH_QUERY_MAX + 1] = '\0';
	refused(&home, text, "at most 1000 bytes");
	text[SEARCH_QUERY_MAX] = '\0';
	ck_assert_uint_eq(hits(&home, text), 0);
	for (size_t i = 0; i <= SEARCH_TERMS_MAX; i++)
		memcpy(text + 2 * i, "x ", 3);
	refused(&home, text, "at most 32 words");
	text[2 * SEARCH_TERMS_MAX] = '\0';
	ck_assert_uint_eq(hits(&home, text), 0);
	/* One term of many words. */
	for (size_t i = 0; i <= SEARCH_TOKENS_MAX; i++)
		memcpy(text + 2 * i, "x/", 3);
	refused(&home, text, "at most 64 words");
	text[2 * SEARCH_TOKENS_MAX] = '\0';
	ck_assert_uint_eq(hits(&home, text), 0);
	end(&home);
}
END_TEST

START_TEST(pages_go_back_in_time_and_have_every_row_once)
{
	struct home home = {0};
	int64_t before = SEARCH_BEFORE_MAX;
	unsigned next = 250, pages = 0;
	bool more = true;

	begin(&home);
	ck_assert(archive_db_begin(home.db, NULL));
	for (unsigned i = 0; i < 250; i++) {
		/* Not in the order of time. */
		const unsigned seq = (i * 97) % 250 + 1;
		char text[40];

		(void)snprintf(text, sizeof(text), "needle number%u", seq);
		say(&home, claude, seq, text);
	}
	ck_assert(archive_db_commit(home.db, NULL));
	settle(&home);
	for (; more; pages++) {
		struct found found = find_page(&home, "needle", before, 40, NULL);
		const char *at = found.answer.text;

		ck_assert(found.ok);
		while ((at = strstr(at, "\" number")) != NULL) {
			char wanted[40];

			(void)snprintf(wanted, sizeof(wanted), "\" number%u\"", next--);
			if (strncmp(at, wanted, strlen(wanted)) != 0)
				ck_abort_msg("page %u: %.40s", pages, at);
			at++;
		}
		more = strstr(found.answer.text, "\"more\":true") != NULL;
		at = strstr(found.answer.text, "\"before\":\"");
		ck_assert_ptr_nonnull(at);
		before = strtoll(at + strlen("\"before\":\""), NULL, 10);
		archive_db_answer_finish(&found.answer);
	}
	ck_assert_uint_eq(next, 0);
	ck_assert_uint_eq(pages, 7);
	end(&home);
}
END_TEST

START_TEST(more_rows_of_one_second_than_have_room_in_it_are_all_found)
{
	struct home home = {0};

	begin(&home);
	ck_assert(archive_db_begin(home.db, NULL));
	for (unsigned seq = 1; seq <= 2500; seq++)
		event(&home, claude, seq, 5000, "note", NULL,
		      seq == 2500 ? "{\"text\":\"last crowd\"}" : "{\"text\":\"crowd\"}");
	ck_assert(archive_db_commit(home.db, NULL));
	settle(&home);
	ck_assert_uint_eq(hits(&home, "crowd last"), 1);
	ck_assert_uint_eq(hits(&home, "crowd"), 100);
	end(&home);
}
END_TEST

/* As if an agent without a clock had said so much in one second that all those are full
 * in which room for more of it is looked for: the last id of each is taken. */
START_TEST(a_second_without_any_room_keeps_nothing_from_being_found)
{
	struct home home = {0};

	begin(&home);
	sql(&home, "WITH RECURSIVE probe(i, second, step) AS (SELECT 0, 1796040005, 1"
		   " UNION ALL SELECT i + 1, second + step, step + (step + 1) / 2"
		   " FROM probe WHERE i < 60) INSERT INTO doc(id, segment, row, place,"
		   " seq, t, kind, hash, size, text) SELECT second * 1024 + 1023, 0, '',"
		   " '', 0, 0, 0, 0, 1, 'x' FROM probe");
	for (unsigned seq = 1; seq <= 3; seq++)
		event(&home, claude, seq, 5000, "note", NULL, "{\"text\":\"crowd\"}");
	say(&home, codex, 7, "elsewhere");
	settle(&home);
	ck_assert_uint_eq(hits(&home, "crowd"), 3);
	ck_assert_uint_eq(hits(&home, "elsewhere"), 1);
	end(&home);
}
END_TEST

START_TEST(two_agents_that_say_the_same_are_told_apart)
{
	struct home home = {0};
	struct found found;

	begin(&home);
	say(&home, claude, 1, "same words");
	say(&home, codex, 1, "same words");
	settle(&home);
	ck_assert_uint_eq(hits(&home, "same words"), 2);
	found = find_page(&home, "same", SEARCH_BEFORE_MAX, 10, codex);
	ck_assert(found.ok);
	ck_assert_uint_eq(count_of(found.answer.text, "\"snippet\":"), 1);
	ck_assert_ptr_nonnull(strstr(found.answer.text, "\"agent\":\"c2000"));
	archive_db_answer_finish(&found.answer);
	end(&home);
}
END_TEST

START_TEST(a_fetched_body_is_searched_in_place_of_what_was_cut)
{
	struct home home = {0};
	struct err err;

	begin(&home);
	say(&home, claude, 1, "short");
	settle(&home);
	ck_assert(archive_db_body(home.db, claude, EPOCH, 1,
				  SLICE("{\"seq\":1,\"timestamp\":\"2026-11-30T12:00:01."
					"000Z\",\"kind\":\"note\",\"agentIndex\":0,"
					"\"channelId\":\"" API
					"\",\"sessionId\":null,\"turnId\":null,"
					"\"payload\":{\"text\":\"entire\"}}"),
				  &err));
	/* By somebody's question, without waiting for the time. */
	(void)step(&home, true, T0, SIZE_MAX);
	ck_assert_uint_eq(hits(&home, "entire"), 1);
	ck_assert_uint_eq(hits(&home, "short"), 0);
	end(&home);
}
END_TEST

/* ---- who it was ---- */

/* A start of claude's harness that says what it is called, and what it calls API. */
static void starts(struct home *home, unsigned seq, const char *name, const char *channel)
{
	struct buf text = {.max = 65535};
	struct err err;

	(void)buf_printf(&text,
			 "{\"seq\":%u,\"monotonicMs\":1,\"timestamp\":\"2026-11-30T11:00:"
			 "00.000Z\",\"kind\":\"harness_started\",\"agentIndex\":null,"
			 "\"channelId\":null,\"sessionId\":null,\"turnId\":null,"
			 "\"payload\":{\"name\":\"%s\",\"channels\":[{\"id\":\"%s\","
			 "\"name\":\"api\\u202e\\\"server\"}]},\"epoch\":\"" EPOCH
			 "\",\"frame\":%u}",
			 seq, name, channel, seq);
	if (!archive_db_frame(home->db, claude, EPOCH, seq, T0, buf_slice(&text), &err))
		ck_abort_msg("%s", err.text);
	buf_finish(&text);
}

START_TEST(a_hit_says_what_its_lane_is_called_by_the_newest_word_for_it)
{
	const struct pos low = {EPOCH, 100};
	struct home home = {0};
	struct archive_answer answer = {0};
	struct err err;

	begin(&home);
	say(&home, codex, 1, "of a stranger");
	say(&home, claude, 2, "before any name");
	settle(&home);
	ck_assert_uint_eq(hits(&home, "name"), 1);
	expect(&home, "stranger", API "\",\"row\"");
	starts(&home, 3, "old", API);
	/* It serves that channel no more: the older word is the newest. */
	starts(&home, 4, "new", "another");
	expect(&home, "name",
	       API "\",\"agentName\":\"new\",\"channelName\":\"api\xe2\x80\xae\\\"server"
		   "\",\"row\"");
	expect(&home, "stranger", API "\",\"row\"");
	ck_assert(archive_db_rows(home.db, claude, SLICE(API), &low, 10, &answer, &err));
	ck_assert_str_eq(answer.text, "\"agentName\":\"new\",\"channelName\":"
				      "\"api\xe2\x80\xae\\\"server\"");
	archive_db_answer_finish(&answer);
	end(&home);
}
END_TEST

/* ---- what a tool call says ---- */

START_TEST(of_a_call_title_command_paths_and_the_ends_of_its_output_are_searched)
{
	struct home home = {0};
	struct buf payload = {.max = 60000};

	begin(&home);
	(void)buf_lit(&payload,
		      "{\"method\":\"session/update\",\"params\":{\"update\":{"
		      "\"sessionUpdate\":\"tool_call\",\"toolCallId\":\"c\",\"title\":"
		      "\"Run checks\",\"kind\":\"execute\",\"status\":\"completed\","
		      "\"rawInput\":{\"command\":\"make distcheck\"},\"locations\":[{"
		      "\"path\":\"/home/me/lib/wonder.c\"}],\"content\":[{\"type\":"
		      "\"content\",\"content\":{\"type\":\"text\",\"text\":\"firstword ");
	for (unsigned i = 0; i < 2000; i++)
		(void)buf_lit(&payload, "filling ");
	(void)buf_lit(&payload, " middleword ");
	for (unsigned i = 0; i < 2000; i++)
		(void)buf_lit(&payload, "filling ");
	(void)buf_lit(&payload, "lastword\"}}]}}}");
	event(&home, claude, 1, 1000, "acp_read", "t1", buf_text(&payload));
	settle(&home);
	ck_assert_uint_eq(hits(&home, "kind:tool distcheck"), 1);
	ck_assert_uint_eq(hits(&home, "\"Run checks\""), 1);
	ck_assert_uint_eq(hits(&home, "lib/wonder.c"), 1);
	ck_assert_uint_eq(hits(&home, "firstword"), 1);
	ck_assert_uint_eq(hits(&home, "lastword"), 1);
	ck_assert_uint_eq(hits(&home, "middleword"), 0);
	expect(&home, "lastword", "\"title\":\"Ran make distcheck\"");
	buf_finish(&payload);
	end(&home);
}
END_TEST

/* ---- letting go ---- */

START_TEST(what_is_let_go_of_is_not_found_from_that_moment_on)
{
	const struct archive_keep keep = {.age_ms = 1000};
	struct home home = {0};
	bool more = true;
	struct err err;

	begin(&home);
	for (unsigned seq = 1; seq <= 100; seq++)
		say(&home, claude, seq, "fleeting");
	settle(&home);
	ck_assert_uint_eq(hits(&home, "fleeting"), 100);
	/* Those of the first fifty seconds. */
	while (more)
		ck_assert(archive_db_trim(home.db, &keep, T0 + 52000, &more, &err));
	ck_assert_uint_eq(hits(&home, "fleeting"), 50);
	settle(&home);
	ck_assert_uint_eq(hits(&home, "fleeting"), 50);
	end(&home);
}
END_TEST

START_TEST(a_row_that_loses_its_beginning_is_found_by_what_is_left)
{
	const struct archive_keep keep = {.age_ms = 1000};
	struct home home = {0};
	bool more = true;
	struct err err;

	begin(&home);
	chunk(&home, 1, "t1", "bygone ");
	chunk(&home, 5, "t1", "remaining");
	settle(&home);
	while (more)
		ck_assert(archive_db_trim(home.db, &keep, T0 + 3000, &more, &err));
	ck_assert_uint_eq(hits(&home, "bygone"), 0);
	settle(&home);
	ck_assert_uint_eq(hits(&home, "bygone"), 0);
	ck_assert_uint_eq(hits(&home, "remaining"), 1);
	end(&home);
}
END_TEST

static bool file_has(const char *path, const char *word)
{
	char *bytes = mem_alloc(8u << 20);
	FILE *file = fopen(path, "rb");
	size_t len;
	bool has;

	ck_assert_ptr_nonnull(file);
	len = fread(bytes, 1, 8u << 20, file);
	(void)fclose(file);
	has = slice_find_slice((struct slice){bytes, len}, slice_of(word)) < len;
	free(bytes);
	return has;
}

START_TEST(the_words_of_what_was_forgotten_leave_the_file)
{
	struct home home = {0};
	uint64_t count = 0;
	bool more = true;
	struct err err;

	begin(&home);
	say(&home, claude, 1, "xylophoneconcerto");
	say(&home, codex, 1, "another");
	settle(&home);
	sql(&home, "PRAGMA wal_checkpoint(TRUNCATE)");
	ck_assert(file_has(home.path, "xylophoneconcerto"));
	while (more)
		ck_assert(archive_db_forget(home.db, claude, SLICE_EMPTY, INT64_MAX,
					    &count, &more, &err));
	ck_assert_uint_eq(hits(&home, "xylophoneconcerto"), 0);
	ck_assert(archive_db_compact(home.db, &err));
	archive_db_close(home.db);
	sql(&home, "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)");
	ck_assert(!file_has(home.path, "xylophoneconcerto"));
	open_db(&home);
	ck_assert_uint_eq(hits(&home, "another"), 1);
	end(&home);
}
END_TEST

static int64_t number(const struct home *home, const char *question)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *statement = NULL;
	int64_t out;

	ck_assert_int_eq(sqlite3_open(home->path, &db), SQLITE_OK);
	ck_assert_int_eq(sqlite3_prepare_v2(db, question, -1, &statement, NULL),
			 SQLITE_OK);
	ck_assert_int_eq(sqlite3_step(statement), SQLITE_ROW);
	out = sqlite3_column_int64(statement, 0);
	(void)sqlite3_finalize(statement);
	(void)sqlite3_close(db);
	return out;
}

static int64_t pages_used(const struct home *home)
{
	return number(home, "SELECT (SELECT page_count FROM pragma_page_count()) -"
			    " (SELECT freelist_count FROM pragma_freelist_count())");
}

/* Words that nobody said before, so that the index is more than the frames. */
static void say_new_words(struct home *home, unsigned seq, uint64_t *random)
{
	char payload[1200] = "{\"text\":\"";
	size_t len = strlen(payload);

	while (len < 1000) {
		*random = *random * UINT64_C(6364136223846793005) + 1442695040888963407;
		len += (size_t)snprintf(payload + len, sizeof(payload) - len, "%06x ",
					(unsigned)(*random >> 44));
	}
	(void)snprintf(payload + len, sizeof(payload) - len, "\"}");
	event(home, claude, seq, seq * 10, "note", NULL, payload);
}

/* What goes for size is as much as has to, though the index keeps words of it for long.
 */
START_TEST(an_index_that_is_most_of_the_archive_pushes_no_more_out_than_it_has_to)
{
	const struct archive_keep keep = {.bytes = 2 << 20};
	struct home home = {0};
	uint64_t random = 1;
	unsigned seq = 0;
	struct err err;

	begin(&home);
	for (unsigned round = 0; round < 4; round++) {
		unsigned slices = 0;
		bool more = true;

		ck_assert(archive_db_begin(home.db, NULL));
		for (unsigned i = 0; i < 500; i++)
			say_new_words(&home, ++seq, &random);
		ck_assert(archive_db_commit(home.db, NULL));
		settle(&home);
		for (; more && slices < 1000; slices++)
			if (!archive_db_trim(home.db, &keep, T0, &more, &err))
				ck_abort_msg("%s", err.text);
		ck_assert(!more);
		ck_assert_int_le(pages_used(&home), keep.bytes / 4096);
		if (round > 0)
			ck_assert_int_ge(pages_used(&home), keep.bytes / 4096 * 3 / 4);
	}
	end(&home);
}
END_TEST

START_TEST(a_question_whose_time_is_over_is_answered_with_what_there_is)
{
	struct home home = {0};
	struct search_query query;
	struct search_question question = {.query = &query,
					   .before = SEARCH_BEFORE_MAX,
					   .limit = 100,
					   .until_ms = 0};
	struct archive_answer answer = {0};
	struct err err;

	begin(&home);
	ck_assert(archive_db_begin(home.db, NULL));
	for (unsigned seq = 1; seq <= 3000; seq++)
		say(&home, claude, seq, "crowd");
	ck_assert(archive_db_commit(home.db, NULL));
	settle(&home);
	ck_assert(search_query_parse(SLICE("crowd"), T0 + DAY, &query, &err));
	ck_assert(archive_db_search(home.db, &question, &answer, &err));
	ck_assert_ptr_nonnull(strstr(answer.text, "\"incomplete\":true"));
	ck_assert_uint_lt(count_of(answer.text, "\"snippet\":"), 100);
	archive_db_answer_finish(&answer);
	search_query_finish(&query);
	ck_assert_uint_eq(hits(&home, "crowd"), 100);
	end(&home);
}
END_TEST

/* ---- an archive from before, and one that broke ---- */

START_TEST(an_archive_from_before_is_taken_in_in_steps_newest_first)
{
	struct home home = {0};
	begin(&home);
	ck_assert(archive_db_begin(home.db, NULL));
	for (unsigned seq = 1; seq <= 3000; seq++)
		say(&home, claude, seq, seq == 1 ? "old oldest" : "old");
	ck_assert(archive_db_commit(home.db, NULL));
	archive_db_close(home.db);
	sql(&home, SEARCH_GONE);
	open_db(&home);
	expect(&home, "old", "\"hits\":[],\"more\":false,\"indexing\":true");
	while (step(&home, false, T0, 500) == 0) {
		if (home.steps == 8) {
			ck_assert_uint_gt(hits(&home, "old"), 0);
			ck_assert_uint_eq(hits(&home, "oldest"), 0);
		}
	}
	ck_assert_uint_gt(home.steps, 12);
	ck_assert_uint_eq(hits(&home, "oldest"), 1);
	expect(&home, "oldest", "\"indexing\":false");
	end(&home);
}
END_TEST

START_TEST(what_comes_while_an_archive_is_taken_in_does_not_wait_for_the_rest)
{
	struct home home = {0};

	begin(&home);
	ck_assert(archive_db_begin(home.db, NULL));
	for (unsigned seq = 1; seq <= 2000; seq++)
		say(&home, claude, seq, "old");
	ck_assert(archive_db_commit(home.db, NULL));
	archive_db_close(home.db);
	sql(&home, SEARCH_GONE);
	open_db(&home);
	say(&home, codex, 1, "fresh");
	(void)step(&home, true, T0, SIZE_MAX);
	ck_assert_uint_eq(hits(&home, "fresh"), 1);
	expect(&home, "fresh", "\"indexing\":true");
	settle(&home);
	ck_assert_uint_eq(hits(&home, "fresh"), 1);
	ck_assert_uint_eq(hits(&home, "old"), 100);
	end(&home);
}
END_TEST

static const char *const damages[] = {
	"UPDATE found_data SET block = x'00ff00ff00ff' WHERE id > 10",
	"UPDATE found_data SET block = x'ffffffffffffffff' WHERE id = 10",
	"DELETE FROM found_data",
	"DELETE FROM found_config",
	"DELETE FROM found_idx; DELETE FROM found_data WHERE id > 10",
	"UPDATE found_config SET v = 99 WHERE k = 'version'",
	"UPDATE doc SET text = x'00', size = 4000",
};

START_TEST(an_index_that_broke_is_made_again_and_the_archive_stays)
{
	struct home home = {0};
	struct found found;

	begin(&home);
	for (unsigned seq = 1; seq <= 300; seq++)
		say(&home, claude, seq, "durable words");
	settle(&home);
	archive_db_close(home.db);
	sql(&home, damages[_i]);
	open_db(&home);
	found = find_page(&home, "durable", SEARCH_BEFORE_MAX, 10, NULL);
	archive_db_answer_finish(&found.answer);
	say(&home, claude, 301, "durable words");
	/* Words change, which meets the damage where the question did not. */
	chunk(&home, 302, "t1", "durable");
	settle(&home);
	{
		const struct archive_keep keep = {.age_ms = 1000};
		bool more = true;
		struct err err;

		while (more)
			ck_assert(
				archive_db_trim(home.db, &keep, T0 + 12000, &more, &err));
	}
	settle(&home);
	settle(&home);
	ck_assert_uint_eq(hits(&home, "durable"), 100);
	found = find_page(&home, "durable since:2026-11-30T12:05:00Z", SEARCH_BEFORE_MAX,
			  10, NULL);
	ck_assert(found.ok);
	ck_assert_uint_eq(count_of(found.answer.text, "\"snippet\":"), 3);
	archive_db_answer_finish(&found.answer);
	end(&home);
}
END_TEST

/* ---- what it costs ---- */

/* Pages that a question looks at. */
static int pages_for(struct home *home, const char *match)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *statement = NULL;
	int hit = 0, miss = 0, high;

	ck_assert_int_eq(sqlite3_open(home->path, &db), SQLITE_OK);
	ck_assert_int_eq(
		sqlite3_prepare_v2(db,
				   "SELECT rowid FROM found WHERE found MATCH ?1 ORDER BY"
				   " rowid DESC LIMIT 30",
				   -1, &statement, NULL),
		SQLITE_OK);
	(void)sqlite3_bind_text(statement, 1, match, -1, SQLITE_STATIC);
	(void)sqlite3_db_status(db, SQLITE_DBSTATUS_CACHE_HIT, &hit, &high, 1);
	(void)sqlite3_db_status(db, SQLITE_DBSTATUS_CACHE_MISS, &miss, &high, 1);
	while (sqlite3_step(statement) == SQLITE_ROW)
		;
	(void)sqlite3_db_status(db, SQLITE_DBSTATUS_CACHE_HIT, &hit, &high, 0);
	(void)sqlite3_db_status(db, SQLITE_DBSTATUS_CACHE_MISS, &miss, &high, 0);
	(void)sqlite3_finalize(statement);
	(void)sqlite3_close(db);
	return hit + miss;
}

static void fill(struct home *home, unsigned from, unsigned to)
{
	ck_assert(archive_db_begin(home->db, NULL));
	for (unsigned seq = from; seq < to; seq += 50) {
		struct buf text = {.max = 65535};
		struct err err;

		(void)buf_printf(&text,
				 "{\"seq\":%u,\"monotonicMs\":1,\"timestamp\":"
				 "\"2026-11-30T12:00:00.000Z\",\"kind\":\"batch\","
				 "\"agentIndex\":0,\"channelId\":\"" API
				 "\",\"sessionId\":\"s\",\"turnId\":null,"
				 "\"payload\":{\"events\":[",
				 seq + 49);
		for (unsigned i = seq; i < seq + 50; i++)
			(void)buf_printf(
				&text,
				"%s{\"seq\":%u,\"monotonicMs\":%u,\"timestamp\":"
				"\"2026-11-30T12:%02u:%02u.000Z\",\"kind\":\"note\","
				"\"agentIndex\":0,\"channelId\":\"" API
				"\",\"sessionId\":\"s\",\"turnId\":null,\"payload\":{"
				"\"text\":\"common word%u of%u\"}}",
				i > seq ? "," : "", i, i * 10, i / 60 % 60, i % 60,
				i % 200, i);
		(void)buf_printf(&text, "]},\"epoch\":\"" EPOCH "\",\"frame\":%u}",
				 seq / 50 + 1);
		if (!archive_db_frame(home->db, claude, EPOCH, seq / 50 + 1, T0,
				      buf_slice(&text), &err))
			ck_abort_msg("%s", err.text);
		buf_finish(&text);
	}
	ck_assert(archive_db_commit(home->db, NULL));
	settle(home);
}

START_TEST(a_question_costs_what_it_finds_not_what_there_is)
{
	static const char *const matches[] = {"common", "word77", "common AND word77",
					      "nowhere"};
	struct home home = {0};
	int before[4];
	struct err err;

	begin(&home);
	fill(&home, 1, 4001);
	ck_assert(archive_db_compact(home.db, &err));
	for (size_t i = 0; i < 4; i++)
		before[i] = pages_for(&home, matches[i]);
	fill(&home, 4001, 40001);
	ck_assert(archive_db_compact(home.db, &err));
	/* Ten times as much: the lists' trees may be a level higher. */
	for (size_t i = 0; i < 4; i++)
		if (pages_for(&home, matches[i]) > 3 * before[i] + 20)
			ck_abort_msg("%s: %d pages, %d before", matches[i],
				     pages_for(&home, matches[i]), before[i]);
	ck_assert_uint_eq(hits(&home, "common of39999"), 1);
	end(&home);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("search");
	TCase *tcase = tcase_create("index");

	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, a_word_that_came_in_two_events_is_found_in_one_row);
	tcase_add_test(tcase,
		       what_came_after_a_row_was_taken_in_is_found_and_nothing_twice);
	tcase_add_test(tcase, words_phrases_beginnings_and_filters);
	tcase_add_test(tcase, any_script_is_found_and_marked_as_it_was_written);
	tcase_add_test(tcase, nothing_typed_is_an_error_of_syntax);
	tcase_add_test(tcase, a_search_has_limits_that_it_names);
	tcase_add_test(tcase,
		       a_question_whose_time_is_over_is_answered_with_what_there_is);
	tcase_add_test(tcase, pages_go_back_in_time_and_have_every_row_once);
	tcase_add_test(tcase, more_rows_of_one_second_than_have_room_in_it_are_all_found);
	tcase_add_test(tcase, a_second_without_any_room_keeps_nothing_from_being_found);
	tcase_add_test(tcase, two_agents_that_say_the_same_are_told_apart);
	tcase_add_test(tcase, a_fetched_body_is_searched_in_place_of_what_was_cut);
	tcase_add_test(tcase,
		       a_hit_says_what_its_lane_is_called_by_the_newest_word_for_it);
	tcase_add_test(
		tcase,
		of_a_call_title_command_paths_and_the_ends_of_its_output_are_searched);
	tcase_add_test(tcase, what_is_let_go_of_is_not_found_from_that_moment_on);
	tcase_add_test(tcase, a_row_that_loses_its_beginning_is_found_by_what_is_left);
	tcase_add_test(tcase, the_words_of_what_was_forgotten_leave_the_file);
	tcase_add_test(
		tcase,
		an_index_that_is_most_of_the_archive_pushes_no_more_out_than_it_has_to);
	tcase_add_test(tcase, an_archive_from_before_is_taken_in_in_steps_newest_first);
	tcase_add_test(
		tcase,
		what_comes_while_an_archive_is_taken_in_does_not_wait_for_the_rest);
	tcase_add_loop_test(tcase,
			    an_index_that_broke_is_made_again_and_the_archive_stays, 0,
			    sizeof(damages) / sizeof(*damages));
	tcase_add_test(tcase, a_question_costs_what_it_finds_not_what_there_is);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
