#include "agent/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agent/failure.h"
#include "agent/lookup.h"
#include "agent/report.h"
#include "agent/turns_part.h"
#include "wire/host/log.h"
#include "wire/nostr/json.h"

/* Of session/close; an agent that is to stop gets less (slot.c). */
#define CLOSE_TIMEOUT_MS 30000

/* --- What is said --- */

enum told {
	TOLD_AGAIN,   /* the session of the turn before */
	TOLD_NEW,     /* a new one */
	TOLD_RESUMED, /* an earlier one, in this process for the first time */
};

static void report(struct turns *turns, const struct channel *channel, enum told told)
{
	struct feed_context context = report_context(channel);
	struct buf payload;

	report_begin(&payload);
	(void)json_write_member_string(&payload, SLICE("sessionId"),
				       buf_slice(&channel->session));
	(void)json_write_member_bool(&payload, SLICE("isNew"), told == TOLD_NEW);
	if (told == TOLD_RESUMED) {
		(void)json_write_member_bool(&payload, SLICE("resumed"), true);
		(void)json_write_member_int(&payload, SLICE("replayed"),
					    (int64_t)channel->replayed);
	}
	if (told != TOLD_AGAIN)
		channel_write_offers(channel, &payload, 4 * CHANNEL_OFFER_MAX);
	if (channel->title.len)
		(void)buf_printf(&payload, ",\"title\":\"%.*s\"",
				 SLICE_ARG(buf_slice(&channel->title)));
	report_end(turns->options.sender, &context, "session_resolved", &payload);
}

void session_report(struct turns *turns, const struct channel *channel)
{
	report(turns, channel, TOLD_AGAIN);
}

static void report_not_resumed(struct turns *turns, const struct channel *channel,
			       const struct acp_answer *answer)
{
	struct feed_context context = report_context(channel);
	struct buf text;

	buf_init(&text, 4096);
	(void)buf_lit(&text, "The earlier session could not be resumed (");
	if (answer->message.ptr)
		(void)json_unescape(slice_sub(answer->message, 0, 512), &text);
	else
		(void)buf_append(&text, answer->failure == ACP_TIMED_OUT
						? SLICE("no answer")
						: SLICE("no reason given"));
	(void)buf_lit(&text, "): a new one begins");
	report_note(turns->options.sender, &context, "warn", buf_slice(&text));
	log_warn("agent", "%s", buf_text(&text));
	buf_finish(&text);
}

/* --- The ways to open one --- */

static void open_it(struct turns *turns, struct channel *channel);

/* It is open, or will not be: the channel goes on, and the next one has its turn. */
static void opened(struct turns *turns, struct channel *channel)
{
	struct peer *peer = turns_peer_of(turns, channel);

	peer->opening = NULL;
	if (channel->turn && channel->state == SESSION_OPEN)
		turn_go_on(turns, channel);
	else
		turn_pump(turns, channel);
	session_next(peer);
}

static void tell_of_it(struct turns *turns, const struct channel *channel, enum told told)
{
	report(turns, channel, told);
	if (turns->options.events->on_session)
		turns->options.events->on_session(turns->options.ctx, channel);
}

static void on_new_answer(void *ctx, const struct acp_answer *answer)
{
	struct step *step = ctx;
	struct turns *turns = step->turns;
	struct channel *channel = step->channel;

	free(step);
	channel->state = SESSION_NONE;
	if (answer->ok && channel_open_session(channel, answer->result)) {
		tell_of_it(turns, channel, TOLD_NEW);
		opened(turns, channel);
		return;
	}
	if (answer->failure != ACP_GONE || channel->turn)
		failure_answer(turns, channel, answer, "session/new");
	if (channel->turn)
		turn_end(turns, channel, SLICE_EMPTY,
			 answer->failure == ACP_GONE ? "exit" : NULL);
	opened(turns, channel);
}

static void on_resume_answer(void *ctx, const struct acp_answer *answer)
{
	struct step *step = ctx;
	struct turns *turns = step->turns;
	struct channel *channel = step->channel;

	if (answer->ok) {
		free(step);
		channel_reopen_session(channel, answer->result);
		tell_of_it(turns, channel, TOLD_RESUMED);
		opened(turns, channel);
		return;
	}
	/* What killed the agent may well be this session: it is not tried again. */
	buf_clear(&channel->previous);
	channel->loading = false;
	if (answer->failure == ACP_GONE) {
		on_new_answer(step, answer);
		return;
	}
	free(step);
	report_not_resumed(turns, channel, answer);
	open_it(turns, channel);
}

/* The newest session of our folder; empty when there is none. */
static struct slice find_newest(struct slice result, const char *cwd)
{
	struct slice item, best = SLICE_EMPTY, best_time = SLICE_EMPTY;
	struct json json;

