#include "observer/observer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "observer/acp.h"
#include "observer/attested.h"
#include "observer/client.h"
#include "observer/doctor.h"
#include "observer/expiry.h"
#include "wire/host/db.h"
#include "wire/host/keyfile.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/host/paths.h"
#include "wire/nostr/json.h"
#include "wire/nostr/nip19.h"
#include "wire/nostr/nipoa.h"

#define RELAY_URL "ws://127.0.0.1:7447"
#define ARCHIVE_CHECK_MS 10000
#define SAY_BYTES (64 << 20) /* an archive of which checking takes a noticeable time */
#define EXPIRES_SOON_S (7 * 86400)
#define ROOM_WARN (1024LL << 20)
#define ROOM_FAIL (64LL << 20)

static const char *const verdicts[] = {"ok", "warning", "failed"};

void doctor_tell(struct doctor *doctor, enum doctor_verdict verdict, const char *name,
		 const char *fmt, ...)
{
	char text[600];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	doctor->failed += verdict == DOCTOR_FAILED;
	doctor->warnings += verdict == DOCTOR_WARNING;
	if (doctor->json) {
		(void)buf_printf(&doctor->out, "%s{", doctor->count ? "," : "");
		json_write_member_string(&doctor->out, SLICE("name"), slice_of(name));
		json_write_member_string(&doctor->out, SLICE("state"),
					 slice_of(verdicts[verdict]));
		json_write_member_string(&doctor->out, SLICE("text"), slice_of(text));
		(void)buf_lit(&doctor->out, "}");
	} else {
		(void)printf("%-8s %-12s %s\n", verdicts[verdict], name, text);
		(void)fflush(stdout);
	}
	doctor->count++;
}

/* ---- folders and files ---- */

/* False, and said, when the folder is not there or not as it should be. */
static bool check_folder(struct doctor *doctor, const char *name, const char *path,
			 bool may_be_absent)
{
	struct stat info;

	if (stat(path, &info) < 0 && errno == ENOENT && may_be_absent)
		return false;
	if (stat(path, &info) < 0)
		doctor_tell(doctor, errno == ENOENT ? DOCTOR_WARNING : DOCTOR_FAILED,
			    name, "%s: %s", path, strerror(errno));
	else if (!S_ISDIR(info.st_mode))
		doctor_tell(doctor, DOCTOR_FAILED, name, "%s is no folder: move it away",
			    path);
	else if (info.st_uid != geteuid())
		doctor_tell(doctor, DOCTOR_FAILED, name,
			    "%s belongs to user %u, not to you: run perch as that user, "
			    "or set PERCH_HOME",
			    path, (unsigned)info.st_uid);
	else if (access(path, R_OK | W_OK | X_OK) != 0)
		doctor_tell(doctor, DOCTOR_FAILED, name,
			    "%s cannot be written: run chmod 700 on it, or look at the "
			    "disk",
			    path);
	else if ((info.st_mode & 077) != 0)
		doctor_tell(doctor, DOCTOR_WARNING, name,
			    "%s is open to others (mode %o): run chmod 700 on it", path,
			    (unsigned)info.st_mode & 0777);
	else
		return true;
	return false;
}

static void check_data(struct doctor *doctor)
{
	struct buf path = {.max = 4096};
	struct err err;

	if (!paths_data(SLICE(""), &path, &err))
		doctor_tell(doctor, DOCTOR_FAILED, "data", "%s", err.text);
	else if (check_folder(doctor, "data", buf_text(&path), false))
		doctor_tell(doctor, DOCTOR_OK, "data", "%s", buf_text(&path));
	buf_finish(&path);
}

static void check_room(struct doctor *doctor)
{
	struct buf path = {.max = 4096};
	struct statvfs info;
	long long room;

	if (paths_data(SLICE(""), &path, NULL) && statvfs(buf_text(&path), &info) == 0) {
		room = (long long)info.f_bavail * (long long)info.f_frsize;
		if ((info.f_flag & ST_RDONLY) != 0)
			doctor_tell(doctor, DOCTOR_FAILED, "disk",
				    "%s is on a read-only disk: mount it writable, or "
				    "set PERCH_HOME",
				    buf_text(&path));
		else
			doctor_tell(doctor,
				    room < ROOM_FAIL   ? DOCTOR_FAILED
				    : room < ROOM_WARN ? DOCTOR_WARNING
						       : DOCTOR_OK,
				    "disk", "%lld MiB free%s", room >> 20,
				    room < ROOM_WARN ? ": make room, or keep less (perch "
						       "observer --keep-mib)"
						     : "");
	}
	buf_finish(&path);
}

