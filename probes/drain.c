/* What it costs to drain the queue: packing every waiting event into frames. Three arms,
 * in turn, and a fourth after them:
 *
 *   reserialize  serializes the whole candidate batch to ask whether the next event fits
 *   cached       the production queue
 *   copy         copies the same bytes into the same frames and does nothing else
 *   pick         one frame of some 85 events while 100, 10,000, 1,000,000 of that size
 *                wait; the processor's caches are emptied before each, so that all three
 *                begin alike
 *
 * PERCH_PROBE_EVENTS (10000), PERCH_PROBE_BYTES (mean payload, 2: 10,000 events make 30
 * frames, as in the reference implementation's measurement), PERCH_PROBE_CHANNELS (1),
 * PERCH_PROBE_RUNS (5), PERCH_PROBE_ARMS (reserialize,cached,copy,pick),
 * PERCH_PROBE_WAITING (1000000: the most that wait in pick). The queue is filled
 * before the clock starts. Before that a drain is checked: complete FIFO delivery in each
 * channel, byte limits, empty accounting; each timed run must give the same frames and
 * bytes. */

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/queue.h"
#include "probes/probe.h"
#include "wire/base/arena.h"
#include "wire/base/mem.h"
#include "wire/frame/observer_event.h"

enum arm { RESERIALIZE, CACHED, COPY, PICK, ARMS };
static const char *const arm_names[ARMS] = {"reserialize", "cached", "copy", "pick"};

/* One event as it is on the wire, from which the rest is cut. */
struct made {
	struct slice text;
	uint32_t header_len;
	uint32_t channel;
};

/* The frames of the checked drain: which events are in which, for the copy arm. */
struct plan {
	size_t *order;        /* events in the order in which they leave */
	size_t *frame_events; /* how many each frame has */
	size_t frames;
	uint64_t bytes;
};

/* How many wait while one frame is picked. */
static const size_t waiting[] = {100, 10000, 1000000};
#define WAITING (sizeof(waiting) / sizeof(waiting[0]))
/* That frame's bytes: fewer events than 100. */
#define PICK_BYTES 16384
/* More than any cache holds. */
#define CACHES_BYTES (64u << 20)

struct probe {
	size_t events, payload_bytes, channels, runs, most_waiting;
	unsigned arms; /* bits by enum arm */
	struct arena arena;
	struct uuid *uuids;
	struct made *made;
	struct plan plan;
	struct buf out;
	int64_t times_ns[ARMS][PROBE_RUNS_MAX];
	int64_t picks_ns[WAITING][PROBE_RUNS_MAX];
	size_t picked; /* events in a frame of pick */
};

/* ---- the events ---- */

#define KIND SLICE("note")

/* Sizes from half the mean to one and a half, in a fixed order. */
static size_t payload_bytes(const struct probe *probe, size_t index)
{
	const size_t mean = probe->payload_bytes;
	const size_t size = mean / 2 + (index * 7919) % (mean + 1);

	return size < 2 ? 2 : size;
}

static int64_t monotonic_ms(size_t index)
{
	return (int64_t)(index / 100);
}

static struct slice payload_of(const struct made *made)
{
	return slice_sub(made->text, made->header_len + sizeof(",\"payload\":") - 1,
			 made->text.len - 1);
}

/* Its fields, with @payload. */
static struct observer_event fields_of(const struct probe *probe, size_t index,
				       struct slice payload)
{
	return (struct observer_event){
		.seq = index + 1,
		.monotonic_ms = monotonic_ms(index),
		.timestamp = SLICE_INIT("2026-11-30T08:00:00.123Z"),
		.kind = KIND,
		.channel_id = uuid_slice(&probe->uuids[probe->made[index].channel]),
		.payload = payload,
	};
}

static void make_event(struct probe *probe, size_t index, char *payload)
{
	const size_t bytes = payload_bytes(probe, index);
	struct made *made = &probe->made[index];
	struct buf *out = &probe->out;
	struct observer_event fields;

	assert(probe->channels);
	made->channel = (uint32_t)(index * 31 % probe->channels);
	memset(payload, ' ', bytes);
	payload[0] = '{';
	payload[bytes - 1] = '}';
	fields = fields_of(probe, index, (struct slice){payload, bytes});
	buf_clear(out);
	(void)observer_event_write_header(out, &fields);
	made->header_len = (uint32_t)out->len;
	buf_clear(out);
	(void)observer_event_write(out, &fields);
	made->text = arena_dup(&probe->arena, buf_slice(out));
}

