#include "agent/queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/fifo.h"
#include "agent/gap.h"
#include "agent/merge.h"
#include "agent/urgent.h"
#include "wire/base/map.h"
#include "wire/base/mem.h"

/* Frames in a row that urgent events may pick while another channel waits. */
#define STREAK_MAX 2
/* Channels of which nothing is left but a gap, before two of them are told as one: some
 * 30 KiB. Our choice. */
#define GAPS_MAX 64
/* Channels with nothing waiting that are remembered beside as many as have something: so
 * that draining frees none and a steady flow makes none. Our choice. */
#define CHANNELS_IDLE_MAX 64
/* Blocks kept for events to come, once nothing else wants the memory: our choice. */
#define SPARE_KEPT_BYTES (512u << 10)

#define NEVER UINT64_MAX
#define NOWHERE SIZE_MAX
/* Children of a place in the heap: they share a cache line. */
#define HEAP_ARITY 4

struct queue_channel {
	struct uuid uuid;
	size_t heap_at; /* in the queue's heap; NOWHERE: nothing waits */
	/* They leave in this order. Urgent events that eviction spared went from rest,
	 * where all else is, to spared, so that the gap stands where the last of the
	 * evicted was. */
	struct fifo spared;
	struct gap gap;
	struct fifo rest;
	struct open_event open; /* in rest */
	size_t plain;           /* QUEUE_PLAIN records in rest */
};

/* What a channel costs besides its blocks: itself, its entry in map and heap. */
#define CHANNEL_BYTES \
	(sizeof(struct queue_channel) + sizeof(struct map_entry) + UUID_LEN + \
	 sizeof(struct waiting) + 2 * sizeof(void *))

/* A channel where something waits. */
struct waiting {
	uint64_t head; /* arrival of what leaves first */
	struct queue_channel *channel;
};

struct queue {
	size_t budget, held;
	struct fifo_blocks blocks;
	size_t limit;  /* of a frame that is deferred */
	size_t events; /* records */
	struct queue_ledger ledger;
	struct map channels;          /* uuid → struct queue_channel */
	struct queue_channel *recent; /* the one found last, or NULL */
	struct waiting *heap;         /* by head */
	size_t heap_count, heap_capacity;
	struct fifo channelless;
	uint64_t barrier; /* arrival of the newest channel-less event */
	struct urgent urgent;
	unsigned streak;
	/* The frame being packed. */
	struct pack_item items[PACK_ITEMS_MAX];
	struct buf gap_text;
	struct queue_deferral deferral; /* may NULL: none */
	struct buf deferred;            /* the frame being deferred */
};

struct queue *queue_create(size_t budget_bytes)
{
	struct queue *queue = mem_alloc(sizeof(*queue));

	queue->budget = budget_bytes;
	queue->blocks.pool.max_bytes = budget_bytes;
	queue->limit = FRAME_PACK_MAX;
	map_init(&queue->channels);
	fifo_init(&queue->channelless, &queue->blocks);
	buf_init(&queue->gap_text, GAP_TEXT_MAX);
	(void)buf_reserve(&queue->gap_text, GAP_TEXT_MAX);
	buf_init(&queue->deferred, FRAME_PACK_MAX);
	return queue;
}

void queue_set_limit(struct queue *queue, size_t limit)
{
	queue->limit = limit;
}

void queue_set_deferral(struct queue *queue, const struct queue_deferral *deferral)
{
	queue->deferral = *deferral;
}

static void channel_destroy(struct queue_channel *channel)
{
	fifo_finish(&channel->spared);
	fifo_finish(&channel->rest);
	free(channel);
}

void queue_destroy(struct queue *queue)
{
	struct map_entry *entry = NULL;

	if (!queue)
		return;
	while ((entry = map_next(&queue->channels, entry)))
		channel_destroy(entry->value);
	map_finish(&queue->channels);
	fifo_finish(&queue->channelless);
	pool_finish(&queue->blocks.pool);
	buf_finish(&queue->gap_text);
	buf_wipe(&queue->deferred);
	free(queue->heap);
	free(queue);
}

/* ---- the heap of channels by the arrival of their heads ---- */

static void heap_set(struct queue *queue, size_t at, struct waiting waiting)
{
	queue->heap[at] = waiting;
	waiting.channel->heap_at = at;
}

