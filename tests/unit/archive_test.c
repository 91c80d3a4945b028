#include "observer/archive_db.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "observer/model.h"
#include "tests/unit/support/support.h"
#include "wire/base/clock.h"
#include "wire/nostr/json.h"

#define EPOCH "6a0000010000000a"
#define LATER "6a0000020000000b"
#define API "00000000-0000-4000-8000-0000000000a1"
#define T0 1796040000000

static const uint8_t claude[KEY_BYTES] = {0xc1};

struct home {
	char folder[64], path[96];
	struct archive_db *db;
};

static void open_db(struct home *home)
{
	struct err err;

	home->db = archive_db_open(home->path, &err);
	ck_assert_msg(home->db != NULL, "%s", err.text);
}

static void begin(struct home *home)
{
	(void)snprintf(home->folder, sizeof(home->folder), "%s/perch-archive-XXXXXX",
		       P_tmpdir);
	ck_assert_ptr_nonnull(mkdtemp(home->folder));
	(void)snprintf(home->path, sizeof(home->path), "%s/a.db", home->folder);
	open_db(home);
}

static void end(struct home *home)
{
	static const char *const names[] = {"", "-wal", "-shm"};
	char path[128];

	archive_db_close(home->db);
	for (size_t i = 0; i < 3; i++) {
		(void)snprintf(path, sizeof(path), "%s%s", home->path, names[i]);
		(void)unlink(path);
	}
	ck_assert_int_eq(rmdir(home->folder), 0);
}

/* One event as a frame of its own. */
static void event(struct home *home, const char *epoch, unsigned seq, const char *kind,
		  const char *turn, const char *payload)
{
	struct buf text = {.max = 65535};
	struct err err;

	(void)buf_printf(&text,
			 "{\"seq\":%u,\"monotonicMs\":%u,\"timestamp\":"
			 "\"2026-11-30T12:00:00.000Z\",\"kind\":\"%s\",\"agentIndex\":0,"
			 "\"channelId\":\"" API "\",\"sessionId\":\"s\",\"turnId\":",
			 seq, seq, kind);
	(void)buf_printf(&text, turn ? "\"%s\"" : "null%s", turn ? turn : "");
	(void)buf_printf(&text, ",\"payload\":%s,\"epoch\":\"%s\",\"frame\":%u}", payload,
			 epoch, seq);
	ck_assert_msg(archive_db_frame(home->db, claude, epoch, seq, T0, buf_slice(&text),
				       &err),
		      "%s", err.text);
	buf_finish(&text);
}

static void note(struct home *home, unsigned seq)
{
	event(home, EPOCH, seq, "note", NULL, "{\"text\":\"n\"}");
}

static struct archive_answer rows(struct home *home, const char *before, size_t limit)
{
	struct archive_answer answer = {0};
	struct pos pos;
	struct err err;

	if (before)
		ck_assert(pos_parse(slice_of(before), &pos));
	ck_assert(archive_db_rows(home->db, claude, SLICE(API), before ? &pos : NULL,
				  limit, &answer, &err));
	return answer;
}

START_TEST(the_file_is_its_owners_alone)
{
	struct home home = {0};
	struct stat info;

	begin(&home);
	ck_assert_int_eq(stat(home.path, &info), 0);
	ck_assert_uint_eq(info.st_mode & 0777, 0600);
	end(&home);
}
END_TEST

START_TEST(an_event_comes_back_byte_for_byte)
{
	struct home home = {0};
	struct archive_answer answer = {0};
	const struct pos pos = {EPOCH, 7};
	struct err err;

	begin(&home);
	event(&home, EPOCH, 7, "note", NULL,
	      "{\"text\":\"a\\u00e9 \xc3\xa9\",\"n\":1.50}");
	ck_assert(archive_db_event(home.db, claude, &pos, &answer, &err));
	ck_assert(slice_find_slice((struct slice){answer.text, answer.text_len},
				   SLICE("{\"text\":\"a\\u00e9 \xc3\xa9\",\"n\":1.50}")) <
		  answer.text_len);
	archive_db_answer_finish(&answer);
	end(&home);
}
END_TEST

START_TEST(an_event_that_is_not_there_is_not_found)
{
	struct home home = {0};
	struct archive_answer answer = {0};
	const struct pos pos = {EPOCH, 7};
	struct err err;

	begin(&home);
	ck_assert(!archive_db_event(home.db, claude, &pos, &answer, &err));
	ck_assert_int_eq(err.code, ERR_NOT_FOUND);
	end(&home);
}
END_TEST

