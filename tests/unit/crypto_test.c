#include <string.h>

#include <sodium.h>

#include "tests/unit/support/support.h"
#include "wire/nostr/crypto.h"

#define COUNT(table) (int)(sizeof(table) / sizeof((table)[0]))

static struct crypto *crypto;
static struct buf csv;

static void setup(void)
{
	static const uint8_t seed[32] = {1};

	crypto = crypto_create(seed, NULL);
	ck_assert_ptr_nonnull(crypto);
	buf_init(&csv, 64 * 1024);
}

static void teardown(void)
{
	crypto_destroy(crypto);
	buf_finish(&csv);
}

/* The csv's hex is in upper case. */
static size_t unhex(struct slice text, uint8_t *out, size_t room)
{
	char lower[512];

	ck_assert_uint_le(text.len, sizeof(lower));
	ck_assert_uint_le(text.len / 2, room);
	for (size_t i = 0; i < text.len; i++)
		lower[i] = (char)(text.ptr[i] | 0x20);
	ck_assert(hex_decode((struct slice){lower, text.len}, out, text.len / 2));
	return text.len / 2;
}

struct vector {
	struct slice index, secret, pubkey, aux, message, signature, result, comment;
};

static struct vector vector_at(int row)
{
	struct vector vector;
	struct slice text, line = SLICE_EMPTY;

	test_data("bip340-test-vectors.csv", &csv);
	text = buf_slice(&csv);
	for (int i = 0; i <= row + 1; i++)
		ck_assert(slice_take_until(&text, '\n', &line));
	line = slice_trim(line);
	ck_assert(slice_take_until(&line, ',', &vector.index));
	ck_assert(slice_take_until(&line, ',', &vector.secret));
	ck_assert(slice_take_until(&line, ',', &vector.pubkey));
	ck_assert(slice_take_until(&line, ',', &vector.aux));
	ck_assert(slice_take_until(&line, ',', &vector.message));
	ck_assert(slice_take_until(&line, ',', &vector.signature));
	ck_assert(slice_take_until(&line, ',', &vector.result));
	vector.comment = line;
	return vector;
}

START_TEST(bip340_vectors_verify_or_fail_as_published)
{
	const struct vector vector = vector_at(_i);
	uint8_t pubkey[32], message[128], sig[64];
	struct slice text = {(const char *)message, 0};

	unhex(vector.pubkey, pubkey, sizeof(pubkey));
	unhex(vector.signature, sig, sizeof(sig));
	text.len = unhex(vector.message, message, sizeof(message));
	ck_assert_msg(schnorr_verify(crypto, pubkey, text, sig) ==
			      slice_eq(vector.result, SLICE("TRUE")),
		      "vector %.*s: %.*s", SLICE_ARG(vector.index),
		      SLICE_ARG(vector.comment));
}
END_TEST

START_TEST(bip340_vectors_with_a_secret_are_signed_to_the_same_bytes)
{
	const struct vector vector = vector_at(_i);
	uint8_t secret[32], aux[32], message[128], want[64], got[64], pubkey[32];
	struct slice text = {(const char *)message, 0};
	struct keypair *keypair;

	if (!vector.secret.len)
		return;
	unhex(vector.secret, secret, sizeof(secret));
	unhex(vector.aux, aux, sizeof(aux));
	unhex(vector.pubkey, pubkey, sizeof(pubkey));
	unhex(vector.signature, want, sizeof(want));
	text.len = unhex(vector.message, message, sizeof(message));
	ck_assert(keypair_create(crypto, secret, &keypair, NULL));
	ck_assert_mem_eq(keypair_public(keypair), pubkey, sizeof(pubkey));
	schnorr_sign(crypto, keypair, text, aux, got);
	ck_assert_mem_eq(got, want, sizeof(want));
	keypair_destroy(keypair);
}
END_TEST

