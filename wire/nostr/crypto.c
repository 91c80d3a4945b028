#include "wire/nostr/crypto.h"

#include <assert.h>
#include <endian.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>
#include <secp256k1.h>
#include <secp256k1_ecdh.h>
#include <secp256k1_extrakeys.h>
#include <secp256k1_schnorrsig.h>
#include <sodium.h>

#include "wire/base/mem.h"
#include "wire/nostr/crypto_internal.h"

#define SHA256_BLOCK_BYTES 64
/* EVP takes lengths as int; no piece of ours comes near. */
#define PIECE_MAX_BYTES (INT_MAX / 2)
/* Version, nonce, padded text with its prefix, MAC (NIP-44). */
#define SCRATCH_MAX_BYTES (1 + 32 + 2 + 65536 + 32)

struct crypto {
	secp256k1_context *secp;
	EVP_MD *sha256, *sha1;
	EVP_CIPHER *chacha20;
	EVP_MD_CTX *sha256_ctx, *sha1_ctx;
	EVP_CIPHER_CTX *chacha20_ctx;
	struct buf scratch;
};

struct keypair {
	secp256k1_keypair pair;
	uint8_t pubkey[KEY_BYTES];
};

/* Failures here mean a library without memory or a wrong argument of ours. */
static void must(int result)
{
	if (result != 1)
		abort();
}

struct crypto *crypto_create(const uint8_t seed[32], struct err *err)
{
	struct crypto *crypto;

	if (sodium_init() < 0) {
		err_set(err, ERR_SYSTEM, "libsodium: cannot initialise");
		return NULL;
	}
	crypto = mem_alloc(sizeof(*crypto));
	buf_init(&crypto->scratch, SCRATCH_MAX_BYTES);
	crypto->secp = secp256k1_context_create(SECP256K1_CONTEXT_NONE);
	crypto->sha256 = EVP_MD_fetch(NULL, "SHA2-256", NULL);
	crypto->sha1 = EVP_MD_fetch(NULL, "SHA1", NULL);
	crypto->chacha20 = EVP_CIPHER_fetch(NULL, "ChaCha20", NULL);
	crypto->sha256_ctx = EVP_MD_CTX_new();
	crypto->sha1_ctx = EVP_MD_CTX_new();
	crypto->chacha20_ctx = EVP_CIPHER_CTX_new();
	if (!crypto->secp || !secp256k1_context_randomize(crypto->secp, seed)) {
		err_set(err, ERR_SYSTEM, "libsecp256k1: cannot initialise");
		goto out;
	}
	if (!crypto->sha256 || !crypto->sha1 || !crypto->chacha20 ||
	    !crypto->sha256_ctx || !crypto->sha1_ctx || !crypto->chacha20_ctx ||
	    EVP_EncryptInit_ex2(crypto->chacha20_ctx, crypto->chacha20, NULL, NULL,
				NULL) != 1) {
		err_set(err, ERR_SYSTEM, "openssl: lacks SHA-256, SHA-1 or ChaCha20");
		goto out;
	}
	return crypto;
out:
	crypto_destroy(crypto);
	return NULL;
}

void crypto_destroy(struct crypto *crypto)
{
	if (!crypto)
		return;
	buf_wipe(&crypto->scratch);
	EVP_CIPHER_CTX_free(crypto->chacha20_ctx);
	EVP_MD_CTX_free(crypto->sha1_ctx);
	EVP_MD_CTX_free(crypto->sha256_ctx);
	EVP_CIPHER_free(crypto->chacha20);
	EVP_MD_free(crypto->sha1);
	EVP_MD_free(crypto->sha256);
	if (crypto->secp)
		secp256k1_context_destroy(crypto->secp);
	free(crypto);
}

struct buf *crypto_scratch(struct crypto *crypto)
{
	return &crypto->scratch;
}

bool keypair_create(struct crypto *crypto, const uint8_t secret[KEY_BYTES],
		    struct keypair **out, struct err *err)
{
	secp256k1_xonly_pubkey xonly;
	struct keypair *keypair;

