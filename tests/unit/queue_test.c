#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/queue.h"
#include "tests/unit/support/support.h"
#include "wire/base/clock.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"

/* ---- the naive model: design §5 with arrays, scans and printf; shares no code ---- */

#define CHANNELS 5
#define CHANNELLESS (-1)
#define WAITING_MAX 8192

struct m_event { /* also a gap: kind "observer_telemetry_gap" */
	uint64_t seq, arrival, merged;
	int64_t ms, first_ms, mono;
	int channel, slot, session, urgency; /* a gap's urgency is none of the queue's */
	bool is_gap, is_chunk;
	const char *kind, *extra;
	uint64_t evicted, failed, full; /* of a gap */
	char *payload; /* of a chunk: up to its text, NULL text follows */
	char *text, *rest;
};

struct m_picked {
	int channel;
	uint64_t sources;
	struct m_event gap, loss; /* seq 0: none */
};

#define DEFERRED_MAX 512

struct model {
	struct m_event waiting[WAITING_MAX]; /* by seq inside a channel */
	size_t count;
	int streak;
	bool defers;                       /* there is a journal that takes frames */
	char *deferred_text[DEFERRED_MAX]; /* since the last comparison */
	struct m_picked deferred[DEFERRED_MAX];
	size_t deferred_count;
	uint64_t ingested, published, dropped, in_flight, deferred_sources;
};

static const char *m_uuid(int channel)
{
	static char text[CHANNELS][UUID_LEN + 1];

	(void)snprintf(text[channel], sizeof(text[channel]),
		       "00000000-0000-4000-8000-%012d", channel);
	return text[channel];
}

static char *m_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *m_printf(const char *fmt, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, fmt);
	ck_assert_int_ge(vasprintf(&text, fmt, args), 0);
	va_end(args);
	return text;
}

/* Texts are written into @out of M_TEXT_MAX bytes; returns their length. */
#define M_TEXT_MAX (4 * FRAME_PACK_MAX)

static size_t m_header(const struct m_event *e, const char *kind, char *out)
{
	char stamp[CLOCK_RFC3339_LEN + 1], channel[64] = "null", session[16] = "null";

	clock_format(e->ms, stamp);
	if (e->channel != CHANNELLESS)
		(void)snprintf(channel, sizeof(channel), "\"%s\"", m_uuid(e->channel));
	if (!e->is_gap)
		(void)snprintf(session, sizeof(session), "\"s%d\"", e->session);
	return (size_t)snprintf(out, M_TEXT_MAX,
				"{\"seq\":%" PRIu64 ",\"monotonicMs\":%" PRId64
				",\"timestamp\":\"%s\",\"kind\":\"%s\",\"agentIndex\":%d,"
				"\"channelId\":%s,\"sessionId\":%s,\"turnId\":null",
				e->seq, e->mono, stamp, kind, e->slot, channel, session);
}

static size_t m_write(const struct m_event *e, char *out)
{
	char first[CLOCK_RFC3339_LEN + 1], last[CLOCK_RFC3339_LEN + 1], mark[40] = "";
	char full[40] = "";
	size_t at = m_header(e, e->kind, out);

	if (e->merged > 1)
		(void)snprintf(mark, sizeof(mark), ",\"merged\":%" PRIu64, e->merged);
	clock_format(e->first_ms, first);
	clock_format(e->ms, last);
	if (e->full)
		(void)snprintf(full, sizeof(full), ",\"journal_full\":%" PRIu64, e->full);
	if (e->is_gap)
		return at +
		       (size_t)snprintf(
			       out + at, M_TEXT_MAX - at,
			       ",\"payload\":{\"droppedEvents\":%" PRIu64
			       ",\"reasonCounts\":{\"replayBufferOverflow\":0,"
			       "\"publishQueueEviction\":%" PRIu64 ",\"broadcastLag\":0,"
			       "\"publishFailure\":%" PRIu64
			       ",\"relayQueueEviction\":0%s},"
			       "\"firstObservedAt\":\"%s\",\"lastObservedAt\":\"%s\","
			       "\"scope\":\"channel\"}}",
			       e->evicted + e->failed + e->full, e->evicted, e->failed,
			       full, first, last);
	return at + (size_t)snprintf(out + at, M_TEXT_MAX - at,
				     "%s%s,\"payload\":%s%s%s}", mark, e->extra,
				     e->payload, e->text, e->rest);
}

static void m_free(struct m_event *e)
{
	free(e->payload);
	free(e->text);
	free(e->rest);
}

static void m_remove(struct model *m, size_t at)
{
	m_free(&m->waiting[at]);
	memmove(&m->waiting[at], &m->waiting[at + 1],
		(--m->count - at) * sizeof(*m->waiting));
}

static struct m_event *m_last_of(struct model *m, int channel)
{
	for (size_t i = m->count; i-- > 0;)
		if (m->waiting[i].channel == channel)
			return &m->waiting[i];
	return NULL;
}

/* Takes @e over. */
static void m_put(struct model *m, struct m_event *e)
{
	struct m_event *open = m_last_of(m, e->channel), joined;
	const struct m_event *barrier = m_last_of(m, CHANNELLESS);
	char text[M_TEXT_MAX];

	m->ingested++;
	if (e->is_chunk && open && open->is_chunk && !strcmp(open->kind, e->kind) &&
	    (!barrier || barrier->seq < open->arrival) && open->slot == e->slot &&
	    open->session == e->session && !strcmp(open->extra, e->extra) &&
	    !strcmp(open->payload, e->payload) && !strcmp(open->rest, e->rest)) {
		joined = *open;
		joined.seq = e->seq;
		joined.ms = joined.first_ms = e->ms;
		joined.mono = e->mono;
		joined.merged++;
		joined.text = m_printf("%s%s", open->text, e->text);
		if (m_write(&joined, text) <= FRAME_MERGE_MAX) {
			free(open->text);
			*open = joined;
			m_free(e);
			return;
		}
		free(joined.text);
	}
	ck_assert_uint_lt(m->count, WAITING_MAX);
	m->waiting[m->count++] = *e;
}

static size_t m_append(char *out, size_t len, const char *text)
{
	return (size_t)snprintf(out + len, M_TEXT_MAX - len, "%s", text);
}

/* The frame of the waiting events at @at. */
static size_t m_frame(struct model *m, const size_t *at, size_t count, char *out)
{
	size_t len;

	if (count == 1)
		return m_write(&m->waiting[at[0]], out);
	len = m_header(&m->waiting[at[count - 1]], "batch", out);
	len += m_append(out, len, ",\"payload\":{\"events\":[");
	for (size_t i = 0; i < count; i++) {
		len += m_append(out, len, i ? "," : "");
		len += m_write(&m->waiting[at[i]], out + len);
	}
	return len + m_append(out, len, "]}}");
}