static struct archive_answer raw(struct home *home, struct pos from, struct pos to,
				 size_t limit, size_t cut)
{
	struct archive_answer answer = {0};
	const struct raw_query query = {from, to, limit, cut};
	struct err err;

	ck_assert_msg(archive_db_raw(home->db, claude, SLICE(API), &query, &answer, &err),
		      "%s", err.text);
	ck_assert(json_check((struct slice){answer.text, answer.text_len}, NULL, NULL));
	return answer;
}

static void assert_says(struct archive_answer answer, const char *text)
{
	const struct slice all = {answer.text, answer.text_len};

	ck_assert_msg(slice_find_slice(all, slice_of(text)) < all.len, "no %s in %.*s",
		      text, SLICE_ARG(slice_sub(all, 0, 2000)));
	archive_db_answer_finish(&answer);
}

START_TEST(raw_lines_are_those_of_the_stretch_as_they_were)
{
	const struct pos first = {"", 0}, three = {EPOCH, 3}, last = {"~", 0};
	struct home home = {0};

	begin(&home);
	event(&home, EPOCH, 1, "turn_started", "t1", "{\"promptId\":1}");
	event(&home, EPOCH, 2, "acp_read", "t1",
	      "{\"method\":\"session/update\", \"params\":{\"update\":{"
	      "\"sessionUpdate\":\"plan\"}}}");
	event(&home, EPOCH, 3, "acp_write", "t1", "{\"id\":1,\"result\":{}}");
	event(&home, LATER, 1, "note", NULL, "{\"text\":\"later\"}");
	assert_says(raw(&home, first, three, 9, 99),
		    "{\"lines\":[{\"pos\":\"" EPOCH "/0000000000000001\",\"t\":");
	assert_says(raw(&home, first, three, 9, 999),
		    "\"kind\":\"acp_read\",\"direction\":\"read\",\"name\":"
		    "\"session/update plan\",\"bytes\":73,\"text\":\"{\\\"method\\\":"
		    "\\\"session/update\\\", \\\"params");
	assert_says(raw(&home, first, three, 9, 99), "}],\"next\":null}");
	assert_says(raw(&home, three, last, 9, 5),
		    "\"direction\":\"write\",\"name\":\"result\",\"bytes\":20,"
		    "\"text\":\"{\\\"id\\\"\"},{\"pos\":\"" LATER "/");
	assert_says(raw(&home, three, three, 9, 5), "{\"lines\":[],\"next\":null}");
	end(&home);
}
END_TEST

START_TEST(raw_lines_come_in_answers_that_end)
{
	const struct pos first = {"", 0}, last = {"~", 0};
	struct home home = {0};
	struct buf big = {.max = 65535};

	begin(&home);
	(void)buf_lit(&big, "{\"text\":\"");
	for (unsigned i = 0; i < 60000; i++)
		(void)buf_lit(&big, "x");
	(void)buf_lit(&big, "\"}");
	for (unsigned seq = 1; seq <= 30; seq++)
		event(&home, EPOCH, seq, "note", NULL, buf_text(&big));
	assert_says(raw(&home, first, last, 2, 9),
		    "],\"next\":\"" EPOCH "/0000000000000003\"}");
	assert_says(raw(&home, first, last, 30, 9), "],\"next\":null}");
	/* 18 of them are a MiB and a little. */
	assert_says(raw(&home, first, last, 30, RAW_CUT_MAX),
		    "],\"next\":\"" EPOCH "/0000000000000019\"}");
	buf_finish(&big);
	end(&home);
}
END_TEST

START_TEST(a_frame_stored_twice_is_there_once)
{
	struct home home = {0};
	struct archive_answer answer;

	begin(&home);
	note(&home, 1);
	note(&home, 1);
	answer = rows(&home, NULL, 10);
	ck_assert_uint_eq(answer.row_count, 1);
	archive_db_answer_finish(&answer);
	end(&home);
}
END_TEST

START_TEST(pages_join_from_the_newest_to_the_first)
{
	struct home home = {0};
	char before[POS_LEN + 1];
	unsigned next = 1500, pages = 0;
	bool more = true;

	begin(&home);
	ck_assert(archive_db_begin(home.db, NULL));
	for (unsigned seq = 1; seq <= 1500; seq++)
		note(&home, seq);
	ck_assert(archive_db_commit(home.db, NULL));
	for (; more; pages++) {
		struct archive_answer answer = rows(&home, pages ? before : NULL, 400);

		for (size_t i = answer.row_count; i-- > 0;)
			ck_assert_uint_eq(answer.rows[i].pos.seq, next--);
		pos_format(&answer.rows[0].pos, before);
		more = answer.more;
		archive_db_answer_finish(&answer);
	}
	ck_assert_uint_eq(next, 0);
	ck_assert_uint_eq(pages, 4);
	end(&home);
}
END_TEST

