/* The sender on a clock, a timer and a link of the test's own: a minute takes no time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "agent/sender.h"
#include "tests/unit/support/support.h"
#include "wire/base/arena.h"
#include "wire/base/mem.h"
#include "wire/frame/observer_event.h"
#include "wire/nostr/event.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip44.h"

/* ---- the world: in place of wire/host/loop.c and wire/link/link.c ---- */

#define UNIX_AT_0 INT64_C(1796000000000)
#define WRITTEN_MAX 512

struct timer {
	void (*on_timer)(void *ctx);
	void *ctx;
	int64_t due_ms; /* -1: not armed */
};

struct written {
	int64_t at_ms;
	char *text;
};

struct link {
	const struct link_events *events;
	void *ctx;
	enum link_state state;
	struct link_info info;
	char *filter;
	unsigned resets, subscribed;
	bool answers; /* OK true to everything, at once */
	struct written written[WRITTEN_MAX];
	size_t count;
};

static int64_t clock_ms;
static struct timer timer;
static struct link relay;

int64_t loop_now_ms(void)
{
	return clock_ms;
}

int64_t loop_unix_ms(void)
{
	return UNIX_AT_0 + clock_ms;
}

void loop_random(void *out, size_t len)
{
	randombytes_buf(out, len);
}

struct timer *timer_create_on(struct loop *loop, void (*on_timer)(void *ctx), void *ctx)
{
	(void)loop;
	timer = (struct timer){on_timer, ctx, -1};
	return &timer;
}

void timer_destroy(struct timer *the_timer)
{
	if (the_timer != NULL)
		the_timer->due_ms = -1;
}

void timer_start(struct timer *the_timer, uint64_t delay_ms)
{
	the_timer->due_ms = clock_ms + (int64_t)delay_ms;
}

void timer_stop(struct timer *the_timer)
{
	the_timer->due_ms = -1;
}

struct link *link_create(struct loop *loop, const struct link_options *options,
			 struct err *err)
{
	(void)loop;
	(void)err;
	relay = (struct link){.events = options->events, .ctx = options->ctx};
	relay.answers = true;
	return &relay;
}

void link_destroy(struct link *the_link)
{
	for (size_t i = 0; i < the_link->count; i++)
		free(the_link->written[i].text);
	free(the_link->filter);
}

enum link_state link_state(const struct link *the_link)
{
	return the_link->state;
}

const struct link_info *link_info(const struct link *the_link)
{
	return &the_link->info;
}

int64_t link_unix_ms(const struct link *the_link)
{
	return loop_unix_ms() + the_link->info.clock_offset_ms;
}

void link_subscribe(struct link *the_link, struct slice sub_id, struct slice filter)
{
	(void)sub_id;
	free(the_link->filter);
	the_link->filter = mem_dup(filter);
	the_link->subscribed++;
}

void link_reset(struct link *the_link, const char *reason)
{
	the_link->resets++;
	the_link->state = LINK_DOWN;
	the_link->events->on_state(the_link->ctx, LINK_DOWN, reason, 500);
}

bool link_publish(struct link *the_link, struct slice event)
{
	ck_assert_int_eq(the_link->state, LINK_READY);
	ck_assert_uint_lt(the_link->count, WRITTEN_MAX);
	the_link->written[the_link->count++] = (struct written){clock_ms, mem_dup(event)};
	return true;
}

/* ---- the test's side ---- */

static struct loop loop;
static struct keypair *agent, *owner, *stranger;
static struct sender *sender;
static struct uuid channel;
static struct arena arena;
static struct buf scratch, plaintext, control_text;
static struct event event;
static struct frame frame;
static bool done;
static unsigned controls;

static void write_state(void *ctx, struct buf *out)
{
	(void)ctx;
	(void)json_write_member_string(out, SLICE("control"), SLICE("full"));
}

static void on_control(void *ctx, const uint8_t event_id[32], int64_t created_at,
		       struct slice text)
{
	(void)ctx;
	(void)event_id;
	(void)created_at;
	controls++;
	buf_clear(&control_text);
	(void)buf_append(&control_text, text);
}

static void on_link(void *ctx, enum link_state state, const char *reason)
{
	(void)ctx;
	(void)state;
	(void)reason;
}

static void on_done(void *ctx)
{
	(void)ctx;
	done = true;
}

static struct keypair *a_key(uint8_t first)
{
	const uint8_t secret[KEY_BYTES] = {first, 1};
	struct keypair *key = NULL;

	ck_assert(keypair_create(loop.crypto, secret, &key, NULL));
	return key;
}

