#include "wire/frame/control.h"

#include <inttypes.h>
#include <string.h>

#include "wire/nostr/json.h"
#include "wire/nostr/nip44.h"

static const struct slice type_names[] = {
	[CONTROL_CANCEL_TURN] = SLICE_INIT("cancel_turn"),
	[CONTROL_SWITCH_MODEL] = SLICE_INIT("switch_model"),
	[CONTROL_PERMISSION_DECISION] = SLICE_INIT("permission_decision"),
	[CONTROL_PROMPT] = SLICE_INIT("prompt"),
	[CONTROL_RELEASE_QUEUE] = SLICE_INIT("release_queue"),
	[CONTROL_SET_MODE] = SLICE_INIT("set_mode"),
	[CONTROL_FEED_SYNC] = SLICE_INIT("feed_sync"),
	[CONTROL_FETCH_BODY] = SLICE_INIT("fetch_body"),
	[CONTROL_UNKNOWN] = SLICE_INIT("unknown"),
};

enum member {
	MEMBER_TYPE,
	MEMBER_REQUEST_ID,
	MEMBER_EPOCH,
	MEMBER_EXPIRES,
	MEMBER_CHANNEL_ID,
	MEMBER_NONCE,
	MEMBER_OPTION_ID,
	MEMBER_MODEL_ID,
	MEMBER_MODE_ID,
	MEMBER_CONTENT,
	MEMBER_OBSERVER,
	MEMBER_WANT,
	MEMBER_SEQ,
	MEMBER_UNKNOWN,
};

static const struct slice member_names[] = {
	[MEMBER_TYPE] = SLICE_INIT("type"),
	[MEMBER_REQUEST_ID] = SLICE_INIT("requestId"),
	[MEMBER_EPOCH] = SLICE_INIT("epoch"),
	[MEMBER_EXPIRES] = SLICE_INIT("expires"),
	[MEMBER_CHANNEL_ID] = SLICE_INIT("channelId"),
	[MEMBER_NONCE] = SLICE_INIT("requestNonce"),
	[MEMBER_OPTION_ID] = SLICE_INIT("optionId"),
	[MEMBER_MODEL_ID] = SLICE_INIT("modelId"),
	[MEMBER_MODE_ID] = SLICE_INIT("modeId"),
	[MEMBER_CONTENT] = SLICE_INIT("content"),
	[MEMBER_OBSERVER] = SLICE_INIT("observer"),
	[MEMBER_WANT] = SLICE_INIT("want"),
	[MEMBER_SEQ] = SLICE_INIT("seq"),
};

#define BIT(member) (1u << (member))
#define EPOCH_LEN 16
#define OBSERVER_LEN 8

struct reader {
	struct json json;
	struct arena *arena;
	struct control *out;
	struct err *err;
	bool failed; /* something is wrong that the grammar cannot see; the first one
			counts */
};

/* Notes the first thing that is wrong. Reading goes on, for the members that the refusal
 * needs. */
static void complain(struct reader *reader, const char *what)
{
	if (!reader->failed)
		(void)err_set(reader->err, ERR_MALFORMED, "%s", what);
	reader->failed = true;
}

static enum member member_of(struct slice key)
{
	for (size_t i = 0; i < MEMBER_UNKNOWN; i++) {
		if (json_is(key, member_names[i]))
			return (enum member)i;
	}
	return MEMBER_UNKNOWN;
}

/* Every reader consumes one value, whatever it is. */
static void read_string(struct reader *reader, size_t max, const char *wrong,
			struct slice *out)
{
	struct slice text;

	if (json_peek(&reader->json) != JSON_STRING) {
		complain(reader, wrong);
		(void)json_skip(&reader->json, NULL);
		return;
	}
	if (!json_string(&reader->json, &text))
		return;
	if (text.len == 0 || text.len > max)
		complain(reader, wrong);
	else
		*out = text;
}

static bool read_u64(struct reader *reader, uint64_t *out)
{
	struct slice raw;

	if (!json_skip(&reader->json, &raw))
		return false;
	return slice_parse_u64(raw, FRAME_NUMBER_MAX, out);
}

