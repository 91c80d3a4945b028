#ifndef WIRE_HOST_LOG_H
#define WIRE_HOST_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/base/err.h"
#include "wire/base/slice.h"

/* Logs go to stderr, one line each: `level subject: text key=value`. No decrypted payload
 * at info or above; peer text goes through log_quote(). */
enum log_level {
	LOG_ERROR, /* we cannot do our job */
	LOG_WARN,  /* something was lost, carrying on */
	LOG_INFO,  /* lifecycle */
	LOG_DEBUG, /* the rest */
};

/* The log sink is one of the two mutable globals (style §6). Default: LOG_INFO. */
void log_set_level(enum log_level level);
bool log_parse_level(const char *name, enum log_level *out, struct err *err);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *subject, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)

/* Peer text made safe for one log line: control, bidi and invalid bytes as \xNN, cut at
 * 120 characters. Returns @out, which has room for LOG_QUOTE_BYTES. */
#define LOG_QUOTE_BYTES 512
const char *log_quote(struct slice text, char out[LOG_QUOTE_BYTES]);

/* For lines that a peer can provoke at will: one a second. Zeroed at first. */
struct log_limit {
	int64_t at_ms;
	uint64_t silent;
};
/* False: say nothing now. Else @silent_out is how many were not said since the last. */
bool log_limit_pass(struct log_limit *limit, int64_t now_ms, uint64_t *silent_out);

#endif