/* The place from @from on, of up to HEAP_ARITY, with the oldest head; NOWHERE: none. */
static size_t heap_least(const struct queue *queue, size_t from)
{
	size_t least = from;

	if (from >= queue->heap_count)
		return NOWHERE;
	for (size_t i = 1; i < HEAP_ARITY && from + i < queue->heap_count; i++)
		if (queue->heap[from + i].head < queue->heap[least].head)
			least = from + i;
	return least;
}

/* Lets what belongs to the free place @at rise or sink to where it belongs. */
static void heap_place(struct queue *queue, size_t at, struct waiting waiting)
{
	const struct waiting *heap = queue->heap;
	size_t next;

	while (at && waiting.head < heap[next = (at - 1) / HEAP_ARITY].head) {
		heap_set(queue, at, heap[next]);
		at = next;
	}
	while ((next = heap_least(queue, at * HEAP_ARITY + 1)) != NOWHERE &&
	       heap[next].head < waiting.head) {
		heap_set(queue, at, heap[next]);
		at = next;
	}
	heap_set(queue, at, waiting);
}

static void heap_remove(struct queue *queue, struct queue_channel *channel)
{
	const size_t at = channel->heap_at;
	const struct waiting last = queue->heap[--queue->heap_count];

	channel->heap_at = NOWHERE;
	if (last.channel != channel)
		heap_place(queue, at, last);
}

static void heap_insert(struct queue *queue, struct waiting waiting)
{
	if (queue->heap_count == queue->heap_capacity) {
		queue->heap_capacity =
			queue->heap_capacity ? 2 * queue->heap_capacity : 16;
		queue->heap = mem_grow(queue->heap, queue->heap_capacity,
				       sizeof(struct waiting));
	}
	heap_place(queue, queue->heap_count++, waiting);
}

/* The channel with the oldest head, other than @except (may be NULL), and that head;
 * NULL: there is none. */
static const struct waiting *heap_oldest(const struct queue *queue,
					 const struct queue_channel *except)
{
	size_t at = 0;

	if (queue->heap_count && queue->heap[0].channel == except)
		at = heap_least(queue, 1);
	return at < queue->heap_count ? &queue->heap[at] : NULL;
}

/* ---- channels ---- */

static uint64_t arrival_of(const struct fifo *fifo)
{
	const struct record *first = fifo_first(fifo);

	return first ? first->arrival : NEVER;
}

static uint64_t head_of(const struct queue_channel *channel)
{
	const uint64_t spared = arrival_of(&channel->spared);

	if (spared != NEVER)
		return spared;
	return channel->gap.seq ? channel->gap.seq : arrival_of(&channel->rest);
}

static struct queue_channel *channel_create(struct queue *queue, const struct uuid *uuid)
{
	struct queue_channel *channel = mem_alloc(sizeof(*channel));

	channel->uuid = *uuid;
	channel->heap_at = NOWHERE;
	fifo_init(&channel->spared, &queue->blocks);
	fifo_init(&channel->rest, &queue->blocks);
	(void)map_put(&queue->channels, uuid_slice(uuid), channel);
	return channel;
}

static struct queue_channel *channel_find(struct queue *queue, const struct uuid *uuid)
{
	struct queue_channel *channel = queue->recent;

	if (channel && memcmp(channel->uuid.text, uuid->text, UUID_LEN) == 0)
		return channel;
	channel = map_get(&queue->channels, uuid_slice(uuid));
	if (!channel)
		channel = channel_create(queue, uuid);
	queue->recent = channel;
	return channel;
}

/* After its head may have changed: puts it in its place, or lets it rest when nothing is
 * left. */
static void channel_settle(struct queue *queue, struct queue_channel *channel)
{
	const struct waiting waiting = {head_of(channel), channel};
	const size_t at = channel->heap_at;

	if (waiting.head != NEVER) {
		if (at == NOWHERE)
			heap_insert(queue, waiting);
		else if (waiting.head != queue->heap[at].head)
			heap_place(queue, at, waiting);
		return;
	}
	if (at != NOWHERE)
		heap_remove(queue, channel);
	/* Its next events begin with small blocks again. */
	fifo_init(&channel->spared, &queue->blocks);
	fifo_init(&channel->rest, &queue->blocks);
}

/* ---- memory ---- */

/* Channels that are remembered and have nothing waiting. */
static size_t idle_channels(const struct queue *queue)
{
	return queue->channels.count - queue->heap_count;
}

