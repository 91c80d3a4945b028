#include "relay/admit.h"

#include "tests/unit/support/relay_fixture.h"
#include "tests/unit/support/support.h"

/* Design §7: "24200 in order: shape, author authenticated on this connection, ±300 s,
 * owner check, 100 frames/s per agent, id and signature, repeated id". */

static struct fixture fixture;
static struct admit admit;
static struct keyset keys;
static struct admission got;

static void setup(void)
{
	fixture_init(&fixture);
	admit_init(&admit, fixture.crypto);
	memset(&keys, 0, sizeof(keys));
	ck_assert(keyset_add(&keys, keypair_public(fixture.agent)));
	ck_assert(owners_bind(&admit.owners, keypair_public(fixture.agent),
			      keypair_public(fixture.owner), INT64_MAX, NOW));
}

static void teardown(void)
{
	admit_finish(&admit);
	fixture_finish(&fixture);
}

static void ask_event(const struct event *event)
{
	admit_event(&admit, event, &keys, NULL, NOW, NOW_MS, &got);
}

static void ask(struct recipe recipe)
{
	struct event event = fixture_event(&fixture, recipe);

	ask_event(&event);
}

static void assert_refused(enum refusal refusal, const char *text)
{
	ck_assert_int_eq(got.verdict, ADMIT_REFUSE);
	ck_assert_str_eq(refusal_name(got.refusal), refusal_name(refusal));
	ck_assert_msg(strncmp(got.text, text, strlen(text)) == 0, "got \"%s\"", got.text);
}

START_TEST(a_true_frame_of_a_bound_agent_passes)
{
	ask((struct recipe){0});
	ck_assert_msg(got.verdict == ADMIT_PASS, "%s", got.text);
	ck_assert(got.telemetry && got.first);
	ck_assert_mem_eq(got.owner, keypair_public(fixture.owner), KEY_BYTES);
}
END_TEST

START_TEST(a_control_of_the_owner_passes_and_is_no_telemetry)
{
	ck_assert(keyset_add(&keys, keypair_public(fixture.owner)));
	ask((struct recipe){
		.author = fixture.owner, .p = fixture.agent, .frame = "control"});
	ck_assert_msg(got.verdict == ADMIT_PASS, "%s", got.text);
	ck_assert(!got.telemetry);
}
END_TEST

START_TEST(a_frame_without_exactly_one_p_is_refused)
{
	ask((struct recipe){.tags = "[[\"agent\",\"x\"],[\"frame\",\"telemetry\"]]"});
	assert_refused(REFUSAL_SHAPE, "invalid: frame has 0 p tags, want 1");
	ask((struct recipe){.more_tags = SLICE("[\"p\",\"x\"]")});
	assert_refused(REFUSAL_SHAPE, "invalid: frame has 2 p tags, want 1");
}
END_TEST

START_TEST(a_frame_without_exactly_one_agent_is_refused)
{
	ask((struct recipe){.more_tags = SLICE("[\"agent\",\"x\"]")});
	assert_refused(REFUSAL_SHAPE, "invalid: frame has 2 agent tags, want 1");
}
END_TEST

START_TEST(a_frame_without_exactly_one_frame_tag_is_refused)
{
	ask((struct recipe){.more_tags = SLICE("[\"frame\",\"control\"]")});
	assert_refused(REFUSAL_SHAPE, "invalid: frame has 2 frame tags, want 1");
}
END_TEST

START_TEST(other_tags_are_allowed)
{
	ask((struct recipe){.more_tags = SLICE("[\"h\",\"group\"],[\"x\",\"1\",\"2\"]")});
	ck_assert_int_eq(got.verdict, ADMIT_PASS);
}
END_TEST

START_TEST(an_unknown_frame_value_is_accepted_and_dropped)
{
	ask((struct recipe){.frame = "metrics"});
	ck_assert_int_eq(got.verdict, ADMIT_IGNORE);
}
END_TEST

START_TEST(telemetry_by_another_author_than_the_agent_is_refused)
{
	ask((struct recipe){.author = fixture.stranger});
	assert_refused(REFUSAL_SHAPE,
		       "invalid: telemetry goes from the agent to its owner");
}
END_TEST

START_TEST(a_control_from_the_agent_is_refused)
{
	ask((struct recipe){.frame = "control"});
	assert_refused(REFUSAL_SHAPE,
		       "invalid: control goes from the owner to the agent");
}
END_TEST

