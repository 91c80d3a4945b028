#include "wire/host/options.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/base/arena.h"
#include "wire/base/buf.h"
#include "wire/base/mem.h"
#include "wire/base/slice.h"
#include "wire/host/conf.h"
#include "wire/host/log.h"
#include "wire/host/paths.h"

#define CONF_BYTES_MAX 65536 /* of perch.conf */
#define PATH_BYTES_MAX 4096
#define HELP_COLUMN 28 /* where the text of --help begins */
#define HELP_WIDTH 79
#define NAME_MAX_BYTES 64 /* of an option's name in the environment */
#define PATH_SHOWN_MAX 96 /* bytes of the end of perch.conf's path */
#define WHERE_BYTES (PATH_SHOWN_MAX + NAME_MAX_BYTES + 16)

struct options {
	struct arena arena; /* texts and lists */
};

/* Where a value was given; a later one beats an earlier one. */
enum origin {
	ORIGIN_DEFAULT,
	ORIGIN_FILE,    /* before the first section */
	ORIGIN_SECTION, /* that of this command */
	ORIGIN_ENV,
	ORIGIN_FLAG,
};

struct source {
	enum origin origin;
	unsigned line; /* of the file, from 1 */
};

struct parser {
	const struct options_spec *spec;
	struct options *options;
	enum origin origin;
	struct buf conf_path, conf_text;
	unsigned line;          /* of the file */
	struct source *sources; /* per option */
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

/* The end of a path that is too long to show. */
static const char *path_end(const struct parser *parser)
{
	const size_t len = parser->conf_path.len;

	return parser->conf_path.ptr + (len > PATH_SHOWN_MAX ? len - PATH_SHOWN_MAX : 0);
}

/* "--tick-ms", "PERCH_TICK_MS" or "/…/perch.conf:3: tick-ms". */
static void name_where(struct parser *parser, const struct option_spec *option,
		       char out[WHERE_BYTES])
{
	switch (parser->origin) {
	case ORIGIN_FLAG:
		(void)snprintf(out, WHERE_BYTES, "--%s", option->name);
		return;
	case ORIGIN_ENV:
		env_name(option, out);
		return;
	case ORIGIN_DEFAULT:
	case ORIGIN_FILE:
	case ORIGIN_SECTION:
		(void)snprintf(out, WHERE_BYTES, "%s:%u: %s", path_end(parser),
			       parser->line, option->name);
		return;
	}
}

static struct source *source_of(const struct parser *parser,
				const struct option_spec *option)
{
	return &parser->sources[option - parser->spec->options];
}

static bool refuse(struct parser *parser, const struct option_spec *option,
		   const char *wanted, const char *got)
{
	char where[WHERE_BYTES];
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

static bool set_flag(struct parser *parser, const struct option_spec *option,
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

static bool set_int(struct parser *parser, const struct option_spec *option,
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

static void add_to_list(struct parser *parser, const struct option_spec *option,
			const char *text)
{
	struct option_list *list = option->value;
	const struct source *source = source_of(parser, option);
	/* Lists add up within one origin; another one begins anew. */
	size_t old = source->origin == parser->origin ? list->count : 0;
	const char **values =
		arena_array(&parser->options->arena, old + 1, sizeof(*values));

	if (old > 0)
		memcpy(values, list->values, old * sizeof(*values));
	values[old] = keep(parser, text);
	*list = (struct option_list){values, old + 1};
}

/* @text is NULL for a bare flag. */
static bool set(struct parser *parser, const struct option_spec *option, const char *text)
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
	*source_of(parser, option) = (struct source){parser->origin, parser->line};
	return ok;
}

/* ---- perch.conf ---- */

/* The names that this command may have in the file; NULL behind the last. */
static const char *const *own_names(const struct parser *parser)
{
	const size_t count = option_count(parser->spec);
	const char **names =
		arena_array(&parser->options->arena, count + 1, sizeof(*names));
	size_t used = 0;

	for (size_t i = 0; i < count; i++)
		if (!parser->spec->options[i].no_env)
			names[used++] = parser->spec->options[i].name;
	names[used] = NULL;
	return names;
}

/* "relay" of "perch relay". */
static struct slice section_of(const struct options_spec *spec)
{
	const struct slice command = slice_of(spec->command);

	return slice_sub(command, slice_find(command, ' ') + 1, command.len);
}

static bool no_such_option(const struct parser *parser, const struct conf *conf,
			   struct slice name)
{
	const char *meant = conf_suggest(name, own_names(parser));

	return conf_fail(conf, parser->err, "%s has no option %.*s%s%s%s",
			 parser->spec->command, SLICE_ARG(name),
			 meant ? ": did you mean " : "", meant ? meant : "",
			 meant ? "?" : "");
}

static bool set_from_conf(struct parser *parser, const struct conf *conf,
			  const struct conf_setting *setting)
{
	const struct option_spec *option = find(parser->spec, setting->name);
	char *text;
	bool ok;

	if (option == NULL || option->no_env)
		return setting->section.len == 0 ||
		       no_such_option(parser, conf, setting->name);
	parser->line = setting->line;
	text = mem_dup(setting->value);
	ok = set(parser, option, text);
	free(text);
	return ok;
}

/* One pass over the file: what holds for all, or what is in our section. */
static bool read_settings(struct parser *parser, enum origin origin)
{
	const struct slice own = section_of(parser->spec);
	struct conf_setting setting;
	struct conf conf;

	parser->origin = origin;
	conf_init(&conf, buf_text(&parser->conf_path), buf_slice(&parser->conf_text));
	while (conf_next(&conf, &setting, parser->err)) {
		const bool wanted = origin == ORIGIN_FILE
					    ? setting.section.len == 0
					    : slice_eq(setting.section, own);

		if (wanted && !set_from_conf(parser, &conf, &setting))
			return false;
	}
	return parser->err->code == ERR_NONE;
}

/* Whoever can write it decides what our commands do. */
static bool check_owner(const struct parser *parser)
{
	struct stat info;

	if (stat(parser->conf_path.ptr, &info) < 0)
		return true; /* reading it says why */
	if (info.st_uid != geteuid() && info.st_uid != 0)
		return err_set(parser->err, ERR_REFUSED,
			       "%s is not yours (user %u): it is not read",
			       path_end(parser), (unsigned)info.st_uid);
	if (info.st_mode & S_IWOTH)
		return err_set(parser->err, ERR_REFUSED,
			       "%s can be written by everybody: run chmod 600 on it",
			       path_end(parser));
	return true;
}

static bool read_conf(struct parser *parser)
{
	struct err err;

	if (!paths_config(SLICE("perch.conf"), &parser->conf_path, &err)) {
		if (err.code != ERR_NOT_FOUND)
			*parser->err = err;
		return err.code == ERR_NOT_FOUND;
	}
	if (!check_owner(parser))
		return false;
	if (!paths_read(buf_text(&parser->conf_path), &parser->conf_text, &err)) {
		if (err.code != ERR_NOT_FOUND)
			*parser->err = err;
		return err.code == ERR_NOT_FOUND;
	}
	return read_settings(parser, ORIGIN_FILE) &&
	       read_settings(parser, ORIGIN_SECTION);
}

static bool read_env(struct parser *parser)
{
	parser->origin = ORIGIN_ENV;
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

/* Perch.conf and environment. Whether to go on. */
static bool take_given(struct parser *parser, bool show)
{
	struct err *told = show ? NULL : parser->spec->conf_err;
	const bool ok = read_conf(parser) && read_env(parser);

	if (told && ok)
		*told = (struct err){.code = ERR_NONE};
	else if (told)
		*told = *parser->err;
	return ok || told;
}

static bool no_such_flag(const struct parser *parser, struct slice name)
{
	const size_t count = option_count(parser->spec);
	const char **names =
		arena_array(&parser->options->arena, count + 1, sizeof(*names));
	char quoted[LOG_QUOTE_BYTES];
	const char *meant;

	for (size_t i = 0; i <= count; i++)
		names[i] = parser->spec->options[i].name;
	meant = conf_suggest(name, names);
	(void)log_quote(name, quoted);
	if (meant)
		return err_set(parser->err, ERR_MALFORMED,
			       "there is no option --%.80s: did you mean --%s?", quoted,
			       meant);
	return err_set(parser->err, ERR_MALFORMED,
		       "there is no option --%.80s: see --help", quoted);
}

/* argv[*i] begins with "--" and is longer; takes the argument after it where one is
 * needed. */
static bool read_flag(struct parser *parser, int argc, char *argv[], int *i)
{
	struct slice rest = slice_of(argv[*i] + 2);
	struct slice name = slice_sub(rest, 0, slice_find(rest, '='));
	const struct option_spec *option = find(parser->spec, name);
	const char *text = name.len < rest.len ? argv[*i] + 2 + name.len + 1 : NULL;

	if (option == NULL)
		return no_such_flag(parser, name);
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

	parser->origin = ORIGIN_FLAG;
	for (int i = 1; i < argc; i++) {
		char quoted[LOG_QUOTE_BYTES];

		if (!dashes && strcmp(argv[i], "--") == 0) {
			dashes = true;
		} else if (!dashes && strcmp(argv[i], "--show-config") == 0) {
			continue;
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
	if (dashes && count == 0 && parser->spec->command_after_dashes)
		return err_set(parser->err, ERR_MALFORMED,
			       "no command stands behind \"--\": the usage is %s %s",
			       parser->spec->command, parser->spec->usage);
	*count_out = count;
	return true;
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
		   "~/.config/perch/perch.conf (\"%s = ...\", for this command alone "
		   "below [%.*s])",
		   example->name, env, example->name, SLICE_ARG(section_of(spec)));
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

/* ---- --show-config ---- */

/* "NAME=…" for what may hold a secret behind it. */
static void append_item(const struct option_spec *option, const char *value,
			struct buf *out)
{
	struct slice text = slice_of(value);
	char quoted[LOG_QUOTE_BYTES];

	if (slice_ends(slice_of(option->argument), SLICE("[=VALUE]")) &&
	    slice_find(text, '=') < text.len) {
		text = slice_sub(text, 0, slice_find(text, '='));
		(void)buf_append(out, slice_of(log_quote(text, quoted)));
		(void)buf_lit(out, "=\xe2\x80\xa6");
	} else {
		(void)buf_append(out, slice_of(log_quote(text, quoted)));
	}
}

static void append_value(const struct option_spec *option, struct buf *out)
{
	const struct option_list *list = option->value;
	const char *text;

	switch (option->type) {
	case OPTION_FLAG:
		(void)buf_append(out, *(const bool *)option->value ? SLICE("true")
								   : SLICE("false"));
		break;
	case OPTION_INT:
		(void)buf_printf(out, "%" PRId64, *(const int64_t *)option->value);
		break;
	case OPTION_TEXT:
		text = *(const char *const *)option->value;
		if (text != NULL)
			append_item(option, text, out);
		break;
	case OPTION_LIST:
		for (size_t i = 0; i < list->count; i++) {
			if (i > 0)
				(void)buf_lit(out, ", ");
			append_item(option, list->values[i], out);
		}
		break;
	}
	if (out->len == 0)
		(void)buf_lit(out, "-");
}

static void append_origin(const struct parser *parser, const struct option_spec *option,
			  struct buf *out)
{
	const struct source *source = source_of(parser, option);
	char env[NAME_MAX_BYTES];

	switch (source->origin) {
	case ORIGIN_DEFAULT:
		(void)buf_lit(out, "default");
		return;
	case ORIGIN_FILE:
	case ORIGIN_SECTION:
		(void)buf_printf(out, "%s:%u", parser->conf_path.ptr, source->line);
		return;
	case ORIGIN_ENV:
		env_name(option, env);
		(void)buf_append(out, slice_of(env));
		return;
	case ORIGIN_FLAG:
		(void)buf_printf(out, "--%s", option->name);
		return;
	}
}

/* Prints each option's value and origin. False when one is missing from the list of
 * conf.c, which is our mistake. */
static bool show_config(const struct parser *parser)
{
	struct buf value, origin;
	bool head = false, ok = true;

	buf_init(&value, CONF_BYTES_MAX);
	buf_init(&origin, CONF_BYTES_MAX);
	for (const struct option_spec *o = parser->spec->options; o->name != NULL; o++) {
		if (o->no_env)
			continue;
		if (!conf_knows_option(slice_of(o->name)))
			ok = err_set(parser->err, ERR_SYSTEM,
				     "--%s is missing from the list of wire/host/conf.c",
				     o->name);
		buf_clear(&value);
		buf_clear(&origin);
		append_value(o, &value);
		append_origin(parser, o, &origin);
		if (!head)
			printf("[%.*s]\n", SLICE_ARG(section_of(parser->spec)));
		head = true;
		printf("%-20s %-32s %s\n", o->name, buf_text(&value), buf_text(&origin));
	}
	buf_finish(&value);
	buf_finish(&origin);
	return ok;
}

static bool has_word(int argc, char *argv[], const char *word)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], word) == 0)
			return true;
	return false;
}

/* Before anything else is read: help must work whatever perch.conf says. */
static bool asks_for_help(int argc, char *argv[])
{
	return has_word(argc, argv, "--help") || has_word(argc, argv, "-h");
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
		.conf_path = {.max = PATH_BYTES_MAX},
		.conf_text = {.max = CONF_BYTES_MAX},
		.sources = mem_array(option_count(spec) + 1, sizeof(struct source)),
		.err = &err,
	};
	enum options_result result = OPTIONS_EXIT_USAGE;
	const bool show = has_word(argc, argv, "--show-config");
	int count = 0;

	arena_init(&options->arena, 1024);
	if (asks_for_help(argc, argv)) {
		print_help(spec);
		result = OPTIONS_EXIT_OK;
	} else if (!take_given(&parser, show) ||
		   !read_flags(&parser, argc, argv, &count) ||
		   (show ? !show_config(&parser) : !check_arg_count(&parser, count))) {
		fprintf(stderr, "%s: %s\n", spec->command, err.text);
	} else {
		result = show ? OPTIONS_EXIT_OK : OPTIONS_OK;
	}
	free(parser.sources);
	buf_finish(&parser.conf_path);
	buf_finish(&parser.conf_text);
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
