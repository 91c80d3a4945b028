#ifndef RELAY_BOOK_H
#define RELAY_BOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relay/owners.h"
#include "relay/store.h"
#include "wire/base/err.h"

struct sqlite3;

/* Owners, bindings and revocations on disk. A relay reads them at its start, hears of
 * what others wrote when it is told to read again, and writes what it learns. */

/* The tables, for store_migrations, in this order. */
extern const char book_schema[], book_cut_schema[];

/* What binds an agent, or that it is revoked. */
struct book_row {
	uint8_t agent[KEY_BYTES];
	uint8_t owner[KEY_BYTES]; /* zeros when revoked */
	bool revoked;
	int64_t until; /* expires, INT64_MAX for never; or since when it is revoked */
};

/* Calls @each with every listed owner, in order of their keys. */
bool book_each_owner(struct sqlite3 *db,
		     void (*each)(void *ctx, const uint8_t owner[KEY_BYTES]), void *ctx,
		     struct err *err);
/* Calls @each with every binding and every revocation. */
bool book_each_agent(struct sqlite3 *db,
		     void (*each)(void *ctx, const struct book_row *row), void *ctx,
		     struct err *err);

/* Changes, each a statement of its own. @changed_out: false when it was so already. */
bool book_add_owner(struct sqlite3 *db, const uint8_t owner[KEY_BYTES], bool *changed_out,
		    struct err *err);
bool book_remove_owner(struct sqlite3 *db, const uint8_t owner[KEY_BYTES],
		       bool *changed_out, struct err *err);
/* Forgets the agent's bindings, too; a relay that runs hears of it also when the agent is
 * allowed again before it looks. @now: Unix seconds. */
bool book_revoke(struct sqlite3 *db, const uint8_t agent[KEY_BYTES], int64_t now,
		 bool *changed_out, struct err *err);
bool book_allow(struct sqlite3 *db, const uint8_t agent[KEY_BYTES], bool *changed_out,
		struct err *err);

/* Fills @owners, which has its by_list, and drops what has expired. */
bool book_load(struct sqlite3 *db, struct owners *owners, int64_t now, struct err *err);
/* From now on the store's writer keeps what @owners learns. */
void book_keep(struct store *store, struct owners *owners);
/* Has list and revocations read again, puts them into @owners and calls @done, which may
 * be told why that failed; false when too much waits for the disk. While @done is called
 * also those are revoked who were since the last time and are allowed again: what bound
 * them is forgotten, and @done ends their sessions. */
bool book_reload(struct store *store, struct owners *owners,
		 void (*done)(void *ctx, const struct err *err), void *ctx);

#endif
