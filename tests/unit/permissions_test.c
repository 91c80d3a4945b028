#include "agent/permissions.h"

#include <string.h>

#include "tests/unit/support/support.h"

/* Sources: NIP-AO "Permission requests"; ACP session/request_permission. */

#define OPTIONS \
	"{\"sessionId\":\"s\",\"toolCall\":{},\"options\":[" \
	"{\"optionId\":\"all\",\"name\":\"Always\",\"kind\":\"allow_always\"}," \
	"{\"optionId\":\"one\\u0065\",\"name\":\"Once\",\"kind\":\"allow_once\"}," \
	"{\"optionId\":\"never\",\"name\":\"Never\",\"kind\":\"reject_always\"}," \
	"{\"optionId\":\"no\",\"name\":\"No\",\"kind\":\"reject_once\"}]}"

static struct permissions permissions;
static int channel_a, channel_b;
static uint8_t counter;

static void setup(void)
{
	permissions_init(&permissions);
	counter = 0;
}

static void teardown(void)
{
	permissions_finish(&permissions);
}

static struct permission *parse(struct slice params)
{
	uint8_t nonce[PERMISSION_NONCE_LEN / 2] = {0};
	struct err err;

	nonce[0] = ++counter;
	return permission_parse(SLICE("0"), params, nonce, &err);
}

static struct permission *wait_in(void *channel)
{
	struct permission *permission = parse(SLICE(OPTIONS));

	ck_assert_ptr_nonnull(permission);
	permission->channel = channel;
	permission->deadline_ms = 1000;
	ck_assert(permissions_add(&permissions, permission));
	return permission;
}

static enum permission_verdict decide(const void *channel, const char *nonce,
				      const char *option,
				      struct permission_choice *choice)
{
	struct permission *permission;

	return permissions_decide(&permissions, channel, slice_of(nonce),
				  slice_of(option), &permission, choice);
}

START_TEST(an_option_is_chosen_by_kind_never_by_position)
{
	struct permission *permission = parse(SLICE(OPTIONS));
	struct permission_choice choice;

	assert_slice_eq(permission_deny(permission).option, "no");
	ck_assert(permission_allow(permission, &choice));
	assert_slice_eq(choice.option, "onee");
	permission_destroy(permission);
}
END_TEST

START_TEST(an_answered_one_keeps_neither_its_options_nor_its_event)
{
	struct permission *permission = parse(SLICE(OPTIONS));

	(void)buf_lit(&permission->whole, "{}");
	permission_settle(permission);
	ck_assert_ptr_null(permission->options);
	ck_assert_uint_eq(permission->option_count, 0);
	ck_assert_uint_eq(permission->whole.cap, 0);
	permission_destroy(permission);
}
END_TEST

START_TEST(without_reject_once_the_denial_is_reject_always)
{
	struct permission *permission =
		parse(SLICE("{\"options\":[{\"optionId\":\"y\",\"kind\":\"allow_once\"},"
			    "{\"optionId\":\"n\",\"kind\":\"reject_always\"}]}"));

	assert_slice_eq(permission_deny(permission).option, "n");
	permission_destroy(permission);
}
END_TEST

START_TEST(without_any_reject_option_the_denial_is_cancelled)
{
	struct permission *permission =
		parse(SLICE("{\"options\":[{\"optionId\":\"y\",\"kind\":\"allow_once\"},"
			    "{\"optionId\":\"z\",\"kind\":\"future\"}]}"));

	ck_assert(!permission_deny(permission).selected);
	permission_destroy(permission);
}
END_TEST

START_TEST(a_choice_of_allow_once_options_is_not_made_by_itself)
{
	struct permission *permission =
		parse(SLICE("{\"options\":[{\"optionId\":\"a\",\"kind\":\"allow_once\"},"
			    "{\"optionId\":\"b\",\"kind\":\"allow_once\"}]}"));
	struct permission_choice choice;

	ck_assert(!permission_allow(permission, &choice));
	permission_destroy(permission);
}
END_TEST

START_TEST(allow_always_alone_is_not_allowed_by_itself)
{
	struct permission *permission = parse(
		SLICE("{\"options\":[{\"optionId\":\"a\",\"kind\":\"allow_always\"}]}"));
	struct permission_choice choice;

	ck_assert(!permission_allow(permission, &choice));
	permission_destroy(permission);
}
END_TEST

