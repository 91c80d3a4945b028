#include "observer/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "observer/client.h"
#include "wire/host/keyfile.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/host/secret.h"
#include "wire/nostr/nip19.h"
#include "wire/nostr/nip49.h"

#define LINE_BYTES_MAX 256 /* of a key in any form */

struct context {
	struct crypto *crypto;
	const char *passphrase_file;
	bool plain;
};

static void print_npub(const struct keypair *keypair)
{
	struct buf npub = {.max = 80};

	(void)nip19_encode(NIP19_NPUB, keypair_public(keypair), &npub);
	(void)printf("%s\n", buf_text(&npub));
	buf_finish(&npub);
}

/* Asks for the passphrase of a sealed one. */
static bool load(const struct context *context, struct slice name, struct keypair **out,
		 struct err *err)
{
	struct buf passphrase = {0};
	bool sealed, ok = keyfile_is_sealed(name, &sealed, err);

	if (ok && sealed)
		ok = secret_passphrase(context->passphrase_file,
				       "Passphrase of the key: ", false, &passphrase,
				       err);
	ok = ok && keyfile_open(context->crypto, name, buf_slice(&passphrase), out, err);
	buf_wipe(&passphrase);
	return ok;
}

static bool show(const struct context *context, struct slice name, struct err *err)
{
	struct keypair *keypair;

	if (!load(context, name, &keypair, err))
		return false;
	print_npub(keypair);
	keypair_destroy(keypair);
	return true;
}

static bool list_one(void *ctx, struct slice name)
{
	struct keypair *keypair;
	struct buf npub = {.max = 80};
	struct err err;
	bool sealed = false;

	if (keyfile_is_sealed(name, &sealed, &err) && sealed) {
		(void)printf("%-24.*s (sealed)\n", SLICE_ARG(name));
	} else if (keyfile_load(ctx, name, &keypair, &err)) {
		(void)nip19_encode(NIP19_NPUB, keypair_public(keypair), &npub);
		(void)printf("%-24.*s %s\n", SLICE_ARG(name), buf_text(&npub));
		keypair_destroy(keypair);
	} else {
		(void)printf("%-24.*s (%s)\n", SLICE_ARG(name), err.text);
	}
	buf_finish(&npub);
	return true;
}

/* ---- import and export ---- */

static bool from_ncryptsec(struct slice text, const char *passphrase_file,
			   uint8_t secret[KEY_BYTES], struct err *err)
{
	struct buf passphrase = {0};
	const bool ok =
		secret_passphrase(passphrase_file, "Passphrase of the ncryptsec: ", false,
				  &passphrase, err) &&
		nip49_decrypt(text, buf_slice(&passphrase), secret, err);

	buf_wipe(&passphrase);
	return ok;
}

static bool from_nsec(struct slice text, uint8_t secret[KEY_BYTES], struct err *err)
{
	struct buf scratch = {.max = LINE_BYTES_MAX};
	struct nip19 entity = {0};
	bool ok = nip19_decode(text, &scratch, &entity, err) && entity.kind == NIP19_NSEC;

	if (ok)
		memcpy(secret, entity.key, KEY_BYTES);
	else
		(void)err_set(err, ERR_MALFORMED,
			      "this is no secret key: want nsec1…, ncryptsec1… or 64 hex "
			      "digits");
	sodium_memzero(&entity, sizeof(entity));
	buf_wipe(&scratch);
	return ok;
}

/* From standard input, so that no shell history and no list of processes shows it. */
static bool read_secret(const char *passphrase_file, uint8_t secret[KEY_BYTES],
			struct err *err)
{
	struct buf line = {.max = LINE_BYTES_MAX};
	struct slice text;
	bool ok = secret_line(STDIN_FILENO,
			      "Secret key (nsec, ncryptsec or hex): ", &line, err);

	text = slice_trim(buf_slice(&line));
	if (!ok && err->code == ERR_NOT_FOUND)
		(void)err_set(err, ERR_MALFORMED, "give the key on standard input");
	if (ok && !hex_decode(text, secret, KEY_BYTES))
		ok = nip49_is(text) ? from_ncryptsec(text, passphrase_file, secret, err)
				    : from_nsec(text, secret, err);
	buf_wipe(&line);
	return ok;
}

static bool import(const struct context *context, struct slice name, struct err *err)
{
	struct keypair *keypair = NULL;
	uint8_t secret[KEY_BYTES];
	struct err missing;
	bool sealed, ok = false;

	if (!keyfile_name_valid(name))
		return err_set(err, ERR_MALFORMED,
			       "a key's name is 1 to %d letters, digits, '.', '_' or '-'",
			       KEY_NAME_MAX);
	if (keyfile_is_sealed(name, &sealed, &missing) || missing.code != ERR_NOT_FOUND)
		return err_set(err, ERR_REFUSED,
			       "there is a key %.*s already: perch key remove it first, "
			       "or take another name",
			       SLICE_ARG(name));
	if (read_secret(context->passphrase_file, secret, err) &&
	    keypair_create(context->crypto, secret, &keypair, err))
		ok = keyfile_save(name, keypair, err);
	sodium_memzero(secret, sizeof(secret));
	if (ok)
		print_npub(keypair);
	keypair_destroy(keypair);
	return ok;
}

static bool write_ncryptsec(const struct context *context,
			    const uint8_t secret[KEY_BYTES], struct buf *out,
			    struct err *err)
{
	uint8_t salt[NIP49_SALT_BYTES], nonce[NIP49_NONCE_BYTES];
	struct buf passphrase = {0};
	bool ok;

