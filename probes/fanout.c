/* What it costs the relay to take events and to hand them to readers, through real
 * sockets on loopback. Arms (PERCH_PROBE_ARMS, all of them):
 *
 *   accept  ephemeral events that nobody reads, as fast as they are taken: events/s
 *   paced   closed loop, one frame at a time: µs from the write until each reader has it
 *   rate    open loop, PERCH_PROBE_RATE frames a second (200) for PERCH_PROBE_SECONDS
 * (5): µs from the moment a frame was due until each reader has it, so that a relay that
 * falls behind is seen to burst   all frames at once: deliveries/s
 *
 * PERCH_PROBE_READERS (100), PERCH_PROBE_OWNERS (1; reader n reads for owner n modulo so
 * many), PERCH_PROBE_PUBLISHERS (4; at least one per owner), PERCH_PROBE_FRAMES (80 per
 * publisher, at most 100: the relay's rate), PERCH_PROBE_EVENTS (20000 to be accepted),
 * PERCH_PROBE_BYTES (2000, of content), PERCH_PROBE_STALLED (0 further readers of all
 * that never read), PERCH_PROBE_IDLE (0 further subscribers that nothing is sent to).
 * Each line says what the relay's process used: CPU per event and per delivery, memory
 * per idle subscriber and, at its end, of the whole. Fails unless every reader got every
 * frame. Readers and relay share the machine's cores. */

#include <assert.h>
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probes/client.h"
#include "probes/probe.h"
#include "relay/relay.h"
#include "wire/base/buf.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/nostr/event.h"
#include "wire/nostr/nipoa.h"

#define READERS_MAX 8000
#define ACCEPT_KIND 20001
#define ACCEPT_BATCH 32   /* events in one write of the accept arm */
#define ACCEPT_WINDOW 512 /* unanswered ones of one publisher */
#define WAIT_MS 60000     /* nothing came for so long: it never will */

enum arm {
	ARM_ACCEPT,
	ARM_PACED,
	ARM_RATE,
	ARM_BURST,
};
static const char *const arm_names[] = {"accept", "paced", "rate", "burst"};

struct probe {
	struct crypto *crypto;
	pid_t relay;
	clockid_t relay_cpu;
	uint16_t port;
	char url[64];
	char home[64]; /* the relay's */
	unsigned arms;
	size_t readers, owner_count, publishers, frames, events, bytes, stalled, idle;
	size_t rate, seconds;
	struct keypair **owners;
	struct client *clients; /* the readers */
	struct client *others;  /* stalled and idle ones */
	struct client *writers; /* one after the other's turn: publishers of each arm */
	size_t next_writer;
	int poll;
	size_t event_bytes;    /* of the last frame made */
	size_t idle_bytes;     /* of the relay's memory per idle subscriber */
	size_t stalled_before; /* its memory before anything was sent */
	int64_t *due_at;       /* per frame, ns */
	int64_t *latencies;    /* µs; NULL when they are not wanted */
	size_t delivered;
};

static int64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	(void)clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The memory of the relay's process, in bytes. */
static size_t resident(const struct probe *probe)
{
	char path[64], line[128] = "";
	struct slice rest, total, pages;
	uint64_t count = 0;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/statm", probe->relay);
	file = fopen(path, "r");
	if (!file || !fgets(line, sizeof(line), file))
		probe_fail("the relay has no /proc/PID/statm");
	(void)fclose(file);
	rest = slice_of(line);
	if (!slice_take_until(&rest, ' ', &total) ||
	    !slice_take_until(&rest, ' ', &pages) ||
	    !slice_parse_u64(pages, SIZE_MAX >> 20, &count))
		probe_fail("/proc/PID/statm does not begin with two numbers");
	return (size_t)count * (size_t)sysconf(_SC_PAGESIZE);
}

/* What the relay would refuse is not what is measured. */
static void lift_budgets(void)
{
	static const char *const names[] = {
		"KEY_EVENTS",   "KEY_FRAMES",     "KEY_REQS",     "KEY_CONNECTIONS",
		"KEY_BYTES",    "OWNER_EVENTS",   "OWNER_REQS",   "OWNER_CONNECTIONS",
		"OWNER_BYTES",  "ADDRESS_EVENTS", "ADDRESS_REQS", "ADDRESS_CONNECTIONS",
		"ADDRESS_BYTES"};
	char name[64];
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		(void)snprintf(name, sizeof(name), "PERCH_%s", names[i]);
		(void)setenv(name, "0", 1);
	}
}

