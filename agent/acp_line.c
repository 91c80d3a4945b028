#include "agent/acp_line.h"

#include <stddef.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Reads a string member, or passes by a value that is none. */
static void read_string(struct json *json, struct slice *out)
{
	*out = SLICE_EMPTY;
	if (json_peek(json) == JSON_STRING)
		(void)json_string(json, out);
	else
		(void)json_skip(json, NULL);
}

/* params.update.content */
static void read_content(struct json *json, struct acp_line *out)
{
	struct slice key;

	if (json_peek(json) != JSON_OBJECT) {
		(void)json_skip(json, NULL);
		return;
	}
	(void)json_enter_object(json);
	while (json_member(json, &key)) {
		if (json_is(key, SLICE("text")))
			read_string(json, &out->chunk);
		else
			(void)json_skip(json, NULL);
	}
}

/* params.update. Of a member that comes twice the last one counts, as in most parsers. */
static void read_update(struct json *json, struct acp_line *out)
{
	struct slice key;

	out->update = out->chunk = SLICE_EMPTY;
	if (json_peek(json) != JSON_OBJECT) {
		(void)json_skip(json, NULL);
		return;
	}
	(void)json_enter_object(json);
	while (json_member(json, &key)) {
		if (json_is(key, SLICE("sessionUpdate"))) {
			read_string(json, &out->update);
		} else if (json_is(key, SLICE("content"))) {
			out->chunk = SLICE_EMPTY;
			read_content(json, out);
		} else {
			(void)json_skip(json, NULL);
		}
	}
}

/* params and result, which may name the session and hold the update. */
static void read_body(struct json *json, struct slice *session,
		      struct acp_line *update_of, struct slice *value)
{
	const char *start = json_mark(json);
	struct slice key;

	*session = SLICE_EMPTY;
	if (json_peek(json) != JSON_OBJECT) {
		(void)json_skip(json, value);
		return;
	}
	(void)json_enter_object(json);
	while (json_member(json, &key)) {
		if (json_is(key, SLICE("sessionId")))
			read_string(json, session);
		else if (update_of && json_is(key, SLICE("update")))
			read_update(json, update_of);
		else
			(void)json_skip(json, NULL);
	}
	*value = (struct slice){start, (size_t)(json->at - start)};
}

static void read_params(struct json *json, struct acp_line *out)
{
	out->update = out->chunk = SLICE_EMPTY;
	out->params_is_object = json_peek(json) == JSON_OBJECT;
	read_body(json, &out->session, out, &out->params);
}

static void read_id(struct json *json, struct acp_line *out)
{
	const enum json_kind kind = json_peek(json);

	out->id_is_plain = kind == JSON_NUMBER || kind == JSON_STRING;
	(void)json_skip(json, &out->id);
}

static enum acp_shape shape_of(const struct acp_line *line)
{
	if (line->method.len)
		return line->id.len ? ACP_REQUEST : ACP_NOTIFICATION;
	if (line->id.len && (line->result.len || line->error.len))
		return ACP_RESPONSE;
	return ACP_OBJECT;
}

static bool is_chunk(struct slice update)
{
	return json_is(update, SLICE("agent_message_chunk")) ||
	       json_is(update, SLICE("agent_thought_chunk")) ||
	       json_is(update, SLICE("user_message_chunk"));
}

static void read_message(struct json *json, struct acp_line *out)
{
	struct slice key, result_session = SLICE_EMPTY;

	(void)json_enter_object(json);
	while (json_member(json, &key)) {
		if (json_is(key, SLICE("method")))
			read_string(json, &out->method);
		else if (json_is(key, SLICE("params")))
			read_params(json, out);
		else if (json_is(key, SLICE("id")))
			read_id(json, out);
		else if (json_is(key, SLICE("result")))
			read_body(json, &result_session, NULL, &out->result);
		else if (json_is(key, SLICE("error")))
			(void)json_skip(json, &out->error);
		else
			(void)json_skip(json, NULL);
	}
	out->shape = shape_of(out);
	if (!out->session.ptr)
		out->session = result_session;
	if (out->shape != ACP_NOTIFICATION || !is_chunk(out->update) ||
	    !json_is(out->method, SLICE("session/update")))
		out->chunk = SLICE_EMPTY;
}

/* "mcpServers" with every letter escaped. */
#define SECRET_KEY_MAX (10 * sizeof("\\u0000"))

/* Does a string that names secrets start here? Its letters may be escaped. */
static bool starts_secret(const char *at, const char *end)
{
	const char *const start = at + 1;
	const char *close = start;

	if (*at != '"')
		return false;
	/* Most that begin with one of the letters go on with another. */
	if (end - at > 2 && at[1] != '\\' && at[2] != '\\' &&
	    at[2] != (at[1] == 'e' ? 'n' : 'c'))
		return false;
	while (close < end && *close != '"' && (size_t)(close - start) < SECRET_KEY_MAX)
		close += *close == '\\' ? 2 : 1;
	if (close >= end || *close != '"')
		return false;
	return json_is((struct slice){start, (size_t)(close - start)}, SLICE("env")) ||
	       json_is((struct slice){start, (size_t)(close - start)},
		       SLICE("mcpServers"));
}