	keypair = sodium_malloc(sizeof(*keypair));
	if (!keypair)
		return err_errno(err, "no guarded memory for a key");
	if (!secp256k1_keypair_create(crypto->secp, &keypair->pair, secret)) {
		sodium_free(keypair);
		return err_set(err, ERR_MALFORMED,
			       "secret key is zero or not below the order");
	}
	must(secp256k1_keypair_xonly_pub(crypto->secp, &xonly, NULL, &keypair->pair));
	must(secp256k1_xonly_pubkey_serialize(crypto->secp, keypair->pubkey, &xonly));
	if (sodium_mprotect_readonly(keypair) != 0) {
		sodium_free(keypair);
		return err_errno(err, "cannot protect the memory of a key");
	}
	*out = keypair;
	return true;
}

void keypair_destroy(struct keypair *keypair)
{
	sodium_free(keypair); /* makes it writable again, wipes, takes NULL */
}

const uint8_t *keypair_public(const struct keypair *keypair)
{
	return keypair->pubkey;
}

void keypair_secret(const struct keypair *keypair, uint8_t out[KEY_BYTES])
{
	must(secp256k1_keypair_sec(secp256k1_context_static, out, &keypair->pair));
}

void schnorr_sign(struct crypto *crypto, const struct keypair *keypair,
		  struct slice message, const uint8_t aux[32], uint8_t sig[SIG_BYTES])
{
	secp256k1_schnorrsig_extraparams extra = SECP256K1_SCHNORRSIG_EXTRAPARAMS_INIT;
	uint8_t fresh[32];

	memcpy(fresh, aux, sizeof(fresh)); /* the library's field is not const */
	extra.ndata = fresh;
	must(secp256k1_schnorrsig_sign_custom(crypto->secp, sig,
					      (const uint8_t *)message.ptr, message.len,
					      &keypair->pair, &extra));
	sodium_memzero(fresh, sizeof(fresh));
}

bool schnorr_verify(struct crypto *crypto, const uint8_t pubkey[KEY_BYTES],
		    struct slice message, const uint8_t sig[SIG_BYTES])
{
	secp256k1_xonly_pubkey xonly;

	return secp256k1_xonly_pubkey_parse(crypto->secp, &xonly, pubkey) &&
	       secp256k1_schnorrsig_verify(crypto->secp, sig,
					   (const uint8_t *)message.ptr, message.len,
					   &xonly);
}

static int copy_x(unsigned char *out, const unsigned char *x, const unsigned char *y,
		  void *data)
{
	(void)y;
	(void)data;
	memcpy(out, x, 32);
	return 1;
}

bool ecdh_x(struct crypto *crypto, const struct keypair *keypair,
	    const uint8_t peer[KEY_BYTES], uint8_t out[32], struct err *err)
{
	uint8_t secret[KEY_BYTES],
		compressed[1 + KEY_BYTES] = {0x02}; /* the even point */
	secp256k1_pubkey point;

	memcpy(compressed + 1, peer, KEY_BYTES);
	if (!secp256k1_ec_pubkey_parse(crypto->secp, &point, compressed,
				       sizeof(compressed)))
		return err_set(err, ERR_MALFORMED, "public key is no point of the curve");
	keypair_secret(keypair, secret);
	must(secp256k1_ecdh(crypto->secp, out, &point, secret, copy_x, NULL));
	sodium_memzero(secret, sizeof(secret));
	return true;
}

static void digest(EVP_MD_CTX *ctx, const EVP_MD *md, const struct slice *pieces,
		   size_t count, uint8_t *out)
{
	must(EVP_DigestInit_ex2(ctx, md, NULL));
	for (size_t i = 0; i < count; i++)
		must(EVP_DigestUpdate(ctx, pieces[i].ptr, pieces[i].len));
	must(EVP_DigestFinal_ex(ctx, out, NULL));
}

void sha256(struct crypto *crypto, const struct slice *pieces, size_t count,
	    uint8_t out[SHA256_BYTES])
{
	digest(crypto->sha256_ctx, crypto->sha256, pieces, count, out);
}

void sha1(struct crypto *crypto, const struct slice *pieces, size_t count,
	  uint8_t out[20])
{
	digest(crypto->sha1_ctx, crypto->sha1, pieces, count, out);
}

