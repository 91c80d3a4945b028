#include "relay/transfer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "relay/store.h"
#include "relay/store_put.h"
#include "relay/store_schema.h"
#include "relay/strip.h"
#include "wire/base/mem.h"
#include "wire/host/db.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/host/paths.h"
#include "wire/nostr/event.h"

#define PATH_BYTES_MAX 4096
/* Lines between two words of progress; our choice. */
#define PROGRESS_LINES 10000

/* Options and path, which both commands have. */

static enum options_result read_path(const struct options_spec *frame, int argc,
				     char *argv[], struct buf *path)
{
	const char *db = NULL;
	const struct option_spec table[] = {
		{.name = "db",
		 .type = OPTION_TEXT,
		 .value = &db,
		 .argument = "PATH",
		 .help = "database of the relay (relay.db in the data folder)"},
		{.name = NULL},
	};
	struct options_spec spec = *frame;
	struct options *options = NULL;
	enum options_result result;
	struct err err;
	char **args;
	int arg_count;

	spec.options = table;
	result = options_parse(&spec, argc, argv, &options, &args, &arg_count);
	if (result != OPTIONS_OK)
		return result;
	if (db)
		(void)buf_printf(path, "%s", db);
	else if (!paths_data(SLICE("relay.db"), path, &err)) {
		(void)fprintf(stderr, "%s: %s\n", spec.command, err.text);
		result = OPTIONS_EXIT_USAGE;
	}
	options_destroy(options);
	return result;
}

/* Export */

static bool write_line(struct slice json, struct err *err)
{
	if (fwrite(json.ptr, 1, json.len, stdout) == json.len && putchar('\n') != EOF)
		return true;
	return err_errno(err, "cannot write the events");
}

static bool export_all(struct sqlite3 *db, uint64_t *count, struct err *err)
{
	sqlite3_stmt *statement = NULL;
	bool ok =
		db_prepare(db,
			   "SELECT json FROM event WHERE expires IS NULL OR expires > ?1"
			   " ORDER BY rank DESC",
			   &statement, err);
	int result = SQLITE_ROW;

	if (ok)
		(void)sqlite3_bind_int64(statement, 1, loop_unix_ms() / 1000);
	while (ok && (result = sqlite3_step(statement)) == SQLITE_ROW) {
		const struct slice json = {sqlite3_column_blob(statement, 0),
					   (size_t)sqlite3_column_bytes(statement, 0)};

		ok = write_line(json, err);
		if (++*count % PROGRESS_LINES == 0)
			(void)fprintf(stderr, "%" PRIu64 " events\n", *count);
	}
	if (ok && result != SQLITE_DONE)
		ok = db_fail(db, err, "read the events");
	(void)sqlite3_finalize(statement);
	if (ok && fflush(stdout) != 0)
		ok = err_errno(err, "cannot write the events");
	return ok;
}

static bool export_from(const char *path, struct err *err)
{
	struct sqlite3 *db = NULL;
	uint64_t count = 0;
	bool ok;

	if (access(path, F_OK) < 0)
		return err_errno(err, "cannot open the database %s", path);
	if (!db_open(path, store_migrations, &db, err))
		return false;
	ok = export_all(db, &count, err);
	db_close(db);
	if (ok)
		(void)fprintf(stderr, "%" PRIu64 " events exported\n", count);
	return ok;
}

int transfer_export(int argc, char *argv[])
{
	const struct options_spec spec = {
		.command = "perch relay export",
		.usage = "[OPTIONS] > FILE",
		.summary =
			"Writes every stored event as one line of JSON, the newest last. "
			"The relay may run.",
		.example = "  perch relay export > events.jsonl",
	};
	struct buf path;
	struct err err;
	int status = EXIT_SUCCESS;

	buf_init(&path, PATH_BYTES_MAX);
	switch (read_path(&spec, argc, argv, &path)) {
	case OPTIONS_OK:
		if (!export_from(buf_text(&path), &err)) {
			(void)fprintf(stderr, "perch relay export: %s\n", err.text);
			status = EXIT_FAILURE;
		}
		break;
	case OPTIONS_EXIT_OK:
		break;
	case OPTIONS_EXIT_USAGE:
		status = 2;
		break;
	}
	buf_finish(&path);
	return status;
}

/* Import */

struct import {
	struct store *store;
	struct store_put *put;
	struct crypto *crypto;
	struct arena arena;
	struct buf line, scratch, json;
	int64_t now;
	uint64_t lines, taken, known, refused;
};

/* Counts and says what is wrong with the line. */
static bool refuse_line(struct import *import, const char *why)
{
	import->refused++;
	(void)fprintf(stderr, "line %" PRIu64 ": %s\n", import->lines, why);
	return true;
}

/* One line to import->line, without its end. False at the end of the input; @fits_out:
 * false when it is longer than an event may be. */
