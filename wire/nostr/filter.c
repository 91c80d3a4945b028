#include "wire/nostr/filter.h"

#include <stdlib.h>
#include <string.h>

#include "wire/nostr/json.h"

enum filter_member {
	MEMBER_IDS = 1 << 0,
	MEMBER_AUTHORS = 1 << 1,
	MEMBER_KINDS = 1 << 2,
	MEMBER_SINCE = 1 << 3,
	MEMBER_UNTIL = 1 << 4,
	MEMBER_LIMIT = 1 << 5,
};

struct parser {
	struct json json;
	struct arena *arena;
	struct filter filter;
	unsigned seen;
	size_t values; /* in all lists so far */
	struct err *err;
};

static bool wrong(struct parser *parser, struct slice name, const char *want)
{
	return err_set(parser->err, ERR_MALFORMED, "filter: %.*s is not %s",
		       SLICE_ARG(name), want);
}

/* Makes room in an arena array for one more value; false beyond the limit on all values.
 */
static bool grow(struct parser *parser, void **array, size_t count, size_t size,
		 size_t *room)
{
	void *grown;

	if (parser->values == FILTER_VALUES_MAX) {
		(void)err_set(parser->err, ERR_TOO_LARGE, "filter: more than %d values",
			      FILTER_VALUES_MAX);
		return false;
	}
	parser->values++;
	if (count < *room)
		return true;
	*room = *room ? 2 * *room : 8;
	grown = arena_array(parser->arena, *room, size);
	if (*array != NULL)
		memcpy(grown, *array, count * size);
	*array = grown;
	return true;
}

static int compare_keys(const void *a, const void *b)
{
	return memcmp(a, b, KEY_BYTES);
}

