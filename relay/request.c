#include "relay/request.h"

#include <stdio.h>

#include "relay/answer.h"
#include "wire/frame/limits.h"

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

void request_remove_all(struct connection *connection)
{
	while (connection->sub_count > 0)
		remove_sub(connection, connection->sub_count - 1, QUEUE_FORGET_ALL);
}

void request_refuse(struct connection *connection, struct slice id, enum refusal refusal,
		    const char *text)
{
	size_t i = find_sub(connection, id);

	/* CLOSED ends what there was under that id. */
	if (i < connection->sub_count)
		remove_sub(connection, i, QUEUE_FORGET_ALL);
	core_refuse(connection->core, connection->number, refusal, text);
	answer_closed(connection, id, text);
}

/* What the window has goes out before EOSE, what comes from now on after it: nothing can
 * come between, because both happen in this one call. */
static void replay(struct connection *connection, struct subscription *sub)
{
	struct core *core = connection->core;
	const struct window_entry **entries = NULL;
	size_t count, i;

	count = window_select(&core->window, sub->frame_filters, sub->frame_filter_count,
			      sub->keys, sub->key_count, core_now_s(core), &core->arena,
			      &entries);
	for (i = 0; i < count; i++) {
		connection_push(connection, PARCEL_REPLAY, sub->head, entries[i]->body);
		seen_reach(&core->admit.seen, entries[i]->id);
		core->counters.deliveries++;
	}
	connection_push(connection, PARCEL_EOSE, sub->head, NULL);
}

/* May it ask once more? */
bool request_take_ask(struct connection *connection)
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

void request_subscribe(struct connection *connection,
		       const struct client_message *message)
{
	char text[sizeof(((struct err *)NULL)->text) + 16];
	struct subscription *sub;
	const char *prefix;
	bool gated;
	struct err err;
	size_t i;

	if (!request_take_ask(connection)) {
		request_refuse(connection, message->sub_id, REFUSAL_RATE, TOO_MANY_ASKS);
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
		request_refuse(connection, message->sub_id,
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
		request_refuse(connection, message->sub_id, REFUSAL_SUBSCRIPTIONS, text);
		return;
	}
	if (connection->sub_bytes + sub->bytes > CONNECTION_FILTER_BYTES_MAX) {
		(void)snprintf(text, sizeof(text), "error: more than %d bytes of filters",
			       CONNECTION_FILTER_BYTES_MAX);
		subscription_destroy(sub);
		request_refuse(connection, message->sub_id, REFUSAL_SUBSCRIPTIONS, text);
		return;
	}
	if (connection->queue.replay_bytes > RELAY_READER_QUEUE_MAX) {
		subscription_destroy(sub);
		request_refuse(connection, message->sub_id, REFUSAL_REPLAY,
			       "rate-limited: read what earlier subscriptions got first");
		return;
	}
	sub->reader = connection;
	connection->subs[connection->sub_count++] = sub;
	connection->sub_bytes += sub->bytes;
	route_add(&connection->core->route, sub);
	replay(connection, sub);
}

void request_close(struct connection *connection, struct slice id)
{
	size_t i = find_sub(connection, id);

	if (i < connection->sub_count)
		remove_sub(connection, i, QUEUE_FORGET_ALL);
}
