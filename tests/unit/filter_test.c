#include <stdio.h>
#include <string.h>

#include "tests/unit/support/support.h"
#include "wire/base/arena.h"
#include "wire/nostr/filter.h"
#include "wire/nostr/json.h"

#define COUNT(table) (int)(sizeof(table) / sizeof((table)[0]))

#define KEY_A "000000000000000000000000000000000000000000000000000000000000000a"
#define KEY_B "000000000000000000000000000000000000000000000000000000000000000b"

static struct arena arena;

static void setup(void)
{
	arena_init(&arena, 4096);
}

static void teardown(void)
{
	arena_finish(&arena);
}

static struct filter parsed(const char *json)
{
	struct filter filter;
	struct err err = {ERR_NONE, ""};

	ck_assert_msg(filter_parse(slice_of(json), &arena, &filter, &err), "%s: %s", json,
		      err.text);
	return filter;
}

static const struct {
	const char *json;
	enum err_code code;
} refused[] = {
	{"[]", ERR_MALFORMED},
	{"{", ERR_MALFORMED},
	{"{}x", ERR_MALFORMED},
	{"{\"ids\":null}", ERR_MALFORMED},
	{"{\"ids\":\"" KEY_A "\"}", ERR_MALFORMED},
	{"{\"ids\":[\"0a\"]}", ERR_MALFORMED}, /* no prefixes */
	{"{\"authors\":["
	 "\"000000000000000000000000000000000000000000000000000000000000000A\"]}",
	 ERR_MALFORMED},
	{"{\"#e\":[\"abc\"]}", ERR_MALFORMED},
	{"{\"#p\":[\"\"]}", ERR_MALFORMED},
	{"{\"#t\":[1]}", ERR_MALFORMED},
	{"{\"#t\":[\"a\\u0000\"]}", ERR_MALFORMED},
	{"{\"#t\":\"a\"}", ERR_MALFORMED},
	{"{\"kinds\":[65536]}", ERR_MALFORMED},
	{"{\"kinds\":[1.5]}", ERR_MALFORMED},
	{"{\"kinds\":1}", ERR_MALFORMED},
	{"{\"since\":-1}", ERR_MALFORMED},
	{"{\"until\":\"1\"}", ERR_MALFORMED},
	{"{\"limit\":1.0}", ERR_MALFORMED},
	{"{\"limit\":1,\"limit\":2}", ERR_MALFORMED},
	{"{\"kinds\":[1],\"kinds\":[2]}", ERR_MALFORMED},
	{"{\"#t\":[\"a\"],\"#t\":[\"b\"]}", ERR_MALFORMED},
	{"{\"kinds\":[1 2]}", ERR_MALFORMED},
	/* Ignoring these would widen the match. */
	{"{\"search\":\"x\"}", ERR_REFUSED},
	{"{\"#alt\":[\"x\"]}", ERR_REFUSED},
	{"{\"#1\":[\"x\"]}", ERR_REFUSED},
	{"{\"&t\":[\"x\"]}", ERR_REFUSED},
	{"{\"\":1}", ERR_REFUSED},
	{"{\"Kinds\":[1]}", ERR_REFUSED},
};

START_TEST(filters_of_a_wrong_shape_are_refused)
{
	struct filter filter;
	struct err err;

	ck_assert_msg(!filter_parse(slice_of(refused[_i].json), &arena, &filter, &err),
		      "%s", refused[_i].json);
	ck_assert_msg(err.code == refused[_i].code, "%s: %s", refused[_i].json, err.text);
}
END_TEST

START_TEST(a_filter_is_read_into_sorted_lists)
{
	const struct filter filter =
		parsed("{\"kinds\":[7,1],\"authors\":[\"" KEY_B "\",\"" KEY_A
		       "\"],\"#t\":[\"b\","
		       "\"\\u0061\"],\"#T\":[],\"since\":1,\"until\":2,\"limit\":0}");

	ck_assert(filter.has_kinds);
	ck_assert_uint_eq(filter.kind_count, 2);
	ck_assert_uint_eq(filter.kinds[0], 1);
	ck_assert(filter.authors.present);
	ck_assert_uint_eq(filter.authors.count, 2);
	ck_assert_uint_eq(filter.authors.keys[0][31], 0x0a);
	ck_assert(!filter.ids.present);
	ck_assert_uint_eq(filter.tag_count, 2);
	assert_slice_eq(filter_tag(&filter, 't')->values[0], "a");
	ck_assert_uint_eq(filter_tag(&filter, 'T')->count, 0);
	ck_assert_ptr_null(filter_tag(&filter, 'e'));
	ck_assert(filter.has_since && filter.has_until && filter.has_limit);
	ck_assert_int_eq(filter.since, 1);
	ck_assert_int_eq(filter.until, 2);
	ck_assert_int_eq(filter.limit, 0);
}
END_TEST

