/* Invitations: one line that puts an agent into its owner's fleet. Rules: PROTOCOL.md. */
#include "tests/unit/support/support.h"

#include <string.h>

#include "wire/nostr/bech32.h"
#include "wire/nostr/invite.h"
#include "wire/nostr/nipoa.h"

static struct crypto *crypto;
static struct keypair *owner, *agent;
static struct buf tag, text, scratch, bytes;
static struct invite invite;
static struct err err;
static const uint8_t aux[32] = {3};

static struct keypair *keypair_of(uint8_t first)
{
	const uint8_t secret[KEY_BYTES] = {first};
	struct keypair *keypair;

	ck_assert(keypair_create(crypto, secret, &keypair, NULL));
	return keypair;
}

static void attest(const char *conditions)
{
	buf_clear(&tag);
	ck_assert(nipoa_sign(crypto, owner, keypair_public(agent), slice_of(conditions),
			     aux, &tag, NULL));
	invite.auth_tag = buf_slice(&tag);
}

static void setup(void)
{
	static const uint8_t seed[32] = {1};

	crypto = crypto_create(seed, NULL);
	ck_assert_ptr_nonnull(crypto);
	owner = keypair_of(1);
	agent = keypair_of(2);
	buf_init(&tag, 4096);
	buf_init(&text, 4096);
	buf_init(&scratch, 4096);
	buf_init(&bytes, 4096);
	invite = (struct invite){.relay = SLICE("wss://relay.example/x"),
				 .name = SLICE("laptop")};
	keypair_secret(agent, invite.secret);
	attest("");
}

static void teardown(void)
{
	keypair_destroy(owner);
	keypair_destroy(agent);
	crypto_destroy(crypto);
	buf_finish(&tag);
	buf_finish(&text);
	buf_finish(&scratch);
	buf_finish(&bytes);
}

static void encode(void)
{
	buf_clear(&text);
	ck_assert_msg(invite_encode(crypto, &invite, &text, &err), "%s", err.text);
}

static bool parse(struct slice from, struct invite *out)
{
	return invite_parse(crypto, from, &scratch, out, &err);
}

/* The bytes of a good invitation, to be changed; encode_bytes() makes a text of them. */
static void take_bytes(void)
{
	encode();
	buf_clear(&bytes);
	ck_assert(bech32_decode(buf_slice(&text), SLICE("perch"), &bytes, NULL));
}

static void encode_bytes(void)
{
	buf_clear(&text);
	ck_assert(bech32_encode(SLICE("perch"), buf_slice(&bytes), &text));
}

#define ASSERT_REFUSED(code_, words) \
	do { \
		struct invite got_; \
		ck_assert(!parse(buf_slice(&text), &got_)); \
		ck_assert_int_eq(err.code, code_); \
		ck_assert_msg(strstr(err.text, words) != NULL, "%s", err.text); \
	} while (0)

START_TEST(what_was_written_is_read)
{
	struct invite got;

	attest("created_at<1800000000");
	encode();
	ck_assert(invite_is(buf_slice(&text)));
	ck_assert_msg(parse(buf_slice(&text), &got), "%s", err.text);
	ck_assert_mem_eq(got.secret, invite.secret, KEY_BYTES);
	ck_assert(slice_eq(got.relay, invite.relay));
	ck_assert(slice_eq(got.name, invite.name));
	ck_assert(slice_eq(got.auth_tag, invite.auth_tag));
	ck_assert_mem_eq(got.owner, keypair_public(owner), KEY_BYTES);
	ck_assert_int_eq(got.expires, 1800000000);
}
END_TEST

START_TEST(one_without_an_end_never_expires)
{
	struct invite got;

	encode();
	ck_assert(parse(buf_slice(&text), &got));
	ck_assert_int_eq(got.expires, INT64_MAX);
}
END_TEST

START_TEST(white_space_from_a_broken_line_is_ignored)
{
	struct buf broken = {.max = 4096};
	struct invite got;

	encode();
	for (size_t i = 0; i < text.len; i++) {
		(void)buf_append_byte(&broken, text.ptr[i]);
		if (i % 70 == 3)
			(void)buf_lit(&broken, " \r\n\t");
	}
	ck_assert_msg(parse(buf_slice(&broken), &got), "%s", err.text);
	ck_assert(slice_eq(got.name, SLICE("laptop")));
	buf_finish(&broken);
}
END_TEST

START_TEST(each_wrong_character_is_noticed)
{
	encode();
	for (size_t i = 6; i < text.len; i++) {
		const char was = text.ptr[i];

		text.ptr[i] = was == 'q' ? 'p' : 'q';
		ASSERT_REFUSED(ERR_MALFORMED, "damaged");
		text.ptr[i] = was;
	}
}
END_TEST

START_TEST(a_line_that_was_cut_is_noticed)
{
	encode();
	for (; text.len > 6; text.len--) {
		struct invite got;

		if (text.len < 8 || text.len % 7 == 0)
			ck_assert(!parse(slice_sub(buf_slice(&text), 0, text.len - 1),
					 &got));
	}
	buf_clear(&text);
	(void)buf_lit(&text, "npub1abc");
	ASSERT_REFUSED(ERR_MALFORMED, "no invitation");
	buf_clear(&text);
	ASSERT_REFUSED(ERR_MALFORMED, "no invitation");
}
END_TEST