static int compare_kinds(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int compare_slices(const void *a, const void *b)
{
	const struct slice *x = a, *y = b;

	return slice_compare(*x, *y);
}

static bool parse_keys(struct parser *parser, struct slice name, struct filter_list *list)
{
	struct json *const json = &parser->json;
	void *array = NULL;
	size_t room = 0;

	if (!json_enter_array(json))
		return wrong(parser, name, "an array");
	while (json_element(json)) {
		struct slice raw;

		if (!grow(parser, &array, list->count, KEY_BYTES, &room))
			return false;
		list->keys = array;
		if (!json_string(json, &raw) ||
		    !hex_decode(json_decode(raw, parser->arena), list->keys[list->count],
				KEY_BYTES))
			return wrong(parser, name,
				     "a list of 64 lower-case hex digits each");
		list->count++;
	}
	list->present = true;
	if (list->count)
		qsort(list->keys, list->count, KEY_BYTES, compare_keys);
	return true;
}

static bool parse_kinds(struct parser *parser)
{
	struct filter *const filter = &parser->filter;
	struct json *const json = &parser->json;
	void *array = NULL;
	size_t room = 0;

	if (!json_enter_array(json))
		return wrong(parser, SLICE("kinds"), "an array");
	while (json_element(json)) {
		int64_t kind;

		if (!grow(parser, &array, filter->kind_count, sizeof(uint32_t), &room))
			return false;
		filter->kinds = array;
		if (!json_int(json, 0, EVENT_KIND_MAX, &kind))
			return wrong(parser, SLICE("kinds"),
				     "a list of integers to 65535");
		filter->kinds[filter->kind_count++] = (uint32_t)kind;
	}
	filter->has_kinds = true;
	if (filter->kind_count)
		qsort(filter->kinds, filter->kind_count, sizeof(uint32_t), compare_kinds);
	return true;
}

static bool parse_values(struct parser *parser, struct slice name, struct filter_tag *tag)
{
	/* NIP-01: "#e and #p ... must contain exact 64-character lowercase hex values".
	 */
	const bool is_key = tag->letter == 'e' || tag->letter == 'p';
	struct json *const json = &parser->json;
	uint8_t key[KEY_BYTES];
	void *array = NULL;
	size_t room = 0;

	if (!json_enter_array(json))
		return wrong(parser, name, "an array");
	while (json_element(json)) {
		struct slice raw, value;

		if (!grow(parser, &array, tag->count, sizeof(struct slice), &room))
			return false;
		tag->values = array;
		if (!json_string(json, &raw) || json_has_nul(raw))
			return wrong(parser, name, "a list of strings without NUL");
		value = json_decode(raw, parser->arena);
		if (is_key && !hex_decode(value, key, sizeof(key)))
			return wrong(parser, name,
				     "a list of 64 lower-case hex digits each");
		tag->values[tag->count++] = value;
	}
	if (array != NULL)
		qsort(array, tag->count, sizeof(struct slice), compare_slices);
	return true;
}

static bool parse_tag(struct parser *parser, struct slice name)
{
	struct filter *const filter = &parser->filter;
	struct filter_tag *tag;

	if (filter_tag(filter, name.ptr[1]))
		return err_set(parser->err, ERR_MALFORMED, "filter: %.*s is given twice",
			       SLICE_ARG(name));
	/* Few have more than one or two of the 52 letters, and subscriptions keep them.
	 */
	if ((filter->tag_count & (filter->tag_count - 1)) == 0) {
		struct filter_tag *tags = arena_array(
			parser->arena, 2 * filter->tag_count + 1, sizeof(*tags));

		if (filter->tag_count)
			memcpy(tags, filter->tags, filter->tag_count * sizeof(*tags));
		filter->tags = tags;
	}
	tag = &filter->tags[filter->tag_count++];
	tag->letter = name.ptr[1];
	return parse_values(parser, name, tag);
}

static bool parse_number(struct parser *parser, struct slice name, bool *has,
			 int64_t *out)
{
	if (!json_int(&parser->json, 0, INT64_MAX, out))
		return wrong(parser, name, "an integer of 0 or more");
	*has = true;
	return true;
}

static bool first_time(struct parser *parser, struct slice name,
		       enum filter_member member)
{
	if (parser->seen & member)
		return err_set(parser->err, ERR_MALFORMED, "filter: %.*s is given twice",
			       SLICE_ARG(name));
	parser->seen |= member;
	return true;
}

static bool is_letter(char byte)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

static bool parse_member(struct parser *parser, struct slice name)
{
	struct filter *const filter = &parser->filter;

	if (slice_eq(name, SLICE("ids")))
		return first_time(parser, name, MEMBER_IDS) &&
		       parse_keys(parser, name, &filter->ids);
	if (slice_eq(name, SLICE("authors")))
		return first_time(parser, name, MEMBER_AUTHORS) &&
		       parse_keys(parser, name, &filter->authors);
	if (slice_eq(name, SLICE("kinds")))
		return first_time(parser, name, MEMBER_KINDS) && parse_kinds(parser);
	if (slice_eq(name, SLICE("since")))
		return first_time(parser, name, MEMBER_SINCE) &&
		       parse_number(parser, name, &filter->has_since, &filter->since);
	if (slice_eq(name, SLICE("until")))
		return first_time(parser, name, MEMBER_UNTIL) &&
		       parse_number(parser, name, &filter->has_until, &filter->until);
	if (slice_eq(name, SLICE("limit")))
		return first_time(parser, name, MEMBER_LIMIT) &&
		       parse_number(parser, name, &filter->has_limit, &filter->limit);
	if (name.len == 2 && name.ptr[0] == '#' && is_letter(name.ptr[1]))
		return parse_tag(parser, name);
	/* Ignoring a condition would widen the match. The name is the peer's: not
	 * repeated. */
	return err_set(parser->err, ERR_REFUSED, "filter: unknown condition");
}

bool filter_parse(struct slice json, struct arena *arena, struct filter *out,
		  struct err *err)
{
	struct parser parser = {.arena = arena, .err = err};
	struct slice key;

	json_init(&parser.json, json);
	if (!json_enter_object(&parser.json))
		return err_set(err, ERR_MALFORMED, "filter is not a JSON object");
	while (json_member(&parser.json, &key))
		if (!parse_member(&parser, json_decode(key, arena)))
			return false;
	if (!json_end(&parser.json, err))
		return false;
	*out = parser.filter;
	return true;
}

static bool list_has(const struct filter_list *list, const uint8_t key[KEY_BYTES])
{
	return !list->present || (list->count && bsearch(key, list->keys, list->count,
							 KEY_BYTES, compare_keys));
}

static bool tag_matches(const struct filter_tag *wanted, const struct event *event)
{
	for (size_t i = 0; wanted->count && i < event->tag_count; i++) {
		const struct tag *tag = &event->tags[i];

		if (tag->count > 1 && tag->values[0].len == 1 &&
		    tag->values[0].ptr[0] == wanted->letter &&
		    bsearch(&tag->values[1], wanted->values, wanted->count,
			    sizeof(struct slice), compare_slices))
			return true;
	}
	return false;
}

bool filter_match(const struct filter *filter, const struct event *event)
{
	if (filter->has_kinds &&
	    (!filter->kind_count ||
	     !bsearch(&event->kind, filter->kinds, filter->kind_count, sizeof(uint32_t),
		      compare_kinds)))
		return false;
	if ((filter->has_since && event->created_at < filter->since) ||
	    (filter->has_until && event->created_at > filter->until))
		return false;
	if (!list_has(&filter->authors, event->pubkey) ||
	    !list_has(&filter->ids, event->id))
		return false;
	for (size_t i = 0; i < filter->tag_count; i++)
		if (!tag_matches(&filter->tags[i], event))
			return false;
	return true;
}

const struct filter_tag *filter_tag(const struct filter *filter, char letter)
{
	for (size_t i = 0; i < filter->tag_count; i++)
		if (filter->tags[i].letter == letter)
			return &filter->tags[i];
	return NULL;
}