static int remove_one(const char *path, const struct stat *status, int type,
		      struct FTW *walk)
{
	(void)status;
	(void)type;
	(void)walk;
	return remove(path);
}

static void start_relay(struct probe *probe)
{
	char fd_text[16], line[16] = "";
	char name[] = "relay", listen[] = "--listen", address[] = "127.0.0.1:0";
	char log_level[] = "--log-level", level[] = "error", ready[] = "--ready-fd";
	char *argv[] = {name, listen, address, log_level, level, ready, fd_text, NULL};
	uint64_t port;
	int fds[2];
	ssize_t len;

	(void)snprintf(probe->home, sizeof(probe->home), "/tmp/perch-fanout-XXXXXX");
	if (pipe(fds) < 0 || !mkdtemp(probe->home))
		probe_fail("no pipe or folder");
	(void)snprintf(fd_text, sizeof(fd_text), "%d", fds[1]);
	probe->relay = fork();
	if (probe->relay < 0)
		probe_fail("no fork");
	if (probe->relay == 0) {
		(void)close(fds[0]);
		(void)setenv("PERCH_HOME", probe->home, 1);
		lift_budgets();
		exit(relay_main(7, argv));
	}
	(void)close(fds[1]);
	len = read(fds[0], line, sizeof(line));
	(void)close(fds[0]);
	if (len < 2 ||
	    !slice_parse_u64((struct slice){line, (size_t)len - 1}, 65535, &port))
		probe_fail("the relay did not start");
	probe->port = (uint16_t)port;
	(void)snprintf(probe->url, sizeof(probe->url), "ws://127.0.0.1:%u", probe->port);
	if (clock_getcpuclockid(probe->relay, &probe->relay_cpu) != 0)
		probe_fail("no CPU clock of the relay");
}

static struct keypair *make_key(struct probe *probe, uint8_t role, size_t number)
{
	uint8_t secret[KEY_BYTES] = {1, role};
	struct keypair *key;
	struct err err;

	secret[30] = (uint8_t)(number >> 8);
	secret[31] = (uint8_t)number;
	if (!keypair_create(probe->crypto, secret, &key, &err))
		probe_fail(err.text);
	return key;
}

static const struct keypair *owner_of(const struct probe *probe, size_t number)
{
	assert(probe->owner_count > 0);
	return probe->owners[number % probe->owner_count];
}

/* A subscriber to frames for one owner. */
static void open_reader(struct probe *probe, struct client *client,
			const struct keypair *owner)
{
	char request[256], hex[2 * KEY_BYTES + 1] = "";

	hex_encode(keypair_public(owner), KEY_BYTES, hex);
	client_open(client, probe->port);
	client_authenticate(client, probe->crypto, probe->url, owner, SLICE_EMPTY);
	(void)snprintf(request, sizeof(request),
		       "[\"REQ\",\"probe\",{\"kinds\":[%d],\"#p\":[\"%s\"],\"limit\":0}]",
		       FRAME_KIND, hex);
	client_say(client, slice_of(request));
	client_expect(client, "[\"EOSE\"", NULL);
}

/* The publishers of the next arm: an arm must not use up another's rate. */
static struct client *open_writers(struct probe *probe)
{
	static const uint8_t aux[32];
	struct client *writers = &probe->writers[probe->next_writer];
	struct buf tag;
	struct err err;
	size_t i;

	for (i = 0; i < probe->publishers; i++) {
		struct client *writer = &writers[i];

		writer->index = i;
		writer->key = make_key(probe, 'a', probe->next_writer + i);
		buf_init(&tag, 4096);
		if (!nipoa_sign(probe->crypto, owner_of(probe, i),
				keypair_public(writer->key), SLICE_EMPTY, aux, &tag,
				&err))
			probe_fail(err.text);
		client_open(writer, probe->port);
		client_authenticate(writer, probe->crypto, probe->url, writer->key,
				    buf_slice(&tag));
		buf_finish(&tag);
	}
	probe->next_writer += probe->publishers;
	return writers;
}

/* An EVENT message as a WebSocket frame. The content only looks sealed: the relay cannot
 * tell. */
