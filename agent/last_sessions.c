#include "agent/last_sessions.h"

#include <stdlib.h>
#include <string.h>

#include <cJSON.h>

#include "wire/base/mem.h"
#include "wire/host/paths.h"

/* Channels that are remembered, the oldest forgotten first; our choice. */
#define SESSIONS_MAX 256
/* Session ids may have 4 KiB. */
#define FILE_MAX (4u << 20)

/* The file: [{"channel":UUID,"cwd":PATH,"session":ID}…], the newest last. */
struct last_sessions {
	const char *path;
	cJSON *list;
};

struct last_sessions *last_sessions_open(const char *path)
{
	struct last_sessions *sessions = mem_alloc(sizeof(*sessions));
	struct buf text;
	struct err err;

	sessions->path = path;
	buf_init(&text, FILE_MAX);
	if (paths_read(path, &text, &err))
		sessions->list = cJSON_ParseWithLength(text.ptr, text.len);
	if (!cJSON_IsArray(sessions->list)) {
		cJSON_Delete(sessions->list);
		sessions->list = cJSON_CreateArray();
	}
	buf_finish(&text);
	return sessions;
}

void last_sessions_close(struct last_sessions *sessions)
{
	if (!sessions)
		return;
	cJSON_Delete(sessions->list);
	free(sessions);
}

static const char *member(const cJSON *item, const char *name)
{
	const char *text =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, name));

	return text ? text : "";
}

/* Its index, -1: none. */
static int find(const struct last_sessions *sessions, const struct uuid *channel)
{
	const cJSON *item;
	int index = 0;

	cJSON_ArrayForEach(item, sessions->list)
	{
		if (strcmp(member(item, "channel"), channel->text) == 0)
			return index;
		index++;
	}
	return -1;
}

bool last_sessions_get(const struct last_sessions *sessions, const char *cwd,
		       const struct uuid *channel, struct buf *out)
{
	int index = find(sessions, channel);
	const cJSON *item = index < 0 ? NULL : cJSON_GetArrayItem(sessions->list, index);
	size_t before = out->len;

	if (!item || strcmp(member(item, "cwd"), cwd) != 0 ||
	    member(item, "session")[0] == '\0')
		return false;
	if (buf_append(out, slice_of(member(item, "session"))))
		return true;
	buf_truncate(out, before);
	return false;
}

bool last_sessions_put(struct last_sessions *sessions, const char *cwd,
		       const struct uuid *channel, struct slice session, struct err *err)
{
	int index = find(sessions, channel);
	const cJSON *known = index < 0 ? NULL : cJSON_GetArrayItem(sessions->list, index);
	char *id, *text;
	cJSON *item;
	bool ok;

	if (known && strcmp(member(known, "cwd"), cwd) == 0 &&
	    slice_eq(slice_of(member(known, "session")), session))
		return true;
	if (known)
		cJSON_DeleteItemFromArray(sessions->list, index);
	else if (cJSON_GetArraySize(sessions->list) >= SESSIONS_MAX)
		cJSON_DeleteItemFromArray(sessions->list, 0);
	id = mem_dup(session);
	item = cJSON_CreateObject();
	(void)cJSON_AddStringToObject(item, "channel", channel->text);
	(void)cJSON_AddStringToObject(item, "cwd", cwd);
	(void)cJSON_AddStringToObject(item, "session", id);
	free(id);
	(void)cJSON_AddItemToArray(sessions->list, item);
	text = cJSON_PrintUnformatted(sessions->list);
	if (!text)
		return err_set(err, ERR_SYSTEM, "out of memory");
	ok = paths_write(sessions->path, slice_of(text), err);
	cJSON_free(text);
	return ok;
}
