#include "relay/relay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "relay/connection.h"
#include "wire/host/port.h"
#include "relay/server.h"
#include "relay/store.h"
#include "wire/base/mem.h"
#include "wire/host/log.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/host/paths.h"

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
	struct loop *loop;
	struct core core;
	struct store *store;
	struct server *server;
	struct timer *expire_timer, *stop_timer;
	char own_urls[OWN_URLS][OWN_URL_BYTES];
	struct slice *urls; /* those, then --url */
};

struct config {
	const char *listen, *db, *metrics, *log_level;
	struct option_list allow_origins, urls;
	int64_t ready_fd;
};

static enum options_result read_config(int argc, char *argv[], struct config *config,
				       struct options **options)
{
	const struct option_spec table[] = {
		{.name = "listen",
		 .type = OPTION_TEXT,
		 .value = &config->listen,
		 .argument = "HOST:PORT",
		 .help = "where to listen, loopback only, port 0 chooses one "
			 "(127.0.0.1:7447)"},
		{.name = "db",
		 .type = OPTION_TEXT,
		 .value = &config->db,
		 .argument = "PATH",
		 .help = "database of stored kinds (relay.db in the data folder)"},
		{.name = "metrics",
		 .type = OPTION_TEXT,
		 .value = &config->metrics,
		 .argument = "HOST:PORT",
		 .help = "serve /metrics and /healthz there too (off; /healthz is always "
			 "on "
			 "the main port)"},
		{.name = "allow-origin",
		 .type = OPTION_LIST,
		 .value = &config->allow_origins,
		 .argument = "ORIGIN",
		 .help = "let web pages of this origin connect, * for all (none)"},
		{.name = "url",
		 .type = OPTION_LIST,
		 .value = &config->urls,
		 .argument = "URL",
		 .help = "public URL that clients may name in AUTH, besides our own "
			 "address"},
		{.name = "log-level",
		 .type = OPTION_TEXT,
		 .value = &config->log_level,
		 .argument = "LEVEL",
		 .help = "error, warn, info or debug (info)"},
		{.name = "ready-fd",
		 .type = OPTION_INT,
		 .value = &config->ready_fd,
		 .min = 0,
		 .max = INT32_MAX,
		 .argument = "N",
		 .help = "write the port to this descriptor once it listens",
		 .no_env = true},
		{.name = NULL},
	};
	const struct options_spec spec = {
		.command = "perch relay",
		.usage = "[OPTIONS]",
		.summary = "Routes sealed frames between agents and their owners. It can "
			   "read "
			   "none of them and stores none.",
		.example = "  perch relay --listen 127.0.0.1:7447",
		.options = table,
	};
	char **args;
	int arg_count;

	return options_parse(&spec, argc, argv, options, &args, &arg_count);
}

/* The numeric address of a loopback host. */
static bool check_loopback(char host[64], const char *option, struct err *err)
{
	if (!host_is_loopback(host))
		return err_set(
			err, ERR_REFUSED,
			"%s %s is not a loopback address: owner lists do not exist yet, "
			"so the relay serves this machine only; use 127.0.0.1",
			option, host);
	if (strcmp(host, "localhost") == 0)
		(void)snprintf(host, 64, "127.0.0.1");
	return true;
}

static bool read_address(const char *text, const char *option, char host[64],
			 uint16_t *port, struct err *err)
{
	return options_host_port(text, host, port, err) &&
	       check_loopback(host, option, err);
}

/* Our own address by each of its names, then what --url adds. */
static bool make_urls(struct relay *relay, const struct config *config, struct err *err)
{
	static const char *const hosts[OWN_URLS] = {"127.0.0.1", "localhost", "[::1]"};
	size_t i;

	relay->urls = mem_array(OWN_URLS + config->urls.count, sizeof(*relay->urls));
	for (i = 0; i < OWN_URLS; i++) {
		(void)snprintf(relay->own_urls[i], OWN_URL_BYTES, "ws://%s:%u", hosts[i],
			       server_port(relay->server));
		relay->urls[i] = slice_of(relay->own_urls[i]);
	}
	for (i = 0; i < config->urls.count; i++) {
		struct slice text = slice_of(config->urls.values[i]);

		if (!slice_starts(text, SLICE("ws://")) &&
		    !slice_starts(text, SLICE("wss://")))
			return err_set(err, ERR_REFUSED,
				       "--url %.100s does not begin with ws:// or wss://",
				       config->urls.values[i]);
		relay->urls[OWN_URLS + i] = text;
	}
	relay->core.urls = relay->urls;
	relay->core.url_count = OWN_URLS + config->urls.count;
	return true;
}

