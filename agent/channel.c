#include "agent/channel.h"

#include <assert.h>
#include <stdlib.h>

#include "agent/lookup.h"
#include "wire/base/mem.h"
#include "wire/nostr/json.h"

/* Longest id or title that is kept, bytes; our choice. */
#define NAME_MAX_BYTES 1024

#define OFFERS 7

/* The buffers that belong to one session: its id, and what it offers. */
static struct buf *const *offers(struct channel *channel, struct buf *list[OFFERS])
{
	list[0] = &channel->session;
	list[1] = &channel->modes;
	list[2] = &channel->mode;
	list[3] = &channel->models;
	list[4] = &channel->model;
	list[5] = &channel->config;
	list[6] = &channel->title;
	return list;
}

void channel_init(struct channel *channel, const char *name, const struct uuid *uuid)
{
	*channel = (struct channel){.name = name, .uuid = *uuid, .slot = -1};
	channel->last = &channel->first;
	buf_init(&channel->session, CHANNEL_SESSION_MAX);
	buf_init(&channel->modes, CHANNEL_OFFER_MAX);
	buf_init(&channel->mode, NAME_MAX_BYTES);
	buf_init(&channel->models, CHANNEL_OFFER_MAX);
	buf_init(&channel->model, NAME_MAX_BYTES);
	buf_init(&channel->config, CHANNEL_OFFER_MAX);
	buf_init(&channel->title, NAME_MAX_BYTES);
	buf_init(&channel->next_model, NAME_MAX_BYTES);
	buf_init(&channel->previous, CHANNEL_SESSION_MAX);
}

void channel_finish(struct channel *channel)
{
	struct buf *list[OFFERS];
	struct prompt *prompt;

	assert(!channel->turn);
	while ((prompt = channel_pop(channel)))
		prompt_destroy(prompt);
	for (size_t i = 0; i < OFFERS; i++)
		buf_finish(offers(channel, list)[i]);
	buf_finish(&channel->next_model);
	buf_finish(&channel->previous);
}

/* --- Prompts --- */

struct prompt *prompt_create(struct slice content, struct slice request_id,
			     const char *source, int64_t now_ms)
{
	struct prompt *prompt = mem_alloc(sizeof(*prompt));

	prompt->source = source;
	prompt->queued_ms = now_ms;
	buf_init(&prompt->request_id, request_id.len);
	(void)buf_append(&prompt->request_id, request_id);
	buf_init(&prompt->content, content.len);
	(void)buf_append(&prompt->content, content);
	return prompt;
}

void prompt_destroy(struct prompt *prompt)
{
	if (!prompt)
		return;
	buf_finish(&prompt->request_id);
	buf_finish(&prompt->content);
	free(prompt);
}

bool prompt_content_valid(struct slice content)
{
	struct slice block;
	struct json json;
	size_t count = 0;

	json_init(&json, content);
	if (json_peek(&json) != JSON_ARRAY || !json_enter_array(&json))
		return false;
	for (; json_element(&json); count++) {
		if (!json_skip(&json, &block) || !lookup_string(block, SLICE("type")).ptr)
			return false;
	}
	return count > 0 && json_end(&json, NULL);
}

void prompt_head(struct slice content, size_t max, struct buf *out)
{
	struct slice block, text;
	struct buf whole;
	struct json json;

	json_init(&json, content);
	if (json_peek(&json) != JSON_ARRAY || !json_enter_array(&json))
		return;
	while (json_element(&json) && json_skip(&json, &block)) {
		text = lookup_string(block, SLICE("text"));
		if (!text.ptr)
			continue;
		buf_init(&whole, text.len + 1);
		(void)json_unescape(text, &whole);
		text = buf_slice(&whole);
		(void)buf_append(out, slice_sub(text, 0, utf8_floor(text, max)));
		buf_finish(&whole);
		return;
	}
}

void channel_push(struct channel *channel, struct prompt *prompt)
{
	prompt->next = NULL;
	*channel->last = prompt;
	channel->last = &prompt->next;
	channel->prompt_count++;
}

void channel_push_front(struct channel *channel, struct prompt *prompt)
{
	prompt->next = channel->first;
	channel->first = prompt;
	if (!prompt->next)
		channel->last = &prompt->next;
	channel->prompt_count++;
}

struct prompt *channel_pop(struct channel *channel)
{
	struct prompt *prompt = channel->first;

