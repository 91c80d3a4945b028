#include "observer/archive_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <sqlite3.h>
#include <zstd.h>

#include "observer/acp.h"
#include "wire/base/arena.h"
#include "wire/base/mem.h"
#include "wire/host/db.h"
#include "wire/host/log.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip19.h"

#define TEXT_MAX (16u << 20) /* of a frame or a fetched body */
#define BUSY_MS 5000
#define NAME_BYTES_MAX 256 /* that are shown of a name; our choice */
#define PROGRESS_FRAMES 1000

struct archive_reader {
	struct sqlite3 *db;
	struct sqlite3_stmt *body;
	struct arena arena;
	struct buf frame, whole;
};

struct archive_reader *archive_reader_open(const char *path, struct err *err)
{
	struct archive_reader *reader;
	struct stat info;
	sqlite3 *db = NULL;

	if (stat(path, &info) < 0) {
		(void)err_set(err, ERR_NOT_FOUND,
			      errno == ENOENT ? "no archive here yet: the observer makes "
						"it (%s)"
					      : "%s cannot be read",
			      path);
		return NULL;
	}
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX,
			    NULL) != SQLITE_OK) {
		(void)db_fail(db, err, "open the archive");
		(void)sqlite3_close_v2(db);
		return NULL;
	}
	(void)sqlite3_busy_timeout(db, BUSY_MS);
	reader = mem_alloc(sizeof(*reader));
	reader->db = db;
	arena_init(&reader->arena, 1u << 16);
	reader->frame.max = reader->whole.max = TEXT_MAX;
	/* One transaction: what the observer adds meanwhile is not seen. */
	if (!db_exec(db, "PRAGMA trusted_schema = OFF; BEGIN", err) ||
	    !db_prepare(db,
			"SELECT size, text FROM body WHERE agent = ?1 AND epoch = ?2 AND "
			"seq = ?3",
			&reader->body, err)) {
		archive_reader_close(reader);
		return NULL;
	}
	return reader;
}

void archive_reader_close(struct archive_reader *reader)
{
	if (!reader)
		return;
	(void)sqlite3_finalize(reader->body);
	(void)sqlite3_close_v2(reader->db);
	arena_finish(&reader->arena);
	buf_wipe(&reader->frame);
	buf_wipe(&reader->whole);
	free(reader);
}

/* From columns (size, blob) from @at on. */
static bool unpack(struct sqlite3_stmt *statement, int at, struct buf *out)
{
	const int64_t size = sqlite3_column_int64(statement, at);
	const void *blob = sqlite3_column_blob(statement, at + 1);
	const size_t blob_len = (size_t)sqlite3_column_bytes(statement, at + 1);
	size_t len;

	buf_clear(out);
	if (size <= 0 || (uint64_t)size > out->max || !buf_reserve(out, (size_t)size))
		return false;
	len = ZSTD_decompress(out->ptr, (size_t)size, blob, blob_len);
	if (ZSTD_isError(len) || len != (size_t)size)
		return false;
	out->len = len;
	return true;
}

static bool column_epoch(struct sqlite3_stmt *statement, int at, char out[17])
{
	const unsigned char *text = sqlite3_column_text(statement, at);
	const int len = sqlite3_column_bytes(statement, at);

	if (!text || len > 16)
		return false;
	memcpy(out, text, (size_t)len + 1);
	return true;
}

/* ---- names ---- */

/* The newest word of every harness about itself: columns key, size, body, offset, len. */
static const char words_query[] =
	"SELECT a.key, f.size, f.body, e.offset, e.len FROM agent a JOIN event e ON e.id "
	"="
	" (SELECT id FROM event WHERE agent = a.id AND channel = '' AND kind ="
	" 'harness_started' ORDER BY place DESC, seq DESC LIMIT 1)"
	" JOIN frame f ON f.id = e.frame ORDER BY a.id";