START_TEST(a_turn_is_derived_whole_even_where_a_page_begins_inside_it)
{
	struct home home = {0};
	struct archive_answer answer;

	begin(&home);
	event(&home, EPOCH, 1, "turn_started", "t1",
	      "{\"promptId\":\"p\",\"source\":\"owner\"}");
	event(&home, EPOCH, 2, "acp_read", "t1",
	      "{\"method\":\"session/update\",\"params\":{\"update\":{\"sessionUpdate\":"
	      "\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"Hel\"}}}"
	      "}");
	event(&home, EPOCH, 3, "acp_read", "t1",
	      "{\"method\":\"session/update\",\"params\":{\"update\":{\"sessionUpdate\":"
	      "\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"lo\"}}}"
	      "}");
	answer = rows(&home, EPOCH "/0000000000000003", 1);
	ck_assert_uint_eq(answer.row_count, 1);
	ck_assert_ptr_nonnull(strstr(answer.rows[0].json, "\"text\":\"Hello\""));
	ck_assert(answer.more);
	archive_db_answer_finish(&answer);
	end(&home);
}
END_TEST

START_TEST(a_newer_epoch_ends_what_an_older_one_left_open)
{
	struct home home = {0};
	struct archive_answer answer;

	begin(&home);
	event(&home, EPOCH, 1, "turn_started", "t1", "{\"promptId\":\"p\"}");
	event(&home, LATER, 1, "note", NULL, "{\"text\":\"n\"}");
	answer = rows(&home, LATER "/0000000000000001", 10);
	ck_assert_uint_eq(answer.row_count, 1);
	ck_assert_ptr_nonnull(strstr(answer.rows[0].json, "\"state\":\"failed\""));
	archive_db_answer_finish(&answer);
	end(&home);
}
END_TEST

START_TEST(a_fetched_body_takes_the_place_of_what_was_cut)
{
	struct home home = {0};
	struct archive_answer answer;
	struct err err;

	begin(&home);
	note(&home, 1);
	ck_assert(archive_db_body(home.db, claude, EPOCH, 1,
				  SLICE("{\"seq\":1,\"timestamp\":\"2026-11-30T12:00:00."
					"000Z\",\"kind\":\"note\","
					"\"agentIndex\":0,\"channelId\":\"" API
					"\",\"sessionId\":null,\"turnId\":null,"
					"\"payload\":{\"text\":\"whole\"}}"),
				  &err));
	answer = rows(&home, NULL, 10);
	ck_assert_ptr_nonnull(strstr(answer.rows[0].json, "\"text\":\"whole\""));
	archive_db_answer_finish(&answer);
	end(&home);
}
END_TEST

START_TEST(the_reducer_and_the_archive_make_the_same_rows)
{
	static const char *const texts[] = {
		"{\"promptId\":\"p\",\"source\":\"owner\",\"text\":\"go\"}",
		"{\"method\":\"session/"
		"update\",\"params\":{\"update\":{\"sessionUpdate\":"
		"\"tool_call\",\"toolCallId\":\"c\",\"title\":\"T\"}}}",
		"{\"promptId\":\"p\",\"stopReason\":\"end_turn\"}"};
	static const char *const kinds[] = {"turn_started", "acp_read", "turn_completed"};
	struct home home = {0};
	struct model *model = model_create();
	struct archive_answer answer;
	struct buf all = {.max = 1u << 20};

	begin(&home);
	for (unsigned i = 0; i < 3; i++) {
		struct archive_answer found = {0};
		const struct pos pos = {EPOCH, i + 1};
		struct observer_event read;
		const struct model_event in = {
			.agent = claude, .epoch = EPOCH, .event = &read};

		event(&home, EPOCH, i + 1, kinds[i], "t1", texts[i]);
		ck_assert(archive_db_event(home.db, claude, &pos, &found, NULL));
		ck_assert(observer_event_parse((struct slice){found.text, found.text_len},
					       &read, NULL));
		ck_assert(model_apply(model, &in));
		archive_db_answer_finish(&found);
	}
	model_settle(model, T0);
	ck_assert(model_write_rows(model, claude, SLICE(API), NULL, 100, &all));
	answer = rows(&home, NULL, 100);
	ck_assert_uint_eq(answer.row_count, 3);
	for (size_t i = 0; i < answer.row_count; i++)
		ck_assert_msg(strstr(buf_text(&all), answer.rows[i].json) != NULL, "%s",
			      answer.rows[i].json);
	archive_db_answer_finish(&answer);
	buf_finish(&all);
	model_destroy(model);
	end(&home);
}
END_TEST

