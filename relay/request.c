#include "relay/request.h"

#include <stdio.h>

#include "relay/answer.h"
#include "relay/scan.h"
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
	if (!scan_drop(sub))
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

/* What each filter may give from the store, once it gave what the window has. */
static void find_room(const struct subscription *sub, size_t given,
		      int64_t room[MESSAGE_FILTERS_MAX])
{
	size_t i, j;

	for (i = 0; i < sub->filter_count; i++) {
		const struct filter *filter = &sub->filters[i];

		room[i] = filter->has_limit ? filter->limit : RELAY_LIMIT_DEFAULT;
		if (room[i] > RELAY_LIMIT_MAX)
			room[i] = RELAY_LIMIT_MAX;
		for (j = 0; filter->has_limit && j < sub->frame_filter_count; j++)
			if (sub->frame_filters[j] == filter)
				room[i] -= (int64_t)given;
	}
}

/* What the window and the store have goes out before EOSE, what comes from now on after
 * it: nothing can come between, because the subscription is live and both have a place to
 * end at before this call ends. */
static void replay(struct connection *connection, struct subscription *sub)
{
	struct core *core = connection->core;
	const struct window_entry **entries = NULL;
	int64_t room[MESSAGE_FILTERS_MAX];
	size_t count, i;

	count = window_select(&core->window, sub->frame_filters, sub->frame_filter_count,
			      sub->keys, sub->key_count, core_now_s(core), &core->arena,
			      &entries);
	for (i = 0; i < count; i++) {
		connection_push(connection, PARCEL_REPLAY, sub->head, entries[i]->body);
		seen_reach(&core->admit.seen, entries[i]->id);
		core->counters.deliveries++;
	}
	find_room(sub, count, room);
	if (!scan_start(connection, sub, room))
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

/* Parses the filters; what is wrong was answered when it is NULL. */
static struct subscription *read_filters(struct connection *connection,
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
		return NULL;
	}
	sub = subscription_create(message->sub_id, message->filters,
				  message->filter_count, connection->keys.keys[0],
				  connection->keys.count, &gated, &err);
	if (sub)
		return sub;
	for (i = 0; i < message->filter_count; i++)
		if (close_unless_utf8(connection, message->filters[i]))
			return NULL;
	prefix = !gated ? (err.code == ERR_REFUSED ? "unsupported" : "invalid")
			: (connection->keys.count == 0 ? "auth-required" : "restricted");
	(void)snprintf(text, sizeof(text), "%s: %s", prefix, err.text);
	request_refuse(connection, message->sub_id,
		       gated ? REFUSAL_GATED : REFUSAL_FILTER, text);
	return NULL;
}

void request_subscribe(struct connection *connection,
		       const struct client_message *message)
{
	char text[64];
	struct subscription *sub = read_filters(connection, message);
	size_t i;

	if (!sub)
		return;
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

void request_count(struct connection *connection, const struct client_message *message)
{
	struct subscription *sub;

	if (!connection->core->store) {
		request_refuse(connection, message->sub_id, REFUSAL_COUNT,
			       "unsupported: this relay stores no events to count");
		return;
	}
	sub = read_filters(connection, message);
	if (!sub || scan_count(connection, sub))
		return;
	subscription_destroy(sub);
	request_refuse(connection, message->sub_id, REFUSAL_COUNT,
		       "rate-limited: wait for the answers to earlier COUNTs");
}

void request_close(struct connection *connection, struct slice id)
{
	size_t i = find_sub(connection, id);

	if (i < connection->sub_count)
		remove_sub(connection, i, QUEUE_FORGET_ALL);
}
