#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/child.h"
#include "wire/base/mem.h"

/* A name, or with '*' at the end all that begin so. Documented at child_environment(). */
static const char *const allowed[] = {
	"PATH",
	"HOME",
	"USER",
	"LOGNAME",
	"SHELL",
	"LANG",
	"LANGUAGE",
	"LC_*",
	"TERM",
	"COLORTERM",
	"NO_COLOR",
	"TZ",
	"TMPDIR",
	"XDG_*",
	"SSH_AUTH_SOCK",
	"DISPLAY",
	"BROWSER",
	"WAYLAND_DISPLAY",
	"http_proxy",
	"https_proxy",
	"no_proxy",
	"all_proxy",
	"HTTP_PROXY",
	"HTTPS_PROXY",
	"NO_PROXY",
	"ALL_PROXY",
	"SSL_CERT_*",
	"NODE_*",
	"NPM_*",
	"npm_*",
	"NVM_*",
	"VOLTA_*",
	"PYTHON*",
	"VIRTUAL_ENV",
	"UV_*",
	"ANTHROPIC_*",
	"CLAUDE_*",
	"OPENAI_*",
	"CODEX_*",
	"GEMINI_*",
	"GOOGLE_*",
	"OPENCODE_*",
	"DBUS_SESSION_BUS_ADDRESS",
};

static bool is_ours(struct slice name)
{
	return slice_starts(name, SLICE("PERCH_"));
}

static bool is_allowed(struct slice name)
{
	for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed); i++) {
		struct slice pattern = slice_of(allowed[i]);

		if (slice_ends(pattern, SLICE("*"))
			    ? slice_starts(name, slice_sub(pattern, 0, pattern.len - 1))
			    : slice_eq(name, pattern))
			return !is_ours(name);
	}
	return false;
}

static struct slice name_of(const char *entry)
{
	struct slice text = slice_of(entry);

	return slice_sub(text, 0, slice_find(text, '='));
}

/* Puts @entry ("NAME=VALUE") in the place of one of the same name, else at the end. */
static void put(char **list, size_t *count, const char *entry)
{
	size_t at = 0;

	while (at < *count && !slice_eq(name_of(list[at]), name_of(entry)))
		at++;
	if (at == *count)
		(*count)++;
	free(list[at]);
	list[at] = mem_dup(slice_of(entry));
}

char **child_environment(char *const *ours, const char *const *extra, size_t extra_count,
			 struct err *err)
{
	size_t ours_count = 0, count = 0;
	char **list;

	while (ours[ours_count])
		ours_count++;
	list = mem_array(ours_count + extra_count + 1, sizeof(*list));
	for (size_t i = 0; i < ours_count; i++) {
		if (is_allowed(name_of(ours[i])))
			put(list, &count, ours[i]);
	}
	for (size_t i = 0; i < extra_count; i++) {
		struct slice name = name_of(extra[i]);

		if (name.len == 0 || is_ours(name)) {
			err_set(err, ERR_MALFORMED,
				"--env %.80s: want NAME or NAME=VALUE, not a PERCH_ name",
				extra[i]);
			child_environment_free(list);
			return NULL;
		}
		if (extra[i][name.len] == '=') {
			put(list, &count, extra[i]);
			continue;
		}
		for (size_t k = 0; k < ours_count; k++) {
			if (slice_eq(name_of(ours[k]), name))
				put(list, &count, ours[k]);
		}
	}
	return list;
}

char **child_environment_inherit(char *const *ours)
{
	size_t ours_count = 0, count = 0;
	char **list;

	while (ours[ours_count])
		ours_count++;
	list = mem_array(ours_count + 1, sizeof(*list));
	for (size_t i = 0; i < ours_count; i++)
		if (!is_ours(name_of(ours[i])))
			list[count++] = mem_dup(slice_of(ours[i]));
	return list;
}

char **child_environment_add(char **environment, const char *entry)
{
	size_t count = 0;

	while (environment[count])
		count++;
	environment = mem_grow(environment, count + 2, sizeof(*environment));
	environment[count + 1] = NULL;
	environment[count] = NULL;
	put(environment, &count, entry);
	return environment;
}

void child_environment_free(char **environment)
{
	if (!environment)
		return;
	for (size_t i = 0; environment[i]; i++)
		free(environment[i]);
	free(environment);
}
