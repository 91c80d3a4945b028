#ifndef AGENT_JOURNAL_DB_H
#define AGENT_JOURNAL_DB_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/journal_index.h"
#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"

/* The journal's file: frames by (epoch, number) and whole events by (epoch, seq), each
 * sealed with XChaCha20-Poly1305 so that a copy of the disk tells when this agent worked
 * and how much it said, but not what. What a row stands for is authenticated with it:
 * rows cannot change places. For one thread, never the loop's. */
struct journal_db;

#define JOURNAL_KEY_BYTES 32

struct journal_db_options {
	const char *path; /* borrowed, as are all */
	const uint8_t *key;
	const char *epoch; /* of this start */
	int64_t max_bytes; /* of all that is kept; whole events have at most half of it */
	int64_t max_age_s;
};

/* Opens or makes the file, drops what is too old, and reads which frames there are into
 * @index. @unclean: the epoch before this one did not say that it stopped. Errors as of
 * db_open(). */
bool journal_db_open(const struct journal_db_options *options, int64_t now_s,
		     struct journal_db **out, struct journal_index *index, bool *unclean,
		     struct err *err);
void journal_db_close(struct journal_db *db);

bool journal_db_begin(struct journal_db *db, struct err *err);
bool journal_db_commit(struct journal_db *db, struct err *err);
void journal_db_rollback(struct journal_db *db);
/* Inside a transaction. One that is there is replaced. */
bool journal_db_put_frame(struct journal_db *db, const char *epoch, uint64_t number,
			  int64_t now_s, struct slice frame, struct err *err);
bool journal_db_put_body(struct journal_db *db, const char *epoch, uint64_t seq,
			 int64_t now_s, struct slice body, struct err *err);
/* This epoch has said that it stops. */
bool journal_db_put_stopped(struct journal_db *db, struct err *err);

/* An older file was broken and is lost with what it held: remembered until frames of this
 * one are let go. */
bool journal_db_put_lost(struct journal_db *db, int64_t now_s, struct err *err);
bool journal_db_was_lost(const struct journal_db *db);

/* Takes out the oldest frame that is one too many or too old; false: there is none, or
 * that failed (then err->code is set). */
bool journal_db_drop_frame(struct journal_db *db, int64_t now_s, char epoch[17],
			   uint64_t *number, struct err *err);
bool journal_db_drop_body(struct journal_db *db, int64_t now_s, struct err *err);

/* Appends the plaintext. ERR_NOT_FOUND: there is none, or it was tampered with. */
bool journal_db_frame(struct journal_db *db, const char *epoch, uint64_t number,
		      struct buf *out, struct err *err);
bool journal_db_body(struct journal_db *db, const char *epoch, uint64_t seq,
		     struct buf *out, struct err *err);
/* What all rows hold. */
int64_t journal_db_bytes(const struct journal_db *db);

#endif
