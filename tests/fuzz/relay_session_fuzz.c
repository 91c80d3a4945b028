/* Sessions: lines of messages from two clients of one relay with a store. The first holds
 * the key of an agent, the second may come to hold that of its owner.
 *
 * A line that begins with ' ' is the second client's; what follows is a message, or
 *   +KIND SECONDS TAGS   an EVENT that the agent signs, its time as seconds from the
 *                        start; -… is signed by the owner
 *   *                    AUTH by the owner's key
 *   ~SECONDS             time goes on
 *   !                    the first client ends
 * An empty line lets the loop wait: signatures that were put off are checked, the store's
 * threads work and the sockets drain.
 *
 * What costs time and keeps nothing of an input is made once: a session takes well below
 * a millisecond. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "relay/connection.h"
#include "relay/publish.h"
#include "relay/store.h"
#include "relay/verifier.h"
#include "wire/frame/limits.h"
#include "wire/host/db.h"
#include "wire/host/log.h"
#include "wire/nostr/nip42.h"

#define START INT64_C(1796000000)
#define RELAY_URL "ws://relay.example"
#define FIELD_MAX 1000000 /* of the numbers in a line */

enum { AGENT, OWNER };

static struct {
	struct crypto *crypto;
	struct keypair *keys[2];
	struct store *store;
	struct verifier *verifier;
	/* Made by core_keep(), kept from core to core. */
	struct store_put *put;
	struct store_scanner *scanner;
	int changes; /* of the database, when it was empty last */
	int64_t now;
} once;

static const uint8_t zeros[32];

/* Of what fails only when the machine does. */
static void must(bool done)
{
	assert(done);
}

static void wake(struct connection *connection)
{
	(void)connection;
}

static int64_t unix_ms(void)
{
	return once.now * 1000;
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
	assert(core->put_off.count < VERIFIER_MAX);
}

static void receive(struct connection *connection, struct slice verb,
		    const struct event_draft *draft, const struct keypair *key)
{
	struct buf out;

	buf_init(&out, RELAY_MESSAGE_MAX);
	if (buf_printf(&out, "[\"%.*s\",", SLICE_ARG(verb)) &&
	    event_sign(once.crypto, key, draft, zeros, &out, NULL, NULL) &&
	    buf_append_byte(&out, ']'))
		connection_receive(connection, buf_slice(&out), CHUNK_TEXT, true);
	buf_finish(&out);
}

/* Takes a number that ends with a space; 0 for what is none. */
static int64_t take_number(struct slice *line)
{
	struct slice text = SLICE_EMPTY;
	uint64_t number = 0;

	(void)slice_take_until(line, ' ', &text);
	(void)slice_parse_u64(text, FIELD_MAX, &number);
	return (int64_t)number;
}

static void publish(struct connection *connection, const struct keypair *key,
		    struct slice line)
{
	/* Looks as if it were encrypted (NIP-44, version 2). */
	char content[132];
	struct event_draft draft = {.content = {content, sizeof(content)}};

	memset(content, 'A', sizeof(content));
	content[1] = 'g';
	draft.kind = (uint32_t)take_number(&line);
	draft.created_at = START + take_number(&line);
	draft.tags = line;
	receive(connection, SLICE("EVENT"), &draft, key);
}

static void authenticate(struct connection *connection)
{
	struct event_draft draft = {.kind = NIP42_KIND, .created_at = once.now};
	struct buf tags;

	buf_init(&tags, 256);
	(void)buf_printf(&tags, "[[\"relay\",\"" RELAY_URL "\"],[\"challenge\",\"%s\"]]",
			 connection->challenge);
	draft.tags = buf_slice(&tags);
	receive(connection, SLICE("AUTH"), &draft, once.keys[OWNER]);
	buf_finish(&tags);
}

static void handle_client(struct core *core, struct connection *client, struct slice line)
{
	struct slice rest = line;

	rest.ptr++;
	rest.len--;
	switch (line.ptr[0]) {
	case '+':
		publish(client, once.keys[AGENT], rest);
		return;
	case '-':
		publish(client, once.keys[OWNER], rest);
		return;
	case '*':
		authenticate(client);
		return;
	case '~':
		once.now += take_number(&rest);
		window_expire(&core->window, once.now);
		publish_sweep(core);
		core_recheck(core);
		return;
	default:
		connection_receive(client, line, CHUNK_TEXT, true);
		return;
	}
}