START_TEST(more_than_5000_values_are_too_many)
{
	struct filter filter;
	struct buf text;
	struct err err;

	buf_init(&text, 64 * 1024);
	(void)buf_lit(&text, "{\"#t\":[\"x\"],\"kinds\":[1");
	for (int i = 2; i < FILTER_VALUES_MAX; i++)
		(void)buf_lit(&text, ",1");
	(void)buf_lit(&text, "]}");
	ck_assert(filter_parse(buf_slice(&text), &arena, &filter, &err));
	buf_truncate(&text, text.len - 2);
	(void)buf_lit(&text, ",1]}");
	ck_assert(!filter_parse(buf_slice(&text), &arena, &filter, &err));
	ck_assert_int_eq(err.code, ERR_TOO_LARGE);
	buf_finish(&text);
}
END_TEST

static struct slice values_t_x[] = {SLICE_INIT("t"), SLICE_INIT("x"), SLICE_INIT("y")};
static struct slice values_t[] = {SLICE_INIT("t")};
static struct slice values_p[] = {SLICE_INIT("p"), SLICE_INIT(KEY_A)};
static struct tag event_tags[] = {{values_t, 1}, {values_t_x, 3}, {values_p, 2}};

static struct event an_event(void)
{
	struct event event = {
		.created_at = 100, .kind = 1, .tags = event_tags, .tag_count = 3};

	event.id[31] = 0x0b;
	event.pubkey[31] = 0x0a;
	return event;
}

static const struct {
	const char *json;
	bool matches;
} matches[] = {
	{"{}", true},
	{"{\"limit\":0}", true}, /* says nothing about live events */
	{"{\"kinds\":[0,1,2]}", true},
	{"{\"kinds\":[0,2]}", false},
	{"{\"kinds\":[]}", false}, /* an empty list matches nothing */
	{"{\"ids\":[]}", false},
	{"{\"authors\":[]}", false},
	{"{\"#t\":[]}", false},
	{"{\"ids\":[\"" KEY_A "\",\"" KEY_B "\"]}", true},
	{"{\"ids\":[\"" KEY_A "\"]}", false},
	{"{\"authors\":[\"" KEY_A "\"]}", true},
	{"{\"authors\":[\"" KEY_B "\"]}", false},
	{"{\"since\":100,\"until\":100}", true}, /* both inclusive */
	{"{\"since\":101}", false},
	{"{\"until\":99}", false},
	{"{\"#t\":[\"a\",\"x\"]}", true},
	{"{\"#t\":[\"y\"]}", false}, /* only the first value is indexed */
	{"{\"#t\":[\"\"]}", false},  /* a tag without a value has none */
	{"{\"#T\":[\"x\"]}", false}, /* case counts */
	{"{\"#p\":[\"" KEY_A "\"]}", true},
	{"{\"#p\":[\"" KEY_B "\"]}", false},
	{"{\"#p\":[\"" KEY_A "\"],\"#t\":[\"x\"],\"kinds\":[1]}", true},
	{"{\"#p\":[\"" KEY_A "\"],\"#t\":[\"x\"],\"kinds\":[2]}", false},
};

START_TEST(conditions_are_joined_by_and_their_values_by_or)
{
	const struct filter filter = parsed(matches[_i].json);
	const struct event event = an_event();

	ck_assert_msg(filter_match(&filter, &event) == matches[_i].matches, "%s",
		      matches[_i].json);
}
END_TEST

/* A small world, so that random filters and events meet often. */
static uint32_t random_below(uint64_t *state, uint32_t below)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 33) % below;
}

/* A filter as its JSON and, beside it, as the plainest thing one can match with. */
struct naive {
	int ids[3], authors[3], kinds[3], t[3];
	int id_count, author_count, kind_count, t_count; /* -1: absent */
	int since, until;                                /* -1: absent */
};

static void random_list(uint64_t *state, int *values, int *count)
{
	*count = (int)random_below(state, 5) - 1;
	if (*count < 0 || random_below(state, 2))
		*count = -1;
	for (int i = 0; i < *count; i++)
		values[i] = (int)random_below(state, 4);
}