	if (!prompt)
		return NULL;
	channel->first = prompt->next;
	if (!channel->first)
		channel->last = &channel->first;
	channel->prompt_count--;
	prompt->next = NULL;
	return prompt;
}

/* --- The session --- */

void channel_lose_session(struct channel *channel)
{
	if (channel->state == SESSION_OPEN) {
		buf_clear(&channel->previous);
		(void)buf_append(&channel->previous, buf_slice(&channel->session));
		channel->previous_shown = true;
	}
	channel->state = SESSION_NONE;
	channel->wants_session = false;
	channel->loading = false;
	buf_clear(&channel->session);
}

static void forget_offers(struct channel *channel)
{
	struct buf *list[OFFERS];

	for (size_t i = 1; i < OFFERS; i++) /* [0] is the session */
		buf_clear(offers(channel, list)[i]);
}

/* Replaces; a value too large to keep leaves nothing. */
static void set(struct buf *buf, struct slice value)
{
	buf_clear(buf);
	if (value.len && !buf_append(buf, value))
		buf_clear(buf);
}

static void take_config(struct channel *channel, struct slice result)
{
	struct slice config = lookup(result, SLICE("configOptions"));

	if (config.len && config.ptr[0] == '[')
		set(&channel->config, config);
}

/* What the answer to session/new, load or resume says of modes and models. */
static void take_offers(struct channel *channel, struct slice result)
{
	struct slice modes = lookup(result, SLICE("modes"));
	struct slice models = lookup(result, SLICE("models"));

	if (modes.len) {
		set(&channel->modes, lookup(modes, SLICE("availableModes")));
		set(&channel->mode, lookup_string(modes, SLICE("currentModeId")));
	}
	if (models.len) {
		set(&channel->models, lookup(models, SLICE("availableModels")));
		set(&channel->model, lookup_string(models, SLICE("currentModelId")));
	}
	take_config(channel, result);
}

bool channel_open_session(struct channel *channel, struct slice result)
{
	struct slice id = lookup_string(result, SLICE("sessionId"));
	struct buf session;

	buf_init(&session, CHANNEL_SESSION_MAX);
	if (id.len == 0 || !json_unescape(id, &session)) {
		buf_finish(&session);
		return false;
	}
	forget_offers(channel);
	buf_finish(&channel->session);
	channel->session = session;
	channel->state = SESSION_OPEN;
	take_offers(channel, result);
	return true;
}

void channel_reopen_session(struct channel *channel, struct slice result)
{
	set(&channel->session, buf_slice(&channel->previous));
	channel->state = SESSION_OPEN;
	channel->loading = false;
	take_offers(channel, result);
}

void channel_take_update(struct channel *channel, struct slice update)
{
	struct slice value;

	if (lookup_is(update, SLICE("sessionUpdate"), SLICE("current_mode_update"))) {
		value = lookup_string(update, SLICE("currentModeId"));
		if (value.ptr)
			set(&channel->mode, value);
	} else if (lookup_is(update, SLICE("sessionUpdate"),
			     SLICE("config_option_update"))) {
		take_config(channel, update);
	} else if (lookup_is(update, SLICE("sessionUpdate"),
			     SLICE("session_info_update"))) {
		value = lookup(update, SLICE("title")); /* absent keeps, null clears */
		if (value.ptr)
			set(&channel->title, lookup_string(update, SLICE("title")));
	}
}

/* "modes":{"currentModeId":"…","availableModes":[…]} and its like. */
static void write_pair(struct buf *out, size_t max, struct slice key,
		       struct slice current_key, const struct buf *current,
		       struct slice list_key, const struct buf *list)
{
	size_t start = out->len;

	if (list->len == 0)
		return;
	(void)json_write_key(out, key);
	(void)buf_lit(out, "{");
	(void)json_write_key(out, current_key);
	(void)buf_printf(out, "\"%.*s\"", SLICE_ARG(buf_slice(current)));
	(void)json_write_member_raw(out, list_key, buf_slice(list));
	(void)buf_lit(out, "}");
	if (out->len > max)
		buf_truncate(out, start);
}

void channel_write_offers(const struct channel *channel, struct buf *out, size_t max)
{
	size_t start;

	write_pair(out, max, SLICE("modes"), SLICE("currentModeId"), &channel->mode,
		   SLICE("availableModes"), &channel->modes);
	write_pair(out, max, SLICE("models"), SLICE("currentModelId"), &channel->model,
		   SLICE("availableModels"), &channel->models);
	start = out->len;
	if (channel->config.len > 0)
		(void)json_write_member_raw(out, SLICE("configOptions"),
					    buf_slice(&channel->config));
	if (out->len > max)
		buf_truncate(out, start);
}

