#include "relay/store_scan.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/store.h"
#include "relay/store_put.h"
#include "tests/unit/support/support.h"
#include "wire/frame/limits.h"

/* Filters against a matcher too simple to be wrong: live, by scan and by count. */

#define EVENTS 300
#define ROUNDS 100

/* Small worlds, so that conditions meet: an author is a digit, so is a tag's value. */
struct thing {
	int id, author, kind, at, t, e; /* t, e: -1 for no such tag */
	struct event event;
	uint8_t rank[RANK_BYTES];
};

/* -1 at the first place: no such condition; a list ends with -1 or after 3. */
struct wish {
	int ids[4], authors[4], kinds[4], t[4], e[4];
	int since, until, limit;
};

static char folder[64];
static struct store *store;
static struct store_put *put;
static struct store_scanner *scanner;
static struct arena arena;
static struct thing things[EVENTS];
static size_t thing_count;

/* The naive matcher */

static bool listed(const int list[4], int value)
{
	int i;

	if (list[0] < 0)
		return true;
	for (i = 0; i < 4 && list[i] >= 0; i++)
		if (list[i] == value)
			return true;
	return false;
}

static bool naive_match(const struct wish *wish, const struct thing *thing)
{
	return listed(wish->ids, thing->id) && listed(wish->authors, thing->author) &&
	       listed(wish->kinds, thing->kind) && listed(wish->t, thing->t) &&
	       listed(wish->e, thing->e) &&
	       (wish->since < 0 || thing->at >= wish->since) &&
	       (wish->until < 0 || thing->at <= wish->until);
}

static int by_rank(const void *a, const void *b)
{
	const struct thing *x = *(const struct thing *const *)a;
	const struct thing *y = *(const struct thing *const *)b;

	if (x->at != y->at)
		return x->at > y->at ? -1 : 1;
	return memcmp(x->event.id, y->event.id, 32);
}

/* What the filters give, in order: each its newest, no event twice. */
static size_t naive_scan(const struct wish *wishes, size_t count,
			 const struct thing **out)
{
	const struct thing *sorted[EVENTS] = {NULL};
	int left[4];
	size_t i, j, found = 0;

	for (i = 0; i < thing_count; i++)
		sorted[i] = &things[i];
	qsort(sorted, thing_count, sizeof(struct thing *), by_rank);
	for (j = 0; j < count; j++)
		left[j] = wishes[j].limit < 0 ? EVENTS : wishes[j].limit;
	for (i = 0; i < thing_count; i++) {
		bool taken = false;

		for (j = 0; j < count; j++)
			if (left[j] > 0 && naive_match(&wishes[j], sorted[i])) {
				left[j]--;
				taken = true;
			}
		if (taken)
			out[found++] = sorted[i];
	}
	return found;
}

/* Making worlds */

static unsigned seed;

static int pick(int below)
{
	seed = seed * 1103515245u + 12345u;
	return (int)(seed >> 16) % below;
}

static void write_key(struct buf *out, int number)
{
	(void)buf_printf(out, "\"%064x\"", (unsigned)number);
}

static void write_event(struct buf *out, const struct thing *thing)
{
	(void)buf_lit(out, "{\"id\":");
	write_key(out, thing->id);
	(void)buf_lit(out, ",\"pubkey\":");
	write_key(out, thing->author);
	(void)buf_printf(out, ",\"created_at\":%d,\"kind\":%d,\"tags\":[[\"x\"]",
			 thing->at, thing->kind);
	if (thing->t >= 0)
		(void)buf_printf(out, ",[\"t\",\"%d\",\"more\"],[\"t\",\"%d\"]", thing->t,
				 thing->t);
	if (thing->e >= 0) {
		(void)buf_lit(out, ",[\"e\",");
		write_key(out, thing->e);
		(void)buf_lit(out, "]");
	}
	(void)buf_printf(out, "],\"content\":\"\",\"sig\":\"%0128d\"}", 0);
}

static void keep(const struct thing *thing)
{
	struct put_result result;
	struct err err;

	ck_assert_msg(
		store_put_event(put, &thing->event, thing->event.text, 0, &result, &err),
		"%s", err.text);
	ck_assert_int_eq(result.verdict, PUT_STORED);
}