static void check_archive(struct doctor *doctor)
{
	struct buf path = {.max = 4096};
	struct stat info;
	struct err err;
	bool whole;

	if (!paths_data(SLICE("archive.db"), &path, NULL))
		goto out;
	if (stat(buf_text(&path), &info) < 0) {
		doctor_tell(doctor, errno == ENOENT ? DOCTOR_OK : DOCTOR_FAILED,
			    "archive", "%s",
			    errno == ENOENT ? "none yet: the observer makes it"
					    : strerror(errno));
		goto out;
	}
	if (info.st_size > SAY_BYTES && !doctor->json)
		(void)fprintf(stderr,
			      "perch doctor: checking the archive, %lld MiB, for at most "
			      "10 s\n",
			      (long long)info.st_size >> 20);
	if (!db_check(buf_text(&path), ARCHIVE_CHECK_MS, NULL, &whole, &err))
		doctor_tell(doctor, DOCTOR_FAILED, "archive", "%s: %s", err.text,
			    err.code == ERR_MALFORMED
				    ? "the observer moves it aside when it starts and "
				      "fills a new one from the journals"
				    : "the observer only shows what comes");
	else if ((info.st_mode & 077) != 0)
		doctor_tell(doctor, DOCTOR_WARNING, "archive",
			    "%s can be read by others (mode %o): run chmod 600 on it",
			    buf_text(&path), (unsigned)info.st_mode & 0777);
	else
		doctor_tell(doctor, DOCTOR_OK, "archive", "%lld MiB, sound%s",
			    (long long)info.st_size >> 20,
			    whole ? "" : " as far as 10 s reach");
out:
	buf_finish(&path);
}

static void check_journal(struct doctor *doctor)
{
	struct buf path = {.max = 4096};
	long long bytes = 0;
	unsigned count = 0;
	struct dirent *entry;
	struct stat info;
	DIR *dir;

	if (!paths_data(SLICE("journal"), &path, NULL))
		goto out;
	if (stat(buf_text(&path), &info) < 0 && errno == ENOENT) {
		doctor_tell(doctor, DOCTOR_OK, "journal",
			    "none here: no agent has run on this machine");
		goto out;
	}
	if (!check_folder(doctor, "journal", buf_text(&path), true))
		goto out;
	dir = opendir(buf_text(&path));
	while (dir && (entry = readdir(dir)) != NULL) {
		const struct slice name = slice_of(entry->d_name);

		if (fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(info.st_mode))
			continue;
		bytes += info.st_size;
		count += name.len > 3 &&
			 slice_eq(slice_sub(name, name.len - 3, name.len), SLICE(".db"));
	}
	if (dir)
		(void)closedir(dir);
	/* What nobody starts again nobody is sent. */
	doctor_tell(doctor, DOCTOR_OK, "journal",
		    "of %u agent%s, %lld MiB; what an observer misses of one is sent "
		    "while that one runs: start it again by its command, or `perch run "
		    "--name NAME -- sleep 120` with its name",
		    count, count == 1 ? "" : "s", bytes >> 20);
out:
	buf_finish(&path);
}

/* ---- keys and attestations ---- */

struct keys {
	struct doctor *doctor;
	size_t agents;
};

static void tell_expiry(struct doctor *doctor, const char *name, const char *who,
			int64_t expires)
{
	const int64_t now = loop_unix_ms() / 1000;
	char until[32] = "";

	if (expires == INT64_MAX) {
		doctor_tell(doctor, DOCTOR_OK, name, "%s: attested, without an end", who);
		return;
	}
	expiry_text(expires, until);
	if (expires <= now)
		doctor_tell(doctor, DOCTOR_FAILED, name,
			    "%s: its attestation ended %s: run `perch attest %s`, or "
			    "invite it again",
			    who, until, who);
	else
		doctor_tell(doctor,
			    expires - now < EXPIRES_SOON_S ? DOCTOR_WARNING : DOCTOR_OK,
			    name, "%s: attested until %s%s%s", who, until,
			    expires - now < EXPIRES_SOON_S ? ": soon, `perch attest "
							   : "",
			    expires - now < EXPIRES_SOON_S ? "NAME` renews it" : "");
}

