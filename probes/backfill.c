/* The evening case: a harness whose journal is full of frames that nobody saw, a fresh
 * archive, and a relay of ours between them, all real processes. How long until the
 * archive has every frame, and do the newest come first?
 *
 * One line: "seconds" from the harness being ready to the last frame in the archive,
 * "frames_per_s" beside "offered" (what the relay's NIP-11 says), and "to_one_a_second",
 * how much faster that is than a live feed. PERCH_PROBE_FRAMES (3000; 10000 take two
 * minutes), PERCH_PROBE_BYTES (2000, of each frame's payload). Fails unless every frame
 * came, and those of the newest half came before any of the oldest quarter, but for a
 * piece (observer/ingest.h). PERCH_BIN as in the proxy's probe. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>
#include <uv.h>

#include "agent/journal.h"
#include "observer/ingest.h"
#include "probes/probe.h"
#include "probes/process.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/host/loop.h"
#include "wire/nostr/nip19.h"

#define EPOCH "6b0d000000000001" /* older than any start of today */
#define NAME "backfill"
#define PACE 4         /* of that what is offered is at least; else it stands still */
#define LOOK_MS 100    /* between two looks at the archive */
#define START_S 120    /* until the first frame is there */
#define JOURNAL_AT 200 /* frames that wait for the disk at a time */

struct probe {
	size_t frames, bytes, kept;
	bool open;
};

static void on_open(void *ctx, bool unclean)
{
	(void)unclean;
	((struct probe *)ctx)->open = true;
}

static void on_kept(void *ctx, uint64_t number)
{
	(void)number;
	((struct probe *)ctx)->kept++;
}

static void on_lost(void *ctx, uint64_t number)
{
	(void)ctx;
	(void)number;
	probe_fail("the journal lost a frame");
}

static void on_text(void *ctx, const char *epoch, uint64_t number, struct slice text)
{
	(void)ctx;
	(void)epoch;
	(void)number;
	(void)text;
}

static void on_trouble(void *ctx, const char *reason, uint64_t lost)
{
	(void)ctx;
	(void)lost;
	probe_fail(reason ? reason : "trouble with the journal");
}

static const struct journal_events events = {
	on_open, on_kept, on_lost, on_text, on_text, on_trouble,
};

/* As the harness keeps it: closed, without suffix. */
static void write_frame(struct buf *out, uint64_t number, size_t bytes)
{
	buf_clear(out);
	(void)buf_printf(
		out,
		"{\"seq\":%llu,\"monotonicMs\":%llu,\"timestamp\":"
		"\"2026-11-30T08:00:00.000Z\",\"kind\":\"note\",\"agentIndex\":0,"
		"\"channelId\":\"00000000-0000-4000-8000-000000000001\","
		"\"sessionId\":null,\"turnId\":null,\"payload\":{\"text\":\"",
		(unsigned long long)number, (unsigned long long)number * 1000);
	/* Words, which compress as an agent's do. */
	for (size_t i = 0; i < bytes / 10; i++)
		(void)buf_printf(out, "%09zu ", (i * 7919 + number * 104729) % 1000003);
	(void)buf_lit(out, "\"}}");
}

/* The agent's key, in the home; and the path of its journal. */
static struct keypair *make_agent(struct loop *loop, char *path, size_t size)
{
	uint8_t secret[KEY_BYTES];
	char hex[2 * KEY_BYTES + 1] = "", file[128];
	struct keypair *keypair = NULL;
	struct buf npub = {.max = 80};
	struct err err;
	int fd;

	loop_random(secret, sizeof(secret));
	hex_encode(secret, KEY_BYTES, hex);
	(void)snprintf(file, sizeof(file), "%s/keys/%s", process_home, NAME);
	fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || dprintf(fd, "%s\n", hex) < 0 || close(fd) < 0 ||
	    !keypair_create(loop->crypto, secret, &keypair, &err))
		probe_fail("no key for the agent");
	(void)nip19_encode(NIP19_NPUB, keypair_public(keypair), &npub);
	(void)snprintf(path, size, "%s/journal", process_home);
	if (mkdir(path, 0700) < 0)
		probe_fail("no folder for the journal");
	(void)snprintf(path, size, "%s/journal/%s.db", process_home, buf_text(&npub));
	buf_finish(&npub);
	return keypair;
}

static void fill(struct probe *probe)
{
	struct journal_options options = {.epoch = EPOCH,
					  .max_bytes = AGENT_JOURNAL_MAX,
					  .max_age_s = AGENT_JOURNAL_DAYS * 86400,
					  .events = &events,
					  .ctx = probe};
	char path[256];
	struct err err;
	struct loop *loop = loop_create(&err);
	struct keypair *keypair;
	struct journal *journal;
	struct buf text;

	if (!loop)
		probe_fail(err.text);
	keypair = make_agent(loop, path, sizeof(path));
	options.path = path;
	options.keypair = keypair;
	journal = journal_create(loop, &options, &err);
	if (!journal)
		probe_fail(err.text);
	buf_init(&text, FRAME_PACK_MAX);
	for (uint64_t number = 1; number <= probe->frames; number++) {
		while (!probe->open || number > probe->kept + JOURNAL_AT)
			(void)uv_run(loop->uv, UV_RUN_ONCE);
		write_frame(&text, number, probe->bytes);
		if (!buf_ok(&text) || !journal_put(journal, number, buf_slice(&text)))
			probe_fail("the journal does not take a frame");
	}
	journal_put_stopped(journal);
	journal_destroy(journal);
	if (probe->kept != probe->frames)
		probe_fail("the journal does not have all frames");
	buf_finish(&text);
	keypair_destroy(keypair);
	loop_destroy(loop);
}

