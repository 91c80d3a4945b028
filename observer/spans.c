#include "observer/spans.h"

#include <stdlib.h>
#include <string.h>

#include "wire/base/buf.h"
#include "wire/base/mem.h"
#include "wire/nostr/crypto.h"

/* A run holds at most so many spans: what is beyond is not told; our choice. */
#define RUN_SPANS_MAX 100000
#define RUN_TEXT_MAX (32u << 20)
#define OTHER_NAME "other"

static void run_destroy(struct run *run)
{
	if (!run)
		return;
	free(run->spans);
	free(run->strip);
	free(run->text);
	free(run);
}

void spans_destroy(struct spans *spans)
{
	if (!spans)
		return;
	for (size_t i = 0; i < spans->lane_count; i++) {
		struct span_lane *lane = spans->lanes[i];

		for (size_t k = 0; k < lane->count; k++)
			run_destroy(lane->runs[k].run);
		free(lane->runs);
		free(lane->strip_t);
		free(lane->strip);
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
		map_init(&lane->tags);
		spans->lanes[spans->lane_count++] = lane;
		(void)map_put(&spans->by_lane, buf_slice(&key), lane);
	}
	buf_finish(&key);
	return lane;
}

/* ---- making a run ---- */

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
	return value < low ? low : value > high ? high : value;
}

