#include <string.h>

#include <cjson/cJSON.h>

#include "tests/unit/support/support.h"
#include "wire/base/arena.h"
#include "wire/nostr/nipoa.h"

#define COUNT(table) (int)(sizeof(table) / sizeof((table)[0]))

static struct crypto *crypto;
static struct keypair *owner, *agent;
static struct arena arena;
static struct buf file, text, tags, scratch;
static cJSON *published;
static const uint8_t aux[32] = {3};

static struct slice member(const cJSON *object, const char *name)
{
	return slice_of(
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name)));
}

static const cJSON *vector(void)
{
	return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(published, "valid"),
				  0);
}

static struct keypair *keypair_of(const char *name)
{
	struct keypair *keypair;
	uint8_t secret[32];

	ck_assert(hex_decode(member(vector(), name), secret, 32));
	ck_assert(keypair_create(crypto, secret, &keypair, NULL));
	return keypair;
}

static void setup(void)
{
	static const uint8_t seed[32] = {1};

	crypto = crypto_create(seed, NULL);
	ck_assert_ptr_nonnull(crypto);
	arena_init(&arena, 4096);
	buf_init(&file, 64 * 1024);
	buf_init(&text, 64 * 1024);
	buf_init(&tags, 64 * 1024);
	buf_init(&scratch, 64 * 1024);
	test_data("nip-oa.json", &file);
	published = cJSON_ParseWithLength(file.ptr, file.len);
	ck_assert_ptr_nonnull(published);
	owner = keypair_of("owner_secret");
	agent = keypair_of("agent_secret");
}

static void teardown(void)
{
	cJSON_Delete(published);
	keypair_destroy(owner);
	keypair_destroy(agent);
	crypto_destroy(crypto);
	arena_finish(&arena);
	buf_finish(&file);
	buf_finish(&text);
	buf_finish(&tags);
	buf_finish(&scratch);
}

/* An event by the agent with these tags; its own signature is in order. */
static struct event an_event(uint32_t kind, int64_t created_at, struct slice tag_list)
{
	const struct event_draft draft = {
		.created_at = created_at, .kind = kind, .tags = tag_list};
	struct event event;

	buf_clear(&text);
	ck_assert(event_sign(crypto, agent, &draft, aux, &text, NULL, NULL));
	ck_assert(event_parse(buf_slice(&text), &arena, &event, NULL));
	return event;
}

/* The same with one attestation under @conditions. */
static struct event an_attested_event(uint32_t kind, int64_t created_at,
				      const char *conditions)
{
	buf_clear(&tags);
	(void)buf_lit(&tags, "[");
	ck_assert(nipoa_sign(crypto, owner, keypair_public(agent), slice_of(conditions),
			     aux, &tags, NULL));
	(void)buf_lit(&tags, "]");
	return an_event(kind, created_at, buf_slice(&tags));
}

/* A tag as a hostile owner might sign it: any conditions, any elements around. */
static void forged_tag(const struct keypair *signer, const char *conditions,
		       const char *extra)
{
	char hex[64];
	const struct slice pieces[] = {SLICE_INIT("nostr:agent-auth:"),
				       {hex, 64},
				       SLICE_INIT(":"),
				       slice_of(conditions)};
	uint8_t message[32], sig[64];

	hex_encode(keypair_public(agent), 32, hex);
	sha256(crypto, pieces, 4, message);
	schnorr_sign(crypto, signer, (struct slice){(const char *)message, 32}, aux, sig);
	buf_clear(&tags);
	(void)buf_lit(&tags, "[\"auth\",\"");
	(void)buf_append_hex(&tags, keypair_public(signer), 32);
	(void)buf_printf(&tags, "\",\"%s\",\"", conditions);
	(void)buf_append_hex(&tags, sig, 64);
	(void)buf_printf(&tags, "\"%s]", extra);
}