START_TEST(content_that_is_not_sealed_is_refused)
{
	ask((struct recipe){.content = "hello, plain world"});
	assert_refused(REFUSAL_SHAPE, "invalid: content is not NIP-44 version 2");
}
END_TEST

START_TEST(a_frame_on_an_unauthenticated_connection_is_refused)
{
	memset(&keys, 0, sizeof(keys));
	ask((struct recipe){0});
	assert_refused(REFUSAL_UNAUTHENTICATED, "auth-required: ");
}
END_TEST

START_TEST(a_frame_on_somebody_elses_connection_is_refused)
{
	memset(&keys, 0, sizeof(keys));
	ck_assert(keyset_add(&keys, keypair_public(fixture.stranger)));
	ask((struct recipe){0});
	assert_refused(REFUSAL_AUTHOR, "restricted: ");
}
END_TEST

START_TEST(every_authenticated_key_of_a_connection_counts)
{
	ck_assert(keyset_add(&keys, keypair_public(fixture.stranger)));
	ck_assert(keyset_add(&keys, keypair_public(fixture.owner)));
	ask((struct recipe){0});
	ck_assert_int_eq(got.verdict, ADMIT_PASS);
}
END_TEST

START_TEST(a_connection_may_hold_sixteen_keys)
{
	uint8_t key[KEY_BYTES] = {0};

	memset(&keys, 0, sizeof(keys));
	for (key[0] = 0; key[0] < ADMIT_KEYS_MAX; key[0]++)
		ck_assert(keyset_add(&keys, key));
	ck_assert(!keyset_add(&keys, key));
	key[0] = 3;
	ck_assert(keyset_add(&keys, key));
}
END_TEST

START_TEST(a_frame_is_fresh_within_300_s_of_the_clock_on_both_sides)
{
	ask((struct recipe){.created_at = NOW - FRAME_FRESH_S});
	ck_assert_int_eq(got.verdict, ADMIT_PASS);
	ask((struct recipe){.created_at = NOW + FRAME_FRESH_S});
	ck_assert_int_eq(got.verdict, ADMIT_PASS);
	ask((struct recipe){.created_at = NOW - FRAME_FRESH_S - 1});
	assert_refused(REFUSAL_STALE, "invalid: created_at ");
	ask((struct recipe){.created_at = NOW + FRAME_FRESH_S + 1});
	assert_refused(REFUSAL_STALE, "invalid: created_at ");
}
END_TEST

START_TEST(an_expired_event_is_refused)
{
	ask((struct recipe){.more_tags = SLICE("[\"expiration\",\"1795999999\"]")});
	assert_refused(REFUSAL_EXPIRED, "invalid: the event has expired");
	ask((struct recipe){.more_tags = SLICE("[\"expiration\",\"1796000001\"]")});
	ck_assert_int_eq(got.verdict, ADMIT_PASS);
}
END_TEST

START_TEST(telemetry_to_somebody_who_is_not_the_owner_is_refused)
{
	ask((struct recipe){.p = fixture.stranger});
	assert_refused(REFUSAL_OWNER, "restricted: nothing attests");
}
END_TEST

START_TEST(a_control_by_somebody_who_is_not_the_owner_is_refused)
{
	ck_assert(keyset_add(&keys, keypair_public(fixture.stranger)));
	ask((struct recipe){
		.author = fixture.stranger, .p = fixture.agent, .frame = "control"});
	assert_refused(REFUSAL_OWNER, "restricted: the agent has shown no attestation");
}
END_TEST

START_TEST(a_valid_auth_tag_in_a_frame_binds_agent_and_owner)
{
	admit_finish(&admit);
	admit_init(&admit, fixture.crypto);
	ask((struct recipe){.more_tags = buf_slice(&fixture.attestation)});
	ck_assert_msg(got.verdict == ADMIT_PASS, "%s", got.text);
	ask((struct recipe){.created_at = NOW + 1});
	ck_assert_int_eq(got.verdict, ADMIT_PASS);
}
END_TEST

START_TEST(an_auth_tag_by_another_owner_does_not_help)
{
	struct buf tag;

	fixture_attest(&fixture, fixture.stranger, "", &tag);
	admit_finish(&admit);
	admit_init(&admit, fixture.crypto);
	ask((struct recipe){.more_tags = buf_slice(&tag)});
	assert_refused(REFUSAL_OWNER,
		       "restricted: the auth tag is by another owner than p");
	buf_finish(&tag);
}
END_TEST