static void make_events(struct probe *probe)
{
	char *payload = mem_alloc(2 * probe->payload_bytes);

	probe->uuids = mem_array(probe->channels, sizeof(*probe->uuids));
	probe->made = mem_array(probe->events, sizeof(*probe->made));
	for (size_t i = 0; i < probe->channels; i++)
		(void)snprintf(probe->uuids[i].text, sizeof(probe->uuids[i].text),
			       "00000000-0000-4000-8000-%012u", (unsigned)i);
	for (size_t i = 0; i < probe->events; i++)
		make_event(probe, i, payload);
	free(payload);
}

/* A queue in which all events wait, put as the feed does. */
static struct queue *fill(const struct probe *probe)
{
	struct queue *queue = queue_create(SIZE_MAX);

	for (size_t i = 0; i < probe->events; i++) {
		const struct made *made = &probe->made[i];
		const struct queue_event event = {
			.seq = i + 1,
			.monotonic_ms = monotonic_ms(i),
			.channel = &probe->uuids[made->channel],
			.kind = KIND,
			.header = slice_sub(made->text, 0, made->header_len),
			.payload = payload_of(made),
		};

		queue_put(queue, &event);
	}
	return queue;
}

/* ---- the drain that is checked ---- */

static void check_frame(struct probe *probe, struct arena *arena, size_t *left,
			uint64_t *last_seq)
{
	struct plan *plan = &probe->plan;
	struct frame frame;
	struct err err;

	if (probe->out.len > FRAME_PACK_MAX)
		probe_fail("a frame is over the limit");
	if (!frame_parse(buf_slice(&probe->out), arena, &frame, &err))
		probe_fail(err.text);
	for (size_t i = 0; i < frame.event_count; i++) {
		const struct observer_event *event = &frame.events[i];
		const size_t index = (size_t)event->seq - 1;
		uint64_t *last;

		if (index >= probe->events || !*left ||
		    !slice_eq(event->text, probe->made[index].text))
			probe_fail("an event is not what was put");
		last = &last_seq[probe->made[index].channel];
		if (event->seq <= *last)
			probe_fail("a channel is out of order");
		*last = event->seq;
		plan->order[probe->events - (*left)--] = index;
	}
	plan->frame_events[plan->frames++] = frame.event_count;
	plan->bytes += probe->out.len;
}

static void checked_drain(struct probe *probe)
{
	struct queue *queue = fill(probe);
	const struct queue_ledger *ledger = queue_ledger(queue);
	uint64_t *last_seq = mem_array(probe->channels, sizeof(*last_seq));
	size_t left = probe->events;
	struct queue_frame info;
	struct arena arena;

	arena_init(&arena, 65536);
	probe->plan.order = mem_array(left, sizeof(size_t));
	probe->plan.frame_events = mem_array(left, sizeof(size_t));
	for (buf_clear(&probe->out);
	     queue_pack(queue, FRAME_PACK_MAX, &probe->out, &info);
	     buf_clear(&probe->out)) {
		check_frame(probe, &arena, &left, last_seq);
		queue_published(queue, &info);
		arena_reset(&arena);
	}
	if (left)
		probe_fail("an event is missing");
	if (ledger->waiting || ledger->in_flight || ledger->dropped ||
	    ledger->published != probe->events || queue_events(queue) ||
	    queue_bytes(queue))
		probe_fail("the accounting is not empty");
	free(last_seq);
	arena_finish(&arena);
	queue_destroy(queue);
}

/* ---- the arms ---- */

static void must_match(const struct probe *probe, size_t frames, uint64_t bytes)
{
	if (frames != probe->plan.frames || bytes != probe->plan.bytes)
		probe_fail("a run made other frames than the checked one");
}

static int64_t run_cached(struct probe *probe)
{
	struct queue *queue = fill(probe);
	struct queue_frame info;
	size_t frames = 0;
	uint64_t bytes = 0;
	int64_t start, end;

	buf_clear(&probe->out);
	start = probe_clock_ns();
	while (queue_pack(queue, FRAME_PACK_MAX, &probe->out, &info)) {
		queue_published(queue, &info);
		frames++;
		bytes += probe->out.len;
		buf_clear(&probe->out);
	}
	end = probe_clock_ns();
	must_match(probe, frames, bytes);
	queue_destroy(queue);
	return end - start;
}

