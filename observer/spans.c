#include "observer/spans.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/buf.h"
#include "wire/base/mem.h"
#include "wire/nostr/crypto.h"

/* A run holds at most so many spans: what is beyond is not told; our choice. */
#define RUN_SPANS_MAX 100000
#define RUN_TEXT_MAX (32u << 20)
#define OTHER_NAME "other"
/* Of a lane's strip; a run has two for each of its spans at most. */
#define PIECE_BYTES \
	(sizeof(int64_t) + 1 + (sizeof(struct lane_sums) - 1) / SPANS_SUMS_EVERY + 1)

void spans_destroy(struct spans *spans)
{
	if (!spans)
		return;
	for (size_t i = 0; i < spans->lane_count; i++) {
		struct span_lane *lane = spans->lanes[i];

		for (size_t k = 0; k < lane->count; k++)
			free(lane->runs[k].run);
		free(lane->store);
		free(lane->strip_t);
		free(lane->strip_time);
		free(lane->strip_sums);
		map_finish(&lane->tags);
		free(lane->id);
		free(lane);
	}
	for (size_t i = 0; i < spans->name_count; i++)
		free(spans->names[i].text);
	free(spans->lanes);
	free(spans->names);
	map_finish(&spans->by_lane);
	map_finish(&spans->by_name);
	free(spans);
}

/* ---- names and lanes ---- */

uint32_t spans_name(struct spans *spans, enum row_time time, bool is_command,
		    struct slice text)
{
	struct buf key = {.max = text.len + 2};
	const bool full = spans->name_count >= SPANS_NAMES_MAX;
	size_t index;

	(void)buf_append_byte(&key, (char)('0' + (int)time * 2 + is_command));
	(void)buf_append(&key, text);
	index = (size_t)(uintptr_t)map_get(&spans->by_name, buf_slice(&key));
	if (!index && full && !slice_eq(text, SLICE(OTHER_NAME))) {
		buf_finish(&key);
		return spans_name(spans, time, false, SLICE(OTHER_NAME));
	}
	if (!index) {
		if (spans->name_count == spans->name_room) {
			spans->name_room = spans->name_room ? spans->name_room * 2 : 256;
			spans->names = mem_grow(spans->names, spans->name_room,
						sizeof(*spans->names));
		}
		spans->names[spans->name_count] =
			(struct span_name){mem_dup(text), (uint8_t)time, is_command};
		index = ++spans->name_count;
		(void)map_put(&spans->by_name, buf_slice(&key), (void *)(uintptr_t)index);
	}
	buf_finish(&key);
	return (uint32_t)(index - 1);
}

struct spans *spans_create(size_t bytes_max)
{
	struct spans *spans = mem_alloc(sizeof(*spans));

	spans->bytes_max = bytes_max;
	map_init(&spans->by_lane);
	map_init(&spans->by_name);
	spans->from_ms = INT64_MIN;
	/* In the order of enum span_own_name. */
	(void)spans_name(spans, TIME_MODEL, false, SLICE("Model"));
	(void)spans_name(spans, TIME_YOU, false, SLICE("Waiting for you"));
	(void)spans_name(spans, TIME_IDLE, false, SLICE("Idle"));
	(void)spans_name(spans, TIME_NONE, false, SLICE("Turn"));
	return spans;
}

/* Index of the first lane of that agent; the next one's if it has none. */
static uint32_t first_of(const struct spans *spans, const uint8_t agent[KEY_BYTES])
{
	uint32_t i = 0;

	while (i < spans->lane_count &&
	       memcmp(spans->lanes[i]->agent, agent, KEY_BYTES) != 0)
		i++;
	return i;
}

struct span_lane *spans_lane(struct spans *spans, const uint8_t agent[KEY_BYTES],
			     struct slice channel)
{
	struct buf key = {.max = KEY_BYTES + channel.len + 1}, id;
	char hex[2 * KEY_BYTES];
	struct span_lane *lane;