static void setup(void)
{
	static const uint8_t seed[32] = {7};
	struct sender_options options = {
		.relay_url = "ws://127.0.0.1:1/",
		.auth_tag = SLICE_INIT("[\"auth\",\"o\",\"\",\"s\"]"),
		.tick_ms = 1000,
		.default_context = {.slot = -1, .channel = &channel},
		.write_state = write_state,
		.on_control = on_control,
		.on_link = on_link,
	};
	struct err err;

	clock_ms = 0;
	done = false;
	controls = 0;
	loop.crypto = crypto_create(seed, NULL);
	agent = a_key(1);
	owner = a_key(2);
	stranger = a_key(3);
	options.keypair = agent;
	memcpy(options.owner, keypair_public(owner), KEY_BYTES);
	ck_assert(uuid_parse(SLICE("7b1f0c52-5a0e-4c9b-9f8e-3d2c6a41e0d7"), &channel));
	arena_init(&arena, 65536);
	buf_init(&scratch, 1 << 20);
	buf_init(&plaintext, 1 << 20);
	buf_init(&control_text, 1 << 20);
	sender = sender_create(&loop, &options, &err);
	ck_assert_ptr_nonnull(sender);
}

static void teardown(void)
{
	sender_destroy(sender);
	keypair_destroy(agent);
	keypair_destroy(owner);
	keypair_destroy(stranger);
	crypto_destroy(loop.crypto);
	arena_finish(&arena);
	buf_finish(&scratch);
	buf_finish(&plaintext);
	buf_finish(&control_text);
}

static void set_link(enum link_state state)
{
	relay.state = state;
	relay.events->on_state(relay.ctx, state, "", 0);
}

/* Opens what was written at @index: event, plaintext and frame are its parts. */
static void open_written(size_t index)
{
	uint8_t key[32];
	struct err err;

	ck_assert_uint_lt(index, relay.count);
	arena_reset(&arena);
	buf_clear(&plaintext);
	ck_assert(event_parse(slice_of(relay.written[index].text), &arena, &event, &err));
	ck_assert(event_verify(loop.crypto, &event, &scratch, &err));
	ck_assert(nip44_conversation_key(loop.crypto, owner, keypair_public(agent), key,
					 &err));
	ck_assert(nip44_decrypt(loop.crypto, key, event.content, &plaintext, &err));
	ck_assert_msg(frame_parse(buf_slice(&plaintext), &arena, &frame, &err), "%s",
		      err.text);
	ck_assert_uint_le(plaintext.len, FRAME_PLAINTEXT_MAX);
}

static void answer(size_t index, bool accepted, const char *words)
{
	struct arena own;
	struct event written;

	arena_init(&own, 4096);
	ck_assert(event_parse(slice_of(relay.written[index].text), &own, &written, NULL));
	relay.events->on_ok(relay.ctx, written.id, accepted, slice_of(words));
	arena_finish(&own);
}

static void check_ledger(void)
{
	struct sender_figures figures;

	sender_figures(sender, &figures);
	ck_assert_uint_eq(figures.ingested, figures.published + figures.deferred +
						    figures.dropped + figures.pending);
}

/* Lets time pass, and the timer fire, until @ms. */
static void run_until(int64_t ms)
{
	while (timer.due_ms >= 0 && timer.due_ms <= ms) {
		const size_t before = relay.count;

		if (timer.due_ms > clock_ms)
			clock_ms = timer.due_ms;
		timer.due_ms = -1;
		timer.on_timer(timer.ctx);
		for (size_t i = before; relay.answers && i < relay.count; i++)
			answer(i, true, "");
		check_ledger();
	}
	clock_ms = ms;
}

static uint64_t emit(const char *kind)
{
	const struct feed_context context = {.slot = 0, .channel = &channel};
	const uint64_t seq = feed_emit(sender_feed(sender), sender_time(sender), &context,
				       slice_of(kind), SLICE_EMPTY, SLICE("{}"));

	sender_kick(sender);
	return seq;
}

/* An event that fills more than half a frame. */
static void emit_large(void)
{
	const struct feed_context context = {.slot = 0, .channel = &channel};
	struct buf payload;

	buf_init(&payload, 65536);
	(void)buf_lit(&payload, "{\"a\":[0");
	while (payload.len < 40000)
		(void)buf_lit(&payload, ",1");
	(void)buf_lit(&payload, "]}");
	(void)feed_emit(sender_feed(sender), sender_time(sender), &context, SLICE("note"),
			SLICE_EMPTY, buf_slice(&payload));
	sender_kick(sender);
	buf_finish(&payload);
}

/* The owner's side: a control as an event's text, in scratch. */
static struct slice a_control(struct keypair *author, const char *direction,
			      int64_t created_at, const char *words)
{
	static struct buf text;
	const uint8_t nonce[NONCE_BYTES] = {5}, aux[32] = {0};
	char agent_hex[2 * KEY_BYTES], tags[512];
	uint8_t key[32];
	struct event_draft draft = {.created_at = created_at, .kind = FRAME_KIND};
	struct err err;

	hex_encode(keypair_public(agent), KEY_BYTES, agent_hex);
	(void)snprintf(tags, sizeof(tags),
		       "[[\"p\",\"%.64s\"],[\"agent\",\"%.64s\"],[\"frame\",\"%s\"]]",
		       agent_hex, agent_hex, direction);
	draft.tags = slice_of(tags);
	ck_assert(nip44_conversation_key(loop.crypto, author, keypair_public(agent), key,
					 &err));
	buf_init(&scratch, 1 << 20);
	text.max = 1 << 20;
	buf_finish(&text);
	ck_assert(event_seal(loop.crypto, author, key, &draft, slice_of(words), nonce,
			     aux, &text, NULL, &err));
	arena_reset(&arena);
	return arena_dup(&arena, buf_slice(&text));
}