/* ---- starting again ---- */

struct loaded {
	unsigned events, gone;
	struct pos floor;
	unsigned known, ranges;
	int64_t last_ms;
};

static void on_gone(void *ctx, const uint8_t *agent, const char *epoch,
		    struct gone_range gone)
{
	(void)agent;
	(void)epoch;
	((struct loaded *)ctx)->gone +=
		(unsigned)(gone.range.last - gone.range.first + 1);
	ck_assert_int_eq(gone.why, GONE_DISK);
}

static void on_known(void *ctx, const uint8_t *agent, const char *epoch,
		     struct frame_range range)
{
	struct loaded *loaded = ctx;

	(void)agent;
	(void)epoch;
	loaded->ranges++;
	loaded->known += (unsigned)(range.last - range.first + 1);
}

static void on_event(void *ctx, const uint8_t *agent, const char *epoch,
		     struct slice text, int64_t received_ms)
{
	(void)agent;
	(void)epoch;
	(void)text;
	(void)received_ms;
	((struct loaded *)ctx)->events++;
}

static void on_floor(void *ctx, const uint8_t *agent, struct slice channel,
		     const struct pos *pos)
{
	(void)agent;
	(void)channel;
	((struct loaded *)ctx)->floor = *pos;
}

static void on_last(void *ctx, const uint8_t *agent, int64_t last_ms)
{
	if (memcmp(agent, claude, KEY_BYTES) == 0)
		((struct loaded *)ctx)->last_ms = last_ms;
}

START_TEST(a_start_knows_all_frame_numbers_but_only_the_newest_events)
{
	const struct archive_loader loader = {on_known, on_gone, on_event, on_floor,
					      on_last};
	struct loaded loaded = {0};
	struct home home = {0};
	struct err err;

	begin(&home);
	ck_assert(archive_db_begin(home.db, &err));
	for (unsigned seq = 1; seq <= 2000; seq++)
		note(&home, seq);
	ck_assert(archive_db_gone(home.db, claude, EPOCH,
				  (struct gone_range){{2001, 2003}, GONE_DISK}, &err));
	ck_assert(archive_db_commit(home.db, &err));
	archive_db_close(home.db);
	open_db(&home);
	ck_assert(archive_db_load(home.db, &loader, &loaded, &err));
	ck_assert_uint_eq(loaded.known, 2000);
	ck_assert_uint_eq(loaded.ranges, 1);
	ck_assert_uint_eq(loaded.gone, 3);
	ck_assert_uint_lt(loaded.events, 1000);
	ck_assert_uint_ge(loaded.events, 300);
	ck_assert_uint_eq(loaded.floor.seq, 1700);
	ck_assert_int_eq(loaded.last_ms, T0);
	end(&home);
}
END_TEST

static struct loaded load_all(struct home *home)
{
	const struct archive_loader loader = {on_known, on_gone, on_event, on_floor,
					      on_last};
	struct loaded loaded = {0};
	struct err err = {0};

	ck_assert(archive_db_load(home->db, &loader, &loaded, &err));
	return loaded;
}

/* A word of the harness about itself, @ms behind T0. */
static void word(struct home *home, unsigned seq, const char *kind, int64_t ms)
{
	struct buf text = {.max = 65535};
	char stamp[CLOCK_RFC3339_LEN + 1];
	struct err err;

	clock_format(T0 + ms, stamp);
	(void)buf_printf(
		&text,
		"{\"seq\":%u,\"monotonicMs\":%u,\"timestamp\":\"%s\",\"kind\":"
		"\"%s\",\"agentIndex\":null,\"channelId\":null,\"sessionId\":null,"
		"\"turnId\":null,\"payload\":{},\"epoch\":\"" EPOCH "\",\"frame\":%u}",
		seq, seq, stamp, kind, seq);
	ck_assert_msg(archive_db_frame(home->db, claude, EPOCH, seq, T0 + 86400000,
				       buf_slice(&text), &err),
		      "%s", err.text);
	buf_finish(&text);
}

