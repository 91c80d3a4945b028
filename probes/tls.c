/* What TLS costs whoever sends, beside the sending itself: what no server over TLS can do
 * without. One body after the other through a connection of loopback, CPU time of the
 * thread that sends. Arms, in turn:
 *
 *   plain    the body written to the socket
 *   tls_128  the same through TLS 1.3, sealed in records of 16 KiB, by AES-128-GCM, which
 *            browsers prefer
 *   tls_256  by AES-256-GCM, which Node and curl prefer
 *   seal_128, seal_256  sealed only, and dropped
 *
 * PERCH_PROBE_BYTES (1048576, of a body), PERCH_PROBE_RUNS (200). Fails unless each body
 * came whole. */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "observer/selfcert.h"
#include "probes/probe.h"
#include "wire/base/mem.h"

#define RECORD_BYTES 16384       /* RFC 8446, 5.1: a record holds no more */
#define PIECE_BYTES (256u << 10) /* handed to the socket in one call */
#define BODY_MAX (64u << 20)

enum arm { PLAIN, TLS_128, TLS_256, SEAL_128, SEAL_256, ARMS };
static const char *const arm_names[ARMS] = {"plain", "tls_128", "tls_256", "seal_128",
					    "seal_256"};
static const char *const suites[ARMS] = {
	[TLS_128] = "TLS_AES_128_GCM_SHA256",
	[TLS_256] = "TLS_AES_256_GCM_SHA384",
	[SEAL_128] = "TLS_AES_128_GCM_SHA256",
	[SEAL_256] = "TLS_AES_256_GCM_SHA384",
};

struct path {
	int from, to;       /* the connection's ends */
	int said[2];        /* a byte when a body is there */
	SSL *sends, *reads; /* NULL: plain */
	size_t bytes;       /* of a body */
	pthread_t reader;
};

static void must(bool ok, const char *what)
{
	if (!ok)
		probe_fail(what);
}

static void *read_bodies(void *ctx)
{
	struct path *path = ctx;
	char *piece = mem_alloc(PIECE_BYTES);
	size_t there = 0;

	for (;;) {
		const ssize_t len = path->reads
					    ? SSL_read(path->reads, piece, PIECE_BYTES)
					    : read(path->to, piece, PIECE_BYTES);

		if (len <= 0)
			break;
		there += (size_t)len;
		if (there < path->bytes)
			continue;
		there -= path->bytes;
		must(write(path->said[1], "", 1) == 1, "nothing can be said");
	}
	free(piece);
	return NULL;
}

static void connect_path(struct path *path)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	must(bind(listener, (struct sockaddr *)&address, len) == 0 &&
		     listen(listener, 1) == 0 &&
		     getsockname(listener, (struct sockaddr *)&address, &len) == 0,
	     "no port");
	path->to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	must(connect(path->to, (struct sockaddr *)&address, len) == 0, "no connection");
	path->from = accept(listener, NULL, NULL);
	must(path->from >= 0 && pipe(path->said) == 0, "no connection");
	(void)close(listener);
}

/* Both sides in one thread, until they know each other. */
static void shake_hands(struct path *path, const char *cert, const char *suite)
{
	SSL_CTX *server = SSL_CTX_new(TLS_server_method());
	SSL_CTX *client = SSL_CTX_new(TLS_client_method());
	BIO *left, *right;

	must(server && client && SSL_CTX_use_certificate_chain_file(server, cert) == 1 &&
		     SSL_CTX_use_PrivateKey_file(server, cert, SSL_FILETYPE_PEM) == 1 &&
		     SSL_CTX_set_ciphersuites(client, suite) == 1 &&
		     SSL_CTX_set_num_tickets(server, 0) == 1 &&
		     BIO_new_bio_pair(&left, 0, &right, 0) == 1,
	     "no TLS");
	path->sends = SSL_new(server);
	path->reads = SSL_new(client);
	SSL_set_bio(path->sends, left, left);
	SSL_set_bio(path->reads, right, right);
	SSL_set_accept_state(path->sends);
	SSL_set_connect_state(path->reads);
	for (int turn = 0; turn < 8; turn++) {
		(void)SSL_do_handshake(path->reads);
		(void)SSL_do_handshake(path->sends);
	}
	must(SSL_is_init_finished(path->sends) && SSL_is_init_finished(path->reads),
	     "no handshake");
	SSL_CTX_free(server);
	SSL_CTX_free(client);
}

