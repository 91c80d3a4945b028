#include "relay/answer.h"

#include <stdio.h>
#include <stdlib.h>

#include "relay/publish.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"
#include "wire/nostr/message.h"

void connection_push(struct connection *connection, enum parcel_kind kind,
		     struct body *head, struct body *body)
{
	bool was_empty = connection->queue.count == 0;

	if (!queue_push(&connection->queue, kind, head, body))
		connection_fall_behind(connection);
	else if (was_empty)
		connection->core->io->wake(connection);
}

/* Sends what was just written to core->answer. */
void answer_send(struct connection *connection)
{
	struct body *body = body_create(buf_slice(&connection->core->answer));

	connection_push(connection, PARCEL_TEXT, NULL, body);
	body_unref(body);
}

struct buf *answer_begin(struct connection *connection)
{
	buf_clear(&connection->core->answer);
	return &connection->core->answer;
}

struct answer_slot {
	struct answer_slot *next;
	struct connection *connection; /* NULL: gone */
	struct body *text;             /* NULL: not known yet */
};

struct answer_slot *answer_later(struct connection *connection)
{
	struct answers *answers = &connection->answers;
	struct answer_slot *slot = mem_alloc(sizeof(*slot));

	slot->connection = connection;
	if (!answers->first)
		answers->end = &answers->first;
	*answers->end = slot;
	answers->end = &slot->next;
	answers->taken++;
	return slot;
}

/* Gives the slot what was just written to core->answer. */
static void fill_slot(struct answer_slot *slot)
{
	struct connection *connection = slot->connection;

	slot->text = body_create(buf_slice(&connection->core->answer));
	connection->answers.bytes += slot->text->len;
}

/* Sends what nothing stands before any more. */
static void flush_answers(struct connection *connection)
{
	struct answers *answers = &connection->answers;
	struct answer_slot *slot;

	while ((slot = answers->first) && slot->text) {
		answers->first = slot->next;
		answers->bytes -= slot->text->len;
		answers->left++;
		connection_push(connection, PARCEL_TEXT, NULL, slot->text);
		body_unref(slot->text);
		free(slot);
	}
	if (answers->bytes > RELAY_READER_QUEUE_MAX)
		connection_fall_behind(connection);
}

struct connection *answer_now(struct answer_slot *slot, struct slice id_hex,
			      bool accepted, enum refusal refusal, const char *text)
{
	struct connection *connection = slot->connection;

	if (!connection) {
		free(slot);
		return NULL;
	}
	if (!accepted)
		core_refuse(connection->core, connection->number, refusal, text);
	(void)message_write_ok(answer_begin(connection), id_hex, accepted,
			       slice_of(text));
	fill_slot(slot);
	flush_answers(connection);
	return connection;
}

void answer_forget(struct connection *connection)
{
	struct answer_slot *slot;

	while ((slot = connection->answers.first)) {
		connection->answers.first = slot->next;
		slot->connection = NULL;
		if (slot->text) {
			body_unref(slot->text);
			free(slot);
		}
	}
}

void answer_ok(struct connection *connection, struct slice id_hex, bool accepted,
	       const char *text)
{
	(void)message_write_ok(answer_begin(connection), id_hex, accepted,
			       slice_of(text));
	if (!connection->answers.first) {
		answer_send(connection);
		return;
	}
	fill_slot(answer_later(connection));
	flush_answers(connection);
}

void answer_notice(struct connection *connection, const char *text)
{
	(void)message_write_notice(answer_begin(connection), slice_of(text));
	answer_send(connection);
}

void answer_closed(struct connection *connection, struct slice sub_id, const char *text)
{
	(void)message_write_closed(answer_begin(connection), sub_id, slice_of(text));
	answer_send(connection);
}

void refuse_notice(struct connection *connection, enum refusal refusal, const char *text)
{
	core_refuse(connection->core, connection->number, refusal, text);
	answer_notice(connection, text);
}

void refuse_event(struct connection *connection, struct slice id_hex,
		  enum refusal refusal, const char *text)
{
	core_refuse(connection->core, connection->number, refusal, text);
	answer_ok(connection, id_hex, false, text);
}

bool close_unless_utf8(struct connection *connection, struct slice text)
{
	if (utf8_valid(text))
		return false;
	core_refuse(connection->core, connection->number, REFUSAL_UTF8,
		    "text is not UTF-8");
	connection_close(connection, CLOSE_BAD_TEXT, "text is not UTF-8");
	return true;
}

/* An event is answered by its id if it has one, else by a NOTICE. */
bool answer_parse_event(struct connection *connection, struct slice json,
			struct event *event)
{
	char text[sizeof(((struct err *)NULL)->text) + 16];
	struct slice id_hex;
	struct err err;

	if (event_parse(json, &connection->core->arena, event, &err))
		return true;
	publish_settle(connection->core);
	if (close_unless_utf8(connection, json))
		return false;
	(void)snprintf(text, sizeof(text), "invalid: %s", err.text);
	if (event_find_id(json, &id_hex))
		refuse_event(connection, id_hex, REFUSAL_MALFORMED, text);
	else
		refuse_notice(connection, REFUSAL_MALFORMED, text);
	return false;
}
