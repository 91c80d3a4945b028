#include "agent/join.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#include "wire/host/keyfile.h"
#include "wire/host/loop.h"
#include "wire/host/secret.h"

#define VARIABLE "PERCH_INVITE"

void join_init(struct join *join)
{
	*join = (struct join){.given = false};
	buf_init(&join->text, INVITE_CHARS_MAX);
}

void join_finish(struct join *join)
{
	sodium_memzero(&join->invite, sizeof(join->invite));
	buf_wipe(&join->text);
}

/* Out of the environment, and out of the memory that /proc/PID/environ shows. */
static void take_variable(struct buf *out)
{
	char *value = getenv(VARIABLE);

	if (!value)
		return;
	(void)buf_append(out, slice_of(value));
	sodium_memzero(value, strlen(value));
	(void)unsetenv(VARIABLE);
}

static bool read_source(const char *source, struct buf *out, struct err *err)
{
	bool ok;

	if (invite_is(slice_of(source)))
		return err_set(
			err, ERR_REFUSED,
			"an invitation is a secret and never given as an argument, which "
			"others can read: make a new one, and paste it behind "
			"--invite -");
	if (strcmp(source, "-") != 0)
		return secret_file(source, out, err);
	ok = secret_line(STDIN_FILENO, "Paste the invitation, then Enter: ", out, err);
	if (!ok && err->code == ERR_NOT_FOUND)
		err_set(err, ERR_NOT_FOUND,
			"--invite -: nothing came on standard input; want the line "
			"perch1… that perch invite printed");
	return ok;
}

/* In the bytes of one line: the name is printable. */
static bool check_time(const struct invite *invite, struct err *err)
{
	const time_t at = (time_t)invite->expires;
	char when[32];
	struct tm tm;

	if (invite->expires > loop_unix_ms() / 1000)
		return true;
	(void)gmtime_r(&at, &tm);
	(void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M UTC", &tm);
	return err_set(err, ERR_REFUSED,
		       "this invitation expired at %s: ask its owner for a new one "
		       "(perch invite %.*s)",
		       when, SLICE_ARG(invite->name));
}

bool join_read(struct join *join, const char *source, struct crypto *crypto,
	       struct err *err)
{
	struct buf given;
	bool ok = true;

	buf_init(&given, INVITE_CHARS_MAX);
	take_variable(&given);
	join->given = source != NULL || given.len > 0 || given.full;
	join->keep = source != NULL;
	if (source)
		ok = read_source(source, &given, err);
	else if (given.full)
		ok = err_set(err, ERR_TOO_LARGE, VARIABLE " is over %d characters",
			     INVITE_CHARS_MAX);
	if (ok && join->given)
		ok = invite_parse(crypto, buf_slice(&given), &join->text, &join->invite,
				  err) &&
		     check_time(&join->invite, err);
	buf_wipe(&given);
	return ok;
}

bool join_keep(const struct join *join, struct slice name, const struct keypair *keypair,
	       struct err *err)
{
	return keyfile_save(name, keypair, err) &&
	       keyfile_save_auth(name, join->invite.auth_tag, err) &&
	       keyfile_save_relay(name, join->invite.relay, err);
}