static const char *const malformed[] = {
	"{}",
	"{\"options\":null}",
	"{\"options\":[]}",
	"{\"options\":[{\"kind\":\"allow_once\"}]}",
	"{\"options\":[{\"optionId\":7,\"kind\":\"allow_once\"}]}",
	"{\"options\":[{\"optionId\":\"a\"},{\"optionId\":\"\\u0061\"}]}",
	"{\"options\":[7]}",
};

START_TEST(options_that_cannot_be_offered_are_refused)
{
	ck_assert_msg(!parse(slice_of(malformed[_i])), "%s", malformed[_i]);
}
END_TEST

START_TEST(a_decision_applies_once_and_its_repeat_is_already_decided)
{
	struct permission *permission = wait_in(&channel_a);
	struct permission_choice choice;

	ck_assert_int_eq(decide(&channel_a, permission->nonce, "no", &choice),
			 VERDICT_SENT);
	assert_slice_eq(choice.option, "no");
	ck_assert_int_eq(permission->state, PERMISSION_WRITING);
	ck_assert_int_eq(decide(&channel_a, permission->nonce, "onee", &choice),
			 VERDICT_ALREADY_DECIDED);
}
END_TEST

START_TEST(a_repeat_after_the_request_is_gone_is_still_already_decided)
{
	struct permission *permission = wait_in(&channel_a);
	struct permission_choice choice;
	char nonce[PERMISSION_NONCE_LEN + 1];

	memcpy(nonce, permission->nonce, sizeof(nonce));
	(void)decide(&channel_a, nonce, "no", &choice);
	permissions_remove(&permissions, permission);
	permission_destroy(permission);
	ck_assert_int_eq(decide(&channel_a, nonce, "no", &choice),
			 VERDICT_ALREADY_DECIDED);
}
END_TEST

START_TEST(an_option_that_was_not_offered_leaves_the_request_waiting)
{
	struct permission *permission = wait_in(&channel_a);
	struct permission_choice choice;

	ck_assert_int_eq(decide(&channel_a, permission->nonce, "yes", &choice),
			 VERDICT_NOT_OFFERED);
	ck_assert_int_eq(permission->state, PERMISSION_PENDING);
	ck_assert_int_eq(decide(&channel_a, permission->nonce, "all", &choice),
			 VERDICT_SENT);
}
END_TEST

START_TEST(an_unknown_nonce_decides_nothing)
{
	struct permission_choice choice;

	(void)wait_in(&channel_a);
	ck_assert_int_eq(decide(&channel_a, "", "no", &choice), VERDICT_NO_ACTIVE_TURN);
	ck_assert_int_eq(
		decide(&channel_a, "00000000000000000000000000000000", "no", &choice),
		VERDICT_NO_ACTIVE_TURN);
}
END_TEST

START_TEST(a_nonce_is_bound_to_its_channel)
{
	struct permission *permission = wait_in(&channel_a);
	struct permission_choice choice;

	ck_assert_int_eq(decide(&channel_b, permission->nonce, "no", &choice),
			 VERDICT_OTHER_CHANNEL);
	ck_assert_int_eq(permission->state, PERMISSION_PENDING);
}
END_TEST

START_TEST(a_request_that_was_settled_otherwise_takes_no_decision)
{
	struct permission *permission = wait_in(&channel_a);
	struct permission_choice choice;

	permission->state = PERMISSION_WRITING; /* timed out, its answer on the way */
	ck_assert_int_eq(decide(&channel_a, permission->nonce, "no", &choice),
			 VERDICT_NO_ACTIVE_TURN);
}
END_TEST

START_TEST(at_most_16_wait)
{
	struct permission *one_more = parse(SLICE(OPTIONS));

	for (int i = 0; i < AGENT_PERMISSIONS_MAX; i++)
		(void)wait_in(&channel_a);
	ck_assert_int_eq(AGENT_PERMISSIONS_MAX, 16);
	ck_assert(!permissions_add(&permissions, one_more));
	permission_destroy(one_more);
}
END_TEST

