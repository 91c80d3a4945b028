#include "observer/archive_db_part.h"

#include <sqlite3.h>

#include "observer/acp.h"
#include "observer/row.h"
#include "wire/nostr/json.h"

/* The name that a harness's word has for that channel. */
static void set_channel_name(struct slice payload, struct slice channel, struct buf *out)
{
	struct slice rest = acp_get(payload, "channels"), item;

	while (acp_next(&rest, &item))
		if (json_is(acp_get_string(item, "id"), channel))
			acp_set_text(out, acp_get_string(item, "name"), ROW_SHORT_MAX);
}

void archive_write_names(struct archive_db *db, int64_t agent, struct slice channel,
			 struct buf *out)
{
	struct sqlite3_stmt *statement = archive_sql_begin(db, NAMES);
	struct buf name = {0}, channel_name = {0};
	struct slice text;

	(void)sqlite3_bind_int64(statement, 1, agent);
	while (!(name.len && channel_name.len) && sqlite3_step(statement) == SQLITE_ROW) {
		struct slice payload;

		if (!archive_event_text(db, agent, statement, &text))
			continue;
		payload = acp_get(text, "payload");
		if (!name.len)
			acp_set_text(&name, acp_get_string(payload, "name"),
				     ROW_SHORT_MAX);
		set_channel_name(payload, channel, &channel_name);
	}
	(void)sqlite3_reset(statement);
	if (name.len)
		json_write_member_string(out, SLICE("agentName"), buf_slice(&name));
	if (channel_name.len)
		json_write_member_string(out, SLICE("channelName"),
					 buf_slice(&channel_name));
	buf_finish(&name);
	buf_finish(&channel_name);
}
