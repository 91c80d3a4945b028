/* NIP-49: secret keys under a password. The vectors are the document's. */
#include "tests/unit/support/support.h"

#include <string.h>

#include "wire/nostr/bech32.h"
#include "wire/nostr/nip49.h"

#define VECTOR \
	"ncryptsec1qgg9947rlpvqu76pj5ecreduf9jxhselq2nae2kghhvd5g7dgjtcxfqtd67p9m0w57" \
	"lspw8gsq6yphnm8623nsl8xn9j4jdzz84zm3frztj3z7s35vpzmqf6ksu8r89qk5z2zxfmu5gv8t" \
	"h8wclt0h4p"
#define VECTOR_KEY "3501454135014541350145413501453fefb02227e449e57cf4d3a3ce05378683"

static struct crypto *crypto;
static struct buf text;
static struct err err;
static const uint8_t salt[NIP49_SALT_BYTES] = {1, 2, 3};
static const uint8_t nonce[NIP49_NONCE_BYTES] = {4, 5, 6};
static const uint8_t secret[KEY_BYTES] = {7, 8, 9};

static void setup(void)
{
	static const uint8_t seed[32] = {1};

	crypto = crypto_create(seed, NULL);
	ck_assert_ptr_nonnull(crypto);
	buf_init(&text, 1024);
}

static void teardown(void)
{
	buf_finish(&text);
	crypto_destroy(crypto);
}

static void encrypt(const char *password, unsigned log_n)
{
	buf_clear(&text);
	ck_assert_msg(nip49_encrypt(secret, slice_of(password), log_n, NIP49_UNKNOWN,
				    salt, nonce, &text, &err),
		      "%s", err.text);
}

/* The text of those bytes, which need be no ncryptsec. */
static void encode(const uint8_t *bytes, size_t len)
{
	buf_clear(&text);
	ck_assert(bech32_encode(SLICE("ncryptsec"),
				(struct slice){(const char *)bytes, len}, &text));
}

START_TEST(the_documents_vector_opens)
{
	uint8_t got[KEY_BYTES], want[KEY_BYTES];

	ck_assert(hex_decode(SLICE(VECTOR_KEY), want, KEY_BYTES));
	ck_assert(nip49_is(SLICE(VECTOR)));
	ck_assert_msg(nip49_decrypt(SLICE(VECTOR), SLICE("nostr"), got, &err), "%s",
		      err.text);
	ck_assert_mem_eq(got, want, KEY_BYTES);
}
END_TEST

START_TEST(what_was_sealed_opens_with_its_password_only)
{
	uint8_t got[KEY_BYTES];

	encrypt("p\xc3\xa4ssword \xe5\xaf\x86", 4);
	ck_assert(nip49_decrypt(buf_slice(&text), SLICE("p\xc3\xa4ssword \xe5\xaf\x86"),
				got, &err));
	ck_assert_mem_eq(got, secret, KEY_BYTES);
	ck_assert(!nip49_decrypt(buf_slice(&text), SLICE("password"), got, &err));
	ck_assert_int_eq(err.code, ERR_REFUSED);
}
END_TEST

START_TEST(the_security_byte_is_authenticated)
{
	struct buf bytes = {.max = 128};
	uint8_t got[KEY_BYTES];

	encrypt("x", 1);
	ck_assert(bech32_decode(buf_slice(&text), SLICE("ncryptsec"), &bytes, NULL));
	ck_assert_uint_eq(bytes.len, 91);
	bytes.ptr[42] ^= 1;
	encode((const uint8_t *)bytes.ptr, bytes.len);
	ck_assert(!nip49_decrypt(buf_slice(&text), SLICE("x"), got, &err));
	ck_assert_int_eq(err.code, ERR_REFUSED);
	buf_finish(&bytes);
}
END_TEST