START_TEST(a_binding_ends_at_its_bound_by_the_relays_clock)
{
	struct event event;
	struct buf tag;

	fixture_attest(&fixture, fixture.owner, "created_at<1796000100", &tag);
	admit_finish(&admit);
	admit_init(&admit, fixture.crypto);
	ask((struct recipe){.more_tags = buf_slice(&tag)});
	ck_assert_msg(got.verdict == ADMIT_PASS, "%s", got.text);
	/* The agent's own clock stands still; ours does not. */
	event = fixture_event(&fixture, (struct recipe){.more_tags = buf_slice(&tag),
							.content = SEALED "AAAA"});
	admit_event(&admit, &event, &keys, NULL, NOW + 100, NOW_MS + 100000, &got);
	assert_refused(REFUSAL_OWNER, "restricted: the auth tag has expired");
	buf_finish(&tag);
}
END_TEST

START_TEST(a_forged_frame_does_not_bind)
{
	struct event event;

	admit_finish(&admit);
	admit_init(&admit, fixture.crypto);
	event = fixture_event(
		&fixture, (struct recipe){.more_tags = buf_slice(&fixture.attestation)});
	event.sig[0] ^= 1;
	ask_event(&event);
	assert_refused(REFUSAL_SIGNATURE, "invalid: ");
	ask((struct recipe){0});
	assert_refused(REFUSAL_OWNER, "restricted: ");
}
END_TEST

START_TEST(the_hundred_and_first_frame_within_a_second_is_refused)
{
	int i;

	for (i = 0; i < RELAY_FRAMES_PER_S; i++) {
		ask((struct recipe){.created_at = NOW + i});
		ck_assert_int_eq(got.verdict, ADMIT_PASS);
	}
	ask((struct recipe){.created_at = NOW - 1});
	assert_refused(REFUSAL_RATE, "rate-limited: ");
}
END_TEST

START_TEST(the_hundred_and_first_forged_attestation_within_a_second_is_not_looked_at)
{
	int i;

	admit_finish(&admit);
	admit_init(&admit, fixture.crypto);
	for (i = 0; i < RELAY_FRAMES_PER_S; i++) {
		ask((struct recipe){0});
		assert_refused(REFUSAL_OWNER, "restricted: ");
	}
	ask((struct recipe){0});
	assert_refused(REFUSAL_RATE, "rate-limited: ");
}
END_TEST

START_TEST(strangers_controls_do_not_use_up_the_owners_rate)
{
	int i;

	ck_assert(keyset_add(&keys, keypair_public(fixture.stranger)));
	for (i = 0; i <= RELAY_FRAMES_PER_S; i++) {
		ask((struct recipe){.author = fixture.stranger,
				    .p = fixture.agent,
				    .frame = "control",
				    .created_at = NOW + i});
		assert_refused(REFUSAL_OWNER, "restricted: ");
	}
	ck_assert(keyset_add(&keys, keypair_public(fixture.owner)));
	ask((struct recipe){
		.author = fixture.owner, .p = fixture.agent, .frame = "control"});
	ck_assert_int_eq(got.verdict, ADMIT_PASS);
}
END_TEST

START_TEST(the_owners_controls_do_not_use_up_the_agents_rate)
{
	int i;

	ck_assert(keyset_add(&keys, keypair_public(fixture.owner)));
	for (i = 0; i < RELAY_FRAMES_PER_S; i++)
		ask((struct recipe){.author = fixture.owner,
				    .p = fixture.agent,
				    .frame = "control",
				    .created_at = NOW + i});
	ask((struct recipe){0});
	ck_assert_int_eq(got.verdict, ADMIT_PASS);
}
END_TEST

START_TEST(an_id_that_is_not_the_hash_is_refused)
{
	struct event event = fixture_event(&fixture, (struct recipe){0});

	event.id[0] ^= 1;
	ask_event(&event);
	assert_refused(REFUSAL_ID, "invalid: ");
}
END_TEST

START_TEST(a_wrong_signature_is_refused)
{
	struct event event = fixture_event(&fixture, (struct recipe){0});

	event.sig[5] ^= 1;
	ask_event(&event);
	assert_refused(REFUSAL_SIGNATURE, "invalid: ");
}
END_TEST