/* RFC 2104: H(K xor opad, H(K xor ipad, text)). */
void hmac_sha256(struct crypto *crypto, const uint8_t *key, size_t key_len,
		 const struct slice *pieces, size_t count, uint8_t out[SHA256_BYTES])
{
	EVP_MD_CTX *const ctx = crypto->sha256_ctx;
	uint8_t pad[SHA256_BLOCK_BYTES] = {0};
	uint8_t inner[SHA256_BYTES];

	if (key_len > sizeof(pad))
		sha256(crypto, &(struct slice){(const char *)key, key_len}, 1, pad);
	else if (key_len)
		memcpy(pad, key, key_len);
	for (size_t i = 0; i < sizeof(pad); i++)
		pad[i] ^= 0x36;
	must(EVP_DigestInit_ex2(ctx, crypto->sha256, NULL));
	must(EVP_DigestUpdate(ctx, pad, sizeof(pad)));
	for (size_t i = 0; i < count; i++)
		must(EVP_DigestUpdate(ctx, pieces[i].ptr, pieces[i].len));
	must(EVP_DigestFinal_ex(ctx, inner, NULL));
	for (size_t i = 0; i < sizeof(pad); i++)
		pad[i] ^= 0x36 ^ 0x5c;
	must(EVP_DigestInit_ex2(ctx, crypto->sha256, NULL));
	must(EVP_DigestUpdate(ctx, pad, sizeof(pad)));
	must(EVP_DigestUpdate(ctx, inner, sizeof(inner)));
	must(EVP_DigestFinal_ex(ctx, out, NULL));
	sodium_memzero(pad, sizeof(pad));
	sodium_memzero(inner, sizeof(inner));
}

void hkdf_extract(struct crypto *crypto, struct slice salt, struct slice ikm,
		  uint8_t out[SHA256_BYTES])
{
	hmac_sha256(crypto, (const uint8_t *)salt.ptr, salt.len, &ikm, 1, out);
}

/* RFC 5869, 2.3: T(i) = HMAC(PRK, T(i-1) | info | i), their concatenation cut to length.
 */
void hkdf_expand(struct crypto *crypto, const uint8_t prk[SHA256_BYTES],
		 struct slice info, uint8_t *out, size_t out_len)
{
	uint8_t block[SHA256_BYTES];
	uint8_t counter = 0;
	size_t block_len = 0; /* T(0) is empty */

	assert(out_len <= 255 * SHA256_BYTES);
	while (out_len) {
		const char number = (char)++counter;
		const struct slice pieces[] = {
			{(const char *)block, block_len}, info, {&number, 1}};
		size_t take;

		hmac_sha256(crypto, prk, SHA256_BYTES, pieces, 3, block);
		block_len = sizeof(block);
		take = out_len < block_len ? out_len : block_len;
		memcpy(out, block, take);
		out += take;
		out_len -= take;
	}
	sodium_memzero(block, sizeof(block));
}

static void chacha20_run(struct crypto *crypto, const uint8_t key[32],
			 const uint8_t iv[16], const uint8_t *in, size_t len,
			 uint8_t *out)
{
	int written;

	assert(len <= PIECE_MAX_BYTES);
	/* The cipher was set at creation: naming it again would allocate its state anew.
	 */
	must(EVP_EncryptInit_ex2(crypto->chacha20_ctx, NULL, key, iv, NULL));
	must(EVP_EncryptUpdate(crypto->chacha20_ctx, out, &written, in, (int)len));
	assert((size_t)written == len);
}

void chacha20(struct crypto *crypto, const uint8_t key[32], const uint8_t nonce[12],
	      const uint8_t *in, size_t len, uint8_t *out)
{
	static const uint8_t zeros[32];
	uint8_t iv[16] = {
		0}; /* OpenSSL's: the block counter, little-endian, then the nonce */
	uint8_t byte = 0;

	memcpy(iv + 4, nonce, 12);
	chacha20_run(crypto, key, iv, in, len, out);
	/* Overwrites the key and the rest of its last block of key stream in the context.
	 */
	chacha20_run(crypto, zeros, zeros, &byte, 1, &byte);
}