static uint32_t add_text(struct buf *text, struct slice words)
{
	const size_t at = text->len;

	if (!buf_append(text, words) || !buf_append_byte(text, '\0'))
		return 0; /* the empty text that every run begins with */
	return (uint32_t)at;
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

static void take_spans(struct run *run, const struct run_in *in, struct buf *text)
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
		to->row = add_text(text, from->row);
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

/* The length of what its parts cover of [from, to): they come by start. */
static int64_t covered(const struct run *run, size_t at, int64_t from, int64_t to,
		       int64_t now)
{
	int64_t total = 0, reached = from;

	for (size_t i = at + 1; i < run->count && run->spans[i].t < to; i++) {
		const struct span *part = &run->spans[i];
		const int64_t begin = part->t > reached ? part->t : reached;
		int64_t end = span_end(part->end, now);

		if (part->parent != (int32_t)at)
			continue;
		end = end < to ? end : to;
		if (end <= begin)
			continue;
		total += end - begin;
		reached = end;
	}
	return total;
}

static void cover_spans(struct run *run)
{
	bool *has_parts = mem_array(run->count + 1, sizeof(*has_parts));

	for (uint32_t i = 0; i < run->count; i++)
		if (run->spans[i].parent >= 0)
			has_parts[run->spans[i].parent] = true;
	for (uint32_t i = 0; i < run->count; i++) {
		struct span *span = &run->spans[i];

		if (has_parts[i] && span->end != SPANS_OPEN)
			span->covered = (uint32_t)clamp(
				covered(run, i, span->t, span->end, span->end), 0,
				UINT32_MAX);
	}
	free(has_parts);
}

/* Disjoint stretches of one kind, by start. */
struct stretches {
	struct {
		int64_t from, to;
	} * all;
	size_t count;
};

static void join(const struct run *run, enum span_kind kind, struct stretches *out)
{
	out->all = mem_array(run->count + 1, sizeof(*out->all));
	out->count = 0;
	for (uint32_t i = 0; i < run->count; i++) {
		const struct span *span = &run->spans[i];

		if (span->kind != kind || span->end == span->t)
			continue;
		if (out->count && span->t <= out->all[out->count - 1].to) {
			if (span->end > out->all[out->count - 1].to)
				out->all[out->count - 1].to = span->end;
			continue;
		}
		out->all[out->count].from = span->t;
		out->all[out->count++].to = span->end;
	}
}

static void strip_add(struct run *run, int64_t t, enum row_time time)
{
	uint32_t count = run->strip_count;

	if (count && run->strip[count - 1].time == time)
		return;
	if (count && run->strip[count - 1].t == t)
		count--;
	run->strip[count] = (struct strip){.t = t, .time = (uint8_t)time};
	run->strip_count = count + 1;
}

/* What each moment went into: the owner before tools before the rest. */
static void make_strip(struct run *run)
{
	const enum row_time rest = run->is_turn ? TIME_MODEL : TIME_IDLE;
	struct stretches you, tools;
	size_t y = 0, k = 0;
	int64_t t = run->t;

	join(run, SPAN_WAIT, &you);
	join(run, SPAN_TOOL, &tools);
	run->strip = mem_array(2 * (you.count + tools.count) + 2, sizeof(*run->strip));
	for (;;) {
		int64_t next = run->end;
		enum row_time time = rest;

		while (y < you.count && you.all[y].to <= t)
			y++;
		while (k < tools.count && tools.all[k].to <= t)
			k++;
		if (k < tools.count) {
			const bool on = tools.all[k].from <= t;
			const int64_t turn = on ? tools.all[k].to : tools.all[k].from;

			time = on ? TIME_TOOL : time;
			next = turn < next ? turn : next;
		}
		if (y < you.count) {
			const bool on = you.all[y].from <= t;
			const int64_t turn = on ? you.all[y].to : you.all[y].from;

			time = on ? TIME_YOU : time;
			next = turn < next ? turn : next;
		}
		strip_add(run, t, time);
		if (next >= run->end || next <= t)
			break;
		t = next;
	}
	free(you.all);
	free(tools.all);
}

static struct run *run_create(const struct run_in *in)
{
	struct run *run = mem_alloc(sizeof(*run));
	struct buf text = {.max = RUN_TEXT_MAX};

	run->t = in->t;
	run->end = in->end < in->t ? in->t : in->end;
	run->is_turn = in->is_turn;
	run->flags = (uint8_t)in->flags;
	run->count = (uint32_t)(in->count < RUN_SPANS_MAX ? in->count : RUN_SPANS_MAX);
	run->spans = mem_array(run->count + 1, sizeof(*run->spans));
	(void)buf_append_byte(&text, '\0');
	run->tag = add_text(&text, in->tag);
	run->title = add_text(&text, in->title);
	run->row = add_text(&text, in->row);
	take_spans(run, in, &text);
	cover_spans(run);
	make_strip(run);
	run->strip = mem_grow(run->strip, run->strip_count, sizeof(*run->strip));
	run->bytes = sizeof(*run) + (run->count + 1) * sizeof(*run->spans) +
		     run->strip_count * sizeof(*run->strip) + text.len;
	run->text = mem_grow(text.ptr, text.len, 1);
	return run;
}

/* ---- the runs of a lane ---- */

/* Latest ends from run @from on follow from those before; the strip has to be joined
 * again from the one before it, whose end it may be. */
static void lane_changed(struct spans *spans, struct span_lane *lane, size_t from)
{
	for (size_t i = from; i < lane->count; i++) {
		struct run_at *at = &lane->runs[i];

		at->until = at->end;
		if (i && lane->runs[i - 1].until > at->until)
			at->until = lane->runs[i - 1].until;
	}
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

static size_t lane_index(const struct span_lane *lane, const struct run *run)
{
	size_t at = lane_behind(lane, run->t);

	while (lane->runs[--at].run != run)
		;
	return at;
}

static void lane_take(struct spans *spans, struct span_lane *lane, size_t at)
{
	struct run *run = lane->runs[at].run;

	(void)map_take(&lane->tags, slice_of(run->text + run->tag));
	spans->bytes -= run->bytes;
	run_destroy(run);
	lane->count--;
	memmove(lane->runs + at, lane->runs + at + 1,
		(lane->count - at) * sizeof(*lane->runs));
}

static void lane_insert(struct spans *spans, struct span_lane *lane, size_t at,
			struct run *run)
{
	if (lane->count == lane->room) {
		lane->room = lane->room ? lane->room * 2 : 16;
		lane->runs = mem_grow(lane->runs, lane->room, sizeof(*lane->runs));
	}
	memmove(lane->runs + at + 1, lane->runs + at,
		(lane->count - at) * sizeof(*lane->runs));
	lane->runs[at] = (struct run_at){.t = run->t,
					 .end = run->end,
					 .longest = run->longest,
					 .run = run,
					 .is_turn = run->is_turn};
	lane->count++;
	spans->bytes += run->bytes;
	(void)map_put(&lane->tags, slice_of(run->text + run->tag), run);
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
		/* Looking for the oldest costs all lanes: take a few at once. */
		const size_t some = lane->count / 16 + 1;

		for (size_t i = 0; i < some && lane->count; i++) {
			const int64_t end = lane->runs[0].end;

			if (end != SPANS_OPEN && end > spans->from_ms)
				spans->from_ms = end;
			lane_take(spans, lane, 0);
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
		first = lane_index(lane, old);
		lane_take(spans, lane, first);
		at = lane_behind(lane, run->t);
		first = at < first ? at : first;
	}
	lane_insert(spans, lane, at, run);
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
	const int64_t end = span_end(lane->runs[at].end, now);

	if (at + 1 < lane->count && lane->runs[at + 1].t < end)
		return lane->runs[at + 1].t;
	return end;
}

size_t run_find(const struct run *run, int64_t t)
{
	size_t low = 0, high = run->count;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (run->spans[middle].until < t)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* ---- the strips of a lane, joined ---- */

/* From @t on it is @time; what was said of the time behind @t does not hold. */
static void join_piece(struct span_lane *lane, int64_t t, uint8_t time)
{
	struct lane_piece piece = {.time = time};
	size_t count = lane->strip_count;

	while (count && lane->strip_t[count - 1] > t)
		count--;
	if (count) {
		const struct lane_piece *last = &lane->strip[count - 1];

		memcpy(piece.sums, last->sums, sizeof(piece.sums));
		if (last->time != TIME_IDLE)
			piece.sums[last->time - TIME_MODEL] +=
				(uint64_t)(t - lane->strip_t[count - 1]);
		if (lane->strip_t[count - 1] == t)
			count--;
	}
	if (count == lane->strip_room) {
		lane->strip_room = lane->strip_room ? lane->strip_room * 2 : 64;
		lane->strip_t =
			mem_grow(lane->strip_t, lane->strip_room, sizeof(*lane->strip_t));
		lane->strip =
			mem_grow(lane->strip, lane->strip_room, sizeof(*lane->strip));
	}
	lane->strip_t[count] = t;
	lane->strip[count] = piece;
	lane->strip_count = count + 1;
}

static void lane_join(struct span_lane *lane)
{
	if (lane->strip_runs < lane->count && lane->strip_runs == 0)
		lane->strip_count = 0;
	else if (lane->strip_runs < lane->count)
		lane->strip_count = lane->runs[lane->strip_runs].run->lane_strip;
	for (; lane->strip_runs < lane->count; lane->strip_runs++) {
		struct run *run = lane->runs[lane->strip_runs].run;

		for (uint32_t i = 0; i < run->strip_count; i++) {
			join_piece(lane, run->strip[i].t, run->strip[i].time);
			if (!i)
				run->lane_strip = (uint32_t)lane->strip_count - 1;
		}
		if (run->end != SPANS_OPEN)
			join_piece(lane, run->end, TIME_IDLE);
	}
}

void spans_join(struct spans *spans)
{
	for (size_t i = 0; i < spans->lane_count; i++)
		lane_join(spans->lanes[i]);
}

void span_lane_sums(const struct span_lane *lane, int64_t t, int64_t now,
		    uint64_t out[SPAN_SUMS])
{
	size_t low = 0, high = lane->strip_count;
	const struct lane_piece *piece;

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
	piece = &lane->strip[low];
	memcpy(out, piece->sums, sizeof(piece->sums));
	/* Only the last is open. */
	if (low + 1 == lane->strip_count && t > now)
		t = now;
	if (piece->time != TIME_IDLE && t > lane->strip_t[low])
		out[piece->time - TIME_MODEL] += (uint64_t)(t - lane->strip_t[low]);
}

int64_t span_lane_present(const struct span_lane *lane, int64_t from, int64_t to,
			  int64_t now)
{
	int64_t first, last;

	if (!lane->count)
		return 0;
	first = lane->runs[0].t;
	last = span_end(lane->runs[lane->count - 1].until, now);
	last = lane->alive_ms > last ? lane->alive_ms : last;
	first = first > from ? first : from;
	last = last < to ? last : to;
	return last > first ? last - first : 0;
}

int64_t run_self(const struct run *run, size_t at, int64_t from, int64_t to, int64_t now)
{
	const struct span *span = &run->spans[at];
	const int64_t end = span_end(span->end, now);

	if (span->t >= from && span->end <= to && span->end != SPANS_OPEN)
		return span->end - span->t - span->covered;
	from = span->t > from ? span->t : from;
	to = end < to ? end : to;
	return to > from ? to - from - covered(run, at, from, to, now) : 0;
}