START_TEST(a_secret_of_zero_or_beyond_the_order_makes_no_keypair)
{
	uint8_t secret[32] = {0};
	struct keypair *keypair;
	struct err err;

	ck_assert(!keypair_create(crypto, secret, &keypair, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	memset(secret, 0xff, sizeof(secret));
	ck_assert(!keypair_create(crypto, secret, &keypair, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

START_TEST(a_keypair_gives_its_secret_back)
{
	const uint8_t secret[32] = {1, 2, 3};
	struct keypair *keypair;
	uint8_t got[32];

	ck_assert(keypair_create(crypto, secret, &keypair, NULL));
	keypair_secret(keypair, got);
	ck_assert_mem_eq(got, secret, sizeof(secret));
	keypair_destroy(keypair);
	keypair_destroy(NULL);
}
END_TEST

START_TEST(both_sides_of_an_ecdh_get_the_same_x)
{
	const uint8_t one[32] = {1}, two[32] = {2};
	struct keypair *a, *b;
	uint8_t from_a[32], from_b[32];

	ck_assert(keypair_create(crypto, one, &a, NULL));
	ck_assert(keypair_create(crypto, two, &b, NULL));
	ck_assert(ecdh_x(crypto, a, keypair_public(b), from_a, NULL));
	ck_assert(ecdh_x(crypto, b, keypair_public(a), from_b, NULL));
	ck_assert_mem_eq(from_a, from_b, 32);
	keypair_destroy(a);
	keypair_destroy(b);
}
END_TEST

START_TEST(an_ecdh_with_no_point_is_refused)
{
	const uint8_t secret[32] = {1}, no_point[32] = {0};
	struct keypair *keypair;
	uint8_t out[32];
	struct err err;

	ck_assert(keypair_create(crypto, secret, &keypair, NULL));
	ck_assert(!ecdh_x(crypto, keypair, no_point, out, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	keypair_destroy(keypair);
}
END_TEST

static void assert_hex(const uint8_t *bytes, size_t len, const char *want)
{
	char text[256];

	ck_assert_uint_le(2 * len, sizeof(text));
	hex_encode(bytes, len, text);
	assert_slice_eq(((struct slice){text, 2 * len}), want);
}

/* FIPS 180-4, "abc". */
START_TEST(hashes_over_pieces_are_those_of_the_whole)
{
	const struct slice pieces[] = {SLICE_INIT("a"), {NULL, 0}, SLICE_INIT("bc")};
	uint8_t out[32];

	sha256(crypto, pieces, 3, out);
	assert_hex(out, 32,
		   "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	sha256(crypto, NULL, 0, out);
	assert_hex(out, 32,
		   "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	sha1(crypto, pieces, 3, out);
	assert_hex(out, 20, "a9993e364706816aba3e25717850c26c9cd0d89d");
}
END_TEST

START_TEST(hmac_agrees_with_rfc_4231)
{
	const struct slice pieces[] = {SLICE_INIT("what do ya want "),
				       SLICE_INIT("for nothing?")};
	const struct slice long_text =
		SLICE_INIT("Test Using Larger Than Block-Size Key - Hash Key First");
	uint8_t out[32], key[131];

	hmac_sha256(crypto, (const uint8_t *)"Jefe", 4, pieces, 2, out);
	assert_hex(out, 32,
		   "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	memset(key, 0xaa, sizeof(key));
	hmac_sha256(crypto, key, sizeof(key), &long_text, 1, out);
	assert_hex(out, 32,
		   "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}
END_TEST

/* RFC 5869, A.1. */
START_TEST(hkdf_agrees_with_rfc_5869)
{
	uint8_t prk[32], out[42], ikm[22];

	memset(ikm, 0x0b, sizeof(ikm));
	hkdf_extract(crypto,
		     SLICE("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c"),
		     (struct slice){(const char *)ikm, sizeof(ikm)}, prk);
	assert_hex(prk, 32,
		   "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
	hkdf_expand(crypto, prk, SLICE("\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9"), out,
		    sizeof(out));
	assert_hex(out, sizeof(out),
		   "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
		   "34007208d5b887185865");
}
END_TEST

/* The same stream from an independent implementation, at lengths around the block. */
START_TEST(chacha20_agrees_with_libsodium)
{
	uint8_t key[32], nonce[12], in[1000], got[1000], want[1000];

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)(i * 7);
	memcpy(key, in + 100, sizeof(key));
	memcpy(nonce, in + 200, sizeof(nonce));
	for (size_t len = 1; len <= sizeof(in); len += len < 130 ? 1 : 97) {
		chacha20(crypto, key, nonce, in, len, got);
		(void)crypto_stream_chacha20_ietf_xor(want, in, len, nonce, key);
		ck_assert_mem_eq(got, want, len);
		chacha20(crypto, key, nonce, got, len, got);
		ck_assert_mem_eq(got, in, len);
	}
}
END_TEST

START_TEST(base64_writes_exactly_its_length_and_comes_back)
{
	uint8_t bytes[100];
	char text[140];
	struct buf out;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 37);
	buf_init(&out, 1000);
	for (size_t len = 0; len <= sizeof(bytes); len++) {
		memset(text, '!', sizeof(text));
		base64_encode(bytes, len, text);
		ck_assert_int_eq(text[base64_len(len)], '!');
		buf_clear(&out);
		ck_assert(
			base64_decode((struct slice){text, base64_len(len)}, &out, NULL));
		ck_assert_uint_eq(out.len, len);
		ck_assert(!len || !memcmp(out.ptr, bytes, len));
	}
	buf_finish(&out);
}
END_TEST

/* RFC 4648, 10. */
START_TEST(base64_agrees_with_rfc_4648)
{
	char text[8];

	base64_encode((const uint8_t *)"fooba", 5, text);
	ck_assert_mem_eq(text, "Zm9vYmE=", 8);
	base64_encode((const uint8_t *)"foob", 4, text);
	ck_assert_mem_eq(text, "Zm9vYg==", 8);
}
END_TEST

static const char *const bad_base64[] = {
	"A",        "AA",          "AAA",     "====",     "A===",  "AA=A",   "=AAA",
	"AA==AAAA", "QQ=A",        "QR==",    "QUJ=",     " QUJD", "QUJD\n", "QU-D",
	"QU_D",     "QUJDQUJ\x80", "QUJ\xc3", "AAAA====", "Q\n==", "QU J",
};

START_TEST(base64_of_a_wrong_shape_is_refused_and_leaves_no_trace)
{
	struct buf out;
	struct err err;

	buf_init(&out, 1000);
	(void)buf_lit(&out, "before");
	ck_assert_msg(!base64_decode(slice_of(bad_base64[_i]), &out, &err), "%s",
		      bad_base64[_i]);
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	assert_slice_eq(buf_slice(&out), "before");
	buf_finish(&out);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("crypto");
	TCase *tcase = tcase_create("crypto");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, bip340_vectors_verify_or_fail_as_published, 0, 19);
	tcase_add_loop_test(
		tcase, bip340_vectors_with_a_secret_are_signed_to_the_same_bytes, 0, 19);
	tcase_add_test(tcase, a_secret_of_zero_or_beyond_the_order_makes_no_keypair);
	tcase_add_test(tcase, a_keypair_gives_its_secret_back);
	tcase_add_test(tcase, both_sides_of_an_ecdh_get_the_same_x);
	tcase_add_test(tcase, an_ecdh_with_no_point_is_refused);
	tcase_add_test(tcase, hashes_over_pieces_are_those_of_the_whole);
	tcase_add_test(tcase, hmac_agrees_with_rfc_4231);
	tcase_add_test(tcase, hkdf_agrees_with_rfc_5869);
	tcase_add_test(tcase, chacha20_agrees_with_libsodium);
	tcase_add_test(tcase, base64_writes_exactly_its_length_and_comes_back);
	tcase_add_test(tcase, base64_agrees_with_rfc_4648);
	tcase_add_loop_test(tcase, base64_of_a_wrong_shape_is_refused_and_leaves_no_trace,
			    0, COUNT(bad_base64));
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