START_TEST(a_repeat_is_a_duplicate_when_an_earlier_copy_reached_a_reader)
{
	struct event event = fixture_event(&fixture, (struct recipe){0});

	ask_event(&event);
	seen_reach(&admit.seen, event.id);
	ask_event(&event);
	ck_assert_int_eq(got.verdict, ADMIT_DUPLICATE);
	ck_assert_int_eq(strncmp(got.text, "duplicate: ", 11), 0);
}
END_TEST

START_TEST(a_repeat_that_nobody_got_is_sent_on_again)
{
	struct event event = fixture_event(&fixture, (struct recipe){0});

	ask_event(&event);
	ask_event(&event);
	ck_assert_int_eq(got.verdict, ADMIT_PASS);
	ck_assert(!got.first);
}
END_TEST

/* The order: an event that is wrong in two ways is refused for the earlier one. Row n is
 * wrong from step n on. */
static const enum refusal steps[] = {
	REFUSAL_SHAPE,     REFUSAL_UNAUTHENTICATED,
	REFUSAL_STALE,     REFUSAL_OWNER,
	REFUSAL_RATE,      REFUSAL_ID,
	REFUSAL_SIGNATURE,
};
#define STEP_COUNT (sizeof(steps) / sizeof(steps[0]))

START_TEST(refusals_come_in_the_order_of_the_design)
{
	size_t first = (size_t)_i;
	struct event event;
	int i;

	for (i = 0; i < RELAY_FRAMES_PER_S; i++)
		ask((struct recipe){.created_at = NOW + i});
	event = fixture_event(&fixture, (struct recipe){0});
	event.sig[0] ^= 1;
	if (first <= 5)
		event.id[0] ^= 1;
	if (first > 4) {
		/* One second later there are tokens again. */
		admit_event(&admit, &event, &keys, NULL, NOW, NOW_MS + 1000, &got);
		ck_assert_str_eq(refusal_name(got.refusal), refusal_name(steps[first]));
		return;
	}
	if (first <= 3) {
		owners_finish(&admit.owners);
		owners_init(&admit.owners);
	}
	if (first <= 2)
		event.created_at = NOW - 1000;
	if (first <= 1)
		memset(&keys, 0, sizeof(keys));
	if (first == 0)
		event.content = SLICE("plain");
	ask_event(&event);
	ck_assert_str_eq(refusal_name(got.refusal), refusal_name(steps[first]));
}
END_TEST

START_TEST(stored_kinds_are_refused_and_the_text_says_why)
{
	ask((struct recipe){.kind = 1, .tags = "[]", .content = "hi"});
	ck_assert_int_eq(got.verdict, ADMIT_REFUSE);
	ck_assert_str_eq(got.text, "blocked: this relay keeps no events");
}
END_TEST

START_TEST(an_auth_event_is_never_published)
{
	ask((struct recipe){.kind = 22242, .tags = "[]", .content = ""});
	assert_refused(REFUSAL_KIND, "invalid: kind 22242 is for AUTH messages only");
}
END_TEST

START_TEST(other_ephemeral_kinds_pass_from_any_authenticated_connection)
{
	ask((struct recipe){.author = fixture.stranger,
			    .kind = 20001,
			    .tags = "[]",
			    .content = "typing"});
	ck_assert_msg(got.verdict == ADMIT_PASS, "%s", got.text);
	ck_assert(!got.telemetry);
}
END_TEST

START_TEST(other_ephemeral_kinds_need_authentication)
{
	memset(&keys, 0, sizeof(keys));
	ask((struct recipe){.kind = 20001, .tags = "[]", .content = "typing"});
	assert_refused(REFUSAL_UNAUTHENTICATED, "auth-required: ");
}
END_TEST

/* NIP-70 */
START_TEST(a_protected_event_of_somebody_else_is_refused)
{
	ask((struct recipe){.author = fixture.stranger,
			    .kind = 20001,
			    .tags = "[[\"-\"]]",
			    .content = "mine"});
	assert_refused(REFUSAL_AUTHOR, "restricted: ");
}
END_TEST

