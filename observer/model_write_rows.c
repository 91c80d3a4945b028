#include "observer/model_write.h"

#include <stdlib.h>

#include "wire/base/mem.h"

#define ROWS_GATHERED 200000 /* rows of one lane that are looked at; our choice */

struct found_row {
	const struct segment *segment;
	struct row *row;
};

static int found_compare(const void *left, const void *right)
{
	const struct found_row *a = left, *b = right;
	const int order = pos_compare(&a->row->pos, &b->row->pos);

	if (order)
		return order;
	return slice_compare(buf_slice(&a->row->id), buf_slice(&b->row->id));
}

void write_row(const struct segment *segment, const struct row *row, struct buf *out)
{
	open_object(out);
	buf_truncate(out, out->len - 1);
	row_write(row, slice_of(segment->agent->hex),
		  segment->has_turn ? buf_slice(&segment->turn) : SLICE_EMPTY, out);
}

/* All rows of a lane in memory, unordered; freed by the caller. */
static struct found_row *gather(const struct agent *agent, struct slice channel,
				const struct pos *before, size_t *count_out)
{
	const struct map_entry *entry = NULL;
	struct found_row *found = NULL;
	size_t count = 0, room = 0;

	while ((entry = map_next(&agent->segments, entry)) != NULL) {
		const struct segment *segment = entry->value;

		if (segment->lane &&
		    !slice_eq(buf_slice(&segment->lane->channel), channel))
			continue;
		for (size_t i = 0; i < segment->fold->row_count; i++) {
			struct row *row = segment->fold->rows[i];

			if (!slice_eq(buf_slice(&row->channel), channel) ||
			    (before && pos_compare(&row->pos, before) >= 0) ||
			    count == ROWS_GATHERED)
				continue;
			if (count == room) {
				room = room ? room * 2 : 256;
				found = mem_grow(found, room, sizeof(*found));
			}
			found[count++] = (struct found_row){segment, row};
		}
	}
	*count_out = count;
	return found;
}

const char *gap_state_name(enum gap_state state)
{
	static const char *const names[] = {"missing", "asked", "coming", "gone"};

	return names[state];
}

/* Holes in the numbering belong to no lane more than to another: each shows them, before
 * the first of its rows that came later. */
void gap_id(const struct gap *gap, struct buf *out)
{
	(void)buf_printf(out, "hole:%s:%llu", gap->pos.epoch,
			 (unsigned long long)gap->range.first);
}

const char *model_gone_words(enum gone_why why)
{
	static const char *const words[GONE_WHYS] = {
		[GONE_UNKNOWN] = "the agent has them no more",
		[GONE_RETENTION] = "the agent's journal let them go, too old or too many",
		[GONE_DISK] = "the agent's disk did not take them, or lost them",
		[GONE_KILLED] = "the agent's harness ended before they were on disk",
		[GONE_NO_JOURNAL] = "that agent keeps no journal",
		[GONE_SHED] = "there were too many holes to keep count of",
		[GONE_REFUSED] = "the relay does not take them",
	};

	return words[why];
}

/* "3 frames are missing: asked for" */
static void write_gap_words(const struct agent *agent, const struct gap *gap,
			    struct buf *out)
{
	const uint64_t frames = gap->range.last - gap->range.first + 1;
	const char *words = "";

	switch (gap->state) {
	case GAP_MISSING:
		words = agent->online ? "they are asked for in a moment"
				      : "they are asked for when the agent is back";
		break;
	case GAP_ASKED:
		words = "the agent was asked for them";
		break;
	case GAP_COMING:
		words = "they are on their way";
		break;
	case GAP_GONE:
		words = model_gone_words(gap->why);
		break;
	}
	(void)buf_printf(out, ",\"text\":\"%llu frame%s %s %s: %s\"",
			 (unsigned long long)frames, frames == 1 ? "" : "s",
			 frames == 1 ? "is" : "are",
			 gap->state == GAP_GONE ? "gone for good" : "missing", words);
}

void write_gap(const struct agent *agent, struct slice channel, const struct gap *gap,
	       struct buf *out)
{
	char pos[POS_LEN + 1];

