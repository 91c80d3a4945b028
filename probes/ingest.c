/* What it costs to take in what agents print: the reader that cuts lines, the scan, the
 * feed and the queue, in one process and without pipes. Two kinds of arms, each with
 * pieces of 64, 1,024 and 16,384 bytes and 1, 2, 4 and 8 agents, at equal bytes in all:
 *
 *   lines  each piece is the text of one agent_message_chunk line; reads of 64 KiB
 *   reads  lines with 1,024 bytes of text arrive in reads of a piece each
 *
 * Agents take turns, a read each. PERCH_PROBE_BYTES (1048576 of lines for a run),
 * PERCH_PROBE_AGENTS (1,2,4,8), PERCH_PROBE_ARMS (lines,reads), PERCH_PROBE_RUNS (15).
 * Fails unless the frames that come out hold every line and every byte of text.
 *
 * PERCH_PROBE_SOAK (0): takes in so many lines instead, of eight agents, faster than they
 * leave, so that merging, eviction and gaps never rest. Fails unless the budget held,
 * every event is accounted for and resident memory stayed flat. */

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/acp_line.h"
#include "agent/feed.h"
#include "agent/queue.h"
#include "agent/reader.h"
#include "probes/probe.h"
#include "wire/base/arena.h"
#include "wire/base/mem.h"
#include "wire/frame/observer_event.h"

#define AGENTS_MAX 8
#define READ_BYTES 65536
#define READS_TEXT_BYTES 1024

enum arm { LINES, READS, ARMS };
static const char *const arm_names[ARMS] = {"lines", "reads"};
static const char *const agent_names[] = {"1", "2", "4", "8"};
static const size_t agent_counts[] = {1, 2, 4, 8};
#define AGENT_COUNTS (sizeof(agent_counts) / sizeof(agent_counts[0]))
static const size_t pieces[] = {64, 1024, 16384};
#define PIECES (sizeof(pieces) / sizeof(pieces[0]))

/* One agent as the harness keeps it. */
struct agent {
	struct source *source;
	struct reader reader;
	struct acp_alike alike;
	struct uuid channel;
	struct feed_context context;
	struct slice left; /* of what it prints */
};

/* Where all lines go. */
struct source {
	struct queue *queue;
	struct feed *feed;
	struct feed_time now;
	struct agent agents[AGENTS_MAX];
	uint64_t lines;
};

/* ---- what agents print ---- */