static int64_t run_copy(struct probe *probe)
{
	const struct plan *plan = &probe->plan;
	const size_t *next = plan->order;
	uint64_t bytes = 0;
	int64_t start, end;

	start = probe_clock_ns();
	for (size_t i = 0; i < plan->frames; i++) {
		size_t len = 0;

		for (size_t j = 0; j < plan->frame_events[i]; j++) {
			const struct slice text = probe->made[next[j]].text;

			memcpy(probe->out.ptr + len, text.ptr, text.len);
			len += text.len;
		}
		next += plan->frame_events[i];
		bytes += len;
		__asm__ volatile("" : : "r"(probe->out.ptr) : "memory");
	}
	end = probe_clock_ns();
	if (!bytes || bytes > plan->bytes)
		probe_fail("other bytes were copied");
	return end - start;
}

/* So many waiting in one channel, each written when it is put. */
static struct queue *fill_waiting(struct probe *probe, size_t count)
{
	struct queue *queue = queue_create(SIZE_MAX);
	struct buf *out = &probe->out;

	for (size_t i = 0; i < count; i++) {
		const struct observer_event fields = {
			.seq = i + 1,
			.monotonic_ms = monotonic_ms(i),
			.timestamp = SLICE_INIT("2026-11-30T08:00:00.123Z"),
			.kind = KIND,
			.channel_id = uuid_slice(&probe->uuids[0]),
		};
		struct queue_event event = {
			.seq = i + 1,
			.monotonic_ms = monotonic_ms(i),
			.channel = &probe->uuids[0],
			.kind = KIND,
			.payload = SLICE("{}"),
		};

		buf_clear(out);
		(void)observer_event_write_header(out, &fields);
		event.header = buf_slice(out);
		queue_put(queue, &event);
	}
	return queue;
}

static void empty_caches(void)
{
	char *bytes = mem_alloc(CACHES_BYTES);

	memset(bytes, 1, CACHES_BYTES);
	__asm__ volatile("" : : "r"(bytes) : "memory");
	free(bytes);
}

/* One frame while @count wait. All have the same first events, so the same are picked. */
static int64_t run_pick(struct probe *probe, size_t count)
{
	struct queue *queue = fill_waiting(probe, count);
	struct queue_frame info;
	int64_t ns;

	buf_clear(&probe->out);
	empty_caches();
	ns = probe_clock_ns();
	(void)queue_pack(queue, PICK_BYTES, &probe->out, &info);
	ns = probe_clock_ns() - ns;
	if (queue_events(queue) != count - info.sources || probe->out.len > PICK_BYTES)
		probe_fail("not what was asked for was picked");
	if (probe->picked && probe->picked != info.sources)
		probe_fail("another number was picked than before");
	probe->picked = info.sources;
	queue_destroy(queue);
	return ns;
}

static void write_event(struct probe *probe, size_t index)
{
	const struct observer_event fields =
		fields_of(probe, index, payload_of(&probe->made[index]));

	(void)observer_event_write(&probe->out, &fields);
}

/* The whole batch of the events at @order, written anew. */
static void write_batch(struct probe *probe, const size_t *order, size_t count)
{
	struct observer_event header = fields_of(probe, order[count - 1], SLICE_EMPTY);
	struct buf *out = &probe->out;

	buf_clear(out);
	if (count == 1) {
		write_event(probe, order[0]);
		return;
	}
	header.kind = SLICE("batch");
	(void)observer_event_write_header(out, &header);
	(void)buf_lit(out, ",\"payload\":{\"events\":[");
	for (size_t i = 0; i < count; i++) {
		if (i)
			(void)buf_lit(out, ",");
		write_event(probe, order[i]);
	}
	(void)buf_lit(out, "]}}");
}

static int64_t run_reserialize(struct probe *probe)
{
	const size_t *order = probe->plan.order;
	size_t left = probe->events, frame = 0;
	uint64_t bytes = 0;
	const int64_t start = probe_clock_ns();

	while (left) {
		const size_t most = probe->plan.frame_events[frame++];
		size_t count = 1, len;

		write_batch(probe, order, 1);
		len = probe->out.len;
		/* Which channel an event is of is not what this arm is about: at the end
		 * of a frame it asks for one event more and no further. */
		while (count < left && count <= most) {
			write_batch(probe, order, count + 1);
			if (probe->out.len > FRAME_PACK_MAX || count == most)
				break;
			len = probe->out.len;
			count++;
		}
		order += count;
		left -= count;
		bytes += len;
	}
	must_match(probe, frame, bytes);
	return probe_clock_ns() - start;
}

static int64_t run_arm(struct probe *probe, enum arm arm)
{
	switch (arm) {
	case RESERIALIZE:
		return run_reserialize(probe);
	case CACHED:
		return run_cached(probe);
	case COPY:
		return run_copy(probe);
	case PICK: /* after the others, by what waits */
	case ARMS:
		break;
	}
	return 0;
}