static bool ask_auth(struct slice tag)
{
	struct event event = fixture_event(
		&fixture,
		(struct recipe){.kind = 22242, .more_tags = tag, .content = ""});

	return admit_auth(&admit, &event, &keys, NOW, NOW_MS, &got);
}

START_TEST(an_auth_event_with_an_attestation_binds)
{
	admit_finish(&admit);
	admit_init(&admit, fixture.crypto);
	memset(&keys, 0, sizeof(keys));
	ck_assert(ask_auth(buf_slice(&fixture.attestation)));
	ck_assert_str_eq(got.text, "");
	ck_assert(keyset_has(&keys, keypair_public(fixture.agent)));
	ck_assert(owners_hold(&admit.owners, keypair_public(fixture.agent),
			      keypair_public(fixture.owner), NOW));
}
END_TEST

START_TEST(an_attestation_whose_condition_fails_on_auth_is_ignored)
{
	struct buf tag;

	fixture_attest(&fixture, fixture.owner, "kind=24200", &tag);
	ck_assert(ask_auth(buf_slice(&tag)));
	ck_assert_msg(strncmp(got.text, "auth tag ignored: ", 18) == 0, "%s", got.text);
	buf_finish(&tag);
}
END_TEST

START_TEST(a_revoked_key_cannot_authenticate_and_hears_who_can_help)
{
	owners_revoke(&admit.owners, keypair_public(fixture.agent));
	memset(&keys, 0, sizeof(keys));
	ck_assert(!ask_auth(buf_slice(&fixture.attestation)));
	assert_refused(REFUSAL_REVOKED, "restricted: this key is revoked on this relay: "
					"its operator can run: perch relay allow npub1");
	ck_assert_uint_eq(keys.count, 0);
	ck_assert(!owners_hold(&admit.owners, keypair_public(fixture.agent),
			       keypair_public(fixture.owner), NOW));
	owners_allow(&admit.owners, keypair_public(fixture.agent));
	ck_assert(ask_auth(buf_slice(&fixture.attestation)));
}
END_TEST

START_TEST(a_revoked_agents_frames_and_controls_to_it_are_refused)
{
	owners_revoke(&admit.owners, keypair_public(fixture.agent));
	ask((struct recipe){.more_tags = buf_slice(&fixture.attestation)});
	assert_refused(REFUSAL_REVOKED, "restricted: this key is revoked");
	ck_assert(keyset_add(&keys, keypair_public(fixture.owner)));
	ask((struct recipe){
		.author = fixture.owner, .p = fixture.agent, .frame = "control"});
	assert_refused(REFUSAL_REVOKED, "restricted: this key is revoked");
}
END_TEST

START_TEST(with_a_list_only_listed_owners_and_their_agents_are_served)
{
	struct recipe frame = {.more_tags = buf_slice(&fixture.attestation)};

	admit.owners.by_list = true;
	ask(frame);
	assert_refused(REFUSAL_UNLISTED,
		       "restricted: this relay serves listed owners and the agents they "
		       "attested: its operator can run: perch relay owners add npub1");
	owners_list(&admit.owners, keypair_public(fixture.stranger));
	ask(frame);
	assert_refused(REFUSAL_UNLISTED, "restricted: ");
	owners_list(&admit.owners, keypair_public(fixture.owner));
	ask(frame);
	ck_assert_msg(got.verdict == ADMIT_PASS, "%s", got.text);
}
END_TEST

START_TEST(with_a_list_an_unlisted_owners_attestation_is_not_kept)
{
	admit_finish(&admit);
	admit_init(&admit, fixture.crypto);
	admit.owners.by_list = true;
	ck_assert(ask_auth(buf_slice(&fixture.attestation)));
	ck_assert_uint_eq(admit.owners.count, 0);
}
END_TEST

static bool ask_req(int64_t now_ms)
{
	return admit_message(&admit, CLIENT_REQ, &keys, NULL, 100, now_ms / 1000, now_ms,
			     &got);
}

START_TEST(with_a_list_only_those_it_serves_may_subscribe)
{
	admit.owners.by_list = true;
	ck_assert(!ask_req(NOW_MS));
	assert_refused(REFUSAL_UNLISTED, "restricted: ");
	owners_list(&admit.owners, keypair_public(fixture.owner));
	ck_assert(ask_req(NOW_MS));
	ck_assert(admit_stay(&admit, &keys, true, NOW, &got));
	owners_forget_lists(&admit.owners);
	ck_assert(!admit_stay(&admit, &keys, true, NOW, &got));
	ck_assert(admit_stay(&admit, &keys, false, NOW, &got));
	memset(&keys, 0, sizeof(keys));
	ck_assert(!ask_req(NOW_MS));
	assert_refused(REFUSAL_UNAUTHENTICATED, "auth-required: ");
}
END_TEST

