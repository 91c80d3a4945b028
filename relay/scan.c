#include "relay/scan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/answer.h"
#include "relay/publish.h"
#include "relay/request.h"
#include "relay/store.h"
#include "relay/store_scan.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/nostr/json.h"

struct scan {
	struct scan *next; /* of the connection's */
	struct core *core;
	struct connection *connection; /* NULL: gone */
	/* The connection's; the scan's own of a COUNT, and once it is dropped. */
	struct subscription *sub;
	bool is_dropped; /* in no list any more: goes when the reader hands it back */
	uint64_t after;  /* OKs that must have left first */
	bool has_begun;  /* what is handed out from now on is live */
	struct queue held;
	struct store_scan state; /* the reader's while it runs */
};

static void destroy(struct scan *scan)
{
	queue_finish(&scan->held);
	free(scan);
}

static struct scan *create(struct connection *connection, struct subscription *sub)
{
	struct scans *scans = &connection->scans;
	struct scan *scan = mem_alloc(sizeof(*scan));

	scan->core = connection->core;
	scan->connection = connection;
	scan->sub = sub;
	scan->after = connection->answers.taken;
	scan->state.sub = sub;
	queue_init(&scan->held, &connection->core->retained);
	if (!scans->first)
		scans->end = &scans->first;
	*scans->end = scan;
	scans->end = &scan->next;
	return scan;
}

/* Takes it out of its connection's list, wherever it stands there. */
static void unlink_scan(struct scan *scan)
{
	struct scans *scans = &scan->connection->scans;
	struct scan **at = &scans->first;

	while (*at != scan)
		at = &(*at)->next;
	*at = scan->next;
	if (!scan->next)
		scans->end = at;
	scan->next = NULL;
	scans->held_bytes -= scan->held.bytes;
	scans->counts -= scan->state.is_count;
}

/* Nobody wants it any more. False when the reader still has it: on_slice() destroys it
 * then, and its subscription. */
static bool abandon(struct scan *scan)
{
	unlink_scan(scan);
	queue_clear(&scan->held);
	scan->is_dropped = scan->connection->scans.running == scan;
	return !scan->is_dropped;
}

bool scan_drop(struct subscription *sub)
{
	struct scan *scan = sub->scan;

	sub->scan = NULL;
	if (!scan)
		return false;
	if (!abandon(scan))
		return true;
	destroy(scan);
	return false;
}

void scan_forget(struct connection *connection)
{
	struct scan *scan;

	while ((scan = connection->scans.first)) {
		const bool is_ours = abandon(scan);

		assert(connection->scans.first != scan);
		if (!is_ours)
			continue;
		subscription_destroy(scan->sub);
		destroy(scan);
	}
	if (connection->scans.running)
		connection->scans.running->connection = NULL;
	connection->scans.running = NULL;
}

bool scan_start(struct connection *connection, struct subscription *sub,
		const int64_t *room)
{
	struct scan *scan;
	bool any = false;
	size_t i;

	for (i = 0; i < sub->filter_count; i++)
		any = any || (room[i] > 0 && filter_takes_stored(&sub->filters[i]));
	if (!any || !connection->core->store)
		return false;
	scan = create(connection, sub);
	sub->scan = scan;
	memcpy(scan->state.room, room, sub->filter_count * sizeof(*room));
	scan_go_on(connection);
	return true;
}

bool scan_count(struct connection *connection, struct subscription *sub)
{
	struct scan *scan;
	size_t i;

	if (connection->scans.counts == SCAN_COUNTS_MAX)
		return false;
	scan = create(connection, sub);
	scan->state.is_count = true;
	connection->scans.counts++;
	/* NIP-45 counts whatever limit says. */
	for (i = 0; i < sub->filter_count; i++)
		scan->state.room[i] = INT64_MAX;
	scan_go_on(connection);
	return true;
}

enum scan_live scan_hold(struct subscription *sub, struct body *body)
{
	struct connection *connection = sub->reader;
	struct scan *scan = sub->scan;
	size_t before;

