#include "observer/selfcert.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <uv.h>

#include "wire/base/buf.h"
#include "wire/host/loop.h"
#include "wire/host/paths.h"

#define DAY_S 86400
#define FILE_MAX 65536
#define SERIAL_BYTES 16

/* ---- what is there ---- */

/* False when there is none, or none that is good for long enough. */
static bool is_good(const char *path)
{
	struct buf text = {.max = FILE_MAX};
	X509 *cert = NULL;
	BIO *bio = NULL;
	time_t soon = (time_t)(loop_unix_ms() / 1000) + SELFCERT_RENEW_DAYS * DAY_S;
	bool good;

	if (paths_read(path, &text, NULL))
		bio = BIO_new_mem_buf(text.ptr, (int)text.len);
	if (bio)
		cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);
	/* One that cannot be read is told of by whoever uses it. */
	good = cert ? X509_cmp_time(X509_get0_notAfter(cert), &soon) > 0 : text.len > 0;
	X509_free(cert);
	BIO_free(bio);
	ERR_clear_error();
	buf_wipe(&text);
	return good;
}

/* ---- another ---- */

static void add_name(struct buf *names, const char *kind, const char *name)
{
	if (names->len)
		(void)buf_lit(names, ",");
	(void)buf_printf(names, "%s:%s", kind, name);
}

static void add_host(struct buf *names)
{
	char host[256] = "", local[264];

	if (gethostname(host, sizeof(host) - 1) != 0 || !*host ||
	    strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
			 "0123456789.-") != strlen(host))
		return;
	add_name(names, "DNS", host);
	(void)snprintf(local, sizeof(local), "%s.local", host);
	if (!strchr(host, '.'))
		add_name(names, "DNS", local);
}

static void add_addresses(struct buf *names)
{
	uv_interface_address_t *list;
	char text[64];
	int count;

	add_name(names, "IP", "127.0.0.1");
	add_name(names, "IP", "::1");
	if (uv_interface_addresses(&list, &count) != 0)
		return;
	for (int i = 0; i < count; i++) {
		const bool v6 = list[i].address.address4.sin_family == AF_INET6;
		const int failed =
			v6 ? uv_ip6_name(&list[i].address.address6, text, sizeof(text))
			   : uv_ip4_name(&list[i].address.address4, text, sizeof(text));

		if (!failed && !list[i].is_internal)
			add_name(names, "IP", text);
	}
	uv_free_interface_addresses(list, count);
}

static bool add_extension(X509 *cert, int what, const char *value)
{
	X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, what, value);
	const bool ok = extension && X509_add_ext(cert, extension, -1) == 1;

	X509_EXTENSION_free(extension);
	return ok;
}

static bool set_serial(X509 *cert)
{
	unsigned char bytes[SERIAL_BYTES];
	BIGNUM *number = NULL;
	bool ok = RAND_bytes(bytes, sizeof(bytes)) == 1;

	bytes[0] &= 0x7f; /* RFC 5280, 4.1.2.2: it is positive */
	if (ok)
		number = BN_bin2bn(bytes, sizeof(bytes), NULL);
	ok = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert));
	BN_free(number);
	return ok;
}

static bool fill(X509 *cert, EVP_PKEY *key)
{
	static const unsigned char title[] = "Perch on this machine";
	struct buf names = {.max = FILE_MAX};
	X509_NAME *name = X509_get_subject_name(cert);
	bool ok;

	add_name(&names, "DNS", "localhost");
	add_host(&names);
	add_addresses(&names);
	ok = X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) &&
	     X509_gmtime_adj(X509_getm_notBefore(cert), -DAY_S) &&
	     X509_time_adj_ex(X509_getm_notAfter(cert), SELFCERT_DAYS - 1, 0, NULL) &&
	     X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, title, -1, -1, 0) ==
		     1 &&
	     X509_set_issuer_name(cert, name) == 1 && X509_set_pubkey(cert, key) == 1 &&
	     add_extension(cert, NID_basic_constraints, "critical,CA:FALSE") &&
	     add_extension(cert, NID_key_usage, "critical,digitalSignature") &&
	     add_extension(cert, NID_ext_key_usage, "serverAuth") &&
	     add_extension(cert, NID_subject_alt_name, buf_text(&names)) &&
	     X509_sign(cert, key, EVP_sha256()) > 0;
	buf_finish(&names);
	return ok;
}

/* Both in one file: a crash between two would leave a key that is not the other's. */
static bool write_both(X509 *cert, EVP_PKEY *key, const char *path, struct err *err)
{
	BIO *pem = BIO_new(BIO_s_secmem());
	char *bytes;
	bool ok = pem && PEM_write_bio_X509(pem, cert) == 1 &&
		  PEM_write_bio_PrivateKey(pem, key, NULL, NULL, 0, NULL, NULL) == 1;

	if (!ok) {
		(void)err_set(err, ERR_SYSTEM, "OpenSSL wrote no certificate");
	} else {
		const long len = BIO_get_mem_data(pem, &bytes);

		ok = paths_write(path, (struct slice){bytes, (size_t)len}, err);
	}
	BIO_free(pem);
	return ok;
}

bool selfcert_ensure(const char *path, bool *made, struct err *err)
{
	EVP_PKEY *key;
	X509 *cert;
	bool ok;

	*made = false;
	if (is_good(path))
		return true;
	key = EVP_EC_gen("P-256");
	cert = X509_new();
	ok = (key && cert && fill(cert, key)) ||
	     err_set(err, ERR_SYSTEM, "OpenSSL made no certificate");
	ok = ok && write_both(cert, key, path, err);
	*made = ok;
	X509_free(cert);
	EVP_PKEY_free(key);
	ERR_clear_error();
	return ok;
}