static void handle(struct core *core, struct connection *clients[2], struct slice line)
{
	int who = line.len > 0 && line.ptr[0] == ' ';

	line.ptr += who;
	line.len -= (size_t)who;
	if (line.len == 0) {
		publish_settle(core);
		store_step(core->store);
		drain(clients[0]);
		drain(clients[1]);
	} else if (slice_eq(line, SLICE("!"))) {
		connection_destroy(clients[0]);
		clients[0] = NULL;
	} else if (clients[who]) {
		handle_client(core, clients[who], line);
	}
	check(core);
}

/* The database without a name from now on: nothing stays of it, however this ends. */
static void open_store(void)
{
	static const char *const suffixes[] = {"", "-wal", "-shm", STORE_LOCK_SUFFIX};
	char path[64];
	char name[80];
	size_t i;

	(void)snprintf(path, sizeof(path), "/dev/shm/perch-fuzz-%ld.db", (long)getpid());
	once.store = store_open(path, NULL);
	assert(once.store);
	/* No power cut hurts what has no name. */
	must(db_exec(store_db(once.store), "PRAGMA synchronous = OFF", NULL));
	for (i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		(void)snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
		(void)unlink(name);
	}
}

static void begin_once(void)
{
	uint8_t secret[KEY_BYTES] = {0};
	size_t i;

	if (once.crypto)
		return;
	log_set_level(LOG_ERROR);
	once.crypto = crypto_create(zeros, NULL);
	assert(once.crypto);
	for (i = 0; i < 2; i++) {
		secret[KEY_BYTES - 1] = (uint8_t)(i + 1);
		must(keypair_create(once.crypto, secret, &once.keys[i], NULL));
	}
	once.verifier = verifier_create(0, VERIFIER_WAIT_NS, NULL);
	assert(once.verifier);
	open_store();
}

static void keep(struct core *core)
{
	if (!once.put) {
		must(core_keep(core, once.store, NULL));
		once.put = core->put;
		once.scanner = core->scanner;
	}
	core->store = once.store;
	core->put = once.put;
	core->scanner = once.scanner;
	core->seq = 0;
	core->admit.stores = true;
}

/* The next session finds the store as this one did. */
static void empty_store(void)
{
	static const char sql[] = "BEGIN; DELETE FROM event; DELETE FROM tag;"
				  "DELETE FROM deleted_id; DELETE FROM deleted_address;"
				  "DELETE FROM sqlite_sequence; COMMIT";
	struct sqlite3 *db = store_db(once.store);

	if (sqlite3_total_changes(db) == once.changes)
		return;
	must(db_exec(db, sql, NULL));
	once.changes = sqlite3_total_changes(db);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct slice urls[] = {SLICE_INIT(RELAY_URL)};
	struct slice text = {(const char *)data, size};
	struct connection *clients[2];
	const uint8_t *agent;
	struct core core;
	struct slice line;

	begin_once();
	once.now = START;
	agent = keypair_public(once.keys[AGENT]);
	core_init(&core, &io, once.crypto);
	keep(&core);
	core.verifier = once.verifier;
	core.urls = urls;
	core.url_count = 1;
	core.admit.open = true;
	(void)owners_bind(&core.admit.owners, agent, keypair_public(once.keys[OWNER]),
			  INT64_MAX, START);
	clients[0] = connection_create(&core, NULL, NULL);
	clients[1] = connection_create(&core, NULL, NULL);
	/* As if it had answered its challenge. */
	(void)keyset_add(&clients[0]->keys, agent);
	owners_enter(&core.admit.owners, agent);
	while (slice_take_until(&text, '\n', &line))
		handle(&core, clients, line);
	publish_settle(&core);
	connection_destroy(clients[0]);
	core_keep_no_more(&core);
	store_step(once.store);
	connection_destroy(clients[1]);
	assert(core.retained.bytes == 0);
	core.put = NULL;
	core.scanner = NULL;
	core_finish(&core);
	empty_store();
	return 0;
}