static int64_t open_ms(struct home *home, int64_t now_ms)
{
	struct archive_life life;

	archive_db_life(home->db, claude, now_ms, &life);
	ck_assert_str_eq(life.epoch, EPOCH);
	return life.open_ms;
}

/* By its own clock, whenever its frames came here. */
START_TEST(an_agent_was_last_heard_by_its_newest_frame_also_one_without_a_row)
{
	struct home home = {0};

	begin(&home);
	word(&home, 1, "harness_started", 0);
	note(&home, 2);
	ck_assert_int_eq(open_ms(&home, T0 + 74999), INT64_MAX);
	ck_assert_int_eq(open_ms(&home, T0 + 75000), T0);
	word(&home, 3, "feed_state", 60000);
	ck_assert_int_eq(open_ms(&home, T0 + 75000), INT64_MAX);
	ck_assert_int_eq(open_ms(&home, T0 + 200000), T0 + 60000);
	ck_assert_int_eq(load_all(&home).last_ms, T0 + 60000);
	/* One that said that it stops is gone at once. */
	word(&home, 4, "harness_stopping", 61000);
	ck_assert_int_eq(open_ms(&home, T0 + 62000), T0 + 61000);
	/* Of what says that it will be nothing is known. */
	ck_assert_int_eq(open_ms(&home, T0 + 60500), T0 + 60500);
	word(&home, 5, "harness_started", 63000);
	ck_assert_int_eq(open_ms(&home, T0 + 64000), INT64_MAX);
	end(&home);
}
END_TEST

START_TEST(a_frame_that_was_given_up_and_comes_is_no_gap_any_more)
{
	struct home home = {0};
	struct loaded loaded;
	struct err err;

	begin(&home);
	ck_assert(archive_db_gone(home.db, claude, EPOCH,
				  (struct gone_range){{2, 6}, GONE_DISK}, &err));
	note(&home, 1);
	ck_assert_uint_eq(load_all(&home).gone, 5);
	note(&home, 4);
	ck_assert_uint_eq(load_all(&home).gone, 4);
	note(&home, 2);
	note(&home, 6);
	note(&home, 6);
	loaded = load_all(&home);
	ck_assert_uint_eq(loaded.gone, 2); /* 3 and 5 */
	ck_assert_uint_eq(loaded.known, 4);
	ck_assert_uint_eq(loaded.ranges, 3); /* 1 and 2, 4, 6 */
	note(&home, 3);
	note(&home, 5);
	loaded = load_all(&home);
	ck_assert_uint_eq(loaded.known, 6);
	ck_assert_uint_eq(loaded.ranges, 1);
	end(&home);
}
END_TEST

static void trim_all(struct home *home, const struct archive_keep *keep, int64_t now_ms)
{
	bool more = true;
	struct err err;

	while (more)
		ck_assert_msg(archive_db_trim(home->db, keep, now_ms, &more, &err), "%s",
			      err.text);
}

START_TEST(what_is_too_old_goes_and_its_numbers_stay_known)
{
	const struct archive_keep keep = {.age_ms = 1000};
	struct home home = {0};
	struct archive_answer answer;
	struct loaded loaded;

	begin(&home);
	for (unsigned seq = 1; seq <= 200; seq++)
		note(&home, seq);
	trim_all(&home, &keep, T0 + 1000);
	answer = rows(&home, NULL, 1000);
	ck_assert_uint_eq(answer.row_count, 200);
	archive_db_answer_finish(&answer);
	trim_all(&home, &keep, T0 + 1001);
	loaded = load_all(&home);
	ck_assert_uint_eq(loaded.events, 0);
	ck_assert_uint_eq(loaded.known, 200);
	ck_assert_uint_eq(loaded.ranges, 1);
	ck_assert_uint_eq(loaded.gone, 0);
	end(&home);
}
END_TEST