static bool tell_ready(const struct relay *relay, const struct config *config,
		       struct err *err)
{
	char line[16];
	int len;

	if (config->ready_fd < 0)
		return true;
	len = snprintf(line, sizeof(line), "%u\n", server_port(relay->server));
	if (write((int)config->ready_fd, line, (size_t)len) != len)
		return err_errno(err, "cannot write the port to descriptor %" PRId64,
				 config->ready_fd);
	(void)close((int)config->ready_fd);
	return true;
}

static void on_expire(void *ctx)
{
	struct relay *relay = ctx;

	window_expire(&relay->core.window, loop_unix_ms() / 1000);
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

/* Ours unless --db names another, whose folder must be there. */
static bool open_store(struct relay *relay, const struct config *config, struct err *err)
{
	struct buf path;
	bool ok = true;

	buf_init(&path, PATH_BYTES_MAX);
	if (config->db)
		(void)buf_printf(&path, "%s", config->db);
	else
		ok = paths_data(SLICE_EMPTY, &path, err) &&
		     paths_make(buf_text(&path), err) &&
		     paths_data(SLICE("relay.db"), &path, err);
	relay->store = ok ? store_open(buf_text(&path), err) : NULL;
	buf_finish(&path);
	return relay->store != NULL;
}

static bool start(struct relay *relay, const struct config *config, struct err *err)
{
	char host[64], metrics_host[64];
	struct server_options options = {.allow_origins = &config->allow_origins};
	enum log_level level;

	if (!log_parse_level(config->log_level, &level, err) ||
	    !read_address(config->listen, "--listen", host, &options.port, err))
		return false;
	log_set_level(level);
	options.host = host;
	if (config->metrics) {
		if (!read_address(config->metrics, "--metrics", metrics_host,
				  &options.metrics_port, err))
			return false;
		options.metrics_host = metrics_host;
	}
	relay->loop = loop_create(err);
	if (!relay->loop)
		return false;
	core_init(&relay->core, &server_io, relay->loop->crypto);
	if (!open_store(relay, config, err))
		return false;
	/* Modules read their tables from store_db() here. */
	if (!store_start(relay->store, relay->loop, err))
		return false;
	relay->server = server_create(relay->loop, &relay->core, &options, err);
	if (!relay->server || !make_urls(relay, config, err))
		return false;
	relay->expire_timer = timer_create_on(relay->loop, on_expire, relay);
	timer_start(relay->expire_timer, EXPIRE_EVERY_MS);
	relay->stop_timer = timer_create_on(relay->loop, on_stopped, relay);
	loop_on_signal(relay->loop, on_signal, relay);
	log_info("relay", "listening on ws://%s:%u/", strchr(host, ':') ? "[::1]" : host,
		 server_port(relay->server));
	if (options.metrics_host)
		log_info("relay", "metrics on http://%s:%u/metrics",
			 strchr(metrics_host, ':') ? "[::1]" : metrics_host,
			 server_metrics_port(relay->server));
	return tell_ready(relay, config, err);
}

static void finish(struct relay *relay)
{
	timer_destroy(relay->expire_timer);
	timer_destroy(relay->stop_timer);
	store_close(relay->store);
	if (relay->loop) {
		/* The last connections end in here. */
		loop_destroy(relay->loop);
		core_finish(&relay->core);
	}
	server_destroy(relay->server);
	free(relay->urls);
}

int relay_main(int argc, char *argv[])
{
	struct config config = {
		.listen = "127.0.0.1:7447", .log_level = "info", .ready_fd = -1};
	struct options *options = NULL;
	struct relay relay = {0};
	struct err err;
	int status = EXIT_FAILURE;

	switch (read_config(argc, argv, &config, &options)) {
	case OPTIONS_OK:
		break;
	case OPTIONS_EXIT_OK:
		return EXIT_SUCCESS;
	case OPTIONS_EXIT_USAGE:
		return 2;
	}
	if (start(&relay, &config, &err)) {
		loop_run(relay.loop);
		status = EXIT_SUCCESS;
	} else {
		fprintf(stderr, "perch relay: %s\n", err.text);
	}
	finish(&relay);
	options_destroy(options);
	return status;
}
