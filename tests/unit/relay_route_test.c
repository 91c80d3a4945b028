#include "relay/route.h"

#include "tests/unit/support/relay_fixture.h"
#include "tests/unit/support/support.h"

#define KEYS 3 /* of readers and writers in the random test */

static struct fixture fixture;
static struct route route;
static struct err err;
static bool gated;

static void setup(void)
{
	fixture_init(&fixture);
	route_init(&route);
}

static void teardown(void)
{
	route_finish(&route);
	fixture_finish(&fixture);
}

static struct subscription *subscribe(const char *filter, const struct keypair *reader)
{
	struct slice text = slice_of(filter);

	return subscription_create(SLICE("sub"), &text, 1,
				   reader ? keypair_public(reader) : NULL, reader ? 1 : 0,
				   &gated, &err);
}

static void on_match(void *ctx, struct subscription *sub)
{
	int *count = ctx;

	(void)sub;
	(*count)++;
}

static int matches_of(const struct event *event)
{
	int count = 0;

	route_event(&route, event, on_match, &count);
	return count;
}

static const char *frames_for(const struct keypair *key, const char *more)
{
	static char filter[512];
	char hex[65];

	fixture_hex(key, hex);
	(void)snprintf(filter, sizeof(filter), "{\"kinds\":[24200],\"#p\":[\"%s\"]%s}",
		       hex, more);
	return filter;
}

static void assert_gated(const char *filter, const struct keypair *reader)
{
	ck_assert_ptr_null(subscribe(filter, reader));
	ck_assert(gated);
}

static void assert_hears_frame(bool hears, const char *filter)
{
	struct event event = fixture_event(&fixture, (struct recipe){0});
	struct subscription *sub = subscribe(filter, fixture.owner);

	ck_assert_msg(sub != NULL, "%s", err.text);
	route_add(&route, sub);
	ck_assert_int_eq(matches_of(&event), hears ? 1 : 0);
	route_remove(&route, sub);
	subscription_destroy(sub);
}

START_TEST(a_filter_for_frames_alone_needs_own_p)
{
	assert_gated("{\"kinds\":[24200]}", fixture.owner);
	assert_gated(frames_for(fixture.stranger, ""), fixture.owner);
	assert_gated(frames_for(fixture.owner, ""), NULL);
}
END_TEST

START_TEST(one_foreign_key_among_p_makes_the_filter_foreign)
{
	char own[65], foreign[65], filter[512];

	fixture_hex(fixture.owner, own);
	fixture_hex(fixture.stranger, foreign);
	(void)snprintf(filter, sizeof(filter),
		       "{\"kinds\":[24200],\"#p\":[\"%s\",\"%s\"]}", own, foreign);
	assert_gated(filter, fixture.owner);
}
END_TEST

START_TEST(a_filter_with_own_p_hears_frames)
{
	assert_hears_frame(true, frames_for(fixture.owner, ""));
}
END_TEST

START_TEST(a_filter_without_kinds_and_with_own_p_hears_frames)
{
	char own[65], filter[256];

	fixture_hex(fixture.owner, own);
	(void)snprintf(filter, sizeof(filter), "{\"#p\":[\"%s\"]}", own);
	assert_hears_frame(true, filter);
}
END_TEST

START_TEST(broader_filters_never_hear_frames)
{
	assert_hears_frame(false, "{}");
	assert_hears_frame(false, "{\"kinds\":[1,24200]}");
	assert_hears_frame(false, "{\"since\":0}");
}
END_TEST

START_TEST(an_empty_list_of_kinds_matches_nothing_and_is_not_gated)
{
	assert_hears_frame(false, frames_for(fixture.owner, ",\"ids\":[]"));
	assert_hears_frame(false, "{\"kinds\":[]}");
}
END_TEST

