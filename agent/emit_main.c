/* perch emit: one event for the feed of a harness that runs here. */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/emit_event.h"
#include "agent/emit_server.h"
#include "agent/lookup.h"
#include "wire/host/keyfile.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/nostr/json.h"

/* A harness answers at once, or it is stopped: a hook must not wait for it. */
#define ANSWER_MS 1000
/* A command may emit before its own watcher listens: how long that is waited for, and how
 * often it is tried. */
#define START_MS 1000
#define START_STEP_MS 20
/* What may come on standard input. */
#define INPUT_MAX (4u << 20)

struct arguments {
	const char *name, *level, *id, *status, *stream;
	bool best_effort;
	char **words;
	int word_count;
};

static enum options_result parse(int argc, char *argv[], struct arguments *out,
				 struct options **options)
{
	const struct option_spec table[] = {
		{"name", OPTION_TEXT, &out->name, 0, 0, "NAME",
		 "the harness (default: the one that this runs in, by PERCH_EMIT)", true},
		{"best-effort", OPTION_FLAG, &out->best_effort, 0, 0, NULL,
		 "say nothing and exit 0, whatever happens: for hooks", true},
		{"level", OPTION_TEXT, &out->level, 0, 0, "info|warn|error",
		 "of a note (default info)", true},
		{"id", OPTION_TEXT, &out->id, 0, 0, "ID",
		 "of a span_start (default: a fresh one, which is printed)", true},
		{"status", OPTION_TEXT, &out->status, 0, 0, "WORD",
		 "how a span ended, as \"ok\" or \"failed\"", true},
		{"stream", OPTION_TEXT, &out->stream, 0, 0, "stdout|stderr",
		 "of output (default stdout)", true},
		{NULL, OPTION_FLAG, NULL, 0, 0, NULL, NULL, false},
	};
	struct err ignored; /* in perch.conf, which has nothing for a hook */
	const struct options_spec spec = {
		.command = "perch emit",
		.usage = "[OPTIONS] note TEXT | output TEXT | span_start NAME | "
			 "span_end ID | x-KIND JSON | -",
		.summary = "Adds an event to the feed of a harness that runs on this "
			   "machine. TEXT and JSON may be -, for standard input; - alone "
			   "reads lines of {\"kind\":…,\"payload\":{…}}.",
		.example = "  perch emit note \"deployed to staging\"\n"
			   "  id=$(perch emit span_start tests); make test; perch emit "
			   "span_end $id",
		.options = table,
		.min_args = 1,
		.max_args = 2,
		.conf_err = &ignored,
	};

	*out = (struct arguments){.level = "info", .stream = "stdout"};
	return options_parse(&spec, argc, argv, options, &out->words, &out->word_count);
}

/* --- What is sent --- */

static bool read_stdin(struct buf *out, struct err *err)
{
	char bytes[4096];
	ssize_t got;

	while ((got = read(STDIN_FILENO, bytes, sizeof(bytes))) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_errno(err, "cannot read standard input");
		if (!buf_append(out, (struct slice){bytes, (size_t)got}))
			return err_set(err, ERR_TOO_LARGE,
				       "standard input: more than %u bytes", INPUT_MAX);
	}
	return true;
}

static void begin(struct buf *message, const char *kind)
{
	(void)buf_lit(message, "{");
	(void)json_write_member_string(message, SLICE("kind"), slice_of(kind));
	(void)json_write_key(message, SLICE("payload"));
}

/* A string member whose bytes may be no UTF-8. */
static void member(struct buf *out, const char *key, struct slice bytes)
{
	struct buf clean;

	buf_init(&clean, 3 * bytes.len);
	(void)text_clean(bytes, &clean);
	(void)json_write_member_string(out, slice_of(key),
				       clean.len ? buf_slice(&clean) : SLICE(""));
	buf_finish(&clean);
}

/* @text: the second word, or what came on standard input. */
static bool write_message(const struct arguments *arguments, const char *kind,
			  struct slice text, char span_id[33], struct buf *message,
			  struct err *err)
{
	uint8_t random[16];

	begin(message, kind);
	if (strncmp(kind, "x-", 2) == 0) {
		if (!json_check(text, NULL, err))
			return false;
		(void)buf_append(message, slice_trim(text));
		(void)buf_lit(message, "}");
		return true;
	}
	(void)buf_lit(message, "{");
	if (strcmp(kind, "note") == 0) {
		member(message, "text", text);
		member(message, "level", slice_of(arguments->level));
	} else if (strcmp(kind, "output") == 0) {
		member(message, "stream", slice_of(arguments->stream));
		member(message, "text", text);
	} else if (strcmp(kind, "span_start") == 0) {
		loop_random(random, sizeof(random));
		hex_encode(random, sizeof(random), span_id);
		span_id[32] = '\0';
		member(message, "id", slice_of(arguments->id ? arguments->id : span_id));
		member(message, "name", slice_trim(text));
	} else if (strcmp(kind, "span_end") == 0) {
		member(message, "id", slice_trim(text));
		if (arguments->status)
			member(message, "status", slice_of(arguments->status));
	} else {
		return err_set(err, ERR_MALFORMED,
			       "no kind \"%.40s\": want note, output, span_start, "
			       "span_end or x-NAME",
			       kind);
	}
	(void)buf_lit(message, "}}");
	return true;
}

