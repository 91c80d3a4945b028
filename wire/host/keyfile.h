#ifndef WIRE_HOST_KEYFILE_H
#define WIRE_HOST_KEYFILE_H

#include <stdbool.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/nostr/crypto.h"

/* Keys live in data/keys, one file each, 0600: `owner`, and one per agent name, each with
 * its attestation beside it as NAME.auth, and the relay of its invitation as NAME.relay.
 * Plain: 64 hex digits and LF. Sealed under a passphrase: "perch-key-1 " + base64(salt
 * 32, nonce 24, XChaCha20-Poly1305 of the 32 bytes), key by scrypt (libsodium,
 * interactive limits); the passphrase is the first line of the file in
 * PERCH_PASSPHRASE_FILE (0600), unless it is given. */

#define KEY_NAME_MAX 64

/* 1..KEY_NAME_MAX letters, digits, '.', '_', '-'; no dot first and no ".auth" or
 * ".relay" last. */
bool keyfile_name_valid(struct slice name);
/* ERR_NOT_FOUND when there is none; ERR_REFUSED, with what to do, when others can read
 * it. */
bool keyfile_load(struct crypto *crypto, struct slice name, struct keypair **out,
		  struct err *err);
/* ERR_NOT_FOUND when there is none. */
bool keyfile_is_sealed(struct slice name, bool *out, struct err *err);
/* keyfile_load() with this passphrase, should it be sealed. ERR_REFUSED: it does not open
 * it. */
bool keyfile_open(struct crypto *crypto, struct slice name, struct slice passphrase,
		  struct keypair **out, struct err *err);
/* Writes a key that is there anew: sealed under @passphrase, or plain when that is empty.
 */
bool keyfile_rewrite(struct slice name, const struct keypair *keypair,
		     struct slice passphrase, struct err *err);
/* ERR_REFUSED when another key of that name is there: only keyfile_remove() takes keys
 * away. */
bool keyfile_save(struct slice name, const struct keypair *keypair, struct err *err);
/* Loads, or makes a fresh one and saves it; @made_out (may be NULL) says which. */
bool keyfile_ensure(struct crypto *crypto, struct slice name, struct keypair **out,
		    bool *made_out, struct err *err);
/* Attestation and relay go with the key. */
bool keyfile_remove(struct slice name, struct err *err);
/* The attestation beside a key: the tag as JSON array text. */
bool keyfile_load_auth(struct slice name, struct buf *out, struct err *err);
bool keyfile_save_auth(struct slice name, struct slice tag_json, struct err *err);
/* The relay beside a key that came by invitation. */
bool keyfile_load_relay(struct slice name, struct buf *out, struct err *err);
bool keyfile_save_relay(struct slice name, struct slice url, struct err *err);
/* Calls @each with every key name there is, sorted; stops when it returns false. */
bool keyfile_list(bool (*each)(void *ctx, struct slice name), void *ctx, struct err *err);
/* PR_SET_DUMPABLE 0, core limit 0: for processes that hold keys. */
void keyfile_guard_process(void);

#endif
