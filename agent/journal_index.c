#include "agent/journal_index.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"
#include "wire/frame/gone.h"
#include "wire/nostr/json.h"

/* Holes that one feed_state tells of: some 10 KiB. They come from refused frames and from
 * times of a full disk, so there are few. Our choice. */
#define HOLES_MAX 512

void journal_index_finish(struct journal_index *index)
{
	for (size_t i = 0; i < index->count; i++) {
		ranges_finish(&index->epochs[i].frames);
		ranges_finish(&index->epochs[i].refused);
	}
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

	if (!ranges_has(&at->refused, number))
		ranges_add(&at->frames, number);
	if (number > at->last)
		at->last = number;
}

void journal_index_refuse(struct journal_index *index, const char *epoch, uint64_t number)
{
	struct journal_epoch *at = ensure(index, epoch);

	ranges_remove(&at->frames, number);
	ranges_add(&at->refused, number);
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
	ranges_finish(&at->refused);
	index->count--;
	memmove(at, at + 1,
		(size_t)(index->epochs + index->count - at) * sizeof(*index->epochs));
}

void journal_index_let_go(struct journal_index *index, const char *epoch, uint64_t number,
			  const char *current)
{
	struct journal_epoch *at = journal_index_find(index, epoch);

	if (at && number > at->let_go)
		at->let_go = number;
	journal_index_remove(index, epoch, number, current);
}

/* One epoch as it is told. */
struct told {
	const char *name;
	const struct ranges *held, *refused;
	uint64_t last, let_go;
	bool over, kept; /* @kept: there is a journal */
	size_t skip;     /* oldest ranges that are not told */
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
static size_t gather(const struct journal_index *index,
		     const struct journal_telling *telling,
		     struct told told[FEED_EPOCHS_MAX])
{
	static const struct ranges none;
	const struct journal_epoch *ours = journal_index_find(index, telling->current);
	size_t count = 0, from = 0;

	if (index->count >= FEED_EPOCHS_MAX)
		from = index->count - (FEED_EPOCHS_MAX - 1);
	for (size_t i = from; i < index->count; i++) {
		const struct journal_epoch *epoch = &index->epochs[i];

		if (epoch != ours)
			told[count++] = (struct told){.name = epoch->name,
						      .held = &epoch->frames,
						      .refused = &epoch->refused,
						      .last = epoch->last,
						      .let_go = epoch->let_go,
						      .over = true,
						      .kept = true};
	}
	told[count++] = (struct told){.name = telling->current,
				      .held = telling->held,
				      .refused = ours ? &ours->refused : &none,
				      .last = telling->last,
				      .let_go = ours ? ours->let_go : 0,
				      .kept = telling->how != JOURNAL_TELLS_NONE};
	limit_holes(told, count);
	return count;
}

/* Oldest number held: all below are gone. */
static uint64_t first_of(const struct told *told)
{
	return told->held->count ? told->held->items[told->skip].first : told->last + 1;
}

/* Why all up to @last are gone that are. What is let go goes from the oldest on, so what
 * lies above never was on disk. */
static enum gone_why why_of(const struct told *told, uint64_t last)
{
	if (!told->kept)
		return GONE_NO_JOURNAL;
	if (ranges_has(told->refused, last))
		return GONE_REFUSED;
	return last <= told->let_go ? GONE_RETENTION : GONE_DISK;
}

/* Ranges of one epoch with one cause make an entry. */
struct entry {
	struct buf *out;
	const char *epoch;
	enum gone_why why;
	bool *any; /* entry was written, of any epoch */
	bool open;
};

static void entry_close(struct entry *entry)
{
	if (entry->open)
		(void)buf_printf(entry->out, "],\"why\":\"%s\"}",
				 gone_why_name(entry->why));
	entry->open = false;
}

static void write_range(struct entry *entry, uint64_t first, uint64_t last,
			enum gone_why why)
{
	if (entry->open && entry->why != why)
		entry_close(entry);
	if (entry->open)
		(void)buf_lit(entry->out, ",");
	else
		(void)buf_printf(entry->out, "%s{\"epoch\":\"%s\",\"frames\":[",
				 *entry->any ? "," : "", entry->epoch);
	(void)buf_printf(entry->out, "[%" PRIu64 ",%" PRIu64 "]", first, last);
	entry->open = *entry->any = true;
	entry->why = why;
}

/* All from @first to @last are gone, but not all for one cause. */
static void write_hole(struct entry *entry, const struct told *told, uint64_t first,
		       uint64_t last)
{
	while (first <= last) {
		const bool refused = ranges_has(told->refused, first);
		uint64_t end = first, next;

		while (refused && end < last && ranges_has(told->refused, end + 1))
			end++;
		if (!refused)
			end = ranges_next(told->refused, first, &next) && next <= last
				      ? next - 1
				      : last;
		write_range(entry, first, end, why_of(told, end));
		first = end + 1;
	}
}

static void write_gone(struct buf *out, const struct told *told, bool *any)
{
	const struct ranges *held = told->held;
	struct entry entry = {.out = out, .epoch = told->name, .any = any};

	for (size_t i = told->skip + 1; i < held->count; i++)
		write_hole(&entry, told, held->items[i - 1].last + 1,
			   held->items[i].first - 1);
	if (held->count && held->items[held->count - 1].last < told->last)
		write_hole(&entry, told, held->items[held->count - 1].last + 1,
			   told->last);
	/* What it sent and did not get to disk before it was killed. */
	if (told->over)
		write_range(&entry, told->last + 1, FRAME_NUMBER_MAX, GONE_KILLED);
	entry_close(&entry);
}

static void write_epoch(struct buf *out, const struct told *told)
{
	const uint64_t first = first_of(told);

	(void)buf_printf(out, "{\"epoch\":\"%s\",\"first\":%" PRIu64 ",\"last\":%" PRIu64,
			 told->name, first, told->last);
	if (first > 1)
		(void)buf_printf(out, ",\"why\":\"%s\"",
				 gone_why_name(why_of(told, first - 1)));
	(void)buf_lit(out, "}");
}

/* What an epoch that is not named means. */
static void write_others(struct buf *out, const struct journal_telling *telling)
{
	static const enum gone_why whys[] = {
		[JOURNAL_TELLS_ALL] = GONE_RETENTION,
		[JOURNAL_TELLS_LOSS] = GONE_DISK,
		[JOURNAL_TELLS_NONE] = GONE_NO_JOURNAL,
	};

	if (telling->how == JOURNAL_TELLS_PART)
		(void)buf_lit(out, ",\"partial\":true");
	else
		(void)buf_printf(out, ",\"others\":\"%s\"",
				 gone_why_name(whys[telling->how]));
}

void journal_index_write(const struct journal_index *index,
			 const struct journal_telling *telling, struct buf *out)
{
	struct told told[FEED_EPOCHS_MAX];
	const size_t count = gather(index, telling, told);
	bool any = false;

	(void)json_write_key(out, SLICE("epochs"));
	(void)buf_lit(out, "[");
	for (size_t i = 0; i < count; i++) {
		(void)buf_append(out, i ? SLICE(",") : SLICE(""));
		write_epoch(out, &told[i]);
	}
	(void)buf_lit(out, "]");
	(void)json_write_key(out, SLICE("gone"));
	(void)buf_lit(out, "[");
	for (size_t i = 0; i < count; i++)
		write_gone(out, &told[i], &any);
	(void)buf_lit(out, "]");
	write_others(out, telling);
}
