/* What a start of the observer, and the newest page of a transcript, cost by what the
 * archive holds: the same 50 lanes with ever longer pasts.
 *
 *   open    the database opened, and all read that a start has to know again
 *   page    the newest 200 rows of a lane, from its events
 *
 * PERCH_PROBE_EVENTS (100000): of the largest archive; the others have a tenth and a
 * hundredth. PERCH_PROBE_RUNS (5). Ten events are a frame, 40 a turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "observer/archive_db.h"
#include "probes/probe.h"

#define LANES 50
#define BATCH 10
#define TURN 40
#define SIZES 3

struct probe {
	char path[80];
	uint64_t numbers, events;
	int64_t open_ns[PROBE_RUNS_MAX], page_ns[PROBE_RUNS_MAX];
};

static const uint8_t agent[KEY_BYTES] = {7};
static const char epoch[] = "6b0d000000000001";

static void fail_unless(bool ok, const struct err *err)
{
	if (!ok)
		probe_fail(err->text);
}

/* A frame of one lane; @number counts from 1. */
static void write_frame(struct buf *out, uint64_t number)
{
	const uint64_t lane = number % LANES, round = number / LANES;

	buf_clear(out);
	(void)buf_printf(out,
			 "{\"seq\":%llu,\"monotonicMs\":1,\"timestamp\":"
			 "\"2026-11-30T08:00:00.000Z\",\"kind\":\"batch\",\"payload\":"
			 "{\"events\":[",
			 (unsigned long long)number * BATCH + BATCH);
	for (uint64_t i = 0; i < BATCH; i++)
		(void)buf_printf(
			out,
			"%s{\"seq\":%llu,\"monotonicMs\":1,\"timestamp\":"
			"\"2026-11-30T08:00:00.000Z\",\"kind\":\"acp_read\","
			"\"agentIndex\":0,"
			"\"channelId\":\"00000000-0000-4000-8000-%012llu\",\"sessionId\":"
			"\"s\","
			"\"turnId\":\"t%llu\",\"payload\":{\"method\":\"session/update\","
			"\"params\":{\"update\":{\"sessionUpdate\":\"tool_call\","
			"\"toolCallId\":\"c%llu\",\"title\":\"make test %llu\",\"kind\":"
			"\"execute\",\"status\":\"completed\"}}}}",
			i ? "," : "", (unsigned long long)number * BATCH + i + 1,
			(unsigned long long)lane,
			(unsigned long long)(round / (TURN / BATCH)),
			(unsigned long long)number * BATCH + i,
			(unsigned long long)number * 7919 + i);
	(void)buf_printf(out, "]},\"epoch\":\"%s\",\"frame\":%llu}", epoch,
			 (unsigned long long)number);
}

static void fill(const struct probe *probe, size_t events)
{
	struct buf text;
	struct err err;
	struct archive_db *db = archive_db_open(probe->path, &err);

	fail_unless(db != NULL, &err);
	buf_init(&text, FRAME_PLAINTEXT_MAX);
	for (uint64_t number = 1; number <= events / BATCH; number++) {
		if (number % 200 == 1)
			fail_unless(archive_db_begin(db, &err), &err);
		write_frame(&text, number);
		fail_unless(archive_db_frame(db, agent, epoch, number, 1,
					     buf_slice(&text), &err),
			    &err);
		if (number % 200 == 0 || number == events / BATCH)
			fail_unless(archive_db_commit(db, &err), &err);
	}
	buf_finish(&text);
	archive_db_close(db);
}

static void on_known(void *ctx, const uint8_t *key, const char *name,
		     struct frame_range range)
{
	(void)key;
	(void)name;
	((struct probe *)ctx)->numbers += range.last - range.first + 1;
}

static void on_gone(void *ctx, const uint8_t *key, const char *name,
		    struct gone_range gone)
{
	(void)ctx;
	(void)key;
	(void)name;
	(void)gone;
}

static void on_event(void *ctx, const uint8_t *key, const char *name, struct slice text,
		     int64_t received_ms)
{
	(void)key;
	(void)name;
	(void)text;
	(void)received_ms;
	((struct probe *)ctx)->events++;
}

static void on_floor(void *ctx, const uint8_t *key, struct slice channel,
		     const struct pos *pos)
{
	(void)ctx;
	(void)key;
	(void)channel;
	(void)pos;
}

static void on_last(void *ctx, const uint8_t *key, int64_t last_ms)
{
	(void)ctx;
	(void)key;
	(void)last_ms;
}

static void run(struct probe *probe, size_t events, size_t round)
{
	const struct archive_loader loader = {on_known, on_gone, on_event, on_floor,
					      on_last};
	struct archive_answer answer = {0};
	struct err err;
	int64_t start_ns = probe_clock_ns();
	struct archive_db *db = archive_db_open(probe->path, &err);

	fail_unless(db != NULL, &err);
	probe->numbers = probe->events = 0;
	fail_unless(archive_db_load(db, &loader, probe, &err), &err);
	probe->open_ns[round] = probe_clock_ns() - start_ns;
	if (probe->numbers != events / BATCH || !probe->events)
		probe_fail("not all frames were known again");
	start_ns = probe_clock_ns();
	fail_unless(archive_db_rows(db, agent,
				    SLICE("00000000-0000-4000-8000-000000000007"), NULL,
				    200, &answer, &err),
		    &err);
	probe->page_ns[round] = probe_clock_ns() - start_ns;
	if (!answer.row_count)
		probe_fail("no rows came");
	archive_db_answer_finish(&answer);
	archive_db_close(db);
}

static void forget(const struct probe *probe)
{
	static const char *const parts[] = {"", "-wal", "-shm"};
	char path[96];

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s%s", probe->path, parts[i]);
		(void)unlink(path);
	}
}

int main(void)
{
	static struct probe probe;
	const size_t most = probe_setting("PERCH_PROBE_EVENTS", 100000, 50000, 4000000);
	const size_t runs = probe_setting("PERCH_PROBE_RUNS", 5, 1, PROBE_RUNS_MAX);
	char folder[] = "/tmp/perch-probe-XXXXXX";
	size_t events = most / 100;

	if (!mkdtemp(folder))
		probe_fail("no folder");
	(void)snprintf(probe.path, sizeof(probe.path), "%s/a.db", folder);
	for (int size = 0; size < SIZES; size++, events *= 10) {
		fill(&probe, events);
		for (size_t round = 0; round < runs; round++)
			run(&probe, events, round);
		probe_print("open", probe.open_ns, runs, "ns", ",\"events\":%zu", events);
		probe_print("page", probe.page_ns, runs, "ns", ",\"events\":%zu", events);
		forget(&probe);
	}
	(void)rmdir(folder);
	return EXIT_SUCCESS;
}
