#include "agent/login.h"

#include "agent/lookup.h"
#include "wire/nostr/json.h"

static void add_string(struct slice object, struct slice key, struct buf *out)
{
	struct slice raw = lookup_string(object, key);

	if (raw.ptr)
		(void)json_unescape(raw, out);
}

/* The arguments that a "terminal" method wants after the command itself. */
static void add_args(struct slice method, struct buf *out)
{
	struct slice arg;
	struct json json;

	json_init(&json, lookup(method, SLICE("args")));
	if (json_peek(&json) != JSON_ARRAY || !json_enter_array(&json))
		return;
	while (json_element(&json) && json_skip(&json, &arg)) {
		(void)buf_lit(out, " ");
		(void)json_unescape(slice_sub(arg, 1, arg.len ? arg.len - 1 : 0), out);
	}
}

static void add_command(char *const *command, struct buf *out)
{
	for (size_t i = 0; command[i]; i++) {
		if (i > 0)
			(void)buf_lit(out, " ");
		(void)text_clean(slice_of(command[i]), out);
	}
}

void login_hint(char *const *command, struct slice auth_methods, struct buf *out)
{
	struct slice method, terminal = SLICE_EMPTY;
	struct json json;
	size_t count = 0;

	json_init(&json, auth_methods);
	if (json_peek(&json) == JSON_ARRAY && json_enter_array(&json)) {
		while (json_element(&json) && json_skip(&json, &method)) {
			(void)buf_append(out,
					 count++ ? SLICE(", ") : SLICE("It offers: "));
			add_string(method, SLICE("name"), out);
			if (lookup_is(method, SLICE("type"), SLICE("terminal")))
				terminal = method;
		}
	}
	if (count)
		(void)buf_lit(out, ". ");
	(void)buf_lit(out, "Run \"");
	add_command(command, out);
	if (terminal.len)
		add_args(terminal, out);
	(void)buf_append(
		out, terminal.len
			     ? SLICE("\" in a terminal, log in, then prompt again.")
			     : SLICE("\" (or the tool it belongs to) in a terminal and "
				     "log in, or pass its API key with --env NAME; "
				     "then prompt again."));
}
