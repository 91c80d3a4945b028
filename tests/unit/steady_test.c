#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uv.h>

#include "agent/feed.h"
#include "agent/journal.h"
#include "agent/outbox.h"
#include "agent/queue.h"
#include "tests/unit/support/support.h"
#include "wire/base/mem.h"
#include "wire/base/pool.h"
#include "wire/host/loop.h"
#include "wire/nostr/crypto.h"
#include "wire/nostr/event.h"
#include "wire/nostr/nip44.h"

/* In a steady flow nothing is allocated: neither for an event that leaves nor for a frame
 * that is packed, sealed and kept. Source: design §5, "Queue".
 *
 * All that Perch allocates goes through wire/base/mem, whose place these take. */

/* Of this thread: what the journal's needs for SQLite is not meant. */
static _Thread_local size_t allocations;

void *mem_alloc(size_t size)
{
	return mem_array(1, size);
}

void *mem_array(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size ? size : 1);

	ck_assert_ptr_nonnull(memory);
	allocations++;
	return memory;
}

void *mem_grow(void *old, size_t count, size_t size)
{
	void *memory = realloc(old, count * size);

	ck_assert_ptr_nonnull(memory);
	allocations++;
	return memory;
}

char *mem_dup(struct slice text)
{
	char *copy = mem_alloc(text.len + 1);

	if (text.len)
		memcpy(copy, text.ptr, text.len);
	return copy;
}

#define CHANNELS 5

static struct queue *queue;
static struct feed *feed;
static struct buf frame, line;
static struct uuid channels[CHANNELS];
static struct feed_time now;
static uint64_t printed;

static void setup(void)
{
	queue = queue_create(AGENT_QUEUE_MAX);
	feed = feed_create(queue);
	buf_init(&frame, FRAME_PLAINTEXT_MAX);
	buf_init(&line, 1 << 20);
	now = (struct feed_time){1796025600000, 0};
	printed = 0;
	for (int i = 0; i < CHANNELS; i++)
		(void)snprintf(channels[i].text, sizeof(channels[i].text),
			       "00000000-0000-4000-8000-%012d", i);
}

static void teardown(void)
{
	buf_finish(&line);
	buf_finish(&frame);
	feed_destroy(feed);
	queue_destroy(queue);
}

/* Chunks, which are joined, tool calls, requests and events of ours in turn, sizes up to
 * some kilobytes. */
static void print_some(unsigned count)
{
	for (unsigned i = 0; i < count; i++, printed++) {
		const struct feed_context context = {
			.slot = 0,
			.channel = &channels[printed / 7 % CHANNELS],
			.session = SLICE_INIT("sess_1"),
			.turn = SLICE_INIT("turn_1"),
			.turn_started_ms = 1796025600000,
		};
		const char *update =
			printed % 3 ? "agent_message_chunk" : "tool_call_update";
		const size_t text = (size_t)(printed * 7919 % 2500);
		struct acp_line scanned;

		now.unix_ms++;
		now.monotonic_ms++;
		if (printed % 11 == 0) {
			(void)feed_emit(feed, now, &context, SLICE("turn_completed"),
					SLICE_EMPTY, SLICE("{}"));
			continue;
		}
		buf_clear(&line);
		(void)buf_printf(&line,
				 "{\"method\":\"session/update\",\"params\":{"
				 "\"sessionId\":\"sess_1\",\"update\":{"
				 "\"sessionUpdate\":\"%s\",\"content\":{\"type\":"
				 "\"text\",\"text\":\"",
				 update);
		memset(buf_extend(&line, text), 'a', text);
		(void)buf_lit(&line, "\"}}}}");
		acp_line_scan(buf_slice(&line), &scanned);
		(void)feed_line(feed, now, &context, FEED_READ, &scanned, line.len,
				SLICE_EMPTY, NULL);
	}
}

static size_t drain(void)
{
	struct queue_frame info;
	size_t frames = 0;

	for (buf_clear(&frame); queue_pack(queue, FRAME_PACK_MAX, &frame, &info);
	     buf_clear(&frame)) {
		queue_published(queue, &info);
		frames++;
	}
	return frames;
}

START_TEST(draining_allocates_nothing_from_the_first_event_on)
{
	(void)buf_reserve(&frame, FRAME_PLAINTEXT_MAX);
	print_some(3000);
	allocations = 0;
	ck_assert_uint_gt(drain(), CHANNELS);
	ck_assert_uint_eq(allocations, 0);
}
END_TEST

START_TEST(filling_again_after_a_drain_allocates_nothing)
{
	for (int i = 0; i < 20; i++) {
		if (i == 10)
			allocations = 0;
		printed = 0;
		print_some(100);
		(void)drain();
	}
	ck_assert_uint_eq(allocations, 0);
}
END_TEST

