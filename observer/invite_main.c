#include "observer/observer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "observer/acp.h"
#include "observer/attested.h"
#include "observer/client.h"
#include "observer/expiry.h"
#include "wire/host/keyfile.h"
#include "wire/host/loop.h"
#include "wire/host/options.h"
#include "wire/host/port.h"
#include "wire/link/link_url.h"
#include "wire/nostr/invite.h"
#include "wire/nostr/nip19.h"
#include "wire/nostr/nipoa.h"

#define RELAY_URL "ws://127.0.0.1:7447"

/* A fresh agent key and its attestation. */
struct agent {
	uint8_t secret[KEY_BYTES];
	struct keypair *keypair;
	struct buf tag;
};

static bool agent_make(struct crypto *crypto, const struct keypair *owner,
		       int64_t expires, struct agent *agent, struct err *err)
{
	struct buf conditions = {.max = 64};
	uint8_t aux[32];
	bool ok;

	loop_random(agent->secret, sizeof(agent->secret));
	loop_random(aux, sizeof(aux));
	if (expires)
		(void)buf_printf(&conditions, "created_at<%lld", (long long)expires);
	ok = keypair_create(crypto, agent->secret, &agent->keypair, err) &&
	     nipoa_sign(crypto, owner, keypair_public(agent->keypair),
			conditions.len ? buf_slice(&conditions) : SLICE(""), aux,
			&agent->tag, err);
	buf_finish(&conditions);
	return ok;
}

/* The relay that the observer here listens to, else where one is by itself. */
static void find_relay(struct buf *out)
{
	struct buf fleet = {0};

	if (client_ask("/api/fleet", SLICE_EMPTY, &fleet, NULL))
		acp_set_text(out,
			     acp_get_string(acp_get(acp_get(buf_slice(&fleet), "health"),
						    "relay"),
					    "url"),
			     LINK_URL_MAX);
	if (!out->len) {
		out->max = LINK_URL_MAX;
		(void)buf_lit(out, RELAY_URL);
	}
	buf_finish(&fleet);
}

static bool check_relay(const char *url, struct err *err)
{
	struct link_url parsed;

	if (!link_url_parse(url, &parsed, err))
		return false;
	if (host_is_loopback(parsed.host))
		(void)fprintf(stderr,
			      "perch invite: warning: %s is this machine only: another "
			      "machine cannot reach it; name a relay that it can with "
			      "--relay wss://…\n",
			      url);
	return true;
}

static void explain(const char *name, const struct agent *agent, int64_t expires)
{
	struct buf npub = {.max = 80};
	char when[32] = "never";

	if (expires)
		expiry_text(expires, when);
	(void)nip19_encode(NIP19_NPUB, keypair_public(agent->keypair), &npub);
	(void)fprintf(stderr,
		      "perch invite: this line is a secret: whoever has it is your agent "
		      "%s\n  (%s, expires: %s).\n"
		      "  There: perch agent --invite - -- COMMAND, and paste it; in CI: "
		      "PERCH_INVITE\n"
		      "  as a masked secret. It is not kept here.\n",
		      name, buf_text(&npub), when);
	buf_finish(&npub);
}

static bool run(struct crypto *crypto, const char *name, const char *relay,
		int64_t expires, struct err *err)
{
	struct buf text = {.max = INVITE_CHARS_MAX}, url = {0};
	struct agent agent = {.tag = {.max = 4096}};
	struct keypair *owner = NULL;
	struct invite invite;
	bool ok = false;

	if (!keyfile_name_valid(slice_of(name)) ||
	    slice_eq(slice_of(name), SLICE("owner"))) {
		(void)err_set(err, ERR_MALFORMED,
			      "an agent's name is 1 to %d letters, digits, '.', '_' or "
			      "'-', and not owner",
			      KEY_NAME_MAX);
		goto out;
	}
	if (relay) {
		url.max = LINK_URL_MAX;
		(void)buf_append(&url, slice_of(relay));
	} else {
		find_relay(&url);
	}
	if (!check_relay(buf_text(&url), err) ||
	    !keyfile_ensure(crypto, SLICE("owner"), &owner, NULL, err) ||
	    !agent_make(crypto, owner, expires, &agent, err))
		goto out;
	invite = (struct invite){.relay = buf_slice(&url),
				 .name = slice_of(name),
				 .auth_tag = buf_slice(&agent.tag)};
	memcpy(invite.secret, agent.secret, KEY_BYTES);
	ok = invite_encode(crypto, &invite, &text, err) &&
	     attested_save(keypair_public(agent.keypair), buf_slice(&agent.tag), err);
	sodium_memzero(&invite, sizeof(invite));
	if (ok) {
		explain(name, &agent, expires);
		(void)printf("%s\n", buf_text(&text));
	}
out:
	sodium_memzero(agent.secret, sizeof(agent.secret));
	keypair_destroy(agent.keypair);
	keypair_destroy(owner);
	buf_finish(&agent.tag);
	buf_finish(&url);
	buf_wipe(&text);
	return ok;
}

int invite_main(int argc, char *argv[])
{
	const char *relay = NULL, *expires_text = NULL;
	const struct option_spec specs[] = {
		{.name = "relay",
		 .type = OPTION_TEXT,
		 .value = &relay,
		 .argument = "URL",
		 .help = "relay that both machines reach (default: that of the observer "
			 "here)"},
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
		.command = "perch invite",
		.usage = "[--relay URL] [--expires T] NAME",
		.summary = "Prints one line that puts an agent on another machine, or in "
			   "CI, into your fleet. The line holds that agent's secret key.",
		.example = "  perch invite laptop --relay wss://relay.example\n"
			   "  perch invite ci --expires 30d | gh secret set "
			   "PERCH_INVITE\n",
		.options = specs,
		.min_args = 1,
		.max_args = 1,
	};
	struct options *options = NULL;
	struct crypto *crypto = NULL;
	int64_t expires = 0;
	struct err err;
	char **args;
	int arg_count, status = EXIT_SUCCESS;
	const enum options_result result =
		options_parse(&spec, argc, argv, &options, &args, &arg_count);

	if (result != OPTIONS_OK) {
		status = result == OPTIONS_EXIT_OK ? EXIT_SUCCESS : 2;
	} else if (expires_text &&
		   !expiry_parse(expires_text, loop_unix_ms() / 1000, &expires, &err)) {
		(void)client_fail("invite", &err);
		status = 2;
	} else {
		keyfile_guard_process();
		crypto = loop_new_crypto(&err);
		if (!crypto || !run(crypto, args[0], relay, expires, &err))
			status = client_fail("invite", &err);
	}
	crypto_destroy(crypto);
	options_destroy(options);
	return status;
}