static struct process start(const char *const argv[])
{
	struct process process;
	char word[512];
	int ready[2];

	process = process_start(argv, ready);
	process_wait_ready(ready[0], word, sizeof(word));
	(void)close(ready[0]);
	return process;
}

static struct process start_observer(const char *url)
{
	const char *argv[] = {process_perch, "observer",    "--relay",    url,
			      "--listen",    "127.0.0.1:0", "--ready-fd", "3",
			      "--log-level", "warn",        NULL};

	return start(argv);
}

static struct process start_harness(const char *url)
{
	const char *argv[] = {process_perch, "agent",       "--relay",    url,
			      "--name",      NAME,          "--ready-fd", "3",
			      "--log-level", "warn",        "--channel",  "evening",
			      "--",          process_perch, "demo-agent", NULL};

	return start(argv);
}

/* ---- the archive ---- */

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *statement = NULL;

	if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK)
		probe_fail(sqlite3_errmsg(db));
	return statement;
}

static size_t count_of(sqlite3 *db)
{
	sqlite3_stmt *statement =
		prepare(db, "SELECT count(*) FROM frame WHERE epoch = '" EPOCH "'");
	size_t count = 0;

	if (sqlite3_step(statement) == SQLITE_ROW)
		count = (size_t)sqlite3_column_int64(statement, 0);
	(void)sqlite3_finalize(statement);
	return count;
}

static void pause_ms(long ms)
{
	const struct timespec length = {ms / 1000, ms % 1000 * 1000000};

	(void)nanosleep(&length, NULL);
}

/* Until all are there; the nanoseconds since @start_ns. */
static int64_t await_all(const struct probe *probe, sqlite3 *db, int64_t start_ns,
			 unsigned offered)
{
	const int64_t most_ns =
		(int64_t)(START_S + probe->frames * PACE / offered) * 1000000000;
	int64_t spent_ns;

	do {
		pause_ms(LOOK_MS);
		spent_ns = probe_clock_ns() - start_ns;
		if (spent_ns > most_ns)
			probe_fail("not all frames came in time");
	} while (count_of(db) < probe->frames);
	return spent_ns;
}

/* Which came first, by the order in which they were archived; returns their bytes. */
static int64_t check_order(const struct probe *probe, sqlite3 *db)
{
	sqlite3_stmt *statement =
		prepare(db, "SELECT number, size FROM frame WHERE epoch = '" EPOCH
			    "' ORDER BY id");
	int64_t bytes = 0;
	size_t at = 0;

	for (; sqlite3_step(statement) == SQLITE_ROW; at++) {
		const size_t number = (size_t)sqlite3_column_int64(statement, 0);

		bytes += sqlite3_column_int64(statement, 1);
		if (at < probe->frames / 2 &&
		    number + INGEST_PIECE_FRAMES <= probe->frames / 4)
			probe_fail("an old frame came before the newer ones");
	}
	(void)sqlite3_finalize(statement);
	if (at != probe->frames)
		probe_fail("a frame came twice");
	return bytes;
}

static void stop(struct process process)
{
	int status;

	(void)kill(process.pid, SIGTERM);
	if (waitpid(process.pid, &status, 0) < 0 || status != 0)
		probe_fail("a process did not end as it should");
}

int main(int argc, char *argv[])
{
	static struct probe probe;
	const unsigned offered = RELAY_FRAMES_PER_S * 4 / 5;
	struct process relay, observer, harness;
	int64_t start_ns, spent_ns, bytes;
	char url[64], path[128];
	sqlite3 *db = NULL;
	double seconds;

	(void)argc;
	(void)signal(SIGPIPE, SIG_IGN);
	probe.frames = probe_setting("PERCH_PROBE_FRAMES", 3000, 600, 20000);
	probe.bytes = probe_setting("PERCH_PROBE_BYTES", 2000, 10, 8000);
	process_find_perch(argv[0]);
	process_make_home();
	fill(&probe);
	relay = process_relay("relay", url, sizeof(url));
	observer = start_observer(url);
	harness = start_harness(url);
	start_ns = probe_clock_ns();
	(void)snprintf(path, sizeof(path), "%s/archive.db", process_home);
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
		probe_fail("no archive");
	(void)sqlite3_busy_timeout(db, 5000);
	spent_ns = await_all(&probe, db, start_ns, offered);
	bytes = check_order(&probe, db);
	(void)sqlite3_close(db);
	seconds = (double)spent_ns / 1e9;
	probe_note(
		"backfill",
		",\"frames\":%zu,\"bytes\":%lld,\"seconds\":%.2f,\"frames_per_s\":%.1f,"
		"\"offered\":%u,\"to_one_a_second\":%.1f",
		probe.frames, (long long)bytes, seconds, (double)probe.frames / seconds,
		offered, (double)probe.frames / seconds);
	stop(harness);
	stop(observer);
	stop(relay);
	process_remove_home();
	return EXIT_SUCCESS;
}
