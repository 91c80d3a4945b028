#include "relay/connection.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/strip.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"
#include "wire/host/loop.h"
#include "wire/nostr/message.h"
#include "wire/nostr/nip42.h"

/* Longest answer we write ourselves: words of ours and an echoed subscription id. */
#define ANSWER_MAX 4096
#define TOO_MANY_ASKS "rate-limited: too many REQ and AUTH, try again in a second"

void core_init(struct core *core, const struct connection_io *io, struct crypto *crypto)
{
	memset(core, 0, sizeof(*core));
	core->io = io;
	admit_init(&core->admit, crypto);
	window_init(&core->window);
	route_init(&core->route);
	arena_init(&core->arena, 16 * 1024);
	buf_init(&core->answer, ANSWER_MAX);
	buf_init(&core->stripped, EVENT_MAX_BYTES);
}

void core_finish(struct core *core)
{
	admit_finish(&core->admit);
	window_finish(&core->window);
	route_finish(&core->route);
	arena_finish(&core->arena);
	buf_finish(&core->answer);
	buf_finish(&core->stripped);
}

void core_refuse(struct core *core, uint64_t connection, enum refusal refusal,
		 const char *text)
{
	char quoted[LOG_QUOTE_BYTES];
	uint64_t silent;

	if (!counters_refuse(&core->counters, refusal, core->io->now_ms(), &silent))
		return;
	log_info("relay",
		 "refused connection=%" PRIu64 " reason=%s silent=%" PRIu64 ": %s",
		 connection, refusal_name(refusal), silent,
		 log_quote(slice_of(text), quoted));
}

static int64_t now_s(const struct core *core)
{
	return core->io->unix_ms() / 1000;
}

/* Sending */

static void fall_behind(struct connection *connection);

static void push(struct connection *connection, enum parcel_kind kind, struct body *head,
		 struct body *body)
{
	bool was_empty = connection->queue.count == 0;

	if (!queue_push(&connection->queue, kind, head, body))
		fall_behind(connection);
	else if (was_empty)
		connection->core->io->wake(connection);
}

/* Sends what was just written to core->answer. */
static void push_answer(struct connection *connection)
{
	struct body *body = body_create(buf_slice(&connection->core->answer));

	push(connection, PARCEL_TEXT, NULL, body);
	body_unref(body);
}

static struct buf *answer_begin(struct connection *connection)
{
	buf_clear(&connection->core->answer);
	return &connection->core->answer;
}

static void send_ok(struct connection *connection, struct slice id_hex, bool accepted,
		    const char *text)
{
	(void)message_write_ok(answer_begin(connection), id_hex, accepted,
			       slice_of(text));
	push_answer(connection);
}

static void send_notice(struct connection *connection, const char *text)
{
	(void)message_write_notice(answer_begin(connection), slice_of(text));
	push_answer(connection);
}

static void send_closed(struct connection *connection, struct slice sub_id,
			const char *text)
{
	(void)message_write_closed(answer_begin(connection), sub_id, slice_of(text));
	push_answer(connection);
}

/* Subscriptions */

static size_t find_sub(const struct connection *connection, struct slice id)
{
	size_t i;

	for (i = 0; i < connection->sub_count; i++)
		if (slice_eq(connection->subs[i]->id, id))
			break;
	return i;
}

static void remove_sub(struct connection *connection, size_t i, enum queue_forget what)
{
	struct subscription *sub = connection->subs[i];

	queue_forget(&connection->queue, sub->head, what);
	route_remove(&connection->core->route, sub);
	connection->sub_bytes -= sub->bytes;
	subscription_destroy(sub);
	connection->subs[i] = connection->subs[--connection->sub_count];
}

static void remove_all_subs(struct connection *connection)
{
	while (connection->sub_count > 0)
		remove_sub(connection, connection->sub_count - 1, QUEUE_FORGET_ALL);
}

void connection_close(struct connection *connection, int code, const char *reason)
{
	if (connection->state == CONNECTION_CLOSING)
		return;
	connection->state = CONNECTION_CLOSING;
	connection->close_code = code;
	connection->close_reason = reason;
	remove_all_subs(connection);
	connection->core->io->wake(connection);
}

/* Design §7: queue dropped, CLOSED, closed within 5 s (the server sees to that). */
static void fall_behind(struct connection *connection)
{
	char text[96];
	size_t i;

	if (connection->state == CONNECTION_CLOSING)
		return;
	(void)snprintf(text, sizeof(text),
		       "error: reader too slow, %zu bytes were unsent",
		       connection->queue.bytes);
	core_refuse(connection->core, connection->number, REFUSAL_BEHIND, text);
	queue_clear(&connection->queue);
	/* At most 64 short messages in an empty queue: it does not fall behind again. */
	for (i = 0; i < connection->sub_count; i++)
		send_closed(connection, connection->subs[i]->id, text);
	connection_close(connection, CLOSE_POLICY, "reader too slow");
}

