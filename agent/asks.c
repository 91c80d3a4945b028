#include "agent/asks.h"

#include <inttypes.h>
#include <stdlib.h>

#include "agent/lookup.h"
#include "agent/report.h"
#include "agent/turns.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"
#include "wire/nostr/json.h"

/* Longest request id that may wait for the owner; our choice. */
#define ID_BYTES_MAX 1024

struct asks {
	struct asks_options options;
	struct permissions permissions;
	struct timer *timer;
	struct acp *acp;
	struct permission *fresh; /* read, not acted on yet */
	struct err fault;         /* why a request could not be read */
	struct log_limit denied;
};

/* An answer on its way. */
struct reply {
	struct asks *asks;
	struct permission *permission;
	bool listed;
};

static void arm(struct asks *asks)
{
	int64_t next_ms = permissions_next_deadline(&asks->permissions);
	int64_t now_ms = loop_now_ms();

	if (next_ms == INT64_MAX)
		timer_stop(asks->timer);
	else
		timer_start(asks->timer,
			    next_ms > now_ms ? (uint64_t)(next_ms - now_ms) : 0);
}

static void changed(struct asks *asks, struct channel *channel)
{
	arm(asks);
	if (channel)
		asks->options.on_change(asks->options.ctx, channel);
}

static void write_authorization(struct buf *out, const struct permission *permission,
				bool actionable, const char *reason)
{
	(void)buf_lit(out, "{");
	(void)json_write_member_string(out, SLICE("requestNonce"),
				       slice_of(permission->nonce));
	(void)json_write_member_bool(out, SLICE("actionable"), actionable);
	if (reason)
		(void)json_write_member_string(out, SLICE("reason"), slice_of(reason));
	(void)buf_lit(out, "}");
}

/* Whether the answer arrived cannot be known: neither it nor a success is shown. */
static void report_uncertain(struct asks *asks, const struct permission *permission)
{
	const struct channel *channel = permission->channel;
	struct feed_context context;
	struct buf authorization;

	if (!channel)
		return;
	context = report_context(channel);
	buf_init(&authorization, 512);
	write_authorization(&authorization, permission, false,
			    permission_reason_name(PERMISSION_UNCERTAIN));
	(void)feed_emit(sender_feed(asks->options.sender),
			sender_time(asks->options.sender), &context,
			SLICE("permission_terminal"), buf_slice(&authorization),
			SLICE("{}"));
	sender_kick(asks->options.sender);
	buf_finish(&authorization);
}

static void on_replied(void *ctx, enum child_written outcome)
{
	struct reply *reply = ctx;
	struct asks *asks = reply->asks;
	struct permission *permission = reply->permission;
	struct channel *channel = permission->channel;

	if (outcome != CHILD_WRITTEN)
		report_uncertain(asks, permission);
	if (reply->listed)
		permissions_remove(&asks->permissions, permission);
	permission_destroy(permission);
	free(reply);
	changed(asks, channel);
}

/* The one answer that @permission gets. @listed: it is in the list. */
static void answer(struct asks *asks, struct permission *permission, bool listed,
		   const struct permission_choice *choice, enum permission_reason reason)
{
	struct reply *reply = mem_alloc(sizeof(*reply));
	struct buf result, authorization;

	*reply = (struct reply){.asks = asks, .permission = permission, .listed = listed};
	permission->state = PERMISSION_WRITING;
	permission->reason = reason;
	buf_init(&result, 64u << 10);
	buf_init(&authorization, 512);
	if (choice->selected) {
		(void)buf_lit(&result,
			      "{\"outcome\":{\"outcome\":\"selected\",\"optionId\":");
		(void)json_write_string(&result, choice->option);
		(void)buf_lit(&result, "}}");
	} else {
		(void)buf_lit(&result, "{\"outcome\":{\"outcome\":\"cancelled\"}}");
	}
	write_authorization(&authorization, permission, false,
			    permission_reason_name(reason));
	permission_settle(permission);
	acp_reply(asks->acp, buf_slice(&permission->request), buf_slice(&result),
		  permission->channel, buf_slice(&authorization), on_replied, reply);
	buf_finish(&authorization);
	buf_finish(&result);
}

static void deny(struct asks *asks, struct permission *permission, bool listed,
		 enum permission_reason reason)
{
	struct permission_choice choice = permission_deny(permission);

	answer(asks, permission, listed, &choice, reason);
}

