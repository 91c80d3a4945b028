#include "wire/host/tls.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "wire/base/mem.h"
#include "wire/base/slice.h"

struct tls {
	char *cert, *key;
	SSL_CTX *context; /* nobody's handshake: it holds what was read */
};

/* The last of OpenSSL's reasons, which is the one nearest to the file. */
static bool fail(struct err *err, const char *what, const char *path)
{
	unsigned long code = ERR_peek_last_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;

	ERR_clear_error();
	return err_set(err, ERR_SYSTEM, "TLS %s %.100s cannot be used: %s", what, path,
		       reason ? reason : "it is no PEM file of one");
}

/* A key under a passphrase must not make a server wait at a terminal. */
static int no_passphrase(char *out, int size, int writing, void *ctx)
{
	(void)out;
	(void)size;
	(void)writing;
	(void)ctx;
	return 0;
}

/* OpenSSL would call it "system lib". */
static bool can_read(const char *what, const char *path, struct err *err)
{
	if (access(path, R_OK) == 0)
		return true;
	return err_errno(err, "cannot read the TLS %s %.100s", what, path);
}

static SSL_CTX *read_files(const char *cert, const char *key, struct err *err)
{
	SSL_CTX *context;

	if (!can_read("certificate", cert, err) || !can_read("key", key, err))
		return NULL;
	context = SSL_CTX_new(TLS_server_method());
	ERR_clear_error();
	if (!context) {
		(void)err_set(err, ERR_SYSTEM, "OpenSSL did not start");
		return NULL;
	}
	SSL_CTX_set_default_passwd_cb(context, no_passphrase);
	if (SSL_CTX_use_certificate_chain_file(context, cert) != 1)
		(void)fail(err, "certificate", cert);
	else if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
		(void)fail(err, "key", key);
	else if (SSL_CTX_check_private_key(context) != 1)
		(void)err_set(err, ERR_SYSTEM,
			      "TLS key %.80s cannot be used: it is not that of %.80s",
			      key, cert);
	else
		return context;
	SSL_CTX_free(context);
	return NULL;
}

struct tls *tls_create(const char *cert, const char *key, struct err *err)
{
	struct tls *tls;
	SSL_CTX *context = read_files(cert, key, err);

	if (!context)
		return NULL;
	tls = mem_alloc(sizeof(*tls));
	tls->context = context;
	tls->cert = mem_dup(slice_of(cert));
	tls->key = mem_dup(slice_of(key));
	return tls;
}

void tls_destroy(struct tls *tls)
{
	if (!tls)
		return;
	SSL_CTX_free(tls->context);
	free(tls->cert);
	free(tls->key);
	free(tls);
}

bool tls_reload(struct tls *tls, const char *cert, const char *key, struct err *err)
{
	struct tls *fresh = tls_create(cert, key, err);
	struct tls old = *tls;

	if (!fresh)
		return false;
	*tls = *fresh;
	*fresh = old;
	tls_destroy(fresh);
	return true;
}

const char *tls_cert_path(const struct tls *tls)
{
	return tls->cert;
}

const char *tls_key_path(const struct tls *tls)
{
	return tls->key;
}

/* libwebsockets read the files once, into a context of its own; this swaps in what was
 * read last before anything of it is shown. */
static int on_handshake(SSL *ssl, void *ctx)
{
	const struct tls *tls = ctx;

	return SSL_set_SSL_CTX(ssl, tls->context) ? 1 : 0;
}

void tls_attach(struct tls *tls, struct ssl_ctx_st *context)
{
	(void)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_cert_cb(context, on_handshake, tls);
}

bool tls_is_for(const struct tls *tls, const char *host)
{
	X509 *cert = SSL_CTX_get0_certificate(tls->context);

	return cert && (X509_check_host(cert, host, 0, 0, NULL) == 1 ||
			X509_check_ip_asc(cert, host, 0) == 1);
}

struct ssl_ctx_st *tls_context(struct tls *tls)
{
	return tls->context;
}

void tls_fingerprint(const struct tls *tls, char out[TLS_FINGERPRINT_LEN + 1])
{
	uint8_t digest[32] = {0};
	unsigned len = 0;

	(void)X509_digest(SSL_CTX_get0_certificate(tls->context), EVP_sha256(), digest,
			  &len);
	for (size_t i = 0; i < sizeof(digest); i++)
		(void)snprintf(out + (i ? 3 * i - 1 : 0), 4, i ? ":%02X" : "%02X",
			       digest[i]);
}

static bool copy_name(const GENERAL_NAME *name, char out[TLS_NAME_MAX])
{
	int kind, len;
	const ASN1_STRING *text = GENERAL_NAME_get0_value(name, &kind);

	if (kind != GEN_DNS)
		return false;
	len = ASN1_STRING_length(text);
	if (len <= 0 || len >= TLS_NAME_MAX)
		return false;
	memcpy(out, ASN1_STRING_get0_data(text), (size_t)len);
	out[len] = '\0';
	return strlen(out) == (size_t)len && !strchr(out, '*');
}

bool tls_first_name(const struct tls *tls, char out[TLS_NAME_MAX])
{
	GENERAL_NAMES *names = X509_get_ext_d2i(SSL_CTX_get0_certificate(tls->context),
						NID_subject_alt_name, NULL, NULL);
	bool found = false;

	for (int i = 0; !found && i < sk_GENERAL_NAME_num(names); i++)
		found = copy_name(sk_GENERAL_NAME_value(names, i), out);
	GENERAL_NAMES_free(names);
	return found;
}