static void check_agent_key(struct doctor *doctor, struct slice name,
			    const struct keypair *keypair)
{
	struct buf tag = {.max = 4096};
	uint8_t owner[KEY_BYTES];
	char who[KEY_NAME_MAX + 1];
	int64_t expires;
	struct err err;

	(void)snprintf(who, sizeof(who), "%.*s", SLICE_ARG(name));
	if (!keyfile_load_auth(name, &tag, &err))
		doctor_tell(doctor, DOCTOR_WARNING, "key",
			    "%s: %s: relays that serve only the attested refuse it; run "
			    "`perch attest %s` where the owner's key is",
			    who, err.text, who);
	else if (!nipoa_parse(doctor->crypto, slice_trim(buf_slice(&tag)),
			      keypair_public(keypair), owner, &expires, &err))
		doctor_tell(doctor, DOCTOR_FAILED, "key",
			    "%s: its attestation is broken (%s): run `perch attest %s`",
			    who, err.text, who);
	else if (doctor->owner &&
		 memcmp(owner, keypair_public(doctor->owner), KEY_BYTES) != 0)
		doctor_tell(doctor, DOCTOR_WARNING, "key",
			    "%s: attested by another owner than the one here: only that "
			    "one sees it",
			    who);
	else
		tell_expiry(doctor, "key", who, expires);
	buf_finish(&tag);
}

static bool check_key(void *ctx, struct slice name)
{
	struct keys *keys = ctx;
	struct keypair *keypair = NULL;
	struct err err;

	if (slice_eq(name, SLICE("owner")))
		return true;
	keys->agents++;
	if (keyfile_load(keys->doctor->crypto, name, &keypair, &err))
		check_agent_key(keys->doctor, name, keypair);
	else
		doctor_tell(keys->doctor, DOCTOR_FAILED, "key", "%.*s: %s",
			    SLICE_ARG(name), err.text);
	keypair_destroy(keypair);
	return true;
}

static void check_owner(struct doctor *doctor)
{
	struct buf npub = {.max = 80};
	struct err err;

	if (keyfile_load(doctor->crypto, SLICE("owner"), &doctor->owner, &err)) {
		(void)nip19_encode(NIP19_NPUB, keypair_public(doctor->owner), &npub);
		doctor_tell(doctor, DOCTOR_OK, "owner", "%s", buf_text(&npub));
	} else if (err.code == ERR_NOT_FOUND) {
		doctor_tell(doctor, DOCTOR_WARNING, "owner",
			    "no owner's key here: `perch up` or `perch observer` makes "
			    "one, `perch key import owner` takes yours; a machine of "
			    "invited agents needs none");
	} else {
		doctor_tell(doctor, DOCTOR_FAILED, "owner", "%s", err.text);
	}
	buf_finish(&npub);
}

/* Those who are fine are not listed: there may be many. */
static bool check_attested(void *ctx, const uint8_t *agent)
{
	struct doctor *doctor = ctx;
	const int64_t now = loop_unix_ms() / 1000;
	const int64_t expires = attested_until(doctor->crypto, doctor->owner, agent);
	struct buf npub = {.max = 80};

	(void)nip19_encode(NIP19_NPUB, agent, &npub);
	if (!expires)
		doctor_tell(doctor, DOCTOR_WARNING, "attested",
			    "%s: the record is broken or another owner's: run `perch "
			    "attest` again",
			    buf_text(&npub));
	else if (expires - now < EXPIRES_SOON_S)
		tell_expiry(doctor, "attested", buf_text(&npub), expires);
	buf_finish(&npub);
	return true;
}

/* SECURITY.md: on one Unix user file modes guard against mistakes, not malice. */
static void tell_user(struct doctor *doctor, const struct keys *keys)
{
	const bool owner = doctor->owner != NULL;

	if (geteuid() == 0)
		doctor_tell(doctor, DOCTOR_WARNING, "user",
			    "root: whatever an agent does here it does as root: run "
			    "perch as a user of its own");
	else if (owner && keys->agents)
		doctor_tell(doctor, DOCTOR_OK, "user",
			    "agents run here as the user who has the owner's key: modes "
			    "and permissions guard against mistakes, not against an "
			    "agent that means harm (another user, container or machine "
			    "does)");
	else if (owner)
		doctor_tell(doctor, DOCTOR_OK, "user",
			    "the owner's key and no agent's is here: agents elsewhere "
			    "cannot read it");
	else if (keys->agents)
		doctor_tell(doctor, DOCTOR_OK, "user",
			    "agents' keys and not the owner's are here: an agent can "
			    "read its own key, not act as you");
}

static void check_keys(struct doctor *doctor)
{
	struct keys keys = {doctor, 0};
	struct err err;

	check_owner(doctor);
	if (!keyfile_list(check_key, &keys, &err) && err.code != ERR_NOT_FOUND)
		doctor_tell(doctor, DOCTOR_FAILED, "key", "%s", err.text);
	if (doctor->owner)
		attested_each(check_attested, doctor);
	tell_user(doctor, &keys);
}

/* ---- the observer ---- */