START_TEST(with_a_list_other_events_need_a_key_that_is_served)
{
	struct recipe recipe = {.kind = 20001, .tags = "[]", .content = "x"};

	admit.owners.by_list = true;
	ask(recipe);
	assert_refused(REFUSAL_UNLISTED, "restricted: ");
	owners_list(&admit.owners, keypair_public(fixture.owner));
	ask(recipe);
	ck_assert_int_eq(got.verdict, ADMIT_PASS);
}
END_TEST

START_TEST(a_refusal_names_the_budget_and_the_wait)
{
	int i;

	admit.budgets.per_second[BUDGET_KEY][BUDGET_REQS] = 2;
	for (i = 0; i < 20; i++)
		ck_assert(ask_req(NOW_MS));
	ck_assert(!ask_req(NOW_MS));
	assert_refused(REFUSAL_RATE,
		       "rate-limited: REQ and COUNT of this key: 2/s, try again in 1 s");
	ck_assert(ask_req(NOW_MS + 500));
}
END_TEST

START_TEST(two_agents_of_one_owner_share_the_owners_budget)
{
	struct keyset other = {0};

	ck_assert(keyset_add(&other, keypair_public(fixture.stranger)));
	ck_assert(owners_bind(&admit.owners, keypair_public(fixture.stranger),
			      keypair_public(fixture.owner), INT64_MAX, NOW));
	admit.budgets.per_second[BUDGET_OWNER][BUDGET_BYTES] = 100;
	ck_assert(
		admit_message(&admit, CLIENT_EVENT, &keys, NULL, 900, NOW, NOW_MS, &got));
	ck_assert(!admit_message(&admit, CLIENT_EVENT, &other, NULL, 500, NOW, NOW_MS,
				 &got));
	assert_refused(REFUSAL_RATE,
		       "rate-limited: bytes of this owner: 100/s, try again in 4 s");
	ck_assert(admit_message(&admit, CLIENT_EVENT, &other, NULL, 500, NOW,
				NOW_MS + 4000, &got));
}
END_TEST

START_TEST(an_address_has_budgets_and_loopback_only_when_asked)
{
	struct address far, near;
	int i;

	ck_assert(address_parse(SLICE("192.0.2.7"), &far));
	ck_assert(address_parse(SLICE("127.0.0.1"), &near));
	admit.budgets.per_second[BUDGET_ADDRESS][BUDGET_CONNECTIONS] = 1;
	for (i = 0; i < 10; i++)
		ck_assert(admit_connection(&admit, &far, NOW_MS, &got));
	ck_assert(!admit_connection(&admit, &far, NOW_MS, &got));
	assert_refused(REFUSAL_RATE, "rate-limited: connections of this address: 1/s, "
				     "try again in 1 s");
	for (i = 0; i < 20; i++)
		ck_assert(admit_connection(&admit, &near, NOW_MS, &got));
	admit.count_loopback = true;
	for (i = 0; i < 10; i++)
		ck_assert(admit_connection(&admit, &near, NOW_MS, &got));
	ck_assert(!admit_connection(&admit, &near, NOW_MS, &got));
}
END_TEST