START_TEST(the_other_conditions_hold_for_frames_too)
{
	assert_hears_frame(false, frames_for(fixture.owner, ",\"since\":1796000001"));
	assert_hears_frame(true, frames_for(fixture.owner, ",\"since\":1796000000"));
	assert_hears_frame(false, frames_for(fixture.owner, ",\"until\":1795999999"));
	assert_hears_frame(false, frames_for(fixture.owner, ",\"#h\":[\"group\"]"));
}
END_TEST

START_TEST(an_event_comes_once_when_two_filters_match)
{
	struct event event = fixture_event(&fixture, (struct recipe){0});
	char first[512];
	struct slice filters[2];
	struct subscription *sub;

	(void)snprintf(first, sizeof(first), "%s", frames_for(fixture.owner, ""));
	filters[0] = slice_of(first);
	filters[1] = slice_of(frames_for(fixture.owner, ",\"since\":0"));
	sub = subscription_create(SLICE("sub"), filters, 2, keypair_public(fixture.owner),
				  1, &gated, &err);
	ck_assert_msg(sub != NULL, "%s", err.text);
	route_add(&route, sub);
	ck_assert_int_eq(matches_of(&event), 1);
	route_remove(&route, sub);
	subscription_destroy(sub);
}
END_TEST

START_TEST(a_bad_filter_is_refused_and_not_called_gated)
{
	ck_assert_ptr_null(subscribe("{\"ids\":[\"x\"]}", fixture.owner));
	ck_assert(!gated);
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert_ptr_null(subscribe("{\"search\":\"x\"}", fixture.owner));
	ck_assert(!gated);
	ck_assert_int_eq(err.code, ERR_REFUSED);
}
END_TEST

/* The index against the rule itself: random subscriptions come and go, and every event
 * reaches exactly those of which one filter matches, and for frames, names own keys only.
 */

struct world {
	const struct keypair *keys[KEYS];
	struct subscription *subs[40];
	char filters[40][512];
	int reader[40]; /* whose key the subscription has */
	char id[65];    /* of an event that comes again and again */
	uint64_t random;
};

static unsigned next_random(struct world *world, unsigned below)
{
	world->random =
		world->random * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (unsigned)(world->random >> 33) % below;
}

/* Appends no, one or two random keys as a condition; an empty list now and then. */
static void random_keys(struct world *world, const char *name, struct buf *out)
{
	unsigned count = next_random(world, 8);
	char hex[65];

	if (count > 3)
		return;
	(void)buf_printf(out, "\"%s\":[", name);
	for (unsigned i = 1; i < count; i++) {
		fixture_hex(world->keys[next_random(world, KEYS)], hex);
		(void)buf_printf(out, "%s\"%s\"", i > 1 ? "," : "", hex);
	}
	(void)buf_printf(out, "],");
}

static void random_filter(struct world *world, int i)
{
	static const char *const kinds[] = {"", "\"kinds\":[24200],",
					    "\"kinds\":[20001],",
					    "\"kinds\":[20001,24200],"};
	static const char *const topics[] = {"",
					     "",
					     "",
					     "\"#t\":[\"x\"],",
					     "\"#t\":[\"y\",\"x\",\"x\"],",
					     "\"#T\":[\"\"],"};
	struct buf out;

	buf_init(&out, sizeof(world->filters[i]));
	(void)buf_printf(&out, "{%s%s", kinds[next_random(world, 4)],
			 topics[next_random(world, 6)]);
	random_keys(world, "#p", &out);
	random_keys(world, "authors", &out);
	if (next_random(world, 8) == 0)
		(void)buf_printf(&out, "\"ids\":[\"%s\"],", world->id);
	(void)buf_printf(&out, "\"since\":%u}", next_random(world, 3));
	(void)snprintf(world->filters[i], sizeof(world->filters[i]), "%s",
		       buf_text(&out));
	buf_finish(&out);
}