static void check_broker(struct doctor *doctor)
{
	struct buf fleet = {0}, reason = {0};
	struct slice relay;
	struct err err;

	if (!client_ask("/api/fleet", SLICE_EMPTY, &fleet, &err)) {
		doctor_tell(doctor,
			    err.code == ERR_NOT_FOUND ? DOCTOR_WARNING : DOCTOR_FAILED,
			    "observer", "%s", err.text);
		goto out;
	}
	relay = acp_get(acp_get(buf_slice(&fleet), "health"), "relay");
	/* Of a `perch up` on ports of its own nobody else knows it. */
	if (!doctor->relay && acp_get_string(relay, "url").len) {
		acp_set_text(&doctor->relay_text, acp_get_string(relay, "url"), 1024);
		doctor->relay = buf_text(&doctor->relay_text);
	}
	acp_set_text(&reason, acp_get_string(relay, "reason"), 160);
	if (json_is(acp_get_string(relay, "state"), SLICE("ready")))
		doctor_tell(doctor, DOCTOR_OK, "observer",
			    "running, connected to its relay");
	else
		doctor_tell(doctor, DOCTOR_FAILED, "observer",
			    "running, but without its relay: %s",
			    reason.len ? buf_text(&reason) : "connecting");
out:
	buf_finish(&fleet);
	buf_finish(&reason);
}

static void print_sum(struct doctor *doctor)
{
	if (doctor->json)
		(void)printf("{\"ok\":%s,\"checks\":[%.*s]}\n",
			     doctor->failed ? "false" : "true", (int)doctor->out.len,
			     doctor->out.len ? doctor->out.ptr : "");
	else
		(void)printf("%zu failed, %zu warning%s, of %zu\n", doctor->failed,
			     doctor->warnings, doctor->warnings == 1 ? "" : "s",
			     doctor->count);
}

static bool examine(struct doctor *doctor, const struct err *conf, struct err *err)
{
	doctor->crypto = loop_new_crypto(err);
	if (!doctor->crypto)
		return false;
	if (conf->code == ERR_NONE)
		doctor_tell(doctor, DOCTOR_OK, "perch.conf", "nothing wrong in it");
	else
		doctor_tell(doctor, DOCTOR_FAILED, "perch.conf", "%s", conf->text);
	check_data(doctor);
	check_room(doctor);
	check_keys(doctor);
	check_archive(doctor);
	check_journal(doctor);
	check_broker(doctor);
	if (!doctor->relay)
		doctor->relay = RELAY_URL;
	if (doctor->owner)
		doctor_check_relay(doctor);
	else
		doctor_tell(doctor, DOCTOR_WARNING, "relay",
			    "not asked: that takes the owner's key");
	print_sum(doctor);
	return true;
}

int doctor_main(int argc, char *argv[])
{
	struct doctor doctor = {.relay_text = {.max = 4096}, .out = {.max = 1 << 20}};
	struct err err, conf = {0};
	const struct option_spec specs[] = {
		{.name = "relay",
		 .type = OPTION_TEXT,
		 .value = &doctor.relay,
		 .argument = "URL",
		 .help = "relay to try (that of the running observer, else " RELAY_URL
			 ")"},
		{.name = "json",
		 .type = OPTION_FLAG,
		 .value = &doctor.json,
		 .help = "print the checks as JSON",
		 .no_env = true},
		{.name = NULL},
	};
	const struct options_spec spec = {
		.command = "perch doctor",
		.usage = "[OPTIONS]",
		.summary = "Checks the whole way from your agents to you, one line a "
			   "thing, with what to do where it is not well. Ends with 1 "
			   "when something failed; warnings do not count.",
		.example = "  perch doctor --relay wss://relay.example\n"
			   "  perch doctor --json | jq '.checks[] | select(.state != "
			   "\"ok\")'\n",
		.options = specs,
		.conf_err = &conf,
	};
	struct options *options = NULL;
	char **args;
	int arg_count, status;
	const enum options_result result =
		options_parse(&spec, argc, argv, &options, &args, &arg_count);

	if (result != OPTIONS_OK) {
		status = result == OPTIONS_EXIT_OK ? EXIT_SUCCESS : 2;
	} else {
		keyfile_guard_process();
		if (!examine(&doctor, &conf, &err))
			status = client_fail("doctor", &err);
		else
			status = doctor.failed ? EXIT_FAILURE : EXIT_SUCCESS;
	}
	keypair_destroy(doctor.owner);
	crypto_destroy(doctor.crypto);
	buf_finish(&doctor.out);
	buf_finish(&doctor.relay_text);
	options_destroy(options);
	return status;
}
