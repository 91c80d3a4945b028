/* What the journal costs a frame that leaves, and how fast it is written and read back.
 *
 *   pack       the production queue drained into frames, as probes/drain does it
 *   seal       that, and each frame encrypted, hashed and signed: the whole way out
 *   journal    that, and each frame handed to the journal's writer as well
 *
 * Times are of the loop's thread (its CPU time: the writer works beside it on a disk of
 * the machine's). PERCH_PROBE_EVENTS (10000), PERCH_PROBE_BYTES (200, of each payload),
 * PERCH_PROBE_RUNS (5). Each run's frames are read back and compared by number and size.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/feed.h"
#include "agent/journal.h"
#include "agent/queue.h"
#include "probes/probe.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/loop.h"
#include "wire/nostr/event.h"
#include "wire/nostr/nip44.h"

enum arm { PACK, SEAL, JOURNAL, ARMS };
static const char *const arm_names[ARMS] = {"pack", "seal", "journal"};

struct probe {
	size_t events, bytes, runs;
	struct loop *loop;
	struct keypair *agent, *owner;
	uint8_t conversation_key[32];
	struct uuid channel;
	struct journal *journal;
	char folder[64];
	size_t kept, read, frames;
	uint64_t next; /* number of a frame; never used twice */
	struct buf plain, text;
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
	(void)number;
	if (!text.ptr || text.len < 2 || text.ptr[text.len - 1] != '}')
		probe_fail("a frame cannot be read back");
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

static void seal(struct probe *probe)
{
	static const uint8_t nonce[NONCE_BYTES] = {1}, aux[32] = {2};
	const struct event_draft draft = {
		.created_at = 1796025600, .kind = FRAME_KIND, .tags = SLICE("[]")};
	uint8_t id[32];
	struct err err;

	buf_clear(&probe->text);
	if (!event_seal(probe->loop->crypto, probe->agent, probe->conversation_key,
			&draft, buf_slice(&probe->plain), nonce, aux, &probe->text, id,
			&err))
		probe_fail(err.text);
}

static int64_t run(struct probe *probe, enum arm arm)
{
	struct queue *queue = fill(probe);
	const size_t kept = probe->kept;
	struct queue_frame frame;
	size_t frames = 0;
	int64_t start = cpu_ns(), spent;

	for (;;) {
		buf_clear(&probe->plain);
		if (!queue_pack(queue, FRAME_PACK_MAX, &probe->plain, &frame))
			break;
		frames++;
		if (arm == JOURNAL &&
		    !journal_put(probe->journal, ++probe->next, buf_slice(&probe->plain)))
			probe_fail("the journal's queue is full: take fewer events");
		if (arm != PACK)
			seal(probe);
		queue_published(queue, &frame);
	}
	spent = cpu_ns() - start;
	queue_destroy(queue);
	if (probe->frames && frames != probe->frames)
		probe_fail("a run made other frames than the first");
	probe->frames = frames;
	if (arm == JOURNAL) {
		start = probe_clock_ns();
		until(probe, &probe->kept, kept + frames);
		probe->drain_ns = probe_clock_ns() - start;
	}
	return spent;
}

/* All frames of the last run, one request after the other. */
static void read_back(struct probe *probe)
{
	const int64_t start = probe_clock_ns();

	for (size_t i = 0; i < probe->frames; i++) {
		journal_read(probe->journal, "692c0a0000000001", probe->next - i);
		until(probe, &probe->read, i + 1);
	}
	probe->read_ns = probe_clock_ns() - start;
}

static void init(struct probe *probe)
{
	const uint8_t agent[KEY_BYTES] = {1, 1}, owner[KEY_BYTES] = {2, 1};
	struct journal_options options = {.epoch = "692c0a0000000001",
					  .max_bytes = 1 << 30,
					  .max_age_s = 3600,
					  .events = &events,
					  .ctx = probe};
	char path[80];
	struct err err;

	(void)snprintf(probe->folder, sizeof(probe->folder), "/tmp/perch-probe-XXXXXX");
	probe->loop = loop_create(&err);
	buf_init(&probe->plain, FRAME_PLAINTEXT_MAX);
	buf_init(&probe->text, EVENT_MAX_BYTES);
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
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/j.db%s", probe->folder, parts[i]);
		(void)unlink(path);
	}
	(void)rmdir(probe->folder);
	keypair_destroy(probe->agent);
	keypair_destroy(probe->owner);
	buf_finish(&probe->plain);
	buf_finish(&probe->text);
	loop_destroy(probe->loop);
}

static double median(struct probe *probe, enum arm arm)
{
	return (double)probe_quantile(probe->times_ns[arm], probe->runs, 50);
}

int main(void)
{
	static struct probe probe;

	probe.events = probe_setting("PERCH_PROBE_EVENTS", 10000, 1, 20000);
	probe.bytes = probe_setting("PERCH_PROBE_BYTES", 200, 1, 40000);
	probe.runs = probe_setting("PERCH_PROBE_RUNS", 5, 1, PROBE_RUNS_MAX);
	init(&probe);
	for (size_t round = 0; round < probe.runs; round++)
		for (size_t turn = 0; turn < ARMS; turn++) {
			const enum arm arm = (enum arm)probe_turn(round, turn, ARMS);

			probe.times_ns[arm][round] = run(&probe, arm);
		}
	read_back(&probe);
	for (int arm = 0; arm < ARMS; arm++)
		probe_print(arm_names[arm], probe.times_ns[arm], probe.runs, "ns",
			    ",\"events\":%zu,\"frames\":%zu", probe.events, probe.frames);
	probe_note("ratios",
		   ",\"journal_to_seal\":%.3f,\"write_us_per_frame\":%.1f,"
		   "\"read_us_per_frame\":%.1f",
		   median(&probe, JOURNAL) / median(&probe, SEAL),
		   (double)probe.drain_ns / 1000 / (double)probe.frames,
		   (double)probe.read_ns / 1000 / (double)probe.frames);
	finish(&probe);
	return EXIT_SUCCESS;
}
