#include "wire/link/link.h"

#include <arpa/inet.h>
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/arena.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"
#include "wire/link/conn.h"
#include "wire/link/link_url.h"
#include "wire/link/nip11.h"
#include "wire/link/resolve.h"
#include "wire/nostr/nip42.h"

#define CHALLENGE_BYTES_MAX 1024
#define CHALLENGE_WAIT_MS 1000 /* for relays that ask for no authentication */
#define RETRY_FIRST_MS 500
#define RETRY_MAX_MS 30000
#define RETRY_SETTLED_MS 10000 /* ready for so long: the next back-off starts anew */
#define NOTICES_LOGGED_MAX 16  /* of one connection; our choice */
/* The years 2020 to 2100: another date is no clock to go by. */
#define DATE_MIN_MS INT64_C(1577836800000)
#define DATE_MAX_MS INT64_C(4102444800000)

enum phase {
	PHASE_WAITING, /* for the back-off to end */
	PHASE_RESOLVING,
	PHASE_CONNECTING,     /* until the WebSocket handshake is done */
	PHASE_AUTHENTICATING, /* and reading NIP-11 */
	PHASE_READY,
};

struct sub {
	struct sub *next;
	struct slice id, filter; /* owned */
	bool sent;               /* on this connection, and not closed by the relay */
};

struct link {
	struct loop *loop;
	const struct link_events *events;
	void *ctx;
	const struct keypair *keypair;
	struct slice auth_tag; /* owned */
	char *url_text;
	struct link_url url;
	uint32_t deadline_ms;

	enum phase phase;
	struct timer *retry, *deadline, *challenge_wait, *nip11_wait, *ping;
	uint64_t retry_ms; /* of the last back-off, without jitter; 0: none yet */
	int64_t ready_at_ms;

	struct resolve *resolve;
	struct resolve_result addresses;
	size_t next_address;
	struct conn *ws, *document; /* NULL: none */

	char *challenge; /* NULL: none came */
	bool challenge_waited;
	bool nip11_done;
	bool auth_pending; /* auth_id waits for its OK */
	bool authenticated;
	uint8_t auth_id[32];
	unsigned notices; /* of this connection */

	struct link_info info;
	int64_t date_ms;  /* the relay's Date less loop_now_ms() */
	struct sub *subs; /* in the order in which they were made */
	bool publish_refused;
	int64_t rtt_ms;
	struct arena arena; /* of the message being handled */
};