#define ANY (-1)
#define NO_GAP (-2)
#define ANY_CHANNEL (-2)
#define NO_CHANNEL (-3)

static bool m_wants(const struct m_event *e, int urgency)
{
	return urgency == ANY || (urgency == NO_GAP ? !e->is_gap : e->urgency == urgency);
}

/* Index of the oldest before @before of that urgency in that channel, or count. */
static size_t m_oldest(const struct model *m, uint64_t before, int urgency, int channel,
		       int not_channel)
{
	size_t found = m->count;

	for (size_t i = 0; i < m->count; i++) {
		const struct m_event *e = &m->waiting[i];

		if (e->arrival < before && m_wants(e, urgency) &&
		    (channel == ANY_CHANNEL ? e->channel != CHANNELLESS
					    : e->channel == channel) &&
		    e->channel != not_channel &&
		    (found == m->count || e->arrival < m->waiting[found].arrival))
			found = i;
	}
	return found;
}

/* Greedily the events of @channel before @before, in order, until the next would pass the
 * limit. Returns how many; @at: where they are. */
static size_t m_greedy(struct model *m, int channel, uint64_t before, int urgency,
		       size_t at[PACK_ITEMS_MAX])
{
	char frame[M_TEXT_MAX];
	size_t count = 0;

	for (size_t i = 0; i < m->count; i++) {
		if (m->waiting[i].channel != channel || m->waiting[i].arrival > before ||
		    !m_wants(&m->waiting[i], urgency))
			continue;
		at[count] = i;
		if (m_frame(m, at, count + 1, frame) > FRAME_PACK_MAX && count)
			break;
		count++;
	}
	return count;
}

static void m_add_gap(struct model *m, int channel, const struct m_event *more)
{
	struct m_event sum = *more;
	size_t at = 0;

	sum.channel = channel;
	for (size_t i = 0; i < m->count; i++) {
		const struct m_event *old = &m->waiting[i];

		if (!old->is_gap || old->channel != channel)
			continue;
		sum = old->seq > more->seq ? *old : sum;
		sum.evicted = old->evicted + more->evicted;
		sum.failed = old->failed + more->failed;
		sum.full = old->full + more->full;
		sum.first_ms =
			old->first_ms < more->first_ms ? old->first_ms : more->first_ms;
		m_remove(m, i);
		break;
	}
	/* In the place of the last event that it stands for. */
	for (size_t i = 0; i < m->count; i++)
		if (m->waiting[i].channel == channel && m->waiting[i].seq < sum.seq)
			at = i + 1;
	memmove(&m->waiting[at + 1], &m->waiting[at], (m->count++ - at) * sizeof(sum));
	m->waiting[at] = sum;
}

static struct m_event m_gap_of(const struct m_event *e)
{
	return (struct m_event){.seq = e->seq,
				.arrival = e->seq,
				.ms = e->ms,
				.first_ms = e->ms,
				.mono = e->mono,
				.slot = e->slot,
				.is_gap = true,
				.urgency = 9,
				.kind = "observer_telemetry_gap",
				.extra = ""};
}

/* Counts the waiting events at @at in @picked and takes them out. */
static void m_take(struct model *m, const size_t *at, size_t count,
		   struct m_picked *picked)
{
	int64_t first_ms = 0;

	for (size_t i = 0; i < count; i++) {
		const struct m_event *e = &m->waiting[at[i]];

		if (e->is_gap) {
			picked->gap = *e;
			continue;
		}
		first_ms = picked->sources ? first_ms : e->ms;
		picked->sources += e->merged;
		picked->loss = m_gap_of(e);
		picked->loss.first_ms = first_ms;
		picked->loss.failed = picked->sources;
	}
	for (size_t i = count; i-- > 0;)
		m_remove(m, at[i]);
}

/* The events at @at leave later, as a frame of their own. */
static void m_keep(struct model *m, int channel, const size_t *at, size_t count)
{
	char *text = mem_alloc(M_TEXT_MAX);
	struct m_picked picked = {.channel = channel};

	ck_assert_uint_lt(m->deferred_count, DEFERRED_MAX);
	(void)m_frame(m, at, count, text);
	m_take(m, at, count, &picked);
	m->deferred_sources += picked.sources;
	m->deferred_text[m->deferred_count] = text;
	m->deferred[m->deferred_count++] = picked;
}

/* Defers the oldest frame's worth of plain events; false if there is nothing to defer. */
static bool m_defer(struct model *m)
{
	const size_t oldest =
		m_oldest(m, UINT64_MAX, QUEUE_PLAIN, ANY_CHANNEL, NO_CHANNEL);
	size_t at[PACK_ITEMS_MAX], count;
	int channel;

	if (!m->defers || oldest == m->count)
		return false;
	channel = m->waiting[oldest].channel;
	count = m_greedy(m, channel, UINT64_MAX, QUEUE_PLAIN, at);
	m_keep(m, channel, at, count);
	return true;
}

/* "its predecessors beyond the last 65,340 bytes are deferred" */
static void m_defer_before(struct model *m, int channel, uint64_t arrival)
{
	size_t at[PACK_ITEMS_MAX], bytes = 0, count;
	char text[M_TEXT_MAX];

	for (size_t i = 0; i < m->count; i++) {
		const struct m_event *e = &m->waiting[i];

		if (e->channel == channel && e->arrival < arrival)
			bytes += e->is_gap ? 2048 : m_write(e, text) + 1;
	}
	while (m->defers && bytes > FRAME_PACK_MAX) {
		count = m_greedy(m, channel, arrival - 1, ANY, at);
		for (size_t i = 0; i < count; i++)
			bytes -= m_write(&m->waiting[at[i]], text) + 1;
		m_keep(m, channel, at, count);
	}
}

/* Drops a frame's worth of events of that urgency (or NO_GAP); false if there are none.
 */
static bool m_shed(struct model *m, int urgency)
{
	const size_t oldest = m_oldest(m, UINT64_MAX, urgency, ANY_CHANNEL, NO_CHANNEL);
	size_t at[PACK_ITEMS_MAX], count;
	int channel;

	if (oldest == m->count)
		return false;
	channel = m->waiting[oldest].channel;
	count = m_greedy(m, channel, UINT64_MAX, urgency, at);
	for (size_t i = 0; i < count; i++) {
		/* Found again each time: adding a gap moves things. */
		const size_t next = m_oldest(m, UINT64_MAX, urgency, channel, NO_CHANNEL);
		struct m_event gap = m_gap_of(&m->waiting[next]);

		gap.evicted = m->waiting[next].merged;
		m->dropped += gap.evicted;
		m_remove(m, next);
		m_add_gap(m, channel, &gap);
	}
	return true;
}

