/* Payloads from anywhere are refused or opened; what is sealed opens; and a peer who
 * holds the key may put anything under a right MAC. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <string.h>

#include "wire/nostr/nip19.h"
#include "wire/nostr/nip44.h"

static const uint8_t key[32] = {1}, nonce[NONCE_BYTES] = {2};

static struct crypto *shared_crypto(void)
{
	static struct crypto *crypto; /* made once: it keeps nothing of an input */

	if (!crypto)
		crypto = crypto_create(key, NULL);
	assert(crypto);
	return crypto;
}

/* @text as a payload, as base64 and as a bech32 entity. */
static void check_text(struct slice text, struct buf *one, struct buf *two)
{
	struct nip19 entity;

	if (nip44_decrypt(shared_crypto(), key, text, one, NULL))
		assert(nip44_looks_valid(text));
	buf_clear(one);
	if (base64_decode(text, one, NULL)) {
		/* Bytes have one text only. */
		base64_encode((const uint8_t *)one->ptr, one->len,
			      buf_extend(two, text.len));
		assert(slice_eq(buf_slice(two), text));
	}
	buf_clear(one);
	(void)nip19_decode(text, one, &entity, NULL);
	buf_clear(one);
	buf_clear(two);
}

static void check_round_trip(struct slice text, struct buf *one, struct buf *two)
{
	struct crypto *const crypto = shared_crypto();

	if (!nip44_encrypt(crypto, key, nonce, text, one, NULL))
		assert(!text.len || text.len > NIP44_PLAINTEXT_SEND_MAX);
	else
		assert(nip44_looks_valid(buf_slice(one)) &&
		       nip44_decrypt(crypto, key, buf_slice(one), two, NULL) &&
		       slice_eq(buf_slice(two), text));
	buf_clear(one);
	buf_clear(two);
}

/* @text as the padded plaintext, length prefix and all. */
static void check_padding(struct slice text, struct buf *one, struct buf *two)
{
	struct crypto *const crypto = shared_crypto();
	const struct slice from_nonce = {(const char *)nonce, sizeof(nonce)};
	struct slice authentic;
	uint8_t keys[76], *ciphertext;

	hkdf_expand(crypto, key, from_nonce, keys, sizeof(keys));
	(void)buf_append_byte(one, 2);
	(void)buf_append(one, from_nonce);
	ciphertext = (uint8_t *)buf_extend(one, text.len + 32);
	chacha20(crypto, keys, keys + 32, (const uint8_t *)text.ptr, text.len,
		 ciphertext);
	authentic = (struct slice){one->ptr + 1, sizeof(nonce) + text.len};
	hmac_sha256(crypto, keys + 44, 32, &authentic, 1, ciphertext + text.len);
	base64_encode((const uint8_t *)one->ptr, one->len,
		      buf_extend(two, base64_len(one->len)));
	buf_clear(one);
	if (nip44_decrypt(crypto, key, buf_slice(two), one, NULL))
		assert(one->len > 0 && nip44_padded_len(one->len) + 2 == text.len &&
		       !memcmp(one->ptr, text.ptr + 2, one->len));
	buf_clear(one);
	buf_clear(two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct slice text = {(const char *)data, size};
	struct buf one, two;

	if (size > NIP44_PLAINTEXT_MAX + 2)
		return 0;
	buf_init(&one, 256 * 1024);
	buf_init(&two, 256 * 1024);
	check_text(text, &one, &two);
	check_round_trip(text, &one, &two);
	check_padding(text, &one, &two);
	buf_finish(&one);
	buf_finish(&two);
	return 0;
}
