#include "wire/host/keyfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sodium.h>

#include "wire/base/mem.h"
#include "wire/host/loop.h"
#include "wire/host/paths.h"
#include "wire/host/secret.h"

#define PATH_BYTES_MAX 4096
#define BESIDE_BYTES_MAX 4096 /* an attestation: NIPOA_CONDITIONS_MAX and keys fit */
#define PASSPHRASE_BYTES_MAX 1024
#define SALT_BYTES crypto_pwhash_scryptsalsa208sha256_SALTBYTES
#define BOX_NONCE_BYTES crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define BOX_BYTES (KEY_BYTES + crypto_aead_xchacha20poly1305_ietf_ABYTES)
#define SEALED_BYTES (SALT_BYTES + BOX_NONCE_BYTES + BOX_BYTES)
#define FILE_BYTES_MAX 512 /* either form, with room for what an editor appends */

static const struct slice sealed_mark = SLICE_INIT("perch-key-1 ");

bool keyfile_name_valid(struct slice name)
{
	if (name.len == 0 || name.len > KEY_NAME_MAX || name.ptr[0] == '.')
		return false;
	for (size_t i = 0; i < name.len; i++) {
		char c = name.ptr[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') &&
		    !(c >= '0' && c <= '9') && c != '.' && c != '_' && c != '-')
			return false;
	}
	return !slice_ends(name, SLICE(".auth")) && !slice_ends(name, SLICE(".relay"));
}

/* data/keys/@head@name@tail; @out must be finished, also after a failure. */
static bool key_path(const char *head, struct slice name, const char *tail,
		     struct buf *out, struct err *err)
{
	char relative[sizeof("keys/.") + KEY_NAME_MAX + 32];

	buf_init(out, PATH_BYTES_MAX);
	if (!keyfile_name_valid(name))
		return err_set(err, ERR_MALFORMED,
			       "a key name is 1 to 64 of letters, digits, '.', '_', '-', "
			       "with no '.' first and no .auth or .relay last");
	(void)snprintf(relative, sizeof(relative), "keys/%s%.*s%s", head, SLICE_ARG(name),
		       tail);
	return paths_data(slice_of(relative), out, err);
}

static bool make_key_folder(struct err *err)
{
	struct buf path;
	bool ok;

	buf_init(&path, PATH_BYTES_MAX);
	ok = paths_data(SLICE("keys"), &path, err) && paths_make(buf_text(&path), err);
	buf_finish(&path);
	return ok;
}

/* Fills @out from a file that nobody else may read. */
static bool read_private(const char *path, struct buf *out, struct err *err)
{
	struct stat info;

	if (stat(path, &info) == 0 && (info.st_mode & 077) != 0)
		return err_set(
			err, ERR_REFUSED,
			"%s can be read by others: run chmod 600 on it, and make a "
			"new key if somebody may have",
			path);
	if (paths_read(path, out, err))
		return true;
	if (err && err->code == ERR_NOT_FOUND)
		(void)err_set(err, ERR_NOT_FOUND,
			      "there is no key %s: see `perch key list`", path);
	return false;
}

/* The passphrase of PERCH_PASSPHRASE_FILE; empty when that is unset. */
static bool read_passphrase(struct buf *out, struct err *err)
{
	const char *path = getenv("PERCH_PASSPHRASE_FILE");
	struct err why;

	buf_init(out, PASSPHRASE_BYTES_MAX);
	if (path == NULL || path[0] == '\0' || secret_file(path, out, &why))
		return true;
	/* Not "there is no key": callers would make one. */
	return err_set(err, why.code == ERR_NOT_FOUND ? ERR_REFUSED : why.code,
		       "PERCH_PASSPHRASE_FILE: %.160s", why.text);
}

static bool stretch(struct slice passphrase, const uint8_t salt[SALT_BYTES],
		    uint8_t key[crypto_aead_xchacha20poly1305_ietf_KEYBYTES],
		    struct err *err)
{
	if (crypto_pwhash_scryptsalsa208sha256(
		    key, crypto_aead_xchacha20poly1305_ietf_KEYBYTES, passphrase.ptr,
		    passphrase.len, salt,
		    crypto_pwhash_scryptsalsa208sha256_OPSLIMIT_INTERACTIVE,
		    crypto_pwhash_scryptsalsa208sha256_MEMLIMIT_INTERACTIVE) != 0)
		return err_set(err, ERR_SYSTEM, "no memory to stretch the passphrase");
	return true;
}