/* Design §5, "Selection". 0 when nothing waits, else the length of the frame. */
static size_t m_pick(struct model *m, struct m_picked *picked, char *frame)
{
	const size_t oldest_less = m_oldest(m, UINT64_MAX, ANY, CHANNELLESS, NO_CHANNEL);
	const uint64_t barrier =
		oldest_less < m->count ? m->waiting[oldest_less].arrival : UINT64_MAX;
	const size_t head = m_oldest(m, UINT64_MAX, ANY, ANY_CHANNEL, NO_CHANNEL);
	size_t at[PACK_ITEMS_MAX], count, urgent, other;
	uint64_t before = barrier;
	size_t len;

	if (!m->count)
		return 0;
	*picked = (struct m_picked){0};
	if (head == m->count || barrier < m->waiting[head].arrival) {
		picked->channel = CHANNELLESS;
		before = head == m->count ? UINT64_MAX : m->waiting[head].arrival;
	} else {
		urgent = m_oldest(m, barrier, QUEUE_PERMISSION, ANY_CHANNEL, NO_CHANNEL);
		if (urgent == m->count)
			urgent = m_oldest(m, barrier, QUEUE_URGENT, ANY_CHANNEL,
					  NO_CHANNEL);
		other = m_oldest(m, barrier, ANY, ANY_CHANNEL,
				 urgent < m->count ? m->waiting[urgent].channel
						   : NO_CHANNEL);
		if (urgent < m->count && (m->streak < 2 || other == m->count)) {
			picked->channel = m->waiting[urgent].channel;
			m->streak += other < m->count;
			m_defer_before(m, picked->channel, m->waiting[urgent].arrival);
		} else {
			picked->channel = m->waiting[other].channel;
			m->streak = 0;
		}
	}
	count = m_greedy(m, picked->channel, before, ANY, at);
	len = m_frame(m, at, count, frame);
	m_take(m, at, count, picked);
	m->in_flight += picked->sources;
	if (!m->count)
		m->streak = 0;
	return len;
}

static uint64_t m_waiting(const struct model *m)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < m->count; i++)
		sum += m->waiting[i].is_gap ? 0 : m->waiting[i].merged;
	return sum;
}

/* ---- both side by side ---- */

#define IN_FLIGHT 3

struct flight {
	struct queue_frame real;
	struct m_picked naive;
	size_t bytes;
};

struct pair {
	struct queue *queue;
	struct model *model;
	size_t budget;
	unsigned seed, random;
	uint64_t seq;
	int64_t ms, mono;
	struct flight flights[IN_FLIGHT];
	size_t flight_count;
	uint64_t last_seq[CHANNELS + 1]; /* sent, by channel + 1 */
	struct buf frame;
	/* What was deferred since the last comparison, and what waits for its OK. */
	char *taken_text[DEFERRED_MAX];
	struct queue_frame taken[DEFERRED_MAX];
	size_t taken_count;
	struct flight deferred[DEFERRED_MAX];
	size_t deferred_count;
};

static bool may(void *ctx)
{
	const struct pair *pair = ctx;

	return pair->model->defers;
}

static void take(void *ctx, struct slice text, const struct queue_frame *content)
{
	struct pair *pair = ctx;

	ck_assert_uint_lt(pair->taken_count, DEFERRED_MAX);
	pair->taken_text[pair->taken_count] = mem_dup(text);
	pair->taken[pair->taken_count++] = *content;
}

static unsigned roll(struct pair *pair, unsigned sides)
{
	pair->random = pair->random * 1103515245u + 12345u;
	return (pair->random >> 8) % sides;
}

static void pair_init(struct pair *pair, unsigned seed)
{
	*pair = (struct pair){
		.seed = seed, .random = seed, .ms = 1767225600000, .mono = 7};
	pair->budget = 300000 + roll(pair, 3) * 400000;
	pair->queue = queue_create(pair->budget);
	pair->model = mem_alloc(sizeof(*pair->model));
	pair->model->defers = seed % 2 == 0;
	queue_set_deferral(pair->queue, &(struct queue_deferral){may, take, pair});
	buf_init(&pair->frame, FRAME_PACK_MAX);
}

static void pair_finish(struct pair *pair)
{
	queue_destroy(pair->queue);
	while (pair->model->count)
		m_remove(pair->model, pair->model->count - 1);
	free(pair->model);
	buf_finish(&pair->frame);
}

/* The same frames were deferred, in the same order; from now on they wait to be settled.
 */
static void compare_deferred(struct pair *pair)
{
	struct model *m = pair->model;

	ck_assert_uint_eq(pair->taken_count, m->deferred_count);
	for (size_t i = 0; i < pair->taken_count; i++) {
		struct flight *flight = &pair->deferred[pair->deferred_count++];

		ck_assert_uint_lt(pair->deferred_count, DEFERRED_MAX);
		ck_assert_msg(strcmp(pair->taken_text[i], m->deferred_text[i]) == 0,
			      "seed %u: deferred is\n%.200s, not\n%.200s", pair->seed,
			      pair->taken_text[i], m->deferred_text[i]);
		ck_assert_uint_eq(pair->taken[i].sources, m->deferred[i].sources);
		*flight =
			(struct flight){.real = pair->taken[i], .naive = m->deferred[i]};
		free(pair->taken_text[i]);
		free(m->deferred_text[i]);
	}
	pair->taken_count = m->deferred_count = 0;
}

/* When it is over the budget is the implementation's business, what goes then is not. */
static void follow_shedding(struct pair *pair)
{
	struct model *m = pair->model;
	const struct queue_ledger *ledger = queue_ledger(pair->queue);

	while (ledger->dropped > m->dropped || pair->taken_count > m->deferred_count)
		ck_assert_msg(m_defer(m) || m_shed(m, QUEUE_PLAIN) || m_shed(m, NO_GAP),
			      "seed %u: dropped what was not there", pair->seed);
	ck_assert_msg(ledger->dropped == m->dropped, "seed %u: not a frame's worth",
		      pair->seed);
	compare_deferred(pair);
}

