#include "wire/nostr/nip44.h"

#include <assert.h>
#include <string.h>

#include <sodium.h>

#include "wire/nostr/crypto_internal.h"

#define VERSION 2
#define PREFIX_BYTES 2
#define MAC_BYTES 32
/* What surrounds the ciphertext: version, nonce, MAC. */
#define AROUND_BYTES (1 + NONCE_BYTES + MAC_BYTES)
#define PADDED_MIN 32
#define PAYLOAD_MIN (AROUND_BYTES + PREFIX_BYTES + PADDED_MIN) /* 99 bytes */
#define PAYLOAD_MAX (AROUND_BYTES + PREFIX_BYTES + 65536)
#define TEXT_MIN ((PAYLOAD_MIN + 2) / 3 * 4) /* 132 characters */
#define TEXT_MAX ((PAYLOAD_MAX + 2) / 3 * 4) /* 87,472 */

/* NIP-44, Encryption, step 3: "chacha_key ... chacha_nonce ... hmac_key" in this order.
 */
struct message_keys {
	uint8_t chacha_key[32];
	uint8_t chacha_nonce[12];
	uint8_t hmac_key[32];
};
static_assert(sizeof(struct message_keys) == 76, "cut out of one expansion");

size_t nip44_padded_len(size_t len)
{
	size_t next = PADDED_MIN, chunk;

	while (next < len)
		next *= 2;
	chunk = next <= 256 ? 32 : next / 8;
	return (len + chunk - 1) / chunk * chunk;
}

size_t nip44_payload_len(size_t len)
{
	return base64_len(AROUND_BYTES + PREFIX_BYTES + nip44_padded_len(len));
}

bool nip44_conversation_key(struct crypto *crypto, const struct keypair *keypair,
			    const uint8_t peer[KEY_BYTES], uint8_t out[32],
			    struct err *err)
{
	uint8_t shared[32];

	if (!ecdh_x(crypto, keypair, peer, shared, err))
		return false;
	hkdf_extract(crypto, SLICE("nip44-v2"), (struct slice){(const char *)shared, 32},
		     out);
	sodium_memzero(shared, sizeof(shared));
	return true;
}

static void derive(struct crypto *crypto, const uint8_t conversation_key[32],
		   const uint8_t nonce[NONCE_BYTES], struct message_keys *out)
{
	hkdf_expand(crypto, conversation_key,
		    (struct slice){(const char *)nonce, NONCE_BYTES}, (uint8_t *)out,
		    sizeof(*out));
}

/* NIP-44, "hmac_aad": the MAC is over the nonce and the ciphertext, which lie side by
 * side. */
static void mac_of(struct crypto *crypto, const struct message_keys *keys,
		   const uint8_t *nonce, size_t ciphertext_len, uint8_t out[MAC_BYTES])
{
	const struct slice authentic = {(const char *)nonce,
					NONCE_BYTES + ciphertext_len};

	hmac_sha256(crypto, keys->hmac_key, sizeof(keys->hmac_key), &authentic, 1, out);
}

bool nip44_encrypt(struct crypto *crypto, const uint8_t conversation_key[32],
		   const uint8_t nonce[NONCE_BYTES], struct slice plaintext,
		   struct buf *out, struct err *err)
{
	struct buf *const scratch = crypto_scratch(crypto);
	struct message_keys keys;
	size_t ciphertext_len, payload_len;
	uint8_t *payload, *ciphertext;
	char *text;

	if (!plaintext.len || plaintext.len > NIP44_PLAINTEXT_SEND_MAX)
		return err_set(err, ERR_TOO_LARGE,
			       "plaintext has %zu bytes, want 1 to %d", plaintext.len,
			       NIP44_PLAINTEXT_SEND_MAX);
	ciphertext_len = PREFIX_BYTES + nip44_padded_len(plaintext.len);
	payload_len = AROUND_BYTES + ciphertext_len;
	text = buf_extend(out, base64_len(payload_len));
	if (!text)
		return err_set(err, ERR_TOO_LARGE, "payload is larger than its buffer");
	buf_clear(scratch);
	payload = (uint8_t *)buf_extend(scratch, payload_len);

	payload[0] = VERSION;
	memcpy(payload + 1, nonce, NONCE_BYTES);
	ciphertext = payload + 1 + NONCE_BYTES;
	ciphertext[0] = (uint8_t)(plaintext.len >> 8);
	ciphertext[1] = (uint8_t)plaintext.len;
	memcpy(ciphertext + PREFIX_BYTES, plaintext.ptr, plaintext.len);
	memset(ciphertext + PREFIX_BYTES + plaintext.len, 0,
	       ciphertext_len - PREFIX_BYTES - plaintext.len);