static void open_path(struct path *path, enum arm arm, const char *cert)
{
	BIO *out;

	if (arm != PLAIN)
		shake_hands(path, cert, suites[arm]);
	if (arm >= SEAL_128) {
		SSL_set0_wbio(path->sends, BIO_new(BIO_s_null()));
		return;
	}
	connect_path(path);
	if (arm != PLAIN) {
		out = BIO_push(BIO_new(BIO_f_buffer()),
			       BIO_new_socket(path->from, BIO_NOCLOSE));
		must(BIO_set_write_buffer_size(out, PIECE_BYTES) == 1, "no buffer");
		SSL_set0_wbio(path->sends, out);
		SSL_set0_rbio(path->reads, BIO_new_socket(path->to, BIO_NOCLOSE));
	}
	must(pthread_create(&path->reader, NULL, read_bodies, path) == 0, "no thread");
}

static int64_t own_cpu_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int64_t send_body(struct path *path, enum arm arm, const char *body)
{
	const size_t most = arm == PLAIN ? PIECE_BYTES : RECORD_BYTES;
	const int64_t begun = own_cpu_ns();
	int64_t used;
	char said;

	for (size_t sent = 0; sent < path->bytes;) {
		const size_t left = path->bytes - sent, piece = left < most ? left : most;
		const ssize_t len =
			arm == PLAIN ? write(path->from, body + sent, piece)
				     : SSL_write(path->sends, body + sent, (int)piece);

		must(len > 0, "the connection is gone");
		sent += (size_t)len;
	}
	if (arm != PLAIN)
		must(BIO_flush(SSL_get_wbio(path->sends)) == 1, "not sent");
	used = own_cpu_ns() - begun;
	if (arm < SEAL_128)
		must(read(path->said[0], &said, 1) == 1, "the body did not come");
	return used;
}

static void close_path(struct path *path, enum arm arm)
{
	if (arm < SEAL_128) {
		(void)shutdown(path->from, SHUT_RDWR);
		(void)pthread_join(path->reader, NULL);
		(void)close(path->from);
		(void)close(path->to);
		(void)close(path->said[0]);
		(void)close(path->said[1]);
	}
	SSL_free(path->sends);
	SSL_free(path->reads);
}

int main(void)
{
	const size_t bytes = probe_setting("PERCH_PROBE_BYTES", 1u << 20, 1, BODY_MAX);
	const size_t runs = probe_setting("PERCH_PROBE_RUNS", 200, 1, PROBE_RUNS_MAX);
	char cert[] = "/tmp/perch-probe-tls-XXXXXX/tls.pem";
	char *slash = strrchr(cert, '/');
	char *body = mem_alloc(bytes);
	struct path paths[ARMS] = {0};
	static int64_t used_ns[ARMS][PROBE_RUNS_MAX];
	struct err err;
	bool made;

	*slash = '\0';
	must(mkdtemp(cert) != NULL, "no folder");
	*slash = '/';
	if (!selfcert_ensure(cert, &made, &err))
		probe_fail(err.text);
	for (size_t i = 0; i < bytes; i++)
		body[i] = (char)(' ' + i % 95);
	for (enum arm arm = PLAIN; arm < ARMS; arm++) {
		paths[arm].bytes = bytes;
		open_path(&paths[arm], arm, cert);
		(void)send_body(&paths[arm], arm, body); /* warm */
	}
	(void)unlink(cert);
	*slash = '\0';
	(void)rmdir(cert);
	for (size_t run = 0; run < runs; run++)
		for (size_t turn = 0; turn < ARMS; turn++) {
			const size_t arm = probe_turn(run, turn, ARMS);

			used_ns[arm][run] = send_body(&paths[arm], (enum arm)arm, body);
		}
	for (enum arm arm = PLAIN; arm < ARMS; arm++) {
		probe_print(arm_names[arm], used_ns[arm], runs, "ns",
			    ",\"clock\":\"cpu\",\"bytes\":%zu", bytes);
		close_path(&paths[arm], arm);
	}
	free(body);
	return 0;
}