static void write_event(struct probe *probe, const struct client *writer, uint32_t kind,
			size_t number, struct buf *out)
{
	static const uint8_t aux[32];
	char p[2 * KEY_BYTES + 1] = "", agent[2 * KEY_BYTES + 1] = "";
	struct event_draft draft = {.created_at = time(NULL), .kind = kind};
	struct buf tags, content, message;
	struct err err;

	hex_encode(keypair_public(owner_of(probe, writer->index)), KEY_BYTES, p);
	hex_encode(keypair_public(writer->key), KEY_BYTES, agent);
	buf_init(&tags, 1024);
	(void)buf_printf(&tags,
			 "[[\"p\",\"%s\"],[\"agent\",\"%s\"],[\"frame\",\"telemetry\"],"
			 "[\"n\",\"%zu\"]]",
			 p, agent, number);
	buf_init(&content, probe->bytes);
	memset(buf_extend(&content, probe->bytes), 'A', probe->bytes);
	content.ptr[1] = 'g';
	draft.tags = buf_slice(&tags);
	draft.content = buf_slice(&content);
	buf_init(&message, EVENT_MAX_BYTES + 64);
	(void)buf_lit(&message, "[\"EVENT\",");
	if (!event_sign(probe->crypto, writer->key, &draft, aux, &message, NULL, &err))
		probe_fail(err.text);
	(void)buf_lit(&message, "]");
	probe->event_bytes = message.len - (sizeof("[\"EVENT\",]") - 1);
	client_write_frame(buf_slice(&message), out);
	buf_finish(&tags);
	buf_finish(&content);
	buf_finish(&message);
}

static struct buf *make_events(struct probe *probe, const struct client *writers,
			       uint32_t kind, size_t count)
{
	struct buf *events = mem_array(count, sizeof(*events));
	size_t i;

	for (i = 0; i < count; i++) {
		buf_init(&events[i], EVENT_MAX_BYTES + 128);
		write_event(probe, &writers[i % probe->publishers], kind, i, &events[i]);
	}
	return events;
}

static void free_events(struct buf *events, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		buf_finish(&events[i]);
	free(events);
}

/* The number in a frame's n tag. */
static size_t number_of(struct slice text)
{
	size_t at = slice_find_slice(text, SLICE("[\"n\",\""));
	uint64_t number;
	struct slice rest, digits;

	if (at == text.len)
		probe_fail("a reader was sent something else than a frame");
	rest = slice_sub(text, at + 6, text.len);
	if (!slice_take_until(&rest, '"', &digits) ||
	    !slice_parse_u64(digits, SIZE_MAX, &number))
		probe_fail("a frame without its number");
	return (size_t)number;
}

static void read_events(struct probe *probe, struct client *reader)
{
	struct slice bytes, text;
	int64_t now;

	client_receive(reader);
	now = clock_ns(CLOCK_MONOTONIC);
	bytes = buf_slice(&reader->in);
	while (client_take(&bytes, &text)) {
		if (!slice_starts(text, SLICE("[\"EVENT\"")))
			probe_fail("a reader was sent something else than an event");
		if (probe->latencies)
			probe->latencies[probe->delivered] =
				(now - probe->due_at[number_of(text)]) / 1000;
		probe->delivered++;
	}
	buf_consume(&reader->in, reader->in.len - bytes.len);
}

/* Reads what comes until @until (ns), or for WAIT_MS if that is 0; false when the time is
 * over. */
static bool read_some(struct probe *probe, int64_t until)
{
	struct epoll_event ready[64];
	int64_t left =
		until ? until - clock_ns(CLOCK_MONOTONIC) : (int64_t)WAIT_MS * 1000000;
	struct timespec wait = {0};
	int count, i;

	if (left > 0)
		wait = (struct timespec){left / 1000000000, left % 1000000000};
	count = epoll_pwait2(probe->poll, ready, 64, &wait, NULL);
	for (i = 0; i < count; i++)
		read_events(probe, ready[i].data.ptr);
	return count > 0;
}

static void read_until(struct probe *probe, size_t delivered)
{
	while (probe->delivered < delivered)
		if (!read_some(probe, 0))
			probe_fail("a frame did not reach every reader");
}