START_TEST(another_version_says_update)
{
	take_bytes();
	bytes.ptr[0] = 2;
	encode_bytes();
	ASSERT_REFUSED(ERR_REFUSED, "update perch");
	buf_clear(&bytes);
	encode_bytes();
	ASSERT_REFUSED(ERR_REFUSED, "update perch");
}
END_TEST

START_TEST(an_unknown_part_is_refused_unless_it_is_optional)
{
	struct invite got;

	take_bytes();
	(void)buf_append(&bytes, (struct slice){"\x07\x00", 2});
	encode_bytes();
	ASSERT_REFUSED(ERR_REFUSED, "(7): update perch");
	take_bytes();
	(void)buf_append(&bytes, (struct slice){"\x80\x02xy", 4});
	encode_bytes();
	ck_assert_msg(parse(buf_slice(&text), &got), "%s", err.text);
}
END_TEST

START_TEST(parts_stand_exactly_once_and_whole)
{
	take_bytes();
	(void)buf_append(&bytes, (struct slice){"\x03\x01x", 3});
	encode_bytes();
	ASSERT_REFUSED(ERR_MALFORMED, "part 3 twice");
	take_bytes();
	(void)buf_append(&bytes, (struct slice){"\x80", 1});
	encode_bytes();
	ASSERT_REFUSED(ERR_MALFORMED, "cut short");
	take_bytes();
	(void)buf_append(&bytes, (struct slice){"\x80\x02x", 3});
	encode_bytes();
	ASSERT_REFUSED(ERR_MALFORMED, "cut short");
	take_bytes();
	bytes.ptr[1] = (char)0x80; /* the secret becomes an optional part */
	encode_bytes();
	ASSERT_REFUSED(ERR_MALFORMED, "lacks part 1");
}
END_TEST

START_TEST(an_attestation_for_another_key_is_refused)
{
	take_bytes();
	bytes.ptr[3 + 5] ^= 1; /* of the secret */
	encode_bytes();
	ASSERT_REFUSED(ERR_MALFORMED, "not signed by its owner");
}
END_TEST

START_TEST(conditions_cannot_break_out_of_the_tag)
{
	take_bytes();
	(void)buf_append(&bytes, (struct slice){"\x06\x03\",\"", 5});
	encode_bytes();
	ASSERT_REFUSED(ERR_MALFORMED, "attestation is broken");
}
END_TEST

static const struct {
	const char *relay, *name;
	bool ok;
} parts[] = {
	{"ws://h", "a", true},
	{"wss://h", "0123456789012345678901234567890123456789012345678901234567890123",
	 true},
	{"wss://h", "01234567890123456789012345678901234567890123456789012345678901234",
	 false},
	{"wss://h", "", false},
	{"wss://h", "a b", false},
	{"wss://h", "a\x1b[2J", false},
	{"http://h", "a", false},
	{"", "a", false},
	{"wss://h\n", "a", false},
};

START_TEST(relay_and_name_have_a_form)
{
	invite.relay = slice_of(parts[_i].relay);
	invite.name = slice_of(parts[_i].name);
	buf_clear(&text);
	ck_assert(invite_encode(crypto, &invite, &text, &err) == parts[_i].ok);
}
END_TEST

START_TEST(the_longest_is_read_and_one_more_is_not)
{
	char url[INVITE_RELAY_MAX + 1];
	struct invite got;

	for (size_t i = 0; i < sizeof(url); i++)
		url[i] = i < 5 ? "ws://"[i] : 'x';
	invite.relay = (struct slice){url, INVITE_RELAY_MAX};
	encode();
	ck_assert_msg(parse(buf_slice(&text), &got), "%s", err.text);
	ck_assert_uint_eq(got.relay.len, INVITE_RELAY_MAX);
	invite.relay.len++;
	buf_clear(&text);
	ck_assert(!invite_encode(crypto, &invite, &text, &err));
	while (text.len < INVITE_CHARS_MAX + 1)
		(void)buf_lit(&text, "q");
	ASSERT_REFUSED(ERR_TOO_LARGE, "at most 2048 characters");
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

int main(void)
{
	Suite *suite = suite_create("invite");
	TCase *tcase = tcase_create("invite");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_was_written_is_read);
	tcase_add_test(tcase, one_without_an_end_never_expires);
	tcase_add_test(tcase, white_space_from_a_broken_line_is_ignored);
	tcase_add_test(tcase, each_wrong_character_is_noticed);
	tcase_add_test(tcase, a_line_that_was_cut_is_noticed);
	tcase_add_test(tcase, another_version_says_update);
	tcase_add_test(tcase, an_unknown_part_is_refused_unless_it_is_optional);
	tcase_add_test(tcase, parts_stand_exactly_once_and_whole);
	tcase_add_test(tcase, an_attestation_for_another_key_is_refused);
	tcase_add_test(tcase, conditions_cannot_break_out_of_the_tag);
	tcase_add_loop_test(tcase, relay_and_name_have_a_form, 0, COUNT(parts));
	tcase_add_test(tcase, the_longest_is_read_and_one_more_is_not);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
