#ifndef WIRE_HOST_CONF_H
#define WIRE_HOST_CONF_H

#include <stdbool.h>

#include "wire/base/err.h"
#include "wire/base/slice.h"

/* The text of perch.conf. `name = value`, one a line; names are those of the long
 * options. What stands before the first `[command]` holds for every command that has the
 * option; behind it, for that command, and beats the former. A name may stand more than
 * once where its option may. '#' or ';' begins a comment line; a value may stand in
 * double quotes, which keep its blanks. UTF-8, no control characters. Nothing here reads
 * files. */

struct conf {
	const char *path; /* for errors: "PATH:LINE: …" */
	struct slice rest;
	struct slice section; /* empty: before the first */
	unsigned line;        /* of the last setting, from 1 */
};

struct conf_setting {
	struct slice section, name, value;
	unsigned line;
};

/* @path and @text are borrowed. */
void conf_init(struct conf *conf, const char *path, struct slice text);
/**
 * conf_next - the next setting
 * False at the end (err->code is ERR_NONE) or at the first thing that is wrong
 * (ERR_MALFORMED): a line that is no setting, a command or an option that no perch
 * command has (with what was meant, perhaps).
 */
bool conf_next(struct conf *conf, struct conf_setting *out, struct err *err);
/* Fails with "PATH:LINE: " and these words. */
bool conf_fail(const struct conf *conf, struct err *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Is it an option that some command takes from the file? conf.c has the list. */
bool conf_knows_option(struct slice name);
/* The known option that @name may have been meant to be, or NULL; @mine (may be NULL,
 * ends with NULL) is looked at first. */
const char *conf_suggest(struct slice name, const char *const *mine);

#endif
