#include "agent/gate.h"

#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"

/* After so many refused as `rate_limited` in one second, silence: the sender's seconds.
 */
#define GATE_FLOOD (2 * CONTROL_PER_S)

/* A key in the order of arrival. */
struct gate_order {
	char *key;
	size_t len;
};

/* An answer that is remembered; len 0: not known yet, or no longer. */
struct remembered {
	size_t len;
	bool forgotten;
	char text[];
};

static const char *const level_names[] = {
	[CONTROL_LEVEL_NONE] = "none",
	[CONTROL_LEVEL_APPROVE] = "approve",
	[CONTROL_LEVEL_FULL] = "full",
};

bool control_level_parse(const char *text, enum control_level *out, struct err *err)
{
	for (size_t i = 0; i < sizeof(level_names) / sizeof(*level_names); i++) {
		if (strcmp(text, level_names[i]) == 0) {
			*out = (enum control_level)i;
			return true;
		}
	}
	return err_set(err, ERR_MALFORMED,
		       "--control is \"%.40s\", want none, approve or full", text);
}

const char *control_level_name(enum control_level level)
{
	return level_names[level];
}

void gate_init(struct gate *gate, enum control_level level, const char epoch[17],
	       int64_t epoch_start_s)
{
	*gate = (struct gate){.level = level, .epoch_start_s = epoch_start_s};
	memcpy(gate->epoch, epoch, sizeof(gate->epoch));
	map_init(&gate->answers);
	gate->order = mem_array(CONTROL_REMEMBERED, sizeof(*gate->order));
}

void gate_finish(struct gate *gate)
{
	struct map_entry *entry = NULL;

	while ((entry = map_next(&gate->answers, entry)))
		free(entry->value);
	map_finish(&gate->answers);
	for (size_t i = 0; i < CONTROL_REMEMBERED; i++)
		free(gate->order[i].key);
	free(gate->order);
}

struct slice gate_key(const struct control *control, const uint8_t event_id[32])
{
	if (control->request_id.len > 0)
		return control->request_id;
	return (struct slice){(const char *)event_id, 32};
}

static void forget_oldest(struct gate *gate)
{
	struct gate_order *oldest = &gate->order[gate->order_at];
	struct remembered *entry =
		map_take(&gate->answers, (struct slice){oldest->key, oldest->len});

	gate->answer_bytes -= entry->len;
	free(entry);
	free(oldest->key);
	*oldest = (struct gate_order){0};
	gate->order_at = (gate->order_at + 1) % CONTROL_REMEMBERED;
	gate->order_count--;
	if (gate->forgotten)
		gate->forgotten--;
}

/* Of the oldest only the keys stay, until the answers are within their bound. */
static void forget_answers(struct gate *gate)
{
	while (gate->answer_bytes > CONTROL_ANSWERS_MAX) {
		const size_t at = gate->order_at + gate->forgotten++;
		const struct gate_order *order = &gate->order[at % CONTROL_REMEMBERED];
		struct remembered *entry = mem_alloc(sizeof(*entry)), *before;

		entry->forgotten = true;
		before = map_put(&gate->answers, (struct slice){order->key, order->len},
				 entry);
		gate->answer_bytes -= before->len;
		free(before);
	}
}

/* Replaces what is known under @key by @payload (empty: in progress). */
static void remember(struct gate *gate, struct slice key, struct slice payload)
{
	struct remembered *entry = mem_alloc(sizeof(*entry) + payload.len);
	struct remembered *before;
	size_t at;

	entry->len = payload.len;
	if (payload.len)
		memcpy(entry->text, payload.ptr, payload.len);
	gate->answer_bytes += payload.len;
	before = map_put(&gate->answers, key, entry);
	if (before) {
		gate->answer_bytes -= before->len;
		free(before);
		forget_answers(gate);
		return;
	}
	if (gate->order_count == CONTROL_REMEMBERED)
		forget_oldest(gate);
	at = (gate->order_at + gate->order_count++) % CONTROL_REMEMBERED;
	gate->order[at] = (struct gate_order){mem_dup(key), key.len};
	forget_answers(gate);
}

void gate_answered(struct gate *gate, struct slice key, struct slice payload)
{
	const struct remembered *known = map_get(&gate->answers, key);

	if (!known || !known->forgotten)
		remember(gate, key, payload);
}

static enum control_level level_of(enum control_type type)
{
	switch (type) {
	case CONTROL_FEED_SYNC:
	case CONTROL_FETCH_BODY:
	case CONTROL_UNKNOWN:
		return CONTROL_LEVEL_NONE;
	case CONTROL_PERMISSION_DECISION:
	case CONTROL_CANCEL_TURN:
		return CONTROL_LEVEL_APPROVE;
	case CONTROL_SWITCH_MODEL:
	case CONTROL_PROMPT:
	case CONTROL_RELEASE_QUEUE:
	case CONTROL_SET_MODE:
		break;
	}
	return CONTROL_LEVEL_FULL;
}

/* Ours carry epoch and expires; what comes without them (another kind of owner's client)
 * must at least be younger than this epoch. */
static const char *check_time(const struct gate *gate, const struct gate_control *in)
{
	const struct control *control = in->control;

	if (control->has_epoch && strcmp(control->epoch, gate->epoch) != 0)
		return "wrong_epoch";
	if (control->expires != 0 && in->now_s > control->expires + CONTROL_TOLERANCE_S)
		return "expired";
	if (!control->has_epoch &&
	    in->created_at < gate->epoch_start_s + in->clock_offset_s)
		return "expired";
	return NULL;
}

static bool within_rate(struct gate *gate, int64_t now_s)
{
	if (now_s != gate->second) {
		gate->second = now_s;
		gate->in_second = 0;
	}
	if (gate->in_second < GATE_FLOOD + 1)
		gate->in_second++;
	return gate->in_second <= CONTROL_PER_S;
}

enum gate_verdict gate_check(struct gate *gate, const struct gate_control *in,
			     const char **status_out, struct slice *again_out)
{
	const struct control *control = in->control;
	bool reads =
		control->type == CONTROL_FEED_SYNC || control->type == CONTROL_FETCH_BODY;
	struct slice key = gate_key(control, in->event_id);
	const struct remembered *known;

	if (control->type == CONTROL_UNKNOWN && control->request_id.len == 0)
		return GATE_DROP;
	if (!within_rate(gate, in->now_s)) {
		*status_out = "rate_limited";
		return gate->in_second <= GATE_FLOOD ? GATE_ANSWER : GATE_DROP;
	}
	if (in->malformed) {
		*status_out = "malformed";
		return GATE_ANSWER;
	}
	if (reads) /* reading twice harms nobody */
		return GATE_RUN;
	known = map_get(&gate->answers, key);
	if (known && known->forgotten) {
		*status_out = "expired";
		return GATE_ANSWER;
	}
	if (known && known->len == 0)
		return GATE_DROP;
	if (known) {
		*again_out = (struct slice){known->text, known->len};
		return GATE_REPEAT;
	}
	if (control->type == CONTROL_UNKNOWN)
		*status_out = "unsupported";
	else if (level_of(control->type) > gate->level)
		*status_out = "refused";
	else
		*status_out = check_time(gate, in);
	remember(gate, key, SLICE_EMPTY);
	return *status_out ? GATE_ANSWER : GATE_RUN;
}