static void check_ledger(const struct pair *pair)
{
	const struct queue_ledger *ledger = queue_ledger(pair->queue);

	ck_assert_msg(ledger->ingested == ledger->published + ledger->deferred +
						  ledger->dropped + ledger->waiting +
						  ledger->in_flight,
		      "seed %u: the ledger is wrong", pair->seed);
	ck_assert_uint_eq(ledger->ingested, pair->model->ingested);
	ck_assert_uint_eq(ledger->waiting, m_waiting(pair->model));
	ck_assert_uint_eq(ledger->in_flight, pair->model->in_flight);
	ck_assert_uint_eq(ledger->published, pair->model->published);
	ck_assert_uint_eq(ledger->deferred, pair->model->deferred_sources);
	ck_assert_msg(queue_memory(pair->queue) <= pair->budget,
		      "seed %u: over the budget", pair->seed);
}

static void put_both(struct pair *pair, struct m_event *e)
{
	char header[M_TEXT_MAX], *payload;
	const size_t header_len = m_header(e, e->kind, header);
	struct uuid uuid;
	struct queue_event event = {
		.seq = e->seq,
		.unix_ms = e->ms,
		.monotonic_ms = e->mono,
		.slot = e->slot,
		.urgency = (enum queue_urgency)e->urgency,
		.kind = slice_of(e->kind),
		.header = {header, header_len},
		.extra = slice_of(e->extra),
	};

	payload = m_printf("%s%s%s", e->payload, e->text, e->rest);
	event.payload = slice_of(payload);
	if (e->is_chunk)
		event.chunk =
			(struct slice){payload + strlen(e->payload), strlen(e->text)};
	if (e->channel != CHANNELLESS) {
		ck_assert(uuid_parse(slice_of(m_uuid(e->channel)), &uuid));
		event.channel = &uuid;
	}
	queue_put(pair->queue, &event);
	m_put(pair->model, e);
	free(payload);
	follow_shedding(pair);
}

static char *a_run(size_t len)
{
	char *text = mem_alloc(len + 1);

	memset(text, 'a', len);
	return text;
}

/* Most are small; some fill a frame, alone or with what waits, or pass it by a byte. */
static size_t random_payload_bytes(struct pair *pair, const struct m_event *e)
{
	struct model *m = pair->model;
	char frame[M_TEXT_MAX];
	size_t at[PACK_ITEMS_MAX], count = 0, bytes;
	const unsigned kind = roll(pair, 20);

	if (kind < 12)
		return roll(pair, 400);
	if (kind < 17)
		return roll(pair, 12000);
	m->waiting[m->count] = *e;
	if (kind > 17) /* what its channel's next frame already holds, it seems */
		count = m_greedy(m, e->channel, UINT64_MAX, ANY, at);
	at[count++] = m->count;
	bytes = m_frame(m, at, count, frame);
	if (bytes + 1 >= FRAME_PACK_MAX)
		return 5;
	/* Alone it must not pass the limit: the feed fits it. */
	return FRAME_PACK_MAX - bytes - 1 + roll(pair, count > 1 ? 3 : 2);
}

static void put_random(struct pair *pair)
{
	static const char *const extras[] = {"", "", ",\"repaired\":true"};
	const unsigned what = roll(pair, 40);
	struct m_event e = {
		.seq = ++pair->seq,
		.arrival = pair->seq,
		.merged = 1,
		.ms = pair->ms += roll(pair, 50),
		.mono = pair->mono += roll(pair, 50),
		.channel = (int)roll(pair, CHANNELS),
		.slot = (int)roll(pair, 12) / 11,
		.kind = "acp_read",
		.extra = "",
	};
	size_t bytes;

	e.first_ms = e.ms;
	e.payload = mem_dup(SLICE(""));
	e.text = mem_dup(SLICE(""));
	e.rest = mem_dup(SLICE(""));
	if (what == 0)
		e.channel = CHANNELLESS;
	if (what < 4)
		e.urgency = QUEUE_URGENT + (int)roll(pair, 2);
	if (what == 4)
		e.session = 1;
	if (what == 5)
		e.kind = "turn_liveness";
	bytes = random_payload_bytes(pair, &e);
	free(e.payload);
	e.payload = a_run(bytes);
	if (what > 15) {
		e.is_chunk = true;
		e.channel = (int)roll(pair, 2);
		e.extra = extras[roll(pair, 3)];
		free(e.text);
		e.text = e.payload;
		e.payload = mem_dup(SLICE("{\"x\":\""));
		if (bytes > 32) /* what is added here must not pass the limit either */
			e.text[bytes - 32] = '\0';
		free(e.rest);
		e.rest = mem_dup(roll(pair, 8) ? SLICE("\"}") : SLICE("\"} "));
	}
	put_both(pair, &e);
}

/* seq rises inside a channel; but for gaps of frames that were lost after later ones
 * left. */
static void check_order(struct pair *pair, const struct m_picked *picked)
{
	uint64_t *last = &pair->last_seq[picked->channel + 1];
	struct slice rest = buf_slice(&pair->frame), header;
	size_t at;

	if (slice_find_slice(rest, SLICE("\"kind\":\"batch\"")) < 120)
		rest = slice_sub(rest, 1, rest.len);
	while ((at = slice_find_slice(rest, SLICE("{\"seq\":"))) < rest.len) {
		const uint64_t seq = strtoull(rest.ptr + at + 7, NULL, 10);

		rest = slice_sub(rest, at + 7, rest.len);
		header = slice_sub(rest, 0, 120);
		if (slice_find_slice(header, SLICE("_gap")) < header.len)
			continue;
		ck_assert_msg(seq > *last, "seed %u: seq falls", pair->seed);
		*last = seq;
	}
}

static void pick_both(struct pair *pair)
{
	struct flight *flight = &pair->flights[pair->flight_count];
	char naive[M_TEXT_MAX];
	const size_t naive_len = m_pick(pair->model, &flight->naive, naive);
	bool picked;

	buf_clear(&pair->frame);
	picked = queue_pack(pair->queue, FRAME_PACK_MAX, &pair->frame, &flight->real);
	ck_assert_msg(picked == (naive_len > 0), "seed %u: something waits", pair->seed);
	if (!picked)
		return;
	ck_assert_msg(
		slice_eq(buf_slice(&pair->frame), ((struct slice){naive, naive_len})),
		"seed %u: the frame is\n%.200s, not\n%.200s", pair->seed,
		buf_text(&pair->frame), naive);
	ck_assert_uint_eq(flight->real.sources, flight->naive.sources);
	check_order(pair, &flight->naive);
	flight->bytes = pair->frame.len;
	pair->flight_count++;
	compare_deferred(pair);
	queue_hold(pair->queue, flight->bytes);
	follow_shedding(pair);
}

