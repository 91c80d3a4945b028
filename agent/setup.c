#include "agent/setup.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire/base/mem.h"
#include "wire/host/keyfile.h"
#include "wire/host/log.h"
#include "wire/host/loop.h"
#include "wire/host/paths.h"
#include "wire/nostr/nip19.h"
#include "wire/nostr/nipoa.h"

/* So many harnesses of one name, with SETUP_NEXT_NAME; our choice. */
#define NAMES_TRIED 64

void setup_init(struct setup *setup)
{
	*setup = (struct setup){.lock_fd = -1};
	buf_init(&setup->auth_tag, 4096);
	buf_init(&setup->epoch_path, PATH_MAX);
	buf_init(&setup->sessions_path, PATH_MAX);
	buf_init(&setup->journal_path, PATH_MAX);
	join_init(&setup->join);
}

void setup_finish(struct setup *setup)
{
	if (setup->lock_fd >= 0)
		(void)close(setup->lock_fd);
	keypair_destroy(setup->keypair);
	buf_finish(&setup->auth_tag);
	buf_finish(&setup->epoch_path);
	buf_finish(&setup->sessions_path);
	buf_finish(&setup->journal_path);
	free(setup->channels);
	free(setup->relay);
	free(setup->name);
	free(setup->cwd);
	join_finish(&setup->join);
}

/* --- Names --- */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* "claude" and "api server" → "claude-api-server": what is no letter, digit, '.', '_' or
 * '-' becomes '-'. */
static char *default_name(const char *command, const char *cwd)
{
	struct buf name;
	char *copy;

	buf_init(&name, KEY_NAME_MAX + 1);
	for (const char *at = base_name(command); *at && name.len < KEY_NAME_MAX / 2;
	     at++)
		(void)buf_append_byte(&name, *at);
	(void)buf_append_byte(&name, '-');
	for (const char *at = base_name(cwd); *at && name.len < KEY_NAME_MAX; at++)
		(void)buf_append_byte(&name, *at);
	for (size_t i = 0; i < name.len; i++) {
		char c = name.ptr[i];
		bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			    (c >= '0' && c <= '9') || c == '_' || c == '-' ||
			    (c == '.' && i > 0);

		if (!fine)
			name.ptr[i] = '-';
	}
	if (slice_ends(buf_slice(&name), SLICE(".auth")))
		name.ptr[name.len - 5] = '-';
	if (slice_ends(buf_slice(&name), SLICE(".relay")))
		name.ptr[name.len - 6] = '-';
	copy = mem_dup(buf_slice(&name));
	buf_finish(&name);
	return copy;
}

static bool resolve_names(const struct setup_options *options, struct setup *setup,
			  struct err *err)
{
	setup->cwd = realpath(options->cwd, NULL);
	if (!setup->cwd)
		return err_errno(err, "--cwd %.100s", options->cwd);
	setup->name = options->name       ? mem_dup(slice_of(options->name))
		      : setup->join.given ? mem_dup(setup->join.invite.name)
					  : default_name(options->command, setup->cwd);
	if (!keyfile_name_valid(slice_of(setup->name)))
		return err_set(
			err, ERR_MALFORMED,
			"--name %.80s: want 1 to %d letters, digits, '.', '_' or '-'",
			setup->name, KEY_NAME_MAX);
	return true;
}

/* It is shown in lists and typed by people. */
static bool is_channel_name(struct slice name)
{
	if (name.len == 0 || name.len > CHANNEL_NAME_MAX || !utf8_valid(name))
		return false;
	for (size_t i = 0; i < name.len; i++)
		if ((uint8_t)name.ptr[i] < ' ' || name.ptr[i] == 0x7f)
			return false;
	return true;
}

static bool resolve_channels(const struct setup_options *options, struct crypto *crypto,
			     struct setup *setup, struct err *err)
{
	size_t count = options->channels->count;
	char quoted[LOG_QUOTE_BYTES];