START_TEST(the_published_signature_is_accepted)
{
	const cJSON *row = vector();
	uint8_t key[32], got[32];
	int64_t expires;

	(void)buf_lit(&tags, "[\"auth\",\"");
	(void)buf_append(&tags, member(row, "owner_pubkey"));
	(void)buf_lit(&tags, "\",\"");
	(void)buf_append(&tags, member(row, "conditions"));
	(void)buf_lit(&tags, "\",\"");
	(void)buf_append(&tags, member(row, "sig"));
	(void)buf_lit(&tags, "\"]");
	ck_assert(hex_decode(member(row, "agent_pubkey"), key, 32));
	ck_assert(nipoa_parse(crypto, buf_slice(&tags), key, got, &expires, NULL));
	ck_assert_mem_eq(got, keypair_public(owner), 32);
	ck_assert_int_eq(expires, 1713957000);
}
END_TEST

START_TEST(the_published_event_belongs_to_its_owner)
{
	char *json = cJSON_PrintUnformatted(
		cJSON_GetObjectItemCaseSensitive(published, "valid_event"));
	uint8_t got[32];
	struct event event;
	int64_t expires;

	ck_assert(event_parse(slice_of(json), &arena, &event, NULL));
	ck_assert(event_verify(crypto, &event, &scratch, NULL));
	ck_assert(nipoa_check(crypto, &event, got, &expires, NULL));
	ck_assert_mem_eq(got, keypair_public(owner), 32);
	ck_assert_int_eq(expires, 1713957000);
	cJSON_free(json);
}
END_TEST

/* Published invalid: "a good auth tag on an event whose id or sig is invalid". */
START_TEST(a_good_tag_does_not_excuse_a_bad_event)
{
	struct event event = an_attested_event(1, 5, "");
	uint8_t got[32];

	event.sig[0] ^= 1;
	ck_assert(!event_verify(crypto, &event, &scratch, NULL));
	ck_assert(nipoa_check(crypto, &event, got, NULL, NULL));
}
END_TEST

START_TEST(an_event_without_a_tag_has_no_owner)
{
	const struct event event = an_event(1, 5, SLICE("[]"));
	uint8_t got[32];
	struct err err;

	ck_assert(!nipoa_check(crypto, &event, got, NULL, &err));
	ck_assert_int_eq(err.code, ERR_NOT_FOUND);
}
END_TEST

