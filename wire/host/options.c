#include "wire/host/options.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/arena.h"
#include "wire/base/buf.h"
#include "wire/base/mem.h"
#include "wire/base/slice.h"
#include "wire/host/log.h"
#include "wire/host/paths.h"

#define CONF_BYTES_MAX 65536 /* of perch.conf */
#define HELP_COLUMN 28       /* where the text of --help begins */
#define HELP_WIDTH 79
#define NAME_MAX_BYTES 64 /* of an option's name in the environment */

struct options {
	struct arena arena; /* texts and lists */
};

/* Where a value was given; a later one beats an earlier one. */
enum origin { ORIGIN_FILE, ORIGIN_ENV, ORIGIN_FLAG };

struct parser {
	const struct options_spec *spec;
	struct options *options;
	enum origin origin;
	unsigned line;  /* ORIGIN_FILE: from 1 */
	bool *from_now; /* per option: given by the present origin already (lists add up)
			 */
	struct err *err;
};

static size_t option_count(const struct options_spec *spec)
{
	size_t count = 0;

	while (spec->options[count].name != NULL)
		count++;
	return count;
}

/* The option of that name, or NULL. */
static const struct option_spec *find(const struct options_spec *spec, struct slice name)
{
	for (const struct option_spec *o = spec->options; o->name != NULL; o++) {
		if (slice_eq(slice_of(o->name), name))
			return o;
	}
	return NULL;
}

/* PERCH_TICK_MS for tick-ms. */
static void env_name(const struct option_spec *option, char out[NAME_MAX_BYTES])
{
	int len = snprintf(out, NAME_MAX_BYTES, "PERCH_%s", option->name);

	assert(len > 0 && len < NAME_MAX_BYTES);
	for (char *c = out; *c != '\0'; c++) {
		if (*c >= 'a' && *c <= 'z')
			*c = (char)(*c - 'a' + 'A');
		else if (*c == '-')
			*c = '_';
	}
}

/* "--tick-ms", "PERCH_TICK_MS" or "perch.conf line 3: tick-ms". */
static void name_where(const struct parser *parser, const struct option_spec *option,
		       char out[2 * NAME_MAX_BYTES])
{
	switch (parser->origin) {
	case ORIGIN_FLAG:
		(void)snprintf(out, 2 * NAME_MAX_BYTES, "--%s", option->name);
		return;
	case ORIGIN_ENV:
		env_name(option, out);
		return;
	case ORIGIN_FILE:
		(void)snprintf(out, 2 * NAME_MAX_BYTES, "perch.conf line %u: %s",
			       parser->line, option->name);
		return;
	}
}

static bool refuse(const struct parser *parser, const struct option_spec *option,
		   const char *wanted, const char *got)
{
	char where[2 * NAME_MAX_BYTES];
	char quoted[LOG_QUOTE_BYTES];

	name_where(parser, option, where);
	return err_set(parser->err, ERR_MALFORMED, "%s takes %s, got \"%s\"", where,
		       wanted, log_quote(slice_of(got), quoted));
}

static bool parse_int(struct slice text, int64_t min, int64_t max, int64_t *out)
{
	bool negative = text.len > 0 && text.ptr[0] == '-';
	uint64_t size;
	int64_t value;

	if (!slice_parse_u64(negative ? slice_sub(text, 1, text.len) : text, INT64_MAX,
			     &size))
		return false;
	value = negative ? -(int64_t)size : (int64_t)size;
	if (value < min || value > max)
		return false;
	*out = value;
	return true;
}

static bool set_flag(const struct parser *parser, const struct option_spec *option,
		     const char *text)
{
	bool *value = option->value;

	if (text == NULL || strcmp(text, "true") == 0)
		*value = true;
	else if (strcmp(text, "false") == 0)
		*value = false;
	else
		return refuse(parser, option, "true or false", text);
	return true;
}