	if (count > CHANNELS_MAX)
		return err_set(err, ERR_MALFORMED, "--channel: at most %d", CHANNELS_MAX);
	setup->channels = mem_array(count ? count : 1, sizeof(*setup->channels));
	for (size_t i = 0; i < (count ? count : 1); i++) {
		struct harness_channel *channel = &setup->channels[i];

		channel->name =
			count ? options->channels->values[i] : base_name(setup->cwd);
		if (count && !is_channel_name(slice_of(channel->name)))
			return err_set(
				err, ERR_MALFORMED,
				"--channel takes a UUID or a name of 1 to %d bytes "
				"of plain text, got \"%.40s\"",
				CHANNEL_NAME_MAX,
				log_quote(slice_of(channel->name), quoted));
		if (!uuid_parse(slice_of(channel->name), &channel->uuid))
			uuid_of_name(crypto, slice_of(channel->name), &channel->uuid);
		for (size_t k = 0; k < i; k++) {
			if (strcmp(setup->channels[k].uuid.text, channel->uuid.text) == 0)
				return err_set(err, ERR_MALFORMED,
					       "--channel %.80s: given twice",
					       channel->name);
		}
		setup->channel_count++;
	}
	return true;
}

bool setup_names(struct setup *setup, const struct setup_options *options,
		 struct crypto *crypto, struct err *err)
{
	if (options->command[0] == '\0')
		return err_set(err, ERR_MALFORMED, "the command is \"\": want a program");
	if (options->relay)
		setup->relay = mem_dup(slice_of(options->relay));
	return join_read(&setup->join, options->invite, crypto, err) &&
	       resolve_names(options, setup, err) &&
	       resolve_channels(options, crypto, setup, err);
}

/* --- Keys --- */

/* Signs with the owner's key, should it be on this machine, and forgets it again. */
static bool attest_here(struct crypto *crypto, struct setup *setup, struct err *err)
{
	struct keypair *owner = NULL;
	struct buf npub;
	uint8_t aux[32];
	bool ok = false;

	if (!keyfile_load(crypto, SLICE("owner"), &owner, err)) {
		if (err->code != ERR_NOT_FOUND)
			return false;
		buf_init(&npub, 128);
		(void)nip19_encode(NIP19_NPUB, keypair_public(setup->keypair), &npub);
		err_set(err, ERR_NOT_FOUND,
			"agent key %.64s (%s) has no owner: run \"perch up\" here, or "
			"get one by \"perch invite\" on the owner's machine",
			setup->name, buf_text(&npub));
		buf_finish(&npub);
		return false;
	}
	loop_random(aux, sizeof(aux));
	buf_clear(&setup->auth_tag);
	ok = nipoa_sign(crypto, owner, keypair_public(setup->keypair), SLICE_EMPTY, aux,
			&setup->auth_tag, err);
	keypair_destroy(owner);
	return ok &&
	       keyfile_save_auth(slice_of(setup->name), buf_slice(&setup->auth_tag), err);
}

/* Everything comes with the invitation, which has been checked. */
static bool load_invited(struct crypto *crypto, struct setup *setup, struct err *err)
{
	const struct invite *invite = &setup->join.invite;

	if (!keypair_create(crypto, invite->secret, &setup->keypair, err))
		return false;
	memcpy(setup->owner, invite->owner, KEY_BYTES);
	buf_clear(&setup->auth_tag);
	(void)buf_append(&setup->auth_tag, invite->auth_tag);
	return !setup->join.keep ||
	       join_keep(&setup->join, slice_of(setup->name), setup->keypair, err);
}

/* Where the feed goes, unless we were told: where the invitation says, now or when it was
 * taken. */
static bool find_relay(struct setup *setup, struct err *err)
{
	struct buf stored;
	struct err why;
	bool ok;

	if (setup->relay)
		return true;
	if (setup->join.given) {
		setup->relay = mem_dup(setup->join.invite.relay);
		return true;
	}
	buf_init(&stored, 4096);
	ok = keyfile_load_relay(slice_of(setup->name), &stored, &why);
	if (ok)
		setup->relay = mem_dup(buf_slice(&stored));
	else if (why.code == ERR_NOT_FOUND)
		setup->relay = mem_dup(slice_of(SETUP_RELAY_URL));
	else if (err)
		*err = why;
	buf_finish(&stored);
	return setup->relay != NULL;
}

