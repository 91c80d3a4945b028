#ifndef OBSERVER_ARCHIVE_H
#define OBSERVER_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observer/fold.h"
#include "observer/part.h"
#include "observer/pos.h"
#include "observer/raw.h"
#include "observer/search_query.h"
#include "observer/values.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/frame/gone.h"
#include "wire/host/loop.h"
#include "wire/nostr/crypto.h"

/* What was seen, on disk: every frame once, its plaintext compressed, and an index of its
 * events. One thread has the database; the loop hands it work and is called back. Rows
 * are not stored: those of an old page are derived again from its events, by the same
 * reducer. */
struct archive;

/* Work that may wait for the disk: beyond it frames are not archived, and said so. */
#define ARCHIVE_QUEUE_MAX (64u << 20)
/* Questions of others that may wait; more are refused. Who waits for the last of so many
 * searches waits for minutes. Our choice. */
#define ARCHIVE_QUESTIONS_MAX 256

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

/* What the archive finds out. Called on the loop. */
struct archive_events {
	/* The disk, which refused these frames, takes some again. */
	void (*on_lost)(void *ctx, const uint8_t *agent, const char *epoch,
			struct frame_range range);
	/* The file was found broken and moved aside: the new one has nothing. */
	void (*on_anew)(void *ctx);
};

/* Opens or makes the database; a second observer is kept out by the caller's lock. A
 * broken or foreign file is moved to PATH.broken-UNIXTIME, which is said, and a new one
 * begun: the journals have what it had. A large file is not read for that on opening, but
 * beside the work, once that has begun. Where the disk refuses, what comes is kept in
 * memory, and archive_trouble() says why. ERR_REFUSED: a newer perch's. */
struct archive *archive_open(const struct archive_options *options, struct err *err);
/* Why what comes is not kept on disk, "" while it is. */
void archive_trouble(struct archive *archive, char out[200]);
/* All that comes is kept in memory only. */
bool archive_is_in_memory(struct archive *archive);
/* Where a broken file was moved first in this start; "" if none was. */
const char *archive_aside(struct archive *archive);

/* What it did since it was opened. */
struct archive_figures {
	uint64_t kept;    /* records: frames, bodies, notes of what is gone */
	uint64_t lost;    /* those that the disk refused, or was too slow for */
	uint64_t waiting; /* of them now, not yet with the disk */
	uint64_t waiting_bytes, questions; /* now */
	uint64_t bytes;                    /* of the file and its log; 0 in memory */
	bool failing;
};
void archive_figures(struct archive *archive, struct archive_figures *out);

/* What a start has to know again. */
struct archive_loader {
	/* These frames are here, or were and are not wanted back. */
	void (*on_known)(void *ctx, const uint8_t *agent, const char *epoch,
			 struct frame_range range);
	void (*on_gone)(void *ctx, const uint8_t *agent, const char *epoch,
			struct gone_range gone);
	/* An event as it was sent, or as its body was fetched, of the newest turns. */
	void (*on_event)(void *ctx, const uint8_t *agent, const char *epoch,
			 struct slice text, int64_t received_ms);
	/* Events of this lane at or below @pos were not told. */
	void (*on_floor)(void *ctx, const uint8_t *agent, struct slice channel,
			 const struct pos *pos);
	/* An agent of those lanes was last heard then, also by what was not told. */
	void (*on_last)(void *ctx, const uint8_t *agent, int64_t last_ms);
};
/* Before archive_start(), on the caller's thread. */
bool archive_load(struct archive *archive, const struct archive_loader *loader, void *ctx,
		  struct err *err);
/* Starts the thread; answers and @events (static, may be NULL) come on @loop. */
bool archive_start(struct archive *archive, struct loop *loop,
		   const struct archive_events *events, void *ctx, struct err *err);
/* Writes what waits, refuses what is still asked, ends the thread, closes. NULL is fine.
 */
void archive_close(struct archive *archive);

/* @epoch: "" for a foreign feed, whose @number is 0. Copies. */
void archive_store(struct archive *archive, const uint8_t *agent, const char *epoch,
		   uint64_t number, int64_t received_ms, struct slice plaintext);
void archive_store_body(struct archive *archive, const uint8_t *agent, const char *epoch,
			uint64_t seq, struct slice text);
void archive_store_gone(struct archive *archive, const uint8_t *agent, const char *epoch,
			struct gone_range gone);

struct archive_row {
	struct pos pos;
	char *id, *json; /* NUL-terminated */
	size_t id_len, json_len;
};

/* A segment, derived again. */
struct archive_fold {
	struct fold *fold;
	struct buf tag; /* model_segment_tag() */
	struct pos end; /* before which its events are */
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
	struct values values; /* what they counted: a lane for each tag */
	struct pos low;       /* what is before it was not looked at */
	char *text; /* the event, the lines, or what was found, as JSON; of rows, members
		     * that name their lane: archive_write_names() */
	size_t text_len;
};
/* Called on the loop, once for every question; @answer lives until it returns. Questions
 * are answered one by one, after what was to be kept when they came. */
typedef void archive_done(void *ctx, const struct archive_answer *answer);
/* Nobody waits for the answer that is to be given to @ctx: if it was not begun it is not
 * looked for, and fails. */
void archive_drop(struct archive *archive, const void *ctx);

/* The newest @limit rows before @before (NULL: the newest). */
void archive_rows(struct archive *archive, const uint8_t *agent, struct slice channel,
		  const struct pos *before, size_t limit, archive_done *done, void *ctx);
/* The segments of some events before @before, without the one named @skip. */
void archive_folds(struct archive *archive, const uint8_t *agent, struct slice channel,
		   const struct pos *before, struct slice skip, archive_done *done,
		   void *ctx);
void archive_event(struct archive *archive, const uint8_t *agent, const struct pos *pos,
		   archive_done *done, void *ctx);
/* text: the JSON of part_write(). */
/* Some of archive_db_forget(), as much as a question may take; more: ask again. text: the
 * JSON {"frames":N,"more":B}. */
void archive_forget(struct archive *archive, const uint8_t *agent, struct slice channel,
		    int64_t before_ms, archive_done *done, void *ctx);
/* When that is done: the same of the words that they had in the index. */
void archive_forget_words(struct archive *archive, archive_done *done, void *ctx);
void archive_part(struct archive *archive, const uint8_t *agent, const struct pos *pos,
		  const struct part_query *query, archive_done *done, void *ctx);
void archive_raw(struct archive *archive, const uint8_t *agent, struct slice channel,
		 const struct raw_query *query, archive_done *done, void *ctx);
/* What search_find() says, of these agents (keys one behind another) or, with none, of
 * all. Takes the content of @query. */
void archive_search(struct archive *archive, struct search_query *query,
		    const uint8_t *agents, size_t agent_count, int64_t before,
		    size_t limit, archive_done *done, void *ctx);

#endif
