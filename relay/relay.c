#include "relay/relay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <uv.h>

#include "relay/book.h"
#include "relay/connection.h"
#include "relay/publish.h"
#include "relay/server.h"
#include "relay/settings.h"
#include "relay/store.h"
#include "relay/tool.h"
#include "relay/transfer.h"
#include "relay/verifier.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/host/paths.h"
#include "wire/host/port.h"
#include "wire/host/tls.h"

/* How often memory of frames that are out of date is freed; they are never served late.
 */
#define EXPIRE_EVERY_MS 30000
/* Clients that have not gone by then are cut off. */
#define STOP_WITHIN_MS 2000
/* Names of our own address. */
#define OWN_URLS 3
#define OWN_URL_BYTES 64
#define PATH_BYTES_MAX 4096

struct relay {
	int argc;
	char **argv;
	struct settings settings;
	struct loop *loop;
	struct core core;
	struct store *store;
	struct tls *tls;           /* NULL: plain */
	struct verifier *verifier; /* NULL: one core, or no thread to be had */
	struct server *server;
	struct timer *expire_timer, *stop_timer;
	char own_urls[OWN_URLS][OWN_URL_BYTES];
	struct slice *urls; /* those, then --url */
};

/* Our own address by each of its names, then what --url adds. */
static void make_urls(struct relay *relay)
{
	static const char *const hosts[OWN_URLS] = {"127.0.0.1", "localhost", "[::1]"};
	const struct option_list *more = &relay->settings.urls;
	size_t i;

	free(relay->urls);
	relay->urls = mem_array(OWN_URLS + more->count, sizeof(*relay->urls));
	for (i = 0; i < OWN_URLS; i++) {
		(void)snprintf(relay->own_urls[i], OWN_URL_BYTES, "%s://%s:%u",
			       relay->tls ? "wss" : "ws", hosts[i],
			       server_port(relay->server));
		relay->urls[i] = slice_of(relay->own_urls[i]);
	}
	for (i = 0; i < more->count; i++)
		relay->urls[OWN_URLS + i] = slice_of(more->values[i]);
	relay->core.urls = relay->urls;
	relay->core.url_count = OWN_URLS + more->count;
}

static bool tell_ready(const struct relay *relay, struct err *err)
{
	int fd = (int)relay->settings.ready_fd;
	char line[16];
	int len;

	if (fd < 0)
		return true;
	len = snprintf(line, sizeof(line), "%u\n", server_port(relay->server));
	if (write(fd, line, (size_t)len) != len)
		return err_errno(err, "cannot write the port to descriptor %d", fd);
	(void)close(fd);
	return true;
}

static void on_expire(void *ctx)
{
	struct relay *relay = ctx;

	publish_sweep(&relay->core);
	store_try_again(relay->store);
	window_expire(&relay->core.window, loop_unix_ms() / 1000);
	core_recheck(&relay->core);
	timer_start(relay->expire_timer, EXPIRE_EVERY_MS);
}

/* The last client has gone, or had its time. */
static void on_stopped(void *ctx)
{
	struct relay *relay = ctx;

	loop_quit(relay->loop);
}

static void on_signal(void *ctx, int signal)
{
	struct relay *relay = ctx;
	const struct counters *counters = &relay->core.counters;

	log_info("relay",
		 "stopping on signal %d: connections=%" PRIu64 " frames=%" PRIu64
		 " deliveries=%" PRIu64 " duplicates=%" PRIu64 " unheard=%" PRIu64,
		 signal, counters->connections_total, counters->frames,
		 counters->deliveries, counters->duplicates, counters->unheard);
	timer_start(relay->stop_timer, STOP_WITHIN_MS);
	server_stop(relay->server, on_stopped, relay);
}

static bool open_store(struct relay *relay, struct err *err)
{
	struct buf path;

	buf_init(&path, PATH_BYTES_MAX);
	if (settings_db_path(&relay->settings, &path, err))
		relay->store = store_open(buf_text(&path), err);
	buf_finish(&path);
	return relay->store != NULL;
}