	(void)buf_append(&key, (struct slice){(const char *)agent, KEY_BYTES});
	(void)buf_append(&key, channel);
	lane = map_get(&spans->by_lane, buf_slice(&key));
	if (!lane && spans->lane_count < SPANS_LANES_MAX) {
		if (spans->lane_count == spans->lane_room) {
			spans->lane_room = spans->lane_room ? spans->lane_room * 2 : 64;
			spans->lanes = mem_grow(spans->lanes, spans->lane_room,
						sizeof(struct span_lane *));
		}
		lane = mem_alloc(sizeof(*lane));
		memcpy(lane->agent, agent, KEY_BYTES);
		lane->first = first_of(spans, agent);
		hex_encode(agent, KEY_BYTES, hex);
		id = (struct buf){.max = sizeof(hex) + channel.len + 2};
		(void)buf_append(&id, (struct slice){hex, sizeof(hex)});
		(void)buf_append_byte(&id, '/');
		(void)buf_append(&id, channel);
		lane->id = mem_dup(buf_slice(&id));
		buf_finish(&id);
		lane->alive_ms = INT64_MIN;
		lane->open_ms = SPANS_OPEN;
		map_init(&lane->tags);
		spans->lanes[spans->lane_count++] = lane;
		(void)map_put(&spans->by_lane, buf_slice(&key), lane);
	}
	buf_finish(&key);
	return lane;
}

void span_lane_open(struct spans *spans, struct span_lane *lane, int64_t open_ms)
{
	if (lane->open_ms == open_ms)
		return;
	lane->open_ms = open_ms;
	lane->generation = ++spans->generation;
}

/* ---- making a run ---- */

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
	return value < low ? low : value > high ? high : value;
}

static size_t text_len(const struct run_in *in, size_t count)
{
	size_t len = 1 + in->tag.len + 1 + in->title.len + 1 + in->row.len + 1;

	for (size_t i = 0; i < count; i++)
		len += in->spans[i].row.len + 1;
	return len < RUN_TEXT_MAX ? len : RUN_TEXT_MAX;
}

static uint32_t add_text(struct run *run, size_t room, struct slice words)
{
	const uint32_t at = run->text_len;

	if (room - at <= words.len)
		return 0; /* the empty text that every run begins with */
	if (words.len)
		memcpy(run->text + at, words.ptr, words.len);
	run->text_len += (uint32_t)words.len + 1;
	return at;
}

/* The first line that is free at @t. */
static uint16_t take_line(int64_t ends[SPANS_DEPTH_MAX], int64_t t, int64_t end)
{
	uint16_t line = 0;

	while (line + 1 < SPANS_DEPTH_MAX && ends[line] > t)
		line++;
	if (end > ends[line])
		ends[line] = end;
	return line;
}

static void take_spans(struct run *run, const struct run_in *in, size_t room)
{
	int64_t top[SPANS_DEPTH_MAX], part[SPANS_DEPTH_MAX];
	int64_t t = run->t, until = INT64_MIN;

	for (size_t i = 0; i < SPANS_DEPTH_MAX; i++)
		top[i] = part[i] = INT64_MIN;
	for (uint32_t i = 0; i < run->count; i++) {
		const struct span_in *from = &in->spans[i];
		struct span *to = &run->spans[i];

		t = clamp(from->t, t, run->end);
		to->t = t;
		to->end = clamp(from->end, t, run->end);
		until = to->end > until ? to->end : until;
		to->until = until;
		to->name = from->name;
		to->row = add_text(run, room, from->row);
		to->parent = from->parent >= 0 && from->parent < (int64_t)i
				     ? (int32_t)from->parent
				     : -1;
		to->kind = (uint8_t)from->kind;
		to->flags = (uint8_t)from->flags;
		if (to->kind == SPAN_TOOL)
			to->depth = take_line(to->parent < 0 ? top : part, t, to->end);
		if (to->end == SPANS_OPEN)
			run->longest = SPANS_OPEN;
		else if (to->end - to->t > run->longest)
			run->longest = to->end - to->t;
	}
}

static struct run *run_create(const struct run_in *in)
{
	const size_t count = in->count < RUN_SPANS_MAX ? in->count : RUN_SPANS_MAX;
	const size_t room = text_len(in, count);
	const size_t bytes = sizeof(struct run) + count * sizeof(struct span) + room;
	struct run *run = mem_alloc(bytes);

