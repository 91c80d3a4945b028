#include "wire/nostr/message.h"

#include <string.h>

#include "wire/nostr/json.h"

/* The verb at the front of a message; decoded, so that an escaped one counts too. */
static bool take_verb(struct json *json, struct slice text, struct arena *arena,
		      struct slice *verb, struct err *err)
{
	struct slice raw;

	json_init(json, text);
	if (!json_enter_array(json) || !json_element(json) || !json_string(json, &raw))
		return err_set(err, ERR_MALFORMED,
			       "message is not an array that begins with a verb");
	*verb = json_decode(raw, arena);
	return true;
}

/* An event is the last and by far the longest part of a message, and event_parse() will
 * check every byte of it: so it is only cut out here, from its brace to the one before
 * the message's own last bracket. */
static bool take_event(struct json *json, struct slice text, struct slice *event,
		       struct err *err)
{
	const char *start, *end;

	if (!json_element(json) || json_peek(json) != JSON_OBJECT)
		return err_set(err, ERR_MALFORMED, "message holds no event object");
	start = json_mark(json);
	text = slice_trim(text);
	end = text.ptr + text.len;
	if (end[-1] != ']')
		return err_set(err, ERR_MALFORMED,
			       "message does not end with its bracket");
	*event = slice_trim((struct slice){start, (size_t)(end - 1 - start)});
	if (event->len < 2 || event->ptr[event->len - 1] != '}')
		return err_set(err, ERR_MALFORMED,
			       "message is not just a verb and an event");
	return true;
}

static bool take_sub_id(struct json *json, struct arena *arena, struct slice *sub_id,
			struct err *err)
{
	struct slice raw, decoded;

	if (!json_element(json) || !json_string(json, &raw))
		return err_set(err, ERR_MALFORMED, "subscription id is not a string");
	decoded = json_decode(raw, arena);
	if (!decoded.len || utf8_count(decoded) > MESSAGE_SUB_ID_MAX)
		return err_set(err, ERR_MALFORMED,
			       "subscription id is not 1 to %d characters",
			       MESSAGE_SUB_ID_MAX);
	*sub_id = decoded;
	return true;
}

static bool take_end(struct json *json, struct err *err)
{
	if (json_element(json))
		return err_set(err, ERR_MALFORMED, "message has too many elements");
	return json_end(json, err);
}

static bool take_filters(struct json *json, struct arena *arena,
			 struct client_message *out, struct err *err)
{
	out->filters = arena_array(arena, MESSAGE_FILTERS_MAX, sizeof(*out->filters));
	while (json_element(json)) {
		if (out->filter_count == MESSAGE_FILTERS_MAX)
			return err_set(err, ERR_TOO_LARGE, "more than %d filters",
				       MESSAGE_FILTERS_MAX);
		if (json_peek(json) != JSON_OBJECT ||
		    !json_skip(json, &out->filters[out->filter_count]))
			return err_set(err, ERR_MALFORMED, "filter is not a JSON object");
		out->filter_count++;
	}
	if (!json_end(json, err))
		return false;
	if (!out->filter_count)
		return err_set(err, ERR_MALFORMED, "no filter, want one or more");
	return true;
}

static bool find_verb(struct slice word, enum client_verb *out)
{
	static const struct {
		struct slice word;
		enum client_verb verb;
	} verbs[] = {
		{SLICE_INIT("EVENT"), CLIENT_EVENT}, {SLICE_INIT("REQ"), CLIENT_REQ},
		{SLICE_INIT("CLOSE"), CLIENT_CLOSE}, {SLICE_INIT("AUTH"), CLIENT_AUTH},
		{SLICE_INIT("COUNT"), CLIENT_COUNT},
	};

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (slice_eq(word, verbs[i].word)) {
			*out = verbs[i].verb;
			return true;
		}
	}
	return false;
}

bool client_message_parse(struct slice text, struct arena *arena,
			  struct client_message *out, struct slice *sub_id_out,
			  struct err *err)
{
	struct client_message message = {0};
	struct slice word = SLICE_EMPTY;
	struct json json;
	bool ok = false;

	if (sub_id_out)
		*sub_id_out = SLICE_EMPTY;
	if (!take_verb(&json, text, arena, &word, err))
		return false;
	if (!find_verb(word, &message.verb))
		return err_set(err, ERR_MALFORMED, "unknown message type");
	switch (message.verb) {
	case CLIENT_EVENT:
	case CLIENT_AUTH:
		ok = take_event(&json, text, &message.event, err);
		break;
	case CLIENT_CLOSE:
		ok = take_sub_id(&json, arena, &message.sub_id, err) &&
		     take_end(&json, err);
		break;
	case CLIENT_REQ:
	case CLIENT_COUNT:
		ok = take_sub_id(&json, arena, &message.sub_id, err);
		if (ok && sub_id_out)
			*sub_id_out = message.sub_id;
		ok = ok && take_filters(&json, arena, &message, err);
		break;
	}
	if (ok)
		*out = message;
	return ok;
}

static bool take_string(struct json *json, struct arena *arena, struct slice *out,
			const char *what, struct err *err)
{
	struct slice raw;

	if (!json_element(json) || !json_string(json, &raw))
		return err_set(err, ERR_MALFORMED, "%s is not a string", what);
	*out = json_decode(raw, arena);
	return true;
}

/* The words behind a verdict; some relays leave them out. What follows them is for newer
 * clients than us. */
static bool take_words(struct json *json, struct arena *arena, struct slice *out,
		       struct err *err)
{
	struct slice raw;

	if (json_element(json)) {
		if (!json_string(json, &raw))
			return err_set(err, ERR_MALFORMED, "words are not a string");
		*out = json_decode(raw, arena);
		while (json_element(json))
			if (!json_skip(json, NULL))
				break;
	}
	return json_end(json, err);
}