/* All #p of the text are the reader's: two keys at most, so it is easy to see. */
static bool only_own_p(const struct world *world, int i)
{
	const char *p = strstr(world->filters[i], "\"#p\":[\"");
	char own[65];
	int key;

	if (!p)
		return false;
	for (key = 0; key < KEYS; key++) {
		const char *at;

		fixture_hex(world->keys[key], own);
		at = strstr(p, own);
		if (key != world->reader[i] && at && at < strchr(p, ']'))
			return false;
	}
	return true;
}

static bool naive_match(const struct world *world, int i, const struct event *event)
{
	struct filter filter;

	if (!world->subs[i])
		return false;
	ck_assert(
		filter_parse(slice_of(world->filters[i]), &fixture.arena, &filter, &err));
	return filter_match(&filter, event) &&
	       (event->kind != FRAME_KIND || only_own_p(world, i));
}

static void mark(void *ctx, struct subscription *sub)
{
	bool *got = ctx;
	const int *i = sub->reader;

	ck_assert(!got[*i]);
	got[*i] = true;
}

static struct event random_event(struct world *world)
{
	static const char *const tags[] = {
		"[\"t\",\"x\"],[\"t\",\"y\"],[\"t\",\"x\"]", "[\"t\"],[\"tt\",\"x\"]",
		"[\"t\",\"z\"],[\"T\",\"\"]", "[\"T\",\"x\"],[\"t\",\"\"]"};
	struct recipe recipe = {.p = world->keys[next_random(world, KEYS)],
				.author = world->keys[next_random(world, KEYS)],
				.kind = next_random(world, 2) ? FRAME_KIND : 20001,
				.more_tags = slice_of(tags[next_random(world, 4)]),
				.created_at = 1 + next_random(world, 3)};

	if (next_random(world, 10) == 0)
		recipe = (struct recipe){.kind = 20001, .created_at = 2};
	return fixture_event(&fixture, recipe);
}

/* One subscription comes, or goes if it is there. */
static void change(struct world *world, int i)
{
	static int numbers[40];

	if (world->subs[i]) {
		route_remove(&route, world->subs[i]);
		subscription_destroy(world->subs[i]);
		world->subs[i] = NULL;
		return;
	}
	random_filter(world, i);
	world->reader[i] = (int)next_random(world, KEYS);
	world->subs[i] = subscribe(world->filters[i], world->keys[world->reader[i]]);
	if (!world->subs[i])
		return;
	numbers[i] = i;
	world->subs[i]->reader = &numbers[i];
	route_add(&route, world->subs[i]);
}

START_TEST(the_index_agrees_with_the_naive_rule)
{
	struct world world = {.keys = {fixture.agent, fixture.owner, fixture.stranger},
			      .random = (uint64_t)_i + 1};
	struct event often =
		fixture_event(&fixture, (struct recipe){.kind = 20001, .created_at = 2});
	int round, i;

	hex_encode(often.id, sizeof(often.id), world.id);
	for (round = 0; round < 200; round++) {
		bool got[40] = {false};
		struct event event = random_event(&world);

		change(&world, (int)next_random(&world, 40));
		route_event(&route, &event, mark, got);
		for (i = 0; i < 40; i++)
			ck_assert_msg(got[i] == naive_match(&world, i, &event),
				      "%s kind %u", world.filters[i], event.kind);
	}
	for (i = 0; i < 40; i++) {
		if (world.subs[i])
			route_remove(&route, world.subs[i]);
		subscription_destroy(world.subs[i]);
	}
}
END_TEST

/* Adds 300 subscriptions to @format, each with a number of its own, and says with how
 * many of them @event was compared. */