/* Copies exactly @len lower-case hex digits of a string. */
static void read_hex(struct reader *reader, size_t len, const char *wrong, char *out)
{
	struct slice text = SLICE_EMPTY;
	uint8_t bytes[EPOCH_LEN / 2];

	read_string(reader, len, wrong, &text);
	if (text.ptr == NULL)
		return;
	if (!hex_decode(text, bytes, len / 2)) {
		complain(reader, wrong);
		return;
	}
	memcpy(out, text.ptr, len);
	out[len] = '\0';
}

static void read_type(struct reader *reader)
{
	struct control *out = reader->out;

	read_string(reader, CONTROL_ID_MAX, "type is no string of 1 to 128 bytes",
		    &out->type_name);
	for (size_t i = 0; i < CONTROL_UNKNOWN; i++) {
		if (json_is(out->type_name, type_names[i]))
			out->type = (enum control_type)i;
	}
}

static void read_expires(struct reader *reader)
{
	uint64_t seconds;

	if (read_u64(reader, &seconds) && seconds > 0)
		reader->out->expires = (int64_t)seconds;
	else
		complain(reader, "expires is no number of seconds");
}

/* ACP content blocks: what they mean is the agent's business. */
static void read_content(struct reader *reader)
{
	const char *start = json_mark(&reader->json);
	size_t blocks = 0;

	if (json_peek(&reader->json) != JSON_ARRAY) {
		complain(reader, "content is no array of content blocks");
		(void)json_skip(&reader->json, NULL);
		return;
	}
	(void)json_enter_array(&reader->json);
	for (; json_element(&reader->json); blocks++) {
		if (json_peek(&reader->json) != JSON_OBJECT)
			complain(reader, "content has a block that is no object");
		(void)json_skip(&reader->json, NULL);
	}
	if (blocks == 0)
		complain(reader, "content has no block");
	else
		reader->out->content =
			(struct slice){start, (size_t)(reader->json.at - start)};
}

/* [first,last] */
static bool read_range(struct reader *reader, struct frame_range *out)
{
	struct json *json = &reader->json;
	uint64_t bounds[2] = {0, 0};
	size_t count = 0;
	bool ok = true;

	if (json_peek(json) != JSON_ARRAY) {
		(void)json_skip(json, NULL);
		return false;
	}
	(void)json_enter_array(json);
	for (; json_element(json); count++) {
		if (count >= 2)
			(void)json_skip(json, NULL);
		else if (!read_u64(reader, &bounds[count]))
			ok = false;
	}
	*out = (struct frame_range){bounds[0], bounds[1]};
	return ok && count == 2 && bounds[0] > 0 && bounds[0] <= bounds[1];
}

/* Adds the ranges to the wants; their epoch is filled in behind, by read_want(). */
static void read_ranges(struct reader *reader)
{
	struct control *out = reader->out;
	struct json *json = &reader->json;

	if (json_peek(json) != JSON_ARRAY) {
		complain(reader, "want has frames that are no array");
		(void)json_skip(json, NULL);
		return;
	}
	(void)json_enter_array(json);
	while (json_element(json)) {
		struct frame_range range;

		if (!read_range(reader, &range))
			complain(reader, "want has a range that is not [first,last]");
		else if (out->want_count == WANT_RANGES_MAX)
			complain(reader, "want has more than 64 ranges");
		else
			out->wants[out->want_count++].range = range;
	}
}

/* {"epoch":"…","frames":[[a,b]…]} */
static void read_want(struct reader *reader)
{
	struct control *out = reader->out;
	size_t first = out->want_count;
	char epoch[EPOCH_LEN + 1] = "";
	struct slice key;
	bool frames = false;

	if (json_peek(&reader->json) != JSON_OBJECT) {
		complain(reader, "want has an item that is no object");
		(void)json_skip(&reader->json, NULL);
		return;
	}
	(void)json_enter_object(&reader->json);
	while (json_member(&reader->json, &key)) {
		if (json_is(key, SLICE("epoch"))) {
			read_hex(reader, EPOCH_LEN,
				 "want has an epoch that is not 16 hex digits", epoch);
		} else if (json_is(key, SLICE("frames"))) {
			frames = true;
			read_ranges(reader);
		} else {
			(void)json_skip(&reader->json, NULL);
		}
	}
	if (epoch[0] == '\0' || !frames)
		complain(reader, "want has an item without epoch or frames");
	for (size_t i = first; i < out->want_count; i++)
		memcpy(out->wants[i].epoch, epoch, sizeof(epoch));
}

