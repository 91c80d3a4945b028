#include "observer/search_query.h"

#include <string.h>

#include "observer/search_text.h"
#include "observer/when.h"
#include "wire/host/log.h"

static bool is_blank(char byte)
{
	return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* Takes the next word or "phrase" off @rest; a quote that does not end goes to the end.
 * @quoted: it began with one. */
static struct slice take(struct slice *rest, bool *quoted, bool *is_begin)
{
	struct slice text;
	size_t len = 0;

	*is_begin = false;
	*quoted = *rest->ptr == '"';
	if (*quoted) {
		*rest = slice_sub(*rest, 1, rest->len);
		len = slice_find(*rest, '"');
		text = slice_sub(*rest, 0, len);
		*rest = slice_sub(*rest, len + 1, rest->len);
		*is_begin = rest->len && *rest->ptr == '*';
		return text;
	}
	while (len < rest->len && !is_blank(rest->ptr[len])) {
		/* agent:"two words" */
		if (rest->ptr[len] == '"' && len && rest->ptr[len - 1] == ':')
			len += 1 + slice_find(slice_sub(*rest, len + 1, rest->len), '"');
		len++;
	}
	text = slice_sub(*rest, 0, len);
	*rest = slice_sub(*rest, len, rest->len);
	*is_begin = text.len && text.ptr[text.len - 1] == '*';
	return text;
}

static struct slice unquoted(struct slice value)
{
	if (value.len >= 1 && *value.ptr == '"')
		value = slice_sub(value, 1, value.len);
	if (value.len >= 1 && value.ptr[value.len - 1] == '"')
		value = slice_sub(value, 0, value.len - 1);
	return value;
}

static bool take_kinds(struct slice value, uint32_t *kinds, struct err *err)
{
	char quoted[LOG_QUOTE_BYTES];
	struct slice one;

	while (slice_take_until(&value, ',', &one)) {
		enum row_type type;

		if (!row_type_of(one, &type))
			return err_set(err, ERR_MALFORMED,
				       "kind:%.40s is none: prompt, message, thought, "
				       "plan, tool, permission, turn, output, note, "
				       "lifecycle, error or raw",
				       log_quote(one, quoted));
		*kinds |= 1u << type;
	}
	return true;
}

/* True also when @word is no filter; then it is left alone. */
static bool take_filter(struct slice *word, int64_t now_ms, struct search_query *out,
			struct err *err)
{
	const struct slice all = *word;
	const size_t colon = slice_find(all, ':');
	const struct slice name = slice_sub(all, 0, colon);
	const struct slice value = unquoted(slice_sub(all, colon + 1, all.len));
	char text[64];

	if (!value.len)
		return true;
	if (slice_eq(name, SLICE("agent"))) {
		out->agent = value;
	} else if (slice_eq(name, SLICE("kind"))) {
		if (!take_kinds(value, &out->kinds, err))
			return false;
	} else if (slice_eq(name, SLICE("since"))) {
		if (value.len >= sizeof(text))
			return err_set(err, ERR_MALFORMED, "since: is too long");
		memcpy(text, value.ptr, value.len);
		text[value.len] = '\0';
		if (!when_parse("since:", text, now_ms, &out->since_ms, err))
			return false;
	} else {
		return true;
	}
	*word = SLICE_EMPTY;
	return true;
}

bool search_query_parse(struct slice text, int64_t now_ms, struct search_query *out,
			struct err *err)
{
	struct slice rest;

	*out = (struct search_query){.since_ms = INT64_MIN, .text.max = SEARCH_QUERY_MAX};
	if (text.len > SEARCH_QUERY_MAX)
		return err_set(err, ERR_MALFORMED, "a search is at most %d bytes",
			       SEARCH_QUERY_MAX);
	if (!utf8_valid(text))
		return err_set(err, ERR_MALFORMED, "a search is UTF-8");
	(void)buf_append(&out->text, text);
	rest = buf_slice(&out->text);
	while (rest.len) {
		struct slice word;
		bool quoted, is_begin;

		if (is_blank(*rest.ptr) || *rest.ptr == '*') {
			rest = slice_sub(rest, 1, rest.len);
			continue;
		}
		word = take(&rest, &quoted, &is_begin);
		if (!quoted && !take_filter(&word, now_ms, out, err))
			goto failed;
		if (!word.len)
			continue;
		if (out->term_count == SEARCH_TERMS_MAX) {
			(void)err_set(err, ERR_MALFORMED, "a search is at most %d words",
				      SEARCH_TERMS_MAX);
			goto failed;
		}
		out->terms[out->term_count++] = (struct search_term){word, is_begin};
	}
	return true;
failed:
	search_query_finish(out);
	return false;
}

void search_query_finish(struct search_query *query)
{
	buf_finish(&query->text);
}