static void run(struct probe *probe)
{
	for (size_t round = 0; round < probe->runs; round++)
		for (size_t turn = 0; turn < PICK; turn++) {
			const enum arm arm = (enum arm)probe_turn(round, turn, PICK);

			if (probe->arms & 1u << arm)
				probe->times_ns[arm][round] = run_arm(probe, arm);
		}
}

static void run_picks(struct probe *probe)
{
	for (size_t round = 0; round < probe->runs; round++)
		for (size_t turn = 0; turn < WAITING; turn++) {
			const size_t at = probe_turn(round, turn, WAITING);

			if (waiting[at] <= probe->most_waiting)
				probe->picks_ns[at][round] = run_pick(probe, waiting[at]);
		}
}

/* ---- figures ---- */

static double median(struct probe *probe, enum arm arm)
{
	return (double)probe_quantile(probe->times_ns[arm], probe->runs, 50);
}

static void print_arms(struct probe *probe)
{
	for (enum arm arm = 0; arm < PICK; arm++)
		if (probe->arms & 1u << arm)
			probe_print(arm_names[arm], probe->times_ns[arm], probe->runs,
				    "ns",
				    ",\"events\":%zu,\"channels\":%zu,"
				    "\"frames\":%zu,\"bytes\":%" PRIu64,
				    probe->events, probe->channels, probe->plan.frames,
				    probe->plan.bytes);
}

/* Of each a line, and what one picked event costs of one while the fewest wait. */
static void print_picks(struct probe *probe)
{
	double least = 0;

	for (size_t i = 0; i < WAITING; i++) {
		double ns;

		if (waiting[i] > probe->most_waiting)
			continue;
		ns = (double)probe_quantile(probe->picks_ns[i], probe->runs, 50);
		if (i == 0)
			least = ns;
		probe_print(arm_names[PICK], probe->picks_ns[i], probe->runs, "ns",
			    ",\"waiting\":%zu,\"picked\":%zu,\"ns_per_picked\":%.1f,"
			    "\"to_100\":%.2f",
			    waiting[i], probe->picked, ns / (double)probe->picked,
			    ns / least);
	}
}

static void print_ratios(struct probe *probe)
{
	double cached;
	char more[160] = "";
	int len = 0;

	if (!(probe->arms & 1u << CACHED))
		return;
	cached = median(probe, CACHED);
	if (probe->arms & 1u << COPY)
		len = snprintf(more, sizeof(more), ",\"cached_to_copy\":%.2f",
			       cached / median(probe, COPY));
	if (probe->arms & 1u << RESERIALIZE)
		(void)snprintf(more + len, sizeof(more) - (size_t)len,
			       ",\"reserialize_to_cached\":%.1f",
			       median(probe, RESERIALIZE) / cached);
	probe_note("ratios",
		   ",\"events\":%zu,\"channels\":%zu%s,\"cached_ns_per_event\":%.1f",
		   probe->events, probe->channels, more, cached / (double)probe->events);
}

int main(void)
{
	static struct probe probe;

	probe.events = probe_setting("PERCH_PROBE_EVENTS", 10000, 1, 10000000);
	probe.payload_bytes = probe_setting("PERCH_PROBE_BYTES", 2, 2, 40000);
	probe.channels = probe_setting("PERCH_PROBE_CHANNELS", 1, 1, 100000);
	probe.most_waiting = probe_setting("PERCH_PROBE_WAITING", 1000000, 100, 1000000);
	probe.runs = probe_setting("PERCH_PROBE_RUNS", 5, 1, PROBE_RUNS_MAX);
	probe.arms = probe_choice("PERCH_PROBE_ARMS", arm_names, ARMS);
	arena_init(&probe.arena, 1 << 20);
	buf_init(&probe.out, 2 * FRAME_PLAINTEXT_MAX);
	(void)buf_reserve(&probe.out, 2 * FRAME_PLAINTEXT_MAX);
	make_events(&probe);
	checked_drain(&probe);
	run(&probe);
	print_arms(&probe);
	print_ratios(&probe);
	if (probe.arms & 1u << PICK) {
		run_picks(&probe);
		print_picks(&probe);
	}
	arena_finish(&probe.arena);
	buf_finish(&probe.out);
	free(probe.plan.order);
	free(probe.plan.frame_events);
	free(probe.uuids);
	free(probe.made);
	return EXIT_SUCCESS;
}