static void settle_both(struct pair *pair, size_t at, bool published)
{
	const struct flight flight = pair->flights[at];
	struct model *m = pair->model;
	const int channel =
		flight.naive.channel == CHANNELLESS ? 0 : flight.naive.channel;
	struct uuid fallback;

	pair->flights[at] = pair->flights[--pair->flight_count];
	queue_release(pair->queue, flight.bytes);
	m->in_flight -= flight.naive.sources;
	if (published) {
		queue_published(pair->queue, &flight.real);
		m->published += flight.naive.sources;
		return;
	}
	ck_assert(uuid_parse(slice_of(m_uuid(0)), &fallback));
	queue_lost(pair->queue, &flight.real, &fallback);
	m->dropped += flight.naive.sources;
	if (flight.naive.gap.seq)
		m_add_gap(m, channel, &flight.naive.gap);
	if (flight.naive.sources)
		m_add_gap(m, channel, &flight.naive.loss);
	follow_shedding(pair);
}

/* A deferred frame was sent and has its OK, or the journal lost it. */
static void settle_deferred(struct pair *pair, size_t at, bool published)
{
	struct flight flight = pair->deferred[at];
	struct model *m = pair->model;
	struct uuid fallback;

	pair->deferred[at] = pair->deferred[--pair->deferred_count];
	m->deferred_sources -= flight.naive.sources;
	if (published) {
		queue_deferred_published(pair->queue, &flight.real);
		m->published += flight.naive.sources;
		return;
	}
	ck_assert(uuid_parse(slice_of(m_uuid(0)), &fallback));
	queue_deferred_lost(pair->queue, &flight.real, &fallback, GAP_JOURNAL_FULL);
	m->dropped += flight.naive.sources;
	if (flight.naive.gap.seq)
		m_add_gap(m, flight.naive.channel, &flight.naive.gap);
	flight.naive.loss.full = flight.naive.loss.failed;
	flight.naive.loss.failed = 0;
	if (flight.naive.sources)
		m_add_gap(m, flight.naive.channel, &flight.naive.loss);
	follow_shedding(pair);
}

static void settle_random(struct pair *pair)
{
	const size_t at = roll(pair, (unsigned)pair->flight_count);

	settle_both(pair, at, roll(pair, 4) > 0);
}

/* Any events, sizes around the limits, frames published or lost in any order: the same
 * frames byte for byte as the naive model's, and a ledger that is true after every step.
 */
START_TEST(queue_and_naive_model_send_the_same_frames)
{
	struct pair pair;

	pair_init(&pair, (unsigned)_i + 1);
	for (int step = 0; step < 250; step++) {
		/* The disk may fill up and be freed again. */
		if (pair.seed % 4 == 0 && !roll(&pair, 40))
			pair.model->defers = !pair.model->defers;
		if (pair.deferred_count && !roll(&pair, 12))
			settle_deferred(&pair, roll(&pair, (unsigned)pair.deferred_count),
					roll(&pair, 3) > 0);
		else if (pair.flight_count == IN_FLIGHT ||
			 (pair.flight_count && !roll(&pair, 9)))
			settle_random(&pair);
		else if (roll(&pair, 12) == 0)
			pick_both(&pair);
		else
			put_random(&pair);
		check_ledger(&pair);
	}
	while (!queue_is_empty(pair.queue) || pair.deferred_count) {
		if (pair.deferred_count)
			settle_deferred(&pair, 0, roll(&pair, 3) > 0);
		else if (pair.flight_count == IN_FLIGHT)
			settle_random(&pair);
		else
			pick_both(&pair);
		check_ledger(&pair);
	}
	pair_finish(&pair);
}
END_TEST

/* ---- single rules ---- */

static struct pair rules;

static void rules_setup(void)
{
	pair_init(&rules, 1);
}

static void rules_teardown(void)
{
	pair_finish(&rules);
}

static uint64_t put(int channel, int urgency, const char *payload)
{
	struct m_event e = {
		.seq = ++rules.seq,
		.arrival = rules.seq,
		.merged = 1,
		.ms = rules.ms,
		.first_ms = rules.ms,
		.mono = rules.mono,
		.channel = channel,
		.urgency = urgency,
		.kind = "acp_read",
		.extra = "",
		.payload = mem_dup(slice_of(payload)),
		.text = mem_dup(SLICE("")),
		.rest = mem_dup(SLICE("")),
	};

	put_both(&rules, &e);
	return rules.seq;
}

static void put_chunk(int channel, const char *extra, const char *before,
		      size_t text_bytes)
{
	struct m_event e = {
		.seq = ++rules.seq,
		.arrival = rules.seq,
		.merged = 1,
		.ms = rules.ms,
		.first_ms = rules.ms,
		.mono = rules.mono,
		.channel = channel,
		.is_chunk = true,
		.kind = "acp_read",
		.extra = extra,
		.payload = mem_dup(slice_of(before)),
		.text = a_run(text_bytes),
		.rest = mem_dup(SLICE("\"}")),
	};

	put_both(&rules, &e);
}

static void put_large(int channel)
{
	char *text = a_run(40000);

	(void)put(channel, QUEUE_PLAIN, text);
	free(text);
}

/* The seqs of the next frame, "1 2 3", which the model must send as well. */
static const char *next_frame(void)
{
	static char seqs[512];
	struct slice rest;
	size_t at, len = 0;

	if (rules.flight_count)
		settle_both(&rules, 0, true);
	pick_both(&rules);
	rest = buf_slice(&rules.frame);
	if (slice_find_slice(rest, SLICE("\"kind\":\"batch\"")) < 120)
		rest = slice_sub(rest, 1, rest.len);
	seqs[0] = '\0';
	while ((at = slice_find_slice(rest, SLICE("{\"seq\":"))) < rest.len) {
		rest = slice_sub(rest, at + 7, rest.len);
		len += (size_t)snprintf(seqs + len, sizeof(seqs) - len, "%s%" PRIu64,
					len ? " " : "",
					(uint64_t)strtoull(rest.ptr, NULL, 10));
	}
	return seqs;
}

START_TEST(frame_holds_events_of_one_channel_in_order)
{
	(void)put(0, QUEUE_PLAIN, "1");
	(void)put(1, QUEUE_PLAIN, "2");
	(void)put(0, QUEUE_PLAIN, "3");
	ck_assert_str_eq(next_frame(), "1 3");
	ck_assert_str_eq(next_frame(), "2");
}
END_TEST

START_TEST(oldest_head_leaves_first)
{
	put_large(2);
	put_large(2);
	(void)put(1, QUEUE_PLAIN, "3");
	ck_assert_str_eq(next_frame(), "1");
	ck_assert_str_eq(next_frame(), "2");
	ck_assert_str_eq(next_frame(), "3");
}
END_TEST

