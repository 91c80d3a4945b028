#include "relay/settings.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/paths.h"
#include "wire/host/port.h"

#define OPTIONS_MAX 40

/* Texts that are checked once all are there. */
struct texts {
	const char *listen, *metrics, *owners, *level;
	struct option_list proxies;
};

static const struct options_spec usage = {
	.command = "perch relay",
	.usage = "[OPTIONS] [owners add|remove KEY… | owners list | agents | revoke "
		 "KEY… | allow KEY… | export | import]",
	.max_args = -1,
	.summary =
		"Routes sealed frames between agents and their owners. It can read "
		"none of them and stores none. The words say who is served, KEY being "
		"an npub or hex; they change the database, and a relay that runs on it "
		"follows at once. revoke shuts a key out and cuts its connections "
		"until allow. export writes the stored events as lines of JSON, import "
		"takes them back.",
	.example = "  perch relay --listen 127.0.0.1:7447\n"
		   "  perch relay --listen 0.0.0.0:7447 --tls-cert relay.pem --tls-key "
		   "relay.key --url wss://relay.example:7447\n"
		   "  perch relay owners add npub1…\n",
};

static void fill_table(struct settings *settings, struct texts *texts,
		       struct option_spec table[OPTIONS_MAX])
{
	const struct option_spec fixed[] = {
		{.name = "listen",
		 .type = OPTION_TEXT,
		 .value = &texts->listen,
		 .argument = "HOST:PORT",
		 .help = "where to listen, a numeric address, port 0 chooses one "
			 "(127.0.0.1:7447)"},
		{.name = "db",
		 .type = OPTION_TEXT,
		 .value = &settings->db,
		 .argument = "PATH",
		 .help = "database of stored kinds, owners and agents (relay.db in the "
			 "data folder)"},
		{.name = "open",
		 .type = OPTION_FLAG,
		 .value = &settings->open,
		 .help = "take stored kinds without AUTH, too (no)"},
		{.name = "mute",
		 .type = OPTION_FLAG,
		 .value = &settings->mute,
		 .help = "OK false mute: for what is not kept and nobody received (no)"},
		{.name = "metrics",
		 .type = OPTION_TEXT,
		 .value = &texts->metrics,
		 .argument = "HOST:PORT",
		 .help = "serve /metrics, /healthz and /readyz there too (off; the last "
			 "two are always on the main port)"},
		{.name = "owners",
		 .type = OPTION_TEXT,
		 .value = &texts->owners,
		 .argument = "open|list",
		 .help = "serve every owner, or those of `perch relay owners` and their "
			 "agents (open on loopback, else list)"},
		{.name = "tls-cert",
		 .type = OPTION_TEXT,
		 .value = &settings->tls_cert,
		 .argument = "FILE",
		 .help = "speak TLS with this certificate, a PEM file with its chain; "
			 "SIGHUP reads it again (none)"},
		{.name = "tls-key",
		 .type = OPTION_TEXT,
		 .value = &settings->tls_key,
		 .argument = "FILE",
		 .help = "its key, a PEM file (none)"},
		{.name = "trusted-proxy",
		 .type = OPTION_LIST,
		 .value = &texts->proxies,
		 .argument = "ADDRESS[/BITS]",
		 .help = "believe X-Forwarded-For from there; may be repeated (none)"},
		{.name = "allow-origin",
		 .type = OPTION_LIST,
		 .value = &settings->allow_origins,
		 .argument = "ORIGIN",
		 .help = "let web pages of this origin connect from this machine, * for "
			 "all (none)"},
		{.name = "url",
		 .type = OPTION_LIST,
		 .value = &settings->urls,
		 .argument = "URL",
		 .help = "public URL that clients may name in AUTH, besides our own "
			 "address"},
		{.name = "connections",
		 .type = OPTION_INT,
		 .value = &settings->connections_max,
		 .min = 1,
		 .max = 1000000,
		 .argument = "N",
		 .help = "most connections, less where the system allows fewer open "
			 "files (10000)"},
		{.name = "connections-per-address",
		 .type = OPTION_INT,
		 .value = &settings->address_max,
		 .min = 1,
		 .max = 1000000,
		 .argument = "N",
		 .help = "most of one address that is not loopback (64)"},
		{.name = "count-loopback",
		 .type = OPTION_FLAG,
		 .value = &settings->count_loopback,
		 .help = "limits of addresses hold for loopback, too (off)"},
	};
	const struct option_spec last[] = {
		{.name = "log-level",
		 .type = OPTION_TEXT,
		 .value = &texts->level,
		 .argument = "LEVEL",
		 .help = "error, warn, info or debug (info)"},
		{.name = "ready-fd",
		 .type = OPTION_INT,
		 .value = &settings->ready_fd,
		 .min = 0,
		 .max = INT32_MAX,
		 .argument = "N",
		 .help = "write the port to this descriptor once it listens",
		 .no_env = true},
		{.name = NULL},
	};
	size_t count = sizeof(fixed) / sizeof(fixed[0]);
	size_t i;

