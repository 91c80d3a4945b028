#include "agent/peer.h"

#include "agent/failure.h"
#include "agent/lookup.h"
#include "agent/report.h"
#include "agent/session.h"
#include "agent/turns_part.h"
#include "wire/nostr/json.h"

/* Text of authMethods that is kept; our choice. */
#define AUTH_METHODS_MAX (64u << 10)

void peer_init(struct peer *peer, struct turns *turns, int slot,
	       const struct asks_options *asks)
{
	*peer = (struct peer){.turns = turns, .slot = slot};
	peer->asks = asks_create(asks);
	buf_init(&peer->auth_methods, AUTH_METHODS_MAX);
}

void peer_finish(struct peer *peer)
{
	asks_destroy(peer->asks);
	buf_finish(&peer->auth_methods);
}

/* The next channel of @peer from @index on, which then stands behind it. */
static struct channel *next_channel(struct peer *peer, size_t *index)
{
	struct turns *turns = peer->turns;

	while (*index < turns->channel_count) {
		struct channel *channel = &turns->channels[(*index)++];

		if (channel->slot == peer->slot)
			return channel;
	}
	return NULL;
}

/* --- Life --- */

void peer_connected(struct peer *peer, struct acp *acp)
{
	peer->acp = acp;
	asks_set_acp(peer->asks, acp);
}

static bool is_object(struct slice value)
{
	return value.len > 0 && value.ptr[0] == '{';
}

static void take_capabilities(struct peer *peer, struct slice result)
{
	struct slice offers = lookup(result, SLICE("agentCapabilities"));
	struct slice sessions = lookup(offers, SLICE("sessionCapabilities"));

	peer->can_load = slice_eq(lookup(offers, SLICE("loadSession")), SLICE("true"));
	peer->can_resume = is_object(lookup(sessions, SLICE("resume")));
	peer->can_list = is_object(lookup(sessions, SLICE("list")));
	peer->can_close = is_object(lookup(sessions, SLICE("close")));
	buf_clear(&peer->auth_methods);
	(void)buf_append(&peer->auth_methods, lookup(result, SLICE("authMethods")));
}

/* Starts what waits in a channel that was given to an agent that may be ready. */
static void go_on(struct turns *turns, struct channel *channel)
{
	/* The default channel's session is opened at once, so that modes and models are
	 * known, and those that an earlier process had. */
	if (channel == &turns->channels[0] || channel->previous.len > 0)
		session_want(turns, channel);
	turn_pump(turns, channel);
}

void peer_ready(struct peer *peer, struct slice result)
{
	struct turns *turns = peer->turns;

	take_capabilities(peer, result);
	peer->ready = true;
	peer->down = false;
	for (size_t i = 0; i < turns->channel_count; i++) {
		struct channel *channel = &turns->channels[i];
		/* It had nowhere to go when all were down. */
		bool stranded = turns_peer_of(turns, channel)->down;

		if (stranded)
			turns_place(turns, channel);
		if (stranded || channel->slot == peer->slot)
			go_on(turns, channel);
	}
}

void peer_stopping(struct peer *peer, bool close)
{
	struct channel *channel;
	size_t i = 0;

	peer->ready = false;
	while ((channel = next_channel(peer, &i))) {
		if (channel->turn)
			turn_cancel(peer->turns, channel, "exit");
	}
	if (close)
		session_close_all(peer);
}

void peer_gone(struct peer *peer, const char *reason)
{
	struct acp *acp = peer->acp;
	struct channel *channel;
	size_t i = 0;

	peer->ready = false;
	peer->gone_reason = reason;
	asks_set_acp(peer->asks, NULL);
	acp_close(acp); /* ends every turn that waits for some answer */
	peer->acp = NULL;
	peer->closing = 0;
	while ((channel = next_channel(peer, &i))) {
		if (channel->turn) { /* it stood in line for a session */
			failure_text(peer->turns, channel, "exit", reason);
			turn_end(peer->turns, channel, SLICE_EMPTY, "exit");
		}
		channel_lose_session(channel);
	}
}