static bool set_int(const struct parser *parser, const struct option_spec *option,
		    const char *text)
{
	char wanted[64];

	if (parse_int(slice_of(text), option->min, option->max, option->value))
		return true;
	if (option->max == INT64_MAX)
		(void)snprintf(wanted, sizeof(wanted), "a number from %" PRId64,
			       option->min);
	else
		(void)snprintf(wanted, sizeof(wanted), "%" PRId64 "..%" PRId64,
			       option->min, option->max);
	return refuse(parser, option, wanted, text);
}

static const char *keep(const struct parser *parser, const char *text)
{
	size_t size = strlen(text) + 1;

	return memcpy(arena_alloc(&parser->options->arena, size), text, size);
}

static void add_to_list(const struct parser *parser, const struct option_spec *option,
			const char *text)
{
	struct option_list *list = option->value;
	size_t index = (size_t)(option - parser->spec->options);
	size_t old = parser->from_now[index] ? list->count : 0;
	const char **values =
		arena_array(&parser->options->arena, old + 1, sizeof(*values));

	if (old > 0)
		memcpy(values, list->values, old * sizeof(*values));
	values[old] = keep(parser, text);
	*list = (struct option_list){values, old + 1};
}

/* @text is NULL for a bare flag. */
static bool set(const struct parser *parser, const struct option_spec *option,
		const char *text)
{
	bool ok = true;

	switch (option->type) {
	case OPTION_FLAG:
		ok = set_flag(parser, option, text);
		break;
	case OPTION_INT:
		ok = set_int(parser, option, text);
		break;
	case OPTION_TEXT:
		*(const char **)option->value = keep(parser, text);
		break;
	case OPTION_LIST:
		add_to_list(parser, option, text);
		break;
	}
	parser->from_now[option - parser->spec->options] = true;
	return ok;
}

static void begin(struct parser *parser, enum origin origin)
{
	parser->origin = origin;
	memset(parser->from_now, 0, option_count(parser->spec) * sizeof(bool));
}

/* One line of perch.conf. Names that this subcommand does not have belong to another. */
static bool read_conf_line(struct parser *parser, struct slice line)
{
	const struct option_spec *option;
	struct slice name;
	char *text;
	bool ok;

	line = slice_trim(line);
	if (line.len == 0 || line.ptr[0] == '#')
		return true;
	if (slice_find(line, '=') == line.len)
		return err_set(parser->err, ERR_MALFORMED,
			       "perch.conf line %u is no \"name = value\"", parser->line);
	(void)slice_take_until(&line, '=', &name);
	option = find(parser->spec, slice_trim(name));
	if (option == NULL || option->no_env)
		return true;
	text = mem_dup(slice_trim(line));
	ok = set(parser, option, text);
	free(text);
	return ok;
}

static bool read_conf(struct parser *parser)
{
	struct buf path;
	struct buf text;
	struct slice rest;
	struct slice line;
	struct err err;
	bool ok = false;

	begin(parser, ORIGIN_FILE);
	buf_init(&path, 4096);
	buf_init(&text, CONF_BYTES_MAX);
	if (!paths_config(SLICE("perch.conf"), &path, &err) ||
	    !paths_read(buf_text(&path), &text, &err)) {
		ok = err.code == ERR_NOT_FOUND;
		if (!ok)
			*parser->err = err;
		goto out;
	}
	rest = buf_slice(&text);
	ok = true;
	for (parser->line = 1; ok && slice_take_until(&rest, '\n', &line); parser->line++)
		ok = read_conf_line(parser, line);
out:
	buf_finish(&text);
	buf_finish(&path);
	return ok;
}

static bool read_env(struct parser *parser)
{
	begin(parser, ORIGIN_ENV);
	for (const struct option_spec *o = parser->spec->options; o->name != NULL; o++) {
		char name[NAME_MAX_BYTES];
		const char *value;

		if (o->no_env)
			continue;
		env_name(o, name);
		value = getenv(name);
		if (value != NULL && !set(parser, o, value))
			return false;
	}
	return true;
}

/* argv[*i] begins with "--" and is longer; takes the argument after it where one is
 * needed. */