START_TEST(urgent_event_picks_its_channel_with_what_came_before_it)
{
	(void)put(0, QUEUE_PLAIN, "1");
	(void)put(1, QUEUE_PLAIN, "2");
	(void)put(1, QUEUE_URGENT, "3");
	ck_assert_str_eq(next_frame(), "2 3");
	ck_assert_str_eq(next_frame(), "1");
}
END_TEST

START_TEST(urgent_event_waits_for_nothing_of_other_channels)
{
	put_large(0);
	put_large(2);
	put_large(0);
	(void)put(1, QUEUE_PLAIN, "4");
	(void)put(0, QUEUE_PLAIN, "5");
	(void)put(1, QUEUE_PERMISSION, "6");
	(void)put(1, QUEUE_PLAIN, "7");
	ck_assert_str_eq(next_frame(), "4 6 7");
	ck_assert_str_eq(next_frame(), "1");
}
END_TEST

START_TEST(permission_request_goes_before_other_urgent_kinds)
{
	(void)put(0, QUEUE_URGENT, "1");
	(void)put(1, QUEUE_PERMISSION, "2");
	ck_assert_str_eq(next_frame(), "2");
	ck_assert_str_eq(next_frame(), "1");
}
END_TEST

START_TEST(after_two_urgent_frames_another_channel_has_its_turn)
{
	(void)put(0, QUEUE_PLAIN, "1");
	for (int i = 0; i < 2; i++) {
		put_large(1);
		put_large(1);
	}
	(void)put(1, QUEUE_URGENT, "6");
	ck_assert_str_eq(next_frame(), "2");
	ck_assert_str_eq(next_frame(), "3");
	ck_assert_str_eq(next_frame(), "1");
	ck_assert_str_eq(next_frame(), "4");
	ck_assert_str_eq(next_frame(), "5 6");
}
END_TEST

START_TEST(streak_does_not_grow_when_nobody_else_waits)
{
	for (int i = 0; i < 5; i++)
		put_large(1);
	(void)put(1, QUEUE_URGENT, "6");
	for (int i = 0; i < 3; i++)
		(void)next_frame();
	(void)put(0, QUEUE_PLAIN, "7");
	ck_assert_str_eq(next_frame(), "4");
	ck_assert_str_eq(next_frame(), "5 6");
	ck_assert_str_eq(next_frame(), "7");
}
END_TEST

START_TEST(nothing_overtakes_a_channelless_event)
{
	(void)put(0, QUEUE_PLAIN, "1");
	(void)put(CHANNELLESS, QUEUE_PLAIN, "2");
	(void)put(CHANNELLESS, QUEUE_PLAIN, "3");
	(void)put(0, QUEUE_URGENT, "4");
	(void)put(CHANNELLESS, QUEUE_PLAIN, "5");
	ck_assert_str_eq(next_frame(), "1");
	ck_assert_str_eq(next_frame(), "2 3");
	ck_assert_str_eq(next_frame(), "4");
	ck_assert_str_eq(next_frame(), "5");
}
END_TEST

START_TEST(chunk_does_not_join_across_a_channelless_event)
{
	put_chunk(0, "", "{\"", 5);
	(void)put(CHANNELLESS, QUEUE_PLAIN, "2");
	put_chunk(0, "", "{\"", 5);
	ck_assert_uint_eq(queue_events(rules.queue), 3);
}
END_TEST

START_TEST(chunks_of_one_channel_become_one_event)
{
	for (int i = 0; i < 1000; i++) {
		put_chunk(0, "", "{\"t\":\"", 10);
		put_chunk(1, "", "{\"t\":\"", 3);
	}
	ck_assert_uint_eq(queue_events(rules.queue), 2);
	ck_assert_uint_eq(queue_ledger(rules.queue)->waiting, 2000);
	ck_assert_str_eq(next_frame(), "1999");
	ck_assert_uint_lt(
		slice_find_slice(buf_slice(&rules.frame), SLICE(",\"merged\":1000,")),
		rules.frame.len);
}
END_TEST

START_TEST(anything_else_in_the_channel_closes_the_open_event)
{
	put_chunk(0, "", "{\"", 5);
	(void)put(0, QUEUE_PLAIN, "2");
	put_chunk(0, "", "{\"", 5);
	put_chunk(0, "", "{ \"", 5); /* other bytes outside the text */
	put_chunk(0, ",\"repaired\":true", "{ \"", 5);
	ck_assert_uint_eq(queue_events(rules.queue), 5);
}
END_TEST

START_TEST(open_event_is_closed_by_being_picked)
{
	put_chunk(0, "", "{\"", 5);
	ck_assert_str_eq(next_frame(), "1");
	put_chunk(0, "", "{\"", 5);
	ck_assert_str_eq(next_frame(), "2");
}
END_TEST

/* Chunks of one byte, up to the byte that is one too many. */
START_TEST(merged_event_stays_within_60000_bytes)
{
	size_t bytes;

	put_chunk(0, "", "{\"t\":\"", 59000);
	put_chunk(0, "", "{\"t\":\"", 500);
	put_chunk(1, "", "{\"t\":\"", 59000);
	put_chunk(1, "", "{\"t\":\"", 500);
	(void)next_frame();
	bytes = rules.frame.len;
	ck_assert_uint_lt(bytes, FRAME_MERGE_MAX);
	put_chunk(1, "", "{\"t\":\"", FRAME_MERGE_MAX - bytes);
	ck_assert_uint_eq(queue_events(rules.queue), 1);
	put_chunk(1, "", "{\"t\":\"", 1);
	ck_assert_uint_eq(queue_events(rules.queue), 2);
	ck_assert_str_eq(next_frame(), "5 6");
}
END_TEST

/* What is remembered of the newest chunk's number is how far it is from the first's. */
START_TEST(chunk_far_behind_the_first_does_not_join)
{
	put_chunk(0, "", "{\"t\":\"", 1);
	rules.seq += UINT32_MAX - 2;
	put_chunk(0, "", "{\"t\":\"", 1);
	ck_assert_uint_eq(queue_events(rules.queue), 1);
	put_chunk(0, "", "{\"t\":\"", 1);
	ck_assert_uint_eq(queue_events(rules.queue), 2);
}
END_TEST

START_TEST(merging_grows_no_digits_wrong)
{
	rules.mono = 8;
	for (int i = 0; i < 120; i++) {
		rules.mono++;
		put_chunk(0, "", "{\"t\":\"", 1);
	}
	ck_assert_str_eq(next_frame(), "120");
}
END_TEST