/* Appends the sealed form. */
static bool seal(struct slice passphrase, const uint8_t secret[KEY_BYTES],
		 struct buf *out, struct err *err)
{
	uint8_t key[crypto_aead_xchacha20poly1305_ietf_KEYBYTES];
	uint8_t bytes[SEALED_BYTES];
	uint8_t *nonce = bytes + SALT_BYTES;
	char *text;

	loop_random(bytes, SALT_BYTES + BOX_NONCE_BYTES);
	if (!stretch(passphrase, bytes, key, err))
		return false;
	(void)crypto_aead_xchacha20poly1305_ietf_encrypt(nonce + BOX_NONCE_BYTES, NULL,
							 secret, KEY_BYTES, NULL, 0, NULL,
							 nonce, key);
	sodium_memzero(key, sizeof(key));
	buf_append(out, sealed_mark);
	text = buf_extend(out, base64_len(sizeof(bytes)));
	if (text != NULL)
		base64_encode(bytes, sizeof(bytes), text);
	return true;
}

static bool unseal(struct slice base64, struct slice passphrase, const char *path,
		   uint8_t secret[KEY_BYTES], struct err *err)
{
	uint8_t key[crypto_aead_xchacha20poly1305_ietf_KEYBYTES];
	struct buf bytes;
	const uint8_t *salt;
	const uint8_t *nonce;
	bool ok = false;

	buf_init(&bytes, FILE_BYTES_MAX);
	if (!base64_decode(base64, &bytes, NULL) || bytes.len != SEALED_BYTES) {
		(void)err_set(err, ERR_MALFORMED, "%s is no sealed key", path);
		goto out;
	}
	salt = (const uint8_t *)bytes.ptr;
	nonce = salt + SALT_BYTES;
	if (!stretch(passphrase, salt, key, err))
		goto out;
	ok = crypto_aead_xchacha20poly1305_ietf_decrypt(
		     secret, NULL, NULL, nonce + BOX_NONCE_BYTES, BOX_BYTES, NULL, 0,
		     nonce, key) == 0;
	sodium_memzero(key, sizeof(key));
	if (!ok)
		(void)err_set(err, ERR_REFUSED, "the passphrase does not open %s", path);
out:
	buf_finish(&bytes);
	return ok;
}

/* @given: a passphrase, or empty for that of the environment. */
static bool open_sealed(struct slice base64, struct slice given, const char *path,
			uint8_t secret[KEY_BYTES], struct err *err)
{
	struct buf passphrase = {0};
	bool ok = true;

	if (given.len == 0) {
		ok = read_passphrase(&passphrase, err);
		given = buf_slice(&passphrase);
	}
	if (ok && given.len == 0)
		ok = err_set(err, ERR_REFUSED,
			     "%s is sealed: name a file with its passphrase (mode 0600) "
			     "in PERCH_PASSPHRASE_FILE, or run perch key unseal",
			     path);
	ok = ok && unseal(base64, given, path, secret, err);
	buf_wipe(&passphrase);
	return ok;
}

/* The text of a key file, trimmed inside @file, which is to be wiped. */
static bool read_key_file(struct slice name, struct buf *path, struct buf *file,
			  struct slice *text, struct err *err)
{
	buf_init(file, FILE_BYTES_MAX);
	if (!key_path("", name, "", path, err) ||
	    !read_private(buf_text(path), file, err))
		return false;
	*text = slice_trim(buf_slice(file));
	return true;
}

static bool load_secret(struct slice name, struct slice passphrase,
			uint8_t secret[KEY_BYTES], struct err *err)
{
	struct buf path;
	struct buf file;
	struct slice text;
	bool ok = read_key_file(name, &path, &file, &text, err);

	if (ok && slice_starts(text, sealed_mark))
		ok = open_sealed(slice_sub(text, sealed_mark.len, text.len), passphrase,
				 buf_text(&path), secret, err);
	else if (ok && !hex_decode(text, secret, KEY_BYTES))
		ok = err_set(err, ERR_MALFORMED,
			     "%s holds no key: it wants 64 hex digits", buf_text(&path));
	buf_wipe(&file);
	buf_finish(&path);
	return ok;
}

bool keyfile_is_sealed(struct slice name, bool *out, struct err *err)
{
	struct buf path;
	struct buf file;
	struct slice text;
	bool ok = read_key_file(name, &path, &file, &text, err);

	if (ok)
		*out = slice_starts(text, sealed_mark);
	buf_wipe(&file);
	buf_finish(&path);
	return ok;
}

bool keyfile_open(struct crypto *crypto, struct slice name, struct slice passphrase,
		  struct keypair **out, struct err *err)
{
	uint8_t secret[KEY_BYTES];
	bool ok = load_secret(name, passphrase, secret, err) &&
		  keypair_create(crypto, secret, out, err);

