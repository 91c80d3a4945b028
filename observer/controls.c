#include "observer/controls.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "observer/acp.h"
#include "observer/row.h"
#include "wire/base/map.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/nostr/event.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip44.h"

#define CARD_ID_MAX (ROW_SHORT_MAX + 2 * KEY_BYTES + 1)
#define SENT_IDS 4         /* newest event ids of one control: their OKs count */
#define SYNC_SENDS_MAX 5   /* of one feed_sync before it waits for the next minute */
#define WANT_AGAIN_MS 5000 /* between two asks for frames */
#define WANT_QUIET_MS 3000 /* frames that come are waited for */
#define WANTS_FAST 5       /* asks without any frame coming, then one a minute */

struct open_control {
	char request_id[33];
	uint8_t agent[KEY_BYTES];
	enum control_type type;
	bool foreign;
	struct buf plaintext, card; /* card: plain text */
	int64_t sent_ms, first_ms, expires_ms;
	uint8_t ids[SENT_IDS][32];
	size_t sends;
};

/* Keeping one agent's feed in step. */
struct sync {
	uint8_t agent[KEY_BYTES];
	char request_id[33]; /* "" when none is open */
	struct buf plaintext;
	int64_t sent_ms, synced_ms;
	unsigned sends;
	char epoch[17]; /* the newest, when it was last synced */
	bool foreign;
	bool asked, coming; /* frames: asked for; the harness said it heard */
	uint64_t missing;   /* as told last */
	size_t gone;
	enum gap_state told;
	int64_t want_ms, progress_ms;
	unsigned fruitless;
	struct control_want oldest; /* of what was asked for */
};

struct body {
	uint8_t agent[KEY_BYTES];
	char epoch[17];
	uint64_t seq;
	int64_t touched_ms;
	size_t parts, have, bytes;
	struct buf *texts; /* [parts] */
};

struct controls {
	struct controls_options options;
	char observer[9];
	struct open_control *open[CONTROLS_OPEN_MAX];
	size_t open_count;
	struct map syncs; /* agent → sync */
	struct body *bodies[CONTROLS_BODIES_MAX];
	struct buf sealed;
	struct controls_figures figures;
};

/* Statuses of control_result (PROTOCOL.md). */
static const char *const outcomes[] = {
	"queued",
	"started",
	"busy",
	"no_channel",
	"refused",
	"applied",
	"unsupported",
	"ok",
	"sent",
	"already_decided",
	"no_active_turn",
	"switched",
	"unsupported_model",
	"malformed",
	"expired",
	"wrong_epoch",
	"rate_limited",
	"uncertain",
	"cancelled",
	"other",
};
static_assert(sizeof(outcomes) / sizeof(*outcomes) == CONTROLS_OUTCOMES,
	      "every outcome has a name");

static void random_hex(struct controls *controls, char *out, size_t bytes)
{
	uint8_t raw[16];

	controls->options.random(raw, bytes);
	hex_encode(raw, bytes, out);
	out[2 * bytes] = '\0';
}

struct controls *controls_create(const struct controls_options *options)
{
	struct controls *controls = mem_alloc(sizeof(*controls));

	controls->options = *options;
	controls->sealed.max = EVENT_MAX_BYTES;
	random_hex(controls, controls->observer, 4);
	map_init(&controls->syncs);
	return controls;
}

static void open_destroy(struct open_control *control)
{
	buf_wipe(&control->plaintext);
	buf_finish(&control->card);
	free(control);
}

static void body_destroy(struct body *body)
{
	for (size_t i = 0; body && i < body->parts; i++)
		buf_finish(&body->texts[i]);
	if (body)
		free(body->texts);
	free(body);
}

void controls_destroy(struct controls *controls)
{
	struct map_entry *entry = NULL;

	if (!controls)
		return;
	for (size_t i = 0; i < controls->open_count; i++)
		open_destroy(controls->open[i]);
	for (size_t i = 0; i < CONTROLS_BODIES_MAX; i++)
		body_destroy(controls->bodies[i]);
	while ((entry = map_next(&controls->syncs, entry)) != NULL) {
		struct sync *sync = entry->value;

		buf_finish(&sync->plaintext);
		free(sync);
	}
	map_finish(&controls->syncs);
	buf_finish(&controls->sealed);
	free(controls);
}