/* The readers of frame @number. */
static size_t readers_of(const struct probe *probe, size_t number)
{
	const size_t owner = number % probe->publishers % probe->owner_count;

	return probe->readers / probe->owner_count +
	       (owner < probe->readers % probe->owner_count ? 1 : 0);
}

/* What all arms are of, as members of their lines. */
#define SETTINGS_FORMAT \
	",\"readers\":%zu,\"owners\":%zu,\"publishers\":%zu,\"bytes\":%zu,\"stalled\":%" \
	"zu," \
	"\"idle\":%zu"
#define SETTINGS(probe) \
	(probe)->readers, (probe)->owner_count, (probe)->publishers, \
		(probe)->event_bytes, (probe)->stalled, (probe)->idle
/* What the relay used for it. */
#define USED_FORMAT \
	",\"relay_cpu_us_per_event\":%.2f,\"relay_cpu_us_per_delivery\":%.2f," \
	"\"relay_bytes\":%zu,\"relay_bytes_per_stalled\":%zu"
#define USED(probe, cpu, events, deliveries) \
	(double)(cpu) / 1000 / (double)(events), \
		(deliveries) ? (double)(cpu) / 1000 / (double)(deliveries) : 0.0, \
		resident(probe), per_stalled(probe)

/* Readers that stall are not among those expected to have it. */
#define DELIVERED_FORMAT ",\"expected\":%zu,\"delivered\":%zu"
#define DELIVERED(probe, expected) (expected), (probe)->delivered

static size_t per_stalled(const struct probe *probe)
{
	const size_t now = resident(probe);

	return probe->stalled && now > probe->stalled_before
		       ? (now - probe->stalled_before) / probe->stalled
		       : 0;
}

static _Noreturn void fail_with(const char *what, struct slice text)
{
	char line[256];

	(void)snprintf(line, sizeof(line), "%s: %.*s", what,
		       text.len < 160 ? (int)text.len : 160, text.ptr);
	probe_fail(line);
}

/* Counts the OKs that came; all have to be true. */
static size_t read_answers(struct client *writer)
{
	struct slice bytes, text;
	size_t count = 0;

	client_receive(writer);
	bytes = buf_slice(&writer->in);
	while (client_take(&bytes, &text)) {
		if (slice_find_slice(text, SLICE("\",true,")) == text.len)
			fail_with("the relay did not accept an event", text);
		count++;
	}
	buf_consume(&writer->in, writer->in.len - bytes.len);
	return count;
}

/* Of the events of one publisher: how many were sent and answered. */
struct progress {
	size_t sent, answered, all;
};

static void write_batch(struct probe *probe, struct client *writer,
			struct progress *progress, const struct buf *events)
{
	struct buf out;
	size_t i;

	if (progress->sent == progress->all ||
	    progress->sent - progress->answered > ACCEPT_WINDOW - ACCEPT_BATCH)
		return;
	buf_init(&out, ACCEPT_BATCH * (EVENT_MAX_BYTES + 128));
	for (i = 0; i < ACCEPT_BATCH && progress->sent < progress->all; i++)
		(void)buf_append(&out,
				 buf_slice(&events[progress->sent++ * probe->publishers +
						   writer->index]));
	client_write(writer, buf_slice(&out));
	buf_finish(&out);
}

static void run_accept(struct probe *probe)
{
	struct client *writers = open_writers(probe);
	struct buf *events = make_events(probe, writers, ACCEPT_KIND, probe->events);
	struct progress *progress = mem_array(probe->publishers, sizeof(*progress));
	struct epoll_event ready[64];
	int poll = epoll_create1(EPOLL_CLOEXEC);
	size_t answered = 0, i;
	int64_t took, cpu;

	for (i = 0; i < probe->publishers; i++) {
		struct epoll_event interest = {.events = EPOLLIN, .data.u64 = i};

		(void)epoll_ctl(poll, EPOLL_CTL_ADD, writers[i].fd, &interest);
		progress[i].all =
			(probe->events + probe->publishers - 1 - i) / probe->publishers;
	}
	cpu = clock_ns(probe->relay_cpu);
	took = clock_ns(CLOCK_MONOTONIC);
	for (i = 0; i < probe->publishers; i++)
		write_batch(probe, &writers[i], &progress[i], events);
	while (answered < probe->events) {
		int count = epoll_wait(poll, ready, 64, WAIT_MS);

		if (count == 0)
			probe_fail("an event was not answered");
		for (int n = 0; n < count; n++) {
			size_t got = read_answers(&writers[ready[n].data.u64]);

			i = ready[n].data.u64;
			progress[i].answered += got;
			answered += got;
			write_batch(probe, &writers[i], &progress[i], events);
		}
	}
	took = clock_ns(CLOCK_MONOTONIC) - took;
	cpu = clock_ns(probe->relay_cpu) - cpu;
	probe_note("accept",
		   SETTINGS_FORMAT USED_FORMAT ",\"runs\":%zu,\"unit\":\"events/s\","
					       "\"value\":%.0f",
		   SETTINGS(probe), USED(probe, cpu, probe->events, (size_t)0),
		   probe->events, (double)probe->events * 1e9 / (double)took);
	(void)close(poll);
	free(progress);
	free_events(events, probe->events);
}