/* What may change while it runs. */
static void apply(struct relay *relay, struct server_options *options)
{
	const struct settings *settings = &relay->settings;
	struct admit *admit = &relay->core.admit;
	size_t i;

	log_set_level(settings->level);
	for (i = 0; i < BUDGET_OPTIONS; i++)
		admit->budgets
			.per_second[budget_options[i].scope][budget_options[i].kind] =
			settings->budgets[i];
	admit->count_loopback = settings->count_loopback;
	admit->owners.by_list = settings->by_list;
	relay->core.mute = settings->mute;
	*options = (struct server_options){
		.host = settings->host,
		.port = settings->port,
		.metrics_host = settings->metrics_host[0] ? settings->metrics_host : NULL,
		.metrics_port = settings->metrics_port,
		.tls = relay->tls,
		.allow_origins = &settings->allow_origins,
		.proxies = &settings->proxies,
		.connections_max = (uint64_t)settings->connections_max,
		.address_max = (uint64_t)settings->address_max,
	};
}

static const char *bracketed(const char *host, char out[72])
{
	(void)snprintf(out, 72, strchr(host, ':') ? "[%s]" : "%s", host);
	return out;
}

/* What an operator should know before anybody else finds it out. */
static void warn_exposed(const struct relay *relay)
{
	const struct settings *settings = &relay->settings;
	bool is_near = host_is_loopback(settings->host);

	if (settings->by_list && relay->core.admit.owners.listed.count == 0)
		log_warn("relay", "no owner is listed, so nobody is served: perch relay "
				  "owners add NPUB");
	if (!is_near && !relay->tls && settings->proxies.count == 0)
		log_warn("relay", "no TLS beyond loopback: frames are sealed, but who "
				  "talks to whom is readable on the way, and a session "
				  "can be taken over; give --tls-cert and --tls-key, or "
				  "--trusted-proxy");
	if (!is_near && !settings->by_list)
		log_warn("relay", "--owners open beyond loopback: everybody who can "
				  "reach it may use it");
}

/* Reload */

static void on_reloaded(void *ctx, const struct err *err)
{
	struct relay *relay = ctx;

	if (err) {
		log_warn("relay", "owners stay as they were: %s", err->text);
		return;
	}
	core_recheck(&relay->core);
	log_info("relay", "owners read again: listed=%zu bindings=%zu",
		 relay->core.admit.owners.listed.count, relay->core.admit.owners.count);
}

static bool same_text(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "") == 0;
}

/* Where it listens and what it writes to are for a start to decide. */
static void warn_restart(const struct settings *old, const struct settings *now)
{
	if (strcmp(old->host, now->host) != 0 || old->port != now->port ||
	    strcmp(old->metrics_host, now->metrics_host) != 0 ||
	    old->metrics_port != now->metrics_port || !same_text(old->db, now->db) ||
	    !old->tls_cert != !now->tls_cert)
		log_warn("relay", "listen, metrics, db, and TLS on or off change with a "
				  "restart only");
}

static void reload_settings(struct relay *relay)
{
	struct server_options options;
	struct settings fresh;
	struct settings old = relay->settings;

	if (settings_read(relay->argc, relay->argv, &fresh) != OPTIONS_OK) {
		log_warn("relay", "settings stay as they were");
		return;
	}
	warn_restart(&old, &fresh);
	relay->settings = fresh;
	apply(relay, &options);
	server_set_options(relay->server, &options);
	make_urls(relay);
	settings_finish(&old);
}

static void reload_tls(struct relay *relay)
{
	const struct settings *settings = &relay->settings;
	struct err err;

	if (!relay->tls || !settings->tls_cert)
		return;
	if (tls_reload(relay->tls, settings->tls_cert, settings->tls_key, &err))
		log_info("relay", "certificate read again");
	else
		log_warn("relay", "the certificate stays as it was: %s", err.text);
}

static void on_hangup(void *ctx)
{
	struct relay *relay = ctx;

	if (!relay->server)
		return;
	reload_settings(relay);
	reload_tls(relay);
	if (!book_reload(relay->store, &relay->core.admit.owners, on_reloaded, relay))
		log_warn("relay",
			 "owners stay as they were: too much waits for the disk");
}

