#include "observer/http/figures.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "wire/base/metrics.h"
#include "wire/frame/limits.h"

#define PREFIX "perch_observer_http_"

static const unsigned statuses[] = {200, 202, 400, 401, 403, 404, 405, 408,
				    411, 413, 415, 429, 431, 500, 503};
static_assert(sizeof(statuses) / sizeof(*statuses) == HTTP_STATUSES - 1,
	      "the last counts all others");

static const char *const way_names[] = {
	[HTTP_BY_UNIX] = "unix",
	[HTTP_BY_TCP] = "tcp",
	[HTTP_BY_TLS] = "tls",
	[HTTP_BY_METRICS] = "metrics",
};
static_assert(sizeof(way_names) / sizeof(*way_names) == HTTP_WAYS,
	      "every way has a name");

const char *http_way_name(enum http_way way)
{
	return way_names[way];
}

static size_t index_of(unsigned status)
{
	size_t i = 0;

	while (i < HTTP_STATUSES - 1 && statuses[i] != status)
		i++;
	return i;
}

void http_figures_answer(struct http_figures *figures, const char *part, unsigned status)
{
	size_t i = 0;

	while (i < figures->part_count && strcmp(figures->parts[i].part, part) != 0)
		i++;
	if (i == HTTP_PARTS_MAX)
		return;
	if (i == figures->part_count)
		figures->parts[figures->part_count++].part = part;
	figures->parts[i].answers[index_of(status)]++;
}

static void write_answers(const struct http_part_figures *part, struct buf *out)
{
	for (size_t i = 0; i < HTTP_STATUSES; i++) {
		if (!part->answers[i])
			continue;
		(void)buf_printf(out, PREFIX "answers_total{part=\"%s\",status=\"",
				 part->part);
		if (i == HTTP_STATUSES - 1)
			(void)buf_lit(out, "other");
		else
			(void)buf_append_u64(out, statuses[i]);
		(void)buf_printf(out, "\"} %" PRIu64 "\n", part->answers[i]);
	}
}

static void write_ways(const struct http_figures *figures, struct buf *out)
{
	static const struct {
		const char *name, *type;
		size_t offset;
	} lines[] = {
		{"connections", "gauge", offsetof(struct http_way_figures, open)},
		{"connections_total", "counter",
		 offsetof(struct http_way_figures, taken)},
		{"connections_refused_total", "counter",
		 offsetof(struct http_way_figures, refused)},
		{"connections_pushed_out_total", "counter",
		 offsetof(struct http_way_figures, pushed_out)},
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		metrics_type(out, PREFIX, lines[i].name, lines[i].type);
		for (size_t way = 0; way < HTTP_WAYS; way++) {
			uint64_t value;

			memcpy(&value,
			       (const char *)&figures->ways[way] + lines[i].offset,
			       sizeof(value));
			metrics_labelled(out, PREFIX, lines[i].name, "by", way_names[way],
					 value);
		}
	}
}

void http_figures_write(const struct http_figures *figures,
			const struct http_budget *budget, struct buf *out)
{
	metrics_type(out, PREFIX, "answers_total", "counter");
	for (size_t i = 0; i < figures->part_count; i++)
		write_answers(&figures->parts[i], out);
	metrics_one(out, PREFIX, "body_bytes_total", "counter", figures->body_bytes);
	write_ways(figures, out);
	metrics_one(out, PREFIX, "handshakes_failed_total", "counter",
		    figures->handshakes_failed);
	metrics_one(out, PREFIX, "calmed_total", "counter", figures->calmed);
	metrics_one(out, PREFIX, "held_bytes", "gauge", budget->held);
	metrics_one(out, PREFIX, "held_bytes_max", "gauge", BROKER_HELD_MAX);
	metrics_one(out, PREFIX, "no_room_total", "counter", figures->no_room);
	metrics_one(out, PREFIX, "stalled_total", "counter", figures->stalled);
}
