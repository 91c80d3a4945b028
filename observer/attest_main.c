#include "observer/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observer/attested.h"
#include "observer/client.h"
#include "observer/expiry.h"
#include "wire/host/keyfile.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/nostr/nip19.h"
#include "wire/nostr/nipoa.h"

/* Whose key @who means: that of a key file here, or a public key. */
static bool find_agent(struct crypto *crypto, struct slice who, uint8_t agent[KEY_BYTES],
		       bool *is_here, struct err *err)
{
	struct keypair *keypair = NULL;

	*is_here = false;
	if (keyfile_name_valid(who) && keyfile_load(crypto, who, &keypair, err)) {
		memcpy(agent, keypair_public(keypair), KEY_BYTES);
		keypair_destroy(keypair);
		*is_here = true;
		return true;
	}
	if (nip19_parse_pubkey(who, agent, NULL))
		return true;
	return err_set(
		err, ERR_NOT_FOUND,
		"%.*s is neither a key here (`perch key list`) nor an npub or 64 hex",
		(int)utf8_floor(who, 80), who.ptr);
}

static bool run(struct crypto *crypto, const char *who, int64_t expires, struct err *err)
{
	struct buf tag = {.max = 4096}, conditions = {.max = 64};
	struct keypair *owner = NULL;
	uint8_t agent[KEY_BYTES], aux[32];
	bool is_here, ok = false;

	if (!keyfile_load(crypto, SLICE("owner"), &owner, err) ||
	    !find_agent(crypto, slice_of(who), agent, &is_here, err))
		goto out;
	if (expires)
		(void)buf_printf(&conditions, "created_at<%lld", (long long)expires);
	loop_random(aux, sizeof(aux));
	if (!nipoa_sign(crypto, owner, agent,
			conditions.len ? buf_slice(&conditions) : SLICE(""), aux, &tag,
			err))
		goto out;
	if (is_here && !keyfile_save_auth(slice_of(who), buf_slice(&tag), err))
		goto out;
	if (!attested_save(agent, buf_slice(&tag), err))
		goto out;
	(void)printf("%s\n", buf_text(&tag));
	ok = true;
out:
	keypair_destroy(owner);
	buf_finish(&tag);
	buf_finish(&conditions);
	return ok;
}

int attest_main(int argc, char *argv[])
{
	const char *expires_text = NULL;
	int64_t expires = 0;
	const struct option_spec specs[] = {
		{.name = "expires",
		 .type = OPTION_TEXT,
		 .value = &expires_text,
		 .argument = "T",
		 .help = "30m, 12h, 7d, 4w from now, or Unix seconds; then it no longer "
			 "counts (default: never)",
		 .no_env = true},
		{.name = NULL},
	};
	const struct options_spec spec = {
		.command = "perch attest",
		.usage = "[--expires T] NPUB|NAME",
		.summary =
			"Signs with the owner key that an agent's key is yours, prints "
			"the tag "
			"(NIP-OA), and keeps it beside that key where the key is here.",
		.example = "  perch attest npub1… --expires 90d\n",
		.options = specs,
		.min_args = 1,
		.max_args = 1,
	};
	struct options *options = NULL;
	struct crypto *crypto = NULL;
	struct err err;
	char **args;
	int arg_count, status = EXIT_SUCCESS;
	const enum options_result result =
		options_parse(&spec, argc, argv, &options, &args, &arg_count);

	if (result != OPTIONS_OK) {
		status = result == OPTIONS_EXIT_OK ? EXIT_SUCCESS : 2;
	} else if (expires_text &&
		   !expiry_parse(expires_text, loop_unix_ms() / 1000, &expires, &err)) {
		(void)client_fail("attest", &err);
		status = 2;
	} else {
		keyfile_guard_process();
		crypto = loop_new_crypto(&err);
		if (!crypto || !run(crypto, args[0], expires, &err))
			status = client_fail("attest", &err);
	}
	crypto_destroy(crypto);
	options_destroy(options);
	return status;
}
