#include "observer/values.h"

#include <stdio.h>

#include "observer/timeline.h"
#include "tests/unit/support/support.h"
#include "wire/base/buf.h"

#define ID "aa00000000000000000000000000000000000000000000000000000000000000/c"
#define T0 INT64_C(1796000000000)

static uint64_t value_at(const struct value_lane *lane, enum value_kind kind, int64_t t)
{
	const struct value_point *point = value_before(&lane->series[kind], t);

	return point ? point->value : 0;
}

START_TEST(sums_are_of_all_that_came_before_in_any_order)
{
	struct values values;
	struct value_lane *lane;

	values_init(&values);
	lane = values_lane(&values, SLICE(ID));
	for (int64_t i = 0; i < 100; i++) /* 0, 37, 74, 11, … s: each once */
		values_count(&values, lane, VALUE_BYTES, T0 + i * 37 % 100 * 1000, 10);
	for (int64_t s = 0; s <= 100; s++)
		ck_assert_uint_eq(value_at(lane, VALUE_BYTES, T0 + s * 1000),
				  (uint64_t)s * 10);
	ck_assert_uint_eq(lane->series[VALUE_BYTES].count, 100);
	/* Within a grain all is of the point that began it. */
	values_count(&values, lane, VALUE_BYTES, T0 + 50999, 7);
	ck_assert_uint_eq(lane->series[VALUE_BYTES].count, 100);
	ck_assert_uint_eq(value_at(lane, VALUE_BYTES, T0 + 50000), 500);
	ck_assert_uint_eq(value_at(lane, VALUE_BYTES, T0 + 50001), 517);
	values_finish(&values);
}
END_TEST

START_TEST(what_is_forgotten_is_counted_from_nothing_and_gives_its_memory_back)
{
	struct values values;
	struct value_lane *lane;

	values_init(&values);
	lane = values_lane(&values, SLICE(ID));
	for (int64_t s = 0; s < 100; s++)
		values_count(&values, lane, VALUE_BYTES, T0 + s * 1000, 10);
	values_set(&values, lane, VALUE_TOKENS, T0, 5);
	values_forget(&values, lane);
	ck_assert_uint_eq(values.bytes, 0);
	ck_assert_ptr_null(value_before(&lane->series[VALUE_TOKENS], INT64_MAX));
	values_count(&values, lane, VALUE_BYTES, T0, 7);
	ck_assert_uint_eq(value_at(lane, VALUE_BYTES, INT64_MAX), 7);
	values_finish(&values);
}
END_TEST

START_TEST(a_level_holds_until_the_next_and_an_old_one_is_not_told)
{
	struct values values;
	struct value_lane *lane;

	values_init(&values);
	lane = values_lane(&values, SLICE(ID));
	ck_assert_ptr_null(value_before(&lane->series[VALUE_TOKENS], T0));
	values_set(&values, lane, VALUE_TOKENS, T0, 100);
	values_set(&values, lane, VALUE_TOKENS, T0 + 5000, 50);
	values_set(&values, lane, VALUE_TOKENS, T0 + 3000, 999);
	values_set(&values, lane, VALUE_TOKENS, T0 + 5900, 60);
	ck_assert_ptr_null(value_before(&lane->series[VALUE_TOKENS], T0));
	ck_assert_uint_eq(value_at(lane, VALUE_TOKENS, T0 + 1), 100);
	ck_assert_uint_eq(value_at(lane, VALUE_TOKENS, T0 + 5000), 100);
	ck_assert_uint_eq(value_at(lane, VALUE_TOKENS, T0 + 5001), 60);
	ck_assert_ptr_eq(values_find(&values, SLICE(ID)), lane);
	ck_assert_ptr_null(values_find(&values, SLICE("other")));
	values_finish(&values);
}
END_TEST

START_TEST(a_full_series_gets_coarser_and_keeps_its_sum)
{
	const int64_t seconds = 5 * VALUES_POINTS_MAX;
	struct values values;
	struct value_lane *lane;

	values_init(&values);
	lane = values_lane(&values, SLICE(ID));
	for (int64_t s = 0; s < seconds; s++)
		values_count(&values, lane, VALUE_BYTES, T0 + s * 1000, 3);
	ck_assert_uint_le(lane->series[VALUE_BYTES].count, VALUES_POINTS_MAX);
	ck_assert_uint_ge(lane->series[VALUE_BYTES].count, VALUES_POINTS_MAX / 2 - 1);
	ck_assert_int_gt(lane->series[VALUE_BYTES].grain_ms, VALUES_GRAIN_MS);
	ck_assert_uint_eq(value_at(lane, VALUE_BYTES, T0 + seconds * 1000),
			  (uint64_t)seconds * 3);
	for (int64_t s = 0; s < seconds; s += 997) {
		const int64_t grain = lane->series[VALUE_BYTES].grain_ms / 1000;
		const uint64_t is = value_at(lane, VALUE_BYTES, T0 + s * 1000);

		if (is > (uint64_t)(s + grain) * 3 ||
		    is < (uint64_t)(s > grain ? s - grain : 0) * 3)
			ck_abort_msg("%d s: %d", (int)s, (int)is);
	}
	values_finish(&values);
}
END_TEST