static void forget_idle(struct queue *queue)
{
	struct map_entry *entry = NULL;

	queue->recent = NULL;
	while ((entry = map_next(&queue->channels, entry))) {
		struct queue_channel *channel = entry->value;

		if (channel->heap_at != NOWHERE)
			continue;
		(void)map_take(&queue->channels, uuid_slice(&channel->uuid));
		channel_destroy(channel);
	}
}

/* Gives back some of what is kept for later beyond what is worth keeping. Not when frames
 * leave: that is to cost nothing. */
static void tidy(struct queue *queue)
{
	if (idle_channels(queue) > CHANNELS_IDLE_MAX + queue->heap_count)
		forget_idle(queue);
	if (queue->blocks.pool.spare_bytes > SPARE_KEPT_BYTES)
		(void)pool_shrink(&queue->blocks.pool);
}

size_t queue_memory(const struct queue *queue)
{
	return queue_bytes(queue) + queue->blocks.pool.spare_bytes +
	       idle_channels(queue) * CHANNEL_BYTES;
}

/* Gives back one part of what is kept for later; false: nothing is. */
static bool drop_kept(struct queue *queue)
{
	if (pool_shrink(&queue->blocks.pool))
		return true;
	if (!idle_channels(queue))
		return false;
	forget_idle(queue);
	return true;
}

/* ---- letting go ---- */

/* The record leaves its fifo next. */
static void forget(struct queue *queue, struct record *record)
{
	urgent_remove(&queue->urgent, record);
	queue->events--;
}

/* The same for a record of the channel's rest. */
static void forget_rest(struct queue *queue, struct queue_channel *channel,
			struct record *record)
{
	forget(queue, record);
	if (record->urgency == QUEUE_PLAIN)
		channel->plain--;
	if (record == channel->open.record)
		channel->open.record = NULL;
}

static void pop_spared(struct queue *queue, struct queue_channel *channel)
{
	forget(queue, fifo_first(&channel->spared));
	fifo_pop(&channel->spared);
}

static void pop_rest(struct queue *queue, struct queue_channel *channel)
{
	forget_rest(queue, channel, fifo_first(&channel->rest));
	fifo_pop(&channel->rest);
}

/* Moves the first of rest behind the spared ones. */
static void spare(struct queue *queue, struct queue_channel *channel)
{
	const struct record *from = fifo_first(&channel->rest);

	urgent_moved(&queue->urgent, fifo_push_copy(&channel->spared, from));
	if (from->urgency == QUEUE_PLAIN)
		channel->plain--;
	if (from == channel->open.record)
		channel->open.record = NULL;
	fifo_pop(&channel->rest);
}

/* ---- gaps ---- */

/* Adds to the channel's gap. What is older than the gap's new place leaves before it. */
static void channel_add_gap(struct queue *queue, struct queue_channel *channel,
			    const struct gap *more)
{
	const struct record *first;

	gap_add(&channel->gap, more);
	while ((first = fifo_first(&channel->rest)) &&
	       record_seq(first) < channel->gap.seq)
		spare(queue, channel);
}

/* ---- gathering a frame ---- */

/* A frame being gathered from what waits. */
struct gather {
	struct queue *queue;
	struct queue_frame *frame;
	size_t limit, count, bytes;
};

static bool gather_item(struct gather *gather, const struct pack_item *item)
{
	const size_t bytes = gather->bytes + item->text.len;

	/* A first one may be from before the limit was lowered. */
	if (gather->count == PACK_ITEMS_MAX ||
	    (gather->count && pack_bytes(item, gather->count + 1, bytes) > gather->limit))
		return false;
	gather->queue->items[gather->count++] = *item;
	gather->bytes = bytes;
	return true;
}

/* What is to be reported should the frame with these @sources, up to @last, be lost. */
static void note_loss(struct queue_frame *frame, int64_t first_ms,
		      const struct record *last, uint64_t sources)
{
	if (!frame->sources)
		frame->loss.first_ms = first_ms;
	frame->sources += sources;
	frame->loss.seq = record_seq(last);
	frame->loss.unix_ms = last->unix_ms;
	frame->loss.monotonic_ms = last->monotonic_ms;
	frame->loss.slot = last->slot;
	frame->loss.counts[GAP_PUBLISH_FAILURE] = frame->sources;
}

/* ---- deferring ---- */

static bool can_defer(const struct queue *queue)
{
	return queue->deferral.may && queue->deferral.may(queue->deferral.ctx);
}