static void deliver(struct slice text)
{
	relay.events->on_event(relay.ctx, SLICE("control"), text);
}

static int64_t unix_s(void)
{
	return loop_unix_ms() / 1000;
}

static bool ask(const char *words)
{
	struct control control;
	struct err err;
	bool ok;

	arena_reset(&arena);
	ck_assert_msg(control_parse(slice_of(words), &arena, &control, &err), "%s",
		      err.text);
	ok = sender_feed_sync(sender, &control, &err);
	return ok;
}

/* ---- rules ---- */

START_TEST(frame_is_sealed_for_the_owner_and_attested)
{
	set_link(LINK_READY);
	(void)emit("note");
	run_until(1000);
	ck_assert_uint_eq(relay.count, 1);
	open_written(0);
	ck_assert_uint_eq(event.kind, FRAME_KIND);
	ck_assert_mem_eq(event.pubkey, keypair_public(agent), KEY_BYTES);
	ck_assert_uint_eq(event.tag_count, 4);
	assert_slice_eq(tag_value(event_tag(&event, SLICE("frame"))), "telemetry");
	assert_slice_eq(tag_value(event_tag(&event, SLICE("auth"))), "o");
	assert_slice_eq(slice_of(frame.epoch), sender_epoch(sender));
	ck_assert_uint_eq(frame.number, 1);
	ck_assert(!frame.replayed);
	assert_slice_eq(frame.events[0].kind, "note");
}
END_TEST

START_TEST(first_frame_waits_one_tick)
{
	set_link(LINK_READY);
	(void)emit("note");
	run_until(999);
	ck_assert_uint_eq(relay.count, 0);
	run_until(1000);
	ck_assert_uint_eq(relay.count, 1);
}
END_TEST

START_TEST(lone_event_after_silence_leaves_after_the_linger_time)
{
	set_link(LINK_READY);
	run_until(5000);
	(void)emit("note");
	run_until(5019);
	ck_assert_uint_eq(relay.count, 0);
	run_until(5020);
	ck_assert_uint_eq(relay.count, 1);
}
END_TEST

START_TEST(no_timer_runs_when_nothing_waits)
{
	ck_assert_int_eq(timer.due_ms, -1);
	set_link(LINK_READY);
	ck_assert_int_eq(timer.due_ms, -1);
	(void)emit("note");
	run_until(60000);
	ck_assert_int_eq(timer.due_ms, -1);
}
END_TEST

START_TEST(flood_of_a_minute_never_sends_two_frames_within_a_tick)
{
	uint64_t last = 0;

	set_link(LINK_READY);
	for (int64_t ms = 0; ms < 60000; ms += 7) {
		run_until(ms);
		last = emit("note");
	}
	run_until(70000);
	ck_assert_uint_ge(relay.count, 59);
	for (size_t i = 1; i < relay.count; i++)
		ck_assert_int_ge(relay.written[i].at_ms,
				 relay.written[i - 1].at_ms + 1000);
	open_written(relay.count - 1);
	ck_assert_uint_eq(frame.events[frame.event_count - 1].seq, last);
	ck_assert_uint_eq(frame.number, relay.count);
}
END_TEST

START_TEST(nothing_leaves_before_the_link_is_ready)
{
	(void)emit("note");
	run_until(5000);
	ck_assert_uint_eq(relay.count, 0);
	ck_assert_int_eq(timer.due_ms, -1);
	set_link(LINK_READY);
	run_until(5020);
	ck_assert_uint_eq(relay.count, 1);
}
END_TEST

START_TEST(eight_frames_without_ok_pause)
{
	relay.answers = false;
	set_link(LINK_READY);
	for (int i = 0; i < 12; i++)
		emit_large();
	run_until(15000);
	ck_assert_uint_eq(relay.count, AGENT_IN_FLIGHT_MAX);
	answer(0, true, "");
	run_until(15020);
	ck_assert_uint_eq(relay.count, AGENT_IN_FLIGHT_MAX + 1);
}
END_TEST

START_TEST(thirty_seconds_without_ok_reset_the_link)
{
	relay.answers = false;
	set_link(LINK_READY);
	(void)emit("note");
	run_until(30999);
	ck_assert_uint_eq(relay.resets, 0);
	run_until(31000);
	ck_assert_uint_eq(relay.resets, 1);
	ck_assert_int_eq(timer.due_ms, -1);
}
END_TEST

START_TEST(after_a_reconnect_the_same_bytes_are_sent_again_one_a_tick)
{
	relay.answers = false;
	set_link(LINK_READY);
	emit_large();
	emit_large();
	run_until(3000);
	ck_assert_uint_eq(relay.count, 2);
	set_link(LINK_DOWN);
	run_until(4000);
	set_link(LINK_READY);
	run_until(10000);
	ck_assert_uint_eq(relay.count, 4);
	ck_assert_str_eq(relay.written[2].text, relay.written[0].text);
	ck_assert_str_eq(relay.written[3].text, relay.written[1].text);
	ck_assert_int_ge(relay.written[3].at_ms, relay.written[2].at_ms + 1000);
}
END_TEST