START_TEST(more_lanes_than_there_is_room_for_are_left_out)
{
	struct values values;

	values_init(&values);
	for (unsigned i = 0; i <= VALUES_LANES_MAX; i++) {
		char id[16];

		(void)snprintf(id, sizeof(id), "lane %u", i);
		if (!values_lane(&values, slice_of(id)) != (i == VALUES_LANES_MAX))
			ck_abort_msg("lane %u", i);
	}
	ck_assert_ptr_nonnull(values_lane(&values, SLICE("lane 7")));
	values_finish(&values);
}
END_TEST

/* Parts of 100 s each of a long past, in the order of @step: bytes every second, tokens
 * once. */
static void add_parts(struct values *values, struct value_lane *lane, size_t count,
		      size_t step)
{
	for (size_t n = 0; n < count; n++) {
		const int64_t begin = T0 + (int64_t)(n * step % count) * 100000;
		struct values told;
		struct value_lane *part;

		values_init(&told);
		part = values_lane(&told, SLICE("a segment"));
		for (int64_t s = 0; s < 100; s++)
			values_count(&told, part, VALUE_BYTES, begin + s * 1000, 3);
		values_set(&told, part, VALUE_TOKENS, begin,
			   (uint64_t)(begin - T0) / 1000);
		values_add_older(values, lane, part);
		values_finish(&told);
	}
}

static uint64_t lane_at(const struct value_lane *lane, enum value_kind kind, int64_t t)
{
	uint64_t value = UINT64_MAX;

	return value_lane_before(lane, kind, t, &value) ? value : UINT64_MAX;
}

START_TEST(what_is_older_is_added_in_any_order_beside_what_is_now)
{
	const int64_t end = T0 + 37 * 100000;
	struct values values;
	struct value_lane *lane;

	values_init(&values);
	lane = values_lane(&values, SLICE(ID));
	ck_assert_int_eq(value_lane_first(lane, VALUE_BYTES), INT64_MAX);
	values_count(&values, lane, VALUE_BYTES, end, 50);
	values_set(&values, lane, VALUE_TOKENS, end + 5000, 7);
	add_parts(&values, lane, 37, 11);
	ck_assert_int_eq(value_lane_first(lane, VALUE_BYTES), T0);
	for (int64_t s = 1; s <= 3700; s++)
		ck_assert_uint_eq(lane_at(lane, VALUE_BYTES, T0 + s * 1000),
				  (uint64_t)s * 3);
	ck_assert_uint_eq(lane_at(lane, VALUE_BYTES, end + 1), 3700 * 3 + 50);
	ck_assert_uint_eq(lane_at(lane, VALUE_BYTES, T0), UINT64_MAX);
	ck_assert_uint_eq(lane_at(lane, VALUE_TOKENS, T0 + 250000), 200);
	ck_assert_uint_eq(lane_at(lane, VALUE_TOKENS, end + 5000), 3600);
	ck_assert_uint_eq(lane_at(lane, VALUE_TOKENS, end + 5001), 7);
	values_forget(&values, lane);
	ck_assert_uint_eq(values.bytes, 0);
	ck_assert_int_eq(value_lane_first(lane, VALUE_TOKENS), INT64_MAX);
	values_finish(&values);
}
END_TEST

START_TEST(however_much_is_older_it_is_bounded_and_what_is_now_stays_fine)
{
	const size_t parts = 3 * VALUES_POINTS_MAX / 100;
	const struct value_series *older;
	struct values values;
	struct value_lane *lane;
	int64_t grain_s;

	values_init(&values);
	lane = values_lane(&values, SLICE(ID));
	values_count(&values, lane, VALUE_BYTES, T0 + INT64_C(1000000000), 50);
	add_parts(&values, lane, parts, 7);
	older = &lane->older[VALUE_BYTES];
	ck_assert_uint_le(older->count, VALUES_POINTS_MAX);
	ck_assert_uint_ge(older->count, VALUES_POINTS_MAX / 4);
	ck_assert_int_eq(lane->series[VALUE_BYTES].grain_ms, VALUES_GRAIN_MS);
	grain_s = older->grain_ms / 1000;
	for (int64_t s = 2 * grain_s; s < (int64_t)parts * 100; s += 97) {
		const uint64_t is = lane_at(lane, VALUE_BYTES, T0 + s * 1000);

		if (is > (uint64_t)(s + grain_s) * 3 ||
		    is < (uint64_t)(s - 2 * grain_s) * 3)
			ck_abort_msg("%d s: %d, grain %d s", (int)s, (int)is,
				     (int)grain_s);
	}
	ck_assert_uint_eq(lane_at(lane, VALUE_BYTES, INT64_MAX), parts * 300 + 50);
	values_finish(&values);
}
END_TEST