	run->t = in->t;
	run->end = in->end < in->t ? in->t : in->end;
	run->is_turn = in->is_turn;
	run->flags = (uint8_t)in->flags;
	run->count = (uint32_t)count;
	run->bytes = bytes + (2 * count + 2) * PIECE_BYTES;
	run->text = (char *)&run->spans[count];
	run->text_len = 1; /* the empty text */
	run->tag = add_text(run, room, in->tag);
	run->title = add_text(run, room, in->title);
	run->row = add_text(run, room, in->row);
	take_spans(run, in, room);
	return run;
}

/* ---- the runs of a lane ---- */

/* The strip has to be joined again from the run before @from, whose end it may be. */
static void lane_changed(struct spans *spans, struct span_lane *lane, size_t from)
{
	from = from ? from - 1 : 0;
	lane->strip_runs = from < lane->strip_runs ? from : lane->strip_runs;
	lane->generation = ++spans->generation;
}

/* Index of the first run that starts behind @t. */
static size_t lane_behind(const struct span_lane *lane, int64_t t)
{
	size_t low = 0, high = lane->count;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (lane->runs[middle].t <= t)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static size_t lane_index(struct spans *spans, const struct span_lane *lane,
			 const struct run *run)
{
	size_t at = lane_behind(lane, run->t);

	while (lane->runs[--at].run != run)
		spans->steps++;
	return at;
}

static void free_run(struct spans *spans, struct span_lane *lane, struct run *run)
{
	(void)map_take(&lane->tags, slice_of(run->text + run->tag));
	spans->bytes -= run->bytes;
	free(run);
}

static void set_run(struct spans *spans, struct span_lane *lane, size_t at,
		    struct run *run)
{
	lane->runs[at] = (struct run_at){.t = run->t,
					 .end = run->end,
					 .longest = run->longest,
					 .run = run,
					 .count = run->count,
					 .is_turn = run->is_turn,
					 .flags = run->flags};
	spans->bytes += run->bytes;
	(void)map_put(&lane->tags, slice_of(run->text + run->tag), run);
}

/* The nearer end of the lane moves. */
static void take_place(struct spans *spans, struct span_lane *lane, size_t at)
{
	const size_t behind = --lane->count - at;

	if (at < behind) {
		memmove(lane->runs + 1, lane->runs, at * sizeof(*lane->runs));
		lane->runs++;
		spans->steps += at;
	} else {
		memmove(lane->runs + at, lane->runs + at + 1,
			behind * sizeof(*lane->runs));
		spans->steps += behind;
	}
}

/* Makes places before the first run or behind the last, as many as there are runs or a
 * part of that: each run that comes pays for a few moves of others. */
static void make_places(struct spans *spans, struct span_lane *lane, bool before)
{
	size_t head = (size_t)(lane->runs - lane->store);
	const size_t kept = head;

	if (lane->room && lane->room - lane->count >= lane->count / 2) {
		head = (lane->room - lane->count) / 2;
	} else {
		const size_t more = lane->room ? lane->room : 16;

		lane->room += more;
		lane->store = mem_grow(lane->store, lane->room, sizeof(*lane->store));
		head += before ? more : 0;
	}
	lane->runs = lane->store + head;
	memmove(lane->runs, lane->store + kept, lane->count * sizeof(*lane->runs));
	spans->steps += lane->count;
}

/* A place for one more at @at: the nearer end of the lane moves. */
static void make_place(struct spans *spans, struct span_lane *lane, size_t at)
{
	const size_t behind = lane->count - at;
	const bool before = at < behind;
	const size_t head = (size_t)(lane->runs - lane->store);

	if (before ? !head : head + lane->count == lane->room)
		make_places(spans, lane, before);
	lane->count++;
	if (before) {
		lane->runs--;
		memmove(lane->runs, lane->runs + 1, at * sizeof(*lane->runs));
		spans->steps += at;
	} else {
		memmove(lane->runs + at + 1, lane->runs + at,
			behind * sizeof(*lane->runs));
		spans->steps += behind;
	}
}

/* The lane whose first run is the oldest. */
static struct span_lane *oldest(const struct spans *spans)
{
	struct span_lane *found = NULL;

	for (size_t i = 0; i < spans->lane_count; i++) {
		struct span_lane *lane = spans->lanes[i];

		if (lane->count && (!found || lane->runs[0].t < found->runs[0].t))
			found = lane;
	}
	return found;
}

static void evict(struct spans *spans)
{
	while (spans->bytes > spans->bytes_max) {
		struct span_lane *lane = oldest(spans);
		size_t some;

		assert(lane); /* what has no runs has no bytes */
		/* Looking for the oldest costs all lanes: take a few at once. */
		some = lane->count / 16 + 1;
		for (size_t i = 0; i < some && lane->count; i++) {
			const int64_t end = lane->runs[0].end;

			if (end != SPANS_OPEN && end > spans->from_ms)
				spans->from_ms = end;
			free_run(spans, lane, lane->runs[0].run);
			take_place(spans, lane, 0);
		}
		lane_changed(spans, lane, 0);
	}
}

void spans_put(struct spans *spans, struct span_lane *lane, const struct run_in *in)
{
	struct run *run = run_create(in);
	struct run *old = map_get(&lane->tags, slice_of(run->text + run->tag));
	size_t at = lane_behind(lane, run->t), first = at;

	if (old) {
		first = lane_index(spans, lane, old);
		at -= first < at; /* without the old one */
		free_run(spans, lane, old);
	}
	if (old && at != first)
		take_place(spans, lane, first);
	if (!old || at != first)
		make_place(spans, lane, at);
	set_run(spans, lane, at, run);
	first = at < first ? at : first;
	lane_changed(spans, lane, first);
	evict(spans);
}

/* ---- questions ---- */

size_t span_lane_find(const struct span_lane *lane, int64_t t)
{
	size_t low = 0, high = lane->count;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (lane->runs[middle].until < t)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int64_t span_lane_end(const struct span_lane *lane, size_t at, int64_t now)
{
	const int64_t end = span_end(lane->runs[at].end, span_lane_now(lane, now));

	if (at + 1 < lane->count && lane->runs[at + 1].t < end)
		return lane->runs[at + 1].t;
	return end;
}

size_t run_find(const struct run *run, int64_t t)
{
	size_t low = 0, high = run->t < t ? run->count : 0;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (run->spans[middle].until < t)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* ---- the strip of a lane ---- */

void span_lane_before(const struct span_lane *lane, size_t at, uint64_t out[SPAN_SUMS])
{
	const size_t told = at / SPANS_SUMS_EVERY;

	memcpy(out, lane->strip_sums[told].of, SPAN_SUMS * sizeof(*out));
	for (size_t i = told * SPANS_SUMS_EVERY; i < at; i++)
		if (lane->strip_time[i] != TIME_IDLE)
			out[lane->strip_time[i] - TIME_MODEL] +=
				(uint64_t)(lane->strip_t[i + 1] - lane->strip_t[i]);
}

static void grow_strip(struct span_lane *lane)
{
	const size_t room = lane->strip_room ? lane->strip_room * 2 : 64;

	lane->strip_t = mem_grow(lane->strip_t, room, sizeof(int64_t));
	lane->strip_time = mem_grow(lane->strip_time, room, 1);
	lane->strip_sums = mem_grow(lane->strip_sums, room / SPANS_SUMS_EVERY,
				    sizeof(struct lane_sums));
	lane->strip_room = room;
}

/* From @t on it is @time; what was said of the time behind @t does not hold. */
static void add_piece(struct span_lane *lane, int64_t t, enum row_time time)
{
	size_t at = lane->strip_count;

	while (at && lane->strip_t[at - 1] >= t)
		at--;
	if (at == lane->strip_room)
		grow_strip(lane);
	lane->strip_t[at] = t;
	lane->strip_time[at] = (uint8_t)time;
	lane->strip_count = at + 1;
	if (at && at % SPANS_SUMS_EVERY == 0) {
		struct lane_sums *sums = &lane->strip_sums[at / SPANS_SUMS_EVERY];
		const uint8_t last = lane->strip_time[at - 1];

		span_lane_before(lane, at - 1, sums->of);
		if (last != TIME_IDLE)
			sums->of[last - TIME_MODEL] +=
				(uint64_t)(t - lane->strip_t[at - 1]);
	} else if (!at) {
		lane->strip_sums[0] = (struct lane_sums){{0}};
	}
}

/* What each moment of a run went into: the owner before tools before the rest. */
static void add_run(struct span_lane *lane, struct run *run)
{
	const enum row_time rest = run->is_turn ? TIME_MODEL : TIME_IDLE;
	int64_t t = run->t, next;
	int64_t you = t, tool = t; /* until when those are there that have begun */
	uint32_t i = 0;

	for (enum row_time last = TIME_NONE;; t = next) {
		enum row_time time = rest;

		for (; i < run->count && run->spans[i].t <= t; i++) {
			const struct span *span = &run->spans[i];
			int64_t *until = span->kind == SPAN_WAIT ? &you : &tool;

			*until = span->end > *until ? span->end : *until;
		}
		next = i < run->count ? run->spans[i].t : run->end;
		if (tool > t) {
			time = TIME_TOOL;
			next = tool < next ? tool : next;
		}
		if (you > t) {
			time = TIME_YOU;
			next = you < next ? you : next;
		}
		if (time != last)
			add_piece(lane, t, time);
		if (last == TIME_NONE)
			run->lane_strip = (uint32_t)lane->strip_count - 1;
		last = time;
		if (next >= run->end || next <= t)
			break;
	}
	if (run->end != SPANS_OPEN)
		add_piece(lane, run->end, TIME_IDLE);
}

/* Latest ends follow from those before. */
static void set_until(struct span_lane *lane, size_t at)
{
	struct run_at *run = &lane->runs[at];

	run->until = run->end;
	if (at && run[-1].until > run->until)
		run->until = run[-1].until;
}

static void lane_join(struct spans *spans, struct span_lane *lane)
{
	if (lane->strip_runs < lane->count && lane->strip_runs == 0)
		lane->strip_count = 0;
	else if (lane->strip_runs < lane->count)
		lane->strip_count = lane->runs[lane->strip_runs].run->lane_strip;
	for (; lane->strip_runs < lane->count; lane->strip_runs++) {
		set_until(lane, lane->strip_runs);
		add_run(lane, lane->runs[lane->strip_runs].run);
		spans->steps++;
	}
}

void spans_join(struct spans *spans)
{
	for (size_t i = 0; i < spans->lane_count; i++)
		lane_join(spans, spans->lanes[i]);
}

void span_lane_sums(const struct span_lane *lane, int64_t t, int64_t now,
		    uint64_t out[SPAN_SUMS])
{
	size_t low = 0, high = lane->strip_count;
	uint8_t time;

	memset(out, 0, SPAN_SUMS * sizeof(*out));
	if (!high || lane->strip_t[0] > t)
		return;
	while (high - low > 1) {
		const size_t middle = low + (high - low) / 2;

		if (lane->strip_t[middle] <= t)
			low = middle;
		else
			high = middle;
	}
	time = lane->strip_time[low];
	span_lane_before(lane, low, out);
	/* Only the last is open. */
	now = span_lane_now(lane, now);
	if (low + 1 == lane->strip_count && t > now)
		t = now;
	if (time != TIME_IDLE && t > lane->strip_t[low])
		out[time - TIME_MODEL] += (uint64_t)(t - lane->strip_t[low]);
}

int64_t span_lane_present(const struct span_lane *lane, int64_t from, int64_t to,
			  int64_t now)
{
	int64_t first, last;

	if (!lane->count)
		return 0;
	first = lane->runs[0].t;
	last = span_end(lane->runs[lane->count - 1].until, span_lane_now(lane, now));
	last = lane->alive_ms > last ? lane->alive_ms : last;
	first = first > from ? first : from;
	last = last < to ? last : to;
	return last > first ? last - first : 0;
}