/* The payload of the current row of words_query; ptr NULL: unreadable. */
static struct slice words_payload(struct archive_reader *reader,
				  struct sqlite3_stmt *statement)
{
	const uint64_t offset = (uint64_t)sqlite3_column_int64(statement, 3);
	const uint64_t len = (uint64_t)sqlite3_column_int64(statement, 4);

	if (sqlite3_column_bytes(statement, 0) != KEY_BYTES ||
	    !unpack(statement, 1, &reader->frame) || offset > reader->frame.len ||
	    len > reader->frame.len - offset)
		return SLICE_EMPTY;
	return acp_get(slice_sub(buf_slice(&reader->frame), offset, offset + len),
		       "payload");
}

bool archive_reader_agent(struct archive_reader *reader, struct slice name,
			  uint8_t agent[KEY_BYTES], struct err *err)
{
	struct sqlite3_stmt *statement = NULL;
	char quoted[LOG_QUOTE_BYTES];
	size_t found = 0;

	if (nip19_parse_pubkey(name, agent, NULL))
		return true;
	if (!db_prepare(reader->db, words_query, &statement, err))
		return false;
	while (sqlite3_step(statement) == SQLITE_ROW) {
		const struct slice payload = words_payload(reader, statement);

		if (payload.ptr && json_is(acp_get_string(payload, "name"), name)) {
			memcpy(agent, sqlite3_column_blob(statement, 0), KEY_BYTES);
			found++;
		}
	}
	(void)sqlite3_finalize(statement);
	if (found == 1)
		return true;
	return err_set(err, found ? ERR_REFUSED : ERR_NOT_FOUND,
		       found ? "%.60s: several agents have that name: say which by its "
			       "npub"
			     : "%.60s: the archive has no such agent",
		       log_quote(name, quoted));
}

void archive_reader_names(struct archive_reader *reader, const uint8_t *agent,
			  struct slice channel, struct buf *name,
			  struct buf *channel_name)
{
	struct sqlite3_stmt *statement = NULL;

	buf_clear(name);
	buf_clear(channel_name);
	if (!db_prepare(reader->db, words_query, &statement, NULL))
		return;
	while (sqlite3_step(statement) == SQLITE_ROW) {
		struct slice payload, rest, item;

		if (sqlite3_column_bytes(statement, 0) != KEY_BYTES ||
		    memcmp(sqlite3_column_blob(statement, 0), agent, KEY_BYTES) != 0)
			continue;
		payload = words_payload(reader, statement);
		rest = acp_get(payload, "channels");
		acp_set_text(name, acp_get_string(payload, "name"), NAME_BYTES_MAX);
		while (acp_next(&rest, &item))
			if (slice_eq(acp_get_string(item, "id"), channel))
				acp_set_text(channel_name, acp_get_string(item, "name"),
					     NAME_BYTES_MAX);
	}
	(void)sqlite3_finalize(statement);
}

size_t archive_reader_agents(struct archive_reader *reader, uint8_t out[][KEY_BYTES],
			     size_t max)
{
	struct sqlite3_stmt *statement = NULL;
	size_t count = 0;

	if (!db_prepare(reader->db, "SELECT key FROM agent ORDER BY id", &statement,
			NULL))
		return 0;
	while (count < max && sqlite3_step(statement) == SQLITE_ROW)
		if (sqlite3_column_bytes(statement, 0) == KEY_BYTES)
			memcpy(out[count++], sqlite3_column_blob(statement, 0),
			       KEY_BYTES);
	(void)sqlite3_finalize(statement);
	return count;
}

bool archive_reader_channel(struct archive_reader *reader, const uint8_t *agent,
			    struct slice name, struct buf *out, struct err *err)
{
	struct sqlite3_stmt *statement = NULL;
	char quoted[LOG_QUOTE_BYTES];
	bool found = false;

