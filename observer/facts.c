#include "observer/facts.h"

#include <stdio.h>

#include "observer/acp.h"
#include "wire/nostr/json.h"

#define CHOICES_MAX 200 /* modes or models of one agent; our choice */

bool fact_wins(struct pos *at, const struct pos *pos)
{
	if (pos_compare(pos, at) < 0)
		return false;
	*at = *pos;
	return true;
}

void lane_facts_init(struct lane_facts *facts)
{
	*facts = (struct lane_facts){
		.slot = -1, .used = -1, .size = -1, .input = -1, .output = -1};
}

static void choice_finish(struct choice_facts *choice)
{
	buf_finish(&choice->current);
	buf_finish(&choice->available);
}

void lane_facts_finish(struct lane_facts *facts)
{
	buf_finish(&facts->session);
	buf_finish(&facts->name);
	buf_finish(&facts->title);
	buf_finish(&facts->aim);
	choice_finish(&facts->modes);
	choice_finish(&facts->models);
	buf_finish(&facts->cost);
	buf_finish(&facts->stalled);
	buf_finish(&facts->crash);
}

void lane_facts_forget(struct lane_facts *facts)
{
	buf_finish(&facts->title);
	buf_finish(&facts->aim);
	buf_finish(&facts->cost);
	buf_finish(&facts->stalled);
	buf_finish(&facts->crash);
	facts->crash_is_failure = false;
	facts->used = facts->size = facts->input = facts->output = -1;
}

void agent_facts_finish(struct agent_facts *facts)
{
	buf_finish(&facts->name);
	buf_finish(&facts->host);
	buf_finish(&facts->version);
	buf_finish(&facts->mode);
	buf_finish(&facts->command);
	buf_finish(&facts->channels);
	buf_finish(&facts->control);
	buf_finish(&facts->permissions);
	buf_finish(&facts->login_text);
	buf_finish(&facts->login_methods);
	buf_finish(&facts->figures);
}

void slot_set(struct agent_facts *facts, int64_t slot, const struct pos *pos,
	      struct slice state, int64_t pid)
{
	struct slot_facts *at;

	if (slot < 0 || slot >= FACTS_SLOTS_MAX)
		return;
	at = &facts->slots[slot];
	if (!fact_wins(&at->at, pos))
		return;
	(void)snprintf(at->state, sizeof(at->state), "%.*s", SLICE_ARG(state));
	at->pid = pid;
}

void slot_pause(struct agent_facts *facts, int64_t slot, const struct pos *pos,
		bool paused)
{
	if (slot >= 0 && slot < FACTS_SLOTS_MAX &&
	    fact_wins(&facts->slots[slot].paused_at, pos))
		facts->slots[slot].paused = paused;
}

/* Writes [{id,name}] from an array whose items name them by @id_key and "name". Options
 * of a select may be grouped: {group,name,options:[…]}. */
static void write_choices(struct buf *out, struct slice items, const char *id_key,
			  unsigned *count)
{
	struct slice rest = items, item;

	while (acp_next(&rest, &item) && *count < CHOICES_MAX) {
		const struct slice inner = acp_get(item, "options");
		const struct slice id = acp_get_string(item, id_key);
		const struct slice name = acp_get_string(item, "name");

		if (acp_is_array(inner) && !id.ptr) {
			struct slice grouped = inner, option;

			while (acp_next(&grouped, &option) && *count < CHOICES_MAX) {
				const struct slice value = acp_get_string(option, id_key);
				const struct slice words = acp_get_string(option, "name");

				if (!value.ptr)
					continue;
				(void)buf_printf(out, "%s{\"id\":\"",
						 (*count)++ ? "," : "");
				(void)json_write_raw(out, value);
				(void)buf_lit(out, "\",\"name\":\"");
				(void)json_write_raw(out, words.ptr ? words : value);
				(void)buf_lit(out, "\"}");
			}
			continue;
		}
		if (!id.ptr)
			continue;
		(void)buf_printf(out, "%s{\"id\":\"", (*count)++ ? "," : "");
		(void)json_write_raw(out, id);
		(void)buf_lit(out, "\",\"name\":\"");
		(void)json_write_raw(out, name.ptr ? name : id);
		(void)buf_lit(out, "\"}");
	}
}

static void set_choice(struct choice_facts *choice, const struct pos *pos,
		       struct slice current, struct slice available, const char *id_key)
{
	unsigned count = 0;

	if (current.ptr && fact_wins(&choice->current_at, pos))
		acp_set_text(&choice->current, current, ROW_SHORT_MAX);
	if (!acp_is_array(available) || !fact_wins(&choice->available_at, pos))
		return;
	buf_clear(&choice->available);
	choice->available.max = available.len * 2 + CHOICES_MAX * 32;
	(void)buf_lit(&choice->available, "[");
	write_choices(&choice->available, available, id_key, &count);
	(void)buf_lit(&choice->available, "]");
	if (!buf_ok(&choice->available))
		buf_clear(&choice->available);
}

void choices_update(struct lane_facts *facts, const struct pos *pos, struct slice object)
{
	const struct slice modes = acp_get(object, "modes"),
			   models = acp_get(object, "models");
	struct slice rest = acp_get(object, "configOptions"), option;

	if (modes.ptr)
		set_choice(&facts->modes, pos, acp_get_string(modes, "currentModeId"),
			   acp_get(modes, "availableModes"), "id");
	if (models.ptr)
		set_choice(&facts->models, pos, acp_get_string(models, "currentModelId"),
			   acp_get(models, "availableModels"), "modelId");
	/* Where both are there, config options are the newer word. */
	while (acp_next(&rest, &option)) {
		const struct slice category = acp_get_string(option, "category");
		struct choice_facts *choice = NULL;

		if (json_is(category, SLICE("mode")))
			choice = &facts->modes;
		else if (json_is(category, SLICE("model")))
			choice = &facts->models;
		if (choice)
			set_choice(choice, pos, acp_get_string(option, "currentValue"),
				   acp_get(option, "options"), "value");
	}
}
