#include "observer/search_part.h"

#include <stdio.h>
#include <stdlib.h>

#include <sqlite3.h>

#include "observer/search_text.h"
#include "wire/base/map.h"
#include "wire/base/mem.h"
#include "wire/host/db.h"
#include "wire/host/loop.h"
#include "wire/nostr/crypto.h"
#include "wire/nostr/json.h"

#define PROGRESS_OPS 1000 /* of SQLite's machine between two looks at the clock */

static int is_late(void *ctx)
{
	const struct search *search = ctx;

	return loop_now_ms() >= search->until_ms;
}

/* The number of an agent in the archive; 0: it has nothing of it. */
static int64_t agent_number(struct search *search, const uint8_t *key)
{
	struct sqlite3_stmt *statement = search_begin(search, AGENT_OF);
	int64_t id = 0;

	(void)sqlite3_bind_blob64(statement, 1, key, KEY_BYTES, SQLITE_STATIC);
	if (sqlite3_step(statement) == SQLITE_ROW)
		id = sqlite3_column_int64(statement, 0);
	(void)sqlite3_reset(statement);
	return id;
}

static void write_about(struct search *search, const struct search_question *question,
			struct buf *match)
{
	match->max += 64 * (question->agent_count + 16);
	if (question->agent_count)
		(void)buf_printf(match, "%s(about : (", match->len ? " AND " : "");
	for (size_t i = 0; i < question->agent_count; i++)
		(void)buf_printf(match, "%s\"a%lld\"", i ? " OR " : "",
				 (long long)agent_number(search, question->agents +
									 i * KEY_BYTES));
	if (question->agent_count)
		(void)buf_lit(match, "))");
	if (!question->query->kinds)
		return;
	(void)buf_printf(match, "%s(about : (", match->len ? " AND " : "");
	for (int kind = 0, some = 0; kind <= ROW_RAW; kind++)
		if (question->query->kinds & 1u << kind)
			(void)buf_printf(match, "%s\"k%d\"", some++ ? " OR " : "", kind);
	(void)buf_lit(match, "))");
}

/* What the lane of the current hit is called; asked once for each lane of an answer. */
static void write_names(struct search *search, struct sqlite3_stmt *statement,
			struct map *names, struct buf *out)
{
	const int64_t agent = sqlite3_column_int64(statement, 10);
	const struct slice lane = db_column_text(statement, 2);
	struct buf key = {.max = lane.len + 32};
	struct buf members = {.max = 1u << 16};
	char *known;

	(void)buf_printf(&key, "%lld/", (long long)agent);
	(void)buf_append(&key, lane);
	known = map_get(names, buf_slice(&key));
	if (!known) {
		search->source.write_names(search->source.ctx, agent, lane, &members);
		known = mem_dup(buf_slice(&members));
		(void)map_put(names, buf_slice(&key), known);
	}
	(void)buf_append(out, *known ? SLICE(",") : SLICE_EMPTY);
	(void)buf_append(out, slice_of(known));
	buf_finish(&key);
	buf_finish(&members);
}

/* Columns HIT_COLUMNS. False for one that cannot be read. */
static bool write_hit(struct search *search, struct sqlite3_stmt *statement, bool comma,
		      struct map *names, struct buf *out)
{
	const struct slice lane = db_column_text(statement, 2);
	const struct slice place = db_column_text(statement, 4);
	const int64_t kind = sqlite3_column_int64(statement, 7);
	struct buf snippet = {.max = 64u << 10};
	struct slice text;
	char hex[2 * KEY_BYTES];
	bool first;

