#include "agent/journal_index.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"
#include "wire/nostr/json.h"

/* Holes that one feed_state tells of: some 10 KiB. They come from refused frames and from
 * times of a full disk, so there are few. Our choice. */
#define HOLES_MAX 512

void journal_index_finish(struct journal_index *index)
{
	for (size_t i = 0; i < index->count; i++)
		ranges_finish(&index->epochs[i].frames);
	free(index->epochs);
	*index = (struct journal_index){0};
}

/* The place of @epoch, or where it would be. */
static size_t place(const struct journal_index *index, const char *epoch)
{
	size_t at = index->count;

	/* Nearly always the newest is meant. */
	while (at && strcmp(index->epochs[at - 1].name, epoch) >= 0)
		at--;
	return at;
}

struct journal_epoch *journal_index_find(const struct journal_index *index,
					 const char *epoch)
{
	const size_t at = place(index, epoch);

	if (at == index->count || strcmp(index->epochs[at].name, epoch) != 0)
		return NULL;
	return &index->epochs[at];
}

static struct journal_epoch *ensure(struct journal_index *index, const char *epoch)
{
	const size_t at = place(index, epoch);

	assert(strlen(epoch) < sizeof(index->epochs->name));
	if (at < index->count && strcmp(index->epochs[at].name, epoch) == 0)
		return &index->epochs[at];
	if (index->count == index->room) {
		index->room = index->room ? 2 * index->room : 8;
		index->epochs =
			mem_grow(index->epochs, index->room, sizeof(*index->epochs));
	}
	memmove(index->epochs + at + 1, index->epochs + at,
		(index->count - at) * sizeof(*index->epochs));
	index->count++;
	index->epochs[at] = (struct journal_epoch){0};
	memcpy(index->epochs[at].name, epoch, strlen(epoch) + 1);
	return &index->epochs[at];
}

void journal_index_add(struct journal_index *index, const char *epoch, uint64_t number)
{
	struct journal_epoch *at = ensure(index, epoch);

	ranges_add(&at->frames, number);
	if (number > at->last)
		at->last = number;
}

void journal_index_remove(struct journal_index *index, const char *epoch, uint64_t number,
			  const char *current)
{
	struct journal_epoch *at = journal_index_find(index, epoch);

	if (!at)
		return;
	ranges_remove(&at->frames, number);
	if (at->frames.count || strcmp(epoch, current) == 0)
		return;
	ranges_finish(&at->frames);
	index->count--;
	memmove(at, at + 1,
		(size_t)(index->epochs + index->count - at) * sizeof(*index->epochs));
}

/* One epoch as it is told. */
struct told {
	const char *name;
	const struct ranges *held;
	uint64_t last;
	bool over;
	size_t skip; /* oldest ranges that are not told */
};

/* Where there are more holes than HOLES_MAX what lies below the oldest of them is given
 * up. */
static void limit_holes(struct told *told, size_t count)
{
	size_t left = HOLES_MAX;

	for (size_t i = count; i-- > 0;) {
		const size_t holes = told[i].held->count ? told[i].held->count - 1 : 0;

		told[i].skip = holes > left ? holes - left : 0;
		left -= holes - told[i].skip;
	}
}

/* The newest FEED_EPOCHS_MAX of them, oldest first; returns how many. */
static size_t gather(const struct journal_index *index, const char *current,
		     const struct ranges *held, uint64_t last,
		     struct told told[FEED_EPOCHS_MAX])
{
	size_t count = 0, from = 0;

	if (index->count >= FEED_EPOCHS_MAX)
		from = index->count - (FEED_EPOCHS_MAX - 1);
	for (size_t i = from; i < index->count; i++) {
		const struct journal_epoch *epoch = &index->epochs[i];

		if (strcmp(epoch->name, current) != 0)
			told[count++] = (struct told){.name = epoch->name,
						      .held = &epoch->frames,
						      .last = epoch->last,
						      .over = true};
	}
	told[count++] = (struct told){.name = current, .held = held, .last = last};
	limit_holes(told, count);
	return count;
}

/* Oldest number held: all below are gone. */
static uint64_t first_of(const struct told *told)
{
	return told->held->count ? told->held->items[told->skip].first : told->last + 1;
}

static void write_range(struct buf *out, bool *any, uint64_t first, uint64_t last)
{
	(void)buf_printf(out, "%s[%" PRIu64 ",%" PRIu64 "]", *any ? "," : "", first,
			 last);
	*any = true;
}

static void write_gone(struct buf *out, const struct told *told)
{
	const struct ranges *held = told->held;
	bool any = false;

	(void)buf_printf(out, "{\"epoch\":\"%s\",\"frames\":[", told->name);
	for (size_t i = told->skip + 1; i < held->count; i++)
		write_range(out, &any, held->items[i - 1].last + 1,
			    held->items[i].first - 1);
	if (held->count && held->items[held->count - 1].last < told->last)
		write_range(out, &any, held->items[held->count - 1].last + 1, told->last);
	/* What it sent and did not get to disk before it was killed. */
	if (told->over)
		write_range(out, &any, told->last + 1, FRAME_NUMBER_MAX);
	(void)buf_lit(out, "]}");
}

void journal_index_write(const struct journal_index *index, const char *current,
			 const struct ranges *held, uint64_t last, struct buf *out)
{
	struct told told[FEED_EPOCHS_MAX];
	const size_t count = gather(index, current, held, last, told);

	(void)json_write_key(out, SLICE("epochs"));
	(void)buf_lit(out, "[");
	for (size_t i = 0; i < count; i++)
		(void)buf_printf(
			out,
			"%s{\"epoch\":\"%s\",\"first\":%" PRIu64 ",\"last\":%" PRIu64 "}",
			i ? "," : "", told[i].name, first_of(&told[i]), told[i].last);
	(void)buf_lit(out, "]");
	(void)json_write_key(out, SLICE("gone"));
	(void)buf_lit(out, "[");
	for (size_t i = 0; i < count; i++) {
		(void)buf_append(out, i ? SLICE(",") : SLICE(""));
		write_gone(out, &told[i]);
	}
	(void)buf_lit(out, "]");
}