/* --- The harness --- */

static bool find(const struct arguments *arguments, struct buf *path, struct err *err)
{
	const char *given = getenv(EMIT_VARIABLE);

	if (arguments->name && !keyfile_name_valid(slice_of(arguments->name)))
		return err_set(err, ERR_MALFORMED, "--name %.80s: no such name",
			       arguments->name);
	if (arguments->name)
		return emit_path_of_name(slice_of(arguments->name), path, err);
	if (given && given[0] == '/') {
		(void)buf_append(path, slice_of(given));
		return true;
	}
	return err_set(err, ERR_NOT_FOUND,
		       "this runs in no harness (PERCH_EMIT is not set): name one by "
		       "--name NAME");
}

static int connect_once(const char *path, struct err *err)
{
	const struct timeval limit = {.tv_sec = ANSWER_MS / 1000};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;

	if (strlen(path) >= sizeof(address.sun_path)) {
		(void)err_set(err, ERR_TOO_LARGE, "the socket's path is too long: %.80s",
			      path);
		return -1;
	}
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		(void)err_errno(err, "cannot make a socket");
		return -1;
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	if (errno == ENOENT || errno == ECONNREFUSED)
		(void)err_set(err, ERR_NOT_FOUND, "no harness listens at %.120s", path);
	else
		(void)err_errno(err, "cannot reach the harness at %.80s", path);
	(void)close(fd);
	return -1;
}

/* @starting: whoever listens there may only just have been started. */
static int connect_to(const char *path, bool starting, struct err *err)
{
	const struct timespec step = {.tv_nsec = START_STEP_MS * 1000000};
	int fd = connect_once(path, err);

	for (int ms = 0;
	     starting && fd < 0 && err->code == ERR_NOT_FOUND && ms < START_MS;
	     ms += START_STEP_MS) {
		(void)nanosleep(&step, NULL);
		fd = connect_once(path, err);
	}
	return fd;
}

static bool send_message(int fd, struct slice message, struct err *err)
{
	char reply[sizeof(err->text)];
	ssize_t got;

	if (message.len > EMIT_MESSAGE_MAX)
		return err_set(err, ERR_TOO_LARGE, "an event takes at most %d bytes",
			       EMIT_MESSAGE_MAX);
	if (send(fd, message.ptr, message.len, MSG_NOSIGNAL) < 0)
		return err_errno(err, "the harness takes no events");
	got = recv(fd, reply, sizeof(reply), 0);
	if (got <= 0)
		return err_set(err, ERR_SYSTEM, "the harness did not answer");
	if (slice_eq((struct slice){reply, (size_t)got}, SLICE("ok")))
		return true;
	return err_set(err, ERR_REFUSED, "%.*s", (int)got, reply);
}

static bool send_lines(int fd, struct slice lines, struct err *err)
{
	struct slice line;

	while (slice_take_until(&lines, '\n', &line))
		if (slice_trim(line).len && !send_message(fd, line, err))
			return false;
	return true;
}

static bool run(const struct arguments *arguments, struct err *err)
{
	const char *kind = arguments->words[0];
	const bool lines = strcmp(kind, "-") == 0;
	const char *text = arguments->word_count > 1 ? arguments->words[1] : "-";
	struct buf path, input, message;
	char span_id[33] = "";
	bool ok = false;
	int fd = -1;

	buf_init(&path, PATH_MAX);
	buf_init(&input, INPUT_MAX);
	buf_init(&message, 4 * INPUT_MAX);
	if (!find(arguments, &path, err))
		goto out;
	/* First, so that nobody waits for standard input in vain; which may take longer
	 * than a harness waits. */
	fd = connect_to(buf_text(&path), !arguments->name, err);
	if (fd < 0)
		goto out;
	if (lines || strcmp(text, "-") == 0) {
		(void)close(fd);
		fd = read_stdin(&input, err) ? connect_to(buf_text(&path), false, err)
					     : -1;
		if (fd < 0)
			goto out;
	} else {
		(void)buf_append(&input, slice_of(text));
	}
	if (lines) {
		ok = send_lines(fd, buf_slice(&input), err);
		goto out;
	}
	ok = write_message(arguments, kind, buf_slice(&input), span_id, &message, err) &&
	     send_message(fd, buf_slice(&message), err);
	if (ok && *span_id && !arguments->id)
		(void)printf("%s\n", span_id);
out:
	if (fd >= 0)
		(void)close(fd);
	buf_finish(&path);
	buf_finish(&input);
	buf_finish(&message);
	return ok;
}

int emit_main(int argc, char *argv[])
{
	struct options *options = NULL;
	struct arguments arguments;
	struct err err;
	bool ok;

	switch (parse(argc, argv, &arguments, &options)) {
	case OPTIONS_EXIT_OK:
		return EXIT_SUCCESS;
	case OPTIONS_EXIT_USAGE:
		return 2;
	case OPTIONS_OK:
		break;
	}
	ok = run(&arguments, &err) || arguments.best_effort;
	if (!ok)
		(void)fprintf(stderr, "perch emit: %s\n", err.text);
	options_destroy(options);
	return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