	derive(crypto, conversation_key, nonce, &keys);
	chacha20(crypto, keys.chacha_key, keys.chacha_nonce, ciphertext, ciphertext_len,
		 ciphertext);
	mac_of(crypto, &keys, payload + 1, ciphertext_len, ciphertext + ciphertext_len);
	sodium_memzero(&keys, sizeof(keys));
	base64_encode(payload, payload_len, text);
	return true;
}

/* Checks the padding of a decrypted text; its length, or 0 when it is not NIP-44's. */
static size_t unpadded_len(const uint8_t *padded, size_t padded_len)
{
	const size_t len = (size_t)padded[0] << 8 | padded[1];

	if (!len || PREFIX_BYTES + nip44_padded_len(len) != padded_len)
		return 0;
	return len;
}

/* @payload holds the decoded bytes; what is decrypted replaces them. */
static bool open_payload(struct crypto *crypto, const uint8_t conversation_key[32],
			 struct buf *payload, struct buf *out, struct err *err)
{
	uint8_t *const nonce = (uint8_t *)payload->ptr + 1;
	uint8_t *const ciphertext = nonce + NONCE_BYTES;
	const size_t ciphertext_len = payload->len - AROUND_BYTES;
	struct message_keys keys;
	uint8_t mac[MAC_BYTES];
	bool authentic;
	size_t len;

	derive(crypto, conversation_key, nonce, &keys);
	mac_of(crypto, &keys, nonce, ciphertext_len, mac);
	authentic = sodium_memcmp(mac, ciphertext + ciphertext_len, sizeof(mac)) == 0;
	if (authentic)
		chacha20(crypto, keys.chacha_key, keys.chacha_nonce, ciphertext,
			 ciphertext_len, ciphertext);
	sodium_memzero(&keys, sizeof(keys));
	sodium_memzero(mac, sizeof(mac));
	if (!authentic)
		return err_set(err, ERR_MALFORMED, "nip-44 payload has a wrong mac");
	len = unpadded_len(ciphertext, ciphertext_len);
	if (!len)
		return err_set(err, ERR_MALFORMED,
			       "nip-44 plaintext has a wrong padding");
	if (!buf_append(out,
			(struct slice){(const char *)ciphertext + PREFIX_BYTES, len}))
		return err_set(err, ERR_TOO_LARGE, "plaintext is larger than its buffer");
	return true;
}

bool nip44_decrypt(struct crypto *crypto, const uint8_t conversation_key[32],
		   struct slice payload, struct buf *out, struct err *err)
{
	struct buf *const scratch = crypto_scratch(crypto);
	bool ok;

	/* NIP-44, Decryption, step 1: "#" is kept for versions that are not base64. */
	if (payload.len && payload.ptr[0] == '#')
		return err_set(err, ERR_MALFORMED, "nip-44 version is not 2");
	if (payload.len < TEXT_MIN || payload.len > TEXT_MAX)
		return err_set(err, ERR_MALFORMED,
			       "nip-44 payload has %zu characters, want %d to %d",
			       payload.len, TEXT_MIN, TEXT_MAX);
	buf_clear(scratch);
	if (!base64_decode(payload, scratch, err))
		return false;
	if (scratch->len < PAYLOAD_MIN || scratch->len > PAYLOAD_MAX)
		return err_set(err, ERR_MALFORMED,
			       "nip-44 payload has %zu bytes, want %d to %d",
			       scratch->len, PAYLOAD_MIN, PAYLOAD_MAX);
	if (scratch->ptr[0] != VERSION)
		return err_set(err, ERR_MALFORMED, "nip-44 version is not 2");
	ok = open_payload(crypto, conversation_key, scratch, out, err);
	sodium_memzero(scratch->ptr, scratch->len);
	return ok;
}

bool nip44_looks_valid(struct slice payload)
{
	size_t pad = 0;

	if (payload.len < TEXT_MIN || payload.len > TEXT_MAX || payload.len % 4)
		return false;
	/* Version 2 and the first two bits of the nonce: 'A', then 'g' to 'v'. */
	if (payload.ptr[0] != 'A' || payload.ptr[1] < 'g' || payload.ptr[1] > 'v')
		return false;
	if (payload.ptr[payload.len - 1] == '=')
		pad = payload.ptr[payload.len - 2] == '=' ? 2 : 1;
	return base64_alphabet(slice_sub(payload, 0, payload.len - pad));
}