static void read_wants(struct reader *reader)
{
	if (json_peek(&reader->json) != JSON_ARRAY) {
		complain(reader, "want is no array");
		(void)json_skip(&reader->json, NULL);
		return;
	}
	reader->out->wants =
		arena_array(reader->arena, WANT_RANGES_MAX, sizeof(struct control_want));
	(void)json_enter_array(&reader->json);
	while (json_element(&reader->json))
		read_want(reader);
}

static void read_member(struct reader *reader, enum member member)
{
	struct control *out = reader->out;

	/* Others write null where we leave out. */
	if (json_take_null(&reader->json))
		return;
	switch (member) {
	case MEMBER_TYPE:
		read_type(reader);
		return;
	case MEMBER_REQUEST_ID:
		read_string(reader, CONTROL_ID_MAX,
			    "requestId is no string of 1 to 128 bytes", &out->request_id);
		return;
	case MEMBER_EPOCH:
		read_hex(reader, EPOCH_LEN, "epoch is not 16 hex digits", out->epoch);
		out->has_epoch = out->epoch[0] != '\0';
		return;
	case MEMBER_EXPIRES:
		read_expires(reader);
		return;
	case MEMBER_CHANNEL_ID:
		read_string(reader, CONTROL_ID_MAX,
			    "channelId is no string of 1 to 128 bytes", &out->channel_id);
		return;
	case MEMBER_NONCE:
		read_string(reader, CONTROL_ID_MAX,
			    "requestNonce is no string of 1 to 128 bytes", &out->nonce);
		return;
	case MEMBER_OPTION_ID:
		read_string(reader, NIP44_PLAINTEXT_MAX, "optionId is no string",
			    &out->option_id);
		return;
	case MEMBER_MODEL_ID:
		read_string(reader, NIP44_PLAINTEXT_MAX, "modelId is no string",
			    &out->model_id);
		return;
	case MEMBER_MODE_ID:
		read_string(reader, NIP44_PLAINTEXT_MAX, "modeId is no string",
			    &out->mode_id);
		return;
	case MEMBER_CONTENT:
		read_content(reader);
		return;
	case MEMBER_OBSERVER:
		read_hex(reader, OBSERVER_LEN, "observer is not 8 hex digits",
			 out->observer);
		return;
	case MEMBER_WANT:
		read_wants(reader);
		return;
	case MEMBER_SEQ:
		if (!read_u64(reader, &out->seq) || out->seq == 0)
			complain(reader, "seq is no number from 1");
		return;
	case MEMBER_UNKNOWN:
		(void)json_skip(&reader->json, NULL);
		return;
	}
}

/* What each type cannot do without. */
static void check_members(struct reader *reader)
{
	const struct control *out = reader->out;
	bool channel = out->channel_id.ptr != NULL;

	if (out->type_name.ptr == NULL) {
		complain(reader, "a control without type");
		return;
	}
	switch (out->type) {
	case CONTROL_CANCEL_TURN:
	case CONTROL_RELEASE_QUEUE:
		if (!channel)
			complain(reader, "channelId is missing");
		return;
	case CONTROL_SWITCH_MODEL:
		if (!channel || out->model_id.ptr == NULL)
			complain(reader, "channelId or modelId is missing");
		return;
	case CONTROL_PERMISSION_DECISION:
		if (!channel || out->nonce.ptr == NULL || out->option_id.ptr == NULL)
			complain(reader,
				 "channelId, requestNonce or optionId is missing");
		return;
	case CONTROL_PROMPT:
		if (!channel || out->content.ptr == NULL)
			complain(reader, "channelId or content is missing");
		return;
	case CONTROL_SET_MODE:
		if (!channel || out->mode_id.ptr == NULL)
			complain(reader, "channelId or modeId is missing");
		return;
	case CONTROL_FETCH_BODY:
		if (!out->has_epoch || out->seq == 0)
			complain(reader, "epoch or seq is missing");
		return;
	case CONTROL_FEED_SYNC:
	case CONTROL_UNKNOWN:
		return;
	}
}

