#include "agent/proxy_session.h"

#include <stdlib.h>

#include "agent/channel.h"
#include "agent/lookup.h"
#include "agent/report.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"
#include "wire/nostr/json.h"

/* First words of a prompt, in turn_started (payloads.md). */
#define PROMPT_HEAD_BYTES 200
#define TITLE_BYTES_MAX 1024 /* our choice */

/* --- Sessions --- */

struct feed_context sessions_own_context(const struct sessions *sessions)
{
	return (struct feed_context){.slot = 0,
				     .channel = watch_slot_channel(sessions->watch)};
}

struct feed_context sessions_context(const struct sessions *sessions,
				     const struct session *session)
{
	struct feed_context context = sessions_own_context(sessions);

	if (!session)
		return context;
	context.channel = &session->channel;
	context.session = buf_slice(&session->id);
	if (session->turn) {
		context.turn = slice_of(session->turn->id);
		context.turn_started_ms = session->turn->started_unix_ms;
	}
	return context;
}

static void session_destroy(struct session *session)
{
	if (!session)
		return;
	buf_finish(&session->id);
	buf_finish(&session->title);
	buf_finish(&session->modes);
	buf_finish(&session->models);
	buf_finish(&session->config);
	free(session->turn);
	free(session->name);
	free(session);
}

static void unlink_session(struct sessions *sessions, const struct session *session)
{
	struct session **at = &sessions->oldest;

	while (*at && *at != session)
		at = &(*at)->next;
	if (*at)
		*at = session->next;
}

static void use_session(struct sessions *sessions, struct session *session)
{
	struct session **at;

	sessions->recent = session;
	unlink_session(sessions, session);
	for (at = &sessions->oldest; *at; at = &(*at)->next)
		;
	*at = session;
	session->next = NULL;
}

void sessions_end_turn(struct sessions *sessions, struct session *session,
		       struct slice result, const char *cancelled_by)
{
	const struct slice stop_reason = lookup(result, SLICE("stopReason"));
	const struct slice usage = lookup(result, SLICE("usage"));
	struct feed_context context = sessions_context(sessions, session);
	struct proxy_turn *turn = session->turn;
	struct buf payload;

	report_begin(&payload);
	(void)json_write_member_string(&payload, SLICE("promptId"),
				       slice_of(turn->prompt_id));
	if (stop_reason.len && stop_reason.ptr[0] == '"')
		(void)json_write_member_raw(&payload, SLICE("stopReason"), stop_reason);
	if (cancelled_by)
		(void)json_write_member_string(&payload, SLICE("cancelledBy"),
					       slice_of(cancelled_by));
	(void)json_write_member_int(&payload, SLICE("durationMs"),
				    loop_now_ms() - turn->started_ms);
	if (turn->first_output_ms)
		(void)json_write_member_int(&payload, SLICE("firstOutputMs"),
					    turn->first_output_ms - turn->started_ms);
	if (usage.len && usage.ptr[0] == '{')
		(void)json_write_member_raw(&payload, SLICE("usage"), usage);
	report_end(sessions->sender, &context, "turn_completed", &payload);
	session->turn = NULL;
	free(turn);
}

static void forget_session(struct sessions *sessions, struct session *session)
{
	if (session->turn)
		sessions_end_turn(sessions, session, SLICE_EMPTY, NULL);
	sessions->on_forget(sessions->ctx, session);
	if (sessions->recent == session)
		sessions->recent = NULL;
	unlink_session(sessions, session);
	(void)map_take(&sessions->by_id, buf_slice(&session->id));
	session_destroy(session);
}

/* @raw: the session's id as sent; ptr NULL or too long: none. @name: NULL for that of our
 * own folder. */
struct session *sessions_get(struct sessions *sessions, struct slice raw,
			     const char *name)
{
	const struct setup *setup = watch_setup(sessions->watch);
	struct session *session;

	if (!raw.ptr || raw.len > CHANNEL_SESSION_MAX)
		return NULL;
	buf_clear(&sessions->plain);
	(void)json_unescape(raw, &sessions->plain);
	session = map_get(&sessions->by_id, buf_slice(&sessions->plain));
	if (session) {
		use_session(sessions, session);
		return session;
	}
	if (sessions->by_id.count >= PROXY_SESSIONS_MAX)
		forget_session(sessions, sessions->oldest);
	session = mem_alloc(sizeof(*session));
	buf_init(&session->id, CHANNEL_SESSION_MAX);
	(void)buf_append(&session->id, buf_slice(&sessions->plain));
	buf_init(&session->title, TITLE_BYTES_MAX);
	buf_init(&session->modes, CHANNEL_OFFER_MAX);
	buf_init(&session->models, CHANNEL_OFFER_MAX);
	buf_init(&session->config, CHANNEL_OFFER_MAX);
	uuid_of_session(watch_loop(sessions->watch)->crypto,
			keypair_public(setup->keypair), buf_slice(&session->id),
			&session->channel);
	session->name = mem_dup(slice_of(name ? name : setup->channels[0].name));
	(void)map_put(&sessions->by_id, buf_slice(&session->id), session);
	use_session(sessions, session);
	return session;
}

