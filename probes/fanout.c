/* What it costs the relay to hand frames to readers, through real sockets on loopback.
 * Two arms:
 *
 *   paced  one frame at a time: microseconds from the publisher's write until each reader
 *          has it
 *   burst  all frames at once: deliveries per second, and the relay's CPU time per
 *          delivery
 *
 * PERCH_PROBE_READERS (100), PERCH_PROBE_PUBLISHERS (4), PERCH_PROBE_FRAMES (80 per
 * publisher, at most 100: the relay's rate), PERCH_PROBE_BYTES (2000, of content),
 * PERCH_PROBE_STALLED (0 further readers that never read), PERCH_PROBE_IDLE (0
 * connections that only exist). Fails unless every reader got every frame. Readers and
 * relay share the machine's cores. */

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probes/probe.h"
#include "relay/relay.h"
#include "wire/base/buf.h"
#include "wire/base/mem.h"
#include "wire/frame/limits.h"
#include "wire/nostr/event.h"
#include "wire/nostr/message.h"
#include "wire/nostr/nip42.h"
#include "wire/nostr/nipoa.h"

#define READERS_MAX 5000
#define IN_MAX (64u << 20)
#define WAIT_MS 20000 /* nothing came for so long: it never will */

struct client {
	int fd;
	struct buf in;
	struct keypair *key;
};

struct probe {
	struct crypto *crypto;
	pid_t relay;
	uint16_t port;
	char url[64];
	struct keypair *owner;
	size_t readers, publishers, frames, bytes, stalled, idle;
	struct client *clients; /* the readers */
	struct client
		*writers; /* two per publisher: an arm must not use up the other's rate */
	int poll;
	int64_t sent_at;
	int64_t *latencies; /* µs; NULL when they are not wanted */
	size_t delivered;
};