static void add_thing(struct thing thing)
{
	struct thing *new = &things[thing_count++];
	struct buf json;

	buf_init(&json, 4096);
	write_event(&json, &thing);
	*new = thing;
	ck_assert(event_parse(arena_dup(&arena, buf_slice(&json)), &arena, &new->event,
			      NULL));
	rank_write(thing.at, new->event.id, new->rank);
	keep(new);
	buf_finish(&json);
}

static void setup(void)
{
	char path[96];
	struct err err;

	(void)snprintf(folder, sizeof(folder), "/tmp/perch-scan-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/relay.db", folder);
	store = store_open(path, &err);
	ck_assert_msg(store != NULL, "%s", err.text);
	put = store_put_create(store_db(store), &err);
	scanner = store_scanner_create(store_db(store), &err);
	ck_assert_msg(put && scanner, "%s", err.text);
	arena_init(&arena, 65536);
	thing_count = 0;
	ck_assert_int_eq(sqlite3_exec(store_db(store), "BEGIN", NULL, NULL, NULL), 0);
}

static void teardown(void)
{
	(void)sqlite3_exec(store_db(store), "COMMIT", NULL, NULL, NULL);
	store_put_destroy(put);
	store_scanner_destroy(scanner);
	store_close(store);
	arena_finish(&arena);
	test_remove_folder(folder);
}

static void make_world(void)
{
	static const int kinds[] = {1, 2, 4, 1000};
	int i;

	for (i = 0; i < EVENTS; i++)
		add_thing((struct thing){.id = (i * 7919) % 10007,
					 .author = pick(5),
					 .kind = kinds[pick(4)],
					 .at = 100 + pick(40),
					 .t = pick(4) - 1,
					 .e = pick(4) - 1});
}

static void wish_list(int list[4], int odds, int below)
{
	int count = pick(odds) == 0 ? 1 + pick(3) : 0;
	int i;

	for (i = 0; i < 4; i++)
		list[i] = i < count ? pick(below) : -1;
}

static struct wish make_wish(void)
{
	static const int kinds[] = {1, 2, 4, 1000, 20001, 7};
	struct wish wish = {0};
	int i;

	wish_list(wish.ids, 6, 1);
	for (i = 0; i < 4; i++)
		if (wish.ids[i] >= 0)
			wish.ids[i] = things[pick(EVENTS)].id;
	wish_list(wish.authors, 2, 6);
	wish_list(wish.kinds, 2, 6);
	for (i = 0; i < 4; i++)
		if (wish.kinds[i] >= 0)
			wish.kinds[i] = kinds[wish.kinds[i]];
	wish_list(wish.t, 3, 4);
	wish_list(wish.e, 4, 4);
	wish.since = pick(3) ? -1 : 95 + pick(50);
	wish.until = pick(3) ? -1 : 95 + pick(50);
	wish.limit = pick(2) ? -1 : pick(30);
	return wish;
}

static void write_list(struct buf *out, const char *name, const int list[4], char how)
{
	int i;

	if (list[0] < 0)
		return;
	(void)buf_printf(out, "%s\"%s\":[", out->len > 1 ? "," : "", name);
	for (i = 0; i < 4 && list[i] >= 0; i++) {
		if (i > 0)
			(void)buf_lit(out, ",");
		if (how == 'k')
			write_key(out, list[i]);
		else
			(void)buf_printf(out, how == 's' ? "\"%d\"" : "%d", list[i]);
	}
	(void)buf_lit(out, "]");
}

static void write_number(struct buf *out, const char *name, int number)
{
	if (number >= 0)
		(void)buf_printf(out, "%s\"%s\":%d", out->len > 1 ? "," : "", name,
				 number);
}

static struct slice write_wish(struct buf *out, const struct wish *wish)
{
	buf_init(out, 8192);
	(void)buf_lit(out, "{");
	write_list(out, "ids", wish->ids, 'k');
	write_list(out, "authors", wish->authors, 'k');
	write_list(out, "kinds", wish->kinds, 'n');
	write_list(out, "#t", wish->t, 's');
	write_list(out, "#e", wish->e, 'k');
	write_number(out, "since", wish->since);
	write_number(out, "until", wish->until);
	write_number(out, "limit", wish->limit);
	(void)buf_lit(out, "}");
	return buf_slice(out);
}

