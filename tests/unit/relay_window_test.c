#include "relay/window.h"

#include "tests/unit/support/relay_fixture.h"
#include "tests/unit/support/support.h"

static struct window window;
static struct arena arena;
static uint8_t owner[KEY_BYTES] = {1};
static uint8_t other[KEY_BYTES] = {2};

static void setup(void)
{
	window_init(&window);
	arena_init(&arena, 4096);
}

static void teardown(void)
{
	window_finish(&window);
	ck_assert_uint_eq(window.bytes, 0);
	arena_finish(&arena);
}

/* A frame that need not be true: the window asks for no signature. @id: its first byte,
 * and in the content so that it can be told. */
static void add_sized(const uint8_t *to, uint8_t id, int64_t created_at, int64_t now,
		      size_t filler)
{
	static const char hex64[] =
		"0000000000000000000000000000000000000000000000000000000000000000";
	struct event event;
	struct body *body;
	struct buf json;
	struct err err;
	char *space;

	buf_init(&json, EVENT_MAX_BYTES);
	(void)buf_printf(
		&json,
		"{\"id\":\"%02x%.62s\",\"pubkey\":\"%s\",\"sig\":\"%s%s\",\"kind\":"
		"24200,\"created_at\":%lld,\"tags\":[[\"n\",\"%u\"]],\"content\":\"",
		id, hex64, hex64, hex64, hex64, (long long)created_at, id);
	space = buf_extend(&json, filler);
	memset(space, 'A', filler);
	(void)buf_lit(&json, "\"}");
	ck_assert_msg(event_parse(buf_slice(&json), &arena, &event, &err), "%s",
		      err.text);
	body = body_create(buf_slice(&json));
	window_add(&window, to, &event, body, now);
	body_unref(body);
	buf_finish(&json);
}

static void add(const uint8_t *to, uint8_t id, int64_t created_at)
{
	add_sized(to, id, created_at, NOW, 10);
}

/* The ids' first bytes of what a REQ would get, as text: "1 2 3". */
static const char *select_as_text(const char *const *filter_texts, size_t filter_count,
				  const uint8_t *owners, size_t owner_count, int64_t now)
{
	static char text[1024];
	const struct window_entry **entries = NULL;
	const struct filter *filters[4];
	size_t count, i;
	struct err err;
	size_t len = 0;

	for (i = 0; i < filter_count; i++) {
		struct filter *filter = arena_alloc(&arena, sizeof(*filter));

		ck_assert_msg(
			filter_parse(slice_of(filter_texts[i]), &arena, filter, &err),
			"%s", err.text);
		filters[i] = filter;
	}
	count = window_select(&window, filters, filter_count, owners, owner_count, now,
			      &arena, &entries);
	text[0] = '\0';
	for (i = 0; i < count; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%u",
					i ? " " : "", entries[i]->id[0]);
	return text;
}

static const char *select_one(const char *filter)
{
	return select_as_text(&filter, 1, owner, 1, NOW);
}

START_TEST(frames_are_served_oldest_first_in_the_order_of_arrival_within_a_second)
{
	add(owner, 9, NOW - 2);
	add(owner, 3, NOW);
	add(owner, 7, NOW - 1);
	add(owner, 1, NOW);
	ck_assert_str_eq(select_one("{\"kinds\":[24200]}"), "9 7 3 1");
}
END_TEST

START_TEST(only_the_owners_frames_are_served)
{
	add(owner, 1, NOW);
	add(other, 2, NOW);
	ck_assert_str_eq(select_one("{}"), "1");
}
END_TEST

START_TEST(frames_of_several_own_keys_come_in_one_order)
{
	uint8_t both[2 * KEY_BYTES];
	const char *all = "{}";

	memcpy(both, owner, KEY_BYTES);
	memcpy(both + KEY_BYTES, other, KEY_BYTES);
	add(owner, 1, NOW - 3);
	add(other, 2, NOW - 2);
	add(owner, 3, NOW - 1);
	ck_assert_str_eq(select_as_text(&all, 1, both, 2, NOW), "1 2 3");
}
END_TEST

