#include "observer/http/hub.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"
#include "wire/nostr/json.h"

#define MESSAGE_MAX (64u << 20) /* one message: the model is not larger */

struct message {
	struct message *next;
	uint64_t number;
	size_t len;
	char text[];
};

struct page {
	struct page *next;
	struct hub *hub;
	struct exchange *exchange;
	uint64_t wants;  /* number of the next message */
	bool snapshot;   /* it gets one first */
	bool quiet;      /* it gets an empty line: nothing was sent for long */
	int64_t sent_ms; /* when something was last sent */
};

struct hub {
	struct hub_options options;
	char boot[9];  /* cursors of another start are no good */
	uint64_t last; /* number of the newest message */
	struct message *first, **end;
	size_t bytes;
	struct page *pages;
	unsigned page_count;
	struct timer *tick, *idle;
	int64_t listened_ms; /* when a page was last there */
	int64_t told_ms;     /* when the last message was made */
	uint64_t told;       /* its health, but for the pulse */
	int64_t due_ms;      /* when the tick is, if it is armed */
	int64_t step_ms;     /* until when pulses wait; 0: none does */
	struct buf scratch;
	/* Counted for /api/self and /metrics. */
	uint64_t messages, message_bytes, snapshots;
};

static void on_tick(void *ctx);
static void on_idle(void *ctx);

struct hub *hub_create(const struct hub_options *options)
{
	struct hub *hub = mem_alloc(sizeof(*hub));
	uint8_t boot[4];

	hub->options = *options;
	hub->end = &hub->first;
	hub->scratch.max = MESSAGE_MAX;
	hub->listened_ms = -HUB_LINGER_MS;
	loop_random(boot, sizeof(boot));
	hex_encode(boot, sizeof(boot), hub->boot);
	hub->tick = timer_create_on(options->loop, on_tick, hub);
	hub->idle = timer_create_on(options->loop, on_idle, hub);
	return hub;
}

static void ring_drop_first(struct hub *hub)
{
	struct message *message = hub->first;

	hub->first = message->next;
	if (!hub->first)
		hub->end = &hub->first;
	hub->bytes -= message->len;
	free(message);
}

void hub_stop(struct hub *hub)
{
	timer_destroy(hub->tick);
	timer_destroy(hub->idle);
	hub->tick = hub->idle = NULL;
}

void hub_destroy(struct hub *hub)
{
	if (!hub)
		return;
	while (hub->pages) {
		struct page *page = hub->pages;

		hub->pages = page->next;
		free(page);
	}
	while (hub->first)
		ring_drop_first(hub);
	buf_finish(&hub->scratch);
	free(hub);
}

/* ---- messages ---- */

static uint64_t write_head(struct hub *hub, uint64_t number, struct buf *out)
{
	(void)buf_printf(out, "{\"cursor\":\"%s-%" PRIu64 "\"", hub->boot, number);
	json_write_member_int(out, SLICE("now"), loop_unix_ms());
	(void)buf_lit(out, ",");
	return hub->options.write_health(hub->options.ctx, out);
}

void hub_write_figures(const struct hub *hub, struct buf *out)
{
	(void)buf_printf(out,
			 "\"pages\":%u,\"messages\":%" PRIu64 ",\"messageBytes\":%" PRIu64
			 ",\"ringBytes\":%zu,\"snapshots\":%" PRIu64,
			 hub->page_count, hub->messages, hub->message_bytes, hub->bytes,
			 hub->snapshots);
}

void hub_figures(const struct hub *hub, struct hub_figures *out)
{
	*out = (struct hub_figures){
		.messages = hub->messages,
		.message_bytes = hub->message_bytes,
		.snapshots = hub->snapshots,
		.ring_bytes = hub->bytes,
	};
	for (const struct page *page = hub->pages; page; page = page->next)
		out->pages[exchange_request(page->exchange)->way]++;
}

void hub_write_snapshot(struct hub *hub, struct buf *out)
{
	(void)write_head(hub, hub->last, out);
	(void)buf_lit(out, ",\"snapshot\":true,");
	hub->options.write_owner(hub->options.ctx, out);
	model_write_snapshot(hub->options.model, loop_unix_ms(), out);
	(void)buf_lit(out, "}");
}

static void ring_add(struct hub *hub, struct slice text)
{
	struct message *message = mem_alloc(sizeof(*message) + text.len);

	message->number = ++hub->last;
	message->len = text.len;
	memcpy(message->text, text.ptr, text.len);
	*hub->end = message;
	hub->end = &message->next;
	hub->bytes += message->len;
	/* The newest stays, however large: it is what pages wait for. */
	while (hub->bytes > HUB_RING_MAX && hub->first != message)
		ring_drop_first(hub);
}

static bool anyone_listens(const struct hub *hub)
{
	return hub->page_count || loop_now_ms() - hub->listened_ms < HUB_LINGER_MS;
}

static void tell_at(struct hub *hub, int64_t at_ms)
{
	const int64_t now = loop_now_ms();

	if (!hub->tick || (timer_armed(hub->tick) && hub->due_ms <= at_ms))
		return;
	hub->due_ms = at_ms > now ? at_ms : now;
	timer_start(hub->tick, (uint64_t)(hub->due_ms - now));
}

static bool has_news(struct hub *hub)
{
	buf_clear(&hub->scratch);
	return hub->options.write_health(hub->options.ctx, &hub->scratch) != hub->told ||
	       model_has_news(hub->options.model, loop_unix_ms());
}

