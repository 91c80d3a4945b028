#include "observer/spans.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/support/support.h"
#include "wire/base/mem.h"

/* The runs of a lane come in any order: what they end in, and what that costs. */
/* libcheck keeps a record of every assertion that held: too slow for those inside loops.
 */
#define check(condition, ...) \
	do { \
		if (!(condition)) \
			ck_abort_msg(__VA_ARGS__); \
	} while (0)

#define BYTES_MAX ((size_t)64 << 20)
#define FEW 1000
#define MANY 10000
#define RUN_MS 10

static const uint8_t agent[KEY_BYTES] = {1};

static unsigned seed;

static size_t pick(size_t below)
{
	seed = seed * 1103515245u + 12345u;
	return (size_t)(seed >> 8) % below;
}

static void put(struct spans *spans, struct span_lane *lane, size_t number, int64_t t,
		int64_t end)
{
	char tag[24];
	struct run_in run = {.t = t,
			     .end = end,
			     .is_turn = true,
			     .title = SLICE(""),
			     .row = SLICE("")};

	(void)snprintf(tag, sizeof(tag), "r%zu", number);
	run.tag = slice_of(tag);
	spans_put(spans, lane, &run);
}

/* ---- what it ends in ---- */

#define NAIVE_MAX 200

struct naive_run {
	size_t number;
	int64_t t, end;
};

struct naive {
	struct naive_run runs[NAIVE_MAX + 1];
	size_t count;
};

/* Behind all that start no later; the one of its number goes. */
static void naive_put(struct naive *naive, size_t number, int64_t t, int64_t end)
{
	size_t kept = 0, at;

	for (size_t i = 0; i < naive->count; i++)
		if (naive->runs[i].number != number)
			naive->runs[kept++] = naive->runs[i];
	for (at = kept; at && naive->runs[at - 1].t > t; at--)
		naive->runs[at] = naive->runs[at - 1];
	naive->runs[at] = (struct naive_run){number, t, end};
	naive->count = kept + 1;
}

static void check_same(struct spans *spans, const struct span_lane *lane,
		       const struct naive *naive)
{
	int64_t until = INT64_MIN;

	spans_join(spans);
	check(lane->count == naive->count, "%zu runs", lane->count);
	for (size_t i = 0; i < lane->count; i++) {
		const struct run_at *at = &lane->runs[i];
		const struct naive_run *want = &naive->runs[i];
		const char *tag = at->run->text + at->run->tag;

		until = want->end > until ? want->end : until;
		check(strtoull(tag + 1, NULL, 10) == want->number, "run %zu is %s", i,
		      tag);
		check(at->t == want->t && at->end == want->end, "times of run %zu", i);
		check(at->until == until, "run %zu until %d, not %d", i, (int)at->until,
		      (int)until);
		check(map_get(&lane->tags, slice_of(tag)) == at->run, "tag %s", tag);
	}
}

enum order { OLDEST_FIRST, NEWEST_FIRST, PIECES, RANDOM, ORDERS };

/* The places of @count runs in the order in which they come. Pieces come newest first,
 * what is in them oldest first. */
static size_t *make_order(enum order order, size_t count, size_t piece_max)
{
	size_t *all = mem_array(count, sizeof(*all));
	size_t left = count, at = 0;

	for (size_t i = 0; i < count; i++)
		all[i] = order == NEWEST_FIRST ? count - 1 - i : i;
	while (order == PIECES && left) {
		size_t piece = pick(piece_max) + 1;

		piece = piece < left ? piece : left;
		left -= piece;
		for (size_t i = 0; i < piece; i++)
			all[at++] = left + i;
	}
	for (size_t i = count; order == RANDOM && i-- > 1;) {
		const size_t k = pick(i + 1), kept = all[i];

		all[i] = all[k];
		all[k] = kept;
	}
	return all;
}

START_TEST(every_order_ends_in_runs_by_their_start)
{
	struct naive *naive = mem_alloc(sizeof(*naive));

	for (unsigned round = 0; round < 100; round++) {
		struct spans *spans = spans_create(BYTES_MAX);
		struct span_lane *lane = spans_lane(spans, agent, SLICE("api"));
		const size_t count = pick(NAIVE_MAX) + 1;
		size_t *order;

		seed = round;
		order = make_order(round % ORDERS, count, round + 1);
		naive->count = 0;
		for (size_t i = 0; i < count * 2; i++) {
			const bool again = i >= count;
			const size_t number = again ? pick(count) : order[i];
			const int64_t t = (int64_t)(again ? pick(count) : number);
			const int64_t end = t + (int64_t)pick(pick(9) ? 3 : count);

			put(spans, lane, number, t, end);
			naive_put(naive, number, t, end);
			if (!pick(16))
				check_same(spans, lane, naive);
		}
		check_same(spans, lane, naive);
		free(order);
		spans_destroy(spans);
	}
	free(naive);
}
END_TEST

/* ---- what it costs ---- */

/* The steps of a lane that has one run, the newest, and gets @count before it. */
static uint64_t steps_of(enum order order, size_t count)
{
	struct spans *spans = spans_create(BYTES_MAX);
	struct span_lane *lane = spans_lane(spans, agent, SLICE("api"));
	size_t *all = make_order(order, count, 16);
	uint64_t steps;

	put(spans, lane, count, (int64_t)count * RUN_MS, SPANS_OPEN);
	for (size_t i = 0; i < count; i++) {
		const int64_t t = (int64_t)all[i] * RUN_MS;

		put(spans, lane, all[i], t, t + RUN_MS);
		if (i % 64 == 0) /* what happens now goes on */
			put(spans, lane, count, (int64_t)count * RUN_MS, SPANS_OPEN);
	}
	spans_join(spans);
	ck_assert_uint_eq(lane->count, count + 1);
	steps = spans->steps;
	free(all);
	spans_destroy(spans);
	return steps;
}

START_TEST(ten_times_the_runs_cost_ten_times_the_steps)
{
	for (enum order order = OLDEST_FIRST; order < RANDOM; order++) {
		uint64_t few, many;

		seed = 1;
		few = steps_of(order, FEW);
		many = steps_of(order, MANY);
		ck_assert_uint_ge(few, FEW); /* each is joined */
		ck_assert_uint_le(few, (uint64_t)FEW * 16);
		ck_assert_msg(many <= few * 15, "order %d: %llu steps, then %llu", order,
			      (unsigned long long)few, (unsigned long long)many);
	}
}
END_TEST

/* Over the bytes the oldest go, a part of the lane at once. */
START_TEST(letting_the_oldest_go_moves_none)
{
	struct spans *spans = spans_create((size_t)256 << 10);
	struct span_lane *lane = spans_lane(spans, agent, SLICE("api"));

	for (size_t i = 0; i < MANY; i++)
		put(spans, lane, i, (int64_t)i * RUN_MS, (int64_t)i * RUN_MS + RUN_MS);
	ck_assert_uint_lt(lane->count, MANY / 2);
	ck_assert_int_eq(lane->runs[0].t, spans->from_ms);
	ck_assert_uint_le(spans->steps, (uint64_t)MANY * 8);
	ck_assert_uint_le(lane->room, lane->count * 8);
	spans_destroy(spans);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("spans_order");
	TCase *tests = tcase_create("spans_order");

	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, every_order_ends_in_runs_by_their_start);
	tcase_add_test(tests, ten_times_the_runs_cost_ten_times_the_steps);
	tcase_add_test(tests, letting_the_oldest_go_moves_none);
	suite_add_tcase(suite, tests);
	return test_run(suite);
}
