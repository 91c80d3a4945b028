#ifndef OBSERVER_METRICS_H
#define OBSERVER_METRICS_H

#include <stdbool.h>

#include "observer/archive.h"
#include "observer/controls.h"
#include "observer/http/http.h"
#include "observer/http/hub.h"
#include "observer/ingest.h"
#include "wire/base/buf.h"

/* What an observer did since its start, for whoever runs it. No name, key or word of what
 * was said is in it. Borrowed, all of it. */
struct metrics {
	bool connected; /* to the relay */
	const struct ingest *ingest;
	const struct controls *controls;
	struct archive *archive;
	const struct hub *hub;
	const struct http_budget *budget;
};

/* Appends it in Prometheus' text format. */
void metrics_write(const struct metrics *metrics, struct buf *out);

#endif