void peer_down(struct peer *peer)
{
	struct turns *turns = peer->turns;
	struct channel *channel;
	size_t i = 0;

	peer->down = true;
	while ((channel = next_channel(peer, &i))) {
		turns_place(turns, channel);
		if (channel->slot == peer->slot)
			return; /* none is better off */
		go_on(turns, channel);
	}
}

/* --- Lines --- */

/* The channel whose session a line names. A stranger's is that of the one that is being
 * opened: agents speak before they answer session/new. */
static struct channel *find_session(struct peer *peer, struct slice session)
{
	struct channel *channel;
	size_t i = 0;

	if (!session.ptr)
		return NULL;
	while ((channel = next_channel(peer, &i))) {
		if (channel->state == SESSION_OPEN &&
		    json_is(session, buf_slice(&channel->session)))
			return channel;
	}
	return peer->opening;
}

static bool is_permission(const struct acp_line *line)
{
	return line->shape == ACP_REQUEST &&
	       json_is(line->method, SLICE("session/request_permission"));
}

void peer_read(struct peer *peer, const struct acp_line *line, const struct acp_line *raw,
	       size_t bytes, void *route, const struct feed_context *elsewhere)
{
	struct sender *sender = peer->turns->options.sender;
	struct channel *channel = route ? route : find_session(peer, line->session);
	struct feed_context context = channel ? report_context(channel) : *elsewhere;

	if (channel && channel->turn && line->shape != ACP_BROKEN)
		turn_note_frame(peer->turns, channel);
	if (channel && session_is_replay(channel, line))
		return;
	if (is_permission(line))
		asks_read(peer->asks, line, raw, bytes, channel, &context);
	else
		(void)feed_line(sender_feed(sender), sender_time(sender), &context,
				FEED_READ, raw, bytes, SLICE_EMPTY, NULL);
	sender_kick(sender);
}

static void request_permission(struct peer *peer, const struct acp_line *line,
			       struct channel *channel)
{
	struct turn *turn = channel ? channel->turn : NULL;
	enum asks_ground ground = ASKS_NO_TURN;
	int64_t left_ms = 0;

	if (turn && turn->phase == TURN_RUNNING) {
		ground = turn->cancelled_by ? ASKS_CANCELLED : ASKS_TURN;
		left_ms = turn_clock_left(&turn->clock, loop_now_ms());
	}
	asks_request(peer->asks, line, ground, left_ms);
}

void peer_request(struct peer *peer, const struct acp_line *line)
{
	struct channel *channel = find_session(peer, line->session);

	if (is_permission(line)) {
		request_permission(peer, line, channel);
		return;
	}
	if (asks_is_pending(peer->asks, line->id))
		return; /* any answer would settle the permission instead */
	if (json_is(line->method, SLICE("elicitation/create"))) {
		/* We never said that we could ask a person, and there is no form here to
		 * fill in: the owner sees it, the agent hears a no and goes on. */
		acp_reply(peer->acp, line->id, SLICE("{\"action\":\"decline\"}"), channel,
			  SLICE_EMPTY, NULL, NULL);
		return;
	}
	/* Silence would hang the agent: what is not known is refused. */
	acp_refuse(peer->acp, line->id, ACP_METHOD_NOT_FOUND, "method not found",
		   channel);
}

static void note_update(struct peer *peer, const struct acp_line *line)
{
	struct channel *channel = find_session(peer, line->session);
	/* Of text there is nothing to keep, and most lines are. */
	struct slice update =
		line->chunk.ptr ? SLICE_EMPTY : lookup(line->params, SLICE("update"));

	if (!channel)
		return;
	turn_note_update(peer->turns, channel, line->update, update);
	channel_take_update(channel, update);
}

void peer_notification(struct peer *peer, const struct acp_line *line)
{
	if (json_is(line->method, SLICE("session/update")) && line->update.len > 0)
		note_update(peer, line);
	else if (json_is(line->method, SLICE("$/cancel_request")))
		asks_withdraw(peer->asks, lookup(line->params, SLICE("requestId")));
}
