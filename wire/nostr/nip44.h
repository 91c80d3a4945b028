#ifndef WIRE_NOSTR_NIP44_H
#define WIRE_NOSTR_NIP44_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/nostr/crypto.h"

/* NIP-44 version 2. Deployed peers refuse plaintexts over 65,408 bytes, so we never send
 * one; the 2-byte length prefix ends at 65,535, which decoding takes (design §4). The
 * 6-byte prefix of 2026 is not accepted: no frame may be that long. */
#define NIP44_PLAINTEXT_SEND_MAX 65408
#define NIP44_PLAINTEXT_MAX 65535

/* Bytes that a plaintext of @len (1..65,535) is padded to, without the 2-byte prefix. */
size_t nip44_padded_len(size_t len);
/* Characters of the base64 payload for a plaintext of @len bytes. */
size_t nip44_payload_len(size_t len);

bool nip44_conversation_key(struct crypto *crypto, const struct keypair *keypair,
			    const uint8_t peer[KEY_BYTES], uint8_t out[32],
			    struct err *err);
/**
 * nip44_encrypt - append the base64 payload of @plaintext to @out
 * @nonce: 32 fresh random bytes
 * ERR_TOO_LARGE for an empty plaintext or one over NIP44_PLAINTEXT_SEND_MAX, or when @out
 * is full. Written straight behind what @out holds: no copy besides it.
 */
bool nip44_encrypt(struct crypto *crypto, const uint8_t conversation_key[32],
		   const uint8_t nonce[NONCE_BYTES], struct slice plaintext,
		   struct buf *out, struct err *err);
/**
 * nip44_decrypt - append the plaintext of @payload to @out
 * The MAC is compared in constant time before anything is decrypted. ERR_MALFORMED says
 * which step failed; @out is as before then. @out should be wiped after use.
 */
bool nip44_decrypt(struct crypto *crypto, const uint8_t conversation_key[32],
		   struct slice payload, struct buf *out, struct err *err);
/* Cheap look of a relay that cannot decrypt: alphabet, length 132..87,472, version
 * byte 2. */
bool nip44_looks_valid(struct slice payload);

#endif
