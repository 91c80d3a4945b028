#ifndef OBSERVER_ARCHIVE_READ_H
#define OBSERVER_ARCHIVE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/frame/gone.h"
#include "wire/frame/observer_event.h"
#include "wire/nostr/crypto.h"

/* The archive as commands read it, beside a running observer: only reads, one moment's
 * state, one frame in memory at a time. Blocks. */
struct archive_reader;

/* ERR_NOT_FOUND: there is no archive yet. */
struct archive_reader *archive_reader_open(const char *path, struct err *err);
void archive_reader_close(struct archive_reader *reader);

/* Whom @name means: an npub, 64 hex digits, or what a harness calls itself.
 * ERR_NOT_FOUND; ERR_REFUSED: several have that name. */
bool archive_reader_agent(struct archive_reader *reader, struct slice name,
			  uint8_t agent[KEY_BYTES], struct err *err);
/* What a harness calls itself, and that channel of it: both stay empty where it said
 * nothing. Decoded. */
void archive_reader_names(struct archive_reader *reader, const uint8_t *agent,
			  struct slice channel, struct buf *name,
			  struct buf *channel_name);
/* Of all that it has; returns how many. */
size_t archive_reader_agents(struct archive_reader *reader, uint8_t out[][KEY_BYTES],
			     size_t max);
/* The channel of that id or name, @agent NULL: of any agent; its id into @out. */
bool archive_reader_channel(struct archive_reader *reader, const uint8_t *agent,
			    struct slice name, struct buf *out, struct err *err);

/* Calls @each for every lane, by agents (@agent NULL: all), as long as it says so; false
 * when it did not. */
bool archive_reader_lanes(struct archive_reader *reader, const uint8_t *agent,
			  bool (*each)(void *ctx, const uint8_t *agent,
				       struct slice channel),
			  void *ctx);

struct archive_visitor {
	/* Agents, epochs and frames ascend. @text: the event, whole where its body was
	 * fetched. Lives for the call; false ends the visit. */
	bool (*on_event)(void *ctx, const uint8_t *agent, const char *epoch,
			 uint64_t number, const struct observer_event *event,
			 struct slice text);
	/* Frames that will never come. */
	bool (*on_gone)(void *ctx, const uint8_t *agent, const char *epoch,
			struct gone_range gone);
	/* Now and then. */
	void (*on_progress)(void *ctx, uint64_t frames, uint64_t of);
};
/* @agent NULL: all. False also when a callback said so (err->code is ERR_NONE). */
bool archive_reader_visit(struct archive_reader *reader, const uint8_t *agent,
			  const struct archive_visitor *visitor, void *ctx,
			  struct err *err);

#endif