void core_recheck(struct core *core)
{
	struct connection *at;
	struct admission admission;
	size_t i;

	for (at = core->connections; at; at = at->next) {
		if (at->state == CONNECTION_CLOSING ||
		    admit_stay(&core->admit, &at->keys, at->sub_count > 0, now_s(core),
			       &admission))
			continue;
		core_refuse(core, at->number, admission.refusal, admission.text);
		for (i = 0; i < at->sub_count; i++)
			send_closed(at, at->subs[i]->id, admission.text);
		send_notice(at, admission.text);
		connection_close(at, CLOSE_POLICY, "this key is not served any more");
	}
}

/* Fan-out */

struct fan_out {
	struct core *core;
	const struct event *event;
	struct body *body; /* made for the first who needs it */
	size_t readers;
};

static struct body *fan_out_body(struct fan_out *fan_out)
{
	struct buf *stripped = &fan_out->core->stripped;

	if (fan_out->body)
		return fan_out->body;
	if (fan_out->event->has_more) {
		buf_clear(stripped);
		(void)event_strip(fan_out->event->text, stripped);
		fan_out->body = body_create(buf_slice(stripped));
	} else {
		fan_out->body = body_create(fan_out->event->text);
	}
	return fan_out->body;
}

static void on_match(void *ctx, struct subscription *sub)
{
	struct fan_out *fan_out = ctx;
	struct core *core = fan_out->core;
	struct connection *reader = sub->reader;
	bool was_empty = reader->queue.count == 0;

	if (reader->is_behind)
		return;
	if (!queue_push(&reader->queue, PARCEL_EVENT, sub->head, fan_out_body(fan_out))) {
		/* Its subscriptions cannot go while the route is being walked. */
		reader->is_behind = true;
		reader->next_behind = core->behind;
		core->behind = reader;
		return;
	}
	if (was_empty)
		core->io->wake(reader);
	core->counters.deliveries++;
	if (reader->fan_out != core->fan_out) {
		reader->fan_out = core->fan_out;
		fan_out->readers++;
	}
}

static struct connection *furthest_behind(struct core *core)
{
	struct connection *furthest = NULL;
	struct connection *at;
	size_t most = 0;

	for (at = core->connections; at; at = at->next) {
		if (at->state == CONNECTION_OPEN && at->queue.bytes > most) {
			furthest = at;
			most = at->queue.bytes;
		}
	}
	return furthest;
}

static void drop_behind(struct core *core)
{
	struct connection *reader;

	while ((reader = core->behind)) {
		core->behind = reader->next_behind;
		fall_behind(reader);
	}
	while (core->retained.bytes > RELAY_RETAINED_MAX &&
	       (reader = furthest_behind(core)))
		fall_behind(reader);
}

/* Hands an admitted event to everybody who asked for it; returns how many that were. */
static size_t publish(struct core *core, const struct event *event,
		      const struct admission *admission)
{
	struct fan_out fan_out = {.core = core, .event = event};

	core->fan_out++;
	route_event(&core->route, event, on_match, &fan_out);
	if (admission->telemetry && admission->first)
		window_add(&core->window, admission->owner, event, fan_out_body(&fan_out),
			   now_s(core));
	body_unref(fan_out.body);
	drop_behind(core);
	if (fan_out.readers > 0)
		seen_reach(&core->admit.seen, event->id);
	else
		core->counters.unheard++;
	return fan_out.readers;
}

/* Messages */

static void refuse_notice(struct connection *connection, enum refusal refusal,
			  const char *text)
{
	core_refuse(connection->core, connection->number, refusal, text);
	send_notice(connection, text);
}

static void refuse_sub(struct connection *connection, struct slice id,
		       enum refusal refusal, const char *text)
{
	size_t i = find_sub(connection, id);

	/* CLOSED ends what there was under that id. */
	if (i < connection->sub_count)
		remove_sub(connection, i, QUEUE_FORGET_ALL);
	core_refuse(connection->core, connection->number, refusal, text);
	send_closed(connection, id, text);
}

static void refuse_event(struct connection *connection, struct slice id_hex,
			 enum refusal refusal, const char *text)
{
	core_refuse(connection->core, connection->number, refusal, text);
	send_ok(connection, id_hex, false, text);
}