/* Frames in a loop that is closed (@gap_ns 0: the next one when all have the last) or
 * open. */
static void run_timed(struct probe *probe, const char *arm, size_t count, int64_t gap_ns)
{
	struct client *writers = open_writers(probe);
	struct buf *frames = make_events(probe, writers, FRAME_KIND, count);
	size_t expected = 0, i;
	int64_t due, cpu;

	for (i = 0; i < count; i++)
		expected += readers_of(probe, i);
	probe->latencies = mem_array(expected, sizeof(*probe->latencies));
	probe->due_at = mem_array(count, sizeof(*probe->due_at));
	probe->delivered = 0;
	cpu = clock_ns(probe->relay_cpu);
	due = clock_ns(CLOCK_MONOTONIC);
	for (i = 0, expected = 0; i < count; i++, due += gap_ns) {
		if (gap_ns == 0)
			due = clock_ns(CLOCK_MONOTONIC);
		while (clock_ns(CLOCK_MONOTONIC) < due)
			(void)read_some(probe, due);
		probe->due_at[i] = due;
		client_write(&writers[i % probe->publishers], buf_slice(&frames[i]));
		expected += readers_of(probe, i);
		if (gap_ns == 0)
			read_until(probe, expected);
	}
	read_until(probe, expected);
	cpu = clock_ns(probe->relay_cpu) - cpu;
	probe_print(arm, probe->latencies, expected, "us",
		    SETTINGS_FORMAT USED_FORMAT DELIVERED_FORMAT ",\"rate\":%zu",
		    SETTINGS(probe), USED(probe, cpu, count, expected),
		    DELIVERED(probe, expected),
		    gap_ns ? (size_t)(1000000000 / gap_ns) : (size_t)0);
	free(probe->latencies);
	free(probe->due_at);
	probe->latencies = NULL;
	free_events(frames, count);
}

static void run_burst(struct probe *probe)
{
	const size_t count = probe->publishers * probe->frames;
	struct client *writers = open_writers(probe);
	struct buf *frames = make_events(probe, writers, FRAME_KIND, count);
	size_t expected = 0, i;
	int64_t took, cpu;

	probe->delivered = 0;
	cpu = clock_ns(probe->relay_cpu);
	took = clock_ns(CLOCK_MONOTONIC);
	for (i = 0; i < count; i++) {
		client_write(&writers[i % probe->publishers], buf_slice(&frames[i]));
		/* Readers keep reading, so that none of them falls behind for our fault.
		 */
		read_until(probe, expected / 2);
		expected += readers_of(probe, i);
	}
	read_until(probe, expected);
	took = clock_ns(CLOCK_MONOTONIC) - took;
	cpu = clock_ns(probe->relay_cpu) - cpu;
	probe_note("burst",
		   SETTINGS_FORMAT USED_FORMAT DELIVERED_FORMAT
		   ",\"runs\":%zu,\"unit\":\"deliveries/s\",\"value\":%.0f",
		   SETTINGS(probe), USED(probe, cpu, count, expected),
		   DELIVERED(probe, expected), expected,
		   (double)expected * 1e9 / (double)took);
	free_events(frames, count);
}

/* Stalled and idle ones first: what they cost is seen before anything is sent. */
static void open_others(struct probe *probe)
{
	size_t before, i;
	struct keypair *nobody = make_key(probe, 'n', 1);

	probe->others =
		mem_array(probe->stalled + probe->idle + 1, sizeof(struct client));
	for (i = 0; i < probe->stalled; i++)
		open_reader(probe, &probe->others[i], owner_of(probe, i));
	before = resident(probe);
	for (; i < probe->stalled + probe->idle; i++)
		open_reader(probe, &probe->others[i], nobody);
	if (probe->idle > 0)
		probe->idle_bytes = (resident(probe) - before) / probe->idle;
	keypair_destroy(nobody);
}