static void write_list(struct buf *out, const char *name, const int *values, int count,
		       const char *format)
{
	if (count < 0)
		return;
	(void)json_write_key(out, slice_of(name));
	for (int i = 0; i < count; i++) {
		(void)buf_append_byte(out, i ? ',' : '[');
		if (!strcmp(format, "key"))
			(void)buf_printf(out, "\"%064x\"", (unsigned)values[i]);
		else if (!strcmp(format, "text"))
			(void)buf_printf(out, "\"v%d\"", values[i]);
		else
			(void)buf_printf(out, "%d", values[i]);
	}
	(void)(count ? buf_lit(out, "]") : buf_lit(out, "[]"));
}

static struct naive random_filter(uint64_t *state, struct buf *json)
{
	struct naive naive = {.since = (int)random_below(state, 8) - 4,
			      .until = (int)random_below(state, 8)};

	random_list(state, naive.ids, &naive.id_count);
	random_list(state, naive.authors, &naive.author_count);
	random_list(state, naive.kinds, &naive.kind_count);
	random_list(state, naive.t, &naive.t_count);
	if (naive.until > 4)
		naive.until = -1;
	buf_clear(json);
	(void)buf_lit(json, "{");
	write_list(json, "#t", naive.t, naive.t_count, "text");
	write_list(json, "ids", naive.ids, naive.id_count, "key");
	write_list(json, "kinds", naive.kinds, naive.kind_count, "number");
	write_list(json, "authors", naive.authors, naive.author_count, "key");
	if (naive.since >= 0)
		(void)json_write_member_int(json, SLICE("since"), naive.since);
	else
		naive.since = -1;
	if (naive.until >= 0)
		(void)json_write_member_int(json, SLICE("until"), naive.until);
	(void)buf_lit(json, "}");
	return naive;
}

static bool in_list(int value, const int *values, int count)
{
	for (int i = 0; i < count; i++)
		if (values[i] == value)
			return true;
	return count < 0;
}

START_TEST(random_filters_agree_with_a_naive_matcher)
{
	uint64_t state = 20261130;
	int hits = 0;
	struct buf json;

	buf_init(&json, 4096);
	for (int round = 0; round < 20000; round++) {
		const struct naive naive = random_filter(&state, &json);
		const int id = (int)random_below(&state, 4);
		const int author = (int)random_below(&state, 4);
		const int kind = (int)random_below(&state, 4);
		const int time = (int)random_below(&state, 5);
		const int tag_count = (int)random_below(&state, 3);
		struct event event = {.created_at = time, .kind = (uint32_t)kind};
		char texts[2][8];
		struct slice values[2][2];
		struct tag tags[2];
		bool tag_hit = naive.t_count < 0, want;
		struct filter filter;

		event.id[31] = (uint8_t)id;
		event.pubkey[31] = (uint8_t)author;
		for (int i = 0; i < tag_count; i++) {
			const int value = (int)random_below(&state, 4);
			const bool is_t = random_below(&state, 3) != 0;

			(void)snprintf(texts[i], sizeof(texts[i]), "v%d", value);
			values[i][0] = is_t ? SLICE("t") : SLICE("tt");
			values[i][1] = slice_of(texts[i]);
			tags[i] = (struct tag){values[i], 2};
			if (is_t && naive.t_count > 0)
				tag_hit |= in_list(value, naive.t, naive.t_count);
		}
		event.tags = tags;
		event.tag_count = (size_t)tag_count;
		want = tag_hit && in_list(id, naive.ids, naive.id_count) &&
		       in_list(author, naive.authors, naive.author_count) &&
		       in_list(kind, naive.kinds, naive.kind_count) &&
		       (naive.since < 0 || time >= naive.since) &&
		       (naive.until < 0 || time <= naive.until);
		arena_reset(&arena);
		ck_assert(filter_parse(buf_slice(&json), &arena, &filter, NULL));
		ck_assert_msg(filter_match(&filter, &event) == want, "round %d: %s",
			      round, buf_text(&json));
		hits += want;
	}
	/* Both answers must have been common, or nothing was compared. */
	ck_assert_int_gt(hits, 1000);
	ck_assert_int_lt(hits, 19000);
	buf_finish(&json);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("filter");
	TCase *tcase = tcase_create("filter");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, filters_of_a_wrong_shape_are_refused, 0,
			    COUNT(refused));
	tcase_add_test(tcase, a_filter_is_read_into_sorted_lists);
	tcase_add_test(tcase, more_than_5000_values_are_too_many);
	tcase_add_loop_test(tcase, conditions_are_joined_by_and_their_values_by_or, 0,
			    COUNT(matches));
	tcase_add_test(tcase, random_filters_agree_with_a_naive_matcher);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
