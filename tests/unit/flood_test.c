#include <inttypes.h>
#include <string.h>

#include "agent/feed.h"
#include "agent/queue.h"
#include "agent/reader.h"
#include "tests/unit/support/support.h"

/* Agents that print without end while no frame leaves: whatever it is, the queue holds
 * no more than its budget and every event is accounted for. Source: design §5, "Queue".
 */

static struct queue *queue;
static struct feed *feed;
static struct reader reader;
static struct buf line;
static struct uuid channel;

static void setup(void)
{
	queue = queue_create(AGENT_QUEUE_MAX);
	feed = feed_create(queue);
	reader_init(&reader, AGENT_LINE_MAX);
	buf_init(&line, 1 << 20);
	ck_assert(uuid_parse(SLICE("7b1f0c52-5a0e-4c9b-9f8e-3d2c6a41e0d7"), &channel));
}

static void teardown(void)
{
	buf_finish(&line);
	reader_finish(&reader);
	feed_destroy(feed);
	queue_destroy(queue);
}

static void assert_bounded(void)
{
	const struct queue_ledger *ledger = queue_ledger(queue);

	ck_assert_uint_le(queue_memory(queue), AGENT_QUEUE_MAX);
	ck_assert_uint_eq(ledger->ingested, ledger->published + ledger->deferred +
						    ledger->dropped + ledger->waiting +
						    ledger->in_flight);
}

static void on_line(void *ctx, struct slice text, size_t bytes)
{
	const struct feed_time now = {1796025600000, 0};
	const struct feed_context context = {.channel = &channel};
	struct acp_line scanned;

	(void)ctx;
	acp_line_scan(text, &scanned);
	(void)feed_line(feed, now, &context, FEED_READ, &scanned, bytes, SLICE_EMPTY,
			NULL);
	assert_bounded();
}

static void print(const char *start, uint64_t number, const char *rest)
{
	buf_clear(&line);
	(void)buf_printf(&line, "%s%" PRIu64 "%s\n", start, number, rest);
	reader_feed(&reader, buf_slice(&line), on_line, NULL);
}

START_TEST(flood_of_distinct_message_ids_stays_in_the_budget)
{
	for (uint64_t i = 0; i < 30000; i++)
		print("{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{"
		      "\"sessionId\":\"s\",\"update\":{\"sessionUpdate\":"
		      "\"agent_message_chunk\",\"messageId\":\"m",
		      i, "\",\"content\":{\"type\":\"text\",\"text\":\"a\"}}}}");
	ck_assert_uint_eq(queue_ledger(queue)->ingested, 30000);
	ck_assert_uint_gt(queue_ledger(queue)->dropped, 0);
}
END_TEST

/* Chunks of one message are joined: so many need no eviction at all. */
START_TEST(flood_of_chunks_of_one_message_loses_nothing)
{
	for (uint64_t i = 0; i < 30000; i++)
		print("{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{"
		      "\"sessionId\":\"s\",\"update\":{\"sessionUpdate\":"
		      "\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":"
		      "\"",
		      i, "\"}}}}");
	ck_assert_uint_eq(queue_ledger(queue)->waiting, 30000);
}
END_TEST

START_TEST(flood_of_permission_requests_stays_in_the_budget)
{
	for (uint64_t i = 0; i < 30000; i++)
		print("{\"jsonrpc\":\"2.0\",\"id\":", i,
		      ",\"method\":\"session/request_permission\",\"params\":{"
		      "\"sessionId\":\"s\",\"options\":[]}}");
	ck_assert_uint_eq(queue_ledger(queue)->ingested, 30000);
	ck_assert_uint_gt(queue_ledger(queue)->dropped, 0);
}
END_TEST

START_TEST(lines_of_64_mib_stay_in_the_budget_and_leave_no_memory_behind)
{
	const struct slice newline = SLICE("\n");
	static char piece[1 << 20];

	memset(piece, 'x', sizeof(piece));
	for (int lines = 0; lines < 3; lines++) {
		for (size_t sent = 0; sent < AGENT_LINE_MAX; sent += sizeof(piece)) {
			reader_feed(&reader, (struct slice){piece, sizeof(piece)},
				    on_line, NULL);
			ck_assert_uint_le(reader.line.cap, AGENT_LINE_MAX);
		}
		reader_feed(&reader, newline, on_line, NULL);
		ck_assert_uint_le(reader.line.cap, 1 << 20);
	}
	ck_assert_uint_eq(queue_ledger(queue)->ingested, 3);
	ck_assert_uint_eq(queue_ledger(queue)->waiting, 3);
}
END_TEST

static Suite *flood_suite(void)
{
	Suite *suite = suite_create("flood");
	TCase *tcase = tcase_create("flood");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, flood_of_distinct_message_ids_stays_in_the_budget);
	tcase_add_test(tcase, flood_of_chunks_of_one_message_loses_nothing);
	tcase_add_test(tcase, flood_of_permission_requests_stays_in_the_budget);
	tcase_add_test(tcase,
		       lines_of_64_mib_stay_in_the_budget_and_leave_no_memory_behind);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return test_run(flood_suite());
}
