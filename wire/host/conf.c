#include "wire/host/conf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "wire/host/log.h"

#define PATH_SHOWN_MAX 96 /* bytes of the end of a path in an error */
#define NAME_MAX_BYTES 64 /* of an option or a command */
#define MEANT_WITHIN 2    /* edits that a slip of the finger makes */

static const char *const commands[] = {
	"up",     "agent",  "proxy", "run",    "emit",    "relay",  "observer",
	"open",   "ls",     "tail",  "prompt", "approve", "search", "export",
	"forget", "invite", "key",   "attest", "doctor",  "config", NULL,
};

/* Every option of every command that may stand in the file: a name that only another
 * command has is no mistake, one that none has is. A unit test holds the list against the
 * commands' own tables. */
static const char *const options[] = {
	"address-bytes",
	"address-connections",
	"address-events",
	"address-frames",
	"address-reqs",
	"allow-origin",
	"channel",
	"connections",
	"connections-per-address",
	"control",
	"count-loopback",
	"cwd",
	"db",
	"env",
	"idle-timeout",
	"journal-days",
	"journal-mb",
	"keep-days",
	"keep-mib",
	"key-bytes",
	"key-connections",
	"key-events",
	"key-frames",
	"key-reqs",
	"listen",
	"log-level",
	"metrics",
	"mute",
	"name",
	"open",
	"owner-bytes",
	"owner-connections",
	"owner-events",
	"owner-frames",
	"owner-reqs",
	"owners",
	"passphrase-file",
	"permission-rules",
	"permission-timeout",
	"permissions",
	"relay",
	"relay-listen",
	"slots",
	"start-timeout",
	"tick-ms",
	"tls",
	"tls-cert",
	"tls-key",
	"trusted-proxy",
	"turn-timeout",
	"url",
	NULL,
};

void conf_init(struct conf *conf, const char *path, struct slice text)
{
	*conf = (struct conf){.path = path, .rest = text};
}

bool conf_fail(const struct conf *conf, struct err *err, const char *fmt, ...)
{
	const size_t len = strlen(conf->path);
	char words[160];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(words, sizeof(words), fmt, args);
	va_end(args);
	return err_set(err, ERR_MALFORMED, "%s:%u: %s",
		       conf->path + (len > PATH_SHOWN_MAX ? len - PATH_SHOWN_MAX : 0),
		       conf->line, words);
}

/* ---- words that were meant ---- */

static size_t min3(size_t a, size_t b, size_t c)
{
	const size_t least = a < b ? a : b;

	return least < c ? least : c;
}

/* Letters to insert, drop, change or swap with their neighbour. */
static size_t distance(struct slice a, struct slice b)
{
	size_t rows[3][NAME_MAX_BYTES + 1];
	size_t *before = rows[0], *last = rows[1], *now = rows[2];

	for (size_t j = 0; j <= b.len; j++)
		last[j] = before[j] = j;
	for (size_t i = 1; i <= a.len; i++) {
		size_t *oldest = before;

		now[0] = i;
		for (size_t j = 1; j <= b.len; j++) {
			const bool same = a.ptr[i - 1] == b.ptr[j - 1];

			now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + !same);
			if (i > 1 && j > 1 && a.ptr[i - 1] == b.ptr[j - 2] &&
			    a.ptr[i - 2] == b.ptr[j - 1] && before[j - 2] + 1 < now[j])
				now[j] = before[j - 2] + 1;
		}
		before = last;
		last = now;
		now = oldest;
	}
	return last[b.len];
}

static const char *nearest(struct slice name, const char *const *list)
{
	size_t best = MEANT_WITHIN + 1;
	const char *found = NULL;

	if (name.len > NAME_MAX_BYTES)
		return NULL;
	for (; list && *list; list++) {
		const size_t far = distance(name, slice_of(*list));

		/* "ab" is not a slip of "name": most of the word must be there. */
		if (far < best && far * 2 < name.len) {
			best = far;
			found = *list;
		}
	}
	return found;
}

const char *conf_suggest(struct slice name, const char *const *mine)
{
	const char *found = nearest(name, mine);

	return found || mine ? found : nearest(name, options);
}

static bool is_in(struct slice name, const char *const *list)
{
	for (; *list; list++)
		if (slice_eq(name, slice_of(*list)))
			return true;
	return false;
}

bool conf_knows_option(struct slice name)
{
	return is_in(name, options);
}

/* ---- lines ---- */

static bool unknown(const struct conf *conf, const char *what, struct slice name,
		    const char *const *list, struct err *err)
{
	const char *meant = nearest(name, list);
	char quoted[LOG_QUOTE_BYTES];

	(void)log_quote(name, quoted);
	if (meant)
		return conf_fail(conf, err, "there is no %s \"%.40s\": did you mean %s?",
				 what, quoted, meant);
	return conf_fail(conf, err, "there is no %s \"%.40s\"", what, quoted);
}

static bool is_text(struct slice line)
{
	for (size_t i = 0; i < line.len; i++)
		if (((uint8_t)line.ptr[i] < ' ' && line.ptr[i] != '\t') ||
		    line.ptr[i] == 0x7f)
			return false;
	return utf8_valid(line);
}

static bool enter_section(struct conf *conf, struct slice line, struct err *err)
{
	const struct slice name = slice_trim(slice_sub(line, 1, line.len - 1));

	if (line.len < 2 || line.ptr[line.len - 1] != ']')
		return conf_fail(conf, err, "\"[\" without \"]\": want [COMMAND]");
	if (!is_in(name, commands))
		return unknown(conf, "command", name, commands, err);
	conf->section = name;
	return true;
}

static struct slice unquote(struct slice value)
{
	if (value.len >= 2 && value.ptr[0] == '"' && value.ptr[value.len - 1] == '"')
		return slice_sub(value, 1, value.len - 1);
	return value;
}

static bool read_setting(const struct conf *conf, struct slice line,
			 struct conf_setting *out, struct err *err)
{
	struct slice name;

	if (slice_find(line, '=') == line.len)
		return conf_fail(conf, err, "want \"name = value\" or [COMMAND]");
	(void)slice_take_until(&line, '=', &name);
	name = slice_trim(name);
	if (!conf_knows_option(name))
		return unknown(conf, "option", name, options, err);
	*out = (struct conf_setting){.section = conf->section,
				     .name = name,
				     .value = unquote(slice_trim(line)),
				     .line = conf->line};
	return true;
}

bool conf_next(struct conf *conf, struct conf_setting *out, struct err *err)
{
	struct slice line;

	err->code = ERR_NONE;
	while (slice_take_until(&conf->rest, '\n', &line)) {
		conf->line++;
		line = slice_trim(line);
		if (line.len == 0 || line.ptr[0] == '#' || line.ptr[0] == ';')
			continue;
		if (!is_text(line))
			return conf_fail(conf, err,
					 "this line is no UTF-8 text without control "
					 "characters");
		if (line.ptr[0] != '[')
			return read_setting(conf, line, out, err);
		if (!enter_section(conf, line, err))
			return false;
	}
	return false;
}
