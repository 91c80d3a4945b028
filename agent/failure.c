#include "agent/failure.h"

#include "agent/login.h"
#include "agent/lookup.h"
#include "agent/report.h"
#include "agent/turns_part.h"
#include "wire/host/log.h"
#include "wire/nostr/json.h"

/* turn_error. @message: JSON value text. */
static void report_error(struct turns *turns, const struct channel *channel,
			 const char *class, int64_t code, struct slice message,
			 struct slice data)
{
	struct feed_context context = report_context(channel);
	struct buf payload;

	report_begin(&payload);
	if (channel->turn)
		(void)json_write_member_string(&payload, SLICE("promptId"),
					       slice_of(channel->turn->prompt->id));
	if (code != 0)
		(void)json_write_member_int(&payload, SLICE("code"), code);
	(void)json_write_member_raw(&payload, SLICE("message"), message);
	if (data.len)
		(void)json_write_member_raw(&payload, SLICE("data"), data);
	(void)json_write_member_string(&payload, SLICE("class"), slice_of(class));
	report_end(turns->options.sender, &context, "turn_error", &payload);
}

/* The same in words of ours. */
void failure_text(struct turns *turns, const struct channel *channel, const char *class,
		  const char *text)
{
	struct buf message;

	buf_init(&message, 4096);
	(void)json_write_string(&message, slice_of(text));
	report_error(turns, channel, class, 0, buf_slice(&message), SLICE_EMPTY);
	buf_finish(&message);
}

/* The agent wants a login: its own words, the ways it offers, and what to run. */
static void report_login(struct turns *turns, const struct channel *channel,
			 const struct acp_answer *answer)
{
	struct buf data, text;
	char quoted[LOG_QUOTE_BYTES];

	buf_init(&data, 1u << 20);
	buf_init(&text, 64u << 10);
	(void)buf_lit(&text, "The agent wants a login");
	if (answer->message.len) {
		(void)buf_lit(&text, ": ");
		(void)json_unescape(answer->message, &text);
	}
	(void)buf_lit(&text, ". ");
	login_hint(turns->options.command,
		   buf_slice(&turns_peer_of(turns, channel)->auth_methods), &text);
	(void)buf_lit(&data, "{");
	if (turns_peer_of(turns, channel)->auth_methods.len)
		(void)json_write_member_raw(
			&data, SLICE("authMethods"),
			buf_slice(&turns_peer_of(turns, channel)->auth_methods));
	(void)json_write_member_string(&data, SLICE("hint"), buf_slice(&text));
	(void)buf_lit(&data, "}");
	report_error(turns, channel, "agent", answer->code,
		     answer->message.ptr ? lookup(answer->error, SLICE("message"))
					 : SLICE("\"authentication required\""),
		     buf_slice(&data));
	log_error("agent", "%s", log_quote(buf_slice(&text), quoted));
	buf_finish(&text);
	buf_finish(&data);
}

/* An error answer, or none at all. */
void failure_answer(struct turns *turns, const struct channel *channel,
		    const struct acp_answer *answer, const char *what)
{
	struct slice message = lookup(answer->error, SLICE("message"));
	struct buf text;

	if (answer->failure == ACP_GONE) {
		failure_text(turns, channel, "exit",
			     turns_peer_of(turns, channel)->gone_reason);
		return;
	}
	if (answer->failure == ACP_ANSWERED && !answer->ok &&
	    answer->code == ACP_AUTH_REQUIRED) {
		report_login(turns, channel, answer);
		return;
	}
	if (answer->failure == ACP_ANSWERED && !answer->ok && answer->message.ptr) {
		report_error(turns, channel, "agent", answer->code, message,
			     lookup(answer->error, SLICE("data")));
		return;
	}
	buf_init(&text, 512);
	(void)buf_printf(&text, "%s %s", what,
			 answer->failure == ACP_TIMED_OUT ? "was not answered in time"
			 : answer->ok ? "got an answer that makes no sense"
				      : "failed without a reason");
	failure_text(turns, channel,
		     answer->failure == ACP_TIMED_OUT ? "timeout" : "protocol",
		     buf_text(&text));
	buf_finish(&text);
}
