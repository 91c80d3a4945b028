#include "relay/publish.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/answer.h"
#include "relay/scan.h"
#include "relay/store.h"
#include "relay/store_put.h"
#include "relay/strip.h"
#include "relay/verifier.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"
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
	bool is_stored;    /* a subscription may get it by its scan instead */
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
	/* The same REQ sent again would find it in the store. */
	fan_out->body->kept = fan_out->is_stored;
	return fan_out->body;
}

/* Its subscriptions cannot go while the route is being walked. */
static void mark_behind(struct core *core, struct connection *reader)
{
	reader->is_behind = true;
	reader->next_behind = core->behind;
	core->behind = reader;
}

/* Into the queue, or where it waits for EOSE; false when the reader is too slow. */
static bool deliver(struct fan_out *fan_out, struct subscription *sub)
{
	struct connection *reader = sub->reader;
	struct body *body = fan_out_body(fan_out);
	bool was_empty = reader->queue.count == 0;

	switch (fan_out->is_stored ? scan_hold(sub, body) : SCAN_NONE) {
	case SCAN_HELD:
		return true;
	case SCAN_BEHIND:
		return false;
	case SCAN_NONE:
		break;
	}
	if (!queue_push(&reader->queue, PARCEL_EVENT, sub->head, body))
		return false;
	if (was_empty)
		reader->core->io->wake(reader);
	return true;
}

static void on_match(void *ctx, struct subscription *sub)
{
	struct fan_out *fan_out = ctx;
	struct core *core = fan_out->core;
	struct connection *reader = sub->reader;

	if (reader->is_behind)
		return;
	if (!deliver(fan_out, sub)) {
		mark_behind(core, reader);
		return;
	}
	if (reader->queue.bytes > core->counters.unsent_max)
		core->counters.unsent_max = reader->queue.bytes;
	core->counters.deliveries++;
	if (reader->fan_out != core->fan_out) {
		reader->fan_out = core->fan_out;
		fan_out->readers++;
	}
}

/* Unsent bytes of a reader, also of those that wait for an EOSE. */
static size_t unsent(const struct connection *connection)
{
	return connection->queue.bytes + connection->scans.held_bytes;
}

static struct connection *furthest_behind(struct core *core)
{
	struct connection *furthest = NULL;
	struct connection *at;
	size_t most = 0;

	for (at = core->connections; at; at = at->next) {
		if (at->state == CONNECTION_OPEN && unsent(at) > most) {
			furthest = at;
			most = unsent(at);
		}
	}
	return furthest;
}

void publish_drop_behind(struct core *core)
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

/* Stored kinds */

/* One event on its way to the disk. */
struct publication {
	struct core *core;
	struct answer_slot *slot;
	int64_t now;
	char id_hex[64];
	struct arena arena; /* holds text and event */
	struct slice text;  /* as sent */
	/* The writer's, until it is answered: */
	struct event event;
	struct buf json; /* canonical */
	struct put_result result;
};

static void publication_destroy(struct publication *publication)
{
	arena_finish(&publication->arena);
	buf_finish(&publication->json);
	free(publication);
}

/* On the writer's thread: read again there, which saves the loop a copy of all parts. */
static bool put_event(void *ctx, struct sqlite3 *db, struct err *err)
{
	struct publication *publication = ctx;
	struct event *event = &publication->event;

	(void)db;
	if (!event_parse(publication->text, &publication->arena, event, err))
		return false;
	if (!event_write(event, &publication->json))
		return err_set(err, ERR_TOO_LARGE, "event is too large");
	event->text = buf_slice(&publication->json);
	event->has_more = false;
	return store_put_event(publication->core->put, event, event->text,
			       publication->now, &publication->result, err);
}

/* Committed: whoever asked for it gets it now, and whoever asks from now on finds it. */
static void publish_stored(struct core *core, const struct publication *publication)
{
	struct fan_out fan_out = {
		.core = core, .event = &publication->event, .is_stored = true};
	int64_t begin = loop_now_ns();
	int64_t expires;

	core->seq = publication->result.seq;
	core->counters.stored++;
	if (event_expires(fan_out.event, &expires) && expires <= core_now_s(core))
		return;
	core->fan_out++;
	route_event(&core->route, fan_out.event, on_match, &fan_out);
	body_unref(fan_out.body);
	publish_drop_behind(core);
	histogram_add(&core->counters.fan_out, loop_now_ns() - begin);
}

static void on_put(void *ctx, const struct err *err)
{
	struct publication *publication = ctx;
	struct core *core = publication->core;
	const struct put_result *result = &publication->result;
	const struct slice id = {publication->id_hex, sizeof(publication->id_hex)};
	char text[sizeof(result->text) + sizeof(DISK_FAILED)];
	struct connection *connection;
	enum refusal refusal = REFUSAL_DATABASE;
	bool accepted = !err && result->verdict != PUT_REFUSED;

	if (err)
		core_fail_disk(core, err);
	(void)snprintf(text, sizeof(text), "%s", err ? DISK_FAILED : result->text);
	if (!err && !accepted)
		refusal = result->is_deleted ? REFUSAL_DELETED : REFUSAL_OLD;
	if (accepted && result->verdict == PUT_DUPLICATE)
		core->counters.duplicates++;
	if (accepted && result->verdict == PUT_STORED)
		publish_stored(core, publication);
	connection = answer_now(publication->slot, id, accepted, refusal, text);
	if (connection)
		scan_go_on(connection);
	publication_destroy(publication);
}

/* What it takes while it waits: the text, its parts, and its canonical form. */
static size_t publication_bytes(const struct publication *publication)
{
	return sizeof(*publication) + 3 * publication->text.len;
}