static const uint8_t seed[32], secret[32] = {1}, owner_secret[32] = {2};

/* What it takes to seal. */
struct sealer {
	struct crypto *crypto;
	struct keypair *keypair;
	uint8_t conversation_key[32];
};

static void sealer_init(struct sealer *sealer)
{
	struct keypair *owner;
	struct err err;

	sealer->crypto = crypto_create(seed, &err);
	ck_assert_ptr_nonnull(sealer->crypto);
	ck_assert(keypair_create(sealer->crypto, secret, &sealer->keypair, &err));
	ck_assert(keypair_create(sealer->crypto, owner_secret, &owner, &err));
	ck_assert(nip44_conversation_key(sealer->crypto, sealer->keypair,
					 keypair_public(owner), sealer->conversation_key,
					 &err));
	keypair_destroy(owner);
}

static void sealer_finish(struct sealer *sealer)
{
	keypair_destroy(sealer->keypair);
	crypto_destroy(sealer->crypto);
}

/* As the sender does it. */
static struct outbox_frame *pack_and_seal(struct outbox *outbox,
					  const struct sealer *sealer)
{
	static const uint8_t nonce[NONCE_BYTES], aux[32];
	const struct event_draft draft = {.created_at = 1796025600, .kind = FRAME_KIND};
	struct outbox_frame *out = outbox_add(outbox);
	struct err err;

	ck_assert(queue_pack(queue, FRAME_PACK_MAX, &out->plaintext, &out->content));
	outbox_mark(outbox, out, false);
	ck_assert(event_seal(sealer->crypto, sealer->keypair, sealer->conversation_key,
			     &draft, buf_slice(&out->plaintext), nonce, aux, &out->text,
			     out->id, &err));
	out->state = OUTBOX_SENT;
	out->sent_ms = now.monotonic_ms;
	out->held_bytes = sizeof(*out) + out->plaintext.cap + out->text.cap;
	queue_hold(queue, out->held_bytes);
	return out;
}

static void let_through(struct outbox *outbox, struct outbox_frame *out)
{
	queue_release(queue, out->held_bytes);
	queue_published(queue, &out->content);
	outbox_accept(outbox, out, now.monotonic_ms);
}

#define ROUND_S 40

/* Thousands of frames of any size in rounds that are all the same, the OK of each coming
 * before the next leaves: the kept ones have long reached their bounds. */
START_TEST(a_frame_a_second_allocates_nothing)
{
	struct outbox *outbox = outbox_create("692c0a0000000001");
	uint64_t sent = 0, bytes = 0;
	struct sealer sealer;

	sealer_init(&sealer);
	for (unsigned second = 0; second < 100 * ROUND_S; second++) {
		const unsigned lines = second * 31 % ROUND_S + 1;

		/* What all sizes take has been seen by then. */
		if (second == 50 * ROUND_S)
			allocations = 0;
		if (second % ROUND_S == 0)
			printed = 0;
		print_some(lines);
		do {
			struct outbox_frame *out = pack_and_seal(outbox, &sealer);

			bytes += out->plaintext.len;
			let_through(outbox, out);
			sent++;
			now.monotonic_ms += 1000;
		} while (second % ROUND_S == ROUND_S - 1 && !queue_is_empty(queue));
	}
	ck_assert_uint_gt(sent, 100 * ROUND_S);
	ck_assert_uint_gt(bytes, sent * 10000);
	ck_assert_uint_eq(allocations, 0);
	sealer_finish(&sealer);
	outbox_destroy(outbox);
}
END_TEST

static bool opened;
static uint64_t kept;

static void on_open(void *ctx, bool unclean)
{
	(void)ctx;
	(void)unclean;
	opened = true;
}

static void on_kept(void *ctx, uint64_t number)
{
	(void)ctx;
	kept = number;
}

static void on_lost(void *ctx, uint64_t number)
{
	(void)ctx;
	ck_abort_msg("frame %" PRIu64 " is lost", number);
}

static void on_text(void *ctx, const char *epoch, uint64_t number, struct slice text)
{
	(void)ctx;
	(void)epoch;
	(void)number;
	(void)text;
}

static void on_trouble(void *ctx, const char *reason, uint64_t lost)
{
	(void)ctx;
	(void)lost;
	ck_abort_msg("the journal is in trouble: %s", reason ? reason : "");
}