static bool load_auth(struct crypto *crypto, struct setup *setup, struct err *err)
{
	int64_t expires;
	struct err why;
	bool made;

	if (setup->join.given)
		return load_invited(crypto, setup, err);
	if (!keyfile_ensure(crypto, slice_of(setup->name), &setup->keypair, &made, err))
		return false;
	if (!keyfile_load_auth(slice_of(setup->name), &setup->auth_tag, err)) {
		if (err->code != ERR_NOT_FOUND || !attest_here(crypto, setup, err))
			return false;
	}
	if (!nipoa_parse(crypto, buf_slice(&setup->auth_tag),
			 keypair_public(setup->keypair), setup->owner, &expires, &why))
		return err_set(err, why.code,
			       "the attestation of agent key %.64s is broken (%.48s): "
			       "run \"perch attest %.64s\" on the owner's machine",
			       setup->name, why.text, setup->name);
	if (expires <= loop_unix_ms() / 1000)
		return err_set(
			err, ERR_REFUSED,
			"the attestation of agent key %.64s has expired: run \"perch key "
			"remove %.64s\", and \"perch invite\" on the owner's machine",
			setup->name, setup->name);
	return true;
}

/* One harness per key: two would number their frames against each other. */
static bool lock_name(struct setup *setup, const char *folder, struct err *err)
{
	struct buf path;
	long pid = 0;

	buf_init(&path, PATH_MAX);
	(void)buf_printf(&path, "%s/%s.lock", folder, setup->name);
	buf_clear(&setup->epoch_path);
	(void)buf_printf(&setup->epoch_path, "%s/%s.epoch", folder, setup->name);
	buf_clear(&setup->sessions_path);
	(void)buf_printf(&setup->sessions_path, "%s/%s.sessions", folder, setup->name);
	setup->lock_fd = paths_lock(buf_text(&path), &pid, err);
	if (setup->lock_fd < 0 && err->code == ERR_REFUSED)
		err_set(err, ERR_REFUSED,
			"agent %.64s is running already (pid %ld): stop that one, or "
			"give this one another --name",
			setup->name, pid);
	buf_finish(&path);
	return setup->lock_fd >= 0;
}

/* NAME becomes NAME-@number, cut to what a name may be. */
static void number_name(struct setup *setup, struct slice name, unsigned number)
{
	struct buf numbered;

	buf_init(&numbered, KEY_NAME_MAX);
	(void)buf_append(&numbered, slice_sub(name, 0, KEY_NAME_MAX - 3));
	(void)buf_printf(&numbered, "-%u", number);
	free(setup->name);
	setup->name = mem_dup(buf_slice(&numbered));
	buf_finish(&numbered);
}

static bool lock(struct setup *setup, enum setup_taken taken, struct err *err)
{
	char *name = mem_dup(slice_of(setup->name));
	struct buf folder;
	bool ok = false;

	buf_init(&folder, PATH_MAX);
	if (!paths_data(SLICE("run"), &folder, err) ||
	    !paths_make(buf_text(&folder), err))
		goto out;
	ok = lock_name(setup, buf_text(&folder), err);
	for (unsigned number = 2; !ok && taken == SETUP_NEXT_NAME &&
				  err->code == ERR_REFUSED && number <= NAMES_TRIED;
	     number++) {
		number_name(setup, slice_of(name), number);
		ok = lock_name(setup, buf_text(&folder), err);
	}
out:
	buf_finish(&folder);
	free(name);
	return ok;
}

/* A folder that cannot be made is the journal's to report: the feed needs none. */
static bool place_journal(struct setup *setup, struct err *err)
{
	struct buf npub;
	struct err ignored;

	if (!paths_data(SLICE("journal"), &setup->journal_path, err))
		return false;
	(void)paths_make(buf_text(&setup->journal_path), &ignored);
	buf_init(&npub, 128);
	(void)nip19_encode(NIP19_NPUB, keypair_public(setup->keypair), &npub);
	(void)buf_printf(&setup->journal_path, "/%s.db", buf_text(&npub));
	buf_finish(&npub);
	return true;
}

bool setup_identity(struct setup *setup, enum setup_taken taken, struct crypto *crypto,
		    struct err *err)
{
	return lock(setup, setup->join.given ? SETUP_REFUSE : taken, err) &&
	       load_auth(crypto, setup, err) && find_relay(setup, err) &&
	       place_journal(setup, err);
}
