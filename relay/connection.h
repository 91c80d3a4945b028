#ifndef RELAY_CONNECTION_H
#define RELAY_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relay/admit.h"
#include "relay/counters.h"
#include "relay/queue.h"
#include "relay/route.h"
#include "relay/window.h"
#include "wire/base/arena.h"
#include "wire/base/buf.h"
#include "wire/base/slice.h"
#include "wire/frame/limits.h"

/* WebSocket close codes (RFC 6455, 7.4.1). */
#define CLOSE_NORMAL 1000
#define CLOSE_GOING_AWAY 1001
#define CLOSE_BAD_TEXT 1007
#define CLOSE_POLICY 1008
#define CLOSE_TOO_BIG 1009

/* Most memory for the filters of all subscriptions of one connection, as
 * subscription.bytes counts: room for 5,000 authors, or for every one of the 64 to name a
 * hundred keys. Our choice. */
#define CONNECTION_FILTER_BYTES_MAX (2 * 1024 * 1024)
/* REQ and AUTH of one connection, which cost more than they weigh: a replay of the
 * window, a signature. So many at once and so many a second; our choice. */
#define CONNECTION_ASKS_MAX 256
#define CONNECTION_ASKS_PER_S 50

struct connection;

/* How connections reach their sockets and the time; the server's, or a test's. */
struct connection_io {
	/* There is something to send, or the connection wants to be closed. */
	void (*wake)(struct connection *connection);
	int64_t (*unix_ms)(void);
	int64_t (*now_ms)(void); /* does not go back */
};

/* What all connections of one relay share. One thread: the loop's. */
struct core {
	const struct connection_io *io;
	struct admit admit;
	struct window window;
	struct route route;
	struct counters counters;
	struct retained retained;
	struct arena arena;  /* of the message being handled, and of events put off */
	struct buf answer;   /* of the message being written */
	struct buf stripped; /* of an event that had more than it should */
	const struct slice *urls; /* taken as ours in AUTH; whoever listens sets them */
	size_t url_count;
	/* NULL: each signature is checked as its event comes. Whoever sets it calls
	 * publish_settle() before waiting for anything. */
	struct verifier *verifier;
	/* Events whose signatures are being checked, in the order they came. */
	struct {
		struct put_off *first, **end;
		size_t count;
	} put_off;
	struct connection *connections;
	struct connection *behind; /* slow readers met in this fan-out */
	uint64_t fan_out;          /* number of the last one */
	/* NULL when stored kinds are refused. The writer has put, the reader scanner. */
	struct store *store;
	struct store_put *put;
	struct store_scanner *scanner;
	bool disk_failed; /* ever; and when that was logged */
	int64_t disk_failed_ms;
	bool mute;   /* OK false for what nobody received and nobody will */
	int64_t seq; /* of the last stored event that was handed to subscribers */
};

/* Takes no URL as ours yet: that is known when the relay listens. */
void core_init(struct core *core, const struct connection_io *io, struct crypto *crypto);
/* Keeps stored kinds in @store, which was not started yet; borrowed. */
bool core_keep(struct core *core, struct store *store, struct err *err);
/* What is published from now on is refused; store_close() answers what waits. */
void core_keep_no_more(struct core *core);
/* Unix seconds. */
int64_t core_now_s(const struct core *core);
/* All connections must be gone. */
void core_finish(struct core *core);
/* Counts a refusal and logs it, unless that kind was logged just now. @text: may hold the
 * peer's words. */
void core_refuse(struct core *core, uint64_t connection, enum refusal refusal,
		 const char *text);

/* What a client hears when the database fails: paths are none of its business. */
#define DISK_FAILED \
	"error: the relay cannot use its database now, its log says why: try again " \
	"later"
/* Logs why the database failed, unless something like it was logged just now. */
void core_fail_disk(struct core *core, const struct err *err);

enum connection_state {
	CONNECTION_OPEN,
	CONNECTION_CLOSING, /* what is queued is sent, then the socket is closed */
};

/* OKs leave in the order of their EVENTs and AUTHs. That of a stored kind is known only
 * after the commit: those behind it wait, and so do REQ and COUNT, which therefore find
 * what their own connection published before. Everything else is answered at once. */
struct answers {
	struct answer_slot *first, **end; /* those that did not leave */
	size_t bytes;                     /* of texts that wait */
	uint64_t taken, left;             /* places, so far */
};

/* What the subscriptions of one connection still get from the store: one slice at a time,
 * each in its turn. */
struct scans {
	struct scan *first, **end;
	struct scan *running; /* which the reader has */
	size_t held_bytes;    /* of live events that wait for an EOSE */
	size_t counts;        /* COUNTs among them */
};

/* One client: NIP-01's server side without the socket. */
struct connection {
	struct core *core;
	struct connection *next, *prev;
	void *socket;    /* the io's */
	uint64_t number; /* for the log */
	enum connection_state state;
	int close_code;
	const char *close_reason; /* static */
	struct buf partial;       /* of a message that is still arriving */
	char challenge[33];       /* 16 random bytes in hex */
	char *host_url;           /* ws://Host if Host was loopback's, else NULL */
	struct address from;      /* whose it is; set by the server, unknown at first */
	struct keyset keys;
	struct subscription *subs[RELAY_SUBS_MAX];
	size_t sub_count;
	size_t sub_bytes; /* of their filters' texts */
	struct answers answers;
	struct scans scans;
	/* REQ and AUTH that it may send at once, in thousandths, and when that was. */
	int64_t asks, asks_ms;
	struct queue queue;
	bool is_behind;
	struct connection *next_behind;
	uint64_t fan_out; /* number of the last one that reached it */
};

/* Greets with an AUTH challenge. @host_url: taken as ours in AUTH; copied, may be NULL.
 */
struct connection *connection_create(struct core *core, void *socket,
				     const char *host_url);
/* The socket is gone. NULL is fine. */
void connection_destroy(struct connection *connection);

enum chunk {
	CHUNK_TEXT,
	CHUNK_BINARY,
};
/* Some bytes of a message; @last when they are the end of it. */
void connection_receive(struct connection *connection, struct slice bytes,
			enum chunk type, bool last);
/* Closes a client that neither authenticated nor subscribed in RELAY_AUTH_TIMEOUT_S, nor
 * published what was taken without. */
void connection_auth_timeout(struct connection *connection);
/* Owners, list or revocations have changed, or time has passed: ends the connections that
 * may not stay. */
void core_recheck(struct core *core);
/* Some of the queue was sent: goes on with what had to wait for that. */
void connection_sent(struct connection *connection);
/* Sends what is queued, then closes. @reason: static. */
void connection_close(struct connection *connection, int code, const char *reason);

#endif