static bool parse_ok(struct json *json, struct arena *arena,
		     struct relay_message *message, struct err *err)
{
	struct slice hex = SLICE_EMPTY;

	if (!take_string(json, arena, &hex, "event id", err))
		return false;
	if (!hex_decode(hex, message->id, sizeof(message->id)))
		return err_set(err, ERR_MALFORMED,
			       "event id is not 64 lower-case hex digits");
	if (!json_element(json) || !json_bool(json, &message->accepted))
		return err_set(err, ERR_MALFORMED, "verdict is not true or false");
	return take_words(json, arena, &message->text, err);
}

static bool parse_count(struct json *json, struct arena *arena,
			struct relay_message *message, struct err *err)
{
	if (!take_sub_id(json, arena, &message->sub_id, err))
		return false;
	if (!json_element(json) || json_peek(json) != JSON_OBJECT ||
	    !json_skip(json, &message->text))
		return err_set(err, ERR_MALFORMED, "count is not a JSON object");
	return take_end(json, err);
}

bool relay_message_parse(struct slice text, struct arena *arena,
			 struct relay_message *out, struct err *err)
{
	struct relay_message message = {0};
	struct slice word = SLICE_EMPTY, ignored = SLICE_EMPTY;
	struct json json;
	bool ok;

	if (!take_verb(&json, text, arena, &word, err))
		return false;
	if (slice_eq(word, SLICE("EVENT"))) {
		message.verb = RELAY_EVENT;
		ok = take_sub_id(&json, arena, &message.sub_id, err) &&
		     take_event(&json, text, &message.event, err);
	} else if (slice_eq(word, SLICE("OK"))) {
		message.verb = RELAY_OK;
		ok = parse_ok(&json, arena, &message, err);
	} else if (slice_eq(word, SLICE("EOSE"))) {
		/* NIP-67 adds a third element, which may be of any kind. */
		message.verb = RELAY_EOSE;
		ok = take_sub_id(&json, arena, &message.sub_id, err);
		while (ok && json_element(&json))
			ok = json_skip(&json, &ignored);
		ok = ok && json_end(&json, err);
	} else if (slice_eq(word, SLICE("CLOSED"))) {
		message.verb = RELAY_CLOSED;
		ok = take_sub_id(&json, arena, &message.sub_id, err) &&
		     take_words(&json, arena, &message.text, err);
	} else if (slice_eq(word, SLICE("NOTICE"))) {
		message.verb = RELAY_NOTICE;
		ok = take_words(&json, arena, &message.text, err);
	} else if (slice_eq(word, SLICE("AUTH"))) {
		message.verb = RELAY_AUTH;
		ok = take_string(&json, arena, &message.text, "challenge", err) &&
		     take_end(&json, err);
	} else if (slice_eq(word, SLICE("COUNT"))) {
		message.verb = RELAY_COUNT;
		ok = parse_count(&json, arena, &message, err);
	} else {
		return err_set(err, ERR_MALFORMED, "unknown message type");
	}
	if (ok)
		*out = message;
	return ok;
}

bool message_write_event(struct buf *out, struct slice event)
{
	(void)buf_lit(out, "[\"EVENT\",");
	(void)buf_append(out, event);
	return buf_append_byte(out, ']');
}

bool message_write_auth(struct buf *out, struct slice event)
{
	(void)buf_lit(out, "[\"AUTH\",");
	(void)buf_append(out, event);
	return buf_append_byte(out, ']');
}

bool message_write_close(struct buf *out, struct slice sub_id)
{
	(void)buf_lit(out, "[\"CLOSE\",");
	(void)json_write_string(out, sub_id);
	return buf_append_byte(out, ']');
}

bool message_write_req(struct buf *out, struct slice sub_id, struct slice filter)
{
	(void)buf_lit(out, "[\"REQ\",");
	(void)json_write_string(out, sub_id);
	(void)buf_append_byte(out, ',');
	(void)buf_append(out, filter);
	return buf_append_byte(out, ']');
}

bool message_write_sub_event(struct buf *out, struct slice sub_id, struct slice event)
{
	(void)buf_lit(out, "[\"EVENT\",");
	(void)json_write_string(out, sub_id);
	(void)buf_append_byte(out, ',');
	(void)buf_append(out, event);
	return buf_append_byte(out, ']');
}

bool message_write_ok(struct buf *out, struct slice id_hex, bool accepted,
		      struct slice text)
{
	(void)buf_lit(out, "[\"OK\",");
	(void)json_write_string(out, id_hex);
	(void)buf_append(out, accepted ? SLICE(",true,") : SLICE(",false,"));
	(void)json_write_string(out, text);
	return buf_append_byte(out, ']');
}

bool message_write_eose(struct buf *out, struct slice sub_id)
{
	(void)buf_lit(out, "[\"EOSE\",");
	(void)json_write_string(out, sub_id);
	return buf_append_byte(out, ']');
}

bool message_write_closed(struct buf *out, struct slice sub_id, struct slice text)
{
	(void)buf_lit(out, "[\"CLOSED\",");
	(void)json_write_string(out, sub_id);
	(void)buf_append_byte(out, ',');
	(void)json_write_string(out, text);
	return buf_append_byte(out, ']');
}

bool message_write_notice(struct buf *out, struct slice text)
{
	(void)buf_lit(out, "[\"NOTICE\",");
	(void)json_write_string(out, text);
	return buf_append_byte(out, ']');
}

bool message_write_challenge(struct buf *out, struct slice challenge)
{
	(void)buf_lit(out, "[\"AUTH\",");
	(void)json_write_string(out, challenge);
	return buf_append_byte(out, ']');
}