static void store_event(struct connection *connection, const struct event *event,
			struct slice id_hex)
{
	struct core *core = connection->core;
	struct publication *publication = mem_alloc(sizeof(*publication));

	publication->core = core;
	publication->now = core_now_s(core);
	memcpy(publication->id_hex, id_hex.ptr, sizeof(publication->id_hex));
	arena_init(&publication->arena, 1024);
	publication->text = arena_dup(&publication->arena, event->text);
	buf_init(&publication->json, EVENT_MAX_BYTES);
	if (connection->answers.taken - connection->answers.left >= PUBLISH_WAITING_MAX ||
	    !store_write(core->store, put_event, on_put, publication,
			 publication_bytes(publication))) {
		publication_destroy(publication);
		refuse_event(connection, id_hex, REFUSAL_DATABASE,
			     "rate-limited: too many events wait for the disk, try "
			     "again in a second");
		return;
	}
	publication->slot = answer_later(connection);
}

/* So many in one transaction, so that no publisher waits long. */
#define SWEEP_MAX 500

struct sweep {
	struct core *core;
	int64_t now;
	int64_t count;
};

static bool sweep(void *ctx, struct sqlite3 *db, struct err *err)
{
	struct sweep *job = ctx;

	(void)db;
	return store_put_sweep(job->core->put, job->now, SWEEP_MAX, &job->count, err);
}

static void on_swept(void *ctx, const struct err *err)
{
	struct sweep *job = ctx;
	bool more = !err && job->count == SWEEP_MAX;

	if (err)
		log_warn("relay", "expired events stay on disk: %s", err->text);
	if (more)
		publish_sweep(job->core);
	free(job);
}

void publish_sweep(struct core *core)
{
	struct sweep *job;

	if (!core->store)
		return;
	job = mem_alloc(sizeof(*job));
	job->core = core;
	job->now = core_now_s(core);
	if (!store_write(core->store, sweep, on_swept, job, sizeof(*job)))
		free(job);
}

/* EVENT */

/* Now that all is known of it. */
static void conclude(struct connection *connection, const struct event *event,
		     const struct admission *admission)
{
	struct core *core = connection->core;
	struct slice id_hex;
	char hex[64];
	char text[64];
	size_t readers;

	hex_encode(event->id, sizeof(event->id), hex);
	id_hex = (struct slice){hex, sizeof(hex)};
	switch (admission->verdict) {
	case ADMIT_REFUSE:
		refuse_event(connection, id_hex, admission->refusal, admission->text);
		return;
	case ADMIT_DUPLICATE:
		core->counters.duplicates++;
		answer_ok(connection, id_hex, true, admission->text);
		return;
	case ADMIT_IGNORE:
		core->counters.ignored++;
		answer_ok(connection, id_hex, true, admission->text);
		return;
	case ADMIT_STORE:
		store_event(connection, event, id_hex);
		return;
	case ADMIT_PASS:
		if (event->kind == FRAME_KIND)
			core->counters.frames++;
		else
			core->counters.events++;
		readers = publish_fan_out(core, event, admission);
		/* Telemetry is in the window: who asks for it later has it. */
		if (readers == 0 && core->mute && !admission->telemetry) {
			refuse_event(connection, id_hex, REFUSAL_MUTE,
				     "mute: nobody listened for it");
			return;
		}
		(void)snprintf(text, sizeof(text), "received by %zu reader%s", readers,
			       readers == 1 ? "" : "s");
		answer_ok(connection, id_hex, true, text);
		return;
	}
}

/* An event that was put off, in core->arena like all it points to. */
struct put_off {
	struct put_off *next;
	struct connection *connection;
	bool is_asked; /* but for its signature it may pass; else @admission says all */
	struct admission admission;
	struct event event;
};

static void settle_one(struct core *core, struct put_off *one, size_t i)
{
	int64_t took_ns;
	bool is_signed;

	if (one->is_asked) {
		is_signed = verifier_answer(core->verifier, i, core->admit.crypto,
					    &one->event, &took_ns);
		admit_conclude(&core->admit, &one->event, is_signed, took_ns,
			       core_now_s(core), &one->admission);
	}
	/* One before it may have ended its connection. */
	if (one->connection->state == CONNECTION_OPEN)
		conclude(one->connection, &one->event, &one->admission);
}

void publish_settle(struct core *core)
{
	struct put_off *one;
	size_t i;

	for (i = 0; (one = core->put_off.first); i++) {
		core->put_off.first = one->next;
		settle_one(core, one, i);
	}
	core->put_off.count = 0;
}

static void put_off(struct core *core, struct put_off *one)
{
	if (!core->put_off.first)
		core->put_off.end = &core->put_off.first;
	*core->put_off.end = one;
	core->put_off.end = &one->next;
	if (one->is_asked)
		verifier_ask(core->verifier, core->put_off.count, &one->event);
	core->put_off.count++;
	/* What an attestation allows is known before the next event is looked at. */
	if (core->put_off.count == VERIFIER_MAX || one->admission.attested)
		publish_settle(core);
}

void publish_event(struct connection *connection, struct slice json)
{
	struct core *core = connection->core;
	struct put_off *one = arena_alloc(&core->arena, sizeof(*one));

	if (!answer_parse_event(connection, json, &one->event))
		return;
	one->connection = connection;
	if (!core->verifier) {
		admit_event(&core->admit, &one->event, &connection->keys,
			    &connection->from, core_now_s(core), core->io->now_ms(),
			    &one->admission);
		conclude(connection, &one->event, &one->admission);
		return;
	}
	one->is_asked =
		admit_ask(&core->admit, &one->event, &connection->keys, &connection->from,
			  core_now_s(core), core->io->now_ms(), &one->admission);
	put_off(core, one);
}