static void on_timer(void *ctx)
{
	struct asks *asks = ctx;
	int64_t now_ms = loop_now_ms();
	struct permission *permission, *next;

	for (permission = asks->permissions.first; permission; permission = next) {
		next = permission->next;
		if (permission->state == PERMISSION_PENDING &&
		    permission->deadline_ms <= now_ms) {
			log_info("permission", "denied: no decision in time");
			deny(asks, permission, true, PERMISSION_TIMED_OUT);
			next = asks->permissions.first; /* the list may have changed */
		}
	}
	arm(asks);
}

struct asks *asks_create(const struct asks_options *options)
{
	struct asks *asks = mem_alloc(sizeof(*asks));

	asks->options = *options;
	permissions_init(&asks->permissions);
	asks->timer = timer_create_on(options->loop, on_timer, asks);
	return asks;
}

void asks_destroy(struct asks *asks)
{
	if (!asks)
		return;
	timer_destroy(asks->timer);
	permission_destroy(asks->fresh);
	permissions_finish(&asks->permissions);
	free(asks);
}

void asks_set_acp(struct asks *asks, struct acp *acp)
{
	struct permission *permission;

	asks->acp = acp;
	/* What is being written ends by its own callback. */
	while (!acp && (permission = permissions_first(&asks->permissions, NULL))) {
		struct channel *channel = permission->channel;

		permissions_remove(&asks->permissions, permission);
		permission_destroy(permission);
		changed(asks, channel);
	}
}

/* A person is there to decide: heard of lately, or we have only just started and they may
 * be about to show up. */
static bool owner_listens(const struct asks *asks)
{
	return sender_observer_age_s(asks->options.sender) <= ASKS_SILENCE_S ||
	       sender_time(asks->options.sender).monotonic_ms < ASKS_SILENCE_S * 1000;
}

/* Why the owner is not asked, NULL if they are; what is not is settled at once by
 * asks_request(). */
static const char *why_not_asked(const struct asks *asks, const struct acp_line *line,
				 const struct permission *permission)
{
	const struct channel *channel = permission->channel;

	if (permission->policy != PERMISSION_ASK)
		return "by --permissions";
	if (!channel || !channel->turn || channel->turn->clock.cancelled_ms != 0)
		return "no turn is running";
	if (!permission->shown)
		return "it is too large to be shown";
	if (!line->id_is_plain)
		return "its request id is neither a number nor a string";
	if (asks->permissions.count >= AGENT_PERMISSIONS_MAX)
		return "too many wait already";
	if (asks_is_pending(asks, line->id))
		return "its request id is in use already";
	return owner_listens(asks) ? NULL : "no observer is there";
}

/* What the call that is asked for does. A request may say only what is new of it, so what
 * was heard of it before counts too. */
static enum tool_kind kind_of(const struct acp_line *line, const struct channel *channel)
{
	struct slice call = lookup(line->params, SLICE("toolCall"));
	struct slice kind = lookup_string(call, SLICE("kind"));
	struct slice id = lookup_string(call, SLICE("toolCallId"));

	if (kind.ptr)
		return tool_kind_parse(kind);
	if (!channel || !channel->turn || !id.ptr)
		return TOOL_OTHER;
	return tool_kind_of(map_get(&channel->turn->tools, id));
}

void asks_read(struct asks *asks, const struct acp_line *line, const struct acp_line *raw,
	       size_t bytes, struct channel *channel, const struct feed_context *context)
{
	struct feed *feed = sender_feed(asks->options.sender);
	struct feed_time now = sender_time(asks->options.sender);
	uint8_t nonce[PERMISSION_NONCE_LEN / 2];
	struct permission *permission;
	struct buf authorization;

	loop_random(nonce, sizeof(nonce));
	permission = permission_parse(line->id, line->params, nonce, &asks->fault);
	asks->fresh = permission;
	if (!permission) {
		(void)feed_line(feed, now, context, FEED_READ, raw, bytes, SLICE_EMPTY,
				NULL);
		return;
	}
	permission->channel = channel;
	permission->policy = asks->options.rules.by_kind[kind_of(line, channel)];
	permission->shown = bytes <= AGENT_MIRROR_MAX && line->id.len <= ID_BYTES_MAX;
	buf_init(&authorization, 512);
	write_authorization(&authorization, permission,
			    !why_not_asked(asks, line, permission), NULL);
	permission->seq = feed_line(feed, now, context, FEED_READ, raw, bytes,
				    buf_slice(&authorization), &permission->whole);
	buf_finish(&authorization);
}

static void allow(struct asks *asks, struct permission *permission)
{
	struct permission_choice choice;

	if (permission_allow(permission, &choice))
		answer(asks, permission, false, &choice, PERMISSION_ALLOWED);
	else
		deny(asks, permission, false, PERMISSION_ALLOW_FAILED_CLOSED);
}