static void keep_value(struct buf *out, struct slice object, struct slice key)
{
	const struct slice value = lookup(object, key);

	if (!value.len)
		return;
	buf_clear(out);
	if (!buf_append(out, value))
		buf_clear(out);
}

static void write_offers(const struct session *session, struct buf *out)
{
	if (session->modes.len)
		(void)json_write_member_raw(out, SLICE("modes"),
					    buf_slice(&session->modes));
	if (session->models.len)
		(void)json_write_member_raw(out, SLICE("models"),
					    buf_slice(&session->models));
	if (session->config.len)
		(void)json_write_member_raw(out, SLICE("configOptions"),
					    buf_slice(&session->config));
	if (session->title.len)
		(void)buf_printf(out, ",\"title\":\"%.*s\"",
				 SLICE_ARG(buf_slice(&session->title)));
}

/* What an agent may answer with, or tell later. */
void session_take_offers(struct session *session, struct slice object)
{
	const struct slice title = lookup_string(object, SLICE("title"));

	keep_value(&session->modes, object, SLICE("modes"));
	keep_value(&session->models, object, SLICE("models"));
	keep_value(&session->config, object, SLICE("configOptions"));
	if (title.ptr) {
		buf_clear(&session->title);
		if (!buf_append(&session->title, title))
			buf_clear(&session->title);
	}
}

/* A session's channel is its own, wherever its folder is. */
#define ANY_FOLDER ""

void sessions_begin_load(struct sessions *sessions, struct session *session)
{
	struct buf id;

	buf_init(&id, CHANNEL_SESSION_MAX);
	session->shown =
		session->shown || last_sessions_get(sessions->remembered, ANY_FOLDER,
						    &session->channel, &id);
	buf_finish(&id);
	session->loading = true;
	session->replayed = 0;
}

void sessions_end_load(struct session *session)
{
	session->loading = false;
}

bool sessions_is_replay(struct session *session)
{
	if (!session->loading)
		return false;
	session->replayed++;
	return session->shown;
}

/* Of one whose beginning was not seen, its history is still worth showing later. */
static void remember(struct sessions *sessions, struct session *session)
{
	struct err err;

	session->shown = true;
	if (!last_sessions_put(sessions->remembered, ANY_FOLDER, &session->channel,
			       buf_slice(&session->id), &err))
		log_warn("proxy", "a later start will show this session again: %s",
			 err.text);
}

void sessions_report_resolved(struct sessions *sessions, struct session *session,
			      bool is_new, bool loaded)
{
	struct feed_context context = sessions_context(sessions, session);
	struct buf payload;

	report_begin(&payload);
	(void)json_write_member_string(&payload, SLICE("sessionId"),
				       buf_slice(&session->id));
	(void)json_write_member_bool(&payload, SLICE("isNew"), is_new);
	if (!is_new)
		(void)json_write_member_bool(&payload, SLICE("resumed"), true);
	if (loaded)
		(void)json_write_member_int(&payload, SLICE("replayed"),
					    (int64_t)session->replayed);
	report_member(&payload, SLICE("channelName"), slice_of(session->name));
	write_offers(session, &payload);
	report_end(sessions->sender, &context, "session_resolved", &payload);
	if (is_new || loaded)
		remember(sessions, session);
}

/* --- Turns --- */

void sessions_begin_turn(struct sessions *sessions, struct session *session,
			 struct slice prompt)
{
	struct proxy_turn *turn = session->turn = mem_alloc(sizeof(*turn));
	struct feed_context context;
	struct buf payload, head;

	report_uuid(turn->id);
	report_uuid(turn->prompt_id);
	turn->started_ms = loop_now_ms();
	turn->started_unix_ms = loop_unix_ms();
	context = sessions_context(sessions, session);
	report_begin(&payload);
	(void)json_write_member_string(&payload, SLICE("promptId"),
				       slice_of(turn->prompt_id));
	(void)json_write_member_string(&payload, SLICE("source"), SLICE("editor"));
	buf_init(&head, PROMPT_HEAD_BYTES);
	if (prompt_content_valid(prompt))
		prompt_head(prompt, PROMPT_HEAD_BYTES, &head);
	if (head.len)
		(void)json_write_member_string(&payload, SLICE("text"), buf_slice(&head));
	buf_finish(&head);
	report_end(sessions->sender, &context, "turn_started", &payload);
}