	static_assert(sizeof(fixed) / sizeof(fixed[0]) + BUDGET_OPTIONS +
				      sizeof(last) / sizeof(last[0]) <=
			      OPTIONS_MAX,
		      "the table has room");
	memcpy(table, fixed, sizeof(fixed));
	for (i = 0; i < BUDGET_OPTIONS; i++) {
		settings->budgets[i] = budget_options[i].per_second;
		table[count++] = (struct option_spec){
			.name = budget_options[i].name,
			.type = OPTION_INT,
			.value = &settings->budgets[i],
			.min = 0,
			.max = BUDGET_MAX,
			.argument = "N",
			.help = budget_options[i].help,
		};
	}
	memcpy(table + count, last, sizeof(last));
}

/* Names are not resolved: which of a name's addresses to listen on would be a guess. */
static bool read_address(const char *text, const char *option, char host[64],
			 uint16_t *port, struct err *err)
{
	struct address address;

	if (!options_host_port(text, host, port, err))
		return false;
	if (strcmp(host, "localhost") == 0)
		(void)snprintf(host, 64, "127.0.0.1");
	if (!address_parse(slice_of(host), &address))
		return err_set(err, ERR_MALFORMED,
			       "%s %.64s is no numeric address: 127.0.0.1 serves this "
			       "machine, 0.0.0.0 or [::] everybody who can reach it",
			       option, host);
	return true;
}

static bool check_urls(const struct option_list *urls, struct err *err)
{
	size_t i;

	for (i = 0; i < urls->count; i++) {
		struct slice text = slice_of(urls->values[i]);

		if (!slice_starts(text, SLICE("ws://")) &&
		    !slice_starts(text, SLICE("wss://")))
			return err_set(err, ERR_MALFORMED,
				       "--url %.100s does not begin with ws:// or wss://",
				       urls->values[i]);
	}
	return true;
}

static bool read_owners(const char *text, struct settings *settings, struct err *err)
{
	settings->by_list = !host_is_loopback(settings->host);
	if (!text)
		return true;
	settings->by_list = strcmp(text, "list") == 0;
	if (!settings->by_list && strcmp(text, "open") != 0)
		return err_set(err, ERR_MALFORMED,
			       "--owners takes open or list, got "
			       "\"%.40s\"",
			       text);
	return true;
}

static bool check(struct settings *settings, const struct texts *texts, struct err *err)
{
	size_t i;

	if (!log_parse_level(texts->level, &settings->level, err) ||
	    !read_address(texts->listen, "--listen", settings->host, &settings->port,
			  err) ||
	    (texts->metrics &&
	     !read_address(texts->metrics, "--metrics", settings->metrics_host,
			   &settings->metrics_port, err)) ||
	    !read_owners(texts->owners, settings, err) ||
	    !check_urls(&settings->urls, err))
		return false;
	for (i = 0; i < texts->proxies.count; i++)
		if (!proxies_add(&settings->proxies, texts->proxies.values[i], err))
			return false;
	if (!settings->tls_cert != !settings->tls_key)
		return err_set(err, ERR_MALFORMED,
			       "--tls-cert and --tls-key go together");
	return true;
}

enum options_result settings_read(int argc, char *argv[], struct settings *out)
{
	struct settings settings = {
		.connections_max = RELAY_CONNECTIONS_MAX,
		.address_max = RELAY_ADDRESS_MAX,
		.ready_fd = -1,
	};
	struct texts texts = {.listen = "127.0.0.1:7447", .level = "info"};
	struct option_spec table[OPTIONS_MAX];
	struct options_spec spec = usage;
	enum options_result result;
	struct err err;

	settings.argv = mem_array((size_t)argc + 1, sizeof(*settings.argv));
	memcpy(settings.argv, argv, (size_t)argc * sizeof(*argv));
	fill_table(&settings, &texts, table);
	spec.options = table;
	result = options_parse(&spec, argc, settings.argv, &settings.options,
			       &settings.args, &settings.arg_count);
	if (result != OPTIONS_OK) {
		free(settings.argv);
		return result;
	}
	if (!check(&settings, &texts, &err)) {
		fprintf(stderr, "perch relay: %s\n", err.text);
		settings_finish(&settings);
		return OPTIONS_EXIT_USAGE;
	}
	*out = settings;
	return OPTIONS_OK;
}

bool settings_db_path(const struct settings *settings, struct buf *out, struct err *err)
{
	/* The folder of a --db must be there. */
	if (settings->db) {
		buf_clear(out);
		return buf_printf(out, "%s", settings->db) ||
		       err_set(err, ERR_TOO_LARGE, "the path of --db is too long");
	}
	return paths_data(SLICE_EMPTY, out, err) && paths_make(buf_text(out), err) &&
	       paths_data(SLICE("relay.db"), out, err);
}

void settings_finish(struct settings *settings)
{
	options_destroy(settings->options);
	settings->options = NULL;
	free(settings->argv);
	settings->argv = NULL;
}