/* Pulses alone have the next step of the pages' clocks before them. */
static bool may_wait(struct hub *hub)
{
	const int64_t step = (loop_unix_ms() + HUB_LEAD_MS) % HUB_STEP_MS;

	if (has_news(hub))
		return false;
	if (!model_changed(hub->options.model))
		return true;
	if (!hub->step_ms)
		hub->step_ms = loop_now_ms() + HUB_STEP_MS - step;
	if (loop_now_ms() >= hub->step_ms)
		return false;
	tell_at(hub, hub->step_ms);
	return true;
}

static void on_tick(void *ctx)
{
	struct hub *hub = ctx;
	struct buf *out = &hub->scratch;

	if (!anyone_listens(hub)) {
		while (hub->first)
			ring_drop_first(hub);
		/* What was not encoded cannot be resumed after. */
		if (model_changed(hub->options.model))
			hub->last++;
		model_drop_changes(hub->options.model);
		return;
	}
	if (may_wait(hub))
		return;
	hub->told_ms = loop_now_ms();
	hub->step_ms = 0;
	buf_clear(out);
	hub->told = write_head(hub, hub->last + 1, out);
	model_write_changes(hub->options.model, loop_unix_ms(), out);
	(void)buf_lit(out, "}\n");
	if (buf_ok(out)) {
		ring_add(hub, buf_slice(out));
		hub->messages++;
		hub->message_bytes += out->len;
	}
	for (struct page *page = hub->pages; page; page = page->next)
		exchange_want_write(page->exchange);
}

/* What comes after a silence is told at once, what follows in steps of HUB_TICK_MS. */
void hub_touch(struct hub *hub)
{
	tell_at(hub, hub->told_ms + HUB_TICK_MS);
}

/* ---- pages ---- */

static const struct message *ring_find(const struct hub *hub, uint64_t number)
{
	const struct message *message = hub->first;

	while (message && message->number < number)
		message = message->next;
	return message && message->number == number ? message : NULL;
}

static bool send_snapshot(struct hub *hub, struct page *page, struct exchange *exchange)
{
	struct buf *out = &hub->scratch;

	buf_clear(out);
	hub_write_snapshot(hub, out);
	(void)buf_lit(out, "\n");
	page->snapshot = false;
	hub->snapshots++;
	page->wants = hub->last + 1;
	return exchange_send(exchange, buf_slice(out));
}

static void on_writable(void *ctx, struct exchange *exchange)
{
	struct page *page = ctx;
	struct hub *hub = page->hub;

	while (exchange_ready(exchange)) {
		const struct message *message;
		bool ok = true;

		if (!page->snapshot && page->wants > hub->last) {
			if (page->quiet)
				(void)exchange_send(exchange, SLICE("\n"));
			page->quiet = false;
			return;
		}
		message = ring_find(hub, page->wants);
		/* It stopped reading for longer than the ring remembers: it starts anew.
		 */
		if (page->snapshot || !message) {
			ok = send_snapshot(hub, page, exchange);
		} else {
			page->wants++;
			ok = exchange_send(exchange,
					   (struct slice){message->text, message->len});
		}
		page->sent_ms = loop_now_ms();
		page->quiet = false;
		if (!ok)
			return; /* on_gone follows */
	}
	exchange_want_write(exchange);
}

static void on_gone(void *ctx, struct exchange *exchange)
{
	struct page *page = ctx, **at = &page->hub->pages;

	(void)exchange;
	while (*at != page)
		at = &(*at)->next;
	*at = page->next;
	page->hub->page_count--;
	page->hub->listened_ms = loop_now_ms();
	free(page);
}

static void on_idle(void *ctx)
{
	struct hub *hub = ctx;
	const int64_t now = loop_now_ms();

	for (struct page *page = hub->pages; page; page = page->next) {
		if (now - page->sent_ms < HUB_IDLE_MS)
			continue;
		page->quiet = true;
		page->sent_ms = now;
		exchange_want_write(page->exchange);
	}
	if (hub->pages)
		timer_start(hub->idle, HUB_IDLE_MS / 3);
}

/* The number behind our own cursor that the ring still continues. */
static bool resume_after(const struct hub *hub, struct slice cursor, uint64_t *wants)
{
	uint64_t number;

	if (cursor.len < 10 || cursor.ptr[8] != '-' ||
	    !slice_eq(slice_sub(cursor, 0, 8), slice_of(hub->boot)) ||
	    !slice_parse_u64(slice_sub(cursor, 9, cursor.len), hub->last, &number))
		return false;
	*wants = number + 1;
	return number == hub->last || ring_find(hub, number + 1);
}

bool hub_add(struct hub *hub, struct exchange *exchange, struct slice cursor)
{
	struct http_stream stream = {.on_writable = on_writable, .on_gone = on_gone};
	struct page *page;

	if (hub->page_count == HUB_PAGES_MAX)
		return false;
	page = mem_alloc(sizeof(*page));
	page->hub = hub;
	page->exchange = exchange;
	page->snapshot = !resume_after(hub, cursor, &page->wants);
	page->sent_ms = loop_now_ms();
	page->next = hub->pages;
	hub->pages = page;
	hub->page_count++;
	stream.ctx = page;
	exchange_begin(exchange, "application/x-ndjson", &stream);
	if (!timer_armed(hub->idle))
		timer_start(hub->idle, HUB_IDLE_MS / 3);
	return true;
}
