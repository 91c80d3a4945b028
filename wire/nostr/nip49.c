#include "wire/nostr/nip49.h"

#include <assert.h>
#include <string.h>

#include <sodium.h>

#include "wire/nostr/bech32.h"

/* NIP-49, Encryption: "8 bits VERSION_NUMBER = 0x02, 8 bits LOG_N, 16 bytes SALT, 24
 * bytes NONCE, ASSOCIATED_DATA = 1 byte, CIPHERTEXT" = 91 bytes. */
#define VERSION 2
#define AT_LOG_N 1
#define AT_SALT 2
#define AT_NONCE (AT_SALT + NIP49_SALT_BYTES)
#define AT_SECURITY (AT_NONCE + NIP49_NONCE_BYTES)
#define AT_BOX (AT_SECURITY + 1)
#define BOX_BYTES (KEY_BYTES + crypto_aead_xchacha20poly1305_ietf_ABYTES)
#define WHOLE_BYTES (AT_BOX + BOX_BYTES)
static_assert(WHOLE_BYTES == 91, "NIP-49 says 91 bytes");

#define SCRYPT_R 8 /* NIP-49: "r = 8, p = 1" */
#define SCRYPT_P 1
#define TEXT_CHARS_MAX 256 /* 91 bytes are 162 characters */

static const struct slice prefix = SLICE_INIT("ncryptsec");

/* Code points with NFKC_Quick_Check=Yes and combining class 0 that compose with nothing
 * in this table; from, to. A program test holds it against another implementation. */
static const struct {
	uint32_t from, to;
} stable[] = {
	{0x20, 0x7e},     {0xa1, 0xa7},     {0xa9, 0xa9},     {0xab, 0xac},
	{0xae, 0xae},     {0xb0, 0xb1},     {0xb6, 0xb7},     {0xbb, 0xbb},
	{0xbf, 0x131},    {0x134, 0x13e},   {0x141, 0x148},   {0x14a, 0x17e},
	{0x386, 0x386},   {0x388, 0x38a},   {0x38c, 0x38c},   {0x38e, 0x3a1},
	{0x3a3, 0x3ce},   {0x400, 0x482},   {0x48a, 0x52f},   {0x3041, 0x3096},
	{0x30a1, 0x30fa}, {0x4e00, 0x9fff}, {0xac00, 0xd7a3}, {0x1f300, 0x1f64f},
};

static bool is_stable(uint32_t code)
{
	for (size_t i = 0; i < sizeof(stable) / sizeof(stable[0]); i++)
		if (code >= stable[i].from && code <= stable[i].to)
			return true;
	return false;
}

/* The code point at the front of well-formed UTF-8. */
static uint32_t front_code(struct slice text, int len)
{
	uint32_t code = (uint8_t)text.ptr[0];

	if (len > 1)
		code &= 0xffU >> (len + 1);
	for (int i = 1; i < len; i++)
		code = code << 6 | ((uint8_t)text.ptr[i] & 0x3f);
	return code;
}

bool nip49_check_password(struct slice password, struct err *err)
{
	if (password.len == 0)
		return err_set(err, ERR_MALFORMED, "the passphrase is empty");
	if (password.len > NIP49_PASSWORD_MAX)
		return err_set(err, ERR_TOO_LARGE, "the passphrase is over %d bytes",
			       NIP49_PASSWORD_MAX);
	while (password.len) {
		const int len = utf8_front(password);

		if (len < 0)
			return err_set(err, ERR_MALFORMED, "the passphrase is no UTF-8");
		if (!is_stable(front_code(password, len)))
			return err_set(
				err, ERR_MALFORMED,
				"the passphrase has a character that programs write in "
				"more than one way (U+%04X): use another",
				(unsigned)front_code(password, len));
		password = slice_sub(password, (size_t)len, password.len);
	}
	return true;
}

bool nip49_is(struct slice text)
{
	return bech32_is(text, prefix);
}

