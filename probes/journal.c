/* What the journal costs a frame that leaves, and how fast it is written and read back.
 *
 *   pack           the production queue drained into one buffer, as probes/drain does it
 *   drain          the production queue drained into frames of the outbox, as the sender
 *                  does it: packed, marked and, as if its OK had come at once, kept
 *   drain_journal  that, and each frame handed to the journal's writer
 *   seal           drain, and each frame encrypted, hashed and signed: the whole way out
 *   seal_journal   that, and each frame handed to the journal's writer
 *
 * Times are of the loop's thread (its CPU time: the writer works beside it on a disk of
 * the machine's). The last line has the ratios: what a drain with the journal costs of
 * one without, from the drain alone and from the whole way out.
 *
 * PERCH_PROBE_EVENTS (10000), PERCH_PROBE_BYTES (2, of each payload), PERCH_PROBE_RUNS
 * (5). The frames of a last run are read back and compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <uv.h>

#include "agent/feed.h"
#include "agent/journal.h"
#include "agent/outbox.h"
#include "agent/queue.h"
#include "probes/probe.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/loop.h"
#include "wire/nostr/event.h"
#include "wire/nostr/nip44.h"

#define EPOCH "692c0a0000000001"

enum arm { PACK, DRAIN, DRAIN_JOURNAL, SEAL, SEAL_JOURNAL, ARMS };
static const char *const arm_names[ARMS] = {"pack", "drain", "drain_journal", "seal",
					    "seal_journal"};

struct probe {
	size_t events, bytes, runs;
	struct loop *loop;
	struct keypair *agent, *owner;
	uint8_t conversation_key[32];
	struct uuid channel;
	struct journal *journal;
	char folder[64];
	struct buf plain;
	struct outbox *outbox;
	size_t kept, read, frames;
	struct buf *sent; /* the frames of the run that is checked */
	uint64_t first;   /* number of the first of them */
	int64_t times_ns[ARMS][PROBE_RUNS_MAX];
	int64_t drain_ns, read_ns; /* of the last run */
	bool open;
};

static int64_t cpu_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void on_open(void *ctx, bool unclean)
{
	struct probe *probe = ctx;

	(void)unclean;
	probe->open = true;
}

static void on_kept(void *ctx, uint64_t number)
{
	struct probe *probe = ctx;

	(void)number;
	probe->kept++;
}

static void on_lost(void *ctx, uint64_t number)
{
	(void)ctx;
	(void)number;
	probe_fail("the journal lost a frame");
}

static void on_frame(void *ctx, const char *epoch, uint64_t number, struct slice text)
{
	struct probe *probe = ctx;

	(void)epoch;
	if (!slice_eq(text, buf_slice(&probe->sent[number - probe->first])))
		probe_fail("a frame is not read back as it was");
	probe->read++;
}

static void on_trouble(void *ctx, const char *reason, uint64_t lost)
{
	(void)ctx;
	(void)lost;
	probe_fail(reason ? reason : "trouble");
}

static const struct journal_events events = {
	on_open, on_kept, on_lost, on_frame, on_frame, on_trouble,
};

static void until(struct probe *probe, const size_t *count, size_t want)
{
	while (*count < want)
		(void)uv_run(probe->loop->uv, UV_RUN_ONCE);
}

static struct queue *fill(struct probe *probe)
{
	struct queue *queue = queue_create(1u << 30);
	struct feed *feed = feed_create(queue);
	const struct feed_context context = {.slot = 0, .channel = &probe->channel};
	struct buf payload;

	buf_init(&payload, probe->bytes + 16);
	(void)buf_lit(&payload, "{\"a\":\"");
	memset(buf_extend(&payload, probe->bytes), 'x', probe->bytes);
	(void)buf_lit(&payload, "\"}");
	for (size_t i = 0; i < probe->events; i++)
		(void)feed_emit(feed, (struct feed_time){1796025600000, (int64_t)i},
				&context, SLICE("note"), SLICE_EMPTY,
				buf_slice(&payload));
	buf_finish(&payload);
	feed_destroy(feed);
	return queue;
}