void sessions_report_error(struct sessions *sessions, const struct session *session,
			   struct slice error)
{
	struct feed_context context = sessions_context(sessions, session);
	const struct slice code = lookup(error, SLICE("code"));
	const struct slice message = lookup(error, SLICE("message"));
	const struct slice data = lookup(error, SLICE("data"));
	uint64_t number;
	struct buf payload;

	report_begin(&payload);
	(void)json_write_member_string(&payload, SLICE("promptId"),
				       slice_of(session->turn->prompt_id));
	if (code.len && (code.ptr[0] == '-' || slice_parse_u64(code, INT32_MAX, &number)))
		(void)json_write_member_raw(&payload, SLICE("code"), code);
	(void)json_write_member_raw(&payload, SLICE("message"),
				    message.len && message.ptr[0] == '"'
					    ? message
					    : SLICE("\"failed without a reason\""));
	if (data.len && data.len <= CHANNEL_OFFER_MAX)
		(void)json_write_member_raw(&payload, SLICE("data"), data);
	(void)json_write_member_string(&payload, SLICE("class"), SLICE("agent"));
	report_end(sessions->sender, &context, "turn_error", &payload);
}

void sessions_end_all(struct sessions *sessions)
{
	for (struct session *at = sessions->oldest; at; at = at->next)
		if (at->turn)
			sessions_end_turn(sessions, at, SLICE_EMPTY, "exit");
}

void session_rename(struct session *session, const char *name)
{
	free(session->name);
	session->name = mem_dup(slice_of(name));
}

/* --- feed_state --- */

static void open_array(struct buf *out, struct slice key)
{
	(void)json_write_key(out, key);
	(void)buf_lit(out, "[");
}

/* The next object of an array that may be empty so far. */
static void open_item(struct buf *out)
{
	(void)buf_append(out, out->ptr[out->len - 1] == '[' ? SLICE("{") : SLICE(",{"));
}

static void write_channels(const struct sessions *sessions, struct buf *out)
{
	open_array(out, SLICE("channels"));
	open_item(out);
	(void)json_write_member_string(out, SLICE("id"),
				       uuid_slice(watch_slot_channel(sessions->watch)));
	report_member(out, SLICE("name"),
		      slice_of(watch_setup(sessions->watch)->channels[0].name));
	(void)buf_lit(out, "}");
	for (const struct session *at = sessions->oldest; at; at = at->next) {
		open_item(out);
		(void)json_write_member_string(out, SLICE("id"),
					       uuid_slice(&at->channel));
		report_member(out, SLICE("name"), slice_of(at->name));
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
}

static void write_sessions(const struct sessions *sessions, struct buf *out)
{
	open_array(out, SLICE("sessions"));
	for (const struct session *at = sessions->oldest; at; at = at->next) {
		open_item(out);
		(void)json_write_member_string(out, SLICE("sessionId"),
					       buf_slice(&at->id));
		(void)json_write_member_string(out, SLICE("channelId"),
					       uuid_slice(&at->channel));
		(void)json_write_member_int(out, SLICE("slot"), 0);
		if (at == sessions->recent) /* what all offer would be too much */
			write_offers(at, out);
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
	open_array(out, SLICE("turns"));
	for (const struct session *at = sessions->oldest; at; at = at->next) {
		if (!at->turn)
			continue;
		open_item(out);
		(void)json_write_member_string(out, SLICE("turnId"),
					       slice_of(at->turn->id));
		(void)json_write_member_string(out, SLICE("channelId"),
					       uuid_slice(&at->channel));
		(void)json_write_member_int(out, SLICE("sinceMs"),
					    at->turn->started_unix_ms);
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
}

void sessions_write_state(const struct sessions *sessions, struct buf *out)
{
	write_channels(sessions, out);
	write_sessions(sessions, out);
}

/* --- Life --- */

void sessions_init(struct sessions *sessions, struct watch *watch,
		   void (*on_forget)(void *ctx, const struct session *session), void *ctx)
{
	*sessions = (struct sessions){.watch = watch,
				      .sender = watch_sender(watch),
				      .on_forget = on_forget,
				      .ctx = ctx};
	map_init(&sessions->by_id);
	sessions->remembered = last_sessions_open(watch_sessions_path(watch));
	buf_init(&sessions->plain, CHANNEL_SESSION_MAX);
}

void sessions_finish(struct sessions *sessions)
{
	struct session *session;

	while ((session = sessions->oldest)) {
		sessions->oldest = session->next;
		session_destroy(session);
	}
	map_finish(&sessions->by_id);
	last_sessions_close(sessions->remembered);
	buf_finish(&sessions->plain);
}