START_TEST(frame_is_filled_to_the_last_byte_and_not_beyond)
{
	size_t alone, envelope;
	char *text;

	(void)put(0, QUEUE_PLAIN, "1");
	(void)put(0, QUEUE_PLAIN, "2");
	(void)next_frame();
	alone = rules.frame.len;
	for (int over = 0; over < 2; over++) {
		text = a_run(FRAME_PACK_MAX - alone + 1 + (size_t)over);
		(void)put(1, QUEUE_PLAIN, "3");
		(void)put(1, QUEUE_PLAIN, text);
		free(text);
		envelope = strlen(next_frame());
		ck_assert_uint_eq(envelope, over ? 1 : 3);
		ck_assert(over || rules.frame.len == FRAME_PACK_MAX);
		(void)next_frame();
	}
}
END_TEST

START_TEST(over_the_budget_the_oldest_frames_worth_becomes_a_gap)
{
	const struct queue_ledger *ledger = queue_ledger(rules.queue);

	(void)put(1, QUEUE_PLAIN, "1");
	while (!ledger->dropped)
		put_large(0);
	ck_assert_str_eq(next_frame(), "1");
	ck_assert_uint_lt(slice_find_slice(buf_slice(&rules.frame), SLICE("_gap\"")),
			  rules.frame.len);
	check_ledger(&rules);
}
END_TEST

START_TEST(urgent_events_are_spared_and_leave_before_the_gap_behind_them)
{
	const struct queue_ledger *ledger = queue_ledger(rules.queue);

	(void)put(0, QUEUE_URGENT, "1");
	while (ledger->dropped < 3)
		put_large(0);
	ck_assert_str_eq(next_frame(), "1 4 5");
}
END_TEST

START_TEST(flood_of_urgent_events_is_bounded_too)
{
	char *text = a_run(30000);

	for (int i = 0; i < 200; i++) {
		(void)put(i % 2, QUEUE_PERMISSION, text);
		check_ledger(&rules);
	}
	free(text);
	ck_assert_uint_gt(queue_ledger(rules.queue)->dropped, 0);
}
END_TEST

START_TEST(flood_of_channels_is_bounded_and_every_event_accounted_for)
{
	struct queue *queue = queue_create(65536);
	const struct queue_ledger *ledger = queue_ledger(queue);
	uint64_t reported = 0;
	struct queue_frame info;
	struct uuid uuid;

	for (uint64_t i = 1; i <= 5000; i++) {
		const struct slice header =
			SLICE("{\"seq\":1,\"monotonicMs\":1,\"timestamp\":"
			      "\"2026-11-30T08:00:00.000Z\",\"kind\":\"x\"");
		struct queue_event event = {.seq = i,
					    .channel = &uuid,
					    .kind = SLICE_INIT("x"),
					    .header = header,
					    .payload = SLICE_INIT("1")};

		(void)snprintf(uuid.text, sizeof(uuid.text),
			       "00000000-0000-4000-8000-%012d", (int)i);
		queue_put(queue, &event);
		ck_assert_uint_le(queue_memory(queue), 65536);
	}
	while (queue_pack(queue, FRAME_PACK_MAX, &rules.frame, &info)) {
		reported += info.gap.counts[GAP_QUEUE_EVICTION];
		queue_published(queue, &info);
		buf_clear(&rules.frame);
	}
	ck_assert_uint_eq(ledger->published + reported, 5000);
	ck_assert_uint_eq(ledger->dropped, reported);
	ck_assert_uint_gt(ledger->published, 0);
	queue_destroy(queue);
}
END_TEST

/* A short event of channel @number, with its seq where a frame of one shows it. */
static void put_short(struct queue *queue, uint64_t seq, int number)
{
	char header[128];
	struct uuid uuid;
	struct queue_event event = {.seq = seq,
				    .channel = &uuid,
				    .kind = SLICE_INIT("x"),
				    .header = {header, 0},
				    .payload = SLICE_INIT("1")};

	event.header.len =
		(size_t)snprintf(header, sizeof(header),
				 "{\"seq\":%" PRIu64 ",\"monotonicMs\":0,\"timestamp\":"
				 "\"2026-11-30T08:00:00.000Z\",\"kind\":\"x\"",
				 seq);
	(void)snprintf(uuid.text, sizeof(uuid.text), "00000000-0000-4000-8000-%012d",
		       number);
	queue_put(queue, &event);
}

#define MANY 1000

/* Whatever order channels fill in, each frame begins with the oldest event of all. */
START_TEST(of_a_thousand_channels_the_oldest_head_leaves_first)
{
	struct queue *queue = queue_create(AGENT_QUEUE_MAX);
	static int channel_of[4 * MANY + 1];
	static bool sent[4 * MANY + 2];
	uint64_t put_count = 0, oldest = 1;
	struct queue_frame info;

	memset(sent, 0, sizeof(sent));
	while (oldest <= 4 * MANY) {
		/* In turns more is put than leaves, and the other way round. */
		for (int i = 0; put_count < 4 * MANY && i < (int)roll(&rules, 40); i++) {
			channel_of[++put_count] = (int)roll(&rules, MANY);
			put_short(queue, put_count, channel_of[put_count]);
		}
		buf_clear(&rules.frame);
		if (!queue_pack(queue, 200 + roll(&rules, 2000), &rules.frame, &info))
			continue;
		queue_published(queue, &info);
		for (uint64_t seq = oldest, left = info.sources; left; seq++)
			if (channel_of[seq] == channel_of[oldest] && !sent[seq]) {
				sent[seq] = true;
				left--;
			}
		ck_assert_int_eq(strtol(info.channel.text + 24, NULL, 10),
				 channel_of[oldest]);
		while (sent[oldest])
			oldest++;
	}
	ck_assert(queue_is_empty(queue));
	ck_assert_uint_eq(queue_bytes(queue), 0);
	queue_destroy(queue);
}
END_TEST

START_TEST(what_is_kept_for_events_to_come_is_given_back_bit_by_bit)
{
	struct queue *queue = queue_create(AGENT_QUEUE_MAX);
	struct queue_frame info;
	uint64_t seq = 0;

	for (int i = 0; i < MANY; i++)
		put_short(queue, ++seq, i);
	while (queue_pack(queue, FRAME_PACK_MAX, &rules.frame, &info))
		buf_clear(&rules.frame);
	ck_assert_uint_eq(queue_bytes(queue), 0);
	ck_assert_uint_gt(queue_memory(queue), 1 << 20);
	for (int i = 0; i < MANY; i++) {
		put_short(queue, ++seq, 0);
		(void)queue_pack(queue, FRAME_PACK_MAX, &rules.frame, &info);
		buf_clear(&rules.frame);
	}
	ck_assert_uint_lt(queue_memory(queue), 600 << 10);
	queue_destroy(queue);
}
END_TEST

