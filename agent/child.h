#ifndef AGENT_CHILD_H
#define AGENT_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "wire/base/err.h"
#include "wire/base/slice.h"
#include "wire/host/loop.h"

/* Child processes of a harness. Each has real pipes (so /dev/stderr opens), a session and
 * process group of its own, an environment of its own, and no descriptor of ours but
 * those three. We are the subreaper of all that they leave behind. Nothing else in the
 * process may start children: exits are reaped here. */
struct children;
struct child;

/* Most children at a time: the slots of a harness. */
#define CHILDREN_MAX 32

#define CHILD_EOF_GRACE_MS 5000  /* from closing its stdin to SIGTERM: design §6 */
#define CHILD_TERM_GRACE_MS 2000 /* from SIGTERM to SIGKILL of every descendant */
/* A dead agent's helpers may still hold its stdout: so long we wait for its end. */
#define CHILD_DRAIN_MS 500
/* Bytes that may wait for an agent that does not read its stdin; beyond, it counts as
 * gone. */
#define CHILD_QUEUE_MAX (16u << 20)

struct child_exit {
	bool by_signal;
	int code;   /* exit status, or the signal's number */
	bool asked; /* child_stop() was called before */
	bool deaf; /* it did not read its stdin, or closed it and lived on: we ended it */
};

struct child_events {
	void (*on_stdout)(void *ctx, struct slice bytes);
	/* Nothing more will come; the process may still be there. */
	void (*on_stdout_end)(void *ctx);
	void (*on_stderr)(void *ctx, struct slice bytes);
	/* Stopped by SIGSTOP or the like (@stopped), or continued. */
	void (*on_pause)(void *ctx, bool stopped);
	/* The last call: output drained, every descendant killed. The child may be
	 * destroyed here. */
	void (*on_exit)(void *ctx, const struct child_exit *how);
};

struct child_options {
	char *const *argv; /* NULL-terminated; [0] is looked up in PATH of @environment */
	const char *cwd;   /* absolute */
	char *const *environment;          /* "NAME=VALUE", NULL-terminated */
	const struct child_events *events; /* static */
	void *ctx;
};

struct children *children_create(struct loop *loop, struct err *err);
void children_destroy(struct children *children); /* after all its children */

/**
 * child_spawn - start a process
 * ERR_NOT_FOUND: no such program (or no such @cwd), said with its name; ERR_SYSTEM: it
 * could not be executed.
 */
struct child *child_spawn(struct children *children, const struct child_options *options,
			  struct err *err);
/* Kills what still lives, at once. No callback comes but those of unwritten lines. NULL
 * is fine. */
void child_destroy(struct child *child);
pid_t child_pid(const struct child *child);

/* @outcome: the whole line was handed to the pipe; not a byte of it was; or a part, and
 * the rest never will be. */
enum child_written { CHILD_WRITTEN, CHILD_NOT_WRITTEN, CHILD_CUT_OFF };
typedef void child_on_written(void *ctx, struct slice line, enum child_written outcome);

/**
 * child_write - queue a whole line (its LF included) for its stdin
 * Copied. @on_written is called once, perhaps before this returns, in the order of the
 * calls.
 */
void child_write(struct child *child, struct slice line, child_on_written *on_written,
		 void *ctx);
/* Closes its stdin, and goes on by itself: SIGTERM, SIGKILL, on_exit. A repeat is
 * ignored. */
void child_stop(struct child *child);
/* The same without the waiting: SIGKILL, on_exit. */
void child_kill(struct child *child);

/**
 * child_environment - what a child may see of our environment
 * By name: PATH HOME USER LOGNAME SHELL LANG LANGUAGE LC_* TERM COLORTERM NO_COLOR TZ
 * TMPDIR, XDG_*, SSH_AUTH_SOCK, DISPLAY WAYLAND_DISPLAY BROWSER DBUS_SESSION_BUS_ADDRESS
 * (a login opens a browser), http_proxy https_proxy no_proxy all_proxy in either case,
 * SSL_CERT_*, NODE_* NPM_* npm_* NVM_* VOLTA_* PYTHON* VIRTUAL_ENV UV_*, and what is
 * meant for agents: ANTHROPIC_* CLAUDE_* OPENAI_* CODEX_* GEMINI_* GOOGLE_* OPENCODE_*.
 * All else only when named in @extra: NAME (ours, if set) or NAME=VALUE. PERCH_* never:
 * it may hold keys. Every child also gets AGENT_TREE, a random word by which we know
 * its descendants.
 *
 * Gives a NULL-terminated array to be freed by child_environment_free(); NULL with @err
 * for a bad NAME.
 */
char **child_environment(char *const *ours, const char *const *extra, size_t extra_count,
			 struct err *err);
/* For a command that is not the harness's own (an editor's agent, `perch run`): all of
 * ours but PERCH_*. */
char **child_environment_inherit(char *const *ours);
/* Puts "NAME=VALUE" into what one of the two gave, which is freed; returns the new one.
 */
char **child_environment_add(char **environment, const char *entry);
void child_environment_free(char **environment);

#endif