	sodium_memzero(secret, sizeof(secret));
	return ok;
}

bool keyfile_load(struct crypto *crypto, struct slice name, struct keypair **out,
		  struct err *err)
{
	return keyfile_open(crypto, name, SLICE_EMPTY, out, err);
}

/* Appends what the file is to hold. */
static bool write_form(const uint8_t secret[KEY_BYTES], struct slice passphrase,
		       struct buf *out, struct err *err)
{
	if (passphrase.len > 0 && !seal(passphrase, secret, out, err))
		return false;
	if (passphrase.len == 0)
		(void)buf_append_hex(out, secret, KEY_BYTES);
	return buf_append_byte(out, '\n');
}

/* The same, sealed if the environment names a passphrase. */
static bool write_text(const uint8_t secret[KEY_BYTES], struct buf *out, struct err *err)
{
	struct buf passphrase;
	const bool ok = read_passphrase(&passphrase, err) &&
			write_form(secret, buf_slice(&passphrase), out, err);

	buf_wipe(&passphrase);
	return ok;
}

bool keyfile_rewrite(struct slice name, const struct keypair *keypair,
		     struct slice passphrase, struct err *err)
{
	uint8_t secret[KEY_BYTES];
	struct buf path, text;
	bool ok;

	buf_init(&text, FILE_BYTES_MAX);
	keypair_secret(keypair, secret);
	ok = key_path("", name, "", &path, err) &&
	     write_form(secret, passphrase, &text, err) &&
	     paths_write(buf_text(&path), buf_slice(&text), err);
	sodium_memzero(secret, sizeof(secret));
	buf_wipe(&text);
	buf_finish(&path);
	return ok;
}

/* Puts a new file in place unless one of that name is there: @exists_out. */
static bool write_new(struct slice name, struct slice text, bool *exists_out,
		      struct err *err)
{
	char tail[32];
	struct buf path;
	struct buf temporary = {0};
	bool ok = false;

	*exists_out = false;
	(void)snprintf(tail, sizeof(tail), ".%ld", (long)getpid());
	if (!key_path("", name, "", &path, err) ||
	    !key_path(".", name, tail, &temporary, err))
		goto out;
	if (!paths_write(buf_text(&temporary), text, err))
		goto out;
	ok = link(buf_text(&temporary), buf_text(&path)) == 0;
	if (!ok) {
		*exists_out = errno == EEXIST;
		(void)err_errno(err, "cannot make %s", buf_text(&path));
	}
	(void)unlink(buf_text(&temporary));
out:
	buf_finish(&temporary);
	buf_finish(&path);
	return ok;
}

/* A key that is there stays: whoever used it could not be told from a stranger
 * afterwards. */
static bool check_same(struct slice name, const uint8_t secret[KEY_BYTES],
		       struct err *err)
{
	uint8_t present[KEY_BYTES];
	bool ok = load_secret(name, SLICE_EMPTY, present, err);

	if (ok && sodium_memcmp(present, secret, KEY_BYTES) != 0)
		ok = err_set(err, ERR_REFUSED,
			     "there is another key named %.*s: remove it first",
			     SLICE_ARG(name));
	sodium_memzero(present, sizeof(present));
	return ok;
}

bool keyfile_save(struct slice name, const struct keypair *keypair, struct err *err)
{
	uint8_t secret[KEY_BYTES];
	struct buf text;
	bool exists = false;
	bool ok;

	buf_init(&text, FILE_BYTES_MAX);
	keypair_secret(keypair, secret);
	ok = make_key_folder(err) && write_text(secret, &text, err) &&
	     write_new(name, buf_slice(&text), &exists, err);
	if (exists)
		ok = check_same(name, secret, err);
	sodium_memzero(secret, sizeof(secret));
	buf_wipe(&text);
	return ok;
}

static struct keypair *make_keypair(struct crypto *crypto, struct err *err)
{
	struct keypair *keypair = NULL;
	uint8_t secret[KEY_BYTES];

	loop_random(secret, sizeof(secret));
	if (!keypair_create(crypto, secret, &keypair, err))
		keypair = NULL;
	sodium_memzero(secret, sizeof(secret));
	return keypair;
}

bool keyfile_ensure(struct crypto *crypto, struct slice name, struct keypair **out,
		    bool *made_out, struct err *err)
{
	struct err first;
	struct keypair *made;
	bool saved;

	if (made_out != NULL)
		*made_out = false;
	if (keyfile_load(crypto, name, out, &first))
		return true;
	if (first.code != ERR_NOT_FOUND) {
		if (err != NULL)
			*err = first;
		return false;
	}
	made = make_keypair(crypto, err);
	if (made == NULL)
		return false;
	saved = keyfile_save(name, made, err);
	if (saved) {
		*out = made;
		if (made_out != NULL)
			*made_out = true;
		return true;
	}
	keypair_destroy(made);
	/* Another process may have made one at the same moment: then that is the key. */
	return keyfile_load(crypto, name, out, NULL);
}

