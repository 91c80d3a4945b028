/* Channel names on the wire. Namespace and rules: payloads.md. */
#include "tests/unit/support/support.h"

#include "wire/frame/uuid.h"

static struct crypto *crypto;

static void setup(void)
{
	const uint8_t seed[32] = {1};
	struct err err;

	crypto = crypto_create(seed, &err);
	ck_assert_msg(crypto != NULL, "%s", err.text);
}

static void teardown(void)
{
	crypto_destroy(crypto);
}

/* Expected values are those of Python's uuid.uuid5() under the same namespace. */
START_TEST(a_name_becomes_version_5_under_our_namespace)
{
	struct uuid uuid;

	uuid_of_name(crypto, SLICE("perch"), &uuid);
	assert_slice_eq(uuid_slice(&uuid), "5c30cd11-0b33-5f5e-9cb4-acbdd479e36c");
}
END_TEST

START_TEST(a_name_outside_ascii_is_its_utf8_bytes)
{
	struct uuid uuid;

	uuid_of_name(crypto, SLICE("küche"), &uuid);
	assert_slice_eq(uuid_slice(&uuid), "084d00d7-3bf8-5f94-af6e-f2c40923fdbe");
}
END_TEST

START_TEST(the_empty_name_has_a_uuid_too)
{
	struct uuid uuid;

	uuid_of_name(crypto, SLICE_EMPTY, &uuid);
	assert_slice_eq(uuid_slice(&uuid), "6054a368-ceab-588b-8f35-86fe61960c23");
}
END_TEST

START_TEST(a_session_is_named_by_agent_key_colon_session)
{
	const uint8_t agent[KEY_BYTES] = {0xab, 0xcd};
	struct uuid uuid;

	uuid_of_session(crypto, agent, SLICE("sess-1"), &uuid);
	assert_slice_eq(uuid_slice(&uuid), "9c71da80-b785-5c05-a9cc-5c05e7db65f5");
}
END_TEST

START_TEST(a_slot_is_named_by_agent_key_slash_number)
{
	const uint8_t agent[KEY_BYTES] = {0xab, 0xcd};
	struct uuid uuid;

	uuid_of_slot(crypto, agent, 31, &uuid);
	assert_slice_eq(uuid_slice(&uuid), "47f8f5b0-10ce-5933-873b-ef15776003fc");
}
END_TEST

START_TEST(any_uuid_is_read_into_lower_case)
{
	struct uuid uuid;

	ck_assert(uuid_parse(SLICE("7B1F0C52-5a0e-4C9B-9f8e-3D2C6A41E0D7"), &uuid));
	ck_assert_str_eq(uuid.text, "7b1f0c52-5a0e-4c9b-9f8e-3d2c6a41e0d7");
}
END_TEST

static const struct slice no_uuids[] = {
	SLICE_INIT(""),
	SLICE_INIT("perch"),
	SLICE_INIT("7b1f0c52-5a0e-4c9b-9f8e-3d2c6a41e0d"),
	SLICE_INIT("7b1f0c52-5a0e-4c9b-9f8e-3d2c6a41e0d77"),
	SLICE_INIT("7b1f0c525a0e4c9b9f8e3d2c6a41e0d7"),
	SLICE_INIT("7b1f0c52-5a0e-4c9b-9f8e-3d2c6a41e0dg"),
	SLICE_INIT("7b1f0c52-5a0e-4c9b-9f8e+3d2c6a41e0d7"),
	SLICE_INIT("{7b1f0c52-5a0e-4c9b-9f8e-3d2c6a41e0}"),
};

START_TEST(what_is_no_uuid_is_refused_and_leaves_the_output_alone)
{
	struct uuid uuid = {"untouched"};

	ck_assert_msg(!uuid_parse(no_uuids[_i], &uuid), "%.*s", SLICE_ARG(no_uuids[_i]));
	ck_assert_str_eq(uuid.text, "untouched");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("uuid");
	TCase *tcase = tcase_create("uuid");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_name_becomes_version_5_under_our_namespace);
	tcase_add_test(tcase, a_name_outside_ascii_is_its_utf8_bytes);
	tcase_add_test(tcase, the_empty_name_has_a_uuid_too);
	tcase_add_test(tcase, a_session_is_named_by_agent_key_colon_session);
	tcase_add_test(tcase, a_slot_is_named_by_agent_key_slash_number);
	tcase_add_test(tcase, any_uuid_is_read_into_lower_case);
	tcase_add_loop_test(tcase, what_is_no_uuid_is_refused_and_leaves_the_output_alone,
			    0, sizeof(no_uuids) / sizeof(no_uuids[0]));
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
