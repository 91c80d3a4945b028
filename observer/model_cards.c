#include "observer/model.h"

#include <stdlib.h>
#include <string.h>

#include "observer/acp.h"
#include "observer/model_part.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

/* What waits for the owner, and what the owner asked. */

void card_destroy(struct card *card)
{
	buf_finish(&card->nonce);
	buf_finish(&card->id);
	buf_finish(&card->picked);
	buf_finish(&card->detail);
	free(card);
}

struct card *card_ensure(struct model *model, struct segment *segment, struct slice nonce,
			 int64_t asked_ms)
{
	struct agent *agent = segment->agent;
	struct buf id = {.max = nonce.len + sizeof(agent->hex) + 1};
	struct card *card = map_get(&model->cards, nonce);

	(void)buf_append(&id, nonce);
	if (card && card->agent != agent) {
		/* Nobody's request hides behind another's. */
		(void)buf_printf(&id, "/%s", agent->hex);
		card = map_get(&model->cards, buf_slice(&id));
	}
	if (card || agent->card_count == MODEL_CARDS_MAX) {
		buf_finish(&id);
		return card;
	}
	card = mem_alloc(sizeof(*card));
	card->agent = agent;
	card->id = id;
	agent->card_count++;
	card->segment = segment;
	card->asked_ms = asked_ms;
	card->deadline_ms = asked_ms + AGENT_PERMISSION_S * 1000;
	card->dirty = model->dirty = true;
	text_copy(&card->nonce, nonce);
	(void)map_put(&model->cards, buf_slice(&card->id), card);
	return card;
}

/* A live request becomes a card at once; old ones only when the harness says that they
 * still wait (feed_state). */
void card_of_event(struct model *model, struct segment *segment,
		   const struct observer_event *event, int64_t now_ms)
{
	struct buf nonce = {0};
	const struct row *row;

	acp_set_text(&nonce, acp_get_string(event->authorization, "requestNonce"),
		     ROW_SHORT_MAX);
	row = fold_permission(segment->fold, buf_slice(&nonce));
	if (nonce.len && row && row->permission->state == PERMISSION_PENDING &&
	    segment->lane)
		(void)card_ensure(model, segment, buf_slice(&nonce), now_ms);
	buf_finish(&nonce);
}

void card_end(struct model *model, struct card *card, const char *outcome, int64_t now_ms)
{
	if (card->over)
		return;
	card->over = card->dirty = model->dirty = true;
	card->over_ms = now_ms;
	card->outcome = outcome;
}

static const char *card_outcome(const struct permission *permission)
{
	static const char *const reasons[] = {
		"applied", "timed_out",           "cancelled", "rejected",
		"allowed", "allow_failed_closed", "uncertain"};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
		if (slice_eq(buf_slice(&permission->reason), slice_of(reasons[i])))
			return reasons[i];
	if (permission->state == PERMISSION_OVER)
		return permission->by && strcmp(permission->by, "restart") == 0
			       ? "restarted"
			       : "turn_ended";
	return permission->state == PERMISSION_CANCELLED ? "cancelled" : "applied";
}

/* Cards follow their rows: what the harness wrote is what ends one. */
void cards_follow(struct model *model, int64_t now_ms)
{
	struct map_entry *entry = NULL;

	while ((entry = map_next(&model->cards, entry)) != NULL) {
		struct card *card = entry->value;
		const struct row *row =
			fold_permission(card->segment->fold, buf_slice(&card->nonce));

		if (!row || row->permission->state == PERMISSION_PENDING)
			continue;
		if (!card->picked.len)
			text_copy(&card->picked, buf_slice(&row->permission->picked));
		card_end(model, card, card_outcome(row->permission), now_ms);
	}
}

bool lane_has_card(const struct model *model, const struct lane *lane,
		   const struct card **out)
{
	const struct map_entry *entry = NULL;
	const struct card *oldest = NULL;

	while ((entry = map_next(&model->cards, entry)) != NULL) {
		const struct card *card = entry->value;

		if (card->segment->lane == lane && !card->over &&
		    (!oldest || card->asked_ms < oldest->asked_ms))
			oldest = card;
	}
	*out = oldest;
	return oldest != NULL;
}

void tick_cards(struct model *model, int64_t now_ms)
{
	struct map_entry *entry = NULL;

	while ((entry = map_next(&model->cards, entry)) != NULL) {
		struct card *card = entry->value;

		/* A harness that is gone cannot tell that time ran out. */
		if (!card->over && now_ms > card->deadline_ms + 60000)
			card_end(model, card, "timed_out", now_ms);
		if (!card->over || now_ms - card->over_ms < MODEL_CARD_STAY_MS)
			continue;
		if (model->gone_cards.len)
			(void)buf_lit(&model->gone_cards, ",");
		(void)json_write_string(&model->gone_cards, buf_slice(&card->id));
		(void)map_take(&model->cards, map_key(entry));
		card->agent->card_count--;
		card_destroy(card);
		model->dirty = true;
	}
}

/* ---- controls ---- */

void control_destroy(struct owner_control *control)
{
	buf_finish(&control->request_id);
	buf_finish(&control->channel);
	buf_finish(&control->card);
	buf_finish(&control->option);
	buf_finish(&control->text);
	buf_finish(&control->status);
	buf_finish(&control->detail);
	free(control);
}

