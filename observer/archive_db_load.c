#include "observer/archive_db_part.h"

#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "wire/base/map.h"
#include "wire/base/mem.h"
#include "wire/host/db.h"

#define LOAD_LANES_MAX 256 /* lanes that a start knows again, newest first */
#define LOAD_EVENTS 300    /* newest events of each, until that are as many as */
#define LOAD_TOTAL 6000    /* these, and of the others: */
#define LOAD_FEW 20        /* and the rest of their turns */

struct load {
	struct archive_db *db;
	const struct archive_loader *loader;
	void *ctx;
	struct err *err;
	size_t told; /* events */
};

static bool load_known(struct load *load)
{
	struct sqlite3_stmt *statement = NULL;

	if (!db_prepare(load->db->db,
			"SELECT a.key, k.epoch, k.first, k.last FROM known k JOIN"
			" agent a ON a.id = k.agent",
			&statement, load->err))
		return false;
	while (sqlite3_step(statement) == SQLITE_ROW) {
		const struct frame_range range = {
			(uint64_t)sqlite3_column_int64(statement, 2),
			(uint64_t)sqlite3_column_int64(statement, 3)};
		char epoch[17];

		if (sqlite3_column_bytes(statement, 0) == KEY_BYTES &&
		    archive_sql_epoch(statement, 1, epoch))
			load->loader->on_known(load->ctx,
					       sqlite3_column_blob(statement, 0), epoch,
					       range);
	}
	(void)sqlite3_finalize(statement);
	return true;
}

static bool load_gone(struct load *load)
{
	struct sqlite3_stmt *statement = NULL;

	if (!db_prepare(load->db->db,
			"SELECT a.key, g.epoch, g.first, g.last, g.why FROM gone g JOIN"
			" agent a ON a.id = g.agent",
			&statement, load->err))
		return false;
	while (sqlite3_step(statement) == SQLITE_ROW) {
		const struct gone_range gone = {
			{(uint64_t)sqlite3_column_int64(statement, 2),
			 (uint64_t)sqlite3_column_int64(statement, 3)},
			gone_why_parse(db_column_text(statement, 4))};
		char epoch[17];

		if (sqlite3_column_bytes(statement, 0) == KEY_BYTES &&
		    archive_sql_epoch(statement, 1, epoch))
			load->loader->on_gone(load->ctx,
					      sqlite3_column_blob(statement, 0), epoch,
					      gone);
	}
	(void)sqlite3_finalize(statement);
	return true;
}

static void load_group(struct load *load, int64_t agent, const uint8_t *key,
		       struct slice channel, const struct archive_group *group)
{
	struct pos range[2];
	struct sqlite3_stmt *statement =
		archive_group_events(load->db, agent, channel, group, NULL, range);
	struct slice text;

	while (sqlite3_step(statement) == SQLITE_ROW)
		if (archive_event_text(load->db, agent, statement, &text)) {
			load->loader->on_event(load->ctx, key, group->epoch, text, 0);
			load->told++;
		}
	(void)sqlite3_reset(statement);
}

static void load_lane(struct load *load, int64_t agent, const uint8_t *key,
		      struct slice channel)
{
	const size_t most = load->told < LOAD_TOTAL ? LOAD_EVENTS : LOAD_FEW;
	struct archive_group *groups = mem_array(most, sizeof(*groups));
	struct sqlite3_stmt *statement = archive_sql_begin(load->db, SCAN_BACK);
	struct pos floor = {"", 0};
	struct map seen;
	size_t count = 0, rows = 0;

	(void)sqlite3_bind_int64(statement, 1, agent);
	db_bind_text(statement, 2, channel);
	db_bind_text(statement, 3, SLICE("~"));
	(void)sqlite3_bind_int64(statement, 4, 0);
	(void)sqlite3_bind_int64(statement, 5, (int64_t)most + 1);
	while (sqlite3_step(statement) == SQLITE_ROW) {
		if (++rows > most) {
			/* The first that is not told. */
			if (archive_sql_epoch(statement, 0, floor.epoch))
				floor.seq = (uint64_t)sqlite3_column_int64(statement, 1);
			break;
		}
		count += archive_group_read(statement, &groups[count]);
	}
	(void)sqlite3_reset(statement);
	map_init(&seen);
	for (size_t i = count; i-- > 0;) {
		struct buf tag = {0};

		archive_group_tag(&groups[i], channel, &tag);
		if (!map_put(&seen, buf_slice(&tag), load))
			load_group(load, agent, key, channel, &groups[i]);
		buf_finish(&tag);
		buf_finish(&groups[i].turn);
	}
	map_finish(&seen);
	free(groups);
	load->loader->on_floor(load->ctx, key, channel, &floor);
}

static bool load_lanes(struct load *load)
{
	struct sqlite3_stmt *statement = NULL;

	/* An agent's own events first: they say what it is. */
	if (!db_prepare(load->db->db,
			"SELECT a.id, a.key, l.channel FROM lane l JOIN agent a ON"
			" a.id = l.agent ORDER BY l.channel = '' DESC, l.newest DESC "
			"LIMIT ?1",
			&statement, load->err))
		return false;
	(void)sqlite3_bind_int64(statement, 1, LOAD_LANES_MAX);
	while (sqlite3_step(statement) == SQLITE_ROW) {
		uint8_t key[KEY_BYTES];
		const struct slice channel = db_column_text(statement, 2);

		if (sqlite3_column_bytes(statement, 1) != KEY_BYTES || !channel.ptr)
			continue;
		memcpy(key, sqlite3_column_blob(statement, 1), KEY_BYTES);
		load_lane(load, sqlite3_column_int64(statement, 0), key, channel);
	}
	(void)sqlite3_finalize(statement);
	return true;
}

static bool load_last(struct load *load)
{
	struct sqlite3_stmt *statement = NULL;

	if (!db_prepare(load->db->db, "SELECT id, key FROM agent", &statement, load->err))
		return false;
	while (sqlite3_step(statement) == SQLITE_ROW)
		if (sqlite3_column_bytes(statement, 1) == KEY_BYTES)
			load->loader->on_last(
				load->ctx, sqlite3_column_blob(statement, 1),
				archive_last_ms(load->db,
						sqlite3_column_int64(statement, 0)));
	(void)sqlite3_finalize(statement);
	return true;
}

bool archive_db_load(struct archive_db *db, const struct archive_loader *loader,
		     void *ctx, struct err *err)
{
	struct load load = {db, loader, ctx, err, 0};

	return load_known(&load) && load_gone(&load) && load_lanes(&load) &&
	       load_last(&load);
}