/* Hands over the frame that was gathered and packed. */
static void defer_packed(struct queue *queue, const struct queue_frame *frame)
{
	queue->ledger.waiting -= frame->sources;
	queue->ledger.deferred += frame->sources;
	queue->deferral.take(queue->deferral.ctx, buf_slice(&queue->deferred), frame);
	buf_clear(&queue->deferred);
}

/* Gathers the frame's worth of non-urgent events that is to go first. */
static void gather_plain(struct gather *gather, const struct queue_channel *channel)
{
	struct fifo_cursor cursor = fifo_start(&channel->rest);
	struct record *record;

	for (; (record = fifo_record(&cursor)); fifo_step(&cursor)) {
		const struct pack_item item = record_item(record);

		if (record->urgency != QUEUE_PLAIN)
			continue;
		if (!gather_item(gather, &item))
			break;
		note_loss(gather->frame, record->unix_ms, record, record->sources);
	}
}

/* ---- over the budget ---- */

/* Bytes of a frame that evicted events would have filled. */
struct worth {
	size_t count, bytes;
};

static bool worth_add(struct worth *worth, const struct record *record)
{
	const struct pack_item item = record_item(record);

	if (pack_bytes(&item, worth->count + 1, worth->bytes + record->len) >
		    FRAME_PACK_MAX &&
	    worth->count)
		return false;
	worth->count++;
	worth->bytes += record->len;
	return true;
}

static struct record *first_plain(const struct queue_channel *channel)
{
	struct fifo_cursor cursor = fifo_start(&channel->rest);
	struct record *record;

	if (!channel->plain)
		return NULL;
	while ((record = fifo_record(&cursor))->urgency != QUEUE_PLAIN)
		fifo_step(&cursor);
	return record;
}

static struct record *first_spared_or_rest(const struct queue_channel *channel)
{
	struct record *record = fifo_first(&channel->spared);

	return record ? record : fifo_first(&channel->rest);
}

/* The channel with the oldest of the records that @first_of names, or NULL. */
static struct queue_channel *find_oldest(
	const struct queue *queue,
	struct record *(*first_of)(const struct queue_channel *channel))
{
	struct queue_channel *found = NULL;
	uint64_t oldest = NEVER;

	for (size_t i = 0; i < queue->heap_count; i++) {
		struct queue_channel *channel = queue->heap[i].channel;
		const struct record *record = first_of(channel);

		if (record && record->arrival < oldest) {
			oldest = record->arrival;
			found = channel;
		}
	}
	return found;
}

static void count_dropped(struct queue *queue, struct queue_channel *channel,
			  const struct record *record)
{
	const struct gap gap = gap_of_record(record, GAP_QUEUE_EVICTION);

	gap_add(&channel->gap, &gap);
	queue->ledger.waiting -= record->sources;
	queue->ledger.dropped += record->sources;
}

/* Moves the first of rest, which is urgent, behind the last of @to. */
static void set_aside(struct queue *queue, struct queue_channel *channel, struct fifo *to)
{
	const struct record *from = fifo_first(&channel->rest);

	urgent_moved(&queue->urgent, fifo_push_copy(to, from));
	fifo_pop(&channel->rest);
}

/* Takes the first @count non-urgent ones out of rest; urgent ones stay where they are. */
static void take_plain(struct queue *queue, struct queue_channel *channel, size_t count)
{
	struct fifo aside;

	fifo_init(&aside, &queue->blocks);
	while (count) {
		if (fifo_first(&channel->rest)->urgency != QUEUE_PLAIN) {
			set_aside(queue, channel, &aside);
			continue;
		}
		pop_rest(queue, channel);
		count--;
	}
	fifo_prepend(&channel->rest, &aside);
}

/* Defers the channel's oldest frame's worth of non-urgent events; false: it cannot be. */
static bool defer_plain(struct queue *queue, struct queue_channel *channel)
{
	struct queue_frame frame = {.has_channel = true, .channel = channel->uuid};
	struct gather gather = {.queue = queue, .frame = &frame, .limit = queue->limit};

	if (!can_defer(queue))
		return false;
	gather_plain(&gather, channel);
	(void)pack_write(queue->items, gather.count, &queue->deferred);
	take_plain(queue, channel, gather.count);
	defer_packed(queue, &frame);
	channel_settle(queue, channel);
	return true;
}