/* RFC 6455, 8.1: text that is no UTF-8 fails the connection. Asked only when something
 * did not parse: what does has been checked. */
static bool close_unless_utf8(struct connection *connection, struct slice text)
{
	if (utf8_valid(text))
		return false;
	core_refuse(connection->core, connection->number, REFUSAL_UTF8,
		    "text is not UTF-8");
	connection_close(connection, CLOSE_BAD_TEXT, "text is not UTF-8");
	return true;
}

/* An event is answered by its id if it has one, else by a NOTICE. */
static bool parse_event(struct connection *connection, struct slice json,
			struct event *event)
{
	char text[sizeof(((struct err *)NULL)->text) + 16];
	struct slice id_hex;
	struct err err;

	if (event_parse(json, &connection->core->arena, event, &err))
		return true;
	if (close_unless_utf8(connection, json))
		return false;
	(void)snprintf(text, sizeof(text), "invalid: %s", err.text);
	if (event_find_id(json, &id_hex))
		refuse_event(connection, id_hex, REFUSAL_MALFORMED, text);
	else
		refuse_notice(connection, REFUSAL_MALFORMED, text);
	return false;
}

static void handle_event(struct connection *connection, struct slice json)
{
	struct core *core = connection->core;
	struct admission admission;
	struct event event;
	struct slice id_hex;
	char hex[64];
	char text[64];
	size_t readers;

	if (!parse_event(connection, json, &event))
		return;
	hex_encode(event.id, sizeof(event.id), hex);
	id_hex = (struct slice){hex, sizeof(hex)};
	admit_event(&core->admit, &event, &connection->keys, &connection->from,
		    now_s(core), core->io->now_ms(), &admission);
	switch (admission.verdict) {
	case ADMIT_REFUSE:
		refuse_event(connection, id_hex, admission.refusal, admission.text);
		return;
	case ADMIT_DUPLICATE:
		core->counters.duplicates++;
		send_ok(connection, id_hex, true, admission.text);
		return;
	case ADMIT_IGNORE:
		core->counters.ignored++;
		send_ok(connection, id_hex, true, admission.text);
		return;
	case ADMIT_PASS:
		if (kind_is_gated(event.kind))
			core->counters.frames++;
		else
			core->counters.events++;
		readers = publish(core, &event, &admission);
		(void)snprintf(text, sizeof(text), "received by %zu reader%s", readers,
			       readers == 1 ? "" : "s");
		send_ok(connection, id_hex, true, text);
		return;
	}
}

/* What the window has goes out before EOSE, what comes from now on after it: nothing can
 * come between, because both happen in this one call. */
static void replay(struct connection *connection, struct subscription *sub)
{
	struct core *core = connection->core;
	const struct window_entry **entries = NULL;
	size_t count, i;

	count = window_select(&core->window, sub->frame_filters, sub->frame_filter_count,
			      sub->keys, sub->key_count, now_s(core), &core->arena,
			      &entries);
	for (i = 0; i < count; i++) {
		push(connection, PARCEL_REPLAY, sub->head, entries[i]->body);
		seen_reach(&core->admit.seen, entries[i]->id);
		core->counters.deliveries++;
	}
	push(connection, PARCEL_EOSE, sub->head, NULL);
}

/* May it ask once more? */
static bool take_ask(struct connection *connection)
{
	const int64_t full = INT64_C(1000) * CONNECTION_ASKS_MAX;
	const int64_t now_ms = connection->core->io->now_ms();

	connection->asks += (now_ms - connection->asks_ms) * CONNECTION_ASKS_PER_S;
	connection->asks_ms = now_ms;
	if (connection->asks > full)
		connection->asks = full;
	if (connection->asks < 1000)
		return false;
	connection->asks -= 1000;
	return true;
}

