#include "relay/counters.h"

#include <assert.h>

#include "wire/base/metrics.h"

#define PREFIX "perch_relay_"

static const char *const refusal_names[] = {
	[REFUSAL_MALFORMED] = "malformed",
	[REFUSAL_UTF8] = "utf8",
	[REFUSAL_BINARY] = "binary",
	[REFUSAL_OVERSIZE] = "oversize",
	[REFUSAL_SHAPE] = "shape",
	[REFUSAL_UNAUTHENTICATED] = "unauthenticated",
	[REFUSAL_AUTHOR] = "author",
	[REFUSAL_STALE] = "stale",
	[REFUSAL_OWNER] = "owner",
	[REFUSAL_RATE] = "rate",
	[REFUSAL_ID] = "id",
	[REFUSAL_SIGNATURE] = "signature",
	[REFUSAL_STORED_KIND] = "stored_kind",
	[REFUSAL_KIND] = "kind",
	[REFUSAL_EXPIRED] = "expired",
	[REFUSAL_AUTH] = "auth",
	[REFUSAL_FILTER] = "filter",
	[REFUSAL_GATED] = "gated",
	[REFUSAL_SUBSCRIPTIONS] = "subscriptions",
	[REFUSAL_REPLAY] = "replay",
	[REFUSAL_COUNT] = "count",
	[REFUSAL_BEHIND] = "behind",
	[REFUSAL_IDLE] = "idle",
	[REFUSAL_ORIGIN] = "origin",
	[REFUSAL_FULL] = "full",
	[REFUSAL_FILES] = "files",
	[REFUSAL_ADDRESS] = "address",
	[REFUSAL_UNLISTED] = "unlisted",
	[REFUSAL_REVOKED] = "revoked",
	[REFUSAL_OLD] = "old",
	[REFUSAL_DELETED] = "deleted",
	[REFUSAL_DATABASE] = "database",
	[REFUSAL_MUTE] = "mute",
};
static_assert(sizeof(refusal_names) / sizeof(refusal_names[0]) == REFUSAL_LAST + 1,
	      "every refusal has a name");

const char *refusal_name(enum refusal refusal)
{
	return refusal_names[refusal];
}

bool counters_refuse(struct counters *counters, enum refusal refusal, int64_t now_ms,
		     uint64_t *silent_out)
{
	counters->refused[refusal]++;
	if (counters->quiet[refusal].logged &&
	    now_ms - counters->quiet[refusal].at_ms < REFUSAL_LOG_MS) {
		counters->quiet[refusal].silent++;
		return false;
	}
	*silent_out = counters->quiet[refusal].silent;
	counters->quiet[refusal].logged = true;
	counters->quiet[refusal].at_ms = now_ms;
	counters->quiet[refusal].silent = 0;
	return true;
}

static void write_one(struct buf *out, const char *name, const char *type, uint64_t value)
{
	metrics_one(out, PREFIX, name, type, value);
}

void counters_write(const struct counters *counters, struct buf *out)
{
	int i;

	write_one(out, "connections", "gauge", counters->connections);
	write_one(out, "connections_total", "counter", counters->connections_total);
	write_one(out, "messages_total", "counter", counters->messages);
	write_one(out, "authenticated_total", "counter", counters->authenticated);
	write_one(out, "frames_total", "counter", counters->frames);
	write_one(out, "events_total", "counter", counters->events);
	write_one(out, "stored_total", "counter", counters->stored);
	write_one(out, "duplicates_total", "counter", counters->duplicates);
	write_one(out, "ignored_total", "counter", counters->ignored);
	write_one(out, "deliveries_total", "counter", counters->deliveries);
	write_one(out, "unheard_total", "counter", counters->unheard);
	write_one(out, "sent_bytes_total", "counter", counters->sent_bytes);
	write_one(out, "writes_total", "counter", counters->writes);
	write_one(out, "unsent_bytes_max", "gauge", counters->unsent_max);
	histogram_write(&counters->fan_out, "fan_out", out);
	metrics_type(out, PREFIX, "refused_total", "counter");
	for (i = 0; i <= REFUSAL_LAST; i++)
		metrics_labelled(out, PREFIX, "refused_total", "reason", refusal_names[i],
				 counters->refused[i]);
}