START_TEST(since_is_inclusive)
{
	char filter[64];

	add(owner, 1, NOW - 11);
	add(owner, 2, NOW - 10);
	add(owner, 3, NOW - 9);
	(void)snprintf(filter, sizeof(filter), "{\"since\":%lld}", (long long)NOW - 10);
	ck_assert_str_eq(select_one(filter), "2 3");
}
END_TEST

START_TEST(a_limit_takes_the_newest_first_and_the_lowest_id_on_ties)
{
	add(owner, 9, NOW);
	add(owner, 5, NOW);
	add(owner, 1, NOW - 1);
	add(owner, 7, NOW);
	ck_assert_str_eq(select_one("{\"limit\":3}"), "5 7 9");
	ck_assert_str_eq(select_one("{\"limit\":0}"), "");
}
END_TEST

START_TEST(each_filter_has_its_own_limit_and_an_event_comes_once)
{
	const char *filters[] = {"{\"limit\":1}", "{\"kinds\":[24200],\"limit\":2}"};

	add(owner, 1, NOW - 2);
	add(owner, 2, NOW - 1);
	add(owner, 3, NOW);
	ck_assert_str_eq(select_as_text(filters, 2, owner, 1, NOW), "3 2");
}
END_TEST

START_TEST(a_frame_is_kept_for_300_s_after_its_created_at)
{
	const char *all = "{}";

	add(owner, 1, NOW);
	ck_assert_str_eq(select_as_text(&all, 1, owner, 1, NOW + RELAY_WINDOW_S), "1");
	ck_assert_str_eq(select_as_text(&all, 1, owner, 1, NOW + RELAY_WINDOW_S + 1), "");
	ck_assert_uint_eq(window.bytes, 0);
}
END_TEST

START_TEST(an_owner_has_4_mib_and_loses_the_oldest)
{
	uint8_t id;

	for (id = 1; id <= 50; id++)
		add_sized(owner, id, NOW + id, NOW, 100000);
	ck_assert_uint_le(window.bytes, RELAY_WINDOW_OWNER_MAX);
	ck_assert_uint_ge(window.bytes, RELAY_WINDOW_OWNER_MAX - 110000);
	ck_assert_str_eq(select_one("{\"limit\":1}"), "50");
	ck_assert_ptr_null(strstr(select_one("{}"), " 5 "));
}
END_TEST

START_TEST(a_loud_owner_does_not_push_out_a_quiet_one)
{
	const char *all = "{}";
	uint8_t id;

	add(other, 1, NOW);
	for (id = 1; id <= 50; id++)
		add_sized(owner, id, NOW, NOW, 100000);
	ck_assert_str_eq(select_as_text(&all, 1, other, 1, NOW), "1");
}
END_TEST

START_TEST(all_owners_together_have_256_mib)
{
	uint8_t key[KEY_BYTES] = {0};
	unsigned i, n;

	for (i = 0; i < 70; i++) {
		key[0] = (uint8_t)i;
		for (n = 0; n < 17; n++)
			add_sized(key, (uint8_t)n, NOW, NOW, 240000);
		arena_reset(&arena);
	}
	ck_assert_uint_le(window.bytes, RELAY_WINDOW_MAX);
	ck_assert_uint_ge(window.bytes, RELAY_WINDOW_MAX - 250000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("relay/window");
	TCase *tcase = tcase_create("window");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(
		tcase,
		frames_are_served_oldest_first_in_the_order_of_arrival_within_a_second);
	tcase_add_test(tcase, only_the_owners_frames_are_served);
	tcase_add_test(tcase, frames_of_several_own_keys_come_in_one_order);
	tcase_add_test(tcase, since_is_inclusive);
	tcase_add_test(tcase, a_limit_takes_the_newest_first_and_the_lowest_id_on_ties);
	tcase_add_test(tcase, each_filter_has_its_own_limit_and_an_event_comes_once);
	tcase_add_test(tcase, a_frame_is_kept_for_300_s_after_its_created_at);
	tcase_add_test(tcase, an_owner_has_4_mib_and_loses_the_oldest);
	tcase_add_test(tcase, a_loud_owner_does_not_push_out_a_quiet_one);
	tcase_add_test(tcase, all_owners_together_have_256_mib);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