/* ---- sending ---- */

/* Seals and publishes; the signature and so the id are new each time. */
static bool publish(struct controls *controls, const uint8_t *agent,
		    struct slice plaintext, int64_t now_ms, uint8_t id[32])
{
	struct buf tags = {.max = 512};
	char hex[2 * KEY_BYTES + 1] = "";
	uint8_t key[32], nonce[NONCE_BYTES], aux[32];
	struct event_draft draft = {.created_at = now_ms / 1000, .kind = FRAME_KIND};
	bool ok;

	hex_encode(agent, KEY_BYTES, hex);
	(void)buf_printf(&tags,
			 "[[\"p\",\"%s\"],[\"agent\",\"%s\"],[\"frame\",\"control\"]]",
			 hex, hex);
	draft.tags = buf_slice(&tags);
	controls->options.random(nonce, sizeof(nonce));
	controls->options.random(aux, sizeof(aux));
	buf_clear(&controls->sealed);
	ok = ingest_conversation_key(controls->options.ingest, agent, key) &&
	     event_seal(controls->options.crypto, controls->options.owner, key, &draft,
			plaintext, nonce, aux, &controls->sealed, id, NULL) &&
	     controls->options.publish(controls->options.ctx,
				       buf_slice(&controls->sealed));
	sodium_memzero(key, sizeof(key));
	buf_finish(&tags);
	return ok;
}

static void send_open(struct controls *controls, struct open_control *control,
		      int64_t now_ms)
{
	if (publish(controls, control->agent, buf_slice(&control->plaintext), now_ms,
		    control->ids[control->sends % SENT_IDS]))
		control->sends++;
	control->sent_ms = now_ms;
}

static void close_at(struct controls *controls, size_t at)
{
	open_destroy(controls->open[at]);
	controls->open[at] = controls->open[--controls->open_count];
}

/* ---- figures ---- */

const struct controls_figures *controls_figures(const struct controls *controls)
{
	return &controls->figures;
}

const char *controls_outcome_name(size_t outcome)
{
	return outcomes[outcome];
}

static void count_answer(struct controls *controls, struct slice status)
{
	size_t i = 0;

	while (i < CONTROLS_OUTCOMES - 1 && !slice_eq(status, slice_of(outcomes[i])))
		i++;
	controls->figures.answered[i]++;
}

/* ---- what is asked ---- */

struct post {
	struct control control;
	uint8_t agent[KEY_BYTES];
	struct buf channel, card, option, text; /* plain */
	struct buf content, channel_raw, nonce; /* as sent */
};

static void post_finish(struct post *post)
{
	buf_finish(&post->channel);
	buf_finish(&post->card);
	buf_finish(&post->option);
	buf_finish(&post->text);
	buf_finish(&post->content);
	buf_finish(&post->channel_raw);
	buf_finish(&post->nonce);
}

static const enum control_type postable[] = {
	CONTROL_PROMPT,       CONTROL_CANCEL_TURN, CONTROL_RELEASE_QUEUE,
	CONTROL_SWITCH_MODEL, CONTROL_SET_MODE,    CONTROL_PERMISSION_DECISION,
	CONTROL_FETCH_BODY,
};

static bool read_type(struct slice json, struct post *post, struct err *err)
{
	const struct slice type = acp_get_string(json, "type");

	for (size_t i = 0; type.ptr && i < sizeof(postable) / sizeof(*postable); i++) {
		if (!json_is(type, control_type_name(postable[i])))
			continue;
		post->control.type = postable[i];
		return true;
	}
	return err_set(err, ERR_MALFORMED, "type must name a control, like prompt");
}

/* A prompt's text becomes one ACP block. */
static bool read_prompt(struct slice json, struct post *post, struct err *err)
{
	const struct slice content = acp_get(json, "content");
	const struct slice text = acp_get_string(json, "text");

	post->content.max = BROKER_BODY_MAX + 64;
	if (acp_is_array(content)) {
		(void)buf_append(&post->content, content);
		(void)acp_append_blocks(&post->text, content, ROW_TEXT_MAX);
	} else if (text.len) {
		(void)buf_lit(&post->content, "[{\"type\":\"text\",\"text\":\"");
		(void)buf_append(&post->content, text);
		(void)buf_lit(&post->content, "\"}]");
		acp_set_text(&post->text, text, ROW_TEXT_MAX);
	} else {
		return err_set(err, ERR_MALFORMED, "a prompt needs text or content");
	}
	post->control.content = buf_slice(&post->content);
	return true;
}

