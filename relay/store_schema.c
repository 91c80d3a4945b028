#include "relay/store_schema.h"

#include <stddef.h>

#include "relay/book.h"

/* Version 1: events.
 *
 * rank is 40 bytes: INT64_MAX - created_at (8 bytes, most significant first), then the
 * id. Its order is NIP-01's: newest first, ties by the lowest id. Every index ends with
 * it, so that each answers in order and a scan goes on behind any event by one seek.
 *
 * seq grows by one with each commit order and is never used again: a subscription knows
 * by it what it gets by its scan and what live. d: the d tag's value of an addressable
 * event, empty for a replaceable one, NULL for all others. json: NIP-01's seven members,
 * in canonical form, on one line. */
static const char events[] =
	"CREATE TABLE event ("
	" seq INTEGER PRIMARY KEY AUTOINCREMENT,"
	" id BLOB NOT NULL UNIQUE,"
	" rank BLOB NOT NULL,"
	" pubkey BLOB NOT NULL,"
	" kind INTEGER NOT NULL,"
	" d BLOB,"
	" expires INTEGER,"
	" json BLOB NOT NULL);"
	"CREATE INDEX event_time ON event (rank);"
	"CREATE INDEX event_author ON event (pubkey, rank);"
	"CREATE INDEX event_author_kind ON event (pubkey, kind, rank);"
	"CREATE INDEX event_kind ON event (kind, rank);"
	"CREATE UNIQUE INDEX event_address ON event (pubkey, kind, d)"
	" WHERE d IS NOT NULL;"
	"CREATE INDEX event_expires ON event (expires) WHERE expires IS NOT NULL;"
	/* name: the letter's code; value: of the tag's second string. */
	"CREATE TABLE tag ("
	" name INTEGER NOT NULL, value BLOB NOT NULL, rank BLOB NOT NULL,"
	" seq INTEGER NOT NULL,"
	" PRIMARY KEY (name, value, rank)) WITHOUT ROWID;"
	/* NIP-09: what its author deleted stays deleted, also when it comes later. */
	"CREATE TABLE deleted_id ("
	" id BLOB NOT NULL, pubkey BLOB NOT NULL,"
	" PRIMARY KEY (id, pubkey)) WITHOUT ROWID;"
	"CREATE TABLE deleted_address ("
	" pubkey BLOB NOT NULL, kind INTEGER NOT NULL, d BLOB NOT NULL,"
	" until INTEGER NOT NULL,"
	" PRIMARY KEY (pubkey, kind, d)) WITHOUT ROWID;";

const char *const store_migrations[] = {events, book_schema, book_cut_schema, NULL};