/* A text that does not compress. */
static void loud(struct home *home, const uint8_t *agent, unsigned number)
{
	struct buf text = {.max = 65535};
	uint32_t noise = number * 2654435761u + agent[0];
	struct err err;

	(void)buf_printf(&text,
			 "{\"seq\":%u,\"monotonicMs\":1,\"timestamp\":"
			 "\"2026-11-30T12:00:00.000Z\",\"kind\":\"note\","
			 "\"agentIndex\":0,\"channelId\":\"" API
			 "\",\"sessionId\":\"s\",\"turnId\":null,\"payload\":{"
			 "\"text\":\"",
			 number);
	for (unsigned i = 0; i < 1000; i++) {
		noise = noise * 1664525u + 1013904223u;
		(void)buf_printf(&text, "%08x", noise);
	}
	(void)buf_printf(&text, "\"},\"epoch\":\"" EPOCH "\",\"frame\":%u}", number);
	ck_assert_msg(archive_db_frame(home->db, agent, EPOCH, number, T0 + number,
				       buf_slice(&text), &err),
		      "%s", err.text);
	buf_finish(&text);
}

static size_t rows_of(struct home *home, const uint8_t *agent)
{
	struct archive_answer answer = {0};
	size_t count;
	struct err err;

	ck_assert(
		archive_db_rows(home->db, agent, SLICE(API), NULL, 1000, &answer, &err));
	count = answer.row_count;
	archive_db_answer_finish(&answer);
	return count;
}

START_TEST(size_takes_the_oldest_of_whoever_has_most)
{
	static const uint8_t quiet[KEY_BYTES] = {0xc2};
	const struct archive_keep keep = {.bytes = 1 << 20};
	struct home home = {0};
	size_t left;

	begin(&home);
	for (unsigned number = 1; number <= 5; number++)
		loud(&home, quiet, number); /* the oldest of all */
	for (unsigned number = 11; number <= 410; number++)
		loud(&home, claude, number);
	trim_all(&home, &keep, T0);
	left = rows_of(&home, claude);
	ck_assert_uint_eq(rows_of(&home, quiet), 5);
	ck_assert_uint_gt(left, 50);
	ck_assert_uint_lt(left, 300);
	ck_assert_uint_eq(load_all(&home).known, 405);
	end(&home);
}
END_TEST

START_TEST(what_is_forgotten_is_gone_and_nothing_else)
{
	struct home home = {0};
	struct archive_answer answer;
	uint64_t count = 0;
	bool more = true;
	struct err err;

	begin(&home);
	for (unsigned seq = 1; seq <= 3; seq++)
		note(&home, seq);
	ck_assert(archive_db_forget(home.db, claude, SLICE("another"), INT64_MAX, &count,
				    &more, &err));
	ck_assert_uint_eq(count, 0);
	ck_assert(!more);
	ck_assert(archive_db_forget(home.db, claude, SLICE_EMPTY, T0 - 86400000LL * 3650,
				    &count, &more, &err));
	ck_assert_uint_eq(count, 0);
	ck_assert(archive_db_forget(home.db, claude, SLICE(API), INT64_MAX, &count, &more,
				    &err));
	ck_assert_uint_eq(count, 3);
	answer = rows(&home, NULL, 10);
	ck_assert_uint_eq(answer.row_count, 0);
	archive_db_answer_finish(&answer);
	ck_assert_uint_eq(load_all(&home).known, 3);
	end(&home);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("archive");
	TCase *tcase = tcase_create("database");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, the_file_is_its_owners_alone);
	tcase_add_test(tcase, an_event_comes_back_byte_for_byte);
	tcase_add_test(tcase, an_event_that_is_not_there_is_not_found);
	tcase_add_test(tcase, raw_lines_are_those_of_the_stretch_as_they_were);
	tcase_add_test(tcase, raw_lines_come_in_answers_that_end);
	tcase_add_test(tcase, a_frame_stored_twice_is_there_once);
	tcase_add_test(tcase, pages_join_from_the_newest_to_the_first);
	tcase_add_test(tcase, a_turn_is_derived_whole_even_where_a_page_begins_inside_it);
	tcase_add_test(tcase, a_newer_epoch_ends_what_an_older_one_left_open);
	tcase_add_test(tcase, a_fetched_body_takes_the_place_of_what_was_cut);
	tcase_add_test(tcase, the_reducer_and_the_archive_make_the_same_rows);
	tcase_add_test(tcase, a_start_knows_all_frame_numbers_but_only_the_newest_events);
	tcase_add_test(
		tcase,
		an_agent_was_last_heard_by_its_newest_frame_also_one_without_a_row);
	tcase_add_test(tcase, a_frame_that_was_given_up_and_comes_is_no_gap_any_more);
	tcase_add_test(tcase, what_is_too_old_goes_and_its_numbers_stay_known);
	tcase_add_test(tcase, size_takes_the_oldest_of_whoever_has_most);
	tcase_add_test(tcase, what_is_forgotten_is_gone_and_nothing_else);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