static bool option_is_offered(const struct model_card *card, struct slice option,
			      bool *allows)
{
	struct slice rest = card->options, item;

	while (acp_next(&rest, &item)) {
		if (!json_is(acp_get_string(item, "id"), option))
			continue;
		*allows = slice_starts(acp_get_string(item, "kind"), SLICE("allow"));
		return true;
	}
	return false;
}

static bool read_card(struct controls *controls, struct slice json, struct post *post,
		      struct err *err)
{
	const struct slice option = acp_get_string(json, "option");
	struct model_card card;
	bool allows = false;

	acp_set_text(&post->card, acp_get_string(json, "card"), CARD_ID_MAX);
	if (!model_find_card(controls->options.model, buf_slice(&post->card), &card))
		return err_set(err, ERR_NOT_FOUND, "no such request is waiting");
	if (!card.pending)
		return err_set(err, ERR_REFUSED, "this request is over");
	memcpy(post->agent, card.agent, KEY_BYTES);
	post->channel.max = card.channel.len + 1;
	(void)buf_append(&post->channel, card.channel);
	if (post->control.type == CONTROL_FETCH_BODY) {
		memcpy(post->control.epoch, card.pos.epoch, sizeof(card.pos.epoch));
		post->control.has_epoch = true;
		post->control.seq = card.pos.seq;
		return true;
	}
	acp_set_text(&post->option, option, ROW_SHORT_MAX);
	if (!card.actionable)
		return err_set(err, ERR_REFUSED, "this request is answered elsewhere");
	if (!option_is_offered(&card, buf_slice(&post->option), &allows))
		return err_set(err, ERR_MALFORMED, "option is none of those offered");
	/* Design §12: nobody allows what they have not seen whole. */
	if (allows && !card.body_ready)
		return err_set(
			err, ERR_REFUSED,
			"this request was cut or redacted: fetch it before allowing it");
	post->nonce.max = card.nonce.len * 6 + 1;
	(void)json_write_chars(&post->nonce, card.nonce);
	post->control.nonce = buf_slice(&post->nonce);
	post->control.option_id = option;
	return true;
}

/* Any event, named by where it stands. */
static bool read_event(struct slice json, struct post *post, struct err *err)
{
	const struct slice epoch = acp_get_string(json, "epoch");
	const int64_t seq = acp_get_int(json, "seq", 0);
	uint8_t bytes[8];

	if (!hex_decode(acp_get_string(json, "agent"), post->agent, KEY_BYTES))
		return err_set(err, ERR_MALFORMED, "agent must be 64 hex digits");
	if (!hex_decode(epoch, bytes, sizeof(bytes)) || seq < 1)
		return err_set(err, ERR_MALFORMED,
			       "fetch_body needs card, or epoch and seq");
	acp_set_text(&post->channel, acp_get_string(json, "channel"), ROW_SHORT_MAX);
	memcpy(post->control.epoch, epoch.ptr, epoch.len);
	post->control.epoch[epoch.len] = '\0';
	post->control.has_epoch = true;
	post->control.seq = (uint64_t)seq;
	return true;
}

static bool read_post(struct controls *controls, struct slice json, struct post *post,
		      struct err *err)
{
	struct control *control = &post->control;
	const struct slice channel = acp_get_string(json, "channel");

