#ifndef OBSERVER_HTTP_TIMES_H
#define OBSERVER_HTTP_TIMES_H

#include "observer/http/http.h"
#include "observer/spans.h"
#include "observer/values.h"
#include "wire/base/err.h"

/* The questions of /api/timeline and /api/report: from the query to the answer. Both take
 * `from` and `to` in Unix ms (all that is known, if absent) and `lanes`, ids of lanes or
 * of agents, comma separated (all, if absent). PROTOCOL.md has the rest. */

/* Appends timeline_write()'s answer; ERR_MALFORMED names the parameter. */
bool times_timeline(struct exchange *exchange, struct spans *spans,
		    const struct values *values, int64_t now_ms, struct buf *out,
		    struct err *err);
/* Appends report_write()'s. */
bool times_report(struct exchange *exchange, struct spans *spans, int64_t now_ms,
		  struct buf *out, struct err *err);

#endif