	loop_random(salt, sizeof(salt));
	loop_random(nonce, sizeof(nonce));
	ok = secret_passphrase(context->passphrase_file,
			       "Passphrase for the export: ", true, &passphrase, err) &&
	     nip49_encrypt(secret, buf_slice(&passphrase), NIP49_LOG_N_DEFAULT,
			   NIP49_UNKNOWN, salt, nonce, out, err);
	buf_wipe(&passphrase);
	return ok;
}

static bool export(const struct context *context, struct slice name, struct err *err)
{
	struct keypair *keypair = NULL;
	struct buf text = {.max = LINE_BYTES_MAX};
	uint8_t secret[KEY_BYTES];
	bool ok = load(context, name, &keypair, err);

	if (ok) {
		keypair_secret(keypair, secret);
		ok = context->plain ? nip19_encode(NIP19_NSEC, secret, &text)
				    : write_ncryptsec(context, secret, &text, err);
		sodium_memzero(secret, sizeof(secret));
		keypair_destroy(keypair);
	}
	if (ok)
		(void)printf("%s\n", buf_text(&text));
	buf_wipe(&text);
	return ok;
}

/* ---- sealing ---- */

static bool seal(const struct context *context, struct slice name, struct err *err)
{
	struct keypair *keypair;
	struct buf passphrase = {0};
	bool sealed, ok;

	if (!keyfile_is_sealed(name, &sealed, err))
		return false;
	if (sealed)
		return err_set(err, ERR_REFUSED,
			       "%.*s is sealed already: perch key unseal it first",
			       SLICE_ARG(name));
	if (!load(context, name, &keypair, err))
		return false;
	ok = secret_passphrase(context->passphrase_file, "New passphrase: ", true,
			       &passphrase, err) &&
	     keyfile_rewrite(name, keypair, buf_slice(&passphrase), err);
	if (ok)
		(void)fprintf(stderr,
			      "perch key: sealed; from now on what uses this key needs a "
			      "file with the\n  passphrase (mode 0600) in "
			      "PERCH_PASSPHRASE_FILE\n");
	keypair_destroy(keypair);
	buf_wipe(&passphrase);
	return ok;
}

static bool unseal(const struct context *context, struct slice name, struct err *err)
{
	struct keypair *keypair;
	bool sealed, ok;

	if (!keyfile_is_sealed(name, &sealed, err))
		return false;
	if (!sealed)
		return err_set(err, ERR_REFUSED, "%.*s is not sealed", SLICE_ARG(name));
	if (!load(context, name, &keypair, err))
		return false;
	ok = keyfile_rewrite(name, keypair, SLICE_EMPTY, err);
	keypair_destroy(keypair);
	return ok;
}

/* ---- main ---- */

static bool remove_key(const struct context *context, struct slice name, struct err *err)
{
	(void)context;
	return keyfile_remove(name, err);
}

static bool list(const struct context *context, struct slice name, struct err *err)
{
	(void)name;
	return keyfile_list(list_one, context->crypto, err);
}

static const struct verb {
	const char *name;
	bool (*run)(const struct context *context, struct slice name, struct err *err);
	int min_args, max_args; /* behind it */
} verbs[] = {
	{"show", show, 0, 1},         {"list", list, 0, 0},     {"import", import, 1, 1},
	{"seal", seal, 1, 1},         {"export", export, 1, 1}, {"unseal", unseal, 1, 1},
	{"remove", remove_key, 1, 1},
};

static bool run(const struct context *context, char **args, int arg_count, bool *usage,
		struct err *err)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strcmp(args[0], verbs[i].name) != 0 ||
		    arg_count - 1 < verbs[i].min_args ||
		    arg_count - 1 > verbs[i].max_args)
			continue;
		return verbs[i].run(
			context, arg_count > 1 ? slice_of(args[1]) : SLICE("owner"), err);
	}
	*usage = true;
	return err_set(err, ERR_MALFORMED,
		       "want show [NAME], list, or import, export, seal, unseal or "
		       "remove NAME");
}

int key_main(int argc, char *argv[])
{
	struct context context = {0};
	const struct option_spec specs[] = {
		{.name = "plain",
		 .type = OPTION_FLAG,
		 .value = &context.plain,
		 .help = "export the nsec, which opens without a passphrase",
		 .no_env = true},
		{.name = "passphrase-file",
		 .type = OPTION_TEXT,
		 .value = &context.passphrase_file,
		 .argument = "FILE",
		 .help = "its first line is the passphrase; mode 0600 (default: the "
			 "descriptor in PERCH_PASSPHRASE_FD, else the terminal)"},
		{.name = NULL},
	};
	const struct options_spec spec = {
		.command = "perch key",
		.usage = "list | show [NAME] | import NAME | export [--plain] NAME | "
			 "seal NAME | unseal NAME | remove NAME",
		.summary =
			"Keys of this machine: `owner`, and one for each agent. import "
			"reads an nsec, an ncryptsec (NIP-49) or 64 hex digits from "
			"standard input; export prints an ncryptsec. A sealed key opens "
			"with its passphrase only.",
		.example = "  perch key import owner < my-nsec\n"
			   "  perch key export owner > owner.ncryptsec\n",
		.options = specs,
		.min_args = 1,
		.max_args = 2,
	};
	struct options *options = NULL;
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
		context.crypto = loop_new_crypto(&err);
		if (!context.crypto || !run(&context, args, arg_count, &usage, &err))
			status = client_fail("key", &err);
		if (usage)
			status = 2;
	}
	crypto_destroy(context.crypto);
	options_destroy(options);
	return status;
}
