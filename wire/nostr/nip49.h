#ifndef WIRE_NOSTR_NIP49_H
#define WIRE_NOSTR_NIP49_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/nostr/crypto.h"

/* NIP-49: a secret key under a password, as ncryptsec1…: scrypt, then XChaCha20-Poly1305.
 * sodium_init() has been called (crypto_create() does). */

#define NIP49_LOG_N_MAX 20     /* 1 GiB of memory: design §11 */
#define NIP49_LOG_N_DEFAULT 16 /* 64 MiB, a tenth of a second: NIP-49's own table */
#define NIP49_SALT_BYTES 16
#define NIP49_NONCE_BYTES 24
#define NIP49_PASSWORD_MAX 1024 /* bytes; our choice */

/* NIP-49, KEY_SECURITY_BYTE. */
enum nip49_security {
	NIP49_HANDLED_INSECURELY =
		0,                  /* "has been known to have been handled insecurely" */
	NIP49_HANDLED_SECURELY = 1, /* "has NOT been known" so */
	NIP49_UNKNOWN = 2,          /* "the client does not track this data" */
};

/* Is it "ncryptsec1…"? */
bool nip49_is(struct slice text);
/**
 * nip49_check_password - is this password the same in every Unicode form?
 *
 * NIP-49 wants passwords in NFKC. We do not normalize: taken is what NFKC leaves as it
 * is, by a table of the common scripts (ASCII, Latin, Greek, Cyrillic, kana, CJK, Hangul,
 * all composed); anything else, combining marks and ligatures among it, is refused with
 * words (ERR_MALFORMED), so that no key is locked behind a password that another program
 * reads otherwise.
 */
bool nip49_check_password(struct slice password, struct err *err);
/* Appends the text. @salt and @nonce are fresh random bytes. Blocks for the time that
 * scrypt takes. */
bool nip49_encrypt(const uint8_t secret[KEY_BYTES], struct slice password, unsigned log_n,
		   enum nip49_security security, const uint8_t salt[NIP49_SALT_BYTES],
		   const uint8_t nonce[NIP49_NONCE_BYTES], struct buf *out,
		   struct err *err);
/* ERR_MALFORMED: no ncryptsec, damaged, a version we do not know; ERR_TOO_LARGE: log_n
 * over NIP49_LOG_N_MAX; ERR_REFUSED: the password does not open it. */
bool nip49_decrypt(struct slice text, struct slice password, uint8_t secret[KEY_BYTES],
		   struct err *err);

#endif
