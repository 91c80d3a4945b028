#include "relay/connection.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/answer.h"
#include "relay/publish.h"
#include "relay/request.h"
#include "relay/scan.h"
#include "relay/store.h"
#include "relay/store_put.h"
#include "relay/store_scan.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"
#include "wire/host/loop.h"
#include "wire/nostr/message.h"
#include "wire/nostr/nip42.h"

/* Longest answer we write ourselves: words of ours and an echoed subscription id. */
#define ANSWER_MAX 4096
/* Longest message whose event is put off: of longer ones the hash costs more than the
 * signature, and they would have to be copied. Our choice. */
#define PUT_OFF_BYTES_MAX (16 * 1024)

void core_init(struct core *core, const struct connection_io *io, struct crypto *crypto)
{
	memset(core, 0, sizeof(*core));
	core->io = io;
	admit_init(&core->admit, crypto);
	window_init(&core->window);
	route_init(&core->route);
	arena_init(&core->arena, 64 * 1024);
	buf_init(&core->answer, ANSWER_MAX);
	buf_init(&core->stripped, EVENT_MAX_BYTES);
}

bool core_keep(struct core *core, struct store *store, struct err *err)
{
	core->put = store_put_create(store_db(store), err);
	core->scanner =
		core->put ? store_scanner_create(store_reader_db(store), err) : NULL;
	if (!core->scanner || !store_put_last_seq(store_db(store), &core->seq, err))
		return false;
	core->store = store;
	core->admit.stores = true;
	return true;
}

void core_keep_no_more(struct core *core)
{
	core->store = NULL;
}

void core_finish(struct core *core)
{
	store_put_destroy(core->put);
	store_scanner_destroy(core->scanner);
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

void core_fail_disk(struct core *core, const struct err *err)
{
	int64_t now_ms = core->io->now_ms();

	if (core->disk_failed && now_ms - core->disk_failed_ms < REFUSAL_LOG_MS)
		return;
	core->disk_failed = true;
	core->disk_failed_ms = now_ms;
	log_warn("relay", "%s", err->text);
}

int64_t core_now_s(const struct core *core)
{
	return core->io->unix_ms() / 1000;
}

void connection_close(struct connection *connection, int code, const char *reason)
{
	if (connection->state == CONNECTION_CLOSING)
		return;
	connection->state = CONNECTION_CLOSING;
	connection->close_code = code;
	connection->close_reason = reason;
	request_remove_all(connection);
	scan_forget(connection);
	connection->core->io->wake(connection);
}

void core_recheck(struct core *core)
{
	struct connection *at;
	struct admission admission;
	size_t i;

	publish_settle(core);
	for (at = core->connections; at; at = at->next) {
		if (at->state == CONNECTION_CLOSING ||
		    admit_stay(&core->admit, &at->keys, at->sub_count > 0,
			       core_now_s(core), &admission))
			continue;
		core_refuse(core, at->number, admission.refusal, admission.text);
		for (i = 0; i < at->sub_count; i++)
			answer_closed(at, at->subs[i]->id, admission.text);
		answer_notice(at, admission.text);
		connection_close(at, CLOSE_POLICY, "this key is not served any more");
	}
}

/* Messages */

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
			   core_now_s(core), err) &&
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

	if (!answer_parse_event(connection, json, &event))
		return;
	hex_encode(event.id, sizeof(event.id), hex);
	id_hex = (struct slice){hex, sizeof(hex)};
	if (!request_take_ask(connection)) {
		refuse_event(connection, id_hex, REFUSAL_RATE, TOO_MANY_ASKS);
		return;
	}
	if (!check_auth(connection, &event, &err)) {
		(void)snprintf(text, sizeof(text), "invalid: %s", err.text);
		refuse_event(connection, id_hex, REFUSAL_AUTH, text);
		return;
	}
	if (!admit_auth(&core->admit, &event, &connection->keys, core_now_s(core),
			core->io->now_ms(), &admission)) {
		refuse_event(connection, id_hex, admission.refusal, admission.text);
		return;
	}
	core->counters.authenticated++;
	answer_ok(connection, id_hex, true, admission.text);
}