	buf_clear(out);
	if (!db_prepare(reader->db, "SELECT 1 FROM lane WHERE channel = ?1 LIMIT 1",
			&statement, err))
		return false;
	(void)sqlite3_bind_text64(statement, 1, name.ptr, name.len, SQLITE_STATIC,
				  SQLITE_UTF8);
	if (sqlite3_step(statement) == SQLITE_ROW)
		found = buf_append(out, name);
	(void)sqlite3_finalize(statement);
	if (found)
		return true;
	if (!db_prepare(reader->db, words_query, &statement, err))
		return false;
	while (!found && sqlite3_step(statement) == SQLITE_ROW) {
		struct slice payload = words_payload(reader, statement), item;
		struct slice rest = acp_get(payload, "channels");

		if (!payload.ptr || (agent && memcmp(sqlite3_column_blob(statement, 0),
						     agent, KEY_BYTES) != 0))
			continue;
		while (!found && acp_next(&rest, &item))
			if (json_is(acp_get_string(item, "name"), name))
				found = buf_append(out, acp_get_string(item, "id"));
	}
	(void)sqlite3_finalize(statement);
	return found ||
	       err_set(err, ERR_NOT_FOUND, "%.60s: the archive has no such channel",
		       log_quote(name, quoted));
}

bool archive_reader_lanes(struct archive_reader *reader, const uint8_t *agent,
			  bool (*each)(void *ctx, const uint8_t *agent,
				       struct slice channel),
			  void *ctx)
{
	struct sqlite3_stmt *statement = NULL;
	bool more =
		db_prepare(reader->db,
			   "SELECT a.key, l.channel FROM lane l JOIN agent a ON a.id ="
			   " l.agent WHERE ?1 IS NULL OR a.key = ?1"
			   " ORDER BY l.agent, l.channel",
			   &statement, NULL);

	if (more && agent)
		(void)sqlite3_bind_blob64(statement, 1, agent, KEY_BYTES, SQLITE_STATIC);
	while (more && sqlite3_step(statement) == SQLITE_ROW) {
		const struct slice channel = {
			(const char *)sqlite3_column_text(statement, 1),
			(size_t)sqlite3_column_bytes(statement, 1)};

		if (sqlite3_column_bytes(statement, 0) == KEY_BYTES && channel.ptr)
			more = each(ctx, sqlite3_column_blob(statement, 0), channel);
	}
	(void)sqlite3_finalize(statement);
	return more;
}

/* ---- the visit ---- */

struct visit {
	struct archive_reader *reader;
	const struct archive_visitor *visitor;
	void *ctx;
	struct err *err;
};

static struct sqlite3_stmt *prepare(const struct visit *visit, const uint8_t *agent,
				    const char *query)
{
	struct sqlite3_stmt *statement = NULL;

	if (!db_prepare(visit->reader->db, query, &statement, visit->err))
		return NULL;
	if (agent)
		(void)sqlite3_bind_blob64(statement, 1, agent, KEY_BYTES, SQLITE_STATIC);
	return statement;
}