static void seal(struct probe *probe, struct outbox_frame *frame)
{
	static const uint8_t nonce[NONCE_BYTES] = {1}, aux[32] = {2};
	const struct event_draft draft = {
		.created_at = 1796025600, .kind = FRAME_KIND, .tags = SLICE("[]")};
	struct err err;

	if (!event_seal(probe->loop->crypto, probe->agent, probe->conversation_key,
			&draft, buf_slice(&frame->plaintext), nonce, aux, &frame->text,
			frame->id, &err))
		probe_fail(err.text);
}

/* One frame, as sender.c sends it. */
static void send_frame(struct probe *probe, struct queue *queue, enum arm arm)
{
	struct outbox_frame *frame = outbox_add(probe->outbox);
	struct slice body;

	(void)queue_pack(queue, FRAME_PACK_MAX, &frame->plaintext, &frame->content);
	outbox_mark(probe->outbox, frame, false);
	body = (struct slice){frame->plaintext.ptr, frame->body_bytes};
	if ((arm == DRAIN_JOURNAL || arm == SEAL_JOURNAL) &&
	    !journal_hold(probe->journal, frame->number, frame->memory, body))
		probe_fail("the journal's queue is full: take fewer events");
	if (arm == SEAL || arm == SEAL_JOURNAL)
		seal(probe, frame);
	queue_published(queue, &frame->content);
	outbox_accept(probe->outbox, frame, 0);
}

static void pack(struct probe *probe, struct queue *queue)
{
	struct queue_frame frame;

	buf_clear(&probe->plain);
	(void)queue_pack(queue, FRAME_PACK_MAX, &probe->plain, &frame);
	queue_published(queue, &frame);
}

static int64_t run(struct probe *probe, enum arm arm)
{
	struct queue *queue = fill(probe);
	const size_t kept = probe->kept;
	size_t frames = 0;
	int64_t start = cpu_ns(), spent;

	for (; !queue_is_empty(queue); frames++)
		if (arm == PACK)
			pack(probe, queue);
		else
			send_frame(probe, queue, arm);
	spent = cpu_ns() - start;
	queue_destroy(queue);
	if (probe->frames && frames != probe->frames)
		probe_fail("a run made other frames than the first");
	probe->frames = frames;
	if (arm == DRAIN_JOURNAL || arm == SEAL_JOURNAL) {
		start = probe_clock_ns();
		until(probe, &probe->kept, kept + frames);
		probe->drain_ns = probe_clock_ns() - start;
	}
	return spent;
}

/* A run whose frames are copied, then read from the journal, one request after the other.
 */
static void checked_run(struct probe *probe)
{
	struct queue *queue = fill(probe);
	const size_t kept = probe->kept;
	int64_t start;

	probe->sent = mem_array(probe->frames, sizeof(*probe->sent));
	probe->first = outbox_last(probe->outbox) + 1;
	for (size_t i = 0; i < probe->frames; i++) {
		const struct outbox_frame *frame;

		send_frame(probe, queue, DRAIN_JOURNAL);
		frame = outbox_get(probe->outbox, outbox_last(probe->outbox));
		buf_init(&probe->sent[i], FRAME_PLAINTEXT_MAX);
		(void)buf_append(&probe->sent[i], (struct slice){frame->plaintext.ptr,
								 frame->body_bytes - 1});
		(void)buf_lit(&probe->sent[i], "}");
	}
	queue_destroy(queue);
	until(probe, &probe->kept, kept + probe->frames);
	start = probe_clock_ns();
	for (size_t i = 0; i < probe->frames; i++) {
		journal_read(probe->journal, EPOCH, probe->first + i);
		until(probe, &probe->read, i + 1);
	}
	probe->read_ns = probe_clock_ns() - start;
}