/* Runs a whole scan; @out gets the texts, one reference each. */
static size_t run_scan(struct store_scan *scan, struct body **out)
{
	size_t found = 0;
	struct err err;

	while (!scan->ended) {
		ck_assert_msg(store_scan_slice(scanner, scan, &err), "%s", err.text);
		ck_assert_uint_le(found + scan->body_count, EVENTS);
		if (scan->body_count > 0) {
			ck_assert_ptr_nonnull(out);
			memcpy(out + found, scan->bodies,
			       scan->body_count * sizeof(struct body *));
		}
		found += scan->body_count;
	}
	return found;
}

static struct subscription *subscribe(const struct slice *filters, size_t count)
{
	struct subscription *sub;
	struct err err;
	bool gated;

	sub = subscription_create(SLICE("q"), filters, count, NULL, 0, &gated, &err);
	ck_assert_msg(sub != NULL, "%s: %.*s", err.text, SLICE_ARG(filters[0]));
	return sub;
}

static void check_round(void)
{
	const struct thing *want[EVENTS];
	struct body *got[EVENTS];
	struct slice texts[4];
	struct wish wishes[4];
	struct buf bufs[4];
	size_t count = 1 + (size_t)pick(4);
	struct store_scan scan = {.bound = INT64_MAX};
	struct store_scan counting = {.bound = INT64_MAX, .is_count = true};
	struct subscription *sub;
	size_t i, j, wanted;

	for (i = 0; i < count; i++) {
		wishes[i] = make_wish();
		texts[i] = write_wish(&bufs[i], &wishes[i]);
		scan.room[i] = wishes[i].limit < 0 ? INT64_MAX : wishes[i].limit;
		counting.room[i] = INT64_MAX;
	}
	scan.sub = counting.sub = sub = subscribe(texts, count);
	/* An assertion that holds costs a write. */
	for (i = 0; i < count; i++)
		for (j = 0; j < EVENTS; j++)
			if (filter_match(&sub->filters[i], &things[j].event) !=
			    naive_match(&wishes[i], &things[j]))
				ck_abort_msg("live: %.*s", SLICE_ARG(texts[i]));
	wanted = naive_scan(wishes, count, want);
	ck_assert_uint_eq(run_scan(&scan, got), wanted);
	for (i = 0; i < wanted; i++) {
		if (!slice_eq(body_slice(got[i]), want[i]->event.text))
			ck_abort_msg("scan: %.*s", SLICE_ARG(texts[0]));
		body_unref(got[i]);
	}
	for (i = 0; i < count; i++)
		wishes[i].limit = -1;
	ck_assert_uint_eq(run_scan(&counting, got), 0);
	ck_assert_uint_eq(counting.count, naive_scan(wishes, count, want));
	subscription_destroy(sub);
	for (i = 0; i < count; i++)
		buf_finish(&bufs[i]);
}

START_TEST(live_scan_and_count_match_what_a_naive_matcher_does)
{
	int round;

	seed = (unsigned)_i + 1;
	make_world();
	for (round = 0; round < ROUNDS; round++)
		check_round();
}
END_TEST

/* All of one world, by one filter. */
static size_t count_by(const char *filter, int64_t bound, int64_t now)
{
	struct store_scan scan = {
		.bound = bound, .now = now, .is_count = true, .room = {INT64_MAX}};
	struct subscription *sub = subscribe(&(struct slice){filter, strlen(filter)}, 1);

	scan.sub = sub;
	(void)run_scan(&scan, NULL);
	subscription_destroy(sub);
	return scan.count;
}

START_TEST(a_scan_ends_at_its_bound)
{
	make_world();
	ck_assert_uint_eq(count_by("{}", 0, 0), 0);
	ck_assert_uint_eq(count_by("{}", 123, 0), 123);
	ck_assert_uint_eq(count_by("{\"kinds\":[1,2,4,1000]}", 123, 0), 123);
	ck_assert_uint_eq(count_by("{\"since\":0}", INT64_MAX, 0), EVENTS);
}
END_TEST