static void handle_req(struct connection *connection,
		       const struct client_message *message)
{
	char text[sizeof(((struct err *)NULL)->text) + 16];
	struct subscription *sub;
	const char *prefix;
	bool gated;
	struct err err;
	size_t i;

	if (!take_ask(connection)) {
		refuse_sub(connection, message->sub_id, REFUSAL_RATE, TOO_MANY_ASKS);
		return;
	}
	sub = subscription_create(message->sub_id, message->filters,
				  message->filter_count, connection->keys.keys[0],
				  connection->keys.count, &gated, &err);
	if (!sub) {
		for (i = 0; i < message->filter_count; i++)
			if (close_unless_utf8(connection, message->filters[i]))
				return;
		prefix = !gated ? (err.code == ERR_REFUSED ? "unsupported" : "invalid")
				: (connection->keys.count == 0 ? "auth-required"
							       : "restricted");
		(void)snprintf(text, sizeof(text), "%s: %s", prefix, err.text);
		refuse_sub(connection, message->sub_id,
			   gated ? REFUSAL_GATED : REFUSAL_FILTER, text);
		return;
	}
	i = find_sub(connection, message->sub_id);
	if (i < connection->sub_count)
		remove_sub(connection, i, QUEUE_FORGET_AGAIN);
	if (connection->sub_count == RELAY_SUBS_MAX) {
		(void)snprintf(text, sizeof(text), "error: at most %d subscriptions",
			       RELAY_SUBS_MAX);
		subscription_destroy(sub);
		refuse_sub(connection, message->sub_id, REFUSAL_SUBSCRIPTIONS, text);
		return;
	}
	if (connection->sub_bytes + sub->bytes > CONNECTION_FILTER_BYTES_MAX) {
		(void)snprintf(text, sizeof(text), "error: more than %d bytes of filters",
			       CONNECTION_FILTER_BYTES_MAX);
		subscription_destroy(sub);
		refuse_sub(connection, message->sub_id, REFUSAL_SUBSCRIPTIONS, text);
		return;
	}
	if (connection->queue.replay_bytes > RELAY_READER_QUEUE_MAX) {
		subscription_destroy(sub);
		refuse_sub(connection, message->sub_id, REFUSAL_REPLAY,
			   "rate-limited: read what earlier subscriptions got first");
		return;
	}
	sub->reader = connection;
	connection->subs[connection->sub_count++] = sub;
	connection->sub_bytes += sub->bytes;
	route_add(&connection->core->route, sub);
	replay(connection, sub);
}

static void handle_close(struct connection *connection, struct slice id)
{
	size_t i = find_sub(connection, id);

	if (i < connection->sub_count)
		remove_sub(connection, i, QUEUE_FORGET_ALL);
}

/* Does the AUTH event answer our challenge, and is it true? */
static bool check_auth(struct connection *connection, const struct event *event,
		       struct err *err)
{
	struct core *core = connection->core;
	size_t count = core->url_count;
	struct slice *urls = arena_array(&core->arena, count + 1, sizeof(*urls));

	if (count > 0)
		memcpy(urls, core->urls, count * sizeof(*urls));
	if (connection->host_url)
		urls[count++] = slice_of(connection->host_url);
	return nip42_check(event, slice_of(connection->challenge), urls, count,
			   now_s(core), err) &&
	       event_verify(core->admit.crypto, event, &core->admit.scratch, err);
}

static void handle_auth(struct connection *connection, struct slice json)
{
	char text[sizeof(((struct err *)NULL)->text) + 32];
	struct core *core = connection->core;
	struct admission admission;
	struct event event;
	struct slice id_hex;
	struct err err;
	char hex[64];

	if (!parse_event(connection, json, &event))
		return;
	hex_encode(event.id, sizeof(event.id), hex);
	id_hex = (struct slice){hex, sizeof(hex)};
	if (!take_ask(connection)) {
		refuse_event(connection, id_hex, REFUSAL_RATE, TOO_MANY_ASKS);
		return;
	}
	if (!check_auth(connection, &event, &err)) {
		(void)snprintf(text, sizeof(text), "invalid: %s", err.text);
		refuse_event(connection, id_hex, REFUSAL_AUTH, text);
		return;
	}
	if (!admit_auth(&core->admit, &event, &connection->keys, now_s(core),
			core->io->now_ms(), &admission)) {
		refuse_event(connection, id_hex, admission.refusal, admission.text);
		return;
	}
	core->counters.authenticated++;
	send_ok(connection, id_hex, true, admission.text);
}

/* A message that is refused whatever it says, answered by what it is about. */
static void refuse_message(struct connection *connection,
			   const struct client_message *message,
			   const struct admission *admission)
{
	struct slice id_hex;

	if (message->sub_id.len > 0)
		refuse_sub(connection, message->sub_id, admission->refusal,
			   admission->text);
	else if (event_find_id(message->event, &id_hex))
		refuse_event(connection, id_hex, admission->refusal, admission->text);
	else
		refuse_notice(connection, admission->refusal, admission->text);
}