START_TEST(frame_of_50_s_is_sealed_anew_and_marked)
{
	int64_t first;

	relay.answers = false;
	set_link(LINK_READY);
	(void)emit("note");
	run_until(2000);
	open_written(0);
	first = event.created_at;
	set_link(LINK_DOWN);
	run_until(60000);
	set_link(LINK_READY);
	run_until(61000);
	ck_assert_uint_eq(relay.count, 2);
	open_written(1);
	ck_assert_int_eq(event.created_at, first + 59);
	ck_assert_uint_eq(frame.number, 1);
	ck_assert(frame.replayed);
}
END_TEST

START_TEST(published_means_the_relay_said_ok)
{
	struct sender_figures figures;

	relay.answers = false;
	set_link(LINK_READY);
	(void)emit("note");
	(void)emit("note");
	run_until(2000);
	sender_figures(sender, &figures);
	ck_assert_uint_eq(figures.published, 0);
	ck_assert_uint_eq(figures.pending, 2);
	answer(0, false, "duplicate: seen");
	sender_figures(sender, &figures);
	ck_assert_uint_eq(figures.published, 2);
	ck_assert_uint_eq(figures.pending, 0);
	ck_assert_uint_eq(figures.in_flight, 0);
}
END_TEST

START_TEST(refused_frame_is_reported_as_a_gap)
{
	struct sender_figures figures;

	relay.answers = false;
	set_link(LINK_READY);
	(void)emit("note");
	(void)emit("note");
	run_until(2000);
	answer(0, false, "restricted: not your owner");
	check_ledger();
	sender_figures(sender, &figures);
	ck_assert_uint_eq(figures.dropped, 2);
	run_until(4000);
	ck_assert_uint_eq(relay.count, 2);
	open_written(1);
	assert_slice_eq(frame.events[0].kind, "observer_telemetry_gap");
	ck_assert_uint_eq(frame.events[0].seq, 2);
	ck_assert(slice_starts(frame.events[0].payload, SLICE("{\"droppedEvents\":2,")));
}
END_TEST

START_TEST(a_relay_that_refuses_everything_is_asked_ever_less)
{
	set_link(LINK_READY);
	relay.answers = false;
	(void)emit("note");
	for (size_t i = 0; clock_ms < 120000; i++) {
		while (relay.count == i)
			run_until(clock_ms + 100);
		answer(i, false, "blocked: go away");
	}
	ck_assert_uint_le(relay.count, 10); /* 1, 2, 4, 8, 16, 30, 30, 30 s apart */
}
END_TEST

START_TEST(frame_refused_for_its_time_is_sealed_anew_and_nothing_is_lost)
{
	struct sender_figures figures;

	relay.answers = false;
	set_link(LINK_READY);
	(void)emit("note");
	run_until(1000);
	answer(0, false, "invalid: created_at is more than 300 s from the relay's clock");
	ck_assert_uint_eq(relay.resets, 1); /* the clock comes with a connection */
	run_until(clock_ms + 5000);
	ck_assert_uint_eq(relay.count, 1);
	set_link(LINK_READY);
	run_until(clock_ms + 2000);
	ck_assert_uint_eq(relay.count, 2);
	ck_assert_str_ne(relay.written[1].text, relay.written[0].text);
	/* Where that does not help it is not done over and over. */
	answer(1, false, "invalid: ephemeral event expired");
	ck_assert_uint_eq(relay.resets, 1);
	run_until(clock_ms + 20000);
	ck_assert_uint_eq(relay.count, 3);
	answer(2, true, "");
	check_ledger();
	sender_figures(sender, &figures);
	ck_assert_uint_eq(figures.dropped, 0);
	ck_assert_uint_eq(figures.published, 1);
}
END_TEST

START_TEST(rate_limited_frame_is_sent_again_after_a_growing_pause)
{
	struct sender_figures figures;

	relay.answers = false;
	set_link(LINK_READY);
	(void)emit("note");
	run_until(1000);
	answer(0, false, "rate-limited: slow down");
	run_until(1999);
	ck_assert_uint_eq(relay.count, 1);
	run_until(2020);
	ck_assert_uint_eq(relay.count, 2);
	answer(1, false, "rate-limited: slow down");
	run_until(clock_ms + 1999);
	ck_assert_uint_eq(relay.count, 2);
	run_until(clock_ms + 21);
	ck_assert_uint_eq(relay.count, 3);
	ck_assert_str_eq(relay.written[2].text, relay.written[0].text);
	answer(2, true, "");
	sender_figures(sender, &figures);
	ck_assert_uint_eq(figures.published, 1);
}
END_TEST

