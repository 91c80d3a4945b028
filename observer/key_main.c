#include "observer/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "observer/client.h"
#include "wire/host/keyfile.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/nostr/nip19.h"

static bool show(struct crypto *crypto, struct slice name, struct err *err)
{
	struct keypair *keypair;
	struct buf npub = {.max = 80};

	if (!keyfile_load(crypto, name, &keypair, err))
		return false;
	(void)nip19_encode(NIP19_NPUB, keypair_public(keypair), &npub);
	(void)printf("%s\n", buf_text(&npub));
	keypair_destroy(keypair);
	buf_finish(&npub);
	return true;
}

static bool list_one(void *ctx, struct slice name)
{
	struct keypair *keypair;
	struct buf npub = {.max = 80};
	struct err err;

	if (keyfile_load(ctx, name, &keypair, &err)) {
		(void)nip19_encode(NIP19_NPUB, keypair_public(keypair), &npub);
		(void)printf("%-24.*s %s\n", SLICE_ARG(name), buf_text(&npub));
		keypair_destroy(keypair);
	} else {
		(void)printf("%-24.*s (%s)\n", SLICE_ARG(name), err.text);
	}
	buf_finish(&npub);
	return true;
}

/* nsec or 64 hex digits, from standard input so that no shell history keeps it. */
static bool read_secret(uint8_t secret[KEY_BYTES], struct err *err)
{
	char line[256];
	struct buf scratch = {.max = 256};
	struct nip19 entity;
	struct slice text;
	bool ok = false;

	if (!fgets(line, sizeof(line), stdin))
		return err_set(err, ERR_MALFORMED, "give the key on standard input");
	text = slice_trim(slice_of(line));
	if (hex_decode(text, secret, KEY_BYTES)) {
		ok = true;
	} else if (nip19_decode(text, &scratch, &entity, NULL) &&
		   entity.kind == NIP19_NSEC) {
		memcpy(secret, entity.key, KEY_BYTES);
		ok = true;
	} else {
		(void)err_set(err, ERR_MALFORMED,
			      "this is no secret key: want nsec1… or 64 hex digits");
	}
	sodium_memzero(&entity, sizeof(entity));
	sodium_memzero(line, sizeof(line));
	buf_wipe(&scratch);
	return ok;
}

static bool import(struct crypto *crypto, struct slice name, struct err *err)
{
	struct keypair *keypair = NULL, *there = NULL;
	uint8_t secret[KEY_BYTES];
	struct err missing;
	bool ok = false;

	if (!keyfile_name_valid(name))
		return err_set(err, ERR_MALFORMED,
			       "a key's name is 1 to %d letters, digits, '.', '_' or '-'",
			       KEY_NAME_MAX);
	if (keyfile_load(crypto, name, &there, &missing) ||
	    missing.code != ERR_NOT_FOUND) {
		keypair_destroy(there);
		return err_set(err, ERR_REFUSED,
			       "there is a key %.*s already: move it away first",
			       SLICE_ARG(name));
	}
	if (read_secret(secret, err) && keypair_create(crypto, secret, &keypair, err))
		ok = keyfile_save(name, keypair, err);
	sodium_memzero(secret, sizeof(secret));
	keypair_destroy(keypair);
	return ok && show(crypto, name, err);
}

static bool run(struct crypto *crypto, char **args, int arg_count, bool *usage,
		struct err *err)
{
	const char *verb = args[0];

	if (strcmp(verb, "show") == 0)
		return show(crypto, arg_count > 1 ? slice_of(args[1]) : SLICE("owner"),
			    err);
	if (strcmp(verb, "list") == 0 && arg_count == 1)
		return keyfile_list(list_one, crypto, err);
	if (strcmp(verb, "import") == 0 && arg_count == 2)
		return import(crypto, slice_of(args[1]), err);
	*usage = true;
	return err_set(err, ERR_MALFORMED, "want show [NAME], list or import NAME");
}

int key_main(int argc, char *argv[])
{
	const struct option_spec specs[] = {{.name = NULL}};
	const struct options_spec spec = {
		.command = "perch key",
		.usage = "show [NAME] | list | import NAME",
		.summary = "Shows the public key of `owner` or of an agent, lists the "
			   "keys that "
			   "are here, or reads a secret key (nsec or hex) from standard "
			   "input.",
		.example = "  perch key import owner < my-nsec\n",
		.options = specs,
		.min_args = 1,
		.max_args = 2,
	};
	struct options *options = NULL;
	struct crypto *crypto = NULL;
	uint8_t seed[32];
	struct err err;
	char **args;
	bool usage = false;
	int arg_count, status = EXIT_SUCCESS;
	const enum options_result result =
		options_parse(&spec, argc, argv, &options, &args, &arg_count);

	if (result != OPTIONS_OK) {
		status = result == OPTIONS_EXIT_OK ? EXIT_SUCCESS : 2;
	} else {
		keyfile_guard_process();
		loop_random(seed, sizeof(seed));
		crypto = crypto_create(seed, &err);
		if (!crypto || !run(crypto, args, arg_count, &usage, &err))
			status = client_fail("key", &err);
		if (usage)
			status = 2;
	}
	crypto_destroy(crypto);
	options_destroy(options);
	return status;
}
