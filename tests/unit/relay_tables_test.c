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

static void count_told(void *ctx, const uint8_t the_agent[KEY_BYTES],
		       const uint8_t its_owner[KEY_BYTES], int64_t expires)
{
	ck_assert_mem_eq(the_agent, agent, KEY_BYTES);
	ck_assert_mem_eq(its_owner, owner, KEY_BYTES);
	ck_assert_int_gt(expires, NOW);
	++*(int *)ctx;
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

/* Owners enough to fill all, each with as many agents as one may have. */
static void fill(struct owners *owners)
{
	unsigned n;

	for (n = 0; n < OWNERS_MAX; n++) {
		uint8_t its_owner[KEY_BYTES] = {9, (uint8_t)(n / OWNERS_AGENTS_MAX)};

		ck_assert(owners_bind(owners, key_number(n), its_owner, NOW + 1 + n % 2,
				      NOW));
	}
}

static void note_unbound(void *ctx, const uint8_t key[KEY_BYTES])
{
	memcpy(ctx, key, KEY_BYTES);
}

START_TEST(full_owners_forget_what_has_expired_and_nobody_else)
{
	uint8_t unbound[KEY_BYTES] = {0};
	struct owners owners;

	owners_init(&owners);
	fill(&owners);
	owners.on_unbind = note_unbound;
	owners.ctx = unbound;
	ck_assert(owners_bind(&owners, agent, agent, INT64_MAX, NOW + 1));
	ck_assert(owners_hold(&owners, key_number(1), (uint8_t[KEY_BYTES]){9}, NOW + 1));
	ck_assert_uint_eq(owners.count, OWNERS_MAX / 2 + 1);
	ck_assert_mem_eq(unbound, (uint8_t[KEY_BYTES]){0}, KEY_BYTES);
	owners_finish(&owners);
}
END_TEST

START_TEST(in_full_owners_whoever_is_away_longest_makes_room)
{
	const uint8_t first_owner[KEY_BYTES] = {9}, second_owner[KEY_BYTES] = {9, 1};
	uint8_t unbound[KEY_BYTES] = {0};
	uint8_t key[KEY_BYTES];
	struct owners owners;

	owners_init(&owners);
	fill(&owners);
	owners.on_unbind = note_unbound;
	owners.ctx = unbound;
	memcpy(key, key_number(0), KEY_BYTES);
	owners_enter(&owners, key); /* is here */
	owners_enter(&owners, key_number(1));
	owners_leave(&owners, key_number(1)); /* was here just now */
	/* An owner who has all one may have moves nobody out. */
	ck_assert(!owners_bind(&owners, agent, second_owner, INT64_MAX, NOW));
	ck_assert_mem_eq(unbound, (uint8_t[KEY_BYTES]){0}, KEY_BYTES);
	ck_assert(owners_bind(&owners, agent, owner, INT64_MAX, NOW));
	ck_assert_mem_eq(unbound, key_number(2), KEY_BYTES);
	ck_assert(!owners_hold(&owners, key_number(2), first_owner, NOW));
	ck_assert(owners_hold(&owners, key_number(1), first_owner, NOW));
	ck_assert(owners_hold(&owners, key, first_owner, NOW));
	ck_assert_uint_eq(owners.count, OWNERS_MAX);
	owners_leave(&owners, key);
	owners_finish(&owners);
}
END_TEST

START_TEST(an_agent_has_so_many_owners_and_one_more_when_one_expires)
{
	struct owners owners;
	unsigned n;

	owners_init(&owners);
	for (n = 0; n < AGENT_OWNERS_MAX; n++)
		ck_assert(owners_bind(&owners, agent, key_number(100 + n), NOW + 1 + n,
				      NOW));
	ck_assert(!owners_bind(&owners, agent, owner, INT64_MAX, NOW));
	ck_assert(owners_bind(&owners, agent, key_number(101), INT64_MAX, NOW));
	ck_assert(owners_bind(&owners, agent, owner, INT64_MAX, NOW + 1));
	ck_assert(owners_hold(&owners, agent, owner, NOW + 1));
	owners_revoke(&owners, agent);
	ck_assert_uint_eq(owners.count, 0);
	owners_finish(&owners);
}
END_TEST

START_TEST(a_session_leaves_nothing_of_a_key_that_nobody_attested)
{
	struct owners owners;

	owners_init(&owners);
	owners_enter(&owners, agent);
	owners_enter(&owners, agent);
	owners_revoke(&owners, agent);
	owners_leave(&owners, agent);
	owners_allow(&owners, agent);
	owners_leave(&owners, agent);
	ck_assert_uint_eq(owners.agents.count, 0);
	owners_finish(&owners);
}
END_TEST

START_TEST(what_is_new_is_told_and_what_is_known_is_not)
{
	struct owners owners;
	int told = 0;

	owners_init(&owners);
	owners.on_bind = count_told;
	owners.ctx = &told;
	ck_assert(owners_bind(&owners, agent, owner, NOW + 100, NOW));
	ck_assert(owners_bind(&owners, agent, owner, NOW + 100, NOW));
	ck_assert_int_eq(told, 1);
	ck_assert(owners_bind(&owners, agent, owner, NOW + 200, NOW));
	ck_assert_int_eq(told, 2);
	owners_revoke(&owners, agent);
	ck_assert(!owners_bind(&owners, agent, owner, NOW + 300, NOW));
	ck_assert_int_eq(told, 2);
	owners_finish(&owners);
}
END_TEST

START_TEST(an_agents_owner_is_who_attested_it_first_and_still_holds)
{
	struct owners owners;

	owners_init(&owners);
	ck_assert_ptr_eq(owners_of(&owners, agent, NOW), agent);
	ck_assert(owners_bind(&owners, agent, owner, NOW + 10, NOW));
	ck_assert(owners_bind(&owners, agent, key_number(9), NOW + 20, NOW));
	ck_assert_mem_eq(owners_of(&owners, agent, NOW), owner, KEY_BYTES);
	ck_assert_mem_eq(owners_of(&owners, agent, NOW + 10), key_number(9), KEY_BYTES);
	ck_assert_ptr_eq(owners_of(&owners, agent, NOW + 20), agent);
	owners_finish(&owners);
}
END_TEST

START_TEST(lists_are_forgotten_and_bindings_stay)
{
	struct owners owners;

	owners_init(&owners);
	owners.by_list = true;
	owners_list(&owners, owner);
	owners_revoke(&owners, key_number(5));
	ck_assert(owners_bind(&owners, agent, owner, INT64_MAX, NOW));
	ck_assert(owners_permit(&owners, agent, NOW));
	owners_forget_lists(&owners);
	ck_assert(!owners_permit(&owners, agent, NOW));
	ck_assert(!owners_revoked(&owners, key_number(5)));
	owners_list(&owners, owner);
	ck_assert(owners_permit(&owners, agent, NOW));
	ck_assert(owners_permit(&owners, owner, NOW));
	ck_assert(!owners_permit(&owners, key_number(6), NOW));
	owners_finish(&owners);
}
END_TEST

static struct rate rate;

/* One of ten a second, ten at most. */
static int64_t take_one(struct slice account, int64_t now_ms)
{
	return rate_take(&rate, 10, 10, account, 1, now_ms);
}

START_TEST(a_rate_gives_what_it_holds_at_once_and_then_one_by_one)
{
	struct slice key = SLICE("key");
	int i;

	rate_init(&rate);
	for (i = 0; i < 10; i++)
		ck_assert_int_eq(take_one(key, 5000), 0);
	ck_assert_int_eq(take_one(key, 5000), 100);
	ck_assert_int_eq(take_one(key, 5099), 1);
	ck_assert_int_eq(take_one(key, 5100), 0);
	ck_assert_int_eq(take_one(key, 5100), 100);
	rate_finish(&rate);
}
END_TEST

START_TEST(a_long_pause_saves_no_more_than_it_holds)
{
	struct slice key = SLICE("key");
	int taken = 0;

	rate_init(&rate);
	ck_assert_int_eq(take_one(key, 0), 0);
	while (take_one(key, INT64_MAX / 2) == 0)
		taken++;
	ck_assert_int_eq(taken, 10);
	rate_finish(&rate);
}
END_TEST

START_TEST(what_costs_more_than_a_bucket_holds_needs_a_full_one_and_leaves_a_debt)
{
	struct slice key = SLICE("key");

	rate_init(&rate);
	ck_assert_int_eq(rate_take(&rate, 10, 100, key, 1000, 0), 0);
	ck_assert_int_eq(rate_take(&rate, 10, 100, key, 1, 0), 90100);
	ck_assert_int_eq(rate_take(&rate, 10, 100, key, 1, 90100), 0);
	rate_finish(&rate);
}
END_TEST

START_TEST(a_rate_may_change_while_it_is_used)
{
	struct slice key = SLICE("key");

	rate_init(&rate);
	ck_assert_int_eq(rate_take(&rate, 1000, 1000, key, 1, 0), 0);
	ck_assert_int_eq(rate_take(&rate, 1, 1, key, 1, 0), 0);
	ck_assert_int_eq(rate_take(&rate, 1, 1, key, 1, 0), 1000);
	rate_finish(&rate);
}
END_TEST

START_TEST(accounts_have_rates_of_their_own)
{
	rate_init(&rate);
	ck_assert_int_eq(rate_take(&rate, 1, 1, SLICE("a"), 1, 0), 0);
	ck_assert_int_ne(rate_take(&rate, 1, 1, SLICE("a"), 1, 0), 0);
	ck_assert_int_eq(rate_take(&rate, 1, 1, SLICE("b"), 1, 0), 0);
	rate_finish(&rate);
}
END_TEST

START_TEST(full_rates_refuse_new_accounts_until_old_ones_are_idle)
{
	unsigned n;

	rate_init(&rate);
	for (n = 0; n < RATE_ACCOUNTS_MAX; n++)
		ck_assert_int_eq(
			take_one((struct slice){(const char *)key_number(n), 32}, 0), 0);
	/* A bucket of which one of ten was taken is full again after a tenth. */
	ck_assert_int_eq(take_one(SLICE("new"), 99), RATE_SWEEP_MS);
	ck_assert_int_eq(take_one(SLICE("new"), 98 + RATE_SWEEP_MS), RATE_SWEEP_MS);
	ck_assert_int_eq(take_one(SLICE("new"), 99 + RATE_SWEEP_MS), 0);
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
	tcase_add_test(tcase, full_owners_forget_what_has_expired_and_nobody_else);
	tcase_add_test(tcase, in_full_owners_whoever_is_away_longest_makes_room);
	tcase_add_test(tcase, an_agent_has_so_many_owners_and_one_more_when_one_expires);
	tcase_add_test(tcase, a_session_leaves_nothing_of_a_key_that_nobody_attested);
	tcase_add_test(tcase, what_is_new_is_told_and_what_is_known_is_not);
	tcase_add_test(tcase, an_agents_owner_is_who_attested_it_first_and_still_holds);
	tcase_add_test(tcase, lists_are_forgotten_and_bindings_stay);
	tcase_add_test(tcase, a_rate_gives_what_it_holds_at_once_and_then_one_by_one);
	tcase_add_test(tcase, a_long_pause_saves_no_more_than_it_holds);
	tcase_add_test(
		tcase,
		what_costs_more_than_a_bucket_holds_needs_a_full_one_and_leaves_a_debt);
	tcase_add_test(tcase, a_rate_may_change_while_it_is_used);
	tcase_add_test(tcase, accounts_have_rates_of_their_own);
	tcase_add_test(tcase, full_rates_refuse_new_accounts_until_old_ones_are_idle);
	tcase_add_test(tcase, an_id_is_remembered_with_whether_it_reached_a_reader);
	tcase_add_test(tcase, an_id_is_remembered_for_as_long_as_it_can_be_fresh);
	tcase_add_test(tcase, the_oldest_ids_are_forgotten_first);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