START_TEST(after_15_s_of_silence_the_newest_frame_is_sent_once_more)
{
	set_link(LINK_READY);
	(void)emit("note");
	run_until(15999);
	ck_assert_uint_eq(relay.count, 1);
	run_until(16020);
	ck_assert_uint_eq(relay.count, 2);
	open_written(1);
	ck_assert_uint_eq(frame.number, 1);
	ck_assert(frame.replayed);
	run_until(120000);
	ck_assert_uint_eq(relay.count, 2);
}
END_TEST

START_TEST(feed_sync_is_answered_in_the_next_tick)
{
	set_link(LINK_READY);
	run_until(5000);
	ck_assert(ask("{\"type\":\"feed_sync\",\"requestId\":\"r1\",\"observer\":"
		      "\"aabbccdd\",\"want\":[]}"));
	sender_result(sender, SLICE("{\"type\":\"feed_sync\",\"status\":\"ok\"}"));
	run_until(5020);
	ck_assert_uint_eq(relay.count, 1);
	open_written(0);
	ck_assert_uint_eq(frame.event_count, 2);
	assert_slice_eq(frame.events[0].kind, "control_result");
	assert_slice_eq(frame.events[1].kind, "feed_state");
	ck_assert_ptr_null(frame.events[1].channel_id.ptr);
	ck_assert(slice_starts(frame.events[1].payload,
			       SLICE("{\"requestId\":\"r1\",\"epochs\":[{")));
	ck_assert(slice_find_slice(frame.events[1].payload,
				   SLICE("\"control\":\"full\",\"figures\":{")) <
		  frame.events[1].payload.len);
	ck_assert(json_check(frame.events[1].payload, NULL, NULL));
}
END_TEST

START_TEST(wanted_frames_are_served_again_and_marked)
{
	char words[256];

	set_link(LINK_READY);
	for (int i = 0; i < 3; i++)
		emit_large();
	run_until(5000);
	ck_assert_uint_eq(relay.count, 3);
	(void)snprintf(
		words, sizeof(words),
		"{\"type\":\"feed_sync\",\"requestId\":\"r\",\"observer\":\"aabbccdd\","
		"\"want\":[{\"epoch\":\"%s\",\"frames\":[[1,2]]}]}",
		sender_epoch(sender));
	ck_assert(ask(words));
	run_until(10000);
	ck_assert_uint_eq(relay.count, 6);
	open_written(3);
	assert_slice_eq(frame.events[0].kind, "feed_state");
	for (size_t i = 4; i < 6; i++) {
		open_written(i);
		ck_assert_uint_eq(frame.number, i - 3);
		ck_assert(frame.replayed);
	}
}
END_TEST

START_TEST(a_relay_that_offers_any_backfill_gets_a_hundred_frames_a_second_at_most)
{
	char words[256];

	set_link(LINK_READY);
	for (int i = 0; i < 40; i++)
		emit_large();
	run_until(60000);
	relay.info.backfill_per_second = UINT32_MAX;
	(void)snprintf(
		words, sizeof(words),
		"{\"type\":\"feed_sync\",\"requestId\":\"r\",\"observer\":\"aabbccdd\","
		"\"want\":[{\"epoch\":\"%s\",\"frames\":[[1,40]]}]}",
		sender_epoch(sender));
	const size_t before = relay.count;

	ck_assert(ask(words));
	run_until(62000);
	ck_assert_uint_gt(relay.count, before + 30);
	for (size_t i = before + 2; i < relay.count; i++)
		ck_assert_int_ge(relay.written[i].at_ms - relay.written[i - 2].at_ms, 10);
}
END_TEST

/* Three quarters of a frame: two never share one, and a relay of 64 KiB takes each. */
static void emit_sized(char fill, size_t bytes)
{
	const struct feed_context context = {.slot = 0, .channel = &channel};
	struct buf payload;
	char *room;

	buf_init(&payload, 1 << 20);
	(void)buf_lit(&payload, "{\"a\":\"");
	room = buf_extend(&payload, bytes);
	memset(room, fill, bytes);
	(void)buf_lit(&payload, "\"}");
	(void)feed_emit(sender_feed(sender), sender_time(sender), &context, SLICE("note"),
			SLICE_EMPTY, buf_slice(&payload));
	sender_kick(sender);
	buf_finish(&payload);
}

/* Answers as a relay with a limit of @event_max does; returns how many it refused. */
static unsigned run_limited(int64_t ms, size_t event_max, const char *words)
{
	static size_t answered;
	unsigned refused = 0;

	relay.answers = false;
	if (clock_ms == 0)
		answered = 0;
	while (clock_ms < ms) {
		run_until(clock_ms + 10);
		for (; answered < relay.count; answered++) {
			const bool ok = strlen(relay.written[answered].text) <= event_max;

			refused += !ok;
			answer(answered, ok, ok ? "" : words);
		}
	}
	return refused;
}