/* What became of a control is shown for a while: a prompt that runs only shortly. */
static bool control_is_old(const struct owner_control *control, int64_t now_ms)
{
	if (control->started)
		return now_ms - control->done_ms > MODEL_CARD_STAY_MS;
	if (control->type == CONTROL_PROMPT && control->state == CONTROL_ANSWERED &&
	    slice_eq(buf_slice(&control->status), SLICE("queued")))
		return now_ms - control->at_ms > 86400000;
	return control->state >= CONTROL_ANSWERED && now_ms - control->done_ms > 30000;
}

static void touch_lane(struct owner_control *control)
{
	struct lane *lane = map_get(&control->agent->lanes, buf_slice(&control->channel));

	if (lane)
		lane->dirty = true;
}

void tick_controls(struct model *model, int64_t now_ms)
{
	size_t kept = 0;

	for (size_t i = 0; i < model->control_count; i++) {
		struct owner_control *control = model->controls[i];

		if (control->started && !control->done_ms)
			control->done_ms = now_ms;
		if (!control_is_old(control, now_ms)) {
			model->controls[kept++] = control;
			continue;
		}
		touch_lane(control);
		model->dirty = true;
		control_destroy(control);
	}
	model->control_count = kept;
}

void prompt_started(struct model *model, struct slice request_raw)
{
	for (size_t i = 0; request_raw.ptr && i < model->control_count; i++) {
		struct owner_control *control = model->controls[i];

		if (control->type == CONTROL_PROMPT &&
		    json_is(request_raw, buf_slice(&control->request_id)))
			control->started = control->dirty = true;
	}
}

void model_control_add(struct model *model, const struct model_control *from,
		       int64_t now_ms)
{
	struct agent *agent = agent_ensure(model, from->agent);
	struct owner_control *control;
	struct card *card;

	if (!agent)
		return;
	if (model->control_count == MODEL_CONTROLS_MAX) {
		control_destroy(model->controls[0]);
		memmove(model->controls, model->controls + 1,
			(MODEL_CONTROLS_MAX - 1) * sizeof(struct owner_control *));
		model->control_count--;
	}
	control = mem_alloc(sizeof(*control));
	model->controls[model->control_count++] = control;
	control->agent = agent;
	control->type = from->type;
	control->at_ms = now_ms;
	control->position = -1;
	text_copy(&control->request_id, from->request_id);
	text_copy(&control->channel, from->channel);
	text_copy(&control->card, from->card);
	text_copy(&control->option, from->option);
	text_copy(&control->text,
		  slice_sub(from->text, 0, utf8_floor(from->text, ROW_SHORT_MAX)));
	control->dirty = model->dirty = true;
	touch_lane(control);
	card = map_get(&model->cards, from->card);
	if (card && from->type == CONTROL_PERMISSION_DECISION && !card->over) {
		text_copy(&card->picked, from->option);
		buf_clear(&card->detail);
		card->asked = CARD_SENT;
		card->dirty = true;
	}
}

static struct owner_control *control_find(const struct model *model, struct slice id)
{
	for (size_t i = 0; i < model->control_count; i++)
		if (slice_eq(buf_slice(&model->controls[i]->request_id), id))
			return model->controls[i];
	return NULL;
}

static void card_of_control(struct model *model, const struct owner_control *control)
{
	struct card *card = map_get(&model->cards, buf_slice(&control->card));
	const struct slice status = buf_slice(&control->status);

	if (!card || card->over || control->type != CONTROL_PERMISSION_DECISION)
		return;
	card->dirty = true;
	if (control->state == CONTROL_RELAYED)
		card->asked = CARD_RELAYED;
	if (control->state < CONTROL_ANSWERED || slice_eq(status, SLICE("sent")) ||
	    slice_eq(status, SLICE("already_decided")))
		return;
	/* It did not count: the owner may decide again. */
	card->asked = CARD_PENDING;
	buf_clear(&card->picked);
	text_copy(&card->detail,
		  control->state == CONTROL_EXPIRED ? SLICE("expired") : status);
}

void model_control_set(struct model *model, struct slice request_id,
		       enum control_state state, struct slice status, struct slice detail,
		       int64_t position, int64_t now_ms)
{
	struct owner_control *control = control_find(model, request_id);

	if (!control || control->state > state)
		return;
	control->state = state;
	control->position = position;
	if (state >= CONTROL_ANSWERED)
		control->done_ms = now_ms;
	text_copy(&control->status, status);
	text_copy(&control->detail, detail);
	control->dirty = model->dirty = true;
	touch_lane(control);
	card_of_control(model, control);
}

bool model_find_card(const struct model *model, struct slice id, struct model_card *out)
{
	const struct card *card = map_get(&model->cards, id);
	const struct row *row;

	if (!card)
		return false;
	row = fold_permission(card->segment->fold, buf_slice(&card->nonce));
	if (!row)
		return false;
	memcpy(out->agent, card->agent->key, KEY_BYTES);
	out->channel = buf_slice(&card->segment->lane->channel);
	out->nonce = buf_slice(&card->nonce);
	out->pos = row->pos;
	out->pending = !card->over;
	out->actionable = row->permission->actionable;
	out->body_ready = card->body_ready ||
			  (!row->permission->trimmed && !row->permission->redacted);
	out->options = buf_slice(&row->permission->options);
	return true;
}