static void init(struct probe *probe)
{
	const uint8_t agent[KEY_BYTES] = {1, 1}, owner[KEY_BYTES] = {2, 1};
	struct journal_options options = {.epoch = EPOCH,
					  .max_bytes = 1 << 30,
					  .max_age_s = 3600,
					  .events = &events,
					  .ctx = probe};
	char path[80];
	struct err err;

	(void)snprintf(probe->folder, sizeof(probe->folder), "/tmp/perch-probe-XXXXXX");
	probe->loop = loop_create(&err);
	probe->outbox = outbox_create(EPOCH);
	buf_init(&probe->plain, FRAME_PLAINTEXT_MAX);
	if (!mkdtemp(probe->folder) || !probe->loop ||
	    !uuid_parse(SLICE("7b1f0c52-5a0e-4c9b-9f8e-3d2c6a41e0d7"), &probe->channel) ||
	    !keypair_create(probe->loop->crypto, agent, &probe->agent, &err) ||
	    !keypair_create(probe->loop->crypto, owner, &probe->owner, &err) ||
	    !nip44_conversation_key(probe->loop->crypto, probe->agent,
				    keypair_public(probe->owner), probe->conversation_key,
				    &err))
		probe_fail("no keys, no folder or no loop");
	(void)snprintf(path, sizeof(path), "%s/j.db", probe->folder);
	options.path = path;
	options.keypair = probe->agent;
	probe->journal = journal_create(probe->loop, &options, &err);
	if (!probe->journal)
		probe_fail(err.text);
	while (!probe->open)
		(void)uv_run(probe->loop->uv, UV_RUN_ONCE);
}

static void finish(struct probe *probe)
{
	static const char *const parts[] = {"", "-wal", "-shm"};
	char path[96];

	journal_destroy(probe->journal);
	outbox_destroy(probe->outbox);
	buf_finish(&probe->plain);
	for (size_t i = 0; i < probe->frames; i++)
		buf_finish(&probe->sent[i]);
	free(probe->sent);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/j.db%s", probe->folder, parts[i]);
		(void)unlink(path);
	}
	(void)rmdir(probe->folder);
	keypair_destroy(probe->agent);
	keypair_destroy(probe->owner);
	loop_destroy(probe->loop);
}

static double median(struct probe *probe, enum arm arm)
{
	return (double)probe_quantile(probe->times_ns[arm], probe->runs, 50);
}

static void print_ratios(struct probe *probe)
{
	const double drain = median(probe, DRAIN),
		     more = median(probe, DRAIN_JOURNAL) - drain,
		     pack = median(probe, PACK), frames = (double)probe->frames;

	probe_note("ratios",
		   ",\"drain_with_journal_to_without\":%.3f,"
		   "\"pack_with_journal_to_without\":%.3f,"
		   "\"seal_with_journal_to_without\":%.3f,"
		   "\"journal_us_per_frame\":%.2f,"
		   "\"write_us_per_frame\":%.1f,\"read_us_per_frame\":%.1f",
		   (drain + more) / drain, (pack + more) / pack,
		   median(probe, SEAL_JOURNAL) / median(probe, SEAL),
		   more / 1000 / frames, (double)probe->drain_ns / 1000 / frames,
		   (double)probe->read_ns / 1000 / frames);
}

int main(void)
{
	static struct probe probe;

	probe.events = probe_setting("PERCH_PROBE_EVENTS", 10000, 1, 20000);
	probe.bytes = probe_setting("PERCH_PROBE_BYTES", 2, 1, 40000);
	probe.runs = probe_setting("PERCH_PROBE_RUNS", 5, 1, PROBE_RUNS_MAX);
	init(&probe);
	for (size_t round = 0; round < probe.runs; round++)
		for (size_t turn = 0; turn < ARMS; turn++) {
			const enum arm arm = (enum arm)probe_turn(round, turn, ARMS);

			probe.times_ns[arm][round] = run(&probe, arm);
		}
	checked_run(&probe);
	for (int arm = 0; arm < ARMS; arm++)
		probe_print(arm_names[arm], probe.times_ns[arm], probe.runs, "ns",
			    ",\"events\":%zu,\"frames\":%zu", probe.events, probe.frames);
	print_ratios(&probe);
	finish(&probe);
	return EXIT_SUCCESS;
}