static int64_t clock_us(clockid_t clock)
{
	struct timespec now;

	(void)clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
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

	if (pipe(fds) < 0)
		probe_fail("no pipe");
	(void)snprintf(fd_text, sizeof(fd_text), "%d", fds[1]);
	probe->relay = fork();
	if (probe->relay < 0)
		probe_fail("no fork");
	if (probe->relay == 0) {
		(void)close(fds[0]);
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
}

static void write_all(int fd, struct slice bytes)
{
	while (bytes.len > 0) {
		ssize_t written = write(fd, bytes.ptr, bytes.len);

		if (written <= 0)
			probe_fail("the relay closed a connection");
		bytes = slice_sub(bytes, (size_t)written, bytes.len);
	}
}

/* A mask of zeros is a mask: the text goes out as it is. */
static void say(const struct client *client, struct slice text)
{
	struct buf out;
	int shift;

	buf_init(&out, text.len + 16);
	(void)buf_append_byte(&out, (char)0x81);
	if (text.len < 126) {
		(void)buf_append_byte(&out, (char)(0x80 | text.len));
	} else {
		(void)buf_append_byte(&out, (char)(text.len < 65536 ? 0xfe : 0xff));
		for (shift = text.len < 65536 ? 8 : 56; shift >= 0; shift -= 8)
			(void)buf_append_byte(&out, (char)(text.len >> shift & 0xff));
	}
	(void)buf_append(&out, (struct slice){"\0\0\0", 4});
	(void)buf_append(&out, text);
	write_all(client->fd, buf_slice(&out));
	buf_finish(&out);
}

/* Takes one whole server frame off the front of @bytes; all that the relay sends is text.
 */
static bool take_message(struct slice *bytes, struct slice *text)
{
	const uint8_t *at = (const uint8_t *)bytes->ptr;
	size_t head = 2, len, i;

	if (bytes->len < 2)
		return false;
	len = at[1] & 0x7f;
	if (len >= 126) {
		head = len == 126 ? 4 : 10;
		if (bytes->len < head)
			return false;
		for (len = 0, i = 2; i < head; i++)
			len = len << 8 | at[i];
	}
	if (bytes->len - head < len)
		return false;
	*text = slice_sub(*bytes, head, head + len);
	*bytes = slice_sub(*bytes, head + len, bytes->len);
	return true;
}

static void receive(struct client *client, int flags)
{
	ssize_t got;

	if (!buf_reserve(&client->in, 65536))
		probe_fail("a reader's memory is full");
	got = recv(client->fd, client->in.ptr + client->in.len,
		   client->in.cap - client->in.len, flags);
	if (got > 0)
		client->in.len += (size_t)got;
	else if (got == 0 || (errno != EAGAIN && errno != EINTR))
		probe_fail("the relay closed a connection");
}

/* Waits for a message that begins so and forgets those before it; @out (may be NULL) gets
 * its text. */
static void expect(struct client *client, const char *start, struct buf *out)
{
	struct slice bytes, text;

	for (;;) {
		bytes = buf_slice(&client->in);
		while (take_message(&bytes, &text)) {
			bool found = slice_starts(text, slice_of(start));

			if (found && out)
				(void)buf_append(out, text);
			buf_consume(&client->in, client->in.len - bytes.len);
			bytes = buf_slice(&client->in);
			if (found)
				return;
		}
		receive(client, 0);
	}
}

static void open_client(struct probe *probe, struct client *client)
{
	static const char request[] =
		"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
		"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons(probe->port)};
	int on = 1;
	size_t end;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	buf_init(&client->in, IN_MAX);
	client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (client->fd < 0 ||
	    connect(client->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		probe_fail("cannot connect: raise the number of open files");
	(void)setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	write_all(client->fd, (struct slice){request, sizeof(request) - 1});
	do {
		receive(client, 0);
		end = slice_find_slice(buf_slice(&client->in), SLICE("\r\n\r\n"));
	} while (end == client->in.len);
	buf_consume(&client->in, end + 4);
}

static void authenticate(struct probe *probe, struct client *client,
			 const struct keypair *key, struct slice auth_tag)
{
	static const uint8_t aux[32];
	struct buf message, event;
	struct arena arena;
	struct relay_message challenge;
	struct err err;

	arena_init(&arena, 4096);
	buf_init(&message, 65536);
	buf_init(&event, 65536);
	expect(client, "[\"AUTH\"", &message);
	if (!relay_message_parse(buf_slice(&message), &arena, &challenge, &err) ||
	    !nip42_sign(probe->crypto, key, slice_of(probe->url), challenge.text,
			auth_tag, time(NULL), aux, &event, &err))
		probe_fail(err.text);
	buf_clear(&message);
	(void)message_write_auth(&message, buf_slice(&event));
	say(client, buf_slice(&message));
	expect(client, "[\"OK\"", NULL);
	buf_finish(&message);
	buf_finish(&event);
	arena_finish(&arena);
}

static void open_reader(struct probe *probe, struct client *client)
{
	char request[256], hex[2 * KEY_BYTES + 1] = "";

	hex_encode(keypair_public(probe->owner), KEY_BYTES, hex);
	open_client(probe, client);
	authenticate(probe, client, probe->owner, SLICE_EMPTY);
	(void)snprintf(request, sizeof(request),
		       "[\"REQ\",\"probe\",{\"kinds\":[%d],\"#p\":[\"%s\"]}]", FRAME_KIND,
		       hex);
	say(client, slice_of(request));
	expect(client, "[\"EOSE\"", NULL);
}

static struct keypair *make_key(struct probe *probe, uint8_t number)
{
	uint8_t secret[KEY_BYTES] = {1, 2, 3};
	struct keypair *key;
	struct err err;

	secret[31] = number;
	if (!keypair_create(probe->crypto, secret, &key, &err))
		probe_fail(err.text);
	return key;
}

static void open_writer(struct probe *probe, struct client *client, uint8_t number)
{
	static const uint8_t aux[32];
	struct buf tag;
	struct err err;

	client->key = make_key(probe, number);
	buf_init(&tag, 4096);
	if (!nipoa_sign(probe->crypto, probe->owner, keypair_public(client->key),
			SLICE_EMPTY, aux, &tag, &err))
		probe_fail(err.text);
	open_client(probe, client);
	authenticate(probe, client, client->key, buf_slice(&tag));
	buf_finish(&tag);
}

/* The n-th frame of a writer as an EVENT message. The content only looks sealed: the
 * relay cannot tell. */
static void write_frame(struct probe *probe, const struct client *writer, size_t number,
			struct buf *out)
{
	static const uint8_t aux[32];
	char p[2 * KEY_BYTES + 1] = "", agent[2 * KEY_BYTES + 1] = "";
	struct event_draft draft = {.created_at = time(NULL), .kind = FRAME_KIND};
	struct buf tags, content;
	struct err err;

	hex_encode(keypair_public(probe->owner), KEY_BYTES, p);
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
	(void)buf_lit(out, "[\"EVENT\",");
	if (!event_sign(probe->crypto, writer->key, &draft, aux, out, NULL, &err))
		probe_fail(err.text);
	(void)buf_lit(out, "]");
	buf_finish(&tags);
	buf_finish(&content);
}

static void read_events(struct probe *probe, struct client *reader)
{
	struct slice bytes, text;
	int64_t now;

	receive(reader, MSG_DONTWAIT);
	now = clock_us(CLOCK_MONOTONIC);
	bytes = buf_slice(&reader->in);
	while (take_message(&bytes, &text)) {
		if (!slice_starts(text, SLICE("[\"EVENT\"")))
			probe_fail("a reader was sent something else than an event");
		if (probe->latencies)
			probe->latencies[probe->delivered] = now - probe->sent_at;
		probe->delivered++;
	}
	buf_consume(&reader->in, reader->in.len - bytes.len);
}

static void read_until(struct probe *probe, size_t delivered)
{
	struct epoll_event ready[64];
	int count, i;

	while (probe->delivered < delivered) {
		count = epoll_wait(probe->poll, ready, 64, WAIT_MS);
		if (count == 0)
			probe_fail("a frame did not reach every reader");
		for (i = 0; i < count; i++)
			read_events(probe, ready[i].data.ptr);
	}
}

/* What both arms are of, as members of their lines. */
#define SETTINGS_FORMAT \
	",\"readers\":%zu,\"publishers\":%zu,\"bytes\":%zu,\"stalled\":%zu,\"idle\":%zu"
#define SETTINGS(probe) \
	(probe)->readers, (probe)->publishers, (probe)->bytes, (probe)->stalled, \
		(probe)->idle

static void run_paced(struct probe *probe, const struct buf *frames)
{
	size_t total = probe->publishers * probe->frames;
	size_t n = total * probe->readers;
	size_t i;

	probe->latencies = mem_array(n, sizeof(*probe->latencies));
	probe->delivered = 0;
	for (i = 0; i < total; i++) {
		probe->sent_at = clock_us(CLOCK_MONOTONIC);
		say(&probe->writers[i % probe->publishers], buf_slice(&frames[i]));
		read_until(probe, (i + 1) * probe->readers);
	}
	probe_print("paced", probe->latencies, n, "us", SETTINGS_FORMAT, SETTINGS(probe));
	free(probe->latencies);
	probe->latencies = NULL;
}

static void run_burst(struct probe *probe, const struct buf *frames)
{
	size_t total = probe->publishers * probe->frames;
	size_t n = total * probe->readers;
	clockid_t relay_cpu;
	int64_t started, cpu;
	size_t i;

	if (clock_getcpuclockid(probe->relay, &relay_cpu) != 0)
		probe_fail("no CPU clock of the relay");
	probe->delivered = 0;
	cpu = clock_us(relay_cpu);
	started = clock_us(CLOCK_MONOTONIC);
	for (i = 0; i < total; i++) {
		say(&probe->writers[probe->publishers + i % probe->publishers],
		    buf_slice(&frames[i]));
		/* Readers keep reading, so that none of them falls behind for our fault.
		 */
		read_until(probe, i * probe->readers / 2);
	}
	read_until(probe, n);
	started = clock_us(CLOCK_MONOTONIC) - started;
	cpu = clock_us(relay_cpu) - cpu;
	probe_note("burst",
		   SETTINGS_FORMAT ",\"runs\":%zu,\"unit\":\"deliveries/s\","
				   "\"value\":%.0f,\"relay_cpu_us_per_delivery\":%.2f",
		   SETTINGS(probe), n, (double)n * 1e6 / (double)started,
		   (double)cpu / (double)n);
}

static struct buf *make_frames(struct probe *probe, const struct client *writers)
{
	size_t total = probe->publishers * probe->frames;
	struct buf *frames = mem_array(total, sizeof(*frames));
	size_t i;

	for (i = 0; i < total; i++) {
		buf_init(&frames[i], EVENT_MAX_BYTES + 64);
		write_frame(probe, &writers[i % probe->publishers], i, &frames[i]);
	}
	return frames;
}

static void free_frames(struct probe *probe, struct buf *frames)
{
	size_t total = probe->publishers * probe->frames;
	size_t i;

	for (i = 0; i < total; i++)
		buf_finish(&frames[i]);
	free(frames);
}

static void close_clients(struct client *clients, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++) {
		(void)close(clients[i].fd);
		buf_finish(&clients[i].in);
		keypair_destroy(clients[i].key);
	}
	free(clients);
}

int main(void)
{
	static const uint8_t seed[32] = {1};
	struct probe probe = {
		.readers = probe_setting("PERCH_PROBE_READERS", 100, 1, READERS_MAX),
		.publishers = probe_setting("PERCH_PROBE_PUBLISHERS", 4, 1, 100),
		.frames = probe_setting("PERCH_PROBE_FRAMES", 80, 1, RELAY_FRAMES_PER_S),
		.bytes = probe_setting("PERCH_PROBE_BYTES", 2000, 132, 87472) / 4 * 4,
		.stalled = probe_setting("PERCH_PROBE_STALLED", 0, 0, READERS_MAX),
		.idle = probe_setting("PERCH_PROBE_IDLE", 0, 0, READERS_MAX),
	};
	struct client *others;
	struct buf *paced, *burst;
	struct err err;
	int status;
	size_t i;

	start_relay(&probe);
	probe.crypto = crypto_create(seed, &err);
	if (!probe.crypto)
		probe_fail(err.text);
	probe.owner = make_key(&probe, 255);
	probe.poll = epoll_create1(EPOLL_CLOEXEC);
	probe.clients = mem_array(probe.readers, sizeof(*probe.clients));
	for (i = 0; i < probe.readers; i++) {
		struct epoll_event interest = {.events = EPOLLIN,
					       .data.ptr = &probe.clients[i]};

		open_reader(&probe, &probe.clients[i]);
		if (epoll_ctl(probe.poll, EPOLL_CTL_ADD, probe.clients[i].fd, &interest) <
		    0)
			probe_fail("no epoll");
	}
	others = mem_array(probe.stalled + probe.idle + 1, sizeof(*others));
	for (i = 0; i < probe.stalled; i++)
		open_reader(&probe, &others[i]);
	for (; i < probe.stalled + probe.idle; i++)
		open_client(&probe, &others[i]);
	probe.writers = mem_array(2 * probe.publishers, sizeof(*probe.writers));
	for (i = 0; i < 2 * probe.publishers; i++)
		open_writer(&probe, &probe.writers[i], (uint8_t)i);
	paced = make_frames(&probe, probe.writers);
	burst = make_frames(&probe, probe.writers + probe.publishers);
	run_paced(&probe, paced);
	run_burst(&probe, burst);
	free_frames(&probe, paced);
	free_frames(&probe, burst);
	close_clients(probe.clients, probe.readers);
	close_clients(probe.writers, 2 * probe.publishers);
	close_clients(others, probe.stalled + probe.idle);
	(void)close(probe.poll);
	keypair_destroy(probe.owner);
	crypto_destroy(probe.crypto);
	(void)kill(probe.relay, SIGTERM);
	if (waitpid(probe.relay, &status, 0) < 0 || status != 0)
		probe_fail("the relay did not stop cleanly");
	return 0;
}