START_TEST(frame_refused_as_too_large_is_split_and_nothing_is_lost)
{
	struct sender_figures figures;
	uint64_t seqs = 0;

	set_link(LINK_READY);
	for (int i = 0; i < 4; i++)
		emit_sized('a', 15000);
	ck_assert_uint_eq(run_limited(20000, 65536, "invalid: event too large"), 1);
	sender_figures(sender, &figures);
	ck_assert_uint_eq(figures.published, 4);
	ck_assert_uint_eq(figures.dropped, 0);
	ck_assert_uint_eq(figures.in_flight, 0);
	check_ledger();
	/* The refused one; its first part, which keeps the number; the rest. */
	for (size_t i = 1; i < 3; i++) {
		open_written(i);
		ck_assert_uint_eq(frame.number, i);
		ck_assert_int_eq(frame.replayed, i == 2);
		for (size_t k = 0; k < frame.event_count; k++)
			ck_assert_uint_eq(frame.events[k].seq, ++seqs);
	}
	ck_assert_uint_eq(seqs, 4);
	/* From now on frames are made to fit. */
	for (int i = 0; i < 8; i++)
		emit_sized('b', 15000);
	ck_assert_uint_eq(run_limited(40000, 65536, "invalid: event too large"), 0);
	sender_figures(sender, &figures);
	ck_assert_uint_eq(figures.published, 12);
}
END_TEST

START_TEST(event_that_fits_no_frame_of_a_smaller_relay_is_trimmed_once_more)
{
	struct sender_figures figures;
	bool trimmed = false;

	set_link(LINK_READY);
	emit_sized('a', 60000); /* sent before the limit is known */
	emit_sized('a', 60000); /* queued before it is known */
	ck_assert_uint_eq(run_limited(1500, 65536, "error: message too big"), 1);
	emit_sized('a', 60000); /* after */
	ck_assert_uint_eq(run_limited(20000, 65536, "error: message too big"), 0);
	sender_figures(sender, &figures);
	ck_assert_uint_eq(figures.published, 3);
	for (size_t i = 1; i < relay.count; i++) {
		open_written(i);
		for (size_t k = 0; k < frame.event_count; k++) {
			trimmed = trimmed || frame.events[k].trimmed > 0;
			ck_assert(json_check(frame.events[k].payload, NULL, NULL));
		}
	}
	ck_assert(trimmed);
}
END_TEST

START_TEST(limits_of_nip11_are_kept_before_anything_is_refused)
{
	relay.info.max_message_bytes = 65536;
	set_link(LINK_READY);
	for (int i = 0; i < 8; i++)
		emit_sized('a', 15000);
	ck_assert_uint_eq(run_limited(20000, 65536, "too large"), 0);
	ck_assert_uint_ge(relay.count, 4);
	for (size_t i = 0; i < relay.count; i++)
		ck_assert_uint_le(strlen(relay.written[i].text), 65536 - 10);
}
END_TEST

START_TEST(close_for_a_message_too_big_makes_frames_smaller)
{
	struct sender_figures figures;

	relay.answers = false;
	set_link(LINK_READY);
	for (int i = 0; i < 4; i++)
		emit_sized('a', 15000);
	run_until(1000);
	ck_assert_uint_eq(relay.count, 1);
	relay.state = LINK_DOWN;
	relay.events->on_state(relay.ctx, LINK_DOWN,
			       "the connection to x was closed (1009 )", 0);
	relay.answers = true;
	set_link(LINK_READY);
	run_until(10000);
	for (size_t i = 1; i < relay.count; i++)
		ck_assert_uint_le(strlen(relay.written[i].text), 65536);
	sender_figures(sender, &figures);
	ck_assert_uint_eq(figures.published, 4);
}
END_TEST

/* A relay that takes nothing but small notes must not be asked with the same frame for
 * ever. */
START_TEST(frame_that_cannot_be_smaller_is_lost_and_told)
{
	struct sender_figures figures;

	set_link(LINK_READY);
	emit_sized('a', 60000);
	ck_assert_uint_le(run_limited(200000, 4000, "invalid: event too large"), 12);
	sender_figures(sender, &figures);
	ck_assert_uint_eq(figures.dropped, 1);
	ck_assert_uint_eq(figures.in_flight, 0);
	open_written(relay.count - 1);
	ck_assert(frame.number >= 1);
	check_ledger();
}
END_TEST

START_TEST(backfill_that_is_rate_limited_backs_off_and_comes_later)
{
	char words[256];
	size_t before;
	bool came = false;

	set_link(LINK_READY);
	emit_large();
	run_until(5000);
	(void)emit("note");
	run_until(6000);
	(void)snprintf(
		words, sizeof(words),
		"{\"type\":\"feed_sync\",\"requestId\":\"r\",\"observer\":\"aabbccdd\","
		"\"want\":[{\"epoch\":\"%s\",\"frames\":[[1,1]]}]}",
		sender_epoch(sender));
	ck_assert(ask(words));
	run_until(6500); /* its feed_state */
	before = relay.count;
	relay.answers = false;
	run_until(9000);
	ck_assert_uint_eq(relay.count, before + 1);
	answer(before, false, "rate-limited: later");
	run_until(9900);
	ck_assert_uint_eq(relay.count, before + 1);
	relay.answers = true;
	run_until(14000);
	for (size_t i = before + 1; i < relay.count; i++) {
		open_written(i);
		came = came || frame.number == 1;
	}
	ck_assert(came);
}
END_TEST