START_TEST(slices_are_bounded_and_nothing_is_lost_between_them)
{
	struct store_scan scan = {.bound = INT64_MAX, .room = {INT64_MAX}};
	struct subscription *sub = subscribe(&SLICE("{}"), 1);
	size_t slices = 0, found = 0, i;
	struct err err;

	make_world();
	scan.sub = sub;
	for (; !scan.ended; slices++) {
		ck_assert(store_scan_slice(scanner, &scan, &err));
		ck_assert_uint_le(scan.body_count, SCAN_SLICE_EVENTS);
		found += scan.body_count;
		for (i = 0; i < scan.body_count; i++)
			body_unref(scan.bodies[i]);
	}
	ck_assert_uint_eq(found, EVENTS);
	ck_assert_uint_gt(slices, EVENTS / SCAN_SLICE_EVENTS);
	subscription_destroy(sub);
}
END_TEST

START_TEST(more_values_than_ranges_are_answered_by_a_broader_index)
{
	struct buf filter;
	int i;

	make_world();
	buf_init(&filter, 1 << 20);
	(void)buf_lit(&filter, "{\"authors\":[");
	for (i = 0; i < 1000; i++) {
		(void)buf_printf(&filter, "%s", i ? "," : "");
		write_key(&filter, i);
	}
	(void)buf_lit(&filter, "],\"kinds\":[");
	for (i = 0; i < 1001; i++)
		(void)buf_printf(&filter, "%s%d", i ? "," : "", i);
	(void)buf_lit(&filter, "]}");
	ck_assert_uint_eq(count_by(buf_text(&filter), INT64_MAX, 0), EVENTS);
	buf_finish(&filter);
}
END_TEST

static void add_expiring(int id, int at, int64_t expires)
{
	char json[1024];
	struct put_result result;
	struct event event;

	(void)snprintf(json, sizeof(json),
		       "{\"id\":\"%064x\",\"pubkey\":\"%064x\",\"created_at\":%d,"
		       "\"kind\":10002,\"tags\":[[\"expiration\",\"%lld\"]],"
		       "\"content\":\"\",\"sig\":\"%0128d\"}",
		       (unsigned)id, 1u, at, (long long)expires, 0);
	ck_assert(event_parse(arena_dup(&arena, slice_of(json)), &arena, &event, NULL));
	ck_assert(store_put_event(put, &event, event.text, at, &result, NULL));
	ck_assert_int_eq(result.verdict, PUT_STORED);
}

START_TEST(what_has_expired_is_not_found_and_is_swept_and_stands_in_nobodys_way)
{
	int64_t swept;

	add_expiring(1, 100, 200);
	ck_assert_uint_eq(count_by("{}", INT64_MAX, 199), 1);
	ck_assert_uint_eq(count_by("{}", INT64_MAX, 200), 0);
	/* Older, but the newer is over. */
	add_expiring(2, 250, 300);
	add_expiring(3, 305, 400);
	ck_assert(store_put_sweep(put, 399, 10, &swept, NULL));
	ck_assert_int_eq(swept, 0);
	ck_assert(store_put_sweep(put, 400, 10, &swept, NULL));
	ck_assert_int_eq(swept, 1);
	ck_assert_uint_eq(count_by("{}", INT64_MAX, 0), 0);
}
END_TEST

START_TEST(removing_an_event_leaves_no_tag_behind)
{
	sqlite3_stmt *statement = NULL;
	int i;

	for (i = 0; i < 5; i++)
		add_thing((struct thing){
			.id = i, .author = 1, .kind = 10000, .at = i, .t = i, .e = i});
	ck_assert_int_eq(sqlite3_prepare_v2(store_db(store), "SELECT count(*) FROM tag",
					    -1, &statement, NULL),
			 SQLITE_OK);
	ck_assert_int_eq(sqlite3_step(statement), SQLITE_ROW);
	ck_assert_int_eq(sqlite3_column_int(statement, 0), 2);
	(void)sqlite3_finalize(statement);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("relay/scan");
	TCase *tcase = tcase_create("scan");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, live_scan_and_count_match_what_a_naive_matcher_does, 0,
			    3);
	tcase_add_test(tcase, a_scan_ends_at_its_bound);
	tcase_add_test(tcase, slices_are_bounded_and_nothing_is_lost_between_them);
	tcase_add_test(tcase, more_values_than_ranges_are_answered_by_a_broader_index);
	tcase_add_test(
		tcase,
		what_has_expired_is_not_found_and_is_swept_and_stands_in_nobodys_way);
	tcase_add_test(tcase, removing_an_event_leaves_no_tag_behind);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