/* Drops the oldest frame's worth of non-urgent events, or defers it. False if there are
 * none. */
static bool drop_plain(struct queue *queue)
{
	struct queue_channel *channel = find_oldest(queue, first_plain);
	struct worth worth = {0, 0};
	struct record *record;

	if (!channel)
		return false;
	if (defer_plain(queue, channel))
		return true;
	while ((record = first_plain(channel)) && worth_add(&worth, record)) {
		while (fifo_first(&channel->rest) != record)
			spare(queue, channel);
		count_dropped(queue, channel, record);
		pop_rest(queue, channel);
	}
	channel_settle(queue, channel);
	return true;
}

/* Drops the oldest frame's worth of what is left in the channels: urgent events, which
 * must not pin memory without bound either. */
static bool drop_urgent(struct queue *queue)
{
	struct queue_channel *channel = find_oldest(queue, first_spared_or_rest);
	struct worth worth = {0, 0};
	struct record *record;

	if (!channel)
		return false;
	while ((record = first_spared_or_rest(channel)) && worth_add(&worth, record)) {
		count_dropped(queue, channel, record);
		if (record == fifo_first(&channel->spared))
			pop_spared(queue, channel);
		else
			pop_rest(queue, channel);
	}
	channel_settle(queue, channel);
	return true;
}

static bool is_only_gap(const struct queue_channel *channel)
{
	return channel->gap.seq && !channel->spared.first && !channel->rest.first;
}

/* If more than @max channels hold nothing but a gap, the two oldest become one: a flood
 * of channels stays bounded, and leaves room for events. */
static bool fold_gaps(struct queue *queue, size_t max)
{
	struct waiting oldest = {NEVER, NULL}, next = {NEVER, NULL};
	size_t count = 0;

	for (size_t i = 0; i < queue->heap_count; i++) {
		const struct waiting waiting = queue->heap[i];

		if (!is_only_gap(waiting.channel))
			continue;
		count++;
		if (waiting.head < oldest.head) {
			next = oldest;
			oldest = waiting;
		} else if (waiting.head < next.head) {
			next = waiting;
		}
	}
	if (count <= max || !next.channel)
		return false;
	gap_add(&next.channel->gap, &oldest.channel->gap);
	next.channel->gap.folded = true;
	oldest.channel->gap = (struct gap){0};
	channel_settle(queue, oldest.channel);
	return true;
}

static void keep_budget(struct queue *queue)
{
	while (queue_memory(queue) > queue->budget)
		if (!drop_kept(queue) && !fold_gaps(queue, GAPS_MAX) &&
		    !drop_plain(queue) && !drop_urgent(queue) && !fold_gaps(queue, 1))
			return;
}

/* ---- coming in ---- */

static void put_channelless(struct queue *queue, const struct queue_event *event)
{
	struct open_event open;
	struct record *record = merge_push(&queue->channelless, event, &open);

	urgent_append(&queue->urgent, record, NULL);
	queue->barrier = event->seq;
	queue->events++;
}

static void put_channel(struct queue *queue, const struct queue_event *event)
{
	struct queue_channel *channel = channel_find(queue, event->channel);
	struct record *record = channel->open.record;

	/* Nothing overtakes a barrier: an event from before it takes no chunk from
	 * behind. */
	if (record && record->arrival > queue->barrier &&
	    merge_join(&channel->rest, &channel->open, event,
		       queue->limit < FRAME_MERGE_MAX ? queue->limit : FRAME_MERGE_MAX))
		return;
	record = merge_push(&channel->rest, event, &channel->open);
	if (event->urgency == QUEUE_PLAIN)
		channel->plain++;
	urgent_append(&queue->urgent, record, channel);
	queue->events++;
	if (channel->heap_at == NOWHERE)
		channel_settle(queue, channel);
}

void queue_put(struct queue *queue, const struct queue_event *event)
{
	queue->ledger.ingested++;
	queue->ledger.waiting++;
	if (event->channel)
		put_channel(queue, event);
	else
		put_channelless(queue, event);
	keep_budget(queue);
	tidy(queue);
}

void queue_pass(struct queue *queue, uint64_t sources)
{
	queue->ledger.ingested += sources;
	queue->ledger.in_flight += sources;
}

/* ---- selection ---- */

static uint64_t oldest_barrier(const struct queue *queue)
{
	return arrival_of(&queue->channelless);
}