START_TEST(control_of_the_owner_is_opened_once)
{
	const struct slice text =
		a_control(owner, "control", unix_s(), "{\"type\":\"prompt\"}");

	ck_assert_int_eq(sender_observer_age_s(sender), INT64_MAX);
	deliver(text);
	deliver(text);
	ck_assert_uint_eq(controls, 1);
	assert_slice_eq(buf_slice(&control_text), "{\"type\":\"prompt\"}");
	run_until(4000);
	ck_assert_int_eq(sender_observer_age_s(sender), 4);
}
END_TEST

START_TEST(what_is_no_fresh_control_of_the_owner_is_not_opened)
{
	struct slice text;

	deliver(a_control(stranger, "control", unix_s(), "{}"));
	deliver(a_control(owner, "telemetry", unix_s(), "{}"));
	deliver(a_control(owner, "control", unix_s() - 301, "{}"));
	deliver(a_control(owner, "control", unix_s() + 301, "{}"));
	deliver(SLICE("{\"kind\":24200}"));
	text = a_control(owner, "control", unix_s(), "{}");
	/* The last digit of the signature, or of the id, was changed. */
	arena_dup(&arena, text);
	{
		char *copy = mem_dup(text);
		const size_t at = slice_find_slice(text, SLICE("\"sig\":\"")) + 7;

		copy[at] = copy[at] == '0' ? '1' : '0';
		deliver((struct slice){copy, text.len});
		free(copy);
	}
	ck_assert_uint_eq(controls, 0);
	deliver(text);
	ck_assert_uint_eq(controls, 1);
}
END_TEST

START_TEST(a_flood_of_forged_controls_costs_a_hundred_signatures_a_second)
{
	const struct slice text = a_control(owner, "control", unix_s(), "{}");
	char *forged = mem_dup(text);
	const size_t at = slice_find_slice(text, SLICE("\"sig\":\"")) + 7;

	forged[at] = forged[at] == '0' ? '1' : '0';
	for (int i = 0; i < 100; i++)
		deliver((struct slice){forged, text.len});
	free(forged);
	deliver(text);
	ck_assert_uint_eq(controls, 0); /* not even looked at, and not remembered */
	clock_ms += 1000;
	deliver(text);
	ck_assert_uint_eq(controls, 1);
}
END_TEST

START_TEST(subscription_asks_for_controls_of_the_owner_only)
{
	char agent_hex[65] = "", owner_hex[65] = "", want[512];

	hex_encode(keypair_public(agent), KEY_BYTES, agent_hex);
	hex_encode(keypair_public(owner), KEY_BYTES, owner_hex);
	(void)snprintf(want, sizeof(want),
		       "{\"kinds\":[24200],\"#p\":[\"%s\"],\"authors\":[\"%s\"],"
		       "\"since\":$now-300}",
		       agent_hex, owner_hex);
	ck_assert_str_eq(relay.filter, want);
}
END_TEST

START_TEST(a_subscription_that_the_relay_closes_is_asked_for_again_later)
{
	set_link(LINK_READY);
	ck_assert_uint_eq(relay.subscribed, 1);
	relay.events->on_closed(relay.ctx, SLICE("control"), SLICE("error: busy"));
	relay.events->on_closed(relay.ctx, SLICE("control"), SLICE("error: busy"));
	run_until(14999);
	ck_assert_uint_eq(relay.subscribed, 1);
	run_until(60000);
	ck_assert_uint_eq(relay.subscribed, 2);
}
END_TEST

START_TEST(body_is_sent_in_parts_that_make_the_whole_event)
{
	const struct feed_context context = {.slot = 0, .channel = &channel};
	struct buf body, parts;

	buf_init(&body, 1 << 20);
	buf_init(&parts, 1 << 20);
	(void)buf_lit(&body, "{\"payload\":\"");
	while (body.len < 100000)
		(void)buf_lit(&body, "\\n€\\\"😀");
	(void)buf_lit(&body, "\"}");
	set_link(LINK_READY);
	ck_assert(
		sender_body(sender, &context, sender_epoch(sender), 7, buf_slice(&body)));
	ck_assert(
		sender_body(sender, &context, sender_epoch(sender), 7, buf_slice(&body)));
	run_until(12000);
	for (size_t i = 0; i < relay.count; i++) {
		struct json json;
		struct slice key, raw;

		open_written(i);
		assert_slice_eq(frame.events[0].kind, "body_part");
		ck_assert_uint_eq(frame.events[0].trimmed, 0);
		json_init(&json, frame.events[0].payload);
		(void)json_enter_object(&json);
		while (json_member(&json, &key)) {
			if (json_is(key, SLICE("text")) && json_string(&json, &raw))
				ck_assert(json_unescape(raw, &parts));
			else
				(void)json_skip(&json, NULL);
		}
	}
	ck_assert_uint_ge(relay.count, 3);
	ck_assert(slice_eq(buf_slice(&parts), buf_slice(&body)));
	buf_finish(&body);
	buf_finish(&parts);
}
END_TEST