START_TEST(two_auth_tags_are_malformed)
{
	struct event event;
	uint8_t got[32];
	struct err err;

	forged_tag(owner, "", "");
	(void)buf_lit(&scratch, "[");
	(void)buf_append(&scratch, buf_slice(&tags));
	(void)buf_lit(&scratch, ",");
	(void)buf_append(&scratch, buf_slice(&tags));
	(void)buf_lit(&scratch, "]");
	event = an_event(1, 5, buf_slice(&scratch));
	ck_assert(!nipoa_check(crypto, &event, got, NULL, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert_str_eq(err.text, "event has more than one auth tag");
}
END_TEST

static const char *const bad_conditions[] = {
	"kind=1&",
	"&kind=1",
	"kind=1&&kind=1",
	"&",
	"kind=01",
	"kind=",
	"kind=65536",
	"kind=-1",
	"kind=1 ",
	" kind=1",
	"kind<1",
	"kind=1,kind=2",
	"created_at<01",
	"created_at<",
	"created_at<4294967296",
	"created_at=5",
	"created_at>x",
	"created_at>+5",
	"Kind=1",
	"anything",
	"kind=2&kind=01", /* a broken form is never only "refused" */
	"created_at<5.",
	"created_at <10",
};

START_TEST(conditions_outside_the_grammar_are_malformed)
{
	const char *const conditions = bad_conditions[_i];
	struct event event;
	uint8_t got[32];
	struct err err;

	/* Rightly signed, so that only the grammar speaks against it. */
	forged_tag(owner, conditions, "");
	(void)buf_lit(&scratch, "[");
	(void)buf_append(&scratch, buf_slice(&tags));
	(void)buf_lit(&scratch, "]");
	event = an_event(1, 5, buf_slice(&scratch));
	ck_assert_msg(!nipoa_check(crypto, &event, got, NULL, &err), "%s", conditions);
	ck_assert_msg(err.code == ERR_MALFORMED, "%s: %s", conditions, err.text);
	ck_assert(!nipoa_parse(crypto, buf_slice(&tags), keypair_public(agent), got, NULL,
			       &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	buf_clear(&tags);
	ck_assert(!nipoa_sign(crypto, owner, keypair_public(agent), slice_of(conditions),
			      aux, &tags, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

START_TEST(conditions_of_more_than_1024_bytes_are_malformed)
{
	char conditions[1200];
	struct err err;

	for (size_t i = 0; i < sizeof(conditions) - 1; i++)
		conditions[i] = "kind=1&"[i % 7];
	conditions[146 * 7 + 6] = '\0'; /* 1,028 bytes */
	ck_assert(!nipoa_sign(crypto, owner, keypair_public(agent), slice_of(conditions),
			      aux, &tags, &err));
	ck_assert_str_eq(err.text, "attestation has over 1024 bytes of conditions");
	conditions[145 * 7 + 6] = '\0'; /* 1,021 bytes */
	ck_assert(nipoa_sign(crypto, owner, keypair_public(agent), slice_of(conditions),
			     aux, &tags, &err));
}
END_TEST

static const struct { /* NOLINT(clang-analyzer-optin.performance.Padding) */
	const char *conditions;
	uint32_t kind;
	int64_t created_at;
	bool holds;
	int64_t expires;
} conditions[] = {
	{"", 1, 5, true, INT64_MAX},
	{"kind=24200", 24200, 5, true, INT64_MAX},
	{"kind=24200", 22242, 5, false, 0},
	{"kind=1&kind=2", 1, 5, false, 0}, /* all clauses must hold */
	{"created_at<10", 1, 9, true, 10},
	{"created_at<10", 1, 10, false, 0},
	{"created_at>10", 1, 11, true, INT64_MAX},
	{"created_at>10", 1, 10, false, 0},
	{"created_at<20&created_at<10&created_at>1", 1, 5, true, 10},
	{"kind=0&created_at<4294967295", 0, 0, true, 4294967295},
};

START_TEST(conditions_are_held_against_the_event)
{
	const struct event event =
		an_attested_event(conditions[_i].kind, conditions[_i].created_at,
				  conditions[_i].conditions);
	int64_t expires = 0;
	uint8_t got[32];
	struct err err = {ERR_NONE, ""};
	const bool ok = nipoa_check(crypto, &event, got, &expires, &err);

	ck_assert_msg(ok == conditions[_i].holds, "%s: %s", conditions[_i].conditions,
		      err.text);
	ck_assert_int_eq(expires, conditions[_i].expires);
	if (!ok)
		ck_assert_int_eq(err.code, ERR_REFUSED);
}
END_TEST

START_TEST(a_key_cannot_attest_itself)
{
	struct event event;
	uint8_t got[32];
	struct err err;

	forged_tag(agent, "", "");
	(void)buf_lit(&scratch, "[");
	(void)buf_append(&scratch, buf_slice(&tags));
	(void)buf_lit(&scratch, "]");
	event = an_event(1, 5, buf_slice(&scratch));
	ck_assert(!nipoa_check(crypto, &event, got, NULL, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert_str_eq(err.text, "attestation is by the agent itself");
	ck_assert(!nipoa_sign(crypto, owner, keypair_public(owner), SLICE_EMPTY, aux,
			      &tags, &err));
}
END_TEST

START_TEST(an_attestation_for_another_agent_is_not_signed_for_this_one)
{
	struct event event = an_attested_event(1, 5, "");
	uint8_t got[32];
	struct err err;

	event.pubkey[0] ^= 1;
	ck_assert(!nipoa_check(crypto, &event, got, NULL, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert_str_eq(err.text, "attestation is not signed by its owner");
}
END_TEST

START_TEST(conditions_cannot_be_swapped_under_a_signature)
{
	struct event event = an_attested_event(1, 5, "created_at<10");
	uint8_t got[32];
	struct err err;

	event.tags[0].values[2] = SLICE("created_at<99");
	ck_assert(!nipoa_check(crypto, &event, got, NULL, &err));
	ck_assert_str_eq(err.text, "attestation is not signed by its owner");
}
END_TEST

static const char *const extras[] = {",\"more\"", ",\"\",\"\""};

START_TEST(a_tag_of_more_than_four_elements_is_malformed)
{
	struct event event;
	uint8_t got[32];
	struct err err;

	forged_tag(owner, "", extras[_i]);
	(void)buf_lit(&scratch, "[");
	(void)buf_append(&scratch, buf_slice(&tags));
	(void)buf_lit(&scratch, "]");
	event = an_event(1, 5, buf_slice(&scratch));
	ck_assert(!nipoa_check(crypto, &event, got, NULL, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	ck_assert(!nipoa_parse(crypto, buf_slice(&tags), keypair_public(agent), got, NULL,
			       &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

START_TEST(a_tag_of_fewer_than_four_elements_is_malformed)
{
	struct event event = an_attested_event(1, 5, "");
	uint8_t got[32];
	struct err err;

	for (event.tags[0].count = 1; event.tags[0].count < 4; event.tags[0].count++) {
		ck_assert(!nipoa_check(crypto, &event, got, NULL, &err));
		ck_assert_int_eq(err.code, ERR_MALFORMED);
	}
	ck_assert(!nipoa_parse(crypto, SLICE("[\"auth\",\"x\",\"\"]"),
			       keypair_public(agent), got, NULL, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

static const char *const no_tags[] = {
	"",           "{}",
	"[]",         "[\"auth\"]",
	"[1,2,3,4]",  "[\"auth\",\"\",\"\",\"\"]",
	"[\"auth\",", "[\"p\",\"a\",\"b\",\"c\"]",
};

START_TEST(a_text_that_is_no_auth_tag_is_malformed)
{
	uint8_t got[32];
	struct err err;

	ck_assert(!nipoa_parse(crypto, slice_of(no_tags[_i]), keypair_public(agent), got,
			       NULL, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("nipoa");
	TCase *tcase = tcase_create("nipoa");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, the_published_signature_is_accepted);
	tcase_add_test(tcase, the_published_event_belongs_to_its_owner);
	tcase_add_test(tcase, a_good_tag_does_not_excuse_a_bad_event);
	tcase_add_test(tcase, an_event_without_a_tag_has_no_owner);
	tcase_add_test(tcase, two_auth_tags_are_malformed);
	tcase_add_loop_test(tcase, conditions_outside_the_grammar_are_malformed, 0,
			    COUNT(bad_conditions));
	tcase_add_test(tcase, conditions_of_more_than_1024_bytes_are_malformed);
	tcase_add_loop_test(tcase, conditions_are_held_against_the_event, 0,
			    COUNT(conditions));
	tcase_add_test(tcase, a_key_cannot_attest_itself);
	tcase_add_test(tcase,
		       an_attestation_for_another_agent_is_not_signed_for_this_one);
	tcase_add_test(tcase, conditions_cannot_be_swapped_under_a_signature);
	tcase_add_loop_test(tcase, a_tag_of_more_than_four_elements_is_malformed, 0,
			    COUNT(extras));
	tcase_add_test(tcase, a_tag_of_fewer_than_four_elements_is_malformed);
	tcase_add_loop_test(tcase, a_text_that_is_no_auth_tag_is_malformed, 0,
			    COUNT(no_tags));
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