	if (!scan)
		return SCAN_NONE;
	if (!scan->has_begun)
		return SCAN_HELD;
	before = scan->held.bytes;
	if (connection->scans.held_bytes + body->len > RELAY_READER_QUEUE_MAX ||
	    !queue_push(&scan->held, PARCEL_EVENT, sub->head, body))
		return SCAN_BEHIND;
	connection->scans.held_bytes += scan->held.bytes - before;
	return SCAN_HELD;
}

/* On the reader's thread. */
static bool run_slice(void *ctx, struct sqlite3 *db, struct err *err)
{
	struct scan *scan = ctx;

	(void)db;
	return store_scan_slice(scan->core->scanner, &scan->state, err);
}

static void send_count(struct connection *connection, const struct scan *scan)
{
	struct buf *out = answer_begin(connection);

	(void)buf_lit(out, "[\"COUNT\",");
	(void)buf_append(out, body_slice(scan->sub->head));
	(void)buf_printf(out, ",{\"count\":%" PRIu64 "}]", scan->state.count);
	answer_send(connection);
}

/* EOSE and what was held for it, or the number. */
static void end_scan(struct scan *scan)
{
	struct connection *connection = scan->connection;
	struct subscription *sub = scan->sub;
	bool behind = false;

	unlink_scan(scan);
	if (scan->state.is_count) {
		send_count(connection, scan);
		subscription_destroy(sub);
	} else {
		sub->scan = NULL;
		connection_push(connection, PARCEL_EOSE, sub->head, NULL);
		behind = !queue_move(&scan->held, &connection->queue);
	}
	destroy(scan);
	if (behind)
		connection_fall_behind(connection);
}

/* CLOSED: a subscription that would miss what is stored is none. */
static void fail_scan(struct scan *scan, const struct err *err)
{
	struct connection *connection = scan->connection;
	struct subscription *sub = scan->sub;

	core_fail_disk(connection->core, err);
	if (scan->state.is_count) {
		unlink_scan(scan);
		core_refuse(connection->core, connection->number, REFUSAL_DATABASE,
			    DISK_FAILED);
		answer_closed(connection, sub->id, DISK_FAILED);
		subscription_destroy(sub);
		destroy(scan);
	} else {
		request_refuse(connection, sub->id, REFUSAL_DATABASE, DISK_FAILED);
	}
}

static void push_found(struct scan *scan)
{
	struct core *core = scan->core;
	struct store_scan *state = &scan->state;
	size_t i;

	for (i = 0; i < state->body_count; i++) {
		/* The same REQ sent again would bring it again. */
		state->bodies[i]->kept = true;
		if (!scan->is_dropped) {
			connection_push(scan->connection, PARCEL_REPLAY, scan->sub->head,
					state->bodies[i]);
			core->counters.deliveries++;
		}
		body_unref(state->bodies[i]);
	}
	state->body_count = 0;
}

static void on_slice(void *ctx, const struct err *err)
{
	struct scan *scan = ctx;
	struct core *core = scan->core;
	struct connection *connection = scan->connection;

	push_found(scan);
	if (scan->is_dropped) {
		subscription_destroy(scan->sub);
		destroy(scan);
		if (!connection)
			return;
		connection->scans.running = NULL;
		scan_go_on(connection);
		return;
	}
	assert(connection); /* none outlives it but a dropped one */
	connection->scans.running = NULL;
	if (err) {
		fail_scan(scan, err);
	} else if (scan->state.ended) {
		end_scan(scan);
	} else if (scan->next) {
		/* Each in its turn. */
		connection->scans.first = scan->next;
		scan->next = NULL;
		*connection->scans.end = scan;
		connection->scans.end = &scan->next;
	}
	scan_go_on(connection);
	publish_drop_behind(core);
}

void scan_go_on(struct connection *connection)
{
	struct core *core = connection->core;
	struct scan *scan = connection->scans.first;

	if (!scan || connection->scans.running || !core->store ||
	    connection->answers.left < scan->after ||
	    connection->queue.bytes > SCAN_QUEUE_LOW)
		return;
	if (!scan->has_begun) {
		scan->has_begun = true;
		scan->state.bound = core->seq;
	}
	scan->state.now = core_now_s(core);
	connection->scans.running = scan;
	store_read(core->store, run_slice, on_slice, scan);
}