/* Rule (2): whose events the frame takes. There is a channel whose head is before
 * @barrier. */
static struct queue_channel *choose(struct queue *queue, uint64_t barrier)
{
	struct record *urgent = urgent_first(&queue->urgent, barrier);
	struct queue_channel *channel;
	const struct waiting *other;

	if (!urgent) {
		queue->streak = 0;
		return queue->heap[0].channel;
	}
	channel = record_link(urgent)->channel;
	other = heap_oldest(queue, channel);
	if (other && other->head >= barrier)
		other = NULL;
	if (other && queue->streak >= STREAK_MAX) {
		queue->streak = 0;
		return other->channel;
	}
	if (other)
		queue->streak++;
	return channel;
}

/* Greedily, in order, up to the barrier; false if something had to stay. What is taken
 * is forgotten at once, while its record is at hand, and stays readable until the caller
 * cuts @fifo at @end. @rest_of: the channel whose rest it is, or NULL. */
static bool gather_fifo(struct gather *gather, const struct fifo *fifo,
			struct queue_channel *rest_of, uint64_t barrier,
			struct fifo_cursor *end)
{
	struct record *record, *last = NULL;
	int64_t first_ms = 0;
	uint64_t sources = 0;

	for (*end = fifo_start(fifo); (record = fifo_record(end)); fifo_step(end)) {
		const struct pack_item item = record_item(record);

		if (record->arrival > barrier || !gather_item(gather, &item))
			break;
		if (rest_of)
			forget_rest(gather->queue, rest_of, record);
		else
			forget(gather->queue, record);
		if (!last)
			first_ms = record->unix_ms;
		sources += record->sources;
		last = record;
	}
	if (last)
		note_loss(gather->frame, first_ms, last, sources);
	return !record;
}

static bool gather_gap(struct gather *gather, struct queue_channel *channel,
		       uint64_t barrier)
{
	struct pack_item item;

	if (!channel->gap.seq)
		return true;
	item = gap_write(&channel->gap, &channel->uuid, &gather->queue->gap_text);
	if (channel->gap.seq > barrier || !gather_item(gather, &item))
		return false;
	gather->frame->gap = channel->gap;
	return true;
}

static void pack_channel(struct gather *gather, struct queue_channel *channel,
			 uint64_t barrier, struct buf *out)
{
	struct fifo_cursor spared, rest = fifo_start(&channel->rest);

	gather->frame->has_channel = true;
	gather->frame->channel = channel->uuid;
	if (gather_fifo(gather, &channel->spared, NULL, barrier, &spared) &&
	    gather_gap(gather, channel, barrier))
		(void)gather_fifo(gather, &channel->rest, channel, barrier, &rest);
	assert(gather->count); /* an event that fits no frame is never put */
	(void)pack_write(gather->queue->items, gather->count, out);
	fifo_cut(&channel->spared, &spared);
	fifo_cut(&channel->rest, &rest);
	if (gather->frame->gap.seq)
		channel->gap = (struct gap){0};
	channel_settle(gather->queue, channel);
}

/* Rule (1): the channel-less events before every channel's head. */
static void pack_channelless(struct gather *gather, struct buf *out)
{
	struct queue *queue = gather->queue;
	const uint64_t end = queue->heap_count ? queue->heap[0].head : NEVER;
	struct fifo_cursor taken;

	(void)gather_fifo(gather, &queue->channelless, NULL, end, &taken);
	assert(gather->count);
	(void)pack_write(queue->items, gather->count, out);
	fifo_cut(&queue->channelless, &taken);
}

/* Bytes in a frame of what leaves its channel before the event of that @arrival. */
static size_t bytes_before(const struct queue_channel *channel, uint64_t arrival)
{
	const struct fifo *const fifos[] = {&channel->spared, &channel->rest};
	size_t bytes = channel->gap.seq && channel->gap.seq < arrival ? GAP_TEXT_MAX : 0;

	for (size_t i = 0; i < 2; i++) {
		struct fifo_cursor at = fifo_start(fifos[i]);
		const struct record *record;

		for (; (record = fifo_record(&at)) && record->arrival < arrival;
		     fifo_step(&at))
			bytes += record->len + 1;
	}
	return bytes;
}

/* "When an urgent event is picked, its predecessors beyond the last 65,340 bytes are
 * deferred, so it leaves in its channel's second frame at the latest." Each predecessor
 * is walked over once more than it leaves. */