/* As the sender does it, but for the sealing. */
static void pack_and_hold(struct outbox *outbox, struct journal *journal)
{
	struct outbox_frame *out = outbox_add(outbox);
	struct slice body;

	ck_assert(queue_pack(queue, FRAME_PACK_MAX, &out->plaintext, &out->content));
	outbox_mark(outbox, out, false);
	body = (struct slice){out->plaintext.ptr, out->body_bytes};
	ck_assert(journal_hold(journal, out->number, out->memory, body));
	out->held_bytes = 0;
	let_through(outbox, out);
}

/* Frames of any size, some of them a round's at a time with the journal. */
START_TEST(a_frame_for_the_journal_allocates_nothing)
{
	static const struct journal_events events = {on_open, on_kept, on_lost,
						     on_text, on_text, on_trouble};
	char folder[] = "/tmp/perch-steady-XXXXXX", path[64];
	struct outbox *outbox = outbox_create("692c0a0000000001");
	struct journal_options options = {.path = path,
					  .epoch = "692c0a0000000001",
					  .max_bytes = 64 << 20,
					  .max_age_s = 3600,
					  .events = &events};
	struct journal *journal;
	struct sealer sealer;
	struct loop *loop;
	struct err err;

	sealer_init(&sealer);
	options.keypair = sealer.keypair;
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/j.db", folder);
	loop = loop_create(&err);
	ck_assert_ptr_nonnull(loop);
	journal = journal_create(loop, &options, &err);
	ck_assert_ptr_nonnull(journal);
	while (!opened)
		(void)uv_run(loop->uv, UV_RUN_ONCE);
	for (unsigned round = 0; round < 60; round++) {
		if (round == 30)
			allocations = 0;
		printed = 0;
		print_some(100);
		while (!queue_is_empty(queue))
			pack_and_hold(outbox, journal);
		while (kept < outbox_last(outbox))
			(void)uv_run(loop->uv, UV_RUN_ONCE);
	}
	ck_assert_uint_ge(outbox_last(outbox), 60 * CHANNELS);
	ck_assert_uint_eq(allocations, 0);
	journal_destroy(journal);
	outbox_destroy(outbox);
	loop_destroy(loop);
	sealer_finish(&sealer);
	test_remove_folder(folder);
}
END_TEST

START_TEST(pool_keeps_no_more_than_its_bound)
{
	struct pool pool = {.max_bytes = 10000};
	void *blocks[40];
	size_t bytes;

	for (int i = 0; i < 40; i++) {
		bytes = 600;
		blocks[i] = pool_take(&pool, &bytes);
		ck_assert_uint_eq(bytes, 1024);
	}
	for (int i = 0; i < 40; i++)
		pool_give(&pool, blocks[i], i % 2 ? 1024 : 600);
	ck_assert_uint_eq(pool.spare_bytes, 9 * 1024);
	allocations = 0;
	bytes = 1024;
	blocks[0] = pool_take(&pool, &bytes);
	ck_assert_ptr_eq(blocks[0], blocks[8]); /* the last one that was kept */
	ck_assert_uint_eq(allocations, 0);
	pool_give(&pool, blocks[0], bytes);
	pool_finish(&pool);
	ck_assert_uint_eq(pool.spare_bytes, 0);
}
END_TEST

START_TEST(pool_makes_huge_blocks_as_asked_and_keeps_none)
{
	struct pool pool = {.max_bytes = SIZE_MAX};
	size_t bytes = POOL_MOST_BYTES + 1;
	void *block = pool_take(&pool, &bytes);

	ck_assert_uint_eq(bytes, POOL_MOST_BYTES + 1);
	pool_give(&pool, block, bytes);
	ck_assert_uint_eq(pool.spare_bytes, 0);
	bytes = POOL_MOST_BYTES;
	block = pool_take(&pool, &bytes);
	ck_assert_uint_eq(bytes, POOL_MOST_BYTES);
	pool_give(&pool, block, bytes);
	ck_assert_uint_eq(pool.spare_bytes, POOL_MOST_BYTES);
	ck_assert(pool_shrink(&pool));
	ck_assert(!pool_shrink(&pool));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("steady");
	TCase *flow = tcase_create("flow"), *pool = tcase_create("pool");

	tcase_set_timeout(flow, 100);
	tcase_add_checked_fixture(flow, setup, teardown);
	tcase_add_test(flow, draining_allocates_nothing_from_the_first_event_on);
	tcase_add_test(flow, filling_again_after_a_drain_allocates_nothing);
	tcase_add_test(flow, a_frame_a_second_allocates_nothing);
	tcase_add_test(flow, a_frame_for_the_journal_allocates_nothing);
	tcase_add_test(pool, pool_keeps_no_more_than_its_bound);
	tcase_add_test(pool, pool_makes_huge_blocks_as_asked_and_keeps_none);
	suite_add_tcase(suite, flow);
	suite_add_tcase(suite, pool);
	return test_run(suite);
}