/* It only makes things faster: nobody is left without a relay for want of it. */
static void start_verifier(struct relay *relay)
{
	struct err err;

	if (uv_available_parallelism() <= 1)
		return;
	relay->verifier = verifier_create(1, VERIFIER_WAIT_NS, &err);
	if (!relay->verifier)
		log_warn("relay", "signatures are checked one by one: %s", err.text);
	relay->core.verifier = relay->verifier;
}

static bool start(struct relay *relay, struct err *err)
{
	const struct settings *settings = &relay->settings;
	struct server_options options;
	char host[72];

	relay->loop = loop_create(err);
	if (!relay->loop)
		return false;
	core_init(&relay->core, &server_io, relay->loop->crypto);
	/* Before the database is locked: that is where others find whom to signal. */
	if (!loop_on_hangup(relay->loop, on_hangup, relay, err))
		return false;
	if (settings->tls_cert) {
		relay->tls = tls_create(settings->tls_cert, settings->tls_key, err);
		if (!relay->tls)
			return false;
	}
	apply(relay, &options);
	if (!open_store(relay, err))
		return false;
	/* Modules read their tables from store_db() here. */
	if (!book_load(store_db(relay->store), &relay->core.admit.owners,
		       loop_unix_ms() / 1000, err))
		return false;
	relay->core.admit.open = settings->open;
	if (!core_keep(&relay->core, relay->store, err))
		return false;
	if (!store_start(relay->store, relay->loop, err))
		return false;
	book_keep(relay->store, &relay->core.admit.owners);
	start_verifier(relay);
	relay->server = server_create(relay->loop, &relay->core, &options, err);
	if (!relay->server)
		return false;
	make_urls(relay);
	relay->expire_timer = timer_create_on(relay->loop, on_expire, relay);
	timer_start(relay->expire_timer, EXPIRE_EVERY_MS);
	relay->stop_timer = timer_create_on(relay->loop, on_stopped, relay);
	loop_on_signal(relay->loop, on_signal, relay);
	warn_exposed(relay);
	log_info("relay", "listening on %s://%s:%u/", relay->tls ? "wss" : "ws",
		 bracketed(settings->host, host), server_port(relay->server));
	if (options.metrics_host)
		log_info("relay", "metrics on http://%s:%u/metrics",
			 bracketed(options.metrics_host, host),
			 server_metrics_port(relay->server));
	return tell_ready(relay, err);
}

static void finish(struct relay *relay)
{
	timer_destroy(relay->expire_timer);
	timer_destroy(relay->stop_timer);
	server_close(relay->server);
	core_keep_no_more(&relay->core);
	store_close(relay->store);
	if (relay->loop) {
		/* The last connections end in here. */
		loop_destroy(relay->loop);
		core_finish(&relay->core);
	}
	verifier_destroy(relay->verifier);
	server_destroy(relay->server);
	tls_destroy(relay->tls);
	free(relay->urls);
	settings_finish(&relay->settings);
}

int relay_main(int argc, char *argv[])
{
	struct relay relay = {.argc = argc, .argv = argv};
	struct err err;
	int status = EXIT_FAILURE;

	if (argc > 1 && strcmp(argv[1], "export") == 0)
		return transfer_export(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "import") == 0)
		return transfer_import(argc - 1, argv + 1);
	switch (settings_read(argc, argv, &relay.settings)) {
	case OPTIONS_OK:
		break;
	case OPTIONS_EXIT_OK:
		return EXIT_SUCCESS;
	case OPTIONS_EXIT_USAGE:
		return 2;
	}
	if (relay.settings.arg_count > 0) {
		status = tool_main(&relay.settings);
	} else if (start(&relay, &err)) {
		loop_run(relay.loop);
		status = EXIT_SUCCESS;
	} else {
		fprintf(stderr, "perch relay: %s\n", err.text);
	}
	finish(&relay);
	return status;
}