static void print_chunk(struct buf *out, size_t text_bytes)
{
	(void)buf_lit(
		out,
		"{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":"
		"{\"sessionId\":\"sess_7f3c2a91\",\"update\":{\"sessionUpdate\":"
		"\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"");
	memset(buf_extend(out, text_bytes), 'x', text_bytes);
	(void)buf_lit(out, "\"}}}}\n");
}

/* Not more than @bytes of whole lines, at least one. Returns how many. */
static uint64_t print_chunks(struct buf *out, size_t text_bytes, size_t bytes)
{
	uint64_t lines = 0;
	size_t line;

	buf_clear(out);
	do {
		line = out->len;
		print_chunk(out, text_bytes);
		line = out->len - line;
		lines++;
	} while (out->len + line <= bytes);
	return lines;
}

/* ---- the way in ---- */

static void on_line(void *ctx, struct slice text, size_t bytes)
{
	struct agent *agent = ctx;
	struct source *source = agent->source;
	struct acp_line line;

	acp_line_scan_alike(text, &agent->alike, &line);
	(void)feed_line(source->feed, source->now, &agent->context, FEED_READ, &line,
			bytes, SLICE_EMPTY, NULL);
	source->lines++;
}

static void source_init(struct source *source)
{
	*source = (struct source){.now = {1796025600000, 0}};
	source->queue = queue_create(AGENT_QUEUE_MAX);
	source->feed = feed_create(source->queue);
	for (int i = 0; i < AGENTS_MAX; i++) {
		struct agent *agent = &source->agents[i];

		agent->source = source;
		reader_init(&agent->reader, AGENT_LINE_MAX);
		(void)snprintf(agent->channel.text, sizeof(agent->channel.text),
			       "00000000-0000-4000-8000-%012d", i);
		agent->context = (struct feed_context){
			.slot = i,
			.channel = &agent->channel,
			.session = SLICE_INIT("sess_7f3c2a91"),
			.turn = SLICE_INIT("3b7c5a10-9a64-4d27-8d0e-52f1c7f0a9be"),
			.turn_started_ms = 1796025600000,
		};
	}
}

static void source_finish(struct source *source)
{
	for (int i = 0; i < AGENTS_MAX; i++)
		reader_finish(&source->agents[i].reader);
	feed_destroy(source->feed);
	queue_destroy(source->queue);
}

/* One read of @bytes from each agent in turn until all is read. */
static void take_in(struct source *source, size_t agents, size_t bytes)
{
	bool more = true;

	while (more) {
		more = false;
		for (size_t i = 0; i < agents; i++) {
			struct agent *agent = &source->agents[i];

			reader_feed(&agent->reader, slice_sub(agent->left, 0, bytes),
				    on_line, agent);
			agent->left = slice_sub(agent->left, bytes, agent->left.len);
			more = more || agent->left.len;
		}
		source->now.monotonic_ms++;
		source->now.unix_ms++;
	}
}

/* Bytes between the quotes of the chunk's text. */
static size_t text_bytes_of(struct slice payload)
{
	struct acp_line line;

	acp_line_scan(payload, &line);
	return line.chunk.len;
}

static void check_drain(struct source *source, uint64_t lines, uint64_t text_bytes)
{
	const struct queue_ledger *ledger = queue_ledger(source->queue);
	struct queue_frame info;
	struct arena arena;
	struct frame frame;
	struct buf out;
	struct err err;

	arena_init(&arena, 65536);
	buf_init(&out, FRAME_PACK_MAX);
	while (queue_pack(source->queue, FRAME_PACK_MAX, &out, &info)) {
		if (!frame_parse(buf_slice(&out), &arena, &frame, &err))
			probe_fail(err.text);
		for (size_t i = 0; i < frame.event_count; i++)
			text_bytes -= text_bytes_of(frame.events[i].payload);
		queue_published(source->queue, &info);
		buf_clear(&out);
		arena_reset(&arena);
	}
	if (ledger->dropped || ledger->published != lines || text_bytes)
		probe_fail("not every line or byte came out");
	arena_finish(&arena);
	buf_finish(&out);
}

/* ---- a figure ---- */

struct cell {
	enum arm arm;
	size_t piece, agents;
	uint64_t bytes; /* of lines in a run */
	int64_t times_ns[PROBE_RUNS_MAX];
};

static int64_t run_cell(struct cell *cell, struct buf *printed, size_t total)
{
	const size_t text_bytes = cell->arm == LINES ? cell->piece : READS_TEXT_BYTES;
	const size_t read_bytes = cell->arm == LINES ? READ_BYTES : cell->piece;
	const uint64_t lines = print_chunks(printed, text_bytes, total / cell->agents);
	struct source source;
	int64_t ns;

	source_init(&source);
	for (size_t i = 0; i < cell->agents; i++)
		source.agents[i].left = buf_slice(printed);
	ns = probe_clock_ns();
	take_in(&source, cell->agents, read_bytes);
	ns = probe_clock_ns() - ns;
	cell->bytes = printed->len * cell->agents;
	check_drain(&source, cell->agents * lines, cell->agents * lines * text_bytes);
	source_finish(&source);
	return ns;
}

static double ns_per_byte(struct cell *cell, size_t runs)
{
	return (double)probe_quantile(cell->times_ns, runs, 50) / (double)cell->bytes;
}

/* The pieces of one arm and number of agents, in turn. */
static void measure(enum arm arm, size_t agents, size_t runs, size_t total)
{
	static struct cell cells[PIECES];
	struct buf printed;

	buf_init(&printed, 2 * total + 2 * pieces[PIECES - 1]);
	for (size_t i = 0; i < PIECES; i++)
		cells[i] =
			(struct cell){.arm = arm, .piece = pieces[i], .agents = agents};
	for (size_t round = 0; round < runs; round++)
		for (size_t turn = 0; turn < PIECES; turn++) {
			struct cell *cell = &cells[probe_turn(round, turn, PIECES)];

			cell->times_ns[round] = run_cell(cell, &printed, total);
		}
	for (size_t i = 0; i < PIECES; i++)
		probe_print(arm_names[arm], cells[i].times_ns, runs, "ns",
			    ",\"piece\":%zu,\"agents\":%zu,\"bytes\":%" PRIu64
			    ",\"ns_per_byte\":%.3f,\"to_1024\":%.2f",
			    cells[i].piece, agents, cells[i].bytes,
			    ns_per_byte(&cells[i], runs),
			    ns_per_byte(&cells[i], runs) / ns_per_byte(&cells[1], runs));
	buf_finish(&printed);
}

/* ---- the soak ---- */

/* Lines that an agent prints before a frame leaves: more than the frame holds. */
#define SOAK_LINES_PER_FRAME 2000
/* Resident memory may move by so much from half-way to the end. */
#define SOAK_SLACK_BYTES (1u << 20)

/* Without the pages of files, which the system lets go and reads again as it likes. The
 * second and third number of /proc/self/statm are pages, and those of them. */
static size_t resident_bytes(void)
{
	char text[256] = "";
	FILE *file = fopen("/proc/self/statm", "r");
	struct slice rest, size, pages, of_files;
	uint64_t count, shared;

	if (!file || !fgets(text, sizeof(text), file))
		probe_fail("cannot read /proc/self/statm");
	(void)fclose(file);
	rest = slice_of(text);
	if (!slice_take_until(&rest, ' ', &size) ||
	    !slice_take_until(&rest, ' ', &pages) ||
	    !slice_take_until(&rest, ' ', &of_files) ||
	    !slice_parse_u64(pages, SIZE_MAX, &count) ||
	    !slice_parse_u64(of_files, count, &shared))
		probe_fail("cannot read what /proc/self/statm says");
	return (size_t)(count - shared) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Chunks that merge, now and then a tool call that ends that and a request that is
 * urgent. */
static void print_soak_line(struct buf *out, uint64_t number)
{
	buf_clear(out);
	if (number % 5000 == 0)
		(void)buf_printf(out,
				 "{\"jsonrpc\":\"2.0\",\"id\":%" PRIu64
				 ",\"method\":\"session/request_permission\","
				 "\"params\":{\"sessionId\":\"s\"}}\n",
				 number);
	else if (number % 16 == 0)
		(void)buf_printf(out,
				 "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\","
				 "\"params\":{\"sessionId\":\"s\",\"update\":"
				 "{\"sessionUpdate\":\"tool_call_update\","
				 "\"toolCallId\":\"t%" PRIu64 "\"}}}\n",
				 number);
	else
		print_chunk(out, 64 + number % 64);
}

static void check_soak(const struct source *source)
{
	const struct queue_ledger *ledger = queue_ledger(source->queue);

	if (queue_memory(source->queue) > AGENT_QUEUE_MAX)
		probe_fail("the queue is over its budget");
	if (ledger->ingested != source->lines ||
	    ledger->ingested != ledger->published + ledger->deferred + ledger->dropped +
					ledger->waiting + ledger->in_flight)
		probe_fail("an event is not accounted for");
}

static void soak(uint64_t lines)
{
	static struct source source;
	struct queue_frame info;
	struct buf line, out;
	size_t settled = 0, last;

	/* Small pages that become a huge one would be growth. */
	(void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	source_init(&source);
	buf_init(&line, 65536);
	buf_init(&out, FRAME_PACK_MAX);
	for (uint64_t i = 1; i <= lines; i++) {
		struct agent *agent = &source.agents[i % AGENTS_MAX];

		print_soak_line(&line, i);
		reader_feed(&agent->reader, buf_slice(&line), on_line, agent);
		source.now.monotonic_ms++;
		source.now.unix_ms++;
		if (i % SOAK_LINES_PER_FRAME == 0) {
			check_soak(&source);
			buf_clear(&out);
			if (!queue_pack(source.queue, FRAME_PACK_MAX, &out, &info))
				probe_fail("nothing waits");
			queue_published(source.queue, &info);
		}
		if (i == lines / 2)
			settled = resident_bytes();
	}
	check_soak(&source);
	last = resident_bytes();
	probe_note("soak",
		   ",\"events\":%" PRIu64 ",\"published\":%" PRIu64
		   ",\"dropped\":%" PRIu64 ",\"waiting\":%" PRIu64
		   ",\"resident_settled\":%zu,\"resident_last\":%zu",
		   source.lines, queue_ledger(source.queue)->published,
		   queue_ledger(source.queue)->dropped,
		   queue_ledger(source.queue)->waiting, settled, last);
	if (last > settled + SOAK_SLACK_BYTES)
		probe_fail("memory grew");
	buf_finish(&line);
	buf_finish(&out);
	source_finish(&source);
}

int main(void)
{
	const uint64_t soak_lines = probe_setting("PERCH_PROBE_SOAK", 0, 0, 1000000000);
	const size_t total = probe_setting("PERCH_PROBE_BYTES", 1 << 20, 1, 2 << 20);
	const size_t runs = probe_setting("PERCH_PROBE_RUNS", 15, 1, PROBE_RUNS_MAX);
	const unsigned arms = probe_choice("PERCH_PROBE_ARMS", arm_names, ARMS);
	const unsigned agents =
		probe_choice("PERCH_PROBE_AGENTS", agent_names, AGENT_COUNTS);

	if (soak_lines) {
		soak(soak_lines);
		return EXIT_SUCCESS;
	}
	for (enum arm arm = 0; arm < ARMS; arm++)
		for (size_t i = 0; i < AGENT_COUNTS; i++)
			if (arms & 1u << arm && agents & 1u << i)
				measure(arm, agent_counts[i], runs, total);
	return EXIT_SUCCESS;
}
