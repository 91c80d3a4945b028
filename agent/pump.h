#ifndef AGENT_PUMP_H
#define AGENT_PUMP_H

#include <stdbool.h>
#include <stdint.h>

/* The process between an editor and its agent, or a terminal and a command: it starts the
 * command, carries bytes, passes signals and the exit status on, and does nothing else. A
 * copy of what it carries goes to the watcher, another process, through a socketpair that
 * is never waited for: what does not fit is dropped and counted. No parsing, no
 * allocation, no database, no TLS; the watcher may stop, fill up or die.
 *
 * One thread for each direction, with blocking reads and writes: the standard descriptors
 * are shared with others (a terminal, an editor) and must not be made non-blocking, and a
 * reader that stops reading must hold up its own direction only. */

/* What the pump tells the watcher: a head and, for the first three kinds, bytes. One
 * datagram each (SOCK_SEQPACKET); both ends are the same program. */
enum pump_kind {
	PUMP_STDIN, /* towards the command */
	PUMP_STDOUT,
	PUMP_STDERR,
	PUMP_STARTED, /* number: its pid */
	PUMP_EXITED,  /* number: its wait status, as of waitpid() */
};
#define PUMP_DATA_KINDS 3
#define PUMP_BLOCK_BYTES 65536 /* most bytes in one datagram, and of one read */

struct pump_head {
	uint32_t kind;
	/* Before these bytes (there may be none) so many lines' ends of this direction
	 * were dropped; and whether any bytes were, and the last of them ended a line. */
	uint32_t lost_lines;
	uint32_t lost, lost_line_end; /* booleans */
	int64_t number;
};

/* What the watcher tells the pump: one letter, and for PUMP_SAY text. */
#define PUMP_UP 'U'   /* the relay takes what we send */
#define PUMP_DONE 'E' /* all has left: nobody need wait any longer */
#define PUMP_DOWN 'D'
#define PUMP_SAY 'S' /* a line for standard error, with its LF */
#define PUMP_SAY_BYTES 1024

struct pump_options {
	char *const *argv; /* NULL-terminated; [0] is looked up in PATH */
	char *const *environment;
	const char *cwd;     /* NULL: here */
	const char *command; /* "perch run", for errors of ours */
	bool carry_stdin;    /* else the command has our standard input itself */
	bool pty;            /* a terminal of its own; implies carry_stdin */
	int watcher_fd;      /* our end of the socketpair; -1: nobody watches */
	int watcher_pid;
	/* How long the exit waits for the watcher to finish, ms: while the relay takes
	 * what we send, and otherwise. 0: not at all. */
	int drain_up_ms, drain_down_ms;
};

/**
 * pump_run - run the command to its end
 * Returns the exit status to end with: the command's, 128 + N after signal N, 127 when
 * there is no such command and 126 when it cannot be run (said in one line, as a shell
 * does).
 */
int pump_run(const struct pump_options *options);

#endif