static bool remove_beside(struct slice name, const char *tail, struct err *err)
{
	struct buf path;
	bool ok = key_path("", name, tail, &path, err);

	if (ok && unlink(buf_text(&path)) < 0 && errno != ENOENT)
		ok = err_errno(err, "cannot remove %s", buf_text(&path));
	buf_finish(&path);
	return ok;
}

bool keyfile_remove(struct slice name, struct err *err)
{
	struct buf path;
	bool ok = key_path("", name, "", &path, err);

	if (ok && unlink(buf_text(&path)) < 0) {
		if (errno == ENOENT)
			ok = err_set(err, ERR_NOT_FOUND, "there is no key named %.*s",
				     SLICE_ARG(name));
		else
			ok = err_errno(err, "cannot remove %s", buf_text(&path));
	}
	buf_finish(&path);
	return ok && remove_beside(name, ".auth", err) &&
	       remove_beside(name, ".relay", err);
}

/* What stands beside a key, without its line end. */
static bool load_beside(struct slice name, const char *tail, struct buf *out,
			struct err *err)
{
	struct buf path;
	bool ok = key_path("", name, tail, &path, err) &&
		  paths_read(buf_text(&path), out, err);

	if (ok)
		buf_truncate(out, slice_trim(buf_slice(out)).len);
	buf_finish(&path);
	return ok;
}

static bool save_beside(struct slice name, const char *tail, struct slice bytes,
			struct err *err)
{
	struct buf path;
	struct buf text;
	bool ok;

	buf_init(&text, BESIDE_BYTES_MAX);
	buf_append(&text, bytes);
	ok = key_path("", name, tail, &path, err) && make_key_folder(err);
	if (ok && !buf_append_byte(&text, '\n'))
		ok = err_set(err, ERR_TOO_LARGE, "%s of a key is at most %d bytes", tail,
			     BESIDE_BYTES_MAX);
	ok = ok && paths_write(buf_text(&path), buf_slice(&text), err);
	buf_finish(&text);
	buf_finish(&path);
	return ok;
}

bool keyfile_load_auth(struct slice name, struct buf *out, struct err *err)
{
	return load_beside(name, ".auth", out, err);
}

bool keyfile_save_auth(struct slice name, struct slice tag_json, struct err *err)
{
	return save_beside(name, ".auth", tag_json, err);
}

bool keyfile_load_relay(struct slice name, struct buf *out, struct err *err)
{
	return load_beside(name, ".relay", out, err);
}

bool keyfile_save_relay(struct slice name, struct slice url, struct err *err)
{
	return save_beside(name, ".relay", url, err);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* All key names in @dir, to be freed one by one and as a whole. */
static char **read_names(DIR *dir, size_t *count_out)
{
	const struct dirent *entry;
	char **names = NULL;
	size_t count = 0;

	while ((entry = readdir(dir)) != NULL) {
		if (!keyfile_name_valid(slice_of(entry->d_name)))
			continue;
		names = mem_grow(names, count + 1, sizeof(*names));
		names[count++] = mem_dup(slice_of(entry->d_name));
	}
	*count_out = count;
	return names;
}

bool keyfile_list(bool (*each)(void *ctx, struct slice name), void *ctx, struct err *err)
{
	struct buf path;
	char **names;
	size_t count = 0;
	bool more = true;
	DIR *dir;

	buf_init(&path, PATH_BYTES_MAX);
	if (!paths_data(SLICE("keys"), &path, err)) {
		buf_finish(&path);
		return false;
	}
	dir = opendir(buf_text(&path));
	if (dir == NULL) {
		bool none = errno == ENOENT;

		if (!none)
			(void)err_errno(err, "cannot list %s", buf_text(&path));
		buf_finish(&path);
		return none;
	}
	names = read_names(dir, &count);
	(void)closedir(dir);
	buf_finish(&path);
	if (count > 0)
		qsort(names, count, sizeof(*names), compare_names);
	for (size_t i = 0; i < count; i++) {
		more = more && each(ctx, slice_of(names[i]));
		free(names[i]);
	}
	free(names);
	return true;
}

void keyfile_guard_process(void)
{
	const struct rlimit none = {0, 0};

	(void)setrlimit(RLIMIT_CORE, &none);
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}