void base64_encode(const uint8_t *bytes, size_t len, char *out)
{
	const size_t tail = len ? (len - 1) % 3 + 1 : 0; /* bytes of the last group */
	char group[5];

	assert(len <= PIECE_MAX_BYTES);
	if (!len)
		return;
	/* EVP_EncodeBlock writes a NUL behind its output, for which the caller has no
	 * room: the last group goes over that of the others, and is itself copied
	 * without. */
	if (len > tail)
		(void)EVP_EncodeBlock((unsigned char *)out, bytes, (int)(len - tail));
	(void)EVP_EncodeBlock((unsigned char *)group, bytes + len - tail, (int)tail);
	memcpy(out + base64_len(len) - 4, group, 4);
}

/* 0..63; 0x80 for anything that is no digit. */
static uint8_t sextet(char digit)
{
	/* clang-format off */
	static const uint8_t values[256] = {
#define X4  0x80, 0x80, 0x80, 0x80
#define X16 X4, X4, X4, X4
#define X64 X16, X16, X16, X16
		X16, X16,                                              /* 0x00 to 0x1f */
		X4, X4, 0x80, 0x80, 0x80, 62, 0x80, 0x80, 0x80, 63,    /* space to slash */
		52, 53, 54, 55, 56, 57, 58, 59, 60, 61,                /* 0 to 9 */
		0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,              /* : to @ */
		0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,              /* A to M */
		13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,    /* N to Z */
		0x80, 0x80, 0x80, 0x80, 0x80, 0x80,                    /* [ to ` */
		26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38,    /* a to m */
		39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51,    /* n to z */
		0x80, 0x80, 0x80, 0x80, 0x80,                          /* { to DEL */
		X64, X64,
#undef X4
#undef X16
#undef X64
	};
	/* clang-format on */

	return values[(uint8_t)digit];
}

/* Four digits to 24 bits. What is no digit leaves its mark in @seen. */
static uint32_t quartet(const char *at, uint32_t *seen)
{
	const uint32_t a = sextet(at[0]), b = sextet(at[1]), c = sextet(at[2]),
		       d = sextet(at[3]);

	*seen |= a | b | c | d;
	return a << 18 | b << 12 | c << 6 | d;
}

bool base64_alphabet(struct slice text)
{
	uint8_t seen = 0;

	for (size_t i = 0; i < text.len; i++)
		seen |= sextet(text.ptr[i]);
	return !(seen & 0x80);
}

bool base64_decode(struct slice text, struct buf *out, struct err *err)
{
	size_t pad = 0, whole;
	uint32_t bits, seen = 0;
	char last[4];
	char *at;

	if (text.len % 4)
		return err_set(err, ERR_MALFORMED,
			       "base64 is not a multiple of 4 characters");
	if (!text.len)
		return true;
	if (text.ptr[text.len - 1] == '=')
		pad = text.ptr[text.len - 2] == '=' ? 2 : 1;
	at = buf_extend(out, text.len / 4 * 3 - pad);
	if (!at)
		return err_set(err, ERR_TOO_LARGE,
			       "base64 decodes to more than there is room");
	whole = text.len / 4 - 1;
	for (size_t i = 0; i < whole; i++) {
		/* One store for three bytes; the fourth is the next group's first, which
		 * is there: the last group has one at least. */
		bits = htobe32(quartet(text.ptr + 4 * i, &seen) << 8);
		memcpy(at, &bits, sizeof(bits));
		at += 3;
	}
	memcpy(last, text.ptr + 4 * whole, 4);
	memset(last + 4 - pad, 'A', pad);
	bits = quartet(last, &seen);
	for (size_t i = 0; i < 3 - pad; i++)
		at[i] = (char)(bits >> (16 - 8 * i));
	/* The bits that padding cuts off must be zero, or one value had several texts. */
	if (seen & 0x80 || (bits & ((UINT32_C(1) << 8 * pad) - 1))) {
		buf_truncate(out, out->len - (text.len / 4 * 3 - pad));
		return err_set(err, ERR_MALFORMED,
			       "base64 has a wrong character or tail");
	}
	return true;
}
