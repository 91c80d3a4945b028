#ifndef RELAY_STORE_PUT_H
#define RELAY_STORE_PUT_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/nostr/event.h"

struct sqlite3;

/* How events get into the store and out of it: NIP-01's replaceable and addressable
 * kinds, NIP-09's deletions, NIP-40's expiration. For one thread, the writer's; every
 * function runs inside its transaction. */

#define KIND_DELETION 5
/* created_at (8 bytes, see store_schema.c), then the id. */
#define RANK_BYTES 40

/* NIP-40: the first expiration tag counts; one that is no number is none. */
bool event_expires(const struct event *event, int64_t *out);
/* NIP-01's order as bytes: newest first, ties by the lowest id. @created_at: 0 or more.
 */
void rank_write(int64_t created_at, const uint8_t id[32], uint8_t rank[RANK_BYTES]);

struct store_put;
/* @db: borrowed; the thread that has it calls all the others. */
struct store_put *store_put_create(struct sqlite3 *db, struct err *err);
/* The largest seq ever given; 0 for a new database. */
bool store_put_last_seq(struct sqlite3 *db, int64_t *out, struct err *err);
/* NULL is fine. */
void store_put_destroy(struct store_put *put);

enum put_verdict {
	PUT_STORED,
	PUT_DUPLICATE, /* OK true, with the words */
	PUT_REFUSED,   /* OK false, with the words */
};

struct put_result {
	enum put_verdict verdict;
	int64_t seq;     /* PUT_STORED: larger than of any event before */
	bool is_deleted; /* PUT_REFUSED: by its author; else there is a newer version */
	char text[64];   /* else: prefix and words */
};

/**
 * store_put_event - keep one event that was verified
 * @json: its canonical text (event_write())
 * @now: Unix seconds; a version of the same address that has expired stands in nobody's
 *   way
 *
 * A deletion takes away what its author published, by id and by address, and is
 * remembered: what it names is refused for ever, also when it comes later. False when the
 * database failed.
 */
bool store_put_event(struct store_put *put, const struct event *event, struct slice json,
		     int64_t now, struct put_result *out, struct err *err);
/* Removes at most @most expired events; @count_out: how many. */
bool store_put_sweep(struct store_put *put, int64_t now, int64_t most, int64_t *count_out,
		     struct err *err);

#endif