static void defer_before_urgent(struct queue *queue, struct queue_channel *channel,
				uint64_t barrier, size_t limit)
{
	struct record *urgent = urgent_first(&queue->urgent, barrier);
	size_t bytes;
	uint64_t arrival;

	if (!urgent || record_link(urgent)->channel != channel || !queue->deferral.may)
		return;
	arrival = urgent->arrival;
	bytes = bytes_before(channel, arrival);
	while (bytes > limit && can_defer(queue)) {
		struct queue_frame frame = {0};
		struct gather gather = {.queue = queue, .frame = &frame, .limit = limit};

		pack_channel(&gather, channel, arrival - 1, &queue->deferred);
		bytes -= gather.bytes + gather.count;
		defer_packed(queue, &frame);
	}
}

bool queue_pack(struct queue *queue, size_t limit, struct buf *out,
		struct queue_frame *frame)
{
	struct gather gather = {.queue = queue, .frame = frame, .limit = limit};
	const uint64_t barrier = oldest_barrier(queue);

	if (queue_is_empty(queue))
		return false;
	*frame = (struct queue_frame){0};
	if (!queue->heap_count || barrier < queue->heap[0].head) {
		pack_channelless(&gather, out);
	} else {
		struct queue_channel *channel = choose(queue, barrier);

		defer_before_urgent(queue, channel, barrier, limit);
		pack_channel(&gather, channel, barrier, out);
	}
	queue->ledger.waiting -= frame->sources;
	queue->ledger.in_flight += frame->sources;
	if (queue_is_empty(queue))
		queue->streak = 0;
	return true;
}

/* ---- what became of it ---- */

void queue_published(struct queue *queue, const struct queue_frame *frame)
{
	queue->ledger.in_flight -= frame->sources;
	queue->ledger.published += frame->sources;
}

void queue_dropped(struct queue *queue, const struct queue_frame *frame)
{
	queue->ledger.in_flight -= frame->sources;
	queue->ledger.dropped += frame->sources;
}

static void report_lost(struct queue *queue, const struct queue_frame *frame,
			const struct uuid *fallback)
{
	struct queue_channel *channel;

	if (!frame->sources && !frame->gap.seq)
		return;
	channel = channel_find(queue, frame->has_channel ? &frame->channel : fallback);
	if (frame->gap.seq)
		channel_add_gap(queue, channel, &frame->gap);
	if (frame->sources)
		channel_add_gap(queue, channel, &frame->loss);
	channel_settle(queue, channel);
	keep_budget(queue);
}

void queue_lost(struct queue *queue, const struct queue_frame *frame,
		const struct uuid *fallback)
{
	queue_dropped(queue, frame);
	report_lost(queue, frame, fallback);
}

void queue_deferred_published(struct queue *queue, const struct queue_frame *frame)
{
	queue->ledger.deferred -= frame->sources;
	queue->ledger.published += frame->sources;
}

void queue_deferred_lost(struct queue *queue, const struct queue_frame *frame,
			 const struct uuid *fallback, enum gap_reason reason)
{
	struct queue_frame lost = *frame;

	memset(lost.loss.counts, 0, sizeof(lost.loss.counts));
	lost.loss.counts[reason] = frame->sources;
	queue->ledger.deferred -= frame->sources;
	queue->ledger.dropped += frame->sources;
	report_lost(queue, &lost, fallback);
}

void queue_defer(struct queue *queue, const struct queue_frame *frame)
{
	queue->ledger.in_flight -= frame->sources;
	queue->ledger.deferred += frame->sources;
}

void queue_hold(struct queue *queue, size_t bytes)
{
	queue->held += bytes;
	keep_budget(queue);
}

void queue_release(struct queue *queue, size_t bytes)
{
	queue->held -= bytes;
}

bool queue_is_empty(const struct queue *queue)
{
	return !queue->heap_count && !queue->channelless.first;
}

bool queue_is_urgent(const struct queue *queue)
{
	return urgent_first(&queue->urgent, oldest_barrier(queue)) != NULL;
}

size_t queue_bytes(const struct queue *queue)
{
	return queue->blocks.used_bytes + queue->heap_count * CHANNEL_BYTES + queue->held;
}

size_t queue_events(const struct queue *queue)
{
	return queue->events;
}

const struct queue_ledger *queue_ledger(const struct queue *queue)
{
	return &queue->ledger;
}