/* A message that is refused whatever it says, answered by what it is about. */
static void refuse_message(struct connection *connection,
			   const struct client_message *message,
			   const struct admission *admission)
{
	struct slice id_hex;

	if (message->sub_id.len > 0)
		request_refuse(connection, message->sub_id, admission->refusal,
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
		publish_settle(core);
		if (close_unless_utf8(connection, text))
			return;
		if (!admit_message(&core->admit, CLIENT_EVENT, &connection->keys,
				   &connection->from, text.len, core_now_s(core),
				   core->io->now_ms(), &admission)) {
			refuse_notice(connection, admission.refusal, admission.text);
			return;
		}
		(void)snprintf(words, sizeof(words), "invalid: %s", err.text);
		if (sub_id.len > 0)
			request_refuse(connection, sub_id, REFUSAL_MALFORMED, words);
		else
			refuse_notice(connection, REFUSAL_MALFORMED, words);
		return;
	}
	if (!admit_message(&core->admit, message.verb, &connection->keys,
			   &connection->from, text.len, core_now_s(core),
			   core->io->now_ms(), &admission)) {
		publish_settle(core);
		refuse_message(connection, &message, &admission);
		return;
	}
	switch (message.verb) {
	case CLIENT_EVENT:
		publish_event(connection, message.event);
		return;
	case CLIENT_REQ:
		request_subscribe(connection, &message);
		return;
	case CLIENT_CLOSE:
		request_close(connection, message.sub_id);
		return;
	case CLIENT_AUTH:
		handle_auth(connection, message.event);
		return;
	case CLIENT_COUNT:
		request_count(connection, &message);
		return;
	}
}

static void receive_oversize(struct connection *connection)
{
	char text[64];

	publish_settle(connection->core);
	(void)snprintf(text, sizeof(text), "invalid: message is over %d bytes",
		       RELAY_MESSAGE_MAX);
	refuse_notice(connection, REFUSAL_OVERSIZE, text);
	buf_finish(&connection->partial);
	buf_init(&connection->partial, RELAY_MESSAGE_MAX);
	connection_close(connection, CLOSE_TOO_BIG, "message too big");
}

/* Its event may wait for others, whose signatures are checked together with its own. */
static bool may_put_off(const struct core *core, struct slice text)
{
	return core->verifier && text.len <= PUT_OFF_BYTES_MAX &&
	       slice_starts(text, SLICE("[\"EVENT\""));
}

static void receive_message(struct connection *connection, struct slice text)
{
	struct core *core = connection->core;
	const bool is_put_off = may_put_off(core, text);

	core->counters.messages++;
	if (!is_put_off)
		publish_settle(core);
	/* It may just have ended its connection. */
	if (connection->state != CONNECTION_OPEN)
		return;
	if (core->put_off.count == 0)
		arena_reset(&core->arena);
	handle_message(connection, is_put_off ? arena_dup(&core->arena, text) : text);
	if (!is_put_off)
		publish_settle(core);
}

void connection_receive(struct connection *connection, struct slice bytes,
			enum chunk type, bool last)
{
	struct buf *partial = &connection->partial;

	if (connection->state != CONNECTION_OPEN)
		return;
	if (type == CHUNK_BINARY) {
		publish_settle(connection->core);
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
	receive_message(connection, bytes);
	buf_finish(partial);
	buf_init(partial, RELAY_MESSAGE_MAX);
}

void connection_sent(struct connection *connection)
{
	scan_go_on(connection);
}

void connection_auth_timeout(struct connection *connection)
{
	publish_settle(connection->core);
	if (connection->state != CONNECTION_OPEN || connection->keys.count > 0 ||
	    connection->sub_count > 0 || connection->answers.taken > 0)
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
	answer_send(connection);
	return connection;
}

void connection_destroy(struct connection *connection)
{
	struct core *core;

	if (!connection)
		return;
	core = connection->core;
	publish_settle(core);
	request_remove_all(connection);
	scan_forget(connection);
	answer_forget(connection);
	admit_leave(&core->admit, &connection->keys);
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
