#ifndef OBSERVER_HTTP_FIGURES_H
#define OBSERVER_HTTP_FIGURES_H

#include <stddef.h>
#include <stdint.h>

#include "observer/http/http.h"
#include "wire/base/buf.h"

/* What the servers did since they were made, for /metrics. Zeroed: nothing yet. */
#define HTTP_PARTS_MAX 32
#define HTTP_STATUSES 16 /* that we give, and one for any other */

struct http_figures {
	struct http_part_figures {
		const char *part; /* what was asked for: "page", "fleet"; static */
		uint64_t answers[HTTP_STATUSES];
	} parts[HTTP_PARTS_MAX];
	size_t part_count;
	uint64_t body_bytes; /* of answers and pieces of streams, as handed over */
	uint64_t no_room;    /* answers and pieces that the budget had no room for */
	uint64_t stalled;    /* answers ended because others needed their room */
	struct http_way_figures {
		uint64_t open; /* now */
		uint64_t taken;
		uint64_t refused;    /* all places were taken by who had the token */
		uint64_t pushed_out; /* to make room */
	} ways[HTTP_WAYS];
	uint64_t handshakes_failed; /* TLS */
	uint64_t calmed;            /* HTTP/2 connections ended for asking too much */
};

/* One answer. @part: static; beyond HTTP_PARTS_MAX of them it is not counted. */
void http_figures_answer(struct http_figures *figures, const char *part, unsigned status);
/* Appends all of it, and what the budget holds, in Prometheus' text format. */
void http_figures_write(const struct http_figures *figures,
			const struct http_budget *budget, struct buf *out);

#endif