	if (sqlite3_column_bytes(statement, 1) != KEY_BYTES || place.len > 16 ||
	    kind < 0 || kind > ROW_RAW || !search_unpack(search, statement, 8))
		return false;
	hex_encode(sqlite3_column_blob(statement, 1), KEY_BYTES, hex);
	(void)buf_printf(out, "%s{\"id\":\"%lld\",\"agent\":\"%.*s\",\"lane\":\"%.*s/",
			 comma ? "," : "", (long long)sqlite3_column_int64(statement, 0),
			 (int)sizeof(hex), hex, (int)sizeof(hex), hex);
	(void)json_write_chars(out, lane);
	(void)buf_lit(out, "\"");
	write_names(search, statement, names, out);
	json_write_member_string(out, SLICE("row"), db_column_text(statement, 3));
	(void)buf_printf(out, ",\"pos\":\"%.*s/%016llu\"", SLICE_ARG(place),
			 (unsigned long long)sqlite3_column_int64(statement, 5));
	json_write_member_int(out, SLICE("t"), sqlite3_column_int64(statement, 6));
	json_write_member_string(out, SLICE("type"),
				 slice_of(row_type_name((enum row_type)kind)));
	text = buf_slice(&search->text);
	marker_snippet(search->marker, text, &snippet, &first);
	if (!first) {
		const struct slice line = slice_sub(text, 0, slice_find(text, '\n'));

		json_write_member_string(
			out, SLICE("title"),
			slice_sub(line, 0, utf8_floor(line, SEARCH_SNIPPET)));
	}
	json_write_member_raw(out, SLICE("snippet"), buf_slice(&snippet));
	(void)buf_lit(out, "}");
	buf_finish(&snippet);
	return true;
}

/* Writes the hits; says whether there are more, or that time ran out. */
static bool write_hits(struct search *search, struct sqlite3_stmt *statement,
		       size_t limit, struct buf *out, struct err *err)
{
	size_t count = 0;
	bool more = false;
	struct map_entry *entry = NULL;
	struct map names; /* lane → members */
	int64_t last = 0;
	int status;

	map_init(&names);
	(void)buf_lit(out, "{\"hits\":[");
	while ((status = sqlite3_step(statement)) == SQLITE_ROW) {
		if (count == limit) {
			more = true;
			break;
		}
		if (write_hit(search, statement, count > 0, &names, out)) {
			count++;
			last = sqlite3_column_int64(statement, 0);
		}
	}
	while ((entry = map_next(&names, entry)) != NULL)
		free(entry->value);
	map_finish(&names);
	if (status != SQLITE_ROW && status != SQLITE_DONE && status != SQLITE_INTERRUPT)
		return search_fail(search, "search", err);
	(void)buf_printf(out, "],\"more\":%s",
			 more || (status == SQLITE_INTERRUPT && count) ? "true"
								       : "false");
	if (count)
		(void)buf_printf(out, ",\"before\":\"%lld\"", (long long)last);
	if (status == SQLITE_INTERRUPT)
		(void)buf_lit(out, ",\"incomplete\":true");
	return true;
}

/* Is there anything from before that was not taken in yet? */
static bool is_behind(struct search *search)
{
	struct sqlite3_stmt *statement = search_begin(search, LOW_GET);
	bool behind = sqlite3_step(statement) == SQLITE_ROW;

	(void)sqlite3_reset(statement);
	return behind || search_earliest(search) == 0;
}

bool search_find(struct search *search, const struct search_question *question,
		 struct buf *out, struct err *err)
{
	const int64_t since_ms = question->query->since_ms;
	struct buf match = {0};
	struct sqlite3_stmt *statement;
	bool ok = marker_set(search->marker, question->query, &match, err);

	if (ok)
		write_about(search, question, &match);
	if (ok && !match.len && since_ms == INT64_MIN)
		ok = err_set(err, ERR_MALFORMED,
			     "there is nothing to look for: say a word");
	if (ok) {
		statement = search_begin(search, match.len ? FIND : LIST);
		if (match.len)
			db_bind_text(statement, 1, buf_slice(&match));
		(void)sqlite3_bind_int64(statement, 2, question->before);
		(void)sqlite3_bind_int64(statement, 3,
					 since_ms <= 0
						 ? 0
						 : (since_ms / 1000 < SEARCH_SECONDS_MAX
							    ? since_ms / 1000
							    : SEARCH_SECONDS_MAX)
							   << SEARCH_ID_BITS);
		(void)sqlite3_bind_int64(statement, 4, (int64_t)question->limit + 1);
		search->until_ms = question->until_ms;
		sqlite3_progress_handler(search->db, PROGRESS_OPS, is_late, search);
		ok = write_hits(search, statement, question->limit, out, err);
		sqlite3_progress_handler(search->db, 0, NULL, NULL);
		(void)sqlite3_reset(statement);
	}
	if (ok)
		(void)buf_printf(out, ",\"indexing\":%s}",
				 is_behind(search) ? "true" : "false");
	if (!ok && search->broken)
		(void)err_set(err, ERR_SYSTEM,
			      "the index of words was broken and is made again now: try "
			      "again in a moment");
	buf_finish(&match);
	return ok;
}