static const struct {
	unsigned version, log_n, len;
	enum err_code code;
	const char *words;
} heads[] = {
	{1, 16, 91, ERR_MALFORMED, "version 2"},
	{2, 21, 91, ERR_TOO_LARGE, "2^21"},
	{2, 255, 91, ERR_TOO_LARGE, "2^255"},
	{2, 0, 91, ERR_MALFORMED, "no scrypt rounds"},
	{2, 16, 90, ERR_MALFORMED, "90 bytes, want 91"},
	{2, 16, 92, ERR_MALFORMED, "92 bytes, want 91"},
	{0, 0, 0, ERR_MALFORMED, "version 2"},
};

START_TEST(a_wrong_head_is_refused_before_any_work)
{
	uint8_t bytes[92] = {(uint8_t)heads[_i].version, (uint8_t)heads[_i].log_n};
	uint8_t got[KEY_BYTES];

	encode(bytes, heads[_i].len);
	ck_assert(!nip49_decrypt(buf_slice(&text), SLICE("x"), got, &err));
	ck_assert_int_eq(err.code, heads[_i].code);
	ck_assert_msg(strstr(err.text, heads[_i].words) != NULL, "%s", err.text);
}
END_TEST

START_TEST(a_damaged_or_foreign_text_is_refused)
{
	uint8_t got[KEY_BYTES];

	encrypt("x", 1);
	text.ptr[20] = text.ptr[20] == 'q' ? 'p' : 'q';
	ck_assert(!nip49_decrypt(buf_slice(&text), SLICE("x"), got, &err));
	ck_assert_str_eq(err.text, "bech32 checksum is wrong");
	ck_assert(!nip49_is(SLICE("nsec1xyz")));
	ck_assert(!nip49_is(SLICE("ncryptsec")));
	ck_assert(!nip49_decrypt(SLICE("nsec1xyz"), SLICE("x"), got, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

static const struct {
	const char *password;
	const char *words; /* NULL: taken */
} passwords[] = {
	{"correct horse ~", NULL},
	{"\xc3\xa4\xc5\x93\xce\xa9\xd0\x96", NULL},
	{"\xe3\x81\x82\xed\x9e\xa3", NULL},
	{"", "is empty"},
	{"a\x7f", "U+007F"},
	{"a\xcc\x88", "U+0308"},    /* combining diaeresis */
	{"\xef\xac\x81", "U+FB01"}, /* the ligature fi */
	{"\xe2\x84\xab\xe2\x84\xa6\xe1\xba\x9b\xcc\xa3", "U+212B"}, /* NIP-49's own */
	{"\xff", "no UTF-8"},
};

START_TEST(a_password_that_has_other_forms_is_refused)
{
	const bool ok = nip49_check_password(slice_of(passwords[_i].password), &err);

	ck_assert(ok == (passwords[_i].words == NULL));
	if (!ok)
		ck_assert_msg(strstr(err.text, passwords[_i].words) != NULL, "%s",
			      err.text);
}
END_TEST

START_TEST(a_password_has_a_longest_length)
{
	char long_one[NIP49_PASSWORD_MAX + 1];

	memset(long_one, 'x', sizeof(long_one));
	ck_assert(
		nip49_check_password((struct slice){long_one, NIP49_PASSWORD_MAX}, &err));
	ck_assert(!nip49_check_password((struct slice){long_one, NIP49_PASSWORD_MAX + 1},
					&err));
	ck_assert_int_eq(err.code, ERR_TOO_LARGE);
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

int main(void)
{
	Suite *suite = suite_create("nip49");
	TCase *tcase = tcase_create("nip49");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, the_documents_vector_opens);
	tcase_add_test(tcase, what_was_sealed_opens_with_its_password_only);
	tcase_add_test(tcase, the_security_byte_is_authenticated);
	tcase_add_loop_test(tcase, a_wrong_head_is_refused_before_any_work, 0,
			    COUNT(heads));
	tcase_add_test(tcase, a_damaged_or_foreign_text_is_refused);
	tcase_add_loop_test(tcase, a_password_that_has_other_forms_is_refused, 0,
			    COUNT(passwords));
	tcase_add_test(tcase, a_password_has_a_longest_length);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
