/* Any order of what can happen to the queue: lines that merge or do not, urgent and
 * channel-less events, frames packed, published and lost, memory held. After every step
 * the budget holds and the ledger is true; every frame is one that a peer reads, of one
 * channel, within its limit, and seq never falls inside a channel. Each step is two bytes
 * of input: what, and how much. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "agent/acp_line.h"
#include "agent/feed.h"
#include "agent/queue.h"
#include "wire/base/arena.h"
#include "wire/frame/observer_event.h"

#define BUDGET (192u << 10)
#define CHANNELS 4
#define IN_FLIGHT_MAX 4

struct run {
	struct queue *queue;
	struct feed *feed;
	struct uuid channels[CHANNELS];
	uint64_t last_seq[CHANNELS];
	struct queue_frame flights[IN_FLIGHT_MAX];
	size_t flight_count;
	size_t held;
	size_t barriers; /* channel-less events that wait */
	int64_t ms;
	struct arena arena;
	struct buf line, frame;
};

static void check(const struct run *run)
{
	const struct queue_ledger *ledger = queue_ledger(run->queue);

	assert(ledger->ingested == ledger->published + ledger->deferred +
					   ledger->dropped + ledger->waiting +
					   ledger->in_flight);
	/* Channel-less events are never evicted. */
	assert(queue_memory(run->queue) <= BUDGET + run->barriers * (64u << 10));
}

static void line(struct run *run, size_t channel, const char *update, char fill,
		 size_t bytes)
{
	const struct feed_context context = {.channel = &run->channels[channel],
					     .slot = (int)channel};
	const struct feed_time now = {1796025600000 + run->ms, run->ms};
	struct acp_line scanned;
	char *room;

	buf_clear(&run->line);
	(void)buf_printf(&run->line,
			 "{\"method\":\"session/update\",\"params\":{\"update\":{"
			 "\"sessionUpdate\":\"%s\",\"content\":{\"type\":\"text\","
			 "\"text\":\"",
			 update);
	room = buf_extend(&run->line, bytes);
	memset(room, fill, bytes);
	(void)buf_lit(&run->line, "\"}}}}");
	acp_line_scan(buf_slice(&run->line), &scanned);
	(void)feed_line(run->feed, now, &context, FEED_READ, &scanned, run->line.len,
			SLICE_EMPTY, NULL);
}

static void permission(struct run *run, size_t channel)
{
	static const struct slice text =
		SLICE_INIT("{\"id\":1,\"method\":\"session/request_permission\","
			   "\"params\":{}}");
	const struct feed_context context = {.channel = &run->channels[channel]};
	const struct feed_time now = {1796025600000 + run->ms, run->ms};
	struct acp_line scanned;

	acp_line_scan(text, &scanned);
	(void)feed_line(run->feed, now, &context, FEED_READ, &scanned, text.len,
			SLICE_EMPTY, NULL);
}

static void emit(struct run *run, const struct uuid *channel, struct slice kind)
{
	const struct feed_context context = {.channel = channel, .slot = -1};
	const struct feed_time now = {1796025600000 + run->ms, run->ms};

	(void)feed_emit(run->feed, now, &context, kind, SLICE_EMPTY, SLICE("{}"));
}

static void check_events(struct run *run, const struct frame *frame,
			 const struct queue_frame *info)
{
	size_t channel = 0;

	while (info->has_channel && channel < CHANNELS &&
	       strcmp(info->channel.text, run->channels[channel].text) != 0)
		channel++;
	assert(channel < CHANNELS);
	for (size_t i = 0; i < frame->event_count; i++) {
		const struct observer_event *event = &frame->events[i];

		if (!info->has_channel) {
			assert(!event->channel_id.ptr);
			run->barriers--;
			continue;
		}
		assert(slice_eq(event->channel_id, uuid_slice(&info->channel)));
		/* A gap stands for an event that is gone: its seq may have been seen in a
		 * frame that was lost. */
		if (slice_eq(event->kind, SLICE("observer_telemetry_gap")))
			continue;
		assert(event->seq > run->last_seq[channel]);
		run->last_seq[channel] = event->seq;
	}
}

static void pack(struct run *run, size_t limit)
{
	struct queue_frame info;
	struct frame frame;

	buf_clear(&run->frame);
	if (!queue_pack(run->queue, limit, &run->frame, &info)) {
		assert(queue_is_empty(run->queue));
		return;
	}
	assert(run->frame.len <= limit);
	arena_reset(&run->arena);
	assert(frame_parse(buf_slice(&run->frame), &run->arena, &frame, NULL));
	assert(frame.batch == (frame.event_count > 1));
	check_events(run, &frame, &info);
	run->flights[run->flight_count++] = info;
}

static void settle(struct run *run, size_t at, bool published)
{
	const struct queue_frame info = run->flights[at];

	run->flights[at] = run->flights[--run->flight_count];
	if (published)
		queue_published(run->queue, &info);
	else
		queue_lost(run->queue, &info, &run->channels[0]);
}

static void step(struct run *run, uint8_t what, uint8_t much)
{
	const size_t channel = what >> 6;

	run->ms += much;
	switch (what & 15) {
	case 0:
	case 1:
	case 2:
		line(run, channel, "agent_message_chunk", 'a', (size_t)much * 4);
		break;
	case 3:
		line(run, channel, "agent_thought_chunk", '/', (size_t)much * 100);
		break;
	case 4:
		line(run, channel, "tool_call_update", 'b', (size_t)much * 40);
		break;
	case 5:
		line(run, channel, "tool_call_update", 'c', (size_t)much * 300);
		break;
	case 6:
		permission(run, channel);
		break;
	case 7:
		emit(run, &run->channels[channel], SLICE("turn_completed"));
		break;
	case 8:
		if (much < 8) { /* there are few of them in a harness's life */
			emit(run, NULL, SLICE("agent_panic"));
			run->barriers++;
		}
		break;
	case 9:
	case 10:
		if (run->flight_count < IN_FLIGHT_MAX)
			pack(run, FRAME_PACK_MAX);
		break;
	case 11:
	case 12:
		if (run->flight_count)
			settle(run, much % run->flight_count, (what & 15) == 11);
		break;
	case 13:
		queue_release(run->queue, run->held);
		run->held = (size_t)much * 512;
		queue_hold(run->queue, run->held);
		break;
	default:
		break;
	}
	check(run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run run = {.queue = queue_create(BUDGET)};
	const struct queue_ledger *ledger = queue_ledger(run.queue);

	run.feed = feed_create(run.queue);
	arena_init(&run.arena, 4096);
	buf_init(&run.line, 1 << 20);
	buf_init(&run.frame, FRAME_PACK_MAX);
	for (int i = 0; i < CHANNELS; i++)
		(void)snprintf(run.channels[i].text, sizeof(run.channels[i].text),
			       "00000000-0000-4000-8000-%012d", i);
	if (size > 1024)
		size = 1024;
	for (size_t i = 0; i + 2 <= size; i += 2)
		step(&run, data[i], data[i + 1]);
	while (run.flight_count || !queue_is_empty(run.queue)) {
		if (run.flight_count)
			settle(&run, 0, true);
		else
			pack(&run, FRAME_PACK_MAX);
		check(&run);
	}
	assert(!ledger->waiting && !ledger->in_flight);
	assert(!queue_events(run.queue) && queue_bytes(run.queue) == run.held);
	buf_finish(&run.line);
	buf_finish(&run.frame);
	arena_finish(&run.arena);
	feed_destroy(run.feed);
	queue_destroy(run.queue);
	return 0;
}