static bool read_line(struct import *import, FILE *in, bool *fits_out)
{
	int byte = getc_unlocked(in);

	buf_clear(&import->line);
	if (byte == EOF)
		return false;
	for (; byte != EOF && byte != '\n'; byte = getc_unlocked(in))
		(void)buf_append_byte(&import->line, (char)byte);
	import->lines++;
	*fits_out = buf_ok(&import->line);
	return true;
}

static bool put_line(struct import *import, struct err *err)
{
	struct put_result result;
	struct err wrong;
	struct event event;
	int64_t expires;

	arena_reset(&import->arena);
	if (!event_parse(slice_trim(buf_slice(&import->line)), &import->arena, &event,
			 &wrong) ||
	    !event_verify(import->crypto, &event, &import->scratch, &wrong))
		return refuse_line(import, wrong.text);
	if (event_is_ephemeral(event.kind))
		return refuse_line(import, "an ephemeral kind is never stored");
	if (event_expires(&event, &expires) && expires <= import->now)
		return refuse_line(import, "the event has expired");
	buf_clear(&import->json);
	if (!event_write(&event, &import->json))
		return refuse_line(import, "event is too large");
	if (!store_put_event(import->put, &event, buf_slice(&import->json), import->now,
			     &result, err))
		return false;
	switch (result.verdict) {
	case PUT_STORED:
		import->taken++;
		return true;
	case PUT_DUPLICATE:
		import->known++;
		return true;
	case PUT_REFUSED:
		if (result.is_deleted)
			return refuse_line(import, result.text);
		import->known++;
		return true;
	}
	return true;
}

/* One transaction of lines; false at the end or when it failed. */
static bool import_some(struct import *import, struct err *err, bool *ok)
{
	struct sqlite3 *db = store_db(import->store);
	bool more = true;
	bool fits;
	int i;

	*ok = db_exec(db, "BEGIN IMMEDIATE", err);
	for (i = 0; *ok && i < STORE_BATCH_MAX; i++) {
		more = read_line(import, stdin, &fits);
		if (!more)
			break;
		if (!fits)
			(void)refuse_line(import, "longer than an event may be");
		else if (slice_trim(buf_slice(&import->line)).len > 0)
			*ok = put_line(import, err);
		if (import->lines % PROGRESS_LINES == 0)
			(void)fprintf(stderr, "%" PRIu64 " lines\n", import->lines);
	}
	*ok = *ok && db_exec(db, "COMMIT", err);
	return *ok && more;
}

static bool import_all(struct import *import, struct err *err)
{
	bool ok = true;

	import->now = loop_unix_ms() / 1000;
	while (import_some(import, err, &ok))
		;
	if (ok && ferror(stdin))
		ok = err_errno(err, "cannot read the events");
	(void)fprintf(stderr,
		      "%" PRIu64 " events imported, %" PRIu64 " known already, %" PRIu64
		      " refused\n",
		      import->taken, import->known, import->refused);
	return ok;
}

static bool import_to(const char *path, struct import *import, struct err *err)
{
	bool ok;

	arena_init(&import->arena, 64 * 1024);
	buf_init(&import->line, EVENT_MAX_BYTES);
	buf_init(&import->scratch, 2 * EVENT_MAX_BYTES);
	buf_init(&import->json, EVENT_MAX_BYTES);
	import->crypto = loop_new_crypto(err);
	import->store = import->crypto ? store_open(path, err) : NULL;
	import->put =
		import->store ? store_put_create(store_db(import->store), err) : NULL;
	ok = import->put && import_all(import, err);
	store_put_destroy(import->put);
	store_close(import->store);
	crypto_destroy(import->crypto);
	buf_finish(&import->line);
	buf_finish(&import->scratch);
	buf_finish(&import->json);
	arena_finish(&import->arena);
	return ok;
}

int transfer_import(int argc, char *argv[])
{
	const struct options_spec spec = {
		.command = "perch relay import",
		.usage = "[OPTIONS] < FILE",
		.summary =
			"Stores events, one line of JSON each, after verifying them. The "
			"relay must not run.",
		.example = "  perch relay import < events.jsonl",
	};
	struct import import = {0};
	struct buf path;
	struct err err;
	int status = EXIT_SUCCESS;

	buf_init(&path, PATH_BYTES_MAX);
	switch (read_path(&spec, argc, argv, &path)) {
	case OPTIONS_OK:
		if (!import_to(buf_text(&path), &import, &err)) {
			(void)fprintf(stderr, "perch relay import: %s\n", err.text);
			status = EXIT_FAILURE;
		} else if (import.refused > 0) {
			status = EXIT_FAILURE;
		}
		break;
	case OPTIONS_EXIT_OK:
		break;
	case OPTIONS_EXIT_USAGE:
		status = 2;
		break;
	}
	buf_finish(&path);
	return status;
}