static uint32_t read_u32(const char *at)
{
	const unsigned char *byte = (const unsigned char *)at;

	return byte[0] | (uint32_t)byte[1] << 8 | (uint32_t)byte[2] << 16 |
	       (uint32_t)byte[3] << 24;
}

START_TEST(the_timeline_has_a_value_for_every_four_columns)
{
	static const uint8_t agent[KEY_BYTES] = {0xAA};
	struct spans *spans = spans_create(1 << 20);
	const struct run_in run = {
		.tag = SLICE("t"), .t = T0, .end = T0 + 100000, .is_turn = true};
	struct buf out = {.max = 1 << 20};
	struct values values;
	struct timeline_query query = {.from = T0,
				       .to = T0 + 100000,
				       .now = T0 + 90000,
				       .width = 100,
				       .values = &values};
	struct value_lane *lane;
	const char *at;

	values_init(&values);
	spans_put(spans, spans_lane(spans, agent, SLICE("c")), &run);
	lane = values_lane(&values, SLICE(ID));
	/* 2,000 bytes in the seconds 4 to 8, tokens from 40 s on. */
	values_count(&values, lane, VALUE_BYTES, T0 + 4000, 1500);
	values_count(&values, lane, VALUE_BYTES, T0 + 7000, 500);
	values_set(&values, lane, VALUE_TOKENS, T0 + 40000, 1234);
	timeline_write(spans, &query, &out);
	ck_assert(buf_ok(&out));
	ck_assert(slice_starts(buf_slice(&out), SLICE("PTL2")));
	/* magic and request, four times, width and lanes; then the lane's id, generation.
	 */
	at = out.ptr + 8 + 32 + 8 + 12;
	ck_assert_uint_eq(read_u32(at + 8), 2);
	at += 12 + 6 * read_u32(at) + 28 * read_u32(at + 4);
	ck_assert_uint_eq(read_u32(at), VALUE_BYTES);
	/* Before the first point nothing is known; 500 bytes a second; none; not yet. */
	ck_assert_uint_eq(read_u32(at + 4), 4);
	at += 8;
	{
		static const uint32_t wanted[][2] = {
			{1, UINT32_MAX}, {1, 500}, {21, 0}, {2, UINT32_MAX}};

		for (size_t i = 0; i < 4; i++, at += 6) {
			ck_assert_uint_eq((unsigned char)at[0], wanted[i][0]);
			ck_assert_uint_eq(read_u32(at + 2), wanted[i][1]);
		}
	}
	ck_assert_uint_eq(read_u32(at), VALUE_TOKENS);
	ck_assert_uint_eq(read_u32(at + 4), 3);
	at += 8;
	ck_assert_uint_eq((unsigned char)at[0], 10);
	ck_assert_uint_eq(read_u32(at + 2), UINT32_MAX);
	ck_assert_uint_eq((unsigned char)at[6], 13);
	ck_assert_uint_eq(read_u32(at + 8), 1234);
	/* Nothing of a stretch that ends before all of it. */
	query.to = T0 + 3000;
	buf_clear(&out);
	timeline_write(spans, &query, &out);
	ck_assert_uint_eq(read_u32(out.ptr + 8 + 32 + 8 + 12 + 8), 0);
	buf_finish(&out);
	values_finish(&values);
	spans_destroy(spans);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("values");
	TCase *tcase = tcase_create("values");

	tcase_add_test(tcase, sums_are_of_all_that_came_before_in_any_order);
	tcase_add_test(
		tcase,
		what_is_forgotten_is_counted_from_nothing_and_gives_its_memory_back);
	tcase_add_test(tcase, a_level_holds_until_the_next_and_an_old_one_is_not_told);
	tcase_add_test(tcase, a_full_series_gets_coarser_and_keeps_its_sum);
	tcase_add_test(tcase, more_lanes_than_there_is_room_for_are_left_out);
	tcase_add_test(tcase, what_is_older_is_added_in_any_order_beside_what_is_now);
	tcase_add_test(tcase,
		       however_much_is_older_it_is_bounded_and_what_is_now_stays_fine);
	tcase_add_test(tcase, the_timeline_has_a_value_for_every_four_columns);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