START_TEST(stop_drains_a_frame_a_tick_and_then_is_done)
{
	set_link(LINK_READY);
	emit_large();
	emit_large();
	sender_stop(sender, 3000, on_done, NULL);
	run_until(1999);
	ck_assert(!done);
	run_until(2000);
	ck_assert(done);
	ck_assert_uint_eq(relay.count, 2);
}
END_TEST

START_TEST(stop_gives_up_after_its_grace)
{
	(void)emit("note");
	sender_stop(sender, 3000, on_done, NULL);
	run_until(2999);
	ck_assert(!done);
	run_until(3000);
	ck_assert(done);
}
END_TEST

START_TEST(without_a_journal_what_is_left_counts_and_the_last_word_leaves_next)
{
	struct sender_figures figures;
	struct sender_left left;

	set_link(LINK_READY);
	emit_large();
	emit_large();
	emit_large();
	sender_stop(sender, 1500, on_done, NULL);
	run_until(1500);
	ck_assert(done);
	ck_assert_uint_eq(relay.count, 1);
	sender_leave(sender, &left);
	ck_assert_uint_eq(left.events, 2);
	ck_assert_uint_eq(left.journalled, 0);
	sender_figures(sender, &figures);
	ck_assert_uint_eq(figures.dropped, 2);
	check_ledger();
	(void)emit("note");
	done = false;
	sender_stop(sender, 1500, on_done, NULL);
	run_until(3000);
	ck_assert(done);
	ck_assert_uint_eq(relay.count, 2);
}
END_TEST

START_TEST(stop_with_nothing_left_is_done_in_the_next_turn)
{
	sender_stop(sender, 3000, on_done, NULL);
	ck_assert(!done);
	run_until(0);
	ck_assert(done);
}
END_TEST

static Suite *sender_suite(void)
{
	Suite *suite = suite_create("sender");
	TCase *tcase = tcase_create("sender");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, frame_is_sealed_for_the_owner_and_attested);
	tcase_add_test(tcase, first_frame_waits_one_tick);
	tcase_add_test(tcase, lone_event_after_silence_leaves_after_the_linger_time);
	tcase_add_test(tcase, no_timer_runs_when_nothing_waits);
	tcase_add_test(tcase, flood_of_a_minute_never_sends_two_frames_within_a_tick);
	tcase_add_test(tcase, nothing_leaves_before_the_link_is_ready);
	tcase_add_test(tcase, eight_frames_without_ok_pause);
	tcase_add_test(tcase, thirty_seconds_without_ok_reset_the_link);
	tcase_add_test(tcase, after_a_reconnect_the_same_bytes_are_sent_again_one_a_tick);
	tcase_add_test(tcase, frame_of_50_s_is_sealed_anew_and_marked);
	tcase_add_test(tcase, published_means_the_relay_said_ok);
	tcase_add_test(tcase, refused_frame_is_reported_as_a_gap);
	tcase_add_test(tcase,
		       frame_refused_for_its_time_is_sealed_anew_and_nothing_is_lost);
	tcase_add_test(tcase, a_relay_that_refuses_everything_is_asked_ever_less);
	tcase_add_test(tcase, rate_limited_frame_is_sent_again_after_a_growing_pause);
	tcase_add_test(tcase, after_15_s_of_silence_the_newest_frame_is_sent_once_more);
	tcase_add_test(tcase, feed_sync_is_answered_in_the_next_tick);
	tcase_add_test(tcase, wanted_frames_are_served_again_and_marked);
	tcase_add_test(
		tcase,
		a_relay_that_offers_any_backfill_gets_a_hundred_frames_a_second_at_most);
	tcase_add_test(tcase, frame_refused_as_too_large_is_split_and_nothing_is_lost);
	tcase_add_test(tcase,
		       event_that_fits_no_frame_of_a_smaller_relay_is_trimmed_once_more);
	tcase_add_test(tcase, limits_of_nip11_are_kept_before_anything_is_refused);
	tcase_add_test(tcase, close_for_a_message_too_big_makes_frames_smaller);
	tcase_add_test(tcase, frame_that_cannot_be_smaller_is_lost_and_told);
	tcase_add_test(tcase, backfill_that_is_rate_limited_backs_off_and_comes_later);
	tcase_add_test(tcase, control_of_the_owner_is_opened_once);
	tcase_add_test(tcase,
		       a_flood_of_forged_controls_costs_a_hundred_signatures_a_second);
	tcase_add_test(tcase, what_is_no_fresh_control_of_the_owner_is_not_opened);
	tcase_add_test(tcase, subscription_asks_for_controls_of_the_owner_only);
	tcase_add_test(tcase,
		       a_subscription_that_the_relay_closes_is_asked_for_again_later);
	tcase_add_test(tcase, body_is_sent_in_parts_that_make_the_whole_event);
	tcase_add_test(tcase, stop_drains_a_frame_a_tick_and_then_is_done);
	tcase_add_test(tcase, stop_gives_up_after_its_grace);
	tcase_add_test(
		tcase,
		without_a_journal_what_is_left_counts_and_the_last_word_leaves_next);
	tcase_add_test(tcase, stop_with_nothing_left_is_done_in_the_next_turn);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return test_run(sender_suite());
}
