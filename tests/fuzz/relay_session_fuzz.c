/* Sessions: lines of messages from two clients of one relay, one of them authenticated,
 * with a store on disk. A line that begins with ' ' is the second client's; an empty one
 * lets the store's threads work and the sockets drain; "!" ends the first client. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "relay/connection.h"
#include "relay/store.h"
#include "wire/frame/limits.h"
#include "wire/host/log.h"

#define NOW INT64_C(1796000000)

static void wake(struct connection *connection)
{
	(void)connection;
}

static int64_t unix_ms(void)
{
	return NOW * 1000;
}

static const struct connection_io io = {
	.wake = wake, .unix_ms = unix_ms, .now_ms = unix_ms};

static void drain(struct connection *connection)
{
	struct buf out;

	if (!connection)
		return;
	buf_init(&out, EVENT_MAX_BYTES + 8192);
	while (queue_take(&connection->queue, &out)) {
		assert(buf_ok(&out) && utf8_valid(buf_slice(&out)));
		buf_clear(&out);
	}
	buf_finish(&out);
	connection_sent(connection);
}

static void check(const struct core *core)
{
	const struct connection *at;

	for (at = core->connections; at; at = at->next) {
		assert(at->sub_count <= RELAY_SUBS_MAX);
		assert(at->scans.held_bytes <= 2 * RELAY_READER_QUEUE_MAX);
		assert(at->answers.left <= at->answers.taken);
		assert(at->answers.first || at->answers.left == at->answers.taken);
	}
}

static void handle(struct core *core, struct connection *peers[2], struct slice line)
{
	int who = line.len > 0 && line.ptr[0] == ' ';

	if (line.len == 0) {
		store_step(core->store);
		drain(peers[0]);
		drain(peers[1]);
	} else if (slice_eq(line, SLICE("!"))) {
		connection_destroy(peers[0]);
		peers[0] = NULL;
	} else if (peers[who]) {
		connection_receive(peers[who], line, CHUNK_TEXT, true);
	}
	check(core);
}

static void remove_file(const char *path, const char *suffix)
{
	char name[128];

	(void)snprintf(name, sizeof(name), "%s%s", path, suffix);
	(void)unlink(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t seed[32] = {7}, key[KEY_BYTES] = {1};
	struct slice text = {(const char *)data, size};
	struct connection *peers[2];
	struct crypto *crypto;
	struct store *store;
	struct core core;
	struct slice line;
	char path[64];

	log_set_level(LOG_ERROR);
	(void)snprintf(path, sizeof(path), "/dev/shm/perch-fuzz-%ld.db", (long)getpid());
	crypto = crypto_create(seed, NULL);
	store = store_open(path, NULL);
	assert(crypto && store);
	core_init(&core, &io, crypto);
	assert(core_keep(&core, store, NULL));
	core.admit.open = true;
	peers[0] = connection_create(&core, NULL, NULL);
	peers[1] = connection_create(&core, NULL, NULL);
	/* As if it had answered its challenge. */
	(void)keyset_add(&peers[0]->keys, key);
	owners_enter(&core.admit.owners, key);
	while (slice_take_until(&text, '\n', &line))
		handle(&core, peers, line);
	connection_destroy(peers[0]);
	core_keep_no_more(&core);
	store_close(store);
	connection_destroy(peers[1]);
	assert(core.retained.bytes == 0);
	core_finish(&core);
	crypto_destroy(crypto);
	remove_file(path, "");
	remove_file(path, "-wal");
	remove_file(path, "-shm");
	remove_file(path, ".lock");
	return 0;
}
