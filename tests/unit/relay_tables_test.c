/* The tables that a peer can fill: owners, rates, seen ids. Each is bounded and forgets.
 */
#include <string.h>

#include "relay/owners.h"
#include "relay/rate.h"
#include "relay/seen.h"
#include "tests/unit/support/support.h"

#define NOW INT64_C(1796000000)

static uint8_t agent[KEY_BYTES] = {1};
static uint8_t owner[KEY_BYTES] = {2};

/* The n-th of many different keys. */
static const uint8_t *key_number(unsigned n)
{
	static uint8_t key[KEY_BYTES];

	key[0] = (uint8_t)n;
	key[1] = (uint8_t)(n >> 8);
	key[2] = (uint8_t)(n >> 16);
	return key;
}

START_TEST(a_binding_holds_until_its_bound_and_not_at_it)
{
	struct owners owners;

	owners_init(&owners);
	ck_assert(owners_bind(&owners, agent, owner, NOW + 10, NOW));
	ck_assert(owners_hold(&owners, agent, owner, NOW + 9));
	ck_assert(!owners_hold(&owners, agent, owner, NOW + 10));
	owners_finish(&owners);
}
END_TEST

START_TEST(a_binding_says_nothing_of_other_pairs)
{
	struct owners owners;

	owners_init(&owners);
	ck_assert(owners_bind(&owners, agent, owner, INT64_MAX, NOW));
	ck_assert(!owners_hold(&owners, owner, agent, NOW));
	ck_assert(!owners_hold(&owners, agent, agent, NOW));
	owners_finish(&owners);
}
END_TEST

START_TEST(the_later_bound_of_two_attestations_counts)
{
	struct owners owners;

	owners_init(&owners);
	ck_assert(owners_bind(&owners, agent, owner, NOW + 100, NOW));
	ck_assert(owners_bind(&owners, agent, owner, NOW + 10, NOW));
	ck_assert(owners_hold(&owners, agent, owner, NOW + 50));
	owners_finish(&owners);
}
END_TEST

START_TEST(full_owners_make_room_by_forgetting_what_has_expired)
{
	struct owners owners;
	unsigned n;

	owners_init(&owners);
	for (n = 0; n < OWNERS_MAX; n++)
		ck_assert(
			owners_bind(&owners, key_number(n), owner, NOW + 1 + n % 2, NOW));
	ck_assert(!owners_bind(&owners, agent, agent, INT64_MAX, NOW));
	ck_assert(owners_bind(&owners, agent, agent, INT64_MAX, NOW + 1));
	ck_assert(owners_hold(&owners, key_number(1), owner, NOW + 1));
	owners_finish(&owners);
}
END_TEST

START_TEST(a_rate_gives_a_seconds_worth_at_once_and_then_one_by_one)
{
	struct slice key = SLICE("key");
	struct rate rate;
	int i;

	rate_init(&rate, 100);
	for (i = 0; i < 100; i++)
		ck_assert(rate_take(&rate, key, 5000));
	ck_assert(!rate_take(&rate, key, 5009));
	ck_assert(rate_take(&rate, key, 5010));
	ck_assert(!rate_take(&rate, key, 5010));
	rate_finish(&rate);
}
END_TEST

START_TEST(a_long_pause_saves_no_more_than_a_second)
{
	struct slice key = SLICE("key");
	struct rate rate;
	int taken = 0;

	rate_init(&rate, 100);
	ck_assert(rate_take(&rate, key, 0));
	while (rate_take(&rate, key, INT64_C(1000000000000)))
		taken++;
	ck_assert_int_eq(taken, 100);
	rate_finish(&rate);
}
END_TEST

START_TEST(keys_have_rates_of_their_own)
{
	struct rate rate;

	rate_init(&rate, 1);
	ck_assert(rate_take(&rate, SLICE("a"), 0));
	ck_assert(!rate_take(&rate, SLICE("a"), 0));
	ck_assert(rate_take(&rate, SLICE("b"), 0));
	rate_finish(&rate);
}
END_TEST

START_TEST(full_rates_refuse_new_keys_until_old_ones_are_idle)
{
	struct rate rate;
	unsigned n;

	rate_init(&rate, 1);
	for (n = 0; n < RATE_KEYS_MAX; n++)
		ck_assert(rate_take(&rate,
				    (struct slice){(const char *)key_number(n), 32}, 0));
	ck_assert(!rate_take(&rate, SLICE("new"), 999));
	ck_assert(rate_take(&rate, SLICE("new"), 1000));
	rate_finish(&rate);
}
END_TEST

START_TEST(an_id_is_remembered_with_whether_it_reached_a_reader)
{
	struct seen seen;

	seen_init(&seen);
	ck_assert_ptr_null(seen_find(&seen, agent));
	seen_add(&seen, agent, NOW);
	ck_assert(!seen_find(&seen, agent)->reached);
	seen_reach(&seen, agent);
	ck_assert(seen_find(&seen, agent)->reached);
	seen_reach(&seen, owner); /* never seen: nothing happens */
	ck_assert_ptr_null(seen_find(&seen, owner));
	seen_finish(&seen);
}
END_TEST

START_TEST(an_id_is_remembered_for_as_long_as_it_can_be_fresh)
{
	struct seen seen;

	seen_init(&seen);
	seen_add(&seen, agent, NOW);
	seen_add(&seen, owner, NOW + SEEN_KEEP_S);
	ck_assert_ptr_nonnull(seen_find(&seen, agent));
	seen_add(&seen, key_number(9), NOW + SEEN_KEEP_S + 1);
	ck_assert_ptr_null(seen_find(&seen, agent));
	ck_assert_ptr_nonnull(seen_find(&seen, owner));
	seen_finish(&seen);
}
END_TEST

START_TEST(the_oldest_ids_are_forgotten_first)
{
	struct seen seen;
	unsigned n;

	seen_init(&seen);
	for (n = 0; n <= SEEN_MAX; n++)
		seen_add(&seen, key_number(n), NOW);
	ck_assert_uint_eq(seen.ids.count, SEEN_MAX);
	ck_assert_ptr_null(seen_find(&seen, key_number(0)));
	ck_assert_ptr_nonnull(seen_find(&seen, key_number(1)));
	seen_finish(&seen);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("relay/tables");
	TCase *tcase = tcase_create("tables");

	tcase_add_test(tcase, a_binding_holds_until_its_bound_and_not_at_it);
	tcase_add_test(tcase, a_binding_says_nothing_of_other_pairs);
	tcase_add_test(tcase, the_later_bound_of_two_attestations_counts);
	tcase_add_test(tcase, full_owners_make_room_by_forgetting_what_has_expired);
	tcase_add_test(tcase, a_rate_gives_a_seconds_worth_at_once_and_then_one_by_one);
	tcase_add_test(tcase, a_long_pause_saves_no_more_than_a_second);
	tcase_add_test(tcase, keys_have_rates_of_their_own);
	tcase_add_test(tcase, full_rates_refuse_new_keys_until_old_ones_are_idle);
	tcase_add_test(tcase, an_id_is_remembered_with_whether_it_reached_a_reader);
	tcase_add_test(tcase, an_id_is_remembered_for_as_long_as_it_can_be_fresh);
	tcase_add_test(tcase, the_oldest_ids_are_forgotten_first);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