void asks_request(struct asks *asks, const struct acp_line *line, enum asks_ground ground,
		  int64_t left_ms)
{
	static const struct permission_choice cancelled = {.selected = false};
	struct permission *permission = asks->fresh;
	int64_t wait_ms =
		left_ms < asks->options.timeout_ms ? left_ms : asks->options.timeout_ms;
	uint64_t silent;
	const char *why;

	asks->fresh = NULL;
	if (asks_is_pending(asks, line->id)) {
		/* An answer would settle the other one at the agent. */
		log_warn("permission", "ignored: its request id is in use already");
		permission_destroy(permission);
		return;
	}
	if (!permission) {
		acp_refuse(asks->acp, line->id, ACP_INVALID_PARAMS, asks->fault.text,
			   NULL);
		return;
	}
	if (ground == ASKS_CANCELLED) {
		answer(asks, permission, false, &cancelled, PERMISSION_CANCELLED);
		return;
	}
	if (ground == ASKS_TURN && permission->policy == PERMISSION_ALLOW) {
		allow(asks, permission);
		return;
	}
	why = ground == ASKS_NO_TURN ? "no turn is running"
				     : why_not_asked(asks, line, permission);
	if (why) {
		if (permission->policy == PERMISSION_ASK &&
		    log_limit_pass(&asks->denied, loop_now_ms(), &silent))
			log_warn("permission", "denied: %s silent=%" PRIu64, why, silent);
		deny(asks, permission, false, PERMISSION_REJECTED);
		return;
	}
	permission->deadline_ms = loop_now_ms() + wait_ms;
	(void)permissions_add(&asks->permissions, permission);
	changed(asks, permission->channel);
}

bool asks_is_pending(const struct asks *asks, struct slice id)
{
	return permissions_find_request(&asks->permissions, id) != NULL;
}

void asks_withdraw(struct asks *asks, struct slice id)
{
	static const struct permission_choice cancelled = {.selected = false};
	struct permission *permission =
		id.len ? permissions_find_request(&asks->permissions, id) : NULL;

	if (permission && permission->state == PERMISSION_PENDING)
		answer(asks, permission, true, &cancelled, PERMISSION_CANCELLED);
}

void asks_cancel(struct asks *asks, struct channel *channel)
{
	static const struct permission_choice cancelled = {.selected = false};
	struct permission *permission;

	while ((permission = permissions_first(&asks->permissions, channel)))
		answer(asks, permission, true, &cancelled, PERMISSION_CANCELLED);
}

const char *asks_decide(struct asks *asks, struct channel *channel, struct slice nonce,
			struct slice option)
{
	struct permission *permission;
	struct permission_choice choice;

	switch (permissions_decide(&asks->permissions, channel, nonce, option,
				   &permission, &choice)) {
	case VERDICT_SENT:
		answer(asks, permission, true, &choice, PERMISSION_APPLIED);
		return "sent";
	case VERDICT_ALREADY_DECIDED:
		return "already_decided";
	case VERDICT_NO_ACTIVE_TURN:
		return "no_active_turn";
	case VERDICT_NOT_OFFERED:
		return "malformed";
	case VERDICT_OTHER_CHANNEL:
		break;
	}
	return "no_channel";
}

size_t asks_pending(const struct asks *asks, const struct channel *channel)
{
	return permissions_pending(&asks->permissions, channel);
}

struct slice asks_body(const struct asks *asks, uint64_t seq,
		       struct channel **channel_out)
{
	struct permission *permission = permissions_find_seq(&asks->permissions, seq);

	if (!permission)
		return SLICE_EMPTY;
	*channel_out = permission->channel;
	return buf_slice(&permission->whole);
}

void asks_write_state(const struct asks *asks, struct buf *out, int64_t unix_ms,
		      bool *first)
{
	int64_t now_ms = loop_now_ms();

	for (const struct permission *at = asks->permissions.first; at; at = at->next) {
		const struct channel *channel = at->channel;

		if (at->state != PERMISSION_PENDING)
			continue;
		(void)buf_append(out, *first ? SLICE("{") : SLICE(",{"));
		(void)json_write_member_string(out, SLICE("requestNonce"),
					       slice_of(at->nonce));
		(void)json_write_member_string(out, SLICE("channelId"),
					       uuid_slice(&channel->uuid));
		(void)json_write_member_int(out, SLICE("deadlineMs"),
					    unix_ms + at->deadline_ms - now_ms);
		(void)json_write_member_string(
			out, SLICE("epoch"),
			slice_of(sender_epoch(asks->options.sender)));
		(void)json_write_member_int(out, SLICE("seq"), (int64_t)at->seq);
		(void)buf_lit(out, "}");
		*first = false;
	}
}