static void open_readers(struct probe *probe)
{
	size_t i;

	probe->poll = epoll_create1(EPOLL_CLOEXEC);
	probe->clients = mem_array(probe->readers, sizeof(*probe->clients));
	for (i = 0; i < probe->readers; i++) {
		struct epoll_event interest = {.events = EPOLLIN,
					       .data.ptr = &probe->clients[i]};

		open_reader(probe, &probe->clients[i], owner_of(probe, i));
		if (epoll_ctl(probe->poll, EPOLL_CTL_ADD, probe->clients[i].fd,
			      &interest) < 0)
			probe_fail("no epoll");
	}
}

static void close_clients(struct client *clients, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		client_close(&clients[i]);
	free(clients);
}

static void finish(struct probe *probe)
{
	int status;
	size_t i;

	close_clients(probe->clients, probe->readers);
	close_clients(probe->writers, probe->next_writer);
	close_clients(probe->others, probe->stalled + probe->idle);
	for (i = 0; i < probe->owner_count; i++)
		keypair_destroy(probe->owners[i]);
	free(probe->owners);
	(void)close(probe->poll);
	crypto_destroy(probe->crypto);
	(void)kill(probe->relay, SIGTERM);
	if (waitpid(probe->relay, &status, 0) < 0 || status != 0)
		probe_fail("the relay did not stop cleanly");
	(void)nftw(probe->home, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
	static const uint8_t seed[32] = {1};
	struct probe probe = {
		.arms = probe_choice("PERCH_PROBE_ARMS", arm_names, 4),
		.readers = probe_setting("PERCH_PROBE_READERS", 100, 1, READERS_MAX),
		.owner_count = probe_setting("PERCH_PROBE_OWNERS", 1, 1, 1000),
		.publishers = probe_setting("PERCH_PROBE_PUBLISHERS", 4, 1, 1000),
		.frames = probe_setting("PERCH_PROBE_FRAMES", 80, 1, RELAY_FRAMES_PER_S),
		.events = probe_setting("PERCH_PROBE_EVENTS", 20000, 1, 200000),
		.bytes = probe_setting("PERCH_PROBE_BYTES", 2000, 132, 87472) / 4 * 4,
		.stalled = probe_setting("PERCH_PROBE_STALLED", 0, 0, READERS_MAX),
		.idle = probe_setting("PERCH_PROBE_IDLE", 0, 0, READERS_MAX),
		.rate = probe_setting("PERCH_PROBE_RATE", 200, 1, 10000),
		.seconds = probe_setting("PERCH_PROBE_SECONDS", 5, 1, 20),
	};
	struct err err;
	size_t i;

	start_relay(&probe);
	probe.crypto = crypto_create(seed, &err);
	if (!probe.crypto)
		probe_fail(err.text);
	if (probe.publishers < probe.owner_count)
		probe.publishers = probe.owner_count;
	probe.owners = mem_array(probe.owner_count, sizeof(struct keypair *));
	for (i = 0; i < probe.owner_count; i++)
		probe.owners[i] = make_key(&probe, 'o', i);
	probe.writers = mem_array(4 * probe.publishers, sizeof(*probe.writers));
	open_others(&probe);
	open_readers(&probe);
	probe.stalled_before = resident(&probe);
	if (probe.idle > 0)
		probe_note("idle", ",\"idle\":%zu,\"unit\":\"bytes\",\"value\":%zu",
			   probe.idle, probe.idle_bytes);
	if (probe.arms & 1u << ARM_ACCEPT)
		run_accept(&probe);
	if (probe.arms & 1u << ARM_PACED)
		run_timed(&probe, "paced", probe.publishers * probe.frames, 0);
	if (probe.arms & 1u << ARM_RATE)
		run_timed(&probe, "rate", probe.rate * probe.seconds,
			  1000000000 / (int64_t)probe.rate);
	if (probe.arms & 1u << ARM_BURST)
		run_burst(&probe);
	finish(&probe);
	return 0;
}