static bool read_flag(struct parser *parser, int argc, char *argv[], int *i)
{
	struct slice rest = slice_of(argv[*i] + 2);
	struct slice name = slice_sub(rest, 0, slice_find(rest, '='));
	const struct option_spec *option = find(parser->spec, name);
	const char *text = name.len < rest.len ? argv[*i] + 2 + name.len + 1 : NULL;
	char quoted[LOG_QUOTE_BYTES];

	if (option == NULL)
		return err_set(parser->err, ERR_MALFORMED,
			       "there is no option --%.80s: see --help",
			       log_quote(name, quoted));
	if (text == NULL && option->type != OPTION_FLAG) {
		if (*i + 1 == argc)
			return err_set(parser->err, ERR_MALFORMED, "--%s takes %s",
				       option->name, option->argument);
		text = argv[++*i];
	}
	return set(parser, option, text);
}

static bool check_arg_count(const struct parser *parser, int count)
{
	const struct options_spec *spec = parser->spec;

	if (count < spec->min_args)
		return err_set(parser->err, ERR_MALFORMED,
			       "something is missing: the usage is %s %s", spec->command,
			       spec->usage);
	if (spec->max_args >= 0 && count > spec->max_args)
		return err_set(parser->err, ERR_MALFORMED,
			       "too many arguments: the usage is %s %s", spec->command,
			       spec->usage);
	return true;
}

/* Flags and positional arguments may be mixed up to "--"; what is positional is moved to
 * the front of argv[1…]. */
static bool read_flags(struct parser *parser, int argc, char *argv[], int *count_out)
{
	int count = 0;
	bool dashes = false;

	begin(parser, ORIGIN_FLAG);
	for (int i = 1; i < argc; i++) {
		char quoted[LOG_QUOTE_BYTES];

		if (!dashes && strcmp(argv[i], "--") == 0) {
			dashes = true;
		} else if (!dashes && strncmp(argv[i], "--", 2) == 0) {
			if (!read_flag(parser, argc, argv, &i))
				return false;
		} else if (!dashes && argv[i][0] == '-' && argv[i][1] != '\0') {
			return err_set(parser->err, ERR_MALFORMED,
				       "there is no option %.80s: see --help",
				       log_quote(slice_of(argv[i]), quoted));
		} else if (!dashes && parser->spec->command_after_dashes) {
			return err_set(
				parser->err, ERR_MALFORMED,
				"\"%.60s\" stands before \"--\": the usage is %s %s",
				log_quote(slice_of(argv[i]), quoted),
				parser->spec->command, parser->spec->usage);
		} else {
			argv[1 + count++] = argv[i];
		}
	}
	*count_out = count;
	return check_arg_count(parser, count);
}

/* Prints @text in words from @column on, broken before HELP_WIDTH. */
static void print_wrapped(const char *text, int column)
{
	struct slice rest = slice_of(text);
	struct slice word;
	int at = column;

	while (slice_take_until(&rest, ' ', &word)) {
		int width = (int)utf8_count(word);

		if (at > column && at + 1 + width > HELP_WIDTH) {
			printf("\n%*s", column, "");
			at = column;
		} else if (at > column) {
			(void)putchar(' ');
			at++;
		}
		printf("%.*s", SLICE_ARG(word));
		at += width;
	}
	(void)putchar('\n');
}

static void print_option(const char *name, const char *argument, const char *help)
{
	int width = printf("  --%s%s%s", name, argument != NULL ? " " : "",
			   argument != NULL ? argument : "");

	if (width < HELP_COLUMN - 1)
		printf("%*s", HELP_COLUMN - width, "");
	else
		printf("\n%*s", HELP_COLUMN, "");
	print_wrapped(help, HELP_COLUMN);
}

