#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "observer/acp.h"
#include "observer/model_part.h"

/* What the model tells the values. */

#define COST_MAX 1e9 /* more is no cost */

struct values *model_values(struct model *model)
{
	return &model->values;
}

struct value_lane *values_of(struct model *model, const struct lane *lane)
{
	struct buf id = {.max = sizeof(lane->agent->hex) + lane->channel.len + 1};
	struct value_lane *found;

	/* As struct span_lane has it. */
	(void)buf_printf(&id, "%s/", lane->agent->hex);
	(void)buf_append(&id, buf_slice(&lane->channel));
	found = values_lane(&model->values, buf_slice(&id));
	buf_finish(&id);
	return found;
}

/* {"amount":1.92,…} in thousandths; -1: it is none. */
static int64_t cost_of(const struct buf *cost)
{
	const struct slice text = acp_get(buf_slice(cost), "amount");
	char number[32];
	double amount;
	char *end;

	if (!text.len || text.len >= sizeof(number))
		return -1;
	memcpy(number, text.ptr, text.len);
	number[text.len] = '\0';
	amount = strtod(number, &end);
	if (*end || !(amount >= 0) || amount > COST_MAX)
		return -1;
	return (int64_t)llround(amount * 1000);
}

static int64_t tokens_of(const struct lane_facts *facts)
{
	return facts->used >= 0 ? facts->used : facts->input;
}

static void tell(struct values *values, struct value_lane *lane, enum value_kind kind,
		 int64_t t, int64_t level, int64_t *told)
{
	if (level < 0 || level == *told)
		return;
	values_set(values, lane, kind, t, (uint64_t)level);
	*told = level;
}

void model_tell_values(struct values *values, struct value_lane *lane,
		       struct value_told *told, const struct lane_facts *facts,
		       const struct observer_event *event, int64_t unix_ms)
{
	if (!lane || unix_ms <= 0)
		return;
	values_count(values, lane, VALUE_BYTES, unix_ms, event->payload.len);
	tell(values, lane, VALUE_TOKENS, unix_ms, tokens_of(facts), &told->tokens);
	tell(values, lane, VALUE_COST, unix_ms, cost_of(&facts->cost), &told->cost);
}

void lane_values(struct model *model, struct lane *lane,
		 const struct observer_event *event, int64_t unix_ms)
{
	model_tell_values(&model->values, lane->values, &lane->told, &lane->facts, event,
			  unix_ms);
}