bool control_parse(struct slice plaintext, struct arena *arena, struct control *out,
		   struct err *err)
{
	struct reader reader = {.arena = arena, .out = out, .err = err};
	struct slice key;
	unsigned seen = 0;

	*out = (struct control){.type = CONTROL_UNKNOWN};
	json_init(&reader.json, plaintext);
	(void)json_enter_object(&reader.json);
	while (json_member(&reader.json, &key)) {
		enum member member = member_of(key);

		if (member != MEMBER_UNKNOWN && (seen & BIT(member)) != 0) {
			complain(&reader, "a control has a member twice");
			member = MEMBER_UNKNOWN;
		}
		seen |= BIT(member);
		read_member(&reader, member);
	}
	/* Broken text explains everything else that was found wrong. */
	if (!json_end(&reader.json, err))
		return false;
	check_members(&reader);
	return !reader.failed;
}

/* A member whose text is string content as sent; nothing when it is absent. */
static void write_text(struct buf *out, struct slice key, struct slice text)
{
	if (text.ptr == NULL)
		return;
	json_write_key(out, key);
	buf_append_byte(out, '"');
	buf_append(out, text);
	buf_append_byte(out, '"');
}

static void write_wants(struct buf *out, const struct control *control)
{
	json_write_key(out, member_names[MEMBER_WANT]);
	buf_append_byte(out, '[');
	for (size_t i = 0; i < control->want_count; i++) {
		const struct control_want *want = &control->wants[i];
		bool same = i > 0 && strcmp(want[-1].epoch, want->epoch) == 0;

		if (!same)
			buf_printf(out, "%s{\"epoch\":\"%s\",\"frames\":[",
				   i > 0 ? "]}," : "", want->epoch);
		buf_printf(out, "%s[%" PRIu64 ",%" PRIu64 "]", same ? "," : "",
			   want->range.first, want->range.last);
	}
	buf_append(out, control->want_count > 0 ? SLICE("]}]") : SLICE("]"));
}

bool control_write(struct buf *out, const struct control *control)
{
	struct slice name = control->type_name;

	if (name.ptr == NULL)
		name = control_type_name(control->type);
	buf_append_byte(out, '{');
	write_text(out, member_names[MEMBER_TYPE], name);
	write_text(out, member_names[MEMBER_REQUEST_ID], control->request_id);
	if (control->has_epoch)
		write_text(out, member_names[MEMBER_EPOCH], slice_of(control->epoch));
	if (control->expires != 0)
		json_write_member_int(out, member_names[MEMBER_EXPIRES],
				      control->expires);
	write_text(out, member_names[MEMBER_CHANNEL_ID], control->channel_id);
	write_text(out, member_names[MEMBER_NONCE], control->nonce);
	write_text(out, member_names[MEMBER_OPTION_ID], control->option_id);
	write_text(out, member_names[MEMBER_MODEL_ID], control->model_id);
	write_text(out, member_names[MEMBER_MODE_ID], control->mode_id);
	if (control->content.ptr != NULL)
		json_write_member_raw(out, member_names[MEMBER_CONTENT],
				      control->content);
	if (control->type == CONTROL_FEED_SYNC) {
		if (control->observer[0] != '\0')
			write_text(out, member_names[MEMBER_OBSERVER],
				   slice_of(control->observer));
		write_wants(out, control);
	}
	if (control->seq != 0)
		json_write_member_int(out, member_names[MEMBER_SEQ],
				      (int64_t)control->seq);
	return buf_append_byte(out, '}');
}

struct slice control_type_name(enum control_type type)
{
	return type_names[type];
}