static bool stretch(struct slice password, const uint8_t *salt, unsigned log_n,
		    uint8_t key[crypto_aead_xchacha20poly1305_ietf_KEYBYTES],
		    struct err *err)
{
	if (crypto_pwhash_scryptsalsa208sha256_ll(
		    (const uint8_t *)password.ptr, password.len, salt, NIP49_SALT_BYTES,
		    UINT64_C(1) << log_n, SCRYPT_R, SCRYPT_P, key,
		    crypto_aead_xchacha20poly1305_ietf_KEYBYTES) != 0)
		return err_set(err, ERR_SYSTEM,
			       "no memory to stretch the passphrase: it takes %u MiB",
			       log_n > 10 ? 1U << (log_n - 10) : 1U);
	return true;
}

bool nip49_encrypt(const uint8_t secret[KEY_BYTES], struct slice password, unsigned log_n,
		   enum nip49_security security, const uint8_t salt[NIP49_SALT_BYTES],
		   const uint8_t nonce[NIP49_NONCE_BYTES], struct buf *out,
		   struct err *err)
{
	uint8_t key[crypto_aead_xchacha20poly1305_ietf_KEYBYTES];
	uint8_t bytes[WHOLE_BYTES] = {VERSION, (uint8_t)log_n};

	assert(log_n > 0 && log_n <= NIP49_LOG_N_MAX);
	memcpy(bytes + AT_SALT, salt, NIP49_SALT_BYTES);
	memcpy(bytes + AT_NONCE, nonce, NIP49_NONCE_BYTES);
	bytes[AT_SECURITY] = (uint8_t)security;
	if (!nip49_check_password(password, err) ||
	    !stretch(password, salt, log_n, key, err))
		return false;
	(void)crypto_aead_xchacha20poly1305_ietf_encrypt(bytes + AT_BOX, NULL, secret,
							 KEY_BYTES, bytes + AT_SECURITY,
							 1, NULL, nonce, key);
	sodium_memzero(key, sizeof(key));
	return bech32_encode(prefix, (struct slice){(const char *)bytes, sizeof(bytes)},
			     out) ||
	       err_set(err, ERR_TOO_LARGE, "no room for an ncryptsec");
}

static bool check_head(const struct buf *bytes, struct err *err)
{
	const uint8_t *at = (const uint8_t *)bytes->ptr;

	if (bytes->len == 0 || at[0] != VERSION)
		return err_set(
			err, ERR_MALFORMED,
			"this ncryptsec is not of version %d, the only one we know",
			VERSION);
	if (bytes->len != WHOLE_BYTES)
		return err_set(err, ERR_MALFORMED,
			       "this ncryptsec has %zu bytes, want %d", bytes->len,
			       WHOLE_BYTES);
	if (at[AT_LOG_N] > NIP49_LOG_N_MAX)
		return err_set(err, ERR_TOO_LARGE,
			       "this ncryptsec wants scrypt with 2^%u rounds: more than "
			       "2^%d we do not take",
			       at[AT_LOG_N], NIP49_LOG_N_MAX);
	if (at[AT_LOG_N] == 0)
		return err_set(err, ERR_MALFORMED, "this ncryptsec has no scrypt rounds");
	return true;
}

static bool open_box(const uint8_t *bytes, struct slice password,
		     uint8_t secret[KEY_BYTES], struct err *err)
{
	uint8_t key[crypto_aead_xchacha20poly1305_ietf_KEYBYTES];
	bool ok;

	if (!stretch(password, bytes + AT_SALT, bytes[AT_LOG_N], key, err))
		return false;
	ok = crypto_aead_xchacha20poly1305_ietf_decrypt(
		     secret, NULL, NULL, bytes + AT_BOX, BOX_BYTES, bytes + AT_SECURITY,
		     1, bytes + AT_NONCE, key) == 0;
	sodium_memzero(key, sizeof(key));
	return ok ||
	       err_set(err, ERR_REFUSED, "the passphrase does not open this ncryptsec");
}

bool nip49_decrypt(struct slice text, struct slice password, uint8_t secret[KEY_BYTES],
		   struct err *err)
{
	struct buf bytes;
	bool ok = false;

	buf_init(&bytes, TEXT_CHARS_MAX);
	if (!nip49_is(text) || text.len > TEXT_CHARS_MAX)
		(void)err_set(err, ERR_MALFORMED, "this is no ncryptsec1…");
	else
		ok = bech32_decode(text, prefix, &bytes, err) &&
		     check_head(&bytes, err) && nip49_check_password(password, err) &&
		     open_box((const uint8_t *)bytes.ptr, password, secret, err);
	buf_finish(&bytes);
	return ok;
}