/* First place from @at on where "e or "m or "\ stands, or near @end where less than 17
 * bytes are left. */
static const char *skip_other_text(const char *at, const char *end)
{
#ifdef __SSE2__
	while (end - at >= 17) {
		const __m128i here = _mm_loadu_si128((const __m128i *)(const void *)at);
		const __m128i next =
			_mm_loadu_si128((const __m128i *)(const void *)(at + 1));
		const __m128i both = _mm_and_si128(
			_mm_cmpeq_epi8(here, _mm_set1_epi8('"')),
			_mm_or_si128(
				_mm_or_si128(_mm_cmpeq_epi8(next, _mm_set1_epi8('e')),
					     _mm_cmpeq_epi8(next, _mm_set1_epi8('m'))),
				_mm_cmpeq_epi8(next, _mm_set1_epi8('\\'))));
		const unsigned mask = (unsigned)_mm_movemask_epi8(both);

		if (mask)
			return at + __builtin_ctz(mask);
		at += 16;
	}
#endif
	return at;
}

/* Whether the copy of a line is worth a walk for secrets: one of these keys must be
 * there. Every line is looked through, so this is many times faster than two memmem(). */
static bool may_have_secrets(struct slice text)
{
	const char *at = text.ptr;
	const char *const end = at + text.len;

	while ((at = skip_other_text(at, end)) < end) {
		if (starts_secret(at, end))
			return true;
		at++;
	}
	return false;
}

static void set_broken(struct acp_line *out)
{
	const struct slice text = out->text;
	struct json json;

	*out = (struct acp_line){.shape = ACP_BROKEN, .text = text};
	json_init(&json, text);
	json_limit_depth(&json, ACP_DEPTH_MAX);
	(void)json_skip(&json, NULL);
	if (json_end(&json, &out->fault)) {
		(void)err_set(&out->fault, ERR_MALFORMED, "not a JSON object");
		return;
	}
	out->repairable = text.ptr[0] == '{' && (json.fault == JSON_FAULT_UTF8 ||
						 json.fault == JSON_FAULT_SURROGATE);
}

void acp_line_scan(struct slice line, struct acp_line *out)
{
	struct json json;

	*out = (struct acp_line){.text = slice_trim(line), .shape = ACP_BROKEN};
	if (!out->text.len) {
		out->shape = ACP_BLANK;
		return;
	}
	json_init(&json, out->text);
	json_limit_depth(&json, ACP_DEPTH_MAX);
	switch (json_peek(&json)) {
	case JSON_OBJECT:
		read_message(&json, out);
		break;
	case JSON_ARRAY:
		(void)json_skip(&json, NULL);
		out->shape = ACP_ARRAY;
		break;
	case JSON_ERROR:
	case JSON_STRING:
	case JSON_NUMBER:
	case JSON_TRUE:
	case JSON_FALSE:
	case JSON_NULL:
		break;
	}
	if (out->shape == ACP_BROKEN || !json_end(&json, NULL))
		set_broken(out);
	else if (may_have_secrets(out->text))
		out->has_secrets = acp_line_redact(out, NULL);
}

/* ---- lines that are alike ---- */

/* Where the slices of a line are. */
static const size_t slices[] = {
	offsetof(struct acp_line, text),    offsetof(struct acp_line, id),
	offsetof(struct acp_line, method),  offsetof(struct acp_line, params),
	offsetof(struct acp_line, result),  offsetof(struct acp_line, error),
	offsetof(struct acp_line, session), offsetof(struct acp_line, update),
	offsetof(struct acp_line, chunk),
};

/* Of @from, a line at @old whose chunk ends at @cut, makes one at @new, in which @more
 * bytes more (or fewer) stand before that end. A line's chunk stands between quotes, so
 * that no other slice begins or ends there. */
static void move_slices(const struct acp_line *from, const char *old, const char *cut,
			const char *new, ptrdiff_t more, struct acp_line *out)
{
	*out = *from;
	for (size_t i = 0; i < sizeof(slices) / sizeof(slices[0]); i++) {
		struct slice *slice = (struct slice *)(void *)((char *)out + slices[i]);
		const char *start = slice->ptr;

		if (!start)
			continue;
		slice->ptr = new + (start - old) + (start > cut ? more : 0);
		if (start <= cut && start + slice->len >= cut)
			slice->len = (size_t)((ptrdiff_t)slice->len + more);
	}
}

/* Remembers a line that was read as a whole. */
static void remember(struct acp_alike *alike, const struct acp_line *line)
{
	const struct slice text = line->text, chunk = line->chunk;
	size_t before, after;

	if (!chunk.ptr || line->has_secrets || text.len - chunk.len > sizeof(alike->text))
		return;
	before = (size_t)(chunk.ptr - text.ptr);
	after = text.len - before - chunk.len;
	memcpy(alike->text, text.ptr, before);
	memcpy(alike->text + before, chunk.ptr + chunk.len, after);
	move_slices(line, text.ptr, chunk.ptr + chunk.len, alike->text,
		    -(ptrdiff_t)chunk.len, &alike->line);
}

