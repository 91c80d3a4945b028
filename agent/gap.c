#include "agent/gap.h"

#include <assert.h>

#include "wire/base/clock.h"
#include "wire/frame/observer_event.h"
#include "wire/nostr/json.h"

void gap_add(struct gap *gap, const struct gap *more)
{
	const struct gap old = *gap;

	if (!old.seq) {
		*gap = *more;
		return;
	}
	if (more->seq > old.seq)
		*gap = *more;
	gap->folded = old.folded || more->folded;
	gap->first_ms = old.first_ms < more->first_ms ? old.first_ms : more->first_ms;
	for (int i = 0; i < GAP_REASONS; i++)
		gap->counts[i] = old.counts[i] + more->counts[i];
}

struct gap gap_of_record(const struct record *record, enum gap_reason reason)
{
	struct gap gap = {
		.seq = record_seq(record),
		.unix_ms = record->unix_ms,
		.monotonic_ms = record->monotonic_ms,
		.slot = record->slot,
		.first_ms = record->unix_ms,
	};

	gap.counts[reason] = record->sources;
	return gap;
}

static void write_payload(struct buf *out, const struct gap *gap)
{
	char first[CLOCK_RFC3339_LEN + 1], last[CLOCK_RFC3339_LEN + 1];
	const uint64_t evicted = gap->counts[GAP_QUEUE_EVICTION];
	const uint64_t failed = gap->counts[GAP_PUBLISH_FAILURE];
	const uint64_t full = gap->counts[GAP_JOURNAL_FULL];

	clock_format(gap->first_ms, first);
	clock_format(gap->unix_ms, last);
	(void)buf_lit(out, "{");
	(void)json_write_member_int(out, SLICE("droppedEvents"),
				    (int64_t)(evicted + failed + full));
	(void)json_write_key(out, SLICE("reasonCounts"));
	/* All five of Buzz, whose readers may want them all. */
	(void)buf_lit(out, "{");
	(void)json_write_member_int(out, SLICE("replayBufferOverflow"), 0);
	(void)json_write_member_int(out, SLICE("publishQueueEviction"), (int64_t)evicted);
	(void)json_write_member_int(out, SLICE("broadcastLag"), 0);
	(void)json_write_member_int(out, SLICE("publishFailure"), (int64_t)failed);
	(void)json_write_member_int(out, SLICE("relayQueueEviction"), 0);
	if (full)
		(void)json_write_member_int(out, SLICE("journal_full"), (int64_t)full);
	(void)buf_lit(out, "}");
	(void)json_write_member_string(out, SLICE("firstObservedAt"), slice_of(first));
	(void)json_write_member_string(out, SLICE("lastObservedAt"), slice_of(last));
	(void)json_write_member_string(out, SLICE("scope"),
				       gap->folded ? SLICE("publisher_global")
						   : SLICE("channel"));
	(void)buf_lit(out, "}");
}

struct pack_item gap_write(const struct gap *gap, const struct uuid *channel,
			   struct buf *out)
{
	static const struct slice kind = SLICE_INIT("observer_telemetry_gap");
	char timestamp[CLOCK_RFC3339_LEN + 1];
	struct observer_event event = {
		.seq = gap->seq,
		.monotonic_ms = gap->monotonic_ms,
		.timestamp = {timestamp, CLOCK_RFC3339_LEN},
		.kind = kind,
		.agent_index = gap->slot,
		.channel_id = uuid_slice(channel),
	};
	struct pack_item item;

	clock_format(gap->unix_ms, timestamp);
	buf_clear(out);
	(void)observer_event_write_header(out, &event);
	item.header_len = (uint32_t)out->len;
	item.kind_at = (uint32_t)slice_find_slice(buf_slice(out), kind) - 1;
	item.kind_len = (uint32_t)kind.len + 2;
	(void)buf_lit(out, ",\"payload\":");
	write_payload(out, gap);
	(void)buf_lit(out, "}");
	assert(buf_ok(out));
	item.text = buf_slice(out);
	return item;
}