START_TEST(a_key_that_authenticates_too_often_is_told_to_wait)
{
	int i;

	admit.budgets.per_second[BUDGET_KEY][BUDGET_CONNECTIONS] = 1;
	for (i = 0; i < 10; i++) {
		memset(&keys, 0, sizeof(keys));
		ck_assert(ask_auth(SLICE_EMPTY));
	}
	ck_assert(ask_auth(SLICE_EMPTY)); /* again on the same connection: free */
	memset(&keys, 0, sizeof(keys));
	ck_assert(!ask_auth(SLICE_EMPTY));
	assert_refused(REFUSAL_RATE, "rate-limited: connections of this key: 1/s, "
				     "try again in 1 s");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("relay/admit");
	TCase *tcase = tcase_create("frames");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_true_frame_of_a_bound_agent_passes);
	tcase_add_test(tcase, a_control_of_the_owner_passes_and_is_no_telemetry);
	tcase_add_test(tcase, a_frame_without_exactly_one_p_is_refused);
	tcase_add_test(tcase, a_frame_without_exactly_one_agent_is_refused);
	tcase_add_test(tcase, a_frame_without_exactly_one_frame_tag_is_refused);
	tcase_add_test(tcase, other_tags_are_allowed);
	tcase_add_test(tcase, an_unknown_frame_value_is_accepted_and_dropped);
	tcase_add_test(tcase, telemetry_by_another_author_than_the_agent_is_refused);
	tcase_add_test(tcase, a_control_from_the_agent_is_refused);
	tcase_add_test(tcase, content_that_is_not_sealed_is_refused);
	tcase_add_test(tcase, a_frame_on_an_unauthenticated_connection_is_refused);
	tcase_add_test(tcase, a_frame_on_somebody_elses_connection_is_refused);
	tcase_add_test(tcase, every_authenticated_key_of_a_connection_counts);
	tcase_add_test(tcase, a_connection_may_hold_sixteen_keys);
	tcase_add_test(tcase, a_frame_is_fresh_within_300_s_of_the_clock_on_both_sides);
	tcase_add_test(tcase, an_expired_event_is_refused);
	tcase_add_test(tcase, telemetry_to_somebody_who_is_not_the_owner_is_refused);
	tcase_add_test(tcase, a_control_by_somebody_who_is_not_the_owner_is_refused);
	tcase_add_test(tcase, a_valid_auth_tag_in_a_frame_binds_agent_and_owner);
	tcase_add_test(tcase, an_auth_tag_by_another_owner_does_not_help);
	tcase_add_test(tcase, a_binding_ends_at_its_bound_by_the_relays_clock);
	tcase_add_test(tcase, a_forged_frame_does_not_bind);
	tcase_add_test(tcase, the_hundred_and_first_frame_within_a_second_is_refused);
	tcase_add_test(
		tcase,
		the_hundred_and_first_forged_attestation_within_a_second_is_not_looked_at);
	tcase_add_test(tcase, strangers_controls_do_not_use_up_the_owners_rate);
	tcase_add_test(tcase, the_owners_controls_do_not_use_up_the_agents_rate);
	tcase_add_test(tcase, an_id_that_is_not_the_hash_is_refused);
	tcase_add_test(tcase, a_wrong_signature_is_refused);
	tcase_add_test(tcase,
		       a_repeat_is_a_duplicate_when_an_earlier_copy_reached_a_reader);
	tcase_add_test(tcase, a_repeat_that_nobody_got_is_sent_on_again);
	tcase_add_loop_test(tcase, refusals_come_in_the_order_of_the_design, 0,
			    (int)STEP_COUNT);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("other kinds");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, stored_kinds_are_refused_and_the_text_says_why);
	tcase_add_test(tcase, an_auth_event_is_never_published);
	tcase_add_test(tcase,
		       other_ephemeral_kinds_pass_from_any_authenticated_connection);
	tcase_add_test(tcase, other_ephemeral_kinds_need_authentication);
	tcase_add_test(tcase, a_protected_event_of_somebody_else_is_refused);
	tcase_add_test(tcase, an_auth_event_with_an_attestation_binds);
	tcase_add_test(tcase, an_attestation_whose_condition_fails_on_auth_is_ignored);
	tcase_add_test(tcase, a_revoked_key_cannot_authenticate_and_hears_who_can_help);
	tcase_add_test(tcase, a_revoked_agents_frames_and_controls_to_it_are_refused);
	tcase_add_test(tcase, with_a_list_only_listed_owners_and_their_agents_are_served);
	tcase_add_test(tcase, with_a_list_an_unlisted_owners_attestation_is_not_kept);
	tcase_add_test(tcase, with_a_list_only_those_it_serves_may_subscribe);
	tcase_add_test(tcase, with_a_list_other_events_need_a_key_that_is_served);
	tcase_add_test(tcase, a_refusal_names_the_budget_and_the_wait);
	tcase_add_test(tcase, two_agents_of_one_owner_share_the_owners_budget);
	tcase_add_test(tcase, an_address_has_budgets_and_loopback_only_when_asked);
	tcase_add_test(tcase, a_key_that_authenticates_too_often_is_told_to_wait);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
