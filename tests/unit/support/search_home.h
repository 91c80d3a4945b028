#ifndef TESTS_UNIT_SUPPORT_SEARCH_HOME_H
#define TESTS_UNIT_SUPPORT_SEARCH_HOME_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "observer/archive_db.h"
#include "tests/unit/support/support.h"

/* An archive in a folder of its own, and what its index finds. */

#define EPOCH "6a0000010000000a"
#define API "00000000-0000-4000-8000-0000000000a1"
#define T0 INT64_C(1796040000000)
#define DAY INT64_C(86400000)

static const uint8_t claude[KEY_BYTES] = {0xc1};
static const uint8_t codex[KEY_BYTES] = {0xc2};

/* An archive as it was before it had an index. */
#define SEARCH_GONE \
	"DROP TABLE found; DROP TABLE doc; DROP TABLE segment; DROP TABLE unindexed;" \
	"DROP TABLE known; CREATE TABLE forgotten(agent INTEGER NOT NULL," \
	" epoch TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL," \
	" PRIMARY KEY(agent, epoch, first)) WITHOUT ROWID;" \
	"PRAGMA user_version = 3"

struct home {
	char folder[64], path[96];
	struct archive_db *db;
	int64_t now; /* moves on, so that nothing is left to rest */
	size_t steps, most_done;
};

static inline void open_db(struct home *home)
{
	struct err err;

	home->db = archive_db_open(home->path, &err);
	if (!home->db)
		ck_abort_msg("%s", err.text);
}

static inline void begin(struct home *home)
{
	(void)snprintf(home->folder, sizeof(home->folder), "%s/perch-search-XXXXXX",
		       P_tmpdir);
	ck_assert_ptr_nonnull(mkdtemp(home->folder));
	(void)snprintf(home->path, sizeof(home->path), "%s/a.db", home->folder);
	open_db(home);
}

static inline void end(struct home *home)
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

static inline void sql(const struct home *home, const char *script)
{
	sqlite3 *db = NULL;
	char *message = NULL;

	ck_assert_int_eq(sqlite3_open(home->path, &db), SQLITE_OK);
	if (sqlite3_exec(db, script, NULL, NULL, &message) != SQLITE_OK)
		ck_abort_msg("%s", message);
	(void)sqlite3_close(db);
}

/* One event as a frame of its own, at T0 + @ms. */
static inline void event(struct home *home, const uint8_t *agent, unsigned seq,
			 int64_t ms, const char *kind, const char *turn,
			 const char *payload)
{
	struct buf text = {.max = 65535};
	char stamp[40];
	struct err err;

	ck_assert_int_lt(ms, 3600000);
	(void)snprintf(stamp, sizeof(stamp), "2026-11-30T12:%02d:%02d.%03dZ",
		       (int)(ms / 60000), (int)(ms / 1000 % 60), (int)(ms % 1000));
	(void)buf_printf(&text,
			 "{\"seq\":%u,\"monotonicMs\":%d,\"timestamp\":\"%s\",\"kind\":"
			 "\"%s\",\"agentIndex\":0,\"channelId\":\"" API
			 "\",\"sessionId\":\"s\",\"turnId\":",
			 seq, (int)ms, stamp, kind);
	(void)buf_printf(&text, turn ? "\"%s\"" : "null%s", turn ? turn : "");
	(void)buf_lit(&text, ",\"payload\":");
	(void)buf_append(&text, slice_of(payload));
	(void)buf_printf(&text, ",\"epoch\":\"" EPOCH "\",\"frame\":%u}", seq);
	if (!archive_db_frame(home->db, agent, EPOCH, seq, T0 + ms, buf_slice(&text),
			      &err))
		ck_abort_msg("%s", err.text);
	buf_finish(&text);
}

static inline void say(struct home *home, const uint8_t *agent, unsigned seq,
		       const char *text)
{
	char payload[4096];

	(void)snprintf(payload, sizeof(payload), "{\"text\":\"%s\"}", text);
	event(home, agent, seq, seq * 1000, "note", NULL, payload);
}

static inline void chunk(struct home *home, unsigned seq, const char *turn,
			 const char *text)
{
	char payload[4096];

	(void)snprintf(payload, sizeof(payload),
		       "{\"method\":\"session/update\",\"params\":{\"update\":{"
		       "\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":"
		       "\"text\",\"text\":\"%s\"}}}}",
		       text);
	event(home, claude, seq, seq * 1000, "acp_read", turn, payload);
}

/* One step of at most so many pieces, however long they take; when the next is due. */
static inline int64_t step(struct home *home, bool all_new, int64_t now, size_t most)
{
	struct search_pace pace = {.until_ms = INT64_MAX, .most = most};
	int64_t next = 0;
	struct err err;

	if (!archive_db_index(home->db, all_new, now, &pace, &next, &err))
		ck_abort_msg("%s", err.text);
	if (pace.done > home->most_done)
		home->most_done = pace.done;
	home->steps++;
	return next;
}

/* Until nothing is left to take in. */
static inline void settle_by(struct home *home, size_t most)
{
	home->now = (home->now ? home->now : T0) + 3600000;
	while (step(home, false, home->now, most) <= home->now) {
	}
}

static inline void settle(struct home *home)
{
	settle_by(home, SIZE_MAX);
}

struct found {
	struct archive_answer answer;
	struct err err;
	bool ok;
};

static inline struct found find_page(struct home *home, const char *words, int64_t before,
				     size_t limit, const uint8_t *agent)
{
	struct found found = {0};
	struct search_query query;
	struct search_question question = {.query = &query,
					   .before = before,
					   .limit = limit,
					   .agents = agent,
					   .agent_count = agent != NULL,
					   .until_ms = INT64_MAX};

	found.ok = search_query_parse(slice_of(words), T0 + DAY, &query, &found.err);
	if (found.ok) {
		found.ok =
			archive_db_search(home->db, &question, &found.answer, &found.err);
		search_query_finish(&query);
	}
	return found;
}

static inline unsigned count_of(const char *text, const char *what)
{
	unsigned count = 0;

	for (; text && (text = strstr(text, what)) != NULL; text++)
		count++;
	return count;
}

/* How many rows these words are in. */
static inline unsigned hits(struct home *home, const char *words)
{
	struct found found = find_page(home, words, SEARCH_BEFORE_MAX, 100, NULL);
	unsigned count;

	if (!found.ok)
		ck_abort_msg("%s: %s", words, found.err.text);
	count = count_of(found.answer.text, "\"snippet\":");
	archive_db_answer_finish(&found.answer);
	return count;
}

static inline void expect(struct home *home, const char *words, const char *part)
{
	struct found found = find_page(home, words, SEARCH_BEFORE_MAX, 100, NULL);

	if (!found.ok)
		ck_abort_msg("%s: %s", words, found.err.text);
	if (!strstr(found.answer.text, part))
		ck_abort_msg("%s: %s, not: %s", words, found.answer.text, part);
	archive_db_answer_finish(&found.answer);
}

#endif
