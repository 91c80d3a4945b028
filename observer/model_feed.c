#include "observer/model.h"

#include "observer/acp.h"
#include "observer/model_part.h"
#include "wire/nostr/json.h"

/* What a harness says of itself: feed_state, and results that hold or free a queue. */

static void on_feed_pending(struct model *model, struct agent *agent, struct slice state,
			    const struct pos *pos, int64_t now_ms)
{
	struct slice rest = acp_get(state, "pending"), item;
	struct map_entry *entry = NULL;
	struct map waiting;

	map_init(&waiting);
	while (acp_next(&rest, &item) && waiting.count < AGENT_PERMISSIONS_MAX * 32) {
		struct buf nonce = {0};
		const struct map_entry *at = NULL;

		acp_set_text(&nonce, acp_get_string(item, "requestNonce"), ROW_SHORT_MAX);
		if (nonce.len)
			(void)map_put(&waiting, buf_slice(&nonce), agent);
		while (nonce.len && (at = map_next(&agent->segments, at)) != NULL) {
			struct segment *segment = at->value;
			const struct row *row =
				fold_permission(segment->fold, buf_slice(&nonce));
			struct card *card;

			if (!row || !segment->lane ||
			    row->permission->state != PERMISSION_PENDING)
				continue;
			card = card_ensure(model, segment, buf_slice(&nonce), row->t);
			if (!card)
				continue;
			card->deadline_ms =
				acp_get_int(item, "deadlineMs", card->deadline_ms);
			card->dirty = true;
		}
		buf_finish(&nonce);
	}
	/* What was asked before this word and is not in it has been decided; the frame
	 * that says how is missing. */
	while ((entry = map_next(&model->cards, entry)) != NULL) {
		struct card *card = entry->value;
		const struct row *row =
			fold_permission(card->segment->fold, buf_slice(&card->nonce));

		if (card->agent == agent && row && pos_compare(&row->pos, pos) < 0 &&
		    !map_get(&waiting, buf_slice(&card->nonce)))
			card_end(model, card, NULL, now_ms);
	}
	map_finish(&waiting);
}

static void on_feed_sessions(struct model *model, struct agent *agent, struct slice state,
			     const struct pos *pos)
{
	struct slice rest = acp_get(state, "sessions"), item;
	struct buf channel = {0};

	while (acp_next(&rest, &item)) {
		const struct slice title = acp_get_string(item, "title");
		struct lane *lane;

		acp_set_text(&channel, acp_get_string(item, "channelId"), ROW_SHORT_MAX);
		lane = lane_ensure(model, agent, buf_slice(&channel));
		if (!lane)
			continue;
		if (fact_wins(&lane->facts.session_at, pos))
			acp_set_text(&lane->facts.session,
				     acp_get_string(item, "sessionId"), ROW_SHORT_MAX);
		if (title.ptr && fact_wins(&lane->facts.title_at, pos))
			acp_set_text(&lane->facts.title, title, ROW_SHORT_MAX);
		if (fact_wins(&lane->facts.slot_at, pos))
			lane->facts.slot = acp_get_int(item, "slot", -1);
		choices_update(&lane->facts, pos, item);
		lane->dirty = true;
	}
	buf_finish(&channel);
}

/* Lanes that the harness does not name have no turn. */
static void on_feed_turns(struct agent *agent, struct slice state, const struct pos *pos)
{
	const struct slice turns = acp_get(state, "turns");
	struct map_entry *entry = NULL;

	if (!acp_is_array(turns))
		return;
	while ((entry = map_next(&agent->lanes, entry)) != NULL) {
		struct lane *lane = entry->value;
		struct slice rest = turns, item;
		bool runs = false;

		while (acp_next(&rest, &item))
			runs = runs || json_is(acp_get_string(item, "channelId"),
					       buf_slice(&lane->channel));
		if (runs || !fact_wins(&lane->idle_at, pos))
			continue;
		lane->dirty = true;
		if (lane->current)
			lane->current->untimed = true;
	}
}

static void on_feed_slots(struct agent *agent, struct slice state, const struct pos *pos)
{
	struct slice rest = acp_get(state, "slots"), item;

	while (acp_next(&rest, &item)) {
		struct buf word = {0};

		acp_set_text(&word, acp_get_string(item, "state"), 15);
		slot_set(&agent->facts, acp_get_int(item, "slot", -1), pos,
			 buf_slice(&word), acp_get_int(item, "pid", -1));
		buf_finish(&word);
	}
}

/* What its harness counts: shown as it is. */
static void on_feed_figures(struct agent *agent, struct slice state,
			    const struct pos *pos, int64_t now_ms)
{
	const struct slice figures = acp_get(state, "figures");

	if (!acp_is_object(figures) || figures.len > ROW_SHORT_MAX ||
	    !fact_wins(&agent->facts.figures_at, pos))
		return;
	buf_clear(&agent->facts.figures);
	agent->facts.figures.max = ROW_SHORT_MAX;
	(void)buf_append(&agent->facts.figures, figures);
	agent->facts.figures_ms = now_ms;
}

void on_feed_state(struct model *model, struct agent *agent, struct slice state,
		   const struct pos *pos, int64_t now_ms)
{
	if (fact_wins(&agent->facts.policy_at, pos)) {
		acp_set_text(&agent->facts.control, acp_get_string(state, "control"), 64);
		acp_set_text(&agent->facts.permissions,
			     acp_get_string(state, "permissions"), 64);
	}
	on_feed_figures(agent, state, pos, now_ms);
	on_feed_slots(agent, state, pos);
	on_feed_sessions(model, agent, state, pos);
	on_feed_turns(agent, state, pos);
	on_feed_pending(model, agent, state, pos, now_ms);
	agent->dirty = true;
}

/* Whether the lane's prompts are held: a stop holds them, letting go or a new prompt ends
 * it. */
void on_control_result(struct lane *lane, struct slice payload, const struct pos *pos)
{
	const struct slice type = acp_get_string(payload, "type");
	const struct slice status = acp_get_string(payload, "status");

	if (!lane || !type.ptr || !status.ptr)
		return;
	if (json_is(type, SLICE("cancel_turn")) && json_is(status, SLICE("sent"))) {
		if (fact_wins(&lane->facts.held_at, pos))
			lane->facts.held = true;
	} else if ((json_is(type, SLICE("release_queue")) &&
		    json_is(status, SLICE("ok"))) ||
		   (json_is(type, SLICE("prompt")) &&
		    (json_is(status, SLICE("queued")) ||
		     json_is(status, SLICE("started"))))) {
		if (fact_wins(&lane->facts.held_at, pos))
			lane->facts.held = false;
	}
}