/* As it was fetched whole, where that was done. */
static struct slice whole_text(const struct visit *visit, int64_t agent,
			       const char *epoch, const struct observer_event *event)
{
	struct sqlite3_stmt *statement = visit->reader->body;
	struct slice text = event->text;

	if (!event->trimmed)
		return text;
	(void)sqlite3_reset(statement);
	(void)sqlite3_bind_int64(statement, 1, agent);
	(void)sqlite3_bind_text(statement, 2, epoch, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(statement, 3, (int64_t)event->seq);
	if (sqlite3_step(statement) == SQLITE_ROW &&
	    unpack(statement, 0, &visit->reader->whole))
		text = buf_slice(&visit->reader->whole);
	(void)sqlite3_reset(statement);
	return text;
}

/* Columns key, epoch, number, size, body, agent. */
static bool visit_frame(const struct visit *visit, struct sqlite3_stmt *statement)
{
	struct archive_reader *reader = visit->reader;
	uint8_t agent[KEY_BYTES];
	struct frame frame;
	char epoch[17];
	bool more = true;

	arena_reset(&reader->arena);
	if (sqlite3_column_bytes(statement, 0) != KEY_BYTES ||
	    !column_epoch(statement, 1, epoch) || !unpack(statement, 3, &reader->frame) ||
	    !frame_parse(buf_slice(&reader->frame), &reader->arena, &frame, NULL))
		return err_set(visit->err, ERR_MALFORMED,
			       "a frame of the archive is broken: run `perch doctor`");
	memcpy(agent, sqlite3_column_blob(statement, 0), KEY_BYTES);
	for (size_t i = 0; more && i < frame.event_count; i++)
		more = visit->visitor->on_event(
			visit->ctx, agent, epoch,
			(uint64_t)sqlite3_column_int64(statement, 2), &frame.events[i],
			whole_text(visit, sqlite3_column_int64(statement, 5), epoch,
				   &frame.events[i]));
	return more;
}

static bool visit_frames(const struct visit *visit, const uint8_t *agent)
{
	struct sqlite3_stmt *count = prepare(
		visit, agent,
		agent ? "SELECT count(*) FROM frame f JOIN agent a ON a.id = f.agent"
			" WHERE a.key = ?1"
		      : "SELECT count(*) FROM frame");
	struct sqlite3_stmt *statement = prepare(
		visit, agent,
		agent ? "SELECT a.key, f.epoch, f.number, f.size, f.body, a.id FROM frame"
			" f JOIN agent a ON a.id = f.agent WHERE a.key = ?1"
			" ORDER BY f.agent, f.epoch, f.number, f.id"
		      : "SELECT a.key, f.epoch, f.number, f.size, f.body, a.id FROM frame"
			" f JOIN agent a ON a.id = f.agent"
			" ORDER BY f.agent, f.epoch, f.number, f.id");
	uint64_t all = 0, done = 0;
	int status = SQLITE_DONE;
	bool more = count && statement;

	if (count && sqlite3_step(count) == SQLITE_ROW)
		all = (uint64_t)sqlite3_column_int64(count, 0);
	while (more && (status = sqlite3_step(statement)) == SQLITE_ROW) {
		more = visit_frame(visit, statement);
		if (++done % PROGRESS_FRAMES == 0)
			visit->visitor->on_progress(visit->ctx, done, all);
	}
	if (more && status != SQLITE_DONE)
		more = db_fail(visit->reader->db, visit->err, "read the archive");
	(void)sqlite3_finalize(count);
	(void)sqlite3_finalize(statement);
	return more;
}

static bool visit_gone(const struct visit *visit, const uint8_t *agent)
{
	struct sqlite3_stmt *statement = prepare(
		visit, agent,
		agent ? "SELECT a.key, g.epoch, g.first, g.last, g.why FROM gone g JOIN "
			"agent a"
			" ON a.id = g.agent WHERE a.key = ?1 ORDER BY g.epoch, g.first"
		      : "SELECT a.key, g.epoch, g.first, g.last, g.why FROM gone g JOIN "
			"agent a"
			" ON a.id = g.agent ORDER BY a.id, g.epoch, g.first");
	bool more = statement != NULL;

	while (more && sqlite3_step(statement) == SQLITE_ROW) {
		const struct gone_range gone = {
			{(uint64_t)sqlite3_column_int64(statement, 2),
			 (uint64_t)sqlite3_column_int64(statement, 3)},
			gone_why_parse(slice_of(
				(const char *)sqlite3_column_text(statement, 4)))};
		char epoch[17];

		if (sqlite3_column_bytes(statement, 0) == KEY_BYTES &&
		    column_epoch(statement, 1, epoch))
			more = visit->visitor->on_gone(visit->ctx,
						       sqlite3_column_blob(statement, 0),
						       epoch, gone);
	}
	(void)sqlite3_finalize(statement);
	return more;
}

bool archive_reader_visit(struct archive_reader *reader, const uint8_t *agent,
			  const struct archive_visitor *visitor, void *ctx,
			  struct err *err)
{
	const struct visit visit = {reader, visitor, ctx, err};

	*err = (struct err){.code = ERR_NONE};
	return visit_frames(&visit, agent) && visit_gone(&visit, agent);
}
