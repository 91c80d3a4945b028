#ifndef WIRE_NOSTR_CRYPTO_H
#define WIRE_NOSTR_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"

/* The primitives of Nostr: secp256k1 for the curve, OpenSSL (algorithms fetched once) for
 * bulk hashing, HMAC, ChaCha20 and base64, libsodium for guarded memory, wiping and
 * constant-time compare. Randomness comes in as arguments. */

#define KEY_BYTES 32
#define SIG_BYTES 64
#define SHA256_BYTES 32
#define NONCE_BYTES 32

/* Contexts for one thread; whoever runs a loop makes one and passes it down. */
struct crypto;

/* @seed: 32 random bytes that blind the signing context. NULL with @err when a library
 * lacks an algorithm. */
struct crypto *crypto_create(const uint8_t seed[32], struct err *err);
void crypto_destroy(struct crypto *crypto);

/* A secret key and its x-only public key, in libsodium guarded memory, wiped on destroy.
 */
struct keypair;
/* False (ERR_MALFORMED) unless 0 < secret < n. Takes a copy; wiping @secret is the
 * caller's. */
bool keypair_create(struct crypto *crypto, const uint8_t secret[KEY_BYTES],
		    struct keypair **out, struct err *err);
void keypair_destroy(struct keypair *keypair);
const uint8_t *keypair_public(const struct keypair *keypair); /* KEY_BYTES, x-only */
/* Copies the secret out: for key files and derivation only; the caller wipes it. */
void keypair_secret(const struct keypair *keypair, uint8_t out[KEY_BYTES]);

/* BIP-340. @aux: 32 fresh random bytes. */
void schnorr_sign(struct crypto *crypto, const struct keypair *keypair,
		  struct slice message, const uint8_t aux[32], uint8_t sig[SIG_BYTES]);
bool schnorr_verify(struct crypto *crypto, const uint8_t pubkey[KEY_BYTES],
		    struct slice message, const uint8_t sig[SIG_BYTES]);
/* x coordinate of the shared point, unhashed (NIP-44). ERR_MALFORMED when @peer is no
 * point. */
bool ecdh_x(struct crypto *crypto, const struct keypair *keypair,
	    const uint8_t peer[KEY_BYTES], uint8_t out[32], struct err *err);

/* SHA-256 over several pieces without joining them. */
void sha256(struct crypto *crypto, const struct slice *pieces, size_t count,
	    uint8_t out[SHA256_BYTES]);
void hmac_sha256(struct crypto *crypto, const uint8_t *key, size_t key_len,
		 const struct slice *pieces, size_t count, uint8_t out[SHA256_BYTES]);
/* RFC 5869. @out_len at most 255 * 32. */
void hkdf_extract(struct crypto *crypto, struct slice salt, struct slice ikm,
		  uint8_t out[SHA256_BYTES]);
void hkdf_expand(struct crypto *crypto, const uint8_t prk[SHA256_BYTES],
		 struct slice info, uint8_t *out, size_t out_len);
/* ChaCha20 (RFC 8439), counter 0, in place or not. */
void chacha20(struct crypto *crypto, const uint8_t key[32], const uint8_t nonce[12],
	      const uint8_t *in, size_t len, uint8_t *out);
void sha1(struct crypto *crypto, const struct slice *pieces, size_t count,
	  uint8_t out[20]);

/* Standard alphabet, padded. Writes exactly base64_len(len) characters. */
static inline size_t base64_len(size_t len)
{
	return (len + 2) / 3 * 4;
}
void base64_encode(const uint8_t *bytes, size_t len, char *out);
/* Only the 64 digits? Padding is not one. */
bool base64_alphabet(struct slice text);
/* Strict: alphabet, padding only at the end, canonical tail bits. Appends to @out. */
bool base64_decode(struct slice text, struct buf *out, struct err *err);

#endif
