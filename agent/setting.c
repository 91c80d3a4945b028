#include <stdlib.h>

#include "agent/turns_part.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

/* A set_mode or switch_model on its way. */
struct setting {
	struct channel *channel;
	bool is_mode;     /* else a model */
	struct buf value; /* plain */
	turns_on_set *on_set;
	void *ctx;
};

static void on_setting_answer(void *ctx, const struct acp_answer *answer)
{
	struct setting *setting = ctx;
	struct channel *channel = setting->channel;
	struct slice value = buf_slice(&setting->value);
	bool ok = answer->ok;
	struct buf detail;

	buf_init(&detail, 1024);
	if (ok) {
		/* Some agents say yes and change nothing. */
		ok = setting->is_mode
			     ? channel_take_mode(channel, value, answer->result)
			     : channel_take_model(channel, value, answer->result);
		if (!ok)
			(void)buf_lit(&detail,
				      "the agent agreed, and lists the old one still");
	} else if (answer->message.ptr) {
		(void)json_unescape(slice_sub(answer->message, 0, 512), &detail);
	} else {
		(void)buf_append(&detail, answer->failure == ACP_TIMED_OUT
						  ? SLICE("the agent did not answer")
						  : SLICE("the agent is gone"));
	}
	setting->on_set(setting->ctx, ok, buf_text(&detail));
	buf_finish(&detail);
	buf_finish(&setting->value);
	free(setting);
}

static struct setting *setting_create(struct channel *channel, bool is_mode,
				      struct slice value, turns_on_set *on_set, void *ctx)
{
	struct setting *setting = mem_alloc(sizeof(*setting));

	*setting = (struct setting){
		.channel = channel, .is_mode = is_mode, .on_set = on_set, .ctx = ctx};
	buf_init(&setting->value, value.len);
	(void)buf_append(&setting->value, value);
	return setting;
}

bool turns_set_mode(struct turns *turns, struct channel *channel, struct slice mode,
		    turns_on_set *on_set, void *ctx)
{
	struct peer *peer = turns_peer_of(turns, channel);
	const char *method = NULL;
	struct buf params;

	buf_init(&params, 64u << 10);
	if (peer->acp && channel->state == SESSION_OPEN)
		method = channel_mode_request(channel, mode, &params);
	if (method)
		acp_call(peer->acp, method, buf_slice(&params), channel,
			 TURNS_SET_TIMEOUT_MS, on_setting_answer,
			 setting_create(channel, true, mode, on_set, ctx));
	buf_finish(&params);
	return method != NULL;
}

const char *turns_switch_model(struct turns *turns, struct channel *channel,
			       struct slice model, turns_on_set *on_set, void *ctx)
{
	struct peer *peer = turns_peer_of(turns, channel);
	const char *method, *status = NULL;
	struct turn *turn = channel->turn;
	struct buf params;

	if (!peer->acp || channel->state != SESSION_OPEN)
		return "no_active_turn";
	if (turn && turn->cancelled_by)
		return "turn_ending";
	buf_init(&params, 64u << 10);
	method = channel_model_request(channel, model, &params);
	if (!method) {
		status = "unsupported_model";
	} else if (turn) {
		/* NIP-AO: a busy turn is cancelled and runs again with the new model. */
		buf_clear(&channel->next_model);
		(void)buf_append(&channel->next_model, model);
		turn->requeue = true;
		turn_cancel(turns, channel, "owner");
		status = "sent";
	} else {
		acp_call(peer->acp, method, buf_slice(&params), channel,
			 TURNS_SET_TIMEOUT_MS, on_setting_answer,
			 setting_create(channel, false, model, on_set, ctx));
	}
	buf_finish(&params);
	return status;
}
