#include "observer/history.h"

#include <stdlib.h>
#include <string.h>

#include "observer/fold_run.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"

struct history_lane {
	uint8_t agent[KEY_BYTES];
	struct buf channel;
	struct pos before; /* what is to be read next ends here */
	struct buf newest; /* tag of the segment that was told last */
};

struct history {
	struct archive *archive;
	struct spans *spans;
	struct values *values;
	struct history_lane *lanes;
	size_t count, room;
	bool wanted, asked; /* a question is with the archive, about lane @at */
	size_t at;
};

struct history *history_create(struct archive *archive, struct spans *spans,
			       struct values *values)
{
	struct history *history = mem_alloc(sizeof(*history));

	history->archive = archive;
	history->spans = spans;
	history->values = values;
	return history;
}

static void drop(struct history *history, size_t at)
{
	buf_finish(&history->lanes[at].channel);
	buf_finish(&history->lanes[at].newest);
	history->lanes[at] = history->lanes[--history->count];
}

void history_destroy(struct history *history)
{
	if (!history)
		return;
	while (history->count)
		drop(history, 0);
	free(history->lanes);
	free(history);
}

static void text_set(struct buf *out, struct slice text)
{
	buf_clear(out);
	out->max = text.len + 1;
	(void)buf_append(out, text);
}

void history_add(struct history *history, const uint8_t agent[KEY_BYTES],
		 struct slice channel, const struct pos *pos)
{
	struct history_lane *lane;

	if (!channel.len || !*pos->epoch)
		return;
	if (history->count == history->room) {
		history->room = history->room ? history->room * 2 : 32;
		history->lanes =
			mem_grow(history->lanes, history->room, sizeof(*history->lanes));
	}
	lane = &history->lanes[history->count++];
	*lane = (struct history_lane){.before = *pos};
	lane->before.seq++; /* itself too */
	memcpy(lane->agent, agent, KEY_BYTES);
	text_set(&lane->channel, channel);
}

/* Epochs begin with the time of their start: the lane that is behind the least. */
static size_t newest(const struct history *history)
{
	size_t found = 0;

	for (size_t i = 1; i < history->count; i++)
		if (pos_compare(&history->lanes[i].before,
				&history->lanes[found].before) > 0)
			found = i;
	return found;
}

/* Was it told neither by a start, which tells a segment whole, nor by an earlier slice?
 * Of those some is not before this one. */
static bool is_uncounted(const struct history_lane *lane, const struct archive_fold *fold)
{
	return pos_compare(&fold->end, &lane->before) <= 0;
}

/* What a slice counted; at once, as the lane may have many points. */
static void add_values(struct history *history, const struct history_lane *lane,
		       const struct value_lane *slice)
{
	struct buf id = {.max = 2 * KEY_BYTES + 1 + lane->channel.len};
	struct value_lane *values;

	/* As struct span_lane has it. */
	(void)buf_append_hex(&id, lane->agent, KEY_BYTES);
	(void)buf_append_byte(&id, '/');
	(void)buf_append(&id, buf_slice(&lane->channel));
	values = values_lane(history->values, buf_slice(&id));
	if (values)
		values_add_older(history->values, values, slice);
	buf_finish(&id);
}

static void ask(struct history *history);

static void on_folds(void *ctx, const struct archive_answer *answer)
{
	struct history *history = ctx;
	struct history_lane *lane = &history->lanes[history->at];
	struct values slice;
	struct value_lane *counted;

	values_init(&slice);
	counted = values_lane(&slice, SLICE("all of it"));
	history->asked = false;
	for (size_t i = 0; i < answer->fold_count; i++) {
		const struct archive_fold *fold = &answer->folds[i];
		const struct fold_run run = {.fold = fold->fold,
					     .channel = buf_slice(&lane->channel),
					     .tag = buf_slice(&fold->tag),
					     .is_turn = fold->is_turn};
		const struct value_lane *part = values_find(&answer->values, run.tag);

		if (!fold_run_known(history->spans, lane->agent, &run)) {
			fold_run_put(history->spans, lane->agent, &run);
			if (part && is_uncounted(lane, fold))
				values_add_older(&slice, counted, part);
		}
		text_set(&lane->newest, buf_slice(&fold->tag));
	}
	add_values(history, lane, counted);
	values_finish(&slice);
	if (!answer->ok)
		log_warn("history", "cannot be read further: %s", answer->err.text);
	lane->before = answer->low;
	if (!answer->ok || !answer->more)
		drop(history, history->at);
	ask(history);
}

static void ask(struct history *history)
{
	const struct history_lane *lane;

	if (history->asked || !history->wanted || !history->count)
		return;
	/* More would only push out what is newer. */
	if (history->spans->bytes > history->spans->bytes_max / 8 * 7) {
		while (history->count)
			drop(history, 0);
		return;
	}
	history->at = newest(history);
	lane = &history->lanes[history->at];
	history->asked = true;
	archive_folds(history->archive, lane->agent, buf_slice(&lane->channel),
		      &lane->before, buf_slice(&lane->newest), on_folds, history);
}

void history_stop(struct history *history)
{
	if (history)
		history->wanted = false;
}

void history_want(struct history *history)
{
	history->wanted = true;
	ask(history);
}