static void fail(struct link *link, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- What is sent ---- */

int64_t link_unix_ms(const struct link *link)
{
	return link->info.has_clock ? loop_now_ms() + link->date_ms : loop_unix_ms();
}

static int64_t relay_now(const struct link *link)
{
	return link_unix_ms(link) / 1000;
}

/* Appends @filter with every "$now-300" replaced. */
static void write_filter(const struct link *link, struct slice filter, struct buf *out)
{
	const struct slice now = SLICE("$now-300");

	while (filter.len > 0) {
		size_t at = slice_find_slice(filter, now);

		buf_append(out, slice_sub(filter, 0, at));
		if (at < filter.len)
			buf_printf(out, "%" PRId64, relay_now(link) - RELAY_WINDOW_S);
		filter = slice_sub(filter, at + now.len, filter.len);
	}
}

static void send_sub(struct link *link, struct sub *sub)
{
	/* A name of 8 bytes becomes a number of at most 20 digits; an id at most
	 * six-fold. */
	size_t max = 64 + 6 * sub->id.len + 3 * sub->filter.len;
	struct buf message, filter;

	conn_message_init(&message, max);
	buf_init(&filter, max);
	write_filter(link, sub->filter, &filter);
	message_write_req(&message, sub->id, buf_slice(&filter));
	buf_finish(&filter);
	sub->sent = true;
	conn_send(link->ws, &message);
}

static void send_subs(struct link *link)
{
	for (struct sub *sub = link->subs; sub != NULL; sub = sub->next) {
		if (!sub->sent)
			send_sub(link, sub);
	}
}

static void send_auth(struct link *link)
{
	struct slice id;
	struct buf event, message;
	uint8_t aux[32];
	struct err err;
	bool ok;

	buf_init(&event, RELAY_MESSAGE_MAX);
	loop_random(aux, sizeof(aux));
	ok = nip42_sign(link->loop->crypto, link->keypair, slice_of(link->url_text),
			slice_of(link->challenge), link->auth_tag, relay_now(link), aux,
			&event, &err);
	if (ok) {
		bool found = event_find_id(buf_slice(&event), &id) &&
			     hex_decode(id, link->auth_id, sizeof(link->auth_id));

		assert(found);
		conn_message_init(&message, event.len + 64);
		message_write_auth(&message, buf_slice(&event));
		conn_send(link->ws, &message);
		link->auth_pending = true;
	}
	buf_finish(&event);
	if (!ok)
		fail(link, "cannot answer the relay's challenge: %s", err.text);
}

/* ---- How a connection ends ---- */

static void drop_connection(struct link *link)
{
	resolve_destroy(link->resolve);
	link->resolve = NULL;
	conn_drop(link->ws);
	link->ws = NULL;
	conn_drop(link->document);
	link->document = NULL;
	free(link->challenge);
	link->challenge = NULL;
	link->publish_refused = false;
	timer_stop(link->deadline);
	timer_stop(link->challenge_wait);
	timer_stop(link->nip11_wait);
	timer_stop(link->ping);
}

/* The next back-off: doubled, with up to half of it on top so that many do not come at
 * once. */
static uint64_t next_retry_ms(struct link *link)
{
	uint32_t random;
	bool settled = link->phase == PHASE_READY &&
		       loop_now_ms() - link->ready_at_ms >= RETRY_SETTLED_MS;

	if (link->retry_ms == 0 || settled)
		link->retry_ms = RETRY_FIRST_MS;
	else if (link->retry_ms < RETRY_MAX_MS / 2)
		link->retry_ms *= 2;
	else
		link->retry_ms = RETRY_MAX_MS;
	loop_random(&random, sizeof(random));
	return link->retry_ms + random % (link->retry_ms / 2);
}

/* Ends the attempt or the connection. The link may be gone when it returns. */
static void fail(struct link *link, const char *fmt, ...)
{
	char reason[LOG_QUOTE_BYTES + 120];
	uint64_t delay_ms = next_retry_ms(link);
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(reason, sizeof(reason), fmt, args);
	va_end(args);
	drop_connection(link);
	link->phase = PHASE_WAITING;
	timer_start(link->retry, delay_ms);
	link->events->on_state(link->ctx, LINK_DOWN, reason, delay_ms);
}

/* ---- From connected to ready ---- */

static void become_ready(struct link *link)
{
	link->phase = PHASE_READY;
	link->ready_at_ms = loop_now_ms();
	timer_stop(link->deadline);
	timer_stop(link->challenge_wait);
	send_subs(link);
	link->events->on_state(link->ctx, LINK_READY, "", 0);
}

/* Takes the next step of PHASE_AUTHENTICATING if what it waits for is there. NIP-11 comes
 * first: its Date is what AUTH must be stamped with when our clock is wrong. */
static void proceed(struct link *link)
{
	if (link->phase != PHASE_AUTHENTICATING || !link->nip11_done ||
	    link->auth_pending)
		return;
	if (link->challenge != NULL)
		send_auth(link);
	else if (link->challenge_waited)
		become_ready(link);
}

static void on_challenge(struct link *link, struct slice challenge)
{
	if (challenge.len == 0 || challenge.len > CHALLENGE_BYTES_MAX ||
	    memchr(challenge.ptr, '\0', challenge.len) != NULL ||
	    conn_queued(link->ws) > LINK_QUEUE_MAX)
		return;
	free(link->challenge);
	link->challenge = mem_dup(challenge);
	if (link->phase == PHASE_READY)
		send_auth(link);
	else
		proceed(link);
}

static void on_auth_answer(struct link *link, const struct relay_message *message)
{
	char quoted[LOG_QUOTE_BYTES];

	link->auth_pending = false;
	if (!message->accepted) {
		fail(link, "the relay refused our authentication: %s",
		     log_quote(message->text, quoted));
		return;
	}
	link->authenticated = true;
	if (link->phase == PHASE_READY)
		send_subs(link);
	else
		become_ready(link);
}

static void finish_nip11(struct link *link)
{
	conn_drop(link->document);
	link->document = NULL;
	link->nip11_done = true;
	timer_stop(link->nip11_wait);
	proceed(link);
}

static void on_challenge_wait(void *ctx)
{
	struct link *link = ctx;

	link->challenge_waited = true;
	proceed(link);
}

static void on_nip11_wait(void *ctx)
{
	finish_nip11(ctx);
}

static void on_deadline(void *ctx)
{
	struct link *link = ctx;

	switch (link->phase) {
	case PHASE_RESOLVING:
		fail(link, "no answer for the name %s in time", link->url.host);
		return;
	case PHASE_CONNECTING:
		fail(link, "%s did not answer in time", link->url.authority);
		return;
	case PHASE_AUTHENTICATING:
		fail(link, "the relay did not answer our authentication in time");
		return;
	case PHASE_WAITING:
	case PHASE_READY:
		return;
	}
}

static void on_ping(void *ctx)
{
	struct link *link = ctx;

	conn_ping(link->ws);
	timer_start(link->ping, 1000 * LOOP_PING_S);
}

/* ---- What the relay says ---- */

static struct sub **find_sub(struct link *link, struct slice id)
{
	struct sub **at = &link->subs;

	while (*at != NULL && !slice_eq((*at)->id, id))
		at = &(*at)->next;
	return at;
}

static void on_closed(struct link *link, const struct relay_message *message)
{
	struct sub *sub = *find_sub(link, message->sub_id);
	bool waits = !link->authenticated &&
		     slice_starts(message->text, SLICE("auth-required:"));

	if (sub == NULL)
		return;
	/* Left marked as sent it is not asked for again on this connection. */
	if (waits)
		sub->sent = false;
	else
		link->events->on_closed(link->ctx, message->sub_id, message->text);
}

static void handle(struct link *link, const struct relay_message *message)
{
	char quoted[LOG_QUOTE_BYTES];

	switch (message->verb) {
	case RELAY_EVENT:
		link->events->on_event(link->ctx, message->sub_id, message->event);
		return;
	case RELAY_OK:
		if (link->auth_pending &&
		    memcmp(message->id, link->auth_id, sizeof(link->auth_id)) == 0)
			on_auth_answer(link, message);
		else
			link->events->on_ok(link->ctx, message->id, message->accepted,
					    message->text);
		return;
	case RELAY_EOSE:
		link->events->on_eose(link->ctx, message->sub_id);
		return;
	case RELAY_CLOSED:
		on_closed(link, message);
		return;
	case RELAY_NOTICE:
		if (link->notices++ >= NOTICES_LOGGED_MAX)
			return;
		log_info("link", "%s says: %s", link->url.authority,
			 log_quote(message->text, quoted));
		return;
	case RELAY_AUTH:
		on_challenge(link, message->text);
		return;
	case RELAY_COUNT:
		return; /* nobody here asks */
	}
}

static void on_text(void *ctx, struct slice text)
{
	struct link *link = ctx;
	struct relay_message message;
	struct err err;

	arena_reset(&link->arena);
	if (relay_message_parse(text, &link->arena, &message, &err))
		handle(link, &message);
	else
		log_debug("link", "%s sent a message that is none: %s",
			  link->url.authority, err.text);
}

static void on_pong(void *ctx, int64_t rtt_ms)
{
	struct link *link = ctx;

	link->rtt_ms = rtt_ms;
}

static void on_writable(void *ctx)
{
	struct link *link = ctx;

	if (!link->publish_refused || conn_queued(link->ws) > LINK_QUEUE_MAX)
		return;
	link->publish_refused = false;
	if (link->events->on_writable != NULL)
		link->events->on_writable(link->ctx);
}

/* The clock of the relay, from a document or from a refusal. */
static void on_date(void *ctx, struct slice date)
{
	struct link *link = ctx;
	int64_t unix_ms;

	if (nip11_parse_date(date, &unix_ms) && unix_ms > DATE_MIN_MS &&
	    unix_ms < DATE_MAX_MS) {
		link->info.clock_offset_ms = unix_ms - loop_unix_ms();
		link->date_ms = unix_ms - loop_now_ms();
		link->info.has_clock = true;
	}
}

static void on_document(void *ctx, struct slice text)
{
	struct link *link = ctx;

	link->document = NULL;
	nip11_parse(text, &link->info);
	finish_nip11(link);
}

/* ---- Connecting ---- */

static void on_open(void *ctx);
static void on_end(void *ctx, enum conn_end how, const char *reason);

static const struct conn_events conn_events = {
	.on_open = on_open,
	.on_text = on_text,
	.on_pong = on_pong,
	.on_writable = on_writable,
	.on_end = on_end,
	.on_date = on_date,
	.on_document = on_document,
};

static struct conn_options conn_options(struct link *link, const char *address)
{
	return (struct conn_options){
		.loop = link->loop,
		.url = &link->url,
		.address = address,
		.events = &conn_events,
		.ctx = link,
	};
}

/* Tries the addresses that are left until one does not fail at once. */
static void connect_next(struct link *link)
{
	char reason[CONN_REASON_BYTES] = "no connection";

	link->phase = PHASE_CONNECTING;
	while (link->ws == NULL && link->next_address < link->addresses.count) {
		const char *address = link->addresses.addresses[link->next_address++];
		struct conn_options options = conn_options(link, address);

		link->ws = conn_open(&options, reason);
	}
	if (link->ws == NULL)
		fail(link, "cannot connect to %s: %s", link->url.authority, reason);
}

static void on_open(void *ctx)
{
	struct link *link = ctx;
	const char *address = link->addresses.addresses[link->next_address - 1];
	struct conn_options options = conn_options(link, address);
	char reason[CONN_REASON_BYTES];

	link->phase = PHASE_AUTHENTICATING;
	link->challenge_waited = false;
	link->nip11_done = false;
	link->auth_pending = false;
	link->authenticated = false;
	link->notices = 0;
	link->info = (struct link_info){0};
	for (struct sub *sub = link->subs; sub != NULL; sub = sub->next)
		sub->sent = false;
	timer_start(link->challenge_wait, CHALLENGE_WAIT_MS);
	timer_start(link->ping, 0);
	link->document = conn_fetch(&options, reason);
	if (link->document == NULL)
		finish_nip11(link);
	else
		timer_start(link->nip11_wait, NIP11_WAIT_MS);
}

/* The link may be gone when it returns. */
static void on_end(void *ctx, enum conn_end how, const char *reason)
{
	struct link *link = ctx;
	const char *where = link->url.authority;

	link->ws = NULL;
	switch (how) {
	case CONN_REFUSED:
		/* Perhaps another of the name's addresses answers. */
		if (link->next_address < link->addresses.count)
			connect_next(link);
		else
			fail(link, "cannot connect to %s: %s", where, reason);
		return;
	case CONN_CLOSED:
		fail(link, "the connection to %s was closed%s", where, reason);
		return;
	case CONN_LOST:
		fail(link, "the connection to %s was lost", where);
		return;
	case CONN_BROKEN:
		fail(link, "%s", reason);
		return;
	}
}

static void on_resolved(void *ctx, const struct resolve_result *result)
{
	struct link *link = ctx;

	link->addresses = *result;
	link->next_address = 0;
	resolve_destroy(link->resolve);
	link->resolve = NULL;
	if (result->count == 0)
		fail(link, "cannot find %s: %s", link->url.host, link->addresses.reason);
	else
		connect_next(link);
}

static bool is_address(const char *host)
{
	struct in6_addr space;

	return inet_pton(AF_INET, host, &space) == 1 ||
	       inet_pton(AF_INET6, host, &space) == 1;
}

static void start_attempt(struct link *link)
{
	timer_start(link->deadline, link->deadline_ms);
	if (!is_address(link->url.host)) {
		link->phase = PHASE_RESOLVING;
		link->resolve =
			resolve_create(link->loop, link->url.host, on_resolved, link);
		return;
	}
	link->addresses = (struct resolve_result){.count = 1};
	(void)snprintf(link->addresses.addresses[0], RESOLVE_ADDRESS_BYTES, "%.63s",
		       link->url.host);
	link->next_address = 0;
	connect_next(link);
}

static void on_retry(void *ctx)
{
	struct link *link = ctx;

	if (link->phase == PHASE_WAITING) {
		/* The attempt begins in the next turn: on_state() may destroy the link.
		 */
		link->phase = PHASE_RESOLVING;
		timer_start(link->retry, 0);
		link->events->on_state(link->ctx, LINK_CONNECTING, "", 0);
		return;
	}
	start_attempt(link);
}

/* ---- The public part ---- */

static struct slice own(struct slice bytes)
{
	return (struct slice){mem_dup(bytes), bytes.len};
}

static void disown(struct slice bytes)
{
	free((void *)(uintptr_t)bytes.ptr);
}

struct link *link_create(struct loop *loop, const struct link_options *options,
			 struct err *err)
{
	struct link *link;
	struct link_url url;

	if (!link_url_parse(options->url, &url, err) || !conn_prepare(loop, url.tls, err))
		return NULL;
	link = mem_alloc(sizeof(*link));
	link->loop = loop;
	link->events = options->events;
	link->ctx = options->ctx;
	link->keypair = options->keypair;
	link->auth_tag = own(options->auth_tag);
	link->url_text = mem_dup(slice_of(options->url));
	link->url = url;
	link->deadline_ms =
		options->deadline_ms != 0 ? options->deadline_ms : LINK_DEADLINE_MS;
	link->phase = PHASE_WAITING;
	link->rtt_ms = -1;
	arena_init(&link->arena, 4096);
	link->retry = timer_create_on(loop, on_retry, link);
	link->deadline = timer_create_on(loop, on_deadline, link);
	link->challenge_wait = timer_create_on(loop, on_challenge_wait, link);
	link->nip11_wait = timer_create_on(loop, on_nip11_wait, link);
	link->ping = timer_create_on(loop, on_ping, link);
	timer_start(link->retry, 0);
	return link;
}

void link_destroy(struct link *link)
{
	if (link == NULL)
		return;
	drop_connection(link);
	link->phase = PHASE_WAITING;
	timer_destroy(link->retry);
	timer_destroy(link->deadline);
	timer_destroy(link->challenge_wait);
	timer_destroy(link->nip11_wait);
	timer_destroy(link->ping);
	while (link->subs != NULL)
		link_unsubscribe(link, link->subs->id);
	disown(link->auth_tag);
	free(link->url_text);
	arena_finish(&link->arena);
	free(link);
}

enum link_state link_state(const struct link *link)
{
	switch (link->phase) {
	case PHASE_WAITING:
		return LINK_DOWN;
	case PHASE_RESOLVING:
	case PHASE_CONNECTING:
	case PHASE_AUTHENTICATING:
		return LINK_CONNECTING;
	case PHASE_READY:
		return LINK_READY;
	}
	return LINK_DOWN;
}

const struct link_info *link_info(const struct link *link)
{
	return &link->info;
}

int64_t link_rtt_ms(const struct link *link)
{
	return link->rtt_ms;
}

void link_subscribe(struct link *link, struct slice sub_id, struct slice filter)
{
	struct sub **at = find_sub(link, sub_id);

	if (*at == NULL) {
		*at = mem_alloc(sizeof(**at));
		(*at)->id = own(sub_id);
	} else {
		disown((*at)->filter);
	}
	(*at)->filter = own(filter);
	(*at)->sent = false;
	if (link->phase == PHASE_READY)
		send_sub(link, *at);
}

void link_unsubscribe(struct link *link, struct slice sub_id)
{
	struct sub **at = find_sub(link, sub_id);
	struct sub *sub = *at;

	if (sub == NULL)
		return;
	if (link->phase == PHASE_READY && sub->sent) {
		struct buf message;

		conn_message_init(&message, 64 + 6 * sub_id.len);
		message_write_close(&message, sub_id);
		conn_send(link->ws, &message);
	}
	*at = sub->next;
	disown(sub->id);
	disown(sub->filter);
	free(sub);
}

bool link_publish(struct link *link, struct slice event)
{
	struct buf message;

	if (link->phase != PHASE_READY)
		return false;
	if (conn_queued(link->ws) > LINK_QUEUE_MAX) {
		link->publish_refused = true;
		return false;
	}
	conn_message_init(&message, event.len + 64);
	message_write_event(&message, event);
	conn_send(link->ws, &message);
	return true;
}

void link_reset(struct link *link, const char *reason)
{
	if (link->phase != PHASE_WAITING)
		fail(link, "%s", reason);
}