START_TEST(the_next_deadline_is_that_of_the_pending_one_that_is_first)
{
	struct permission *soon = wait_in(&channel_a), *later = wait_in(&channel_b);

	soon->deadline_ms = 500;
	later->deadline_ms = 700;
	ck_assert_int_eq(permissions_next_deadline(&permissions), 500);
	soon->state = PERMISSION_WRITING;
	ck_assert_int_eq(permissions_next_deadline(&permissions), 700);
	later->state = PERMISSION_WRITING;
	ck_assert_int_eq(permissions_next_deadline(&permissions), INT64_MAX);
}
END_TEST

static const struct {
	const char *rules, *kind;
	enum permission_policy want;
} rules[] = {
	{"", "read", PERMISSION_ASK},
	{"allow read,search; reject execute", "read", PERMISSION_ALLOW},
	{"allow read,search; reject execute", "search", PERMISSION_ALLOW},
	{"  allow   read , search ;; reject execute ; ", "execute", PERMISSION_REJECT},
	{"allow read,search; reject execute", "edit", PERMISSION_ASK},
	{"allow other", "no_such_kind", PERMISSION_ALLOW},
	{"allow read", "no_such_kind", PERMISSION_ASK},
};

START_TEST(a_rule_decides_by_kind_and_the_standard_the_rest)
{
	struct permission_rules out;
	struct err err;

	ck_assert_msg(permission_parse_rules(rules[_i].rules, PERMISSION_ASK, &out, &err),
		      "%s", err.text);
	ck_assert_int_eq(out.by_kind[tool_kind_parse(slice_of(rules[_i].kind))],
			 rules[_i].want);
}
END_TEST

static const char *const bad_rules[] = {
	"allow",      "allow ",           "allow reed", "allow read; ask read", "read",
	"maybe read", "allow read,,edit", "allow:read", "ALLOW read",
};

START_TEST(a_rule_that_is_not_understood_is_refused)
{
	struct permission_rules out;
	struct err err;

	ck_assert_msg(!permission_parse_rules(bad_rules[_i], PERMISSION_ASK, &out, &err),
		      "%s", bad_rules[_i]);
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

START_TEST(a_kind_goes_through_a_map_and_back)
{
	for (int i = 0; i < TOOL_KINDS; i++)
		ck_assert_int_eq(tool_kind_of(tool_kind_mark((enum tool_kind)i)), i);
	ck_assert_int_eq(tool_kind_of(NULL), TOOL_OTHER);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("permissions");
	TCase *tcase = tcase_create("options");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_option_is_chosen_by_kind_never_by_position);
	tcase_add_test(tcase, an_answered_one_keeps_neither_its_options_nor_its_event);
	tcase_add_test(tcase, without_reject_once_the_denial_is_reject_always);
	tcase_add_test(tcase, without_any_reject_option_the_denial_is_cancelled);
	tcase_add_test(tcase, a_choice_of_allow_once_options_is_not_made_by_itself);
	tcase_add_test(tcase, allow_always_alone_is_not_allowed_by_itself);
	tcase_add_loop_test(tcase, options_that_cannot_be_offered_are_refused, 0,
			    sizeof(malformed) / sizeof(*malformed));
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("decisions");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_decision_applies_once_and_its_repeat_is_already_decided);
	tcase_add_test(tcase,
		       a_repeat_after_the_request_is_gone_is_still_already_decided);
	tcase_add_test(tcase, an_option_that_was_not_offered_leaves_the_request_waiting);
	tcase_add_test(tcase, an_unknown_nonce_decides_nothing);
	tcase_add_test(tcase, a_nonce_is_bound_to_its_channel);
	tcase_add_test(tcase, a_request_that_was_settled_otherwise_takes_no_decision);
	tcase_add_test(tcase, at_most_16_wait);
	tcase_add_test(tcase, the_next_deadline_is_that_of_the_pending_one_that_is_first);
	tcase_add_loop_test(tcase, a_rule_decides_by_kind_and_the_standard_the_rest, 0,
			    sizeof(rules) / sizeof(*rules));
	tcase_add_loop_test(tcase, a_rule_that_is_not_understood_is_refused, 0,
			    sizeof(bad_rules) / sizeof(*bad_rules));
	tcase_add_test(tcase, a_kind_goes_through_a_map_and_back);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