	json_init(&json, lookup(result, SLICE("sessions")));
	if (json_peek(&json) != JSON_ARRAY || !json_enter_array(&json))
		return SLICE_EMPTY;
	while (json_element(&json) && json_skip(&json, &item)) {
		/* ISO 8601 in UTC compares as text. */
		struct slice time = lookup_string(item, SLICE("updatedAt"));
		size_t len = time.len < best_time.len ? time.len : best_time.len;

		if (!lookup_is(item, SLICE("cwd"), slice_of(cwd)) ||
		    !lookup_string(item, SLICE("sessionId")).len)
			continue;
		if (best.len && (!len || memcmp(time.ptr, best_time.ptr, len) <= 0))
			continue;
		best = item;
		best_time = time;
	}
	return lookup_string(best, SLICE("sessionId"));
}

static void on_list_answer(void *ctx, const struct acp_answer *answer)
{
	struct step *step = ctx;
	struct turns *turns = step->turns;
	struct channel *channel = step->channel;
	struct slice id;

	if (answer->failure == ACP_GONE) {
		on_new_answer(step, answer);
		return;
	}
	free(step);
	id = find_newest(answer->result, turns->options.cwd);
	if (id.len && !json_unescape(id, &channel->previous))
		buf_clear(&channel->previous);
	open_it(turns, channel);
}

/* The members that session/new, load and resume share. */
static void write_params(const struct turns *turns, struct buf *params)
{
	(void)json_write_member_string(params, SLICE("cwd"),
				       slice_of(turns->options.cwd));
	(void)json_write_member_raw(params, SLICE("mcpServers"), SLICE("[]"));
}

static void open_it(struct turns *turns, struct channel *channel)
{
	struct peer *peer = turns_peer_of(turns, channel);
	acp_on_answer *on_answer = on_new_answer;
	const char *method = "session/new";
	struct buf params;

	report_begin(&params);
	if (channel->previous.len > 0 && (peer->can_resume || peer->can_load)) {
		/* Without its history, where there is a choice: it is known. */
		channel->loading = !peer->can_resume;
		channel->replayed = 0;
		method = channel->loading ? "session/load" : "session/resume";
		on_answer = on_resume_answer;
		(void)json_write_member_string(&params, SLICE("sessionId"),
					       buf_slice(&channel->previous));
		write_params(turns, &params);
	} else if (channel->look_for_one && peer->can_list &&
		   (peer->can_resume || peer->can_load)) {
		channel->look_for_one = false;
		method = "session/list";
		on_answer = on_list_answer;
		(void)json_write_member_string(&params, SLICE("cwd"),
					       slice_of(turns->options.cwd));
	} else {
		write_params(turns, &params);
	}
	(void)buf_lit(&params, "}");
	acp_call(peer->acp, method, buf_slice(&params), channel,
		 (uint64_t)turns->options.session_ms, on_answer,
		 step_create(turns, channel));
	buf_finish(&params);
}

void session_next(struct peer *peer)
{
	struct turns *turns = peer->turns;

	for (size_t i = 0; i < turns->channel_count; i++) {
		struct channel *channel = &turns->channels[i];

		if (peer->opening || !peer->ready)
			return;
		if (!channel->wants_session || channel->slot != peer->slot)
			continue;
		channel->wants_session = false;
		if (channel->state != SESSION_NONE)
			continue;
		channel->state = SESSION_OPENING;
		peer->opening = channel;
		open_it(turns, channel);
	}
}

void session_want(struct turns *turns, struct channel *channel)
{
	channel->wants_session = true;
	session_next(turns_peer_of(turns, channel));
}

/* --- Their end --- */

static void on_close_answer(void *ctx, const struct acp_answer *answer)
{
	struct peer *peer = ctx;

	if (answer->failure != ACP_GONE && peer->closing > 0)
		peer->closing--;
}

void session_close_all(struct peer *peer)
{
	struct turns *turns = peer->turns;
	struct buf params;

	if (!peer->can_close)
		return;
	for (size_t i = 0; i < turns->channel_count; i++) {
		struct channel *channel = &turns->channels[i];

		if (channel->slot != peer->slot || channel->state != SESSION_OPEN)
			continue;
		report_begin(&params);
		(void)json_write_member_string(&params, SLICE("sessionId"),
					       buf_slice(&channel->session));
		(void)buf_lit(&params, "}");
		peer->closing++;
		acp_call(peer->acp, "session/close", buf_slice(&params), channel,
			 CLOSE_TIMEOUT_MS, on_close_answer, peer);
		buf_finish(&params);
	}
}

/* --- Lines --- */

bool session_is_replay(struct channel *channel, const struct acp_line *line)
{
	if (!channel->loading || channel->state != SESSION_OPENING ||
	    line->shape != ACP_NOTIFICATION ||
	    !json_is(line->method, SLICE("session/update")) ||
	    !json_is(line->session, buf_slice(&channel->previous)))
		return false;
	channel->replayed++;
	return channel->previous_shown;
}