	if (!json_check(json, NULL, err))
		return false;
	json = slice_trim(json);
	if (!read_type(json, post, err))
		return false;
	if (control->type == CONTROL_FETCH_BODY && !acp_get_string(json, "card").ptr) {
		if (!read_event(json, post, err))
			return false;
	} else if (control->type == CONTROL_PERMISSION_DECISION ||
		   control->type == CONTROL_FETCH_BODY) {
		if (!read_card(controls, json, post, err))
			return false;
	} else {
		if (!hex_decode(acp_get_string(json, "agent"), post->agent, KEY_BYTES))
			return err_set(err, ERR_MALFORMED, "agent must be 64 hex digits");
		if (!channel.len || channel.len > CONTROL_ID_MAX)
			return err_set(err, ERR_MALFORMED, "channel must be a UUID");
		acp_set_text(&post->channel, channel, ROW_SHORT_MAX);
	}
	if (!model_agent(controls->options.model, post->agent).known)
		return err_set(err, ERR_NOT_FOUND, "no such agent");
	post->channel_raw.max = CONTROL_ID_MAX * 6;
	(void)json_write_chars(&post->channel_raw, buf_slice(&post->channel));
	control->channel_id = buf_slice(&post->channel_raw);
	control->model_id = acp_get_string(json, "model");
	control->mode_id = acp_get_string(json, "mode");
	if (control->type == CONTROL_PROMPT)
		return read_prompt(json, post, err);
	if (control->type == CONTROL_SWITCH_MODEL && !control->model_id.len)
		return err_set(err, ERR_MALFORMED, "switch_model needs model");
	if (control->type == CONTROL_SET_MODE && !control->mode_id.len)
		return err_set(err, ERR_MALFORMED, "set_mode needs mode");
	return true;
}

static bool write_plaintext(struct open_control *open, struct control *control,
			    struct err *err)
{
	open->plaintext.max = FRAME_PLAINTEXT_MAX;
	control->request_id = slice_of(open->request_id);
	if (!control_write(&open->plaintext, control))
		return err_set(err, ERR_TOO_LARGE,
			       "this is too long to send: at most %d bytes",
			       FRAME_PLAINTEXT_MAX);
	return true;
}

static bool post_send(struct controls *controls, struct post *post, int64_t now_ms,
		      char request_id_out[33], struct err *err)
{
	const struct model_agent agent =
		model_agent(controls->options.model, post->agent);
	struct model_control shown = {.agent = post->agent, .type = post->control.type};
	struct open_control *open = mem_alloc(sizeof(*open));

	random_hex(controls, open->request_id, 16);
	memcpy(open->agent, post->agent, KEY_BYTES);
	open->type = post->control.type;
	open->foreign = agent.foreign;
	open->first_ms = now_ms;
	open->expires_ms = now_ms + CONTROL_EXPIRY_S * 1000;
	if (!agent.foreign && post->control.type != CONTROL_FETCH_BODY) {
		post->control.expires = open->expires_ms / 1000;
		post->control.has_epoch = *agent.epoch != '\0';
		memcpy(post->control.epoch, agent.epoch, strlen(agent.epoch) + 1);
	}
	if (!write_plaintext(open, &post->control, err)) {
		open_destroy(open);
		return false;
	}
	open->card.max = post->card.len + 1;
	(void)buf_append(&open->card, buf_slice(&post->card));
	shown.request_id = slice_of(open->request_id);
	shown.channel = buf_slice(&post->channel);
	shown.card = buf_slice(&post->card);
	shown.option = buf_slice(&post->option);
	shown.text = buf_slice(&post->text);
	model_control_add(controls->options.model, &shown, now_ms);
	controls->open[controls->open_count++] = open;
	send_open(controls, open, now_ms);
	memcpy(request_id_out, open->request_id, sizeof(open->request_id));
	return true;
}

bool controls_post(struct controls *controls, struct slice json, int64_t now_ms,
		   char request_id_out[33], struct err *err)
{
	struct post post = {0};
	bool ok;

	ok = controls->open_count < CONTROLS_OPEN_MAX ||
	     err_set(err, ERR_REFUSED, "too many requests wait for an answer");
	ok = ok && read_post(controls, json, &post, err) &&
	     post_send(controls, &post, now_ms, request_id_out, err);
	post_finish(&post);
	if (ok)
		controls->figures.posted++;
	else
		controls->figures.refused++;
	return ok;
}

/* ---- answers ---- */

bool controls_on_ok(struct controls *controls, const uint8_t id[32], bool accepted,
		    struct slice text, int64_t now_ms)
{
	for (size_t i = 0; i < controls->open_count; i++) {
		const struct open_control *control = controls->open[i];

		for (size_t k = 0; k < SENT_IDS && k < control->sends; k++) {
			if (memcmp(control->ids[k], id, 32) != 0)
				continue;
			model_control_set(
				controls->options.model, slice_of(control->request_id),
				accepted ? CONTROL_RELAYED : CONTROL_SENT, SLICE(""),
				accepted ? SLICE("") : text, -1, now_ms);
			return true;
		}
	}
	return false;
}

