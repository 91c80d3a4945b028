#include "relay/publish.h"

#include <stdio.h>

#include "relay/answer.h"
#include "relay/strip.h"
#include "wire/frame/limits.h"
#include "wire/host/loop.h"

/* Design §7: queue dropped, CLOSED, closed within 5 s (the server sees to that). */
void connection_fall_behind(struct connection *connection)
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
		answer_closed(connection, connection->subs[i]->id, text);
	connection_close(connection, CLOSE_POLICY, "reader too slow");
}

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
	if (reader->queue.bytes > core->counters.unsent_max)
		core->counters.unsent_max = reader->queue.bytes;
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

static void publish_drop_behind(struct core *core)
{
	struct connection *reader;

	while ((reader = core->behind)) {
		core->behind = reader->next_behind;
		connection_fall_behind(reader);
	}
	while (core->retained.bytes > RELAY_RETAINED_MAX &&
	       (reader = furthest_behind(core)))
		connection_fall_behind(reader);
}

/* Hands an admitted event to everybody who asked for it; returns how many that were. */
static size_t publish_fan_out(struct core *core, const struct event *event,
			      const struct admission *admission)
{
	struct fan_out fan_out = {.core = core, .event = event};
	int64_t begin = loop_now_ns();

	core->fan_out++;
	route_event(&core->route, event, on_match, &fan_out);
	if (admission->telemetry && admission->first)
		window_add(&core->window, admission->owner, event, fan_out_body(&fan_out),
			   core_now_s(core));
	body_unref(fan_out.body);
	publish_drop_behind(core);
	histogram_add(&core->counters.fan_out, loop_now_ns() - begin);
	if (fan_out.readers > 0)
		seen_reach(&core->admit.seen, event->id);
	else
		core->counters.unheard++;
	return fan_out.readers;
}

void publish_event(struct connection *connection, struct slice json)
{
	struct core *core = connection->core;
	struct admission admission;
	struct event event;
	struct slice id_hex;
	char hex[64];
	char text[64];
	size_t readers;

	if (!answer_parse_event(connection, json, &event))
		return;
	hex_encode(event.id, sizeof(event.id), hex);
	id_hex = (struct slice){hex, sizeof(hex)};
	admit_event(&core->admit, &event, &connection->keys, &connection->from,
		    core_now_s(core), core->io->now_ms(), &admission);
	switch (admission.verdict) {
	case ADMIT_REFUSE:
		refuse_event(connection, id_hex, admission.refusal, admission.text);
		return;
	case ADMIT_DUPLICATE:
		core->counters.duplicates++;
		answer_ok(connection, id_hex, true, admission.text);
		return;
	case ADMIT_IGNORE:
		core->counters.ignored++;
		answer_ok(connection, id_hex, true, admission.text);
		return;
	case ADMIT_PASS:
		if (kind_is_gated(event.kind))
			core->counters.frames++;
		else
			core->counters.events++;
		readers = publish_fan_out(core, &event, &admission);
		(void)snprintf(text, sizeof(text), "received by %zu reader%s", readers,
			       readers == 1 ? "" : "s");
		answer_ok(connection, id_hex, true, text);
		return;
	}
}
