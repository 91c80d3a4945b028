#include "observer/metrics.h"

#include "observer/http/figures.h"
#include "wire/base/metrics.h"

#define PREFIX "perch_observer_"

static void counter(struct buf *out, const char *name, uint64_t value)
{
	metrics_one(out, PREFIX, name, "counter", value);
}

static void gauge(struct buf *out, const char *name, uint64_t value)
{
	metrics_one(out, PREFIX, name, "gauge", value);
}

static void write_frames(const struct ingest_counts *counts, struct buf *out)
{
	const struct {
		const char *reason;
		uint64_t count;
	} refused[] = {
		{"malformed", counts->malformed},
		{"duplicate", counts->duplicates},
		{"stranger", counts->strangers},
		{"forged", counts->forged},
	};

	counter(out, "frames_total", counts->frames);
	counter(out, "frames_live_total", counts->live);
	counter(out, "frames_replayed_total", counts->replayed);
	counter(out, "frames_stale_total", counts->stale);
	counter(out, "frames_filled_total", counts->filled);
	metrics_type(out, PREFIX, "frames_refused_total", "counter");
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
		metrics_labelled(out, PREFIX, "frames_refused_total", "reason",
				 refused[i].reason, refused[i].count);
	counter(out, "events_total", counts->events);
}

struct sum {
	const struct ingest *ingest;
	uint64_t agents, missing, gone;
};

static void add_agent(void *ctx, const uint8_t *agent, bool foreign)
{
	struct sum *sum = ctx;

	(void)foreign;
	sum->agents++;
	sum->missing += ingest_missing(sum->ingest, agent);
	sum->gone += ingest_gone_frames(sum->ingest, agent);
}

static void write_gaps(const struct metrics *metrics, struct buf *out)
{
	const struct controls_figures *controls = controls_figures(metrics->controls);
	struct sum sum = {.ingest = metrics->ingest};

	ingest_each_agent(metrics->ingest, add_agent, &sum);
	gauge(out, "agents", sum.agents);
	gauge(out, "frames_missing", sum.missing);
	gauge(out, "frames_gone", sum.gone);
	counter(out, "asks_total", controls->asks);
	counter(out, "frames_asked_total", controls->asked);
}

static void write_controls(const struct controls_figures *figures, struct buf *out)
{
	counter(out, "controls_total", figures->posted);
	counter(out, "controls_refused_total", figures->refused);
	counter(out, "controls_expired_total", figures->expired);
	metrics_type(out, PREFIX, "controls_answered_total", "counter");
	for (size_t i = 0; i < CONTROLS_OUTCOMES; i++)
		metrics_labelled(out, PREFIX, "controls_answered_total", "outcome",
				 controls_outcome_name(i), figures->answered[i]);
}

static void write_archive(struct archive *archive, struct buf *out)
{
	struct archive_figures figures;

	archive_figures(archive, &figures);
	counter(out, "archive_records_total", figures.kept);
	counter(out, "archive_lost_total", figures.lost);
	gauge(out, "archive_waiting", figures.waiting);
	gauge(out, "archive_waiting_bytes", figures.waiting_bytes);
	gauge(out, "archive_questions", figures.questions);
	gauge(out, "archive_bytes", figures.bytes);
	gauge(out, "archive_failing", figures.failing);
}

static void write_stream(const struct hub *hub, struct buf *out)
{
	struct hub_figures figures;

	hub_figures(hub, &figures);
	metrics_type(out, PREFIX, "pages", "gauge");
	for (enum http_way way = HTTP_BY_UNIX; way < HTTP_BY_METRICS; way++)
		metrics_labelled(out, PREFIX, "pages", "by", http_way_name(way),
				 figures.pages[way]);
	counter(out, "stream_messages_total", figures.messages);
	counter(out, "stream_message_bytes_total", figures.message_bytes);
	counter(out, "stream_snapshots_total", figures.snapshots);
	gauge(out, "stream_ring_bytes", figures.ring_bytes);
}

void metrics_write(const struct metrics *metrics, struct buf *out)
{
	gauge(out, "relay_connected", metrics->connected);
	write_frames(ingest_counts(metrics->ingest), out);
	write_gaps(metrics, out);
	write_controls(controls_figures(metrics->controls), out);
	write_archive(metrics->archive, out);
	write_stream(metrics->hub, out);
	http_figures_write(metrics->budget->figures, metrics->budget, out);
}
