#ifndef OBSERVER_ARCHIVE_H
#define OBSERVER_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observer/fold.h"
#include "observer/pos.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/frame/control.h"
#include "wire/host/loop.h"
#include "wire/nostr/crypto.h"

/* What was seen, on disk: every frame once, its plaintext compressed, and an index of its
 * events. One thread has the database; the loop hands it work and is called back. Rows
 * are not stored: those of an old page are derived again from its events, by the same
 * reducer. */
struct archive;

/* Work that may wait for the disk: beyond it frames are not archived, and said so. */
#define ARCHIVE_QUEUE_MAX (64u << 20)

/* What is kept unless told otherwise. */
#define ARCHIVE_KEEP_DAYS 90
#define ARCHIVE_KEEP_MIB 4096
/* In memory, where the disk cannot be used. */
#define ARCHIVE_MEMORY_MIB 64

struct archive_options {
	const char *path; /* NULL: in memory, because of @why */
	const char *why;
	int64_t keep_ms, keep_bytes; /* since it came, and in all; 0: without an end */
};

/* Opens or makes the database; a second observer is kept out by the caller's lock. A
 * broken or foreign file is moved to PATH.broken-UNIXTIME, which is said, and a new one
 * begun: the journals have what it had. Where the disk refuses, what comes is kept in
 * memory, and archive_trouble() says why. ERR_REFUSED: a newer perch's. */
struct archive *archive_open(const struct archive_options *options, struct err *err);
/* Why what comes is not kept on disk, "" while it is. */
void archive_trouble(struct archive *archive, char out[200]);

/* What a start has to know again. */
struct archive_loader {
	void (*on_number)(void *ctx, const uint8_t *agent, const char *epoch,
			  uint64_t number);
	void (*on_gone)(void *ctx, const uint8_t *agent, const char *epoch,
			struct frame_range range);
	/* Was here, and is not wanted back. */
	void (*on_forgotten)(void *ctx, const uint8_t *agent, const char *epoch,
			     struct frame_range range);
	/* An event as it was sent, or as its body was fetched, of the newest turns. */
	void (*on_event)(void *ctx, const uint8_t *agent, const char *epoch,
			 struct slice text, int64_t received_ms);
	/* Events of this lane at or below @pos were not told. */
	void (*on_floor)(void *ctx, const uint8_t *agent, struct slice channel,
			 const struct pos *pos);
};
/* Before archive_start(), on the caller's thread. */
bool archive_load(struct archive *archive, const struct archive_loader *loader, void *ctx,
		  struct err *err);
/* Starts the thread; answers come on @loop. */
bool archive_start(struct archive *archive, struct loop *loop, struct err *err);
/* Writes and answers what waits, ends the thread, closes. NULL is fine. */
void archive_close(struct archive *archive);

/* @epoch: "" for a foreign feed, whose @number is 0. Copies. */
void archive_store(struct archive *archive, const uint8_t *agent, const char *epoch,
		   uint64_t number, int64_t received_ms, struct slice plaintext);
void archive_store_body(struct archive *archive, const uint8_t *agent, const char *epoch,
			uint64_t seq, struct slice text);
void archive_store_gone(struct archive *archive, const uint8_t *agent, const char *epoch,
			struct frame_range range);

struct archive_row {
	struct pos pos;
	char *id, *json; /* NUL-terminated */
	size_t id_len, json_len;
};

/* A segment, derived again. */
struct archive_fold {
	struct fold *fold;
	struct buf tag; /* model_segment_tag() */
	bool is_turn;
};

struct archive_answer {
	bool ok;
	struct err err;
	struct archive_row *rows; /* ascending */
	size_t row_count;
	bool more;
	struct archive_fold *folds; /* the newest first */
	size_t fold_count;
	struct pos low; /* what is before it was not looked at */
	char *text;     /* the event */
	size_t text_len;
};
/* Called on the loop; @answer lives until it returns. */
typedef void archive_done(void *ctx, const struct archive_answer *answer);

/* The newest @limit rows before @before (NULL: the newest). */
void archive_rows(struct archive *archive, const uint8_t *agent, struct slice channel,
		  const struct pos *before, size_t limit, archive_done *done, void *ctx);
/* The segments of some events before @before, without the one named @skip. */
void archive_folds(struct archive *archive, const uint8_t *agent, struct slice channel,
		   const struct pos *before, struct slice skip, archive_done *done,
		   void *ctx);
void archive_event(struct archive *archive, const uint8_t *agent, const struct pos *pos,
		   archive_done *done, void *ctx);

#endif
