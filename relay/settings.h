#ifndef RELAY_SETTINGS_H
#define RELAY_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "relay/address.h"
#include "relay/budget.h"
#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/host/log.h"
#include "wire/host/options.h"

/* All that `perch relay` can be told: read at start, and again at SIGHUP. */
struct settings {
	struct options *options; /* owns the texts */
	char **argv;             /* owns args */
	char **args;             /* other words than options, NULL behind the last */
	int arg_count;
	char host[64]; /* numeric */
	uint16_t port;
	char metrics_host[64]; /* numeric; "" for none */
	uint16_t metrics_port;
	const char *db;                 /* NULL: ours, in the data folder */
	const char *tls_cert, *tls_key; /* both or neither */
	struct option_list allow_origins, urls;
	struct proxies proxies;
	bool open;    /* takes stored kinds without AUTH */
	bool mute;    /* says that nobody received an event by OK false */
	bool by_list; /* serves listed owners only */
	int64_t connections_max, address_max;
	bool count_loopback;
	int64_t budgets[BUDGET_OPTIONS]; /* as budget_options */
	enum log_level level;
	int64_t ready_fd; /* -1: none */
};

/* What does not fit together is a usage error, too. @argv stays as it is, so that it can
 * be read again. OPTIONS_OK: ends with settings_finish(). */
enum options_result settings_read(int argc, char *argv[], struct settings *out);
/* Where the database is; makes the data folder when it is ours. */
bool settings_db_path(const struct settings *settings, struct buf *out, struct err *err);
void settings_finish(struct settings *settings);

#endif