/* Is @text the line that is remembered, but for the text of the chunk? Nothing outside
 * of that text changes what the strict reader made of it. */
static bool is_alike(const struct acp_alike *alike, struct slice text)
{
	const struct slice like = alike->line.text;
	const size_t before = (size_t)(alike->line.chunk.ptr - like.ptr);
	const size_t after = like.len - before;
	struct slice chunk;
	struct json json;

	if (!like.ptr || text.len < like.len || memcmp(text.ptr, like.ptr, before) != 0 ||
	    memcmp(text.ptr + text.len - after, like.ptr + before, after) != 0)
		return false;
	json_init(&json, slice_sub(text, before - 1, text.len));
	return json_string(&json, &chunk) && chunk.len == text.len - like.len;
}

void acp_line_scan_alike(struct slice line, struct acp_alike *alike, struct acp_line *out)
{
	const struct slice text = slice_trim(line);
	const struct acp_line *like = &alike->line;

	if (is_alike(alike, text)) {
		move_slices(like, like->text.ptr, like->chunk.ptr, text.ptr,
			    (ptrdiff_t)(text.len - like->text.len), out);
		return;
	}
	acp_line_scan(line, out);
	remember(alike, out);
}

bool acp_line_is_urgent(const struct acp_line *line)
{
	return line->shape == ACP_REQUEST && line->id_is_plain &&
	       line->params_is_object &&
	       (json_is(line->method, SLICE("session/request_permission")) ||
		json_is(line->method, SLICE("elicitation/create")));
}

/* A walk over the whole line that copies it but for the values it hides. */
struct redactor {
	struct json json;
	const char *copied; /* everything before it is in out */
	struct buf *out;    /* NULL: only look */
	bool found;
};

static void hide(struct redactor *redactor)
{
	const char *start = json_mark(&redactor->json);

	if (!json_skip(&redactor->json, NULL))
		return;
	redactor->found = true;
	if (redactor->out) {
		(void)buf_append(redactor->out,
				 (struct slice){redactor->copied,
						(size_t)(start - redactor->copied)});
		(void)buf_lit(redactor->out, "\"…\"");
	}
	redactor->copied = redactor->json.at;
}

static void walk(struct redactor *redactor, bool in_servers);

/* One element of an env or headers list: {"name":…,"value":…}. */
static void walk_pair(struct redactor *redactor, bool in_servers)
{
	struct json *json = &redactor->json;
	struct slice key;

	if (json_peek(json) != JSON_OBJECT) {
		if (in_servers)
			hide(redactor); /* "NAME=VALUE" */
		else
			walk(redactor, false);
		return;
	}
	(void)json_enter_object(json);
	while (json_member(json, &key)) {
		if (json_is(key, SLICE("value")))
			hide(redactor);
		else
			walk(redactor, in_servers);
	}
}

/* The value of an env or headers member. Outside mcpServers only ACP's list of pairs is
 * taken for one; inside, whatever form the editor's configuration has. */
static void walk_pairs(struct redactor *redactor, bool in_servers)
{
	struct json *json = &redactor->json;
	const enum json_kind kind = json_peek(json);
	struct slice key;

	if (kind == JSON_ARRAY) {
		(void)json_enter_array(json);
		while (json_element(json))
			walk_pair(redactor, in_servers);
	} else if (!in_servers) {
		walk(redactor, false);
	} else if (kind == JSON_OBJECT) {
		(void)json_enter_object(json);
		while (json_member(json, &key))
			hide(redactor);
	} else {
		hide(redactor);
	}
}

/* Any value. Recursion ends at JSON_DEPTH_MAX: deeper text is refused by the cursor. */
static void walk(struct redactor *redactor, bool in_servers)
{
	struct json *json = &redactor->json;
	const enum json_kind kind = json_peek(json);
	struct slice key;

	if (kind == JSON_ARRAY) {
		(void)json_enter_array(json);
		while (json_element(json))
			walk(redactor, in_servers);
	} else if (kind == JSON_OBJECT) {
		(void)json_enter_object(json);
		while (json_member(json, &key)) {
			if (json_is(key, SLICE("env")) ||
			    (in_servers && json_is(key, SLICE("headers"))))
				walk_pairs(redactor, in_servers);
			else
				walk(redactor,
				     in_servers || json_is(key, SLICE("mcpServers")));
		}
	} else {
		(void)json_skip(json, NULL);
	}
}

bool acp_line_redact(const struct acp_line *line, struct buf *out)
{
	struct redactor redactor = {.copied = line->text.ptr, .out = out};
	const char *end = line->text.ptr + line->text.len;

	json_init(&redactor.json, line->text);
	walk(&redactor, false);
	if (!json_end(&redactor.json, NULL))
		return false;
	if (!out)
		return redactor.found;
	return buf_append(
		out, (struct slice){redactor.copied, (size_t)(end - redactor.copied)});
}