static uint64_t compared_with(const char *format, const struct event *event)
{
	struct subscription *subs[300];
	struct buf filter;
	uint64_t looked;
	unsigned i;

	buf_init(&filter, 512);
	for (i = 0; i < 300; i++) {
		buf_clear(&filter);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		(void)buf_printf(&filter, format, i, i);
#pragma GCC diagnostic pop
		subs[i] = subscribe(buf_text(&filter), fixture.owner);
		ck_assert_msg(subs[i] != NULL, "%s", err.text);
		route_add(&route, subs[i]);
	}
	looked = route.looked;
	(void)matches_of(event);
	looked = route.looked - looked;
	for (i = 0; i < 300; i++) {
		route_remove(&route, subs[i]);
		subscription_destroy(subs[i]);
	}
	buf_finish(&filter);
	return looked;
}

START_TEST(an_event_is_compared_with_its_candidates_only)
{
	struct event event = fixture_event(
		&fixture,
		(struct recipe){.kind = 20001,
				.tags = "[[\"t\",\"7\"],[\"t\",\"8\"],[\"t\",\"8\"]]"});

	ck_assert_uint_eq(compared_with("{\"#t\":[\"%u\"]}", &event), 2);
	ck_assert_uint_eq(compared_with("{\"#t\":[\"%u\",\"x%u\"]}", &event), 2);
	ck_assert_uint_eq(compared_with("{\"kinds\":[%u]}", &event), 0);
	ck_assert_uint_eq(compared_with("{\"kinds\":[20%03u,1]}", &event), 1);
	ck_assert_uint_eq(compared_with("{\"authors\":[\"%064u\"]}", &event), 0);
	ck_assert_uint_eq(
		compared_with("{\"ids\":[\"%064u\"],\"kinds\":[20001]}", &event), 0);
	ck_assert_uint_eq(compared_with("{\"authors\":[\"%064u\",\"%064x\"],"
					"\"#t\":[\"7\"]}",
					&event),
			  300);
	ck_assert_uint_eq(compared_with("{\"since\":%u}", &event), 300);
}
END_TEST

START_TEST(a_frame_is_compared_with_readers_of_its_p_only)
{
	struct event frame = fixture_event(&fixture, (struct recipe){0});
	struct subscription *own =
		subscribe(frames_for(fixture.owner, ""), fixture.owner);

	route_add(&route, own);
	ck_assert_uint_eq(compared_with("{\"kinds\":[24200,%u]}", &frame), 1);
	ck_assert_uint_eq(compared_with("{\"since\":%u}", &frame), 1);
	route_remove(&route, own);
	subscription_destroy(own);
}
END_TEST

START_TEST(what_the_lists_take_is_counted)
{
	struct subscription *one = subscribe("{\"#t\":[\"a\"]}", fixture.owner);
	struct subscription *three =
		subscribe("{\"#t\":[\"a\",\"b\",\"c\"]}", fixture.owner);

	ck_assert_uint_ge(three->bytes, one->bytes + 2 * 192);
	subscription_destroy(one);
	subscription_destroy(three);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("relay/route");
	TCase *tcase = tcase_create("route");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_filter_for_frames_alone_needs_own_p);
	tcase_add_test(tcase, one_foreign_key_among_p_makes_the_filter_foreign);
	tcase_add_test(tcase, a_filter_with_own_p_hears_frames);
	tcase_add_test(tcase, a_filter_without_kinds_and_with_own_p_hears_frames);
	tcase_add_test(tcase, broader_filters_never_hear_frames);
	tcase_add_test(tcase, an_empty_list_of_kinds_matches_nothing_and_is_not_gated);
	tcase_add_test(tcase, the_other_conditions_hold_for_frames_too);
	tcase_add_test(tcase, an_event_comes_once_when_two_filters_match);
	tcase_add_test(tcase, a_bad_filter_is_refused_and_not_called_gated);
	tcase_add_loop_test(tcase, the_index_agrees_with_the_naive_rule, 0, 10);
	tcase_add_test(tcase, an_event_is_compared_with_its_candidates_only);
	tcase_add_test(tcase, a_frame_is_compared_with_readers_of_its_p_only);
	tcase_add_test(tcase, what_the_lists_take_is_counted);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
