#include "relay/tool.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "relay/book.h"
#include "relay/store.h"
#include "relay/store_schema.h"
#include "wire/host/db.h"
#include "wire/host/loop.h"
#include "wire/host/paths.h"
#include "wire/nostr/nip19.h"

#define PATH_BYTES_MAX 4096

struct tool {
	const char *path; /* of the database */
	struct sqlite3 *db;
	size_t rows; /* printed */
};

static const char *npub(const uint8_t key[KEY_BYTES], char out[72])
{
	struct buf text;

	buf_init(&text, 128);
	(void)nip19_encode(NIP19_NPUB, key, &text);
	(void)snprintf(out, 72, "%s", buf_text(&text));
	buf_finish(&text);
	return out;
}

/* "2026-11-30 08:00:00 UTC", or "always". */
static const char *moment(int64_t unix_s, char out[40])
{
	time_t at = (time_t)unix_s;
	struct tm tm;

	if (unix_s == INT64_MAX || !gmtime_r(&at, &tm) ||
	    strftime(out, 40, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0)
		(void)snprintf(out, 40, "always");
	return out;
}

/* Tells the relay that holds the database's lock; says on stderr who was told. */
static bool tell_relay(const struct tool *tool, struct err *err)
{
	struct err lock_err;
	struct buf name;
	long pid = 0;
	int fd;

	buf_init(&name, PATH_BYTES_MAX);
	(void)buf_printf(&name, "%s" STORE_LOCK_SUFFIX, tool->path);
	fd = paths_lock(buf_text(&name), &pid, &lock_err);
	buf_finish(&name);
	if (fd >= 0) {
		(void)close(fd);
		fprintf(stderr,
			"no relay runs on %s now: the next one that does knows it\n",
			tool->path);
		return true;
	}
	if (lock_err.code != ERR_REFUSED || pid <= 1) {
		*err = lock_err;
		return false;
	}
	if (kill((pid_t)pid, SIGHUP) < 0)
		return err_errno(err,
				 "written, but cannot tell the relay (process %ld), run "
				 "this as its user",
				 pid);
	fprintf(stderr, "the relay (process %ld) was told\n", pid);
	return true;
}

enum change { CHANGE_ADD, CHANGE_REMOVE, CHANGE_REVOKE, CHANGE_ALLOW };

static const struct {
	const char *done, *before; /* "… KEY" */
} change_words[] = {
	[CHANGE_ADD] = {"listed", "was listed already:"},
	[CHANGE_REMOVE] = {"removed", "was not listed:"},
	[CHANGE_REVOKE] = {"revoked", "was revoked already:"},
	[CHANGE_ALLOW] = {"allowed", "was not revoked:"},
};

static bool change_one(const struct tool *tool, enum change change,
		       const uint8_t key[KEY_BYTES], bool *changed, struct err *err)
{
	switch (change) {
	case CHANGE_ADD:
		return book_add_owner(tool->db, key, changed, err);
	case CHANGE_REMOVE:
		return book_remove_owner(tool->db, key, changed, err);
	case CHANGE_REVOKE:
		return book_revoke(tool->db, key, loop_unix_ms() / 1000, changed, err);
	case CHANGE_ALLOW:
		return book_allow(tool->db, key, changed, err);
	}
	return false;
}

/* All keys or none. */
static bool change_all(const struct tool *tool, enum change change, char **texts,
		       struct err *err)
{
	uint8_t key[KEY_BYTES];
	bool changed;
	char text[72];

	if (!db_exec(tool->db, "BEGIN IMMEDIATE", err))
		return false;
	for (; *texts; texts++) {
		if (!nip19_parse_pubkey(slice_of(*texts), key, err) ||
		    !change_one(tool, change, key, &changed, err))
			return false;
		printf("%s %s\n",
		       changed ? change_words[change].done : change_words[change].before,
		       npub(key, text));
	}
	return db_exec(tool->db, "COMMIT", err) && tell_relay(tool, err);
}

static void print_owner(void *ctx, const uint8_t owner[KEY_BYTES])
{
	struct tool *tool = ctx;
	char text[72];

	printf("%s\n", npub(owner, text));
	tool->rows++;
}

static bool list_owners(struct tool *tool, struct err *err)
{
	if (!book_each_owner(tool->db, print_owner, tool, err))
		return false;
	if (tool->rows == 0)
		fprintf(stderr, "no owner is listed: perch relay owners add NPUB\n");
	return true;
}

/* AGENT, OWNER or "revoked", until or since when: columns divided by tabs. */
static void print_agent(void *ctx, const struct book_row *row)
{
	struct tool *tool = ctx;
	char agent[72], owner[72], when[40];

	printf("%s\t%s\t%s %s\n", npub(row->agent, agent),
	       row->revoked ? "revoked" : npub(row->owner, owner),
	       row->revoked ? "since" : "until", moment(row->until, when));
	tool->rows++;
}

static bool list_agents(struct tool *tool, struct err *err)
{
	if (!book_each_agent(tool->db, print_agent, tool, err))
		return false;
	if (tool->rows == 0)
		fprintf(stderr, "no agent has shown an attestation here\n");
	return true;
}

static const struct command {
	const char *first, *second; /* NULL: one word */
	bool takes_keys;
	enum change change;
	bool (*list)(struct tool *tool, struct err *err);
} commands[] = {
	{"owners", "add", true, CHANGE_ADD, NULL},
	{"owners", "remove", true, CHANGE_REMOVE, NULL},
	{"owners", "list", false, CHANGE_ADD, list_owners},
	{"agents", NULL, false, CHANGE_ADD, list_agents},
	{"revoke", NULL, true, CHANGE_REVOKE, NULL},
	{"allow", NULL, true, CHANGE_ALLOW, NULL},
};

/* @keys_out: the arguments behind its words. */
static const struct command *find_command(char **args, int count, char ***keys_out)
{
	size_t i;

	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		const struct command *command = &commands[i];
		int words = command->second ? 2 : 1;

		if (count < words || strcmp(args[0], command->first) != 0 ||
		    (command->second && strcmp(args[1], command->second) != 0) ||
		    (count > words) != command->takes_keys)
			continue;
		*keys_out = args + words;
		return command;
	}
	return NULL;
}

/* A key that is none is a usage error, found before anything is written. */
static bool check_keys(char **texts, struct err *err)
{
	uint8_t key[KEY_BYTES];

	for (; *texts; texts++)
		if (!nip19_parse_pubkey(slice_of(*texts), key, err))
			return false;
	return true;
}

int tool_main(const struct settings *settings)
{
	const struct command *command;
	struct tool tool = {0};
	struct buf path;
	char **keys;
	struct err err;
	bool ok;

	command = find_command(settings->args, settings->arg_count, &keys);
	if (!command) {
		fprintf(stderr, "perch relay: the words are owners add KEY…, owners "
				"remove KEY…, owners list, agents, revoke KEY…, allow "
				"KEY…, where KEY is an npub or 64 hex digits\n");
		return 2;
	}
	if (command->takes_keys && !check_keys(keys, &err)) {
		fprintf(stderr, "perch relay: %s\n", err.text);
		return 2;
	}
	buf_init(&path, PATH_BYTES_MAX);
	ok = settings_db_path(settings, &path, &err);
	tool.path = buf_text(&path);
	ok = ok && db_open(tool.path, store_migrations, &tool.db, &err) &&
	     (command->list ? command->list(&tool, &err)
			    : change_all(&tool, command->change, keys, &err));
	db_close(tool.db);
	buf_finish(&path);
	if (!ok)
		fprintf(stderr, "perch relay: %s\n", err.text);
	return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
