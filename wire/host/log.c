#include "wire/host/log.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 2048 /* of one log line; what is longer is cut */
#define QUOTE_UNITS 120 /* characters, or escaped bytes, of peer text in a line */

static const char *const level_names[] = {
	[LOG_ERROR] = "error",
	[LOG_WARN] = "warn",
	[LOG_INFO] = "info",
	[LOG_DEBUG] = "debug",
};

#define LEVEL_COUNT (sizeof(level_names) / sizeof(level_names[0]))

/* Writer threads log too. */
static _Atomic(enum log_level) log_level = LOG_INFO;

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&log_level, level, memory_order_relaxed);
}

bool log_parse_level(const char *name, enum log_level *out, struct err *err)
{
	char quoted[LOG_QUOTE_BYTES];

	for (size_t i = 0; i < LEVEL_COUNT; i++) {
		if (strcmp(name, level_names[i]) == 0) {
			*out = (enum log_level)i;
			return true;
		}
	}
	return err_set(err, ERR_MALFORMED,
		       "log level is error, warn, info or debug, not \"%.60s\"",
		       log_quote(slice_of(name), quoted));
}

bool log_enabled(enum log_level level)
{
	return level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

/* One line is one write: several processes share the terminal. */
static void emit(char *line, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (line[i] == '\n' || line[i] == '\r')
			line[i] = ' ';
	}
	line[len] = '\n';
	/* There is nowhere to say that the log cannot be written. */
	if (write(STDERR_FILENO, line, len + 1) < 0)
		return;
}

void log_write(enum log_level level, const char *subject, const char *fmt, ...)
{
	char line[LINE_BYTES];
	size_t room = sizeof(line) - 1; /* the line feed */
	va_list args;
	int head;
	int body;

	if (!log_enabled(level))
		return;
	head = snprintf(line, room, "%s %s: ", level_names[level], subject);
	if (head < 0 || (size_t)head >= room)
		return;
	va_start(args, fmt);
	body = vsnprintf(line + head, room - (size_t)head, fmt, args);
	va_end(args);
	if (body < 0)
		return;
	emit(line, (size_t)body < room - (size_t)head ? (size_t)(head + body) : room - 1);
}

/* Length of the UTF-8 sequence that @lead begins, 1 for what begins none. */
static size_t sequence_len(unsigned char lead)
{
	if (lead >= 0xf0)
		return 4;
	if (lead >= 0xe0)
		return 3;
	if (lead >= 0xc0)
		return 2;
	return 1;
}

static uint32_t code_point(struct slice sequence)
{
	static const unsigned char lead_mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
	uint32_t point = (unsigned char)sequence.ptr[0] & lead_mask[sequence.len];

	for (size_t i = 1; i < sequence.len; i++)
		point = point << 6 | ((unsigned char)sequence.ptr[i] & 0x3f);
	return point;
}

/* Characters that move the cursor, end the line, reorder what stands around them or hide:
 * controls, zero width, bidi, tags. */
static bool is_unsafe(uint32_t point)
{
	static const uint32_t ranges[][2] = {
		{0x0, 0x1f},      {0x7f, 0x9f},       {0xad, 0xad},
		{0x61c, 0x61c},   {0x180e, 0x180e},   {0x200b, 0x200f},
		{0x2028, 0x202e}, {0x2060, 0x206f},   {0xfeff, 0xfeff},
		{0xfff9, 0xfffb}, {0xe0000, 0xe007f}, {0xe0100, 0xe01ef},
	};

	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
		if (point >= ranges[i][0] && point <= ranges[i][1])
			return true;
	return false;
}

/* The next character of @text, or its next byte when that is no safe character. */
static struct slice next_unit(struct slice text, bool *safe)
{
	struct slice unit = slice_sub(text, 0, sequence_len((unsigned char)text.ptr[0]));

	*safe = utf8_valid(unit) && !is_unsafe(code_point(unit));
	return *safe ? unit : slice_sub(text, 0, 1);
}

const char *log_quote(struct slice text, char out[LOG_QUOTE_BYTES])
{
	static const char cut[] = "…";
	size_t used = 0;
	size_t units = 0;

	static_assert(4 * QUOTE_UNITS + sizeof(cut) <= LOG_QUOTE_BYTES,
		      "room for the worst");
	for (; text.len > 0 && units < QUOTE_UNITS; units++) {
		bool safe;
		struct slice unit = next_unit(text, &safe);

		if (safe) {
			memcpy(out + used, unit.ptr, unit.len);
			used += unit.len;
		} else {
			(void)snprintf(out + used, 5, "\\x%02x",
				       (unsigned char)unit.ptr[0]);
			used += 4;
		}
		text = slice_sub(text, unit.len, text.len);
	}
	memcpy(out + used, text.len > 0 ? cut : "", text.len > 0 ? sizeof(cut) : 1);
	return out;
}

bool log_limit_pass(struct log_limit *limit, int64_t now_ms, uint64_t *silent_out)
{
	if (limit->at_ms && now_ms - limit->at_ms < 1000) {
		limit->silent++;
		return false;
	}
	*silent_out = limit->silent;
	*limit = (struct log_limit){.at_ms = now_ms};
	return true;
}