/* Answers of a feed without request ids are matched by what they answer. */
static bool answers(const struct open_control *control, const uint8_t *agent,
		    struct slice payload)
{
	const struct slice id = acp_get_string(payload, "requestId");
	const struct slice type = acp_get_string(payload, "type");
	const struct slice nonce = acp_get_string(payload, "requestNonce");

	if (memcmp(control->agent, agent, KEY_BYTES) != 0)
		return false;
	if (id.ptr)
		return json_is(id, slice_of(control->request_id));
	return control->foreign && type.ptr &&
	       json_is(type, control_type_name(control->type)) &&
	       (!nonce.ptr || json_is(nonce, buf_slice(&control->card)));
}

static void on_result(struct controls *controls, const uint8_t *agent,
		      struct slice payload, int64_t now_ms)
{
	struct buf status = {0}, detail = {0};

	acp_set_text(&status, acp_get_string(payload, "status"), ROW_SHORT_MAX);
	acp_set_text(&detail, acp_get_string(payload, "detail"), ROW_SHORT_MAX);
	for (size_t i = controls->open_count; i-- > 0;) {
		struct open_control *control = controls->open[i];

		if (!answers(control, agent, payload))
			continue;
		/* NIP-AO: passing, keep resending. */
		if (slice_eq(buf_slice(&status), SLICE("channel_full")))
			break;
		model_control_set(controls->options.model, slice_of(control->request_id),
				  CONTROL_ANSWERED, buf_slice(&status),
				  buf_slice(&detail),
				  acp_get_int(payload, "position", -1), now_ms);
		count_answer(controls, buf_slice(&status));
		close_at(controls, i);
		break;
	}
	buf_finish(&status);
	buf_finish(&detail);
}

/* ---- bodies ---- */

static struct body *body_find(struct controls *controls, const uint8_t *agent,
			      const char *epoch, uint64_t seq, size_t parts,
			      int64_t now_ms)
{
	size_t oldest = 0;
	struct body *body;

	for (size_t i = 0; i < CONTROLS_BODIES_MAX; i++) {
		body = controls->bodies[i];
		if (body && body->seq == seq && body->parts == parts &&
		    strcmp(body->epoch, epoch) == 0 &&
		    memcmp(body->agent, agent, KEY_BYTES) == 0)
			return body;
		if (!body || (controls->bodies[oldest] &&
			      body->touched_ms < controls->bodies[oldest]->touched_ms))
			oldest = i;
	}
	body_destroy(controls->bodies[oldest]);
	body = controls->bodies[oldest] = mem_alloc(sizeof(*body));
	memcpy(body->agent, agent, KEY_BYTES);
	memcpy(body->epoch, epoch, strlen(epoch) + 1);
	body->seq = seq;
	body->parts = parts;
	body->touched_ms = now_ms;
	body->texts = mem_array(parts, sizeof(*body->texts));
	return body;
}

static void body_complete(struct controls *controls, struct body *body)
{
	struct buf text = {.max = body->bytes + 1};

	for (size_t i = 0; i < body->parts; i++)
		(void)buf_append(&text, buf_slice(&body->texts[i]));
	controls->options.on_body(controls->options.ctx, body->agent, body->epoch,
				  body->seq, buf_slice(&text));
	buf_wipe(&text);
	for (size_t i = 0; i < CONTROLS_BODIES_MAX; i++)
		if (controls->bodies[i] == body)
			controls->bodies[i] = NULL;
	body_destroy(body);
}

static void on_body_part(struct controls *controls, const uint8_t *agent,
			 struct slice payload, int64_t now_ms)
{
	const int64_t parts = acp_get_int(payload, "parts", 0);
	const int64_t part = acp_get_int(payload, "part", 0);
	const int64_t seq = acp_get_int(payload, "seq", 0);
	const struct slice text = acp_get_string(payload, "text");
	const struct slice epoch_raw = acp_get_string(payload, "epoch");
	char epoch[17] = "";
	uint8_t bytes[8];
	struct body *body;

