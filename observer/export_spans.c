#include "observer/export_spans.h"

#include <string.h>

#include "observer/fold_run.h"

#define TAG_BYTES_MAX 4096

void export_spans_begin(struct export_spans *walk, struct archive_db *db,
			const uint8_t *agent, struct slice channel, int64_t from_ms,
			int64_t now_ms)
{
	*walk = (struct export_spans){.db = db,
				      .agent = agent,
				      .channel = channel,
				      .from_ms = from_ms,
				      .before = {"~", 0},
				      .newest = {.max = TAG_BYTES_MAX},
				      .more = true};
	archive_db_life(db, agent, now_ms, &walk->life);
}

void export_spans_end(struct export_spans *walk)
{
	buf_finish(&walk->newest);
}

/* Of the newest slice, which turn it is that runs, as the model sees it (still_runs());
 * fold_count: none. */
static size_t running_turn(const struct export_spans *walk,
			   const struct archive_answer *answer)
{
	size_t found = answer->fold_count;
	const struct fold *fold;

	for (size_t i = 0; i < answer->fold_count; i++) {
		fold = answer->folds[i].fold;
		if (answer->folds[i].is_turn && fold->row_count &&
		    (found == answer->fold_count ||
		     pos_compare(&fold->rows[0]->pos,
				 &answer->folds[found].fold->rows[0]->pos) > 0))
			found = i;
	}
	if (found == answer->fold_count)
		return found;
	fold = answer->folds[found].fold;
	/* One that began in an older epoch was ended with it. */
	return fold->turn.ended ||
			       (!fold->turn.started &&
				strcmp(fold->rows[0]->pos.epoch, walk->life.epoch) < 0)
		       ? answer->fold_count
		       : found;
}

bool export_spans_next(struct export_spans *walk, struct spans *spans, struct err *err)
{
	struct archive_answer answer = {0};
	int64_t latest = INT64_MIN;
	struct span_lane *lane;
	size_t running;

	if (!archive_db_folds(walk->db, walk->agent, walk->channel, &walk->before,
			      buf_slice(&walk->newest), &answer, err)) {
		archive_db_answer_finish(&answer);
		walk->more = false;
		return false;
	}
	running = walk->begun ? answer.fold_count : running_turn(walk, &answer);
	walk->begun = true;
	for (size_t i = 0; i < answer.fold_count; i++) {
		const struct archive_fold *fold = &answer.folds[i];
		const struct fold_run run = {.fold = fold->fold,
					     .channel = walk->channel,
					     .tag = buf_slice(&fold->tag),
					     .is_turn = fold->is_turn,
					     .goes_on = i == running};
		const int64_t ms = i == running ? SPANS_OPEN : fold_newest_ms(fold->fold);

		latest = ms > latest ? ms : latest;
		if (ms >= walk->from_ms)
			fold_run_put(spans, walk->agent, &run);
	}
	lane = answer.fold_count ? spans_lane(spans, walk->agent, walk->channel) : NULL;
	if (lane)
		span_lane_open(spans, lane, walk->life.open_ms);
	buf_clear(&walk->newest);
	if (answer.fold_count)
		(void)buf_append(&walk->newest,
				 buf_slice(&answer.folds[answer.fold_count - 1].tag));
	walk->before = answer.low;
	walk->more = answer.more && (!answer.fold_count || latest >= walk->from_ms);
	archive_db_answer_finish(&answer);
	return true;
}
