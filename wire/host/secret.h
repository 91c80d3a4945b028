#ifndef WIRE_HOST_SECRET_H
#define WIRE_HOST_SECRET_H

#include <stdbool.h>

#include "wire/base/buf.h"
#include "wire/base/err.h"

/* Secrets that come from outside: typed, pasted, piped in or in a file; never from argv.
 * Wipe what they are read into. */

/**
 * secret_line - read one line without its end
 * @fd: a terminal (then @prompt is written to standard error and nothing is echoed), a
 *   pipe or a file; read byte by byte, so that what follows the line stays there
 * @out: cleared; its max is the longest line (ERR_TOO_LARGE)
 *
 * ERR_NOT_FOUND: nothing came before the end. Signals that end us put the terminal back
 * first.
 */
bool secret_line(int fd, const char *prompt, struct buf *out, struct err *err);
/* The first line of a file of ours that nobody else may read: ERR_REFUSED with what to
 * do. ERR_MALFORMED when it is empty. */
bool secret_file(const char *path, struct buf *out, struct err *err);
/**
 * secret_passphrase - ask for a passphrase
 * @file: named by an option (or NULL); else PERCH_PASSPHRASE_FILE, else the descriptor
 *   in PERCH_PASSPHRASE_FD, else the terminal, where @prompt is shown
 * @twice: ask again on a terminal and compare
 *
 * ERR_REFUSED without any of these: it names them.
 */
bool secret_passphrase(const char *file, const char *prompt, bool twice, struct buf *out,
		       struct err *err);

#endif
