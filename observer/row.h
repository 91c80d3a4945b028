#ifndef OBSERVER_ROW_H
#define OBSERVER_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "observer/pos.h"
#include "wire/base/buf.h"
#include "wire/base/slice.h"

/* One line of a transcript as the page draws it (the local API's Row). A row belongs to
 * one fold, which changes it; here is only its shape and how it is written. */
enum row_type {
	ROW_PROMPT,
	ROW_MESSAGE,
	ROW_THOUGHT,
	ROW_PLAN,
	ROW_TOOL,
	ROW_PERMISSION,
	ROW_TURN,
	ROW_OUTPUT,
	ROW_NOTE,
	ROW_LIFECYCLE,
	ROW_ERROR,
	ROW_GAP,
	ROW_RAW,
};

enum row_time { TIME_NONE, TIME_MODEL, TIME_TOOL, TIME_YOU, TIME_IDLE };

enum tool_status {
	TOOL_PENDING,
	TOOL_IN_PROGRESS,
	TOOL_COMPLETED,
	TOOL_FAILED,
	TOOL_CANCELLED, /* its turn ended without a word of it */
};

struct tool_file {
	struct buf path;
	uint32_t added, removed;
};

#define TOOL_FILES_MAX 50

struct tool {
	struct buf call, title, kind;
	struct buf parent; /* the call that it is part of, where the agent says so */
	enum tool_status status;
	struct buf locations; /* JSON array of paths */
	struct buf first_path;
	struct buf command;      /* of rawInput, plain text, cut */
	uint64_t command_bytes;  /* of it whole */
	struct buf input;        /* rawInput as JSON text, cut */
	struct buf parts;        /* elements of the parts array, without its brackets */
	struct pos parts_pos;    /* of the event that said them; "" for none */
	struct buf raw_parts;    /* what rawOutput says, while content says nothing */
	struct pos raw_pos;      /* of the event that said that */
	struct tool_file *files; /* [TOOL_FILES_MAX] once there is one */
	size_t file_count;
	unsigned waits; /* requests for permission that are not answered */
	bool has_exit;
	int64_t exit_code;
};

enum permission_state {
	PERMISSION_PENDING,
	PERMISSION_ALLOWED,
	PERMISSION_DENIED,
	PERMISSION_CANCELLED,
	PERMISSION_TIMED_OUT,
	PERMISSION_REJECTED,
	PERMISSION_UNCERTAIN,
	PERMISSION_OVER, /* its turn or its harness ended first */
};

struct permission {
	struct tool tool; /* what is asked for */
	struct buf nonce;
	struct buf request_id; /* JSON-RPC id token */
	struct buf session;
	struct buf text; /* the exact command, or the best there is */
	uint64_t text_bytes;
	struct buf options; /* JSON array [{id,name,kind}] */
	enum permission_state state;
	struct buf picked; /* option id */
	const char *by;    /* static word, or NULL */
	struct buf reason;
	bool actionable, trimmed, redacted;
};

struct row {
	enum row_type type;
	struct buf id;
	struct buf channel; /* plain text: the lane is AGENT/CHANNEL */
	struct pos pos;     /* of its first event */
	int64_t t, end;     /* Unix ms; end -1: open or unknown */
	enum row_time time;
	bool replay;
	bool dirty;      /* changed since it was last handed out; the model's */
	uint64_t hash;   /* of what was last handed out; the model's */
	struct buf text; /* prompt, message, thought */
	uint64_t text_bytes;
	bool open;        /* message, thought: may still grow */
	const char *role; /* message, thought: static word */
	struct buf message_id;
	struct buf body; /* the other members of simple rows, ready as JSON */
	struct tool *tool;
	struct permission *permission;
};

/* Cuts, in bytes (the local API's). */
#define ROW_TEXT_MAX 65536
#define ROW_INPUT_MAX 2048
#define ROW_SHORT_MAX 512 /* titles, names, ids */
#define ROW_PATH_MAX 4096

struct row *row_create(enum row_type type);
void row_destroy(struct row *row);
void tool_finish(struct tool *tool);
/* Appends the row as one JSON object. @agent: 64 hex; @turn: ptr NULL for none. */
void row_write(const struct row *row, struct slice agent, struct slice turn,
	       struct buf *out);

/* Words for people: "Ran", "make test", "failed (2)"; "Waiting to run" while the owner is
 * asked. @out is cleared. */
const char *tool_verb(const struct tool *tool);
/* "wants to run" */
const char *tool_wish(const struct tool *tool);
void tool_object(const struct tool *tool, struct buf *out);
void tool_outcome(const struct tool *tool, struct buf *out);

#endif