static void handle_message(struct connection *connection, struct slice text)
{
	char words[sizeof(((struct err *)NULL)->text) + 16];
	struct core *core = connection->core;
	struct client_message message;
	struct admission admission;
	struct slice sub_id;
	struct err err;

	if (!client_message_parse(text, &connection->core->arena, &message, &sub_id,
				  &err)) {
		if (close_unless_utf8(connection, text))
			return;
		if (!admit_message(&core->admit, CLIENT_EVENT, &connection->keys,
				   &connection->from, text.len, now_s(core),
				   core->io->now_ms(), &admission)) {
			refuse_notice(connection, admission.refusal, admission.text);
			return;
		}
		(void)snprintf(words, sizeof(words), "invalid: %s", err.text);
		if (sub_id.len > 0)
			refuse_sub(connection, sub_id, REFUSAL_MALFORMED, words);
		else
			refuse_notice(connection, REFUSAL_MALFORMED, words);
		return;
	}
	if (!admit_message(&core->admit, message.verb, &connection->keys,
			   &connection->from, text.len, now_s(core), core->io->now_ms(),
			   &admission)) {
		refuse_message(connection, &message, &admission);
		return;
	}
	switch (message.verb) {
	case CLIENT_EVENT:
		handle_event(connection, message.event);
		return;
	case CLIENT_REQ:
		handle_req(connection, &message);
		return;
	case CLIENT_CLOSE:
		handle_close(connection, message.sub_id);
		return;
	case CLIENT_AUTH:
		handle_auth(connection, message.event);
		return;
	case CLIENT_COUNT:
		refuse_sub(connection, message.sub_id, REFUSAL_COUNT,
			   "unsupported: this relay stores no events to count");
		return;
	}
}

static void receive_oversize(struct connection *connection)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "invalid: message is over %d bytes",
		       RELAY_MESSAGE_MAX);
	refuse_notice(connection, REFUSAL_OVERSIZE, text);
	buf_finish(&connection->partial);
	buf_init(&connection->partial, RELAY_MESSAGE_MAX);
	connection_close(connection, CLOSE_TOO_BIG, "message too big");
}

void connection_receive(struct connection *connection, struct slice bytes,
			enum chunk type, bool last)
{
	struct core *core = connection->core;
	struct buf *partial = &connection->partial;

	if (connection->state != CONNECTION_OPEN)
		return;
	if (type == CHUNK_BINARY) {
		if (last)
			refuse_notice(connection, REFUSAL_BINARY,
				      "unsupported: binary message, send text");
		return;
	}
	if (partial->len + bytes.len > RELAY_MESSAGE_MAX) {
		receive_oversize(connection);
		return;
	}
	/* A message that came whole is read where it is. */
	if (!last || partial->len > 0) {
		(void)buf_append(partial, bytes);
		bytes = buf_slice(partial);
	}
	if (!last)
		return;
	core->counters.messages++;
	arena_reset(&core->arena);
	handle_message(connection, bytes);
	buf_finish(partial);
	buf_init(partial, RELAY_MESSAGE_MAX);
}

void connection_auth_timeout(struct connection *connection)
{
	if (connection->state != CONNECTION_OPEN || connection->keys.count > 0 ||
	    connection->sub_count > 0)
		return;
	refuse_notice(connection, REFUSAL_IDLE,
		      "auth-required: neither AUTH nor REQ came in time");
	connection_close(connection, CLOSE_POLICY, "authentication timed out");
}

struct connection *connection_create(struct core *core, void *socket,
				     const char *host_url)
{
	struct connection *connection = mem_alloc(sizeof(*connection));
	uint8_t random[16];

	connection->core = core;
	connection->socket = socket;
	connection->number = ++core->counters.connections_total;
	core->counters.connections++;
	connection->host_url = host_url ? mem_dup(slice_of(host_url)) : NULL;
	connection->asks = INT64_C(1000) * CONNECTION_ASKS_MAX;
	connection->asks_ms = core->io->now_ms();
	buf_init(&connection->partial, RELAY_MESSAGE_MAX);
	queue_init(&connection->queue, &core->retained);
	connection->next = core->connections;
	if (connection->next)
		connection->next->prev = connection;
	core->connections = connection;
	loop_random(random, sizeof(random));
	hex_encode(random, sizeof(random), connection->challenge);
	(void)message_write_challenge(answer_begin(connection),
				      slice_of(connection->challenge));
	push_answer(connection);
	return connection;
}

void connection_destroy(struct connection *connection)
{
	struct core *core;

	if (!connection)
		return;
	core = connection->core;
	remove_all_subs(connection);
	queue_finish(&connection->queue);
	buf_finish(&connection->partial);
	if (connection->next)
		connection->next->prev = connection->prev;
	*(connection->prev ? &connection->prev->next : &core->connections) =
		connection->next;
	core->counters.connections--;
	free(connection->host_url);
	free(connection);
}
