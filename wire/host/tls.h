#ifndef WIRE_HOST_TLS_H
#define WIRE_HOST_TLS_H

#include <stdbool.h>

#include "wire/base/err.h"

struct ssl_ctx_st; /* OpenSSL's SSL_CTX */

/* The certificate that clients are shown, and its key. */
struct tls;

/**
 * tls_create - read both, and check that they belong together
 * @cert: PEM, the server's certificate first, then those that lead to an authority
 * @key: PEM, without a passphrase
 * Paths are copied. The error names the file and what is wrong with it.
 */
struct tls *tls_create(const char *cert, const char *key, struct err *err);
/* NULL is fine. Whatever it was attached to must be gone. */
void tls_destroy(struct tls *tls);
/* Reads both again; what was there stays when that fails. */
bool tls_reload(struct tls *tls, const char *cert, const char *key, struct err *err);
const char *tls_cert_path(const struct tls *tls);
const char *tls_key_path(const struct tls *tls);
/* Every handshake under @context from now on shows the certificate read last. */
void tls_attach(struct tls *tls, struct ssl_ctx_st *context);
/* What was read last, for a server of one's own; it stays the tls's. */
struct ssl_ctx_st *tls_context(struct tls *tls);
/* SHA-256 of the certificate as browsers show it, "AB:CD:…". */
#define TLS_FINGERPRINT_LEN 95
void tls_fingerprint(const struct tls *tls, char out[TLS_FINGERPRINT_LEN + 1]);
#define TLS_NAME_MAX 256
/* The first host name that the certificate has, without a wildcard; false: none. */
bool tls_first_name(const struct tls *tls, char out[TLS_NAME_MAX]);
/* Is the certificate for this host name or numeric address? */
bool tls_is_for(const struct tls *tls, const char *host);

#endif