START_TEST(frames_in_flight_count_against_the_budget)
{
	put_large(0);
	queue_hold(rules.queue, rules.budget);
	follow_shedding(&rules);
	ck_assert_uint_eq(queue_ledger(rules.queue)->dropped, 1);
	queue_release(rules.queue, rules.budget);
	ck_assert_str_eq(next_frame(), "1");
}
END_TEST

START_TEST(with_a_journal_what_is_over_the_budget_is_deferred_not_dropped)
{
	const struct queue_ledger *ledger = queue_ledger(rules.queue);

	rules.model->defers = true;
	for (int i = 0; i < 40; i++)
		put_large(0);
	ck_assert_uint_eq(ledger->dropped, 0);
	ck_assert_uint_gt(ledger->deferred, 20);
	ck_assert_uint_eq(rules.deferred_count, ledger->deferred);
	while (rules.deferred_count)
		settle_deferred(&rules, 0, true);
	ck_assert_uint_eq(ledger->deferred, 0);
}
END_TEST

START_TEST(urgent_event_leaves_in_its_channel_s_second_frame_at_the_latest)
{
	rules.model->defers = true;
	for (int i = 0; i < 6; i++)
		put_large(0);
	(void)put(0, QUEUE_URGENT, "7");
	(void)put(0, QUEUE_PLAIN, "8");
	ck_assert_str_eq(next_frame(), "6 7 8");
	ck_assert_uint_eq(rules.deferred_count, 5);
}
END_TEST

START_TEST(without_a_journal_an_urgent_event_waits_its_turn)
{
	for (int i = 0; i < 3; i++)
		put_large(0);
	(void)put(0, QUEUE_URGENT, "4");
	ck_assert_str_eq(next_frame(), "1");
	ck_assert_str_eq(next_frame(), "2");
	ck_assert_str_eq(next_frame(), "3 4");
	ck_assert_uint_eq(rules.deferred_count, 0);
}
END_TEST

START_TEST(lost_frame_is_reported_once_with_what_it_would_have_told)
{
	struct queue_frame info;
	struct uuid uuid;

	ck_assert(uuid_parse(slice_of(m_uuid(0)), &uuid));
	for (int i = 0; i < 2; i++)
		(void)put(0, QUEUE_PLAIN, "x");
	ck_assert(queue_pack(rules.queue, FRAME_PACK_MAX, &rules.frame, &info));
	queue_lost(rules.queue, &info, &uuid);
	buf_clear(&rules.frame);
	ck_assert(queue_pack(rules.queue, FRAME_PACK_MAX, &rules.frame, &info));
	ck_assert_uint_eq(info.gap.counts[GAP_PUBLISH_FAILURE], 2);
	ck_assert_uint_eq(info.sources, 0);
	queue_lost(rules.queue, &info, &uuid);
	buf_clear(&rules.frame);
	ck_assert(queue_pack(rules.queue, FRAME_PACK_MAX, &rules.frame, &info));
	ck_assert_uint_eq(info.gap.counts[GAP_PUBLISH_FAILURE], 2);
	ck_assert_uint_lt(
		slice_find_slice(buf_slice(&rules.frame),
				 SLICE("{\"droppedEvents\":2,\"reasonCounts\":{"
				       "\"replayBufferOverflow\":0,"
				       "\"publishQueueEviction\":0,\"broadcastLag\":0,"
				       "\"publishFailure\":2,\"relayQueueEviction\":0}")),
		rules.frame.len);
	ck_assert(queue_is_empty(rules.queue));
	ck_assert_uint_eq(queue_ledger(rules.queue)->dropped, 2);
}
END_TEST

static Suite *queue_suite(void)
{
	Suite *suite = suite_create("queue");
	TCase *tcase = tcase_create("model"), *single = tcase_create("rules");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, queue_and_naive_model_send_the_same_frames, 0, 60);
	tcase_add_checked_fixture(single, rules_setup, rules_teardown);
	tcase_add_test(single, frame_holds_events_of_one_channel_in_order);
	tcase_add_test(single, oldest_head_leaves_first);
	tcase_add_test(single, urgent_event_picks_its_channel_with_what_came_before_it);
	tcase_add_test(single, urgent_event_waits_for_nothing_of_other_channels);
	tcase_add_test(single, permission_request_goes_before_other_urgent_kinds);
	tcase_add_test(single, after_two_urgent_frames_another_channel_has_its_turn);
	tcase_add_test(single, streak_does_not_grow_when_nobody_else_waits);
	tcase_add_test(single, nothing_overtakes_a_channelless_event);
	tcase_add_test(single, chunk_does_not_join_across_a_channelless_event);
	tcase_add_test(single, chunks_of_one_channel_become_one_event);
	tcase_add_test(single, anything_else_in_the_channel_closes_the_open_event);
	tcase_add_test(single, open_event_is_closed_by_being_picked);
	tcase_add_test(single, merged_event_stays_within_60000_bytes);
	tcase_add_test(single, chunk_far_behind_the_first_does_not_join);
	tcase_add_test(single, merging_grows_no_digits_wrong);
	tcase_add_test(single, frame_is_filled_to_the_last_byte_and_not_beyond);
	tcase_add_test(single, over_the_budget_the_oldest_frames_worth_becomes_a_gap);
	tcase_add_test(single,
		       urgent_events_are_spared_and_leave_before_the_gap_behind_them);
	tcase_add_test(single, flood_of_urgent_events_is_bounded_too);
	tcase_add_test(single,
		       flood_of_channels_is_bounded_and_every_event_accounted_for);
	tcase_add_test(single, of_a_thousand_channels_the_oldest_head_leaves_first);
	tcase_add_test(single, what_is_kept_for_events_to_come_is_given_back_bit_by_bit);
	tcase_add_test(single, frames_in_flight_count_against_the_budget);
	tcase_add_test(single,
		       with_a_journal_what_is_over_the_budget_is_deferred_not_dropped);
	tcase_add_test(single,
		       urgent_event_leaves_in_its_channel_s_second_frame_at_the_latest);
	tcase_add_test(single, without_a_journal_an_urgent_event_waits_its_turn);
	tcase_add_test(single, lost_frame_is_reported_once_with_what_it_would_have_told);
	suite_add_tcase(suite, tcase);
	suite_add_tcase(suite, single);
	return suite;
}

int main(void)
{
	return test_run(queue_suite());
}