	if (parts < 1 || parts > CONTROLS_PARTS_MAX || part < 1 || part > parts ||
	    !text.len || !hex_decode(epoch_raw, bytes, sizeof(bytes)))
		return;
	memcpy(epoch, epoch_raw.ptr, 16);
	body = body_find(controls, agent, epoch, (uint64_t)seq, (size_t)parts, now_ms);
	body->touched_ms = now_ms;
	if (body->texts[part - 1].len || body->bytes + text.len > CONTROLS_BODY_MAX)
		return;
	acp_set_text(&body->texts[part - 1], text, CONTROLS_BODY_MAX);
	body->bytes += body->texts[part - 1].len;
	if (++body->have == body->parts)
		body_complete(controls, body);
}

/* ---- feeds in step ---- */

static struct sync *sync_ensure(struct controls *controls, const uint8_t *agent)
{
	const struct slice key = {(const char *)agent, KEY_BYTES};
	struct sync *sync = map_get(&controls->syncs, key);

	if (sync)
		return sync;
	sync = mem_alloc(sizeof(*sync));
	memcpy(sync->agent, agent, KEY_BYTES);
	sync->plaintext.max = FRAME_PLAINTEXT_MAX;
	sync->told = GAP_MISSING;
	(void)map_put(&controls->syncs, key, sync);
	return sync;
}

static void sync_publish(struct controls *controls, struct sync *sync, int64_t now_ms)
{
	uint8_t id[32];

	if (publish(controls, sync->agent, buf_slice(&sync->plaintext), now_ms, id))
		sync->sends++;
	sync->sent_ms = now_ms;
}

static void sync_send(struct controls *controls, struct sync *sync, int64_t now_ms)
{
	struct control_want wants[WANT_RANGES_MAX];
	struct control control = {.type = CONTROL_FEED_SYNC, .wants = wants};

	random_hex(controls, sync->request_id, 16);
	control.request_id = slice_of(sync->request_id);
	memcpy(control.observer, controls->observer, sizeof(control.observer));
	control.want_count = ingest_wants(controls->options.ingest, sync->agent, now_ms,
					  wants, WANT_RANGES_MAX);
	buf_clear(&sync->plaintext);
	if (!control_write(&sync->plaintext, &control))
		return;
	sync->sends = 0;
	(void)snprintf(sync->epoch, sizeof(sync->epoch), "%s",
		       model_agent(controls->options.model, sync->agent).epoch);
	sync->synced_ms = now_ms;
	if (control.want_count) {
		sync->asked = true;
		sync->coming = false;
		sync->want_ms = now_ms;
		sync->fruitless++;
		sync->oldest = wants[control.want_count - 1];
		controls->figures.asks++;
	}
	for (size_t i = 0; i < control.want_count; i++)
		controls->figures.asked += wants[i].range.last - wants[i].range.first + 1;
	sync_publish(controls, sync, now_ms);
}

static void on_feed_state(struct controls *controls, const uint8_t *agent,
			  struct slice payload, int64_t now_ms)
{
	struct sync *sync = sync_ensure(controls, agent);
	const struct slice id = acp_get_string(payload, "requestId");

	ingest_feed_state(controls->options.ingest, agent, payload, now_ms);
	if (!id.ptr || !json_is(id, slice_of(sync->request_id)))
		return;
	sync->request_id[0] = '\0';
	sync->coming = sync->asked;
}

void controls_on_event(struct controls *controls, const uint8_t *agent,
		       const struct observer_event *event, int64_t now_ms)
{
	if (json_is(event->kind, SLICE("control_result")))
		on_result(controls, agent, event->payload, now_ms);
	else if (json_is(event->kind, SLICE("feed_state")))
		on_feed_state(controls, agent, event->payload, now_ms);
	else if (json_is(event->kind, SLICE("body_part")))
		on_body_part(controls, agent, event->payload, now_ms);
}

struct each {
	struct controls *controls;
	int64_t now_ms;
};

static void sync_now(void *ctx, const uint8_t *agent, bool foreign)
{
	const struct each *each = ctx;

	if (!foreign)
		sync_send(each->controls, sync_ensure(each->controls, agent),
			  each->now_ms);
}

