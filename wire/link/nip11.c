#include "wire/link/nip11.h"

#include <string.h>
#include <time.h>

#include "wire/link/link.h"
#include "wire/nostr/json.h"

/* A member that is no such number says nothing. */
static void read_limit(struct json *json, uint32_t *out)
{
	struct slice raw;
	uint64_t value;

	if (json_skip(json, &raw) && slice_parse_u64(raw, UINT32_MAX, &value))
		*out = (uint32_t)value;
}

static void read_limitation(struct json *json, struct link_info *info)
{
	struct slice key;

	(void)json_enter_object(json);
	while (json_member(json, &key)) {
		if (json_is(key, SLICE("max_message_length")))
			read_limit(json, &info->max_message_bytes);
		else if (json_is(key, SLICE("max_content_length")))
			read_limit(json, &info->max_content_bytes);
		else
			(void)json_skip(json, NULL);
	}
}

static void read_perch(struct json *json, struct link_info *info)
{
	struct slice key;

	(void)json_enter_object(json);
	while (json_member(json, &key)) {
		if (json_is(key, SLICE("backfill_per_second")))
			read_limit(json, &info->backfill_per_second);
		else
			(void)json_skip(json, NULL);
	}
}

void nip11_parse(struct slice document, struct link_info *info)
{
	struct link_info read = *info;
	struct json json;
	struct slice key;

	json_init(&json, document);
	(void)json_enter_object(&json);
	while (json_member(&json, &key)) {
		bool object = json_peek(&json) == JSON_OBJECT;

		if (object && json_is(key, SLICE("limitation")))
			read_limitation(&json, &read);
		else if (object && json_is(key, SLICE("perch")))
			read_perch(&json, &read);
		else
			(void)json_skip(&json, NULL);
	}
	if (!json_end(&json, NULL))
		return;
	read.known = true;
	*info = read;
}

bool nip11_parse_date(struct slice text, int64_t *unix_ms)
{
	char copy[40];
	struct tm parts = {0};
	const char *end;

	if (text.len >= sizeof(copy))
		return false;
	memcpy(copy, text.ptr, text.len);
	copy[text.len] = '\0';
	end = strptime(copy, "%a, %d %b %Y %H:%M:%S GMT", &parts);
	if (end == NULL || *end != '\0')
		return false;
	*unix_ms = (int64_t)timegm(&parts) * 1000 + 500;
	return true;
}
