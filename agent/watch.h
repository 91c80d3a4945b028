#ifndef AGENT_WATCH_H
#define AGENT_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/feed.h"
#include "agent/pump.h"
#include "agent/sender.h"
#include "agent/setup.h"
#include "wire/host/log.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"

/* The watcher of `perch proxy` and `perch run`: a process beside the pump that makes a
 * feed of what it is shown. It only looks: nothing it does, or fails to do, reaches the
 * command. What the bytes mean is its source's business. */
struct watch;

/* How a mode reads what the pump carried. @source: what create() gave. */
struct watch_mode {
	const char *name; /* as in harness_started */
	bool per_session; /* channels come with its sessions, only the slot's is named
			   * at first */
	uint64_t up_grace_ms, down_grace_ms; /* for the rest of the feed, at the end */
	void *(*create)(struct watch *watch);
	void (*destroy)(void *source);
	/* @lost: bytes before these (which may be none) were dropped; @cut: and these
	 * begin inside a line. */
	void (*on_bytes)(void *source, enum pump_kind kind, struct slice bytes, bool lost,
			 bool cut);
	void (*on_started)(void *source, int64_t pid);
	/* @wait_status: as of waitpid(); -1: not known. */
	void (*on_end)(void *source, int64_t wait_status);
	/* Where an emitted event belongs now. */
	struct feed_context (*context)(void *source);
	/* Appends feed_state's members channels, slots, sessions, turns, pending. */
	void (*write_state)(void *source, struct buf *out);
	/* The whole event of @seq, if it is kept; empty: it is not. */
	struct slice (*body)(void *source, uint64_t seq, struct feed_context *context);
};

struct watch_options {
	const struct watch_mode *mode;
	const char *command_name;   /* "perch proxy" */
	const char *name;           /* NULL: of command and folder */
	const char *relay, *invite; /* as in setup.h */
	const struct option_list *channels;
	char *const *command; /* argv */
	int64_t tick_ms;
	enum log_level log_level;
	bool json_lines;
	int pump_fd; /* the watcher's end; taken */
	long pump_pid;
	int ready_fd; /* gets "ready\n" once the relay takes what we send; -1: none */
};

/**
 * watch_run - be the watcher, to the end
 * Its log goes to run/NAME.log in the data folder, made anew at each start; a reason why
 * nothing is watched goes to standard error, by way of the pump.
 */
void watch_run(const struct watch_options *options);

/* For sources. */
struct loop *watch_loop(struct watch *watch);
struct sender *watch_sender(struct watch *watch);
const struct setup *watch_setup(const struct watch *watch);
const struct uuid *watch_slot_channel(const struct watch *watch);
const char *watch_sessions_path(struct watch *watch); /* for last_sessions.h */
bool watch_json_lines(const struct watch *watch);
/* So many more lines were not seen: a gap will say so. */
void watch_lost(struct watch *watch, uint64_t lines);

#endif