/* --- Modes and models --- */

/* True if an element of the array @list, or of an element's own `options` (a group), has
 * @key with the value @want. */
static bool is_offered(struct slice list, struct slice key, struct slice want)
{
	struct slice item;
	struct json json;

	json_init(&json, list);
	if (json_peek(&json) != JSON_ARRAY || !json_enter_array(&json))
		return false;
	while (json_element(&json) && json_skip(&json, &item)) {
		struct slice group = lookup(item, SLICE("options"));

		if (lookup_is(item, key, want) ||
		    (group.len && is_offered(group, key, want)))
			return true;
	}
	return false;
}

/* The config option of that category. */
static struct slice find_config(const struct channel *channel, struct slice category)
{
	struct slice item;
	struct json json;

	json_init(&json, buf_slice(&channel->config));
	if (json_peek(&json) != JSON_ARRAY || !json_enter_array(&json))
		return SLICE_EMPTY;
	while (json_element(&json) && json_skip(&json, &item)) {
		if (lookup_is(item, SLICE("category"), category))
			return item;
	}
	return SLICE_EMPTY;
}

/* {"sessionId":…,KEY:VALUE} */
static const char *simple_request(const struct channel *channel, const char *method,
				  struct slice key, struct slice value,
				  struct buf *params)
{
	(void)buf_lit(params, "{");
	(void)json_write_member_string(params, SLICE("sessionId"),
				       buf_slice(&channel->session));
	(void)json_write_member_string(params, key, value);
	(void)buf_lit(params, "}");
	return method;
}

static const char *config_request(const struct channel *channel, struct slice category,
				  struct slice value, struct buf *params)
{
	struct slice option = find_config(channel, category);
	struct slice id = lookup(option, SLICE("id"));

	if (id.len == 0 ||
	    !is_offered(lookup(option, SLICE("options")), SLICE("value"), value))
		return NULL;
	(void)buf_lit(params, "{");
	(void)json_write_member_string(params, SLICE("sessionId"),
				       buf_slice(&channel->session));
	(void)json_write_member_raw(params, SLICE("configId"), id);
	(void)json_write_member_string(params, SLICE("value"), value);
	(void)buf_lit(params, "}");
	return "session/set_config_option";
}

const char *channel_mode_request(const struct channel *channel, struct slice mode,
				 struct buf *params)
{
	if (is_offered(buf_slice(&channel->modes), SLICE("id"), mode))
		return simple_request(channel, "session/set_mode", SLICE("modeId"), mode,
				      params);
	return config_request(channel, SLICE("mode"), mode, params);
}

/* Config options first: what they say is newer than `models` (facts/acp.md §3). */
const char *channel_model_request(const struct channel *channel, struct slice model,
				  struct buf *params)
{
	const char *method = config_request(channel, SLICE("model"), model, params);

	if (method)
		return method;
	if (is_offered(buf_slice(&channel->models), SLICE("modelId"), model))
		return simple_request(channel, "session/set_model", SLICE("modelId"),
				      model, params);
	return NULL;
}

/* The config option of @category says that its value is another one. */
static bool contradicts(const struct channel *channel, struct slice category,
			struct slice value)
{
	struct slice current =
		lookup_string(find_config(channel, category), SLICE("currentValue"));

	return current.ptr && !json_is(current, value);
}

static void set_plain(struct buf *out, struct slice value)
{
	buf_clear(out);
	if (!json_write_chars(out, value))
		buf_clear(out);
}

bool channel_take_mode(struct channel *channel, struct slice value, struct slice result)
{
	bool listed = lookup(result, SLICE("configOptions")).len > 0;

	take_config(channel, result);
	if (listed && contradicts(channel, SLICE("mode"), value))
		return false;
	set_plain(&channel->mode, value);
	return true;
}

bool channel_take_model(struct channel *channel, struct slice value, struct slice result)
{
	bool listed = lookup(result, SLICE("configOptions")).len > 0;

	take_config(channel, result);
	if (listed && contradicts(channel, SLICE("model"), value))
		return false;
	set_plain(&channel->model, value);
	return true;
}
