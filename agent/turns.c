#include "agent/turns.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/report.h"
#include "agent/session.h"
#include "agent/turns_part.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

/* The timer came so much too late that we must have been stopped, or the machine asleep;
 * our choice, above what a loaded machine does. */
#define STOPPED_MS 1000

struct step *step_create(struct turns *turns, struct channel *channel)
{
	struct step *step = mem_alloc(sizeof(*step));

	*step = (struct step){turns, channel, channel->turn ? channel->turn->serial : 0};
	return step;
}

struct turn *step_turn(const struct step *step)
{
	struct turn *turn = step->channel->turn;

	return turn && turn->serial == step->serial ? turn : NULL;
}

/* --- Slots --- */

struct peer *turns_peer(struct turns *turns, int slot)
{
	assert(slot >= 0 && (size_t)slot < turns->peer_count);
	return &turns->peers[slot];
}

struct peer *turns_peer_of(struct turns *turns, const struct channel *channel)
{
	return turns_peer(turns, channel->slot);
}

static size_t channels_of(const struct turns *turns, int slot)
{
	size_t count = 0;

	for (size_t i = 0; i < turns->channel_count; i++)
		count += turns->channels[i].slot == slot;
	return count;
}

void turns_place(struct turns *turns, struct channel *channel)
{
	size_t fewest = SIZE_MAX;
	int best = channel->slot < 0 ? 0 : channel->slot;

	channel->slot = -1;
	for (size_t i = 0; i < turns->peer_count; i++) {
		size_t count = channels_of(turns, (int)i);

		if (turns->peers[i].down || count >= fewest)
			continue;
		fewest = count;
		best = (int)i;
	}
	channel->slot = best;
}

/* --- The clock --- */

void turns_arm(struct turns *turns)
{
	int64_t next_ms = INT64_MAX, now_ms = loop_now_ms();

	for (size_t i = 0; i < turns->channel_count; i++) {
		const struct turn *turn = turns->channels[i].turn;

		if (turn && turn_clock_next(&turn->clock) < next_ms)
			next_ms = turn_clock_next(&turn->clock);
	}
	turns->due_ms = next_ms;
	if (next_ms == INT64_MAX)
		timer_stop(turns->timer);
	else
		timer_start(turns->timer,
			    next_ms > now_ms ? (uint64_t)(next_ms - now_ms) : 0);
}

void turns_look_busy(struct turns *turns, struct channel *channel)
{
	struct turn *turn = channel->turn;
	bool asks;

	if (!turn)
		return;
	asks = asks_pending(turns_asks(turns, channel), channel) > 0;
	if (turn->clock.asks && !asks) /* until now it was not its turn to speak */
		turn->clock.heard_ms = loop_now_ms();
	turn->clock.asks = asks;
	turn->clock.busy = turn->tools.count > 0 || asks;
	turns_arm(turns);
}

static void on_asks_change(void *ctx, struct channel *channel)
{
	turns_look_busy(ctx, channel);
}

/* Silence while nobody could listen is none: what came meanwhile lies in the pipe. */
static void forgive_sleep(struct turns *turns, int64_t now_ms)
{
	if (turns->due_ms == INT64_MAX || now_ms - turns->due_ms < STOPPED_MS)
		return;
	for (size_t i = 0; i < turns->channel_count; i++) {
		if (turns->channels[i].turn)
			turn_clock_slept(&turns->channels[i].turn->clock, now_ms);
	}
}

static void on_timer(void *ctx)
{
	struct turns *turns = ctx;
	int64_t now_ms = loop_now_ms();

	forgive_sleep(turns, now_ms);
	for (size_t i = 0; i < turns->channel_count; i++)
		turn_look(turns, &turns->channels[i], now_ms);
	turns_arm(turns);
}

/* --- Life --- */

struct turns *turns_create(const struct turns_options *options)
{
	struct turns *turns = mem_alloc(sizeof(*turns));
	struct asks_options asks = {
		.loop = options->loop,
		.sender = options->sender,
		.rules = options->rules,
		.timeout_ms = options->permission_ms,
		.on_change = on_asks_change,
		.ctx = turns,
	};

	assert(options->slots > 0 && options->slots <= TURNS_SLOTS_MAX);
	turns->options = *options;
	turns->due_ms = INT64_MAX;
	turns->timer = timer_create_on(options->loop, on_timer, turns);
	turns->peer_count = (size_t)options->slots;
	for (int i = 0; i < options->slots; i++)
		peer_init(&turns->peers[i], turns, i, &asks);
	return turns;
}

void turns_destroy(struct turns *turns)
{
	if (!turns)
		return;
	for (size_t i = 0; i < turns->channel_count; i++) {
		turn_drop(&turns->channels[i]);
		channel_finish(&turns->channels[i]);
	}
	for (size_t i = 0; i < turns->peer_count; i++)
		peer_finish(&turns->peers[i]);
	timer_destroy(turns->timer);
	free(turns);
}

struct channel *turns_add_channel(struct turns *turns, const char *name,
				  const struct uuid *uuid)
{
	struct channel *channel = &turns->channels[turns->channel_count];

	assert(turns->channel_count < CHANNELS_MAX);
	channel_init(channel, name, uuid);
	turns_place(turns, channel);
	turns->channel_count++;
	return channel;
}

struct channel *turns_channel(struct turns *turns, struct slice text)
{
	struct uuid uuid;

	if (!uuid_parse(text, &uuid))
		return NULL;
	for (size_t i = 0; i < turns->channel_count; i++) {
		if (slice_eq(uuid_slice(&turns->channels[i].uuid), uuid_slice(&uuid)))
			return &turns->channels[i];
	}
	return NULL;
}

struct channel *turns_channel_at(struct turns *turns, size_t index)
{
	return index < turns->channel_count ? &turns->channels[index] : NULL;
}

struct asks *turns_asks(struct turns *turns, const struct channel *channel)
{
	return turns_peer_of(turns, channel)->asks;
}

struct slice turns_body(struct turns *turns, uint64_t seq, struct channel **channel_out)
{
	struct slice body = SLICE_EMPTY;

	for (size_t i = 0; i < turns->peer_count && body.len == 0; i++)
		body = asks_body(turns->peers[i].asks, seq, channel_out);
	return body;
}

/* --- What the owner asks --- */

enum turns_prompted turns_prompt(struct turns *turns, struct channel *channel,
				 struct slice content, struct slice request_id,
				 const char *source, size_t *position_out)
{
	struct prompt *prompt;

	if (channel->prompt_count >= CHANNEL_PROMPTS_MAX)
		return PROMPT_BUSY;
	prompt = prompt_create(content, request_id, source, loop_now_ms());
	report_uuid(prompt->id);
	channel->held = false;
	channel_push(channel, prompt);
	turn_pump(turns, channel);
	if (channel->turn && channel->turn->prompt == prompt)
		return PROMPT_STARTED;
	*position_out = channel->prompt_count;
	return PROMPT_QUEUED;
}

bool turns_cancel(struct turns *turns, struct channel *channel)
{
	if (channel->turn || channel->first)
		channel->held = true;
	if (!channel->turn)
		return false;
	channel->turn->requeue = false;
	turn_cancel(turns, channel, "owner");
	return true;
}

void turns_release(struct turns *turns, struct channel *channel)
{
	channel->held = false;
	turn_pump(turns, channel);
}

bool turns_idle(const struct turns *turns)
{
	for (size_t i = 0; i < turns->channel_count; i++) {
		const struct channel *channel = &turns->channels[i];

		if (channel->turn || (channel->first && !channel->held))
			return false;
	}
	return true;
}