void controls_on_ready(struct controls *controls, int64_t now_ms)
{
	struct each each = {controls, now_ms};

	ingest_each_agent(controls->options.ingest, sync_now, &each);
}

/* What the page shows of the holes follows what we know and did. */
static void tell_gaps(struct controls *controls, struct sync *sync, bool settled,
		      int64_t now_ms)
{
	const uint64_t missing = ingest_missing(controls->options.ingest, sync->agent);
	const size_t gone = ingest_gone(controls->options.ingest, sync->agent);
	enum gap_state state = GAP_MISSING;

	if (missing != sync->missing) {
		if (missing < sync->missing)
			sync->fruitless = 0;
		sync->progress_ms = now_ms;
	}
	if (!missing)
		sync->asked = sync->coming = false;
	if (sync->asked)
		state = sync->coming ? GAP_COMING : GAP_ASKED;
	if ((missing == sync->missing && gone == sync->gone && state == sync->told) ||
	    (missing && !settled))
		return;
	sync->missing = missing;
	sync->gone = gone;
	sync->told = state;
	ingest_tell_gaps(controls->options.ingest, sync->agent, state, now_ms,
			 controls->options.model);
}

/* All that was asked for came, and @newest, which is wanted now, was no part of it. */
static bool is_served(const struct sync *sync, const struct control_want *newest)
{
	const int order = strcmp(newest->epoch, sync->oldest.epoch);

	return sync->asked && !sync->fruitless &&
	       (order < 0 ||
		(order == 0 && newest->range.last < sync->oldest.range.first));
}

static bool may_ask(const struct sync *sync, const struct control_want *newest,
		    int64_t now_ms)
{
	if (is_served(sync, newest))
		return true;
	return (!sync->asked || now_ms - sync->progress_ms >= WANT_QUIET_MS) &&
	       now_ms - sync->want_ms >=
		       (sync->fruitless < WANTS_FAST ? WANT_AGAIN_MS : CONTROLS_SYNC_MS);
}

static void sync_tick(void *ctx, const uint8_t *agent, bool foreign)
{
	const struct each *each = ctx;
	struct controls *controls = each->controls;
	const int64_t now_ms = each->now_ms;
	const struct model_agent state = model_agent(controls->options.model, agent);
	struct sync *sync = sync_ensure(controls, agent);
	struct control_want want;
	/* A new start knows how the one before it ended. */
	const bool started_anew = strcmp(sync->epoch, state.epoch) != 0;
	bool wants, ask;

	wants = ingest_wants(controls->options.ingest, agent, now_ms, &want, 1) > 0;
	tell_gaps(controls, sync, wants, now_ms);
	if (foreign || !state.online)
		return;
	ask = wants && may_ask(sync, &want, now_ms);
	if (ask || started_anew || !sync->synced_ms ||
	    now_ms - sync->synced_ms >= CONTROLS_SYNC_MS)
		sync_send(controls, sync, now_ms);
	else if (*sync->request_id && sync->sends < SYNC_SENDS_MAX &&
		 now_ms - sync->sent_ms >= CONTROLS_RESEND_MS)
		sync_publish(controls, sync, now_ms);
}

void controls_tick(struct controls *controls, int64_t now_ms)
{
	struct each each = {controls, now_ms};

	for (size_t i = controls->open_count; i-- > 0;) {
		struct open_control *control = controls->open[i];
		const bool foreign_late =
			control->foreign &&
			now_ms - control->first_ms >= CONTROLS_FOREIGN_MS;

		if (foreign_late || now_ms >= control->expires_ms) {
			model_control_set(controls->options.model,
					  slice_of(control->request_id), CONTROL_EXPIRED,
					  SLICE(""),
					  control->foreign ? SLICE("no answer in 10 s")
							   : SLICE("no answer in 60 s"),
					  -1, now_ms);
			controls->figures.expired++;
			close_at(controls, i);
		} else if ((!control->foreign || !control->sends) &&
			   now_ms - control->sent_ms >= CONTROLS_RESEND_MS) {
			send_open(controls, control, now_ms);
		}
	}
	ingest_each_agent(controls->options.ingest, sync_tick, &each);
}