	pos_format(&gap->pos, pos);
	open_object(out);
	(void)buf_lit(out, "\"id\":\"");
	gap_id(gap, out);
	(void)buf_lit(out, "\"");
	write_lane_id(agent, channel, out);
	(void)buf_printf(out, ",\"turn\":null,\"pos\":\"%s\"", pos);
	json_write_member_int(out, SLICE("t"), gap->t);
	(void)buf_printf(out,
			 ",\"end\":null,\"time\":null,\"type\":\"gap\",\"replay\":false,"
			 "\"frames\":[[%llu,%llu]],\"state\":\"%s\"",
			 (unsigned long long)gap->range.first,
			 (unsigned long long)gap->range.last, gap_state_name(gap->state));
	if (gap->why)
		member(out, "cause", slice_of(gone_why_name(gap->why)));
	write_gap_words(agent, gap, out);
	(void)buf_lit(out, "}");
}

/* The holes of a lane between two places; @from is in, @to is not (NULL: no end). */
static void write_gaps_between(const struct agent *agent, struct slice channel,
			       const struct pos *from, const struct pos *to,
			       struct buf *out)
{
	for (size_t i = 0; i < agent->gap_count; i++) {
		const struct gap *gap = &agent->gaps[i];

		if (pos_compare(&gap->pos, from) >= 0 &&
		    (!to || pos_compare(&gap->pos, to) < 0))
			write_gap(agent, channel, gap, out);
	}
}

bool model_write_rows(struct model *model, const uint8_t *key, struct slice channel,
		      const struct pos *before, size_t limit, struct buf *out)
{
	const struct agent *agent =
		map_get(&model->agents, (struct slice){(const char *)key, KEY_BYTES});
	const struct lane *lane = agent ? map_get(&agent->lanes, channel) : NULL;
	const struct pos nothing = {"", 0};
	const struct pos *floor = &nothing;
	struct found_row *found;
	size_t count, from = 0, first = 0;

	if (!agent || !lane)
		return false;
	if (pos_compare(&lane->floor, floor) > 0)
		floor = &lane->floor;
	if (pos_compare(&agent->floor, floor) > 0)
		floor = &agent->floor;
	found = gather(agent, channel, before, &count);
	if (count)
		qsort(found, count, sizeof(*found), found_compare);
	while (first < count && pos_compare(&found[first].row->pos, floor) <= 0)
		first++;
	if (*floor->epoch && count - first < limit) {
		free(found);
		return false;
	}
	if (count - first > limit)
		from = count - limit;
	else
		from = first;
	/* Rows of one event stay on one page: the next is asked for by position. */
	while (from > first &&
	       pos_compare(&found[from - 1].row->pos, &found[from].row->pos) == 0)
		from--;
	(void)buf_lit(out, "\"rows\":[");
	if (from == 0 && count)
		write_gaps_between(agent, channel, floor, &found[0].row->pos, out);
	for (size_t i = from; i < count; i++) {
		write_row(found[i].segment, found[i].row, out);
		write_gaps_between(agent, channel, &found[i].row->pos,
				   i + 1 < count ? &found[i + 1].row->pos : before, out);
	}
	(void)buf_printf(out, "],\"more\":%s",
			 from > 0 || *floor->epoch ? "true" : "false");
	free(found);
	return true;
}

void model_write_old_rows(struct model *model, const uint8_t *key, struct slice channel,
			  const struct model_old_row *rows, size_t row_count,
			  struct buf *out)
{
	const struct agent *agent =
		map_get(&model->agents, (struct slice){(const char *)key, KEY_BYTES});
	struct found_row *found = NULL;
	struct map here;
	size_t count = 0;

	map_init(&here);
	if (agent)
		found = gather(agent, channel, NULL, &count);
	for (size_t i = 0; i < count; i++)
		(void)map_put(&here, buf_slice(&found[i].row->id), &found[i]);
	for (size_t i = 0; i < row_count; i++) {
		const struct found_row *newer = map_get(&here, rows[i].id);

		if (newer) {
			write_row(newer->segment, newer->row, out);
			continue;
		}
		if (out->ptr[out->len - 1] == '}')
			(void)buf_lit(out, ",");
		(void)buf_append(out, rows[i].json);
	}
	map_finish(&here);
	free(found);
}
