#ifndef WIRE_HOST_PATHS_H
#define WIRE_HOST_PATHS_H

#include "wire/base/buf.h"
#include "wire/base/err.h"
#include "wire/base/slice.h"

/* Where things are: data in $PERCH_HOME, else $XDG_DATA_HOME/perch, else
 * ~/.local/share/perch (0700); perch.conf in $PERCH_HOME, else
 * $XDG_CONFIG_HOME/perch, else ~/.config/perch; sockets in $XDG_RUNTIME_DIR/perch, else
 * data/run, which is also theirs when $PERCH_HOME is set, so that two homes never meet.
 * Each clears @out and writes folder/NAME, or the folder for an empty name;
 * NUL-terminated behind len. Nothing is created. */
bool paths_data(struct slice name, struct buf *out, struct err *err);
bool paths_config(struct slice name, struct buf *out, struct err *err);
bool paths_run(struct slice name, struct buf *out, struct err *err);
/* Creates every missing folder of @path (a folder), 0700. */
bool paths_make(const char *path, struct err *err);
/* Reads a whole regular file of at most out->max bytes (else ERR_TOO_LARGE) into @out,
 * which is cleared. ERR_NOT_FOUND when it is not there. */
bool paths_read(const char *path, struct buf *out, struct err *err);
/* Writes atomically (temporary file, fsync, rename), mode 0600. */
bool paths_write(const char *path, struct slice bytes, struct err *err);
/* An exclusive lock by flock on @path (made 0600), holding our pid as text. Returns the
 * descriptor, kept open while locked; -1 with ERR_REFUSED and the holder's pid in
 * @pid_out when another process has it. */
int paths_lock(const char *path, long *pid_out, struct err *err);

#endif