/* Where else options come from, with the first that does as the example. */
static void print_sources(const struct options_spec *spec)
{
	const struct option_spec *example = spec->options;
	char env[NAME_MAX_BYTES];
	struct buf text;

	while (example->name != NULL && example->no_env)
		example++;
	if (example->name == NULL)
		return;
	env_name(example, env);
	buf_init(&text, 4096);
	buf_printf(&text,
		   "Each may also be set in the environment (--%s as %s) or in "
		   "~/.config/perch/perch.conf (\"%s = ...\")",
		   example->name, env, example->name);
	for (const struct option_spec *o = spec->options, *first = NULL; o->name != NULL;
	     o++) {
		if (!o->no_env)
			continue;
		buf_printf(&text, first == NULL ? ", but for --%s" : ", --%s", o->name);
		first = o;
	}
	buf_lit(&text, ". Flags beat environment beats file.");
	(void)putchar('\n');
	print_wrapped(buf_text(&text), 0);
	buf_finish(&text);
}

static void print_help(const struct options_spec *spec)
{
	printf("Usage: %s %s\n\n", spec->command, spec->usage);
	print_wrapped(spec->summary, 0);
	printf("\nOptions:\n");
	for (const struct option_spec *o = spec->options; o->name != NULL; o++)
		print_option(o->name, o->argument, o->help);
	print_option("help", NULL, "print this and exit");
	print_sources(spec);
	printf("\nExample:\n%s%s", spec->example,
	       slice_ends(slice_of(spec->example), SLICE("\n")) ? "" : "\n");
}

/* Before anything else is read: help must work whatever perch.conf says. */
static bool asks_for_help(int argc, char *argv[])
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return true;
	}
	return false;
}

enum options_result options_parse(const struct options_spec *spec, int argc, char *argv[],
				  struct options **out, char ***args_out,
				  int *arg_count_out)
{
	struct options *options = mem_alloc(sizeof(*options));
	struct err err;
	struct parser parser = {
		.spec = spec,
		.options = options,
		.from_now = mem_array(option_count(spec) + 1, sizeof(bool)),
		.err = &err,
	};
	enum options_result result = OPTIONS_EXIT_USAGE;
	int count = 0;

	arena_init(&options->arena, 1024);
	if (asks_for_help(argc, argv)) {
		print_help(spec);
		result = OPTIONS_EXIT_OK;
	} else if (!read_conf(&parser) || !read_env(&parser) ||
		   !read_flags(&parser, argc, argv, &count)) {
		fprintf(stderr, "%s: %s\n", spec->command, err.text);
	} else {
		result = OPTIONS_OK;
	}
	free(parser.from_now);
	if (result == OPTIONS_OK) {
		*out = options;
		argv[1 + count] = NULL; /* ready for exec */
		*args_out = argv + 1;
		*arg_count_out = count;
	} else {
		options_destroy(options);
		*out = NULL;
	}
	return result;
}

void options_destroy(struct options *options)
{
	if (options == NULL)
		return;
	arena_finish(&options->arena);
	free(options);
}

bool options_host_port(const char *text, char host[64], uint16_t *port, struct err *err)
{
	struct slice whole = slice_of(text);
	struct slice name = SLICE("127.0.0.1");
	struct slice digits = SLICE_EMPTY;
	char quoted[LOG_QUOTE_BYTES];
	uint64_t number;
	bool ok = false;

	for (size_t i = whole.len; i > 0 && digits.ptr == NULL; i--) {
		if (whole.ptr[i - 1] != ':')
			continue;
		digits = slice_sub(whole, i, whole.len);
		if (i > 1)
			name = slice_sub(whole, 0, i - 1);
	}
	if (name.len > 2 && name.ptr[0] == '[' && name.ptr[name.len - 1] == ']') {
		name = slice_sub(name, 1, name.len - 1);
		ok = true;
	} else {
		/* Two colons without brackets: where the port begins is a guess. */
		ok = slice_find(name, ':') == name.len &&
		     slice_find(name, '[') == name.len;
	}
	if (!ok || name.len >= 64 || !slice_parse_u64(digits, UINT16_MAX, &number))
		return err_set(err, ERR_MALFORMED,
			       "\"%.80s\" is no HOST:PORT, [V6]:PORT or :PORT",
			       log_quote(whole, quoted));
	memcpy(host, name.ptr, name.len);
	host[name.len] = '\0';
	*port = (uint16_t)number;
	return true;
}
